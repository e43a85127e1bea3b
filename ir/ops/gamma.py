"""The gamma function's logarithm and its derivatives."""

from __future__ import annotations

from math import nan, pi
from typing import Any

from ..elementwise import elementwise
from ..kernel import special
from ..sample import unary_samples
from .compare import eq, lt, where
from .math import log, sin, tan
from .powers import square
from .rounding import floor

_ABOVE_ZERO = {"low": 1.6, "high": 4.0}  # away from the zeros, where a result has few digits in any dtype
# Abramowitz and Stegun 6.3.18 and 6.4.12, in powers of 1 / z^2; beyond z = 10.5 the next term is below 1e-16
_DIGAMMA = (-1 / 12, 1 / 120, -1 / 252, 1 / 240, -1 / 132, 691 / 32760, -1 / 12)
_TRIGAMMA = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)
_SHIFT = 10


def _series(x: Any, coefficients: tuple[float, ...]) -> Any:
    """Horner's rule for c0 + c1 x + c2 x^2 + …"""
    total: Any = coefficients[-1]
    for c in coefficients[-2::-1]:
        total = total * x + c
    return total


def _digamma_body(input: Any) -> Any:
    """By reflection below 1/2, by the recurrence up to z > 10, there by the asymptotic series."""
    below = lt(input, 0.5)
    y = where(below, 1.0 - input, input)
    z = y + float(_SHIFT)
    inverse = 1.0 / (z * z)
    value = log(z) - 0.5 / z + inverse * _series(inverse, _DIGAMMA)
    for k in range(_SHIFT):
        value = value - 1.0 / (y + float(k))
    part = where(below, input - floor(input), 0.25)
    pole = where(eq(input, 0.0), -1.0 / input, nan)  # at 0 an infinity by the sign of the zero
    return where(below, where(eq(part, 0.0), pole, value - pi / tan(part * pi)), value)


def _trigamma_body(input: Any) -> Any:
    """As `_digamma_body`."""
    below = lt(input, 0.5)
    y = where(below, 1.0 - input, input)
    z = y + float(_SHIFT)
    inverse = 1.0 / (z * z)
    value = (inverse * _series(inverse, _TRIGAMMA) + 1.0) / z + 0.5 * inverse
    for k in range(_SHIFT):
        value = value + 1.0 / square(y + float(k))
    # The distance to the nearest whole number, so that the sine keeps its digits beside one
    part = where(below, input - floor(input + 0.5), 0.25)
    return where(below, square(pi / sin(part * pi)) - value, value)


trigamma = elementwise(
    "trigamma",
    _trigamma_body,
    result="float",
    samples=unary_samples(**_ABOVE_ZERO),
    method=False,
    doc="Compute the derivative of digamma: polygamma(1, input).  Source: Abramowitz and Stegun 6.4.",
)

digamma = elementwise(
    "digamma",
    _digamma_body,
    reference=special.digamma,
    result="float",
    grad=lambda g, input: g * trigamma(input),
    samples=unary_samples(**_ABOVE_ZERO),
    doc="Compute the derivative of lgamma, NaN at the negative integers.  Source: Abramowitz and Stegun 6.3.",
)

lgamma = elementwise(
    "lgamma",
    "lgamma",
    reference=special.lgamma,
    result="float",
    grad=lambda g, input: g * digamma(input),
    samples=unary_samples(low=2.2, high=4.0),
    doc="Compute the logarithm of |gamma(input)|; inf at 0 and the negative integers.",
)
