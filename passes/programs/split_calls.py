"""Calls that one launch on a GPU can't do well: what accumulates is filled first, long reductions are cut.

    program count(%x: i64[100]) -> (%y) {
      %y: i64[6] = bincount(%x)
    }
    ->
    program count(%x: i64[100]) -> (%y) {
      %filled: i64[6] = fill()
      %filled1: i64[6] = alias(%filled)
      %y: i64[6] = bincount(%x, %filled1)
    }

The kernel that accumulates then works in place of the filled array, so the memory plan needs no new idea.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from ...ir.kernel.form import Axis, Fold, Kernel, Reduce, Stage, names
from ...ir.kernel.verify import verify as verify_kernel
from ..kernels.filling import filling
from ..kernels.product import product_of
from ..kernels.split_reductions import split_reductions
from ..schedules.steps import is_default
from .program import Alias, Array, Call, Program, Step

ENOUGH = 128  # programs with which every core of a large GPU has one
WANTED = 512  # programs of a reduction that is cut: several for each core, since each waits for memory
LONG = 2048  # points of a reduction that one program does while another launch would begin
LANES = 32  # parts that are worth it to leave an axis whole along which memory is read
SHORTEST = 512  # points of a part: its result is written and read again

# Of products: flops in a second, tiles that one of SQUARE is made of, and how many of these run at once; and
# bytes in a second (an H200; benchmarks/results/gpu.txt, 2026-11-27).
SQUARE = 128
SINGLE, ON_CORES = (4e13, 4, 4 * 132), (6e14, 1, 2 * 132)
BANDWIDTH = 3e12

Programs = Callable[[Kernel], int]  # how many a launch of a kernel has, by its default


def split_calls(program: Program, programs: Programs) -> Program:
    """The program with the calls above as several."""
    steps: list[Step] = []
    for step in program.steps:
        steps.extend(_calls(step, programs) if isinstance(step, Call) else (step,))
    return program.replace(steps=tuple(steps))


def _calls(call: Call, programs: Programs) -> Iterator[Step]:
    kernel = call.kernel
    count = _parts(kernel, programs) if is_default(call.how) else 0
    chosen = _cut_of_product(call, programs(kernel)) if count > 1 else None
    if chosen is not None:
        yield from cut(call, *chosen)
        return
    if count > 1:
        kernel = kernel if _slowest(kernel) >= count else _cut_first(kernel, count)
        count = min(count, max(_slowest(kernel), _most_parts(kernel)))
    parts = split_reductions(kernel, count, even=True) if count > 1 else None
    if parts is None:
        yield from _filled(call)
    else:
        for part in in_turn(replace(call, kernel=kernel), parts):
            yield replace(part, how=call.how)


def cut(call: Call, axis: str, parts: int) -> Iterator[Call]:
    """The calls in place of one whose only sum is cut along an axis, in parts that divide it."""

    def sorted_(stage: Stage) -> Stage:
        if not isinstance(stage, Reduce):
            return stage
        return replace(stage, axes=tuple(sorted(stage.axes, key=lambda own: own.name != axis)))

    kernel = call.kernel.replace(stages=tuple(map(sorted_, call.kernel.stages)))
    kernels = split_reductions(kernel, parts)
    assert kernels is not None
    for part in in_turn(replace(call, kernel=kernel), kernels):
        yield replace(part, how=call.how)


def _cut_of_product(call: Call, count: int) -> tuple[str, int] | None:
    """Along which axis a product is cut and in how many parts, so that its tiles take the least time.

    Cores that wait for a last few tiles cost, and so do parts: each is written and read again.  The axis
    that the sum goes along in steps stays whole.  None where no other one can be divided, and for all else.
    """
    kernel, product = call.kernel, product_of(call.kernel)
    if product is None or not product.is_matmul or kernel.dtypes[product.stage.name] != "f32":
        return None
    if not kernel.is_order_free or any(b.inplace for b in kernel.outputs):
        return None
    dtypes = {kernel.buffers[read.buffer].dtype for stage, read in kernel.reads if stage is product.stage}
    is_single = "f32" in dtypes and call.how is None
    rate, tiles, at_once = SINGLE if is_single else ON_CORES
    # a side that is short leaves room for more tiles, each of which takes less time
    sides = [math.prod(int(kernel.extents[axis]) for axis in axes) for axes in (product.m, product.n)]
    share = math.prod(min(1.0, side / SQUARE) for side in sides)
    points = math.prod(int(kernel.extents[axis]) for axis in product.k)
    moved = 8 * _points(kernel.parallel) / BANDWIDTH
    whole = 2 * SQUARE**2 * points / (rate / at_once) / tiles * share  # one of the tiles, over all of the sum
    at_once = round(at_once / share)
    found: dict[tuple[str, int], float] = {}
    for axis in product.k:
        extent = int(kernel.extents[axis])
        for parts in range(2, extent + 1) if axis != product.depth else ():
            if extent % parts == 0 and points // parts >= SHORTEST:
                rounds = -(-count * tiles * parts // at_once)
                found[axis, parts] = rounds * whole / parts + parts * moved
    return min(found, key=lambda key: found[key], default=None)


def _cut_first(kernel: Kernel, count: int) -> Kernel:
    """The kernel with that axis of each sum outermost which is to be cut.

    The shortest that has enough points, so that others can be gone along in steps of many; but for one along
    which elements are neighbours.  Where there is none, the longest that is worth it: the next one is cut,
    too.
    """
    if not kernel.is_order_free:
        return kernel

    def extent(axis: Axis) -> int:
        return int(axis.extent)

    def sorted_(stage: Stage) -> Stage:
        if not isinstance(stage, Reduce) or len(stage.axes) < 2:
            return stage
        near = {a for s, read in kernel.reads if s is stage for a in names(stage.axes)
                if kernel.buffers[read.buffer].offset(read.index).coefficient(a) == 1}  # fmt: skip
        enough = [a for a in stage.axes if a.name not in near and extent(a) >= min(count, LANES)]
        long = sorted((a for a in enough if extent(a) >= count), key=extent)
        chosen, *_ = long or sorted(enough or stage.axes, key=extent, reverse=True)
        return replace(stage, axes=(chosen, *(axis for axis in stage.axes if axis is not chosen)))

    return kernel.replace(stages=tuple(map(sorted_, kernel.stages)))


def in_turn(call: Call, kernels: Iterable[Kernel]) -> Iterator[Call]:
    """Calls of kernels in place of a call: buffers that its kernel has not are arrays of their own."""
    arrays = dict(zip(call.kernel.buffers, (*call.inputs, *call.outputs), strict=True))
    for part in kernels:
        for buffer in part.outputs:
            if buffer.name not in arrays:
                arrays[buffer.name] = Array(buffer.name, buffer.dtype, tuple(map(int, buffer.shape)))
        inputs = tuple(arrays[buffer.name] for buffer in part.inputs)
        outputs = tuple(arrays[buffer.name] for buffer in part.outputs)
        yield Call(part, inputs, outputs, where=call.where)


def _parts(kernel: Kernel, programs: Programs) -> int:
    """In how many parts reductions are cut that few programs would each go through for long; 0 for none."""
    reductions = [stage for stage in kernel.stages if isinstance(stage, (Reduce, Fold))]
    longest = max((_points(stage.axes) for stage in reductions), default=0)
    if longest < LONG:
        return 0
    count = programs(kernel)
    if not 0 < count < ENOUGH:
        return 0
    return min(WANTED // count, longest // SHORTEST)


def _slowest(kernel: Kernel) -> int:
    """The least extent of an axis that a cut would divide."""
    reductions = [stage for stage in kernel.stages if isinstance(stage, (Reduce, Fold))]
    return min(int(stage.axes[0].extent) if stage.axes else 0 for stage in reductions)


def _most_parts(kernel: Kernel) -> int:
    """How many parts there are where each point of all axes but the last is one."""
    reductions = [stage for stage in kernel.stages if isinstance(stage, (Reduce, Fold))]
    return min(_points(stage.axes[:-1]) for stage in reductions)


def _points(axes: tuple[Axis, ...]) -> int:
    return math.prod(int(axis.extent) for axis in axes)


def _filled(call: Call) -> Iterator[Step]:
    """The call, behind a filling of each output that it accumulates in."""
    kernel, inputs = call.kernel, call.inputs
    for number, (buffer, array) in enumerate(zip(kernel.outputs, call.outputs, strict=True)):
        fill = filling(kernel, buffer)
        if fill is None:
            continue
        flat = Array("filled", array.dtype, (array.size,))
        filled = replace(flat, shape=array.shape)
        yield Call(fill, (), (flat,))
        yield Alias((flat,), (filled,))
        kernel, inputs = _in_place_of(kernel, number), (*inputs, filled)
    yield call if kernel is call.kernel else replace(call, kernel=verify_kernel(kernel), inputs=inputs)


def _in_place_of(kernel: Kernel, number: int) -> Kernel:
    """The kernel with one more input, which that output is in place of."""
    buffer = kernel.outputs[number]
    name = f"{buffer.name}_filled"
    while name in kernel.buffers or name in kernel.extents or name in kernel.dtypes:
        name += "_"
    outputs = list(kernel.outputs)
    outputs[number] = replace(buffer, inplace=name)
    return kernel.replace(inputs=(*kernel.inputs, replace(buffer, name=name)), outputs=tuple(outputs))
