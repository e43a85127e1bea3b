"""Functions of whole numbers, and of how floats are written: gcd, lcm, nextafter, frexp, ldexp."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import lowering
from ..dtypes import complex128, float64, int32
from ..elementwise import elementwise
from ..errors import DTypeError
from ..op import Traits, composite, define
from ..sample import binary_samples, unary_samples
from ..shapes import result_dtype
from ..types import Type
from .arithmetic import BOTH, mul, zero
from .arithmetic import abs as magnitude
from .cast import cast, dtype_of
from .compare import eq, where
from .complex import is_complex_valued
from .extremes import maximum
from .math import exp2, log1p
from .powers import pow as power

_HOST = lowering.extern("the kernel form has no word for it")


def _whole(name: str, ufunc: np.ufunc, doc: str) -> Any:
    def result(*types: Type) -> tuple:
        dtype = result_dtype(*types)
        if dtype.category != "int":
            raise DTypeError(f"{name}: takes integers, not {dtype.name}", "convert an operand: x.int()")
        return dtype, dtype

    return elementwise(
        name,
        ufunc,
        reference=ufunc,
        operands=BOTH,
        result=result,
        dtypes="int",
        grad=None,
        commutative=True,
        lower=_HOST,
        samples=binary_samples({"low": -20, "high": 20, "category": "int"}),
        doc=doc,
    )


gcd = _whole("gcd", np.gcd, "Find the greatest common divisor of integers.")
lcm = _whole("lcm", np.lcm, "Find the least common multiple of integers.")


nextafter = elementwise(
    "nextafter",
    np.nextafter,
    reference=np.nextafter,
    operands=BOTH,
    dtypes="float",
    movement=True,
    grad=(lambda g, input, other: where(eq(input, other), 0.0, g), zero),
    lower=_HOST,
    doc="Give the next float after `input` on the way to `other`.",
)


def _infer_frexp(input: Type) -> tuple[Type, Type]:
    if not input.dtype.is_floating_point:
        raise input.dtype.refused("frexp", "convert the operand: x.float()")
    return input, input.with_dtype(int32)


def _vjp_frexp(saved: tuple, cotangents: tuple, attrs: dict, needs: tuple) -> tuple:
    (exponent,), (g, _) = saved, cotangents
    return (None if g is None else g * exp2(cast(-exponent, dtype=dtype_of(g))),)


frexp = define(
    "frexp",
    reference=lambda input: tuple(map(np.asarray, np.frexp(input))),
    infer=_infer_frexp,
    outputs=("mantissa", "exponent"),
    vjp=_vjp_frexp,
    saves=("exponent",),
    lower=_HOST,
    traits=Traits(elementwise=True),
    samples=unary_samples(low=0.55, high=0.95),
    dtypes="float",
    doc="Write floats as mantissa * 2**exponent, with |mantissa| in [1/2, 1) and an int32 exponent.",
)


@composite(inplace=True)
def ldexp(input, other):
    """Compute input * 2**other, in the dtype of `input` where it is floating and `other` integers."""
    kinds = [dtype_of(x) if hasattr(x, "shape") else None for x in (input, other)]
    if None in kinds or not kinds[0].is_floating_point or kinds[1].inexact:
        return mul(input, power(2.0, other))
    return cast(mul(input, power(2.0, cast(other, dtype=kinds[0].compute))), dtype=kinds[0])


@composite(inplace=True)
def float_power(input, exponent):
    """Compute input**exponent in float64, or complex128 if one is complex, whatever their dtypes."""
    any_complex = any(is_complex_valued(x) or isinstance(x, complex) for x in (input, exponent))
    dtype = complex128 if any_complex else float64
    operands = [cast(x, dtype=dtype) if hasattr(x, "shape") else x for x in (input, exponent)]
    return power(*operands)


_LN2 = float(np.log(2.0))


def _logaddexp2_body(input: Any, other: Any) -> Any:
    high = maximum(input, other)
    distance = where(eq(input, other), 0.0, magnitude(input - other))
    return high + log1p(exp2(-distance)) * (1.0 / _LN2)


logaddexp2 = elementwise(
    "logaddexp2",
    _logaddexp2_body,
    reference=np.logaddexp2,
    operands=BOTH,
    dtypes="float",
    commutative=True,
    inplace=False,
    grad=(
        lambda g, input, other: g / (exp2(other - input) + 1.0),
        lambda g, input, other: g / (exp2(input - other) + 1.0),
    ),
    doc="Compute log2(2**input + 2**other) without overflow in between.",
)
