"""How a kernel runs on the CPU: the schedule, a sound default, and the units of work that follow from it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from ...ir.errors import KernelError
from ...ir.kernel.form import Fold, Kernel, Local, Reduce, Stage, names
from ...ir.kernel.scalar import Expr, Read
from ...ir.kernel.types import bits
from ..contraction import contractions
from .target import Target

KEPT_BYTES = 64 << 10  # of stack for one kept Local: a row that is read again must stay in the nearest caches


@dataclass(frozen=True)
class Schedule:
    """How a kernel runs on the CPU.

    vector: the axis whose neighbours share a register; None for a kernel without axes.
    unroll: vectors of it held at once.
    tile:   other parallel axes computed together in registers; shared reads are loaded once.
    step:   iterations of a reduction axis per loop step.
    chunk:  elements of a parallel vector axis per unit of work.
    keep:   the Local stages held in scratch memory; the others are recomputed where they are used.
    scalar: one element at a time: where vectors would meet in one element, or a scan runs along the axis.
    """

    vector: str | None
    unroll: int = 1
    tile: Mapping[str, int] = field(default_factory=dict)
    step: Mapping[str, int] = field(default_factory=dict)
    chunk: int = 4096
    keep: frozenset[str] = frozenset()
    scalar: bool = False


def default_schedule(kernel: Kernel, target: Target) -> Schedule:
    """A sound first choice: the axis most accesses are contiguous in, and registers to hide latency."""
    axes = _vector_axes(kernel)
    if not axes:
        return Schedule(names(kernel.parallel)[-1] if kernel.parallel else None, scalar=True)
    vector = max(axes, key=lambda axis: _contiguity(kernel, axis, target.lanes))
    if not _lanes_apart(kernel, vector):
        return Schedule(vector, scalar=True)
    held = max(1, min(_most_vectors(kernel, vector), _size(kernel, vector) // target.lanes))
    for roles in contractions(kernel):
        if vector in roles.n + roles.m:
            across = (roles.m if vector in roles.n else roles.n)[-1]
            rows = _tile(kernel, across, (8, 6, 4, 3, 2))
            step = {roles.k[-1]: min(4, _size(kernel, roles.k[-1]))}
            return Schedule(vector, min(2, held), {across: rows}, step)
    across = _transposed_axis(kernel, vector, target.lanes)
    tile = {across: target.lanes} if across else {}
    return Schedule(vector, 1 if tile else held, tile, keep=_kept(kernel, vector))


def _size(kernel: Kernel, axis: str) -> int:
    return int(kernel.extents[axis])


def _tile(kernel: Kernel, axis: str, sizes: tuple[int, ...]) -> int:
    """The first of `sizes` that the axis holds, and divides where points must not be computed twice."""
    return next(
        (
            n
            for n in sizes
            if n <= _size(kernel, axis) and not (_size(kernel, axis) % n and runs_once(kernel))
        ),
        1,
    )


def runs_once(kernel: Kernel) -> bool:
    """Whether computing a point twice would change the result: stores that accumulate or are in place."""
    return not kernel.is_order_free or any(buffer.inplace for buffer in kernel.outputs)


def _vector_axes(kernel: Kernel) -> list[str]:
    """The axes that may be the vector axis: not those that a fold or a `set` store runs in sequence."""
    if any(store.combine == "set" for store in kernel.stores):
        return []
    sequential = {
        axis.name for s in kernel.stages if isinstance(s, Fold) and s.merge is None for axis in s.axes
    }
    return [axis.name for axis in kernel.axes if axis.name not in sequential]


def _lanes_apart(kernel: Kernel, vector: str) -> bool:
    """Whether neighbours along the axis accumulate into different elements."""
    return all(
        kernel.buffers[store.buffer].offset(store.index).coefficient(vector)
        and not any(isinstance(p, Expr) and vector in kernel.free_axes(p) for p in store.index)
        for store in kernel.stores
        if store.combine is not None and (vector in kernel.parallel_names or vector in names(store.axes))
    )


def _contiguity(kernel: Kernel, axis: str, lanes: int) -> tuple[bool, int, int]:
    """Whether the axis fills a vector; how many elements have stride 1 along it; stores break ties."""
    stores = [(stage, kernel.buffers[stage.buffer].offset(stage.index)) for stage in kernel.stores]
    loads = [(s, kernel.buffers[access.buffer].offset(access.index)) for s, access in kernel.reads()]
    reached = sum(_points(stage) for stage, offset in loads + stores if offset.coefficient(axis) == 1)
    stored = sum(offset.coefficient(axis) == 1 for _, offset in stores)
    return _size(kernel, axis) >= lanes, reached, stored


def _points(stage: Stage) -> int:
    return math.prod(int(axis.extent) for axis in stage.axes)


def _most_vectors(kernel: Kernel, vector: str) -> int:
    """Independent vectors to hide the latency of additions: few where the body needs registers itself."""
    reduces = any(isinstance(stage, (Reduce, Fold)) for stage in kernel.stages)
    return 1 if not reduces else 4 if vector not in kernel.parallel_names else 8


def _transposed_axis(kernel: Kernel, vector: str, lanes: int) -> str | None:
    """A strided read beside a contiguous axis: a square of registers is transposed there."""
    if runs_once(kernel) or any(isinstance(stage, (Reduce, Fold)) for stage in kernel.stages):
        return None
    for _, access in kernel.reads():
        strides = kernel.buffers[access.buffer].offset(access.index)
        across = [a for a in sorted(kernel.parallel_names) if a != vector and strides.coefficient(a) == 1]
        if can_transpose(kernel, access, vector) and across and _size(kernel, across[0]) % lanes == 0:
            return across[0]
    return None


def can_transpose(kernel: Kernel, access: Read, vector: str) -> bool:
    """Whether a read strides over the vector axis within proved bounds, in 4-byte elements."""
    buffer = kernel.buffers[access.buffer]
    return (
        buffer.offset(access.index).coefficient(vector) > 1
        and bits(buffer.dtype) == 32
        and not any(isinstance(part, Expr) for part in access.index)
        and not kernel.unproved(access)
    )


def _kept(kernel: Kernel, vector: str) -> frozenset[str]:
    """The Locals over the vector axis whose array is small."""
    return frozenset(
        s.name
        for s in kernel.stages
        if isinstance(s, Local)
        and names(s.axes) == (vector,)
        and kernel.dtypes[s.name] != "bool"
        and _size(kernel, vector) * bits(kernel.dtypes[s.name]) // 8 <= KEPT_BYTES
    )


def units(kernel: Kernel, schedule: Schedule) -> int:
    """The number of units of work: tiles of the parallel axes, times chunks of the vector axis."""
    return math.prod(count for _, count in unit_axes(kernel, schedule))


def unit_axes(kernel: Kernel, schedule: Schedule) -> list[tuple[str, int]]:
    """The axes that a unit number counts, slowest first, with the number of tiles or chunks along each."""
    counts = []
    for axis in kernel.parallel:
        extent = int(axis.extent)
        size = schedule.chunk if axis.name == schedule.vector else schedule.tile.get(axis.name, 1)
        if axis.name != schedule.vector and extent and (size > extent or extent % size and runs_once(kernel)):
            raise KernelError(
                f"{kernel.name}: a tile fits its axis, and divides it where points must run once",
                f"axis: {axis}",
                f"tile: {size}",
            )
        counts.append((axis.name, -(-extent // size)))
    return counts
