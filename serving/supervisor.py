"""Processes of the server: a supervisor, below it who loaded the models, below that the workers.

    supervisor          listens, forks a generation, and another one on SIGHUP
      generation        loads the models, forks workers, forks again those that die
        worker …        answer requests; what the generation loaded is memory that all of them share

A generation is forked for each loading, so that models can be loaded beside those that serve, and a file that
ends its process ends nothing else.  Models are loaded before workers are forked: weights, also as compiled
code packs them, lie in memory once, however many workers there are, and a worker that died is there again
within milliseconds.  Each process ends when it sees that its parent is gone.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import socket
import ssl
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from time import monotonic

from .children import FAILED, WATCHED, Child, Pace, next_signal
from .http_bounds import listening, tls_of
from .refusals import ServeError
from .serve_options import Options

LOG = logging.getLogger("lamina.serving")
LOOK_EVERY = 0.1  # seconds
BEYOND_GRACE = 5.0  # after which those that were told to stop are killed
CANT_SERVE = 3  # exit status of a generation whose models can't be loaded; it has said why
METRICS = "PROMETHEUS_MULTIPROC_DIR"


class Supervisor:
    """Runs generations.  Only its own process calls it.

    current: the one whose workers are ready, or the first; next: one that is loading beside it; old: those
    that finish.
    """

    def __init__(self, options: Options, listener: socket.socket):
        self.options = replace(options, supervisor=os.getpid())
        self.listener = listener
        self.current: Child | None = None
        self.next: Child | None = None
        self.old: list[Child] = []
        self.number = 0
        self.pace = Pace()

    def begin(self) -> Child:
        """Fork a generation."""
        self.number += 1
        options, listener, number, parent = self.options, self.listener, self.number, os.getpid()
        return Child(lambda ready: Generation(options, listener, number, parent).run(ready))

    def run(self) -> int:
        """Serve until SIGTERM or SIGINT.  Returns the exit status: 0 after either."""
        self.current = self.begin()
        while True:
            number = next_signal(LOOK_EVERY)
            if number in (signal.SIGTERM, signal.SIGINT):
                return self.stop()
            if number == signal.SIGHUP and self.next is None:
                LOG.info("loading the models anew")
                self.next = self.begin()
            self.look()
            if self.current is None and monotonic() >= self.pace.at:
                if self.pace.failures >= Pace.MOST:
                    LOG.error("the models could not be served again: giving up")
                    return self.stop(FAILED)
                self.current = self.begin()
            if self.current is not None and self.current.status == CANT_SERVE:
                return self.stop(FAILED)

    def look(self) -> None:
        """See who became ready, and who ended."""
        for each in (self.current, self.next, *self.old):
            if each is not None:
                was = each.ready
                each.look()
                if each.ready and not was and self.number == 1:
                    LOG.info("ready")
        self.old = [each for each in self.old if each.status is None]
        if self.next is not None and self.next.ready:
            LOG.info("the models are loaded anew; requests at work finish with the old ones")
            if self.current is not None:
                self.current.signal(signal.SIGUSR1)
                self.old.append(self.current)
            self.current, self.next = self.next, None
        elif self.next is not None and self.next.status is not None:
            LOG.error("the models could not be loaded anew: the old ones go on")
            self.next = None
        if self.current is not None and self.current.status not in (None, CANT_SERVE):
            LOG.error("the process that loaded the models ended with status %d", self.current.status)
            self.pace.died(self.current)
            self.current = None

    def stop(self, status: int = 0) -> int:
        """Have everybody finish, and kill who doesn't."""
        self.listener.close()  # in each process, so that new connections are refused
        left = [each for each in (self.current, self.next, *self.old) if each is not None]
        finished(left, self.options.bounds.grace + BEYOND_GRACE)
        return status


def finished(children: list[Child], seconds: float) -> None:
    """Tell processes to finish, wait for them, and kill those that take longer."""
    until = monotonic() + seconds
    for each in children:
        each.signal(signal.SIGTERM)
    while any(each.status is None for each in children):
        if monotonic() > until:
            for each in children:
                each.signal(signal.SIGKILL)
        next_signal(0.05)
        for each in children:
            each.look()


class Generation:
    """One loading of the models, and the workers that serve it."""

    def __init__(self, options: Options, listener: socket.socket, number: int, parent: int):
        self.options, self.listener, self.number, self.parent = options, listener, number, parent
        self.workers: list[Child | None] = [None] * options.workers
        self.paces = [Pace() for _ in self.workers]
        self.tls: ssl.SSLContext | None = None

    def run(self, ready: Callable[[], None]) -> int:
        """Load, serve, finish.  Returns the exit status."""
        from .loading import fleet_of  # noqa: PLC0415 - loads LLVM and Prometheus, which the supervisor does without

        try:
            self.tls = tls_of(self.options.certificate, self.options.key)
            self.fleet = fleet_of(self.options, self.number)
        except ServeError as error:
            print(f"lamina serve: {error}", file=sys.stderr, flush=True)
            return CANT_SERVE
        draining, told = False, False
        while True:
            for at, worker in enumerate(self.workers):
                if worker is not None:
                    worker.look()
                    if worker.status is not None:
                        self.workers[at] = None
                        if not self._lost(at, worker, draining):
                            return self._stop(FAILED)
                if self.workers[at] is None and not draining and monotonic() >= self.paces[at].at:
                    self.workers[at] = Child(self._work)
            if draining and not any(self.workers):
                return 0
            if not told and all(worker and worker.ready for worker in self.workers):
                told = True
                ready()
            number = next_signal(LOOK_EVERY)
            if number in (signal.SIGTERM, signal.SIGINT):
                return self._stop(0)
            if os.getppid() != self.parent:  # it was killed, and left what it would have removed
                self._stop(0)
                shutil.rmtree(os.environ[METRICS], ignore_errors=True)
                return 0
            if number == signal.SIGUSR1:
                draining = True
                for worker in self.workers:
                    if worker is not None:
                        worker.signal(signal.SIGUSR1)

    def _lost(self, at: int, worker: Child, draining: bool) -> bool:
        """Note that a worker ended.  Returns whether there is a point in going on."""
        from .meters import gone  # noqa: PLC0415 - as above

        gone(worker.pid)
        if draining:
            return True
        LOG.error("worker %d ended with status %d; another takes its place", worker.pid, worker.status)
        if not self.paces[at].died(worker):
            LOG.error("workers can't start")
            return False
        return True

    def _work(self, ready: Callable[[], None]) -> int:
        from .serve_worker import work  # noqa: PLC0415 - as above

        return work(self.listener, self.fleet(), self.options, ready, self.tls)

    def _stop(self, status: int) -> int:
        self.listener.close()
        finished(
            [worker for worker in self.workers if worker is not None],
            self.options.bounds.grace + BEYOND_GRACE / 2,
        )
        return status


def supervise(options: Options) -> int:
    """Serve as the options say.  Returns the exit status.  Raises ServeError: it can't listen there."""
    try:
        listener = listening(options.host, options.port)
    except OSError as error:
        raise ServeError(f"{options.host} port {options.port} can't be listened at: {error}") from None
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    print(f"{'https' if options.certificate else 'http'}://{shown}:{port}", flush=True)
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    folder = tempfile.mkdtemp(prefix="lamina-serve-")
    os.environ[METRICS] = folder
    if options.threads or options.workers > 1:
        own = options.threads or max(1, len(os.sched_getaffinity(0)) // options.workers)
        os.environ["LAMINA_NUM_THREADS"] = str(own)
    try:
        return Supervisor(options, listener).run()
    finally:
        listener.close()
        shutil.rmtree(folder, ignore_errors=True)
