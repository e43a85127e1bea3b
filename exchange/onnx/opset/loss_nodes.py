"""Operators that tell how far scores are from classes."""

from __future__ import annotations

from ....nn import functional as F
from ..declared import Node, OnnxError
from .registry import Value, operator

NONE = -(1 << 63)  # a class to ignore that no target names


@operator("NegativeLogLikelihoodLoss")
def nll_loss(node: Node, scores: Value, classes: Value, weight: Value = None) -> Value:
    return F.nll_loss(scores, classes, **_settings(node, scores, classes, weight))


@operator("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy_loss(node: Node, scores: Value, classes: Value, weight: Value = None) -> Value:
    settings = _settings(node, scores, classes, weight)
    if len(node.outputs) == 1:
        return F.cross_entropy(scores, classes, **settings)
    log_prob = F.log_softmax(scores, 1)
    return F.nll_loss(log_prob, classes, **settings), log_prob


def _settings(node: Node, scores: Value, classes: Value, weight: Value) -> dict[str, Value]:
    """What a loss is told beside scores and classes."""
    if scores.ndim < 2 or classes.ndim != scores.ndim - 1:
        raise OnnxError(
            f"{node.op}: scores are [N, C, ...] and classes [N, ...]",
            f"scores: {[*scores.shape]}, classes: {[*classes.shape]}",
            str(node),
        )
    return {
        "weight": weight if weight is None else weight.detach(),  # is not learnt, though it be of the file
        "ignore_index": node.attr("ignore_index", NONE),
        "reduction": node.attr("reduction", "mean"),
    }
