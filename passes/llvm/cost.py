"""Roughly how long a kernel takes on one thread: it decides how many threads are worth waking, no more."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ...ir.kernel.affine import Affine
from ...ir.kernel.form import Kernel
from ...ir.kernel.scalar import Expr, Op, walk
from ...ir.kernel.types import NUMPY
from ...ir.kernel.words import VOCABULARY
from ..collapse import accesses
from .schedule import Schedule
from .target import Target

CYCLES_PER_NS = 3.5
CACHE = 1 << 20  # bytes: what moves less than this stays in a core's second level of cache
BYTES_PER_NS, CACHED_BYTES_PER_NS = 25.0, 150.0  # of one core of a Zen 5
# Cycles of a vector, measured in cache on Zen 5 where listed; a plain instruction takes half a cycle.
CYCLES = {"div": 8, "sqrt": 9, "rsqrt": 14, "exp": 10, "expm1": 12, "exp2": 10, "log": 14, "log1p": 20}
CYCLES |= {
    "erf": 20,
    "sigmoid": 16,
    "tanh": 18,
    "sin": 24,
    "cos": 24,
    "erfinv": 30,
    "random_bits": 40,
    "pow": 40,
}
LIBRARY = 50  # cycles of a call of the C library, for each lane


def nanoseconds(kernel: Kernel, schedule: Schedule, target: Target) -> float:
    """The larger of what its arithmetic and its memory traffic take."""
    lanes = 1 if schedule.scalar else target.lanes
    points = math.prod(int(axis.extent) for axis in kernel.parallel)
    cycles = 0.0
    for stage in kernel.stages:
        inner = math.prod(int(axis.extent) for axis in stage.axes)
        work = 0.5 + sum(_cycles(expr, lanes) for expr in walk(*stage.exprs))
        cycles += points * inner * work / lanes
    moved = float(sum(traffic(kernel)))
    return max(cycles / CYCLES_PER_NS, moved / (BYTES_PER_NS if moved > CACHE else CACHED_BYTES_PER_NS))


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


def _cycles(expr: Expr, lanes: int) -> float:
    """Of one vector."""
    if not isinstance(expr, Op):
        return 0.5
    if expr.name in CYCLES:
        return CYCLES[expr.name]
    word = VOCABULARY[expr.name]
    return LIBRARY * lanes if word.libm and not word.expand else 0.5
