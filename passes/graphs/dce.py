"""Drops what nothing uses (dead code elimination).

graph f(%x: f32[3]) -> (f32[3]) {
  %0 = exp(%x) : f32[3]
  %1 = neg(%x) : f32[3]
  return %1
}
->
graph f(%x: f32[3]) -> (f32[3]) {
  %0 = neg(%x) : f32[3]
  return %0
}
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, TypeVar

from ...ir.by_pairs import by_pairs
from ...ir.fused import fused
from ...ir.graph import Graph, Node, Value
from ...ir.put import put
from ...ir.recur import recurrent
from ...ir.write import need_values

Step = TypeVar("Step", bound=Any)  # a node of a graph, or a step of a program


def dce(graph: Graph) -> Graph:
    """The graph without nodes that no result depends on.  Params stay: the caller counts on their places.

    An op that refuses some values stays too: what eager refuses must not pass because nobody reads it.
    Raises GraphError for a graph with writes.
    """
    need_values("dce", graph)
    refusing = [v for node in graph.nodes if refuses(node) for v in node.outputs]
    kept = leading_to(graph.nodes, (*graph.results, *refusing))
    return graph if len(kept) == len(graph.nodes) else graph.replace(nodes=kept)


def leading_to(
    steps: Sequence[Step], values: Iterable[Any], known: Collection[Any] = frozenset()
) -> tuple[Step, ...]:
    """The nodes of a graph, or steps of a program, that compute the values from what is known, in order."""
    wanted, found = {v for v in values if v not in known}, []
    for step in reversed(steps):
        if not wanted.isdisjoint(step.outputs):
            found.append(step)
            wanted.update(v for v in step.inputs if v is not None and v not in known)
    return tuple(reversed(found))


def checks(graph: Graph) -> list[Value]:
    """The outputs, which nobody reads, of nodes that run for the values that they refuse."""
    read = {v for node in graph.nodes for v in node.inputs}.union(graph.results)
    return [v for node in graph.nodes if refuses(node) for v in node.outputs if read.isdisjoint(node.outputs)]


def refuses(node: Node) -> bool:
    """Whether there are values that the node raises an error for."""
    if node.op in (fused, by_pairs, put, recurrent):
        return any(map(refuses, node.attrs["body"].nodes))
    return node.op.traits.refuses
