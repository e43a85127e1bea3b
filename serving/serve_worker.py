"""One worker: an event loop that answers what comes through the socket that all workers share."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from functools import partial
from time import monotonic
from typing import Any

import uvicorn

from .application import application
from .bounds import Bounds
from .fleet import Fleet
from .gate import Gate
from .http_bounds import protocol
from .serve_options import Options

LOG = logging.getLogger("lamina.serving")
LOOK_EVERY = 0.25  # seconds, at whether the parent lives and runs end
STUCK = 70  # exit status of a worker whose model does not come back


class Server(uvicorn.Server):
    """uvicorn's server, with signals left to `_Worker`, which is told when it listens.

    tls: how connections are kept secret, where they are, and how many seconds a handshake may take.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        listening: Callable[[], None],
        tls: tuple[ssl.SSLContext, float] | None = None,
    ):
        super().__init__(config)
        self._listening, self._tls = listening, tls

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self._tls is None:
            await super().startup(sockets)
        else:  # as uvicorn does, whose connections may take a minute for their handshake
            await super().startup([])
            (context, seconds), loop, config = self._tls, asyncio.get_running_loop(), self.config
            connection: Any = config.http_protocol_class
            made = partial(connection, config=config, server_state=self.server_state, app_state={})
            for each in sockets or ():
                listens = await loop.create_server(
                    made, sock=each, backlog=config.backlog, ssl=context,
                    ssl_handshake_timeout=seconds, ssl_shutdown_timeout=seconds,
                )  # fmt: skip
                self.servers.append(listens)
        self._listening()


class _Worker:
    """Watches over one server.

    It drains where the models were loaded anew: no new connections, and those there are end with their next
    answer.  It stops on SIGTERM and where its parent is gone: what began is finished, within the grace.
    """

    def __init__(self, server: Server, gate: Gate, fleet: Fleet, grace: float):
        self.server, self.gate, self.fleet, self.grace = server, gate, fleet, grace
        self._parent = os.getppid()
        self._drained_by: float | None = None

    def drain(self) -> None:
        if not self.gate.draining:
            self.gate.draining, self._drained_by = True, monotonic() + self.grace
            for each in self.server.servers:
                each.close()

    def stop(self) -> None:
        self.gate.draining = True
        self.server.should_exit = True

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY)
            if os.getppid() != self._parent:
                self.stop()
            if name := self.fleet.stuck():
                LOG.error("a run of %s does not end: the worker ends, and another takes its place", name)
                os._exit(STUCK)
            if self._drained_by is not None:
                if not self.server.server_state.connections or monotonic() > self._drained_by:
                    self.stop()


def configured(gate: Gate, bounds: Bounds, http: str = "auto") -> uvicorn.Config:
    """How uvicorn serves: within bounds, and with nothing of its own that is not asked for."""
    return uvicorn.Config(
        gate,
        http=protocol(bounds, http),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=int(bounds.idle),
        timeout_graceful_shutdown=int(bounds.grace),
    )


def work(
    listener: socket.socket,
    fleet: Fleet,
    options: Options,
    listening: Callable[[], None],
    tls: ssl.SSLContext | None = None,
) -> int:
    """Answer requests until told to stop, by SIGTERM, or by SIGUSR1 to drain.  Returns the exit status.

    listening: called once the first can be taken.
    """
    bounds, supervisor = options.bounds, options.supervisor
    reload = (lambda: os.kill(supervisor, signal.SIGHUP)) if supervisor else None
    gate = application(fleet, bounds, options.tokens, options.local, reload)
    config = configured(gate, bounds, options.http)
    server = Server(config, listening, tls and (tls, bounds.header_time))

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        worker = _Worker(server, gate, fleet, bounds.grace)
        loop.add_signal_handler(signal.SIGTERM, worker.stop)
        loop.add_signal_handler(
            signal.SIGINT, lambda: None
        )  # a terminal's goes to all; the supervisor decides
        loop.add_signal_handler(signal.SIGUSR1, worker.drain)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGINT, signal.SIGUSR1})
        watching = asyncio.create_task(worker.watch())
        await server.serve([listener])
        watching.cancel()

    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(serve())
    fleet.close()
    return 0
