"""How a kernel runs on the GPU: the schedule, a sound default, and the grid that follows from it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...ir.kernel.form import Fold, Kernel, Local, Reduce, Store
from ..contraction import Contraction, contractions


@dataclass(frozen=True)
class Tile:
    """`size` consecutive points of some fused parallel axes, slowest axis first."""

    name: str
    axes: tuple[str, ...]
    size: int


@dataclass(frozen=True)
class Schedule:
    """How a kernel runs on the GPU.

    tiles:     parallel axes that are tensor dimensions; the others are taken from the program id.
    blocks:    local (reduced or mapped) axes that are a tensor dimension, with their block size; the other
               local axes are sequential loops.
    dot:       this contraction runs on tensor cores, blocks giving its K block.
    precision: of the products of an f32 dot: "ieee" or "tf32".
    """

    tiles: tuple[Tile, ...] = ()
    blocks: tuple[tuple[str, int], ...] = ()
    dot: Contraction | None = None
    precision: str = "ieee"
    num_warps: int = 4


def power_of_two(n: int) -> int:
    """The least power of two that is not less than n."""
    return 1 << max(0, n - 1).bit_length()


def default_schedule(kernel: Kernel) -> Schedule:
    """tl.dot for a contraction; a program per row where rows are reduced; else a flat tile of points."""
    parallel = tuple(axis.name for axis in kernel.parallel)
    local_store = any(store.axes for store in kernel.stores)
    for roles in contractions(kernel) if not local_store else ():
        widest = max(roles.k, key=lambda axis: int(kernel.extents[axis]))
        if kernel.dtypes[roles.stage.name] == "f32":
            return Schedule(
                (Tile("m_tile", roles.m, 64), Tile("n_tile", roles.n, 64)), ((widest, 32),), roles
            )
    rows = _row_axes(kernel)
    if rows:
        blocks = tuple((name, min(power_of_two(int(kernel.extents[name])), 8192)) for name in rows)
        held = max(1, 1024 // max(size for _, size in blocks))
        return Schedule((Tile("row_tile", parallel, held),) if held > 1 and parallel else (), blocks)
    if not parallel:
        return Schedule()
    last = max(parallel, key=lambda a: _stores_along(kernel, a))
    strided = [a for a in _transposed_axes(kernel, last) if a != last]
    if strided and not local_store:
        return Schedule((Tile("row_tile", (strided[0],), 32), Tile("column_tile", (last,), 32)))
    return Schedule((Tile("flat_tile", parallel, 256 if any(s.axes for s in kernel.stages) else 1024),))


def _row_axes(kernel: Kernel) -> tuple[str, ...]:
    """The last local axes of the stages, if one of them has 32 points or more; never those of a fold.

    Shorter ones (windows) are loops inside a flat tile of points.
    """
    folded = {axis.name for stage in kernel.stages if isinstance(stage, Fold) for axis in stage.axes}
    last = [s.axes[-1] for s in kernel.stages if isinstance(s, (Reduce, Local, Store)) and s.axes]
    long = any(int(axis.extent) >= 32 for axis in last)
    if not long:
        return ()
    return tuple(dict.fromkeys(axis.name for axis in last if axis.name not in folded and axis.extent))


def _stores_along(kernel: Kernel, axis: str) -> int:
    """How many stores have stride 1 along the axis; later axes win ties."""
    return sum(kernel.buffers[s.buffer].offset(s.index).coefficient(axis) == 1 for s in kernel.stores)


def _transposed_axes(kernel: Kernel, last: str) -> list[str]:
    """Axes along which some read has stride 1 while it strides over `last`."""
    offsets = [kernel.buffers[access.buffer].offset(access.index) for _, access in kernel.reads()]
    return [
        axis
        for offset in offsets
        for axis, coefficient in offset.terms
        if coefficient == 1 and axis in kernel.parallel_names and offset.coefficient(last) > 1
    ]


def grid_axes(kernel: Kernel, schedule: Schedule) -> list[tuple[str, int, Tile | None]]:
    """What the program id counts, slowest first: plain axes, then tiles."""
    tiled = {axis for tile in schedule.tiles for axis in tile.axes}
    plain = [(axis.name, int(axis.extent), None) for axis in kernel.parallel if axis.name not in tiled]
    return plain + [
        (tile.name, -(-math.prod(int(kernel.extents[a]) for a in tile.axes) // tile.size), tile)
        for tile in schedule.tiles
    ]


def grid(kernel: Kernel, schedule: Schedule) -> int:
    """The number of programs to launch."""
    return math.prod(count for _, count, _ in grid_axes(kernel, schedule))
