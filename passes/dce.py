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

from ..ir.graph import Graph
from ..ir.write import need_values


def dce(graph: Graph) -> Graph:
    """The graph without nodes that no result depends on.  Params stay: the caller counts on their places.

    Raises GraphError for a graph with writes.
    """
    need_values("dce", graph)
    used = set(graph.results)
    kept = []
    for node in reversed(graph.nodes):
        if not used.isdisjoint(node.outputs):
            kept.append(node)
            used.update(node.inputs)
    return graph if len(kept) == len(graph.nodes) else graph.replace(nodes=reversed(kept))
