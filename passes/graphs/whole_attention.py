"""Attention that a target has kernels for stays whole, in place of the ops that it stands for.

    %3 = attention(%0, %1, %2) {is_causal=True, scale=None} : f16[8,12,512,64]
    %4, %5, %6 = attention_backward(%g, %0, %1, %2) {is_causal=True, scale=None} : f16[8,12,512,64], ...
    ->
    %3, %7 = attention_with_lse(%0, %1, %2) {..., groups=1} : f16[8,12,512,64], f32[8,12,512]
    %8 = sum(%g * %3, in f32)
    %4 = attention_to_query(%0, %1, %2, none, %g, %7, %8) {..., groups=1} : f16[8,12,512,64]
    %5, %6 = attention_to_key_value(%0, %1, %2, none, %g, %7, %8) {..., groups=1} : f16[8,12,512,64], ...

What the way there keeps for the way back is its result and one number for each query.  Heads of keys and
values that were repeated for the heads of queries (`enable_gqa`) are read where they are, and their
cotangents added up as they are made.  Meaning is in the records (`attention_kernels.py`), code is the
target's own (`passes/triton/attention.py`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ...ir.dtypes import bfloat16, float16, float32
from ...ir.graph import Builder, Graph, Node, Value, substituted
from ...ir.op import REGISTRY, Op
from ...ir.ops.cast import cast
from ...ir.ops.reduce import sum
from ...ir.ops.view import expand, reshape
from .attention_kernels import (
    attention_to_key_value,
    attention_to_query,
    attention_with_lse,
    whole_attention,
)

WIDEST = 256  # elements of a key or a value that registers hold
# Of f32 that nothing may round, where tensor cores take it: each factor as two parts, with errors like f32's.
# PyTorch's own kernel of f32 multiplies so, too (OpMultiplyAddFastF32).
UNROUNDED = "tf32x3"


def keep_attention(graph: Graph, precision: str) -> Graph:
    """The graph with those attentions whole that a GPU's kernels take.

    precision: of products of f32, as `Precision` has it.
    """
    return _Keeping(graph, precision).kept() if any(map(_is_taken, graph.nodes)) else graph


class Shared(NamedTuple):
    """Heads of keys or values that each serve several of the queries'.

    source: with the heads that there are, and maybe more dimensions of 1.  groups: as the records have it.
    """

    source: Value
    groups: int

    def heads(self, like: Value) -> Value:
        """[..., h, s, e], where like has the repeated heads."""
        shape = (*like.shape[:-3], like.shape[-3] // self.groups, *like.shape[-2:])
        return self.source if self.source.shape == shape else reshape(self.source, shape)


class _Keeping:
    """makers, readers: of the graph's values.  returns: the calls that have a way back.  became: what a value
    of the graph is now.  dropped: nodes that added up what is added up already.  lse: what calls left for
    their ways back, as (out, lse).
    """

    def __init__(self, graph: Graph, precision: str):
        self.graph, self.precision = graph, precision
        self.makers = {v: node for node in graph.nodes for v in node.outputs}
        self.readers: dict[Value, list[Node]] = {}
        for node in graph.nodes:
            for v in node.inputs:
                if v is not None:
                    self.readers.setdefault(v, []).append(node)
        self.results = set(graph.results)
        self.returns = {_call(node) for node in graph.nodes if _is_back(node) and _is_taken(node)}
        self.became: dict[Value, Value] = {}
        self.dropped: set[Node] = set()
        self.lse: dict[tuple, tuple[Value, Value]] = {}

    def kept(self) -> Graph:
        with Builder.extending(self.graph.replace(nodes=())) as b:
            for node in self.graph.nodes:
                b.where = node.where
                if node in self.dropped:
                    continue
                if not _is_taken(node):
                    b.append(substituted(node, self.became))
                elif _is_back(node):
                    self.back(b, node)
                else:
                    self.there(b, node, node.outputs[0])
            return b.finish([self.now(v) for v in self.graph.results])

    def now(self, value: Any) -> Any:
        return self.became.get(value, value)

    # ---- the way there
    def there(self, b: Builder, node: Node, out: Value) -> tuple[Value, Value] | None:
        """Append the kernel of a call whose result is `out`; returns what it keeps for a way back."""
        call = _call(node)
        inputs, attrs = self.operands(node, self.groups(node))
        if call not in self.returns:
            b.append(Node(whole_attention, inputs, (out,), attrs, node.where))
            return None
        query = node.inputs[-4]
        assert query is not None
        lse = Value(query.type.with_shape(query.shape[:-1]).with_dtype(float32), "lse")
        b.append(Node(attention_with_lse, inputs, (out, lse), attrs, node.where))
        self.lse[call] = out, lse
        return out, lse

    def operands(self, node: Node, groups: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Queries, keys, values and mask as a kernel takes them, and its attrs."""
        query, key, value, mask = (self.now(v) for v in node.inputs[-4:])
        if groups > 1:
            key, value = (self.now(self.shared(v).source) for v in node.inputs[-3:-1])
            key, value = (Shared(x, groups).heads(v) for x, v in zip((key, value), node.inputs[-3:-1]))
        return (query, key, value, mask), {**node.attrs, "precision": self.precision, "groups": groups}

    def groups(self, node: Node) -> int:
        key, value = (self.shared(v).groups for v in node.inputs[-3:-1])
        return key if key == value else 1

    def shared(self, value: Value | None) -> Shared:
        """Where the heads of a value were repeated, what they were."""
        assert value is not None
        maker, shape = self.makers.get(value), value.shape
        if value.ndim > 2 and maker is not None and maker.op is expand:
            (source,) = maker.inputs
            if source is not None and source.shape == (*shape[:-3], 1, *shape[-2:]):
                return Shared(source, int(shape[-3]))
        if value.ndim > 2 and maker is not None and maker.op is reshape:
            (spread,) = maker.inputs
            above = self.makers.get(spread) if spread is not None else None
            if spread is not None and above is not None and above.op is expand:
                (source,) = above.inputs
                groups = _groups(spread, value)
                if source is not None and groups and source.shape == (*spread.shape[:-3], 1, *shape[-2:]):
                    return Shared(source, groups)
        return Shared(value, 1)

    # ---- the way back
    def back(self, b: Builder, node: Node) -> None:
        g, query = node.inputs[:2]
        assert g is not None and query is not None
        out, lse = self.lse.get(_call(node)) or self.once_more(b, node)
        g = self.now(g)
        products = sum(_wide(g) * _wide(out), -1)
        to_query, to_key, to_value = node.outputs
        groups = self.groups(node)
        totals = [self.total(v, groups) for v in (to_key, to_value)]
        if None in totals:
            groups = 1
        inputs, attrs = self.operands(node, groups)
        more = (g, lse, products)
        b.append(Node(attention_to_query, (*inputs, *more), (to_query,), attrs, node.where))
        outputs = (to_key, to_value) if groups == 1 else (Value(inputs[1].type), Value(inputs[2].type))
        b.append(Node(attention_to_key_value, (*inputs, *more), outputs, attrs, node.where))
        if groups > 1:
            for made, nodes in zip(outputs, totals, strict=True):
                self.instead(made, nodes or ())

    def instead(self, made: Value, nodes: tuple[Node, ...]) -> None:
        """Have what is added up already stand for what the nodes would make."""
        for last in nodes[-1:]:
            (found,) = last.outputs
            self.became[found] = made if made.shape == found.shape else reshape(made, found.shape)
        self.dropped.update(nodes)

    def once_more(self, b: Builder, node: Node) -> tuple[Value, Value]:
        """The way there for a way back that comes without it."""
        query, key, value = node.inputs[1:4]
        assert query is not None and value is not None
        found = self.there(b, node, Value(query.type.with_shape((*query.shape[:-1], value.shape[-1]))))
        assert found is not None
        return found

    def total(self, value: Value, groups: int) -> tuple[Node, ...] | None:
        """The nodes that add a cotangent up over the heads that share one; None where others read it, too."""
        nodes: list[Node] = []
        while value not in self.results and len(self.readers.get(value, ())) == 1:
            (reader,) = self.readers[value]
            nodes.append(reader)
            if reader.op is sum:
                heads = value.ndim - 3
                is_all = reader.attrs["dim"] == (heads,) and value.shape[heads] == groups
                return tuple(nodes) if is_all and reader.attrs["dtype"] is None else None
            if len(nodes) > 1 or reader.op is not reshape or _groups(reader.outputs[0], value) != groups:
                return None
            (value,) = reader.outputs
        is_unread = value not in self.results and value not in self.readers
        return () if is_unread and not nodes else None


def _groups(spread: Value, value: Value) -> int:
    """How many heads of [..., h, s, e] share one where it is seen as [..., h / groups, groups, s, e]; 0 where
    it isn't.
    """
    if value.ndim < 3 or spread.ndim != value.ndim + 1:
        return 0
    heads, groups = spread.shape[-4:-2]
    is_so = (*spread.shape[:-4], heads * groups, *spread.shape[-2:]) == value.shape
    return int(groups) if is_so else 0


def _wide(x: Any) -> Any:
    return x if x.dtype is float32 else cast(x, float32)


def _call(node: Node) -> tuple:
    """What a way there and its way back have in common."""
    return (*node.inputs[-4:], *node.attrs.values())


def _is_back(node: Node) -> bool:
    return node.op is _record("attention_backward")


def _record(name: str) -> Op | None:
    return REGISTRY.get(name)


def _is_taken(node: Node) -> bool:
    is_back = _is_back(node)
    if node.op is not _record("attention") and not is_back:
        return False
    query, key, value = (v.type for v in node.inputs[-4:-1] if v is not None)
    sizes = (*query.shape, *key.shape, *value.shape)
    if query.dtype not in (float16, bfloat16, float32) or not all(isinstance(n, int) for n in sizes):
        return False
    narrow = 0 < query.shape[-1] <= WIDEST and value.shape[-1] <= WIDEST
    return narrow and (not is_back or value.shape[-1] > 0)
