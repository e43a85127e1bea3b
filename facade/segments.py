"""Reductions of stretches of one dimension, as long as another tensor says."""

from __future__ import annotations

from math import inf, nan, prod
from typing import Any

from ..ir.dtypes import int32, int64
from ..ir.errors import ArgumentError, ArgumentValueError, ShapeError
from ..runtime import Tensor, ops
from ..runtime.levels import has_values
from ..runtime.refusal import refusing_names

# What a reduction of nothing gives.
_NEUTRAL = {"sum": 0.0, "mean": nan, "max": -inf, "amax": -inf, "min": inf, "amin": inf, "prod": 1.0}
_SCATTERED = {"mean": "sum", "max": "amax", "min": "amin"}


def segment_reduce(
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    indices: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: float | None = None,
) -> Tensor:
    """Reduce stretches of a dimension to their "sum", "mean", "max", "min" or "prod".

    lengths: how long each is, one behind the other; or offsets: where each begins, and where the last ends.
    unsafe: do not look whether lengths are at least 0 and add up.  initial: what each begins with, and what
    one of no elements gives.
    Shapes: data [..., k, ---] and lengths [..., n], or offsets [..., n + 1], of `axis` dimensions before
    -> [..., n, ---].  Raises ArgumentError, ArgumentValueError, ShapeError.
    """
    if reduce not in _NEUTRAL:
        raise ArgumentValueError(f"segment_reduce: {reduce!r} is none of {', '.join(_NEUTRAL)}")
    if indices is not None or (lengths is None) == (offsets is None):
        raise ArgumentError("segment_reduce: takes either lengths or offsets, and no indices")
    given: Any = offsets if lengths is None else lengths
    axis = axis % data.ndim if -data.ndim <= axis < data.ndim else axis
    if axis != given.ndim - 1 or axis >= data.ndim or given.shape[:-1] != data.shape[:axis]:
        raise ShapeError(
            "segment_reduce: lengths or offsets have the dimensions of data before `axis`, and one more",
            f"data: {data._meta}",
            f"lengths or offsets: {given._meta}",
            f"axis: {axis}",
        )
    count = data.shape[axis]
    if lengths is not None:
        if not unsafe and has_values(lengths):
            if bool((lengths < 0).any()):
                raise ArgumentValueError("segment_reduce: lengths contains negative value, and must not")
            if bool((lengths.sum(-1) != count).any()):
                raise ArgumentValueError(
                    "segment_reduce: Expected all rows of lengths along axis to sum to data.size(axis), "
                    f"{count}"
                )
        offsets = ops.constant_pad_nd(ops.cumsum(lengths, -1), (1, 0))
    assert offsets is not None
    offsets = offsets.long().contiguous()
    n = offsets.shape[-1] - 1
    place = ops.arange(count, device=data.device).expand((*offsets.shape[:-1], count)).contiguous()
    bins = ops.searchsorted(offsets, place, right=True)  # 0 is before the first, n + 1 behind the last
    bins = bins.reshape((*bins.shape, *(1,) * (data.ndim - axis - 1))).expand(data.shape)
    shape = (*data.shape[:axis], n + 2, *data.shape[axis + 1 :])
    first = initial if initial is not None else 0.0 if reduce == "mean" else _NEUTRAL[reduce]
    start = data.new_full(shape, first)
    found = ops.scatter_reduce(start, axis, bins, data, _SCATTERED.get(reduce, reduce), include_self=True)
    found = found.narrow(axis, 1, n)
    if reduce != "mean":
        return found
    sizes = ops.diff(offsets).reshape((*data.shape[:axis], n, *(1,) * (data.ndim - axis - 1)))
    means = found / sizes.clamp(1).to(data.dtype)
    return means if initial is not None else ops.where(sizes == 0, nan, means)


__all__ = ["_segment_reduce", "segment_reduce"]

refusing_names(globals(), __name__)
_segment_reduce = segment_reduce


def _convert_indices_from_coo_to_csr(input: Tensor, size: int, *, out_int32: bool = False) -> Tensor:
    """Where each of `size` lines begins among sorted numbers of lines, and where the last ends.

    Shapes: [n] -> [size + 1].
    """
    lines = ops.arange(size + 1, device=input.device).to(input.dtype)
    return ops.searchsorted(input.contiguous(), lines, out_int32=out_int32)


def _convert_indices_from_csr_to_coo(
    crow_indices: Tensor, col_indices: Tensor, *, out_int32: bool = False, transpose: bool = False
) -> Tensor:
    """The number of its line for each element, over its column; transpose: below it.

    Shapes: crow_indices [..., m + 1], col_indices [..., n] -> [2, n]; of batches [b + 2, ...], each element's
    batch above them.
    """
    *batch, ends = crow_indices.shape
    lines = ops.arange(ends - 1, device=crow_indices.device)
    counts = ops.diff(crow_indices.long(), dim=-1).reshape(-1)
    rows = ops.repeat_interleave(lines.repeat(prod(batch)), counts)
    found = [col_indices.reshape(-1), rows] if transpose else [rows, col_indices.reshape(-1)]
    if batch:
        places = ops.unravel_index(ops.arange(prod(batch)), tuple(batch))
        each = col_indices.shape[-1]
        found = [*(ops.repeat_interleave(place, each) for place in places), *found]
    return ops.stack([x.to(int32 if out_int32 else int64) for x in found])
