"""Calls of reductions that are other ops: nothing to reduce."""

from __future__ import annotations

from typing import Any

from ..ir.dtypes import uint8
from . import ops
from .dispatch import INSTEAD
from .tensor import Tensor


def _of_each(input: Any, args: tuple, kwargs: dict[str, Any]) -> Tensor | None:
    """What all and any give over no dimension: of each element whether it differs from 0."""
    dim = args[0] if args else kwargs.get("dim", kwargs.get("axis"))
    if not isinstance(dim, (tuple, list)) or dim or not isinstance(input, Tensor):
        return None
    found = ops.ne(input, 0)
    return found.to(uint8) if input.dtype is uint8 else found


INSTEAD |= {"all": _of_each, "any": _of_each}
