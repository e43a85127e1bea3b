"""Losses.  All but cross_entropy over class indices are composites: functions written with ops."""

from __future__ import annotations

from math import log as log_of
from math import pi
from typing import Any

from ..dims import same
from ..dtypes import int64
from ..elementwise import elementwise
from ..errors import ArgumentValueError, DTypeError, ShapeError, frames_of_ours
from ..op import REGISTRY, composite
from ..sample import binary_samples
from ..warned import sizes_told, warn
from .activation import logsigmoid
from .arithmetic import abs
from .cast import dtype_of
from .compare import eq, gt, lt, ne, where
from .create import full_like
from .cross_entropy import check_classes, check_reduction, class_dim, softmax_cross_entropy
from .extremes import clamp_min, maximum, minimum
from .join import broadcast_tensors
from .math import exp, log, log1p, xlogy
from .powers import sqrt, square
from .reduce import mean, sum
from .softmax import log_softmax
from .spread import linalg_vector_norm
from .view import reshape, unsqueeze


def reduction_of(op: str, size_average: Any, reduce: Any, reduction: str) -> str:
    """The reduction's word; `size_average` and `reduce` are its older spelling."""
    if size_average is None and reduce is None:
        return check_reduction(op, reduction)
    if reduce is not None and not reduce:
        return "none"
    return "mean" if size_average is None or size_average else "sum"


def _reduced(op: str, losses: Any, reduction: str) -> Any:
    check_reduction(op, reduction)
    return losses if reduction == "none" else mean(losses) if reduction == "mean" else sum(losses)


def _same_shape(op: str, input: Any, target: Any) -> None:
    """Refuse shapes that would silently broadcast.  Raises ShapeError."""
    if input.ndim != target.ndim or not all(same(a, b) for a, b in zip(input.shape, target.shape)):
        raise ShapeError(
            f"{op}: operands must have the same shape. Using a target size ({list(target.shape)}) "
            "that is different "
            f"to the input size ({list(input.shape)}) is refused",
            "reshape or expand one of them, so that those that belong together are compared",
        )


def _tell_broadcast(op: str, input: Any, target: Any) -> None:
    """Warn of shapes that differ: [n, 1] beside [n] gives n * n losses, which nobody wants."""
    if input.ndim != target.ndim or not all(same(a, b) for a, b in zip(input.shape, target.shape)):
        one, other = sizes_told(input.shape), sizes_told(target.shape)
        warn(
            f"{op}: input {one} and target {other} broadcast, and every element is compared with "
            "several. Please ensure they have the same size.",
            stacklevel=frames_of_ours() + 1,
        )


# Distances


@composite(method=False)
def mse_loss(input, target, size_average=None, reduce=None, reduction="mean", weight=None):
    """Compute (input - target)^2, times `weight`: its mean, sum or all.  Operands broadcast."""
    _tell_broadcast("mse_loss", input, target)
    losses = square(input - target)
    return _weighted("mse_loss", losses, weight, reduction_of("mse_loss", size_average, reduce, reduction))


def _weighted(op: str, losses: Any, weight: Any, reduction: str) -> Any:
    if weight is None:
        return _reduced(op, losses, reduction)
    _same_shape(op, losses, weight)
    return (
        sum(losses * weight) / sum(weight)
        if reduction == "mean"
        else _reduced(op, losses * weight, reduction)
    )


@composite(method=False)
def l1_loss(input, target, size_average=None, reduce=None, reduction="mean", weight=None):
    """Compute |input - target|, times `weight`: its mean, sum or all.  Operands broadcast."""
    _tell_broadcast("l1_loss", input, target)
    losses = abs(input - target)
    return _weighted("l1_loss", losses, weight, reduction_of("l1_loss", size_average, reduce, reduction))


@composite(method=False)
def smooth_l1_loss(input, target, size_average=None, reduce=None, reduction="mean", beta=1.0):
    """Compute d^2 / (2 beta) for d = |input - target| < beta, else d - beta / 2: its mean, sum or all."""
    reduction = reduction_of("smooth_l1_loss", size_average, reduce, reduction)
    if beta < 0:
        raise ArgumentValueError(f"smooth_l1_loss: beta must not be negative: {beta}")
    _tell_broadcast("smooth_l1_loss", input, target)
    distance = abs(input - target)
    if beta == 0:
        return _reduced("smooth_l1_loss", distance, reduction)
    losses = where(lt(distance, beta), square(distance) * (0.5 / beta), distance - 0.5 * beta)
    return _reduced("smooth_l1_loss", losses, reduction)


@composite(method=False)
def huber_loss(input, target, reduction="mean", delta=1.0, weight=None):
    """Compute d^2 / 2 for d = |input - target| <= delta, else delta (d - delta / 2): its mean, sum or all."""
    if delta <= 0:
        raise ArgumentValueError(f"huber_loss: delta must be positive: {delta}")
    _tell_broadcast("huber_loss", input, target)
    distance = abs(input - target)
    losses = where(gt(distance, delta), (distance - 0.5 * delta) * delta, square(distance) * 0.5)
    return _reduced("huber_loss", losses if weight is None else losses * weight, reduction)


@composite(method=False)
def pairwise_distance(x1, x2, p=2.0, eps=1e-06, keepdim=False):
    """Compute the `p`-norm of x1 - x2 + eps over the last dim.  Shapes, broadcast: [..., D] -> [...]."""
    return linalg_vector_norm(x1 - x2 + eps, p, -1, keepdim)


@composite(method=False)
def cosine_similarity(x1, x2, dim=1, eps=1e-08):
    """Compute the cosine of the angle between x1 and x2 along `dim`; no norm counts below `eps`.

    Shapes: x1 and x2 broadcast to [..., D, ...] -> [...].
    """
    x1, x2 = broadcast_tensors(x1, x2)
    a = x1 / clamp_min(linalg_vector_norm(x1, 2, dim, True), eps)
    b = x2 / clamp_min(linalg_vector_norm(x2, 2, dim, True), eps)
    return sum(a * b, dim)


# Classes


@composite(method=False, by_type="all")
def cross_entropy(
    input,
    target,
    weight=None,
    size_average=None,
    ignore_index=-100,
    reduce=None,
    reduction="mean",
    label_smoothing=0.0,
):
    """Compute -log softmax(input)[target]: its mean, sum or all.

    Shapes: input [C], [N, C] or [N, C, d1, ...] of logits; target the same without C, of class indices, or
    the same, of probabilities; weight [C].  The mean is over the weights of the targets that are not
    `ignore_index`, or, for probabilities, over samples.  Raises ShapeError, DTypeError, and DimError for an
    index outside [0, C).  Source of label_smoothing: Szegedy et al., Rethinking the Inception Architecture,
    section 7.
    """
    reduction = reduction_of("cross_entropy", size_average, reduce, reduction)
    target = _one_class(input, target)
    if input.ndim != target.ndim:
        return softmax_cross_entropy(input, target, weight, ignore_index, reduction, label_smoothing)
    _same_shape("cross_entropy", input, target)
    if not dtype_of(target).is_floating_point:
        raise DTypeError(
            f"cross_entropy: a target of the scores' shape holds probabilities, not {dtype_of(target).name}",
            f"of one-hot rows target.argmax({class_dim(input)}) makes indices, target.float() probabilities",
        )
    dim = class_dim(input)
    classes = input.shape[dim]
    if label_smoothing:
        target = target * (1 - label_smoothing) + label_smoothing / classes
    if weight is not None:
        target = target * _by_class(weight, input)
    losses = -sum(log_softmax(input, dim) * target, dim)
    return _reduced("cross_entropy", losses, reduction)


def _one_class(input: Any, target: Any) -> Any:
    """The class beside scores without a batch as a number, where it is a tensor of one element."""
    alone = input.ndim == 1 and tuple(target.shape) == (1,) and dtype_of(target).category == "int"
    return reshape(target, ()) if alone else target


def _by_class(weight: Any, input: Any) -> Any:
    """One number a class, laid beside `input`."""
    return reshape(weight, (-1,) + (1,) * (input.ndim - 1 - class_dim(input)))


@composite(method=False)
def nll_loss(input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean"):
    """Compute -input[target] for class indices, input holding log-probabilities: its mean, sum or all.

    Shapes: input [C], [N, C] or [N, C, d1, ...], target the same without C, weight [C].  The mean is over the
    weights of the targets that are not `ignore_index`.  Raises ShapeError, and DimError for an index outside
    [0, C).
    """
    reduction = reduction_of("nll_loss", size_average, reduce, reduction)
    dim, gather = class_dim(input), REGISTRY["gather"]
    target = _one_class(input, target)
    check_classes("nll_loss", input, target, weight)
    target = REGISTRY["cast"](target, dtype=int64)  # so that ignore_index fits beside it
    kept = ne(target, ignore_index)
    safe = where(kept, target, 0)
    picked = -reshape(gather(input, dim, unsqueeze(safe, dim)), target.shape)
    if weight is None:
        losses = where(kept, picked, 0.0)
        return sum(losses) / sum(kept) if reduction == "mean" else _reduced("nll_loss", losses, reduction)
    chosen = where(kept, reshape(gather(weight, 0, reshape(safe, (-1,))), target.shape), 0.0)
    losses = where(kept, picked * chosen, 0.0)
    return sum(losses) / sum(chosen) if reduction == "mean" else _reduced("nll_loss", losses, reduction)


# Probabilities


def _bce_body(input: Any, target: Any) -> Any:
    return -(target * maximum(log(input), -100.0) + (1.0 - target) * maximum(log1p(-input), -100.0))


_bce = elementwise(
    "binary_cross_entropy_elements",
    _bce_body,
    operands=("input", "target"),
    result="float",
    inplace=False,
    grad=(
        lambda g, input, target: g * (input - target) / clamp_min((1.0 - input) * input, 1e-12),
        lambda g, input: g * (maximum(log1p(-input), -100.0) - maximum(log(input), -100.0)),
    ),
    samples=binary_samples({"low": 0.1, "high": 0.9}, {"low": 0.0, "high": 1.0}),
    method=False,
    doc="Compute the losses that binary_cross_entropy averages.",
)


@composite(method=False)
def binary_cross_entropy(input, target, weight=None, size_average=None, reduce=None, reduction="mean"):
    """Compute -(target log(input) + (1 - target) log(1 - input)), times `weight`: its mean, sum or all.

    Shapes: input and target the same, `weight` broadcasts.  A logarithm counts as no less than -100, so that
    a sure and wrong prediction costs 100; outside [0, 1] the loss is NaN.  Raises ShapeError.
    """
    _same_shape("binary_cross_entropy", input, target)
    losses = _bce(input, target)
    reduction = reduction_of("binary_cross_entropy", size_average, reduce, reduction)
    return _reduced("binary_cross_entropy", losses if weight is None else losses * weight, reduction)


@composite(method=False)
def binary_cross_entropy_with_logits(
    input, target, weight=None, size_average=None, reduce=None, reduction="mean", pos_weight=None
):
    """Compute binary_cross_entropy(sigmoid(input), target) without overflow: its mean, sum or all.

    Shapes: input and target the same; `weight` and `pos_weight`, which multiplies the loss of positives,
    broadcast.  Raises ShapeError.
    """
    _same_shape("binary_cross_entropy_with_logits", input, target)
    positive = logsigmoid(input)
    if pos_weight is not None:
        positive = positive * ((pos_weight - 1.0) * target + 1.0)
    losses = (1.0 - target) * input - positive
    reduction = reduction_of("binary_cross_entropy_with_logits", size_average, reduce, reduction)
    return _reduced(
        "binary_cross_entropy_with_logits", losses if weight is None else losses * weight, reduction
    )


@composite(method=False)
def multilabel_soft_margin_loss(input, target, weight=None, size_average=None, reduce=None, reduction="mean"):
    """Average binary_cross_entropy_with_logits over the last dim, the labels: its mean, sum or all."""
    losses = -(target * logsigmoid(input) + (1.0 - target) * logsigmoid(-input))
    losses = mean(losses if weight is None else losses * weight, -1)
    reduction = reduction_of("multilabel_soft_margin_loss", size_average, reduce, reduction)
    return _reduced("multilabel_soft_margin_loss", losses, reduction)


@composite(method=False)
def kl_div(input, target, size_average=None, reduce=None, reduction="mean", log_target=False):
    """Compute target (log target - input), input holding log-probabilities: its mean, sum or all.

    With `log_target` the target holds logarithms too.  reduction "batchmean" divides the sum by the first
    size, which is the divergence of the distributions averaged over a batch.
    """
    losses = exp(target) * (target - input) if log_target else xlogy(target, target) - target * input
    if reduction == "batchmean" and size_average is None and reduce is None:
        return sum(losses) / input.shape[0] if input.ndim else losses
    return _reduced("kl_div", losses, reduction_of("kl_div", size_average, reduce, reduction))


@composite(method=False)
def poisson_nll_loss(
    input,
    target,
    log_input=True,
    full=False,
    size_average=None,
    eps=1e-08,
    reduce=None,
    reduction="mean",
):
    """Compute the Poisson loss: its mean, sum or all.

    It is exp(input) - target input, or without `log_input` input - target log(input + eps).  With `full`,
    Stirling's approximation of log(target!) is added where target > 1.
    """
    losses = exp(input) - target * input if log_input else input - target * log(input + eps)
    if full:
        factorial = target * log(target) - target + 0.5 * log(2.0 * pi * target)
        losses = losses + where(gt(target, 1), factorial, 0.0)
    reduction = reduction_of("poisson_nll_loss", size_average, reduce, reduction)
    return _reduced("poisson_nll_loss", losses, reduction)


@composite(method=False)
def gaussian_nll_loss(input, target, var, full=False, eps=1e-06, reduction="mean"):
    """Compute (log var + (input - target)^2 / var) / 2: its mean, sum or all.

    Shapes: input and target broadcast; var is a number, has the shape of input, or 1 as its last size, or
    lacks it. No variance counts below `eps`; the gradient passes there all the same.  With `full`, log(2 pi)
    / 2 is added.  Raises ShapeError.
    """
    if not hasattr(var, "shape"):
        var = full_like(input, var)
    if var.shape != input.shape:
        if var.shape == input.shape[:-1]:
            var = unsqueeze(var, -1)
        elif var.ndim != input.ndim:
            raise ShapeError(
                f"gaussian_nll_loss: var of shape {list(var.shape)} doesn't fit input of {list(input.shape)}"
            )
    var = clamp_min(var, eps)
    losses = 0.5 * (log(var) + square(input - target) / var)
    return _reduced("gaussian_nll_loss", losses + 0.5 * log_of(2 * pi) if full else losses, reduction)


# Margins; targets are 1 and -1


@composite(method=False)
def hinge_embedding_loss(input, target, margin=1.0, size_average=None, reduce=None, reduction="mean"):
    """Compute input where target is 1, max(0, margin - input) where it is -1: its mean, sum or all."""
    losses = where(ne(target, 1), clamp_min(margin - input, 0.0), 0.0) + where(ne(target, -1), input, 0.0)
    reduction = reduction_of("hinge_embedding_loss", size_average, reduce, reduction)
    return _reduced("hinge_embedding_loss", losses, reduction)


@composite(method=False)
def margin_ranking_loss(input1, input2, target, margin=0.0, size_average=None, reduce=None, reduction="mean"):
    """Compute max(0, margin - target (input1 - input2)): its mean, sum or all."""
    losses = clamp_min(margin - target * (input1 - input2), 0.0)
    reduction = reduction_of("margin_ranking_loss", size_average, reduce, reduction)
    return _reduced("margin_ranking_loss", losses, reduction)


@composite(method=False)
def soft_margin_loss(input, target, size_average=None, reduce=None, reduction="mean"):
    """Compute log(1 + exp(-target input)): its mean, sum or all."""
    losses = -logsigmoid(target * input)
    reduction = reduction_of("soft_margin_loss", size_average, reduce, reduction)
    return _reduced("soft_margin_loss", losses, reduction)


@composite(method=False)
def cosine_embedding_loss(
    input1, input2, target, margin=0.0, size_average=None, reduce=None, reduction="mean"
):
    """Compute 1 - cos(input1, input2) where target is 1, max(0, cos - margin) where -1: its mean, sum or all.

    Shapes: [N, D], [N, D], [N] or [D], [D], [].  Raises ShapeError.
    """
    if target.ndim + 1 != input1.ndim or input1.ndim != input2.ndim:
        raise ShapeError(
            "cosine_embedding_loss: one target for each pair of vectors",
            f"shapes {list(input1.shape)}, {list(input2.shape)}, {list(target.shape)}",
        )
    lengths = (sum(square(input1), -1) + 1e-12) * (sum(square(input2), -1) + 1e-12)
    cosine = sum(input1 * input2, -1) / sqrt(lengths)
    losses = where(eq(target, 1), 1.0 - cosine, 0.0) + where(
        eq(target, -1), clamp_min(cosine - margin, 0.0), 0.0
    )
    reduction = reduction_of("cosine_embedding_loss", size_average, reduce, reduction)
    return _reduced("cosine_embedding_loss", losses, reduction)


@composite(method=False)
def triplet_margin_loss(
    anchor,
    positive,
    negative,
    margin=1.0,
    p=2,
    eps=1e-06,
    swap=False,
    size_average=None,
    reduce=None,
    reduction="mean",
):
    """Compute max(0, margin + d(anchor, positive) - d(anchor, negative)): its mean, sum or all.

    d is pairwise_distance.  With `swap`, the lesser of the negative's distances to anchor and positive
    counts.  Source: Balntas et al., Learning shallow convolutional feature descriptors with triplet losses,
    eq. 4.
    """
    near, far = pairwise_distance(anchor, positive, p, eps), pairwise_distance(anchor, negative, p, eps)
    if swap:
        far = minimum(far, pairwise_distance(positive, negative, p, eps))
    reduction = reduction_of("triplet_margin_loss", size_average, reduce, reduction)
    return _reduced("triplet_margin_loss", clamp_min(margin + near - far, 0.0), reduction)
