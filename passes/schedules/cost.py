"""Roughly how long a kernel takes on one thread: it decides how many threads are worth waking, no more."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ...ir.kernel.affine import Affine
from ...ir.kernel.form import Kernel, Reduce, Stage
from ...ir.kernel.scalar import Expr, Op, walk
from ...ir.kernel.types import NUMPY
from ...ir.kernel.words import VOCABULARY
from ..kernels.collapse import accesses
from .choose_product import MATRIX_SHARE
from .steps import Matrix, Pairs, Schedule
from .target import Core, Target

FEWEST_SUMS, MOST_SUMS = 4, 24  # of a tile that products are counted by; of one at `Core.muladd`


def nanoseconds(kernel: Kernel, schedule: Schedule, target: Target) -> float:
    """The larger of what its arithmetic and its memory traffic take."""
    lanes, core = 1 if schedule.vectorised is None else schedule.vectorised.lanes or target.lanes, target.core
    points = math.prod(int(axis.extent) for axis in kernel.parallel)
    spent = 0.0
    for stage in kernel.stages:
        steps = points * math.prod(int(axis.extent) for axis in stage.axes) / lanes
        addition = _addition(stage, schedule, core)
        if addition is None:
            addition = (0.5 + sum(_cycles(expr, lanes, core) for expr in walk(*stage.exprs))) / core.ghz
        spent += steps * addition
    moved = float(sum(traffic(kernel)))
    return max(spent, moved / (core.far if moved > core.cache else core.near))


def _addition(stage: Stage, schedule: Schedule, core: Core) -> float | None:
    """The nanoseconds of a vector of a sum of products whose points are in tiles; None for other stages."""
    if not (isinstance(stage, Reduce) and stage.combine == "sum" and isinstance(stage.value, Op)):
        return None
    sums = math.prod(schedule.tiles.values()) * schedule.vectors
    if stage.value.name != "mul" or sums < FEWEST_SUMS:
        return None
    share = MATRIX_SHARE if schedule.has(Matrix) else core.pairs if schedule.has(Pairs) else 1.0
    return 32 * core.muladd * share * (1 + core.tile / sums) / (1 + core.tile / MOST_SUMS)


def traffic(kernel: Kernel) -> Iterator[float]:
    """The bytes of each buffer that are read or written: as far as the axes of its accesses reach."""
    reached: dict[str, int] = {}
    for name, index in accesses(kernel):
        axes: set[str] = set()
        for part in index:
            axes |= part.names if isinstance(part, Affine) else kernel.free_axes(part)
        count = math.prod(int(kernel.extents[axis]) for axis in axes)
        reached[name] = reached.get(name, 0) + count
    for name, count in reached.items():
        buffer = kernel.buffers[name]
        yield min(count, math.prod(map(int, buffer.shape))) * NUMPY[buffer.dtype].itemsize


def _cycles(expr: Expr, lanes: int, core: Core) -> float:
    """Of one vector."""
    if not isinstance(expr, Op):
        return 0.5
    if expr.name in core.cycles:
        return core.cycles[expr.name]
    word = VOCABULARY[expr.name]
    return core.library * lanes if word.libm and not word.expand else 0.5
