"""Normalisation by channel, of [N, C, ...]: over the batch, over groups of channels, over neighbours."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from .. import lowering
from ..dims import same
from ..errors import ArgumentError, ArgumentValueError, ShapeError
from ..op import Traits, composite, define
from ..sample import Operand, sample
from ..types import Shape, Type, type_of
from .cast import cast, dtype_of, type_as
from .join import pad
from .norm import layer_norm, need_float, need_shape, sum_of
from .powers import rsqrt
from .reduce import mean, sum
from .view import expand, reshape
from .windows import unfold

# Over the batch


def _channels(shape: Shape) -> tuple[Shape, tuple[int, ...]]:
    """(the shape that puts one number a channel beside a batch of `shape`, the dims that are reduced)."""
    return (1, shape[1], *(1 for _ in shape[2:])), (0, *range(2, len(shape)))


def bind_batch_norm_train(input, weight=None, bias=None, eps=1e-05):
    """Normalise each channel over the batch: (x - mean) / sqrt(variance + eps) * weight + bias.

    Shapes: input [N, C, ...], weight and bias [C] -> (as input, mean [C], variance [C] of correction 0).
    Raises ShapeError, DTypeError for integers.  Source: Ioffe and Szegedy, Batch Normalization, algorithm 1.
    """
    return (input, weight, bias), {"eps": float(eps)}


def _check_batch(op: str, input: Type, **by_channel: Type | None) -> None:
    need_float(op, input)
    if input.ndim < 2:
        raise ShapeError(f"{op}: the input is [N, C, ...], not {list(input.shape)}")
    for name, t in by_channel.items():
        need_shape(op, name, t, (input.shape[1],))


def _infer_batch_norm_train(input: Type, weight: Type | None, bias: Type | None, *, eps: float) -> tuple:
    _check_batch("batch_norm", input, weight=weight, bias=bias)
    statistics = type_of(input.dtype.compute, (input.shape[1],), input.device)
    return input, statistics, statistics


def _batch_norm_train(input: Any, weight: Any, bias: Any, *, eps: float) -> tuple:
    row, dim = _channels(input.shape)
    n = prod(input.shape[d] for d in dim)
    center = np.add.reduce(input, axis=dim, keepdims=True) / n
    out = input - center
    variance = np.add.reduce(out * out, axis=dim, keepdims=True) / n
    rstd = 1 / np.sqrt(variance + eps)
    out *= rstd if weight is None else rstd * weight.reshape(row)
    if bias is not None:
        out += bias.reshape(row)
    return out, center.reshape(-1), variance.reshape(-1)


def _build_batch_norm_train(k: Any, input: Any, weight: Any, bias: Any, *, eps: float) -> None:
    (channel,) = k.parallel(input.shape[1])
    inner = k.axes(input.shape[0], *input.shape[2:])
    at = (inner[0], channel, *inner[1:])
    n = input.shape[0] * prod(input.shape[2:])
    center = k.sum(input[at], over=inner) / n
    distance = input[at] - center
    variance = k.sum(distance * distance, over=inner) / n
    out = distance * (rsqrt(variance + eps) if weight is None else rsqrt(variance + eps) * weight[channel])
    k.store(out if bias is None else out + bias[channel], at=at, over=inner)
    k.store(center, at=(channel,), output=1)
    k.store(variance, at=(channel,), output=2)


def _vjp_batch_norm_train(saved: tuple, cotangents: tuple, attrs: dict, needs: tuple) -> tuple:
    input, weight, center, variance = saved
    g, to_center, to_variance = cotangents
    row, dim = _channels(input.shape)
    n = prod(input.shape[d] for d in dim)
    rstd = reshape(rsqrt(variance + attrs["eps"]), row)
    distance = input - reshape(center, row)
    scaled = distance * rstd
    to_input = to_weight = to_bias = None
    if g is not None:
        g = type_as(g, variance)  # the sum of many halves may be no half
        shift, scale = sum(g, dim), sum(g * scaled, dim)
        to_weight, to_bias = scale if needs[1] else None, shift if needs[2] else None
        if needs[0]:
            factor = rstd if weight is None else rstd * reshape(weight, row)
            to_input = (g - reshape(shift, row) / n - scaled * (reshape(scale, row) / n)) * factor
    if needs[0]:
        if to_variance is not None:
            to_input = sum_of(to_input, distance * reshape(to_variance * (2.0 / n), row))
        if to_center is not None:
            to_input = sum_of(to_input, expand(reshape(to_center / n, row), input.shape))
    return to_input, to_weight, to_bias


batch_norm_train = define(
    "batch_norm_train",
    bind=bind_batch_norm_train,
    infer=_infer_batch_norm_train,
    reference=_batch_norm_train,
    optional=("weight", "bias"),
    outputs=("out", "mean", "variance"),
    vjp=_vjp_batch_norm_train,
    saves=("input", "weight", "mean", "variance"),
    lower=lowering.kernel(_build_batch_norm_train),
    traits=Traits(in_order=True),
    samples=lambda: [
        sample((17, 1)),
        sample((33, 2), (2,), (2,)),
        sample((2, 3, 4), (3,)),
        sample((2, 2, 2, 3), (2,), (2,), eps=0.1),
    ],
    inapplicable={
        "0-d": "needs a batch and channels", "empty": "a batch of nothing has no mean",
        "broadcast": "sizes are one a channel",
    },
    method=False,
    dtypes="float",
)  # fmt: skip


def bind_batch_norm_eval(input, running_mean, running_var, weight=None, bias=None, eps=1e-05):
    """Normalise each channel by given statistics: (x - mean) / sqrt(variance + eps) * weight + bias.

    Shapes: input [N, C, ...], the others [C] -> as input.  Raises
    ShapeError, DTypeError for integers.  Source: Ioffe and Szegedy, Batch Normalization, algorithm 2.
    """
    return (input, running_mean, running_var, weight, bias), {"eps": float(eps)}


def _infer_batch_norm_eval(input: Type, running_mean: Type, running_var: Type, weight, bias, *, eps) -> Type:
    _check_batch(
        "batch_norm", input, running_mean=running_mean, running_var=running_var, weight=weight, bias=bias
    )
    return input


def _batch_norm_eval(
    input: Any, running_mean: Any, running_var: Any, weight: Any, bias: Any, *, eps: float
) -> Any:
    row, _ = _channels(input.shape)
    scale = 1 / np.sqrt(running_var + eps)
    out = input - running_mean.reshape(row)
    out *= (scale if weight is None else scale * weight).reshape(row)
    if bias is not None:
        out += bias.reshape(row)
    return out


def _build_batch_norm_eval(
    k: Any, input: Any, mean: Any, variance: Any, weight: Any, bias: Any, *, eps: float
) -> None:
    at = k.parallel(*input.shape)
    c = at[1]
    scale = rsqrt(variance[c] + eps)
    out = (input[at] - mean[c]) * (scale if weight is None else scale * weight[c])
    k.store(out if bias is None else out + bias[c], at=at)


def _eval_to_input(g: Any, running_var: Any, weight: Any, input_type: Type, eps: float) -> Any:
    scale = rsqrt(running_var + eps)
    return g * reshape(scale if weight is None else scale * weight, _channels(input_type.shape)[0])


def _eval_to_mean(g: Any, running_var: Any, weight: Any, input_type: Type, eps: float) -> Any:
    scale = rsqrt(running_var + eps)
    total = sum(type_as(g, running_var), _channels(input_type.shape)[1])
    return -(total * (scale if weight is None else scale * weight))


def _eval_to_variance(
    g: Any, input: Any, running_mean: Any, running_var: Any, weight: Any, input_type: Type, eps: float
) -> Any:
    scale = rsqrt(running_var + eps)
    row, dim = _channels(input_type.shape)
    to_scale = sum(g * (input - reshape(running_mean, row)), dim)
    found = to_scale * scale * scale * scale * -0.5
    return found if weight is None else found * weight


def _eval_to_weight(
    g: Any, input: Any, running_mean: Any, running_var: Any, input_type: Type, eps: float
) -> Any:
    row, dim = _channels(input_type.shape)
    return sum(g * (input - reshape(running_mean, row)), dim) * rsqrt(running_var + eps)


batch_norm_eval = define(
    "batch_norm_eval",
    bind=bind_batch_norm_eval,
    infer=_infer_batch_norm_eval,
    reference=_batch_norm_eval,
    optional=("weight", "bias"),
    grad=(
        _eval_to_input,
        _eval_to_mean,
        _eval_to_variance,
        _eval_to_weight,
        lambda g, running_var, input_type: sum(type_as(g, running_var), _channels(input_type.shape)[1]),
    ),
    lower=lowering.kernel(_build_batch_norm_eval),
    traits=Traits(in_order=True),
    samples=lambda: [
        sample((17, 1), (1,), Operand((1,), low=0.5)),
        sample((0, 2), (2,), Operand((2,), low=0.5), (2,), (2,)),
        sample((1, 3), (3,), Operand((3,), low=0.5), (3,)),
        sample((33, 1, 2), (1,), Operand((1,), low=0.5), (1,), (1,)),
        sample((2, 2, 2, 3), (2,), Operand((2,), low=0.5), (2,), (2,), eps=0.1),
    ],
    inapplicable={"0-d": "needs a batch and channels", "broadcast": "sizes are one a channel"},
    method=False,
    dtypes="float",
)


@composite(method=False)
def batch_norm(
    input,
    running_mean=None,
    running_var=None,
    weight=None,
    bias=None,
    training=False,
    momentum=0.1,
    eps=1e-05,
):
    """Normalise each channel: by the batch's own statistics in `training`, else by the running ones.

    Shapes: input [N, C, ...], the others [C] -> as input.  In training the running statistics move by
    `momentum` towards those of the batch, in place; the running variance is that of correction 1.  Raises
    ShapeError, and ArgumentValueError where a channel has one value only, whose variance says nothing.
    """
    if input.ndim == 1 and same(input.shape[0], 0):  # no channels: PyTorch asks for no second dimension
        return input * 1.0
    if not training:
        if running_mean is None or running_var is None:
            raise ArgumentError("batch_norm: without training, running_mean and running_var are needed")
        return batch_norm_eval(input, running_mean, running_var, weight, bias, eps)
    n = prod(n for d, n in enumerate(input.shape) if d != 1)
    if same(n, 1):
        raise ArgumentValueError(
            f"batch_norm: a channel of {list(input.shape)} has one value, whose variance is 0",
            "train on more than one value a channel, or call eval()",
        )
    out, center, variance = batch_norm_train(input, weight, bias, eps)
    if same(n, 0):  # nothing was seen
        return out
    _move(running_mean, center, momentum)
    _move(running_var, variance, momentum, n)
    return out


def _move(running: Any, value: Any, share: Any, n: int | None = None) -> None:
    """Move running statistics, where there are such, by `share` of the way to `value`, in place.

    share: a number, or a 0-d tensor, as that of a mean over all batches is.  n: `value` is a variance of so
    many elements of correction 0, and becomes one of correction 1.
    """
    if running is None:
        return
    value = value.detach()
    if n is not None:  # as operands: a size may be a symbol
        value = value * n / (n - 1)
    running.mul_(1 - share)
    if isinstance(share, (int, float)):
        running.add_(value, alpha=share)
    else:
        running.add_(value * share)


# Over groups of channels


@composite(method=False)
def group_norm(input, num_groups, weight=None, bias=None, eps=1e-05):
    """Normalise over each of `num_groups` groups of channels, sample by sample.

    Shapes: input [N, C, ...], weight and bias [C] -> as input.  Raises ShapeError, ArgumentValueError.
    Source: Wu and He, Group Normalization, eq. 7.
    """
    if input.ndim < 2:
        raise ShapeError(f"group_norm: the input is [N, C, ...], not {list(input.shape)}")
    if num_groups < 1 or input.shape[1] % num_groups:
        raise ArgumentValueError(
            f"group_norm: {input.shape[1]} channels don't divide into {num_groups} groups"
        )
    per_group = prod(input.shape[1:]) // num_groups
    if same(per_group * input.shape[0], 1):
        raise ArgumentValueError(
            "group_norm: Expected more than 1 value per channel when training, got input size "
            f"{[*input.shape]}"
        )
    wide = _wide(input)
    out = layer_norm(reshape(wide, (input.shape[0], num_groups, per_group)), (per_group,), eps=eps)
    return _affine(input, out, weight, bias)


def _wide(input: Any) -> Any:
    """What halves are normalised in: the result alone is rounded, whatever the dtype of weight and bias."""
    dtype = dtype_of(input)
    return input if dtype.compute is dtype else cast(input, dtype=dtype.compute)


def _affine(input: Any, normalised: Any, weight: Any, bias: Any) -> Any:
    """What `_wide(input)` was normalised to, by channel, as the input is."""
    row, dtype = _channels(input.shape)[0], dtype_of(input)
    out = reshape(normalised, input.shape)
    out = out if weight is None else out * reshape(weight, row)
    out = out if bias is None else out + reshape(bias, row)
    return out if dtype.compute is dtype else cast(out, dtype=dtype)


@composite(method=False)
def instance_norm(
    input,
    running_mean=None,
    running_var=None,
    weight=None,
    bias=None,
    use_input_stats=True,
    momentum=0.1,
    eps=1e-05,
):
    """Normalise each channel of each sample: by its own statistics, or by running ones.

    Shapes: input [N, C, ...], the others [C] -> as input.  With `use_input_stats` the running statistics,
    where given, move by `momentum` towards the mean of the samples' statistics, in place.  Raises
    ArgumentValueError where a channel has one value only.
    """
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    if input.ndim < 3 or same(prod(input.shape[2:]), 1):
        raise ArgumentValueError(
            f"instance_norm: a channel of {list(input.shape)} has one value, whose variance is 0"
        )
    n = prod(input.shape[2:])
    rows = reshape(_wide(input), (1, input.shape[0] * input.shape[1], n))
    out, center, variance = batch_norm_train(rows, eps=eps)
    samples = (input.shape[0], input.shape[1])
    if running_mean is not None:
        _move(running_mean, mean(reshape(center, samples), 0), momentum)
    if running_var is not None:
        _move(running_var, mean(reshape(variance, samples), 0), momentum, n)
    return _affine(input, out, weight, bias)


@composite(method=False)
def local_response_norm(input, size, alpha=0.0001, beta=0.75, k=1.0):
    """Divide by (k + alpha * the mean square of `size` neighbouring channels) ** beta.

    Shapes: input [N, C, ...] -> the same.  Channels beyond the ends count as 0.  Raises ShapeError.
    Source: Krizhevsky et al., ImageNet Classification with Deep Convolutional Neural Networks, section 3.3.
    """
    if input.ndim < 3:
        raise ShapeError(
            f"local_response_norm: the input is [N, C, ...] of 3 or more dimensions, not {input.ndim}"
        )
    if 0 in input.shape:
        return input  # itself, integers too
    spatial = (0, 0) * (input.ndim - 2)
    padded = pad(input * input, (*spatial, size // 2, (size - 1) // 2))
    squares = sum(unfold(padded, 1, size, 1), -1)
    near = (
        squares / size if dtype_of(input).inexact else squares // size
    )  # of integers a mean is rounded down
    return input / (near * alpha + k) ** beta
