"""Ranks that are actors of Ray, which places them on its machines.

    from lamina.distributed.launching import ray_ranks
    losses = ray_ranks.run(train, (config,), ranks=4, max_restarts=2)      # train(config) on each of 4

Each rank finds RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT in its environment, and `init_process_group`
meets the others by them.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ray

from ...ir.errors import ArgumentValueError, DistributedError

GATHER = 15.0  # seconds that ranks have to say what they saw, once one has failed


def address() -> tuple[str, int]:
    """This process's machine, and a port that is free there."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return ray.util.get_node_ip_address(), probe.getsockname()[1]


class _Rank:
    """One rank's process."""

    def address(self) -> tuple[str, int]:
        """The machine, and a port that is free there."""
        return address()

    def run(self, function: Callable, args: Sequence[Any], variables: Mapping[str, str]) -> Any:
        """Be that rank."""
        os.environ.update(variables)
        return function(*args)


def run(
    function: Callable, args: Sequence[Any] = (), ranks: int = 2, max_restarts: int = 0, **resources: Any
) -> list[Any]:
    """Call a function on so many ranks, each an actor of its own.  Returns what each returned, in order.

    resources: of each rank, as Ray's `options` takes them, `num_cpus=2`; one CPU unless given.  When a rank
    fails all are ended, and started anew max_restarts times; TORCHELASTIC_RESTART_COUNT says how often they
    were.  A function that saves checkpoints and begins with `restore` goes on from the last one.

    Raises DistributedError with each rank's failure, the first cause first.
    """
    if not isinstance(ranks, int) or ranks < 1:
        raise ArgumentValueError(f"run(ranks): a positive int, not {ranks!r}")
    kind = ray.remote(_Rank).options(**{"num_cpus": 1, "max_restarts": 0, **resources})
    for restarts in range(max_restarts + 1):
        actors = [kind.remote() for _ in range(ranks)]
        try:
            return _run_once(actors, function, args, restarts)
        except DistributedError:
            if restarts == max_restarts:
                raise
        finally:
            for actor in actors:
                ray.kill(actor)
    raise AssertionError("unreachable")


def _run_once(actors: list[Any], function: Callable, args: Sequence[Any], restarts: int) -> list[Any]:
    where = ray.get([actor.address.remote() for actor in actors])
    order = sorted(range(len(actors)), key=lambda n: where[n][0])  # those of a machine have numbers in a row
    address, port = where[order[0]]
    common = {
        "WORLD_SIZE": str(len(actors)), "MASTER_ADDR": address, "MASTER_PORT": str(port),
        "TORCHELASTIC_RESTART_COUNT": str(restarts),
    }  # fmt: skip
    calls = [actors[n].run.remote(function, args, common | {"RANK": str(r)}) for r, n in enumerate(order)]
    results: dict[int, Any] = {}
    failures: dict[int, Exception] = {}
    waiting, end = {call: rank for rank, call in enumerate(calls)}, float("inf")
    while waiting and time.monotonic() < end:
        ready, _ = ray.wait(list(waiting), timeout=min(1.0, max(0.0, end - time.monotonic())))
        for call in ready:
            rank = waiting.pop(call)
            try:
                results[rank] = ray.get(call)
            except Exception as error:  # the function's, or Ray's of an actor that died
                failures[rank] = error
                end = min(end, time.monotonic() + GATHER)
    if failures:
        raise _told(failures, [where[n][0] for n in order])
    return [results[rank] for rank in range(len(actors))]


def _told(failures: dict[int, Exception], hosts: list[str]) -> DistributedError:
    """What all failures say; those that come of another rank's are the last."""
    causes = {rank: getattr(error, "cause", None) or error for rank, error in failures.items()}
    order = sorted(causes, key=lambda rank: isinstance(causes[rank], DistributedError))
    lines = [
        f"rank {rank} of {len(hosts)} (host {hosts[rank]}): {type(causes[rank]).__name__}: {line}"
        for rank in order
        for line in str(causes[rank]).splitlines()[:1]
    ]
    told = DistributedError(lines[0], *lines[1:])
    told.__cause__ = failures[order[0]]
    return told
