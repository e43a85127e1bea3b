"""Two calls in step: each unit of the second runs right after that of the first whose results it reads.

%a: f32[8,56,56,256] = conv2d(%x, %u)
%b: u8[8,56,56,256] = conv2d_add_and_more(%y, %w, %a)   ->   the same, in step

Two sums that are joined at each point are two kernels: the convolutions at the beginning of a ResNet's stage,
of which one adds the other's result, or the products of a gate.  What the first makes is read by the second
alone, at the same points.  Where both divide these alike it is no array: a thread holds what one unit hands
to the other in a piece of memory that stays in its core's cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import Any

from ...ir.dims import Dim
from ...ir.errors import KernelError
from ...ir.kernel.affine import Affine
from ...ir.kernel.form import Kernel
from ...ir.kernel.scalar import Expr
from ...ir.kernel.types import NUMPY
from ..schedules.cost import nanoseconds
from ..schedules.default import unit_axes
from ..schedules.steps import Block, Collapse, Language, Reorder, Residues, Schedule, Tile
from ..schedules.target import Target
from .memory_plan import ALIGNMENT
from .program import Alias, Array, Call, Passing, Program
from .program import Step as ProgramStep

# Bytes of an array, below which it is in a near cache anyway, and two streams of weights are worse than one.
LEAST = 1 << 20
MOST = 1 << 17  # of what a thread holds, on its stack
# What the first takes longer where it is divided as the second is, it saves its result's way through memory.
BYTES_A_NANOSECOND = 8.0


def in_step(program: Program, target: Target) -> Program:
    """The program, with each call in step with the one before it that can be."""
    steps = list[ProgramStep]()
    latest: Call | None = None  # the call before, which is not in step with another
    at = 0
    for step in program.steps:
        if isinstance(step, Call) and step.bands is None:
            found = None if latest is None else in_turn(latest, step, target)
            if found is not None and _is_read_once(latest.outputs[0], program):
                steps[at], step = found
                latest = None
            else:
                latest, at = step, len(steps)
        elif not isinstance(step, Alias):
            latest = None
        steps.append(step)
    return program.replace(steps=tuple(steps))


def in_turn(first: Call, second: Call, target: Target) -> tuple[Call, Call] | None:
    """Two calls whose units run in turn, the second in step; None where these can't."""
    if first.how is None or second.how is None or len(first.outputs) != 1:
        return None
    (made,) = first.outputs
    if first.kernel.symbols or second.kernel.symbols or made not in second.inputs or made.nbytes < LEAST:
        return None
    if any(buffer.inplace for call in (first, second) for buffer in call.kernel.outputs):
        return None
    if any(how.winograd is not None or how.has(Residues) for how in (first.how, second.how)):
        return None  # whose units are others
    before = _time(first, target) + _time(second, target)
    for one, other in _ways(first, second):
        try:
            passing = _passing(one, other)
            longer = _time(one, target) + _time(other, target) - before
        except KernelError:  # a schedule that does not suit the kernel
            continue
        if passing is not None and longer <= made.nbytes / BYTES_A_NANOSECOND:
            return one, replace(other, in_step=passing)
    return None


def _ways(first: Call, second: Call) -> Iterator[tuple[Call, Call]]:
    """The calls as they are, and with schedules by which both may divide their points alike."""
    yield first, second
    assert second.how is not None
    alike = Schedule(*[step for step in second.how.steps if not isinstance(step, Collapse)])
    yield replace(first, how=alike), second
    # what a unit writes lies close together where tiles go along neighbours
    tiled = [step.axis for step in alike.of(Tile)]
    others = [axis.name for axis in second.kernel.parallel if axis.name not in (*tiled, alike.axis)]
    if len(tiled) == 1 and others:
        how = _exchanged(alike, tiled[0], others[-1])
        yield replace(first, how=how), replace(second, how=how)


def _exchanged(how: Schedule, one: str, other: str) -> Schedule:
    """The schedule with two axes in each other's place."""
    names = {one: other, other: one}
    steps = list[Any]()
    for step in how.steps:
        if isinstance(step, Tile | Block):
            step = replace(step, axis=names.get(step.axis, step.axis))
        elif isinstance(step, Reorder):
            step = Reorder(tuple([names.get(axis, axis) for axis in step.axes]))
        steps.append(step)
    return Schedule(*steps)


def _is_read_once(array: Array, program: Program) -> bool:
    return array not in program.results and sum(step.inputs.count(array) for step in program.steps) == 1


def _passing(first: Call, second: Call) -> Passing | None:
    """What a unit of the first hands to the second's of the same number; None where it reads others'."""
    (one, how), (other, its) = (_scheduled(call) for call in (first, second))
    if any(isinstance(axis.extent, Dim) for axis in (*one.axes, *other.axes)):
        return None
    if _division(one, how) != _division(other, its) or len(one.stores) != 1:
        return None
    (store,), name = one.stores, second.kernel.inputs[second.inputs.index(first.outputs[0])].name
    if name not in other.buffers:
        return None
    written = _place(one, store.buffer, store.index)
    reads = [read for _, read in other.reads if read.buffer == name]
    if written is None or any(r.other or _place(other, name, r.index) != written for r in reads):
        return None
    return _held(one, how, written, NUMPY[one.buffers[store.buffer].dtype].itemsize)


def _held(kernel: Kernel, how: Schedule, place: tuple[int, ...], itemsize: int) -> Passing | None:
    """What a thread holds of the array while a unit's elements are in use; None where that is much."""
    counts = [blocks or 1 for _, blocks in unit_axes(kernel, how)]
    extents = [int(axis.extent) for axis in kernel.parallel]
    blocks = [how.block(axis.name) for axis in kernel.parallel]
    tiles = [how.tiles.get(axis.name, 1) for axis in kernel.parallel]
    for slow in range(1, len(counts) + 1):
        points = [*blocks[:slow], *extents[slow:]]
        nbytes = (sum([(n - 1) * by for n, by in zip(points, place, strict=True)]) + 1) * itemsize
        before = (
            sum([(tile - 1) * by for tile, by in zip(tiles[:slow], place[:slow], strict=True)]) * itemsize
        )
        if nbytes + before <= MOST:
            apart = [blocks[n] * place[n] * itemsize for n in range(slow)]
            strides = [(counts[n], prod(counts[n + 1 :]), by) for n, by in enumerate(apart)]
            return (
                Passing(tuple(strides), nbytes, before) if not any(by % ALIGNMENT for by in apart) else None
            )
    return None


def _scheduled(call: Call) -> tuple[Kernel, Schedule]:
    assert call.how is not None
    kernel = call.how.applied(call.kernel)
    call.how.check(kernel, Language.LLVM)
    return kernel, call.how


def _time(call: Call, target: Target) -> float:
    return nanoseconds(*_scheduled(call), target)


def _division(kernel: Kernel, how: Schedule) -> list[tuple]:
    """How points are divided: of each axis, in their order, its blocks, tiles and vectors."""
    vectors = how.vectorised
    return [
        (
            axis.extent,
            blocks,
            how.block(axis.name),
            how.tiles.get(axis.name, 1),
            (vectors.vectors, vectors.lanes) if vectors and axis.name == vectors.axis else None,
            axis.name in how.peeled,
        )
        for axis, (_, blocks) in zip(kernel.parallel, unit_axes(kernel, how), strict=True)
    ]


def _place(kernel: Kernel, buffer: str, index: tuple[Affine | Expr, ...]) -> tuple[int, ...] | None:
    """How many elements neighbours along each parallel axis are apart; None where one hangs on more."""
    names = [axis.name for axis in kernel.parallel]
    if not all(isinstance(part, Affine) and part.names <= set(names) for part in index):
        return None
    offset = kernel.buffers[buffer].offset(index)
    place = [offset.coefficient(name) for name in names]
    return None if offset.constant or any(int(by) < 0 for by in place) else tuple(map(int, place))
