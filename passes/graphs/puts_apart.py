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
there: that is as quick where much of it is written, or where it is fused with what computes the array.
A `put` costs what it writes, and at most a copy (a cache of 256 MB: 100 ms or 0.06, EPYC, 2026-11-25).
"""

from __future__ import annotations

from math import prod
from typing import Any

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
            node = Node(
                put, operands, node.outputs, {"body": body_of([node], operands, node.outputs)}, node.where
            )
        nodes.append(node)
    return graph.replace(nodes=tuple(nodes))


def _may(node: Node) -> bool:
    """Whether a node writes little of much."""
    if node.op.name not in _WRITES or node.op is not REGISTRY[node.op.name]:
        return False
    base, *others = node.inputs
    if base is None or node.attrs.get("accumulate") or node.attrs.get("reduce"):
        return False
    value = node.inputs[_WRITES[node.op.name]]
    if value is None or base.dtype is not value.dtype or base.dtype.is_complex:
        return False
    shapes = [v.shape for v in node.inputs if v is not None]
    if any(v is base for v in others) or not all(has_hint(n) for shape in shapes for n in shape):
        return False
    written: Any = prod(value.shape)
    if node.op.name == "index_put":
        picked = max([prod(v.shape) for v in others[1:] if v is not None])
        written = prod([n for d, n in enumerate(base.shape) if d not in node.attrs["dims"]]) * picked
    elif node.op.name == "scatter":
        written = prod(shapes[1])
    whole = hint(prod(base.shape))
    return whole >= LEAST and hint(written) * SHARE <= whole


_WRITES = {"view_scatter": 1, "index_put": 1, "index_copy": 2, "scatter": 2}  # and which operand is written
