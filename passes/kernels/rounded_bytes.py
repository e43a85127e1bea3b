"""Floats rounded and cut to bytes, as quantised values are made: told apart, so that little computes them.

u8(min(f32(255.0), max(f32(0.0), (round(x) + f32(0.0)))))    ->    x, from 0 to 255, in steps from 0

A conversion that rounds to nearest takes the place of the rounding and of the one that cuts; what is too
large is cut before, and what is too small may be after.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.kernel.scalar import Cast, Const, Expr, Op

MOST = 1 << 20  # of bounds: sums of such whole numbers are exact, and their negatives are i32s


@dataclass(frozen=True)
class RoundedByte:
    """min(high, max(low, round(value) + zero)), whole numbers, as the byte `dtype`."""

    value: Expr
    low: int
    high: int
    zero: int
    dtype: str


def rounded_byte(expr: Cast) -> RoundedByte | None:
    """What a cast makes a byte of, if that is a float rounded and cut to whole numbers; else None."""
    if expr.dtype not in ("u8", "i8") or expr.bits:
        return None
    bounds = {}
    value = expr.arg
    for _ in range(2):
        match value:
            case Op("min" | "max" as name, (first, second)) if name not in bounds:
                bound, other = (first, second) if whole(first) is not None else (second, first)
                bounds[name] = whole(bound)
                value = other
            case _:
                return None
    low, high = bounds["max"], bounds["min"]
    zero: int | None = 0
    match value:
        case Op("add", (first, second)):
            constant, value = (first, second) if whole(first) is not None else (second, first)
            zero = whole(constant)
    match value:
        case Op("round", (rounded,)) if None not in (low, high, zero):
            assert low is not None and high is not None and zero is not None
            return RoundedByte(rounded, low, high, zero, expr.dtype) if low <= high else None
    return None


def whole(expr: Expr) -> int | None:
    """The whole number that a float constant is, if it is a small one."""
    match expr:
        case Const(float(value)) if abs(value) <= MOST and value == int(value):
            return int(value)
    return None
