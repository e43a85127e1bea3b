"""How long kernels take, on numbers of the viewer's own: no tensor of anybody's is read or written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from ..ir.errors import LaminaError
from ..jit.backend import Compiled
from ..jit.tuning import drawn
from ..passes.programs.program import Call, Host, Program, Repeat
from ..profiler.recorder import Recorder
from ..profiler.sessions import Timed

WARM, LEAST_RUNS, MOST_RUNS = 2, 5, 200
SECONDS = 0.5  # of runs of each kind, after which a graph has been seen enough


@dataclass(frozen=True)
class Times:
    """Seconds: of a call, and of each step of its program by number; the least of `runs` runs.  threads: how
    many there may have been.  why: the reason why nothing was measured, else ""."""

    whole: float = 0.0
    steps: dict[int, float] | None = None
    runs: int = 0
    why: str = ""


def measured(code: Compiled, main: Program) -> Times:
    """The times of a compiled graph.  main: the program of a call, whose steps are numbered."""
    try:
        arrays = [drawn(p.dtype.short, tuple(map(int, p.shape))) for p in code.before.params]
        given = code.given(arrays)
        return _measured(code, main, given)
    except (
        LaminaError,
        MemoryError,
        ArithmeticError,
        ValueError,
    ) as error:  # as indices that a check refuses
        return Times(why=f"it could not be timed: {str(error).splitlines()[0]}")


def _measured(code: Compiled, main: Program, given: Sequence[np.ndarray]) -> Times:
    whole, _ = _least(lambda: _timed(code, given))
    if code.apart() is code.main:
        return Times(whole, None, 1, "its kernels can't be timed one by one")
    apart = code.apart()
    order = [n for n, step in enumerate(main.steps) if isinstance(step, (Call, Repeat, Host))]
    names = [main.steps[n].name for n in order]
    best: dict[int, float] = {}

    def run() -> float:
        recorder = Recorder()
        with Timed(recorder):
            apart(*given)
        recorder.close()
        events = iter(recorder.events)
        for number, name in zip(order, names):
            event = next((each for each in events if each.name == name), None)  # checks are passed over
            if event is not None:
                seconds = event.cpu_time_total * 1e-6
                best[number] = min(best.get(number, seconds), seconds)
        return sum(event.cpu_time_total for event in recorder.events) * 1e-6

    _, runs = _least(run)
    return Times(whole, best, runs)


def _timed(code: Compiled, given: Sequence[np.ndarray]) -> float:
    start = perf_counter()
    code.main(*given)
    return perf_counter() - start


def _least(run) -> tuple[float, int]:
    """The least of what some runs took, and how many there were."""
    least, start, count = float("inf"), perf_counter(), 0
    while count < WARM + LEAST_RUNS or (count < MOST_RUNS and perf_counter() - start < SECONDS):
        seconds = run()
        if count >= WARM:
            least = min(least, seconds)
        count += 1
    return least, count - WARM
