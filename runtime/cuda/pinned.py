"""Page-locked host memory as NumPy arrays, kept for the next one when an array goes.

The device copies from and to page-locked memory by itself, while Python goes on; from other memory the driver
copies by way of its own buffers, and a copy to it waits.  To lock pages takes milliseconds, and locked memory
is lost to everyone else: so buffers are cached, and there is a limit.
"""

from __future__ import annotations

import gc
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ...ir.errors import ArgumentValueError, DeviceError, OutOfMemoryError
from ..memory import address
from .allocator import readable

PAGE = 4096  # bytes: less is not locked by itself
MOST = 0.5  # of the machine's memory, if no limit is given
# Seconds to wait after a collection that freed too little: while another thread collects, one does nothing.
PAUSES = (0.0, 0.002, 0.02)

_Cached = tuple[int, tuple[Any, ...]]  # a buffer that no array uses: its address, and the events to wait for


def _machine_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


class _Memory:
    """A buffer in use.  It lives as long as some array over it, and then goes back to where it is from."""

    __slots__ = ("owner", "address", "nbytes")

    def __init__(self, owner: PinnedMemory, address: int, nbytes: int):
        self.owner, self.address, self.nbytes = owner, address, nbytes

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {"shape": (self.nbytes,), "typestr": "|u1", "data": (self.address, False), "version": 3}

    def __del__(self) -> None:
        self.owner._returned(self.address)


class PinnedMemory:
    """Makes page-locked arrays for one device's copies.

    limit: bytes that may be locked at once, what is cached included; half of the machine's memory if None.

    Buffers have powers of two of bytes, so one serves many shapes.  All methods may be called from any
    thread, and arrays may die at any point: a buffer comes back by one step of a deque, and its events are
    looked at when an array of its size is wanted.  In a forked child the parent's arrays stay readable;
    nothing is made there or given back.
    """

    def __init__(self, device: Any, limit: int | None = None):
        self.device = device
        self.limit = int(_machine_memory() * MOST) if limit is None else limit
        self._process = os.getpid()
        self._making = threading.RLock()  # for the sake of the limit; a finalizer may come here again
        self._cached: dict[int, deque[_Cached]] = {}  # by size
        self._sizes: dict[int, int] = {}  # of all that is locked, by address
        # Of each buffer in use, by address, the event after its last copy on each stream.
        self._events: dict[int, dict[Any, Any]] = {}
        self._made = self._released = 0

    def empty(self, shape: int | Iterable[int], dtype: npt.DTypeLike) -> np.ndarray:
        """A new array, not filled.  Raises OutOfMemoryError beyond the limit or the system's own."""
        if os.getpid() != self._process:
            raise DeviceError(
                "a forked process can't lock memory for its parent's device",
                "start it with multiprocessing's method spawn",
            )
        dtype = np.dtype(dtype)
        shape = (int(shape),) if not isinstance(shape, Iterable) else tuple(int(n) for n in shape)
        if dtype.hasobject or any(n < 0 for n in shape):
            raise ArgumentValueError(f"there is no page-locked array of shape {shape} and type {dtype}")
        nbytes = math.prod(shape) * dtype.itemsize
        if nbytes == 0:
            return np.empty(shape, dtype)
        size = max(PAGE, 1 << (nbytes - 1).bit_length())
        start = self._reused(size)
        if start is None:
            start = self._locked(size)
        self._events[start] = {}
        return np.ndarray(shape, dtype, np.asarray(_Memory(self, start, nbytes)))

    def used_by(self, array: np.ndarray, stream: Any) -> bool:
        """Say, after a copy was queued on `stream`, that it reads or writes the array or a view of it.

        The array's memory serves nobody else until what the stream was given so far is done.  Returns False,
        and does nothing, for an array of other memory.
        """
        start = self._start(array)
        if start is None:
            return False
        self._events[start][stream] = stream.record()  # it passes after all earlier ones of the stream
        return True

    def holds(self, array: np.ndarray) -> bool:
        """Whether an array's memory is page-locked and from here."""
        return self._start(array) is not None

    def empty_cache(self) -> None:
        """Give all buffers that no array uses back to the system.  Waits for their copies."""
        if os.getpid() == self._process:
            with self._making:
                self._empty()

    def statistics(self) -> dict[str, int]:
        """Counts and bytes under the names of torch.cuda.host_memory_stats.

        allocated_bytes: all that is locked.  active_bytes: what arrays use; the rest is cached, or is still
        being copied.
        """
        locked = self._locked_bytes()
        cached = sum(size * len(buffers) for size, buffers in list(self._cached.items()))
        return {
            "allocations.current": len(self._sizes),
            "allocated_bytes.current": locked,
            "active_bytes.current": locked - cached,
            "num_host_alloc": self._made,
            "num_host_free": self._released,
        }

    def _locked_bytes(self) -> int:
        return sum(list(self._sizes.values()))

    def _start(self, array: np.ndarray) -> int | None:
        """The address of the buffer in use that an array lies in, however the array came about."""
        at = address(array)  # the table may lose buffers of other threads' arrays meanwhile
        found = (start for start in list(self._events) if start <= at < start + self._sizes.get(start, 0))
        return next(found, None)

    def _returned(self, start: int) -> None:
        """An array is gone.  Called by a finalizer: nothing here can wait, or be halfway done."""
        if os.getpid() == self._process:
            events = self._events.pop(start)
            self._cached[self._sizes[start]].append((start, tuple(events.values())))

    def _reused(self, size: int) -> int | None:
        """The address of a cached buffer whose copies are done."""
        buffers = self._cached.setdefault(size, deque())
        return next(self._taken(buffers, lambda event: event.done()), None)

    def _taken(self, buffers: deque[_Cached], passed: Callable[[Any], bool]) -> Iterator[int]:
        """Take out the buffers whose events have passed, oldest first."""
        for _ in range(len(buffers)):
            try:
                start, events = buffers.popleft()  # from here on it is this thread's
            except IndexError:  # others were quicker
                return
            kept = True
            try:
                kept = not all(passed(event) for event in events)
            finally:  # also where an event can't be asked
                if kept:
                    buffers.append((start, events))
            if not kept:
                yield start

    def _locked(self, size: int) -> int:
        """The address of a new buffer."""
        for pause in PAUSES:
            try:
                return self._locked_now(size)
            except OutOfMemoryError:  # circles of garbage may hold buffers
                gc.collect()  # not under the lock, as finalizers may wait
                time.sleep(pause)
        return self._locked_now(size)

    def _locked_now(self, size: int) -> int:
        with self._making:
            if self._locked_bytes() + size > self.limit:
                self._empty()
            if self._locked_bytes() + size > self.limit:
                raise OutOfMemoryError(
                    f"{readable(size)} more of page-locked memory would be beyond the limit",
                    f"limit:  {readable(self.limit)}",
                    f"locked: {readable(self._locked_bytes())}, all in use by arrays",
                    "drop arrays that were copied already, or use ordinary ones",
                )
            try:
                start = self.device.host_allocate(size)
            except OutOfMemoryError:
                self._empty()
                start = self.device.host_allocate(size)
            self._sizes[start] = size
            self._made += 1
            return start

    def _empty(self) -> None:
        for buffers in list(self._cached.values()):
            for start in self._taken(buffers, _wait):
                del self._sizes[start]
                self._released += 1
                self.device.host_release(start)


def _wait(event: Any) -> bool:
    event.synchronize()
    return True
