"""PyTorch's `nn.functional`: the ops a network is made of, as functions without state.

Most are the ops themselves.  The others say what an op does not: `inplace`, `training`, `return_indices`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from ..ir.dtypes import float64
from ..ir.errors import ArgumentValueError, ShapeError
from ..ir.warned import warn
from ..runtime import Tensor, modes, ops
from ..runtime import random as draws
from ..runtime.autocasting import autocasting
from ..runtime.ops import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    batch_norm,
    bilinear,
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    channel_shuffle,
    conv1d,
    conv2d,
    conv3d,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
    cosine_embedding_loss,
    cosine_similarity,
    cross_entropy,
    gaussian_nll_loss,
    gelu,
    glu,
    group_norm,
    hardshrink,
    hinge_embedding_loss,
    huber_loss,
    instance_norm,
    kl_div,
    l1_loss,
    layer_norm,
    linear,
    local_response_norm,
    log_softmax,
    logsigmoid,
    lp_pool1d,
    lp_pool2d,
    lp_pool3d,
    margin_ranking_loss,
    max_unpool1d,
    max_unpool2d,
    max_unpool3d,
    mse_loss,
    multilabel_soft_margin_loss,
    nll_loss,
    normalize,
    pad,
    pairwise_distance,
    pdist,
    pixel_shuffle,
    pixel_unshuffle,
    poisson_nll_loss,
    prelu,
    rms_norm,
    sigmoid,
    smooth_l1_loss,
    soft_margin_loss,
    softmax,
    softmin,
    softplus,
    softshrink,
    softsign,
    tanh,
    tanhshrink,
    triplet_margin_loss,
)
from ..runtime.ops import col2im as fold
from ..runtime.ops import im2col as unfold
from ..runtime.refusal import refusing, refusing_names
from .bags import embedding, embedding_bag, one_hot
from .ctc import ctc_loss
from .images import affine_grid, grid_sample, interpolate, upsample, upsample_bilinear, upsample_nearest
from .linear_loss import linear_cross_entropy
from .margins import multi_margin_loss, multilabel_margin_loss, triplet_margin_with_distance_loss
from .multihead import multi_head_attention_forward, scaled_dot_product_attention
from .pools import (
    adaptive_max_pool1d,
    adaptive_max_pool1d_with_indices,
    adaptive_max_pool2d,
    adaptive_max_pool2d_with_indices,
    adaptive_max_pool3d,
    adaptive_max_pool3d_with_indices,
    fractional_max_pool2d,
    fractional_max_pool2d_with_indices,
    fractional_max_pool3d,
    fractional_max_pool3d_with_indices,
    max_pool1d,
    max_pool1d_with_indices,
    max_pool2d,
    max_pool2d_with_indices,
    max_pool3d,
    max_pool3d_with_indices,
)


# ---- nonlinearities ----
def _relu_chosen(input: Tensor, inplace: bool) -> Tensor:
    return input.relu_() if inplace else ops.relu(input)


_relu_chosen = refusing(_relu_chosen, "relu")


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """max(x, 0)."""
    return ops.relu(input) if inplace is False else _relu_chosen(input, inplace)


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """min(max(x, 0), 6)."""
    return input.relu6_() if inplace else ops.relu6(input)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """x where positive, else alpha (exp(x) - 1)."""
    return input.elu_(alpha) if inplace else ops.elu(input, alpha)


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """max(0, x) + min(0, alpha (exp(x / alpha) - 1))."""
    return input.celu_(alpha) if inplace else ops.celu(input, alpha)


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """The scaled exponential unit that keeps mean 0 and variance 1.  Source: Klambauer et al. 2017."""
    return input.selu_() if inplace else ops.selu(input)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """x sigmoid(x)."""
    return input.silu_() if inplace else ops.silu(input)


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """x tanh(softplus(x))."""
    return input.mish_() if inplace else ops.mish(input)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """x where positive, else negative_slope x."""
    return input.leaky_relu_(negative_slope) if inplace else ops.leaky_relu(input, negative_slope)


def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """min(max(x, min_val), max_val)."""
    return input.hardtanh_(min_val, max_val) if inplace else ops.hardtanh(input, min_val, max_val)


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """min(max(x / 6 + 1 / 2, 0), 1)."""
    return input.hardsigmoid_() if inplace else ops.hardsigmoid(input)


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """x hardsigmoid(x)."""
    return input.hardswish_() if inplace else ops.hardswish(input)


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """x where above `threshold`, else `value`."""
    return input.threshold_(threshold, value) if inplace else ops.threshold(input, threshold, value)


def rrelu(
    input: Tensor,
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    inplace: bool = False,
) -> Tensor:
    """x where positive, else a x; a is drawn from [lower, upper) in training, and their mean otherwise.

    Raises ArgumentValueError.
    """
    if lower > upper:
        raise ArgumentValueError(
            f"rrelu: Lower bound should be less than or equal to the upper bound, not {lower} and {upper}"
        )
    if not training:
        return leaky_relu(input, (lower + upper) / 2, inplace)
    slope = draws.rand_like(input.detach()) * (upper - lower) + lower
    out = ops.where(input >= 0, input, input * slope)
    return input.copy_(out) if inplace else out


def _in_place(function: Callable) -> Callable:
    """The form of a nonlinearity that writes its result over the input."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Tensor:
        return function(**{**signature.bind(*args, **kwargs).arguments, "inplace": True})

    signature = inspect.signature(function)
    run.__name__ = run.__qualname__ = f"{function.__name__}_"
    run.__doc__ = f"As `{function.__name__}`, written over the input."
    return run


celu_, elu_, hardtanh_, leaky_relu_ = map(_in_place, (celu, elu, hardtanh, leaky_relu))
relu_, rrelu_, selu_, threshold_ = map(_in_place, (relu, rrelu, selu, threshold))


def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:  # noqa: F811
    """A convolution of [T, B, C_in] with a weight [K, C_in, C_out] -> [T + 2 pad - K + 1, B, C_out]."""
    return ops.conv1d(input.permute(1, 2, 0), weight.permute(2, 1, 0), bias, 1, pad).permute(2, 0, 1)


native_channel_shuffle = channel_shuffle


def gumbel_softmax(
    logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1
) -> Tensor:
    """A draw from the categorical distribution of `logits`, softened by `tau` so that it has a gradient.

    hard: exactly one-hot, with the soft draw's gradient.  Source: Jang et al. 2017, eq. 2.
    """
    noise = -ops.empty_like(logits).detach().exponential_().log()
    soft = ops.softmax((logits + noise) / tau, dim)
    if not hard:
        return soft
    best = ops.argmax(soft, dim, keepdim=True)
    one = ops.zeros_like(soft).detach().scatter(dim, best, 1.0)
    return one - soft.detach() + soft


# ---- dropout ----
def _check_p(call: str, p: float) -> None:
    if not 0 <= p <= 1:
        raise ArgumentValueError(f"{call}(p): a probability lies between 0 and 1, not at {p}")


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zero each element with probability p and divide the others by 1 - p; nothing unless `training`."""
    _check_p("dropout", p)
    if not training or p == 0:
        return input
    out = draws.dropout(input, p)
    return input.copy_(out) if inplace else out


def _keep(input: Tensor, shape: tuple, p: float) -> Tensor:
    """A mask of ones and, with probability p, zeros, in the input's dtype."""
    drawn = draws.rand(shape, dtype=float64, device=input.device)
    return (drawn < 1 - p).to(input.dtype)


def _drop_channels(
    call: str, sizes: int, input: Tensor, p: float, training: bool, inplace: bool, batched: bool
) -> Tensor:
    """Zero whole channels of [N, C, ...]; unless `batched`, of [C, ...] where `sizes` dimensions follow."""
    _check_p(call, p)
    if not training or p == 0:
        return input
    lead = 1 if input.ndim == sizes + 1 and not batched else 2
    keep = _keep(input, (*input.shape[:lead], *(1,) * (input.ndim - lead)), p)
    scale = 0.0 if p == 1 else 1.0 / (1 - p)
    return input.mul_(keep * scale) if inplace else input * (keep * scale)


def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zero whole channels of [N, C, L] or [C, L].  Raises ShapeError."""
    if input.ndim not in (2, 3):
        raise ShapeError(f"dropout1d: Expected 2D or 3D input, but received a {input.ndim}D input")
    return _drop_channels("dropout1d", 1, input, p, training, inplace, False)


def _warn_of_rank(call: str, input: Tensor, ranks: tuple[int, ...]) -> None:
    """Warn of a number of dimensions that the name does not say."""
    if input.ndim in ranks:
        return
    meaning = "dropping what lies behind the second dimension"
    if input.ndim == 3:
        meaning = "assuming that channel-wise 1D dropout behavior is desired"
    warn(f"Received a {input.ndim}-D input to {call}: {meaning}", UserWarning, stacklevel=3)


def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zero whole channels of [N, C, H, W]; three dimensions are, as in PyTorch, [N, C, L]."""
    _warn_of_rank("dropout2d", input, (4,))
    return _drop_channels("dropout2d", 2, input, p, training, inplace, True)


def dropout3d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zero whole channels of [N, C, D, H, W] or [C, D, H, W]."""
    _warn_of_rank("dropout3d", input, (4, 5))
    return _drop_channels("dropout3d", 3, input, p, training, inplace, False)


# SELU's limit towards minus infinity: -scale * alpha of Klambauer et al. 2017.
_SELU_LIMIT = -1.7580993408473766


def _drop_to_limit(input: Tensor, p: float, shape: tuple, inplace: bool) -> Tensor:
    """Set elements to SELU's limit with probability p; scale and shift to the mean and variance before."""
    if p == 1:
        return input.mul_(0.0) if inplace else input * 0.0
    keep = _keep(input, shape, p)
    scale = ((1 - p) * (1 + p * _SELU_LIMIT**2)) ** -0.5
    shift = -scale * _SELU_LIMIT * p
    out = input * (keep * scale) + ((1 - keep) * (_SELU_LIMIT * scale) + shift)
    return input.copy_(out) if inplace else out


def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Dropout for SELU networks: mean 0 and variance 1 remain.

    Source: Klambauer et al. 2017, appendix L.4.
    """
    _check_p("alpha_dropout", p)
    return _drop_to_limit(input, p, tuple(input.shape), inplace) if training and p else input


def feature_alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """alpha_dropout of whole channels of [N, C, ...]."""
    _check_p("feature_alpha_dropout", p)
    shape = (*input.shape[:2], *(1,) * (input.ndim - 2))
    return _drop_to_limit(input, p, shape, inplace) if training and p else input


for _name in ("scaled_dot_product_attention", "ctc_loss", "grid_sample", "max_pool3d", "multi_margin_loss",
              "multilabel_margin_loss"):  # fmt: skip
    globals()[_name] = refusing(autocasting(globals()[_name], _name), _name, home=__name__)
refusing_names(globals(), "lamina.nn", spared=("relu",))
