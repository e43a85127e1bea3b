"""What the programs about sizes (programs_sizes*.py) share: tensors of many sizes, and calls on them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

ROWS = (4, 6, 8, 5, 3, 2, 1, 9)  # the second that differs makes a symbol; one, and less, are recorded anew


def data_of(t: Any) -> Callable:
    """What makes a tensor of a library: the same for the same shape, with no pattern that hides a size."""

    def data(*shape: int) -> Any:
        count = t.arange(math.prod(shape), dtype=t.float32)
        return (count * 0.7548776 % 1.0 * 4 - 1.9).reshape(shape)

    return data


def sized(w: Any, f: Any, *shapes: Callable, sizes: tuple[int, ...] = ROWS) -> None:
    """Trace f, and call it once a round on each size, with tensors whose shapes are functions of it."""
    data, f = data_of(w.lib), w.trace(f)
    for n in w.rounds(*sizes):
        w.once(f, *(data(*shape(n)) for shape in shapes))
