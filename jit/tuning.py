"""Schedules that are found by measuring: `jit.trace(tune=seconds)` and `python -m lamina tune model.lam`.

A search begins with what the passes chose for a kernel, tries schedules one step away from it
(`passes/schedules/variants.py`), goes on from the quickest, and ends when the kernel's share of the time is
spent.  What it found is kept on disk by the kernel's text, the schedule it had, the target, the threads and
the compiler's version, so that another program with the same kernel has it at once, and nothing else has; a
search of more than twice the time goes on from there.
"""

from __future__ import annotations

import json
import math
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import numpy as np

from ..ir.errors import ArgumentError, KernelError
from ..ir.kernel.types import NUMPY
from ..passes import cache as disk
from ..passes.kernels.collapse import collapsed
from ..passes.llvm.binding import host_target, identity
from ..passes.programs.program import Array, Call, Program
from ..passes.schedules.default import default_schedule
from ..passes.schedules.steps import Collapse, Schedule, parse
from ..passes.schedules.target import Target
from ..passes.schedules.variants import variants
from ..runtime.native import Executable
from ..runtime.threads import get_num_threads
from .stages import wrong_code

WORTH = 0.97  # of the time that a kernel took: less is no gain that another day would show
RUNS = 7  # of each contender in a comparison, in turn
LONG = 0.02  # seconds of runs, after which a comparison has seen enough


@dataclass(frozen=True)
class Tuned:
    """What a search came to for one kernel.

    at: the numbers of its calls among those of the program.  before, after: seconds of a call, equal where
    nothing was quicker.  schedule: the text of the one that is kept, "" for the one that the passes chose.
    tried: how many others.
    """

    kernel: str
    at: tuple[int, ...]
    before: float
    after: float
    schedule: str
    tried: int


@dataclass
class Clock:
    """The seconds that searches have taken."""

    seconds: float = 0.0


def seconds_of(tune: Any) -> float:
    """The seconds that a user gives for a search.  Raises ArgumentError for what is no number of seconds."""
    if isinstance(tune, bool) or not isinstance(tune, (int, float)) or not 0 <= tune < math.inf:
        raise ArgumentError(f"trace(tune): so many seconds as are to be spent on a search, not {tune!r}")
    return float(tune)


def tune(
    program: Program,
    seconds: float,
    version: str,
    told: Callable[[Tuned], None] | None = None,
    target: Target | None = None,
) -> tuple[Program, list[Tuned]]:
    """The program with the quickest schedules that were found in so many seconds, and what each came to.

    version: of the compiler.  told: hears of each kernel when its search is done.  target: this machine, or a
    level that it has.
    """
    end = perf_counter() + seconds
    groups: dict[tuple, list[int]] = {}
    for n, call in enumerate(program.calls):
        groups.setdefault((call.kernel.replace(name="kernel"), call.how), []).append(n)
    searches = [
        _Search(program.calls[at[0]], tuple(at), version, target or host_target()) for at in groups.values()
    ]
    searches = sorted((s for s in searches if s.can_run), key=lambda search: -search.weight)
    made: list[Tuned] = []
    for n, search in enumerate(searches):
        left, weight = end - perf_counter(), sum(s.weight for s in searches[n:])
        search.run(left * search.weight / max(weight, 1e-9))
        made.append(search.found())
        if told is not None:
            told(made[-1])
    return with_schedules(program, made), made


def with_schedules(program: Program, found: Sequence[Tuned]) -> Program:
    """The program as a search left it."""
    how = {n: parse(one.schedule) for one in found if one.schedule for n in one.at}
    if not how:
        return program
    numbers = {call: n for n, call in enumerate(program.calls)}
    steps = (
        replace(s, how=how[numbers[s]]) if isinstance(s, Call) and numbers[s] in how else s
        for s in program.steps
    )
    return program.replace(steps=tuple(steps))


def shown(one: Tuned | None) -> None:
    """Show on a terminal that a search goes on; None: that it has ended."""
    if sys.stderr.isatty():
        print("\r\033[K" + (f"tuning: {line(one)}" if one else ""), end="", file=sys.stderr, flush=True)


def line(one: Tuned) -> str:
    """What a search came to for one kernel, for people."""
    gain = (
        f"{one.before * 1e6:.1f} -> {one.after * 1e6:.1f} us"
        if one.schedule
        else f"{one.before * 1e6:.1f} us"
    )
    return f"{one.kernel} x{len(one.at)}: {gain}  {one.schedule}".rstrip()


def summary(found: Sequence[Tuned]) -> str:
    """What all of a program's kernels take, before and after."""
    before, after = (sum(len(one.at) * getattr(one, when) for one in found) for when in ("before", "after"))
    changed = sum(bool(one.schedule) for one in found)
    return (
        f"{changed} of {len(found)} kernels run by another schedule, which may round otherwise: "
        f"{before * 1e3:.3f} -> {after * 1e3:.3f} ms in their sum"
    )


class _Search:
    """The search for one kernel.

    best: the quickest schedule so far, None for the one that the passes chose.  runs: the code of each that
    was tried, None where it does not fit.  arrays: what they run on, held while the kernel is looked at.
    """

    def __init__(self, call: Call, at: tuple[int, ...], version: str, target: Target):
        self.call, self.at, self.tried = call, at, 0
        self.target = target
        self.key = disk.key(
            "schedule", str(call.kernel.replace(name="kernel")), str(call.how), identity(self.target),
            f"{self.target} {get_num_threads()}", version,
        )  # fmt: skip
        self.best: Schedule | None = None
        self.arrays: dict[Array, np.ndarray] = {}
        self.runs: dict[Schedule | None, Callable[[], Any] | None] = {}
        run = self.compiled(None)
        self.can_run = run is not None
        self.before = self.after = _time(run) if run is not None else 0.0
        self.arrays.clear()

    def given(self, params: Sequence[Array]) -> list[np.ndarray]:
        for param in params:
            if param not in self.arrays:
                self.arrays[param] = drawn(param.dtype, param.shape)
        return [self.arrays[param] for param in params]

    def compiled(self, schedule: Schedule | None) -> Callable[[], Any] | None:
        """Runs the kernel; None where the schedule does not fit it."""
        if schedule not in self.runs:
            call = self.call if schedule is None else replace(self.call, how=schedule)
            program = Program(call.name, tuple(dict.fromkeys(call.inputs)), (call,), call.outputs)
            try:
                code = Executable(program, self.target)
                self.runs[schedule] = lambda: code(*self.given(program.params))
            except KernelError:  # a step that does not fit is refused where code is written
                self.runs[schedule] = None
        return self.runs[schedule]

    def run(self, seconds: float) -> None:
        """Search for so long; what is on disk is taken first."""
        data = disk.default().get(self.key)
        searched, known = json.loads(data) if data is not None else (0.0, "")
        if known and self.compiled(how := parse(known)) is not None:
            self.best = how
            self.before, self.after = self.raced(None, how)
        if seconds > 2 * searched:
            done = self.search(seconds)
            self.settle()
            kept = [1e9 if done else seconds, "" if self.best is None else str(self.best)]
            disk.default().put(self.key, json.dumps(kept).encode())
        self.arrays.clear()
        self.runs.clear()

    def search(self, seconds: float) -> bool:
        """Go from schedule to schedule; whether there are none left to try."""
        end = perf_counter() + seconds
        at, waiting = self.best, self.neighbours(self.best)
        while perf_counter() < end:
            schedule = next(waiting, None)
            if schedule is None:
                if self.best == at:
                    return True
                at, waiting = self.best, self.neighbours(self.best)
            elif schedule not in self.runs:
                self.tried += 1
                if self.compiled(schedule) is not None:
                    before, after = self.raced(self.best, schedule)
                    if after < WORTH * before:
                        self.best = schedule
        return False

    def raced(self, one: Schedule | None, two: Schedule | None, runs: int = RUNS) -> tuple[float, float]:
        first, second = self.compiled(one), self.compiled(two)
        assert first is not None and second is not None
        return _raced(first, second, runs)

    def neighbours(self, schedule: Schedule | None) -> Iterator[Schedule]:
        kernel, how = self.call.kernel, schedule or self.call.how
        if how is None:
            flat = collapsed(kernel)
            how = Schedule(Collapse(), *default_schedule(flat, self.target).steps)
            yield how
        yield from variants(how.applied(kernel), how, self.target)

    def settle(self) -> None:
        """Hold the winner against what it began with once more, and against what the kernel's text says."""
        if self.best is None:
            return
        self.before, self.after = self.raced(None, self.best, 3 * RUNS)
        if self.after >= WORTH * self.before:
            self.best, self.after = None, self.before
            return
        first, last = self.compiled(None), self.compiled(self.best)
        assert first is not None and last is not None
        wrong = wrong_code(self.call, self.given(self.call.inputs), first(), last())
        if wrong is not None:
            warnings.warn(
                f"tune: {self.call.name} by {self.best} computes something else: {wrong}\n"
                "It is left as it was.  This is a fault of Lamina's: please report it.",
                stacklevel=2,
            )
            self.best, self.after = None, self.before

    @property
    def weight(self) -> float:
        """Seconds of all its calls."""
        return len(self.at) * self.before

    def found(self) -> Tuned:
        text = "" if self.best is None else str(self.best)
        return Tuned(self.call.name, self.at, self.before, self.after, text, self.tried)


def drawn(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers to run on: small ones, and indices that every array has."""
    kind = np.dtype(NUMPY[dtype])
    rng = np.random.default_rng(0)
    if kind.kind == "f" or dtype in ("f16", "bf16"):
        return rng.uniform(0.5, 1.5, shape).astype(kind)
    return (rng.integers(0, 2, shape) if kind.kind == "b" else np.zeros(shape)).astype(kind)


def _time(run: Callable[[], Any]) -> float:
    return _raced(run, run)[0]


def _raced(one: Callable[[], Any], two: Callable[[], Any], runs: int = RUNS) -> tuple[float, float]:
    """The least seconds of each, in turn: the machine's moods meet both."""
    least = [float("inf"), float("inf")]
    start, count = perf_counter(), 0
    while count < 2 or (count < runs * 8 and perf_counter() - start < (LONG if count >= runs else 8 * LONG)):
        for n, run in enumerate((one, two)):
            begin = perf_counter()
            run()
            least[n] = min(least[n], perf_counter() - begin)
        count += 1
    return least[0], least[1]
