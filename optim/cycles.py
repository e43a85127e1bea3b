"""Schedules with an aim of their own: CyclicLR and OneCycleLR, with the momentum the other way, and SWALR."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ..ir.errors import ArgumentError, ArgumentValueError
from .optimizer import Optimizer
from .schedule import LRScheduler, attributes, for_each_group, set_rate


def momentum_name(schedule: str, optimizer: Optimizer, wanted: bool) -> str:
    """Where an optimizer keeps its momentum: "betas" (the first) or "momentum". Raises ArgumentValueError."""
    name = "betas" if "betas" in optimizer.defaults else "momentum"
    if wanted and name not in optimizer.defaults:
        raise ArgumentValueError(
            f"{schedule}: the optimizer has no momentum to cycle", "pass cycle_momentum=False"
        )
    return name


def set_momentum(group: dict[str, Any], name: str, momentum: float) -> None:
    """Give a group its momentum."""
    group[name] = (momentum, *group["betas"][1:]) if name == "betas" else momentum


class CyclicLR(LRScheduler):
    """lr goes from base_lr to max_lr in step_size_up steps, back in step_size_down, and so on.

    mode: "triangular", "triangular2" (each cycle half as high), or "exp_range" (gamma ** step as high); or
    scale_fn of the cycle, or of the step where scale_mode is "iterations". Momentum (or Adam's first beta)
    goes the other way unless cycle_momentum=False. Raises ArgumentValueError.
    Source: Smith, Cyclical learning rates for training neural networks, 2017.
    """

    def __init__(
        self, optimizer: Optimizer, base_lr: float | Sequence[float], max_lr: float | Sequence[float],
        step_size_up: int = 2000, step_size_down: int | None = None, mode: str = "triangular",
        gamma: float = 1.0, scale_fn: Callable[[float], float] | None = None, scale_mode: str = "cycle",
        cycle_momentum: bool = True, base_momentum: float | Sequence[float] = 0.8,
        max_momentum: float | Sequence[float] = 0.9, last_epoch: int = -1,
    ):  # fmt: skip
        if not isinstance(optimizer, Optimizer):
            raise ArgumentError(f"a schedule needs an optimizer, not {type(optimizer).__name__}")
        lows = for_each_group(optimizer, "base_lr", base_lr)
        if scale_fn is None and mode not in ("triangular", "triangular2", "exp_range"):
            raise ArgumentValueError(f"CyclicLR: no known mode, and there is no scale_fn: {mode!r:.60}")
        self.max_lrs = for_each_group(optimizer, "max_lr", max_lr)
        down = step_size_up if step_size_down is None else step_size_down
        if not step_size_up > 0 or not down >= 0:
            raise ArgumentValueError(f"CyclicLR: a cycle has steps up, not {step_size_up} and {down} down")
        self.total_size = float(step_size_up + down)
        self.step_ratio = step_size_up / self.total_size
        self.mode, self.gamma, self._scale_fn_custom = mode, gamma, scale_fn
        self.scale_mode = scale_mode if scale_fn else "iterations" if mode == "exp_range" else "cycle"
        self.momentum_name = momentum_name("CyclicLR", optimizer, cycle_momentum)
        self.cycle_momentum, self.use_beta1 = cycle_momentum, self.momentum_name == "betas"
        if cycle_momentum:
            self.base_momentums = for_each_group(optimizer, "base_momentum", base_momentum)
            self.max_momentums = for_each_group(optimizer, "max_momentum", max_momentum)
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                set_rate(group, lows[i])
                group["initial_lr"] = lows[i]
                if cycle_momentum:
                    group.update(max_momentum=self.max_momentums[i], base_momentum=self.base_momentums[i])
        super().__init__(optimizer, last_epoch)
        self.base_lrs = lows

    @property
    def _scale_fn_ref(self) -> Callable[[float], float]:
        """What the mode says how high a cycle is; no part of the state, as the mode is."""
        if self.mode == "exp_range":
            return partial(self._exp_range_scale_fn, self.gamma)
        return self._triangular2_scale_fn if self.mode == "triangular2" else self._triangular_scale_fn

    @staticmethod
    def _triangular_scale_fn(x: float) -> float:
        return 1.0

    @staticmethod
    def _triangular2_scale_fn(x: float) -> float:
        return 0.5 ** (x - 1)

    @staticmethod
    def _exp_range_scale_fn(gamma: float, x: float) -> float:
        return gamma**x

    def scale_fn(self, x: float) -> float:
        """How high a cycle is, as a share of the first."""
        return (self._scale_fn_custom or self._scale_fn_ref)(x)

    def _height(self) -> float:
        """How far up the cycle is at `last_epoch`, from 0 to 1."""
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        share = x / self.step_ratio if x <= self.step_ratio else (x - 1) / (self.step_ratio - 1)
        return share * self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)

    def get_lr(self):
        height = self._height()
        return [low + (high - low) * height for low, high in zip(self.base_lrs, self.max_lrs, strict=True)]

    def step(self, epoch: int | None = None) -> None:
        """Go to the next step, and set its rates and momenta."""
        super().step(epoch)
        if self.cycle_momentum:
            height = self._height()
            both = zip(self.base_momentums, self.max_momentums, strict=True)
            for group, (low, high) in zip(self.optimizer.param_groups, both, strict=True):
                set_momentum(group, self.momentum_name, high - (high - low) * height)

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer; of a scale_fn that is an object, its attributes."""
        custom = self._scale_fn_custom
        return {**super().state_dict(), "_scale_fn_custom": None if custom is None else attributes(custom)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        custom, own = state_dict.get("_scale_fn_custom"), self._scale_fn_custom
        super().load_state_dict({k: v for k, v in state_dict.items() if k != "_scale_fn_custom"})
        if custom is not None and own is not None:
            own.__dict__.update(custom)


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
                raise ArgumentValueError("OneCycleLR: give total_steps, or both epochs and steps_per_epoch")
            total_steps = epochs * steps_per_epoch
        if total_steps <= 0:
            raise ArgumentValueError(f"OneCycleLR: the number of steps must be positive, not {total_steps}")
        if not 0 <= pct_start <= 1:
            raise ArgumentValueError(f"OneCycleLR: pct_start must lie in [0, 1], not {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise ArgumentValueError(f"anneal_strategy must be 'cos' or 'linear', not {anneal_strategy!r}")
        self.momentum_name = momentum_name("OneCycleLR", optimizer, cycle_momentum)
        self.use_beta1 = self.momentum_name == "betas"
        self.total_steps, self._anneal_func_type = total_steps, anneal_strategy
        self.cycle_momentum = cycle_momentum
        top, last = pct_start * total_steps - 1, total_steps - 1
        self.ends = [top, 2 * top, last] if three_phase else [top, last]
        self.levels = []
        for high in for_each_group(optimizer, "max_lr", max_lr):
            first = high / div_factor
            self.levels.append((first, high, *([first] * three_phase), first / final_div_factor))
        self.momenta = [
            (high, low, high, *([high] * three_phase))
            for low, high in zip(
                for_each_group(optimizer, "base_momentum", base_momentum),
                for_each_group(optimizer, "max_momentum", max_momentum),
                strict=True,
            )
        ]
        if last_epoch == -1:
            for group, levels, momenta in zip(optimizer.param_groups, self.levels, self.momenta, strict=True):
                group.update(initial_lr=levels[0], max_lr=levels[1], min_lr=levels[-1])
                if cycle_momentum:
                    group.update(max_momentum=momenta[0], base_momentum=momenta[1])
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        if self.last_epoch > self.total_steps:  # loops step after their last batch too
            raise ArgumentValueError(f"OneCycleLR: step {self.last_epoch} of a cycle of {self.total_steps}")
        return [self._at(levels) for levels in self.levels]

    def step(self, epoch: int | None = None) -> None:
        """Go to the next step, and set its rates and momenta."""
        super().step(epoch)
        for group, levels in zip(self.optimizer.param_groups, self.momenta, strict=True):
            if self.cycle_momentum:
                set_momentum(group, self.momentum_name, self._at(levels))

    def _at(self, levels: Sequence[float]) -> float:
        """Where the phases lead from one level to the next, the value at `last_epoch`."""
        phase = min(bisect_left(self.ends, self.last_epoch), len(self.ends) - 1)
        start, end = ([0, *self.ends])[phase : phase + 2]
        share = (self.last_epoch - start) / (end - start)
        low, high = levels[phase : phase + 2]
        return self._anneal_func(low, high, share)

    def _anneal_func(self, start: float, end: float, pct: float) -> float:
        return (self._annealing_linear if self._anneal_func_type == "linear" else self._annealing_cos)(
            start, end, pct
        )

    @staticmethod
    def _annealing_cos(start: float, end: float, pct: float) -> float:
        return end + (start - end) * (1 + math.cos(math.pi * pct)) / 2

    @staticmethod
    def _annealing_linear(start: float, end: float, pct: float) -> float:
        return start + (end - start) * pct

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` returned; older ones have a function for the strategy's name."""
        super().load_state_dict({k: v for k, v in state_dict.items() if k != "anneal_func"})
        if "_anneal_func_type" not in state_dict and "anneal_func" in state_dict:
            linear = state_dict["anneal_func"].__name__ == "_annealing_linear"
            self._anneal_func_type = "linear" if linear else "cos"


class SWALR(LRScheduler):
    """lr goes to swa_lr in `anneal_epochs` epochs, whoever else changes it, and stays there.

    anneal_strategy: "cos" or "linear". Raises ArgumentValueError.
    Source: Izmailov et al., Averaging weights leads to wider optima and better generalization, 2018.
    """

    def __init__(
        self, optimizer: Optimizer, swa_lr: float | Sequence[float], anneal_epochs: int = 10,
        anneal_strategy: str = "cos", last_epoch: int = -1,
    ):  # fmt: skip
        if not isinstance(optimizer, Optimizer):
            raise ArgumentError(f"a schedule needs an optimizer, not {type(optimizer).__name__}")
        aims = for_each_group(optimizer, "swa_lr", swa_lr)
        if anneal_strategy not in ("cos", "linear"):
            raise ArgumentValueError(
                f"anneal_strategy must be 'cos' or 'linear', not {anneal_strategy!r:.60}"
            )
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ArgumentValueError(f"anneal_epochs must be an int of at least 0, not {anneal_epochs!r:.60}")
        for group, aim in zip(optimizer.param_groups, aims, strict=True):
            group["swa_lr"] = aim
        self._anneal_strategy, self.anneal_epochs = anneal_strategy, anneal_epochs
        super().__init__(optimizer, last_epoch)

    def _share(self, epoch: int) -> float:
        """How far towards the aim the rates are after an epoch, from 0 to 1."""
        t = max(0.0, min(1.0, epoch / max(1, self.anneal_epochs)))
        return t if self._anneal_strategy == "linear" else (1 - math.cos(math.pi * t)) / 2

    def get_lr(self):
        epoch = max(self._step_count - 1, self.anneal_epochs == 0)
        before, now = self._share(epoch - 1), self._share(epoch)
        rates = []
        for group in self.optimizer.param_groups:
            aim, rate = group["swa_lr"], float(group["lr"])
            start = aim if before == 1 else (rate - before * aim) / (1 - before)
            rates.append(aim * now + start * (1 - now))
        return rates
