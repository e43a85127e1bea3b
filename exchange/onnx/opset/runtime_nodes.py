"""Operators of ONNX Runtime's own domain, com.microsoft: what its quantizer and its optimizer write.

Source: onnxruntime, docs/ContribOperators.md.  Numbers that are stored in bytes are computed as it does: what
they stand for in float32, and the result in steps of its scale, half to even.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ....ir.dtypes import float32
from ....nn import functional as F
from ....runtime import Tensor, ops
from ..declared import STANDARD, Node, OnnxError
from .activation_nodes import ACTIVATIONS
from .quantised_nodes import (
    centred,
    dequantize,
    dynamic_quantize,
    per_column,
    quantize,
    real_of,
    stored,
)
from .registry import OPERATORS, Value, as_host, as_tensor, operator

DOMAIN = "com.microsoft"


def of_standard(node: Node, op: str, *operands: Value, **attrs: Any) -> Value:
    """What ONNX's operator of a name makes, with a node's attributes and these."""
    inner = replace(node, op=op, domain=STANDARD, opset=attrs.pop("opset", 13), attrs={**node.attrs, **attrs})
    found = OPERATORS[STANDARD, op]
    return found.function(inner, *(operands if found.raw else map(as_tensor, operands)))


operator("QuantizeLinear", domain=DOMAIN, raw=True)(quantize)
operator("DequantizeLinear", domain=DOMAIN, raw=True)(dequantize)


# ---- bytes in, bytes out
def _real(x: Value, scale: Value, zero: Value = None) -> Tensor:
    """What stored numbers stand for, with one scale for all."""
    real = real_of(x, float32)
    real = real if zero is None else real - real_of(zero, float32).reshape(())
    return real * real_of(scale, float32).reshape(())


def _steps(real: Tensor, scale: Value, zero: Value) -> Value:
    """Real numbers in steps of a scale, stored as the zero point is."""
    if zero is None:
        zero = np.zeros((), np.uint8)
    by, start = real_of(scale, float32).reshape(()), real_of(zero, float32).reshape(())
    return stored(real / by, start, zero.dtype if isinstance(zero, np.ndarray) else zero.dtype.numpy)


def _channels_first(node: Node, function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """A function of images, whose channels a node may have last."""
    if not node.attr("channels_last", 0):
        return function(x)
    return ops.FUNCTIONS["movedim"](function(ops.FUNCTIONS["movedim"](x, -1, 1)), 1, -1)


def _average(node: Node, x: Tensor) -> Tensor:
    return _channels_first(node, lambda image: of_standard(node, "AveragePool", image, opset=19), x)


def _global_average(node: Node, x: Tensor) -> Tensor:
    return _channels_first(node, lambda image: of_standard(node, "GlobalAveragePool", image), x)


def _softmax(node: Node, x: Tensor) -> Tensor:
    return of_standard(node, "Softmax", x, opset=node.attr("opset", 13))


# Of one operand: X, its scale and zero point, those of the result.
_OF_ONE: dict[str, Callable[[Node, Tensor], Tensor]] = {
    "QLinearSigmoid": lambda node, x: ops.FUNCTIONS["sigmoid"](x),
    "QLinearLeakyRelu": lambda node, x: F.leaky_relu(x, node.attr("alpha", 0.01)),
    "QLinearAveragePool": _average,
    "QLinearGlobalAveragePool": _global_average,
    "QLinearReduceMean": lambda node, x: of_standard(node, "ReduceMean", x, opset=13),
    "QLinearSoftmax": _softmax,
}
# Of two: each with its scale and zero point, then those of the result.
_OF_TWO = {"QLinearAdd": ops.FUNCTIONS["add"], "QLinearMul": ops.FUNCTIONS["mul"]}


def _of_one(function: Callable[[Node, Tensor], Tensor]) -> Callable[..., Value]:
    def made(node: Node, x: Value, scale: Value, zero: Value, to: Value, to_zero: Value = None) -> Value:
        return _steps(function(node, _real(x, scale, zero)), to, to_zero)

    return made


def _of_two(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Value]:
    def made(node: Node, *given: Value) -> Value:
        return _steps(function(_real(*given[:3]), _real(*given[3:6])), *_pair(given[6:]))

    return made


def _pair(given: Sequence[Value]) -> tuple[Value, Value]:
    return given[0], given[1] if len(given) > 1 else None


for _name, _function in _OF_ONE.items():
    operator(_name, domain=DOMAIN, raw=True)(_of_one(_function))
for _name, _both in _OF_TWO.items():
    operator(_name, domain=DOMAIN, raw=True)(_of_two(_both))


@operator("QLinearConcat", domain=DOMAIN, raw=True)
def qlinear_concat(node: Node, scale: Value, zero: Value, *parts: Value) -> Value:
    reals = [_real(*parts[at : at + 3]) for at in range(0, len(parts), 3)]
    return _steps(ops.FUNCTIONS["cat"](reals, node.attr("axis", 0)), scale, zero)


@operator("QLinearWhere", domain=DOMAIN, raw=True)
def qlinear_where(node: Node, test: Value, *given: Value) -> Value:
    left, right = _real(*given[:3]), _real(*given[3:6])
    return _steps(ops.FUNCTIONS["where"](as_tensor(test), left, right), *_pair(given[6:]))


@operator("QGemm", domain=DOMAIN, raw=True)
def qgemm(node: Node, a: Value, a_scale: Value, a_zero: Value, b: Value, b_scale: Value, b_zero: Value,
          c: Value = None, y_scale: Value = None, y_zero: Value = None) -> Value:  # fmt: skip
    """A product of bytes, whose sums are exact; in float32 where no scale of a result is given."""
    turned = node.attr("transB", 0)
    left, right = centred(a, a_zero), centred(b, per_column(b_zero, b, turned))
    found = (left.T if node.attr("transA", 0) else left) @ (right.T if turned else right)
    if c is not None:
        found = found + centred(c, None)
    by = real_of(a_scale, found.dtype).reshape(()) * real_of(b_scale, found.dtype).reshape((-1,))
    real = (found * (by * node.attr("alpha", 1.0))).to(float32)
    return real if y_scale is None else _steps(real, y_scale, y_zero)


# ---- bytes in, real numbers out
@operator("MatMulIntegerToFloat", domain=DOMAIN, raw=True)
def matmul_to_float(node: Node, a: Value, b: Value, a_scale: Value, b_scale: Value, a_zero: Value = None,
                    b_zero: Value = None, bias: Value = None) -> Tensor:  # fmt: skip
    found = ops.FUNCTIONS["matmul"](centred(a, a_zero), centred(b, b_zero))
    by = real_of(a_scale, found.dtype) * real_of(b_scale, found.dtype)
    real = (found * by).to(float32)
    return real if bias is None else real + as_tensor(bias)


@operator("DynamicQuantizeMatMul", domain=DOMAIN, raw=True)
def dynamic_matmul(node: Node, a: Value, b: Value, b_scale: Value, b_zero: Value = None,
                   bias: Value = None) -> Tensor:  # fmt: skip
    stored_a, scale, zero = dynamic_quantize(node, as_tensor(a))
    return matmul_to_float(node, stored_a, b, scale, b_scale, zero, b_zero, bias)


@operator("DynamicQuantizeLSTM", domain=DOMAIN, raw=True)
def dynamic_lstm(node: Node, x: Value, w: Value, r: Value, *given: Value) -> Value:
    """An LSTM whose weights are bytes, [ways, in, 4 * hidden], with a scale a way, or a column of one.

    ONNX Runtime has the inputs in bytes too, of each step's own range: here they are as they were given.
    """
    rest, (w_scale, w_zero, r_scale, r_zero) = [*given[:-4], *[None] * (9 - len(given))], given[-4:]

    def weight(stored_w: Value, scale: Value, zero: Value) -> Tensor:
        real, ways = real_of(stored_w, float32), stored_w.shape[0]
        real = real - real_of(zero, float32).reshape((ways, 1, -1))
        return (real * real_of(scale, float32).reshape((ways, 1, -1))).transpose(1, 2)

    weights = weight(w, w_scale, w_zero), weight(r, r_scale, r_zero)
    return of_standard(node, "LSTM", as_tensor(x), *weights, *rest[:5], opset=14)


@operator("MatMulNBits", domain=DOMAIN, raw=True)
def matmul_of_bits(node: Node, x: Value, packed: Value, scales: Value, zeros: Value = None,
                   groups: Value = None, bias: Value = None) -> Tensor:  # fmt: skip
    """A product with a weight of 2, 4 or 8 bits, [outputs, blocks, bytes], with a scale for each block."""
    inputs, outputs, bits = node.attr("K", 0), node.attr("N", 0), node.attr("bits", 4)
    block = node.attr("block_size", 0)
    if bits not in (2, 4, 8) or min(inputs, outputs, block) < 1:
        raise OnnxError(f"MatMulNBits: a weight of {outputs} by {inputs} in {bits} bits", str(node))
    blocks = -(-inputs // block)
    whole = _unpacked(as_host(packed), bits).reshape(outputs, -1)[:, : blocks * block]
    start: Any = 1 << (bits - 1)
    if zeros is not None:
        start = as_host(zeros)
        packs = start.dtype == np.uint8
        start = (_unpacked(start, bits) if packs else start).reshape(outputs, -1)[:, :blocks, None]
    steps = as_host(scales).astype(np.float32).reshape(outputs, blocks, 1)
    if groups is not None:
        order = as_host(groups).reshape(-1)[:inputs].astype(np.int64)
        start = start if isinstance(start, int) else start[:, order, 0]
        weight = (whole[:, :inputs].astype(np.float32) - start) * steps[:, order, 0]
    else:
        weight = ((whole.reshape(outputs, blocks, block).astype(np.float32) - start) * steps).reshape(
            outputs, -1
        )
    x = as_tensor(x)
    return F.linear(x, as_tensor(weight[:, :inputs]).to(x.dtype), None if bias is None else as_tensor(bias))


def _unpacked(x: np.ndarray, bits: int) -> np.ndarray:
    """Bytes as the numbers of fewer bits in them, the lowest first.  Shapes: [..., n] -> [..., n * k]."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return ((x[..., None] >> shifts) & ((1 << bits) - 1)).reshape(*x.shape[:-1], -1)


# ---- fused
def _gelu_tanh(node: Node, x: Value, bias: Value = None) -> Tensor:
    return F.gelu(x if bias is None else x + bias, "tanh")


operator("Gelu", domain=DOMAIN)(lambda node, x: F.gelu(x))
operator("BiasGelu", domain=DOMAIN)(lambda node, x, bias: F.gelu(x + bias))
operator("FastGelu", domain=DOMAIN)(_gelu_tanh)
operator("QuickGelu", domain=DOMAIN)(lambda node, x: x * F.sigmoid(x * node.attr("alpha", 1.702)))


def _activated(node: Node, x: Tensor) -> Tensor:
    """What a node's activation makes of a result."""
    name = node.attr("activation", "")
    if not name:
        return x
    given = list(node.attr("activation_params") or ())
    given = given or [
        node.attrs[each] for each in ("activation_alpha", "activation_beta") if each in node.attrs
    ]
    if name == "Clip":
        return ops.FUNCTIONS["clamp"](x, *given[:2])
    if name in ACTIVATIONS:
        function, defaults = ACTIVATIONS[name]
        return function(x, *[*given, *[*defaults.values()][len(given) :]])
    if (STANDARD, name) not in OPERATORS:
        raise OnnxError(f"{node.op}: the activation {name} is not known", str(node))
    return of_standard(node, name, x)


@operator("FusedConv", domain=DOMAIN)
def fused_conv(node: Node, x: Value, weight: Value, bias: Value = None, added: Value = None) -> Value:
    found = of_standard(node, "Conv", *((x, weight) if bias is None else (x, weight, bias)))
    return _activated(node, found if added is None else found + added)


@operator("FusedGemm", domain=DOMAIN)
def fused_gemm(node: Node, x: Value, y: Value, c: Value = None) -> Value:
    return _activated(node, of_standard(node, "Gemm", x, y, c))


@operator("FusedMatMul", domain=DOMAIN)
def fused_matmul(node: Node, x: Value, y: Value) -> Value:
    def turned(z: Tensor, side: str) -> Tensor:
        if node.attr(f"transBatch{side}", 0) and z.ndim > 2:  # the first of the batch's behind the rest of it
            z = ops.FUNCTIONS["movedim"](z, 0, -2)
        return z.mT if node.attr(f"trans{side}", 0) and z.ndim > 1 else z

    found, alpha = ops.FUNCTIONS["matmul"](turned(x, "A"), turned(y, "B")), node.attr("alpha", 1.0)
    return found if alpha == 1 else found * alpha


def _rms(node: Node, x: Tensor, scale: Tensor) -> Tensor:
    return F.rms_norm(x, tuple(scale.shape), scale, node.attr("epsilon", 1e-5))


@operator("SimplifiedLayerNormalization")
def simplified_layer_norm(node: Node, x: Value, scale: Value) -> Value:
    """Of ONNX's own domain, as ONNX Runtime has it."""
    return of_standard(node, "RMSNormalization", x, scale, opset=23)


@operator("SkipLayerNormalization", domain=DOMAIN)
def skip_layer_norm(node: Node, x: Value, skip: Value, gamma: Value, beta: Value = None,
                    bias: Value = None) -> tuple[Value, ...]:  # fmt: skip
    """The norm of a sum, then (two statistics that are not made and) the sum."""
    total = x + skip if bias is None else x + skip + bias
    return (
        F.layer_norm(total, tuple(gamma.shape), gamma, beta, node.attr("epsilon", 1e-12)),
        None,
        None,
        total,
    )


@operator("SkipSimplifiedLayerNormalization", domain=DOMAIN)
def skip_rms_norm(node: Node, x: Value, skip: Value, gamma: Value, bias: Value = None) -> tuple[Value, ...]:
    total = x + skip if bias is None else x + skip + bias
    return _rms(node, total, gamma), None, None, total


@operator("EmbedLayerNormalization", domain=DOMAIN)
def embed_layer_norm(node: Node, words: Value, segments: Value, word_table: Value, place_table: Value,
                     segment_table: Value, gamma: Value, beta: Value, mask: Value = None,
                     places: Value = None) -> tuple[Value, ...]:  # fmt: skip
    """BERT's beginning: embeddings of words, places and segments, their norm, and how long a mask is."""
    length = words.shape[1]
    total = F.embedding(words, word_table)
    total = total + (place_table[:length] if places is None else F.embedding(places, place_table))
    if segments is not None and segment_table is not None:
        total = total + F.embedding(segments, segment_table)
    made = F.layer_norm(total, tuple(gamma.shape), gamma, beta, node.attr("epsilon", 1e-12))
    if mask is None:
        count = ops.FUNCTIONS["zeros_like"](words[:, 0])
    else:
        count = ops.FUNCTIONS["sum"](mask, 1).to(mask.dtype)
    return made, count, total


@operator("Attention", domain=DOMAIN)
def attention(node: Node, x: Value, weight: Value, bias: Value = None, mask: Value = None, past: Value = None,
              added: Value = None) -> tuple[Value, ...]:  # fmt: skip
    """Attention of a sequence to itself, its projections included.  mask: i[b] lengths, i[b, keys], or
    i[b, q, keys], 1 where keys are seen.  past: [2, b, heads, keys, width].  added: to the scores."""
    heads, widths = node.attr("num_heads", 0), node.attr("qkv_hidden_sizes")
    if heads < 1:
        raise OnnxError("Attention: it has num_heads", str(node))
    rows = ops.FUNCTIONS["matmul"](x, weight)
    rows = rows if bias is None else rows + bias
    sizes = [*widths] if widths else [weight.shape[1] // 3] * 3
    q, k, v = (
        part.reshape((x.shape[0], x.shape[1], heads, width // heads)).transpose(1, 2)
        for part, width in zip(ops.FUNCTIONS["split"](rows, sizes, -1), sizes, strict=True)
    )
    if past is not None:
        k, v = (ops.FUNCTIONS["cat"]([before, now], 2) for before, now in zip((past[0], past[1]), (k, v)))
    seen = _seen(node, mask, k.shape[2])
    if node.attr("unidirectional", 0):
        keys, queries = k.shape[2], q.shape[2]
        causal = ops.arange(keys) <= ops.arange(keys - queries, keys)[:, None]
        seen = causal if seen is None else seen & causal
    filtered = node.attr("mask_filter_value", -10000.0)
    scores = None if seen is None else ops.FUNCTIONS["where"](seen, 0.0, filtered).to(x.dtype)
    if added is not None:
        scores = added if scores is None else scores + added
    scale = node.attr("scale", 0.0) or None
    found = F.scaled_dot_product_attention(q, k, v, scores, scale=scale).transpose(1, 2)
    found = found.reshape((x.shape[0], x.shape[1], sizes[2]))
    return found, (ops.FUNCTIONS["stack"]([k, v]) if len(node.outputs) > 1 else None)


@operator("QAttention", domain=DOMAIN, raw=True)
def byte_attention(node: Node, x: Value, weight: Value, bias: Value, scale: Value, w_scale: Value,
                   mask: Value = None, zero: Value = None, w_zero: Value = None,
                   past: Value = None) -> tuple[Value, ...]:  # fmt: skip
    """The same of bytes, whose weight has a scale for all, or for each column."""
    real = real_of(weight, float32)
    real = (real if w_zero is None else real - real_of(w_zero, float32)) * real_of(w_scale, float32)
    given = [each if each is None else as_tensor(each) for each in (bias, mask, past)]
    return attention(node, _real(x, scale, zero), real, *given)


def _seen(node: Node, mask: Value, keys: int) -> Value:
    """Where keys are seen, bool, as it broadcasts with scores [b, heads, q, keys]."""
    if mask is None:
        return None
    if mask.ndim == 1:
        return (ops.arange(keys) < mask[:, None])[:, None, None, :]
    if mask.ndim not in (2, 3):
        raise OnnxError(f"{node.op}: a mask of the shape {[*mask.shape]}", str(node))
    return (mask != 0)[:, None, None, :] if mask.ndim == 2 else (mask != 0)[:, None]
