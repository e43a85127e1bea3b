"""Answer `torch.multiprocessing`: Python's, with PyTorch's `spawn`.

Processes of `spawn` can talk with each other by MPI, where mpi4py and an mpiexec are installed.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import time
import traceback
from collections.abc import Callable
from multiprocessing import *  # noqa: F403 - Python's own, under this name
from typing import Any

from ..distributed.launching.spawn import (
    ProcessException,
    ProcessExitedException,
    ProcessRaisedException,
    RankContext,
    exited,
    is_possible,
    raised,
)
from ..runtime.shared_memory import register

register()

__all__ = [  # noqa: PLE0604
    *multiprocessing.__all__, "ProcessContext", "ProcessException", "ProcessExitedException",
    "ProcessRaisedException", "SpawnContext", "get_all_sharing_strategies", "get_sharing_strategy",
    "set_sharing_strategy", "spawn", "start_processes",
]  # fmt: skip

_STRATEGIES = ("file_system", "file_descriptor")
_strategy = _STRATEGIES[1]


def get_all_sharing_strategies() -> set[str]:
    """The names that `set_sharing_strategy` takes."""
    return set(_STRATEGIES)


def get_sharing_strategy() -> str:
    """What `set_sharing_strategy` was told."""
    return _strategy


def set_sharing_strategy(new_strategy: str) -> None:
    """Note how memory would be shared: it has no name in either case, and is handed over by descriptors."""
    global _strategy
    assert new_strategy in _STRATEGIES, new_strategy
    _strategy = new_strategy


class ProcessContext:
    """Processes of `start_processes` that are plain ones of multiprocessing."""

    def __init__(self, processes: list[Any], errors: list[Any]):
        self.processes = processes
        self._errors, self._joined = errors, set()  # type: list[Any], set[int]

    def pids(self) -> list[int]:
        """Their numbers."""
        return [p.pid for p in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Wait until all have ended, so many seconds at most; whether they have.

        Once one failed, the others are ended: at once, or after grace_period seconds.
        Raises ProcessRaisedException, ProcessExitedException.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while left := [p for i, p in enumerate(self.processes) if i not in self._joined]:
            remaining = None if until is None else max(0.0, until - time.monotonic())
            ready = multiprocessing.connection.wait([p.sentinel for p in left], remaining)
            for index, process in enumerate(self.processes):
                if process.sentinel in ready and index not in self._joined:
                    process.join()
                    self._joined.add(index)
                    if process.exitcode:
                        self._end_all(grace_period)
                        raise self._failure(index)
            if not ready:
                return False
        return True

    def _end_all(self, grace_period: float | None) -> None:
        if grace_period:
            multiprocessing.connection.wait(
                [p.sentinel for p in self.processes if p.is_alive()], grace_period
            )
        for number in ("terminate", "kill"):
            for process in self.processes:
                if process.is_alive():
                    getattr(process, number)()
            for process in self.processes:
                process.join(5)
        self._joined.update(range(len(self.processes)))

    def _failure(self, index: int) -> ProcessException:
        process, error = self.processes[index], self._errors[index]
        if error.poll():
            try:
                return raised(error.recv(), index, process.pid)
            except EOFError:
                pass
        return exited(process.exitcode, index, process.pid)


SpawnContext = ProcessContext


def _call(fn: Callable, number: int, args: tuple, error: Any) -> None:
    try:
        fn(number, *args)
    except Exception:
        error.send(traceback.format_exc())
        os._exit(_leave())


def _leave() -> int:
    """What runs at a process's end, where it ends by a failure.  Returns the status."""
    multiprocessing.util._exit_function()  # type: ignore[attr-defined]
    return 1


def start_processes(
    fn: Callable, args: tuple = (), nprocs: int = 1, join: bool = True, daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | RankContext | None:  # fmt: skip
    """Run `fn(number, *args)` in each of `nprocs` processes; with `join`, wait for them.

    With start_method "spawn" the processes are MPI's ranks to each other, where mpi4py and an mpiexec are
    installed.  Raises what the context's `join` raises.
    """
    made: ProcessContext | RankContext
    if start_method == "spawn" and nprocs > 0 and is_possible():
        made = RankContext(fn, args, nprocs, daemon)
    else:
        made = _plain(fn, args, nprocs, daemon, start_method)
    if not join:
        return made
    while not made.join():
        pass
    return None


def _plain(fn: Callable, args: tuple, nprocs: int, daemon: bool, start_method: str) -> ProcessContext:
    context: Any = multiprocessing.get_context(start_method)
    processes, errors = [], []
    for number in range(nprocs):
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_call, args=(fn, number, args, theirs), daemon=daemon)
        process.start()
        theirs.close()
        processes.append(process)
        errors.append(ours)
    return ProcessContext(processes, errors)


def spawn(
    fn: Callable, args: tuple = (), nprocs: int = 1, join: bool = True, daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | RankContext | None:  # fmt: skip
    """Run `fn(number, *args)` in each of `nprocs` new processes; with `join`, wait for them."""
    return start_processes(fn, args, nprocs, join, daemon, start_method)
