"""Fold a batch norm in evaluation into the convolution or linear layer before it."""

from __future__ import annotations

import copy
from typing import Any

from ...ir.errors import ArgumentValueError
from ...runtime import Parameter, Tensor, ops

__all__ = ["fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights"]


def fuse_conv_bn_weights(
    conv_w: Tensor,
    conv_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
    transpose: bool = False,
) -> tuple[Parameter, Parameter]:
    """Weight and bias of the convolution that does what one does and then a batch norm.

    (w x + b - mean) g / sqrt(var + eps) + s, so w' = w k, b' = (b - mean) k + s with k = g / sqrt(var + eps).
    transpose: the weight's second dimension is the outputs'.
    """
    dtype = conv_w.dtype
    scale = (bn_rv + bn_eps).rsqrt()
    scale = scale if bn_w is None else bn_w * scale
    bias = ops.zeros_like(bn_rm) if conv_b is None else conv_b
    shift = (bias - bn_rm) * scale
    shift = shift if bn_b is None else shift + bn_b
    at = 1 if transpose else 0
    shape = [-1 if d == at else 1 for d in range(conv_w.ndim)]
    weight = (conv_w * scale.reshape(shape)).to(dtype)
    return (
        Parameter(weight.detach(), conv_w.requires_grad),
        Parameter(shift.to(dtype).detach(), conv_b is not None and conv_b.requires_grad),
    )


def _fused(layer: Any, bn: Any, transpose: bool) -> Any:
    if layer.training or bn.training:
        raise ArgumentValueError("only modules in evaluation can be fused", "call eval() on both before")
    if bn.running_mean is None or bn.running_var is None:
        raise ArgumentValueError("only a batch norm with running statistics can be fused")
    made = copy.deepcopy(layer)
    made.weight, made.bias = fuse_conv_bn_weights(
        made.weight, made.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias, transpose
    )
    return made


def fuse_conv_bn_eval(conv: Any, bn: Any, transpose: bool = False) -> Any:
    """A convolution that does what `conv` does and then `bn`, both in evaluation.

    Raises ArgumentValueError.
    """
    return _fused(conv, bn, transpose)


def fuse_linear_bn_weights(
    linear_w: Tensor,
    linear_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
) -> tuple[Parameter, Parameter]:
    """Weight and bias of the linear layer that does what one does and then a batch norm."""
    return fuse_conv_bn_weights(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b)


def fuse_linear_bn_eval(linear: Any, bn: Any) -> Any:
    """A linear layer that does what `linear` does and then `bn`, both in evaluation.

    Raises ArgumentValueError, also where the numbers of features differ and one would be broadcast.
    """
    if linear.out_features != bn.num_features and bn.num_features != 1:
        raise ArgumentValueError(
            f"fuse_linear_bn_eval: {linear.out_features} features can't be normed as {bn.num_features}"
        )
    return _fused(linear, bn, False)
