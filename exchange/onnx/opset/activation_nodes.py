"""Nonlinearities, and what else keeps, limits or drops each element by itself."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import numpy as np

from ....ir.dtypes import bool_, float32
from ....nn import functional as F
from ....runtime import Tensor, ops
from ....runtime import random as draws
from ..declared import Node, OnnxError
from .registry import Value, as_tensor, is_host, number, operator

_where = ops.FUNCTIONS["where"]


def _swish(x: Tensor, alpha: float) -> Tensor:
    return F.silu(x) if alpha == 1 else x * F.sigmoid(x * alpha)


# One operand; defaults of the attributes, which follow it.
ACTIVATIONS: dict[str, tuple[Callable[..., Tensor], dict[str, float | str]]] = {
    "LeakyRelu": (F.leaky_relu, {"alpha": 0.01}),
    "Elu": (F.elu, {"alpha": 1.0}),
    "Celu": (F.celu, {"alpha": 1.0}),
    "Selu": (
        lambda x, alpha, gamma: F.elu(x, alpha) * gamma,
        {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875},
    ),
    "ThresholdedRelu": (lambda x, alpha: _where(x > alpha, x, 0), {"alpha": 1.0}),  # of NaN it is 0
    "HardSigmoid": (
        lambda x, alpha, beta: ops.FUNCTIONS["clamp"](x * alpha + beta, 0, 1),
        {"alpha": 0.2, "beta": 0.5},
    ),
    "HardSwish": (F.hardswish, {}),
    "Mish": (F.mish, {}),
    "Gelu": (F.gelu, {"approximate": "none"}),
    "Swish": (_swish, {"alpha": 1.0}),
    "Softplus": (lambda x: F.softplus(x, 1.0, inf), {}),  # ONNX does not cut it off
    "Softsign": (F.softsign, {}),
}


def _activation(function: Callable[..., Tensor], defaults: dict[str, float | str]) -> Callable[..., Value]:
    return lambda node, x: function(x, *(node.attr(name, default) for name, default in defaults.items()))


for _name, (_function, _defaults) in ACTIVATIONS.items():
    operator(_name)(_activation(_function, _defaults))


@operator("SwiGLU")
def swiglu(node: Node, gate: Value, x: Value) -> Value:
    if tuple(gate.shape) != tuple(x.shape):
        raise OnnxError(f"SwiGLU: the shapes {[*gate.shape]} and {[*x.shape]} are not one", str(node))
    return _swish(gate, node.attr("alpha", 1.0)) * x


@operator("PRelu")
def prelu(node: Node, x: Value, slope: Value) -> Value:
    slope = ops.FUNCTIONS["expand"](slope, x.shape)
    if x.dtype.is_floating_point:
        return ops.FUNCTIONS["_prelu"](x, slope)
    return _where(x > 0, x, x * slope)


@operator("Shrink")
def shrink(node: Node, x: Value) -> Value:
    bias, end = node.attr("bias", 0.0), node.attr("lambd", 0.5)
    if not x.dtype.is_floating_point and bias.is_integer():
        bias = int(bias)  # beside a fraction, large integers would lose digits
    return _where(x < -end, x + bias, _where(x > end, x - bias, 0)).to(x.dtype)


def _bounds(node: Node, low: Value, high: Value) -> tuple[Value, Value]:
    return (node.attr("min"), node.attr("max")) if node.opset < 11 else (low, high)


def _clip_host(node: Node, x: np.ndarray, low: Value = None, high: Value = None) -> Value:
    low, high = _bounds(node, low, high)
    return x if low is high is None else np.asarray(np.clip(x, low, high)).astype(x.dtype)


@operator("Clip", raw=True, host=_clip_host)
def clip(node: Node, x: Value, low: Value = None, high: Value = None) -> Value:
    bounds = [
        number(each) if is_host(each) else each.reshape(()) if isinstance(each, Tensor) else each
        for each in _bounds(node, low, high)
    ]
    return x if bounds == [None, None] else ops.FUNCTIONS["clamp"](as_tensor(x), *bounds)


@operator("IsInf")
def is_inf(node: Node, x: Value) -> Value:
    if x.dtype.itemsize == 1:  # is held, and nothing is computed in it
        x = x.to(float32)
    match bool(node.attr("detect_negative", 1)), bool(node.attr("detect_positive", 1)):
        case True, True:
            return ops.FUNCTIONS["isinf"](x)
        case True, False:
            return ops.FUNCTIONS["isneginf"](x)
        case False, True:
            return ops.FUNCTIONS["isposinf"](x)
    return ops.FUNCTIONS["zeros_like"](x, dtype=bool_)


@operator("Dropout", raw=True)
def dropout(node: Node, x: Value, ratio: Value = None, training: Value = None) -> tuple[Value, ...]:
    """Before opset 12 nothing is dropped; before opset 10 the mask is of the input's dtype."""
    x = as_tensor(x)
    p = number(ratio, 0.5)
    if node.opset < 12 or not number(training, False) or p == 0:
        return x, ops.FUNCTIONS["ones_like"](x, dtype=bool_ if node.opset >= 10 else x.dtype)
    if not 0 <= p < 1:
        raise OnnxError(f"Dropout: the ratio lies in [0, 1), not {p}", str(node))
    kept = _uniform(node, x) >= p
    return _where(kept, x * (1 / (1 - p)), 0), kept


def _uniform(node: Node, x: Tensor) -> Tensor:
    """Numbers in [0, 1): with a seed those of NumPy's generator, as ONNX's reference has them."""
    seed = node.attr("seed")
    if seed is None:
        return draws.rand(size=tuple(x.shape))
    return as_tensor(np.random.RandomState(seed & 0xFFFFFFFF).uniform(size=tuple(x.shape)))
