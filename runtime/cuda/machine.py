"""One device as this process uses it: its memory, one stream, and the kernels that were loaded."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from ...ir.locks import fork_safe_lock
from ...passes.triton.binary import Binary
from ...passes.triton.code import Code
from .allocator import Allocator, Block
from .driver import Device, Driver, Function

if TYPE_CHECKING:
    from .arrays import DeviceArray


class Machine:
    """A device, an allocator over its memory, and the stream that all programs' work is queued on.

    Any number of threads may use it: the work of each is queued in order, and everything that a call
    allocates is its own.
    """

    def __init__(self, device: Device):
        self.device = device
        device.use()
        self.allocator = Allocator(device)
        self.stream = device.stream()
        self.target: str = device.target
        # Whoever runs a kernel keeps it: the driver unloads those that nobody does.
        self._functions: WeakValueDictionary[str, Function] = WeakValueDictionary()
        self._loading = threading.Lock()
        self.copiers: dict[
            tuple[int, int, bool], Function
        ] = {}  # by dimensions, bytes and width (strided.py)
        self.numbers: dict[tuple, Any] = {}  # on the device, by dtype and bytes (eager.py)
        # Flags of checked indices that nobody has looked at, with what makes the error of each (eager.py).
        self.unseen: list[tuple[DeviceArray, Callable[[], Exception]]] = []

    def use(self) -> None:
        """Let this thread talk to the device.  Raises DeviceError in a forked child."""
        self.device.use()

    def check(self) -> None:
        """Raises DeviceError where the device was lost, and in a forked child."""
        self.use()
        self.device.check()

    def allocate(self, nbytes: int) -> Block:
        """Memory for work on the stream.  Raises OutOfMemoryError."""
        return self.allocator.allocate(nbytes, self.stream)

    def free(self, block: Block) -> None:
        """Take memory back; what is queued already may still use it."""
        self.allocator.free(block)

    def functions(self, codes: Sequence[Code], binaries: Sequence[Binary]) -> list[Function]:
        """The loaded kernels, each once for the device."""
        self.use()
        found = []
        with self._loading:
            for code, binary in zip(codes, binaries, strict=True):
                function = self._functions.get(code.name)
                if function is None:
                    function = self._functions[code.name] = self.device.load(binary, code.parameters)
                found.append(function)
        return found


_machines: dict[int, Machine] = {}
_making = fork_safe_lock()


def machine(ordinal: int = 0) -> Machine:
    """The machine of a device, made at the first request.  Raises DeviceError where there is none."""
    with _making:
        found = _machines.get(ordinal)
        if found is None:
            found = _machines[ordinal] = Machine(Driver.open().device(ordinal))
        return found
