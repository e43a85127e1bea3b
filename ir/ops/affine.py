"""Numbers as multiples of a scale: quantised, dequantised, and layers of bytes.

    q = clamp(round(x * (1 / scale)) + zero_point, low, high)        halves to the even one
    x = (q - zero_point) * scale

The arithmetic is float32's, in this order, and so the same wherever it is fused.  Layers of bytes sum exactly
in int32, and scale once:

    quantized_linear(q, w, b, sx, sw) = float32(sum of (q - zero_point) * w + b) * (sx * sw)

with w one scale for each output channel and b in units of sx * sw.  What hangs on weights alone (the sums of
w that a zero point asks for, the product of the scales) is computed once where weights are frozen.

Source: Jacob et al., Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only
Inference, 2018.
"""

from __future__ import annotations

from typing import Any

from .. import lowering
from ..dtypes import DType, as_dtype, float32, float64, int8, int32, uint8
from ..errors import ArgumentValueError, DTypeError, ShapeError
from ..op import Op, define
from ..sample import Operand, Sample
from ..shapes import broadcast_shapes, common_device
from ..types import Type, type_of
from .cast import cast, dtype_of
from .conv import conv_attrs
from .extremes import clamp
from .powers import reciprocal
from .quantized import int_conv1d, int_conv2d, int_matmul
from .reduce import sum
from .rounding import round
from .sliding import SAMPLE_SIZES
from .view import permute, reshape

RANGES: dict[DType, tuple[int, int]] = {int8: (-128, 127), uint8: (0, 255)}


# ---- one tensor
def _need_scale(op: str, scale: Type) -> None:
    if scale.dtype not in (float32, float64):
        raise DTypeError(f"{op}: scale must be float32, not {scale.dtype.name}", "scale.float()")


def bind_quantize(input, scale, *, zero_point=0, dtype=uint8, low=None, high=None):
    """Round multiples of `scale` to integers: clamp(round(input * (1 / scale)) + zero_point, low, high).

    Halves go to the even one.  Shapes: [...], f32 that broadcasts with it -> u8 or i8 [...].  low, high: by
    default all that `dtype` holds.  Raises DTypeError, ArgumentValueError for limits that it does not hold.
    """
    found = as_dtype(dtype)
    if found not in RANGES:
        raise ArgumentValueError(f"quantize_affine: dtype must be int8 or uint8, not {dtype!r}")
    least, most = RANGES[found]
    low, high = (least if low is None else int(low)), (most if high is None else int(high))
    if not least <= low <= int(zero_point) <= high <= most:
        raise ArgumentValueError(
            f"quantize_affine: low <= zero_point <= high, within {least} to {most} of {found.name}",
            f"low={low}, zero_point={zero_point}, high={high}",
        )
    return (input, scale), {"zero_point": int(zero_point), "low": low, "high": high, "dtype": found}


def infer_quantize(input: Type, scale: Type, *, zero_point: int, low: int, high: int, dtype: DType) -> Type:
    if not input.dtype.is_floating_point:
        raise input.dtype.refused("quantize_affine", "cast with .float()")
    _need_scale("quantize_affine", scale)
    shape = broadcast_shapes("quantize_affine", input.shape, scale.shape)
    return type_of(dtype, shape, common_device("quantize_affine", input, scale))


def _quantized(input: Any, scale: Any, *, zero_point: int, low: int, high: int, dtype: DType) -> Any:
    whole = round(cast(input, dtype=dtype_of(scale)) * reciprocal(scale))
    return cast(clamp(whole + float(zero_point), float(low), float(high)), dtype=dtype)


SCALE = Operand((), 0.01, 0.1, "float32")

quantize_affine = define(
    "quantize_affine",
    operands=("input", "scale"),
    attrs=("zero_point", "low", "high", "dtype"),
    bind=bind_quantize,
    infer=infer_quantize,
    reference=_quantized,
    lower=lowering.decomposition(_quantized),
    dtypes="float",
    method=False,
    samples=lambda: [
        *(Sample((Operand(shape), SCALE)) for shape in ((), (0,), (1,), (17,), (33,), (3, 17))),
        Sample((Operand((2, 3, 4)), SCALE), {"zero_point": 100}),
        Sample((Operand((3, 4)), SCALE), {"dtype": int8, "low": -127, "zero_point": -3}),
        Sample((Operand((3, 4)), Operand((3, 1), 0.01, 0.1, "float32")), {"dtype": int8}),
    ],
)


def bind_dequantize(input, scale, *, zero_point=0):
    """Give back what bytes stand for: (input - zero_point) * scale.

    Shapes: u8 or i8 [...], f32 that broadcasts with it -> f32 [...].  Raises DTypeError.
    """
    return (input, scale), {"zero_point": int(zero_point)}


def infer_dequantize(input: Type, scale: Type, *, zero_point: int) -> Type:
    if input.dtype not in RANGES:
        raise DTypeError(f"dequantize_affine: input must be int8 or uint8, not {input.dtype.name}")
    _need_scale("dequantize_affine", scale)
    shape = broadcast_shapes("dequantize_affine", input.shape, scale.shape)
    return type_of(scale.dtype, shape, common_device("dequantize_affine", input, scale))


def _dequantized(input: Any, scale: Any, *, zero_point: int) -> Any:
    real = cast(input, dtype=dtype_of(scale))
    return (real - float(zero_point) if zero_point else real) * scale


dequantize_affine = define(
    "dequantize_affine",
    operands=("input", "scale"),
    attrs=("zero_point",),
    bind=bind_dequantize,
    infer=infer_dequantize,
    reference=_dequantized,
    lower=lowering.decomposition(_dequantized),
    dtypes="byte",
    method=False,
    samples=lambda: [
        *(Sample((Operand(shape, 0, 100), SCALE)) for shape in ((), (0,), (1,), (17,), (33,), (3, 17))),
        Sample((Operand((2, 3, 4), 0, 100), SCALE), {"zero_point": 50}),
        Sample((Operand((3, 4), 0, 100), Operand((3, 1), 0.01, 0.1, "float32"))),
    ],
)


# ---- layers of bytes
def _offset(weight: Any, bias: Any, zero_point: int) -> Any:
    """What is added to the sums of a layer, for each output channel; None for nothing."""
    if not zero_point:
        return bias
    terms = sum(weight, dim=tuple(range(1, weight.ndim)), dtype=int32) * -zero_point
    return terms if bias is None else terms + bias


def _scaled(total: Any, offset: Any, scale: Any, places: int) -> Any:
    """Sums of a layer as the numbers that they stand for; channels stand before `places` dimensions."""
    if places and scale.ndim:
        scale = reshape(scale, (*scale.shape, *(1,) * places))
    if offset is not None:
        total = total + (reshape(offset, (*offset.shape, *(1,) * places)) if places else offset)
    return cast(total, dtype=dtype_of(scale)) * scale


def _check_layer(op: str, input: Type, weight: Type, bias: Type | None, *scales: Type) -> None:
    """Raise what does not fit of a layer's operands."""
    if input.dtype not in RANGES or weight.dtype is not int8:
        raise DTypeError(
            f"{op}: input must be int8 or uint8, and weight int8",
            f"input: {input.dtype.name}, weight: {weight.dtype.name}; quantize_affine(x, scale) makes bytes",
        )
    outs = weight.shape[0] if weight.ndim else 0
    if bias is not None and (bias.dtype is not int32 or bias.shape != (outs,)):
        raise ShapeError(f"{op}: bias must be int32 of {outs} elements, in units of the scales' product")
    for scale in scales:
        _need_scale(op, scale)
    if scales[0].dtype is not scales[1].dtype:
        raise DTypeError(f"{op}: input_scale is {scales[0].dtype.name}, weight_scale {scales[1].dtype.name}")
    if scales[0].ndim or scales[1].shape not in ((), (outs,)):
        raise ShapeError(
            f"{op}: input_scale is one number, weight_scale one or one for each of {outs} outputs"
        )


def bind_quantized_linear(input, weight, bias, input_scale, weight_scale, *, zero_point=0):
    """Compute ((input - zero_point) @ weight.T + bias) * (input_scale * weight_scale) of bytes.

    Shapes: u8 or i8 [..., k], i8 [o, k], i32 [o] or None, f32 [], f32 [o] or [] -> f32 [..., o].
    Raises ShapeError, DTypeError.
    """
    return (input, weight, bias, input_scale, weight_scale), {"zero_point": int(zero_point)}


def infer_quantized_linear(
    input: Type, weight: Type, bias: Type | None, input_scale: Type, weight_scale: Type, *, zero_point: int
) -> Type:
    _check_layer("quantized_linear", input, weight, bias, input_scale, weight_scale)
    if weight.ndim != 2 or not input.ndim or input.shape[-1] != weight.shape[1]:
        raise ShapeError(
            "quantized_linear: the last dimension of input must be weight's second one",
            f"input: {list(input.shape)}, weight: {list(weight.shape)}",
        )
    given = [t for t in (input, weight, bias, input_scale, weight_scale) if t is not None]
    shape = (*input.shape[:-1], weight.shape[0])
    return type_of(input_scale.dtype, shape, common_device("quantized_linear", *given))


def _linear(
    input: Any, weight: Any, bias: Any, input_scale: Any, weight_scale: Any, *, zero_point: int
) -> Any:
    rows = input if input.ndim > 1 else reshape(input, (1, *input.shape))
    total = int_matmul(rows, permute(weight, (1, 0)))
    y = _scaled(total, _offset(weight, bias, zero_point), input_scale * weight_scale, 0)
    return y if input.ndim > 1 else reshape(y, y.shape[1:])


def _layer_sample(x: tuple, w: tuple, bias: bool = True, **how: Any) -> Sample:
    byte, wide = {"low": 0, "high": 100}, {"low": -100, "high": 100}
    scales = SCALE, Operand((w[0],), 0.01, 0.1, "float32")
    added = Operand((w[0],), -999, 999, "int32") if bias else None
    return Sample((Operand(x, **byte), Operand(w, **wide, category="int8"), added, *scales), how)


quantized_linear = define(
    "quantized_linear",
    operands=("input", "weight", "bias", "input_scale", "weight_scale"),
    optional=("bias",),
    attrs=("zero_point",),
    bind=bind_quantized_linear,
    infer=infer_quantized_linear,
    reference=_linear,
    lower=lowering.decomposition(_linear),
    dtypes="byte",
    method=False,
    samples=lambda: [
        _layer_sample((1, 17), (33, 17)),
        _layer_sample((0, 4), (5, 4), bias=False),
        _layer_sample((6,), (3, 6), zero_point=7),
        _layer_sample((2, 3, 4), (2, 4), zero_point=50),
        _layer_sample((2, 4), (2, 4), bias=False, zero_point=50),
    ],
    inapplicable={"0-d": "a row is needed"},
)


def _make_conv(n: int, product: Op) -> Op:
    op, spatial = f"quantized_conv{n}d", "".join(f", {d}" for d in "hw"[-n:])

    def bind(
        input, weight, bias, input_scale, weight_scale, stride=1, padding=0, dilation=1, groups=1, *,
        zero_point=0,
    ):  # fmt: skip
        attrs = conv_attrs(op, n, weight, stride, padding, dilation, groups)
        return (input, weight, bias, input_scale, weight_scale), attrs | {"zero_point": int(zero_point)}

    bind.__doc__ = f"""Compute a convolution of bytes over {n} dimension{"s" * (n > 1)}.

    Shapes: u8 or i8 [n, c{spatial}], i8 [o, c / groups{spatial}], i32 [o] or None, f32 [], f32 [o] or []
    -> f32 [n, o{spatial}].  stride, padding, dilation and groups as in conv{n}d; what is padded are zeros,
    which `zero_point` stands for.  Raises ShapeError, DTypeError, ArgumentValueError.
    """

    def infer(
        input: Type, weight: Type, bias: Type | None, *scales: Type, zero_point: int, **how: Any
    ) -> Type:
        _check_layer(op, input, weight, bias, *scales)
        given = [t for t in (input, weight, bias, *scales) if t is not None]
        kind = product.infer(input, weight, padding_value=zero_point, **how)
        return type_of(scales[0].dtype, kind.shape, common_device(op, *given))

    def run(input: Any, weight: Any, bias: Any, *scales: Any, zero_point: int, **how: Any) -> Any:
        total = product(input, weight, **how, padding_value=zero_point)
        return _scaled(total, _offset(weight, bias, zero_point), scales[0] * scales[1], n)

    def samples() -> list[Sample]:
        x, k = (7, 5)[:n], (3, 2)[:n]
        return [
            _layer_sample((2, 3, *x), (4, 3, *k), stride=2, padding=1, zero_point=3),
            _layer_sample((2, *x), (3, 2, *k), bias=False, padding=1, zero_point=50),
            _layer_sample((1, 4, *x), (6, 2, *k), dilation=(1, 2)[:n], groups=2),
        ]

    return define(
        op,
        operands=("input", "weight", "bias", "input_scale", "weight_scale"),
        optional=("bias",),
        attrs=("stride", "padding", "dilation", "groups", "zero_point"),
        bind=bind,
        infer=infer,
        reference=run,
        lower=lowering.decomposition(run),
        dtypes="byte",
        method=False,
        samples=samples,
        inapplicable=SAMPLE_SIZES,
    )


quantized_conv1d, quantized_conv2d = _make_conv(1, int_conv1d), _make_conv(2, int_conv2d)
