"""Control flow as a function: `cond`, `associative_scan`.  A trace interprets it: it calls users'."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..ir.errors import ArgumentValueError
from ..runtime import Tensor, ops
from .pytree import tree_flatten, tree_unflatten


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


def associative_scan(
    combine_fn: Callable, xs: Any, dim: int, reverse: bool = False, combine_mode: str = "pointwise"
) -> Any:
    """What `combine_fn(a, b)`, which is associative, makes of the first, the first two, ... along `dim`.

    xs: a tensor, or a container of tensors of equal sizes along `dim`.  As many calls as the size has bits.
    """
    leaves, spec = tree_flatten(xs)
    if not leaves or not all([isinstance(x, Tensor) for x in leaves]):
        raise ArgumentValueError("associative_scan: xs leaves must be tensors, at least one")
    size = leaves[0].shape[dim]
    if any([x.shape[dim] != size for x in leaves]):
        raise ArgumentValueError("associative_scan: all xs leaves must have the same size along dim")
    found = [x.flip(dim) for x in leaves] if reverse else leaves
    step = 1
    while step < size:
        before = tree_unflatten([x.narrow(dim, 0, size - step) for x in found], spec)
        after = tree_unflatten([x.narrow(dim, step, size - step) for x in found], spec)
        made = tree_flatten(combine_fn(before, after))[0]
        found = [ops.cat((x.narrow(dim, 0, step), y), dim) for x, y in zip(found, made, strict=True)]
        step *= 2
    return tree_unflatten([x.flip(dim) for x in found] if reverse else found, spec)
