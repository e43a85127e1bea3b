"""Losses.  All but cross_entropy over class indices are composites: functions written with ops."""

from __future__ import annotations

from math import log as log_of
from math import pi, prod
from typing import Any

from ..dims import same
from ..errors import ArgumentError, ArgumentValueError, ShapeError
from ..op import REGISTRY, composite
from .activation import logsigmoid, softplus
from .arithmetic import abs, clamp, clamp_min, maximum, minimum, sqrt, square, xlogy
from .compare import eq, gt, lt, ne, where
from .cross_entropy import check_reduction, class_dim, softmax_cross_entropy
from .math import exp, log
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
            f"{op}: input and target must have the same shape, not {list(input.shape)} and {list(target.shape)}",
            "reshape or expand one of them, so that the pairs meant are those compared",
        )


# Distances


@composite(method=False)
def mse_loss(input, target, size_average=None, reduce=None, reduction="mean", weight=None):
    """Compute (input - target)^2, times `weight`: its mean, sum or all.  Operands broadcast."""
    losses = square(input - target)
    return _weighted("mse_loss", losses, weight, reduction_of("mse_loss", size_average, reduce, reduction))


def _weighted(op: str, losses: Any, weight: Any, reduction: str) -> Any:
    if weight is None:
        return _reduced(op, losses, reduction)
    total = sum(weight * (losses * 0.0 + 1.0)) if reduction == "mean" else None
    losses = losses * weight
    return sum(losses) / total if total is not None else _reduced(op, losses, reduction)


@composite(method=False)
def l1_loss(input, target, size_average=None, reduce=None, reduction="mean", weight=None):
    """Compute |input - target|, times `weight`: its mean, sum or all.  Operands broadcast."""
    losses = abs(input - target)
    return _weighted("l1_loss", losses, weight, reduction_of("l1_loss", size_average, reduce, reduction))
