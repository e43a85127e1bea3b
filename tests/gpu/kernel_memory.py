"""The memory that a kernel is tried on: known bytes around each array, and in each output what betrays an
element that nobody wrote.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lamina.ir.kernel import NUMPY, Kernel
from lamina.ir.kernel.form import Buffer, identity

GUARD = 64  # bytes on both sides of an array, which nobody may write
Launch = Callable[[dict[str, np.ndarray]], None]  # of a kernel on the memory of its buffers


def memory(buffer: Buffer, combine: str | None, fill: int = 0xA5) -> np.ndarray:
    """What an output's memory holds before a launch: the identity where it accumulates."""
    if combine:
        start = 0 if combine == "set" else identity(combine, buffer.dtype)
        return np.full(buffer.shape, start, NUMPY[buffer.dtype])
    size = int(np.prod(buffer.shape)) * NUMPY[buffer.dtype].itemsize
    return np.full(size, fill, np.uint8).view(NUMPY[buffer.dtype]).reshape(buffer.shape)


def guarded(array: np.ndarray) -> np.ndarray:
    """A copy with known bytes around it."""
    raw = np.full(array.nbytes + 2 * GUARD, 0x5A, np.uint8)
    copy = raw[GUARD : GUARD + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def with_guards(array: np.ndarray) -> np.ndarray:
    """All the bytes that a guarded array lies in."""
    raw = array
    while isinstance(raw.base, np.ndarray):
        raw = raw.base
    return raw


def unharmed(array: np.ndarray) -> bool:
    raw = with_guards(array)
    return bool((raw[:GUARD] == 0x5A).all() and (raw[len(raw) - GUARD :] == 0x5A).all())


def run(launch: Launch, kernel: Kernel, *arrays: np.ndarray) -> list[np.ndarray]:
    """The outputs of a kernel.  Raises AssertionError where it writes into its inputs or beside an array."""
    given = {b.name: guarded(x) for b, x in zip(kernel.inputs, arrays, strict=True)}
    for buffer in kernel.outputs:
        combine = next((s.combine for s in kernel.stores if s.buffer == buffer.name and s.combine), None)
        given[buffer.name] = given[buffer.inplace] if buffer.inplace else guarded(memory(buffer, combine))
    launch(given)
    written = {b.inplace for b in kernel.outputs}
    for buffer, array in zip(kernel.inputs, arrays, strict=True):
        assert buffer.name in written or given[buffer.name].tobytes() == array.tobytes(), buffer
    assert all(map(unharmed, given.values())), "memory beside an array was written"
    return [given[b.name] for b in kernel.outputs]
