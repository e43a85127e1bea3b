"""One device as this process uses it: its memory, one stream, and the kernels that were loaded."""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from ...ir.errors import OutOfMemoryError
from ...ir.locks import fork_safe_lock
from ...passes.triton.binary import Binary
from ...passes.triton.code import Code
from .allocator import ROUNDING, SMALL, Allocator, Block
from .driver import Device, Driver, Function
from .pinned import PinnedMemory

if TYPE_CHECKING:
    from .arrays import DeviceArray


class Machine:
    """A device, an allocator over its memory, and the stream that all programs' work is queued on.

    Any number of threads may use it: the work of each is queued in order, and everything that a call
    allocates is its own.
    """

    SPARE = 16  # blocks of a size that wait for the next request

    def __init__(self, device: Device):
        self.device = device
        device.use()
        self.allocator = Allocator(device)
        self.stream = device.stream()
        self.target: str = device.target
        self.pinned = PinnedMemory(device)
        self._spare: defaultdict[int, list[Block]] = defaultdict(list)  # by their size, in ROUNDING bytes
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
        spare = self._spare.get(-(-nbytes // ROUNDING))
        if spare:
            try:
                block = spare.pop()
            except IndexError:  # another thread took it
                return self.allocator.allocate(nbytes, self.stream)
            block.nbytes = nbytes
            return block
        try:
            return self.allocator.allocate(nbytes, self.stream)
        except OutOfMemoryError:
            if not self.settle():
                raise
        return self.allocator.allocate(nbytes, self.stream)

    def free(self, block: Block) -> None:
        """Take memory back; what is queued already may still use it.

        Some small blocks of each size wait here for the next request, which takes a tenth of the time: to
        the allocator they are in use until `settle`.
        """
        if 0 < block.nbytes <= SMALL and not block.others:
            spare = self._spare[-(-block.nbytes // ROUNDING)]
            if len(spare) < self.SPARE:
                spare.append(block)
                return
        self.allocator.free(block)

    def settle(self) -> bool:
        """Give the blocks that wait for requests back to the allocator; whether there were any."""
        found = False
        for spare in [*self._spare.values()]:
            with suppress(IndexError):  # other threads may take some
                while True:
                    self.allocator.free(spare.pop())
                    found = True
        return found

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


def _forget() -> None:
    for machine in _machines.values():  # of the parent, whose memory no child may use
        machine._spare.clear()


os.register_at_fork(after_in_child=_forget)
_making = fork_safe_lock()


def machine(ordinal: int = 0) -> Machine:
    """The machine of a device, made at the first request.  Raises DeviceError where there is none."""
    with _making:
        found = _machines.get(ordinal)
        if found is None:
            found = _machines[ordinal] = Machine(Driver.open().device(ordinal))
        return found
