"""Attention that a target has one kernel for stays one node, in place of the ops that it stands for.

    %3 = attention(%0, %1, %2) {is_causal=True, scale=None} : f16[8,12,512,64]
    ->
    %3 = whole_attention(%0, %1, %2) {is_causal=True, scale=None, precision='ieee'} : f16[8,12,512,64]

Its meaning is that of the record; its code is the target's own (`passes/triton/attention.py`).
"""

from __future__ import annotations

from typing import Any

from ...ir import lowering
from ...ir.dtypes import bfloat16, float16, float32
from ...ir.graph import Graph, Node
from ...ir.op import REGISTRY, Op
from ...ir.ops.attention import attention
from ...ir.types import Type

WIDEST = 256  # elements of a key or a value that registers hold


def _infer(*types: Type | None, precision: str, **attrs: Any) -> Any:
    return attention.infer(*types, **attrs)


def _reference(*arrays: Any, precision: str, **attrs: Any) -> Any:
    return attention.reference(*arrays, **attrs)


whole_attention = Op(
    "whole_attention",
    operands=attention.operands,
    optional=attention.optional,
    attrs=(*attention.attrs, "precision"),
    bind=attention.bind,
    infer=_infer,
    reference=_reference,
    lower=lowering.whole("a target's own kernel"),
    inner=attention.inner,
    samples=attention.samples,
    dtypes=attention.dtypes,
    doc=attention.__doc__,
)


def keep_attention(graph: Graph, precision: str) -> Graph:
    """The graph with those attentions whole that a GPU's kernel takes.

    precision: of products of f32, as `Precision` has it.
    """
    if not any(map(_is_taken, graph.nodes)):
        return graph
    return graph.replace(nodes=[_whole(node, precision) if _is_taken(node) else node for node in graph.nodes])


def _whole(node: Node, precision: str) -> Node:
    return node.replace(op=whole_attention, attrs={**node.attrs, "precision": precision})


def _is_taken(node: Node) -> bool:
    if node.op is not REGISTRY["attention"]:
        return False
    query, key, value, *_ = (v.type for v in node.inputs if v is not None)
    sizes = (*query.shape, *key.shape, *value.shape)
    if query.dtype not in (float16, bfloat16, float32) or not all(isinstance(n, int) for n in sizes):
        return False
    return 0 < query.shape[-1] <= WIDEST and value.shape[-1] <= WIDEST
