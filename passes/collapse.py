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
from dataclasses import replace

from ..ir.kernel.affine import Affine
from ..ir.kernel.form import Axis, Buffer, Fold, Kernel, Local, Rewrite, Stage, Store, names
from ..ir.kernel.scalar import (
    Coordinate,
    Expr,
    Read,
    Ref,
    read,
    ref,
    walk,
)

EXTENT = "extent"  # the symbol that `generalised` puts for the slowest axis


ZERO = Affine()


class Substituted(Rewrite):
    """References to Locals replaced by what they stand for, others by `results`; one axis by an index."""

    def __init__(
        self, results: dict[str, Expr], locals: dict[str, Local], axis: str = "", index: Affine = ZERO
    ):
        super().__init__()
        self.results, self.locals, self.axis, self.replacement = results, locals, axis, index

    def affine(self, index: Affine) -> Affine:
        coefficient = index.coefficient(self.axis)
        if not coefficient:
            return index
        rest = Affine(tuple(term for term in index.terms if term[0] != self.axis), index.constant)
        return rest + self.replacement * coefficient

    def ref(self, expr: Ref) -> Expr:
        local = self.locals.get(expr.name)
        return self.expr(local.value) if local else self.results.get(expr.name, expr)


def collapsed(kernel: Kernel) -> Kernel:
    """The same kernel over as few axes and dims as it needs; its arrays are the same memory, but flat."""
    return _merged(_flattened(_without_units(kernel)))


def _size(buffer: Buffer) -> int:
    return math.prod(int(n) for n in buffer.shape)


def accesses(kernel: Kernel) -> Iterator[tuple[str, tuple[Affine | Expr, ...]]]:
    """(buffer, index) of every read and store."""
    for _, access in kernel.reads:
        yield access.buffer, access.index
    for store in kernel.stores:
        yield store.buffer, store.index


# ---- axes of one point
class _Units(Rewrite):
    """An axis of extent 1 is always 0."""

    def __init__(self, gone: frozenset[str]):
        super().__init__()
        self.gone = dict.fromkeys(gone, 0)

    def affine(self, index: Affine) -> Affine:
        return index.bind(self.gone)

    def axes(self, axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple(axis for axis in axes if axis.name not in self.gone)

    def ref(self, expr: Ref) -> Expr:
        return ref(expr.name, tuple(a for a in expr.axes if a not in self.gone))


def _without_units(kernel: Kernel) -> Kernel:
    kept = {stage.axes[0].name for stage in kernel.stages if stage.axes and not _longer(stage.axes)}
    kept |= {axis.name for stage in kernel.stages if isinstance(stage, Fold) for axis in stage.axes}
    gone = frozenset(axis.name for axis in kernel.axes if axis.extent == 1 and axis.name not in kept)
    return _rebuilt(kernel, _Units(gone)) if gone else kernel


def _longer(axes: tuple[Axis, ...]) -> bool:
    return any(axis.extent != 1 for axis in axes)


def _rebuilt(kernel: Kernel, rewrite: Rewrite, **changes) -> Kernel:
    return kernel.replace(
        parallel=rewrite.axes(kernel.parallel), stages=tuple(map(rewrite.stage, kernel.stages)), **changes
    )


# ---- dims
class _Flat(Rewrite):
    """Some buffers under one dim."""

    def __init__(self, buffers: dict[str, Buffer]):
        super().__init__()
        self.buffers = buffers

    def index(self, buffer: str, index: tuple[Affine | Expr, ...]) -> tuple[Affine | Expr, ...]:
        if buffer in self.buffers:
            return (self.buffers[buffer].offset(index),)
        return super().index(buffer, index)

    def read(self, expr: Read) -> Expr:
        if expr.buffer in self.buffers:
            return read(expr.buffer, self.index(expr.buffer, expr.index))
        return super().read(expr)


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

    def reshaped(buffers: tuple[Buffer, ...]) -> tuple[Buffer, ...]:
        return tuple(replace(b, shape=(_size(b),)) if b.name in flat else b for b in buffers)

    return _rebuilt(kernel, _Flat(flat), inputs=reshaped(kernel.inputs), outputs=reshaped(kernel.outputs))


# ---- axes that are one
class _Merged(Rewrite):
    """Runs of axes as one, under the slowest one's name.

    fastest: the last axis of each run, by the slowest; extents: of each run; gone: the others.
    """

    def __init__(self, fastest: dict[str, str], extents: dict[str, int], gone: set[str]):
        super().__init__()
        self.fastest, self.extents, self.gone = fastest, extents, gone

    def affine(self, index: Affine) -> Affine:
        terms = dict(index.terms)
        kept = {name: c for name, c in terms.items() if name not in self.gone and name not in self.fastest}
        kept |= {slow: terms[fast] for slow, fast in self.fastest.items() if fast in terms}
        return Affine.of(kept, index.constant)

    def axes(self, axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple(Axis(a.name, self.extents[a.name]) for a in axes if a.name not in self.gone)

    def ref(self, expr: Ref) -> Expr:
        return ref(expr.name, tuple(a for a in expr.axes if a not in self.gone))


def _merged(kernel: Kernel) -> Kernel:
    """The kernel with all axes that every index takes as one merged, those that stand first, first."""
    indices = [dict(terms) for terms in {index.terms for index in _affine_indices(kernel)}]
    groups = {names(axes) for axes in (kernel.parallel, *(stage.axes for stage in kernel.stages))}
    extents = {name: int(extent) for name, extent in kernel.extents.items()}
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
    return _rebuilt(kernel, _Merged(fastest, extents, gone)) if gone else kernel


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
class _Renamed(Rewrite):
    """Axes, buffers and stages under other names."""

    def __init__(self, names: dict[str, str]):
        super().__init__()
        self.names = names

    def affine(self, index: Affine) -> Affine:
        return Affine.of({self.names[name]: c for name, c in index.terms}, index.constant)

    def axes(self, axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple(Axis(self.names[axis.name], axis.extent) for axis in axes)

    def ref(self, expr: Ref) -> Expr:
        prefix, dot, name = expr.name.rpartition(".")
        return ref(prefix + dot + self.names[name], tuple(self.names[a] for a in expr.axes))

    def read(self, expr: Read) -> Expr:
        return read(self.names[expr.buffer], self.index(expr.buffer, expr.index), expr.other)

    def stage(self, stage: Stage) -> Stage:
        made = super().stage(stage)
        if isinstance(made, Fold):
            return replace(made, names=tuple(self.names[name] for name in made.names))
        if isinstance(made, Store):
            return replace(made, buffer=self.names[made.buffer])
        return replace(made, name=self.names[made.name])


def canonical(kernel: Kernel) -> Kernel:
    """A bound kernel under names that say only positions, so that kernels that do the same are equal."""
    found = {axis.name: f"a{n}" for n, axis in enumerate(kernel.axes)}
    found |= {name: f"b{n}" for n, name in enumerate(kernel.buffers)}
    stages = [name for stage in kernel.stages for name in stage.defines]
    found |= {name: f"s{n}" for n, name in enumerate(stages)}

    def named(buffers: tuple[Buffer, ...]) -> tuple[Buffer, ...]:
        return tuple(replace(b, name=found[b.name], inplace=b.inplace and found[b.inplace]) for b in buffers)

    return _rebuilt(
        kernel, _Renamed(found), name="kernel", inputs=named(kernel.inputs), outputs=named(kernel.outputs)
    )


# ---- the slowest axis left open
class _Opened(Rewrite):
    """Buffers along the slowest axis, with that as a dim of its own."""

    def __init__(self, axis: str, steps: dict[str, int]):
        super().__init__()
        self.axis, self.steps = axis, steps

    def axes(self, axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple(Axis(a.name, EXTENT) if a.name == self.axis else a for a in axes)

    def index(self, buffer: str, index: tuple[Affine | Expr, ...]) -> tuple[Affine | Expr, ...]:
        step = self.steps.get(buffer)
        if step is None:
            return super().index(buffer, index)
        (flat,) = index
        assert isinstance(flat, Affine)  # or the buffer would have no step
        lead = Affine(((self.axis, 1),))
        return (lead,) if step == 1 else (lead, flat - lead * step)


def generalised(kernel: Kernel) -> Kernel | None:
    """A collapsed kernel with the extent of its slowest parallel axis as a symbol; None where it can't be.

    Each buffer must run along that axis as its slowest dim, or not at all; no two points may meet in a store.
    """
    if not kernel.parallel or not kernel.is_order_free or kernel.symbols:
        return None
    axis, others = kernel.parallel[0], {a.name: a.extent for a in kernel.axes[1:]}
    steps: dict[str, int] = {}  # along the axis, of each buffer; 0 where it does not run along it
    for name, index in accesses(kernel):
        step = _step(kernel.buffers[name], index, axis, others)
        if step is None or steps.setdefault(name, step) != step:
            return None

    def opened(buffers: tuple[Buffer, ...]) -> tuple[Buffer, ...]:
        return tuple(replace(b, shape=_open_shape(steps.get(b.name, 0), b)) for b in buffers)

    rewrite = _Opened(axis.name, {name: step for name, step in steps.items() if step})
    inputs, outputs = opened(kernel.inputs), opened(kernel.outputs)
    return _rebuilt(kernel, rewrite, inputs=inputs, outputs=outputs, symbols=(EXTENT,))


def _step(buffer: Buffer, index: tuple, axis: Axis, others: dict[str, int]) -> int | None:
    """How many elements the buffer's slowest dim is of, if that is what the axis runs over."""
    if not any(isinstance(part, Affine) and axis.name in part.names for part in index):
        return 0
    if len(index) != 1 or buffer.layout is not None:
        return None
    (flat,) = index
    step = flat.coefficient(axis.name)
    low, high = (flat - Affine(((axis.name, step),))).bounds(others)
    inside = 0 <= low.constant and high.constant < step
    return step if inside and _size(buffer) == step * axis.extent else None


def _open_shape(step: int, buffer: Buffer) -> tuple[int | str, ...]:
    return buffer.shape if not step else (EXTENT,) if step == 1 else (EXTENT, step)
