"""What a profile leaves on the disk: a trace for Chrome's viewer, stacks, a flame graph, memory over time."""

from __future__ import annotations

import gzip
import json
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from ..ir.errors import ArgumentValueError
from ..ir.own_files import replacing
from ..ir.version import __version__

if TYPE_CHECKING:
    from .recorder import FunctionEvent, Recorder

METRICS = ("self_cpu_time_total", "cpu_time_total")
WIDTH, ROW, PAD, CHARACTER = 1200, 18, 10, 6.6  # pixels
HEAD = 34
LEAST = 0.3  # pixels: what is narrower is not drawn


def _write(path: Any, text: str) -> None:
    data = text.encode()
    with replacing(os.fspath(path)) as file:
        file.write(gzip.compress(data) if os.fspath(path).endswith(".gz") else data)


# ---- for Chrome's viewer -----------------------------------------------------------------------------------
def write_chrome_trace(
    path: Any, events: Iterable[FunctionEvent], metadata: dict[str, Any] | None = None,
    recorder: Recorder | None = None,
) -> None:  # fmt: skip
    """Events, and with a recorder the memory they held, in Chrome's trace format; gzipped for a name in .gz.

    Source: Duca and others, Trace Event Format, 2016.
    """
    text = json.dumps(
        {
            "schemaVersion": 1,
            "displayTimeUnit": "ms",
            "lamina": __version__,
            **(metadata or {}),
            "traceEvents": [*_complete(events), *_counters(recorder)],
        }
    )
    _write(path, text)


def _complete(events: Iterable[FunctionEvent]) -> Iterator[dict[str, Any]]:
    process = os.getpid()
    threads: set[int] = set()
    for event in events:
        if event.thread not in threads:
            threads.add(event.thread)
            yield {"ph": "M", "name": "thread_name", "pid": process, "tid": event.thread,
                   "args": {"name": f"thread {event.thread}"}}  # fmt: skip
        when = event.time_range
        told: dict[str, Any] = {"External id": event.id}
        if event.input_shapes:
            told["Input Dims"] = event.input_shapes
        if event.stack:
            told["Call stack"] = ";".join(event.stack)
        if event.flops:
            told["flops"] = event.flops
        yield {
            "ph": "X",
            "cat": "user_annotation" if event.is_user_annotation else "cpu_op",
            "name": event.name,
            "pid": process,
            "tid": event.thread,
            "ts": when.start,
            "dur": when.elapsed_us(),
            "args": told,
        }


def _counters(recorder: Recorder | None) -> Iterator[dict[str, Any]]:
    held = 0
    for when, nbytes, _ in () if recorder is None else recorder.changes:
        held += nbytes
        yield {"ph": "C", "name": "[memory]", "pid": os.getpid(), "ts": (when - recorder.origin) / 1e3,
               "args": {"Bytes": held}}  # fmt: skip


# ---- stacks and flames -------------------------------------------------------------------------------------
def write_stacks(path: Any, events: Iterable[FunctionEvent], metric: str) -> None:
    """The user's frames, from the outermost on, with the microseconds spent there, a line each."""
    if metric not in METRICS:
        raise ArgumentValueError(
            f"export_stacks(metric): there is no {metric!r}", f"use one of {', '.join(METRICS)}"
        )
    found: dict[str, float] = defaultdict(float)
    for event in events:
        if event.stack:
            spelled = ";".join(frame.replace(";", ",").replace(" ", "_") for frame in reversed(event.stack))
            found[spelled] += getattr(event, metric)
    if not found:
        raise ArgumentValueError(
            "export_stacks: no event knows its stack", "ask for it: profile(with_stack=True)"
        )
    _write(path, "".join(f"{stack} {round(time)}\n" for stack, time in found.items() if round(time)))


class _Flame:
    """What happened under one name in one place, summed up."""

    def __init__(self, name: str):
        self.name, self.time, self.count = name, 0.0, 0
        self.inner: dict[str, _Flame] = {}

    def at(self, name: str) -> _Flame:
        return self.inner.setdefault(name, _Flame(name))

    def depth(self) -> int:
        return 1 + max((flame.depth() for flame in self.inner.values()), default=0)


def write_flame_graph(path: Any, events: Iterable[FunctionEvent]) -> None:
    """What happened in what, each as wide as its time: events below the user's frames, if those are known.

    Source: Gregg, The Flame Graph, Communications of the ACM 59(6), 2016.
    """
    root = _Flame("all")
    for event in events:
        if event.cpu_parent is None:
            _add(root, event)
    root.time = sum(flame.time for flame in root.inner.values())
    depth = root.depth()
    height = HEAD + depth * ROW + PAD
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" font-family="DejaVu Sans Mono, Menlo, monospace" font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{PAD}" y="21" font-size="13">{_spent(root.time)}: below each, what happened in it; '
        "point at a box for its share</text>",
        *_boxes(root, root, PAD, HEAD, (WIDTH - 2 * PAD) / root.time if root.time else 0.0),
        "</svg>",
        "",
    ]
    _write(path, "\n".join(lines))


def _add(root: _Flame, event: FunctionEvent) -> None:
    place = root
    for frame in reversed(event.stack):
        place = place.at(os.path.basename(frame))
        place.time += event.cpu_time_total
        place.count += 1
    stack = [(place, event)]
    while stack:
        above, each = stack.pop()
        flame = above.at(each.name)
        flame.time += each.cpu_time_total
        flame.count += 1
        stack += [(flame, inner) for inner in each.cpu_children]


def _boxes(root: _Flame, flame: _Flame, x: float, y: int, scale: float) -> Iterator[str]:
    width = flame.time * scale
    if width < LEAST:
        return
    share = f"{100 * flame.time / root.time:.1f}%" if root.time else ""
    times = f", {flame.count} times" if flame.count > 1 else ""
    yield (
        f"<g><title>{escape(flame.name)}: {_spent(flame.time)}, {share}{times}</title>"
        f'<rect x="{x:.2f}" y="{y}" width="{max(width - 0.5, 0.1):.2f}" height="{ROW - 1}" rx="1" '
        f'fill="{_colour(flame.name)}"/>'
    )
    room = int((width - 6) / CHARACTER)
    if room >= 3:
        text = flame.name if len(flame.name) <= room else f"{flame.name[: room - 1]}…"
        yield f'<text x="{x + 3:.2f}" y="{y + ROW - 5}">{escape(text)}</text>'
    yield "</g>"
    for inner in sorted(flame.inner.values(), key=lambda f: f.time, reverse=True):
        yield from _boxes(root, inner, x, y + ROW, scale)
        x += inner.time * scale


def _colour(name: str) -> str:
    """Warm for ops, cool for steps of backward, green for compiled code: the same for the same name."""
    shade = sum(map(ord, name)) % 40
    if "Backward" in name:
        return f"hsl({200 + shade},70%,76%)"
    if name.startswith("traced ") or "): " in name:
        return f"hsl({95 + shade},50%,74%)"
    return f"hsl({20 + shade},85%,72%)"


def _spent(microseconds: float) -> str:
    return f"{microseconds / 1e3:.3f} ms" if microseconds >= 1e3 else f"{microseconds:.1f} us"


# ---- memory over time --------------------------------------------------------------------------------------
def write_memory_timeline(path: Any, recorder: Recorder) -> None:
    """The bytes of tensors made while the profile was open that were alive at each time, by who made them.

    As SVG, or for a name in .json as PyTorch's two lists: times in microseconds, and bytes.  Raises
    ArgumentValueError where memory was not noted.
    """
    if not recorder.memory:
        raise ArgumentValueError(
            "export_memory_timeline: memory was not noted", "ask for it: profile(profile_memory=True)"
        )
    changes = sorted(recorder.changes)
    if os.fspath(path).endswith(".json"):
        times, sizes, held = [], [], 0
        for when, nbytes, _ in changes:
            held += nbytes
            times.append((when - recorder.origin) / 1e3)
            sizes.append(held)
        _write(path, json.dumps([times, sizes]))
        return
    _write(path, _memory_svg(changes, recorder))


LARGEST = 8  # those of whom the most was held at a time; the others are one


def _memory_svg(changes: Sequence[tuple[int, int, str]], recorder: Recorder) -> str:
    height, left, right = 420, 70, 240
    now: dict[str, int] = defaultdict(int)
    most: dict[str, int] = defaultdict(int)
    held = peak = 0
    for _, nbytes, name in changes:
        now[name] += nbytes
        held += nbytes
        most[name], peak = max(most[name], now[name]), max(peak, held)
    names = sorted(most, key=lambda name: most[name], reverse=True)[:LARGEST]
    rows = [*names, *(["others"] if len(most) > LARGEST else [])]
    span = max(recorder.ended - recorder.origin, 1)
    across, down = (WIDTH - left - right) / span, (height - 2 * HEAD) / max(peak, 1)
    now.clear()
    points: list[tuple[float, list[int]]] = [(left, [0] * len(rows))]
    for when, nbytes, name in changes:
        x = left + (when - recorder.origin) * across
        points.append((x, points[-1][1]))
        now[name if name in names else "others"] += nbytes
        points.append((x, [now[row] for row in rows]))
    points.append((WIDTH - right, points[-1][1]))
    floor = height - HEAD
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" font-family="DejaVu Sans Mono, Menlo, monospace" font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{PAD}" y="21" font-size="13">memory of tensors made meanwhile: at most '
        f"{_bytes(peak)}, over {_spent(span / 1e3)}</text>",
    ]
    base = [0] * len(points)
    for at, row in enumerate(rows):
        top = [below + sizes[at] for below, (_, sizes) in zip(base, points)]
        edge = [f"{x:.1f},{floor - size * down:.1f}" for (x, _), size in zip(points, top)]
        back = [f"{x:.1f},{floor - size * down:.1f}" for (x, _), size in zip(points, base)]
        colour = f"hsl({(at * 47 + 15) % 360},60%,70%)" if row != "others" else "#cccccc"
        lines.append(f'<polygon points="{" ".join([*edge, *reversed(back)])}" fill="{colour}"/>')
        y = HEAD + 6 + at * ROW
        size = f" {_bytes(most[row])}" if row in names else ""
        lines.append(f'<rect x="{WIDTH - right + 16}" y="{y}" width="11" height="11" fill="{colour}"/>')
        lines.append(f'<text x="{WIDTH - right + 33}" y="{y + 10}">{escape(row[:22])}{size}</text>')
        base = top
    for part in range(5):
        y = floor - part / 4 * peak * down
        lines.append(f'<line x1="{left}" x2="{WIDTH - right}" y1="{y:.1f}" y2="{y:.1f}" stroke="#00000022"/>')
        lines.append(
            f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{_bytes(round(part / 4 * peak))}</text>'
        )
    lines.append(f'<text x="{left}" y="{height - 12}">0</text>')
    lines.append(f'<text x="{WIDTH - right}" y="{height - 12}" text-anchor="end">{_spent(span / 1e3)}</text>')
    return "\n".join([*lines, "</svg>", ""])


def _bytes(count: int) -> str:
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if count >= 1 << power:
            return f"{count / (1 << power):.1f} {unit}"
    return f"{count} B"
