"""Arrays in device memory."""

from __future__ import annotations

import sys
from math import prod

import numpy as np

from ...ir.kernel.types import NUMPY
from ...passes.triton.code import ALIGNMENT
from .allocator import Block
from .machine import Machine

_SIZES = {name: dtype.itemsize for name, dtype in NUMPY.items()}


class DeviceArray:
    """A dense row-major array on a device.  dtype: a kernel's, f32 or bool.  Its memory goes with it.

    It belongs to its machine's stream: what is queued there finds it ready.  It begins at a multiple of
    ALIGNMENT, which kernels that are told where in it an operand lies take for granted.
    """

    __slots__ = ("machine", "dtype", "shape", "nbytes", "block", "address", "__weakref__")

    def __init__(self, machine: Machine, dtype: str, shape: tuple[int, ...]):
        self.machine, self.dtype, self.shape = machine, dtype, shape
        self.nbytes = prod(shape) * _SIZES[dtype]
        self.block: Block = machine.allocate(self.nbytes)
        self.address = self.block.address
        assert self.address % ALIGNMENT == 0, f"the allocator gave {self.address:#x}"

    def __del__(self) -> None:
        if not sys.is_finalizing() and (block := getattr(self, "block", None)) is not None:
            self.machine.free(block)

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
