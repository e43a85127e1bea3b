"""Functions of real numbers: exponentials, logarithms, trigonometry, the error function, some of two."""

from __future__ import annotations

from collections.abc import Callable
from math import log as number_log
from math import nan, pi
from math import sqrt as number_root
from typing import Any

import numpy as np

from .. import lowering
from ..elementwise import elementwise
from ..kernel import special
from ..op import Op
from ..sample import Operand, binary_samples, sample, unary_samples
from .arithmetic import BOTH, zero
from .cast import type_as
from .compare import eq, gt, le, logical_and, logical_or, lt, ne, where
from .complex import is_complex_valued
from .extremes import fmax, fmin, maximum
from .powers import rsqrt, sqrt

_LN2, _LN10 = number_log(2.0), number_log(10.0)
_ANY = {"low": -2.0, "high": 2.0}
_POSITIVE = {"low": 0.2, "high": 3.0}
_INSIDE = {"low": -0.9, "high": 0.9}
_AWAY_FROM_ZERO = binary_samples({"low": -2.0, "high": 2.0}, {"low": 0.5, "high": 3.0})


def _function(
    name: str,
    reference: Callable,
    grad: Callable,
    domain: dict[str, float],
    doc: str,
    aliases: tuple[str, ...] = (),
    complex: str | None = "analytic",
) -> Op:
    """Enter a function that is one word of the kernel form.  Integers give the default float."""
    return elementwise(
        name,
        name,
        reference=reference,
        result="float",
        grad=grad,
        samples=unary_samples(**domain),
        aliases=aliases,
        complex=complex,
        doc=f"{doc}  Integers give the default float.",
    )


# --- exponentials and logarithms ----------------------------------------------------------------------------


def _log1p(input: np.ndarray) -> np.ndarray:
    """np.log1p, exactly near 0 of complex numbers too: |1 + z|^2 - 1 is (2 + x) x + y^2."""
    found = np.log1p(input)
    if input.dtype.kind != "c":
        return found
    x, y = input.real, input.imag
    with np.errstate(all="ignore"):
        near = np.log1p((2 + x) * x + y * y) / 2
    found = np.asarray(found)
    found.real = np.where((abs(x) < 0.5) & (abs(y) < 0.5), near, found.real)
    return found


exp = _function("exp", np.exp, lambda g, out: g * out, _ANY, "Compute e to the power of the input.")
exp2 = _function("exp2", np.exp2, lambda g, out: g * out * _LN2, _ANY, "Compute 2 to the power of the input.")
expm1 = _function(
    "expm1", np.expm1, lambda g, out: g * (out + 1.0), _ANY, "Compute exp(input) - 1, exactly near 0."
)
log = _function("log", np.log, lambda g, input: g / input, _POSITIVE, "Take the natural logarithm.")
log2 = _function(
    "log2", np.log2, lambda g, input: g / (input * _LN2), _POSITIVE, "Take the logarithm to base 2."
)
log10 = _function(
    "log10", np.log10, lambda g, input: g / (input * _LN10), _POSITIVE, "Take the logarithm to base 10."
)
log1p = _function(
    "log1p",
    _log1p,
    lambda g, input: g / (input + 1.0),
    _POSITIVE,
    "Compute log(1 + input), exactly near 0.",
)

# --- trigonometry -------------------------------------------------------------------------------------------

sin = _function("sin", np.sin, lambda g, input: g * cos(input), _ANY, "Take the sine.")
cos = _function("cos", np.cos, lambda g, input: -g * sin(input), _ANY, "Take the cosine.")
tan = _function(
    "tan", np.tan, lambda g, out: g * (1.0 + out * out), {"low": -1.3, "high": 1.3}, "Take the tangent."
)
asin = _function(
    "asin",
    np.arcsin,
    lambda g, input: g * rsqrt(1.0 - input * input),
    _INSIDE,
    "Invert the sine.",
    ("arcsin",),
)
acos = _function(
    "acos",
    np.arccos,
    lambda g, input: -g * rsqrt(1.0 - input * input),
    _INSIDE,
    "Invert the cosine.",
    ("arccos",),
)
atan = _function(
    "atan", np.arctan, lambda g, input: g / (input * input + 1.0), _ANY, "Invert the tangent.", ("arctan",)
)
sinh = _function("sinh", np.sinh, lambda g, input: g * cosh(input), _ANY, "Take the hyperbolic sine.")
cosh = _function("cosh", np.cosh, lambda g, input: g * sinh(input), _ANY, "Take the hyperbolic cosine.")
tanh = _function("tanh", np.tanh, lambda g, out: g * (1.0 - out * out), _ANY, "Take the hyperbolic tangent.")
asinh = _function(
    "asinh", np.arcsinh, lambda g, input: g * rsqrt(input * input + 1.0), _ANY, "Invert sinh.", ("arcsinh",)
)


def _slope_of_acosh(input: Any) -> Any:
    if is_complex_valued(input):  # in one root, the left half of the plane would have the other sign
        return rsqrt(input - 1.0) * rsqrt(input + 1.0)
    return rsqrt(input * input - 1.0)


acosh = _function(
    "acosh",
    np.arccosh,
    lambda g, input: g * _slope_of_acosh(input),
    {"low": 1.2, "high": 3.0},
    "Invert cosh.",
    ("arccosh",),
)
atanh = _function(
    "atanh", np.arctanh, lambda g, input: g / (1.0 - input * input), _INSIDE, "Invert tanh.", ("arctanh",)
)


def _conversion(name: str, factor: float, doc: str) -> Op:
    return elementwise(
        name,
        lambda input: input * factor,
        result="float",
        grad=lambda g: g * factor,
        samples=unary_samples(),
        doc=doc,
    )


deg2rad = _conversion("deg2rad", pi / 180, "Convert degrees to radians.")
rad2deg = _conversion("rad2deg", 180 / pi, "Convert radians to degrees.")


def _sinc_body(input: Any) -> Any:
    """Where the input is 0 the quotient is taken of 1 and 1, so that no gradient of any order meets 0 / 0."""
    zero = eq(input, 0.0)
    scaled = where(zero, 1.0, input * pi)
    return where(zero, 1.0, sin(scaled) / scaled)


sinc = elementwise(
    "sinc",
    _sinc_body,
    result="float",
    samples=unary_samples(low=0.2, high=2.0),
    doc="Compute sin(pi * input) / (pi * input), which is 1 at 0.",
    complex="analytic",
)

# --- sigmoids and errors ------------------------------------------------------------------------------------


def _sigmoid(input: np.ndarray) -> np.ndarray:
    return np.reciprocal(np.exp(np.negative(input)) + 1)


sigmoid = _function(
    "sigmoid", _sigmoid, lambda g, out: g * ((1.0 - out) * out), _ANY, "Compute 1 / (1 + exp(-input))."
)


def bind_logit(input, eps=None):
    """Compute log(input / (1 - input)), the inverse of sigmoid.

    The input is first limited to [eps, 1 - eps], unless eps is None.  The gradient is 0 beyond the limits
    and NaN outside [0, 1] where there are none.
    """
    return (input,), {"eps": eps}


def _logit_grad(g: Any, input: Any, eps: float | None) -> Any:
    low, beyond = (0.0, nan) if eps is None else (eps, 0.0)
    return where(logical_or(lt(input, low), gt(input, 1.0 - low)), beyond, g / (input * (1.0 - input)))


def _logit_body(input: Any, *, eps: float | None) -> Any:
    if eps is not None:
        input = where(input < eps, eps, where(input > 1.0 - eps, 1.0 - eps, input))
    return log(input / (1.0 - input))


logit = elementwise(
    "logit",
    _logit_body,
    bind=bind_logit,
    attrs=("eps",),
    result="float",
    grad=_logit_grad,
    samples=lambda: [
        *unary_samples(low=0.1, high=0.9)(),
        sample(Operand((17,), 0.0, 1.0, away_from=(0.25, 0.75)), eps=0.25),
    ],
)

erf = _function(
    "erf",
    special.erf,
    lambda g, input: g * exp(-(input * input)) * (2 / number_root(pi)),
    _ANY,
    "Compute the error function.",
    complex=None,
)
erfc = _function(
    "erfc", special.erfc, lambda g, input: g * exp(-(input * input)) * (-2 / number_root(pi)), _ANY,
    "Compute 1 - erf(input), exactly in the tail.", complex=None,
)  # fmt: skip
erfinv = _function(
    "erfinv",
    special.erfinv,
    lambda g, out: g * exp(out * out) * (number_root(pi) / 2),
    _INSIDE,
    "Invert the error function.",
    complex=None,
)

# --- of two numbers -----------------------------------------------------------------------------------------


def _hypot_body(input: Any, other: Any) -> Any:
    """Scaled by the greater, so that no square overflows."""
    a, b = abs(input), abs(other)
    great, small = fmax(a, b), fmin(a, b)
    ratio = small / great
    plain = where(eq(great, 0.0), great, great * sqrt(1.0 + ratio * ratio))
    plain = where(ne(a + b, a + b), a + b, plain)
    return where(eq(great, float("inf")), great, plain)


hypot = elementwise(
    "hypot",
    _hypot_body,
    reference=np.hypot,
    operands=BOTH,
    dtypes="float",
    commutative=True,
    samples=_AWAY_FROM_ZERO,
    grad=(lambda g, input, out: g * (input / out), lambda g, other, out: g * (other / out)),
    doc="Compute sqrt(input^2 + other^2) without overflow in between.",
)


def _turned(g: Any, input: Any, other: Any) -> Any:
    """g over the squared distance from the origin, 0 there."""
    distance = input * input + other * other
    origin = eq(distance, 0)
    return where(origin, 0.0, g / where(origin, 1.0, distance))


atan2 = elementwise(
    "atan2",
    "atan2",
    reference=np.arctan2,
    operands=BOTH,
    result="float",
    aliases=("arctan2",),
    samples=_AWAY_FROM_ZERO,
    grad=(
        lambda g, input, other: _turned(g * other, input, other),
        lambda g, input, other: _turned(-g * input, input, other),
    ),
    doc="Give the angle of the point (x=other, y=input), in radians from -pi to pi.  The gradient at the "
    "origin is 0.",
)

copysign = elementwise(
    "copysign",
    "copysign",
    reference=np.copysign,
    operands=BOTH,
    result="float",
    samples=binary_samples({"away_from": (0.0,)}),
    grad=(lambda g, input, out: where(eq(input, 0), 0.0, g * (out / input)), zero),
    doc="Give `input` the sign of `other`, that of -0.0 included.  The gradient is 0 where the input is 0.",
)


def _logaddexp_body(input: Any, other: Any) -> Any:
    """From the greater; two equal infinities are their own sum."""
    infinite = logical_and(eq(input, other), eq(abs(input), float("inf")))
    return where(infinite, input, maximum(input, other) + log1p(exp(-abs(input - other))))


def logaddexp_of(input: np.ndarray, other: np.ndarray) -> np.ndarray:
    """np.logaddexp, of complex numbers too: from the one whose exponential is the longer."""
    if input.dtype.kind != "c":
        return np.logaddexp(input, other)
    first = input.real >= other.real
    great, small = np.where(first, input, other), np.where(first, other, input)
    return np.where((great == small) & np.isinf(great), great, great + _log1p(np.exp(small - great)))


logaddexp = elementwise(
    "logaddexp",
    _logaddexp_body,
    reference=logaddexp_of,
    operands=BOTH,
    dtypes="float",
    complex="analytic",
    commutative=True,
    grad=(
        lambda g, input, other: g * sigmoid(input - other),
        lambda g, input, other: g * sigmoid(other - input),
    ),
    doc="Compute log(exp(input) + exp(other)) without overflow in between.",
)

xlogy = elementwise(
    "xlogy",
    lambda input, other: where(logical_and(eq(input, 0), eq(other, other)), 0.0, input * log(other)),
    operands=BOTH,
    result="float",
    samples=binary_samples({"low": 0.2, "high": 2.0}),
    grad=(
        lambda g, input, other: where(logical_and(eq(input, 0), le(other, 0)), 0.0, g * log(other)),
        lambda g, input, other: g * (input / other),
    ),
    doc="Compute input * log(other), which is 0 where the input is 0 (unless other is NaN).",
)


def _step(input: Any, values: Any) -> Any:
    return where(eq(input, 0), values, type_as(gt(input, 0), input))


heaviside = elementwise(
    "heaviside",
    _step,
    lower=lowering.decomposition(_step),
    reference=lambda input, values: np.where(input == 0, values, (input > 0).astype(input.dtype)),
    operands=("input", "values"),
    grad=(zero, lambda g, input: where(eq(input, 0), g, 0.0)),
    doc="Step: 0 below 0, 1 above, and `values` at 0.",
)
