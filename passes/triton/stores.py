"""What a store becomes: a plain one, an atomic, or a read and a write where the schedule has put points in
order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir.kernel.form import Store, names
from ...ir.kernel.types import bits, is_floating
from .scatter import atomic

if TYPE_CHECKING:
    from .emit import Emitter

# The bits of a NaN that is above all numbers for Triton's atomic max, which compares floats as integers, and
# of one that is below all for its min.
_STICKY = {("max", "f32"): 0x7FC00000, ("max", "f64"): 0x7FF8 << 48}
_STICKY |= {("min", "f32"): 0xFFC00000 - (1 << 32), ("min", "f64"): (0xFFF8 << 48) - (1 << 64)}


def store(emitter: Emitter, stage: Store) -> None:
    kernel = emitter.kernel
    dims, buffer = emitter.stage_dims(stage), kernel.buffers[stage.buffer]
    shape = emitter.shape(dims)
    value = f"tl.broadcast_to({emitter.emit(stage.value, dims, buffer.dtype)}, {shape})"
    offset, tests = emitter.address(buffer.name, stage.index, dims)
    address = f"{emitter.pointers[buffer.name]} + ({offset} + tl.zeros({shape}, tl.int32))"
    tests = emitter.inside(names(kernel.parallel + stage.axes), dims) + tests
    mask = f", mask={' & '.join(tests)}" if tests else ""
    function = atomic(kernel, stage)
    if stage.combine in (None, "set"):
        emitter.line(f"tl.store({address}, {value}{mask})")
    elif function is None:
        _in_order(emitter, stage, address, value, mask)
    elif stage.combine in ("max", "min") and is_floating(buffer.dtype):
        _compare(emitter, stage, function, address, value, tests)
    else:
        emitter.line(f"{function}({address}, {value}{mask}, sem='relaxed')")


def _in_order(emitter: Emitter, stage: Store, address: str, value: str, mask: str) -> None:
    """A read and a write; threads of a program that hold the same element wait for each other."""
    dtype = emitter.kernel.buffers[stage.buffer].dtype
    at = emitter.let(address)
    before = emitter.let(f"tl.load({at}{mask}{', other=0' if mask else ''})")
    emitter.line("tl.debug_barrier()")
    if dtype in ("f16", "bf16"):
        wide = emitter.spelled(
            stage.combine or "", "f32", f"{before}.to(tl.float32)", f"{value}.to(tl.float32)"
        )
        after = f"({wide}).to({before}.dtype)"
    else:
        after = emitter.spelled(stage.combine or "", dtype, before, value)
    emitter.line(f"tl.store({at}, {after}{mask})")
    emitter.line("tl.debug_barrier()")


def _compare(
    emitter: Emitter, stage: Store, function: str, address: str, value: str, tests: list[str]
) -> None:
    """max or min of floats, in which a NaN stays: one that comes, and one that was there."""
    dtype = emitter.kernel.buffers[stage.buffer].dtype
    dims = emitter.stage_dims(stage)
    width, number = bits(dtype), _STICKY[stage.combine or "", dtype]
    ones = [1] * len(dims.tiles)
    nan = emitter.let(f"tl.full({ones}, {number}, tl.int{width}).to(tl.float{width}, bitcast=True)")
    nan = emitter.let(f"tl.broadcast_to({nan}, {emitter.shape(dims)})")
    at, new = emitter.let(address), emitter.let(value)
    new = emitter.let(f"tl.where({new} == {new}, {new}, {nan})")
    mask = f", mask={' & '.join(tests)}" if tests else ""
    before = emitter.let(f"{function}({at}, {new}{mask}, sem='relaxed')")
    again = " & ".join([f"({before} != {before})", *tests])
    emitter.line(f"{function}({at}, {nan}, mask={again}, sem='relaxed')")
