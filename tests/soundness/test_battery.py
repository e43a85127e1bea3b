"""Every program of the battery does traced what it does undecorated; and the battery notices what differs."""

from __future__ import annotations

import contextlib
import io
from collections import Counter

import pytest
from battery import EAGER, NAIVE, TRACED, Library, World, difference, judged, programs, ran

import lamina
from lamina.jit import within

PROGRAMS = programs()


@pytest.mark.sampled(18)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: f"{p.kind}-{p.name}")
def test_battery_traced_is_eager(program, record_property):
    verdict = judged(program, ran(program, EAGER), TRACED)
    record_property("soundness", {"counts": verdict.counts(), "reasons": dict(verdict.reasons)})
    assert verdict.wrong is None or verdict.hole


@pytest.mark.parametrize("program", programs("within"), ids=lambda p: p.name)
def test_battery_serves_what_refused_programs_call(program, monkeypatch):
    monkeypatch.setattr(within, "MOST_PER_OP", 60.0)  # no outcome hangs on how fast this machine is
    with program.fresh(TRACED) as function, World(TRACED) as world:
        function(world)
        (traced,) = world._traced
        counts = traced.counts()
    assert counts["served"] == 0 and counts["within"] > 4, traced.explain()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", sorted({program.kind for program in PROGRAMS}))
def test_battery_programs_are_steady_and_change_something(kind, of_the_day):
    """Two undecorated runs agree, and a tracer that keeps its first result is wrong on every program."""
    unsteady, unfound, few = [], [], []
    for program in of_the_day([program for program in PROGRAMS if program.kind == kind], 8):
        eager, again = ran(program, EAGER), ran(program, EAGER)
        if difference(eager, again)[0]:
            unsteady.append(program.name)
        if judged(program, eager, NAIVE).wrong is None:
            unfound.append(program.name)
        if eager.calls["given"] + eager.calls["raised"] < 3 or not eager.calls.total() - eager.calls["given"]:
            few.append(program.name)
    assert (unsteady, unfound, few) == ([], [], [])


def test_battery_names_are_unique_and_enough():
    repeated = [name for name, n in Counter((p.kind, p.name) for p in PROGRAMS).items() if n > 1]
    assert not repeated
    assert len(PROGRAMS) >= 1_100


# ---- each thing that is compared, with a tracer that gets it wrong -----------------------------------------
class Real(float):
    """As a number that stands for an input of a graph, which must not show."""


def shows_everything(w):
    """All that a call can show, in one function."""
    state, numbers = [], {"calls": 0}
    w.see(state=state, numbers=numbers)

    @w.trace
    def f(x, held):
        print("called")
        w.logger.info("called")
        numbers["calls"] += 1
        if numbers["calls"] % 3 == 0:
            raise ValueError("a third call")
        held.append(x)
        return x * 2, x[:2], 0.5, [state, held]

    for held in w.rounds([], [w.m]):
        w.call(f, w.x, held)


def after(change):
    """A tracer whose results are changed."""
    return lambda function: lambda *args: change(*function(*args))


def around(make):
    """A tracer whose calls run inside of a context."""

    def trace(function):
        def call(*args):
            with make():
                return function(*args)

        return call

    return trace


def leaves_a_mode(function):
    def call(*args):
        lamina.set_grad_enabled(False)
        return function(*args)

    return call


def raises(error, of):
    """A tracer that raises another exception."""

    def trace(function):
        def call(*args):
            try:
                return function(*args)
            except of:
                raise error from None

        return call

    return trace


def copies_arguments(function):
    return lambda x, held: function(x, list(held))


def keeps_memory():
    memory = lamina.zeros(4)

    def change(y, *rest):
        memory.copy_(y)
        return memory.detach(), *rest

    return after(change)


PLANTED = {
    "values": after(lambda y, *rest: (y + 1e-4, *rest)),
    "dtype": after(lambda y, *rest: (y.double(), *rest)),
    "strides": after(lambda y, *rest: (lamina.stack([y, y], 1)[:, 0], *rest)),
    "requires grad": after(lambda y, *rest: (y.requires_grad_(), *rest)),
    "a leaf": after(lambda y, *rest: (y.detach().requires_grad_() * 1, *rest)),
    "a view became a copy": after(lambda y, view, *rest: (y, view.clone(), *rest)),
    "memory used again": keeps_memory(),
    "the type of a number": after(lambda y, view, n, lists: (y, view, Real(n), lists)),
    "a number": after(lambda y, view, n, lists: (y, view, n + 1e-3, lists)),
    "a list became a copy": after(lambda *r: (*r[:3], [list(r[3][0]), r[3][1]])),
    "the type of a container": after(lambda *r: [*r]),
    "print": around(lambda: contextlib.redirect_stdout(io.StringIO())),
    "arguments": copies_arguments,
    "a mode": leaves_a_mode,
    "type of exception": raises(TypeError("a third call"), ValueError),
    "text of exception": raises(ValueError("a fourth call"), ValueError),
}


def observed(library):
    with World(library) as world:
        shows_everything(world)
    return world


@pytest.mark.parametrize("planted", PLANTED)
def test_battery_notices(planted):
    wrong, _ = difference(observed(EAGER), observed(Library(planted, lamina, PLANTED[planted])))
    assert wrong is not None


def test_battery_runs_agree_where_nothing_is_planted():
    assert difference(observed(EAGER), observed(EAGER)) == (None, False)
