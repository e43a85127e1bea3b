"""What a mask selects, where only its use matters: `d[m] = x[m]`, `x[m].sum()`, `x[m].mean()`.

How much a mask selects hangs on its values, which divides a run at each place and makes a recording for each
count.  Where what is selected goes at once into the same places of another tensor, or into its sum, nobody
can see the count: `where(m, x, d)` says the same with sizes that are known.  The decoder marks the places in
the bytecode where that is so: between the selection and its use stand loads alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...ir.dtypes import bool_, float32, float64
from ...ir.errors import LaminaError
from ...runtime import Tensor, modes, ops
from ...runtime.indexing import PLAIN


class Selected(NamedTuple):
    """What `source[mask]` gave, unheard; steps: how many were recorded before."""

    source: Tensor
    mask: Tensor
    values: Tensor
    steps: int


def selected(observer: Any, x: Any, mask: Any) -> Selected | None:
    """`x[mask]`, which is not recorded; None where it must be."""
    if not _fit(observer, x, mask) or observer.patched(x, "__getitem__") is not None:
        return None
    with modes.unheard():
        values = x[mask]
    return Selected(x, mask, values, len(observer.recorder.steps))


def put(observer: Any, found: Selected, into: Any, key: Any, values: Any) -> bool:
    """`into[key] = values` as a choice for each element; whether that was done."""
    recorder, (x, mask, made, steps) = observer.recorder, found
    if values is not made or observer.refused:
        return False
    if len(recorder.steps) != steps:  # an attribute's own code ran in between
        observer.refuse("what a mask selects was computed before other code ran; keep it in a variable")
        return False
    fits = key is mask and _fit(observer, into, mask) and (into.shape, into.dtype) == (x.shape, x.dtype)
    if not fits or observer.patched(into, "__setitem__") is not None or 0 in into._data.strides:
        return False
    try:
        into.copy_(ops.where(_spread(mask, x), x, into))
    except LaminaError:  # the plain way has its own words
        return False
    return True


def reduced(observer: Any, x: Any, mask: Any, name: str, rows: bool) -> Tensor | None:
    """`x[mask].sum()` or `.mean()`, or those of rows; None where it must be known how much is selected."""
    if not _fit(observer, x, mask) or x.dtype not in (float32, float64) or rows and mask.ndim > 1:
        return None
    if any(observer.patched(x, asked) is not None for asked in ("__getitem__", name)):
        return None
    chosen = ops.where(_spread(mask, x), x, 0.0)
    total = chosen.sum(0) if rows else chosen.sum()
    if name == "sum":
        return total
    each = 1 if rows else x.numel() // mask.numel()
    return total / (mask.sum() * each).to(x.dtype)


def _fit(observer: Any, x: Any, mask: Any) -> bool:
    """Whether a mask chooses among the elements, or rows, of a tensor; both just that."""
    return (
        not observer.refused
        and type(x) in PLAIN and type(mask) is Tensor and type(x._data) is type(mask._data) is np.ndarray
        and mask.dtype is bool_ and 0 < mask.ndim <= x.ndim and x.shape[: mask.ndim] == mask.shape
        and 0 not in x.shape and not modes.local.functions and not modes.local.levels
    )  # fmt: skip


def _spread(mask: Tensor, x: Tensor) -> Tensor:
    """A mask of rows with the dimensions of the rows, each of one."""
    return mask if mask.ndim == x.ndim else mask.reshape((*mask.shape, *[1] * (x.ndim - mask.ndim)))
