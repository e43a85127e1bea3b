"""A plan as one picture, drawn by matplotlib, which is loaded here and only if a picture is asked for."""

from __future__ import annotations

import os
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ..ir.own_files import replacing
from .mesh_layout import PlanError
from .plan_page import BACKWARD, COLOURS, FORWARD, timeline
from .plan_text import seconds, spelled
from .step_time import KINDS

if TYPE_CHECKING:
    from .step_plan import Plan


def write_picture(plan: Plan, path: str | os.PathLike) -> None:
    """Draw memory, time and the pipeline's timeline as PNG.

    Raises PlanError where no layout fits or matplotlib is not installed, OSError.
    """
    if find_spec("matplotlib") is None:
        raise PlanError("plan(png): matplotlib is not installed", "pip install matplotlib, or ask for --html")
    if not plan.best:
        raise PlanError("plan: no layout fits, so there is none to draw", *str(plan).splitlines())
    backend, figures = import_module("matplotlib.backends.backend_agg"), import_module("matplotlib.figure")
    best = plan.best[0]
    figure = figures.Figure(figsize=(12, 4.6 + min(best.layout.pp, 16) * 0.22), layout="constrained")
    backend.FigureCanvasAgg(figure)
    memory, time, line = figure.subplots(3, 1, height_ratios=[1, 1, 2 + min(best.layout.pp, 16) * 0.25])
    title = f"{plan.costs.name} on {plan.mesh.devices} x {plan.device.name}: {best.layout}"
    figure.suptitle(title, fontsize=10)
    parts = best.memory._asdict()
    _stacked(memory, parts, 1e9, [f"{k} {spelled(v, 'B')}" for k, v in parts.items()])
    memory.axvline(best.capacity / 1e9, color="#d00")
    memory.set_xlabel("memory of the fullest rank, GB (red: what there is)")
    spent = {kind: best.seconds[kind] for kind in KINDS}
    _stacked(time, spent, 1.0, [f"{k} {seconds(v)}" for k, v in spent.items()])
    time.set_xlabel(f"a step, s; model FLOPs utilisation {best.utilisation:.1%}")
    tasks, shown = timeline(best)
    for task in tasks:
        shade = (BACKWARD if task.backward else FORWARD)[min(task.chunk, 3)]
        line.barh(
            task.rank, task.end - task.start, 0.9, task.start, color=shade, edgecolor="white", linewidth=0.2
        )
    line.invert_yaxis()
    line.set_ylabel("rank of the pipeline")
    line.set_yticks(range(0, best.layout.pp, max(1, best.layout.pp // 8)))
    line.set_xlabel(
        f"timeline of {shown} of {best.micro_batches} micro-batches, s (blue forward, orange backward)"
    )
    with replacing(os.fspath(path)) as file:
        figure.savefig(file, dpi=110, format="png")


def _stacked(axes: Any, parts: dict[str, float], scale: float, labels: list[str]) -> None:
    at = 0.0
    for size, label, colour in zip(parts.values(), labels, COLOURS, strict=False):
        if size:
            axes.barh(0, size / scale, 0.8, at, color=colour, label=label)
        at += size / scale
    axes.set_yticks([])
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=6, fontsize=7, frameon=False)
