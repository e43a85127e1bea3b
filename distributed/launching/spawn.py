"""Call a function in several new processes that are MPI's ranks to each other.

The function and its arguments travel as multiprocessing's own `spawn` has it: pickled, after what it takes to
find the functions of `__main__`.  They lie in anonymous memory that each rank reads by way of /proc, so that
nothing is left of them when a process dies.
"""

from __future__ import annotations

import atexit
import io
import multiprocessing.context
import multiprocessing.spawn
import multiprocessing.util
import os
import sys
import threading
import time
from collections.abc import Callable
from importlib.util import find_spec
from multiprocessing import process, reduction, resource_sharer, resource_tracker
from typing import Any

from ..environment import Place
from . import launchers
from .console import Console
from .failures import Failure, signal_name
from .job import Job, Plan
from .launchers import Host

BATCH_SYSTEMS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID")


class ProcessException(Exception):
    """A process that was spawned failed.  error_index: which.  pid: its number.  msg: what is said of it."""

    def __init__(self, msg: str, error_index: int, pid: int):
        super().__init__(msg)
        self.msg, self.error_index, self.pid = msg, error_index, pid
        self.error_pid = pid

    def __reduce__(self) -> tuple:
        return type(self), (self.msg, self.error_index, self.pid)


class ProcessRaisedException(ProcessException):
    """A process that was spawned raised; `msg` has its traceback."""


class ProcessExitedException(ProcessException):
    """A process that was spawned ended with a status other than 0, or by the signal named signal_name."""

    def __init__(
        self, msg: str, error_index: int, error_pid: int, exit_code: int, signal_name: str | None = None
    ):
        super().__init__(msg, error_index, error_pid)
        self.exit_code, self.signal_name = exit_code, signal_name

    def __reduce__(self) -> tuple:
        return type(self), (self.msg, self.error_index, self.pid, self.exit_code, self.signal_name)


def raised(text: str, index: int, pid: int) -> ProcessRaisedException:
    """What is raised where process `index` did, from the text of its traceback."""
    return ProcessRaisedException(f"process {index} raised:\n{text.rstrip()}", index, pid)


def exited(code: int, index: int, pid: int) -> ProcessExitedException:
    """What is raised where process `index` ended with a status, which is negative for a signal."""
    name = signal_name(-code) if code < 0 else None
    how = f"by signal {name}" if code < 0 else f"with exit code {code}"
    return ProcessExitedException(f"process {index} terminated {how}", index, pid, code, name)


def is_possible() -> bool:
    """Whether there is what it takes: mpi4py, an mpiexec, and the memory that ranks read their call from."""
    if find_spec("mpi4py") is None or not hasattr(os, "memfd_create") or not os.path.isdir("/proc/self/fd"):
        return False
    return (
        launchers.is_there() and launchers.find().kind != "Slurm"
    )  # srun starts steps of a whole allocation


class RankProcess:
    """One of the processes, with the attributes of a `multiprocessing.Process`."""

    def __init__(self, ranks: RankContext, index: int):
        self._ranks, self._index = ranks, index
        self.name, self.daemon = f"SpawnProcess-{index}", ranks.daemon

    @property
    def pid(self) -> int | None:
        """Its number; None before it was started."""
        return self._ranks.job.pids()[self._index] or None

    ident = pid

    @property
    def exitcode(self) -> int | None:
        """Its exit status, negative for a signal; None while it runs."""
        ended = self._ranks.job.ranks[self._index].ended
        if ended is not None:
            return ended["status"]
        return None if self._ranks.is_alive() else -9

    def is_alive(self) -> bool:
        """Whether it runs."""
        return self.exitcode is None

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end."""
        until = None if timeout is None else time.monotonic() + timeout
        while self.is_alive() and (until is None or time.monotonic() < until):
            self._ranks.wait(0.02)

    def terminate(self) -> None:
        """Have it end, and with it the others, which would wait for it."""
        self._ranks.job.end()

    kill = terminate


class RankContext:
    """The ranks of one `spawn`.  A thread of this process sees to them until all have ended."""

    def __init__(self, fn: Callable, args: tuple, nprocs: int, daemon: bool):
        self.daemon, self._error = daemon, None  # type: bool, BaseException | None
        self._told = False
        self._started = threading.Event()
        calls = [_pickled(fn, args, daemon) for _ in range(nprocs)]
        try:
            self.job = Job(_plan(nprocs, calls), Console(), self._started.set)
        except BaseException:
            _close(calls)
            raise
        self._thread = threading.Thread(target=self._run, args=(calls,), name="lamina-ranks", daemon=daemon)
        self.processes = [RankProcess(self, index) for index in range(nprocs)]
        if daemon:
            atexit.register(self._end)
        self._thread.start()
        while not self._started.wait(0.05) and self._thread.is_alive():
            pass

    def _run(self, calls: list[int]) -> None:
        try:
            self.job.run()
        except BaseException as error:  # told by join
            self._error = error
        finally:
            _close(calls)
            atexit.unregister(self._end)

    def _end(self) -> None:
        self.job.end()
        self._thread.join()

    def pids(self) -> list[int]:
        """The processes' numbers."""
        return self.job.pids()

    def is_alive(self) -> bool:
        """Whether any of them runs, or what they left is still being ended."""
        return self._thread.is_alive()

    def wait(self, timeout: float | None) -> None:
        """Wait so long at most until all have ended."""
        self._thread.join(timeout)

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Wait until all have ended, so many seconds at most; whether they have.

        grace_period is taken as PyTorch's: ranks have some seconds anyway to end once one has failed.
        Raises ProcessRaisedException, ProcessExitedException: the first failure, once all are gone.
        """
        try:
            self._thread.join(timeout)
        except BaseException:  # Ctrl-C: the ranks are in sessions of their own
            self._end()
            raise
        if self._thread.is_alive():
            return False
        if self._told:
            return True
        self._told = True
        if self._error is not None:
            raise self._error
        if self.job.failure is not None:
            raise _exception(self.job.failure, self.job.noise)
        return True


def _exception(failure: Failure, noise: str) -> ProcessException:
    index = failure.rank if failure.rank is not None else 0
    if failure.raised is not None:
        return raised(failure.raised["text"], index, failure.pid)
    if failure.ended:
        return exited(failure.ended, index, failure.pid)
    who = f"process {index} " if failure.rank is not None else ""
    text = f"{who}{failure.how}" + (f"\n{noise}" if noise and failure.rank is None else "")
    return ProcessExitedException(text, index, failure.pid, failure.status)


def _plan(nprocs: int, calls: list[int]) -> Plan:
    launcher = launchers.find()
    paths = [f"/proc/{os.getpid()}/fd/{fd}" for fd in calls]
    flags = multiprocessing.util._args_from_interpreter_flags()  # type: ignore[attr-defined]
    rank_main = f"{__package__}.rank_main"
    words = [sys.executable, *flags, "-m", rank_main, "{control}", str(nprocs), "call", *paths]
    # A batch system's launcher would spread them over its machines.
    hosts = [Host("localhost", nprocs)] if any(name in os.environ for name in BATCH_SYSTEMS) else []
    # What programs set before they spawn, but for what a rank was told that spawns by itself.
    kept = ["MASTER_ADDR", "MASTER_PORT", *(["WORLD_SIZE"] if "RANK" not in os.environ else [])]
    environ = {name: os.environ[name] for name in kept if name in os.environ}
    return Plan(launcher, nprocs, words, hosts, environ=environ)


class _Spawning:
    """Stands for multiprocessing's starting of a process while a call is pickled: what is not a copy in the
    other process is handed over by a socket of this one's.
    """

    method = "spawn"
    DupFd = resource_sharer.DupFd

    def duplicate_for_child(self, fd: int) -> int:
        return fd


def _pickled(fn: Callable, args: tuple, daemon: bool) -> int:
    """The descriptor of memory with a call in it.  Raises what pickling raises."""
    resource_tracker.ensure_running()
    tracker = f"/proc/{os.getpid()}/fd/{resource_tracker.getfd()}"
    buffer = io.BytesIO()
    set_spawning: Any = multiprocessing.context.set_spawning_popen
    set_spawning(_Spawning())
    try:
        preparation = multiprocessing.spawn.get_preparation_data("SpawnProcess")
        reduction.dump(preparation, buffer)
        reduction.dump((fn, args, daemon, tracker), buffer)
    finally:
        set_spawning(None)
    fd = os.memfd_create("lamina-call")
    with open(fd, "wb", closefd=False) as file:
        file.write(buffer.getbuffer())
    return fd


def _close(descriptors: list[int]) -> None:
    for fd in descriptors:
        os.close(fd)


def run_call(paths: list[str], place: Place) -> int:
    """Be a rank: read the call of this rank, and do it.  Returns 0; raises what the function raises."""
    current: Any = process.current_process()
    current._inheriting = True
    try:
        with open(paths[place.rank], "rb") as file:
            multiprocessing.spawn.prepare(reduction.pickle.load(file))  # type: ignore[attr-defined]
            fn, args, daemon, tracker = reduction.pickle.load(file)  # type: ignore[attr-defined]
    finally:
        del current._inheriting
    current._config["daemon"] = daemon
    current.name = f"SpawnProcess-{place.rank}"
    # One tracker for all that share: one of this process's own would unlink what is the parent's.
    resource_tracker._resource_tracker._fd = os.open(tracker, os.O_WRONLY)  # type: ignore[attr-defined]
    fn(place.rank, *args)
    return 0
