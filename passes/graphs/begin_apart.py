"""The first run of what repeats is written out, where weights alone decide what it multiplies.

    %h, %c = recur(%x, @zeros, @zeros, %w) {body=graph step(...) {... linear(%s, %w) ...}, count=9, ...}
    ->
    %0 = linear(@zeros, %w)                          once for all calls, where %w holds weights
    ...                                              what else the first run does
    %2, %3 = recur(%x[1:], %h0, %c0, %w) {body=graph step(...) {...}, count=8, ...}
    %h = cat((%h0, %2))

A recurrent layer that is given no state begins with zeros: one of its products is less at every call.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from math import prod

from ...ir.dims import hint
from ...ir.graph import Builder, Constant, Graph, Node, Value, substituted
from ...ir.op import REGISTRY
from ...ir.recur import is_split, recurrent
from .freeze import fixed_by

PRODUCTS = ("linear", "matmul")
SHARE = 8  # multiplications that are saved for each element that is copied


def begin_apart(graph: Graph, frozen: AbstractSet[int] = frozenset()) -> Graph:
    """The graph with such first runs before their loops.

    frozen: the positions of params that hold weights.
    """
    if all(node.op is not recurrent for node in graph.nodes):
        return graph
    fixed = fixed_by({graph.params[n] for n in frozen}, graph.nodes)
    used = {v for node in graph.nodes for v in node.inputs}.union(graph.results)
    became: dict[Value, Value] = {}
    with Builder.extending(graph.replace(nodes=())) as b:
        for node in graph.nodes:
            here = node.op is recurrent and _gains(node, fixed, used)
            node = substituted(node, became)
            if here:
                b.where = node.where
                became |= zip(node.outputs, _begun(b, node), strict=True)
            else:
                b.append(node)
        return b.finish([became.get(v, v) for v in graph.results])


def _gains(node: Node, fixed: AbstractSet[Value], used: AbstractSet[Value | None]) -> bool:
    """Whether the products that need not be computed are work enough."""
    attrs = node.attrs
    count, sequences, last = attrs["count"], attrs["sequences"], attrs["sequences"] + len(attrs["kept"])
    if not isinstance(count, int) or count < 2 or is_split(attrs.get("rows", 0)):
        return False
    body: Graph = attrs["body"]
    known = [v in fixed or isinstance(v, Constant) for v in node.inputs]
    given = [p for p, is_known in zip(body.params, known, strict=True) if is_known]
    of_states = _following(body, {*body.params[sequences:last]}) & fixed_by(given, body.nodes)
    saved = sum(_multiplications(n) for n in body.nodes if of_states.issuperset(n.outputs))
    copied = sum(prod(map(hint, v.shape)) for _, v in _whole(node) if v in used)
    return bool(saved) and saved >= SHARE * copied


def _following(body: Graph, values: set[Value]) -> set[Value]:
    """The values that hang on some."""
    found = set(values)
    for node in body.nodes:
        if not found.isdisjoint(node.inputs):
            found.update(node.outputs)
    return found


def _multiplications(node: Node) -> int:
    if node.op.name not in PRODUCTS or node.inputs[0] is None:
        return 0
    return prod(map(hint, (*node.outputs[0].shape, node.inputs[0].shape[-1])))


def _whole(node: Node) -> Iterator[tuple[int, Value]]:
    """The results that have an element of each run, and their numbers."""
    kept = node.attrs["kept"]
    return ((n, v) for n, v in enumerate(node.outputs) if n >= len(kept) or kept[n])


def _begun(b: Builder, node: Node) -> list[Value]:
    attrs, inputs = node.attrs, [v for v in node.inputs if v is not None]
    split, states, count = attrs["sequences"], len(attrs["kept"]), attrs["count"]
    sequences, fixed = inputs[:split], inputs[split + states :]
    first, rest = (count - 1, slice(0, count - 1)) if attrs["back"] else (0, slice(1, count))
    begun = b.inline(attrs["body"], *(s[first] for s in sequences), *inputs[split : split + states], *fixed)
    operands = (*(s[rest] for s in sequences), *begun[:states], *fixed)
    made = list(b.emit(recurrent, operands, {**attrs, "count": count - 1}).outputs)
    for n, _ in _whole(node):
        parts = [begun[n].unsqueeze(0), made[n]]
        made[n] = REGISTRY["cat"](parts[::-1] if attrs["back"] else parts, dim=0)
    return made
