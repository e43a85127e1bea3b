"""Writes of small parts of large arrays that a caller gets back become nodes of their own.

    graph step(%c: f32[1024,64], %x: f32[64], %i: i64[]) -> (f32[1024,64]) {
      %0 = index_put(%c, %x, %i) {dims=(0,), accumulate=False} : f32[1024,64]
      return %0
    }
    ->
    graph step(%c: f32[1024,64], %x: f32[64], %i: i64[]) -> (f32[1024,64]) {
      %0 = put(%c, %x, %i) {body=graph index_put(...) -> (f32[1024,64]) {...}} : f32[1024,64]
      return %0
    }

By their decompositions every element of the array would be chosen anew, from what is written and what was
there: that is as quick where much of it is written, or where it is fused with what computes the array.  A `put`
costs what it writes, and at most a copy (a cache of 256 MB: 100 ms against 0.1, EPYC, 2026-11-25).
"""

from __future__ import annotations

from math import prod

from ...ir.dims import has_hint, hint
from ...ir.graph import Graph, Node, Value
from ...ir.op import REGISTRY
from ...ir.put import put
from .fuse import body_of

LEAST = 1 << 12  # elements of an array: of fewer all are soon written
SHARE = 4  # how many times as many as are written


def puts_apart(graph: Graph) -> Graph:
    """The graph with such writes as `put`: of params, one after the other, up to a result."""
    if not any(_may(node) for node in graph.nodes):
        return graph
    wanted = set(graph.results)
    for node in reversed(graph.nodes):  # what is written again before it is a result
        if _may(node) and node.outputs[0] in wanted:
            wanted.add(node.inputs[0])
    known: set[Value] = set(graph.params)
    nodes: list[Node] = []
    for node in graph.nodes:
        if _may(node) and node.inputs[0] in known and node.outputs[0] in wanted:
            known.add(node.outputs[0])
            operands = list(dict.fromkeys(v for v in node.inputs if v is not None))
            node = Node(put, operands, node.outputs, {"body": body_of([node], operands, node.outputs)}, node.where)
        nodes.append(node)
    return graph.replace(nodes=tuple(nodes))


def _may(node: Node) -> bool:
    """Whether a node writes little of much."""
    if node.op is not REGISTRY["view_scatter"] and node.op is not REGISTRY["index_put"]:
        return False
    base, value = node.inputs[:2]
    assert base is not None and value is not None
    if node.attrs.get("accumulate") or base.dtype is not value.dtype or base.dtype.is_complex:
        return False
    sizes = (*base.shape, *value.shape)
    if any(v is base for v in node.inputs[1:]) or not all(map(has_hint, sizes)):
        return False
    if node.op is REGISTRY["index_put"]:
        written = prod(n for d, n in enumerate(base.shape) if d not in node.attrs["dims"])
        written *= max([1, *(prod(v.shape) for v in node.inputs[2:] if v is not None)])
    else:
        written = prod(value.shape)
    whole = hint(prod(base.shape))
    return whole >= LEAST and hint(written) * SHARE <= whole
