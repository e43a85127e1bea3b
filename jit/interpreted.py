"""The graph interpreter in the place of compiled code: for tests, and where code could not be made."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..ir.errors import DeviceError
from ..ir.graph import Graph
from ..ir.interpret import interpret
from ..runtime.interrupts import let_through
from ..runtime.on_device import OnDevice, eager, on_host, write_over


class Interpreted:
    """A graph that is interpreted, as if it was compiled.  into: as `compile_graph` takes it."""

    from_disk = False
    main = complexes = tuned = None  # there is no short way to it, and no kernel

    def __init__(self, graph: Graph, into: Sequence[int | None]):
        self.graph, self.into = graph, into

    def run(self, arrays: Sequence[np.ndarray], tensors: Any = None) -> tuple[np.ndarray, ...]:
        """The results, written over the params that `into` names."""
        found = [np.array(r, order="C") for r in interpret(self.graph, *map(on_host, arrays))]
        if there := [a for a in arrays if isinstance(a, OnDevice)]:
            found = [eager().uploaded(there[0].memory.machine, r) for r in found]
        for result, at in zip(found, self.into, strict=True):
            if at is not None:
                write_over(arrays[at], result)
        return tuple(r if at is None else arrays[at] for r, at in zip(found, self.into, strict=True))

    def kernels(self) -> list[str]:
        """None: no kernel runs."""
        return []


def compile_graph(
    graph: Graph, *, into: tuple = (), frozen: frozenset[int] = frozenset(), **how: Any
) -> Interpreted:
    """For `backend.compile_graph`, in tests: so a fault of the tracer's is told from the code's."""
    return Interpreted(graph, tuple(into) or (None,) * len(graph.results))


def or_interpreted(compile_graph: Callable) -> Callable:
    """`compile_graph`, but what can't be compiled is interpreted, which says so.

    A forward that can't be compiled runs eagerly; a backward is compiled when it is first wanted, when there
    is no eager history.
    """

    def compiled(graph: Graph, *, into: tuple, frozen: frozenset[int]) -> Any:
        try:
            return compile_graph(graph, into=into, frozen=frozen)
        except (DeviceError, MemoryError):
            raise
        except Exception as error:
            let_through(error)
            warnings.warn(
                f"{graph.name}: the backward could not be compiled: {type(error).__name__}: {error}\n"
                "It is interpreted, which is slower. This is a fault of Lamina's: please report it with the "
                "network and the shapes that show it.",
                stacklevel=2,
            )
            return Interpreted(graph, into)

    return compiled
