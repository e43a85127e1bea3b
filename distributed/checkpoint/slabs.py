"""Parts of a stored chunk as runs of its bytes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from .index_text import BLOCK
from .metadata import Box, Sizes

SLAB = 64 << 20  # bytes that are read at once, unless a row is larger


def overlap(a: Box, b: Box) -> Box | None:
    """The box that two have in common; None where that has no element."""
    begin = tuple(map(max, a[0], b[0]))
    end = tuple(min(x + n, y + m) for x, n, y, m in zip(*a, *b, strict=True))
    if any(x >= y for x, y in zip(begin, end, strict=True)):
        return None
    return begin, tuple(y - x for x, y in zip(begin, end, strict=True))


@dataclass(frozen=True)
class Slab:
    """Whole rows of an array, which follow each other in memory.

    first, rows: along dim `len(prefix)`, at the places `prefix` along those before.
    begin, size: in bytes, from the array's first.
    """

    prefix: tuple[int, ...]
    first: int
    rows: int
    begin: int
    size: int


def slabs(sizes: Sizes, box: Box, itemsize: int) -> Iterator[Slab]:
    """The rows of an array of these sizes which a box in it touches, some at a time.

    Rows are whole, so a box that is narrower reads what lies beside it; where they are larger than a block of
    hashes, they are taken apart.
    """
    sizes, offsets, extents = sizes or (1,), box[0] or (0,), box[1] or (1,)
    row_bytes = [math.prod(sizes[d + 1 :]) * itemsize for d in range(len(sizes))]

    def go(d: int, prefix: tuple[int, ...], begin: int) -> Iterator[Slab]:
        row = row_bytes[d]
        narrower = extents[d + 1 :] != sizes[d + 1 :]
        first, end = offsets[d], offsets[d] + extents[d]
        if narrower and (row > BLOCK or extents[d] == 1):
            for i in range(first, end):
                yield from go(d + 1, (*prefix, i), begin + i * row)
            return
        step = max(1, SLAB // row)
        for at in range(first, end, step):
            rows = min(step, end - at)
            yield Slab(prefix, at, rows, begin + at * row, rows * row)

    yield from go(0, (), 0)


def blocks_of(slab: Slab) -> range:
    """The numbers of the blocks that a slab lies in."""
    return range(slab.begin // BLOCK, -(-(slab.begin + slab.size) // BLOCK))
