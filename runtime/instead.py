"""Calls that are other ops: reductions of nothing, memory out of order, `gather` with sparse gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir.dtypes import uint8
from ..ir.op import REGISTRY
from ..ir.shapes import dim_of
from . import modes, ops
from .calls import eager
from .dispatch import ELSEWISE, INSTEAD
from .function import Context, Function
from .meta import NoValues
from .on_device import OnDevice, plain
from .operand_layouts import dense_order
from .sparse_tensor import coo_of
from .tensor import Tensor


def _of_each(input: Any, args: tuple, kwargs: dict[str, Any]) -> Tensor | None:
    """What all and any give over no dimension: of each element whether it differs from 0."""
    dim = args[0] if args else kwargs.get("dim", kwargs.get("axis"))
    if not isinstance(dim, (tuple, list)) or dim or not isinstance(input, Tensor):
        return None
    found = ops.ne(input, 0)
    return found.to(uint8) if input.dtype is uint8 else found


def _in_memory(input: Tensor, **attrs: Any) -> Tensor | None:
    """as_strided of a tensor whose elements are dense in another order of its dims: of them in that order."""
    data = plain(input._data) if isinstance(input._data, OnDevice) else input._data
    order = None if isinstance(data, NoValues) else dense_order(data)
    if order is None or order == tuple(range(input.ndim)):
        return None
    return ops.as_strided(ops.permute(input, order), **attrs)


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


ELSEWISE["as_strided"] = _in_memory
INSTEAD |= {"all": _of_each, "any": _of_each, "gather": _sparsely}
