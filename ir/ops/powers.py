"""Powers and roots."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..dtypes import DType, int64
from ..elementwise import elementwise
from ..errors import ArgumentValueError
from ..op import REGISTRY
from ..sample import binary_samples, unary_samples
from ..types import Type
from .cast import type_as
from .compare import eq, logical_and, where
from .complex import is_complex_valued
from .complex import real as _real

_POSITIVE = unary_samples(low=0.2, high=3.0)

reciprocal = elementwise(
    "reciprocal",
    lambda input: 1.0 / input,
    result="float",
    samples=_POSITIVE,
    grad=lambda g, out: -g * out * out,
    doc="Compute 1 / input.  Integers give the default float.",
    complex="analytic",
)


def _squared(t: Type) -> tuple[DType, DType]:
    """A bool counts as an int64, as in PyTorch, where square is a power."""
    dtype = int64 if t.dtype.category == "bool" else t.dtype
    return dtype, dtype


square = elementwise(
    "square",
    lambda input: input * input,
    reference=np.square,
    result=_squared,
    grad=lambda g, input: g * input * 2,
    doc="Multiply with itself.",
    complex="analytic",
)

sqrt = elementwise(
    "sqrt",
    "sqrt",
    reference=np.sqrt,
    result="float",
    samples=_POSITIVE,
    grad=lambda g, out: g / (out * 2),
    doc="Take the square root.  Negative numbers give NaN; integers give the default float.",
    complex="analytic",
)

rsqrt = elementwise(
    "rsqrt",
    "rsqrt",
    reference=lambda input: np.reciprocal(np.sqrt(input)),
    result="float",
    samples=_POSITIVE,
    grad=lambda g, out: g * (out * out * out) * -0.5,
    doc="Compute 1 / sqrt(input).  Integers give the default float.",
    complex="analytic",
)


def _power(input: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Powers that are common as numbers by products and roots: quicker, and in PyTorch's rounding."""
    if input.dtype.kind in "iub":
        return _whole_power(input, other)
    if other.ndim == 0 or other.size == 1 and other.ndim <= input.ndim:
        known = _KNOWN.get(other.item())
        if known is not None:
            return known(input)
    return np.power(input, other)


_KNOWN: dict[float, Callable] = {
    2.0: np.square,
    3.0: lambda x: x * x * x,
    0.5: np.sqrt,
    -0.5: lambda x: np.reciprocal(np.sqrt(x)),
    -1.0: np.reciprocal,
    -2.0: lambda x: np.reciprocal(x * x),
}


def _whole_power(input: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Integer powers.  1 / n for a negative exponent is 0 unless n is 1 or -1."""
    below = np.less(other, 0)
    if not below.any():
        return np.power(input, other)
    odd = np.where(np.bitwise_and(other, 1) == 1, input, input * input)
    return np.where(below, np.where(odd * odd == 1, odd, 0), np.power(input, np.where(below, 0, other)))


def _check_exponent(input: Type, number: bool | int | float | complex) -> None:
    if isinstance(number, (int, np.integer)) and number < 0 and not input.dtype.inexact:
        raise ArgumentValueError(
            f"pow: Integers to negative integer powers are not allowed: {input} to the power of {number}",
            "use floats: x.float() ** y",
        )


pow = elementwise(
    "pow",
    "pow",
    reference=_power,
    operands=("input", "exponent"),
    dtypes="number",
    samples=binary_samples({"low": 0.2, "high": 2.0}, {"low": 0.0, "high": 3.0}),
    grad=(
        lambda g, input, exponent: where(eq(exponent, 0), 0.0, g * (exponent * input ** (exponent - 1))),
        lambda g, input, exponent, out: where(
            logical_and(eq(input, 0), _real(exponent) >= 0),
            0.0,
            g * (out * REGISTRY["log"](type_as(input, out) if is_complex_valued(out) else input)),
        ),
    ),
    doc="Raise to a power, with broadcasting and type promotion.  Integers stay integers, and "
    "a tensor of negative powers of them holds 0 but for 1 and -1; one negative number raises "
    "ArgumentValueError.",
    number=_check_exponent,
    complex="analytic",
)
