"""Computes what stands twice once (common subexpression elimination).

    graph f(%x: f32[3], %y: f32[3]) -> (f32[3]) {
      %0 = add(%x, %y) : f32[3]
      %1 = add(%y, %x) : f32[3]
      %2 = mul(%0, %1) : f32[3]
      return %2
    }
    ->
    graph f(%x: f32[3], %y: f32[3]) -> (f32[3]) {
      %0 = add(%x, %y) : f32[3]
      %1 = mul(%0, %0) : f32[3]
      return %1
    }

Random ops are functions of the generator's state, which is an operand: two draws merge if they were one.
"""

from __future__ import annotations

from collections.abc import Hashable
from collections.abc import Set as AbstractSet
from typing import Any

from ...ir.graph import Constant, Graph, Node, Value, substituted
from ...ir.where import joined, origins
from ...ir.write import need_values

# Constants of up to this many bytes are compared by their bits, longer ones by being the same object.
SMALL = 1024


def cse(graph: Graph, apart: AbstractSet[Value] = frozenset()) -> Graph:
    """The graph with nodes of one op, equal operands and equal attrs made one.

    apart: values that stay themselves, as their users can tell them from equal ones: what gives them is
    computed for nobody else.  Raises GraphError for a graph with writes.
    """
    need_values("cse", graph)
    became = equal_constants(graph)
    first: dict[Hashable, Node] = {}
    kept: list[Node] = []
    others: dict[Node, list[Any]] = {}  # where those are from that a node stands for beside itself
    for node in graph.nodes:
        node = substituted(node, became)
        own = node.op.traits.meets or any(v in apart for v in node.outputs)
        known = node if own else first.setdefault(key_of(node), node)
        if known is node:
            kept.append(node)
            continue
        became.update(zip(node.outputs, known.outputs, strict=True))
        if origins(node.where):
            others.setdefault(known, []).append(node.where)
    if not became:
        return graph
    if others:
        kept = [
            node.replace(where=joined((*others[node], node.where))) if node in others else node
            for node in kept
        ]
    return graph.replace(nodes=kept, results=(became.get(v, v) for v in graph.results))


def key_of(node: Node) -> Hashable:
    """What two nodes that compute the same have in common."""
    inputs = tuple(map(id, node.inputs))  # values have no truth, so they can't be compared by ==
    if node.op.traits.commutative and inputs[0] > inputs[1]:
        inputs = (inputs[1], inputs[0])
    return (node.op, inputs, exact(tuple(node.attrs.values()))) if node.attrs else (node.op, inputs)


def equal_constants(graph: Graph) -> dict[Value, Value]:
    """For each constant the first one of the same type and bits, where that is another."""
    first: dict[Hashable, Value] = {}
    found: dict[Value, Value] = {}
    for constant in dict.fromkeys(v for v in graph.used() if isinstance(v, Constant)):
        if constant.data.nbytes <= SMALL:
            known = first.setdefault((constant.type, constant.data.tobytes()), constant)
            if known is not constant:
                found[constant] = known
    return found


def exact(attr: Any) -> Hashable:
    """The attr, such that equal means the same: 1 is not 1.0 or True, 0.0 is not -0.0, NaN is NaN."""
    kind = type(attr)
    if kind is tuple:
        return tuple(map(exact, attr))
    if kind is float:
        return (float, attr.hex())
    if kind is bool:
        return (bool, attr)
    return attr
