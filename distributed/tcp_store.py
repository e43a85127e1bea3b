"""TCPStore: a store in the memory of one process, its master, which all others ask over the network."""

from __future__ import annotations

import os
import socket
import time
import weakref
from typing import Any

from ..ir.errors import ArgumentValueError, DistributedError
from .connecting import connected
from .store import Store
from .store_server import FINE, GREETING, StoreServer, listening
from .store_table import FRAME, HEAD, Request, packed, unpacked

_clients: weakref.WeakSet[TCPStore] = weakref.WeakSet()
_shared: dict[int, StoreServer] = {}  # those of several masters, by port
_MASTER = "its master does: is that process started, and this its host and port?"


class TCPStore(Store):
    """Values by key in the memory of the master's process; it ends with the master's TCPStore.

    port: the master takes a free one for 0, and all find it in `port`.  world_size: so many, with the master,
    are waited for by the master, unless wait_for_workers is False.  multi_tenant: masters of this process at
    one port share what they keep.  master_listen_fd: a socket's that listens already.  use_libuv is taken as
    PyTorch's.  Any number of threads may ask at once.  Raises DistributedError where nobody listens there.
    """

    libuvBackend = False

    def __init__(
        self,
        host_name: str,
        port: int,
        world_size: int | None = None,
        is_master: bool = False,
        timeout: Any = None,
        wait_for_workers: bool = True,
        multi_tenant: bool = False,
        master_listen_fd: int | None = None,
        use_libuv: bool = True,
    ):
        super().__init__(timeout)
        if not isinstance(host_name, str) or not isinstance(port, int) or not 0 <= port < 1 << 16:
            raise ArgumentValueError(
                f"TCPStore(host_name, port): a str and a port, not {host_name!r}, {port!r}"
            )
        self.host, self.port = host_name, port
        self._server: StoreServer | None = None
        self._idle: list[socket.socket] = []  # connections that nobody asks by
        if is_master:
            self._server = self._served(multi_tenant, master_listen_fd)
            self.port = self._server.port
        elif port == 0:
            raise ArgumentValueError(
                "TCPStore(port=0): the master alone can choose one", "is_master=True, or its port"
            )
        _clients.add(self)
        weakref.finalize(self, _close, self._idle, self._server)
        self._idle.append(self._connected(time.monotonic() + self._limit))
        if world_size is not None and world_size > 0:
            joined = self.add("init/", 1)
            if is_master and wait_for_workers:
                self._gather(joined, world_size)

    def _served(self, multi_tenant: bool, fd: int | None) -> StoreServer:
        if multi_tenant and (known := _shared.get(self.port)) is not None and known.is_running:
            known.masters += 1
            return known
        own = listening(self.host, self.port, repr(self)) if fd is None else socket.socket(fileno=fd)
        server = StoreServer(own)
        if multi_tenant:
            _shared[server.port] = server
        return server

    def _gather(self, joined: int, size: int) -> None:
        end = time.monotonic() + self._limit
        while joined < size:
            if time.monotonic() > end:
                raise DistributedError(f"{self!r}: {joined} of {size} processes came in {self._limit:g} s")
            time.sleep(0.01)
            joined = self.add("init/", 0)

    def _connected(self, end: float) -> socket.socket:
        own = connected(self.host, self.port, end, repr(self), _MASTER)
        own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        own.sendall(GREETING)
        return own

    def ask(self, request: Request, limit: float) -> list[bytes] | None:
        end = time.monotonic() + limit
        try:
            own = self._idle.pop()
        except IndexError:  # another thread waits by it, or an error closed it
            own = self._connected(end)
        try:
            own.settimeout(limit)
            own.sendall(packed(request.op, request.keys, request.values))
            status, _, answer = unpacked(_received(own, end))
        except TimeoutError:
            own.close()  # an answer that came late would be taken for another's
            return None
        except (OSError, ValueError) as error:
            own.close()
            raise DistributedError(
                f"{self!r}: {request.op.name.lower()}: the connection ended: {error}",
                "the master's process has ended, or its TCPStore was let go of",
            ) from None
        except BaseException:  # an interrupt
            own.close()
            raise
        self._idle.append(own)
        if status != FINE:
            raise DistributedError(f"{self!r}: {answer[0].decode()}", *[line.decode() for line in answer[1:]])
        return answer

    def clone(self) -> TCPStore:
        """Another client of the same store."""
        return TCPStore(self.host, self.port, timeout=self.timeout)

    def __repr__(self) -> str:
        return f"TCPStore({self.host}:{self.port})"


def _received(own: socket.socket, end: float) -> bytes:
    """An answer, without its length.  Raises TimeoutError, OSError, ValueError for what no server says."""
    data = bytearray()
    length = HEAD.size
    while len(data) < length:
        own.settimeout(max(1e-3, end - time.monotonic()))
        if not (more := own.recv(min(length - len(data), 1 << 20))):
            raise ConnectionError("hung up")
        data += more
        if len(data) >= 4:
            length = int.from_bytes(data[:4], "big") + 4
            if not HEAD.size <= length <= FRAME + 4:
                raise ValueError(f"an answer of {length} bytes")
    return bytes(data[4:])


def _close(idle: list[socket.socket], server: StoreServer | None) -> None:
    """Let go of what a TCPStore had, with it or at the end of the process."""
    while idle:
        idle.pop().close()
    if server is not None:
        server.masters -= 1
        if server.masters < 1:
            server.close()


def _in_child() -> None:
    """A forked child makes connections of its own."""
    for client in list(_clients):
        while client._idle:
            client._idle.pop().close()
    _shared.clear()


os.register_at_fork(after_in_child=_in_child)
