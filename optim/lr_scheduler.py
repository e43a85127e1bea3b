"""Learning-rate schedules: each says what the rates of an epoch are, in closed form where there is one."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..ir.errors import ArgumentError, ArgumentValueError
from .cycles import CyclicLR, OneCycleLR
from .optimizer import Optimizer
from .schedule import (
    EPOCH_DEPRECATION_WARNING as EPOCH_DEPRECATION_WARNING,  # asked for here
)
from .schedule import (
    Curve,
    LRScheduler,
    SmoothCurve,
    attributes,
    begin,
    current,
    for_each_group,
    scaled,
    set_rate,
)

__all__ = [
    "ChainedScheduler", "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "CyclicLR",
    "ExponentialLR", "LRScheduler", "LambdaLR", "LinearLR", "MultiStepLR", "MultiplicativeLR", "OneCycleLR",
    "PolynomialLR", "ReduceLROnPlateau", "SequentialLR", "StepLR",
]  # fmt: skip


class LambdaLR(LRScheduler):
    """lr = base * lr_lambda(epoch); one function, or one for each group."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Callable | Sequence[Callable], last_epoch: int = -1):
        self.lr_lambdas = for_each_group(optimizer, "lr_lambda", lr_lambda)
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        return [base * f(self.last_epoch) for base, f in zip(self.base_lrs, self.lr_lambdas, strict=True)]

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer; of functions that are objects, their attributes."""
        return {**super().state_dict(), "lr_lambdas": [attributes(f) for f in self.lr_lambdas]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` returned; functions stay, objects get their attributes."""
        super().load_state_dict({k: v for k, v in state_dict.items() if k != "lr_lambdas"})
        for own, saved in zip(self.lr_lambdas, state_dict.get("lr_lambdas", ()), strict=False):
            if saved is not None:
                own.__dict__.update(saved)


class MultiplicativeLR(LambdaLR):
    """lr is multiplied by lr_lambda(epoch) after each epoch; one function, or one for each group."""

    def _initial_step(self):
        self.last_epoch += 1
        self._set(current(self.optimizer))

    def get_lr(self):
        if not self.last_epoch:
            return current(self.optimizer)
        rates = zip(current(self.optimizer), self.lr_lambdas, strict=True)
        return [rate * f(self.last_epoch) for rate, f in rates]


class StepLR(Curve):
    """lr = base * gamma ** (epoch // step_size)."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1):
        if not isinstance(step_size, int) or step_size < 1:
            raise ArgumentValueError(f"StepLR: step_size must be a positive int, not {step_size!r:.60}")
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        return scaled(self, self.gamma ** (self.last_epoch // self.step_size))


class MultiStepLR(Curve):
    """lr = base * gamma ** (how many of `milestones` have been reached)."""

    def __init__(
        self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1
    ):
        self.milestones, self.gamma = Counter(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        reached = bisect_right(sorted(self.milestones.elements()), self.last_epoch)
        return scaled(self, self.gamma**reached)

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer; the milestones as a plain dict, which can be saved."""
        return {**super().state_dict(), "milestones": dict(self.milestones)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        super().load_state_dict(state_dict)
        self.milestones = Counter(self.milestones)


class ConstantLR(Curve):
    """lr = base * factor for the first `total_iters` epochs, then base."""

    def __init__(
        self, optimizer: Optimizer, factor: float = 1 / 3, total_iters: int = 5, last_epoch: int = -1
    ):
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        return scaled(self, self.factor if self.last_epoch < self.total_iters else 1.0)


class LinearLR(SmoothCurve):
    """lr goes from base * start_factor to base * end_factor in `total_iters` epochs, in a straight line."""

    def __init__(
        self, optimizer: Optimizer, start_factor: float = 1 / 3, end_factor: float = 1.0,
        total_iters: int = 5, last_epoch: int = -1,
    ):  # fmt: skip
        if not 0 < start_factor <= 1 or not 0 <= end_factor <= 1:
            raise ArgumentValueError(f"LinearLR: factors must lie in (0, 1]: {start_factor}, {end_factor}")
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        done = min(self.last_epoch, self.total_iters) / self.total_iters
        return scaled(self, self.start_factor + (self.end_factor - self.start_factor) * done)


class ExponentialLR(SmoothCurve):
    """lr = base * gamma ** epoch."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1):
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        return scaled(self, self.gamma**self.last_epoch)


class PolynomialLR(SmoothCurve):
    """lr = base * (1 - epoch / total_iters) ** power, and 0 from then on."""

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1):
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        return scaled(self, (1 - min(self.last_epoch, self.total_iters) / self.total_iters) ** self.power)


class CosineAnnealingLR(SmoothCurve):
    """lr = eta_min + (base - eta_min) * (1 + cos(pi * epoch / T_max)) / 2.

    Source: Loshchilov and Hutter, SGDR: stochastic gradient descent with warm restarts, 2017.
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1):
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        share = (1 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2
        return [self.eta_min + (base - self.eta_min) * share for base in self.base_lrs]

    def _resume(self):  # as PyTorch has it, whatever the rates are
        self.last_epoch += 1
        self._set(self.get_lr())


class CosineAnnealingWarmRestarts(LRScheduler):
    """Cosine annealing that starts over after T_0 epochs, then after T_mult times as many, and so on.

    `step` takes fractions of an epoch too. Source: as of CosineAnnealingLR.
    """

    def __init__(
        self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1
    ):
        for name, value in (("T_0", T_0), ("T_mult", T_mult)):
            if not isinstance(value, int) or value < 1:
                raise ArgumentValueError(f"{name} must be a positive int, not {value}")
        self.T_0, self.T_mult, self.eta_min = T_0, T_mult, eta_min
        super().__init__(optimizer, last_epoch)

    @property
    def T_cur(self) -> float:
        """How many epochs ago the last restart was."""
        return self._period()[0]

    @property
    def T_i(self) -> int:
        """How many epochs the current period has."""
        return self._period()[1]

    def _period(self) -> tuple[float, int]:
        length, into = self.T_0, float(self.last_epoch)
        while into >= length:
            into -= length
            length *= self.T_mult
            if self.T_mult == 1:
                into %= length
        return into, length

    def step(self, epoch: float | None = None) -> None:
        """Go to the next epoch, or to `epoch`, which may be a fraction, and set its rates."""
        if epoch is not None and not epoch >= 0:
            raise ArgumentValueError(f"step: an epoch is not negative: {epoch}")
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch  # type: ignore[assignment]
        self._set(self.get_lr())

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer."""
        into, length = self._period()
        return {
            **super().state_dict(),
            "T_cur": into,
            "T_i": length,
            "last_epoch": math.floor(self.last_epoch),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        super().load_state_dict({k: v for k, v in state_dict.items() if k not in ("T_cur", "T_i")})
        self.last_epoch += state_dict.get("T_cur", 0) % 1

    def get_lr(self):
        into, length = self._period()
        share = (1 + math.cos(math.pi * into / length)) / 2
        return [self.eta_min + (base - self.eta_min) * share for base in self.base_lrs]


class ChainedScheduler(LRScheduler):
    """Several schedules of one optimizer, which all step together."""

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None):
        self._schedulers = list(schedulers)
        if not self._schedulers:
            raise ArgumentValueError("ChainedScheduler(schedulers): there must be at least one")
        self.optimizer = optimizer or self._schedulers[0].optimizer
        for i, scheduler in enumerate(self._schedulers):
            if scheduler.optimizer is not self.optimizer:
                raise ArgumentValueError(f"ChainedScheduler: schedule {i} is of another optimizer")
        self._last_lr = current(self.optimizer)

    def _begin(self) -> None:
        bases = [group["initial_lr"] for group in self.optimizer.param_groups]
        rates = list(bases)
        for scheduler in self._schedulers:  # each as far from the base as alone
            begin(scheduler)
            parts = zip(rates, current(self.optimizer), bases, strict=True)
            rates = [rate * now / base if base else now for rate, now, base in parts]
        self._set(rates)

    def step(self, epoch: int | None = None) -> None:
        """Let each schedule step, in order."""
        if epoch is not None:
            raise ArgumentError("ChainedScheduler.step() takes no epoch")
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = current(self.optimizer)

    def state_dict(self) -> dict[str, Any]:
        """The state of each schedule."""
        return {"_last_lr": self._last_lr, "_schedulers": [s.state_dict() for s in self._schedulers]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        self._last_lr = state_dict["_last_lr"]
        for scheduler, state in zip(self._schedulers, state_dict["_schedulers"], strict=True):
            scheduler.load_state_dict(state)


class SequentialLR(LRScheduler):
    """One schedule after another, changing over at `milestones`."""

    def __init__(
        self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[int],
        last_epoch: int = -1,
    ):  # fmt: skip
        if any(isinstance(each, ReduceLROnPlateau) for each in schedulers):
            raise ArgumentValueError("SequentialLR: it has no metric for a ReduceLROnPlateau")
        if len(milestones) != len(schedulers) - 1:
            raise ArgumentValueError(f"{len(schedulers)} schedules need {len(schedulers) - 1} milestones")
        self._schedulers, self._milestones = list(schedulers), list(milestones)
        for i, scheduler in enumerate(self._schedulers):
            if scheduler.optimizer is not optimizer:
                raise ArgumentValueError(f"SequentialLR: schedule {i} is of another optimizer")
        self.optimizer, self.last_epoch = optimizer, last_epoch + 1
        for group in optimizer.param_groups:
            set_rate(group, group["initial_lr"])  # each schedule has set the rates that it begins with
        begin(self._schedulers[0])
        self._last_lr = current(self.optimizer)

    def step(self, epoch: int | None = None) -> None:
        """Go to the next epoch, under the schedule whose turn it is."""
        self.last_epoch += 1
        turn = bisect_right(self._milestones, self.last_epoch)
        if turn and self._milestones[turn - 1] == self.last_epoch:
            begin(self._schedulers[turn])
        else:
            self._schedulers[turn].step()
        self._last_lr = current(self.optimizer)

    def state_dict(self) -> dict[str, Any]:
        """The epoch, the milestones, and the state of each schedule."""
        own = {"_milestones": self._milestones, "last_epoch": self.last_epoch, "_last_lr": self._last_lr}
        return {**own, "_schedulers": [s.state_dict() for s in self._schedulers]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        self.last_epoch, self._milestones = state_dict["last_epoch"], state_dict["_milestones"]
        self._last_lr = state_dict["_last_lr"]
        for scheduler, state in zip(self._schedulers, state_dict["_schedulers"], strict=True):
            scheduler.load_state_dict(state)


class ReduceLROnPlateau(LRScheduler):
    """Multiplies the rates by `factor` when a metric has not improved for more than `patience` epochs."""

    def __init__(
        self, optimizer: Optimizer, mode: str = "min", factor: float = 0.1, patience: int = 10,
        threshold: float = 1e-4, threshold_mode: str = "rel", cooldown: int = 0,
        min_lr: float | Sequence[float] = 0.0, eps: float = 1e-8,
    ):  # fmt: skip
        if factor >= 1.0:
            raise ArgumentValueError(f"factor must be less than 1, not {factor}")
        if mode not in ("min", "max"):
            raise ArgumentValueError(f"mode must be 'min' or 'max', not {mode!r}")
        if threshold_mode not in ("rel", "abs"):
            raise ArgumentValueError(f"threshold_mode must be 'rel' or 'abs', not {threshold_mode!r}")
        self.optimizer, self.mode, self.factor, self.patience = optimizer, mode, factor, patience
        self.threshold, self.threshold_mode = threshold, threshold_mode
        self.cooldown, self.eps = cooldown, eps
        self.min_lrs = for_each_group(optimizer, "min_lr", min_lr)
        self.default_min_lr = None if isinstance(min_lr, (list, tuple)) else min_lr
        self.mode_worse = math.inf if mode == "min" else -math.inf
        self.best, self.last_epoch = self.mode_worse, 0
        self.cooldown_counter = self.num_bad_epochs = 0
        self._last_lr = current(optimizer)

    def is_better(self, metric: float, best: float) -> bool:
        """Whether `metric` improves on `best` by more than the threshold."""
        sign = 1 if self.mode == "min" else -1
        if math.isinf(best):
            return sign * metric < sign * best
        margin = self.threshold * (best if self.threshold_mode == "rel" else 1.0)
        return sign * metric < sign * (best - sign * margin)

    @property
    def in_cooldown(self) -> bool:
        """Whether the rates were reduced just now, and bad epochs are not counted."""
        return self.cooldown_counter > 0

    def step(self, metrics: Any, epoch: int | None = None) -> None:  # type: ignore[override]
        """Take note of an epoch's metric, a number or a tensor of one element."""
        metric = float(metrics)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self.is_better(metric, self.best):
            self.best, self.num_bad_epochs = metric, 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            groups = len(self.optimizer.param_groups)
            if groups != len(self.min_lrs):  # some were added
                if self.default_min_lr is None:
                    raise ArgumentValueError(
                        f"ReduceLROnPlateau: The number of param groups in the optimizer, {groups}, "
                        "is not that of "
                        f"min_lr, {len(self.min_lrs)}",
                        "append to the schedule's min_lrs for each group that is added",
                    )
                self.min_lrs = [self.default_min_lr] * groups
            for group, lowest in zip(self.optimizer.param_groups, self.min_lrs, strict=True):
                old = float(group["lr"])
                new = max(old * self.factor, lowest)
                if old - new > self.eps:
                    set_rate(group, new)
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        self._last_lr = current(self.optimizer)

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer."""
        return {k: v for k, v in self.__dict__.items() if k != "optimizer"}


_LRScheduler = LRScheduler  # as older programs spell it
