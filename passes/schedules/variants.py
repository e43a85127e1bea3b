"""Other schedules of a kernel, each one step away from the one that it has: what a search goes through.

    vectorise(j, 2) tile(i, 4)    ->    vectorise(j) tile(i, 4),  vectorise(j, 4) tile(i, 4),
                                        vectorise(j, 2) tile(i, 2),  ...

All of them compute what the kernel says: steps are held to it where code is written, and one that does not
fit is refused there.  What a packed array was laid out for stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from ...ir.kernel.form import Fold, Kernel, Reduce, names
from .steps import (
    CHUNK,
    Block,
    Keep,
    Pack,
    Peel,
    Prefetch,
    PrefetchPanel,
    Roll,
    Schedule,
    Step,
    Stream,
    Strips,
    Tile,
    Unroll,
    Vectorise,
    Winograd,
)
from .target import AHEAD, Target

MOST_VECTORS = 16
MOST_POINTS = 48  # vectors of a tile, all of its axes together: beyond, they lie on the stack


def variants(kernel: Kernel, schedule: Schedule, target: Target) -> Iterator[Schedule]:
    """Schedules that differ in one decision, each once, in the order in which they are worth a try.

    kernel: after the steps that rewrite it.
    """
    seen = {schedule}
    for steps in _changes(kernel, schedule, target):
        blocks = {step.axis: step for step in steps if isinstance(step, Block)}  # the last of each axis
        made = Schedule(*(s for s in steps if not isinstance(s, Block) or blocks[s.axis] is s))
        made = _by_panels(made, target)
        if made not in seen and _fits(made):
            seen.add(made)
            yield made


def _by_panels(schedule: Schedule, target: Target) -> Schedule:
    """The schedule with a panel's columns in a unit of work, where it says no strips."""
    vectorised = schedule.vectorised
    if vectorised is None or vectorised.axis not in schedule.peeled or schedule.has(Strips):
        return schedule
    wide = Block(vectorised.axis, vectorised.vectors * (vectorised.lanes or target.lanes))
    return Schedule(*(wide if isinstance(s, Block) and s.axis == wide.axis else s for s in schedule.steps))


def _fits(schedule: Schedule) -> bool:
    points = schedule.vectors
    for size in schedule.tiles.values():
        points *= size
    return points <= MOST_POINTS


def _changes(kernel: Kernel, schedule: Schedule, target: Target) -> Iterator[list[Step]]:
    steps, extents = list(schedule.steps), kernel.extents
    fixed = {step.axis for step in schedule.of(Pack)}
    for at, step in enumerate(steps):
        for other in _other_sizes(step, schedule, extents, fixed, target):
            yield [*steps[:at], *other, *steps[at + 1 :]]
    yield from _more(kernel, schedule, target)


def _other_sizes(
    step: Step, schedule: Schedule, extents: dict, fixed: set[str], target: Target
) -> Iterator[list[Step]]:
    """What may stand in the place of a step: with other sizes, or nothing."""
    match step:
        case Vectorise(axis, vectors, lanes) if axis not in fixed:
            for other in _near(vectors, MOST_VECTORS):
                yield [replace(step, vectors=other)]
            if lanes > 4:
                yield [replace(step, lanes=lanes // 2)]
        case Tile(axis, size):
            for other in (*_near(size, 32), size - 1, size + 1):
                if 1 < other <= int(extents[axis]):
                    yield [replace(step, size=other), *_whole_block(schedule, axis, other)]
            if axis not in schedule.peeled:
                yield []
        case Unroll(axis, size):
            for other in _near(size, int(extents[axis])):
                yield [replace(step, size=other)]
            yield []
        case Block(axis, size) if axis not in fixed and axis not in schedule.peeled:
            for other in _near(size, int(extents[axis])):
                if other % schedule.tiles.get(axis, 1) == 0:
                    yield [replace(step, size=other)]
        case Prefetch() | PrefetchPanel() | Keep() | Stream() | Roll():
            yield []
        case Winograd(_, block, rows, _, spread, images):
            if not images:
                for other in (*_near(block, 128), block - 1, block + 1):
                    if other >= 1:
                        yield [replace(step, block=other)]
                for other in (rows - 2, rows - 1, rows + 1, rows + 2):
                    if other >= 1:
                        yield [replace(step, rows=other)]
                yield [replace(step, spread=not spread)]


def _whole_block(schedule: Schedule, axis: str, size: int) -> list[Step]:
    """A block of whole tiles, where the axis has one that these tiles do not divide."""
    block = schedule.blocks.get(axis, size)
    if axis in schedule.peeled or block == schedule.tiles.get(axis) or block % size == 0:
        return []
    return [Block(axis, -(-block // size) * size)]


def _near(size: int, most: int) -> Iterable[int]:
    return [n for n in (size * 2, size // 2, size * 4, size // 4) if 1 <= n <= most and n != size]


def _more(kernel: Kernel, schedule: Schedule, target: Target) -> Iterator[list[Step]]:
    """What a schedule has no step for yet: tiles, longer steps of sums, other axes for the vectors."""
    steps, vectorised = list(schedule.steps), schedule.vectorised
    if schedule.has(Winograd) or vectorised is None:
        return
    parallel, extents = names(kernel.parallel), kernel.extents
    summed = [a.name for s in kernel.stages if isinstance(s, (Reduce, Fold)) for a in s.axes]
    for axis in reversed(parallel):
        if axis != vectorised.axis and axis not in schedule.tiles:
            yield from ([*steps, Tile(axis, n)] for n in (2, 4) if n <= int(extents[axis]))
    for axis in reversed(summed):
        if axis != vectorised.axis and axis not in schedule.unrolled:
            yield from ([*steps, Unroll(axis, n)] for n in (2, 4) if n <= int(extents[axis]))
    if vectorised.axis in parallel and vectorised.axis not in schedule.blocks:
        yield from ([*steps, Block(vectorised.axis, n)] for n in (CHUNK // 4, CHUNK * 4))
    for local in sorted(kernel.locals.keys() - schedule.kept):
        if names(kernel.locals[local].axes) == (vectorised.axis,):
            yield [*steps, Keep(local)]
    if not any(isinstance(step, (Pack, Peel, Prefetch)) for step in steps):
        for axis in (*parallel, *summed):
            if axis != vectorised.axis and int(extents[axis]) >= target.lanes:
                rewriting = [step for step in steps if step.rewrites]
                yield [*rewriting, Vectorise(axis, 2)]
    for step in schedule.of(Pack):
        if step.buffer not in schedule.ahead:
            yield [*steps, Prefetch(step.buffer, AHEAD)]
