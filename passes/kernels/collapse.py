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
from dataclasses import replace
from functools import partial

from ...ir.dims import Dim, is_at_least, symbol, symbols_of
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

    Each buffer must run along that axis as its slowest dim, or not at all; no two points may meet in a store.
    """
    if not kernel.is_order_free or not (kernel.parallel or name):
        return None
    axis = next(a for a in kernel.axes if name in (None, a.name))
    others = {a.name: a.extent for a in kernel.axes if a is not axis}
    steps: dict[str, int] = {}  # along the axis, of each buffer; 0 where it does not run along it
    for buffer, index in accesses(kernel):
        step = _step(kernel, kernel.buffers[buffer], index, axis, others)
        if step is None or steps.setdefault(buffer, step) != step:
            return None

    along = {buffer: step for buffer, step in steps.items() if step}
    opened = Substitution(
        axes={axis.name: (Axis(axis.name, EXTENT),)},
        buffers={b: replace(kernel.buffers[b], shape=_open_shape(kernel.buffers[b], step))
                 for b, step in along.items()},
        at={b: partial(_open_index, axis.name, step) for b, step in along.items() if step != _WHOLE},
        numbers=_in_extent(axis.extent),
    )  # fmt: skip
    found = opened.kernel(kernel)
    return found if found.symbols == (str(EXTENT),) else None


def _in_extent(extent: Extent) -> Callable[[Affine], Affine] | None:
    """Says of numbers what they are in the extent that is left open, where that is a multiple of a symbol."""
    if not isinstance(extent, Dim) or len(extent.terms) != 1:
        return None
    (monomial, factor), names = extent.terms[0], symbols_of(extent)
    if len(monomial) != 1 or len(names) != 1 or monomial[0].operands:
        return None
    values = {name: EXTENT // factor for name in names}
    return lambda part: Affine((), EXTENT) if part == Affine((), extent) else part.bind(values)


_WHOLE = -1  # the step of a buffer whose first dim is the axis, and that has others besides


def _step(kernel: Kernel, buffer: Buffer, index: tuple, axis: Axis, others: dict[str, int]) -> int | None:
    """How many elements the buffer's slowest dim is of, if that is what the axis runs over."""
    if any(isinstance(p, Expr) and axis.name in kernel.free_axes(p) and not from_data(p) for p in index):
        return None
    if not any(isinstance(part, Affine) and axis.name in part.names for part in index):
        return 0
    if buffer.layout is not None:
        return None
    if len(index) != 1:
        rest = any(isinstance(part, Affine) and axis.name in part.names for part in index[1:])
        whole = index[0] == as_affine(axis.name) and buffer.shape[0] == axis.extent
        return _WHOLE if whole and not rest else None
    (flat,) = index
    step = flat.coefficient(axis.name)
    low, high = (flat - Affine(((axis.name, step),))).bounds(others)
    inside = is_at_least(low, 0) and is_at_least(step - 1, high)
    return step if inside and _size(buffer) == step * axis.extent else None


def _open_shape(buffer: Buffer, step: int) -> tuple[Extent, ...]:
    if step == _WHOLE:
        return (EXTENT, *buffer.shape[1:])
    return (EXTENT,) if step == 1 else (EXTENT, step)


def _open_index(axis: str, step: int, index: Index) -> Index:
    """The slowest axis, and where in a step of it."""
    (flat,) = index
    assert isinstance(flat, Affine)  # or the buffer would have no step
    lead = as_affine(axis)
    return (lead,) if step == 1 else (lead, flat - lead * step)
