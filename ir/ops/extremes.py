"""The greater and the lesser of two numbers, and limits on one."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..elementwise import elementwise
from ..errors import ArgumentError
from ..op import composite
from ..sample import Operand, Sample, binary_samples
from .arithmetic import BOTH
from .cast import dtype_of
from .compare import eq, logical_and, logical_or, ne, where

_DISTINCT = binary_samples({"low": -2.0, "high": -0.1}, {"low": 0.1, "high": 2.0})


def _share(g: Any, mine: Any, other: Any, loses: Any) -> Any:
    """The gradient to an operand unless it loses; two equal ones share it."""
    return where(eq(mine, other), g * 0.5, where(loses, 0.0, g))


maximum = elementwise(
    "maximum",
    "max",
    reference=np.maximum,  # 0.0 and -0.0 in either order differ: not commutative
    operands=BOTH,
    samples=_DISTINCT,
    grad=(
        lambda g, input, other: _share(g, input, other, input < other),
        lambda g, input, other: _share(g, other, input, other < input),
    ),
    doc="Take the greater of two, elementwise; NaN where either is.  Equal ones share the gradient.",
)

minimum = elementwise(
    "minimum",
    "min",
    reference=np.minimum,  # 0.0 and -0.0 in either order differ: not commutative
    operands=BOTH,
    samples=_DISTINCT,
    grad=(
        lambda g, input, other: _share(g, input, other, input > other),
        lambda g, input, other: _share(g, other, input, other > input),
    ),
    doc="Take the lesser of two, elementwise; NaN where either is.  Equal ones share the gradient.",
)

fmax = elementwise(
    "fmax",
    lambda input, other: where(logical_or(input >= other, ne(other, other)), input, other),
    reference=lambda input, other: np.where((input >= other) | (other != other), input, other),
    operands=BOTH,
    samples=_DISTINCT,
    doc="Take the greater of two, elementwise; a NaN loses against a number.  Of equal ones the first.",
)

fmin = elementwise(
    "fmin",
    lambda input, other: where(logical_or(input <= other, ne(other, other)), input, other),
    reference=lambda input, other: np.where((input <= other) | (other != other), input, other),
    operands=BOTH,
    samples=_DISTINCT,
    doc="Take the lesser of two, elementwise; a NaN loses against a number.  Of equal ones the first.",
)


def bind_clamp(input, min=None, max=None):
    """Limit to the range from `min` to `max`, each a number, a tensor that broadcasts, or None.

    Where min > max the result is max.  NaN stays NaN.  The gradient passes where the limits are not exceeded.
    Raises ArgumentError if both are None.
    """
    if min is None and max is None:
        raise ArgumentError("clamp: At least one of 'min' or 'max' must not be None")
    return (input, min, max), {}


def _clamp_body(input: Any, min: Any, max: Any) -> Any:
    held = input if min is None else maximum(min, input)  # of two zeros the input's
    return held if max is None else minimum(max, held)


def _limited(input: np.ndarray, min: np.ndarray | None, max: np.ndarray | None) -> np.ndarray:
    held = input if min is None else np.maximum(min, input)
    return held if max is None else np.minimum(max, held)


def _clamp_vjp(saved: tuple, cotangents: tuple, attrs: dict, needs: tuple) -> tuple:
    (g,), (x, low, high) = cotangents, saved
    below = above = inside = None
    if low is not None:
        inside, below = x >= low, x < low
    if high is not None:
        fits = x <= high
        inside, above = fits if inside is None else logical_and(inside, fits), x > high
    if low is not None and high is not None:
        below, above = logical_and(below, low < high), logical_or(above, high < low)
    return tuple(
        where(mask, g, 0.0) if need and mask is not None else None
        for mask, need in zip((inside, below, above), needs, strict=True)
    )


def _clamp_samples() -> list[Sample]:
    ends = {"min": -0.5, "max": 1.0}
    made = [
        Sample((Operand(s, away_from=(-0.5, 1.0)),), ends) for s in ((), (0,), (1,), (17,), (33,), (3, 17))
    ]
    middle, low, high = Operand((3, 5), -1.0, 1.0), Operand((5,), -3.0, -1.2), Operand((3, 1), 1.2, 3.0)
    return made + [
        Sample((Operand((5,), away_from=(0.0,)),), {"min": 0.0}),
        Sample((Operand((5,), away_from=(0.0,)),), {"max": 0.0}),
        Sample((middle, low, high)),
        Sample((low, middle, high)),
        Sample((high, low, middle)),
        Sample((middle, high, low)),
    ]


clamp = elementwise(
    "clamp",
    _clamp_body,
    bind=bind_clamp,
    reference=_limited,
    operands=("input", "min", "max"),
    optional=("min", "max"),
    dtypes="number",
    aliases=("clip",),
    grad=None,
    vjp=_clamp_vjp,
    saves=("input", "min", "max"),
    samples=_clamp_samples,
)


@composite(inplace=True)
def clamp_min(input, min):
    """Limit from below: clamp(input, min)."""
    return maximum(input, min) if dtype_of(input).category == "bool" else clamp(input, min)


@composite(inplace=True)
def clamp_max(input, max):
    """Limit from above: clamp(input, None, max)."""
    return minimum(input, max) if dtype_of(input).category == "bool" else clamp(input, None, max)
