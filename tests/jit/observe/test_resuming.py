"""Frames that go on natively in the middle of a function, from any of their jumps back, against CPython."""

from __future__ import annotations

import gc
import weakref
from functools import partial

import bytecode_programs
import pytest
from test_interpret_random import agreeing
from test_interpreting import Interpreter, compare

from lamina.jit.observe import interpret, tracebacks
from lamina.jit.observe.resuming import resumed

tracebacks.HIDDEN.add(__file__)  # `counted` stands between the frames that are compared


class Leaving(Interpreter):
    """Goes on natively from one of the first jumps back on."""

    def __init__(self, first=1):
        super().__init__()
        self.left = first

    def _turns(self):
        self.left -= 1
        if self.left <= 0:
            self.refuse("enough")
            self.leaving = True
        return self.leaving


@pytest.fixture
def left(monkeypatch):
    """The names of the functions that went on natively."""
    names = []

    def counted(frame):
        value = resumed(frame)
        if value is not interpret.NULL:
            names.append(frame.program.code.co_name)
        return value

    monkeypatch.setattr(interpret, "resumed", counted)
    return names


@pytest.mark.parametrize("first", [2, 3, 4, 7])
def test_programs_of_every_construct_end_as_a_native_run(first, left):
    for function, args in bytecode_programs.PROGRAMS:
        compare(function, args, Leaving(first))
    assert len({*left}) > 4


@pytest.mark.sampled(9)
@pytest.mark.parametrize("start", range(0, 275, 25))
def test_random_programs_end_as_a_native_run(start, left):
    for seed in range(start, start + 25):
        agreeing(seed, partial(Leaving, 2 + seed % 4))
    assert left


class Thing:
    pass


def rebinding(log):
    """What a variable held dies at once."""
    things = [Thing() for _ in range(4)]
    held = things[0]
    alive = weakref.ref(held)
    del things[0]
    for n in range(3):
        log.append((n, alive() is None))
        held = None
    return held


def enclosed(log):
    total, deep = 0, []

    def add(n):
        nonlocal total
        total += n
        return total

    for n in range(5):
        deep.append(lambda: (n, total))  # noqa: B023 - the cell of the loop's own variable
        log.append(add(n))
    return [each() for each in deep], sorted(locals())


def named(log, /, *rest, key=5, **more):
    while key:
        key -= 1
        log.append((rest, key, more))
    del rest
    try:
        return rest  # noqa: F821
    except UnboundLocalError as error:
        return str(error)


def called_by_name(log):
    return named(log, 1, 2, key=4, z=3)


def far(log):
    """A loop whose jump takes more than one byte."""
    for n in range(4):
        a = n
        b = a + 1
        c = b + 1
        d = c + 1
        e = d + 1
        f = e + 1
        log.append([a, b, c, d, e, f, [a, b, c], (d, e, f), {a: b, c: d}, {a, b}, f"{a}{b}{c}", a < b < c])
        log.append([a, b, c, d, e, f, [a, b, c], (d, e, f), {a: b, c: d}, {a, b}, f"{a}{b}{c}", a < b < c])
        log.append([a, b, c, d, e, f, [a, b, c], (d, e, f), {a: b, c: d}, {a, b}, f"{a}{b}{c}", a < b < c])
        log.append([a, b, c, d, e, f, [a, b, c], (d, e, f), {a: b, c: d}, {a, b}, f"{a}{b}{c}", a < b < c])
        log.append([a, b, c, d, e, f, [a, b, c], (d, e, f), {a: b, c: d}, {a, b}, f"{a}{b}{c}", a < b < c])
    return a, f


class Below(Thing):
    def of(self):
        return "below"


class Above(Below):
    def of(self, log):
        for n in range(3):
            log.append((n, super().of(), __class__.__name__))
        return self


def of_a_class(log):
    return type(Above().of(log))


def generating(log):
    def inner(n):
        try:
            while True:
                n += yield n
                log.append(n)
        finally:
            log.append("closed")

    made = inner(1)
    log.append(next(made))
    for n in range(5):
        log.append(made.send(n))
    made.close()
    return list(made), tuple(x * y for x in range(3) for y in range(x))


@pytest.mark.parametrize("first", range(2, 8))
@pytest.mark.parametrize(
    "function", [rebinding, enclosed, called_by_name, far, of_a_class, generating], ids=lambda f: f.__name__
)
def test_what_a_frame_holds_goes_on_as_it_was(function, first, left):
    expected, found = [], []
    result = function(expected)
    assert Leaving(first).call(function, (found,)) == result
    assert found == expected
    assert left or first in (2, 6, 7)


def test_a_frame_that_handles_an_error_stays_interpreted(left):
    def function(log):
        try:
            raise KeyError(5)
        except KeyError as error:
            for n in range(4):
                log.append((n, repr(error.__context__)))
        return log

    assert Leaving(2).call(function, ([],)) == function([])
    assert not left


def test_nothing_of_the_frame_is_kept(left):
    def function(thing):
        for _ in range(3):
            alive = weakref.ref(thing)
        del thing
        return alive

    gc.disable()
    try:
        assert Leaving(2).call(function, [Thing()])() is None
    finally:
        gc.enable()
    assert left == ["function"]
