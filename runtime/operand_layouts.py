"""How the operands of native code lie in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

Order = tuple[int, ...]  # the dims of an array, that of the longest stride first
Arrays = Sequence[np.ndarray | None]


@dataclass(frozen=True)
class Layout:
    """How the operands of native code lie in memory.

    orders: per operand, the order in which its dims are dense, None where that is theirs (or a copy is made).
    single: per operand, the dims along which one element is repeated, of which there is one place then.
    kept: the order of the results' dims, where that is the operands'.
    """

    orders: tuple[Order | None, ...]
    single: tuple[tuple[int, ...], ...]
    kept: Order | None = None

    @property
    def is_dense(self) -> bool:
        """Whether all operands are dense in the order of their dims."""
        return not any(self.orders) and not any(self.single)


def repeated(x: np.ndarray | None) -> tuple[int, ...]:
    """The dims along which an array has one element in every place."""
    if x is None or 0 not in x.strides:
        return ()
    return tuple(d for d, (n, s) in enumerate(zip(x.shape, x.strides, strict=True)) if s == 0 and n > 1)


def once(x: np.ndarray, dims: tuple[int, ...]) -> np.ndarray:
    """The array with one place along these dims."""
    return x[tuple([slice(0, 1) if d in dims else slice(None) for d in range(x.ndim)])] if dims else x


def dense_order(x: np.ndarray) -> Order | None:
    """The order of dims in which an array is dense; None where it isn't in any."""
    order = tuple(sorted(range(x.ndim), key=lambda d: -x.strides[d]))
    return order if x.transpose(order).flags.c_contiguous else None


def layout_of(arrays: Arrays, keeps: bool, copies: bool, always: bool = False) -> Layout | None:
    """The layout of operands, or None for one that is left to NumPy.

    keeps: the results are to have the operands' order, if they share one.  copies: slices of rows are dense
    after a copy, which is worth its while.  always: so is a copy of whatever is dense in no order.
    """
    single = tuple(map(repeated, arrays))
    arrays = [x if x is None else once(x, dims) for x, dims in zip(arrays, single, strict=True)]
    orders: list[Order | None] = []
    for x in arrays:
        order = None
        if x is not None and not x.flags.c_contiguous:
            order = dense_order(x)
            if order is None and not (always or copies and list(x.strides) == sorted(x.strides)[::-1]):
                return None
        orders.append(order)
    kept = next((order for order in orders if order is not None), None) if keeps else None
    if kept is not None:
        dense = [x for x in arrays if x is not None and x.ndim]
        if all(x.ndim == len(kept) and x.transpose(kept).flags.c_contiguous for x in dense):
            orders = [None if x is None or not x.ndim else kept for x in arrays]
        else:
            kept = None
    return Layout(tuple(orders), single, kept)
