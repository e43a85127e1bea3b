"""Rounding, and the replacement of what is not finite."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..dtypes import bfloat16, float16, float32, float64
from ..elementwise import elementwise
from ..kernel import scalar
from ..op import REGISTRY, composite
from ..sample import sample, unary_samples
from .arithmetic import zero
from .cast import dtype_of
from .compare import isnan, isneginf, isposinf, where
from .complex import imag, real

_BETWEEN = unary_samples(low=-2.0, high=2.0, away_from=(-2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0))


def _rounding(name: str, ufunc: np.ufunc, aliases: tuple[str, ...], doc: str) -> Any:
    return elementwise(
        name,
        name,
        # An integer is its own floor; NumPy before 2.1 would make floats of integers
        reference=lambda input: ufunc(input) if input.dtype.kind == "f" else input.copy("K"),
        dtypes="number",
        aliases=aliases,
        samples=_BETWEEN,
        grad=zero,
        doc=f"{doc}  Integers stay as they are; the gradient is 0.",
    )


floor = _rounding("floor", np.floor, (), "Round down.")
ceil = _rounding("ceil", np.ceil, (), "Round up.")
trunc = _rounding("trunc", np.trunc, ("fix",), "Round towards 0.")


def bind_round(input, *, decimals=0):
    """Round to the nearest integer, halves to the even one, or to `decimals` digits after the point.

    Integers stay as they are; the gradient is 0.
    """
    return (input,), {"decimals": decimals}


def _round_body(input: Any, *, decimals: int) -> Any:
    if decimals < 0:
        return scalar.op("round", input / 10.0**-decimals) * 10.0**-decimals
    return (
        scalar.op("round", input * 10.0**decimals) / 10.0**decimals if decimals else scalar.op("round", input)
    )


def _round(input: np.ndarray, *, decimals: int) -> np.ndarray:
    if input.dtype.kind != "f":
        return input.copy("K")
    if decimals < 0:
        return np.rint(input / 10.0**-decimals) * 10.0**-decimals
    return np.rint(input * 10.0**decimals) / 10.0**decimals if decimals else np.rint(input)


round = elementwise(
    "round",
    _round_body,
    bind=bind_round,
    reference=_round,
    attrs=("decimals",),
    dtypes="number",
    samples=lambda: [*_BETWEEN(), sample((5,), decimals=1, differentiable=False)],
    grad=zero,
)

frac = elementwise(
    "frac",
    lambda input: input - trunc(input),
    reference=lambda input: input - np.trunc(input),
    dtypes="float",
    samples=_BETWEEN,
    grad=lambda g: g,
    doc="Give what follows the point, with the input's sign: input - trunc(input).  Raises DTypeError for "
    "integers.",
)


# The greatest finite number of each floating type.
GREATEST = {d: float(np.finfo(d.numpy).max) for d in (float64, float32, float16)} | {
    bfloat16: (2 - 2**-7) * 2.0**127
}


@composite(inplace=True, fresh=True)
def nan_to_num(input, nan=0.0, posinf=None, neginf=None):
    """Replace NaN by `nan` and the infinities by `posinf` and `neginf`, the dtype's extremes if None."""
    dtype = dtype_of(input)
    if dtype.is_complex:
        parts = (nan_to_num(part, nan, posinf, neginf) for part in (real(input), imag(input)))
        return REGISTRY["complex"](*parts)
    if not dtype.is_floating_point:
        return input
    high = GREATEST[dtype] if posinf is None else posinf
    low = -GREATEST[dtype] if neginf is None else neginf
    return where(isnan(input), nan, where(isposinf(input), high, where(isneginf(input), low, input)))
