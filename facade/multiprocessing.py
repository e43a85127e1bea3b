"""Answer `torch.multiprocessing`: Python's, with PyTorch's `spawn`.

Tensors are pickled on their way to another process: they are copies there, not shared memory.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing import *  # noqa: F403 - Python's own, under this name
from typing import Any

__all__ = [  # noqa: PLE0604
    *multiprocessing.__all__, "ProcessContext", "get_all_sharing_strategies", "get_sharing_strategy",
    "set_sharing_strategy", "spawn", "start_processes",
]  # fmt: skip

_STRATEGIES = ("file_system", "file_descriptor")
_strategy = _STRATEGIES[0]


def get_all_sharing_strategies() -> set[str]:
    """The names that `set_sharing_strategy` takes."""
    return set(_STRATEGIES)


def get_sharing_strategy() -> str:
    """What `set_sharing_strategy` was told."""
    return _strategy


def set_sharing_strategy(new_strategy: str) -> None:
    """Note how memory would be shared: none is."""
    global _strategy
    assert new_strategy in _STRATEGIES, new_strategy
    _strategy = new_strategy


class ProcessRaisedException(Exception):
    """A process of `spawn` ended with an error."""


class ProcessContext:
    """The processes of `spawn`."""

    def __init__(self, processes: list[Any]):
        self.processes = processes

    def pids(self) -> list[int]:
        """Their numbers."""
        return [p.pid for p in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Wait until they have ended.  Raises ProcessRaisedException where one failed."""
        for number, process in enumerate(self.processes):
            process.join(timeout)
            if process.exitcode:
                for other in self.processes:
                    other.terminate()
                raise ProcessRaisedException(
                    f"Process {number} terminated with exit code {process.exitcode}; its error stands above"
                )
        return all(p.exitcode is not None for p in self.processes)


def start_processes(
    fn: Callable, args: tuple = (), nprocs: int = 1, join: bool = True, daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:  # fmt: skip
    """Run `fn(number, *args)` in each of `nprocs` processes; with `join`, wait for them."""
    context = multiprocessing.get_context(start_method)
    make: Any = context.Process  # type: ignore[attr-defined]
    processes = [make(target=fn, args=(i, *args), daemon=daemon) for i in range(nprocs)]
    for process in processes:
        process.start()
    made = ProcessContext(processes)
    if not join:
        return made
    made.join()
    return None


def spawn(
    fn: Callable, args: tuple = (), nprocs: int = 1, join: bool = True, daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:  # fmt: skip
    """Run `fn(number, *args)` in each of `nprocs` new processes; with `join`, wait for them."""
    return start_processes(fn, args, nprocs, join, daemon, start_method)
