"""Programs whose arrays are on the device already, and whose results stay there."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from ...ir.kernel.types import NUMPY
from ...ir.locks import fork_safe_lock
from ...passes.programs.memory_plan import Move
from ...passes.triton.launches import Launch
from ..on_device import OnDevice, all_of, on_host, write_over
from .arrays import DeviceArray
from .driver import Graph
from .eager import brought, dense, note, ready, uploaded
from .executable import Executable, Run

GRAPHS = os.environ.get("LAMINA_CUDA_GRAPHS", "0") not in ("", "0")
AFTER = 3  # calls that are launched one by one, which tell whose addresses stay
LEAST = 4  # launches that are worth a graph
MOST = 4  # graphs of a program, until it does without


class Resident(Executable):
    """A program on arrays of a device, called as others are; nothing is waited for.

    Arrays of the host (numbers, states of generators, indices) are copied to the device at each call.  Of
    indices out of range the next wait tells.
    """

    _replay: Replay | None = None

    def __call__(self, *arrays: Any) -> tuple[np.ndarray, ...]:
        """The results: new arrays, or the params that they were written over."""
        if self.alone is not None and (addresses := ready(self.machine, arrays)) is not None:
            only = self.alone(addresses)
            return (all_of(only, only.shape, NUMPY[only.dtype]),)
        launches = self.launches
        given = [dense(brought(self.machine, x)) for x in arrays]
        for at in self._written:
            if not isinstance(arrays[at], OnDevice):
                given[at] = uploaded(self.machine, arrays[at])
        made = self._made([x.address for x in given])
        count = len(made) - len(launches.checks)
        if launches.checks:
            note(self.machine, launches, made[count:])
        for at in self._written:
            if given[at] is not arrays[at]:
                write_over(arrays[at], given[at] if isinstance(arrays[at], OnDevice) else on_host(given[at]))
        return tuple([
            arrays[at] if at is not None else all_of(y, y.shape, NUMPY[y.dtype])
            for y, at in zip(made[:count], launches.into, strict=False)
        ])  # fmt: skip

    def _made(self, addresses: list[int]) -> list[DeviceArray]:
        """The results, from a graph where there is one."""
        if GRAPHS and self._replay is None:
            self._replay = Replay(self)
        ordinary = self.machine.stream is self.machine.default  # of which the graph's own memory is
        found = self._replay(addresses) if self._replay is not None and ordinary else None
        return self.queued(addresses) if found is None else found

    def captured(self, run: Run) -> Graph:
        """A graph of all steps of a run."""

        def work() -> None:
            for step in self._steps:
                step(run)

        return Graph(self.machine.stream, work)

    @property
    def is_capturable(self) -> bool:
        """Whether a graph can have all that it does, and is worth it."""
        parts = self.launches.parts
        return len(parts) >= LEAST and all(isinstance(part, (Launch, Move)) for part in parts)


class Replay:
    """A program's launches as one graph, from the call on that shows which params stay where they are.

    Weights and states do; what is elsewhere at each call, a batch, is copied into memory of the graph's, and
    results out of it.  Where a param that had stayed is elsewhere, another graph is made.
    """

    def __init__(self, program: Resident):
        self._program, self._turn = program, fork_safe_lock()
        self._stays = [True] * len(program.launches.params)
        self._last: list[int] | None = None  # the addresses of the call before
        self._calls = self._graphs = 0
        self._graph: Graph | None = None
        self._over = not program.is_capturable  # or it did without so often that it does from now on

    def __call__(self, addresses: list[int]) -> list[DeviceArray] | None:
        """The results; None where the program is to be launched by itself."""
        if self._over:
            return None
        with self._turn:  # of the graph's own memory
            for n, (before, now) in enumerate(zip(self._last or addresses, addresses, strict=True)):
                if before != now and self._stays[n]:
                    self._stays[n], self._graph = False, None
            self._last = addresses
            self._calls += 1
            if self._calls <= AFTER or (self._graph is None and not self._begun(addresses)):
                return None
            return self._replayed(addresses)

    def _begun(self, addresses: list[int]) -> bool:
        """Make a graph; whether there is one."""
        program = self._program
        self._graphs += 1
        self._over = self._graphs > MOST or not all([self._stays[n] for n in program.launches.written])
        if self._over:
            return False
        machine, launches = program.machine, program.launches
        self._own = [
            None if stays else DeviceArray(machine, *param)
            for stays, param in zip(self._stays, launches.params, strict=True)
        ]
        self._run = program.run_at(
            [at if own is None else own.address for at, own in zip(addresses, self._own, strict=True)]
        )
        self._graph = program.captured(self._run)
        return True

    def _replayed(self, addresses: list[int]) -> list[DeviceArray]:
        machine, graph = self._program.machine, self._graph
        assert graph is not None
        stream = machine.stream
        for address, own in zip(addresses, self._own, strict=True):
            if own is not None:
                stream.copy(own.address, address, own.nbytes)
        graph.launch(stream)
        found = []
        for kept in self._run.results:
            made = DeviceArray(machine, kept.dtype, kept.shape)
            stream.copy(made.address, kept.address, kept.nbytes)
            found.append(made)
        return found
