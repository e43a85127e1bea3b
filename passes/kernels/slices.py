"""Kernels that read a part of an array are given that part alone: consecutive elements from an offset on.

    kernel f(x: f32[64,8,4]) -> (y: f32[8,4])        y[i, j] = x[5, i, j] + x[6, i, j]
    ->
    kernel f(x: f32[2,8,4]) -> (y: f32[8,4])         y[i, j] = x[0, i, j] + x[1, i, j]     offset 160

The offset is then no part of the kernel's text: the steps of a recurrent network, each of which reads its own
rows of one array, are one kernel, and compiled once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from ...ir.kernel.affine import Affine, Extent
from ...ir.kernel.form import Buffer, Index, Kernel
from ...ir.kernel.scalar import Expr, Read
from ...ir.kernel.substitute import Substitution


def sliced(kernel: Kernel) -> tuple[Kernel, tuple[Extent, ...]]:
    """The kernel on those parts of its inputs that it reads, and for each input the part's first element.

    A part is of consecutive elements, so its leading dimensions but one are of size 1.  What is read under a
    guard, with strides, or by computed indices stays whole.
    """
    parts: dict[str, list[tuple[int, int]]] = {}
    reads: dict[str, list[Read]] = {}
    for _, access in kernel.reads:
        reads.setdefault(access.buffer, []).append(access)
    kept = {buffer.inplace for buffer in kernel.outputs}
    for buffer in kernel.inputs:
        ranges = _ranges(kernel, buffer, reads.get(buffer.name, ()))
        if ranges and buffer.name not in kept and buffer.layout is None:
            parts[buffer.name] = ranges
    offsets = tuple(
        sum(low * stride for (low, _), stride in zip(parts.get(b.name, ()), b.strides, strict=False))
        for b in kernel.inputs
    )
    if not parts:
        return kernel, offsets
    buffers = {name: _less(kernel.buffers[name], ranges) for name, ranges in parts.items()}
    at = {name: partial(_moved, ranges) for name, ranges in parts.items()}
    return Substitution(buffers=buffers, at=at).kernel(kernel), offsets


def _ranges(kernel: Kernel, buffer: Buffer, reads: Sequence[Read]) -> list[tuple[int, int]]:
    """The first index and the number of those read, of each leading dimension; none where all are."""
    if not reads or any(access.other is not None for access in reads) or 0 in buffer.shape:
        return []
    if 0 in kernel.extents.values():  # nothing is read, wherever an empty part may begin
        return []
    found: list[tuple[int, int]] = []
    for d in range(len(buffer.shape)):
        spans = [span for access in reads if (span := _span(kernel.extents, access.index[d]))]
        if len(spans) < len(reads):
            break
        low, high = min(low for low, _ in spans), max(high for _, high in spans)
        found.append((low, high - low + 1))
        if high > low:
            break
    return found if any(n != size for (_, n), size in zip(found, buffer.shape, strict=False)) else []


def _span(extents: Mapping[str, Extent], part: Affine | Expr) -> tuple[int, int] | None:
    """The least and the greatest value of an index that takes all between them."""
    if not isinstance(part, Affine):
        return None
    reach, first = 0, part.constant
    if not isinstance(first, int) or not all(isinstance(c, int) for _, c in part.terms):
        return None
    for coefficient, name in sorted((int(c), name) for name, c in part.terms):
        extent = extents.get(name)
        if not isinstance(extent, int) or not 0 < coefficient <= reach + 1:
            return None
        reach += coefficient * (extent - 1)
    return first, first + reach


def _less(buffer: Buffer, ranges: Sequence[tuple[int, int]]) -> Buffer:
    """The buffer of these leading indices."""
    return replace(buffer, shape=(*(n for _, n in ranges), *buffer.shape[len(ranges) :]))


def _moved(ranges: Sequence[tuple[int, int]], index: Index) -> Index:
    """The index into the part, of one into the whole."""
    lead = (
        part + Affine((), -low) if isinstance(part, Affine) else part
        for part, (low, _) in zip(index, ranges, strict=False)
    )
    return (*lead, *index[len(ranges) :])
