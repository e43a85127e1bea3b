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
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial

from ...ir.dims import Dim, is_at_least, symbol, symbols_of
from ...ir.kernel.affine import ZERO, Affine, Extent, as_affine
from ...ir.kernel.form import Axis, Buffer, Fold, Index, Kernel, names
from ...ir.kernel.scalar import Const, Coordinate, Expr, Op, read, walk
from ...ir.kernel.substitute import Substitution
from ...ir.memo import MEMO
from .index_check import from_data

EXTENT = symbol("extent")  # what `generalised` puts for the slowest axis


@lru_cache(MEMO)
def collapsed(kernel: Kernel) -> Kernel:
    """The same kernel over as few axes and dims as it needs; its arrays are the same memory, but flat."""
    return _merged(_flattened(_without_units(_by_places(kernel))))


def _size(buffer: Buffer) -> Extent:
    return math.prod(buffer.shape)


def accesses(kernel: Kernel) -> Iterator[tuple[str, Index]]:
    """(buffer, index) of every read and store."""
    for _, access in kernel.reads:
        yield access.buffer, access.index
    for store in kernel.stores:
        yield store.buffer, store.index


# ---- dims of one place
def _by_places(kernel: Kernel) -> Kernel:
    """Outputs that are stored to at places of two dims, x // n and x % n, with one dim for both, x: a max
    pool's gradient divides nothing."""
    written = Counter(name for name, _ in accesses(kernel))
    for store in kernel.stores:
        buffer, index = kernel.buffers[store.buffer], store.index
        places = (d for d in range(len(index) - 1) if _is_place(index[d], index[d + 1], buffer.shape[d + 1]))
        at = next(places, None)
        if at is not None and buffer.layout is None and written[buffer.name] == 1:
            slow, fast = buffer.shape[at : at + 2]
            one = replace(buffer, shape=(*buffer.shape[:at], slow * fast, *buffer.shape[at + 2 :]))
            instead = Substitution(buffers={one.name: one}, at={one.name: partial(_one_place, at)})
            return _by_places(instead.kernel(kernel))
    return kernel


def _is_place(slow: Affine | Expr, fast: Affine | Expr, size: Extent) -> bool:
    if not (isinstance(slow, Op) and slow.name == "floor_div" and isinstance(fast, Op)):
        return False
    by = slow.args[1]
    return fast.name == "remainder" and slow.args == fast.args and isinstance(by, Const) and by.value == size


def _one_place(at: int, index: Index) -> Index:
    slow = index[at]
    assert isinstance(slow, Op)
    return (*index[:at], slow.args[0], *index[at + 2 :])


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


# ---- axes left open
def generalised(kernel: Kernel, name: str | None = None) -> Kernel | None:
    """The kernel with the extent of a parallel axis as a symbol, the slowest if none is named; None where it
    can't be.

    Each buffer must run along that axis as its slowest dim, or not at all; no two points may meet in a store.
    """
    if not kernel.parallel or not kernel.is_order_free or kernel.symbols:
        return None
    axis = next((a for a in kernel.parallel if a.name == name), kernel.parallel[0])
    return _opened(kernel, axis, EXTENT)


def may_open(kernel: Kernel, name: str) -> bool:
    """Whether the extent of a bound kernel's axis, a local one too, could be any: no stride and no other size
    hangs on it.
    """
    return _opened(kernel, next(axis for axis in kernel.axes if axis.name == name), EXTENT) is not None


def opened(kernel: Kernel) -> tuple[Kernel, dict[str, Dim]] | None:
    """The kernel with a symbol of its own for the extent of each axis whose size was made of symbols, and
    those sizes by the new symbols; None where other numbers in it depend on them.

    b[(s1*s2)*i+s1*j+k] for i:4 j:s2 k:s1    ->    b[i, j, k] for i:4 j:extent1 k:extent
    """
    extents: dict[str, Dim] = {}
    while left := [
        axis for axis in kernel.axes if isinstance(axis.extent, Dim) and not _is_open(axis.extent)
    ]:
        for axis in left:
            new = symbol(f"{EXTENT}{len(extents) or ''}")
            found = _opened(kernel, axis, new)
            if found is not None:
                assert isinstance(axis.extent, Dim) and isinstance(new, Dim)
                kernel, extents[str(new)] = found, axis.extent
                break
        else:
            return None
    names = {
        name: said for new, size in extents.items() for name, said in _in_extent(symbol(new), size).items()
    }
    kernel = Substitution(numbers=lambda part: part.bind(names) if names else part).kernel(kernel)
    sizes = [axis.extent for axis in kernel.axes]
    for _, index in accesses(kernel):
        for part in index:
            if isinstance(part, Affine):
                sizes += [part.constant, *(by for _, by in part.terms)]
    known = all(symbols_of(size) <= extents.keys() for size in sizes) and {*kernel.symbols} <= extents.keys()
    return (kernel, extents) if known else None


def _is_open(extent: Dim) -> bool:
    return str(extent).startswith(str(EXTENT))


def _in_extent(new: Extent, size: Dim) -> dict[str, Extent]:
    """What a symbol is where a multiple of it is the extent of an axis."""
    (monomial, factor), *others = size.terms
    if others or len(monomial) != 1 or monomial[0].operands:
        return {}
    return {str(monomial[0]): new // factor}


def _opened(kernel: Kernel, axis: Axis, new: Extent) -> Kernel | None:
    """The kernel with an axis left open: where buffers run along it, it has a dim of its own."""
    others = {a.name: a.extent for a in kernel.axes if a is not axis}
    guarded = {(a.buffer, a.index) for _, a in kernel.reads if a.other is not None}
    along: dict[
        str, _Along | None
    ] = {}  # what each buffer is along the axis; None where it does not run there
    for buffer, index in accesses(kernel):
        for part in index:
            if isinstance(part, Expr) and axis.name in kernel.free_axes(part) and not from_data(part):
                return None  # it stays inside for this extent, and nobody knows for others
        used = [d for d, part in enumerate(index) if isinstance(part, Affine) and axis.name in part.names]
        place = None
        if used:
            is_guarded = (buffer, index) in guarded
            place = _along(kernel.buffers[buffer], index, used, axis, new, others, is_guarded)
            if place is None:
                return None
        if along.setdefault(buffer, place) != place:
            return None
    return Substitution(
        axes={axis.name: (Axis(axis.name, new),)},
        buffers={b: replace(kernel.buffers[b], shape=place.shape) for b, place in along.items() if place},
        at={b: place.at for b, place in along.items() if place},
    ).kernel(kernel)


@dataclass(frozen=True)
class _Along:
    """How a buffer runs along an axis that is left open.

    dim: where it does.  step, whole: elements of that dim from one point to the next, and for all; before,
    after: whether others run there too, so that it is cut.
    """

    axis: str
    shape: tuple[Extent, ...]
    dim: int
    step: Extent
    whole: Extent
    before: bool
    after: bool

    def at(self, index: Index) -> Index:
        """An index into the buffer as it was, in the dims that it has now."""
        part = index[self.dim]
        assert isinstance(part, Affine)  # or the buffer would not run along the axis
        before, lead, rest = _parted(part, self.axis, self.step, self.whole)
        new = [
            part for part, is_there in ((before, self.before), (lead, True), (rest, self.after)) if is_there
        ]
        return (*index[: self.dim], *new, *index[self.dim + 1 :])


def _along(
    buffer: Buffer,
    index: Index,
    used: list[int],
    axis: Axis,
    new: Extent,
    others: dict[str, Extent],
    guarded: bool,
) -> _Along | None:
    """How a buffer that is read or written at this index runs along the axis; None where it can't be said.

    used: the dims in which it does.  guarded: whether the index may be beyond the buffer; it is then beyond
    the dim before that of the axis, too.
    """
    if buffer.layout is not None or len(used) > 1:
        return None
    (dim,) = used
    part, size = index[dim], buffer.shape[dim]
    assert isinstance(part, Affine)
    step = part.coefficient(axis.name)
    if isinstance(step, Dim) or step < 1 or (dim and not isinstance(axis.extent, Dim)):
        return None
    whole = axis.extent * step
    if isinstance(whole, Dim) and not is_at_least(whole, 1):
        return None
    before, _, rest = _parted(part, axis.name, step, whole)
    count = size // whole if isinstance(axis.extent, Dim) else 1  # of numbers the slowest axis alone is known
    if size != whole * count:
        return None
    for inner, limit in ((before, count), (rest, step)):
        low, high = inner.bounds(others)
        if guarded and inner is before and count != 1:
            continue
        if not (is_at_least(low, 0) and is_at_least(limit - 1, high)):
            return None
    dims = (*((count,) if count != 1 else ()), new, *((step,) if step != 1 else ()))
    shape = (*buffer.shape[:dim], *dims, *buffer.shape[dim + 1 :])
    return _Along(axis.name, shape, dim, step, whole, count != 1, step != 1)


def _parted(part: Affine, axis: str, step: Extent, whole: Extent) -> tuple[Affine, Affine, Affine]:
    """What an index is in dims before that of an axis, in that one, and after it."""
    before = dict[str, Extent]()
    for name, by in part.terms:
        if isinstance(by, Dim) and (count := by // whole) * whole == by:
            before[name] = count
    upper, lead = Affine.of(before), as_affine(axis)
    return upper, lead, part - upper * whole - lead * step
