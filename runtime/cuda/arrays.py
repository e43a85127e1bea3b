"""Arrays in device memory."""

from __future__ import annotations

import weakref

import numpy as np

from ...ir.kernel.types import NUMPY
from ...passes.triton.code import ALIGNMENT
from .allocator import Block
from .machine import Machine


class DeviceArray:
    """A dense row-major array on a device.  dtype: a kernel's, f32 or bool.  Its memory goes with it.

    It belongs to its machine's stream: what is queued there finds it ready.  It begins at a multiple of
    ALIGNMENT, which kernels that are told where in it an operand lies take for granted.
    """

    __slots__ = ("machine", "dtype", "shape", "block", "__weakref__")

    def __init__(self, machine: Machine, dtype: str, shape: tuple[int, ...]):
        self.machine, self.dtype, self.shape = machine, dtype, shape
        self.block: Block = machine.allocate(self.nbytes)
        weakref.finalize(self, machine.free, self.block).atexit = False
        assert self.address % ALIGNMENT == 0, f"the allocator gave {self.address:#x}"

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * NUMPY[self.dtype].itemsize

    @property
    def address(self) -> int:
        return self.block.address

    def fill_from(self, array: np.ndarray) -> None:
        """Queue a copy of a dense array, which must stay as it is until the stream was waited for."""
        if array.nbytes:
            self.machine.stream.copy_in(self.address, array)

    def copy_to(self, array: np.ndarray) -> None:
        """Queue a copy into a dense array, which holds the values once the stream was waited for."""
        if array.nbytes:
            self.machine.stream.copy_out(array, self.address)

    def numpy(self) -> np.ndarray:
        """The values in a new array, once they are there."""
        array = np.empty(self.shape, NUMPY[self.dtype])
        self.copy_to(array)
        self.machine.stream.synchronize()
        return array

    def __repr__(self) -> str:
        return f"DeviceArray({self.dtype}[{','.join(map(str, self.shape))}] on {self.machine.device.name})"


def uploaded(machine: Machine, array: np.ndarray, dtype: str) -> DeviceArray:
    """A new device array with an array's values; the copy is queued, and reads them until then."""
    made = DeviceArray(machine, dtype, array.shape)
    made.fill_from(np.ascontiguousarray(array))
    return made
