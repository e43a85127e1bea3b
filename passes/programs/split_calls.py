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
from collections.abc import Iterable, Iterator
from dataclasses import replace

from ...ir.kernel.form import Axis, Fold, Kernel, Reduce
from ...ir.kernel.verify import verify as verify_kernel
from ..kernels.filling import filling
from ..kernels.split_reductions import split_reductions
from .program import Alias, Array, Call, Program, Step

FEW = 256  # parallel points: with as many or more there are programs for every core of a GPU
LONG = 8192  # points of a reduction that one program does while another launch would begin


def split_calls(program: Program) -> Program:
    """The program with the calls above as several."""
    steps: list[Step] = []
    for step in program.steps:
        steps.extend(_calls(step) if isinstance(step, Call) else (step,))
    return program.replace(steps=tuple(steps))


def _calls(call: Call) -> Iterator[Step]:
    parts = split_reductions(call.kernel) if call.how is None and _is_long(call.kernel) else None
    if parts is None:
        yield from _filled(call)
        return
    yield from in_turn(call, parts)


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


def _is_long(kernel: Kernel) -> bool:
    """Whether few programs would each go through much."""
    reductions = (stage for stage in kernel.stages if isinstance(stage, (Reduce, Fold)))
    most = max((_points(stage.axes) for stage in reductions), default=0)
    return _points(kernel.parallel) < FEW and most >= LONG


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
