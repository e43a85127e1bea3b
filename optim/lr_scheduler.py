"""Learning-rate schedules: each says what the rates of an epoch are, in closed form where there is one."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..ir.errors import ArgumentError, ArgumentValueError
from .optimizer import Optimizer


class LRScheduler:
    """Sets the learning rates of an optimizer's groups once an epoch.

    A schedule says in `rates` what they are after `last_epoch` calls of `step()`.  `base_lrs` are the rates that the
    groups began with (kept in the groups as "initial_lr").
    """

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1):
        if not isinstance(optimizer, Optimizer):
            raise ArgumentError(f"a schedule needs an optimizer, not {type(optimizer).__name__}")
        self.optimizer = optimizer
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", float(group["lr"]))
            elif "initial_lr" not in group:
                raise ArgumentValueError(
                    f"group {i} has no 'initial_lr', which a schedule resumed at epoch {last_epoch} starts from"
                )
        self.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self.step()

    def rates(self) -> list[float]:
        """The learning rate of each group at `last_epoch`."""
        raise ArgumentError(f"{type(self).__name__} does not say what its rates are")

    @property
    def current(self) -> list[float]:
        """The groups' rates as they stand."""
        return [float(group["lr"]) for group in self.optimizer.param_groups]

    def get_last_lr(self) -> list[float]:
        """The rates that the last `step()` set."""
        return self._last_lr

    def step(self, epoch: int | None = None) -> None:
        """Go to the next epoch (or to `epoch`) and set its rates."""
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        for group, rate in zip(self.optimizer.param_groups, self.rates(), strict=True):
            group["lr"] = rate
        self._last_lr = self.current

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer and what can't be saved (functions)."""
        return {k: v for k, v in self.__dict__.items() if k != "optimizer" and not callable(v) and not _functions(v)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        self.__dict__.update(state_dict)


def _functions(value: Any) -> bool:
    return isinstance(value, list) and any(callable(v) for v in value)


def _scaled(scheduler: LRScheduler, factor: float) -> list[float]:
    return [base * factor for base in scheduler.base_lrs]


class LambdaLR(LRScheduler):
    """lr = base * lr_lambda(epoch); one function, or one for each group."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Callable | Sequence[Callable], last_epoch: int = -1):
        count = len(optimizer.param_groups)
        self.lr_lambdas = list(lr_lambda) if isinstance(lr_lambda, (list, tuple)) else [lr_lambda] * count
        if len(self.lr_lambdas) != count:
            raise ArgumentValueError(f"expected {count} lr_lambdas, but got {len(self.lr_lambdas)}")
        super().__init__(optimizer, last_epoch)

    def rates(self):
        return [base * f(self.last_epoch) for base, f in zip(self.base_lrs, self.lr_lambdas, strict=True)]


class StepLR(LRScheduler):
    """lr = base * gamma ** (epoch // step_size)."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1):
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def rates(self):
        return _scaled(self, self.gamma ** (self.last_epoch // self.step_size))


class MultiStepLR(LRScheduler):
    """lr = base * gamma ** (how many of `milestones` have been reached)."""

    def __init__(self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1):
        self.milestones, self.gamma = Counter(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def rates(self):
        reached = bisect_right(sorted(self.milestones.elements()), self.last_epoch)
        return _scaled(self, self.gamma**reached)


class ConstantLR(LRScheduler):
    """lr = base * factor for the first `total_iters` epochs, then base."""

    def __init__(self, optimizer: Optimizer, factor: float = 1 / 3, total_iters: int = 5, last_epoch: int = -1):
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def rates(self):
        return _scaled(self, self.factor if self.last_epoch < self.total_iters else 1.0)


class LinearLR(LRScheduler):
    """lr goes from base * start_factor to base * end_factor in `total_iters` epochs, in a straight line."""

    def __init__(
        self, optimizer: Optimizer, start_factor: float = 1 / 3, end_factor: float = 1.0, total_iters: int = 5,
        last_epoch: int = -1,
    ):  # fmt: skip
        if not 0 < start_factor <= 1 or not 0 <= end_factor <= 1:
            raise ArgumentValueError(f"LinearLR: factors must lie in (0, 1]: {start_factor}, {end_factor}")
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch)

    def rates(self):
        done = min(self.last_epoch, self.total_iters) / self.total_iters
        return _scaled(self, self.start_factor + (self.end_factor - self.start_factor) * done)


class ExponentialLR(LRScheduler):
    """lr = base * gamma ** epoch."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1):
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def rates(self):
        return _scaled(self, self.gamma**self.last_epoch)


class PolynomialLR(LRScheduler):
    """lr = base * (1 - epoch / total_iters) ** power, and 0 from then on."""

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1):
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def rates(self):
        return _scaled(self, (1 - min(self.last_epoch, self.total_iters) / self.total_iters) ** self.power)


class CosineAnnealingLR(LRScheduler):
    """lr = eta_min + (base - eta_min) * (1 + cos(pi * epoch / T_max)) / 2.

    Source: Loshchilov and Hutter, SGDR: stochastic gradient descent with warm restarts, 2017.
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1):  # noqa: N803
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def rates(self):
        share = (1 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2
        return [self.eta_min + (base - self.eta_min) * share for base in self.base_lrs]


class CosineAnnealingWarmRestarts(LRScheduler):
    """Cosine annealing that starts over after T_0 epochs, then after T_mult times as many, and so on.

    `step` takes fractions of an epoch too.  Source: as of CosineAnnealingLR.
    """

    def __init__(
        self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1  # noqa: N803
    ):
        for name, value in (("T_0", T_0), ("T_mult", T_mult)):
            if not isinstance(value, int) or value < 1:
                raise ArgumentValueError(f"{name} must be a positive int, not {value}")
        self.T_0, self.T_mult, self.eta_min = T_0, T_mult, eta_min
        super().__init__(optimizer, last_epoch)

    def rates(self):
        length, into = self.T_0, float(self.last_epoch)
        while into >= length:
            into -= length
            length *= self.T_mult
            if self.T_mult == 1:
                into %= length
        share = (1 + math.cos(math.pi * into / length)) / 2
        return [self.eta_min + (base - self.eta_min) * share for base in self.base_lrs]


class OneCycleLR(LRScheduler):
    """lr rises from max_lr / div_factor to max_lr in the first `pct_start` of the steps, then falls far below.

    Raises ArgumentError where the length is not given.  Momentum is left alone (cycle_momentum=False).
    Source: Smith and Topin, Super-convergence, 2018.
    """

    def __init__(
        self, optimizer: Optimizer, max_lr: float | Sequence[float], total_steps: int | None = None,
        epochs: int | None = None, steps_per_epoch: int | None = None, pct_start: float = 0.3,
        anneal_strategy: str = "cos", cycle_momentum: bool = False, div_factor: float = 25.0,
        final_div_factor: float = 1e4, last_epoch: int = -1,
    ):  # fmt: skip
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise ArgumentError("OneCycleLR: give total_steps, or both epochs and steps_per_epoch")
            total_steps = epochs * steps_per_epoch
        if anneal_strategy not in ("cos", "linear"):
            raise ArgumentValueError(f"anneal_strategy must be 'cos' or 'linear', not {anneal_strategy!r}")
        if cycle_momentum:
            raise ArgumentValueError("OneCycleLR: cycle_momentum=True is not supported", "pass cycle_momentum=False")
        count = len(optimizer.param_groups)
        self.max_lrs = list(max_lr) if isinstance(max_lr, (list, tuple)) else [max_lr] * count
        self.total_steps, self.pct_start, self.anneal_strategy = total_steps, pct_start, anneal_strategy
        self.div_factor, self.final_div_factor = div_factor, final_div_factor
        for group, highest in zip(optimizer.param_groups, self.max_lrs, strict=True):
            group["initial_lr"] = highest / div_factor
        super().__init__(optimizer, last_epoch)

    def rates(self):
        if self.last_epoch > self.total_steps:  # one more than there are rates, as loops step after their last batch
            raise ArgumentValueError(f"OneCycleLR: step {self.last_epoch} of a cycle of {self.total_steps}")
        top, last = self.pct_start * self.total_steps - 1, self.total_steps - 1
        found = []
        for highest in self.max_lrs:
            first = highest / self.div_factor
            if self.last_epoch <= top:
                found.append(self._between(first, highest, self.last_epoch / top))
            else:
                low = first / self.final_div_factor
                found.append(self._between(highest, low, (self.last_epoch - top) / (last - top)))
        return found

    def _between(self, start: float, end: float, share: float) -> float:
        if self.anneal_strategy == "linear":
            return start + (end - start) * share
        return end + (start - end) * (1 + math.cos(math.pi * share)) / 2


class SequentialLR(LRScheduler):
    """One schedule after another, changing over at `milestones`."""

    def __init__(
        self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[int], last_epoch: int = -1
    ):
        if len(milestones) != len(schedulers) - 1:
            raise ArgumentValueError(f"{len(schedulers)} schedules need {len(schedulers) - 1} milestones")
        self._schedulers, self._milestones = list(schedulers), list(milestones)
        self.optimizer, self.last_epoch = optimizer, last_epoch + 1
        self._schedulers[0].step(0)
        self._last_lr = self.current

    def step(self, epoch: int | None = None) -> None:
        """Go to the next epoch, under the schedule whose turn it is."""
        self.last_epoch += 1
        turn = bisect_right(self._milestones, self.last_epoch)
        if turn and self._milestones[turn - 1] == self.last_epoch:
            self._schedulers[turn].step(0)
        else:
            self._schedulers[turn].step()
        self._last_lr = self.current

    def state_dict(self) -> dict[str, Any]:
        """The epoch, the milestones, and the state of each schedule."""
        inner = [s.state_dict() for s in self._schedulers]
        return {"last_epoch": self.last_epoch, "milestones": self._milestones, "schedulers": inner}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        self.last_epoch, self._milestones = state_dict["last_epoch"], state_dict["milestones"]
        for scheduler, state in zip(self._schedulers, state_dict["schedulers"], strict=True):
            scheduler.load_state_dict(state)


class ReduceLROnPlateau:
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
        count = len(optimizer.param_groups)
        self.optimizer, self.mode, self.factor, self.patience = optimizer, mode, factor, patience
        self.threshold, self.threshold_mode, self.cooldown, self.eps = threshold, threshold_mode, cooldown, eps
        self.min_lrs = list(min_lr) if isinstance(min_lr, (list, tuple)) else [min_lr] * count
        self.best = math.inf if mode == "min" else -math.inf
        self.cooldown_counter = self.num_bad_epochs = self.last_epoch = 0
        self._last_lr = [float(group["lr"]) for group in optimizer.param_groups]

    def is_better(self, metric: float, best: float) -> bool:
        """Whether `metric` improves on `best` by more than the threshold."""
        sign = 1 if self.mode == "min" else -1
        if math.isinf(best):
            return sign * metric < sign * best
        margin = self.threshold * (best if self.threshold_mode == "rel" else 1.0)
        return sign * metric < sign * (best - sign * margin)

    def step(self, metrics: Any, epoch: int | None = None) -> None:
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
            for group, lowest in zip(self.optimizer.param_groups, self.min_lrs, strict=True):
                old = float(group["lr"])
                new = max(old * self.factor, lowest)
                if old - new > self.eps:
                    group["lr"] = new
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        self._last_lr = [float(group["lr"]) for group in self.optimizer.param_groups]

    def get_last_lr(self) -> list[float]:
        """The groups' rates."""
        return self._last_lr

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer."""
        return {k: v for k, v in self.__dict__.items() if k != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        self.__dict__.update(state_dict)
