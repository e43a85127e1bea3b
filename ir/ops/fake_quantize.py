"""Quantisation that trains: rounding whose gradient goes straight through.

    y = (clamp(round(x * (1 / scale)) + zero_point, quant_min, quant_max) - zero_point) * scale
    dx = dy where the number lies within the limits, else 0

The numbers are those of quantize_affine and dequantize_affine (affine.py).
"""

from __future__ import annotations

from typing import Any

from ..dtypes import DType
from ..elementwise import elementwise
from ..errors import ArgumentError, ShapeError
from ..kernel import scalar
from ..op import composite
from ..sample import SIZES, Operand, Sample
from ..shapes import dim_of
from ..types import Type
from .compare import ge, le, where
from .extremes import clamp, maximum, minimum
from .powers import reciprocal
from .rounding import round
from .view import reshape


def _steps(input: Any, scale: Any, zero_point: Any) -> Any:
    return scalar.op("round", input * (1.0 / scale)) + zero_point


def _faked(input: Any, scale: Any, zero_point: Any, *, quant_min: int, quant_max: int) -> Any:
    held = minimum(maximum(_steps(input, scale, zero_point), float(quant_min)), float(quant_max))
    return (held - zero_point) * scale


def _faked_reference(input: Any, scale: Any, zero_point: Any, *, quant_min: int, quant_max: int) -> Any:
    steps = round(input * reciprocal(scale)) + zero_point
    return (clamp(steps, quant_min, quant_max) - zero_point) * scale


def _faked_grad(g: Any, input: Any, scale: Any, zero_point: Any, quant_min: int, quant_max: int) -> Any:
    """Straight through where the number lies within the limits."""
    steps = round(input * reciprocal(scale)) + zero_point
    return where(ge(steps, float(quant_min)) & le(steps, float(quant_max)), g, 0.0)


def _fake_result(input: Type, scale: Type, zero_point: Type, **_: Any) -> tuple[DType, DType]:
    return input.dtype.compute, input.dtype


def bind_faked(input, scale, zero_point, *, quant_min, quant_max):
    """Round to what integers of a scale and a zero point can stand for, all of which broadcast.

    The gradient passes where the number lies within the limits.
    """
    return (input, scale, zero_point), {"quant_min": int(quant_min), "quant_max": int(quant_max)}


# Operands of samples: few steps of a wide scale, so that what is rounded stays far from halves.
UNIT, ZERO, TWO = Operand((), 0.9, 1.0), Operand((), 0.0, 0.0), Operand((3, 1), 2.0, 2.0)

_fake_quantize = elementwise(
    "_fake_quantize",
    _faked,
    reference=_faked_reference,
    operands=("input", "scale", "zero_point"),
    attrs=("quant_min", "quant_max"),
    bind=bind_faked,
    result=_fake_result,
    grad=(_faked_grad, None, None),
    dtypes="float",
    inplace=False,
    method=False,
    samples=lambda: [
        *(Sample((Operand(shape), UNIT, ZERO), {"quant_min": 0, "quant_max": 1}, False) for shape in SIZES),
        Sample((Operand((3, 17)), UNIT, ZERO), {"quant_min": -1, "quant_max": 1}, False),
        Sample((Operand((3, 4)), Operand((3, 1), 0.1, 0.2), TWO), {"quant_min": -9, "quant_max": 9}, False),
    ],
)


def _limits(call: str, quant_min: int, quant_max: int, zero_point: Any) -> None:
    if quant_min > quant_max:
        raise ArgumentError(f"{call}: `quant_min` should be less than or equal to `quant_max`")
    if isinstance(zero_point, int) and not quant_min <= zero_point <= quant_max:
        raise ArgumentError(f"{call}: `zero_point` must be between `quant_min` and `quant_max`")


@composite(method=False)
def fake_quantize_per_tensor_affine(input, scale, zero_point, quant_min, quant_max):
    """Round to what integers from `quant_min` to `quant_max` stand for, with one scale and zero point.

    The gradient passes straight through where the number lies within the limits, and is 0 elsewhere.
    Raises ArgumentError for limits that are not in order, or a zero point outside of them.
    """
    _limits("fake_quantize_per_tensor_affine", quant_min, quant_max, zero_point)
    return _fake_quantize(input, scale, zero_point, quant_min=quant_min, quant_max=quant_max)


@composite(method=False)
def fake_quantize_per_channel_affine(input, scale, zero_point, axis, quant_min, quant_max):
    """Round to what integers stand for, with a scale and a zero point for each index along `axis`.

    The gradient is as of fake_quantize_per_tensor_affine.  Shapes: [..., n, ...], [n], [n] -> that of input.
    Raises ShapeError, ArgumentError.
    """
    call = "fake_quantize_per_channel_affine"
    _limits(call, quant_min, quant_max, None)
    axis = dim_of(call, axis, input.ndim)
    wanted = (input.shape[axis],)
    if tuple(scale.shape) != wanted or tuple(zero_point.shape) != wanted:
        raise ShapeError(
            f"{call}: scale and zero_point have one element for each of {wanted[0]} along axis {axis}",
            f"scale: {list(scale.shape)}, zero_point: {list(zero_point.shape)}",
        )
    shape = tuple(wanted[0] if d == axis else 1 for d in range(input.ndim))
    return _fake_quantize(
        input, reshape(scale, shape), reshape(zero_point, shape), quant_min=quant_min, quant_max=quant_max
    )
