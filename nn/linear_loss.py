"""Cross entropy of what a linear layer computes, as one function and one module."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from ..ir.errors import ArgumentValueError, ShapeError
from ..runtime import Tensor, ops


@dataclass(frozen=True)
class LinearCrossEntropyOptions:
    """How PyTorch cuts the computation into chunks.  It is taken and changes nothing: no gradient is computed
    in the forward here, so that a second backward and second order work as they do without options.
    """

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"
    acc_policy: str = "auto"
    acc_dtype: Any = None


def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: LinearCrossEntropyOptions | None = None,
) -> Tensor:
    """cross_entropy(linear(input, linear_weight, linear_bias), target).

    Shapes: input [N, in] or [in], linear_weight [C, *d, in], linear_bias [C, *d], target [N, *d], or
    [N, C, *d] where it holds probabilities.  ignore_index: for targets that are classes; -100 unless given.
    """
    if linear_weight.ndim < 2 or linear_weight.shape[-1] != input.shape[-1]:
        raise ShapeError(
            "linear_cross_entropy: linear_weight must be [C, ..., in] for an input [N, in]",
            f"input: {input._meta}",
            f"linear_weight: {linear_weight._meta}",
        )
    if ignore_index is not None and target.is_floating_point():
        raise ArgumentValueError(
            "linear_cross_entropy: ignore_index is for targets that are classes, not probabilities"
        )
    outputs = linear_weight.shape[:-1]
    bias = None if linear_bias is None else linear_bias.reshape(prod(outputs))
    flat = ops.linear(input, linear_weight.reshape(prod(outputs), linear_weight.shape[-1]), bias)
    return ops.cross_entropy(
        flat.reshape(*input.shape[:-1], *outputs),
        target,
        weight,
        reduction=reduction,
        ignore_index=-100 if ignore_index is None else ignore_index,
        label_smoothing=label_smoothing,
    )
