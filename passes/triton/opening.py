"""Kernels with numbers that are parameters: one text for batches of all sizes, or for all sizes.

The text is written of the kernel as it is bound, but that an open number is spelled by name.  So two kernels
have one text only if they are the same but for that, whatever else of them hangs on a size: numbers that do
stand in the text, and tell them apart.
"""

from __future__ import annotations

from collections.abc import Hashable
from enum import Enum

from ...ir.kernel.affine import Affine
from ...ir.kernel.form import Kernel, names
from ..kernels.collapse import generalised, may_open
from ..schedules.gpu import Descriptors, Group, Persistent
from ..schedules.steps import Schedule
from .programs import is_wide
from .schedule import grid_axes, tiles

EXTENT, LENGTH = "extent", "length"  # the parameters: of the slowest parallel axis, and of a local one


class Open(Enum):
    """Which numbers of a text are parameters.

    BATCHES: the extents of the slowest parallel axis, and of a local one, where nothing else hangs on them.
    SIZES: every number that comes of sizes: extents, strides, counts of tiles.  Dividing by what a compiler
    knows is quicker, and so is a loop whose end it knows.
    """

    NOTHING, BATCHES, SIZES = range(3)


class Numbers:
    """How a text spells numbers that come of sizes.  values: of those that are parameters, by their names.

    A number has one name in each of its parts: of many numbers two are equal now and then, and a text that
    had one name for both would be another.
    """

    def __init__(self, opens: Open):
        self.are_open = opens is Open.SIZES
        self.values: dict[str, int] = {}
        self._names: dict[tuple, str] = {}

    def __call__(self, number: int, *part: Hashable) -> str:
        """part: what the number is of, as an axis.  0 and 1 stand as they are: with them products and sums go
        away.
        """
        return str(number) if -1 <= number <= 1 else self.anyway(number, *part)

    def anyway(self, number: int, *part: Hashable) -> str:
        """The same of what is 1 for some sizes and more for others: counts of tiles."""
        if not self.are_open:
            return str(number)
        name = self._names.get((number, *part))
        if name is None:
            name = self._names[number, *part] = f"n{len(self._names)}_size"
            self.values[name] = number
        return name


def opened(kernel: Kernel, schedule: Schedule) -> dict[str, str]:
    """The axes whose extents are to be parameters of the code, and what these are called."""
    if any(schedule.has(step) for step in (Group, Persistent, Descriptors)):
        return {}
    found = {}
    if kernel.parallel and (axis := _slowest(kernel, schedule)) is not None:
        found[axis] = EXTENT
    local = dict.fromkeys(axis for stage in kernel.stages for axis in names(stage.axes))
    if (axis := next((axis for axis in local if _is_open_local(kernel, schedule, axis)), None)) is not None:
        found[axis] = LENGTH
    return found


def _slowest(kernel: Kernel, schedule: Schedule) -> str | None:
    """The parallel axis that programs count slowest, if it can be open."""
    axis = kernel.parallel[0].name
    if generalised(kernel) is None or not _is_proven(kernel, axis):
        return None
    slowest, _, tile = grid_axes(kernel, schedule)[0]
    return axis if (slowest == axis if tile is None else tile.axes[0] == axis) else None


def _is_open_local(kernel: Kernel, schedule: Schedule, axis: str) -> bool:
    """Whether a local axis can be open: gone along by itself, or slowest of those that are a block."""
    own = [tile.axes for tile in tiles(schedule) if axis in tile.axes]
    return all(axes[0] == axis for axes in own) and may_open(kernel, axis) and _is_proven(kernel, axis)


def _is_proven(kernel: Kernel, axis: str) -> bool:
    """Whether an axis has more than one point, as else it is left out, and no read along it is tested against
    a buffer's size.
    """
    for _, access in kernel.reads:
        for d in kernel.unproved(access):
            part = access.index[d]
            if isinstance(part, Affine) and axis in part.names:
                return False
    return int(kernel.extents[axis]) > 1


def width(kernel: Kernel, schedule: Schedule) -> str:
    """Triton's type of the parameters."""
    return "i64" if is_wide(kernel, schedule) else "i32"
