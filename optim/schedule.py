"""What schedules share: when they move on, what they save, how several compose."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from types import FunctionType
from typing import Any

from ..ir.errors import ArgumentError, ArgumentValueError
from ..runtime import Tensor, modes
from .optimizer import Optimizer


def set_rate(group: dict[str, Any], rate: float) -> None:
    """Give a group its learning rate; one that is a tensor stays that tensor, as a trace may hold it."""
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate


EPOCH_DEPRECATION_WARNING = "The epoch parameter of scheduler.step() is deprecated: call step() once an epoch"
ORDER = "see https://pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate"


class LRScheduler:
    """Sets the learning rates of an optimizer's groups once an epoch.

    A subclass says in `get_lr` what they are after `last_epoch` calls of `step()`. `base_lrs` are the rates
    that the groups began with (kept in the groups as "initial_lr").
    """

    # What classes derived from PyTorch's ask in `get_lr` before they warn of calls from elsewhere.
    _get_lr_called_within_step, _is_initial = True, False
    _began = 0  # how many steps came before it was made

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1):
        if not isinstance(optimizer, Optimizer):
            raise ArgumentError(f"a schedule needs an optimizer, not {type(optimizer).__name__}")
        self.optimizer = optimizer
        optimizer._own_step = vars(optimizer).get("step")
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", float(group["lr"]))
            elif "initial_lr" not in group:
                raise ArgumentValueError(
                    f"group {i} has no 'initial_lr', needed by a schedule resumed at epoch {last_epoch}"
                )
        self.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch, self._began = last_epoch, last_epoch + 1
        self._initial_step()

    def _initial_step(self) -> None:
        """Set the rates of the start, which come before any step of the optimizer."""
        called, self.optimizer._opt_called = self.optimizer._opt_called, True
        self.step()
        self.optimizer._opt_called = called

    @property
    def _step_count(self) -> int:
        return self.last_epoch + 1 - self._began

    @_step_count.setter
    def _step_count(self, count: int) -> None:
        """Taken from derived classes that count for themselves, and not needed."""

    def get_lr(self) -> list[float]:
        """The learning rate of each group at `last_epoch`."""
        raise ArgumentError(f"{type(self).__name__} does not define get_lr")

    def get_last_lr(self) -> list[float]:
        """The rates that the last `step()` set."""
        return self._last_lr

    def step(self, epoch: int | None = None) -> None:
        """Go to the next epoch (or to `epoch`, which is deprecated) and set its rates."""
        warn_of_order(self.optimizer)
        if epoch is None:
            self.last_epoch += 1
        else:
            warn_of_epoch()
            self.last_epoch = epoch
        self._set(self.get_lr())

    def _get_closed_form_lr(self) -> list[float]:
        return self.get_lr()

    def _begin(self) -> None:
        self.last_epoch = 0
        self._set(self.get_lr())

    def _set(self, rates: Sequence[float]) -> None:
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            set_rate(group, rate)
        self._last_lr = current(self.optimizer)

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer and what can't be saved (functions), under PyTorch's names."""
        kept = {
            k: v for k, v in self.__dict__.items() if k not in ("optimizer", "_began") and not callable(v)
        }
        kept = {k: v for k, v in kept.items() if not _functions(v)}
        return {**kept, "_step_count": self._step_count, **_OF_STEPS}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        self.__dict__.update({k: v for k, v in state_dict.items() if k not in _DERIVED})
        if "_step_count" in state_dict:
            self._began = self.last_epoch + 1 - state_dict["_step_count"]


_OF_STEPS = {"_is_initial": False, "_get_lr_called_within_step": False}  # how PyTorch marks where it is
_DERIVED = {"_step_count", *_OF_STEPS}


def warn_of_order(optimizer: Optimizer) -> None:
    """Warn where a schedule moves on before the optimizer's first step, which misses the first rates."""
    own = vars(optimizer).get("step")
    if own is not optimizer._own_step:
        optimizer._own_step = own  # once
        if modes.CHANGED:
            modes.tell("once", "a schedule warned that the optimizer's step was overridden")
        warnings.warn(
            "Seems like `optimizer.step()` has been overridden after learning rate scheduler initialization: "
            f"call it before `lr_scheduler.step()`, {ORDER}",
            UserWarning,
            stacklevel=4,
        )
    elif not optimizer._opt_called and type(optimizer).step is Optimizer.step:
        optimizer._opt_called = True  # once
        if modes.CHANGED:
            modes.tell("once", "a schedule warned that it is ahead of its optimizer")
        warnings.warn(
            "Detected call of `lr_scheduler.step()` before `optimizer.step()`, which misses the rates of the "
            f"start: call optimizer.step() first, {ORDER}",
            stacklevel=4,
        )


def warn_of_epoch() -> None:
    """Warn that an epoch was given to `step`."""
    warnings.warn(EPOCH_DEPRECATION_WARNING, stacklevel=4)


def current(optimizer: Optimizer) -> list[float]:
    """The groups' rates as they stand."""
    return [float(group["lr"]) for group in optimizer.param_groups]


def _functions(value: Any) -> bool:
    return isinstance(value, list) and any(callable(v) for v in value)


def scaled(scheduler: LRScheduler, factor: float) -> list[float]:
    return [base * factor for base in scheduler.base_lrs]


class Curve(LRScheduler):
    """A schedule in closed form that composes: where others change the rates too, it moves in proportion.

    What it scales is the rate's distance from `eta_min`. While nobody else writes the rates, they are exactly
    what `get_lr` says.
    """

    eta_min = 0.0

    def _initial_step(self) -> None:
        if self.last_epoch < 0:
            super()._initial_step()
        else:
            self._resume()

    def _resume(self) -> None:
        """Go on where an optimizer's rates were saved: a factor goes on from them."""
        super()._initial_step()

    def step(self, epoch: int | None = None) -> None:
        """Go to the next epoch, in proportion; or to `epoch` (deprecated), whatever the rates are."""
        if epoch is not None:
            return super().step(epoch)
        warn_of_order(self.optimizer)
        if added := self.optimizer.param_groups[len(self.base_lrs) :]:
            self.base_lrs += [group["lr"] for group in added]
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


class SmoothCurve(Curve):
    """A curve that goes on, where it is resumed, from rates as they are: mostly they are this epoch's.

    Those of the epoch before, which a schedule saved with its own `last_epoch`, are taken on.
    """

    def _resume(self) -> None:
        before, self.last_epoch = self.get_lr(), self.last_epoch + 1
        rates = zip(current(self.optimizer), before, self.get_lr(), strict=True)
        self._set([after if math.isclose(now, old) else now for now, old, after in rates])


def for_each_group(optimizer: Optimizer, name: str, given: Any) -> list:
    """A setting of each group: a list of them, or one for all. Raises ArgumentValueError.

    A tensor is read now: whoever writes it later does not mean the schedule.
    """
    count = len(optimizer.param_groups)
    found = list(given) if isinstance(given, (list, tuple)) else [given] * count
    if len(found) != count:
        raise ArgumentValueError(
            f"{name} must have the same length as optimizer.param_groups: there are {count} parameter groups "
            f"and {len(found)} values"
        )
    return [x.item() if isinstance(x, Tensor) else x for x in found]


def attributes(function: Any) -> dict[str, Any] | None:
    """What can be saved of a function: the attributes of an object that is called, and nothing of others."""
    return None if isinstance(function, FunctionType) else dict(getattr(function, "__dict__", {})) or None


def begin(schedule: LRScheduler) -> None:
    """Go to epoch 0 of a schedule, whatever the rates are."""
    schedule._begin()
