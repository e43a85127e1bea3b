"""Operators that make one element of each window, or of each region, of an input's spatial dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import ceil, floor, inf, prod
from typing import NamedTuple

import numpy as np

from ....ir.dtypes import INTEGERS, UNSIGNED
from ....nn import functional as F
from ....runtime import Tensor, ops
from ....runtime.allowance import afford
from ..declared import Node, OnnxError
from .conv_nodes import CONV, WIDE, Pairs, Windows, auto_pad, each, explicit, spatial, widened, windows
from .registry import Value, as_host, as_tensor, ints, operator

AVG = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
MAX = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
where = ops.FUNCTIONS["where"]

LEAST = {d.name: int(np.iinfo(d.numpy).min) for d in (*INTEGERS, *UNSIGNED)}
MOST = 1 << 28  # points that regions are sampled at
AT_ONCE = 1 << 24  # elements that are read for some of the regions
MOST_PARTS = 1 << 22  # of all regions, where each takes some steps


# ---- windows
def _kernel(node: Node, count: int) -> tuple[int, ...]:
    if "kernel_shape" not in node.attrs:
        raise OnnxError(f"{node.op}: it needs kernel_shape", str(node))
    return each(node, "kernel_shape", count)


def _pooled(node: Node, x: Tensor) -> tuple[Windows, tuple[int, ...], Pairs]:
    """A pool's windows, how many there are, and the pads that these need."""
    sizes = spatial(node, x)
    over = windows(node, sizes, _kernel(node, len(sizes)))
    places = over.places(node, sizes, bool(node.attr("ceil_mode", 0)) and auto_pad(node) != "VALID")
    if prod(over.kernel) > WIDE:  # a kernel may lay its windows out, one after the other
        afford([prod(over.kernel), *map(int, (*x.shape[:2], *places))], 4, node.op)
    every = zip(sizes, places, over.strides, over.reach, over.pads, strict=True)
    pads = tuple((before, max((o - 1) * s + r - size - before, 0)) for size, o, s, r, (before, _) in every)
    return over, places, pads


def _sums(x: Tensor, over: Windows, pads: Pairs, divisor: int = 1) -> Tensor:
    """The sum of each window, divided by a number."""
    count = len(pads)
    if set(over.dilations) == {1}:
        return AVG[count](widened(x, pads), over.kernel, over.strides, divisor_override=divisor)
    ones = ops.FUNCTIONS["ones"]((1, 1, *over.kernel), dtype=x.dtype)
    planes = x.reshape((x.shape[0] * x.shape[1], 1, *x.shape[2:]))
    found = CONV[count](planes, ones, None, over.strides, pads, over.dilations)
    return found.reshape((*x.shape[:2], *found.shape[2:])) / divisor


def _inside(over: Windows, places: Sequence[int], sizes: Sequence[int], padded: bool) -> np.ndarray:
    """How many elements of each window lie in the input, or in what it is padded to."""
    found = np.ones((1,) * len(sizes), np.int64)
    for axis, (size, o, k, s, d, (before, after)) in enumerate(
        zip(sizes, places, over.kernel, over.strides, over.dilations, over.pads, strict=True)
    ):
        afford((o, k), 32, "windows")
        at = np.arange(o)[:, None] * s - before + np.arange(k) * d
        low, high = (-before, size + after) if padded else (0, size)
        along = ((at >= low) & (at < high)).sum(1)
        found = found * along.reshape(-1, *(1,) * (len(sizes) - 1 - axis))
    return found


def _all_inside(over: Windows, places: Sequence[int], sizes: Sequence[int], padded: bool) -> bool:
    """Whether all windows lie in the input, or in what it is padded to, as a whole."""
    every = zip(places, sizes, over.strides, over.reach, over.pads, strict=True)
    return all(
        [
            (padded or not before) and (o - 1) * s + r <= size + (before + after if padded else 0)
            for o, size, s, r, (before, after) in every
        ]
    )


def _is_even(over: Windows) -> bool:
    """Whether windows are padded alike on both sides, as Lamina's own pools are."""
    even = all(before == after and 2 * before <= k for k, (before, after) in zip(over.kernel, over.pads))
    return even and set(over.dilations) == {1}


@operator("AveragePool")
def average_pool(node: Node, x: Value) -> Value:
    over, places, pads = _pooled(node, x)
    padded, wide = bool(node.attr("count_include_pad", 0)), x.to(x.dtype.compute)
    if _all_inside(over, places, x.shape[2:], padded):  # asked of sizes that a tracer follows
        return _sums(wide, over, pads, prod(over.kernel)).to(x.dtype)
    if not padded and not node.attr("ceil_mode", 0) and _is_even(over):
        before = tuple(before for before, _ in over.pads)
        return AVG[len(before)](wide, over.kernel, over.strides, before, False, False).to(x.dtype)
    counts = _inside(over, places, x.shape[2:], padded)
    if counts.size and 0 < counts.min() == counts.max():
        return _sums(wide, over, pads, int(counts.flat[0])).to(x.dtype)
    return (_sums(wide, over, pads) / as_tensor(counts).to(wide.dtype)).to(x.dtype)


def _powers(node: Node, x: Tensor) -> tuple[Tensor, int]:
    p = node.attr("p", 2)
    if p < 1:
        raise OnnxError(f"{node.op}: p is 1 or more, not {p}", str(node))
    wide = x.to(x.dtype.compute)
    return (wide * wide if p == 2 else wide.abs() ** p), p


@operator("LpPool")
def lp_pool(node: Node, x: Value) -> Value:
    over, _, pads = _pooled(node, x)
    powers, p = _powers(node, x)
    return (_sums(powers, over, pads) ** (1 / p)).to(x.dtype)


@operator("MaxPool")
def max_pool(node: Node, x: Value) -> Value:
    over, _, pads = _pooled(node, x)
    # Lamina's pools pad by half of a window at most.
    excess = tuple(
        (max(before - reach // 2, 0), 0) for (before, _), reach in zip(pads, over.reach, strict=True)
    )
    least = -inf if x.dtype.is_floating_point else LEAST[x.dtype.name]
    wider = widened(x, excess, least)
    left = tuple((before - more, after) for (before, after), (more, _) in zip(pads, excess, strict=True))
    pool, wants = MAX[len(pads)], len(node.outputs) > 1 and node.outputs[1] != ""
    found = pool(wider, over.kernel, over.strides, left, over.dilations, return_indices=wants)
    if not wants:
        return found
    out, at = found
    return out, _places_in(node, x, at, wider.shape[2:], [more for more, _ in excess])


def _places_in(node: Node, x: Tensor, at: Tensor, sizes: Sequence[int], before: Sequence[int]) -> Tensor:
    """Places in all of an input, of those in each plane of one that is wider."""
    batch, channels, *own = x.shape
    by_column, total = node.attr("storage_order", 0), 0
    for axis, (size, wider, more) in enumerate(zip(own, sizes, before, strict=True)):
        along = at // prod(sizes[axis + 1 :]) % wider
        along = (along - more).clamp(0, size - 1) if more else along
        total = total + along * prod(own[:axis] if by_column else own[axis + 1 :])
    planes = np.arange(batch * channels).reshape(batch, channels, *(1,) * len(own)) * prod(own)
    return total + as_tensor(planes)


@operator("MaxUnpool", raw=True)
def max_unpool(node: Node, x: Value, at: Value, to: Value = None) -> Value:
    x, at = as_tensor(x), as_tensor(at)
    sizes = spatial(node, x)
    kernel, count = _kernel(node, len(sizes)), len(sizes)
    strides = each(node, "strides", count)
    pads = explicit(node, count) if to is None else ((0, 0),) * count
    every = zip(sizes, kernel, strides, pads, strict=True)
    # The places count in what the sizes and the windows give, even where another shape is asked for.
    whole = (*x.shape[:2], *((n - 1) * s + k - sum(pair) for n, k, s, pair in every))
    if min(whole[2:]) < 1 or x.shape != at.shape:
        raise OnnxError(
            f"MaxUnpool: {[*x.shape]} at places of {[*at.shape]} don't fill {[*whole]}", str(node)
        )
    found = ops.FUNCTIONS["spread_at"](x.reshape((-1,)), at.reshape((-1,)), size=(prod(whole),), add=False)
    found = found.reshape(whole)
    if to is None:
        return found
    asked = ints(to)
    if len(asked) != len(whole) or min(asked) < 0:
        raise OnnxError(f"MaxUnpool: the output_shape {asked} has no {len(whole)} sizes", str(node))
    return widened(found, tuple((0, a - n) for a, n in zip(asked, whole, strict=True)))


# ---- all of a plane
def _dims(node: Node, x: Tensor) -> tuple[int, ...]:
    if len(x.shape) < 2:
        raise OnnxError(f"{node.op}: it takes [batch, channels, …], not {[*x.shape]}", str(node))
    return tuple(range(2, len(x.shape)))


@operator("GlobalAveragePool")
def global_average_pool(node: Node, x: Value) -> Value:
    dims = _dims(node, x)
    return ops.FUNCTIONS["mean"](x, dims, True) if dims else x


@operator("GlobalMaxPool")
def global_max_pool(node: Node, x: Value) -> Value:
    dims = _dims(node, x)
    return ops.FUNCTIONS["amax"](x, dims, True) if dims else x


@operator("GlobalLpPool")
def global_lp_pool(node: Node, x: Value) -> Value:
    dims, (powers, p) = _dims(node, x), _powers(node, x)
    sums = ops.FUNCTIONS["sum"](powers, dims, True) if dims else powers
    return (sums ** (1 / p)).to(x.dtype)


# ---- regions
class Points(NamedTuple):
    """Where the parts of regions are sampled along one dimension: `most` points in each part.

    near: places in the input and weights of two neighbours, each [regions, points].  counted: which points
    there are, the same shape.  counts: how many in a part, [regions, 1].
    """

    near: list[tuple[Tensor, Tensor]]
    counted: Tensor
    counts: Tensor
    most: int

    def some(self, regions: slice) -> Points:
        near = [(at[regions], weight[regions]) for at, weight in self.near]
        return Points(near, self.counted[regions], self.counts[regions], self.most)


def _counts(node: Node, lengths: Tensor, parts: int) -> np.ndarray:
    """How many points are in a part of each region: what the node says, or one for each element."""
    ratio = node.attr("sampling_ratio", 0)
    if ratio > 0:
        return np.full((lengths.shape[0], 1), ratio)
    counts = np.ceil(as_host(lengths).astype(np.float64) / parts).reshape(-1, 1)
    if not (counts <= MOST).all():
        raise OnnxError(f"RoiAlign: {parts} parts of a region have {counts.max()} points each", str(node))
    return np.maximum(counts, 0).astype(np.int64)


def _points(node: Node, start: Tensor, end: Tensor, parts: int, size: int, half: bool) -> Points:
    """The points of regions [start, end] in a dimension of some size.  half: these may be shorter than 1."""
    length = end - start if half else (end - start).clamp(min=1)
    counts = _counts(node, length, parts)
    most = int(counts.max(initial=0))
    if len(counts) * parts * most > MOST:
        raise OnnxError(f"RoiAlign: {len(counts)} regions have {parts} parts of {most} points", str(node))
    afford((parts, most), 16, node.op)
    part, step = as_tensor(np.repeat(np.arange(parts), most)), as_tensor(np.tile(np.arange(most), parts))
    width, number_of = (length / parts).reshape((-1, 1)), as_tensor(counts)
    at = start.reshape((-1, 1)) + part * width + (step + 0.5) * width / number_of.clamp(min=1)
    within = (at >= -1) & (at <= size)  # nothing is: NaN
    at = where(within, at, 0.0).clamp(0, size - 1)
    low = at.detach().floor()
    high, share, within = (low + 1).clamp(max=size - 1), at - low, within.to(at.dtype)
    near = [(low.long(), (1 - share) * within), (high.long(), share * within)]
    return Points(near, step < number_of, number_of, most)


def _read(x: Tensor, at: Tensor, axis: int) -> Tensor:
    """The elements of [regions, channels, height, width] at [regions, points] of a dimension."""
    shape = [at.shape[0], *x.shape[1:]]
    shape[axis] = at.shape[1]
    places = at[:, None, :, None] if axis == 2 else at[:, None, None, :]
    return x.gather(axis, places.expand(tuple(shape)))


def _aligned(x: Tensor, rows: Points, columns: Points, parts: tuple[int, int], mean: bool) -> Tensor:
    """The mean or the greatest of the points of each part of some regions, whose planes are x."""
    corners = []
    for row, row_share in rows.near:
        lines = _read(x, row, 2)
        for column, share in columns.near:
            corners.append(_read(lines, column, 3) * (row_share[:, None, :, None] * share[:, None, None, :]))
    points = reduce(ops.FUNCTIONS["add" if mean else "maximum"], corners)
    counted = rows.counted[:, None, :, None] & columns.counted[:, None, None, :]
    points = where(counted, points, 0.0 if mean else -inf)
    points = points.reshape((*points.shape[:2], parts[0], rows.most, parts[1], columns.most))
    count = (rows.counts * columns.counts).reshape((-1, 1, 1, 1))
    if mean:
        return points.sum((3, 5)) / count.clamp(min=1).to(points.dtype)
    return where(count > 0, points.amax((3, 5)), 0.0)


@operator("RoiAlign")
def roi_align(node: Node, x: Value, rois: Value, of: Value) -> Value:
    mode, newer = node.attr("mode", "avg").lower(), node.opset >= 16
    how = node.attr("coordinate_transformation_mode", "half_pixel" if newer else "output_half_pixel")
    parts = node.attr("output_height", 1), node.attr("output_width", 1)
    fits = (
        len(x.shape) == 4 and 0 not in x.shape[2:] and tuple(rois.shape) == (*of.shape, 4) and min(parts) > 0
    )
    if not fits or mode not in ("avg", "max") or how not in ("half_pixel", "output_half_pixel"):
        raise OnnxError(
            f"RoiAlign: regions of {[*rois.shape]} in {[*x.shape]}, for images {[*of.shape]}, to {[*parts]}, "
            f"by {mode!r} and {how!r}",
            str(node),
        )
    wide, half = x.to(x.dtype.compute), how == "half_pixel"
    corners = rois.to(wide.dtype) * node.attr("spatial_scale", 1.0) - (0.5 if half else 0.0)
    left, top, right, bottom = (corners[:, at] for at in range(4))
    rows = _points(node, top, bottom, parts[0], x.shape[2], half)
    columns = _points(node, left, right, parts[1], x.shape[3], half)
    if not of.shape[0] * rows.most * columns.most:
        return ops.FUNCTIONS["zeros"]((of.shape[0], x.shape[1], *parts), dtype=x.dtype)
    high, across = parts[0] * rows.most, parts[1] * columns.most
    each_region = x.shape[1] * max(prod(x.shape[2:]), high * max(across, x.shape[3]))
    few, made = max(1, AT_ONCE // max(each_region, 1)), []
    for begin in range(0, of.shape[0], few):
        some = slice(begin, begin + few)
        planes = wide.index_select(0, of[some])
        made.append(_aligned(planes, rows.some(some), columns.some(some), parts, mode == "avg"))
    return (made[0] if len(made) == 1 else ops.FUNCTIONS["cat"](made, 0)).to(x.dtype)


def _bins(low: float, high: float, scale: float, parts: int, size: int) -> list[slice]:
    """The places of a region's parts along a dimension."""
    start, end = (int(np.trunc(edge * scale + np.copysign(0.5, edge))) for edge in (low, high))
    each_part = max(end - start + 1, 1) / parts
    edges = [(floor(at * each_part) + start, ceil((at + 1) * each_part) + start) for at in range(parts)]
    return [slice(min(max(a, 0), size), min(max(b, 0), size)) for a, b in edges]


@operator("MaxRoiPool", raw=True)
def max_roi_pool(node: Node, x: Value, rois: Value) -> Value:
    x, regions = as_tensor(x), as_host(rois).astype(np.float64)
    parts, scale = each(node, "pooled_shape", 2), node.attr("spatial_scale", 1.0)
    if len(x.shape) != 4 or regions.ndim != 2 or regions.shape[1] != 5 or not np.isfinite(regions).all():
        raise OnnxError(f"MaxRoiPool: regions of {[*regions.shape]} in {[*x.shape]}", str(node))
    if regions.shape[0] * prod(parts) > MOST_PARTS:
        raise OnnxError(f"MaxRoiPool: {regions.shape[0]} regions of {[*parts]} parts are too many", str(node))
    amax, stack = ops.FUNCTIONS["amax"], ops.FUNCTIONS["stack"]
    nothing = ops.FUNCTIONS["zeros"]((x.shape[1],), dtype=x.dtype)
    made = []
    for image, x1, y1, x2, y2 in regions.tolist():
        if not 0 <= image < x.shape[0]:
            raise OnnxError(f"MaxRoiPool: there is no image {image} of {x.shape[0]}", str(node))
        plane = x[int(image)]
        rows = _bins(y1, y2, scale, parts[0], x.shape[2])
        columns = _bins(x1, x2, scale, parts[1], x.shape[3])
        for row in rows:
            for column in columns:
                part = plane[:, row, column]
                made.append(amax(part, (1, 2)) if 0 not in part.shape[1:] else nothing)
    if not made:
        return ops.FUNCTIONS["zeros"]((0, x.shape[1], *parts), dtype=x.dtype)
    found = stack(made).reshape((regions.shape[0], *parts, x.shape[1]))
    return ops.FUNCTIONS["permute"](found, (0, 3, 1, 2))
