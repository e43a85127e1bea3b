"""Everything public, called with one argument wrong: a result, or one of Lamina's errors, and nothing else.

The calls run in processes of their own, with a limit on memory and on each call's time, so that a crash, a
hang or an array without bounds is a failure like others.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import lamina
from lamina import nn, optim
from lamina.nn import functional as F
from lamina.optim import lr_scheduler

SPOIL = Path(__file__).with_name("spoil.py")
# How many shares each group's calls come in; the first is always tried, the others by the slow test.
SHARES = {
    "records": 8, "composites": 8, "functional": 4, "utilities": 2, "modules": 24, "optimizers": 8, "data": 1,
    "creation": 2, "transforms": 2, "distributions": 8,
}  # fmt: skip


def spoilt(group: str, share: int, shares: int) -> dict:
    done = subprocess.run(
        [sys.executable, str(SPOIL), group, str(share), str(shares)],
        capture_output=True, text=True, timeout=110, cwd=SPOIL.parent,
    )  # fmt: skip
    assert done.returncode == 0, f"the process ended at {done.stderr[-2000:]}"
    return json.loads(done.stdout)


def check(group: str, share: int) -> None:
    found = spoilt(group, share, SHARES[group])
    print(f"{group}: {found['calls']} calls, {len(found['unforeseen'])} refused by no rule of their own")
    print("\n".join(found["unforeseen"]))
    assert found["calls"] > 50
    assert not found["faults"], "\n".join(found["faults"])


@pytest.mark.sampled(9)
@pytest.mark.parametrize("group", SHARES)
def test_spoilt_calls_end_in_laminas_errors(group):
    check(group, 0)


@pytest.mark.slow
@pytest.mark.parametrize("group, share", [(g, n) for g, count in SHARES.items() for n in range(1, count)])
def test_all_spoilt_calls_end_in_laminas_errors(group, share):
    check(group, share)


X = lamina.ones(2, 3)
IMAGE, KERNEL = lamina.ones(1, 1, 4, 4), lamina.ones(1, 1, 2, 2)


def optimizer():
    return optim.Adam([lamina.ones(3, requires_grad=True)])


RULED = {
    "mse_loss None": (lambda: F.mse_loss(X, None), "mse_loss"),
    "cross_entropy None": (lambda: F.cross_entropy(X, None), "cross_entropy"),
    "unique None": (lambda: lamina.unique(None), "unique"),
    "equal number": (lambda: lamina.equal(X, 5), "equal"),
    "conv2d word": (lambda: F.conv2d(IMAGE, KERNEL, stride="a"), "conv2d"),
    "interpolate by 0": (lambda: F.interpolate(IMAGE, scale_factor=0), "interpolate"),
    "tensordot of 9": (lambda: lamina.tensordot(X, X, 9), "tensordot"),
    "default dtype": (lambda: lamina.set_default_dtype("a"), "set_default_dtype"),
    "load nothing": (lambda: optimizer().load_state_dict({}), "load_state_dict"),
    "StepLR of 0": (lambda: lr_scheduler.StepLR(optimizer(), 0).step(), "StepLR"),
}


@pytest.mark.parametrize("name", RULED)
def test_a_rule_refuses(name):
    call, named = RULED[name]
    with pytest.raises(lamina.LaminaError, match=named) as caught:
        call()
    assert caught.value.__cause__ is None, "no rule did: it failed inside"


def test_a_users_exceptions_stay_as_they_are():
    class Broken(nn.Module):
        def forward(self, x):
            return x.no_such_thing

    class Rows:
        def __len__(self):
            return 3

        def __getitem__(self, place):
            raise ZeroDivisionError("mine")

    def closure():
        return {}["mine"]

    def distance(x, y):
        raise IndexError("mine")

    def parameters():
        yield lamina.ones(3, requires_grad=True)
        raise ValueError("mine")

    for expected, call in (
        (AttributeError, lambda: Broken()(X)),
        (AttributeError, lambda: nn.Sequential(Broken())(X)),
        (ZeroDivisionError, lambda: list(lamina.data.DataLoader(Rows()))),
        (KeyError, lambda: optimizer().step(closure)),
        (IndexError, lambda: F.triplet_margin_with_distance_loss(X, X, X, distance_function=distance)),
        (ValueError, lambda: optim.SGD(parameters(), 0.1)),
    ):
        with pytest.raises(expected) as caught:
            call()
        assert not isinstance(caught.value, lamina.LaminaError)


def test_a_users_recursion_stays_as_it_is():
    def deeper(x):
        return deeper(x + 1)

    with pytest.raises(RecursionError):
        deeper(X)


def test_failed_look_ups_stay_look_up_errors():
    with pytest.raises(AttributeError, match="nothing"):
        X.nothing  # noqa: B018
    with pytest.raises(AttributeError, match="nothing"):
        lamina.nothing  # noqa: B018
    with pytest.raises(AttributeError, match="nothing"):
        nn.Linear(2, 2).nothing  # noqa: B018
    with pytest.raises(KeyError):
        nn.ModuleDict()["nothing"]
    with pytest.raises(KeyError):
        nn.Linear(2, 2).state_dict()["nothing"]


def test_a_bool_is_the_place_it_counts_as():
    assert X.select(0, True).shape == X.select(0, 1).numpy().shape
