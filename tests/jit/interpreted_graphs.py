"""The graph interpreter in the place of native code: so a fault of the tracer's is told from the code's."""

from __future__ import annotations

import numpy as np

from lamina.ir.interpret import interpret


class Interpreted:
    from_disk = False

    def __init__(self, graph, into):
        self.graph, self.into = graph, into

    def run(self, arrays, tensors=None):
        found = [np.array(r, order="C") for r in interpret(self.graph, *arrays)]
        for result, at in zip(found, self.into, strict=True):
            if at is not None:
                arrays[at][...] = result
        return tuple(r if at is None else arrays[at] for r, at in zip(found, self.into, strict=True))

    def kernels(self):
        return []


def compile_graph(graph, *, into=(), frozen=frozenset(), target=None):
    """Stands in for `lamina.jit.backend.compile_graph`."""
    return Interpreted(graph, tuple(into) or (None,) * len(graph.results))
