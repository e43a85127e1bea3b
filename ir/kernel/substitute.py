"""A kernel in other terms: what stands in place of its axes, buffers, references and expressions.

parallel i:64                              parallel io:4 ii:16
y[i] = max(x[i], 0)               ->       y[16*io+ii] = max(x[16*io+ii], 0)

Substitution(indices={"i": 16*io+ii}, axes={"i": (io:4, ii:16)})
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from ..dims import Dim, substitute
from ..errors import KernelError
from .affine import ZERO, Affine, Extent, as_affine
from .form import Axis, Buffer, Fold, Index, Kernel, Local, Stage, Store, Subscript, names
from .scalar import (
    Cast,
    Const,
    Coordinate,
    Expr,
    Op,
    Read,
    Ref,
    Size,
    bitcast,
    cast,
    const,
    coordinate,
    op,
    read,
    ref,
)
from .types import NUMPY, is_floating


@dataclass(frozen=True, eq=False)
class Substitution:
    """What stands in place of the parts of a kernel; what is not named stays.  Expressions are visited once.

    indices: in every index, for an axis: an affine or a computed index.
    axes:    where an axis runs: the first axis where it stood, the others last; none where it is gone.
    buffers: the arrays under the old ones' names.
    at:      by those names: the index into the new array, of the one into the old in terms of `indices`.
    stages:  the new names of the kernel's own stages.
    refs:    for the result of a stage: an expression as it stands, or a Local, for its value in turn.
    exprs:   for whole expressions, which are then not looked into.
    reads:   what is made of each read in the new terms.
    numbers: what becomes of each affine index, where sizes are others.
    """

    indices: Mapping[str, Subscript] = field(default_factory=dict)
    axes: Mapping[str, tuple[Axis, ...]] = field(default_factory=dict)
    buffers: Mapping[str, Buffer] = field(default_factory=dict)
    at: Mapping[str, Callable[[Index], Index]] = field(default_factory=dict)
    stages: Mapping[str, str] = field(default_factory=dict)
    refs: Mapping[str, Expr | Local] = field(default_factory=dict)
    exprs: Mapping[Expr, Expr] = field(default_factory=dict)
    reads: Callable[[Read], Expr] | None = None
    numbers: Callable[[Affine], Affine] | None = None
    _made: dict[Expr, Expr] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._made.update(self.exprs)

    def kernel(self, kernel: Kernel) -> Kernel:
        """The whole kernel, under its own name and symbols."""
        return kernel.replace(
            inputs=tuple(self.buffers.get(b.name, b) for b in kernel.inputs),
            outputs=tuple(self.buffers.get(b.name, b) for b in kernel.outputs),
            parallel=self.loops(kernel.parallel),
            stages=tuple(map(self.stage, kernel.stages)),
        )

    def stage(self, stage: Stage) -> Stage:
        axes = self.loops(stage.axes)
        if isinstance(stage, Fold):
            new = tuple(self.stages.get(name, name) for name in stage.names)
            init, step = tuple(map(self.expr, stage.init)), tuple(map(self.expr, stage.step))
            merge = None if stage.merge is None else tuple(map(self.expr, stage.merge))
            return Fold(new, axes, init, step, merge, stage.scan)
        if isinstance(stage, Store):
            index = self.index(stage.buffer, stage.index)
            return Store(self.buffer(stage.buffer), index, self.expr(stage.value), axes, stage.combine)
        name = self.stages.get(stage.name, stage.name)
        return replace(stage, name=name, axes=axes, value=self.expr(stage.value))

    def loops(self, axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        first: list[Axis] = []
        last: list[Axis] = []
        for axis in axes:
            head, *rest = self.axes.get(axis.name, (axis,)) or (None,)
            first += [] if head is None else [head]
            last += rest
        return (*first, *last)

    def buffer(self, name: str) -> str:
        return self.buffers[name].name if name in self.buffers else name

    def index(self, buffer: str, index: Index) -> Index:
        index = tuple(map(self.subscript, index))
        return self.at[buffer](index) if buffer in self.at else index

    def subscript(self, part: Subscript) -> Subscript:
        """One part of an index, affine as long as it can be."""
        if isinstance(part, Expr):
            return self.expr(part)
        if self.numbers is not None:
            part = self.numbers(part)
        if self.indices.keys().isdisjoint(part.names):
            return part
        total, computed = Affine((), part.constant), list[Expr]()
        for name, factor in part.terms:
            place = self.indices.get(name, as_affine(name))
            if isinstance(place, Affine):
                total = total + place * factor
            else:
                of = coordinate(Affine((), factor)) if isinstance(factor, Dim) else factor
                computed.append(cast(place, "i64") if factor == 1 else op("mul", cast(place, "i64"), of))
        if not computed:
            return total
        if total != ZERO:
            known = not total.terms and type(total.constant) is int
            computed.append(const(total.constant, "i64") if known else coordinate(total))
        found, *rest = computed
        for more in rest:
            found = op("add", found, more)
        return found

    def expr(self, root: Expr) -> Expr:
        made, waiting = self._made, [root]
        while waiting:
            expr = waiting[-1]
            below = () if expr in made else [child for child in expr.below if child not in made]
            if below:
                waiting += reversed(below)
                continue
            if expr not in made:
                made[expr] = self._rebuilt(expr)
            waiting.pop()
        return made[root]

    def _rebuilt(self, expr: Expr) -> Expr:
        """An expression below which everything has been substituted."""
        match expr:
            case Op(name, args):
                return op(name, *[self._made[arg] for arg in args])
            case Cast(dtype, arg, bits):
                inner = self._made[arg]
                if isinstance(inner, Const) and not bits:
                    return _converted(inner, dtype)
                return (bitcast if bits else cast)(inner, dtype)
            case Read(buffer, index, other):
                access = read(self.buffer(buffer), self.index(buffer, index), other)
                return access if self.reads is None else self.reads(access)
            case Coordinate(index):
                part = self.subscript(index)
                return coordinate(part) if isinstance(part, Affine) else part
            case Size(size, dtype):
                of = size if self.numbers is None else self.numbers(Affine((), size)).constant
                return const(of, dtype)
            case Ref():
                return self._result(expr)
        return expr

    def _result(self, expr: Ref) -> Expr:
        found = self.refs.get(expr.name)
        if found is not None:
            return self.expr(found.value) if isinstance(found, Local) else found
        prefix, dot, name = expr.name.rpartition(".")  # right.name is of a fold's second state
        axes = names(self.loops(tuple(Axis(axis, 0) for axis in expr.axes)))
        return ref(prefix + dot + self.stages.get(name, name), axes)


def _converted(number: Const, dtype: str) -> Expr:
    """A typed constant in another type; one that becomes an integer is converted when the kernel runs."""
    known = number.dtype
    if known is None or known == dtype or not is_floating(dtype):
        return cast(number, dtype)
    return const(float(np.asarray(number.value, NUMPY[known]).astype(NUMPY[dtype])), dtype)


def bind(kernel: Kernel, **symbols: int) -> Kernel:
    """The kernel with every symbol replaced by its number.

    Raises KernelError if one is missing or unknown.
    """
    if set(symbols) != set(kernel.symbols):
        raise KernelError(
            f"{kernel.name} is bound with exactly its symbols",
            f"symbols: {', '.join(kernel.symbols) or 'none'}",
            f"given: {', '.join(f'{n}={v}' for n, v in symbols.items()) or 'none'}",
        )
    if not symbols:
        return kernel

    def sizes(extents: tuple[Extent, ...]) -> tuple[Extent, ...]:
        return tuple(substitute(n, symbols) for n in extents)

    bound = Substitution(
        axes={a.name: (Axis(a.name, *sizes((a.extent,))),) for a in kernel.axes},
        buffers={
            b.name: replace(b, shape=sizes(b.shape), layout=None if b.layout is None else sizes(b.layout))
            for b in kernel.buffers.values()
        },
        numbers=lambda part: part.bind(symbols),
    )
    return bound.kernel(kernel)
