"""Comparisons, truth, and the choice between two values by a third."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np

from ..dtypes import DType, bool_, default_dtype
from ..elementwise import elementwise
from ..errors import ArgumentValueError, DTypeError
from ..kernel import scalar
from ..op import Op, composite
from ..sample import Operand, Sample, binary_samples, unary_samples
from ..shapes import float_dtype, result_dtype
from ..types import Type
from .cast import cast, dtype_of

# Small whole numbers, so that pairs of equal elements occur in every dtype.
_EQUALS = binary_samples({"low": -2, "high": 2, "category": "int"})
_ODDITIES = unary_samples(low=-3.0, high=3.0)


def _comparison(
    name: str,
    ufunc: np.ufunc,
    aliases: tuple[str, ...],
    sign: str,
    commutative: bool = False,
    complex: str | None = None,
    storage: bool = False,
) -> Op:
    return elementwise(
        name,
        name,
        reference=ufunc,
        operands=("input", "other"),
        result="bool",
        grad=None,
        commutative=commutative,
        complex=complex,
        storage=storage,
        aliases=aliases,
        samples=_EQUALS,
        doc=f"Tell where input {sign} other, elementwise with broadcasting, as bool.  Comparing NaN gives "
        + ("True." if name == "ne" else "False."),
    )


eq = _comparison("eq", np.equal, (), "==", commutative=True, complex="analytic", storage=True)
ne = _comparison("ne", np.not_equal, ("not_equal",), "!=", commutative=True, complex="analytic", storage=True)
lt = _comparison("lt", np.less, ("less",), "<")
le = _comparison("le", np.less_equal, ("less_equal",), "<=")
gt = _comparison("gt", np.greater, ("greater",), ">")
ge = _comparison("ge", np.greater_equal, ("greater_equal",), ">=")


def _logical(name: str, ufunc: np.ufunc, word: str) -> Op:
    return elementwise(
        name,
        word,
        reference=ufunc,
        operands=("input", "other"),
        result="logic",
        grad=None,
        commutative=True,
        complex="analytic",
        samples=_EQUALS,
        doc=f"Combine the truth of two tensors by {name[8:]}, elementwise with broadcasting.  Whatever "
        f"isn't 0 is true.",
    )


logical_and = _logical("logical_and", np.logical_and, "bit_and")
logical_or = _logical("logical_or", np.logical_or, "bit_or")
logical_xor = _logical("logical_xor", np.logical_xor, "bit_xor")
logical_not = elementwise(
    "logical_not",
    "bit_not",
    reference=np.logical_not,
    result="logic",
    grad=None,
    doc="Tell where the input is 0 (or False).",
    complex="analytic",
)


def _in_float(t: Type, **_: Any) -> tuple[DType, DType]:
    """Classified as a float, which an integer always is without becoming special."""
    return float_dtype(t), bool_


def _classified(
    name: str, ufunc: np.ufunc, body: Any, what: str, complex: str | None = None, storage: bool = False
) -> Op:
    return elementwise(
        name, body, reference=ufunc, result=_in_float, grad=None, inplace=False, samples=_ODDITIES,
        complex=complex, storage=storage, doc=f"Tell where the input is {what}.",
    )  # fmt: skip


isnan = _classified("isnan", np.isnan, "isnan", "NaN", "analytic", storage=True)
isinf = _classified("isinf", np.isinf, lambda input: eq(abs(input), inf), "inf or -inf", "analytic")
isfinite = _classified(
    "isfinite", np.isfinite, lambda input: lt(abs(input), inf), "neither inf nor NaN", "analytic"
)
isposinf = _classified("isposinf", np.isposinf, lambda input: eq(input, inf), "inf")
isneginf = _classified("isneginf", np.isneginf, lambda input: eq(input, -inf), "-inf")
signbit = _classified(
    "signbit",
    np.signbit,
    lambda input: scalar.op("lt", scalar.op("copysign", 1.0, input), 0.0),
    "negative, -0.0 included",
)


def _chosen(condition: Type, input: Type, other: Type) -> tuple[tuple[DType, ...], DType]:
    if condition.dtype is not bool_:
        raise DTypeError(
            f"where(condition, input, other): condition must be bool, not {condition.dtype.name}",
            "compare it: where(condition != 0, input, other)",
        )
    dtype = result_dtype(input, other)
    return (bool_, dtype, dtype), dtype


_BITS = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}  # by the size of an element


def _where(condition: np.ndarray, input: Any, other: Any) -> np.ndarray:
    """Choose by bit masks: np.where branches on each element, and is slow where it can't foretell them.

    Measured on the gradient of relu, [64, 32, 8, 8] on a Zen 4 core: 30 us instead of 500.
    """
    if condition.size < 4096:  # where both take about as long
        return np.where(condition, input, other)
    # A rule on plain arrays may give a number for one of the two.
    a = np.asarray(input, getattr(other, "dtype", None) if isinstance(input, (int, float)) else None)
    b = np.asarray(other, a.dtype if isinstance(other, (int, float)) else None)
    bits = _BITS.get(a.itemsize)
    if a.dtype != b.dtype or bits is None:
        return np.where(condition, a, b)
    a, b, dtype = a.view(bits), b.view(bits), a.dtype
    mask = np.negative(condition.view(np.int8), dtype=bits)  # all ones where true
    if not b.ndim and not b:
        chosen = mask & a
    elif not a.ndim and not a:
        chosen = ~mask & b
    else:
        chosen = b ^ (a ^ b) & mask
    return chosen.view(dtype)


def _where_samples() -> list[Sample]:
    shapes: list[tuple[Any, Any, Any]] = [(s, s, s) for s in ((), (0,), (1,), (17,), (33,))]
    shapes += [((3, 17), (17,), (3, 1)), ((5,), (2, 5), ()), ((), (4,), (4,))]
    return [Sample((Operand(c, category="bool"), Operand(a), Operand(b))) for c, a, b in shapes] + [
        Sample((Operand((5,), category="bool"), Operand((5,)), 0.5)),
        Sample((Operand((5,), category="bool"), -1.0, Operand((2, 5)))),
    ]


where = elementwise(
    "where",
    lambda condition, input, other: scalar.op("select", condition, input, other),
    reference=_where,
    operands=("condition", "input", "other"),
    result=_chosen,
    grad=(
        None,
        lambda g, condition: where(condition, g, 0.0),
        lambda g, condition: where(condition, 0.0, g),
    ),
    inplace=False,
    samples=_where_samples,
    storage=True,
    doc="Take `input` where `condition` (bool) is true and `other` elsewhere.  The three broadcast; either "
    "value may "
    "be a number.  No gradient flows to the value not taken.  Raises DTypeError.",
    complex="analytic",
)


@composite()
def isclose(input, other, rtol=1e-05, atol=1e-08, equal_nan=False):
    """Tell where |input - other| <= atol + rtol * |other|, or the two are equal (also inf).

    Integers are compared as floats of the default dtype.  equal_nan: NaN counts as equal to NaN.  Raises
    ArgumentValueError for a tolerance below 0.
    """
    for name, tolerance in (("atol", atol), ("rtol", rtol)):
        if tolerance < 0:
            raise ArgumentValueError(f"{name} must be greater than or equal to zero, but got {tolerance}")
    near = eq(input, other)
    if dtype_of(input).category in ("bool", "int"):  # their differences wrap around, or are none
        input, other = cast(input, default_dtype()), cast(other, default_dtype())
    within = abs(input - other) <= atol + abs(rtol * other)
    near = logical_or(near, logical_and(within, isfinite(other)))
    return logical_or(near, logical_and(isnan(input), isnan(other))) if equal_nan else near


@composite()
def allclose(input, other, rtol=1e-05, atol=1e-08, equal_nan=False):
    """Tell, as a Python bool, whether `isclose` holds for every element.

    Reads the values: a wait for the device.
    """
    return bool(isclose(input, other, rtol, atol, equal_nan).all())


@composite()
def equal(input, other):
    """Tell, as a Python bool, whether the two have the same shape and equal elements."""
    return input.shape == other.shape and bool(eq(input, other).all())
