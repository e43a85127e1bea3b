"""Collectives between GPUs by NCCL, on addresses of device memory and streams.

Tensors of Lamina are in the host's memory, so nothing of the tensors' interface comes here yet:
`init_process_group(backend="nccl")` joins the GPUs of all ranks, `get_communicator()` gives what moves their
memory, and collectives of tensors say why they can't.  No GPU has run any of this: it was tried against a
fake library (tests/distributed/fake_nccl.py), which holds each call to NCCL's documented rules.

    comm = nccl.get_communicator()
    stream = comm.device.stream()
    comm.all_reduce(address, address, count, "float32", "sum", stream)     # put into the stream, no more
    stream.synchronize()
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from ..ir.errors import ArgumentValueError, DistributedError, DTypeError
from ..runtime.cuda.driver import Device, Driver, Stream
from .groups import resolved
from .nccl_library import ID_BYTES, REDUCTIONS, SUCCESS, TYPES, Nccl, UniqueId, open_library

if TYPE_CHECKING:
    from .transport import Channel

_OPENED: list[Nccl] = []


def opened() -> Nccl:
    """NCCL's library, opened when this is called first.

    Raises MissingLibraryError where there is none, DistributedError where it is too old.
    """
    if not _OPENED:
        _OPENED.append(Nccl(open_library()))
    return _OPENED[0]


def device_of(local_rank: int) -> Device:
    """The GPU of a rank: the one with its number on its machine.  Raises DeviceError without one."""
    driver = Driver.open()
    return driver.device(local_rank % driver.count)


class Communicator:
    """One GPU's end of collectives between the GPUs of `size` ranks.

    All ranks call the same functions in one order.  Each puts its work into a stream and returns; addresses
    are those of the device, counts are of elements, types and reductions are named as Lamina's ("float32",
    "sum").  After an error nothing but `abort` is of use.

    unique_id: of `Nccl.unique_id`, made by one rank; every rank gives the same.
    """

    def __init__(self, nccl: Nccl, device: Device, size: int, rank: int, unique_id: UniqueId):
        self.nccl, self.device, self.size, self.rank = nccl, device, size, rank
        self._comm: int | None = None
        if not 0 <= rank < size:
            raise ArgumentValueError(f"Communicator: rank {rank} of {size} ranks")
        comm = ctypes.c_void_p()
        device.use()  # NCCL takes the device that is current
        nccl.call("ncclCommInitRank", ctypes.byref(comm), size, unique_id, rank)
        self._comm = comm.value

    # ---- collectives
    def all_reduce(
        self, source: int, target: int, count: int, dtype: str, reduce: str, stream: Stream
    ) -> None:
        """Combine `count` elements of all ranks into each; `target` may be `source`."""
        kind, op = _type(dtype), _reduction(reduce)
        self._put("ncclAllReduce", stream, source, target, _count(count), kind, op)

    def reduce(
        self, source: int, target: int, count: int, dtype: str, reduce: str, root: int, stream: Stream
    ) -> None:
        """Combine them into those of rank `root`; others' `target` is not looked at."""
        kind, op = _type(dtype), _reduction(reduce)
        self._put("ncclReduce", stream, source, target, _count(count), kind, op, self._in(root))

    def broadcast(self, source: int, target: int, count: int, dtype: str, root: int, stream: Stream) -> None:
        """Give the elements of rank `root` to all."""
        self._put("ncclBroadcast", stream, source, target, _count(count), _type(dtype), self._in(root))

    def all_gather(self, source: int, target: int, count: int, dtype: str, stream: Stream) -> None:
        """Put the `count` elements of each rank one behind the other: `target` holds size * count."""
        self._put("ncclAllGather", stream, source, target, _count(count), _type(dtype))

    def reduce_scatter(
        self, source: int, target: int, count: int, dtype: str, reduce: str, stream: Stream
    ) -> None:
        """Combine size * count elements of all ranks; the r-th `count` of them go to rank r."""
        kind, op = _type(dtype), _reduction(reduce)
        self._put("ncclReduceScatter", stream, source, target, _count(count), kind, op)

    # ---- messages
    def send(self, source: int, count: int, dtype: str, peer: int, stream: Stream) -> None:
        """Send to a rank, which calls `recv`.  Several messages at once go within `group`."""
        self._put("ncclSend", stream, source, _count(count), _type(dtype), self._in(peer))

    def recv(self, target: int, count: int, dtype: str, peer: int, stream: Stream) -> None:
        """Receive what a rank sends."""
        self._put("ncclRecv", stream, target, _count(count), _type(dtype), self._in(peer))

    @contextmanager
    def group(self) -> Iterator[None]:
        """Begin what is called inside together at its end, as messages in both directions must."""
        self.nccl.call("ncclGroupStart", comm=self._alive())
        try:
            yield
        finally:
            self.nccl.call("ncclGroupEnd", comm=self._comm)

    # ---- its end
    def check(self) -> None:
        """Raise DistributedError where something in a stream has failed, as where a rank was lost."""
        code = ctypes.c_int()
        self.nccl.call("ncclCommGetAsyncError", self._alive(), ctypes.byref(code), comm=self._comm)
        if code.value != SUCCESS:
            raise DistributedError(
                f"NCCL: {self.nccl.said(code.value)}, while it ran", f"result {code.value}", "abort() ends it"
            )

    def destroy(self) -> None:
        """Give it back, when its streams were waited for."""
        comm, self._comm = self._comm, None
        if comm is not None:
            self.device.use()
            self.nccl.call("ncclCommDestroy", comm)

    def abort(self) -> None:
        """End it at once, whatever is in its streams."""
        comm, self._comm = self._comm, None
        if comm is not None:
            self.device.use()
            self.nccl.call("ncclCommAbort", comm)

    # ---- what all share
    def _put(self, name: str, stream: Stream, *arguments: Any) -> None:
        comm = self._alive()
        self.device.use()
        self.nccl.call(name, *arguments, comm, stream.handle, comm=comm)

    def _alive(self) -> int:
        if self._comm is None:
            raise DistributedError("this communicator was destroyed or aborted", "make a new one")
        return self._comm

    def _in(self, rank: int) -> int:
        if not 0 <= rank < self.size:
            raise ArgumentValueError(f"NCCL: rank {rank} of {self.size} ranks")
        return rank


def _count(count: int) -> int:
    if count < 0:
        raise ArgumentValueError(f"NCCL: a count of elements is at least 0, not {count}")
    return count


def _type(dtype: str) -> int:
    if dtype not in TYPES:
        raise DTypeError(
            f"NCCL: has no type for {dtype}",
            "bool goes as uint8, a complex number as two floats: one of " + ", ".join(TYPES),
        )
    return TYPES[dtype]


def _reduction(reduce: str) -> int:
    if reduce not in REDUCTIONS:
        raise ArgumentValueError(f"NCCL: combines by {', '.join(REDUCTIONS)}, not {reduce!r}")
    return REDUCTIONS[reduce]


# ---- with a group of ranks
def need() -> None:
    """Raise where there is no NCCL (MissingLibraryError) or no GPU (DeviceError)."""
    opened()
    Driver.open()


def connect(channel: Channel, local_rank: int) -> Communicator:
    """The communicator of this rank's GPU with those of the other ranks of a channel, which tells the id."""
    nccl, device = opened(), device_of(local_rank)
    data = np.zeros(ID_BYTES, np.uint8)
    if channel.rank == 0:
        data[:] = np.frombuffer(nccl.unique_id().to_bytes(), np.uint8)
    if channel.size > 1:
        attrs = {"src": channel.ranks[0], "group": channel.ranks}
        channel.start("broadcast", attrs, (data,), (data,)).wait()
    return Communicator(nccl, device, channel.size, channel.rank, UniqueId.of(data.tobytes()))


def get_communicator(group: Any = None) -> Communicator:
    """What moves the memory of this rank's GPU between those of a group, all unless given.

    Raises ArgumentValueError for a group that was not joined with backend="nccl".
    """
    found = resolved(group)
    if found is None or found.communicator is None:
        raise ArgumentValueError(
            "nccl.get_communicator: this process has no GPU in the group",
            'init_process_group(backend="nccl") joins GPUs',
        )
    return found.communicator
