"""Sums that are scaled after they are taken (`Scale`): by the scales of groups of weights."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ...ir.kernel.form import Reduce, names
from ..kernels.scales import split_scales
from .writer import Point, Value

if TYPE_CHECKING:
    from .reductions import Reductions


def scaled_sums(
    writer: Reductions, stage: Reduce, points: list[Point], totals: list[Value]
) -> list[Value] | None:
    """The totals, and the sums over the axes from that of the step on, each times its scales; None of a sum
    that the schedule does not scale."""
    axis = writer.schedule.scaled
    if axis is None or axis not in names(stage.axes) or len(totals) != len(points):
        return None
    first = names(stage.axes).index(axis)
    outer, inner = stage.axes[:first], stage.axes[first:]
    found = split_scales(writer.kernel, stage, names(inner))
    if found is None:
        return None
    (scale, rest), dtype = found, writer.kernel.dtypes[stage.name]
    part = replace(stage, axes=inner, value=rest)
    zero = writer.constant(0, dtype, bool(totals[0].lanes))

    def body(at: list[Point], before: list[Value]) -> list[Value]:
        sums = writer.accumulate(part, at, [zero] * len(before))
        return [
            added(total, value, writer.emit(scale, point, dtype))
            for total, value, point in zip(before, sums, at, strict=True)
        ]

    def added(total: Value, value: Value, by: Value) -> Value:
        by = writer.splat(by) if value.lanes else by
        if writer.target.has_fma:
            return writer.named("fma", value, by, total)
        return writer.named("add", total, writer.named("mul", value, by))

    return writer.over(outer, points, totals, body)
