"""How a kernel runs on the GPU, and the grid that follows from it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...ir.errors import KernelError
from ...ir.kernel.form import Kernel
from ..kernels.product import Product


@dataclass(frozen=True)
class Tile:
    """`size` consecutive points of some fused axes, slowest axis first: one dimension of the tensors."""

    name: str
    axes: tuple[str, ...]
    size: int


@dataclass(frozen=True)
class Schedule:
    """How a kernel runs on the GPU.

    tiles:      of parallel axes.  Those in no tile are taken from the program id.
    blocks:     tiles of local (reduced or mapped) axes, the last of their stages; other local axes are
                sequential loops.  A program goes along a block's axes in steps of its size.
    serial:     parallel axes that every program goes through one point after another, slowest first: what
                orders points that may meet in one element.
    dot:        this contraction runs on tensor cores; the block is then of its K.
    precision:  of the products of an f32 dot: "ieee" or "tf32".
    group:      so many rows of tiles of M are walked through together, so that they share columns in the L2.
    num_warps:  of a program.  num_stages: how many steps of a loop with a dot are loaded ahead.
    """

    tiles: tuple[Tile, ...] = ()
    blocks: tuple[Tile, ...] = ()
    serial: tuple[str, ...] = ()
    dot: Product | None = None
    precision: str = "ieee"
    group: int = 1
    num_warps: int = 4
    num_stages: int = 3


def check_bound(kernel: Kernel) -> None:
    """Raise KernelError where sizes are still symbols."""
    if kernel.symbols:
        raise KernelError(
            f"{kernel.name}: Triton source is made for bound kernels",
            f"symbols: {', '.join(kernel.symbols)}",
            f"bind them: bind(kernel, {', '.join(f'{name}=...' for name in kernel.symbols)})",
        )


def power_of_two(n: int) -> int:
    """The least power of two that is not less than n."""
    return 1 << max(0, n - 1).bit_length()


def points(kernel: Kernel, axes: tuple[str, ...]) -> int:
    """How many points the axes have together."""
    return math.prod(int(kernel.extents[axis]) for axis in axes)


def grid_axes(kernel: Kernel, schedule: Schedule) -> list[tuple[str, int, Tile | None]]:
    """What the program id counts, slowest first: plain axes, then tiles."""
    taken = {axis for tile in schedule.tiles for axis in tile.axes} | set(schedule.serial)
    plain = [(axis.name, int(axis.extent), None) for axis in kernel.parallel if axis.name not in taken]
    return plain + [(tile.name, -(-points(kernel, tile.axes) // tile.size), tile) for tile in schedule.tiles]


def grid(kernel: Kernel, schedule: Schedule) -> int:
    """The number of programs to launch; none where a parallel axis has no points."""
    if any(not kernel.extents[axis] for axis in schedule.serial):
        return 0
    return math.prod(count for _, count, _ in grid_axes(kernel, schedule))
