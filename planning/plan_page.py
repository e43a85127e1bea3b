"""A plan as a page that refers to nothing outside of itself: memory, time, the pipeline's timeline, the text.

There is no script in it.  Names may be anybody's: they are escaped.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from ..ir.own_files import replacing
from .mesh_layout import PlanError
from .pipeline_schedule import Task, simulate
from .plan_text import seconds, spelled
from .step_time import KINDS, Prediction

if TYPE_CHECKING:
    from .step_plan import Plan

WIDTH, LABEL = 1080, 150
TASKS = 5000  # at most so many are drawn
COLOURS = (
    "#3b6fb6", "#e0812c", "#4a9b5a", "#b94a48", "#7d62a8", "#8a6552", "#c96fa8", "#7f7f7f", "#b5b5b5",
    "#a9a534", "#3fa7b5",
)  # fmt: skip
FORWARD, BACKWARD = ("#7aa6dd", "#4f83c4", "#2f5f9e", "#1d3f6e"), ("#f0b27a", "#e08e45", "#c06a22", "#8f4a10")
STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 1120px; padding: 0 1rem; }
svg { width: 100%; height: auto; font: 12px system-ui, sans-serif; }
svg text { fill: currentColor; }
svg text.inside { fill: #fff; }
pre { font: 13px/1.4 ui-monospace, monospace; overflow-x: auto; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin: 2rem 0 0.3rem; }
p { margin: 0.3rem 0; }
"""


def write_page(plan: Plan, path: str | os.PathLike) -> None:
    """Write the page of a plan.  Raises PlanError where no layout fits, OSError."""
    text = page(plan)
    with replacing(os.fspath(path)) as file:
        file.write(text.encode(errors="xmlcharrefreplace"))


def page(plan: Plan) -> str:
    """The text of a page.  Raises PlanError where no layout fits."""
    if not plan.best:
        raise PlanError("plan: no layout fits, so there is none to draw", *str(plan).splitlines())
    best, title = plan.best[0], f"{plan.costs.name} on {plan.mesh.devices} x {plan.device.name}"
    tasks, shown = timeline(best)
    of = f"the first {shown} of {best.micro_batches}" if shown < best.micro_batches else f"all {shown}"
    parts = [
        f"<h1>{escape(title)}</h1>",
        f"<p>{escape(str(best.layout))}: {seconds(best.step)} a step, model FLOPs utilisation "
        f"{best.utilisation:.1%}</p>",
        "<h2>Memory of the fullest rank</h2>",
        bar(best.memory._asdict(), "B", best.capacity, "capacity"),
        "<h2>Time of a step</h2>",
        bar({kind: best.seconds[kind] for kind in KINDS}, "s"),
        f"<h2>Timeline of the pipeline: {of} micro-batches</h2>",
        "<p>Forwards blue, backwards orange, darker for later chunks of layers; white is idle.</p>"
        if best.layout.pp > 1 else "<p>There is no pipeline: forwards blue, backwards orange.</p>",
        draw_timeline(tasks, best.layout.pp),
        f"<h2>In numbers</h2><pre>{escape(str(plan))}</pre>",
    ]  # fmt: skip
    policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def timeline(best: Prediction) -> tuple[list[Task], int]:
    """The tasks of a step, and of how many micro-batches: as many as can be drawn, in whole rounds."""
    each = 2 * best.layout.pp * best.layout.chunks
    shown = min(best.micro_batches, max(TASKS // each, 1), max(3 * best.layout.pp, 8))
    if best.layout.chunks > 1:
        shown = max(shown // best.layout.pp, 1) * best.layout.pp
    return simulate(best.forward, best.backward, shown), shown


def bar(parts: dict[str, float], unit: str, limit: float | None = None, limit_name: str = "") -> str:
    """A stacked bar as SVG with a legend; limit: where a line marks what there is."""
    total = sum(parts.values())
    scale = (WIDTH - 2) / max(total, limit or 0, 1e-30)
    told = seconds if unit == "s" else (lambda number: spelled(number, unit))
    shapes, at = [], 0.0
    shown = [
        (kind, size, colour) for (kind, size), colour in zip(parts.items(), COLOURS, strict=False) if size > 0
    ]
    for kind, size, colour in shown:
        words = f"{kind}: {told(size)} ({size / total:.1%})"
        shapes.append(_box(1 + at * scale, 6, size * scale, 34, colour, words))
        if size * scale > 7 * len(kind) + 12:
            shapes.append(_inside(1 + (at + size / 2) * scale, 27, kind))
        at += size
    if limit is not None:
        x = min(1 + limit * scale, WIDTH - 1)
        shapes.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="46" stroke="#d00" stroke-width="2"/>')
        shapes.append(
            f'<text x="{x - 5:.1f}" y="58" text-anchor="end">{escape(limit_name)} {told(limit)}</text>'
        )
    legend, height = _legend([(f"{k} {told(s)}", c) for k, s, c in shown], 76)
    return _svg(height, [*shapes, *legend], f"{', '.join(f'{k} {told(s)}' for k, s, _ in shown)}")


def _legend(entries: Iterable[tuple[str, str]], top: float) -> tuple[list[str], float]:
    shapes, x, y = [], 1.0, top
    for words, colour in entries:
        width = 26 + 6.6 * len(words)
        if x + width > WIDTH:
            x, y = 1.0, y + 20
        shapes.append(_box(x, y - 10, 12, 12, colour, words))
        shapes.append(f'<text x="{x + 17:.1f}" y="{y:.1f}">{escape(words)}</text>')
        x += width
    return shapes, y + 8


def draw_timeline(tasks: Sequence[Task], ranks: int) -> str:
    """The tasks of each rank of a pipeline in a row of its own."""
    end = max(task.end for task in tasks)
    row = max(min(26.0, 560 / ranks), 5.0)
    scale = (WIDTH - LABEL - 2) / end
    shapes = []
    for rank in range(ranks):
        if row >= 12 or rank % 8 == 0:
            shapes.append(
                f'<text x="{LABEL - 8}" y="{(rank + 0.75) * row:.1f}" text-anchor="end">rank {rank}</text>'
            )
    for task in tasks:
        shades = BACKWARD if task.backward else FORWARD
        words = (
            f"{'backward' if task.backward else 'forward'} of micro-batch {task.micro_batch}"
            f", chunk {task.chunk}, {seconds(task.start)} to {seconds(task.end)}"
        )
        width = (task.end - task.start) * scale
        x = LABEL + task.start * scale
        shapes.append(_box(x, task.rank * row + 1, width, row - 2, shades[min(task.chunk, 3)], words))
        if width > 16 and row >= 16:
            shapes.append(_inside(x + width / 2, (task.rank + 0.68) * row, str(task.micro_batch)))
    bottom = ranks * row + 6
    for tick in range(6):
        x = LABEL + tick / 5 * end * scale
        anchor = "start" if tick == 0 else "end" if tick == 5 else "middle"
        shapes.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{bottom - 6:.1f}" y2="{bottom:.1f}" stroke="currentColor"/>'
        )
        shapes.append(
            f'<text x="{x:.1f}" y="{bottom + 14:.1f}" text-anchor="{anchor}">{seconds(tick / 5 * end)}</text>'
        )
    return _svg(bottom + 22, shapes, "timeline of the pipeline")


def _box(x: float, y: float, width: float, height: float, colour: str, words: str) -> str:
    return (
        f'<rect x="{x:.2f}" y="{y:.1f}" width="{max(width, 0.3):.2f}" height="{height:.1f}" fill="{colour}" '
        f'stroke="#fff" stroke-width="0.4"><title>{escape(words)}</title></rect>'
    )


def _inside(x: float, y: float, words: str) -> str:
    return f'<text class="inside" x="{x:.1f}" y="{y:.1f}" text-anchor="middle">{escape(words)}</text>'


def _svg(height: float, shapes: Sequence[str], words: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img" '
        f'aria-label="{escape(words)}">' + "".join(shapes) + "</svg>"
    )
