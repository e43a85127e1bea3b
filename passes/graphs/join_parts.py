"""A sum of gradients of slices that lie side by side is the slices' gradients joined.

    graph f(%a: f32[3], %b: f32[1,3]) -> (f32[2,3]) {
      %0 = unview(%a) {shape=(2,3), chain=(("basic_index",(("index",(("int",0),("slice",0,3,1))),)),)} : f32[2,3]
      %1 = unview(%b) {shape=(2,3), chain=(("basic_index",(("index",(("slice",1,2,1),("slice",0,3,1))),)),)} : f32[2,3]
      %2 = add(%0, %1) : f32[2,3]
      return %2
    }
    ->
    graph f(%a: f32[3], %b: f32[1,3]) -> (f32[2,3]) {
      %0 = reshape(%a) {shape=(1,3)} : f32[1,3]
      %1 = cat(%0, %b) {dim=0, sizes=(1,1)} : f32[2,3]
      %2 = add(%1, 0.0:f32) : f32[2,3]
      return %2
    }

A loop over x[t] leaves such sums behind, in which each of T steps adds to T times what it is about; so does
one product for queries, keys and values that is cut in three along its columns.  The bits
are the same: at every place one term is a gradient and the others, one at least, are 0.0; the 0.0 that is
added at the end makes 0.0 of -0.0, as they do.
"""  # noqa: E501

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from ...ir.graph import Constant, Graph, Node, Value
from ...ir.indices import whole
from ...ir.op import REGISTRY
from ...ir.types import Shape
from ...ir.write import need_values


class Slice(NamedTuple):
    """The part of a sum, from `first` to before `end` along a dimension, that is a value's."""

    dim: int
    first: int
    end: int
    value: Value


def join_parts(graph: Graph) -> Graph:
    """The graph with each sum of slices' gradients that together are the whole, each place once, as one
    `cat`.

    What it leaves unused is for `dce` to drop.  Raises GraphError for a graph with writes.
    """
    need_values("join_parts", graph)
    uses = Counter(v for node in graph.nodes for v in node.inputs)
    uses.update(graph.results)
    found: dict[Value | None, list[Slice]] = {}
    for node in graph.nodes:
        if node.op is REGISTRY["unview"]:
            if uses[node.outputs[0]] == 1 and (part := _slice(node)):
                found[node.outputs[0]] = [part]
        elif node.op is REGISTRY["add"] and all(v in found and uses[v] == 1 for v in node.inputs):
            one, two = (found.pop(v) for v in node.inputs)
            one.extend(two)  # the sum before is for nothing else
            found[node.outputs[0]] = one
    sums = {v: sorted(slices, key=lambda part: part.first) for v, slices in found.items() if len(slices) > 1}
    sums = {v: slices for v, slices in sums.items() if v is not None and _fill(slices, v.shape)}
    if not sums:
        return graph
    nodes: list[Node] = []
    for node in graph.nodes:
        nodes += _joined(node, sums[node.outputs[0]]) if node.outputs[0] in sums else [node]
    return graph.replace(nodes=nodes)


def _slice(node: Node) -> Slice | None:
    """What a gradient of a row, or of a slice along one dimension, is of the whole; None for any other
    view's."""
    (value,), shape, chain = node.inputs, node.attrs["shape"], node.attrs["chain"]
    if len(chain) != 1 or chain[0][0] != "basic_index" or not shape or value is None:
        return None
    index = dict(chain[0][1])["index"]
    if len(index) != len(shape) or not value.dtype.is_floating_point:
        return None
    cut = [dim for dim, part in enumerate(index) if part != whole(shape[dim])]
    dim = cut[0] if cut else 0
    if len(cut) > 1 or not isinstance(shape[dim], int):
        return None
    match index[dim]:
        case ("int", at) if dim == 0:  # columns one by one are not joined
            return Slice(0, at, at + 1, value)
        case ("slice", low, high, 1):
            return Slice(dim, low, high, value)
    return None


def _fill(slices: list[Slice], shape: Shape) -> bool:
    """Whether the slices, in order, are all of the shape, and each place of it once."""
    dim = slices[0].dim
    side_by_side = all(one.end == two.first for one, two in pairwise(slices))
    along = all(part.dim == dim for part in slices)
    return along and side_by_side and slices[0].first == 0 and slices[-1].end == shape[dim]


def _joined(node: Node, slices: list[Slice]) -> list[Node]:
    """The nodes that give what a sum of slices gives."""
    made: list[Node] = []

    def emit(name: str, *inputs: Value, **attrs: Any) -> Value:
        op = REGISTRY[name]
        made.append(
            Node(op, inputs, (Value(op.infer(*(v.type for v in inputs), **attrs)),), attrs, node.where)
        )
        return made[-1].outputs[0]

    (out,) = node.outputs
    terms, dim = [], slices[0].dim
    for _, first, end, value in slices:
        shape = (*out.shape[:dim], end - first, *out.shape[dim + 1 :])
        terms.append(value if value.shape == shape else emit("reshape", value, shape=shape))
    sizes = tuple(part.end - part.first for part in slices)
    joined, zero = emit("cat", *terms, dim=dim, sizes=sizes), Constant(np.zeros((), out.dtype.numpy))
    made.append(Node(node.op, (joined, zero), (out,), dict(node.attrs), node.where))
    return made
