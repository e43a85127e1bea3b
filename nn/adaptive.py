"""Softmax over many classes, of which the rare ones are cheap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..ir.errors import ArgumentValueError, ShapeError
from ..runtime import Tensor, ops
from .containers import ModuleList, Sequential
from .linear import Linear
from .module import Module


class _ASMoutput(NamedTuple):
    """The log-probability of each target, and the mean loss."""

    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """Log-softmax in two steps: the frequent classes and the clusters of rarer ones, then within a cluster.

    Classes are numbered from the most frequent.  cutoffs: where each cluster begins; each has `div_value`
    times fewer features than the one before.  Shapes: input [N, in_features], target [N] -> (output [N],
    loss []).
    Source: Grave et al. 2017, Efficient softmax approximation for GPUs.
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: Any = None,
        dtype: Any = None,
    ):
        super().__init__()
        bounds = list(cutoffs)
        if not bounds or sorted(set(bounds)) != bounds or bounds[0] <= 0 or bounds[-1] >= n_classes:
            raise ArgumentValueError(
                "AdaptiveLogSoftmaxWithLoss: cutoffs should be a sequence of unique, positive, "
                f"rising integers, from above 0 to below {n_classes}: {bounds}"
            )
        kind = {"device": device, "dtype": dtype}
        self.in_features, self.n_classes, self.cutoffs = in_features, n_classes, [*bounds, n_classes]
        self.div_value, self.head_bias = div_value, head_bias
        self.shortlist_size, self.n_clusters = bounds[0], len(bounds)
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, bias=head_bias, **kind)
        self.tail = ModuleList()
        for k, (low, high) in enumerate(zip(self.cutoffs, self.cutoffs[1:])):
            width = int(in_features // div_value ** (k + 1))
            self.tail.append(
                Sequential(
                    Linear(in_features, width, bias=False, **kind),
                    Linear(width, high - low, bias=False, **kind),
                )
            )

    def reset_parameters(self) -> None:
        """Draw all weights anew, as Linear does."""
        for module in (self.head, *(layer for cluster in self.tail for layer in cluster)):
            module.reset_parameters()

    def log_prob(self, input: Tensor) -> Tensor:
        """The log-probabilities of all classes.  Shapes: [N, in_features] -> [N, n_classes]."""
        return self._get_full_log_prob(input, self.head(input))

    def _get_full_log_prob(self, input: Tensor, head_output: Tensor) -> Tensor:
        """The same, of what the head makes of the input."""
        head = ops.log_softmax(head_output, -1)
        first = self.shortlist_size
        parts = [head[..., :first]]
        for k, cluster in enumerate(self.tail):
            parts.append(ops.log_softmax(cluster(input), -1) + head[..., first + k : first + k + 1])
        return ops.cat(parts, -1)

    def forward(self, input: Tensor, target: Tensor) -> _ASMoutput:
        if input.ndim not in (1, 2) or tuple(target.shape) != tuple(input.shape[:-1]):
            raise ShapeError(
                "AdaptiveLogSoftmaxWithLoss takes [N, in_features] and [N], or [in_features] and []",
                f"input: {input._meta}",
                f"target: {target._meta}",
            )
        rows, classes = input.reshape(-1, input.shape[-1]), target.reshape(-1)
        head = ops.log_softmax(self.head(rows), -1)
        first = self.shortlist_size
        # The class itself, or the cluster that it belongs to.
        place = classes
        for k, low in enumerate(self.cutoffs[:-1]):
            place = ops.where(classes >= low, first + k, place)
        output = head.gather(1, place.unsqueeze(1)).squeeze(1)
        for cluster, low, high in zip(self.tail, self.cutoffs, self.cutoffs[1:]):
            mine = ((classes >= low) & (classes < high)).nonzero().reshape(-1)
            if mine.numel():
                within = ops.log_softmax(cluster(rows.index_select(0, mine)), -1)
                chosen = within.gather(1, (classes.index_select(0, mine) - low).unsqueeze(1)).squeeze(1)
                output = output.index_add(0, mine, chosen)
        loss = (-output).mean()
        return _ASMoutput(output.reshape(target.shape), loss)

    def predict(self, input: Tensor) -> Tensor:
        """The most probable class of each row.  Shapes: [N, in_features] -> [N]."""
        return self.log_prob(input).argmax(-1)
