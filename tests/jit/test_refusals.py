"""What can't be recorded runs eagerly, every time, and `explain()` says why."""

from __future__ import annotations

import ctypes
import os
import random
import sys
import threading
import time

import numpy as np
import pytest

import lamina
from lamina import jit, nn, optim
from lamina.data import DataLoader, TensorDataset
from lamina.ir.errors import ArgumentError
from lamina.jit.observe.decode import TABLES
from lamina.optim.lr_scheduler import StepLR

counter = 0
big = np.zeros(100_000)
log: list = []
lock = threading.Lock()
loader = DataLoader(TensorDataset(lamina.ones(4)), batch_size=2)


def assign_global(x):
    global counter
    counter += 1
    return x * 2


def assign_nonlocal():
    count = 0

    def f(x):
        nonlocal count
        count += 1
        return x * count

    return f


class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return x * self.calls


class Opaque:
    answers = {"scale": 2.0}

    def __getattribute__(self, name):
        return Opaque.answers[name]  # a KeyError for all else, `__class__` among it


opaque = Opaque()


class Keeps:
    last = None

    def __call__(self, x):
        self.last = x * 2
        return self.last


def with_hidden():
    class Hidden:
        __slots__ = ("x",)

    hidden = Hidden()
    hidden.x = lamina.ones(2)
    return (lambda x: x * hidden.x), hidden


def with_iterator():
    values = iter([1.0, 2.0, 3.0, 4.0])
    return lambda x: x * next(values)


def append_argument(x, out):
    out.append(x * 2)
    return x * 2


def threaded(x):
    found = []
    t = threading.Thread(target=lambda: found.append(x * 2))
    t.start()
    t.join()
    return found[0]


class Dice(random.Random):
    """Of which nobody knows that it can be put back."""


dice = Dice(0)
CASES = {
    "time": (lambda x: x * time.time(), "time.time() gives another value at each call"),
    "random": (lambda x: x * dice.random(), "another value at each call; draw with lamina's generators"),
    "numpy.random": (lambda x: x * float(np.random.rand(1)[0]), "numpy.random.rand() gives another value"),
    "iterator": (with_iterator(), "a list_iterator from outside was gone through, which that uses up"),
    "big array": (lambda x: x * float(big[0]), "too large to be compared"),
    "thread": (threaded, "from outside was used, and is used up by that (test_refusals.py:"),
    "numpy": (lambda x: lamina.tensor(x.numpy() * 2), "numpy() handed out"),
    "array": (lambda x: x * float(np.asarray(x).sum()), "numpy.asarray() was given a tensor"),
    "text": (lambda x: x * len(str(x)), "a tensor was turned into text"),
    "copied values": (lambda x: lamina.tensor([x[:1], x[1:]]), "the values of a tensor were copied"),
    "address": (lambda x: x * (x.data_ptr() % 2), "data_ptr() was asked for"),
    "seed": (lambda x: lamina.manual_seed(1) and x * 2, "a generator was seeded"),
    "mode": (lambda x: lamina.set_grad_enabled(False) and x * 2, "leaves another mode behind"),
    "loader": (lambda x: x * sum(y.sum() for (y,) in loader), "hands out other data at each call; loop"),
    "object": (lambda x: (x * 2, object()), "an object that the run made outlives it, and can't be made"),
    "long list": (lambda x: lamina.ones(100).tolist(), "tolist() handed 100 numbers"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_it_runs_eagerly_and_says_why(name):
    function, why = CASES[name]
    traced = jit.trace(function)
    for _ in range(3):
        try:
            traced(lamina.ones(2))
        finally:
            lamina.set_grad_enabled(True)
    assert traced._log.hits == 0
    assert why in traced.explain(detail=True), traced.explain()


# ---- what once was refused, and is followed now ------------------------------------------------------------
def test_what_is_printed_is_printed_at_every_call(capsys):
    traced = jit.trace(lambda x: print(x.shape, "as", x.dtype) or x * 2)
    for _ in range(3):
        assert traced(lamina.ones(2)).tolist() == [2.0, 2.0]
    assert traced._log.hits == 2
    assert capsys.readouterr().out == "lamina.Size([2]) as lamina.float32\n" * 3


@pytest.mark.parametrize("kind", ["global", "nonlocal", "module"])
def test_a_count_that_is_assigned_becomes_an_input(kind):
    global counter
    counter = 0
    function = {"global": assign_global, "nonlocal": assign_nonlocal(), "module": Counts()}[kind]
    traced = jit.trace(function)
    for number in range(1, 8):
        got = traced(lamina.ones(2)).tolist()
        assert got == [2.0 if kind == "global" else number] * 2
        if kind != "nonlocal":
            assert (counter if kind == "global" else function.calls) == number
    assert traced._log.hits >= 3, traced.explain()


def test_appending_to_a_list_outside():
    log.clear()
    traced = jit.trace(lambda x: log.append(1) or x * 2)
    for number in range(1, 6):
        assert traced(lamina.ones(2)).tolist() == [2.0, 2.0] and log == [1] * number
    assert traced._log.hits == 4
    counting = jit.trace(lambda x: log.append(1) or x * len(log))  # each length is a recording
    for number in range(6, 9):
        assert counting(lamina.ones(2)).tolist() == [number] * 2 and log == [1] * number


def test_the_environment_is_looked_at(monkeypatch):
    monkeypatch.setenv("LAMINA_TEST_ONLY", "ab")
    traced = jit.trace(lambda x: x * len(os.environ.get("LAMINA_TEST_ONLY", "")))
    for text in ("ab", "ab", "abc", "abc", ""):
        monkeypatch.setenv("LAMINA_TEST_ONLY", text)
        assert traced(lamina.ones(2)).tolist() == [len(text)] * 2
    monkeypatch.delenv("LAMINA_TEST_ONLY")
    assert traced(lamina.ones(2)).tolist() == [0.0, 0.0]
    assert traced._log.hits == 2


def test_a_tensor_that_is_kept_in_an_attribute():
    keeps = Keeps()
    traced = jit.trace(keeps)
    for value in (1.0, 2.0, 3.0):
        before = keeps.last
        result = traced(lamina.full((2,), value))
        assert keeps.last is result and result is not before and result.tolist() == [2 * value] * 2
    assert traced._log.hits == 2


def test_a_tensor_in_a_slot_is_looked_at():
    function, hidden = with_hidden()
    traced = jit.trace(function)
    for value in (1.0, 1.0, 3.0, 3.0):
        hidden.x.fill_(value)
        assert traced(lamina.ones(2)).tolist() == [value] * 2
    for value in (5.0, 5.0):
        hidden.x = lamina.full((2,), value)
        assert traced(lamina.ones(2)).tolist() == [value] * 2
    assert traced._log.hits >= 3


def test_a_getattribute_of_the_users_is_followed():
    traced = jit.trace(lambda x: x * opaque.scale)
    kept = Opaque.answers["scale"]
    for value in (2.0, 2.0, 3.0, 3.0):
        Opaque.answers["scale"] = value
        assert traced(lamina.ones(2)).tolist() == [value] * 2
    Opaque.answers["scale"] = kept
    assert traced._log.hits == 2


def test_nobody_asks_an_object_behind_its_back():
    asked = []

    class Watched:
        def __getattribute__(self, name):
            asked.append(name)
            return object.__getattribute__(self, name)

        def __call__(self, x):
            return [x * self.scale, self]

    watched = Watched()
    object.__setattr__(watched, "scale", 3.0)
    asked_before = len(asked)
    found = jit.trace(lambda x, o: [o, watched(x)[0], o.scale])(lamina.ones(2), watched)
    assert found[0] is watched and found[1].tolist() == [3.0, 3.0] and found[2] == 3.0
    assert asked[asked_before:] == ["scale", "scale"]


def test_a_class_that_an_object_claims_is_not_its_type():
    class Plain:
        factor = 2.0

    class Claims:
        factor = 2.0
        __class__ = property(lambda self: Plain)

    kept = Plain()
    told = jit.trace(lambda x, o: x * (2.0 if type(o) is Plain else 3.0) * o.factor)
    held = jit.trace(lambda x: x * (2.0 if type(kept) is Plain else 3.0) * kept.factor)
    for kind, value in ((Plain, 4.0), (Plain, 4.0), (Claims, 6.0), (Claims, 6.0)):
        kept = kind()
        assert told(lamina.ones(2), kept).tolist() == [value] * 2
        assert held(lamina.ones(2)).tolist() == [value] * 2
    asked = jit.trace(lambda x, o: x * (2.0 if isinstance(o, Plain) else 3.0))
    for kind in (Plain, Plain, Claims, Claims):
        assert asked(lamina.ones(2), kind()).tolist() == [2.0, 2.0]


def test_a_number_that_c_code_keeps_is_looked_at():
    number = ctypes.c_double(2.0)
    traced = jit.trace(lambda x: x * number.value)
    for value in (2.0, 2.0, 3.0, 3.0):
        number.value = value
        assert traced(lamina.ones(2)).tolist() == [value] * 2
    assert traced._log.hits == 2


def test_a_lock_is_an_object_like_others():
    traced = jit.trace(lambda x: x * 2 if lock else x)
    for _ in range(3):
        assert traced(lamina.ones(2)).tolist() == [2.0, 2.0]
    assert traced._log.hits == 2


def test_an_argument_that_is_changed():
    traced, out = jit.trace(append_argument), []
    for number in range(1, 4):
        result = traced(lamina.full((2,), float(number)), out)
        assert result.tolist() == [2.0 * number] * 2
        assert [y.tolist() for y in out] == [[2.0 * n] * 2 for n in range(1, number + 1)]
        assert all(y is not result for y in out)
    assert traced._log.hits == 2


def test_a_container_that_is_handed_back():
    traced = jit.trace(lambda x: x)
    for _ in range(3):
        given = [lamina.ones(2)]
        assert traced(given) is given
    assert traced._log.hits == 2


def test_arrays_and_iterators_as_arguments():
    traced = jit.trace(lambda x, other: x * 2 + float(other[0]))
    for value in (1.0, 1.0, 4.0):
        assert traced(lamina.ones(2), np.full(2, value)).tolist() == [2.0 + value] * 2
    assert traced._log.hits == 1 and "other: a ndarray -> " in traced.explain(detail=True)
    used = jit.trace(lambda x, other: x * next(other))
    for _ in range(3):
        values = iter([3.0, 4.0])
        assert used(lamina.ones(2), values).tolist() == [3.0, 3.0] and next(values) == 4.0
    assert used._log.hits == 0 and "a list_iterator" in used.explain(detail=True)
    left = jit.trace(lambda x, other: x * 2)
    for _ in range(3):
        assert left(lamina.ones(2), iter([])).tolist() == [2.0, 2.0]
    assert left._log.hits == 2


@pytest.mark.parametrize("halve", ["schedule", "groups"])
def test_a_learning_rate_that_is_set_inside_is_refused_no_more(halve):
    w = nn.Parameter(lamina.ones(2))
    optimizer = optim.SGD([w], lr=1.0)
    schedule = StepLR(optimizer, 1, 0.5) if halve == "schedule" else None

    @jit.trace
    def step(x):
        optimizer.zero_grad()
        (w * x).sum().backward()
        optimizer.step()
        if schedule is not None:
            schedule.step()
        else:
            for group in optimizer.param_groups:
                group["lr"] = group["lr"] / 2

    for _ in range(3):
        step(lamina.ones(2))
    assert w.tolist() == [1 - 1.75] * 2 and optimizer.param_groups[0]["lr"] == 0.125
    assert step.counts()["eager"] == 0 and "refused" not in step.explain(detail=True), step.explain()


def test_backward_into_history_from_outside():
    w = lamina.ones(2, requires_grad=True)

    @jit.trace
    def f(y):
        y.sum().backward()

    for number in range(1, 4):
        f(w * 2)
        assert w.grad.tolist() == [2.0 * number] * 2
    assert f._log.hits == 0 and "the history of a tensor from outside" in f.explain(detail=True)


def test_a_compile_failure_is_one_warning_and_then_eager(monkeypatch):
    def broken(*_, **__):
        raise ZeroDivisionError("planted")

    monkeypatch.setattr("lamina.jit.backend.compile_graph", broken)
    traced = jit.trace(lambda x: x * 2)
    with pytest.warns(
        UserWarning, match="could not be compiled: ZeroDivisionError: planted(.|\n)*please report"
    ):
        traced(lamina.ones(2))
    for _ in range(2):
        assert traced(lamina.ones(2)).tolist() == [2.0, 2.0]
    assert "planted" in traced.explain(detail=True) and traced._log.hits == 0


def test_a_generator_that_is_used_up_inside_is_followed():
    def numbers():
        yield 1.0
        yield limit

    limit = 2.0
    traced = jit.trace(lambda x: x * sum(numbers()))
    for value in (2.0, 2.0, 5.0, 5.0):
        limit = value
        assert traced(lamina.ones(1)).item() == 1.0 + value
    assert traced._log.hits == 2
    with pytest.raises(ArgumentError, match="a generator or a coroutine stops in the middle"):
        jit.trace(numbers)


def test_anomaly_mode_and_other_recorders_run_the_function_itself():
    traced = jit.trace(lambda x: x * 2)
    with lamina.autograd.detect_anomaly():
        assert traced(lamina.ones(1)).item() == 2.0
    assert "0 recordings" in traced.explain(detail=True)


@pytest.mark.parametrize("verify", [False, True])
def test_where_bytecode_is_unknown_a_traced_function_runs_undecorated(monkeypatch, tmp_path, verify):
    monkeypatch.delitem(TABLES, sys.version_info[:2])
    frames = []

    @jit.trace(verify=verify)
    def f(x, *rest):
        frames.append(sys._getframe().f_code)  # what interprets would refuse this, or forge it
        if x is None:
            raise KeyError("x")
        return x * 2

    x = lamina.ones(3)
    with pytest.warns(UserWarning, match="runs undecorated: the bytecode of Python") as warned:
        assert f(x).tolist() == [2, 2, 2]
    assert len(warned) == 1
    for _ in range(3):
        assert f(x, 1).tolist() == [2, 2, 2]
    with lamina.no_grad():
        assert f(x).tolist() == [2, 2, 2]
    with pytest.raises(KeyError):
        f(None)
    assert all(code is f.__wrapped__.__code__ for code in frames)
    assert f.counts() == {"served": 0, "recorded": 0, "eager": 6, "raised": 0, "within": 0}
    assert f.explain(detail=True).count("can't be interpreted") == 2  # the verdict, and the reason
    with pytest.raises(jit.ExportError, match="can't be interpreted"):
        jit.export(f, tmp_path / "f.lamina", x)
