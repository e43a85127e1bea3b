"""Hands out device memory, and keeps what is freed for the next request.

The driver's own allocation takes as long as many kernels and waits for the device.  So memory is taken from
it in segments, and these are cut up: the policy and its numbers are those of PyTorch's caching allocator
(c10/cuda/CUDACachingAllocator), which programs are tuned for.

A block belongs to a stream.  Freed, it serves the next request for that stream at once: the stream's order
keeps the old use before the new one.  A block that other streams used as well waits for events on those.
"""

from __future__ import annotations

import gc
import os
import threading
from collections import deque
from typing import Any

from ...ir.errors import ArgumentValueError, DeviceError, OutOfMemoryError
from .pieces import Piece, Pool

KIB, MIB = 1 << 10, 1 << 20
ROUNDING = 512  # bytes that every block's size is a multiple of, and its address with it
SMALL = 1 * MIB  # requests of up to so many bytes are kept apart from the others ...
SMALL_SEGMENT = 2 * MIB  # ... in segments of this size
MEDIUM = 10 * MIB  # requests below this share segments
MEDIUM_SEGMENT = 20 * MIB
LARGE_ROUNDING = 2 * MIB  # larger ones have segments of their own, of a multiple of this


def rounded(nbytes: int) -> int:
    """The bytes that a request takes."""
    return -(-nbytes // ROUNDING) * ROUNDING


def segment_size(size: int) -> int:
    """The bytes that the device is asked for where no free piece has `size`."""
    if size <= SMALL:
        return SMALL_SEGMENT
    if size < MEDIUM:
        return MEDIUM_SEGMENT
    return -(-size // LARGE_ROUNDING) * LARGE_ROUNDING


def readable(nbytes: int) -> str:
    """A number of bytes as text: 2.50 GiB."""
    for unit, name in ((1 << 30, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if nbytes >= unit:
            return f"{nbytes / unit:.2f} {name}"
    return f"{nbytes} bytes"


class Block:
    """Device memory in use: `nbytes` at `address`, for work on `stream`, and on `others` by `used_by`."""

    __slots__ = ("address", "nbytes", "stream", "others", "piece")

    def __init__(self, nbytes: int, stream: Any, piece: Piece | None):
        self.address = piece.address if piece is not None else 0
        self.nbytes, self.stream, self.piece = nbytes, stream, piece
        self.others: set[Any] = set()

    @property
    def size(self) -> int:
        """The bytes that it takes, which are at least `nbytes`."""
        return self.piece.size if self.piece is not None else 0


class Gauge:
    """A count, and the most that it was."""

    __slots__ = ("current", "peak")

    def __init__(self) -> None:
        self.current = self.peak = 0

    def add(self, amount: int) -> None:
        self.current += amount
        if self.current > self.peak:
            self.peak = self.current


class Allocator:
    """The memory of one device.

    Every method may be called from any thread.  `free` may be called by a finalizer too, which can run at any
    point of Python code, that of `allocate` included: it only notes the block, and whoever has the lock next
    returns it to its pool.  A finalizer may even allocate; in the middle of another allocation it gets a
    segment of its own, since the pools can't be touched there.

    A forked child has none of the device's memory: there `allocate` raises DeviceError, `free` does nothing.
    """

    def __init__(self, device: Any):
        self.device = device
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._busy = False  # a thread is among the pools: the lock's owner, which may come here again
        self._live: set[Block] = set()  # its methods, as those of deques, are single steps to other threads
        self._freed: deque[Block] = deque()  # not yet returned
        self._strays: deque[tuple[Piece, Any, bool]] = deque()  # with stream and kind; not yet counted
        # A captured graph will want pools of its own: another part of the key.
        self._pools: dict[tuple[Any, bool], Pool] = {}
        self._waiting: dict[Any, deque[tuple[Any, Piece]]] = {}  # by the stream that has to come so far
        self._allocation, self._allocated = Gauge(), Gauge()
        self._segment, self._reserved = Gauge(), Gauge()
        self._retries = self._ooms = self._device_allocs = self._device_frees = 0

    def allocate(self, nbytes: int, stream: Any) -> Block:
        """Memory for work on `stream`, with whatever was there before.  A block of 0 bytes has address 0.

        Raises OutOfMemoryError after everything that is cached was given up for it.
        """
        self._check_process()
        if nbytes < 0:
            raise ArgumentValueError(f"a block can't have {nbytes} bytes")
        if nbytes == 0:
            return self._handed_out(Block(0, stream, None))
        if nbytes > self.device.total_memory:  # no reason to give up the cache
            raise self._out_of_memory(nbytes, stream)
        try:
            return self._allocate(nbytes, stream)
        except OutOfMemoryError:
            gc.collect()  # circles of garbage may hold blocks; not under the lock, as finalizers may wait
        try:
            return self._allocate(nbytes, stream)
        except OutOfMemoryError:
            raise self._out_of_memory(nbytes, stream) from None

    def free(self, block: Block) -> None:
        """Take a block back.  Work that was queued on its streams before may still use it.

        Raises ArgumentValueError for one that is not in use.
        """
        if os.getpid() != self._process:
            return
        try:
            self._live.remove(block)
        except KeyError:
            raise ArgumentValueError(*_not_in_use("free", block)) from None
        if block.piece is None:
            return
        self._freed.append(block)
        if self._busy:
            return
        try:
            with self._lock:
                if not self._busy:
                    self._within(self._catch_up)
        except DeviceError:
            pass  # the block stays noted, and the next request, which no finalizer makes, meets the error

    def used_by(self, block: Block, stream: Any) -> None:
        """Say that work on another stream uses the block, as PyTorch's record_stream does.

        Once freed, the block waits for what that stream was given until then.  Raises ArgumentValueError for
        a block that is not in use.
        """
        self._check_process()
        if block not in self._live:
            raise ArgumentValueError(*_not_in_use("used_by", block))
        if stream != block.stream:
            block.others.add(stream)

    def empty_cache(self) -> None:
        """Give every segment of which nothing is in use back to the device.  Waits for pending events."""
        self._check_process()
        with self._lock:
            if not self._busy:
                self._within(self._empty)
                self._within(self._forget_pools)

    def statistics(self) -> dict[str, int]:
        """Counts and bytes under the names of torch.cuda.memory_stats.

        allocation: blocks in use.  active: those and the ones that wait for events.  segment: what the device
        gave.  inactive_split: free pieces of segments of which something is in use.
        """
        self._check_process()
        with self._lock:
            if self._busy:  # a finalizer asks: what is in the middle of something is not counted
                return self._statistics()
            self._within(self._catch_up)
            return self._within(self._statistics)

    def reset_peak_statistics(self) -> None:
        """Let the peaks begin anew from what is in use now."""
        self._check_process()
        with self._lock:
            for gauge in (self._allocation, self._allocated, self._segment, self._reserved):
                gauge.peak = gauge.current

    # ---- under the lock

    def _within(self, action: Any, *operands: Any) -> Any:
        """Do something among the pools, which only one may do at a time."""
        try:
            self._busy = True
            return action(*operands)
        finally:
            self._busy = False

    def _allocate(self, nbytes: int, stream: Any) -> Block:
        size = rounded(nbytes)
        with self._lock:
            piece = self._apart(size, stream) if self._busy else self._within(self._piece, size, stream)
            return self._handed_out(Block(nbytes, stream, piece))

    def _handed_out(self, block: Block) -> Block:
        self._live.add(block)
        return block

    def _piece(self, size: int, stream: Any) -> Piece:
        if self._freed or self._strays:
            self._catch_up()
        if self._waiting:
            self._look_at_events()
        pool = self._pool(stream, size <= SMALL)
        piece = pool.take(size) or self._opened(size, pool)
        pool.cut(piece, size)
        self._allocation.add(1)
        self._allocated.add(piece.size)
        return piece

    def _apart(self, size: int, stream: Any) -> Piece:
        """A segment for one block, made while the pools are in the middle of something."""
        nbytes = segment_size(size)
        piece = Piece(self.device.allocate(nbytes), nbytes, None)
        self._strays.append((piece, stream, size <= SMALL))
        return piece

    def _pool(self, stream: Any, small: bool) -> Pool:
        pool = self._pools.get((stream, small))
        if pool is None:
            pool = self._pools[stream, small] = Pool(stream, ROUNDING if small else SMALL + ROUNDING)
        return pool

    def _opened(self, size: int, pool: Pool) -> Piece:
        """A new segment; or, where the device has none left, what waiting and giving up the cache bring."""
        nbytes = segment_size(size)
        try:
            address = self.device.allocate(nbytes)
        except OutOfMemoryError:
            self._retries += 1
            self._catch_up()
            self._look_at_events(wait=True)
            piece = pool.take(size)
            if piece is not None:
                return piece
            self._empty()
            address = self.device.allocate(nbytes)
        piece = Piece(address, nbytes, pool)
        self._count_segment(piece)
        return piece

    def _count_segment(self, piece: Piece) -> None:
        self._device_allocs += 1
        self._segment.add(1)
        self._reserved.add(piece.size)
        piece.pool.segments += 1

    def _catch_up(self) -> None:
        """Count the strays, and return the blocks that were freed to their pools, or have them wait.

        Both deques may grow meanwhile.  A stray is noted before it can be freed, so it is counted first.
        """
        while self._freed:
            self._count_strays()
            block = self._freed[0]
            piece = block.piece
            events = [(stream, stream.record()) for stream in block.others]
            self._freed.popleft()  # only now: if no event could be had, the block is still noted
            self._allocation.current -= 1
            self._allocated.current -= piece.size
            piece.waits = len(events)
            for stream, event in events:
                self._waiting.setdefault(stream, deque()).append((event, piece))
            if not events:
                piece.pool.give_back(piece)
        self._count_strays()

    def _count_strays(self) -> None:
        while self._strays:
            piece, stream, small = self._strays[0]
            piece.pool = self._pool(stream, small)
            self._count_segment(piece)
            self._allocation.add(1)
            self._allocated.add(piece.size)
            self._strays.popleft()  # only now: without its pool it could not be freed

    def _look_at_events(self, wait: bool = False) -> None:
        """Return the pieces whose events have passed to their pools.  A stream's events pass in order."""
        for stream, queue in list(self._waiting.items()):
            while queue:
                event, piece = queue[0]
                if wait:
                    event.synchronize()
                elif not event.done():
                    break
                queue.popleft()
                piece.waits -= 1
                if not piece.waits:
                    piece.pool.give_back(piece)
            if not queue:
                del self._waiting[stream]

    def _empty(self) -> None:
        """Give the whole segments back to the device."""
        self._catch_up()
        self._look_at_events(wait=True)
        for pool in list(self._pools.values()):
            whole = [piece for piece in pool.free() if piece.is_whole()]
            if whole:  # the driver waits by itself before it frees, but doesn't promise to
                pool.stream.synchronize()
            for piece in whole:
                pool.take_whole(piece)
                self.device.release(piece.address)
                self._device_frees += 1
                self._segment.current -= 1
                self._reserved.current -= piece.size

    def _statistics(self) -> dict[str, int]:
        split = [piece.size for piece in self._free_pieces() if not piece.is_whole()]
        waiting = {piece for queue in self._waiting.values() for _, piece in queue}
        gauges = {"allocation": self._allocation, "allocated_bytes": self._allocated}
        gauges |= {"segment": self._segment, "reserved_bytes": self._reserved}
        found = {f"{name}.all.current": gauge.current for name, gauge in gauges.items()}
        found |= {f"{name}.all.peak": gauge.peak for name, gauge in gauges.items()}
        return found | {
            "active.all.current": self._allocation.current + len(waiting),
            "active_bytes.all.current": self._allocated.current + sum(piece.size for piece in waiting),
            "inactive_split.all.current": len(split),
            "inactive_split_bytes.all.current": sum(split),
            "num_alloc_retries": self._retries,
            "num_ooms": self._ooms,
            "num_device_alloc": self._device_allocs,
            "num_device_free": self._device_frees,
        }

    def _free_pieces(self) -> list[Piece]:
        return [piece for pool in self._pools.values() for piece in pool.free()]

    def _forget_pools(self) -> None:
        """Drop the pools without memory, which keep their streams alive."""
        for key in [key for key, pool in self._pools.items() if not pool.segments]:
            del self._pools[key]

    # ---- what is said

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise DeviceError(
                "a forked process can't use its parent's device memory",
                "start it with multiprocessing's method spawn, or keep the device's work in the parent",
            )

    def _out_of_memory(self, nbytes: int, stream: Any) -> OutOfMemoryError:
        with self._lock:
            if self._busy:
                return self._refusal(nbytes, stream)
            return self._within(self._refusal, nbytes, stream)

    def _refusal(self, nbytes: int, stream: Any) -> OutOfMemoryError:
        self._ooms += 1
        unused, total = self.device.memory()
        allocated, reserved = self._allocated.current, self._reserved.current
        free, size = sum(piece.size for piece in self._free_pieces()), segment_size(rounded(nbytes))
        own = self._pools.get((stream, rounded(nbytes) <= SMALL))
        largest = max((piece.size for piece in own.free()), default=0) if own is not None else 0
        elsewhere = max(0, total - unused - reserved)
        lines = [
            f"{self.device.name}: {readable(total)} in all, {readable(unused)} free",
            f"allocated: {readable(allocated)} in {self._allocation.current} blocks",
            f"reserved:  {readable(reserved)}; the largest free block for this stream and size: "
            f"{readable(largest)}",
            f"other processes and the driver hold {readable(elsewhere)}",
        ]
        if size > total:
            lines.append("the device can't hold it: split the work into smaller parts")
        elif free >= rounded(nbytes):
            lines.append(
                f"{readable(free)} are free, but between blocks in use: allocate what lives long "
                "first, and batches of one size"
            )
        elif unused + reserved >= size:
            lines.append("drop results that are no longer needed before this, or use a smaller batch")
        else:
            lines.append(
                "end the other processes on this device (nvidia-smi lists them), or use smaller parts"
            )
        return OutOfMemoryError(f"the device has no {readable(nbytes)} left", *lines)


def _not_in_use(action: str, block: Block) -> tuple[str, ...]:
    return (
        f"{action}(block): the block is not in use",
        f"{block.nbytes} bytes at {block.address:#x}",
        "it was freed before, or another allocator made it",
    )
