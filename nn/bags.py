"""Functions on numbers of classes and rows: one-hot vectors, embeddings of rows and of bags of rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir.dtypes import int64
from ..ir.errors import ArgumentValueError, DTypeError, ShapeError
from ..runtime import Function, Tensor, as_tensor, no_grad, ops


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """Vectors with a 1 at each class number.  Shapes: [...] of ints -> [..., num_classes] of int64.

    num_classes: one more than the greatest unless given.  Raises ArgumentValueError for numbers outside.
    """
    if tensor.dtype is not int64:
        raise DTypeError("one_hot(tensor): class numbers must be int64", f"tensor: {tensor._meta}")
    if not tensor.numel():
        if num_classes <= 0:
            raise ArgumentValueError(
                "one_hot(tensor): an empty tensor does not say how many classes there are"
            )
        return ops.zeros(*tensor.shape, num_classes, dtype=int64)
    least, most = int(tensor.min()), int(tensor.max())
    if num_classes == -1:
        num_classes = most + 1
    if least < 0 or most >= num_classes:
        raise ArgumentValueError(
            f"one_hot(tensor): class {least if least < 0 else most} is not between 0 and {num_classes - 1}"
        )
    return ops.eq(tensor.unsqueeze(-1), ops.arange(num_classes)).to(int64)


class _GradientTimes(Function):
    """Hand `input` on, and its cotangent times `factor`."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, factor: Tensor) -> Tensor:
        ctx.factor = factor
        return input.view_as(input)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple:
        return grads[0] * ctx.factor, None


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Look up rows of `weight`.  Shapes: [...] of ints, [V, E] -> [..., E].

    padding_idx: a row that gets no gradient.  max_norm: rows that are used are first scaled down to this norm
    (of order norm_type), in place.  scale_grad_by_freq: divide gradients by how often a row is used.  sparse:
    accepted; gradients are dense all the same.  Raises DimError, ShapeError, DTypeError.
    """
    if max_norm is not None:
        _renorm_rows(weight, input, float(max_norm), norm_type)
    rows = ops.embedding(input, weight, padding_idx)
    if scale_grad_by_freq and rows.requires_grad:
        used = np.array(input.tolist(), np.int64)
        often = np.bincount(used.reshape(-1), minlength=1)[used]
        rows = _GradientTimes.apply(rows, as_tensor(1.0 / often).to(rows.dtype).unsqueeze(-1))
    return rows


def _renorm_rows(weight: Tensor, input: Tensor, max_norm: float, norm_type: float) -> None:
    """Scale the rows of `weight` at `input` down to `max_norm`, in place."""
    with no_grad():
        used = as_tensor(np.unique(np.array(input.tolist(), np.int64)))
        rows = weight.index_select(0, used)
        norms = ops.linalg_vector_norm(rows, norm_type, 1, True)
        factors = ops.where(norms > max_norm, max_norm / (norms + 1e-7), 1.0)
        weight.copy_(weight.index_copy(0, used, rows * factors))


def _bags(input: Tensor, offsets: Tensor | None, include_last_offset: bool) -> tuple[np.ndarray, int]:
    """The bag of each element of the flat input, and how many bags there are."""
    if input.ndim == 2:
        if offsets is not None:
            raise ArgumentValueError("embedding_bag: a matrix of bags takes no offsets")
        return np.repeat(np.arange(input.shape[0]), input.shape[1]), input.shape[0]
    if input.ndim != 1 or offsets is None:
        raise ShapeError("embedding_bag: the input is [B, n], or [n] with offsets", f"input: {input._meta}")
    starts = np.array(offsets.tolist(), np.int64)
    if not len(starts) or starts[0] != 0 or (np.diff(starts) < 0).any() or starts[-1] > input.shape[0]:
        raise ArgumentValueError(
            f"embedding_bag: offsets start at 0 and grow up to {input.shape[0]}: {starts.tolist()}"
        )
    if include_last_offset:
        starts = starts[:-1]
    return np.searchsorted(starts, np.arange(input.shape[0]), side="right") - 1, len(starts)


def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """The sum, mean or max of the rows of `weight` in each bag; 0 for an empty bag.

    Shapes: input [B, n], or [n] with offsets [B]; weight [V, E] -> [B, E].  Rows of `padding_idx` don't
    count. per_sample_weights: a factor for each row, only for mode "sum".
    """
    if mode not in ("sum", "mean", "max"):
        raise ArgumentValueError(f"embedding_bag: mode must be 'sum', 'mean' or 'max', not {mode!r}")
    if per_sample_weights is not None and mode != "sum":
        raise ArgumentValueError(f"embedding_bag: per_sample_weights go with mode='sum', not {mode!r}")
    bags, count = _bags(input, offsets, include_last_offset)
    flat = input.reshape(-1)
    if padding_idx is not None:
        kept = np.flatnonzero(np.array(flat.tolist(), np.int64) != padding_idx % weight.shape[0])
        bags, places = bags[kept], as_tensor(kept)
        flat = flat.index_select(0, places)
        if per_sample_weights is not None:
            per_sample_weights = per_sample_weights.reshape(-1).index_select(0, places)
    rows = embedding(flat, weight, None, max_norm, norm_type, scale_grad_by_freq, sparse)
    zeros = ops.zeros(count, weight.shape[1], dtype=weight.dtype)
    if mode == "max":
        found = []
        for bag in range(count):
            mine = np.flatnonzero(bags == bag)
            found.append(rows.index_select(0, as_tensor(mine)).max(0)[0] if len(mine) else zeros[0])
        return ops.stack(found)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.reshape(-1, 1)
    sums = zeros.index_add(0, as_tensor(bags), rows)
    if mode == "sum":
        return sums
    each = np.maximum(np.bincount(bags, minlength=count), 1).reshape(-1, 1)
    return sums / as_tensor(each).to(weight.dtype)
