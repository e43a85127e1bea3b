"""The places of a graph's nodes as a list: in what is fused, those of the nodes inside of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .fused import fused
from .graph import Graph, Node
from .where import Where, joined


def nodes_of(graph: Graph) -> Iterator[Node]:
    """Every node in order; in place of what is fused the nodes of that.

    conv2d, fused {mul, add}, relu  ->  conv2d, mul, add, relu
    """
    for node in graph.nodes:
        yield from nodes_of(node.attrs["body"]) if node.op is fused else (node,)


def placed(graph: Graph, places: Iterable[Where]) -> Graph:
    """The graph with places for those nodes, one each; what is fused stands for what those in it do."""
    return _placed(graph, iter(places))


def _placed(graph: Graph, places: Iterator[Where]) -> Graph:
    nodes = []
    for node in graph.nodes:
        if node.op is fused:
            body = _placed(node.attrs["body"], places)
            where = joined(each.where for each in body.nodes)
            nodes.append(node.replace(attrs={"body": body}, where=where))
        else:
            nodes.append(node.replace(where=next(places)))
    return graph.replace(nodes=nodes)
