"""Round to bfloat16 where an array is made, instead of in a call of its own.

    %y: f32[4,8] = relu(%x)                  %y: f32[4,8], %b: bf16[4,8] = relu(%x)
    %b: bf16[4,8] = round(%y)         ->
    ... = conv2d(%b), add(%y)                ... = conv2d(%b), add(%y)

What nobody else reads is made as bfloat16 alone, and takes half the memory.
"""

from __future__ import annotations

from dataclasses import replace

from ...ir.kernel.affine import Affine
from ...ir.kernel.form import Buffer, Store
from ...ir.kernel.scalar import Cast, Read, cast
from ..graphs.pieces import wanted
from ..kernels.blocking import fresh
from ..kernels.collapse import collapsed
from .program import Alias, Array, Call, Program, Step


def round_where_made(program: Program) -> Program:
    """The program without calls that only round what another call stores."""
    makers = {array: step for step in program.calls for array in step.outputs}
    source: dict[Array, Array] = {}  # of an array under another shape
    rounds: dict[Array, list[Call]] = {}
    for step in program.steps:
        if isinstance(step, Alias) and step.inputs[0].size == step.outputs[0].size:
            source[step.outputs[0]] = source.get(step.inputs[0], step.inputs[0])
        elif isinstance(step, Call) and is_rounding(step):
            made = source.get(step.inputs[0], step.inputs[0])
            if made in makers and _store_of(makers[made], made) and step.outputs[0] not in program.results:
                rounds.setdefault(made, []).append(step)
    if not rounds:
        return program
    gone = {step for calls in rounds.values() for step in calls}
    steps: list[Step] = []
    for step in program.steps:
        if step in gone:
            continue
        here = [array for array in step.outputs if array in rounds]
        for made in here:
            assert isinstance(step, Call)
            step = _with_rounded(step, made)
        steps.append(step)
        for made, stored in zip(here, step.outputs[len(step.outputs) - len(here) :], strict=True):
            steps += [Alias((stored,), call.outputs) for call in rounds[made]]
    used, kept = {*program.results}, list[Step]()
    for step in reversed(steps):
        if isinstance(step, Alias) and used.isdisjoint(step.outputs):
            continue
        for made in [array for array in step.outputs if array in rounds and array not in used]:
            assert isinstance(step, Call)
            step = _without(step, made)
        used.update(array for array in step.inputs if array is not None)
        kept.append(step)
    return program.replace(steps=tuple(reversed(kept)))


def is_rounding(call: Call) -> bool:
    """Whether a call makes bfloat16 of an array's elements, where they lie, and does nothing else."""
    if call.how is not None or len(call.inputs) != 1 or len(call.outputs) != 1:
        return False
    flat = collapsed(call.kernel)
    match flat.stages:
        case (Store(_, index, Cast("bf16", Read(_, at, None), False), (), None),):
            return len(flat.parallel) == 1 and index == at == (Affine(((flat.parallel[0].name, 1),)),)
    return False


def _store_of(call: Call, array: Array) -> Store | None:
    """The one stage that writes an array of f32, each of whose elements it writes once."""
    buffer = call.kernel.outputs[call.outputs.index(array)]
    stores = [store for store in call.kernel.stores if store.buffer == buffer.name]
    if len(stores) != 1 or stores[0].combine or buffer.inplace or buffer.layout or array.dtype != "f32":
        return None
    return stores[0]


def _with_rounded(call: Call, array: Array) -> Call:
    """The call with one more output: what it makes of an array, as bfloat16."""
    kernel, store = call.kernel, _store_of(call, array)
    assert store is not None
    buffer = Buffer(fresh(kernel, "rounded"), "bf16", kernel.buffers[store.buffer].shape)
    also = replace(store, buffer=buffer.name, value=cast(store.value, "bf16"))
    at = kernel.stages.index(store) + 1
    kernel = kernel.replace(
        outputs=(*kernel.outputs, buffer), stages=(*kernel.stages[:at], also, *kernel.stages[at:])
    )
    return replace(
        call, kernel=kernel, outputs=(*call.outputs, Array(f"{array.name}_rounded", "bf16", array.shape))
    )


def _without(call: Call, array: Array) -> Call:
    """The call without an output."""
    at, kernel = call.outputs.index(array), call.kernel
    kernel = wanted(kernel, frozenset(range(len(kernel.outputs))) - {at})
    kernel = kernel.replace(outputs=(*kernel.outputs[:at], *kernel.outputs[at + 1 :]))
    return replace(call, kernel=kernel, outputs=(*call.outputs[:at], *call.outputs[at + 1 :]))
