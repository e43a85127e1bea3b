"""Whether boxes fill a tensor: each element lies in exactly one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import product

from .metadata import Box, Sizes, volume

MOST_SPLIT = 8  # dims: of a mesh with as many, 256 devices at least


def untiled(shape: Sizes, boxes: Iterable[Box]) -> str | None:
    """Why boxes, each within the shape, don't fill it; None where they do.

    A sum of boxes is known by its corners: each counts 1 or -1, by how many of its sides are upper ones, and
    those of the whole remain if and only if every element lies in one box.  So it takes time in proportion to
    the boxes.  Dims that no box splits are left out, as a corner is one of 2 to the number of dims.
    """
    boxes = [(begin, sizes) for begin, sizes in boxes if volume(sizes)]
    if not volume(shape):
        return None
    split = [d for d, n in enumerate(shape) if any(begin[d] or sizes[d] != n for begin, sizes in boxes)]
    if len(split) > MOST_SPLIT:
        return f"it is split along {len(split)} dims, of {MOST_SPLIT} at most"
    corners: Counter[tuple[int, ...]] = Counter()
    whole = ((0,) * len(shape), shape)
    for (begin, sizes), weight in (*((box, 1) for box in boxes), (whole, -1)):
        for upper in product((0, 1), repeat=len(split)):
            at = tuple(begin[d] + sizes[d] * side for d, side in zip(split, upper, strict=True))
            corners[at] += weight * (-1) ** sum(upper)
    if not any(corners.values()):
        return None
    held = sum(volume(sizes) for _, sizes in boxes)
    if held < volume(shape):
        return f"its chunks hold {held} of {volume(shape)} elements"
    return "some of its chunks overlap"
