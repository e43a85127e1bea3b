"""What can't be recorded runs eagerly, every time, and `explain()` says why."""

from __future__ import annotations

import ctypes
import os
import random
import threading
import time

import numpy as np
import pytest

import lamina
from lamina import jit, nn, optim
from lamina.data import DataLoader, TensorDataset
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
    def __getattribute__(self, name):
        return 2.0


opaque, number = Opaque(), ctypes.c_double(2.0)


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
    return lambda x: x * hidden.x


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


CASES = {
    "print": (lambda x: print(x.shape) or x * 2, "print() does more"),
    "global": (assign_global, "the global counter is assigned"),
    "nonlocal": (assign_nonlocal(), "count, of an enclosing function, is assigned"),
    "time": (lambda x: x * time.time(), "the module time is used"),
    "random": (lambda x: x * random.random(), "the module random is used"),
    "numpy.random": (lambda x: x * float(np.random.rand()), "numpy.random is used"),
    "environment": (lambda x: x * len(os.environ.get("HOME", "")), "the module os is used"),
    "append": (lambda x: log.append(1) or x * len(log), "what the global log holds"),
    "module attribute": (Counts(), "Counts.calls: 0 -> 1"),
    "object attribute": (Keeps(), "last: "),
    "slots": (with_hidden(), "slots can't be followed"),
    "__getattribute__": (lambda x: x * opaque.scale, "has a __getattribute__"),
    "ctypes": (lambda x: x * number.value, "which does more than to compute"),
    "iterator": (with_iterator(), "whose changes can't be seen"),
    "lock": (lambda x: x * 2 if lock else x, "whose changes can't be seen"),
    "big array": (lambda x: x * float(big[0]), "too large to be compared"),
    "thread": (threaded, "the module threading is used"),
    "numpy": (lambda x: lamina.tensor(x.numpy() * 2), "numpy() handed out"),
    "array": (lambda x: x * float(np.asarray(x).sum()), "handed out a tensor's memory"),
    "text": (lambda x: x * len(str(x)), "a tensor was turned into text"),
    "format": (lambda x: x * len(f"{x.sum():.3f}"), "a tensor was turned into text"),
    "copied values": (lambda x: lamina.tensor([x, x * 2]), "the values of a tensor were copied"),
    "address": (lambda x: x * (x.data_ptr() % 2), "data_ptr() was asked for"),
    "seed": (lambda x: lamina.manual_seed(1) and x * 2, "a generator was seeded"),
    "mode": (lambda x: lamina.set_grad_enabled(False) and x * 2, "leaves another mode behind"),
    "loader": (lambda x: x * sum(y.sum() for (y,) in loader), "hands out other batches each time"),
    "object": (lambda x: (x * 2, object()), "it returns a object"),
    "long list": (lambda x: lamina.ones(100).tolist(), "tolist() handed 100 numbers"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_it_runs_eagerly_and_says_why(name, capsys):
    function, why = CASES[name]
    traced = jit.trace(function)
    for _ in range(3):
        try:
            traced(lamina.ones(2))
        finally:
            lamina.set_grad_enabled(True)
    assert traced._log.hits == 0
    assert why in traced.explain(), traced.explain()


@pytest.mark.parametrize("name", ["print", "global", "append", "module attribute", "object attribute"])
def test_effects_take_place_at_every_call(name, capsys):
    function, _ = CASES[name]
    traced = jit.trace(function)
    before = (counter, len(log), getattr(function, "calls", 0), id(getattr(function, "last", None)))
    for _ in range(3):
        traced(lamina.ones(2))
    after = (counter, len(log), getattr(function, "calls", 0), id(getattr(function, "last", None)))
    assert before != after or capsys.readouterr().out.count("\n") == 3


def test_an_argument_that_is_changed():
    traced, out = jit.trace(append_argument), []
    for _ in range(3):
        traced(lamina.ones(2), out)
    assert len(out) == 3 and "it changes a list" in traced.explain()


def test_a_container_that_is_handed_back():
    traced = jit.trace(lambda x: x)
    given = [lamina.ones(2)]
    for _ in range(3):
        assert traced(given) is given
    assert "it returns a container that it was given" in traced.explain()


def test_arguments_of_unknown_kinds():
    traced = jit.trace(lambda x, other: x * 2)
    traced(lamina.ones(2), np.ones(2))
    traced(lamina.ones(2), iter([]))
    assert "an argument is a NumPy array; pass a tensor" in traced.explain()
    assert "an argument is a list_iterator" in traced.explain()


def test_a_schedule_belongs_outside():
    w = nn.Parameter(lamina.ones(2))
    optimizer = optim.SGD([w], lr=1.0)
    schedule = StepLR(optimizer, 1, 0.5)

    @jit.trace
    def step(x):
        optimizer.zero_grad()
        (w * x).sum().backward()
        optimizer.step()
        schedule.step()

    for _ in range(3):
        step(lamina.ones(2))
    assert w.tolist() == [1 - 1.75] * 2
    assert "step it outside of the traced function" in step.explain()


def test_a_learning_rate_that_is_set_inside():
    w = nn.Parameter(lamina.ones(2))
    optimizer = optim.SGD([w], lr=1.0)

    @jit.trace
    def step(x):
        optimizer.zero_grad()
        (w * x).sum().backward()
        optimizer.step()
        for group in optimizer.param_groups:
            group["lr"] = group["lr"] / 2

    for _ in range(3):
        step(lamina.ones(2))
    assert w.tolist() == [1 - 1.75] * 2
    assert "SGD.lr: 1.0 -> 0.5" in step.explain()


def test_a_hook_on_a_parameter():
    w, seen = lamina.ones(2, requires_grad=True), []
    w.register_hook(lambda g: seen.append(g))

    @jit.trace
    def f(x):
        w.grad = None
        (w * x).sum().backward()

    for _ in range(3):
        f(lamina.ones(2))
    assert len(seen) == 3 and f._log.hits == 0


def test_a_hook_on_a_parameter_that_comes_later():
    w, seen = lamina.ones(2, requires_grad=True), []

    @jit.trace
    def f(x):
        w.grad = None
        (w * x).sum().backward()

    for _ in range(4):
        f(lamina.ones(2))
    before = f._log.hits
    w.register_hook(lambda g: seen.append(g))
    for _ in range(2):
        f(lamina.ones(2))
    assert before >= 2 and len(seen) == 2 and f._log.hits == before


def test_backward_into_history_from_outside():
    w = lamina.ones(2, requires_grad=True)

    @jit.trace
    def f(y):
        y.sum().backward()

    for number in range(1, 4):
        f(w * 2)
        assert w.grad.tolist() == [2.0 * number] * 2
    assert f._log.hits == 0 and "leads to" in f.explain()


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
    assert "planted" in traced.explain() and traced._log.hits == 0


def test_a_generator_in_the_middle_of_a_function():
    def numbers():
        yield 1.0
        yield 2.0

    traced = jit.trace(lambda x: x * sum(numbers()))
    for _ in range(2):
        assert traced(lamina.ones(1)).item() == 3.0
    assert "stops in the middle" in traced.explain()


def test_anomaly_mode_and_other_recorders_run_the_function_itself():
    traced = jit.trace(lambda x: x * 2)
    with lamina.autograd.detect_anomaly():
        assert traced(lamina.ones(1)).item() == 2.0
    assert "0 recordings" in traced.explain()
