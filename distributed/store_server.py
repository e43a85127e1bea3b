"""A thread that keeps a store's table and answers whoever connects: the side of TCPStore's master.

One thread serves all.  A connection has one request under way: what waits for a key is put aside and tried
again when something changed.  Whoever sends what no client does is hung up on; nothing of it is kept.  The
network is trusted with what the store is for, not with this process.
"""

from __future__ import annotations

import os
import selectors
import socket
import threading
import time
import weakref

from ..ir.errors import DistributedError
from .store_table import CHANGES, FRAME, HEAD, Request, Table, packed, request_of

GREETING = b"Lamina store 1\n\0"
FINE, REFUSED = 0, 1  # the status of an answer
CONNECTIONS, AT_ONCE = 16384, 1 << 18  # how many, and bytes read or written between two looks at others
_running = weakref.WeakSet["StoreServer"]()


class _Connection:
    """Who is connected.  read: what is not done.  unsent: of an answer.  waiting: what is put aside."""

    def __init__(self, own: socket.socket):
        self.socket = own
        self.read, self.unsent = bytearray(), memoryview(b"")
        self.greeted = False
        self.waiting: Request | None = None


class StoreServer:
    """Serves a table at a socket that listens, until `close`, or the end of the process.

    In a forked child nothing of it is left: its sockets are closed there, and the parent serves on.
    """

    def __init__(self, listening: socket.socket):
        listening.setblocking(False)
        self.port = listening.getsockname()[1]
        self.table, self._listening = Table(), listening
        self._selector = selectors.DefaultSelector()
        self._woken, self._wake = socket.socketpair()
        self._connections: set[_Connection] = set()
        self._selector.register(listening, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self.masters = 1  # TCPStores that keep it up
        self._thread = threading.Thread(target=self._serve, name="lamina-store", daemon=True)
        _running.add(self)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Whether it answers: in a forked child it does not."""
        return self in _running

    def close(self) -> None:
        """Hang up on all, and end the thread."""
        if self.is_running:
            self._wake.close()
            if threading.current_thread() is not self._thread:  # a collection of garbage may begin in it
                self._thread.join()

    def let_go(self) -> None:
        """Close what a forked child has of it; the connections are the parent's."""
        for own in (self._listening, self._woken, self._wake, *(c.socket for c in self._connections)):
            own.close()
        self._selector.close()

    def _serve(self) -> None:
        try:
            while True:
                for key, events in self._selector.select():
                    if key.fileobj is self._woken:
                        return
                    if key.fileobj is self._listening:
                        self._accept()
                    else:
                        self._attend(key.data, events)
        finally:
            _running.discard(self)
            self.let_go()

    def _accept(self) -> None:
        try:
            own, _ = self._listening.accept()
        except OSError:  # it has gone, or there is no descriptor left
            time.sleep(0.01)
            return
        if len(self._connections) >= CONNECTIONS:
            own.close()
            return
        own.setblocking(False)
        own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = _Connection(own)
        self._connections.add(connection)
        self._selector.register(own, selectors.EVENT_READ, connection)

    def _hang_up(self, connection: _Connection) -> None:
        self._connections.discard(connection)
        self._selector.unregister(connection.socket)
        connection.socket.close()

    def _attend(self, connection: _Connection, events: int) -> None:
        if connection not in self._connections:
            return
        try:
            if events & selectors.EVENT_WRITE:
                self._send(connection)
            if events & selectors.EVENT_READ:
                self._receive(connection)
        except (OSError, ValueError):  # it is gone, or no client of ours
            self._hang_up(connection)

    def _receive(self, connection: _Connection) -> None:
        if not (data := connection.socket.recv(AT_ONCE)):
            raise ConnectionError("hung up")
        connection.read += data
        if connection.waiting is not None or connection.unsent:
            raise ValueError("it asks before it is answered")
        if not connection.greeted:
            if not GREETING.startswith(bytes(connection.read[: len(GREETING)])):
                raise ValueError("no greeting")
            if len(connection.read) < len(GREETING):
                return
            connection.greeted = True
            del connection.read[: len(GREETING)]
        length = int.from_bytes(connection.read[:4], "big")
        if not HEAD.size - 4 <= length <= FRAME and len(connection.read) >= 4:
            raise ValueError("no request is so long")
        if len(connection.read) < 4 or len(connection.read) < length + 4:
            return
        request = request_of(bytes(connection.read[4 : 4 + length]))
        if len(connection.read) > 4 + length:
            raise ValueError("it asks before it is answered")
        connection.read = bytearray()
        self._answer(connection, request)

    def _answer(self, connection: _Connection, request: Request) -> None:
        """Answer, or put aside what waits; try again what others wait for where something changed."""
        if self._tried(connection, request) and request.op in CHANGES:
            for other in [c for c in self._connections if c.waiting is not None]:
                try:
                    self._tried(other, other.waiting)
                except OSError:
                    self._hang_up(other)

    def _tried(self, connection: _Connection, request: Request) -> bool:
        try:
            answer = self.table.answer(request)
        except DistributedError as refused:
            connection.waiting = None
            self._say(
                connection, packed(REFUSED, [], [line.encode() for line in (refused.rule, *refused.details)])
            )
            return True
        connection.waiting = request if answer is None else None
        if answer is None:
            return False
        self._say(connection, packed(FINE, [], answer))
        return True

    def _say(self, connection: _Connection, data: bytes) -> None:
        connection.unsent = memoryview(data)
        self._send(connection)

    def _send(self, connection: _Connection) -> None:
        try:
            sent = connection.socket.send(connection.unsent[:AT_ONCE])
        except BlockingIOError:
            sent = 0
        connection.unsent = connection.unsent[sent:]
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.unsent else 0)
        if self._selector.get_key(connection.socket).events != wanted:
            self._selector.modify(connection.socket, wanted, connection)


def _in_child() -> None:
    for server in list(_running):
        server.let_go()
    _running.clear()


os.register_at_fork(after_in_child=_in_child)


def listening(host: str, port: int, what: str) -> socket.socket:
    """A socket that listens: to this machine alone where the host is, else to all.

    Raises DistributedError where it can't, after `what`.
    """
    local = host == "localhost" or host.startswith("127.") or host == "::1"
    try:
        if local:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            return socket.create_server((host, port), family=family, backlog=1024)
        if socket.has_dualstack_ipv6():
            return socket.create_server(("", port), family=socket.AF_INET6, backlog=1024, dualstack_ipv6=True)
        return socket.create_server(("", port), backlog=1024)
    except OSError as error:
        raise DistributedError(
            f"{what}: this process can't listen there: {error.strerror or error}",
            "another one may: choose another port",
        ) from None
