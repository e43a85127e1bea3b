"""Puts sizes in place of symbols, and one floating dtype in place of all, throughout a graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .dims import Dim, substitute
from .dtypes import DType
from .graph import Constant, Graph, Node, Value
from .table import has_symbols, table
from .types import Type, type_of


def specialise(graph: Graph, sizes: Mapping[str, int | Dim], dtype: DType | None = None) -> Graph:
    """The graph with `sizes` for its symbols: f32[n,3] -> f32[8,3] where n is 8.

    dtype: makes every floating type this one, in constants and attrs too; f16[n] -> f64[8].  Complex types
    become the one with such parts.
    """
    values: dict[Value, Value] = {}

    def element(own: DType) -> DType:
        if dtype is None or not own.inexact:
            return own
        return dtype.to_complex() if own.is_complex else dtype

    def kind(t: Type) -> Type:
        return type_of(element(t.dtype), tuple(substitute(n, sizes) for n in t.shape), t.device)

    def attr(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(attr, value))
        if isinstance(value, Dim):
            return substitute(value, sizes)
        if isinstance(value, DType):
            return element(value)
        return specialise(value, sizes, dtype) if isinstance(value, Graph) else value

    def define(value: Value) -> Value:
        made = values[value] = Value(kind(value.type), value.hint)
        return made

    def use(value: Value | None) -> Value | None:
        if isinstance(value, Constant) and value not in values and kind(value.type) != value.type:
            made = kind(value.type)
            values[value] = Constant(value.data.astype(made.dtype.numpy), value.hint, made)
        return None if value is None else values.get(value, value)

    params = tuple(map(define, graph.params))
    nodes = []
    for node in graph.nodes:
        inputs = tuple(map(use, node.inputs))
        attrs = {k: attr(v) for k, v in node.attrs.items()}
        if node.op is table and not has_symbols((*attrs["args"], *attrs["shape"])):
            values[node.outputs[0]] = Constant(table.reference(**attrs))
            continue
        nodes.append(Node(node.op, inputs, tuple(map(define, node.outputs)), attrs, node.where))
    return Graph(graph.name, params, tuple(nodes), tuple(map(use, graph.results)))


def sized(value: Any, sizes: Mapping[str, int]) -> Any:
    """A type or an attr with `sizes` for its symbols."""
    if isinstance(value, tuple):
        return tuple([sized(each, sizes) for each in value])
    if isinstance(value, Type):
        return type_of(value.dtype, sized(value.shape, sizes), value.device)
    if isinstance(value, Graph):
        return specialise(value, sizes)
    return substitute(value, sizes) if isinstance(value, Dim) else value
