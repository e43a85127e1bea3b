"""The expressions of one kernel in the terms of another: axes, reads and stages replaced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

import numpy as np

from ..ir.errors import KernelError
from ..ir.graph import Value
from ..ir.kernel.affine import Affine, as_affine
from ..ir.kernel.form import Axis, Fold, Local, Reduce, Stage
from ..ir.kernel.scalar import (
    Cast,
    Const,
    Coordinate,
    Expr,
    Op,
    Read,
    Ref,
    bitcast,
    cast,
    const,
    coordinate,
    op,
    read,
    ref,
)
from ..ir.kernel.types import NUMPY, is_floating
from .product import plain

Part = Affine | Expr
ZERO = Affine()


class Reader(Protocol):
    """Says what a read of a graph's value is in the kernel that is being made."""

    def at(
        self, value: Value, index: tuple[Part, ...], other: Const | None = None, guard: bool = False
    ) -> Expr: ...


class Rewrite:
    """A piece's expressions in the kernel's terms.

    operands: the values that its buffers are; None: reads stay reads, of the kernel's own buffers.  axes:
    what its axes are.  stages: the new names of its own.
    """

    def __init__(
        self,
        reader: Reader,
        operands: Mapping[str, Value] | None,
        axes: Mapping[str, Part],
        stages: Mapping[str, str],
        guard: bool = False,
    ):
        self.reader, self.operands, self.axes = reader, operands, axes
        self.stages, self.guard = stages, guard
        self.memo: dict[Expr, Expr] = {}

    def expr(self, expr: Expr) -> Expr:
        found = self.memo.get(expr)
        if found is None:
            found = self.memo[expr] = self.rewritten(expr)
        return found

    def rewritten(self, expr: Expr) -> Expr:
        match expr:
            case Op(name, args):
                return op(name, *map(self.expr, args))
            case Cast(dtype, arg, bits):
                inner = self.expr(arg)
                if isinstance(inner, Const) and not bits:
                    return _converted(inner, dtype)
                return (bitcast if bits else cast)(inner, dtype)
            case Read(buffer, index, other):
                parts = tuple(map(self.part, index))
                if self.operands is None:
                    return read(buffer, parts, other)
                return self.reader.at(self.operands[buffer], parts, other, self.guard)
            case Ref(name, axes):
                own = name.removeprefix("right.")
                renamed = name[: len(name) - len(own)] + self.stages.get(own, own)
                return ref(renamed, tuple(map(self.local, axes)))
            case Coordinate(index):
                return whole(self.part(index))
        return expr

    def local(self, axis: str) -> str:
        name = plain(self.axes.get(axis, as_affine(axis)))
        if name is None:
            raise KernelError(f"a stage's values are read at another place than {axis}")
        return name

    def part(self, part: Part) -> Part:
        """An index: affine as long as it can be."""
        if isinstance(part, Expr):
            return self.expr(part)
        total, rest = Affine((), part.constant), []
        for name, factor in part.terms:
            place = self.axes.get(name, as_affine(name))
            if isinstance(place, Affine):
                total = total + place * factor
            else:
                rest.append(cast(place, "i64") if factor == 1 else op("mul", cast(place, "i64"), factor))
        if not rest:
            return total
        found = rest[0]
        for more in rest[1:]:
            found = op("add", found, more)
        return found if total == ZERO else op("add", found, whole(total))

    def stage(self, stage: Stage, axes: tuple[Axis, ...]) -> Stage:
        if isinstance(stage, Fold):
            merge = None if stage.merge is None else tuple(map(self.expr, stage.merge))
            return Fold(
                tuple(self.stages[n] for n in stage.names),
                axes,
                tuple(map(self.expr, stage.init)),
                tuple(map(self.expr, stage.step)),
                merge,
                stage.scan,
            )
        assert isinstance(stage, (Reduce, Local))
        return replace(stage, name=self.stages[stage.name], axes=axes, value=self.expr(stage.value))


def whole(part: Part) -> Expr:
    if not isinstance(part, Affine):
        return part
    return coordinate(part) if part.terms else const(part.constant, "i64")


def _converted(number: Const, dtype: str) -> Expr:
    """A typed constant in another type; one that becomes an integer is converted when the kernel runs."""
    known = number.dtype
    if known is None or known == dtype or not is_floating(dtype):
        return cast(number, dtype)
    return const(float(np.asarray(number.value, NUMPY[known]).astype(NUMPY[dtype])), dtype)
