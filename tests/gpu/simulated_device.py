"""A simulated device: no memory and no kernels, but whatever a real one would punish late is refused at once.

Work is a range of addresses that a stream uses.  It stays unfinished until the stream is moved on or waited
for, and meanwhile no other stream may use those addresses for another block, and the device may not get them
back.  Streams that share a block are taken to wait for each other, and for the stream it belongs to.
"""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from lamina.ir.errors import OutOfMemoryError


class Misuse(AssertionError):
    """What would have been wrong data, or an illegal address, on a real device."""


class SimulatedEvent:
    def __init__(self, stream: SimulatedStream):
        self.stream, self.position = stream, stream.given

    def done(self) -> bool:
        self.stream.device.called("done")
        return self.stream.come >= self.position

    def synchronize(self) -> None:
        self.stream.device.called("synchronize")
        self.stream.come = max(self.stream.come, self.position)


class SimulatedStream:
    """given: how many uses it was given.  come: how many of them are finished."""

    def __init__(self, device: SimulatedDevice):
        self.device, self.given, self.come = device, 0, 0
        self.uses: deque[tuple[int, int, int, object]] = deque()  # position, from, to, block

    def use(self, address: int, nbytes: int, block: Any) -> None:
        """Queue work on those bytes, which are the block's."""
        with self.device.lock:
            if not self.device.holds(address, nbytes):
                raise Misuse(f"{nbytes} bytes at {address:#x} are not the device's")
            for other in self.device.streams:
                if other not in (self, block.stream) and other.unfinished(address, address + nbytes, block):
                    raise Misuse(f"{nbytes} bytes at {address:#x} are still used by another stream")
            self.given += 1
            self.uses.append((self.given, address, address + nbytes, block))

    def unfinished(self, start: int, end: int, but: object = None) -> bool:
        """Whether it has work left on those bytes, that of one block not counted."""
        while self.uses and self.uses[0][0] <= self.come:
            self.uses.popleft()
        return any(a < end and start < b and block is not but for _, a, b, block in self.uses)

    def advance(self, count: int) -> None:
        """Let the device finish so many of its uses."""
        self.come = min(self.given, self.come + count)

    def record(self) -> SimulatedEvent:
        self.device.called("record")
        return SimulatedEvent(self)

    def synchronize(self) -> None:
        self.device.called("synchronize")
        self.come = self.given


class SimulatedDevice:
    """capacity: in bytes.  Segments lie next to each other, so that one can be taken for the other's end.

    called_back: is told the name of each call, before it does anything; it may raise.
    """

    name = "a simulated device"

    def __init__(self, capacity: int = 1 << 40, elsewhere: int = 0):
        self.total_memory, self.elsewhere = capacity, elsewhere
        self.lock = threading.RLock()
        self.segments: dict[int, int] = {}
        self.streams: list[SimulatedStream] = []
        self.used = self.peak = self.calls = 0
        self.refusals = 0  # so many of the next requests fail
        self.called_back: Callable[[str], None] | None = None
        self.host: dict[int, ctypes.Array] = {}
        self.host_room = 1 << 30
        self._next = 1 << 32

    def called(self, what: str) -> None:
        self.calls += 1
        if self.called_back is not None:
            self.called_back(what)

    def stream(self) -> SimulatedStream:
        self.streams.append(SimulatedStream(self))
        return self.streams[-1]

    def holds(self, address: int, nbytes: int) -> bool:
        return any(at <= address and address + nbytes <= at + n for at, n in list(self.segments.items()))

    def memory(self) -> tuple[int, int]:
        return self.total_memory - self.elsewhere - self.used, self.total_memory

    def allocate(self, nbytes: int) -> int:
        self.called("allocate")
        with self.lock:
            if self.refusals or self.used + nbytes > self.total_memory - self.elsewhere:
                self.refusals = max(0, self.refusals - 1)
                raise OutOfMemoryError("the simulated device is full")
            address = self._next
            self._next += nbytes
            self.segments[address] = nbytes
            self.used += nbytes
            self.peak = max(self.peak, self.used)
            return address

    def release(self, address: int) -> None:
        self.called("release")
        with self.lock:
            nbytes = self.segments.pop(address, None)
            if nbytes is None:
                raise Misuse(f"{address:#x} is no segment of the device")
            if any(stream.unfinished(address, address + nbytes) for stream in self.streams):
                raise Misuse(f"the segment at {address:#x} is still in use")
            self.used -= nbytes

    def host_allocate(self, nbytes: int) -> int:
        self.called("host_allocate")
        if nbytes + sum(map(len, self.host.values())) > self.host_room:
            raise OutOfMemoryError("the simulated host is full")
        memory = (ctypes.c_char * nbytes)()
        self.host[ctypes.addressof(memory)] = memory
        return ctypes.addressof(memory)

    def host_release(self, address: int) -> None:
        self.called("host_release")
        if address not in self.host:
            raise Misuse(f"{address:#x} is no locked memory")
        del self.host[address]
