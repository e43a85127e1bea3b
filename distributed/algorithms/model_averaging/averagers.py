"""Parameters that are averaged over ranks every so many steps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ....ir.errors import ArgumentValueError
from ....runtime import Parameter, Tensor, no_grad, ops
from ...collectives import all_reduce
from ...groups import resolved


class ModelAverager:
    """What averages a model's parameters.  step: how often it was called.  process_group: the ranks."""

    def __init__(self, process_group: Any = None):
        self.process_group, self.step = process_group, 0

    def average_parameters(self, params: Any) -> None:
        """Average, if it is time to, and count a step."""
        raise NotImplementedError(f"{type(self).__name__}.average_parameters")


class PeriodicModelAverager(ModelAverager):
    """Averages at each `period`-th step, from step `warmup_steps` on.

        optimizer.step()
        averager.average_parameters(model.parameters())

    Raises ArgumentValueError for a period under 1 or a negative warm-up.
    Source: Lin et al., Don't use large mini-batches, use local SGD, 2020.
    """

    def __init__(self, period: int, warmup_steps: int = 0, process_group: Any = None):
        super().__init__(process_group)
        if warmup_steps < 0:
            raise ArgumentValueError("Arg ``warmup_steps`` must be a non-negative number.")
        if period < 1:
            raise ArgumentValueError("Arg ``period`` must be a positive value.")
        self.period, self.warmup_steps = period, warmup_steps

    def average_parameters(self, params: Iterable[Tensor] | Iterable[dict[str, Any]]) -> None:
        """Average parameters, or those of an optimizer's groups, that have gradients, if it is time to."""
        if self.step >= self.warmup_steps and (self.step - self.warmup_steps) % self.period == 0:
            average_parameters(_listed(params), self.process_group)
        self.step += 1


def _listed(params: Iterable[Any]) -> list[Tensor]:
    found: list[Tensor] = []
    for one in params:
        found += one["params"] if isinstance(one, dict) else [one]
    return [p for p in found if p.grad is not None]


def average_parameters(params: Iterable[Parameter | Tensor], process_group: Any = None) -> None:
    """Write the means over all ranks into tensors, those of one dtype together."""
    group = resolved(process_group)
    if group is None:
        return
    by_dtype: dict[Any, list[Tensor]] = {}
    for p in params:
        by_dtype.setdefault(p.dtype, []).append(p)
    with no_grad():
        for held in by_dtype.values():
            flat = ops.cat([p.reshape(-1) for p in held]).div_(group.size())
            all_reduce(flat, group=group)
            for p, mean in zip(held, flat.split([p.numel() for p in held]), strict=True):
                p.copy_(mean.reshape(p.shape))
