"""Events summed up: by name, by shapes or by the user's lines, and printed as a table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..ir.errors import ArgumentValueError
from .files import write_chrome_trace, write_flame_graph, write_stacks
from .limits import measured
from .recorder import FunctionEvent
from .work import NOTHING, Work

SORTS = (
    "count", "cpu_time", "cpu_time_total", "self_cpu_time_total", "cpu_memory_usage",
    "self_cpu_memory_usage", "flops",
)  # fmt: skip
NAME_WIDTH, SHAPES_WIDTH, SOURCE_WIDTH, ROWS = 55, 80, 75, 100  # PyTorch's


class FunctionEventAvg:
    """Some events as one.  Times are in microseconds, memory in bytes.

    key: their name.  count.  cpu_time_total, self_cpu_time_total: of all of them, with and without what
    happened inside; cpu_time: of one.  flops: of all.  input_shapes, stack: where they are summed up by
    these.
    """

    def __init__(self, key: str | None = None):
        self.key, self.count = key, 0
        self.cpu_time_total = self.self_cpu_time_total = 0.0
        self.cpu_memory_usage = self.self_cpu_memory_usage = 0
        self.work = NOTHING
        self.input_shapes: Any = None
        self.stack: list[str] = []
        self.is_user_annotation = False

    device_time_total = self_device_time_total = device_memory_usage = self_device_memory_usage = 0
    device_time = 0.0
    is_async = is_legacy = is_remote = False

    @property
    def name(self) -> str | None:
        return self.key

    @property
    def flops(self) -> int:
        return self.work.flops

    @property
    def cpu_time(self) -> float:
        return self.cpu_time_total / self.count if self.count else 0.0

    def add(self, other: FunctionEvent | FunctionEventAvg) -> FunctionEventAvg:
        """Count another event, or others that are summed up."""
        if self.key is None:
            self.key, self.is_user_annotation = other.key, other.is_user_annotation
        self.count += other.count
        self.cpu_time_total += other.cpu_time_total
        self.self_cpu_time_total += other.self_cpu_time_total
        self.cpu_memory_usage += other.cpu_memory_usage
        self.self_cpu_memory_usage += other.self_cpu_memory_usage
        self.work = Work(*map(sum, zip(self.work, other.work)))
        return self

    __iadd__ = add

    def __repr__(self) -> str:
        return (
            f"<FunctionEventAvg key={self.key} self_cpu_time={self.self_cpu_time_total:.3f}us "
            f"cpu_time={self.cpu_time:.3f}us count={self.count} input_shapes={self.input_shapes!s}>"
        )


class EventList(list):
    """Events, or averages of them."""

    def __init__(self, events: Iterable[Any] = (), *, profile_memory: bool = False, with_flops: bool = False):
        super().__init__(events)
        self.profile_memory, self.with_flops = profile_memory, with_flops

    def _like(self, events: Iterable[Any]) -> EventList:
        return EventList(events, profile_memory=self.profile_memory, with_flops=self.with_flops)

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds of all of them, each counted once."""
        return sum(event.self_cpu_time_total for event in self)

    def key_averages(
        self, group_by_input_shape: bool = False, group_by_stack_n: int = 0,
        group_by_overload_name: bool = False,
    ) -> EventList:  # fmt: skip
        """Events of one name as one; where asked for, those of one name and the same shapes or stack."""
        found: dict[tuple, FunctionEventAvg] = {}
        for event in self:
            shapes = str(event.input_shapes) if group_by_input_shape else ""
            stack = tuple(event.stack[:group_by_stack_n])
            average = found.setdefault((event.key, shapes, stack), FunctionEventAvg())
            average.add(event)
            if group_by_input_shape:
                average.input_shapes = event.input_shapes
            average.stack = [*stack]
        return self._like(found.values())

    def total_average(self) -> FunctionEventAvg:
        """All of them as one."""
        total = FunctionEventAvg("Total")
        for event in self:
            total.add(event)
        return total

    def export_chrome_trace(self, path: Any) -> None:
        """Write the events in Chrome's trace format, for chrome://tracing or https://ui.perfetto.dev."""
        write_chrome_trace(path, self)

    def export_stacks(self, path: Any, metric: str = "self_cpu_time_total") -> None:
        """Write "outermost;...;innermost microseconds" lines of the user's frames, for flamegraph.pl."""
        write_stacks(path, self, metric)

    def export_flame_graph(self, path: Any) -> None:
        """Draw what happened in what as SVG, each as wide as the time it took."""
        write_flame_graph(path, self)

    def table(
        self,
        sort_by: str | None = None,
        row_limit: int = ROWS,
        max_src_column_width: int = SOURCE_WIDTH,
        max_name_column_width: int = NAME_WIDTH,
        max_shapes_column_width: int = SHAPES_WIDTH,
        header: str | None = None,
        top_level_events_only: bool = False,
        time_unit: str | None = None,
    ) -> str:
        """The events as a table, in the order that they have or the largest of a column first.

        sort_by: one of count, cpu_time, cpu_time_total, self_cpu_time_total, cpu_memory_usage,
        self_cpu_memory_usage, flops.  time_unit: "us", "ms" or "s" for all times; each its own by default.
        Raises ArgumentValueError for a column that there is none of.
        """
        events = list(self)
        if sort_by is not None:
            if sort_by not in SORTS:
                raise ArgumentValueError(
                    f"table(sort_by): there is no column {sort_by!r}", f"use one of {', '.join(SORTS)}"
                )
            events.sort(key=lambda event: getattr(event, sort_by), reverse=True)
        if top_level_events_only:
            events = [event for event in events if getattr(event, "cpu_parent", None) is None]
        whole = self.self_cpu_time_total
        shown = events if row_limit < 0 else events[:row_limit]
        columns = _columns(shown, whole, self, time_unit, max_name_column_width, max_shapes_column_width,
                           max_src_column_width)  # fmt: skip
        widths = [max(len(name), *map(len, cells), 0) for name, cells in columns]
        rule = "  ".join("-" * width for width in widths)
        lines = [header] if header else []
        lines += [rule, "  ".join(_placed(n, w, n) for (n, _), w in zip(columns, widths)).rstrip(), rule]
        for at in range(len(shown)):
            cells = ((name, cells[at], width) for (name, cells), width in zip(columns, widths))
            lines.append("  ".join(_placed(cell, width, name) for name, cell, width in cells).rstrip())
        lines += [rule, f"Self CPU time total: {_time(whole, time_unit)}"]
        if len(shown) < len(events):
            lines.append(f"{len(events) - len(shown)} more rows: table(row_limit=-1) shows all")
        return "\n".join([*lines, ""])

    def __str__(self) -> str:
        return self.table()


LEFT = ("Name", "Input Shapes", "Source Location")


def _placed(text: str, width: int, column: str) -> str:
    return text.ljust(width) if column in LEFT else text.rjust(width)


def _columns(
    events: list[Any], whole: float, of: EventList, unit: str | None, name_width: int, shapes_width: int,
    source_width: int,
) -> list[tuple[str, list[str]]]:  # fmt: skip
    def share(time: float) -> str:
        return f"{100 * time / whole:.2f}%" if whole else "-"

    columns = [
        ("Name", [_cut(str(event.key), name_width) for event in events]),
        ("Self CPU %", [share(event.self_cpu_time_total) for event in events]),
        ("Self CPU", [_time(event.self_cpu_time_total, unit) for event in events]),
        ("CPU total %", [share(event.cpu_time_total) for event in events]),
        ("CPU total", [_time(event.cpu_time_total, unit) for event in events]),
        ("CPU time avg", [_time(event.cpu_time, unit) for event in events]),
    ]
    if of.profile_memory:
        columns += [
            ("CPU Mem", [_memory(event.cpu_memory_usage) for event in events]),
            ("Self CPU Mem", [_memory(event.self_cpu_memory_usage) for event in events]),
        ]
    columns.append(("# of Calls", [str(event.count) for event in events]))
    if any(event.input_shapes for event in events):
        shapes = [str(event.input_shapes or []) for event in events]
        columns.append(("Input Shapes", [_cut(text, shapes_width) for text in shapes]))
    if any(event.stack for event in events):
        lines = [event.stack[0] if event.stack else "" for event in events]
        columns.append(("Source Location", [_tail(text, source_width) for text in lines]))
    if of.with_flops:
        limits = measured()
        rates, shares = [], []
        for event in events:
            seconds, (flops, nbytes) = event.cpu_time_total * 1e-6, event.work
            least = limits.seconds(flops, nbytes)
            rates.append(f"{flops / seconds / 1e9:.1f}" if flops and seconds else "-")
            shares.append(f"{100 * least / seconds:.0f}%" if nbytes and seconds else "-")
        columns += [
            ("MFLOPs", [f"{event.flops / 1e6:.3f}" if event.flops else "-" for event in events]),
            ("GFLOP/s", rates),
            ("of the limit", shares),
        ]
    return columns


def _cut(text: str, width: int) -> str:
    return text if width < 0 or len(text) <= width else f"{text[: width - 3]}..."


def _tail(text: str, width: int) -> str:
    return text if width < 0 or len(text) <= width else f"...{text[3 - width :]}"


def _time(microseconds: float, unit: str | None = None) -> str:
    size = abs(microseconds)
    unit = unit or ("s" if size >= 1e6 else "ms" if size >= 1e3 else "us")
    return f"{microseconds / {'s': 1e6, 'ms': 1e3, 'us': 1.0}[unit]:.3f}{unit}"


def _memory(nbytes: int) -> str:
    for power, unit in ((30, "Gb"), (20, "Mb"), (10, "Kb")):
        if abs(nbytes) >= 1 << power:
            return f"{nbytes / (1 << power):.2f} {unit}"
    return f"{nbytes} b"
