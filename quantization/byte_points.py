"""Where a graph's values are bytes: what its layers read, traced back to where that is computed.

%1 = relu(%0)                    a point: bytes are stored here, and all but results read them
%2 = max_pool2d(%1)              moves or chooses numbers: done on bytes
%3 = conv2d(%2, @w, @b)          a layer of bytes
%4 = add(%3, %2)                 reads what the bytes stand for
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..ir.dtypes import float32
from ..ir.graph import Graph, Node, Value
from .schemes import Layers, no_layers

POOLS = ("max_pool1d", "max_pool2d", "max_pool3d")
KINDS = {"linear": "Linear", "conv1d": "Conv1d", "conv2d": "Conv2d", "matmul": "matmul"}
OTHERS = {  # layers that stay in float, and why
    "conv3d": "there is no product of bytes in three dimensions",
    "conv_input_grad": "there is no transposed convolution of bytes",
}


@dataclass(frozen=True)
class Layer:
    """A layer of bytes.  point: the number of what it reads.  weight, bias: their paths in the module."""

    name: str
    node: Node
    point: int
    weight: str
    bias: str | None


@dataclass
class Points:
    """What of a graph is in bytes.

    values: those that are quantised, in order.  names: of each the first layer that it is for.  moved: nodes
    that are done on bytes, by their first output.  kept: layers that stay in float, and why.
    """

    layers: list[Layer] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    moved: set[Value] = field(default_factory=set)
    kept: dict[str, str] = field(default_factory=dict)


def points_of(graph: Graph, weights: Mapping[Value, str], chosen: Layers) -> Points:
    """The points of a graph.  weights: the paths of its last params.

    Raises QuantizationError where no layer can be quantised.
    """
    makers = {node.outputs[0]: node for node in graph.nodes}
    found = Points()
    candidates = [*_candidates(graph, weights)]
    kept = chosen.kept([name for name, _, why in candidates if why is None])
    found.kept |= {name: why for name, _, why in candidates if why is not None} | kept
    at: dict[Value, int] = {}
    turned: dict[Value, bool] = {}
    for name, node, why in candidates:
        if why is not None or name in kept:
            continue
        source: Any = node.inputs[0]
        moved = []
        while source in makers and _moves(makers[source]):
            moved.append(source)
            source = makers[source].inputs[0]
        if source in weights:
            found.kept[name] = "what it reads is a weight"
            continue
        weight, bias = ([*node.inputs[1:], None])[:2]
        turn = node.op.name == "matmul"
        if turned.setdefault(weight, turn) is not turn:
            found.kept[name] = "another layer reads its weight the other way round"
            continue
        found.moved |= {*moved}
        if source not in at:
            at[source] = len(found.values)
            found.values.append(source)
            found.names.append(name)
        added = None if bias is None else weights[bias]
        found.layers.append(Layer(name, node, at[source], weights[weight], added))  # type: ignore[index]
    if not found.layers:
        raise no_layers(found.kept)
    return found


def _moves(node: Node) -> bool:
    """Whether a node only moves the numbers of its first operand, or chooses among them."""
    moves = node.op.traits.view or node.op.name in POOLS or node.op.name == "clone"
    return moves and len(node.inputs) == 1 and node.inputs[0].dtype is node.outputs[0].dtype is float32


def _candidates(graph: Graph, weights: Mapping[Value, str]) -> Iterator[tuple[str, Node, str | None]]:
    """What may be a layer: its name, its node, and why it stays in float, if it does."""
    names: dict[str, int] = {}
    for node in graph.nodes:
        kind = node.op.name
        if kind not in KINDS and kind not in OTHERS:
            continue
        weight = node.inputs[1]
        if weight is None or weight not in weights:
            if kind == "linear" or kind.startswith("conv"):
                yield f"{kind} of computed weights", node, "its weight is computed anew at each call"
            continue
        path = weights[weight]
        name = path.removesuffix(".weight")
        names[name] = names.get(name, 0) + 1
        if names[name] > 1:  # called again: another point
            name = f"{name}#{names[name]}"
        yield name, node, OTHERS.get(kind) or _reason(node, weights)


def _reason(node: Node, weights: Mapping[Value, str]) -> str | None:
    x, weight = node.inputs[0], node.inputs[1]
    bias: Any = node.inputs[2] if len(node.inputs) > 2 else None
    if x is None or weight is None or x.dtype is not float32 or weight.dtype is not float32:
        return "it computes in other numbers than float32: model.float() can be quantised"
    if bias is not None and bias not in weights:
        return "its bias is computed anew at each call"
    if x.ndim < (weight.ndim if node.op.name.startswith("conv") else 2):
        return "what it reads has no batch: give data with one, x[None]"
    if node.op.name in ("linear", "matmul") and weight.ndim != 2:
        return "its weight is no matrix"
    if bias is not None and bias.shape != (node.outputs[0].shape[-1 if node.op.name == "linear" else 1],):
        return "its bias has not one number for each output"
    return None
