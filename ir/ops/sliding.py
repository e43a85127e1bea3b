"""Windows that slide over the last dimensions of a tensor: what convolution, pooling and unfolding share."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ..dims import at_least
from ..errors import ArgumentValueError, ShapeError
from ..shapes import pair

Padding = tuple[tuple[int, int], ...]  # (before, after) for each spatial dimension


class Window(NamedTuple):
    """A window's size, and how it moves.  One entry of each tuple belongs to one spatial dimension."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: Padding
    dilation: tuple[int, ...]

    def places(self, op: str, sizes: tuple) -> tuple:
        """The number of places along each dimension.  Raises ShapeError where the window doesn't fit."""
        for size in self.kernel:
            if size == 0:
                raise ShapeError(f"{op}: a window must not be empty: {list(self.kernel)}")
        reaches = [d * (r - 1) + 1 for r, d in zip(self.kernel, self.dilation, strict=True)]
        wholes = [size + before + after for size, (before, after) in zip(sizes, self.padding, strict=True)]
        if not all(at_least(n - r, 0) for n, r in zip(wholes, reaches, strict=True)):
            given, wanted = (" x ".join(map(str, each)) for each in (wholes, reaches))
            raise ShapeError(
                f"{op}: the output is too small. Calculated padded input size per channel: ({given}). Kernel "
                f"size: ({wanted}). Kernel size can't be greater than actual input size"
            )
        return tuple((n - r) // s + 1 for n, r, s in zip(wholes, reaches, self.stride, strict=True))

    def positions(self, places: tuple, taps: tuple) -> tuple:
        """Where element `taps` of the window at `places` lies: place * stride + tap * dilation - padding."""
        every = zip(places, taps, self.stride, self.padding, self.dilation, strict=True)
        return tuple(i * s + r * d - p for i, r, s, (p, _), d in every)

    def view(self, x: np.ndarray, places: tuple, fill: Any = 0) -> np.ndarray:
        """All windows of x: [n, c, *sizes] -> [n, c, *kernel, *places], a view where nothing is padded."""
        reach = tuple(
            (o - 1) * s + d * (r - 1) + 1
            for o, r, s, d in zip(places, self.kernel, self.stride, self.dilation, strict=True)
        )
        before = tuple(p for p, _ in self.padding)
        spare = tuple(p + n for p, n in zip(before, x.shape[2:], strict=True))
        if any(before) or any(n < r for n, r in zip(spare, reach, strict=True)):
            inside: tuple[Any, ...] = tuple(slice(p, e) for p, e in zip(before, spare, strict=True))
            padded = np.full(x.shape[:2] + tuple(map(max, reach, spare)), fill, x.dtype)
            padded[(..., *inside)] = x
            x = padded
        along = x.strides[2:]
        strides = (
            *x.strides[:2],
            *(step * d for step, d in zip(along, self.dilation, strict=True)),
            *(step * s for step, s in zip(along, self.stride, strict=True)),
        )
        return as_strided(x, x.shape[:2] + self.kernel + places, strides, writeable=False)

    def overlap(self, taps: np.ndarray, sizes: tuple) -> np.ndarray:
        """Transpose `view`, adding up where windows meet: [n, c, *kernel, *places] -> [n, c, *sizes]."""
        places = taps.shape[2 + len(sizes) :]
        ends = tuple(
            max(p + n, (o - 1) * s + d * (r - 1) + 1)
            for n, o, r, s, (p, _), d in zip(sizes, places, *self, strict=True)
        )
        x = np.zeros(taps.shape[:2] + ends, taps.dtype)
        if taps.size and prod(places) < prod(self.kernel):  # a window at a time
            for place in product(*map(range, places)):
                every = zip(place, self.kernel, self.stride, self.dilation, strict=True)
                covered = tuple(slice(o * s, o * s + (r - 1) * d + 1, d) for o, r, s, d in every)
                x[(..., *covered)] += taps[(..., *place)]
        elif taps.size:
            for tap in product(*map(range, self.kernel)):
                every = zip(tap, places, self.stride, self.dilation, strict=True)
                covered = tuple(slice(t * d, t * d + (o - 1) * s + 1, s) for t, o, s, d in every)
                x[(..., *covered)] += taps[(slice(None), slice(None), *tap)]
        inside = tuple(slice(p, p + n) for n, (p, _) in zip(sizes, self.padding, strict=True))
        return np.ascontiguousarray(x[(..., *inside)])


def padded(op: str, padding: Any, n: int) -> Padding:
    """What is added before and after `n` dimensions: an int, n ints or n pairs of ints."""
    if isinstance(padding, (tuple, list)) and padding and isinstance(padding[0], (tuple, list)):
        return tuple(map(tuple, padding))
    found = pair(op, "padding", padding, n)
    if any(p < 0 for p in found):
        raise ArgumentValueError(f"{op}: padding can't be negative: {padding}")
    return tuple((p, p) for p in found)


def positive(op: str, name: str, value: Any, n: int) -> tuple[int, ...]:
    """A size, stride or dilation for each of `n` dimensions.  Raises ArgumentValueError unless 1 or more."""
    found = pair(op, name, value, n)
    if any(size < 1 for size in found):
        raise ArgumentValueError(
            f"{op}: non-positive {name} is not supported: {name} must be greater than zero, not {value}"
        )
    return found


SAMPLE_SIZES = dict.fromkeys(("0-d", "1", "17", "33"), "an image has channels and sizes") | {
    "empty": "an empty batch stands in its place",
    "broadcast": "nothing is broadcast",
}
