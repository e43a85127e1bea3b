"""Further rules of one element at a time: NAdam, RAdam, ASGD, Rprop; and SparseAdam."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..ir.errors import GradError
from ..ir.op import REGISTRY
from .optimizer import Optimizer, filled_like, require
from .rules import Rate, add_rows, check_betas, common, picked, rows_of, settings


def _of_adam(group: dict[str, Any]) -> dict[str, Any]:
    beta1, beta2 = group["betas"]
    shared = picked(group, "lr", "eps", "weight_decay", "maximize")
    return {**shared, "beta1": beta1, "beta2": beta2, "decoupled": group["decoupled_weight_decay"]}


class NAdam(Optimizer):
    """Adam with Nesterov's look-ahead.

    Source: Dozat, Incorporating Nesterov momentum into Adam, 2016.
    """

    _rule = REGISTRY["nadam_update"]
    _counters = {"mu_product": 1.0}

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

    def _states(self, group):
        return ("exp_avg", "exp_avg_sq")

    def _numbers(self, group):
        return {**_of_adam(group), "momentum_decay": group["momentum_decay"]}

    def _with_counters(self, state):
        yield REGISTRY["nadam_product_update"], ((state["step"],), (state["mu_product"],))
        yield self._rule, None


class RAdam(Optimizer):
    """Adam without its adaptive scale until the variance of that scale is known.

    Source: Liu et al., On the variance of the adaptive learning rate and beyond, 2020.
    """

    _rule = REGISTRY["radam_update"]

    def __init__(
        self, params: Iterable, lr: Rate = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0, decoupled_weight_decay: bool = False, *, foreach: bool | None = None,
        maximize: bool = False, capturable: bool = False, differentiable: bool = False,
    ):  # fmt: skip
        common(lr, eps, weight_decay)
        check_betas(betas)
        super().__init__(params, settings(locals()))

    def _states(self, group):
        return ("exp_avg", "exp_avg_sq")

    def _numbers(self, group):
        return _of_adam(group)


class ASGD(Optimizer):
    """Stochastic gradient descent, with a mean of the parameters kept in the state "ax" from step t0 on.

    Source: Polyak and Juditsky, Acceleration of stochastic approximation by averaging, 1992.
    """

    _rule = REGISTRY["asgd_update"]
    _counters = {"eta": "lr", "mu": 1.0}
    _takes_step = False

    def __init__(
        self, params: Iterable, lr: Rate = 1e-2, lambd: float = 1e-4, alpha: float = 0.75, t0: float = 1e6,
        weight_decay: float = 0, foreach: bool | None = None, maximize: bool = False,
        differentiable: bool = False, capturable: bool = False,
    ):  # fmt: skip
        common(lr, None, weight_decay)
        super().__init__(params, settings(locals()))

    def _states(self, group):
        return ("ax",)

    def _numbers(self, group):
        return picked(group, "lr", "lambd", "alpha", "t0", "weight_decay", "maximize")

    def _with_counters(self, state):
        yield self._rule, None
        yield REGISTRY["asgd_rates_update"], ((state["step"],), (state["eta"],), (state["mu"],))


class Rprop(Optimizer):
    """Steps of a size of each element's own, which grows while its gradient keeps its sign.

    Source: Riedmiller and Braun, A direct adaptive method for faster backpropagation learning, 1993.
    """

    _rule = REGISTRY["rprop_update"]
    _takes_step = False

    def __init__(
        self, params: Iterable, lr: Rate = 1e-2, etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50), *, capturable: bool = False,
        foreach: bool | None = None, maximize: bool = False, differentiable: bool = False,
    ):  # fmt: skip
        common(lr, None, 0)
        require(0.0 < etas[0] < 1.0 < etas[1], "eta values", f"{etas[0]}, {etas[1]}")
        super().__init__(params, settings(locals()))

    def _states(self, group):
        return ("prev", "step_size")

    def _initial(self, name, group, p):
        return filled_like(p, 0.0 if name == "prev" else float(group["lr"]))

    def _numbers(self, group):
        (etaminus, etaplus), (least, most) = group["etas"], group["step_sizes"]
        return {
            "etaminus": etaminus, "etaplus": etaplus, "step_size_min": least, "step_size_max": most,
            "maximize": group["maximize"],
        }  # fmt: skip


class SparseAdam(Optimizer):
    """Adam for sparse gradients: only what they store is updated, and so are the means.

    Source: Kingma and Ba, Adam: a method for stochastic optimization, 2015, on the rows that have a gradient.
    """

    _counts = False

    def __init__(
        self, params: Iterable, lr: Rate = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        maximize: bool = False,
    ):  # fmt: skip
        require(float(lr) > 0.0, "learning rate", lr)
        require(eps > 0.0, "epsilon value", eps)
        check_betas(betas)
        super().__init__(params, settings(locals()))

    def _step_rows(self, group, p, grad):
        state, values, (beta1, beta2) = self.state[p], grad.values(), group["betas"]
        if not state:
            state.update(step=0, exp_avg=self._initial("exp_avg", group, p))
            state["exp_avg_sq"] = self._initial("exp_avg_sq", group, p)
        state["step"] += 1
        means = {"exp_avg": (values, beta1), "exp_avg_sq": (values.square(), beta2)}
        now = []
        for name, (latest, beta) in means.items():
            before = rows_of(state[name], grad)
            change = (latest - before) * (1 - beta)
            add_rows(state[name], grad, change)
            now.append(before + change)
        rate = float(group["lr"]) * (1 - beta2 ** state["step"]) ** 0.5 / (1 - beta1 ** state["step"])
        add_rows(p, grad, now[0] * -rate / (now[1].sqrt() + group["eps"]))

    def _numbers(self, group):
        raise GradError(
            "SparseAdam does not support dense gradients",
            "optim.Adam updates every row; nn.Embedding(sparse=True) has sparse gradients",
        )

    def _step_group(self, group):
        if any(p.grad is not None for p in group["params"]):
            self._numbers(group)
