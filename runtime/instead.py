"""Calls that are other ops: reductions of nothing, and places in memory whose rows are not in order."""

from __future__ import annotations

from typing import Any

from ..ir.dtypes import uint8
from . import ops
from .dispatch import ELSEWISE, INSTEAD
from .meta import NoValues
from .on_device import OnDevice, plain
from .operand_layouts import dense_order
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


ELSEWISE["as_strided"] = _in_memory
INSTEAD |= {"all": _of_each, "any": _of_each}
