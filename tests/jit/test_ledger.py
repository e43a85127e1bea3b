"""Tracing is never slower than eager by more than a tenth and a budget: on clocks that tests alone move."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import textwrap
import threading

import pytest

import lamina
from lamina import jit, nn, optim
from lamina.ir.errors import ArgumentValueError
from lamina.jit import backend, beside
from lamina.jit.ledger import BUDGET, FRUITLESS, Fares, Ledger, budget_of
from lamina.jit.report import SPARED, TIMED


class Clock:
    """Stands still but for `spend`.  call: what eager and recording runs take; compiling: a compilation."""

    def __init__(self, call=0.01, compiling=0.0):
        self.now, self.call, self.compiling = 0.0, call, compiling

    def __call__(self):
        return self.now

    def spend(self, seconds):
        self.now += seconds


@pytest.fixture
def traced(monkeypatch):
    """Trace a function under a budget, on a clock: its eager calls, recordings and compilations take time."""

    def make(function, clock, **options):
        @jit.pure
        def work():
            clock.spend(clock.call)
            return 1.0

        def timed(*args):
            return function(*args) * work()

        def compile_graph(graph, *args, **kwargs):
            if str(graph) not in compiled:
                compiled.add(str(graph))
                clock.spend(clock.compiling)
            return real(graph, *args, **kwargs)

        real, compiled = backend.compile_graph, set()
        monkeypatch.setattr(backend, "compile_graph", compile_graph)
        made = jit.trace(timed, **{"budget": 2.0, "dynamic": False} | options)
        made._ledger.clock = clock
        return made

    return make


def x_of(n):
    return lamina.ones(n)


# ---- what is given -----------------------------------------------------------------------------------------
def test_a_budget_is_the_users_or_the_environments(monkeypatch):
    for text, seconds in (("none", None), ("0.5", 0.5), ("", BUDGET)):
        monkeypatch.setenv("LAMINA_TRACE_BUDGET", text)
        assert budget_of("default") == seconds == jit.trace(lambda x: x)._ledger.budget
        assert budget_of(None) is None and jit.trace(lambda x: x, budget=3)._ledger.budget == 3.0
    for wrong in (-1.0, float("nan"), "much", [1]):
        with pytest.raises(ArgumentValueError, match="takes seconds, or None for no limit, not"):
            jit.trace(lambda x: x, budget=wrong)
    monkeypatch.setenv("LAMINA_TRACE_BUDGET", "much")
    with pytest.raises(ArgumentValueError, match="not 'much'"):
        jit.trace(lambda x: x)


def test_who_wants_an_error_or_all_compared_has_no_limit():
    assert jit.trace(lambda x: x, budget=1.0, when_full="error")._ledger.budget is None
    assert jit.trace(lambda x: x, budget=1.0, verify=True)._ledger.budget is None


# ---- the ledger by itself ----------------------------------------------------------------------------------
def test_what_may_be_spent():
    ledger, none = Ledger(2.0), Fares(0, 0, 0.0)
    assert ledger.affords(2.0, none) and not ledger.affords(2.1, none)
    for _ in range(4):
        ledger.ran_eagerly(0.1)
    ledger.compiled(3.1)  # the first leaves half of the budget, or of what it took itself
    ledger.recorded(0.6, none)
    assert ledger.spent == pytest.approx(3.6)  # of recording, what is beyond an eager run
    assert ledger.affords(1.79, none) and not ledger.affords(1.81, none)
    tenth = Fares(100, 0, 0.0)  # of ten seconds of eager calls
    assert ledger.affords(2.79, tenth) and not ledger.affords(2.81, tenth)
    saved = Fares(100, 50, 1.0)  # four seconds
    assert ledger.affords(6.79, saved) and not ledger.affords(6.81, saved)
    slower = Fares(100, 50, 6.5)  # compiled calls that take longer than eager ones
    assert ledger.affords(1.29, slower) and not ledger.affords(1.31, slower)
    ledger.asked(0.25)
    ledger.ran_eagerly(0.35, beside=True)  # slowed by what is compiled meanwhile; no measure of eager calls
    assert ledger.spent == pytest.approx(4.1) and ledger.eager_call == pytest.approx(0.1)


def test_recordings_that_serve_nobody_become_rare():
    ledger, at = Ledger(1e9), []
    for call in range(1000):
        fares = Fares(call, 0, 0.0)
        if ledger.allows_recording(fares):
            at.append(call)
            ledger.recorded(0.0, fares)
    gaps = [b - a for a, b in zip(at, at[1:])]
    assert gaps == [1] * (FRUITLESS - 1) + [4, 8, 16, 32, 64, 128, 256]
    assert ledger.allows_recording(Fares(1000, 1, 0.0))  # one of them was of use


@pytest.mark.parametrize("seed", range(40))
def test_no_program_costs_more_than_it_may(seed):
    """Whatever recordings, compilations and calls take, and however often a call finds none that fits."""
    draw = random.Random(seed)
    ledger, total = Ledger(2.0), 0.0
    eager, quick = draw.uniform(0.0001, 0.1), draw.uniform(0.0, 1.3)
    recording, compiling = draw.uniform(0.0, 0.4), draw.uniform(0.0, 5.0)
    misses, hits, running, first = draw.choice([0.01, 0.2, 0.9, 1.0]), 0, 0.0, None
    for call in range(3000):
        fares = Fares(call, hits, running)
        if first is not None and draw.random() > misses:
            hits, running, took = hits + 1, running + eager * quick, eager * quick
        elif first is not None and (ledger.wants_to_time() or not ledger.allows_recording(fares)):
            ledger.ran_eagerly(eager)
            took = eager
        else:
            spent = (
                recording + compiling * (draw.random() < 0.8) if first is not None else recording + compiling
            )
            ledger.compiled(spent - recording)
            ledger.recorded(eager + recording, fares)
            first = spent if first is None else first
            took = eager + spent
        total += took
        # A recording may turn out dearer than those before it; served calls are slow before that is seen.
        slack = recording + compiling + max(0.0, running - hits * eager)
        assert total <= 1.1 * eager * (call + 1) + max(2.0, first + max(2.0, first) / 2) + slack + 1e-9


# ---- traced functions --------------------------------------------------------------------------------------
def test_a_function_that_is_always_called_in_another_way_is_soon_let_be(traced):
    clock = Clock(call=0.01, compiling=1.5)
    f = traced(lambda x: x + 1, clock)
    for n in range(1, 200):
        assert f(x_of(n)).tolist() == [2.0] * n
    assert f.counts() == {"served": 0, "recorded": 2, "eager": 197, "raised": 0, "within": 0}
    assert clock.now == pytest.approx(199 * 0.01 + 3.0)  # as the second turned out dearer than it may be
    told = f.explain()
    assert told.startswith("timed: not served, because x changed: f32[1] -> f32[") or ": f32[" in told
    assert f"{SPARED} (budget=2 s)" in told


def test_it_is_asked_again_when_there_is_something_to_spend(traced):
    clock = Clock(call=0.4, compiling=1.5)
    f = traced(lambda x: x + 1, clock)
    for n in (
        2,
        3,
        3,
        4,
        2,
        2,
    ):  # the first takes most of the budget, one is timed, the second takes the rest
        f(x_of(n))
    assert f.counts() == {"served": 2, "recorded": 2, "eager": 2, "raised": 0, "within": 0}
    assert f(x_of(4)).tolist() == [2.0] * 4  # served calls have saved some
    assert f.counts() == {"served": 2, "recorded": 3, "eager": 2, "raised": 0, "within": 0}
    assert f(x_of(4)).tolist() == [2.0] * 4 and f.counts()["served"] == 3


def test_the_first_recording_is_made_whatever_it_takes(traced):
    clock = Clock(call=0.01, compiling=100.0)
    f = traced(lambda x: x + 1, clock, budget=0.0)
    f(x_of(2)), f(x_of(2))
    assert f.counts() == {"served": 1, "recorded": 1, "eager": 0, "raised": 0, "within": 0}


def test_steps_whose_optimizer_makes_its_states_are_served(traced):
    net = nn.Linear(2, 1)
    o = optim.Adam(net.parameters())
    state = {"n": 0}

    def step(x):
        state["n"] += 1
        o.zero_grad()
        loss = net(x).sum() * state["n"]
        loss.backward()
        o.step()
        return loss.detach()

    f = traced(step, Clock(call=0.001, compiling=30.0))
    for _ in range(20):
        f(lamina.ones(3, 2))
    assert f.counts() == {"served": 16, "recorded": 3, "eager": 1, "raised": 0, "within": 0}, f.explain(
        detail=True
    )


def test_what_eager_takes_is_timed_once(traced):
    clock = Clock(call=0.25)
    f = traced(lambda x: x + 1, clock)
    for _ in range(20):
        f(x_of(2))
    assert f.counts() == {"served": 18, "recorded": 1, "eager": 1, "raised": 0, "within": 0}
    found = f.explain(as_dict=True)
    assert found["reasons"] == {TIMED: 1} and found["eager_call_seconds"] == 0.25 and found["ratio"] == 0
    assert found["saved_seconds"] == pytest.approx(18 * 0.25) and found["causes"] == []
    assert f.explain().startswith("timed: served 18 of 20 calls, at 0 of eager's time\n")
    long = traced(lambda x: x + 1, Clock(call=0.75))  # too long to be run once for that
    for _ in range(20):
        long(x_of(2))
    assert long.counts()["eager"] == 0 and long.explain(as_dict=True)["ratio"] is None
    assert long.explain().startswith("timed: served 19 of 20 calls\n")


def test_while_code_is_made_in_the_background_nothing_else_is_recorded(traced, monkeypatch):
    jobs = []
    monkeypatch.setattr(beside, "have_done", jobs.append)
    f = traced(lambda x: x + 1, Clock(call=0.1, compiling=10.0), compile="background")
    f(x_of(1)), jobs.pop()()
    for n in (1, 2, 2, 3, 2):
        assert f(x_of(n)).tolist() == [2.0] * n
    assert f.counts() == {"served": 1, "recorded": 2, "eager": 3, "raised": 0, "within": 0} and len(jobs) == 1
    jobs.pop()()
    assert f(x_of(2)).tolist() == [2.0] * 2 and f.counts()["served"] == 2
    assert f.explain().endswith(", compiling in the background 20.00 s")
    assert f.explain(as_dict=True)["causes"] == []


def test_export_records_what_it_needs(traced, tmp_path):
    f = traced(lambda x: x + 1, Clock(call=0.01, compiling=5.0))
    for n in range(1, 100):
        f(x_of(n))
    assert f.counts()["recorded"] == 2 and f._ledger.budget == 2.0
    jit.export(f, tmp_path / "f.lam", x_of(5))
    assert jit.load(tmp_path / "f.lam")(x_of(5)).tolist() == [2.0] * 5
    assert f.counts()["recorded"] == 3 and f._ledger.budget == 2.0


def test_a_refusal_that_comes_each_time_is_not_recorded_for_ever(traced):
    def of(x, values):
        return x * next(values)

    clock = Clock(call=1.0)
    f = traced(of, clock)
    for _ in range(100):
        assert f(x_of(1), iter([2.0])).tolist() == [2.0]
    assert f.counts()["recorded"] < 12 and clock.now <= 100 * 1.1 + 2.0


# ---- in the background -------------------------------------------------------------------------------------
def test_jobs_are_done_one_after_another_by_a_thread_that_steps_back():
    mine, ran, running, done = threading.current_thread(), [], [0], threading.Event()

    def job(number):
        running[0] += 1
        nice = os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) if sys.platform == "linux" else None
        ran.append((number, running[0], threading.current_thread() is mine, nice))
        running[0] -= 1
        if number == 4:
            done.set()

    for number in range(5):
        beside.have_done(lambda number=number: job(number))
    assert done.wait(30)
    assert [(number, count, here) for number, count, here, _ in ran] == [(n, 1, False) for n in range(5)]
    if sys.platform == "linux":
        own = os.getpriority(os.PRIO_PROCESS, 0)
        assert {nice for *_, nice in ran} == {min(19, own + beside.NICER)}


def test_without_threads_jobs_are_done_here(monkeypatch):
    def none(thread):
        raise RuntimeError("can't start new thread")

    ran = []
    monkeypatch.setattr(threading.Thread, "start", none)
    beside.have_done(lambda: ran.append(threading.current_thread()))
    assert ran == [threading.current_thread()]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
def test_a_forked_child_has_jobs_of_its_own():
    program = """
        import os, threading, warnings
        warnings.simplefilter("ignore", DeprecationWarning)
        from lamina.jit import beside
        inside, go, did = threading.Event(), threading.Event(), threading.Event()
        beside.have_done(lambda: (inside.set(), go.wait()))
        beside.have_done(lambda: os._exit(3))  # the parent ends before
        inside.wait()
        child = os.fork()
        if child == 0:
            beside.have_done(did.set)
            os._exit(0 if did.wait(30) else 1)
        print(os.waitpid(child, 0)[1])
    """
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "0\n", "")
