"""Batch norm over the batches of all ranks of a group, as if one process had them all."""

from __future__ import annotations

from typing import Any

from ..ir import meeting
from ..ir.dims import same
from ..ir.dtypes import float64
from ..ir.errors import ArgumentValueError, ShapeError
from ..ir.ops import collectives
from ..ir.ops.channel_norm import batch_norm_eval
from ..runtime import Tensor, no_grad, ops
from .module import Module
from .norm import _BatchNorm


class SyncBatchNorm(_BatchNorm):
    """Batch norm of any rank of inputs, in training by the mean and variance over the batches of all ranks.

    process_group: whose batches, of all ranks unless given.  They may have different numbers of samples, some
    none.  All ranks go forward through it, and backward, in one order.  In a group of one rank, and in
    eval(), it is a BatchNorm.

    Shapes: [N, C, ...] -> the same.  Raises ArgumentValueError for a group that this process is not in, and
    on each rank where all of them together have one value a channel.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Any = None,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ):
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)
        self.process_group = process_group

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim < 2:
            raise ShapeError(
                f"SyncBatchNorm takes an input of at least 2 dimensions, not {input.ndim}",
                f"input: {input._meta}",
            )

    def forward(self, input: Tensor) -> Tensor:
        if not self.training or len(ranks := self._ranks()) == 1:
            return super().forward(input)
        self._check_input_dim(input)
        mean, variance, count = _over_ranks(input, ranks)
        if any(same(input.numel(), n * input.shape[1]) for n in (0, 1)) and count.item() == 1:
            raise ArgumentValueError(  # with more of its own a rank need not ask, which a recording can't
                f"SyncBatchNorm: a channel has one value on all ranks {[*ranks]}, whose variance is 0",
                f"this rank's input: {input._meta}",
                "train on more than one value a channel, or call eval()",
            )
        if self.track_running_stats and self.running_mean is not None:
            with no_grad():
                self._follow(mean, variance, count)
        return batch_norm_eval(input, mean, variance, self.weight, self.bias, self.eps)

    def _ranks(self) -> meeting.Group:
        group = self.process_group
        if group is None or isinstance(group, type):  # GroupMember.WORLD
            return meeting.everyone()
        if not hasattr(group, "ranks"):
            raise ArgumentValueError("SyncBatchNorm(process_group): this process is not in it")
        return group.ranks

    def _follow(self, mean: Tensor, variance: Tensor, count: Tensor) -> None:
        """Move the running statistics towards those of a batch of `count` values a channel."""
        share: Any = self.momentum
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
        if share is None:  # the mean over all batches
            share = 1.0 / self.num_batches_tracked.double()
        share = share * count.clamp(max=1)  # of nothing nothing follows
        unbiased = variance * (count / (count - 1).clamp(min=1))
        for running, value in ((self.running_mean, mean), (self.running_var, unbiased)):
            running.copy_(running + (value - running) * share)

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: Any = None) -> Module:
        """The module with every BatchNorm in it replaced by a SyncBatchNorm with the same state."""
        made = module
        if isinstance(module, _BatchNorm):
            made = cls(
                module.num_features, module.eps, module.momentum, module.affine, module.track_running_stats,
                process_group, bias=module.bias is not None,
            )  # fmt: skip
            if module.affine:
                made.weight, made.bias = module.weight, module.bias
            for name, buffer in module._buffers.items():
                setattr(made, name, buffer)
            made.training = module.training
        for name, child in module.named_children():
            made.add_module(name, cls.convert_sync_batchnorm(child, process_group))
        return made


def _over_ranks(input: Tensor, ranks: meeting.Group) -> tuple[Tensor, Tensor, Tensor]:
    """The mean and variance of each channel over all ranks' batches, and of how many values.

    Each rank gives its mean, its sum of squared distances from that, and its count; they are combined in
    float64 by their distances from the common mean, so that nothing is lost where the mean is large.

    Shapes: [N, C, ...] -> [C] and [C] in the dtype that is computed in, and a 0-d float64.
    Source: Chan, Golub and LeVeque, Updating formulae and a pairwise algorithm for computing sample
    variances, 1979, eq. 1.5.
    """
    dtype = input.dtype.compute
    dims = (0, *range(2, input.ndim))
    own_count = 1
    for d in dims:
        own_count = own_count * input.shape[d]
    x = input.to(dtype)
    center = ops.sum(x, dims) / max(own_count, 1)
    distance = x - center.reshape(1, -1, *(1 for _ in dims[1:]))
    spread = ops.sum(distance * distance, dims)
    own = ops.cat([ops.full((1,), own_count, dtype=float64), center.double(), spread.double()])
    every = collectives.all_gather(own.unsqueeze(0), 0, ranks)
    channels = input.shape[1]
    counts, centers, spreads = every[:, :1], every[:, 1 : 1 + channels], every[:, 1 + channels :]
    count = counts.sum()
    whole = count.clamp(min=1)
    mean = (counts * centers).sum(0) / whole
    away = centers - mean
    variance = (spreads + counts * away * away).sum(0) / whole
    return mean.to(dtype), variance.to(dtype), count
