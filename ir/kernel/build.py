"""State one op as a kernel: what `lowering.kernel(build)` hands to the record's `build(k, *operands,
**attrs)`.

    def build_softmax(k, x):
        (i,), (j,) = k.parallel(x.shape[0]), k.axes(x.shape[1])
        high = k.max(x[i, j], over=(j,))
        e = k.local(exp(x[i, j] - high), over=(j,))
        k.store(e[j] / k.sum(e[j], over=(j,)), at=(i, j), over=(j,))

Halves are read as f32 and rounded once, where they are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..dims import Dim, has_hint
from ..dtypes import DType
from ..errors import KernelError, Unsayable
from ..types import Type
from .affine import Affine, Extent, as_affine
from .form import COMBINE, Axis, Buffer, Fold, Kernel, Local, Reduce, Stage, Store, identity
from .infer import dtype_of
from .scalar import Const, Expr, Op, Size, cast, const, coordinate, op, read, ref
from .types import greatest, is_floating, kind, least
from .words import VOCABULARY


class Index:
    """An affine index over the axes, `2*i + r - 1`; anything further makes it the integer expression it
    stands for.
    """

    __slots__ = ("affine",)

    def __init__(self, affine: Affine):
        self.affine = affine

    @property
    def expr(self) -> Expr:
        return coordinate(self.affine)

    def __add__(self, other: Any) -> Any:
        return Index(self.affine + _affine(other)) if _is_affine(other) else op("add", self.expr, other)

    def __sub__(self, other: Any) -> Any:
        return Index(self.affine - _affine(other)) if _is_affine(other) else op("sub", self.expr, other)

    def __radd__(self, other: Any) -> Any:
        return Index(self.affine + _affine(other)) if _is_affine(other) else op("add", other, self.expr)

    def __rsub__(self, other: Any) -> Any:
        return Index(_affine(other) - self.affine) if _is_affine(other) else op("sub", other, self.expr)

    def __mul__(self, other: Any) -> Any:
        return (
            Index(self.affine * other)
            if isinstance(other, (int, Dim))
            else op("mul", self.expr, _scalar(other))
        )

    __rmul__ = __mul__

    def __neg__(self) -> Index:
        return Index(self.affine * -1)

    def __floordiv__(self, other: Any) -> Any:
        return self if _is_one(other) else op("floor_div", self.expr, _scalar(other))

    def __mod__(self, other: Any) -> Any:
        return op("remainder", self.expr, _scalar(other))

    def __lt__(self, other: Any) -> Expr:
        return op("lt", self.expr, _scalar(other))

    def __le__(self, other: Any) -> Expr:
        return op("le", self.expr, _scalar(other))

    def __gt__(self, other: Any) -> Expr:
        return op("gt", self.expr, _scalar(other))

    def __ge__(self, other: Any) -> Expr:
        return op("ge", self.expr, _scalar(other))

    def __eq__(self, other: object) -> Any:
        return op("eq", self.expr, _scalar(other))

    def __ne__(self, other: object) -> Any:
        return op("ne", self.expr, _scalar(other))

    __hash__ = object.__hash__

    def __lamina_op__(applied: Any, args: tuple, kwargs: dict) -> Any:
        return applied(*(_scalar(arg) for arg in args), **kwargs)

    def __str__(self) -> str:
        return str(self.affine)


def _is_one(value: Any) -> bool:
    return isinstance(value, int) and value == 1


def _is_affine(value: Any) -> bool:
    return isinstance(value, (Index, Dim)) or hasattr(value, "__index__") and not isinstance(value, bool)


def _affine(value: Any) -> Affine:
    if isinstance(value, Index):
        return value.affine
    return Affine((), value if isinstance(value, Dim) else value.__index__())


def _scalar(value: Any) -> Any:
    """An index or a kept value as the expression that it stands for; anything else as it is."""
    if isinstance(value, Dim):
        return const(value)
    return value.expr if isinstance(value, (Index, Kept)) else value


class Kept:
    """The values of a `local` or a `scan`: read with [...] at its axes."""

    __slots__ = ("name", "axes")

    def __init__(self, name: str, axes: tuple[Axis, ...]):
        self.name, self.axes = name, axes

    @property
    def expr(self) -> Expr:
        return ref(self.name, tuple(axis.name for axis in self.axes))

    def __getitem__(self, index: Any) -> Expr:
        names = tuple(str(part) for part in (index if isinstance(index, tuple) else (index,)))
        if names != tuple(axis.name for axis in self.axes):
            raise KernelError(
                f"{self.name} is read at the axes it was made over",
                f"axes: {', '.join(axis.name for axis in self.axes) or 'none'}",
                f"read at: {', '.join(names) or 'none'}",
            )
        return self.expr

    def __lamina_op__(applied: Any, args: tuple, kwargs: dict) -> Any:
        return applied(*(_scalar(arg) for arg in args), **kwargs)


class Handle:
    """A tensor operand: `x[i, j]`, `x.at(i - 1, j, outside=0)`, `x.broadcast(i, j)`.

    dtype is what its elements are read as.
    """

    __slots__ = ("buffer", "shape", "dtype")

    def __init__(self, buffer: Buffer, dtype: DType):
        self.buffer, self.shape, self.dtype = buffer, buffer.shape, dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __getitem__(self, index: Any) -> Expr:
        return self._read(index if isinstance(index, tuple) else (index,), None)

    def at(self, *index: Any, outside: bool | int | float) -> Expr:
        """The element, or `outside` where the index leaves the operand."""
        return self._read(index, _fitting(outside, self.buffer.dtype) if index else None)

    def broadcast(self, *index: Any) -> Expr:
        """The element under NumPy's rule: dimensions from the right, those of size 1 stretched."""
        index = index[len(index) - self.ndim :]
        return self[tuple(0 if n == 1 else part for part, n in zip(index, self.shape, strict=True))]

    def _read(self, index: tuple, other: Const | None) -> Expr:
        if len(index) != self.ndim:
            raise KernelError(
                "an operand is read with one index for each dimension",
                f"operand: {self.buffer}",
                f"indices: {', '.join(map(str, index)) or 'none'}",
            )
        return _cast(
            read(self.buffer.name, tuple(_part(part) for part in index), other),
            self.buffer.dtype,
            self.dtype.short,
        )


def _part(part: Any) -> Affine | Expr:
    """One index of a read or a store."""
    if isinstance(part, Kept):
        return part.expr
    return part if isinstance(part, Expr) else _affine(part)


def _fitting(value: bool | int | float, dtype: str) -> Const | Size:
    """`value` as a constant of `dtype`: -inf is the least integer, 0.0 among integers is 0, among bools
    False.
    """
    if kind(dtype) == "b":
        return const(bool(value))
    if is_floating(dtype):
        return const(float(value))
    if value == -float("inf"):
        return const(least(dtype))
    return const(greatest(dtype) if value == float("inf") else int(value))


class KernelBuilder:
    """Collects the stages of one kernel.

    operands: their names and types, None for an optional one that is absent.  reads: by position, what the
    elements of an operand are converted to as they are read.
    """

    def __init__(
        self,
        name: str,
        operands: Sequence[tuple[str, Type | None]],
        outputs: Sequence[tuple[str, Type]],
        reads: Mapping[int, DType] | None = None,
    ):
        self.name = name
        self._taken: set[str] = set()
        self._stages: list[Stage] = []
        self._parallel: tuple[Axis, ...] | None = None
        self._axes: dict[str, Axis] = {}
        self._dtypes: dict[str, str] = {}
        self._memo: dict[Expr, str | None] = {}
        self.operands: list[Handle | None] = []
        for position, (operand, t) in enumerate(operands):
            handle = t and Handle(self._buffer(operand, t), (reads or {}).get(position, t.dtype))
            self.operands.append(handle)
        self._outputs = tuple(self._buffer(output, t) for output, t in outputs)
        self._inputs = tuple(handle.buffer for handle in self.operands if handle is not None)
        self._buffers = {buffer.name: buffer for buffer in self._inputs + self._outputs}

    # ---- axes
    def parallel(self, *extents: int) -> tuple[Index, ...]:
        """The axes of the result grid, each point of which is computed alone.  Called once, before any
        stage.
        """
        if self._parallel is not None:
            raise KernelError(f"{self.name}: the parallel axes are laid out once")
        self._parallel = tuple(self._axis("i", extent) for extent in extents)
        return tuple(Index(as_affine(axis.name)) for axis in self._parallel)

    def axes(self, *extents: int) -> tuple[Index, ...]:
        """Local axes, to reduce over or to store along."""
        return tuple(Index(as_affine(self._axis("r", extent).name)) for extent in extents)

    def coordinate(self, index: Index | int) -> Expr:
        """The value of an index, as an i64."""
        return coordinate(_affine(index))

    # ---- stages
    def sum(self, value: Any, over: Sequence[Index]) -> Expr:
        """The sum, from 0.0: of -0.0 alone it is 0.0."""
        value = self._expr(value)
        if not over:
            dtype = dtype_of(value, self._buffers, self._dtypes, self._memo)
            return value + 0.0 if dtype is not None and is_floating(dtype) else value
        return self._reduce("sum", value, over)

    def prod(self, value: Any, over: Sequence[Index]) -> Expr:
        return self._reduce("prod", value, over)

    def max(self, value: Any, over: Sequence[Index]) -> Expr:
        """The greatest; NaN if there is one."""
        return self._reduce("max", value, over)

    def min(self, value: Any, over: Sequence[Index]) -> Expr:
        """The least; NaN if there is one."""
        return self._reduce("min", value, over)

    def any(self, value: Any, over: Sequence[Index]) -> Expr:
        return self._reduce("any", self.truth(value), over)

    def all(self, value: Any, over: Sequence[Index]) -> Expr:
        return self._reduce("all", self.truth(value), over)

    def argmax(self, value: Any, over: Sequence[Index]) -> tuple[Expr, Expr]:
        """The greatest value and the place of its first occurrence, counted over the axes in row-major
        order.
        """
        return self._first_best("gt", least, value, over)

    def argmin(self, value: Any, over: Sequence[Index]) -> tuple[Expr, Expr]:
        """The least value and the place of its first occurrence, counted over the axes in row-major order."""
        return self._first_best("lt", greatest, value, over)

    def local(self, value: Any, over: Sequence[Index] = ()) -> Kept:
        """A named inner expression, read as `e[j]` (over no axes: `e[()]`)."""
        axes, name = self._over(over), self._name("t")
        self._add(Local(name, axes, self._expr(value)))
        return Kept(name, axes)

    def fold(
        self,
        init: Sequence[Any],
        step: Callable[[tuple[Expr, ...]], Sequence[Any]],
        over: Sequence[Index],
        merge: Callable[[tuple[Expr, ...], tuple[Expr, ...]], Sequence[Any]] | None = None,
    ) -> tuple[Expr, ...]:
        """A tuple of state carried over the axes in row-major order: the last state.

        step(state) -> the next state.  merge(left, right) -> one state for two; it must be associative and
        commutative, and frees the order.  A constant in `init` takes the type that `step` gives its place.
        """
        names, (first, following) = self._carried(init, step)
        states = tuple(map(ref, names))
        merged = None
        if merge is not None:
            merged = tuple(map(self._expr, merge(states, tuple(ref(f"right.{name}") for name in names))))
        self._add(Fold(names, self._over(over), first, following, merged))
        return states

    def scan(self, combine: str, value: Any, along: Index) -> Kept:
        """The running reduction along one axis: `s[j]` combines the values at 0 .. j.

        combine: "sum", "prod", "max", "min", "any" or "all".
        """
        value = self._expr(value)
        dtype = self._dtype(value)
        names, (first, following) = self._carried(
            (cast(identity(COMBINE[combine], dtype), dtype),),
            lambda state: (op(COMBINE[combine], state[0], value),),
        )
        axes = self._over((along,))
        self._add(Fold(names, axes, first, following, scan=True))
        return Kept(names[0], axes)

    def scan_fold(
        self, init: Sequence[Any], step: Callable[[tuple[Expr, ...]], Sequence[Any]], along: Index
    ) -> tuple[Kept, ...]:
        """`fold` along one axis with the state after every step kept: `s[j]`.  For running extrema with
        indices.
        """
        names, (first, following) = self._carried(init, step)
        axes = self._over((along,))
        self._add(Fold(names, axes, first, following, scan=True))
        return tuple(Kept(name, axes) for name in names)

    def store(self, value: Any, at: Sequence[Any], over: Sequence[Index] = (), output: int = 0) -> None:
        """Write one element of an output for each point of the parallel axes and those of `over`."""
        self._store(value, at, over, output, None)

    def scatter(
        self, value: Any, at: Sequence[Any], over: Sequence[Index] = (), combine: str = "add", output: int = 0
    ) -> None:
        """Write where integer expressions say; points that meet are combined ("add", "mul", "max", "min",
        "set").

        The output starts as the identity of `combine`, as 0 for "set".
        """
        self._store(value, at, over, output, combine)

    # ---- expressions
    def cast(self, value: Any, dtype: DType | str) -> Expr:
        """`value` in another element type, which must be none of the halves if it is to be computed with."""
        return self._as(self._expr(value), dtype if isinstance(dtype, str) else dtype.short)

    def truth(self, value: Any) -> Expr:
        """Whether a number is not zero."""
        value = self._expr(value)
        return value if self._dtype(value) == "bool" else op("ne", value, 0)

    def finish(self) -> Kernel:
        """The kernel of the stages so far."""
        return Kernel(self.name, self._inputs, self._outputs, self._parallel or (), tuple(self._stages))

    # ---- inside
    def _buffer(self, name: str, t: Type) -> Buffer:
        for n in t.shape:
            if not has_hint(n):
                raise Unsayable(f"{self.name}: a kernel is built for known sizes", f"{name}: {t}")
        return Buffer(self._name(name), t.dtype.short, t.shape)

    def _name(self, stem: str) -> str:
        """The stem if it is free, else with the first number that is."""
        name = next(
            n for n in (stem, *(f"{stem}{k}" for k in range(1, len(self._taken) + 2))) if n not in self._taken
        )
        self._taken.add(name)
        return name

    def _axis(self, stem: str, extent: Extent) -> Axis:
        axis = Axis(self._name(stem), extent)
        self._axes[axis.name] = axis
        return axis

    def _over(self, over: Sequence[Index]) -> tuple[Axis, ...]:
        found = []
        for index in over:
            axis = self._axes.get(str(index))
            if axis is None or axis in (self._parallel or ()):
                raise KernelError(
                    f"{self.name}: `over` takes local axes, as k.axes made them", f"given: {index}"
                )
            found.append(axis)
        return tuple(found)

    def _expr(self, value: Any) -> Expr:
        value = _scalar(value)
        return value if isinstance(value, Expr) else const(value)

    def _dtype(self, expr: Expr) -> str:
        dtype = dtype_of(expr, self._buffers, self._dtypes, self._memo)
        if dtype is None:
            raise KernelError(f"{self.name}: a stage's value needs an element type", f"value: {expr}")
        return dtype

    def _as(self, expr: Expr, dtype: str) -> Expr:
        return _cast(expr, dtype_of(expr, self._buffers, self._dtypes, self._memo), dtype)

    def _add(self, stage: Stage) -> None:
        if self._parallel is None:
            raise KernelError(f"{self.name}: lay out the parallel axes before the stages", "k.parallel(...)")
        self._stages.append(stage)
        if isinstance(stage, (Reduce, Local)):
            self._dtypes[stage.name] = self._dtype(stage.value)

    def _reduce(self, combine: str, value: Any, over: Sequence[Index]) -> Expr:
        value = self._expr(value)
        if not over:
            return value
        name = self._name("t")
        self._add(Reduce(name, combine, self._over(over), value))
        return ref(name)

    def _carried(self, init: Sequence[Any], step: Callable) -> tuple[tuple[str, ...], tuple]:
        """Names for a fold's state, and (init, step) with each constant of `init` given its type."""
        names = tuple(self._name("t") for _ in init)
        following = tuple(map(self._expr, step(tuple(map(ref, names)))))
        first = [self._expr(value) for value in init]
        known: dict[str, Any] = dict.fromkeys(names)  # None: as a constant, whose context types it
        for _ in names:
            for name, value, after in zip(names, first, following, strict=True):
                known[name] = (
                    known[name]
                    or dtype_of(value, self._buffers, self._dtypes, self._memo)
                    or dtype_of(after, self._buffers, self._dtypes | known, {})
                )
        for name, dtype in known.items():
            if dtype is None:
                raise KernelError(f"{self.name}: the state of a fold needs an element type", f"state: {name}")
        self._dtypes |= known | {f"right.{name}": dtype for name, dtype in known.items()}
        typed = tuple(self._as(value, known[name]) for name, value in zip(names, first, strict=True))
        following = tuple(self._as(value, known[name]) for name, value in zip(names, following, strict=True))
        return names, (typed, following)

    def _first_best(
        self, better: str, worst: Callable, value: Any, over: Sequence[Index]
    ) -> tuple[Expr, Expr]:
        value = self._expr(value)
        dtype, place = self._dtype(value), Index(Affine())
        for axis in self._over(over):
            place = place * axis.extent + Index(as_affine(axis.name))

        def beats(x: Expr, y: Expr) -> Expr:
            """Whether x is better: greater (or less), or the first NaN."""
            wins = op(better, x, y)
            return wins | (op("isnan", x) & op("bit_not", op("isnan", y))) if is_floating(dtype) else wins

        def step(state: tuple[Expr, ...]) -> tuple[Expr, Expr]:
            take = beats(value, state[0])
            return op("select", take, value, state[0]), op("select", take, place.expr, state[1])

        def merge(left: tuple[Expr, ...], right: tuple[Expr, ...]) -> tuple[Expr, Expr]:
            level = op("bit_not", beats(left[0], right[0])) & (right[1] < left[1])
            take = beats(right[0], left[0]) | level
            return op("select", take, right[0], left[0]), op("select", take, right[1], left[1])

        if dtype == "bool":
            raise KernelError(
                f"{self.name}: argmax and argmin compare numbers", "cast the bools: k.cast(x, 'u8')"
            )
        if not over:
            return value, const(0, "i64")
        best, at = self.fold((cast(worst(dtype), dtype), const(0, "i64")), step, over, merge)
        return best, at

    def _store(
        self, value: Any, at: Sequence[Any], over: Sequence[Index], output: int, combine: str | None
    ) -> None:
        buffer = self._outputs[output]
        value = self._as(self._expr(value), buffer.dtype)
        self._add(Store(buffer.name, tuple(map(_part, at)), value, self._over(over), combine))


def _cast(expr: Expr, dtype: str | None, wanted: str) -> Expr:
    """An expression of `dtype` as the wanted one; untyped constants (None) take it."""
    if isinstance(expr, Const) and dtype is None:
        return cast(_fitting(expr.value, wanted), wanted)
    if isinstance(expr, Op) and dtype is None:  # made of constants alone
        pattern = VOCABULARY[expr.name].pattern
        return op(
            expr.name,
            *(_cast(x, None, wanted) if p == "t" else x for p, x in zip(pattern, expr.args, strict=False)),
        )
    if dtype == wanted:
        return expr
    return op("ne", expr, 0) if wanted == "bool" else cast(expr, wanted)
