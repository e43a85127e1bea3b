"""What happens in a worker process: it fetches the batches it is told to, and sends them."""

from __future__ import annotations

import pickle
import random
import signal
import threading
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any, NamedTuple

import numpy as np

from ..ir.errors import ArgumentError
from ..runtime import modes
from ..runtime.random import manual_seed
from ..runtime.threads import set_num_threads
from .datasets import IterableDataset
from .fetching import Exhausted, Fetch, Setup, WorkerInfo, be_worker
from .sharing import Writer


class Skipped(NamedTuple):
    """In place of a batch: the epoch was left before this one's turn came."""


class Failed(NamedTuple):
    """In place of a batch: an exception, pickled (None where that can't be done), and its traceback."""

    error: bytes | None
    text: str


START = "start"  # tasks: a new epoch begins, or (key,): fetch that batch, or None: stop


def work(connection: Connection, inherited: Iterable[Connection], setup: Setup, worker: int) -> None:
    """Be a worker until told to stop, or until the process at the other end is gone.

    inherited: connections of others, which a forked process holds too and which would otherwise never be seen
    to be closed.
    """
    for other in inherited:
        other.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes: the parent stops its workers
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    modes.update(grad=True, inference=False, hook=None)  # the same however the process was started
    with suppress(ArgumentError):  # a BLAS that can't be told
        set_num_threads(1)  # the workers are the parallelism
    seed = setup.seed + worker
    manual_seed(seed)
    random.seed(seed)
    np.random.seed([seed & 0xFFFFFFFF, seed >> 32])
    be_worker(WorkerInfo(worker, setup.num_workers, seed, setup.dataset))
    tasks = _Tasks(connection)
    try:
        _serve(connection, tasks, setup, worker)
    except (BrokenPipeError, ConnectionResetError):
        return  # nobody is there to read


class _Tasks:
    """Tasks as they arrive, read by a thread: the parent can then always write, whatever the worker is at.

    Else each could wait for the other to read.
    """

    def __init__(self, connection: Connection):
        self._connection, self.epoch = connection, 0
        self._queue: SimpleQueue = SimpleQueue()
        threading.Thread(target=self._listen, name="lamina tasks", daemon=True).start()

    def _listen(self) -> None:
        while True:
            try:
                task = self._connection.recv()
            except (EOFError, OSError):
                task = None
            if task == START or task is None:
                self.epoch += 1  # what is still queued is of an epoch that was left
            self._queue.put((self.epoch, task))
            if task is None:
                return

    def next(self) -> tuple[int, Any]:
        return self._queue.get()


def _serve(connection: Connection, tasks: _Tasks, setup: Setup, worker: int) -> None:
    """Answer each task (key,) by one message, in order."""
    writer = Writer(connection, setup.blocks)
    fetch = broken = None
    ended = False
    if setup.init is not None:
        try:
            setup.init(worker)
        except Exception as error:
            broken = _failed(error)
    init_failed = broken
    while True:
        epoch, task = tasks.next()
        if task is None:
            return
        if task == START:
            broken, ended = init_failed, False
            try:
                fetch = Fetch(setup.dataset, setup.collate, setup.batched, setup.drop_last)
            except Exception as error:  # the dataset's __iter__
                broken = broken or _failed(error)
        elif epoch != tasks.epoch:
            connection.send(Skipped())
        elif ended:
            connection.send(Exhausted())
        elif broken is not None:
            connection.send(broken)
            ended = isinstance(setup.dataset, IterableDataset)  # which has no keys to come to an end
        else:
            ended = _answer(connection, writer, fetch, task[0])


def _answer(connection: Connection, writer: Writer, fetch: Callable, key: Any) -> bool:
    """Fetch and send a batch, or what came of it; whether the stream has ended."""
    try:
        batch = fetch(key)
        if not isinstance(batch, Exhausted):
            writer.send(batch)
            return False
    except (BrokenPipeError, ConnectionResetError):
        raise
    except Exception as error:
        connection.send(_failed(error))
        return False
    connection.send(batch)
    return True


def _failed(error: Exception) -> Failed:
    text = "".join(traceback.format_exception(error))
    try:
        pickled = pickle.dumps(error)
        pickle.loads(pickled)  # some are pickled well and can't be made again
    except Exception:
        pickled = None
    return Failed(pickled, text)
