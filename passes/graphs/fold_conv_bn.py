"""Folds a batch norm of given statistics into the convolution or linear layer before it.

    graph f(%x: f32[1,2,5,5], %w: f32[4,2,3,3], %mean: f32[4], %var: f32[4]) -> (f32[1,4,3,3]) {
      %0 = conv2d(%x, %w, none) {...} : f32[1,4,3,3]
      %1 = batch_norm_eval(%0, %mean, %var, none, none) {eps=1e-05} : f32[1,4,3,3]
      return %1
    }
    ->
    graph f(%x: f32[1,2,5,5], %w: f32[4,2,3,3], %mean: f32[4], %var: f32[4]) -> (f32[1,4,3,3]) {
      %0 = add(%var, 1e-05:f32) : f32[4]
      %1 = rsqrt(%0) : f32[4]
      %2 = reshape(%1) {shape=(4,1,1,1)} : f32[4,1,1,1]
      %3 = mul(%w, %2) : f32[4,2,3,3]
      %4 = mul(%mean, %1) : f32[4]
      %5 = neg(%4) : f32[4]
      %6 = conv2d(%x, %3, %5) {...} : f32[1,4,3,3]
      return %6
    }

What is computed anew depends on weights alone, so it goes into the prologue and runs when a weight changes.
Rounding differs: each weight takes part with three roundings more.
"""

from __future__ import annotations

from typing import Any

from ...ir.graph import Builder, Constant, Graph, Node, Value
from ...ir.ops.channel_norm import batch_norm_eval
from ...ir.ops.powers import rsqrt
from ...ir.ops.view import reshape
from ...ir.write import need_values

LAYERS = ("conv1d", "conv2d", "conv3d", "linear")


def fold_conv_bn(graph: Graph) -> Graph:
    """The graph with each batch_norm_eval that alone uses a layer's output folded into that layer.

    It stays where the layer's output is used otherwise, where a weight or statistic is computed in the graph
    (then nothing would be saved), for halves (whose folded weights would be rounded), where the norm's
    channels are not the layer's, and in training: batch_norm_train is another op.  Raises GraphError for a
    graph with writes.
    """
    need_values("fold_conv_bn", graph)
    folded = _foldable(graph)
    if not folded:
        return graph
    gone = set(folded.values())
    b = Builder.extending(graph.replace(nodes=()))
    with b:
        for node in graph.nodes:
            if node in folded:
                b.append(_folded(b, folded[node], node))
            elif node not in gone:
                b.append(node)
    return b.finish(graph.results)


def _foldable(graph: Graph) -> dict[Node, Node]:
    """For each norm that folds, the layer it folds into."""
    uses: dict[Value, int] = {}
    for value in graph.used():
        uses[value] = uses.get(value, 0) + 1
    weights = set(graph.params)
    layers: dict[Value, Node] = {}
    found = {}
    for node in graph.nodes:
        if node.op.name in LAYERS:
            layers[node.outputs[0]] = node
        elif node.op is batch_norm_eval and node.inputs[0] in layers:
            layer = layers[node.inputs[0]]
            known = [v for v in (*layer.inputs[1:], *node.inputs[1:]) if v is not None]
            if (
                uses[layer.outputs[0]] == 1
                and all(v in weights or isinstance(v, Constant) for v in known)
                and all(v.dtype is node.outputs[0].dtype is v.dtype.compute for v in known)
                and _channels_agree(layer)
            ):
                found[node] = layer
    return found


def _channels_agree(layer: Node) -> bool:
    """Whether the layer's channels stand in dim 1, where a norm looks for its own."""
    weight = layer.inputs[1]
    assert weight is not None, "a layer has a weight"
    return layer.outputs[0].ndim == weight.ndim


def _folded(b: Builder, layer: Node, norm: Node) -> Node:
    """The layer that gives the norm's output: weight * scale, and (bias - mean) * scale + the norm's bias."""
    x, weight, bias = layer.inputs
    _, mean, variance, gain, shift = norm.inputs
    assert weight is not None, "a layer has a weight"
    b.where = norm.where
    scale: Any = rsqrt(variance + norm.attrs["eps"])
    if gain is not None:
        scale = scale * gain
    row = (weight.shape[0], *(1 for _ in weight.shape[1:]))
    new_weight = weight * reshape(scale, row)
    offset = -(mean * scale) if bias is None else (bias - mean) * scale
    if shift is not None:
        offset = offset + shift
    return layer.replace(inputs=(x, new_weight, offset), outputs=norm.outputs)
