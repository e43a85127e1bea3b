"""Norms under the names of PyTorch's kernels, which hand out their statistics as well."""

from __future__ import annotations

from math import prod
from typing import Any

from ..errors import ArgumentError, ShapeError
from ..op import composite
from .channel_norm import batch_norm, group_norm
from .create import new_zeros
from .norm import layer_norm
from .powers import rsqrt
from .reduce import mean
from .spread import var
from .view import reshape


def _statistics(rows: Any, dims: tuple[int, ...], eps: float, keepdim: bool = False) -> tuple[Any, Any]:
    """The mean over `dims`, and 1 / sqrt(variance + eps)."""
    return mean(rows, dims, keepdim), rsqrt(var(rows, dims, correction=0, keepdim=keepdim) + eps)


@composite(method=False)
def native_layer_norm(input, normalized_shape, weight, bias, eps):
    """Normalise over the last dims as `layer_norm` does.

    Shapes: input [..., *normalized_shape] -> (as input, mean, 1 / standard deviation: both [..., 1, ...]).
    """
    dims = tuple(range(input.ndim - len(normalized_shape), input.ndim))
    return layer_norm(input, normalized_shape, weight, bias, eps), *_statistics(input, dims, eps, True)


@composite(method=False)
def native_group_norm(input, weight, bias, N, C, HxW, group, eps):
    """Normalise over groups of channels as `group_norm` does.

    Shapes: input [N, C, ...] of HxW places -> (as input, mean, 1 / standard deviation: both [N, group]).
    Raises ShapeError where N, C and HxW aren't the input's.
    """
    sizes = (*input.shape[:2], prod(input.shape[2:]))
    if sizes != (N, C, HxW):
        raise ShapeError(f"native_group_norm: N, C and HxW are {list(sizes)} here, not {[N, C, HxW]}")
    out = group_norm(input, group, weight, bias, eps)
    return out, *_statistics(reshape(input, (N, group, (C // group) * HxW)), (2,), eps)


@composite(method=False)
def native_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps):
    """Normalise each channel as `batch_norm` does, and update the running statistics in training.

    Shapes: input [N, C, ...] -> (as input, mean, 1 / standard deviation of the batch: both [C], without
    training [0]).  Raises ArgumentError.
    """
    if not isinstance(training, bool) or not isinstance(momentum, (int, float)):
        raise ArgumentError("native_batch_norm: training must be a bool, and momentum a number")
    out = batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
    if not training:
        return out, new_zeros(input, (0,)), new_zeros(input, (0,))
    return out, *_statistics(input, (0, *range(2, input.ndim)), eps)
