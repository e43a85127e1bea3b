"""Control flow as a function: `cond`.  A trace interprets this file, as it calls what users hand it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..ir.errors import ArgumentValueError
from ..runtime import Tensor


def cond(pred: Any, true_fn: Callable, false_fn: Callable, operands: Any = ()) -> Any:
    """Call `true_fn(*operands)` where `pred`, a bool or a tensor of one element, is true, else the other.

    Raises ArgumentValueError.
    """
    if not isinstance(pred, (bool, Tensor)):
        raise ArgumentValueError(f"cond: Expected pred to be bool or tensor, but got {type(pred).__name__}")
    if isinstance(pred, Tensor) and pred.numel() != 1:
        raise ArgumentValueError(f"cond: Expected pred to be a tensor of one element. It is {pred._meta}")
    if not callable(true_fn) or not callable(false_fn):
        raise ArgumentValueError("cond: Expect both branches to be callable")
    if not isinstance(operands, (tuple, list)):
        raise ArgumentValueError(f"cond: Expect operands to be a tuple, not {type(operands).__name__}")
    return (true_fn if pred else false_fn)(*operands)
