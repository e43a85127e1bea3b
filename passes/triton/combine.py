"""Reductions, folds and scans: what is carried from point to point of local axes.

A reduction, and a fold with a merge, keep a state in each lane of their block and combine the lanes at the
end.  A scan has no loop of its own: whatever stage reads its states runs it along, in its own loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir.kernel.form import COMBINE, Fold, Reduce, identity, names
from ...ir.kernel.scalar import ref
from .defaults import mergeable, running
from .schedule import Tile

if TYPE_CHECKING:
    from .emit import Emitter


def accumulate(emitter: Emitter, stage: Reduce) -> str:
    """The variable that holds a reduction's results."""
    dims, dtype = emitter.stage_dims(stage), emitter.kernel.dtypes[stage.name]
    word = COMBINE[stage.combine]
    start = emitter.number(identity(word, dtype), dtype, dims)
    block = emitter.block(stage)
    total, loops = emitter.fresh(), emitter.needs_loop(stage.axes)
    shape = emitter.shape(dims)
    if loops:
        emitter.line(f"{total} = tl.broadcast_to({start}, {shape})")

    def body() -> None:
        value = f"tl.broadcast_to({emitter.emit(stage.value, dims, dtype)}, {shape})"
        tests = emitter.inside(block.axes if block else (), dims)
        if tests:
            value = f"tl.where({' & '.join(tests)}, {value}, {start})"
        value = emitter.let(value)
        emitter.line(f"{total} = " + (emitter.spelled(word, dtype, total, value) if loops else value))

    emitter.over(stage, body)
    return total if block is None else _across(emitter, total, word, dtype, dims.tiles.index(block.name))


def _across(emitter: Emitter, value: str, word: str, dtype: str, dim: int) -> str:
    """A tensor reduced along one dimension, which is kept with size 1."""
    if dtype == "bool":  # reduced as numbers: 0 and 1
        combine = emitter.combining("max" if word == "bit_or" else "min", "i32")
        return emitter.let(f"tl.reduce({value}.to(tl.int32), {dim}, {combine}, keep_dims=True) != 0")
    return emitter.let(f"tl.reduce({value}, {dim}, {emitter.combining(word, dtype)}, keep_dims=True)")


def assign_fold(emitter: Emitter, stage: Fold) -> None:
    """Leave a fold's last states in the memo."""
    dims, block = emitter.stage_dims(stage), emitter.block(stage)
    shape, dtypes = emitter.shape(dims), [emitter.kernel.dtypes[name] for name in stage.names]
    states = [emitter.fresh() for _ in stage.names]
    for state, e, dtype in zip(states, stage.init, dtypes, strict=True):
        emitter.line(f"{state} = tl.broadcast_to({emitter.emit(e, emitter.main, dtype)}, {shape})")

    def body() -> None:
        with emitter.scope():
            for name, state in zip(stage.names, states, strict=True):
                emitter.bind(name, state)
            values = [emitter.emit(e, dims, d) for e, d in zip(stage.step, dtypes, strict=True)]
        tests = " & ".join(emitter.inside(block.axes if block else (), dims))
        # all are computed before one changes: each may be written with the others
        values = [emitter.let(f"tl.broadcast_to({value}, {shape})") for value in values]
        for state, value in zip(states, values, strict=True):
            emitter.line(f"{state} = " + (f"tl.where({tests}, {value}, {state})" if tests else value))

    emitter.over(stage, body)
    if block is not None:
        assert mergeable(emitter.kernel, stage) and stage.merge is not None
        given = {ref(name): f"a{n}" for n, name in enumerate(stage.names)}
        given |= {ref(f"right.{name}"): f"b{n}" for n, name in enumerate(stage.names)}
        number = emitter.kernel.stages.index(stage)
        merge = emitter.function(f"merge_{number}_helper", given, stage.merge, dtypes)
        dim = dims.tiles.index(block.name)
        several = len(states) > 1
        merged = [emitter.fresh() for _ in states]
        operand = f"({', '.join(states)})" if several else states[0]
        emitter.line(f"{', '.join(merged)} = tl.reduce({operand}, {dim}, {merge}, keep_dims=True)")
        states = merged
    for name, state in zip(stage.names, states, strict=True):
        emitter.bind(name, state)


# ---- scans
def scan_start(emitter: Emitter, scan: Fold) -> list[str]:
    """Variables that hold the first states."""
    shape, states = emitter.shape(emitter.main), []
    for name, e in zip(scan.names, scan.init, strict=True):
        value = emitter.emit(e, emitter.main, emitter.kernel.dtypes[name])
        states.append(emitter.let(f"tl.broadcast_to({value}, {shape})"))
    return states


def scan_step(emitter: Emitter, scan: Fold, states: list[str]) -> None:
    """One step on; the states then stand in the memo as those of this point."""
    shape = emitter.shape(emitter.main)
    with emitter.scope():
        for name, state in zip(scan.names, states, strict=True):
            emitter.bind(name, state)
        dtypes = [emitter.kernel.dtypes[name] for name in scan.names]
        values = [emitter.emit(e, emitter.main, d) for e, d in zip(scan.step, dtypes, strict=True)]
    values = [emitter.let(f"tl.broadcast_to({value}, {shape})") for value in values]
    for name, state, value in zip(scan.names, states, values, strict=True):
        emitter.line(f"{state} = {value}")
        emitter.bind(name, state, names(scan.axes))


def scan_block(emitter: Emitter, scan: Fold, block: Tile, carried: str | None = None) -> None:
    """The states of all points of a block at once; `carried` is the state before, and then the last one."""
    found = running(emitter.kernel, scan)
    assert found is not None
    (word, value), (name,) = found, scan.names
    dtype, dims = emitter.kernel.dtypes[name], emitter.stage_dims(scan)
    key = ref(name, names(scan.axes)), dims, dtype
    if any(key in scope for scope in emitter.scopes):
        return
    start = emitter.number(identity(word, dtype), dtype, dims)
    text = f"tl.broadcast_to({emitter.emit(value, dims, dtype)}, {emitter.shape(dims)})"
    tests = emitter.inside(block.axes, dims)
    if tests:
        text = f"tl.where({' & '.join(tests)}, {text}, {start})"
    dim, combine = dims.tiles.index(block.name), emitter.combining(word, dtype)
    value_ = emitter.let(text)
    states = emitter.let(f"tl.associative_scan({value_}, {dim}, {combine})")
    first = carried or emitter.emit(scan.init[0], emitter.main, dtype)
    states = emitter.let(emitter.spelled(word, dtype, first, states))
    if carried:
        lane = f"({dims.spread(f'tl.arange(0, {block.size})', block.name)} == {block.size - 1})"
        last = emitter.let(f"tl.where({lane}, {states}, {emitter.number(0, dtype, dims)})")
        total = emitter.combining("add", dtype)
        emitter.line(f"{carried} = tl.reduce({last}, {dim}, {total}, keep_dims=True)")
    emitter.bind(name, states, names(scan.axes))
