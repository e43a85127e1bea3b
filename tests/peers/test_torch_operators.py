"""A day's share of PyTorch's operator database against Lamina, and the list of what is known to differ.

All of it, with a table: python tests/peers/op_database.py --write
"""

from __future__ import annotations

import functools
import os
import time
import zlib

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is the peer here: pip install lamina[peers]")
pytest.importorskip("expecttest", reason="PyTorch's operator database asks for it: pip install lamina[peers]")

import operator_references as references  # noqa: E402
from operator_comparison import FORMS, REFERENCE, Outcome, examined, reason_left_out  # noqa: E402
from operator_differences import EXPECTED, expected, title  # noqa: E402
from operator_forms import Absent, Unsayable, named, translated  # noqa: E402

SHARE = 40  # entries are dealt to so many days; a day's take half a minute
SAMPLES = 2  # of each entry and dtype
BAD = ("absent", "raises", "differs")


def seed() -> int:
    """The day, or what $LAMINA_OPERATORS_SEED says."""
    return int(os.environ.get("LAMINA_OPERATORS_SEED", time.time() // 86400))


@pytest.fixture(scope="module")
def entries() -> dict:
    from torch.testing._internal.common_methods_invocations import op_db

    return {title(entry): entry for entry in op_db}


def drawn(names: list[str], share: int) -> list[str]:
    """The names whose day it is."""
    return [name for name in names if (zlib.crc32(name.encode()) + seed()) % share == 0]


@pytest.mark.timeout(300)  # PyTorch loads much of itself at a first call
def test_a_days_share_agrees(entries):
    wrong = []
    for name in drawn(sorted(entries), SHARE):
        for form, outcome in examined(entries[name], SAMPLES, seed()).items():
            if outcome.kind in BAD and expected(name, form) is None:
                wrong.append(f"{name}, {form}: {outcome.kind}: {outcome.note}")
    assert not wrong, f"seed {seed()}:\n" + "\n".join(wrong)


def test_what_is_listed_is_an_entry_and_a_form(entries):
    for name, forms in EXPECTED.items():
        assert name in entries, f"{name} is no entry of torch {torch.__version__}'s database"
        assert reason_left_out(entries[name]) is None, f"{name} is left out already"
        assert forms and set(forms) <= set(FORMS), name
        assert all(len(reason) > 10 for reason in forms.values()), f"{name}: say why"


def is_absent(forms: dict[str, str]) -> bool:
    return forms.get("function", "").startswith("absent")


def test_what_is_listed_as_absent_is(entries):
    for name, forms in EXPECTED.items():
        if not is_absent(forms) or name not in drawn([name], 3):
            continue
        entry = entries[name]
        try:
            translated(entry.op, entry.name)
        except Absent:
            continue
        # What a function of PyTorch's tests names is looked up as it runs.
        assert any(o.kind == "absent" for o in examined(entry, 1).values()), f"{name} is there: unlist it"


def test_what_is_listed_still_differs(entries):
    listed = [name for name, forms in EXPECTED.items() if not is_absent(forms)]
    for name in drawn(listed, 6)[:6]:
        outcomes = examined(entries[name])
        for form in EXPECTED[name]:
            assert form in outcomes and outcomes[form].kind in BAD, f"{name}, {form} agrees now: unlist it"


def test_a_planted_difference_is_seen(entries, monkeypatch):
    import lamina

    monkeypatch.setattr(lamina, "sinh", lamina.cosh)
    found = examined(entries["sinh"], 1)["function"]
    assert found.kind == "differs" and "PyTorch's is" in found.note


def off(function, by):
    """A function whose results are off."""

    def planted(*args, **kwargs):
        found = function(*args, **kwargs)
        return found + by * found.detach()

    return planted


def off_in_gradients(function, by):
    """A function of right results, whose gradient is off."""

    def planted(input, *args, **kwargs):
        found = function(input, *args, **kwargs)
        return found + by * (input - input.detach()).sum() if found.requires_grad else found

    return planted


# Where PyTorch's results or gradients are not right to the last digits: by how much a planted fault is
# off, which is less than PyTorch is.
JUDGED = {
    "special.airy_ai": (off, 1e-11),
    "special.bessel_j0": (off, 1e-10),
    "special.bessel_y1": (off, 1e-10),
    "special.ndtr": (off, 2e-12),
    "nn.functional.hardsigmoid": (off_in_gradients, 1e-10),
    "as_strided_scatter": (off_in_gradients, 1e-6),
    "logcumsumexp": (off_in_gradients, 2e-12),
}


@pytest.mark.parametrize("name", JUDGED)
def test_a_reference_decides_and_sees_what_is_planted(name, entries, monkeypatch):
    """A fault that is smaller than PyTorch's is one."""
    import lamina

    assert examined(entries[name])["function"].kind == REFERENCE
    plant, by = JUDGED[name]
    *path, last = name.split(".")
    place = functools.reduce(getattr, path, lamina)
    monkeypatch.setattr(place, last, plant(getattr(place, last), by))
    assert examined(entries[name])["function"].kind == "differs"


def test_a_write_is_held_to_the_function_where_pytorch_contradicts_itself(entries, monkeypatch):
    import lamina

    function = lamina.fft.ihfftn
    assert examined(entries["fft.ihfftn"])["out="].kind == REFERENCE
    for fault in (1 + 1e-5, 0):  # PyTorch's leaves zeros
        monkeypatch.setattr(
            lamina.fft, "ihfftn",
            lambda *a, out, fault=fault, **k: lamina.mul(function(*a, **k), fault, out=out),
        )  # fmt: skip
        assert examined(entries["fft.ihfftn"])["out="].kind == "differs"


@pytest.mark.parametrize("name", ("linalg.cholesky", "linalg.pinv:hermitian"))
def test_gradients_are_those_of_the_databases_wrapper(name, entries, monkeypatch):
    """A part of a gradient that no Hermitian input sees may be any; what one sees is compared."""
    import lamina

    assert examined(entries[name])["function"].kind == "agrees"
    place = lamina.linalg
    function = getattr(place, entries[name].name.split(".")[1])
    planted = {
        "agrees": lambda x, *a, **k: function(x + (x - x.mH - (x - x.mH).detach()), *a, **k),
        "differs": lambda x, *a, **k: function(x + 1e-9 * (x - x.detach()), *a, **k),
    }
    for kind, fault in planted.items():
        monkeypatch.setattr(place, function.__name__.removeprefix("linalg_"), fault)
        assert examined(entries[name])["function"].kind == kind


def test_what_would_be_broadcast_may_not_be_written(entries, monkeypatch):
    import lamina

    assert examined(entries["addbmm"])["in place"].kind == "agrees"

    def resized(input, *args, **kwargs):
        found = lamina.addbmm(input, *args, **kwargs)
        return input.resize_(found.shape).copy_(found)

    monkeypatch.setattr(lamina.Tensor, "addbmm_", resized)  # as PyTorch's does
    assert examined(entries["addbmm"])["in place"].kind == "differs"


def test_slopes_know_how_sure_they_are():
    steps = references.STEPS

    def found(f, x):
        def around(h):
            return f(x + h) - f(x - h), f(x + h) - 2 * f(x) + f(x - h), 4e-16 * abs(f(x))

        return references.slope(around, steps)

    for f, x, wanted in (
        (np.sin, 1.0, np.cos(1.0)),
        (np.exp, 2.0, np.exp(2.0)),
        (np.sqrt, 0.5, 0.5**-0.5 / 2),
    ):
        value, doubt = found(f, x)
        assert abs(value - wanted) <= doubt < 1e-12
    assert found(np.abs, 0.001)[1] > 1e-3  # the kink lies within every step
    assert found(np.abs, 0.0)[1] == np.inf  # where differences give 0, and mean nothing
    assert found(lambda x: max(x, 0.0), 0.0)[1] == np.inf


def test_references_of_special_functions_are_right():
    """By mpmath: Lamina's are SciPy's own, as the references are."""
    mpmath = pytest.importorskip("mpmath", reason="it comes with PyTorch")
    import lamina

    exact = {
        "airy_ai": mpmath.airyai, "bessel_j0": lambda x: mpmath.besselj(0, x),
        "bessel_j1": lambda x: mpmath.besselj(1, x), "bessel_y0": lambda x: mpmath.bessely(0, x),
        "bessel_y1": lambda x: mpmath.bessely(1, x), "ndtr": mpmath.ncdf,
    }  # fmt: skip
    with mpmath.workdps(30):
        for name, function in exact.items():
            low = 0.1 if name[-2] == "y" else -9.0
            points = np.linspace(low, 9.0, 37)
            wanted = np.array([float(function(x)) for x in points])
            found = getattr(lamina.special, name)(lamina.tensor(points)).numpy()
            theirs = getattr(torch.special, name)(torch.tensor(points)).numpy()
            # What the rounding of an argument does: up to 9 * eps of slopes below 1; of the logarithm, whose
            # rounding are the digits of a tail, 81 * eps.
            scale = wanted if name == "ndtr" else 1.0
            ours, peer = (np.abs((x - wanted) / scale).max() for x in (found, theirs))
            assert ours < (2e-14 if name == "ndtr" else 1e-14) and peer > 2 * ours, name


def test_the_worst_sample_is_the_outcome():
    outcome = Outcome()
    assert outcome.kind == "not testable"
    outcome.add("agrees")
    outcome.add("differs", "how")
    assert (outcome.kind, outcome.note) == ("differs", "how")


def test_names_are_looked_up():
    assert named("nn.functional.relu")
    with pytest.raises(Absent):
        named("no.such.thing")
    with pytest.raises(Unsayable):
        translated(torch.ops.aten.add, "ops.aten.add")
