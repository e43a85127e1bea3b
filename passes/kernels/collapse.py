"""Fewer axes: those that are contiguous together in every access become one.

    parallel i:64 j:1000                         parallel i:64000
    y[i, j] = (x[i, j] * s[])              ->    y[i] = (x[i] * s[])

Buffers whose accesses are all affine and in bounds become flat; so kernels that differ in how many dims they
have, or where those are cut, become one text.  `generalised` then leaves the slowest axis open, so that one
code serves every extent of it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from ...ir.dims import Dim, is_at_least, substitute, symbol, symbols_of
from ...ir.kernel.affine import ZERO, Affine, Extent, as_affine
from ...ir.kernel.form import Axis, Buffer, Fold, Index, Kernel, names
from ...ir.kernel.scalar import Coordinate, Expr, read, walk
from ...ir.kernel.substitute import Substitution
from .index_check import from_data

EXTENT = symbol("extent")  # what `generalised` puts for the slowest axis


def collapsed(kernel: Kernel) -> Kernel:
    """The same kernel over as few axes and dims as it needs; its arrays are the same memory, but flat."""
    return _merged(_flattened(_without_units(kernel)))


def _size(buffer: Buffer) -> Extent:
    return math.prod(buffer.shape)


def accesses(kernel: Kernel) -> Iterator[tuple[str, Index]]:
    """(buffer, index) of every read and store."""
    for _, access in kernel.reads:
        yield access.buffer, access.index
    for store in kernel.stores:
        yield store.buffer, store.index


# ---- axes of one point
def _without_units(kernel: Kernel) -> Kernel:
    kept = {stage.axes[0].name for stage in kernel.stages if stage.axes and not _longer(stage.axes)}
    kept |= {axis.name for stage in kernel.stages if isinstance(stage, Fold) for axis in stage.axes}
    gone = [axis.name for axis in kernel.axes if axis.extent == 1 and axis.name not in kept]
    if not gone:
        return kernel
    return Substitution(indices=dict.fromkeys(gone, ZERO), axes=dict.fromkeys(gone, ())).kernel(kernel)


def _longer(axes: tuple[Axis, ...]) -> bool:
    return any(axis.extent != 1 for axis in axes)


# ---- dims
def _flattened(kernel: Kernel) -> Kernel:
    """Buffers that are dense, and accessed by affine indices that are proved in bounds, with one dim.

    Those with several stores keep theirs: in one dim the verifier would not see that these never meet.
    """
    stored = Counter(store.buffer for store in kernel.stores)
    kept = {name for name, count in stored.items() if count > 1}
    kept |= {b.name for b in kernel.buffers.values() if b.layout is not None}
    kept |= {name for name, index in accesses(kernel) if any(isinstance(p, Expr) for p in index)}
    kept |= {access.buffer for _, access in kernel.reads if kernel.unproved(access)}
    kept |= {b.inplace for b in kernel.outputs if b.name in kept and b.inplace}
    kept |= {b.name for b in kernel.outputs if b.inplace in kept}
    flat = {name: b for name, b in kernel.buffers.items() if name not in kept}

    # nothing is out of bounds: an `else` would only make texts differ
    plain = {
        a: read(a.buffer, (flat[a.buffer].offset(a.index),)) for _, a in kernel.reads if a.buffer in flat
    }
    buffers = {name: replace(b, shape=(_size(b),)) for name, b in flat.items()}
    at = {name: partial(_flat_index, b) for name, b in flat.items()}
    return Substitution(buffers=buffers, at=at, exprs=plain).kernel(kernel)


def _flat_index(buffer: Buffer, index: Index) -> Index:
    return (buffer.offset(index),)


# ---- axes that are one
def _merged(kernel: Kernel) -> Kernel:
    """The kernel with all axes that every index takes as one merged, those that stand first, first."""
    indices = [dict(terms) for terms in {index.terms for index in _affine_indices(kernel)}]
    groups = {names(axes) for axes in (kernel.parallel, *(stage.axes for stage in kernel.stages))}
    extents = dict(kernel.extents)
    fastest: dict[str, str] = {}
    gone: set[str] = set()
    while (pair := next(_mergeable(groups, indices, extents), None)) is not None:
        slow, fast = pair
        fastest[slow] = fastest.pop(fast, fast)
        extents[slow] *= extents[fast]
        gone.add(fast)
        groups = {tuple(name for name in group if name != fast) for group in groups}
        for terms in indices:
            if fast in terms:
                terms[slow] = terms.pop(fast)
    if not gone:
        return kernel
    indices = dict.fromkeys((*gone, *fastest), ZERO)
    indices |= {fast: as_affine(slow) for slow, fast in fastest.items()}
    axes: dict[str, tuple[Axis, ...]] = dict.fromkeys(gone, ())
    axes |= {slow: (Axis(slow, extents[slow]),) for slow in fastest}
    return Substitution(indices=indices, axes=axes).kernel(kernel)


def _affine_indices(kernel: Kernel) -> Iterator[Affine]:
    for _, index in accesses(kernel):
        yield from (part for part in index if isinstance(part, Affine))
    for stage in kernel.stages:
        yield from (e.index for e in walk(*stage.exprs) if isinstance(e, Coordinate))


def _mergeable(
    groups: set[tuple[str, ...]], indices: list[dict[str, int]], extents: dict[str, int]
) -> Iterator[tuple[str, str]]:
    """Pairs of neighbouring axes, the slower first, that every index takes as one."""
    for group in sorted(groups):
        for slow, fast in zip(group, group[1:], strict=False):
            apart = any(terms.get(slow, 0) != terms.get(fast, 0) * extents[fast] for terms in indices)
            if not apart and all(_beside(other, slow, fast) for other in groups):
                yield slow, fast


def _beside(axes: tuple[str, ...], slow: str, fast: str) -> bool:
    """Whether the axes have neither, or the one directly after the other."""
    if slow not in axes and fast not in axes:
        return True
    return (slow, fast) in zip(axes, axes[1:], strict=False)


# ---- names
def canonical(kernel: Kernel) -> Kernel:
    """A bound kernel under names that say only positions, so that kernels that do the same are equal."""
    axes = {axis.name: Axis(f"a{n}", axis.extent) for n, axis in enumerate(kernel.axes)}
    new = {name: f"b{n}" for n, name in enumerate(kernel.buffers)}
    stages = [name for stage in kernel.stages for name in stage.defines]
    renamed = Substitution(
        indices={name: as_affine(axis.name) for name, axis in axes.items()},
        axes={name: (axis,) for name, axis in axes.items()},
        buffers={
            b.name: replace(b, name=new[b.name], inplace=b.inplace and new[b.inplace])
            for b in kernel.buffers.values()
        },
        stages={name: f"s{n}" for n, name in enumerate(stages)},
    )
    return renamed.kernel(kernel).replace(name="kernel")


# ---- an axis left open
def generalised(kernel: Kernel, name: str | None = None) -> Kernel | None:
    """The kernel with the extent of an axis as a symbol, the slowest parallel one if none is named; None where
    it can't be.

    Each buffer must run along that axis in a dim of its own, or not at all: in its slowest one where sizes are
    numbers, as strides would depend on the extent otherwise.  No two points may meet in a store.
    """
    if not (kernel.parallel or name):
        return None
    axis = next(a for a in kernel.axes if name in (None, a.name))
    others = {a.name: a.extent for a in kernel.axes if a is not axis}
    along: dict[str, _Along | None] = {}  # what each buffer is along the axis; None where it does not run there
    guarded = {(a.buffer, a.index) for _, a in kernel.reads if a.other is not None}
    for buffer, index in accesses(kernel):
        if not _is_apart(kernel, index, axis.name):
            return None
        place = None
        if any(isinstance(part, Affine) and axis.name in part.names for part in index):
            is_guarded = (buffer, index) in guarded
            place = _along(kernel.buffers[buffer], index, axis, others, is_guarded)
            if place is None:
                return None
        if along.setdefault(buffer, place) != place:
            return None

    opened = Substitution(
        axes={axis.name: (Axis(axis.name, EXTENT),)},
        buffers={b: replace(kernel.buffers[b], shape=place.shape) for b, place in along.items() if place},
        at={b: partial(place.at, axis) for b, place in along.items() if place},
        numbers=_in_extent(axis.extent),
    )
    found = opened.kernel(kernel)
    return found if found.symbols == (str(EXTENT),) else None


def _is_apart(kernel: Kernel, index: Index, axis: str) -> bool:
    """Whether an index is computed from the axis by data alone, which is checked for any extent."""
    return all(
        from_data(part) for part in index if isinstance(part, Expr) and axis in kernel.free_axes(part)
    )


@dataclass(frozen=True)
class _Along:
    """How a buffer runs along the axis that is left open.

    before, step: the points of its dims around that of the axis, where it is flat; else `shape` has the axis
    in dim `whole` already.
    """

    shape: tuple[Extent, ...]
    whole: int | None = None
    step: int = 1

    def at(self, axis: Axis, index: Index) -> Index:
        """An index into the buffer as it was, in the dims that it has now."""
        if self.whole is not None:
            return index
        (flat,) = index
        assert isinstance(flat, Affine)  # or the buffer would not run along the axis
        before, lead, rest = _parted(flat, Axis(axis.name, EXTENT), self.step)
        dims = (before, lead, rest)
        kept = (self.shape[0] != EXTENT, True, self.step != 1)
        return tuple([part for part, is_there in zip(dims, kept, strict=True) if is_there])


def _along(
    buffer: Buffer, index: Index, axis: Axis, others: dict[str, Extent], guarded: bool
) -> _Along | None:
    """How a buffer that is read or written at this index runs along the axis; None where it can't be said.

    guarded: whether it may be beyond the buffer; it is then before the dim of the axis, too.
    """
    if buffer.layout is not None:
        return None
    if len(index) != 1:
        used = [d for d, part in enumerate(index) if isinstance(part, Affine) and axis.name in part.names]
        at = used[0]
        is_open = isinstance(axis.extent, Dim) or at == 0
        if len(used) > 1 or index[at] != as_affine(axis.name) or buffer.shape[at] != axis.extent or not is_open:
            return None
        return _Along((*buffer.shape[:at], EXTENT, *buffer.shape[at + 1 :]), at)
    (flat,) = index
    assert isinstance(flat, Affine)
    step = flat.coefficient(axis.name)
    if isinstance(step, Dim):
        return None
    before, _, rest = _parted(flat, axis, step)
    count = 1
    if isinstance(axis.extent, Dim):
        total = _size(buffer) // (axis.extent * step)
        if isinstance(total, Dim):
            return None
        count = total
    if _size(buffer) != axis.extent * step * count:
        return None
    for part, size in ((before, count), (rest, step)):
        low, high = part.bounds(others)
        if guarded and part is before and count != 1:
            continue
        if not (is_at_least(low, 0) and is_at_least(size - 1, high)):
            return None
    shape: tuple[Extent, ...] = (*((count,) if count != 1 else ()), EXTENT, *((step,) if step != 1 else ()))
    return _Along(shape, None, step)


def _parted(flat: Affine, axis: Axis, step: int) -> tuple[Affine, Affine, Affine]:
    """What an index into a flat buffer is in dims before that of an axis, in that one, and after it."""
    lead, whole = as_affine(axis.name), axis.extent * step
    before = dict[str, Extent]()
    for name, by in flat.terms:
        if isinstance(by, Dim) and isinstance(count := by // whole, int) and count * whole == by:
            before[name] = count
    upper = Affine.of(before)
    return upper, lead, flat - upper * whole - lead * step


def _in_extent(extent: Extent) -> Callable[[Affine], Affine] | None:
    """Says of numbers what they are in the extent that is left open, where that is a multiple of a symbol."""
    if not isinstance(extent, Dim) or len(extent.terms) != 1:
        return None
    (monomial, factor), names = extent.terms[0], symbols_of(extent)
    if len(monomial) != 1 or monomial[0].operands:
        return None
    (name,) = names

    def said(size: Extent) -> Extent:
        if name not in symbols_of(size):
            return size
        count = size // extent
        whole = isinstance(count, int) and count * extent == size
        return count * EXTENT if whole else substitute(size, {name: EXTENT // factor})

    return lambda part: Affine.of({axis: said(by) for axis, by in part.terms}, said(part.constant))
