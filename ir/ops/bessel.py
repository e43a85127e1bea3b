"""Modified Bessel functions of the first kind, over their exponential."""

from __future__ import annotations

from math import factorial
from typing import Any

import numpy as np

from .. import lowering
from ..elementwise import elementwise
from ..sample import unary_samples
from .arithmetic import abs, sign
from .compare import eq, lt, where
from .math import exp, rsqrt

# Below, the power series of positive terms (Abramowitz and Stegun 9.6.10): at 20, 48 of them reach 1e-17 of
# the sum.  From there on Hankel's expansion (9.7.1), whose terms shrink down to exp(-2 x).
_MIDDLE, _POWERS, _FAR = 20.0, 48, 24
_TURN = 6.283185307179586


def _near(order: int) -> list[float]:
    """Coefficients of (x / 2)^(2 k) in I(x) / (x / 2)^order."""
    return [1.0 / factorial(k) / factorial(k + order) for k in range(_POWERS)]


def _hankel(order: int) -> list[float]:
    """Coefficients of x^-k in sqrt(2 pi x) exp(-x) I(x)."""
    found = [1.0]
    for k in range(1, _FAR):
        found.append(-found[-1] * (4.0 * order * order - (2 * k - 1) ** 2) / (8.0 * k))
    return found


def _horner(x: Any, coefficients: list[float]) -> Any:
    total: Any = coefficients[-1]
    for c in coefficients[-2::-1]:
        total = total * x + c
    return total


def _scaled(input: Any, order: int) -> Any:
    """exp(-|x|) I(|x|)."""
    x = abs(input)
    inside = where(lt(x, _MIDDLE), x, 1.0)
    outside = where(lt(x, _MIDDLE), _MIDDLE, x)
    half = inside * 0.5
    near = exp(-inside) * _horner(half * half, _near(order))
    far = rsqrt(outside * _TURN) * _horner(1.0 / outside, _hankel(order))
    return where(lt(x, _MIDDLE), near * half if order else near, far)


def _in_float64(order: int):
    def reference(input):
        wide = np.asarray(input, np.float64)
        found = _scaled(wide, order)
        return np.asarray(found * np.sign(wide) if order else found).astype(np.asarray(input).dtype)

    return reference


def _rule_of_first(g: Any, input: Any, out: Any) -> Any:
    whole = where(eq(input, 0.0), 1.0, input)
    slope = where(eq(input, 0.0), 0.5, i0e(input) - out * (sign(input) + 1.0 / whole))
    return g * slope


i0e = elementwise(
    "i0e",
    lambda input: _scaled(input, 0),
    reference=_in_float64(0),
    result="float",
    grad=lambda g, input, out: g * (i1e(input) - sign(input) * out),
    lower=lowering.extern("sums 48 terms in float64"),
    samples=unary_samples(low=-3.0, high=30.0),
    inplace=False,
    method=False,
    doc="Compute exp(-|x|) I0(x), of the modified Bessel function of order 0.",
)

i1e = elementwise(
    "i1e",
    lambda input: _scaled(input, 1),
    reference=_in_float64(1),
    result="float",
    grad=_rule_of_first,
    lower=lowering.extern("sums 48 terms in float64"),
    samples=unary_samples(low=-3.0, high=30.0),
    inplace=False,
    method=False,
    doc="Compute exp(-|x|) I1(x), of the modified Bessel function of order 1.",
)
