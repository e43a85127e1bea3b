"""Losses of margins between scores."""

from __future__ import annotations

from collections.abc import Callable

from ..ir.errors import ArgumentValueError, ShapeError
from ..ir.ops.loss import reduction_of
from ..runtime import Tensor, ops


def _reduced(losses: Tensor, reduction: str) -> Tensor:
    return losses if reduction == "none" else losses.sum() if reduction == "sum" else losses.mean()


def _check_scores(call: str, input: Tensor) -> None:
    """Raises ShapeError unless there are classes, of one example or of a batch, which may be empty."""
    if input.ndim > 2 or input.ndim and not input.shape[-1]:
        raise ShapeError(
            f"{call}: Expected non-empty vector or matrix with optional 0-dim batch size, but got: "
            f"{[*input.shape]}"
        )


def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The mean over classes i of max(0, margin - (input[target] - input[i]))^p, i not the target.

    Shapes: input [N, C] or [C], target [N] or [] of ints.
    """
    if p not in (1, 2):
        raise ArgumentValueError(f"multi_margin_loss(p): p must be 1 or 2, not {p}")
    reduction = reduction_of("multi_margin_loss", size_average, reduce, reduction)
    if input.ndim < 2 and target.numel() == 1:  # one row
        rows = input.reshape(1, -1), target.reshape(1)
        loss = multi_margin_loss(*rows, p, margin, weight, reduction=reduction)
        return loss if target.ndim else loss.reshape(())
    _check_scores("multi_margin_loss", input)
    if target.ndim != input.ndim - 1 or target.shape != input.shape[:-1]:
        raise ShapeError(
            "multi_margin_loss: the target has one class for each row of scores",
            f"input: {input._meta}",
            f"target: {target._meta}",
        )
    places = target.unsqueeze(-1)
    gaps = (margin - (input.gather(-1, places) - input)).clamp(min=0.0)
    gaps = gaps if p == 1 else gaps * gaps
    if weight is not None:
        gaps = gaps * weight.index_select(0, target.reshape(-1)).reshape(*target.shape, 1)
    others = ops.ones_like(input).detach().scatter(-1, places, 0.0)
    return _reduced((gaps * others).sum(-1) / input.shape[-1], reduction)


def multilabel_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The sum of max(0, 1 - (input[y] - input[i])) over labels y and other classes i, divided by C.

    Shapes: input [N, C] or [C], target the same of ints: labels, then -1, after which nothing counts.
    """
    reduction = reduction_of("multilabel_margin_loss", size_average, reduce, reduction)
    _check_scores("multilabel_margin_loss", input)
    if input.ndim < 2 and target.ndim < 2 and input.numel() == target.numel() == 1:
        target = target.reshape(input.shape)  # one class, with a dim or without
    if target.shape != input.shape:
        raise ShapeError(
            "multilabel_margin_loss: inconsistent target size: input and target must have one shape",
            f"input: {input._meta}",
            f"target: {target._meta}",
        )
    if input.ndim == 0:
        return multilabel_margin_loss(input.reshape(1), target.reshape(1), reduction=reduction)
    counts = ops.cumsum((target == -1).to(target.dtype), -1) == 0  # labels before the first -1
    places = ops.where(counts, target, 0)
    shares = counts.to(input.dtype)
    is_label = ops.zeros_like(input).detach().scatter_add(-1, places, shares).clamp(max=1.0)
    gaps = (1.0 - input.gather(-1, places).unsqueeze(-1) + input.unsqueeze(-2)).clamp(min=0.0)
    losses = gaps * shares.unsqueeze(-1) * (1.0 - is_label).unsqueeze(-2)
    return _reduced(losses.sum((-1, -2)) / input.shape[-1], reduction)


def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """max(0, d(anchor, positive) - d(anchor, negative) + margin).

    swap: take the lesser of both distances to negative.
    """
    reduction = reduction_of("triplet_margin_with_distance_loss", None, None, reduction)
    distance = distance_function or ops.pairwise_distance
    far = distance(anchor, negative)
    if swap:
        far = ops.minimum(far, distance(positive, negative))
    return _reduced((distance(anchor, positive) - far + margin).clamp(min=0.0), reduction)
