"""gather(sparse_grad=True): the gradient is a sparse tensor of the elements that were picked.

Importing this module makes `gather` ask it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir.op import REGISTRY
from ..ir.shapes import dim_of
from . import modes
from .calls import eager
from .dispatch import INSTEAD
from .function import Context, Function
from .sparse_tensor import coo_of
from .tensor import Tensor

_gather = eager(REGISTRY["gather"])


class SparseGather(Function):
    """gather, whose gradient stores an element for each place."""

    @staticmethod
    def forward(ctx: Context, input: Tensor, dim: int, index: Tensor) -> Tensor:
        ctx.shape, ctx.dim = input.shape, dim_of("gather", dim, input.ndim)  # type: ignore[attr-defined]
        ctx.save_for_backward(index)
        return _gather(input, dim, index)

    @staticmethod
    def backward(ctx: Context, *cotangents: Tensor) -> Any:
        (index,), (g,) = ctx.saved_tensors, cotangents
        shape, dim = ctx.shape, ctx.dim  # type: ignore[attr-defined]
        sizes = index.shape or (1,) * len(shape)  # an index of no dimensions is one of a single element
        places = np.indices(sizes).reshape(len(sizes), index.numel())
        if shape:
            places[dim] = index._data.reshape(-1)
        return coo_of(places[: len(shape)], g.reshape(-1), shape, False), None, None


def _sparsely(input: Any, args: tuple, kwargs: dict[str, Any]) -> Tensor | None:
    """What gather gives where a sparse gradient is asked for; None for any other call."""
    if not kwargs.get("sparse_grad") or not isinstance(input, Tensor):
        return None
    named = dict(zip(("dim", "index"), args, strict=False)) | kwargs
    if not modes.is_grad_enabled() or not input.requires_grad:
        return _gather(input, named["dim"], named["index"])
    if modes.CHANGED:
        modes.tell("refuse", "gather(sparse_grad=True) makes sparse gradients")
    return SparseGather.apply(input, named["dim"], named["index"])


INSTEAD["gather"] = _sparsely
