"""Run a kernel's Triton source in Triton's interpreter, on NumPy arrays.

For processes of their own: TRITON_INTERPRET counts when triton is imported, and then nothing compiles.
"""

import os

os.environ["TRITON_INTERPRET"] = "1"

import interpreter_faults
import numpy as np
import triton.language as tl
from triton.runtime.interpreter import TensorHandle
from watched_memory import watch

from lamina.ir.kernel import NUMPY
from lamina.ir.kernel.form import identity
from lamina.passes.triton.compiler import build
from lamina.passes.triton.defaults import default_schedule
from lamina.passes.triton.emit import lower
from lamina.passes.triton.names import entry
from lamina.passes.triton.schedule import grid
from lamina.passes.triton.spelling import TYPES

interpreter_faults.repair()


def pointer(array: np.ndarray, dtype: str) -> tl.tensor:
    """A ready pointer value: the interpreter passes on what has no data_ptr, and writes land in the array."""
    kind = tl.pointer_type(getattr(tl, TYPES[dtype]))
    return tl.tensor(TensorHandle(np.array([array.ctypes.data], np.uint64), kind), kind)


def memory(kernel, buffer, fill: int = 0xA5) -> np.ndarray:
    """What an output's memory holds before a launch: the identity where it accumulates, else what betrays an
    element that nobody wrote.
    """
    combine = next((s.combine for s in kernel.stores if s.buffer == buffer.name and s.combine), None)
    if combine:
        start = 0 if combine == "set" else identity(combine, buffer.dtype)
        return np.full(buffer.shape, start, NUMPY[buffer.dtype])
    size = int(np.prod(buffer.shape)) * NUMPY[buffer.dtype].itemsize
    return np.full(size, fill, np.uint8).view(NUMPY[buffer.dtype]).reshape(buffer.shape)


GUARD = 64  # bytes on both sides of an array, which nobody may write


def guarded(array: np.ndarray) -> np.ndarray:
    """A copy with known bytes around it."""
    raw = np.full(array.nbytes + 2 * GUARD, 0x5A, np.uint8)
    copy = raw[GUARD : GUARD + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def unharmed(array: np.ndarray) -> bool:
    raw = array
    while raw.base is not None and isinstance(raw.base, np.ndarray):
        raw = raw.base
    return bool((raw[:GUARD] == 0x5A).all() and (raw[len(raw) - GUARD :] == 0x5A).all())


def launch(kernel, schedule, arrays: dict[str, np.ndarray]) -> None:
    """Run a kernel's source on the memory of its buffers, and nowhere else."""
    watch(lambda: [(array.ctypes.data, array.nbytes) for array in arrays.values() if array.nbytes])
    function = build(lower(kernel, schedule), entry(kernel.name))
    pointers = [pointer(arrays[b.name], b.dtype) for b in kernel.buffers.values()]
    if programs := grid(kernel, schedule):
        with np.errstate(all="ignore"):
            function[(programs,)](*pointers)


def run(kernel, *arrays: np.ndarray, schedule=None) -> list[np.ndarray]:
    """The outputs of a kernel.

    Raises AssertionError where it writes into its inputs, or touches memory beside its arrays: no lane of a
    tile that is larger than what it covers may read there either.
    """
    given = {b.name: guarded(x) for b, x in zip(kernel.inputs, arrays, strict=True)}
    for buffer in kernel.outputs:
        given[buffer.name] = given[buffer.inplace] if buffer.inplace else guarded(memory(kernel, buffer))
    launch(kernel, schedule or default_schedule(kernel), given)
    written = {b.inplace for b in kernel.outputs}
    for buffer, array in zip(kernel.inputs, arrays, strict=True):
        assert buffer.name in written or given[buffer.name].tobytes() == array.tobytes(), buffer
    assert all(map(unharmed, given.values())), "memory beside an array was written"
    return [given[b.name] for b in kernel.outputs]
