"""The element type that an expression computes in.

Operands must agree: mixed types are cast explicitly.  Halves are stored, moved, compared and cast, but
arithmetic on them is refused: it is done in f32 and rounded once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..errors import KernelError
from .scalar import Cast, Const, Coordinate, Expr, Op, Read, Ref, Size, in_order
from .types import NUMPY, bits, kind
from .words import VOCABULARY, Word

if TYPE_CHECKING:
    from .form import Buffer


def dtype_of(
    expr: Expr, buffers: Mapping[str, Buffer], stages: Mapping[str, str], memo: dict[Expr, str | None]
) -> str | None:
    """The element type of `expr`; None for constants without one.

    Raises KernelError where operands disagree.
    """
    for part in () if expr in memo else in_order(expr):
        if part not in memo:
            memo[part] = _infer(part, buffers, stages, memo)
    return memo[expr]


def _infer(
    expr: Expr, buffers: Mapping[str, Buffer], stages: Mapping[str, str], memo: dict[Expr, str | None]
) -> str | None:
    match expr:
        case Const(_, dtype):
            if dtype is not None:
                check_constants(expr, dtype)
            return dtype
        case Size(_, dtype):
            return dtype
        case Ref(name):
            if name not in stages:
                raise KernelError(f"{expr} is not in scope: no earlier stage defines it")
            return stages[name]
        case Coordinate():
            return "i64"
        case Read(buffer):
            if buffer not in buffers:
                raise KernelError(f"{expr} reads {buffer}, which is no buffer of the kernel")
            return buffers[buffer].dtype
        case Cast(dtype, arg, as_bits):
            source = memo[arg]
            if source is None and isinstance(arg, Op):
                raise KernelError(
                    "what is computed of untyped constants has no type to be cast from",
                    f"expression: {expr}",
                    "give one its type: f32(1.0)",
                )
            if as_bits and (source is None or bits(source) != bits(dtype)):
                raise KernelError(
                    "bits are read as another type of the same width",
                    f"expression: {expr}",
                    f"operand: {source}",
                )
            return dtype
        case Op(name, args):
            if name not in VOCABULARY:
                raise KernelError(f"there is no word {name!r}", f"expression: {expr}")
            word = VOCABULARY[name]
            return _result(expr, word, [memo[arg] for arg in args])
    raise TypeError(f"not a scalar expression: {expr!r}")


def _result(expr: Op, word: Word, given: list[str | None]) -> str | None:
    if len(given) != word.arity:
        raise KernelError(f"{word.name} takes {word.arity} operands, got {len(given)}", f"expression: {expr}")
    operands, result = word.pattern.split(":")
    for pattern, dtype, arg in zip(operands, given, expr.args, strict=True):
        if (
            pattern == "b"
            and dtype != "bool"
            and not (isinstance(arg, Const) and isinstance(arg.value, bool))
        ):
            raise KernelError("a condition is bool", f"expression: {expr}", f"condition: {arg} is {dtype}")
    agreed = {dtype for pattern, dtype in zip(operands, given, strict=True) if pattern == "t" and dtype}
    if len(agreed) > 1:
        raise KernelError(
            f"the operands of {word.name} have one element type, not {' and '.join(sorted(agreed))}",
            f"expression: {expr}",
            "cast one of them: f32(x)",
        )
    if not agreed:
        if result == "b":
            raise KernelError(
                "a comparison of untyped constants has no type to compare in",
                f"expression: {expr}",
                "give one its type: f32(1.0)",
            )
        return None
    (dtype,) = agreed
    _check_takes(word, dtype, expr)
    for pattern, own, arg in zip(operands, given, expr.args, strict=True):
        if pattern == "t" and own is None:
            check_constants(arg, dtype)
    return "bool" if result == "b" else dtype


def _check_takes(word: Word, dtype: str, expr: Op) -> None:
    if kind(dtype) not in word.kinds:
        remedy = "cast it: f32(x)" if kind(dtype) != "f" else "cast it: i64(x)"
        raise KernelError(f"{word.name} does not take {dtype}", f"expression: {expr}", remedy)
    if word.name in ("mulhi", "random_bits") and dtype != "u32":
        raise KernelError(f"{word.name} does not take {dtype}", f"expression: {expr}", "cast it: u32(x)")


def check_constants(expr: Expr, dtype: str) -> None:
    """Refuse an untyped constant that `dtype` cannot hold: 0.5 among integers, 300 in a u8, 2 among bools."""
    waiting, seen = [expr], {expr}
    while waiting:
        part = waiting.pop()
        if isinstance(part, Const):
            _check_constant(part, dtype)
        if isinstance(part, Op):
            word = VOCABULARY[part.name]
            _check_takes(word, dtype, part)
            letters = zip(word.pattern, part.args, strict=False)
            new = [arg for letter, arg in letters if letter == "t" and arg not in seen]
            waiting += new
            seen.update(new)


def _check_constant(expr: Const, dtype: str) -> None:
    if expr.dtype not in (None, dtype):
        return
    value, letter = expr.value, kind(dtype)
    fits = isinstance(value, bool) if letter == "b" else not isinstance(value, bool)
    if letter in "iu" and fits:
        fits = isinstance(value, int) and _least(dtype) <= value <= _greatest(dtype)
    elif isinstance(value, int):
        fits = fits and value.bit_length() <= 1023  # a float64
    if not fits:
        raise KernelError(
            f"{dtype} does not hold the constant {expr}", "cast the operands, or write another constant"
        )


def _least(dtype: str) -> int:
    return 0 if kind(dtype) == "u" else -(1 << (bits(dtype) - 1))


def _greatest(dtype: str) -> int:
    return (1 << (bits(dtype) - (kind(dtype) == "i"))) - 1


def is_integer(dtype: str | None) -> bool:
    """Whether an index may be of this type."""
    return dtype in NUMPY and kind(dtype or "") in "iu"
