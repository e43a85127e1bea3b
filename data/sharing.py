"""Batches between processes: their structure is pickled, their large arrays go through shared memory.

A worker writes the arrays of a batch into one of its blocks, anonymous memory (`memfd_create`) whose
descriptor it sends once, and the reader copies them out. So what the reader gets is memory of its own, which
no worker writes to again. Anonymous, because it has no name: nothing is to be unlinked, nothing is left
behind by a process that was killed, and the size of /dev/shm is no limit. Blocks are used over and over,
because touching fresh pages is what costs: on 2 virtual cores, a batch of 19 MB was written into a warm block
in 0.9 ms and copied out in 1.9 ms, while writing it into a fresh one took 27 ms and reading it there without
a copy 8 ms.
"""

from __future__ import annotations

import math
import mmap
import os
import pickle
from io import BytesIO
from itertools import accumulate
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from typing import Any, NamedTuple

import numpy as np

from ..ir import dtypes
from ..runtime import Tensor
from ..runtime.tensor import tensor_of

# Smaller arrays are pickled with the rest: through a pipe 16 KB take 7 microseconds. And so are all where
# the system has no anonymous memory.
MIN_SHARED = 16_384 if hasattr(os, "memfd_create") else math.inf
ALIGN = 64


class Packed(NamedTuple):
    """A batch on its way.

    head: the pickled structure. sizes: bytes of the arrays in block `block`, in order, each from a multiple
    of ALIGN. grown: 0, or the size of the block that takes the old one's place; its descriptor comes next.
    """

    head: bytes
    sizes: tuple[int, ...] = ()
    block: int = 0
    grown: int = 0


class _Pickler(pickle.Pickler):
    """Pickles plain tensors as what pickle hands over separately: buffers."""

    def reducer_override(self, x: Any) -> Any:
        if type(x) is not Tensor or x.requires_grad or x.is_cuda:
            return NotImplemented
        data = np.ascontiguousarray(x._data)
        flat = data.reshape(-1).view(np.uint8)  # NumPy exports no buffer of bfloat16
        if not flat.flags.writeable:
            flat = flat.copy()  # what arrives is to be writable
        return _restored, (pickle.PickleBuffer(flat), x.dtype.name, tuple(x.shape))


def _restored(buffer: Any, dtype: str, shape: tuple[int, ...]) -> Tensor:
    return tensor_of(np.frombuffer(buffer, np.uint8).view(dtypes.dtype_named(dtype).numpy).reshape(shape))


def _starts(sizes: tuple[int, ...]) -> list[int]:
    """Where each array begins, and the end of the last."""
    return list(accumulate((-(-n // ALIGN) * ALIGN for n in sizes), initial=0))


class Writer:
    """A worker's blocks.

    Batch n goes into block n % count: the reader is done with what was there, see pool.py.
    """

    def __init__(self, connection: Connection, count: int):
        self._connection, self._count, self._sent = connection, count, 0
        self._blocks: dict[int, mmap.mmap] = {}

    def send(self, batch: Any) -> None:
        """Send a batch. Raises what pickling it raises, before anything is sent."""
        large: list[memoryview] = []

        def takes_part(buffer: pickle.PickleBuffer) -> bool:
            raw = buffer.raw()
            if raw.nbytes < MIN_SHARED:
                return True
            large.append(raw)
            return False

        head = BytesIO()
        _Pickler(head, 5, buffer_callback=takes_part).dump(batch)
        block, sizes, fresh = self._sent % self._count, tuple(raw.nbytes for raw in large), None
        starts = _starts(sizes)
        if len(self._blocks.get(block, ())) < starts[-1]:
            fresh = self._grow(block, starts[-1])
        for start, raw in zip(starts, large, strict=False):
            # By way of NumPy: slices of a map are copied with the interpreter's lock held.
            target = np.frombuffer(self._blocks[block], np.uint8, raw.nbytes, start)
            np.copyto(target, np.frombuffer(raw, np.uint8))
        try:
            grown = len(self._blocks[block]) if fresh is not None else 0
            self._connection.send(Packed(head.getvalue(), sizes, block, grown))
            if fresh is not None:
                send_handle(self._connection, fresh, None)
        finally:
            if fresh is not None:
                os.close(fresh)
        self._sent += 1

    def _grow(self, block: int, size: int) -> int:
        """Put a block of at least `size` bytes in place; return its descriptor.

        A power of two, so that batches of many sizes don't each renew it. Untouched pages take no memory.
        """
        size = 1 << (size - 1).bit_length()
        descriptor = os.memfd_create("lamina-batch")
        os.ftruncate(descriptor, size)
        self._blocks[block] = mmap.mmap(descriptor, size)
        return descriptor


class Reader:
    """The other end of a Writer."""

    def __init__(self, connection: Connection):
        self._connection = connection
        self._blocks: dict[int, mmap.mmap] = {}

    def open(self, packed: Packed) -> Any:
        """The batch, in memory of its own.

        Raises EOFError where the worker died before it had sent all of it.
        """
        if packed.grown:
            try:
                descriptor = recv_handle(self._connection)
            except RuntimeError:
                raise EOFError from None
            try:
                self._blocks[packed.block] = mmap.mmap(descriptor, packed.grown, prot=mmap.PROT_READ)
            finally:
                os.close(descriptor)
        copies = [
            np.frombuffer(self._blocks[packed.block], np.uint8, size, start).copy()
            for start, size in zip(_starts(packed.sizes), packed.sizes, strict=False)
        ]
        return pickle.loads(packed.head, buffers=copies)
