"""Averages of a model's weights over training: AveragedModel, what it averages by, and batch norms anew.

Source: Izmailov et al., Averaging weights leads to wider optima and better generalization, 2018; Polyak and
Juditsky, Acceleration of stochastic approximation by averaging, 1992.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

from ..ir.dtypes import int64
from ..ir.errors import ArgumentError, ArgumentValueError
from ..runtime import Tensor, no_grad, tensor
from .module import Module
from .norm import _BatchNorm


def get_ema_avg_fn(decay: float = 0.999) -> Callable:
    """(average, current, count) -> decay * average + (1 - decay) * current. Raises ArgumentValueError."""
    need_share(decay)

    def average(kept: Tensor, current: Tensor, count: Any) -> Tensor:
        return decay * kept + (1 - decay) * current

    return average


def get_swa_avg_fn() -> Callable:
    """(average, current, count) -> the mean of `count` + 1 values."""

    def average(kept: Tensor, current: Tensor, count: Any) -> Tensor:
        return kept + (current - kept) / (count + 1)

    return average


def get_ema_multi_avg_fn(decay: float = 0.999) -> Callable:
    """As get_ema_avg_fn, of lists, of which the first is written."""
    return in_place(get_ema_avg_fn(decay))


def get_swa_multi_avg_fn() -> Callable:
    """As get_swa_avg_fn, of lists, of which the first is written."""
    return in_place(get_swa_avg_fn())


def in_place(average: Callable) -> Callable:
    """`average` of two lists of tensors, written over the first."""

    def write(kept: Iterable[Tensor], current: Iterable[Tensor], count: Any) -> None:
        with no_grad():
            for old, new in zip(kept, current):
                old.copy_(average(old, new, count))

    return write


def need_share(decay: Any) -> None:
    """Refuse a decay that is no share. Raises ArgumentValueError."""
    if not 0.0 <= decay <= 1.0:
        raise ArgumentValueError(f"decay must lie in [0, 1], not {decay}")


class AveragedModel(Module):
    """A copy of a model, whose parameters are averages of that model's.

    avg_fn(average, current, count): the new average of one tensor; or multi_avg_fn of lists, which writes the
    first; by default the mean of all values. use_buffers: buffers are averaged too, not copied.
    Raises ArgumentError where both functions are given.
    """

    n_averaged: Tensor

    def __init__(
        self, model: Module, device: Any = None, avg_fn: Callable | None = None,
        multi_avg_fn: Callable | None = None, use_buffers: bool = False,
    ):  # fmt: skip
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise ArgumentError("AveragedModel: give avg_fn or multi_avg_fn, not both")
        self.module = copy.deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", tensor(0, dtype=int64))
        self.avg_fn, self.multi_avg_fn, self.use_buffers = avg_fn, multi_avg_fn, use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the averaged model computes."""
        return self.module(*args, **kwargs)

    def update_parameters(self, model: Module) -> None:
        """Take the model's parameters as they are now into the average; the first time they are it."""
        mine, theirs = list(self.module.parameters()), list(model.parameters())
        copied = list(zip(self.module.buffers(), model.buffers()))
        if self.use_buffers:
            mine, theirs = list(chain(mine, self.module.buffers())), list(chain(theirs, model.buffers()))
            copied = []
        mine, theirs = [x.detach() for x in mine], [x.detach() for x in theirs]
        with no_grad():
            if self.n_averaged == 0:
                for old, new in zip(mine, theirs):
                    old.copy_(new)
            elif self.avg_fn is not None:
                for old, new in zip(mine, theirs):
                    old.copy_(self.avg_fn(old, new, self.n_averaged))
            else:
                (self.multi_avg_fn or get_swa_multi_avg_fn())(mine, theirs, self.n_averaged)
            for old, new in copied:
                old.copy_(new)
            self.n_averaged += 1


def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Make the statistics of a model's batch norms those of a loader's batches, each counting alike.

    A batch is a tensor, or a list or tuple that begins with it.
    """
    norms = [m for m in model.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]
    if not norms:
        return
    momenta, training = [m.momentum for m in norms], model.training
    for m in norms:
        m.reset_running_stats()
        m.momentum = None
    model.train()
    try:
        with no_grad():
            for batch in loader:
                x = batch[0] if isinstance(batch, (list, tuple)) else batch
                model(x if device is None else x.to(device))
    finally:
        for m, momentum in zip(norms, momenta, strict=True):
            m.momentum = momentum
        model.train(training)
