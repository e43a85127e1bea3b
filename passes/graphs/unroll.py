"""What repeats is written out, for targets whose programs have no loops.

%3, %4 = recur(%x, %h) {body=graph step(%x: f32[8], %h: f32[8]) -> (f32[8], f32[8]) {...}, count=2, ...}
->
%5 = select(%x) {dim=0, index=0} : f32[8]
...                                               the body's nodes, twice
%9 = stack(%6, %8) {dim=0} : f32[2,8]
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...ir.graph import Builder, Graph, Node, Value, substituted
from ...ir.op import REGISTRY
from ...ir.recur import block_of, first_rows, is_split, joined_rows, order, recurrent


def unroll(graph: Graph) -> Graph:
    """The graph without `recur` nodes, which have a known count.  Raises ShapeError for a symbol."""
    if all(node.op is not recurrent for node in graph.nodes):
        return graph
    became: dict[Value, Value] = {}
    with Builder.extending(graph.replace(nodes=())) as b:
        for node in graph.nodes:
            node = substituted(node, became)
            if node.op is recurrent:
                b.where = node.where
                became |= zip(node.outputs, _runs(b, node), strict=True)
            else:
                b.append(node)
        return b.finish([became.get(v, v) for v in graph.results])


def _runs(b: Builder, node: Node) -> list[Value]:
    attrs, inputs = node.attrs, [v for v in node.inputs if v is not None]
    rows, split, kept = attrs.get("rows", 0), attrs["sequences"], attrs["kept"]
    if not is_split(rows):
        return _runs_of(b, attrs, inputs)
    every = int(inputs[0].shape[1])
    blocks = [
        _runs_of(b, attrs, [*block_of(inputs, slice(first, first + int(rows)), split, len(kept))])
        for first in first_rows(every, int(rows))
    ]
    return [
        joined_rows(found, every, 0 if n < len(kept) and not kept[n] else 1, REGISTRY["cat"])
        for n, found in enumerate(zip(*blocks, strict=True))
    ]


def _runs_of(b: Builder, attrs: Mapping[str, Any], inputs: list[Value]) -> list[Value]:
    body = unroll(attrs["body"])
    split, kept = attrs["sequences"], attrs["kept"]
    sequences, states, fixed = inputs[:split], inputs[split:][: len(kept)], inputs[split + len(kept) :]
    runs: list[tuple[Value, ...]] = []
    for t in order(int(attrs["count"]), attrs["back"]):
        elements = [s[t] for s in sequences]
        runs.append(b.inline(body, *elements, *states, *fixed))
        states = list(runs[-1][: len(kept)])
    last, runs = runs[-1], runs[::-1] if attrs["back"] else runs
    return [
        last[n] if n < len(kept) and not kept[n] else REGISTRY["stack"](list(every), dim=0)
        for n, every in enumerate(zip(*runs))
    ]
