"""Scalar expressions: one hash-consed DAG, so that equal expressions are the same object.

Expressions are built by the functions below (`const`, `ref`, `coordinate`, `read`, `cast`, `bitcast`, `op`),
by the words of `words.py`, and by Python's operators: `x * sigmoid(x)` works on them as it does on numbers.
`==` stays identity; the word for equality is `eq`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any
from weakref import WeakValueDictionary

from ..dims import Dim
from ..errors import KernelError
from ..locks import fork_safe_lock
from .affine import Affine, as_affine
from .types import KINDS, NUMPY


class Expr:
    """A node of the DAG.  Never constructed directly: the functions of this module intern it.

    below: the operands that are expressions themselves.
    """

    __slots__ = ("__weakref__", "below")
    below: tuple[Expr, ...]

    def __add__(self, other: Scalar) -> Op:
        return op("add", self, other)

    def __radd__(self, other: Scalar) -> Op:
        return op("add", other, self)

    def __sub__(self, other: Scalar) -> Op:
        return op("sub", self, other)

    def __rsub__(self, other: Scalar) -> Op:
        return op("sub", other, self)

    def __mul__(self, other: Scalar) -> Op:
        return op("mul", self, other)

    def __rmul__(self, other: Scalar) -> Op:
        return op("mul", other, self)

    def __truediv__(self, other: Scalar) -> Op:
        return op("div", self, other)

    def __rtruediv__(self, other: Scalar) -> Op:
        return op("div", other, self)

    def __floordiv__(self, other: Scalar) -> Op:
        return op("floor_div", self, other)

    def __rfloordiv__(self, other: Scalar) -> Op:
        return op("floor_div", other, self)

    def __mod__(self, other: Scalar) -> Op:
        return op("remainder", self, other)

    def __rmod__(self, other: Scalar) -> Op:
        return op("remainder", other, self)

    def __pow__(self, other: Scalar) -> Op:
        return op("pow", self, other)

    def __rpow__(self, other: Scalar) -> Op:
        return op("pow", other, self)

    def __neg__(self) -> Op:
        return op("neg", self)

    def __abs__(self) -> Op:
        return op("abs", self)

    def __lt__(self, other: Scalar) -> Op:
        return op("lt", self, other)

    def __le__(self, other: Scalar) -> Op:
        return op("le", self, other)

    def __gt__(self, other: Scalar) -> Op:
        return op("gt", self, other)

    def __ge__(self, other: Scalar) -> Op:
        return op("ge", self, other)

    def __and__(self, other: Scalar) -> Op:
        return op("bit_and", self, other)

    def __rand__(self, other: Scalar) -> Op:
        return op("bit_and", other, self)

    def __or__(self, other: Scalar) -> Op:
        return op("bit_or", self, other)

    def __ror__(self, other: Scalar) -> Op:
        return op("bit_or", other, self)

    def __xor__(self, other: Scalar) -> Op:
        return op("bit_xor", self, other)

    def __rxor__(self, other: Scalar) -> Op:
        return op("bit_xor", other, self)

    def __invert__(self) -> Op:
        return op("bit_not", self)

    def __lshift__(self, other: Scalar) -> Op:
        return op("shl", self, other)

    def __rshift__(self, other: Scalar) -> Op:
        return op("shr", self, other)

    def __bool__(self) -> bool:
        raise KernelError(
            "a scalar expression has no truth value while a kernel is built",
            f"expression: {self}",
            "use select(condition, a, b) in place of `if`, and the words max and min in place of Python's",
        )

    def __lamina_op__(applied: Any, args: tuple, kwargs: dict) -> Any:
        """Apply an op's record to scalars: run its body.  Raises KernelError for an op that has none."""
        body = getattr(applied.lower, "body", None)
        if body is None:
            raise KernelError(
                f"{applied.name} is not elementwise, so it can't be applied to the scalars of a kernel"
            )
        operands, attrs = applied.bind(*args, **kwargs)
        return body(*operands, **attrs)

    def __reduce__(self) -> tuple:
        return _intern, (type(self), *(getattr(self, field.name) for field in fields(self)))

    def spelled(self, texts: Mapping[Expr, str]) -> str:
        """The text of this node, where that of each of its operands is known."""
        raise NotImplementedError

    def __str__(self) -> str:
        named, (text,) = spell(self)
        return "; ".join([*named, text])


Scalar = Expr | bool | int | float | Dim


@dataclass(frozen=True, eq=False, slots=True)
class Const(Expr):
    """A number.

    Without a dtype it takes that of the operands beside it, or of the buffer it is stored to.
    """

    value: bool | int | float
    dtype: str | None = None

    def spelled(self, texts: Mapping[Expr, str]) -> str:
        text = repr(self.value).lower()
        return f"{self.dtype}({text})" if self.dtype else text


@dataclass(frozen=True, eq=False, slots=True)
class Size(Expr):
    """A number that depends on the kernel's symbols; its type is as a constant's."""

    size: Dim
    dtype: str | None = None

    def spelled(self, texts: Mapping[Expr, str]) -> str:
        return f"{self.dtype}(size({self.size}))" if self.dtype else f"size({self.size})"


@dataclass(frozen=True, eq=False, slots=True)
class Ref(Expr):
    """The result of an earlier stage at the same parallel point, and at the same point of its local axes."""

    name: str
    axes: tuple[str, ...] = ()

    def spelled(self, texts: Mapping[Expr, str]) -> str:
        return f"{self.name}[{', '.join(self.axes)}]" if self.axes else self.name


@dataclass(frozen=True, eq=False, slots=True)
class Coordinate(Expr):
    """An affine function of the axes as an i64 (iota, causal masks, argmax, random counters)."""

    index: Affine

    def spelled(self, texts: Mapping[Expr, str]) -> str:
        return f"coord({self.index})"


@dataclass(frozen=True, eq=False, slots=True)
class Read(Expr):
    """buffer[index]; each part of the index is an Affine, or an integer Expr (an indirect read).

    `other` is the value out of bounds.  Without it, the verifier must prove an affine part in bounds; an
    indirect part is then trusted: the host checks it before the kernel is entered, and so does the
    interpreter.
    """

    buffer: str
    index: tuple[Affine | Expr, ...]
    other: Const | None = None

    def spelled(self, texts: Mapping[Expr, str]) -> str:
        tail = "" if self.other is None else f" else {self.other}"
        parts = (texts[part] if isinstance(part, Expr) else str(part) for part in self.index)
        return f"{self.buffer}[{', '.join(parts)}{tail}]"


@dataclass(frozen=True, eq=False, slots=True)
class Cast(Expr):
    """The operand's value as another element type, or (`bits`) its bits read as a type of that width."""

    dtype: str
    arg: Expr
    bits: bool = False

    def spelled(self, texts: Mapping[Expr, str]) -> str:
        return f"{'as_' if self.bits else ''}{self.dtype}({texts[self.arg]})"


@dataclass(frozen=True, eq=False, slots=True)
class Op(Expr):
    """A word of the vocabulary applied to operands."""

    name: str
    args: tuple[Expr, ...]

    def spelled(self, texts: Mapping[Expr, str]) -> str:
        infix, args = INFIX.get(self.name), [texts[arg] for arg in self.args]
        return f"({args[0]} {infix} {args[1]})" if infix else f"{self.name}({', '.join(args)})"


INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
INFIX |= {"eq": "==", "ne": "!=", "bit_and": "&", "bit_or": "|", "bit_xor": "^", "shl": "<<", "shr": ">>"}

# Weak: an expression lives as long as something uses it.  The lock keeps "equal means identical" across
# threads.
_interned: WeakValueDictionary[tuple, Expr] = WeakValueDictionary()
_lock = fork_safe_lock()


def _intern(cls: type[Expr], *values: Any) -> Any:
    key: tuple = (cls, *values)
    if cls is Const:  # 0.0, -0.0, 0 and False are four constants, and nan is one
        key = (cls, type(values[0]), repr(values[0]), values[1])
    found = _interned.get(key)
    if found is not None:
        return found
    with _lock:
        made = cls(*values)
        object.__setattr__(made, "below", _below(made))  # before another thread can meet it
        found = _interned.get(key)  # another may have been made meanwhile, in this thread as well
        if found is None:
            _interned[key] = found = made
    return found


def const(value: bool | int | float | Dim, dtype: str | None = None) -> Const | Size:
    """A number, typed by its context unless `dtype` says otherwise.  NumPy's scalars become Python's."""
    if isinstance(value, Dim):
        return _intern(Size, value, dtype)
    if not isinstance(value, (bool, int, float)):
        value = value.item()
    if dtype is not None and dtype not in NUMPY:
        raise KernelError(f"there is no element type {dtype!r}", f"the types are {', '.join(NUMPY)}")
    return _intern(Const, value, dtype)


def ref(name: str, axes: tuple[str, ...] = ()) -> Ref:
    """The result of the stage `name`."""
    return _intern(Ref, name, tuple(axes))


def coordinate(index: Affine | str | int) -> Coordinate:
    """The i64 value of an affine index; an axis name stands for its Affine."""
    return _intern(Coordinate, as_affine(index))


def read(
    buffer: str, index: Sequence[Affine | Expr | str | int], other: Const | bool | int | float | None = None
) -> Read:
    """buffer[index], or `other` out of bounds.  Axis names and integers may stand for their Affine."""
    parts = tuple(part if isinstance(part, Expr) else as_affine(part) for part in index)
    return _intern(Read, buffer, parts, other if other is None or isinstance(other, Const) else const(other))


def cast(value: Scalar, dtype: str) -> Expr:
    """`value` as `dtype`; a constant takes the type, converted where that has no such number (0 as bool)."""
    if not isinstance(value, Expr):
        value = const(value)
    if isinstance(value, Size) and value.dtype is None:
        return const(value.size, dtype)
    if isinstance(value, Const) and value.dtype is None:
        return const(_number_as(value.value, dtype), dtype)
    if dtype not in NUMPY:
        raise KernelError(f"there is no element type {dtype!r}", f"the types are {', '.join(NUMPY)}")
    return _intern(Cast, dtype, value, False)


def _number_as(value: bool | int | float, dtype: str) -> bool | int | float:
    """A number in the category of `dtype`.  A whole number among floats stays as it is written."""
    letter = KINDS.get(dtype, "")
    if letter == "b":
        return bool(value)
    if letter in "iu":
        if value in (float("inf"), -float("inf")) or value != value:
            raise KernelError(f"{dtype} does not hold the constant {value}")
        return int(value)
    return float(value) if isinstance(value, bool) else value


def bitcast(value: Expr, dtype: str) -> Cast:
    """The bits of `value` read as `dtype`."""
    return _intern(Cast, dtype, value, True)


def op(name: str, *args: Scalar) -> Op:
    """Apply the word `name`; Python numbers become constants.  `words.py` checks the number of operands."""
    return _intern(Op, name, tuple(arg if isinstance(arg, Expr) else const(arg) for arg in args))


def _below(expr: Expr) -> tuple[Expr, ...]:
    if isinstance(expr, Op):
        return expr.args
    if isinstance(expr, Read):
        return tuple(part for part in expr.index if isinstance(part, Expr))
    return (expr.arg,) if isinstance(expr, Cast) else ()


def walk(*roots: Expr) -> Iterator[Expr]:
    """Every node below `roots` once, in no promised order: a DAG walked as a tree takes exponential time."""
    seen: set[Expr] = set()
    waiting = list(roots)
    while waiting:
        expr = waiting.pop()
        if expr not in seen:
            seen.add(expr)
            if expr.below:
                waiting.extend(expr.below)
            yield expr


def in_order(*roots: Expr) -> list[Expr]:
    """Every node below `roots` once, operands before what uses them.

    What is worked out node by node in this order needs no recursion: an expression may be taller than
    Python's stack.
    """
    found: dict[Expr, None] = {}
    waiting = [*reversed(roots)]
    while waiting:
        expr = waiting[-1]
        below = [child for child in reversed(expr.below) if child not in found] if expr.below else None
        if below and expr not in found:
            waiting += below
        else:
            found[expr] = None
            waiting.pop()
    return list(found)


NESTED = 40  # brackets inside of one another, above which a part of an expression is spelled apart
REPEATED = 200  # characters, above which what stands in several places is


def spell(*roots: Expr) -> tuple[list[str], list[str]]:
    """The texts of `roots`, and those of the parts that they share or that lie too deep, one a line:

    $0 = (a[i] * a[i])

    So a text is as long as its DAG has nodes, where the tree may have exponentially many, and is read back
    without a deep stack.
    """
    order = in_order(*roots)
    uses = Counter(child for expr in order for child in expr.below)
    uses.update(roots)
    texts: dict[Expr, str] = {}
    depths: dict[Expr, int] = {}
    named: list[str] = []
    for expr in order:
        below = expr.below
        texts[expr] = text = expr.spelled(texts)
        depths[expr] = 1 + max((depths[child] for child in below), default=0)
        if below and (depths[expr] > NESTED or (uses[expr] > 1 and len(text) > REPEATED)):
            texts[expr], depths[expr] = f"${len(named)}", 0
            named.append(f"{texts[expr]} = {text}")
    return named, [texts[root] for root in roots]
