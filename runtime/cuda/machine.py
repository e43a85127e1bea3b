"""One device as this process uses it: its memory, its streams, and the kernels that were loaded."""

from __future__ import annotations

import os
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet, WeakValueDictionary

from ...ir.errors import OutOfMemoryError
from ...ir.locks import fork_safe_lock
from ...passes.triton.binary import Binary
from ...passes.triton.code import Code
from .. import modes
from .allocator import ROUNDING, SMALL, Allocator, Block
from .driver import Device, Driver, Function, Stream
from .pinned import PinnedMemory

if TYPE_CHECKING:
    from .arrays import DeviceArray


T = TypeVar("T")


class Machine:
    """A device, an allocator over its memory, and the streams that programs' work is queued on.

    Any number of threads may use it: the work of each is queued in order, and everything that a call
    allocates is its own.  stream: the one that this thread's work is queued on.  default: that of all who
    chose none.  apart: those that users were given (streamed.py); handed_out: how often one of these was
    given again.
    """

    SPARE = 16  # blocks of a size that wait for the next request

    def __init__(self, device: Device):
        self.device = device
        device.use()
        self.allocator = Allocator(device)
        self.default = self.stream = device.stream()
        self.apart: list[Stream] = []
        self.handed_out = 0
        self._side: Stream | None = None  # for what all streams read, once there are several
        self._last_shared: Any = None  # the event behind what was copied last for all streams
        self._shared: WeakSet[DeviceArray] = WeakSet()
        self.target: str = device.target
        self.pinned = PinnedMemory(device)
        self._spare: defaultdict[int, list[Block]] = defaultdict(list)  # by their size, in ROUNDING bytes
        # Whoever runs a kernel keeps it: the driver unloads those that nobody does.
        self._functions: WeakValueDictionary[str, Function] = WeakValueDictionary()
        self._loading = threading.Lock()
        self.copiers: dict[
            tuple[int, int, bool], Function
        ] = {}  # by dimensions, bytes and width (strided.py)
        self.by_hand: dict[str, Function] = {}  # of sources that are written by hand, by name (ordering.py)
        self.numbers: dict[tuple, Any] = {}  # on the device, by dtype and bytes (eager.py)
        self.told: Counter[str] = Counter()  # kinds of arrays that ops made of numbers alone (eager.py)
        # Flags of checked indices that nobody has looked at, with what makes the error of each, and their
        # stream (eager.py).
        self.unseen: list[tuple[DeviceArray, Callable[[], Exception], Stream]] = []
        # Memory of other libraries that nobody sees any more: the event to wait for, and what gives it back.
        self._leaving: deque[tuple[Any, Callable[[], object]]] = deque()

    def use(self) -> None:
        """Let this thread talk to the device.  Raises DeviceError in a forked child."""
        self.device.use()

    def check(self) -> None:
        """Raises DeviceError where the device was lost, and in a forked child."""
        self.use()
        self.device.check()

    def add_stream(self) -> Stream:
        """A stream beside the others.  What all may read is there before its first work."""
        made = self.device.stream()
        self.__class__ = MachineOfSeveral  # until now asking for the stream cost nothing
        if self._last_shared is not None:
            made.wait(self._last_shared)
        for array in [*self._shared]:
            self.allocator.used_by(array.block, made)
        self.apart.append(made)
        return made

    def for_all_streams(self, copy: Callable[[], T], held: Callable[[T], Iterable[DeviceArray]]) -> T:
        """What `copy` makes on the device, there for all streams, which may read it from now on.

        Such copies are numbers and constants that are kept.  held: the arrays that it consists of.
        """
        if not self.apart:
            found = copy()
        else:
            if self._side is None:
                self._side = self.device.stream()
                if self._last_shared is not None:  # so that the next such event stands for all before
                    self._side.wait(self._last_shared)
            with modes.streams_as({**(modes.local.streams or {}), self.device.ordinal: self._side}):
                found = copy()
        arrays = [x for x in held(found) if x.nbytes]
        if arrays:
            event = self._last_shared = (self._side or self.stream).record()
            for other in (self.default, *self.apart) if self.apart else ():
                other.wait(event)
                for array in arrays:
                    self.allocator.used_by(array.block, other)
            self._shared.update(arrays)
        return found

    def allocate(self, nbytes: int) -> Block:
        """Memory for work on this thread's stream.  Raises OutOfMemoryError."""
        stream = self.stream
        spare = self._spare.get(-(-nbytes // ROUNDING)) if stream is self.default else None
        if spare:
            try:
                block = spare.pop()
            except IndexError:  # another thread took it
                return self.allocator.allocate(nbytes, stream)
            block.nbytes = nbytes
            return block
        try:
            return self.allocator.allocate(nbytes, stream)
        except OutOfMemoryError:
            if not self.settle():
                raise
        return self.allocator.allocate(nbytes, stream)

    def free(self, block: Block) -> None:
        """Take memory back; what is queued already may still use it.

        Some small blocks of each size, of the default stream, wait here for the next request, which takes a
        tenth of the time: to the allocator they are in use until `settle`.
        """
        if 0 < block.nbytes <= SMALL and block.stream is self.default and not block.others:
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

    def leave(self, give_back: Callable[[], object]) -> None:
        """Give memory of another library's back, once what the stream has now is done."""
        self.see_off()
        if self.stream.done():
            give_back()
        else:
            self._leaving.append((self.stream.record(), give_back))

    def see_off(self) -> None:
        """Give back what waited for events that have passed."""
        for _ in range(len(self._leaving)):
            try:
                event, give_back = self._leaving.popleft()
            except IndexError:  # another thread took it
                return
            if not event.done():
                self._leaving.appendleft((event, give_back))
                return
            give_back()

    def has(self, codes: Sequence[Code]) -> bool:
        """Whether all of these are loaded."""
        return all(code.name in self._functions for code in codes)

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


class MachineOfSeveral(Machine):
    """A machine with streams beside the default one, of which a thread may choose one."""

    @property
    def stream(self) -> Stream:  # type: ignore[override]
        """What this thread chose."""
        chosen = modes.local.streams
        return self.default if chosen is None else chosen.get(self.device.ordinal, self.default)


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
