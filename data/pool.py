"""A loader's worker processes as the parent sees them: starting, telling, reading, noticing deaths, stopping.

Each worker answers each task once, in order, through a pipe of its own, and batch k is the task of worker k %
n. So the order of batches follows without a place to sort them in, and while no more than `prefetch` tasks
of a worker are open, it can use that many blocks of shared memory in turn: a task is given only after an
answer was read.
"""

from __future__ import annotations

import os
import pickle
import signal
import time
import warnings
import weakref
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from typing import Any

from .fetching import Exhausted, Raised, Setup, WorkerError
from .sharing import Packed, Reader
from .worker import START, Failed, work

GRACE = 5.0  # seconds that workers have to finish the sample they are at, before they are made to stop


class _Worker:
    """A process, the parent's end of its pipe, and how many of its answers are still to come."""

    def __init__(self, id: int, process: Any, connection: Connection):
        self.id, self.process, self.connection, self.open = id, process, connection, 0
        self.pid, self.reader = process.pid, Reader(connection)

    def give(self, key: Any) -> None:
        try:
            self.connection.send((key,))
        except (BrokenPipeError, ConnectionResetError):
            raise self.dead() from None
        self.open += 1

    def dead(self) -> WorkerError:
        """Say how the process ended."""
        self.process.join(1.0)
        code = self.process.exitcode
        if code is None:
            how, hint = (
                "closed its pipe, and lives on",
                "something in the dataset closes descriptors it does not own",
            )
        elif code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
            hint = (
                "SIGKILL mostly means that the system ran out of memory: use fewer workers or smaller batches"
            )
            hint = hint if -code == signal.SIGKILL else "num_workers=0 shows where in the dataset it happens"
        else:
            how = f"exited with code {code}"
            hint = "if it could not start, its error was printed; spawned workers import your script again"
        return WorkerError(f"worker {self.id} of the DataLoader (process {self.pid}) {how}", hint)


class Pool:
    """The workers of one loader. They stop when it is told to or is gone."""

    def __init__(self, context: BaseContext, setup: Setup):
        self.workers: list[_Worker] = []
        self.epoch = 0
        self.usable = True  # False while an answer is read: an interrupt leaves the rest of it in the pipe
        self._prefetch = setup.blocks
        self._finalizer = weakref.finalize(self, _stop, self.workers, os.getpid())
        method = context.get_start_method()
        try:
            for i in range(setup.num_workers):
                self.workers.append(self._started(context, setup, i, forked=method == "fork"))
        except BaseException as error:
            self.stop()
            if method != "fork" and isinstance(error, (pickle.PicklingError, AttributeError, TypeError)):
                error.add_note(
                    f"start method {method!r} pickles the dataset, collate_fn and worker_init_fn: "
                    "define them at the top of a module, or pass multiprocessing_context='fork'"
                )
            raise

    def _started(self, context: Any, setup: Setup, id: int, forked: bool) -> _Worker:
        mine, theirs = context.Pipe()
        others = [*(w.connection for w in self.workers), mine] if forked else []
        process = context.Process(
            target=work, args=(theirs, others, setup, id), name=f"lamina loader {id}", daemon=True
        )
        try:
            with warnings.catch_warnings():
                # Python 3.12 and later warn of locks that another thread may hold; see DataLoader.
                warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
                process.start()
        except BaseException:
            mine.close()
            raise
        finally:
            theirs.close()
        return _Worker(id, process, mine)

    def batches(self, keys: Iterator[Any], timeout: float) -> Iterator[Any]:
        """Yield the batches of `keys` in order; of streams, from one worker after another while they last.

        In place of one that a worker failed to make comes a `Raised`.
        """
        self.epoch += 1
        self._begin()
        for key, worker in zip(_limited(keys, self._prefetch * len(self.workers)), _rounds(self.workers)):
            worker.give(key)
        return self._read(keys, timeout, self.epoch)

    def _read(self, keys: Iterator[Any], timeout: float, epoch: int) -> Iterator[Any]:
        turns = list(self.workers)
        while turns:
            for worker in list(turns):
                if epoch != self.epoch:
                    raise WorkerError(
                        "this iteration over the DataLoader was replaced by a later one",
                        "with persistent_workers=True one iterator is alive at a time",
                    )
                if not worker.open:  # no key was left for it, nor for those after it
                    return
                self.usable = False
                answer = self._receive(worker, timeout)
                batch = self._opened(worker, answer)
                if isinstance(answer, (Packed, Failed)):
                    for key in _limited(keys, 1):
                        worker.give(key)
                self.usable = True
                if isinstance(answer, Exhausted):
                    turns.remove(worker)
                else:
                    yield Raised(_raised(worker.id, answer)) if isinstance(answer, Failed) else batch

    def _begin(self) -> None:
        """Start an epoch, once the answers of the last one, if it was left early, have been read."""
        for worker in self.workers:
            try:
                worker.connection.send(START)
            except (BrokenPipeError, ConnectionResetError):
                raise worker.dead() from None
        for worker in self.workers:
            while worker.open:
                self._opened(worker, self._receive(worker, 0))  # opened, as a new block may come with it

    def _receive(self, worker: _Worker, timeout: float) -> Any:
        """The worker's next answer.

        Raises WorkerError where any worker died, or after `timeout` seconds, if not 0.
        """
        sentinels = {w.process.sentinel: w for w in self.workers}
        ready = wait([worker.connection, *sentinels], timeout or None)
        if not ready:
            raise WorkerError(
                f"the DataLoader timed out after {timeout} seconds", f"waiting for worker {worker.id}",
                "timeout=0 waits for as long as it takes",
            )  # fmt: skip
        if worker.connection not in ready:
            raise next(sentinels[s] for s in ready).dead()
        try:
            answer = worker.connection.recv()
        except (EOFError, ConnectionResetError):
            raise worker.dead() from None
        worker.open -= 1
        return answer

    def _opened(self, worker: _Worker, answer: Any) -> Any:
        """The batch of an answer, if it is one."""
        if not isinstance(answer, Packed):
            return None
        try:
            return worker.reader.open(answer)
        except EOFError:
            raise worker.dead() from None

    def stop(self) -> None:
        """Stop the workers and wait until they are gone."""
        self._finalizer()


def _raised(id: int, failed: Failed) -> BaseException:
    """A worker's exception, with a note on where it was raised."""
    where = f"raised in worker {id} of the DataLoader:"
    error = pickle.loads(failed.error) if failed.error is not None else None
    if error is None or isinstance(error, StopIteration):  # that one would end the loop as if all were well
        return WorkerError(f"an exception was {where}", *failed.text.splitlines())
    error.add_note(f"{where}\n{failed.text}")
    return error


def _limited(keys: Iterator[Any], count: int) -> Iterator[Any]:
    for _ in range(count):
        for key in keys:
            yield key
            break
        else:
            return


def _rounds(workers: list[_Worker]) -> Iterator[_Worker]:
    while True:
        yield from workers


def _stop(workers: list[_Worker], owner: int) -> None:
    """Tell the workers to stop; terminate those that have not after GRACE seconds."""
    if os.getpid() != owner:  # a forked process that holds a copy of the pool
        return
    for worker in workers:
        try:
            worker.connection.send(None)
        except OSError:
            pass  # it is gone already
        worker.connection.close()
    end = time.monotonic() + GRACE
    for worker in workers:
        process = worker.process
        process.join(max(0.0, end - time.monotonic()))
        for harder in (process.terminate, process.kill):
            if process.exitcode is None:
                harder()
                process.join(1.0)
        process.close()
    workers.clear()
