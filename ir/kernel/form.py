"""The kernel form: what is computed, over named axes, in stages that share the parallel axes.

    kernel softmax(x: f32[64,1000]) -> (y: f32[64,1000]) {
      parallel i:64
      hi = max(j:1000) x[i, j]
      e[j] = exp((x[i, j] - hi)) for j:1000
      z = sum(j:1000) e[j]
      y[i, j] = (e[j] / z) for j:1000
    }

Every point of the parallel axes is computed alone, its stages in order.  How it is done (vectors, tiles,
threads) is the schedule's business, which stands apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf
from typing import Any, cast

from ..dims import Dim, is_at_least, limits, symbols_of
from ..errors import KernelError
from ..locks import cached_property
from .affine import Affine, Extent
from .infer import dtype_of
from .scalar import (
    Coordinate,
    Expr,
    Read,
    Ref,
    Size,
    in_order,
    ref,
    spell,
    walk,
)
from .types import NUMPY, greatest, least

Subscript = Affine | Expr
Index = tuple[Subscript, ...]


@dataclass(frozen=True)
class Axis:
    """A name that runs from 0 to `extent` - 1."""

    name: str
    extent: Extent

    def __str__(self) -> str:
        return f"{self.name}:{self.extent}"


OFFSETS = 1024  # that a buffer remembers


@dataclass(frozen=True)
class Buffer:
    """An array argument.  A layout such as NCHW16c is a buffer of more dimensions.

    layout:  its strides in elements, where they are not those of a dense row-major array.
    inplace: of an output: the input that is the same memory.  Elements that no stage writes keep its values.
    """

    name: str
    dtype: str
    shape: tuple[Extent, ...]
    layout: tuple[Extent, ...] | None = None
    inplace: str | None = None

    def __post_init__(self) -> None:
        if self.dtype not in NUMPY:
            raise KernelError(
                f"there is no element type {self.dtype!r}",
                f"buffer: {self.name}",
                f"the types are {', '.join(NUMPY)}",
            )
        if self.layout is not None and len(self.layout) != len(self.shape):
            raise KernelError("a buffer has one stride for each dimension", f"buffer: {self}")

    @cached_property
    def strides(self) -> tuple[Extent, ...]:
        """In elements."""
        if self.layout is not None:
            return self.layout
        return tuple(math.prod(self.shape[d + 1 :]) for d in range(len(self.shape)))

    def offset(self, index: Index) -> Affine:
        """The affine part of an element offset; indirect parts are left out."""
        known = self._offsets.get(id(index))
        if known is not None and known[0] is index:
            return known[1]
        terms, constant = dict[str, Extent](), cast("Extent", 0)
        for part, stride in zip(index, self.strides, strict=True):
            if isinstance(part, Affine):
                constant += part.constant * stride
                for name, coefficient in part.terms:
                    terms[name] = terms.get(name, 0) + coefficient * stride
        offset = Affine.of(terms, constant)
        if len(self._offsets) >= OFFSETS:
            self._offsets.clear()
        self._offsets[id(index)] = index, offset
        return offset

    @cached_property
    def _offsets(self) -> dict[int, tuple[Index, Affine]]:
        """Those that were asked for: an access is looked at for each axis, by each choice of a schedule."""
        return {}

    def __str__(self) -> str:
        text = f"{self.name}: {self.dtype}[{','.join(map(str, self.shape))}]"
        if self.layout is not None:
            text += f" strides({','.join(map(str, self.layout))})"
        return f"{text} inplace {self.inplace}" if self.inplace else text


# What a Reduce or an accumulating Store combines with, by name: the word.
COMBINE = {"sum": "add", "prod": "mul", "max": "max", "min": "min", "any": "bit_or", "all": "bit_and"}
# What an indirect Store may declare; "set" keeps the last point in row-major order of the axes.
ACCUMULATE = ("set", "add", "mul", "max", "min")


def identity(word: str, dtype: str) -> bool | int | float:
    """The value that the combining word leaves others unchanged with, at this type."""
    if word in ("max", "min"):
        return least(dtype) if word == "max" else greatest(dtype)
    return {"add": 0, "mul": 1, "bit_or": False, "bit_and": True}[word]


class _OneValue:
    """A stage that gives one value a name."""

    name: str
    value: Expr

    @property
    def defines(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def exprs(self) -> tuple[Expr, ...]:
        return (self.value,)


@dataclass(frozen=True)
class Reduce(_OneValue):
    """name = combine(axes) value: one number for each parallel point; the order of combination is free."""

    name: str
    combine: str
    axes: tuple[Axis, ...]
    value: Expr

    def __str__(self) -> str:
        named, (value,) = spell(self.value)
        return _lines(named, f"{self.name} = {self.combine}({' '.join(map(str, self.axes))}) {value}")


@dataclass(frozen=True)
class Fold:
    """A tuple of state carried over `axes` in row-major order: argmax, Welford's moments, scans.

    init:  the first state.
    step:  the next one, written with the states' own names for the state before.
    merge: two states into one, `right.name` being the second; it must be associative and commutative, and
           init neutral for it, since a schedule may deal the points out in any order.  Without it the fold
           runs in sequence.
    scan:  every step's state is kept and later stages read it as name[axis]; one axis, no merge.
    """

    names: tuple[str, ...]
    axes: tuple[Axis, ...]
    init: tuple[Expr, ...]
    step: tuple[Expr, ...]
    merge: tuple[Expr, ...] | None = None
    scan: bool = False

    @property
    def defines(self) -> tuple[str, ...]:
        return self.names

    @property
    def exprs(self) -> tuple[Expr, ...]:
        return self.init + self.step + (self.merge or ())

    def __str__(self) -> str:
        targets = ", ".join(str(ref(name, names(self.axes) if self.scan else ())) for name in self.names)
        lines = [f"{targets} = {'scan' if self.scan else 'fold'}({' '.join(map(str, self.axes))}) {{"]
        for label, exprs in (("init", self.init), ("step", self.step), ("merge", self.merge)):
            if exprs is not None:
                named, texts = spell(*exprs)
                lines += [f"    {line}" for line in (*named, f"{label} {', '.join(texts)}")]
        return "\n".join([*lines, "  }"])


@dataclass(frozen=True)
class Local(_OneValue):
    """name[axes] = value: a named inner expression, or without axes one number for each parallel point.

    The schedule decides whether to keep the array or to compute it again where it is used.
    """

    name: str
    axes: tuple[Axis, ...]
    value: Expr

    def __str__(self) -> str:
        named, (value,) = spell(self.value)
        return _lines(named, f"{ref(self.name, names(self.axes))} = {value}{_loops(self.axes)}")


@dataclass(frozen=True)
class Store:
    """buffer[index] = value for every point of the parallel axes and of `axes`.

    Without `combine` each element of the buffer is written exactly once (at most once if the buffer is in
    place), and that is verified.  With it, index parts may be integer expressions and several points may meet
    in one element: "add", "mul", "max", "min" accumulate there, "set" keeps the last point.  The runner fills
    the buffer with the identity of the word (0 for "set") before, unless it is in place.
    """

    buffer: str
    index: Index
    value: Expr
    axes: tuple[Axis, ...] = ()
    combine: str | None = None

    @property
    def defines(self) -> tuple[str, ...]:
        return ()

    @property
    def exprs(self) -> tuple[Expr, ...]:
        return (self.value, *(part for part in self.index if isinstance(part, Expr)))

    def __str__(self) -> str:
        sign = f"{self.combine}=" if self.combine else "="
        named, texts = spell(*self.exprs)
        indirect = iter(texts[1:])
        parts = (next(indirect) if isinstance(part, Expr) else str(part) for part in self.index)
        return _lines(named, f"{self.buffer}[{', '.join(parts)}] {sign} {texts[0]}{_loops(self.axes)}")


Stage = Reduce | Fold | Local | Store


def names(axes: tuple[Axis, ...]) -> tuple[str, ...]:
    return tuple(axis.name for axis in axes)


def _lines(named: list[str], text: str) -> str:
    """A stage below the parts of its expressions that have lines of their own."""
    return "\n  ".join([*named, text])


def _loops(axes: tuple[Axis, ...]) -> str:
    return f" for {' '.join(map(str, axes))}" if axes else ""


@dataclass(frozen=True)
class Kernel:
    """Inputs, outputs, parallel axes and stages."""

    name: str
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    parallel: tuple[Axis, ...]
    stages: tuple[Stage, ...]

    @cached_property
    def symbols(self) -> tuple[str, ...]:
        """What its sizes are made of: integers given when it is bound (ir/kernel/substitute.py) or run."""
        sizes = [axis.extent for axis in self.axes]
        for buffer in self.buffers.values():
            sizes += [*buffer.shape, *(buffer.layout or ())]
        indices = [stage.index for stage in self.stages if type(stage) is Store]
        for stage in self.stages:
            for expr in walk(*stage.exprs):
                if type(expr) is Size:
                    sizes.append(expr.size)
                elif type(expr) is Coordinate:
                    indices.append((expr.index,))
                elif type(expr) is Read:
                    indices.append(expr.index)
        for index in indices:
            for part in index:
                if type(part) is Affine:
                    sizes += [part.constant, *[by for _, by in part.terms]]
        return tuple(sorted({name for n in sizes if type(n) is Dim for name in symbols_of(n)}))

    @cached_property
    def buffers(self) -> dict[str, Buffer]:
        return {buffer.name: buffer for buffer in self.inputs + self.outputs}

    @cached_property
    def axes(self) -> tuple[Axis, ...]:
        """Every axis once, the parallel ones first."""
        return tuple(dict.fromkeys(self.parallel + tuple(a for stage in self.stages for a in stage.axes)))

    @cached_property
    def extents(self) -> dict[str, Extent]:
        return {axis.name: axis.extent for axis in self.axes}

    def moving(self, index: Index) -> Index:
        """An index with 0 for axes of one point: two that differ in nothing else say the same element."""
        return tuple(
            Affine.of({n: by for n, by in part.terms if self.extents[n] != 1}, part.constant)
            if isinstance(part, Affine)
            else part
            for part in index
        )

    @cached_property
    def parallel_names(self) -> frozenset[str]:
        return frozenset(names(self.parallel))

    @cached_property
    def locals(self) -> dict[str, Local]:
        return {stage.name: stage for stage in self.stages if isinstance(stage, Local)}

    @cached_property
    def stores(self) -> tuple[Store, ...]:
        return tuple(stage for stage in self.stages if isinstance(stage, Store))

    @cached_property
    def dtypes(self) -> dict[str, str]:
        """The element type of every stage's result.  Raises KernelError where a stage's value has none."""
        known: dict[str, str] = {}
        for stage in self.stages:
            if isinstance(stage, (Reduce, Local)):
                known[stage.name] = self._typed(stage, stage.value, known)
            elif isinstance(stage, Fold):
                for name, value in zip(stage.names, stage.init, strict=False):
                    known[name] = known[f"right.{name}"] = self._typed(stage, value, known)
        return known

    def _typed(self, stage: Stage, value: Expr, known: dict[str, str]) -> str:
        dtype = dtype_of(value, self.buffers, known, self._dtype_memo)
        if dtype is None:
            raise KernelError(
                "a stage's value needs an element type",
                f"stage: {stage}",
                "give a constant its type: f32(1.0)",
            )
        return dtype

    @cached_property
    def derived(self) -> dict[Callable, Any]:
        """What was worked out of the kernel, by the function that does: it goes when the kernel goes."""
        return {}

    @cached_property
    def _dtype_memo(self) -> dict[Expr, str | None]:
        return {}

    def dtype_of(self, expr: Expr) -> str | None:
        """The element type an expression computes in; None for untyped constants, which their context types.

        Raises KernelError where operands disagree.
        """
        known = self._dtype_memo
        return known[expr] if expr in known else dtype_of(expr, self.buffers, self.dtypes, known)

    @cached_property
    def _free(self) -> dict[Expr, frozenset[str]]:
        return {}

    def free_axes(self, expr: Expr) -> frozenset[str]:
        """The axes an expression varies over; a reference to a stage varies over all parallel axes."""
        known = self._free
        for part in () if expr in known else in_order(expr):
            if part not in known:
                below = (known[child] for child in part.below)
                known[part] = self._own_axes(part).union(*below)
        return known[expr]

    def _own_axes(self, expr: Expr) -> frozenset[str]:
        if isinstance(expr, Ref):
            return self.parallel_names.union(expr.axes)
        if isinstance(expr, Coordinate):
            return expr.index.names
        if isinstance(expr, Read):
            return frozenset(n for part in expr.index if isinstance(part, Affine) for n in part.names)
        return frozenset()

    def unproved(self, access: Read) -> list[int]:
        """The dimensions in which a read may be out of bounds; all indirect ones that have an `else` are."""
        shape = self.buffers[access.buffer].shape
        return [
            d
            for d, (part, size) in enumerate(zip(access.index, shape, strict=True))
            if (access.other is not None if isinstance(part, Expr) else not self.inside(part, size))
        ]

    def inside(self, part: Affine, size: Extent) -> bool:
        """Whether 0 <= part < size is provable wherever the part's axes have any points at all."""
        used = [self.extents.get(name) for name, _ in part.terms]
        if 0 in used or None in used:
            return 0 in used
        low, high = part.bounds(self.extents)
        if type(low) is int and type(high) is int and type(size) is int:  # without symbols, as nearly always
            return low >= 0 and high < size
        with limits({name: (1, inf) for n in (*used, size) if n is not None for name in symbols_of(n)}):
            return is_at_least(low, 0) and is_at_least(size - 1, high)

    @cached_property
    def reads(self) -> tuple[tuple[Stage, Read], ...]:
        """Every read, once for each stage it stands in."""
        return tuple((s, expr) for s in self.stages for expr in walk(*s.exprs) if type(expr) is Read)

    def needs(self, stage: Stage) -> set[str]:
        """The stages whose results a stage reads, those that its inner Locals read in place of the Locals."""
        found: set[str] = set()
        waiting, seen = list(stage.exprs), set()
        while waiting:
            for expr in walk(waiting.pop()):
                if not isinstance(expr, Ref) or expr.name in seen:
                    continue
                seen.add(expr.name)
                local = self.locals.get(expr.name)
                if local is not None and local.axes:
                    waiting.append(local.value)
                else:
                    found.add(expr.name)
        return found

    def scan_stores(self, number: int) -> list[int]:
        """The stores that stand in the loop of the scan, stage `number`: each in the first that it can."""
        stages, made, taken = list(enumerate(self.stages)), set(), set()
        for at, scan in stages[: number + 1]:
            made |= set(scan.defines)
            if not (isinstance(scan, Fold) and scan.scan):
                continue
            found = [
                n for n, s in stages[at + 1 :]
                if n not in taken and isinstance(s, Store) and s.axes == scan.axes and self.needs(s) <= made
            ]  # fmt: skip
            taken |= set(found)
        return found

    @property
    def is_order_free(self) -> bool:
        """Whether the parallel points may run in any order and at once: no Store lets two of them meet."""
        return all(store.combine is None for store in self.stores)

    def replace(self, **changes: Any) -> Kernel:
        """A copy with some fields changed."""
        return replace(self, **changes)

    def __str__(self) -> str:
        symbols = f"[{', '.join(self.symbols)}]" if self.symbols else ""
        lines = [
            f"kernel {self.name}{symbols}({', '.join(map(str, self.inputs))}) -> "
            f"({', '.join(map(str, self.outputs))}) {{"
        ]
        lines.append(" ".join(["  parallel", *map(str, self.parallel)]))
        return "\n".join(lines + [f"  {stage}" for stage in self.stages] + ["}"])
