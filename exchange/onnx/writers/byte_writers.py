"""Write numbers that are multiples of a scale, and layers of bytes as a runtime looks for them: with QDQ.

    QuantizeLinear -> DequantizeLinear -> Conv, Gemm or MatMul of dequantised weights -> ...

What lies between DequantizeLinear and QuantizeLinear a runtime computes in bytes, where it can.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....ir.dtypes import float32, int8, int32, int64
from ....ir.graph import Node, Value
from ....ir.ops.affine import RANGES
from .graph_writer import Name, Writer, Written, stand_in, the, writer
from .layer_writers import sides


def _zero(w: Writer, value: Value, zero_point: int) -> Name:
    return w.constant(np.asarray(zero_point, value.dtype.numpy))


@writer("quantize_affine")
def quantize(w: Writer, node: Node, input: Name, scale: Name) -> Written:
    how = node.attrs
    if node.inputs[1].ndim or node.inputs[0].dtype is not float32 or w.dtypes[scale] is not float32:
        return None
    if (how["low"], how["high"]) != RANGES[how["dtype"]]:
        return None
    zero = _zero(w, node.outputs[0], how["zero_point"])
    return w.emit("QuantizeLinear", input, scale, zero, dtype=how["dtype"])


@writer("dequantize_affine")
def dequantize(w: Writer, node: Node, input: Name, scale: Name) -> Written:
    if node.inputs[1].ndim or w.dtypes[scale] is not float32:
        return None
    zero = _zero(w, node.inputs[0], node.attrs["zero_point"])
    return w.emit("DequantizeLinear", input, scale, zero, dtype=float32)


def _operands(w: Writer, node: Node, names: Sequence[Name | None], axis: int = 0) -> list[Name | None] | None:
    """A layer's input, weight and bias, dequantised; None where the layer computes in other types."""
    input, weight, bias, input_scale, weight_scale = names
    if node.inputs[3] is None or node.inputs[3].dtype is not float32:
        return None
    along = axis if node.inputs[4].ndim else None
    by_output = None if bias is None else w.emit("Mul", weight_scale, input_scale)
    if bias is not None and not node.inputs[4].ndim:
        by_output = w.emit("Expand", by_output, w.vector(node.inputs[2].shape))
    zero = _zero(w, node.inputs[0], node.attrs["zero_point"])
    return [
        w.emit("DequantizeLinear", input, input_scale, zero, dtype=float32),
        w.emit("DequantizeLinear", weight, weight_scale, dtype=float32, axis=along),
        bias and w.emit("DequantizeLinear", bias, by_output, dtype=float32, axis=0),
    ]


@writer("quantized_linear")
def linear(w: Writer, node: Node, *names: Name | None) -> Written:
    if node.inputs[0].ndim == 2:
        found = _operands(w, node, names)
        return None if found is None else w.emit("Gemm", *found, transB=1)
    turned = w.emit("Transpose", names[1], perm=(1, 0))
    found = _operands(w, node, (names[0], turned, *names[2:]), axis=1)
    if found is None:
        return None
    made = w.emit("MatMul", *found[:2])
    return made if found[2] is None else w.emit("Add", made, found[2])


@writer("quantized_conv1d", "quantized_conv2d")
def conv(w: Writer, node: Node, *names: Name | None) -> Written:
    found, how, kernel = _operands(w, node, names), node.attrs, node.inputs[1]
    if found is None or node.inputs[0].ndim != kernel.ndim:
        return None
    return w.emit(
        "Conv",
        *found,
        kernel_shape=tuple(kernel.shape[2:]),
        strides=how["stride"],
        pads=sides(how["padding"]),
        dilations=how["dilation"],
        group=how["groups"],
    )


# ---- exact sums
@writer("int_matmul")
def int_matmul(w: Writer, node: Node, a: Name, b: Name) -> Written:
    if node.inputs[0].shape[-1] == 0:  # of which ONNX Runtime makes anything
        return w.filled(node.outputs[0].type, 0)
    return w.emit("MatMulInteger", a, b, dtype=int32)


@writer("int_conv1d", "int_conv2d")
def int_conv(w: Writer, node: Node, input: Name, weight: Name) -> Written:
    """The image with its edges around it: `ConvInteger` pads with the zero point, which stays 0 here."""
    (x, kernel), how = node.inputs, node.attrs
    if x.ndim != kernel.ndim:
        input = w.unsqueezed(input, 0)
    if any(map(any, how["padding"])):
        before, after = zip(*how["padding"], strict=True)
        pads = w.constant(np.array((0, 0, *before, 0, 0, *after)), int64)
        input = w.emit("Pad", input, pads, w.constant(np.asarray(how["padding_value"], x.dtype.numpy)))
    made = w.emit(
        "ConvInteger",
        input,
        weight,
        dtype=int32,
        kernel_shape=tuple(kernel.shape[2:]),
        strides=how["stride"],
        dilations=how["dilation"],
        group=how["groups"],
    )
    return made if x.ndim == kernel.ndim else w.squeezed(made, 0)


@stand_in("unpack_int4")
def unpack_int4(input: Any, *, group: int) -> Any:
    """The low halves of a group's bytes, and then the high ones."""
    rows, size, half = input.shape[:-1], input.shape[-1], group // 2
    pairs = the("reshape")(the("cast")(input, dtype=int8), (*rows, size // half, 1, half))
    halves = the("cat")([pairs & 15, the("bitwise_right_shift")(pairs, 4) & 15], dim=-2) - 8
    return the("reshape")(halves, (*rows, 2 * size))
