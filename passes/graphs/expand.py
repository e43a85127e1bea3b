"""Ops that stand for graphs of other ops become those graphs.

graph net(%x: f32[4,8]) -> (f32[4]) {
  %0 = std(%x) {dim=(1,), correction=1, keepdim=False} : f32[4]
  return %0
}
->
graph net(%x: f32[4,8]) -> (f32[4]) {
  %0 = var(%x) {dim=(1,), correction=1, keepdim=False} : f32[4]
  %1 = sqrt(%0) : f32[4]
  return %1
}
"""

from __future__ import annotations

from ...ir.graph import Graph, Node, Value, substituted
from ...ir.lowering import Decomposition
from ...ir.op import REGISTRY
from .lower import decompose


def expand(graph: Graph, loops: bool = True) -> Graph:
    """Put the graph of each decomposed op in its place, until every node has a kernel or is the host's.

    Halves widen on the way into such a graph and are rounded on the way out, as in eager runs.  Fused nodes
    stay.  loops: whether programs of the target have any.
    """
    if not any(map(_is_decomposed, graph.nodes)):
        return graph
    became: dict[Value, Value] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        became |= zip(node.outputs, _emitted(substituted(node, became), nodes, loops), strict=True)
    return graph.replace(nodes=nodes, results=[became.get(v, v) for v in graph.results])


def _is_decomposed(node: Node) -> bool:
    return isinstance(node.op.lower, Decomposition) and REGISTRY.get(node.op.name) is node.op


def _emitted(node: Node, nodes: list[Node], loops: bool) -> tuple[Value, ...]:
    """Append a node, or those that it stands for, and give what its outputs became."""
    if not _is_decomposed(node):
        nodes.append(node)
        return node.outputs
    types = tuple(None if v is None else v.type for v in node.inputs)
    body = decompose(node.op, types, node.attrs, loops)
    given = (v for v in node.inputs if v is not None)
    became: dict[Value, Value] = dict(zip(body.params, given, strict=True))
    for step in body.nodes:
        outputs = tuple(Value(v.type, v.hint) for v in step.outputs)
        inner = substituted(step, became).replace(outputs=outputs, where=node.where)
        made = _emitted(inner, nodes, loops)
        became |= zip(step.outputs, made, strict=True)
    return tuple(became.get(v, v) for v in body.results)
