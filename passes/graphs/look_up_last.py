"""A product of rows that are looked up in a table is looked up in the table's product.

    graph f(%ids: i64[4096], %table: f32[100,64], %w: f32[32,64]) -> (f32[4096,32]) {
      %0 = embedding(%ids, %table) {padding_idx=None} : f32[4096,64]
      %1 = linear(%0, %w, none) : f32[4096,32]
      return %1
    }
    ->
    graph f(%ids: i64[4096], %table: f32[100,64], %w: f32[32,64]) -> (f32[4096,32]) {
      %0 = linear(%table, %w, none) : f32[100,32]
      %1 = embedding(%ids, %0) {padding_idx=None} : f32[4096,32]
      return %1
    }

Where a table has fewer rows than are looked up (letters, bytes, classes), the products of its rows are made
once.  So it is on the way back, where the cotangents of a row's products are added up before they are
multiplied: in w's gradient, in the table's, and in a bias's.  Rounding differs there: sums are of the same
terms in another order.  What no index names takes no part, as before, be it inf or NaN.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ...ir.dims import Dim, has_hint, likely
from ...ir.dtypes import float32, float64
from ...ir.graph import Builder, Constant, Graph, Node, Value
from ...ir.ops.along import along, embedding
from ...ir.ops.compare import where
from ...ir.ops.gather import ungather
from ...ir.ops.matmul import linear, matmul
from ...ir.ops.reduce import sum as sum_
from ...ir.ops.view import expand, inverse, permute, reshape, transpose
from ...ir.types import Shape
from ...ir.write import need_values
from .cse import cse
from .simplify import simplify

FEWER = 2  # so many times as many rows are looked up as the table has
NEAR = 1 << 20  # bytes of the table's product, which is read in any order
LEAST = 16  # columns: of fewer a product takes no longer than looking up


class Rows(NamedTuple):
    """What rows a value holds: those that a node looks up, after views that leave rows whole."""

    looked_up: Node
    table: Value
    ids: Value
    views: tuple[Node, ...] = ()

    def places(self, value: Value) -> Any:
        """The index as the rows of the value stand."""
        index: Any = self.ids
        for view in self.views:
            index = _of_rows(view, index, view.outputs[0].shape)
        return reshape(index, value.shape[:-1])


class Sum(NamedTuple):
    """Cotangents that are added up in a table's rows.

    ids, views: where they belong, as after these views of the cotangents (of their products with a weight).
    product: that with the weight, where there is one.  rows: what they are multiplied by otherwise.
    """

    cotangents: Value
    table: Value
    ids: Value
    views: tuple[Node, ...] = ()
    product: Node | None = None
    rows: Rows | None = None

    def places(self) -> Any:
        """The index, a list in the order of the cotangents."""
        if self.rows is not None:
            return self.rows.places(self.cotangents)
        index: Any = reshape(self.ids, (self.ids.shape[0],))
        for view in reversed(self.views):
            (source,) = view.inputs
            assert source is not None
            if view.op is permute:
                index = permute(index, inverse(view.attrs["dims"][:-1]))
            else:
                index = _of_rows(view, index, source.shape)
        return reshape(index, (prod(self.cotangents.shape[:-1]),))

    def added(self) -> tuple[Any, Any]:
        """What the rows of the table get, and which of them get something."""
        places, rows = self.places(), self.table.shape[0]
        count, width = places.shape[0], self.cotangents.shape[-1]
        total = ungather(
            reshape(self.cotangents, (count, width)), along(places, 0, (rows, width)), 0, (rows, width)
        )
        ones = np.ones((1, 1), self.cotangents.dtype.numpy)
        return total, ungather(ones, along(places, 0, (rows, 1)), 0, (rows, 1)) > 0.0


def look_up_last(graph: Graph) -> Graph:
    """The graph with products of tables in place of products of their rows.  Raises GraphError for writes."""
    need_values("look_up_last", graph)
    if not any(node.op in (embedding, ungather) for node in graph.nodes):
        return graph
    found = _Found(graph)
    if not found.products and not found.sums:
        return graph
    b = Builder.extending(graph.replace(nodes=()))
    with b:
        for node in graph.nodes:
            b.where = node.where
            if node in found.products:
                node = _looked_up(node, found.products[node])
            elif node in found.sums:
                node = _summed(node, found.sums[node])
            b.append(node)
    if b.conditions:  # of sizes that are not known to be what they are
        return graph
    return cse(simplify(_without(b.finish(graph.results), found.products.values())))


class _Found:
    """What there is to do in a graph.

    products: the nodes that multiply rows.  sums: those that multiply cotangents by rows, or rows by them,
    that add products of them up in a table, or cotangents up for a bias.
    """

    def __init__(self, graph: Graph):
        self.makers = {v: node for node in graph.nodes for v in node.outputs}
        self.uses = Counter(graph.used())
        self.products: dict[Node, Rows] = {}
        self.sums: dict[Node, Sum] = {}
        rows: dict[Value | None, Rows] = {}
        for node in graph.nodes:
            source = node.inputs[0] if node.inputs else None
            if node.op is embedding:
                index, table = node.inputs
                assert index is not None and table is not None
                rows[node.outputs[0]] = Rows(node, table, index)
            elif source in rows and _leaves_rows(node):
                held = rows[source]
                rows[node.outputs[0]] = held._replace(views=(*held.views, node))
            elif node.op in (linear, matmul):
                self.product(node, rows)
            elif node.op is ungather:
                self.table_of_products(node)
        totals = {found.cotangents: found for found in self.sums.values() if found.rows is not None}
        known = set(graph.params)
        for node in graph.nodes:
            total = totals.get(node.inputs[0]) if node.op is sum_ and node.inputs[0] is not None else None
            if total is not None and total.ids in known and node.attrs["dim"] == (0,):
                self.sums[node] = total
            known.update(node.outputs)

    def product(self, node: Node, rows: dict[Value | None, Rows]) -> None:
        """Note rows @ weight, cotangents.T @ rows, and rows.T @ cotangents."""
        one, two = node.inputs[:2]
        if not _is_matrix(two):
            return
        if one in rows:
            if _pays(rows[one].table, node.outputs[0]):
                self.products[node] = rows[one]
            return
        maker = self.maker(one)
        if maker is None or maker.op is not transpose or not _is_matrix(one) or node.op is not matmul:
            return
        turned = maker.inputs[0]
        for held, cotangents in ((two, turned), (turned, two)):
            if held in rows and cotangents is not None and cotangents not in rows:
                table, ids = rows[held].table, rows[held].ids
                if _pays(table, cotangents):
                    self.sums[node] = Sum(cotangents, table, ids, rows=rows[held])

    def table_of_products(self, node: Node) -> None:
        """Note a table in which cotangents @ weight are added up."""
        values, index = node.inputs
        places = self.maker(index)
        if places is not None and places.op is expand:
            index = places.inputs[0]
        if node.attrs["dim"] or node.attrs["combine"] != "add" or not _is_matrix(values) or index is None:
            return
        assert values is not None
        if index.shape != (values.shape[0], 1):
            return
        views: tuple[Node, ...] = ()
        maker = self.maker(values)
        while maker is not None and self.uses[values] == 1 and _leaves_rows(maker):
            views, values = (maker, *views), maker.inputs[0]
            assert values is not None
            maker = self.maker(values)
        if maker is None or maker.op not in (linear, matmul) or self.uses[values] > 1:
            return
        cotangents, weight, *bias = maker.inputs
        if cotangents is None or cotangents.ndim < 2 or not _is_matrix(weight) or any(bias):
            return
        if _pays(node.outputs[0], cotangents):
            self.sums[node] = Sum(cotangents, node.outputs[0], index, views, maker)

    def maker(self, value: Value | None) -> Node | None:
        return None if value is None else self.makers.get(value)


def _without(graph: Graph, products: Iterable[Rows]) -> Graph:
    """The graph without what was looked up for products and nobody reads now.

    `dce` leaves the nodes that look up, as they refuse places; these are asked for in the product.
    """
    gone = {node for rows in products for node in (rows.looked_up, *rows.views)}
    read, kept = set(graph.results), []
    for node in reversed(graph.nodes):
        if node not in gone or node.outputs[0] in read:
            kept.append(node)
            read.update(v for v in node.inputs if v is not None)
    return graph.replace(nodes=kept[::-1])


def _looked_up(node: Node, rows: Rows) -> Node:
    """Rows of the table's product, in place of a product of rows.  Adds nodes to the active builder."""
    value, weight, *bias = node.inputs
    assert value is not None
    product: Any = node.op(rows.table, weight, *bias)
    inputs = (rows.places(value), product)
    return rows.looked_up.replace(inputs=inputs, outputs=node.outputs)  # which refuses what that refuses


def _summed(node: Node, found: Sum) -> Node:
    """What the node gives, of the cotangents added up.  Adds nodes to the active builder."""
    total, is_asked = found.added()
    if node.op is sum_:
        return node.replace(inputs=(total,))
    zero = Constant(np.zeros((), found.table.dtype.numpy))
    if found.product is not None:
        product: Any = found.product.op(total, *found.product.inputs[1:])
        return Node(where, (is_asked, product, zero), node.outputs, where=node.where)
    rows: Any = where(is_asked, found.table, zero)
    turned = node.inputs[1] is found.cotangents
    inputs = (transpose(rows, 0, 1), total) if turned else (transpose(total, 0, 1), rows)
    return node.replace(inputs=inputs)


def _is_matrix(value: Value | None) -> bool:
    return value is not None and value.ndim == 2


def _leaves_rows(node: Node) -> bool:
    """Whether a view's last dimension is its operand's."""
    source, out = node.inputs[0] if node.inputs else None, node.outputs[0]
    if source is None or not source.ndim:
        return False
    if node.op is reshape:
        return out.shape[-1:] == source.shape[-1:] != (0,)
    if node.op is transpose:
        return max(node.attrs["dim0"], node.attrs["dim1"]) < source.ndim - 1
    return node.op is permute and node.attrs["dims"][-1] == source.ndim - 1


def _of_rows(view: Node, index: Any, shape: Shape) -> Any:
    """A view of rows on their index; shape: that of rows after it."""
    if view.op is reshape:
        return reshape(index, shape[:-1])
    if view.op is transpose:
        return transpose(index, view.attrs["dim0"], view.attrs["dim1"])
    return permute(index, view.attrs["dims"][:-1])


def _pays(table: Value, rows: Value) -> bool:
    """Whether as many rows as a value has are worth adding up, or looking up in a table's product.

    Both have the columns of the value.
    """
    (count, columns), width, asked = table.shape, rows.shape[-1], prod(rows.shape[:-1])
    if table.dtype not in (float32, float64) or rows.dtype is not table.dtype:
        return False
    if any(isinstance(size, Dim) for size in (count, columns, width)) or min(columns, width) < LEAST:
        return False
    if count * width * table.dtype.itemsize > NEAR:
        return False
    if isinstance(asked, Dim):
        return has_hint(asked) and likely(asked, FEWER * count)
    return asked >= FEWER * count
