"""Computes what is known when the graph is made.

graph f(%x: f32[3]) -> (f32[3]) {
  %0 = arange() {start=0, step=1, size=(3,), dtype=f32, device=@cpu} : f32[3]
  %1 = mul(%0, 0.5:f32) : f32[3]
  %2 = sqrt(4.0:f32) : f32[]
  %3 = mul(%x, %2) : f32[3]
  %4 = add(%3, %1) : f32[3]
  return %4
}
->
graph f(%x: f32[3]) -> (f32[3]) {
  @c : f32[3]
  %0 = arange() {start=0, step=1, size=(3,), dtype=f32, device=@cpu} : f32[3]
  %1 = mul(%x, 2.0:f32) : f32[3]
  %2 = add(%1, @c) : f32[3]
  return %2
}
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...ir.dims import Dim
from ...ir.errors import LaminaError
from ...ir.execute import executor
from ...ir.graph import Constant, Graph, Node, Value, substituted
from ...ir.types import CPU, Type
from ...ir.write import need_values

# Elements of the largest constant that is made, so that a program's file stays small: 64 KiB of f32.
LIMIT = 16_384


def fold_constants(graph: Graph, limit: int = LIMIT) -> Graph:
    """The graph with nodes of constants replaced by what their references give.

    limit: of the elements of a result; more stay computed.  Creation ops of more than one element stay, as
    making zeros costs less than reading them, but what is computed of them is folded.  Random ops stay, host
    ops (their sizes are symbols), and a node whose reference raises an error, which the run will raise.
    Raises GraphError for a graph with writes.
    """
    need_values("fold_constants", graph)
    known = _Known(limit)
    became: dict[Value, Value] = {}
    kept = []
    for node in graph.nodes:
        node = substituted(node, became)
        found = known.constants(node) if known.folds(node) else None
        if found is None:
            kept.append(node)
        else:
            became.update(zip(node.outputs, found, strict=True))
    if not became:
        return graph
    return graph.replace(nodes=kept, results=(became.get(v, v) for v in graph.results))


class _Known:
    """The values that are known: constants, and what creation ops make, which is made where it is asked."""

    def __init__(self, limit: int):
        self.limit = limit
        self.made: dict[Value, Node] = {}

    def folds(self, node: Node) -> bool:
        """Whether the node's outputs are known and may stand as constants."""
        return (
            not (node.op.traits.random or node.op.traits.meets)
            and all(v is None or isinstance(v, Constant) or v in self.made for v in node.inputs)
            and all(t.device == CPU and is_sized(t.shape) and t.size <= self.limit for t in _types(node))
            and is_sized(tuple(node.attrs.values()))
        )

    def constants(self, node: Node) -> tuple[Constant, ...] | None:
        """What the node gives; None where it stays."""
        if node.op.traits.creation and node.outputs[0].ndim:
            self.made[node.outputs[0]] = node
            return None
        try:
            found = self.run(node)
        except LaminaError:
            return None
        pairs = zip(node.outputs, found, strict=True)
        return tuple(Constant(a, v.hint if a.ndim else None, v.type) for v, a in pairs)

    def run(self, node: Node) -> tuple[np.ndarray, ...]:
        types = tuple(None if v is None else v.type for v in node.inputs)
        call, _ = executor(node.op, types, node.attrs)
        with np.errstate(all="ignore"):
            found = call(*(None if v is None else self.array(v) for v in node.inputs))
        return found if isinstance(found, tuple) else (found,)

    def array(self, value: Value) -> np.ndarray:
        return value.data if isinstance(value, Constant) else self.run(self.made[value])[0]


def _types(node: Node) -> Iterator[Type]:
    return (v.type for v in node.outputs)


def is_sized(attr: Any) -> bool:
    """Whether no size in an attr, or in a tuple of them, is a symbol's."""
    return all(map(is_sized, attr)) if type(attr) is tuple else not isinstance(attr, Dim)
