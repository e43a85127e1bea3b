"""Answer `torch.utils.benchmark`: time a statement with care, and compare what was measured.

As Python's timeit, on the number of threads that is asked for, in blocks long enough for the clock.
"""

from __future__ import annotations

import statistics
import timeit
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import floor, log10
from time import perf_counter
from typing import Any

from ..ir.errors import ArgumentValueError
from ..runtime import get_num_threads, set_num_threads

UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
BLOCK = 1_000  # a block takes this much more than asking the clock
LONGEST_BLOCK = 0.2  # seconds for which blocked_autorange asks by default
SPREAD = 0.1  # of the median, between the quartiles: from here on a warning


@dataclass(frozen=True)
class TaskSpec:
    """What was measured, in the user's words."""

    stmt: str
    setup: str = "pass"
    global_setup: str = ""
    label: str | None = None
    sub_label: str | None = None
    description: str | None = None
    env: str | None = None
    num_threads: int = 1

    @property
    def title(self) -> str:
        title = self.label or self.stmt
        return f"{title}: {self.sub_label}" if self.sub_label else title

    @property
    def as_row_name(self) -> str:
        return self.sub_label or self.stmt or "[Unknown]"


@dataclass
class Measurement:
    """What a statement took.

    number_per_run: how often it ran in each block.  raw_times: seconds of each block.  times: of one run.
    """

    number_per_run: int
    raw_times: list[float]
    task_spec: TaskSpec
    metadata: dict[Any, Any] | None = None

    @property
    def times(self) -> list[float]:
        return [time / self.number_per_run for time in self.raw_times]

    @property
    def median(self) -> float:
        return statistics.median(self.times)

    @property
    def mean(self) -> float:
        return statistics.fmean(self.times)

    @property
    def iqr(self) -> float:
        """Seconds between the quartiles."""
        if len(self.raw_times) < 2:
            return 0.0
        first, _, third = statistics.quantiles(self.times, n=4, method="inclusive")
        return third - first

    @property
    def significant_figures(self) -> int:
        """How many digits of the median mean something: the spread of the blocks says so."""
        spread = max(self.iqr / 1.35 / len(self.raw_times) ** 0.5 * 1.645, self.median * 1e-4, 1e-12)
        return max(1, min(4, floor(log10(max(self.median, 1e-12))) - floor(log10(spread))))

    @property
    def has_warnings(self) -> bool:
        """Whether the blocks differ so much that the median tells little."""
        return not self.meets_confidence()

    def meets_confidence(self, threshold: float = SPREAD) -> bool:
        """Whether the quartiles lie that close to each other, relative to the median."""
        return self.iqr <= threshold * self.median

    title = property(lambda self: self.task_spec.title)
    as_row_name = property(lambda self: self.task_spec.as_row_name)
    stmt = property(lambda self: self.task_spec.stmt)
    num_threads = property(lambda self: self.task_spec.num_threads)
    description = property(lambda self: self.task_spec.description)
    env = property(lambda self: self.task_spec.env or "")

    @staticmethod
    def merge(measurements: Iterable[Measurement]) -> list[Measurement]:
        """Those of the same task as one each."""
        found: dict[tuple[TaskSpec, int], Measurement] = {}
        for each in measurements:
            kept = found.setdefault(
                (each.task_spec, each.number_per_run), Measurement(each.number_per_run, [], each.task_spec)
            )
            kept.raw_times += each.raw_times
        return list(found.values())

    def __repr__(self) -> str:
        unit = _unit(self.median)
        lines = [object.__repr__(self), self.title]
        if self.task_spec.description:
            lines.append(self.task_spec.description)
        if self.task_spec.setup not in ("", "pass"):
            lines.append(f"setup: {self.task_spec.setup}")
        middle = _figures(self.median / UNITS[unit], self.significant_figures)
        if len(self.raw_times) > 1:
            lines.append(f"  Median: {middle} {unit}")
            lines.append(f"  IQR:    {_figures(self.iqr / UNITS[unit], 2)} {unit}")
        else:
            lines.append(f"  {middle} {unit}")
        blocks = _counted(len(self.raw_times), "measurement")
        runs, threads = _counted(self.number_per_run, "run"), _counted(self.num_threads, "thread")
        lines.append(f"  {blocks}, {runs} per measurement, {threads}")
        if self.has_warnings:
            lines.append(
                f"  WARNING: the quartiles lie {100 * self.iqr / self.median:.0f}% apart: something else ran"
            )
        return "\n".join(lines)

    __str__ = __repr__


class Timer:
    """Time a statement.

    stmt, setup, globals, timer: as of timeit.Timer.  global_setup: run once, before.  label, sub_label,
    description, env: the user's words for tables.  num_threads: how many threads Lamina and the libraries
    below it may use meanwhile; 1 by default, as PyTorch has it.  Raises ArgumentValueError for another
    language than Python.
    """

    def __init__(
        self,
        stmt: str = "pass",
        setup: str = "pass",
        global_setup: str = "",
        timer: Callable[[], float] = perf_counter,
        globals: dict[str, Any] | None = None,
        label: str | None = None,
        sub_label: str | None = None,
        description: str | None = None,
        env: str | None = None,
        num_threads: int = 1,
        language: Any = "python",
    ):
        if str(getattr(language, "name", language)).lower() not in ("python", "py"):
            raise ArgumentValueError(
                f"Timer(language): only statements in Python can be timed here, not in {language!r}"
            )
        names = dict(globals or {})
        exec(global_setup, names)
        self._timer = timeit.Timer(stmt=stmt, setup=setup, timer=timer, globals=names)
        self._clock = timer
        self._task_spec = TaskSpec(stmt, setup, global_setup, label, sub_label, description, env, num_threads)

    @contextmanager
    def _on_threads(self) -> Iterator[None]:
        before = get_num_threads()
        set_num_threads(self._task_spec.num_threads)
        try:
            yield
        finally:
            set_num_threads(before)

    def _measured(self, number: int, times: list[float]) -> Measurement:
        return Measurement(number, times, self._task_spec)

    def timeit(self, number: int = 1_000_000) -> Measurement:
        """Run the statement so often, in one block."""
        with self._on_threads():
            self._timer.timeit(number=max(number // 100, 2))  # what the first runs do is not meant
            return self._measured(number, [self._timer.timeit(number=number)])

    def repeat(self, repeat: int = -1, number: int = -1) -> None:
        """Not offered, as in PyTorch: see blocked_autorange.  Raises NotImplementedError."""
        raise NotImplementedError("See `Timer.blocked_autorange.`")

    def autorange(self, callback: Callable[[int, float], Any] | None = None) -> None:
        """Not offered, as in PyTorch: see blocked_autorange.  Raises NotImplementedError."""
        raise NotImplementedError("See `Timer.blocked_autorange.`")

    def _block(self, least: float) -> int:
        """How often the statement runs in a block: the clock's own time is lost in it."""
        asking = statistics.median(self._overhead() for _ in range(5))
        number = 1
        while True:
            taken = self._timer.timeit(number=number)
            if taken >= max(BLOCK * asking, 1e-9) or taken >= least or number >= 10**9:
                return number
            number *= 10

    def _overhead(self) -> float:
        start = self._clock()
        return max(self._clock() - start, 1e-9)

    def _blocks(self, number: int, callback: Callable[[int, float], Any]) -> Iterator[float]:
        while True:
            taken = self._timer.timeit(number=number)
            callback(number, taken)
            yield taken

    def blocked_autorange(
        self, callback: Callable[[int, float], Any] | None = None, min_run_time: float = LONGEST_BLOCK
    ) -> Measurement:
        """Run it in blocks, for so many seconds in all.  callback: told of each: (runs, seconds)."""
        with self._on_threads():
            number = self._block(min_run_time / BLOCK * 10)
            times: list[float] = []
            for taken in self._blocks(number, callback or (lambda number, taken: None)):
                times.append(taken)
                if sum(times) >= min_run_time:
                    return self._measured(number, times)
        raise AssertionError("blocks do not end")

    def adaptive_autorange(
        self,
        threshold: float = SPREAD,
        *,
        min_run_time: float = 0.01,
        max_run_time: float = 10.0,
        callback: Callable[[int, float], Any] | None = None,
    ) -> Measurement:
        """Run it in blocks until the quartiles lie that close to each other, or for so many seconds."""
        with self._on_threads():
            number = self._block(min_run_time / 2)
            times: list[float] = []
            for taken in self._blocks(number, callback or (lambda number, taken: None)):
                times.append(taken)
                found = self._measured(number, times)
                enough = len(times) >= 4 and sum(times) >= min_run_time and found.meets_confidence(threshold)
                if enough or sum(times) >= max_run_time:
                    return found
        raise AssertionError("blocks do not end")


@dataclass
class Compare:
    """Measurements beside each other: a row for each sub-label, a column for each description."""

    results: Sequence[Measurement]
    _trim: bool = field(default=False, init=False)
    _colours: bool = field(default=False, init=False)
    _warnings: bool = field(default=False, init=False)

    def extend_results(self, results: Sequence[Measurement]) -> None:
        """More of them."""
        self.results = [*self.results, *results]

    def trim_significant_figures(self) -> None:
        """Show the digits that mean something, no more."""
        self._trim = True

    def colorize(self, rowwise: bool = False) -> None:
        """Mark the least of each row."""
        self._colours = True

    def highlight_warnings(self) -> None:
        """Mark medians that tell little."""
        self._warnings = True

    def print(self) -> None:
        """Print the tables."""
        print(str(self))

    def __str__(self) -> str:
        merged = Measurement.merge(self.results)
        labels = dict.fromkeys(each.task_spec.label for each in merged)
        tables = [self._table(label, [m for m in merged if m.task_spec.label == label]) for label in labels]
        return "\n".join(tables)

    def _table(self, label: str | None, results: list[Measurement]) -> str:
        unit = _unit(min(m.median for m in results))
        columns = list(dict.fromkeys(m.description or "" for m in results))
        groups = sorted({m.num_threads for m in results})
        rows = list(dict.fromkeys((m.num_threads, m.env, m.as_row_name) for m in results))
        by_place = {(m.num_threads, m.env, m.as_row_name, m.description or ""): m for m in results}
        cells: dict[tuple, list[str]] = {}
        for row in rows:
            found = [by_place.get((*row, column)) for column in columns]
            least = min(m.median for m in found if m is not None)
            cells[row] = [self._cell(m, unit, least, len([f for f in found if f]) > 1) for m in found]
        names = {row: f"({row[1]}) {row[2]}" if row[1] else row[2] for row in rows}
        left = max(len(name) for name in names.values()) + 6
        widths = [
            max(len(column), *(len(cells[row][at]) for row in rows)) for at, column in enumerate(columns)
        ]
        head = " | ".join([" " * left, *(c.center(w) for c, w in zip(columns, widths))])
        title = f" {label or 'results'} ".center(len(head) - 2, "-")
        lines = [f"[{title}]", head]
        for threads in groups:
            lines.append(f"{threads} threads: ".ljust(len(head), "-"))
            for row in (row for row in rows if row[0] == threads):
                texts = (cell.rjust(width) for cell, width in zip(cells[row], widths))
                lines.append(" | ".join([f"      {names[row]}".ljust(left), *texts]))
        spelled = {"s": "seconds (s)", "ms": "milliseconds (ms)", "us": "microseconds (us)"}
        lines += ["", f"Times are in {spelled.get(unit, 'nanoseconds (ns)')}."]
        if self._colours:
            lines.append("* is the least of its row.")
        if self._warnings and any(m.has_warnings for m in results):
            lines.append("(! ..%) says how far the quartiles lie apart.")
        return "\n".join([*map(str.rstrip, lines), ""])

    def _cell(self, found: Measurement | None, unit: str, least: float, several: bool) -> str:
        if found is None:
            return ""
        time = found.median / UNITS[unit]
        text = _figures(time, found.significant_figures) if self._trim else f"{time:.1f}"
        if self._warnings and found.has_warnings:
            text = f"(! {100 * found.iqr / found.median:.0f}%) {text}"
        return f"*{text}" if self._colours and several and found.median == least else text


def _counted(number: int, word: str) -> str:
    return f"{number} {word}{'s' * (number > 1)}"


def _unit(seconds: float) -> str:
    return next((unit for unit, size in UNITS.items() if seconds >= size), "ns")


def _figures(number: float, digits: int) -> str:
    """A number with so many digits that mean something: 1234.5 with two is 1200."""
    if not number:
        return "0"
    places = digits - 1 - floor(log10(abs(number)))
    return f"{round(number, places):.{max(places, 0)}f}"


def timer() -> float:
    """Seconds of the clock that Timer asks."""
    return perf_counter()


__all__ = ["Compare", "Measurement", "TaskSpec", "Timer", "timer"]
