"""What the steps of a GPU's schedule say: dimensions of tensors, and the grid that follows from them."""

from __future__ import annotations

import math

from ...ir.errors import KernelError
from ...ir.kernel.form import Kernel
from ..kernels.product import Product, products
from ..schedules.gpu import (
    IEEE,
    STAGES,
    WARPS,
    Along,
    Dot,
    Group,
    Lanes,
    Persistent,
    Precision,
    Serial,
    Stages,
    Warps,
)  # fmt: skip
from ..schedules.steps import Schedule

Tile = Lanes | Along


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


# ---- what the steps say
def tiles(schedule: Schedule) -> tuple[Tile, ...]:
    """The dimensions of the tensors: those of parallel axes, then those of local ones."""
    return (*schedule.of(Lanes), *schedule.of(Along))


def serial(schedule: Schedule) -> tuple[str, ...]:
    return tuple(axis for step in schedule.of(Serial) for axis in step.axes)


def dotted(kernel: Kernel, schedule: Schedule) -> Product | None:
    """The product that runs on tensor cores: its rows are the first of the tiles."""
    named = {step.stage for step in schedule.of(Dot)}
    found = next((p for p in products(kernel) if p.is_matmul and p.stage.name in named), None)
    rows = next(schedule.of(Lanes), None)
    return found.turned_over if found and rows and {*rows.axes} <= {*found.n} else found


def precision(schedule: Schedule | None) -> str:
    return next((step.precision for step in schedule.of(Precision)), IEEE) if schedule else IEEE


def group(schedule: Schedule) -> int:
    return next((step.count for step in schedule.of(Group)), 1)


def num_warps(schedule: Schedule) -> int:
    return next((step.count for step in schedule.of(Warps)), WARPS)


def num_stages(schedule: Schedule) -> int:
    return next((step.count for step in schedule.of(Stages)), STAGES)


# ---- the grid
def grid_axes(kernel: Kernel, schedule: Schedule) -> list[tuple[str, int, Lanes | None]]:
    """What the program id counts, slowest first: plain axes, then tiles."""
    lanes = list(schedule.of(Lanes))
    taken = {axis for tile in lanes for axis in tile.axes} | set(serial(schedule))
    plain = [(axis.name, int(axis.extent), None) for axis in kernel.parallel if axis.name not in taken]
    return plain + [(tile.dim, -(-points(kernel, tile.axes) // tile.size), tile) for tile in lanes]


def grid(kernel: Kernel, schedule: Schedule) -> int:
    """The number of programs to launch; none where a parallel axis has no points."""
    found = turns(kernel, schedule)
    return min([found, *(step.count for step in schedule.of(Persistent))])


def turns(kernel: Kernel, schedule: Schedule) -> int:
    """How often the body runs, by all programs together: once by each, unless they are persistent."""
    if any(not kernel.extents[axis] for axis in serial(schedule)):
        return 0
    return math.prod(count for _, count, _ in grid_axes(kernel, schedule))
