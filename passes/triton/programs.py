"""Which points a program computes, from its id, and how wide the integers are that count them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ...ir.kernel.affine import Affine
from ...ir.kernel.form import Kernel
from ...ir.kernel.scalar import Coordinate, walk
from ..schedules.gpu import Descriptors, Lanes
from ..schedules.steps import Schedule
from .schedule import grid_axes, group, points, tiles

if TYPE_CHECKING:
    from .emit import Emitter

NARROW = 1 << 31  # offsets and numbers of points from which on indices are 64 bits wide
Counted = tuple[str, int, Lanes | None]


def place_program(emitter: Emitter) -> None:
    """Write what tiles and plain axes are, from the program id."""
    counted = grid_axes(emitter.kernel, emitter.schedule)
    if group(emitter.schedule) > 1:
        *counted, m, n = counted
        _grouped(emitter, m, n)
    for number, (name, count, tile) in reversed([*enumerate(counted)]):
        # of the slowest there may be any number
        is_open = not number and (emitter.is_open or emitter.size.are_open)
        size = "" if is_open else emitter.size.anyway(max(count, 1), name, "count")
        place = "pid" if is_open else f"pid % {size}"
        if tile is None:
            emitter.line(f"{emitter.at[name]} = {place}")
        else:
            _tile(emitter, tile, f"({place})")
        if not is_open:
            emitter.line(f"pid = pid // {size}")


def _grouped(emitter: Emitter, m: Counted, n: Counted) -> None:
    """The two tiles of a product, in an order in which programs side by side share columns and rows."""
    (_, m_count, m_tile), (_, n_count, n_tile) = m, n
    assert m_tile is not None and n_tile is not None
    together = group(emitter.schedule)
    width, every = emitter.size(together * n_count), emitter.size(m_count * n_count)
    place = emitter.let(f"pid % {every}")
    first = emitter.let(f"({place} // {width}) * {together}")
    height = emitter.let(f"tl.minimum({emitter.size(m_count)} - {first}, {together})")
    _tile(emitter, m_tile, f"({first} + ({place} % {width}) % {height})")
    _tile(emitter, n_tile, f"(({place} % {width}) // {height})")
    emitter.line(f"pid = pid // {every}")


def _tile(emitter: Emitter, tile: Lanes, number: str) -> None:
    """The points of the tile of that number."""
    first = f"{number} * {tile.size}"
    if emitter.schedule.has(Descriptors):
        first = emitter.starts[tile.dim] = emitter.let(first)
    emitter.line(f"{emitter.tiles[tile.dim]} = {first} + tl.arange(0, {tile.size})")


def is_wide(kernel: Kernel, schedule: Schedule) -> bool:
    """Whether 32 bits do not hold every index."""
    counts = [math.prod(int(n) for n in b.shape) for b in kernel.buffers.values()]
    counts += [count * (tile.size if tile else 1) for _, count, tile in grid_axes(kernel, schedule)]
    counts += [math.prod(count for _, count, _ in grid_axes(kernel, schedule))]
    indices = [e.index for s in kernel.stages for e in walk(*s.exprs) if isinstance(e, Coordinate)]
    for _, access in kernel.reads:
        indices.append(kernel.buffers[access.buffer].offset(access.index))
    for stage in kernel.stores:
        indices.append(kernel.buffers[stage.buffer].offset(stage.index))
    counts += [_reach(kernel, schedule, index) for index in indices]
    return max(counts, default=0) >= NARROW


def _reach(kernel: Kernel, schedule: Schedule, index: Affine) -> int:
    """A number that no value of an index is above, not even in the masked lanes beyond a tile's extent."""
    steps = {axis: abs(c) for axis, c in index.terms}
    reach = abs(index.constant) + sum(c * int(kernel.extents[axis]) for axis, c in steps.items())
    for tile in tiles(schedule):
        behind = [points(kernel, tile.axes[n + 1 :]) for n in range(len(tile.axes))]
        beyond = (
            steps.get(axis, 0) * (tile.size // max(n, 1) + 1)
            for axis, n in zip(tile.axes, behind, strict=True)
        )
        reach += max(beyond, default=0)
    return reach
