"""How the next panel of a weight is asked for while one is read by tile after tile.

A weight of a network with few rows comes from beyond the caches, and each of its panels once: where the
first tile alone waits for it, the others wait for nothing.  So each tile asks for a share of the next panel,
line by line as it reads its own.  49 rows of 2048 with 512 columns, 16 MB of such weights in turn, tiles of
10 x 2: 148 GF/s, as where they lie in the second cache; 122 where lines are asked for 8 KiB before they are
read (an Intel Xeon with AMX, one thread, 2026-11-28).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ...ir.kernel.affine import Affine
from ...ir.kernel.form import Kernel, Reduce, names
from ...ir.kernel.scalar import Expr
from ...ir.kernel.types import NUMPY
from ..schedules.steps import Schedule
from ..schedules.target import LINE


@dataclass(frozen=True)
class NextPanel:
    """nbytes: of a panel.  summed: the axes along which one is gone through.  tiles: those that go through
    it.  place, of: that where a tile begins, among so many.  every: of so many lines that are read, at the
    first another one is asked for.
    """

    nbytes: int
    summed: frozenset[str]
    tiles: int
    place: Affine
    of: int
    every: int


def next_panel(kernel: Kernel, schedule: Schedule, buffer: str) -> NextPanel | None:
    """None where one tile alone reads a panel, or where sizes are not known."""
    axis = schedule.next_panels[buffer]
    access = next(access for _, access in kernel.reads if access.buffer == buffer)
    array, offset = kernel.buffers[buffer], kernel.buffers[buffer].offset(access.index)
    summed = [a for stage in kernel.stages if isinstance(stage, Reduce) for a in stage.axes]
    beside = [
        a for a in kernel.parallel[names(kernel.parallel).index(axis) + 1 :] if a.name not in offset.names
    ]
    beside = [a for a in beside if a.name != schedule.axis]
    size, dtype = offset.coefficient(axis), NUMPY[array.dtype]
    if not size:  # columns in panels: which one is no affine number
        size = next(s for part, s in zip(access.index, array.strides, strict=True) if isinstance(part, Expr))
    steps = {a.name: offset.coefficient(a.name) for a in summed if a.name in offset.names}
    if not steps or not all(isinstance(n, int) for n in (size, *steps.values(), *(a.extent for a in beside))):
        return None
    nbytes, total = int(size) * dtype.itemsize, prod(int(a.extent) for a in beside)
    tiles = -(-total // prod(schedule.tiles.get(a.name, 1) for a in beside))
    if tiles < 2 or nbytes < LINE:
        return None
    inner = min(steps, key=lambda name: int(steps[name]))
    lines = int(steps[inner]) * dtype.itemsize * schedule.unrolled.get(inner, 1) // LINE
    every = next(n for n in range(max(1, min(lines, tiles)), 0, -1) if max(1, lines) % n == 0)
    terms, stride = {}, 1
    for a in reversed(beside):
        terms[a.name], stride = stride, stride * int(a.extent)
    return NextPanel(nbytes, frozenset(steps), tiles, Affine.of(terms), total, every)
