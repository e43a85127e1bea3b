"""Split a graph: what it computes of frozen params (weights) alone, and the rest.

    graph f(%x: f32[4,8], %w: f32[3,8], %s: f32[3,1]) -> (f32[4,3]) {
      %0 = mul(%w, %s) : f32[3,8]
      %1 = linear(%x, %0, none) : f32[4,3]
      return %1
    }
    ->
    graph f_weights(%w: f32[3,8], %s: f32[3,1]) -> (f32[3,8]) {
      %0 = mul(%w, %s) : f32[3,8]
      return %0
    }
    graph f(%x: f32[4,8], %0: f32[3,8]) -> (f32[4,3]) {
      %1 = linear(%x, %0, none) : f32[4,3]
      return %1
    }

An export runs the first once and stores its results: convolutions with their norms folded in, and nothing of
the norms.  For programs passes/programs/prologue.py does the like, after layouts are chosen.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ...ir.graph import Constant, Graph, Node, Value
from .dce import dce
from .fold_constants import is_sized


def freeze(graph: Graph, frozen: frozenset[int]) -> tuple[Graph, Graph]:
    """(the graph of the weights, the rest); the results of the first are the last params of the second.

    frozen: positions of params; those that the rest reads itself are among the results too.  Views that the
    rest reads and what repeats elements stay there: storing them would only be larger.
    """
    fixed = fixed_by({graph.params[i] for i in frozen}, graph.nodes)
    early: list[Node] = []
    late: list[Node] = []
    for node in graph.nodes:
        if fixed.issuperset(node.outputs):
            early.append(node)
            if not node.op.traits.view:
                continue
        late.append(node)
    late = list(dce(graph.replace(nodes=late)).nodes)  # without the views that only early nodes read
    used = {v for node in late for v in node.inputs if v is not None} | set(graph.results)
    made = dict.fromkeys(graph.params[i] for i in sorted(frozen))
    made |= dict.fromkeys(v for node in early for v in node.outputs)
    views = {v for node in late for v in node.outputs}
    handed = tuple(v for v in made if v in used and v not in views)
    weights = tuple(graph.params[i] for i in sorted(frozen))
    first = dce(Graph(f"{graph.name}_weights", weights, tuple(early), handed))
    inputs = tuple(p for i, p in enumerate(graph.params) if i not in frozen)
    return first, Graph(graph.name, (*inputs, *handed), tuple(late), graph.results)


def fixed_by(weights: Collection[Value], nodes: Iterable[Node]) -> set[Value]:
    """The values that weights alone decide, these among them."""
    fixed = {*weights}
    for node in nodes:
        if all(v is None or v in fixed or isinstance(v, Constant) for v in node.inputs) and _movable(node):
            fixed.update(node.outputs)
    return fixed


def _movable(node: Node) -> bool:
    """Whether a node of fixed inputs, whose sizes are therefore numbers, is fixed and worth storing."""
    traits = node.op.traits
    if traits.random or traits.host or traits.meets or traits.mutates:
        return False
    if not is_sized((*node.attrs.values(), *(v.type.shape for v in node.outputs))):
        return False  # of another size at the next call
    read = sum(v.type.size for v in node.inputs if v is not None)
    return sum(v.type.size for v in node.outputs) <= max(read, 4096)
