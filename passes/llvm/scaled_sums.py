"""Sums that are scaled after they are taken (`Scale`): by the scales of groups of weights, and those of the
digits (`Digits`) that the other factor is written in.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ...ir.errors import Unsayable
from ...ir.kernel.form import Reduce, names
from ...ir.kernel.scalar import Cast, Expr, Op, cast, op
from ..kernels.scales import split_scales
from ..schedules.steps import NEIGHBOURS, Quads
from . import neighbours
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
    digits = writer.schedule.digits
    found = split_scales(writer.kernel, stage, [name for name in names(inner) if name != digits])
    if found is None:
        return None
    (scale, rest), dtype = found, writer.kernel.dtypes[stage.name]
    zero = writer.constant(0, dtype, bool(totals[0].lanes))
    part = replace(stage, axes=inner, value=rest)

    def body(at: list[Point], before: list[Value]) -> list[Value]:
        if digits is not None:
            return _by_digits(writer, part, scale, at, before)
        if writer.schedule.has(Quads):
            sums = _whole_sums(writer, part, at)
        else:
            sums = writer.accumulate(part, at, [zero] * len(before))
        return [
            _added(writer, total, value, writer.emit(scale, point, dtype))
            for total, value, point in zip(before, sums, at, strict=True)
        ]

    return writer.over(outer, points, totals, body)


def _by_digits(
    writer: Reductions, stage: Reduce, scale: Expr, points: list[Point], totals: list[Value]
) -> list[Value]:
    """The totals, and the sums of all digits, each of which is of whole numbers, times its scales."""
    axis, dtype = writer.schedule.digits or "", writer.kernel.dtypes[stage.name]
    common, own = split_scales(writer.kernel, replace(stage, value=scale), [axis]) or (None, scale)
    places, count = range(int(writer.kernel.extents[axis])), len(points)
    spread = [point | {axis: (0, place)} for place in places for point in points]
    part = replace(stage, axes=tuple(a for a in stage.axes if a.name != axis))
    sums, found = _whole_sums(writer, part, spread), list(totals)
    for n, point in enumerate(points):
        scales = [writer.splat(writer.emit(own, at, dtype)) for at in spread[n::count]]
        total = writer.named("mul", sums[n], scales[0])
        for value, by in zip(sums[n + count :: count], scales[1:], strict=True):
            total = _added(writer, total, value, by)
        by = writer.constant(1, dtype, True) if common is None else writer.emit(common, point, dtype)
        found[n] = _added(writer, found[n], total, by)
    return found


def _whole_sums(writer: Reductions, stage: Reduce, points: list[Point]) -> list[Value]:
    """Sums of products of bytes that were made floats, each taken in i32.  Raises Unsayable of others."""
    match stage.value:
        case Op("mul", (Cast(_, one, False), Cast(_, other, False))):
            sides = one, other
        case _:
            sides = ()
    if not sides or any(writer.kernel.dtype_of(side) not in NEIGHBOURS for side in sides):
        raise Unsayable(f"{writer.kernel.name}: digits are bytes", f"at: {stage}")
    whole = replace(stage, value=op("mul", *(cast(side, "i32") for side in sides)))
    zeros, dtype = [writer.constant(0, "i32", True)] * len(points), writer.kernel.dtypes[stage.name]
    if writer.schedule.short is None:
        sums = writer.accumulate(whole, points, zeros)
    else:
        sums = _short_sums(writer, whole, points, zeros)
    return [writer.cast(x, dtype) for x in sums]


def _short_sums(writer: Reductions, stage: Reduce, points: list[Point], zeros: list[Value]) -> list[Value]:
    """Sums in i32 of those in i16 that the schedule's axis and those behind it have."""
    first = names(stage.axes).index(writer.schedule.short or "")
    inner = replace(stage, axes=stage.axes[first:])
    neighbours.need_short(writer, inner)

    def body(at: list[Point], totals: list[Value]) -> list[Value]:
        sums = writer.accumulate(inner, at, zeros)
        return [neighbours.widened(writer, *pair) for pair in zip(totals, sums, strict=True)]

    return writer.over(stage.axes[:first], points, zeros, body)


def _added(writer: Reductions, total: Value, value: Value, by: Value) -> Value:
    by = writer.splat(by) if value.lanes else by
    if writer.target.has_fma:
        return writer.named("fma", value, by, total)
    return writer.named("add", total, writer.named("mul", value, by))
