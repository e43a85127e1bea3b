"""Operators on numbers that are stored as whole ones, or in few bits, with a scale and a zero point."""

from __future__ import annotations

from math import prod

import ml_dtypes
import numpy as np

from ....ir.dtypes import DType, float32, float64, from_numpy_dtype, int8, int32, int64, uint8
from ....runtime import Tensor, ops
from ..declared import STANDARD, Node, OnnxError
from ..element_types import element_type
from .cast_nodes import converted, dtype_of
from .conv_nodes import kernel_shape, spatial, windows
from .registry import OPERATORS, Value, as_tensor, axis_of, operator

# What numbers are quantised to, by the names of NumPy's and ml_dtypes' types.
INTEGERS = {"uint8", "int8", "uint16", "int16", "uint4", "int4", "uint2", "int2"}
FLOATS = {"float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"}
FLOATS |= {"float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn"}
LIMITS = {name: (int(ml_dtypes.iinfo(name).min), int(ml_dtypes.iinfo(name).max)) for name in INTEGERS}
BYTES = {"uint8": uint8, "int8": int8}
UINT8 = np.dtype(np.uint8)


def real_of(value: Value, dtype: DType) -> Tensor:
    """A value as a tensor to compute with, whatever few bits it has."""
    if from_numpy_dtype(dtype_of(value)) is None:
        value = converted(value, np.dtype(np.float32))
    return as_tensor(value).to(dtype)


# ---- one tensor
@operator("DequantizeLinear", raw=True)
def dequantize(node: Node, x: Value, scale: Value, zero: Value = None) -> Tensor:
    number = node.attr("output_dtype", 0)
    made = from_numpy_dtype(element_type(number) if number else dtype_of(scale))
    if made is None or not made.is_floating_point or made.storage:
        raise OnnxError(f"DequantizeLinear: it does not make {made}: output_dtype is to say what", str(node))
    scale, zero = _fit(node, x, scale, zero)
    real = real_of(x, float32)
    return ((real if zero is None else real - zero) * scale).to(made)


@operator("QuantizeLinear", raw=True)
def quantize(node: Node, x: Value, scale: Value, zero: Value = None) -> Value:
    number = node.attr("output_dtype", 0)
    to = element_type(number) if number else UINT8 if zero is None else dtype_of(zero)
    if zero is not None and dtype_of(zero) != to:
        raise OnnxError(f"QuantizeLinear: it makes {to}, and the zero point is {dtype_of(zero)}", str(node))
    if to.name not in INTEGERS | FLOATS:
        raise OnnxError(f"QuantizeLinear: it does not make {to}", str(node))
    precise = _precision(node, scale)
    scale, zero = _fit(node, x, scale, zero)
    return stored(real_of(x, precise) / scale.to(precise), zero, to, bool(node.attr("saturate", 1)))


def _precision(node: Node, scale: Value) -> DType:
    """In what QuantizeLinear divides."""
    number = node.attr("precision", 0)
    found = from_numpy_dtype(element_type(number) if number else dtype_of(scale))
    return found if found is not None and found.is_floating_point and not found.storage else float32


def stored(x: Tensor, zero: Tensor | None, to: np.dtype, saturate: bool = True) -> Value:
    """Multiples of a scale as the numbers that stand for them."""
    whole = to.name in INTEGERS
    x = ops.FUNCTIONS["round"](x) if whole else x
    if x.dtype is not float64:  # halves do not hold the sum with a zero point
        x = x.to(float32)
    x = x if zero is None else x + zero
    if whole:
        low, high = LIMITS[to.name]
        x = ops.FUNCTIONS["clamp"](x, low, high)
        if to.name in BYTES:
            return x.to(BYTES[to.name])
    return converted(x, to, saturate)


def _fit(node: Node, x: Value, scale: Value, zero: Value) -> tuple[Tensor, Tensor | None]:
    """A scale and a zero point as they are broadcast with x."""
    if zero is not None and tuple(zero.shape) != tuple(scale.shape) and max(_size(zero), _size(scale)) > 1:
        raise OnnxError(
            f"{node.op}: the scale has the shape {[*scale.shape]}, the zero point {[*zero.shape]}", str(node)
        )
    return _spread(node, x, scale), None if zero is None else _spread(node, x, zero)


def _size(value: Value) -> int:
    return prod(value.shape)


def _spread(node: Node, x: Value, value: Value) -> Tensor:
    sizes, shape, real = tuple(x.shape), tuple(value.shape), real_of(value, float32)
    if _size(value) == 1:
        return real.reshape(())
    axis, block = axis_of(node.attr("axis", 1), len(sizes), node), node.attr("block_size", 0)
    length = sizes[axis]
    if not block and shape == (length,):
        return real.reshape(tuple(length if each == axis else 1 for each in range(len(sizes))))
    if block > 0 and shape == (*sizes[:axis], -(-length // block), *sizes[axis + 1 :]):
        return ops.FUNCTIONS["index_select"](real, axis, as_tensor(np.arange(length) // block))
    raise OnnxError(
        f"{node.op}: a scale of the shape {[*shape]} does not fit {[*sizes]}, along the axis {axis}"
        + (f" in blocks of {block}" if block else ""),
        str(node),
    )


@operator("DynamicQuantizeLinear")
def dynamic_quantize(node: Node, x: Tensor) -> tuple[Value, ...]:
    lowest = ops.FUNCTIONS["clamp"](ops.FUNCTIONS["amin"](x), max=0)
    span = ops.FUNCTIONS["clamp"](ops.FUNCTIONS["amax"](x), min=0) - lowest
    scale = ops.FUNCTIONS["where"](span == 0, 1.0, span) / 255
    zero = ops.FUNCTIONS["clamp"](ops.FUNCTIONS["round"](-lowest / scale), 0, 255)
    return stored(x / scale, zero, UINT8), scale, converted(zero, UINT8)


# ---- layers of bytes, which byte_layers.py makes of a model's
def _byte_operands(node: Node, x: Value, weight: Value, bias: Value, *scales: Value) -> tuple[Value, ...]:
    if x.dtype is not (int8 if node.attr("signed") else uint8):
        raise OnnxError(f"DequantizeLinear: the zero point is of other numbers than {x.dtype}", str(node))
    return x, weight, bias, *scales


@operator("Rounded", domain="lamina")
def rounded(node: Node, x: Tensor) -> Tensor:
    """Real numbers to the nearest step of a scale between two ends, and back."""
    scale, zero = node.attr("scale"), node.attr("zero_point")
    steps = ops.FUNCTIONS["clamp"](
        ops.FUNCTIONS["round"](x.to(float32) / scale), node.attr("low") - zero, node.attr("high") - zero
    )
    return steps * scale


@operator("QuantizedLinear", domain="lamina")
def quantized_linear(node: Node, *operands: Value) -> Value:
    zero = node.attr("zero_point", 0)
    return ops.FUNCTIONS["quantized_linear"](*_byte_operands(node, *operands), zero_point=zero)


@operator("QuantizedConv", domain="lamina")
def quantized_conv(node: Node, *operands: Value) -> Value:
    x, weight, *_ = operands
    sizes = spatial(node, x)
    over = windows(node, sizes, kernel_shape(node, weight, len(sizes)))
    return ops.FUNCTIONS[f"quantized_conv{len(sizes)}d"](
        *_byte_operands(node, *operands),
        over.strides,
        over.pads,
        over.dilations,
        node.attr("group", 1),
        zero_point=node.attr("zero_point", 0),
    )


# ---- products: of integers they are exact in float64, as long as sums are below 2**53
def centred(value: Value, zero: Value) -> Tensor:
    """What numbers stand for, in units of their scale."""
    real = real_of(value, float64)
    return real if zero is None else real - real_of(zero, float64)


def _whole(x: Tensor) -> Tensor:
    return x.to(int64).to(int32)  # sums go round in 32 bits


def _per_row(value: Value, rank: int) -> Value:
    """What holds for a matrix, or for each of its rows."""
    value = _one(value)
    return value.reshape((-1, 1)) if value is not None and len(value.shape) == 1 and rank > 1 else value


def _one(value: Value) -> Value:
    """A value without dimensions, where it has one element."""
    return value.reshape(()) if value is not None and _size(value) == 1 else value


@operator("MatMulInteger", raw=True)
def matmul_integer(node: Node, a: Value, b: Value, a_zero: Value = None, b_zero: Value = None) -> Tensor:
    return _whole(_product(a, a_zero, b, b_zero))


def _product(a: Value, a_zero: Value, b: Value, b_zero: Value) -> Tensor:
    left, right = centred(a, _per_row(a_zero, len(a.shape))), centred(b, _one(b_zero))
    return ops.FUNCTIONS["matmul"](left, right)


@operator("QLinearMatMul", raw=True)
def qlinear_matmul(
    node: Node,
    a: Value,
    a_scale: Value,
    a_zero: Value,
    b: Value,
    b_scale: Value,
    b_zero: Value,
    y_scale: Value,
    y_zero: Value,
) -> Value:
    product, rank = _product(a, a_zero, b, b_zero), len(a.shape)
    scales = _per_row(a_scale, rank), _one(b_scale), _per_row(y_scale, rank)
    a_by, b_by, y_by = (real_of(each, float64) for each in scales)
    return stored(product * (a_by * b_by / y_by), real_of(_per_row(y_zero, rank), float64), dtype_of(y_zero))


def per_column(value: Value, weight: Value, turned: bool) -> Value:
    """What holds for a matrix, or for each of its columns: of its rows where it is turned."""
    value = _one(value)
    return value.reshape((-1, 1)) if value is not None and turned and len(value.shape) == 1 else value


def _per_filter(value: Value, weight: Value, node: Node) -> Value:
    """What holds for a convolution's weight, or for each of its output channels."""
    value = _one(value)
    if value is None or not len(value.shape):
        return value
    if tuple(value.shape) != (weight.shape[0],):
        raise OnnxError(
            f"{node.op}: {[*value.shape]} is not one for each of {weight.shape[0]} output channels",
            str(node),
        )
    return value.reshape((-1, *[1] * (len(weight.shape) - 1)))


def _convolved(
    node: Node, x: Value, x_zero: Value, weight: Value, w_zero: Value, bias: Value = None
) -> Tensor:
    operands = [centred(x, _one(x_zero)), centred(weight, _per_filter(w_zero, weight, node))]
    if bias is not None:
        operands.append(real_of(bias, float64))
    return OPERATORS[STANDARD, "Conv"].function(node, *operands)


@operator("ConvInteger", raw=True)
def conv_integer(node: Node, x: Value, weight: Value, x_zero: Value = None, w_zero: Value = None) -> Tensor:
    return _whole(_convolved(node, x, x_zero, weight, w_zero))


@operator("QLinearConv", raw=True)
def qlinear_conv(
    node: Node,
    x: Value,
    x_scale: Value,
    x_zero: Value,
    weight: Value,
    w_scale: Value,
    w_zero: Value,
    y_scale: Value,
    y_zero: Value,
    bias: Value = None,
) -> Value:
    found = _convolved(node, x, x_zero, weight, w_zero, bias)
    by_filter = _per_filter(w_scale, weight, node)
    if len(by_filter.shape):
        by_filter = by_filter.reshape((-1, *[1] * (len(weight.shape) - 2)))
    scales = _one(x_scale), by_filter, _one(y_scale)
    x_by, w_by, y_by = (real_of(each, float64) for each in scales)
    return stored(found * (x_by * w_by / y_by), real_of(_one(y_zero), float64), dtype_of(y_zero))
