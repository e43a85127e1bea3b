"""Calls of reductions and running sums that are other ops: nothing to reduce, and real parts alone."""

from __future__ import annotations

from typing import Any

from ..ir.dtypes import DType, uint8
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


def _of_real_parts(name: str) -> Any:
    """What a reduction gives where real numbers are asked for of complex ones."""

    def call(input: Any, args: tuple, kwargs: dict[str, Any]) -> Tensor | None:
        dtype = kwargs.get("dtype")
        if not isinstance(dtype, DType) or dtype.is_complex or not isinstance(input, Tensor):
            return None
        return ops.FUNCTIONS[name](input.to(dtype), *args, **kwargs) if input.dtype.is_complex else None

    return call


INSTEAD |= {"all": _of_each, "any": _of_each}
INSTEAD |= {name: _of_real_parts(name) for name in ("sum", "prod", "mean", "cumsum", "cumprod")}
