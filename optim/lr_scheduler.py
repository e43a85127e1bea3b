"""Learning-rate schedules: each says what the rates of an epoch are, in closed form where there is one."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..ir.errors import ArgumentError, ArgumentValueError
from ..runtime import Tensor
from .optimizer import Optimizer


def set_rate(group: dict[str, Any], rate: float) -> None:
    """Give a group its learning rate; one that is a tensor stays that tensor, as a trace may hold it."""
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate


class LRScheduler:
    """Sets the learning rates of an optimizer's groups once an epoch.

    A subclass says in `get_lr` what they are after `last_epoch` calls of `step()`. `base_lrs` are the rates
    that the groups began with (kept in the groups as "initial_lr").
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
                    f"group {i} has no 'initial_lr', needed by a schedule resumed at epoch {last_epoch}"
                )
        self.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self.step()

    def get_lr(self) -> list[float]:
        """The learning rate of each group at `last_epoch`."""
        raise ArgumentError(f"{type(self).__name__} does not define get_lr")

    def get_last_lr(self) -> list[float]:
        """The rates that the last `step()` set."""
        return self._last_lr

    def step(self, epoch: int | None = None) -> None:
        """Go to the next epoch (or to `epoch`) and set its rates."""
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        self._set(self.get_lr())

    def _set(self, rates: Sequence[float]) -> None:
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            set_rate(group, rate)
        self._last_lr = current(self.optimizer)

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer and what can't be saved (functions)."""
        kept = {k: v for k, v in self.__dict__.items() if k != "optimizer" and not callable(v)}
        return {k: v for k, v in kept.items() if not _functions(v)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        self.__dict__.update(state_dict)


def current(optimizer: Optimizer) -> list[float]:
    """The groups' rates as they stand."""
    return [float(group["lr"]) for group in optimizer.param_groups]


def _functions(value: Any) -> bool:
    return isinstance(value, list) and any(callable(v) for v in value)


def _scaled(scheduler: LRScheduler, factor: float) -> list[float]:
    return [base * factor for base in scheduler.base_lrs]


class Curve(LRScheduler):
    """A schedule in closed form that composes: where others change the rates too, it moves in proportion.

    What it scales is the rate's distance from `eta_min`. While nobody else writes the rates, they are exactly
    what `get_lr` says.
    """

    eta_min = 0.0

    def step(self, epoch: int | None = None) -> None:
        """Go to the next epoch, in proportion; or to `epoch`, whatever the rates are."""
        if epoch is not None:
            return super().step(epoch)
        before = self.get_lr() if self.last_epoch >= 0 else self.base_lrs
        self.last_epoch += 1
        moved = zip(current(self.optimizer), before, self.get_lr(), strict=True)
        return self._set([self._follow(*each) for each in moved])

    def _follow(self, now: float, before: float, after: float) -> float:
        if now == before:
            return after
        if before == self.eta_min:  # no proportion to it
            return now + (after - before)
        return self.eta_min + (now - self.eta_min) * (after - self.eta_min) / (before - self.eta_min)


class LambdaLR(LRScheduler):
    """lr = base * lr_lambda(epoch); one function, or one for each group."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Callable | Sequence[Callable], last_epoch: int = -1):
        self.lr_lambdas = _for_each_group(optimizer, "lr_lambda", lr_lambda)
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        return [base * f(self.last_epoch) for base, f in zip(self.base_lrs, self.lr_lambdas, strict=True)]

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` returned; the functions stay."""
        super().load_state_dict({k: v for k, v in state_dict.items() if k != "lr_lambdas"})


class MultiplicativeLR(LambdaLR):
    """lr is multiplied by lr_lambda(epoch) after each epoch; one function, or one for each group."""

    def get_lr(self):
        if not self.last_epoch:
            return current(self.optimizer)
        rates = zip(current(self.optimizer), self.lr_lambdas, strict=True)
        return [rate * f(self.last_epoch) for rate, f in rates]


def _for_each_group(optimizer: Optimizer, name: str, given: Any) -> list:
    """A setting of each group: a list of them, or one for all. Raises ArgumentValueError."""
    count = len(optimizer.param_groups)
    found = list(given) if isinstance(given, (list, tuple)) else [given] * count
    if len(found) != count:
        raise ArgumentValueError(f"{name}: there are {count} parameter groups and {len(found)} values")
    return found


class StepLR(Curve):
    """lr = base * gamma ** (epoch // step_size)."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1):
        if not isinstance(step_size, int) or step_size < 1:
            raise ArgumentValueError(f"StepLR: step_size must be a positive int, not {step_size!r:.60}")
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        return _scaled(self, self.gamma ** (self.last_epoch // self.step_size))


class MultiStepLR(Curve):
    """lr = base * gamma ** (how many of `milestones` have been reached)."""

    def __init__(
        self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1
    ):
        self.milestones, self.gamma = Counter(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        reached = bisect_right(sorted(self.milestones.elements()), self.last_epoch)
        return _scaled(self, self.gamma**reached)


class ConstantLR(Curve):
    """lr = base * factor for the first `total_iters` epochs, then base."""

    def __init__(
        self, optimizer: Optimizer, factor: float = 1 / 3, total_iters: int = 5, last_epoch: int = -1
    ):
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        return _scaled(self, self.factor if self.last_epoch < self.total_iters else 1.0)


class LinearLR(Curve):
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
        return _scaled(self, self.start_factor + (self.end_factor - self.start_factor) * done)


class ExponentialLR(Curve):
    """lr = base * gamma ** epoch."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1):
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        return _scaled(self, self.gamma**self.last_epoch)


class PolynomialLR(Curve):
    """lr = base * (1 - epoch / total_iters) ** power, and 0 from then on."""

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1):
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        return _scaled(self, (1 - min(self.last_epoch, self.total_iters) / self.total_iters) ** self.power)


class CosineAnnealingLR(Curve):
    """lr = eta_min + (base - eta_min) * (1 + cos(pi * epoch / T_max)) / 2.

    Source: Loshchilov and Hutter, SGDR: stochastic gradient descent with warm restarts, 2017.
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1):
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        share = (1 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2
        return [self.eta_min + (base - self.eta_min) * share for base in self.base_lrs]


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

    def get_lr(self):
        length, into = self.T_0, float(self.last_epoch)
        while into >= length:
            into -= length
            length *= self.T_mult
            if self.T_mult == 1:
                into %= length
        share = (1 + math.cos(math.pi * into / length)) / 2
        return [self.eta_min + (base - self.eta_min) * share for base in self.base_lrs]


class OneCycleLR(LRScheduler):
    """lr rises from max_lr / div_factor to max_lr in the first part of the steps, then falls far below.

    pct_start: that part. Momentum (or Adam's first beta) goes the other way, from max_momentum to
    base_momentum and back, unless cycle_momentum=False. three_phase: lr falls as steeply as it rose, and only
    then far below. Raises ArgumentError where the length is not given, ArgumentValueError for a step beyond
    the cycle. Source: Smith and Topin, Super-convergence, 2018.
    """

    def __init__(
        self, optimizer: Optimizer, max_lr: float | Sequence[float], total_steps: int | None = None,
        epochs: int | None = None, steps_per_epoch: int | None = None, pct_start: float = 0.3,
        anneal_strategy: str = "cos", cycle_momentum: bool = True,
        base_momentum: float | Sequence[float] = 0.85, max_momentum: float | Sequence[float] = 0.95,
        div_factor: float = 25.0, final_div_factor: float = 1e4, three_phase: bool = False,
        last_epoch: int = -1,
    ):  # fmt: skip
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise ArgumentError("OneCycleLR: give total_steps, or both epochs and steps_per_epoch")
            total_steps = epochs * steps_per_epoch
        if total_steps <= 0:
            raise ArgumentValueError(f"OneCycleLR: the number of steps must be positive, not {total_steps}")
        if not 0 <= pct_start <= 1:
            raise ArgumentValueError(f"OneCycleLR: pct_start must lie in [0, 1], not {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise ArgumentValueError(f"anneal_strategy must be 'cos' or 'linear', not {anneal_strategy!r}")
        self.momentum_name = "betas" if "betas" in optimizer.defaults else "momentum"
        if cycle_momentum and self.momentum_name not in optimizer.defaults:
            raise ArgumentValueError(
                "OneCycleLR: the optimizer has no momentum to cycle", "pass cycle_momentum=False"
            )
        self.total_steps, self.anneal_strategy = total_steps, anneal_strategy
        self.cycle_momentum = cycle_momentum
        top, last = pct_start * total_steps - 1, total_steps - 1
        self.ends = [top, 2 * top, last] if three_phase else [top, last]
        self.levels = []
        for high in _for_each_group(optimizer, "max_lr", max_lr):
            first = high / div_factor
            self.levels.append((first, high, *([first] * three_phase), first / final_div_factor))
        self.momenta = [
            (high, low, high, *([high] * three_phase))
            for low, high in zip(
                _for_each_group(optimizer, "base_momentum", base_momentum),
                _for_each_group(optimizer, "max_momentum", max_momentum),
                strict=True,
            )
        ]
        if last_epoch == -1:
            for group, levels in zip(optimizer.param_groups, self.levels, strict=True):
                group["initial_lr"] = levels[0]
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        if self.last_epoch > self.total_steps:  # loops step after their last batch too
            raise ArgumentValueError(f"OneCycleLR: step {self.last_epoch} of a cycle of {self.total_steps}")
        return [self._at(levels) for levels in self.levels]

    def step(self, epoch: int | None = None) -> None:
        """Go to the next step, and set its rates and momenta."""
        super().step(epoch)
        for group, levels in zip(self.optimizer.param_groups, self.momenta, strict=True):
            if self.cycle_momentum and self.momentum_name == "betas":
                group["betas"] = (self._at(levels), *group["betas"][1:])
            elif self.cycle_momentum:
                group["momentum"] = self._at(levels)

    def _at(self, levels: Sequence[float]) -> float:
        """Where the phases lead from one level to the next, the value at `last_epoch`."""
        phase = min(bisect_left(self.ends, self.last_epoch), len(self.ends) - 1)
        start, end = ([0, *self.ends])[phase : phase + 2]
        share = (self.last_epoch - start) / (end - start)
        low, high = levels[phase : phase + 2]
        if self.anneal_strategy == "linear":
            return low + (high - low) * share
        return high + (low - high) * (1 + math.cos(math.pi * share)) / 2


class ChainedScheduler:
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

    def get_last_lr(self) -> list[float]:
        """The rates that the last `step()` set."""
        return self._last_lr

    def step(self) -> None:
        """Let each schedule step, in order."""
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = current(self.optimizer)

    def state_dict(self) -> dict[str, Any]:
        """The state of each schedule."""
        return {"schedulers": [s.state_dict() for s in self._schedulers]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        for scheduler, state in zip(self._schedulers, state_dict["schedulers"], strict=True):
            scheduler.load_state_dict(state)


class SequentialLR(LRScheduler):
    """One schedule after another, changing over at `milestones`."""

    def __init__(
        self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[int],
        last_epoch: int = -1,
    ):  # fmt: skip
        if len(milestones) != len(schedulers) - 1:
            raise ArgumentValueError(f"{len(schedulers)} schedules need {len(schedulers) - 1} milestones")
        self._schedulers, self._milestones = list(schedulers), list(milestones)
        for i, scheduler in enumerate(self._schedulers):
            if scheduler.optimizer is not optimizer:
                raise ArgumentValueError(f"SequentialLR: schedule {i} is of another optimizer")
        self.optimizer, self.last_epoch = optimizer, last_epoch + 1
        for group in optimizer.param_groups:
            set_rate(group, group["initial_lr"])  # each schedule has set the rates that it begins with
        self._schedulers[0].step(0)
        self._last_lr = current(self.optimizer)

    def step(self, epoch: int | None = None) -> None:
        """Go to the next epoch, under the schedule whose turn it is."""
        self.last_epoch += 1
        turn = bisect_right(self._milestones, self.last_epoch)
        if turn and self._milestones[turn - 1] == self.last_epoch:
            self._schedulers[turn].step(0)
        else:
            self._schedulers[turn].step()
        self._last_lr = current(self.optimizer)

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
        self.optimizer, self.mode, self.factor, self.patience = optimizer, mode, factor, patience
        self.threshold, self.threshold_mode = threshold, threshold_mode
        self.cooldown, self.eps = cooldown, eps
        self.min_lrs = _for_each_group(optimizer, "min_lr", min_lr)
        self.best = math.inf if mode == "min" else -math.inf
        self.cooldown_counter = self.num_bad_epochs = self.last_epoch = 0
        self._last_lr = current(optimizer)

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
                    set_rate(group, new)
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        self._last_lr = current(self.optimizer)

    def get_last_lr(self) -> list[float]:
        """The groups' rates."""
        return self._last_lr

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer."""
        return {k: v for k, v in self.__dict__.items() if k != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        self.__dict__.update(state_dict)
