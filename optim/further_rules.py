"""Further rules of one element at a time: NAdam, RAdam, ASGD, Rprop; and SparseAdam."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..ir.errors import GradError
from ..ir.op import REGISTRY
from ..runtime import ops
from .optimizer import Optimizer, require
from .rules import Rate, check_betas, common, picked, settings


def _of_adam(group: dict[str, Any]) -> dict[str, Any]:
    beta1, beta2 = group["betas"]
    shared = picked(group, "lr", "eps", "weight_decay", "maximize")
    return {**shared, "beta1": beta1, "beta2": beta2, "decoupled": group["decoupled_weight_decay"]}


class NAdam(Optimizer):
    """Adam with Nesterov's look-ahead.

    Source: Dozat, Incorporating Nesterov momentum into Adam, 2016.
    """

    update = REGISTRY["nadam_update"]
    counters = {"mu_product": 1.0}

    def __init__(
        self, params: Iterable, lr: Rate = 2e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0, momentum_decay: float = 4e-3, decoupled_weight_decay: bool = False, *,
        foreach: bool | None = None, maximize: bool = False, capturable: bool = False,
        differentiable: bool = False,
    ):  # fmt: skip
        common(lr, eps, weight_decay)
        check_betas(betas)
        require(momentum_decay >= 0.0, "momentum_decay value", momentum_decay)
        super().__init__(params, settings(locals()))

    def states(self, group):
        return ("exp_avg", "exp_avg_sq")

    def numbers(self, group):
        return {**_of_adam(group), "momentum_decay": group["momentum_decay"]}

    def with_counters(self, state):
        yield REGISTRY["nadam_product_update"], ((state["step"],), (state["mu_product"],))
        yield self.update, None


class RAdam(Optimizer):
    """Adam without its adaptive scale until the variance of that scale is known.

    Source: Liu et al., On the variance of the adaptive learning rate and beyond, 2020.
    """

    update = REGISTRY["radam_update"]

    def __init__(
        self, params: Iterable, lr: Rate = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0, decoupled_weight_decay: bool = False, *, foreach: bool | None = None,
        maximize: bool = False, capturable: bool = False, differentiable: bool = False,
    ):  # fmt: skip
        common(lr, eps, weight_decay)
        check_betas(betas)
        super().__init__(params, settings(locals()))

    def states(self, group):
        return ("exp_avg", "exp_avg_sq")

    def numbers(self, group):
        return _of_adam(group)


class ASGD(Optimizer):
    """Stochastic gradient descent, with a mean of the parameters kept in the state "ax" from step t0 on.

    Source: Polyak and Juditsky, Acceleration of stochastic approximation by averaging, 1992.
    """

    update = REGISTRY["asgd_update"]
    counters = {"eta": "lr", "mu": 1.0}
    takes_step = False

    def __init__(
        self, params: Iterable, lr: Rate = 1e-2, lambd: float = 1e-4, alpha: float = 0.75, t0: float = 1e6,
        weight_decay: float = 0, foreach: bool | None = None, maximize: bool = False,
        differentiable: bool = False, capturable: bool = False,
    ):  # fmt: skip
        common(lr, None, weight_decay)
        super().__init__(params, settings(locals()))

    def states(self, group):
        return ("ax",)

    def numbers(self, group):
        return picked(group, "lr", "lambd", "alpha", "t0", "weight_decay", "maximize")

    def with_counters(self, state):
        yield self.update, None
        yield REGISTRY["asgd_rates_update"], ((state["step"],), (state["eta"],), (state["mu"],))


class Rprop(Optimizer):
    """Steps of a size of each element's own, which grows while its gradient keeps its sign.

    Source: Riedmiller and Braun, A direct adaptive method for faster backpropagation learning, 1993.
    """

    update = REGISTRY["rprop_update"]
    takes_step = False

    def __init__(
        self, params: Iterable, lr: Rate = 1e-2, etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50), *, capturable: bool = False,
        foreach: bool | None = None, maximize: bool = False, differentiable: bool = False,
    ):  # fmt: skip
        common(lr, None, 0)
        require(0.0 < etas[0] < 1.0 < etas[1], "eta values", f"{etas[0]}, {etas[1]}")
        super().__init__(params, settings(locals()))

    def states(self, group):
        return ("prev", "step_size")

    def initial(self, name, group, p):
        return ops.full_like(p.detach(), 0.0 if name == "prev" else float(group["lr"]))

    def numbers(self, group):
        (etaminus, etaplus), (least, most) = group["etas"], group["step_sizes"]
        return {
            "etaminus": etaminus, "etaplus": etaplus, "step_size_min": least, "step_size_max": most,
            "maximize": group["maximize"],
        }  # fmt: skip


class SparseAdam(Optimizer):
    """Adam for sparse gradients, which Lamina has none of: `step` refuses dense ones, as PyTorch's does."""

    def __init__(
        self, params: Iterable, lr: Rate = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        maximize: bool = False,
    ):  # fmt: skip
        require(float(lr) > 0.0, "learning rate", lr)
        require(eps > 0.0, "epsilon value", eps)
        check_betas(betas)
        super().__init__(params, settings(locals()))

    def numbers(self, group):
        raise GradError(
            "SparseAdam does not support dense gradients, and there are no sparse ones here",
            "optim.Adam updates every row; embeddings of Lamina have dense gradients",
        )

    def _step_group(self, group):
        if any(p.grad is not None for p in group["params"]):
            self.numbers(group)
