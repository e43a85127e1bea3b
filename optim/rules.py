"""The optimizers: each names its update record, its hyper-parameters and its states."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..ir.errors import ArgumentValueError, GradError
from ..ir.op import REGISTRY
from ..runtime import Tensor
from .optimizer import Optimizer, filled_like, require

Rate = float | Tensor


def common(lr: Rate, eps: float | None, weight_decay: float | Tensor) -> None:
    """Refuse what no rule takes."""
    require(isinstance(lr, Tensor) or float(lr) >= 0.0, "learning rate", lr)
    require(eps is None or eps >= 0.0, "epsilon value", eps)
    require(float(weight_decay) >= 0.0, "weight_decay value", weight_decay)


def check_betas(betas: Any) -> None:
    """Refuse shares of a mean that leave nothing for what is new."""
    for i, beta in enumerate(betas):
        require(0.0 <= float(beta) < 1.0, f"beta parameter at index {i}", beta)


def settings(given: dict[str, Any]) -> dict[str, Any]:
    """The hyper-parameters among the arguments of a constructor."""
    return {name: x for name, x in given.items() if name not in ("self", "params", "__class__")}


def rows_of(x: Tensor, grad: Tensor) -> Tensor:
    """The elements of `x` where a coalesced gradient stores something."""
    return x.detach()[tuple(grad.indices())]


def add_rows(x: Tensor, grad: Tensor, values: Tensor) -> None:
    """Add values to `x` where a coalesced gradient stores something, in place."""
    x.index_put_(tuple(grad.indices()), values, accumulate=True)


def no_decay(optimizer: Optimizer, group: dict[str, Any]) -> None:
    """Refuse weight decay, which is dense, beside a sparse gradient."""
    if group["weight_decay"]:
        raise GradError(
            f"{type(optimizer).__name__}: weight_decay does not go with sparse gradients",
            "set weight_decay=0",
        )


def picked(group: dict[str, Any], *names: str) -> dict[str, Any]:
    """These numbers of a group."""
    return {name: group[name] for name in names}


class SGD(Optimizer):
    """Stochastic gradient descent, with momentum and Nesterov's look-ahead on request.

    Source: Sutskever et al., On the importance of initialization and momentum in deep learning, 2013.
    """

    _rule = REGISTRY["sgd_update"]
    _counts = False

    def __init__(
        self, params: Iterable, lr: Rate = 1e-3, momentum: float = 0, dampening: float = 0,
        weight_decay: float = 0, nesterov: bool = False, *, maximize: bool = False,
        foreach: bool | None = None, differentiable: bool = False, fused: bool | None = None,
    ):  # fmt: skip
        common(lr, None, weight_decay)
        require(momentum >= 0.0, "momentum value", momentum)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ArgumentValueError("Nesterov momentum requires a momentum and zero dampening")
        super().__init__(params, settings(locals()))

    def _states(self, group):
        return ("momentum_buffer",) if group["momentum"] else ()

    def _numbers(self, group):
        return picked(group, "lr", "weight_decay", "momentum", "dampening", "nesterov", "maximize")

    def _step_rows(self, group, p, grad):
        no_decay(self, group)
        momentum = group["momentum"]
        if momentum:
            kept = self.state[p].get("momentum_buffer")
            kept = grad if kept is None else kept * momentum + grad * (1 - group["dampening"])
            self.state[p]["momentum_buffer"] = kept
            grad = grad + kept * momentum if group["nesterov"] else kept
        add_rows(p, grad, grad.values() * -float(group["lr"]))


class Adam(Optimizer):
    """Adam: steps along a mean of gradients, scaled by the root of their mean square.

    Source: Kingma and Ba, Adam: a method for stochastic optimization, 2015; amsgrad: Reddi et al., 2018.
    """

    _rule = REGISTRY["adam_update"]

    def __init__(
        self, params: Iterable, lr: Rate = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0, amsgrad: bool = False, *, foreach: bool | None = None,
        maximize: bool = False, capturable: bool = False, differentiable: bool = False,
        fused: bool | None = None, decoupled_weight_decay: bool = False,
    ):  # fmt: skip
        common(lr, eps, weight_decay)
        check_betas(betas)
        super().__init__(params, settings(locals()))

    def _states(self, group):
        return ("exp_avg", "exp_avg_sq") + (("max_exp_avg_sq",) if group["amsgrad"] else ())

    def _numbers(self, group):
        beta1, beta2 = group["betas"]
        return {
            "lr": group["lr"], "beta1": beta1, "beta2": beta2, "eps": group["eps"],
            "weight_decay": group["weight_decay"], "amsgrad": group["amsgrad"], "maximize": group["maximize"],
            "decoupled": group["decoupled_weight_decay"],
        }  # fmt: skip


class AdamW(Adam):
    """Adam with weight decay applied to the weights themselves.

    Source: Loshchilov and Hutter, Decoupled weight decay regularization, 2019.
    """

    def __init__(
        self, params: Iterable, lr: Rate = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 1e-2, amsgrad: bool = False, *, maximize: bool = False,
        foreach: bool | None = None, capturable: bool = False, differentiable: bool = False,
        fused: bool | None = None,
    ):  # fmt: skip
        super().__init__(params, **settings(locals()), decoupled_weight_decay=True)


class Adamax(Optimizer):
    """Adam with the greatest gradient so far in place of the mean square.

    Source: Kingma and Ba, Adam: a method for stochastic optimization, 2015, section 7.
    """

    _rule = REGISTRY["adamax_update"]

    def __init__(
        self, params: Iterable, lr: Rate = 2e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0, foreach: bool | None = None, *, maximize: bool = False,
        differentiable: bool = False, capturable: bool = False,
    ):  # fmt: skip
        common(lr, eps, weight_decay)
        check_betas(betas)
        super().__init__(params, settings(locals()))

    def _states(self, group):
        return ("exp_avg", "exp_inf")

    def _numbers(self, group):
        beta1, beta2 = group["betas"]
        return {"beta1": beta1, "beta2": beta2, **picked(group, "lr", "eps", "weight_decay", "maximize")}


class RMSprop(Optimizer):
    """Steps along the gradient over the root of its mean square.

    Source: Tieleman and Hinton, 2012; centered: Graves, Generating sequences with recurrent neural networks,
    2013.
    """

    _rule = REGISTRY["rmsprop_update"]
    _takes_step = False

    def __init__(
        self, params: Iterable, lr: Rate = 1e-2, alpha: float = 0.99, eps: float = 1e-8,
        weight_decay: float = 0, momentum: float = 0, centered: bool = False, capturable: bool = False,
        foreach: bool | None = None, maximize: bool = False, differentiable: bool = False,
    ):  # fmt: skip
        common(lr, eps, weight_decay)
        require(momentum >= 0.0, "momentum value", momentum)
        require(alpha >= 0.0, "alpha value", alpha)
        super().__init__(params, settings(locals()))

    def _states(self, group):
        centered = ("grad_avg",) if group["centered"] else ()
        return ("square_avg", *centered, *(("momentum_buffer",) if group["momentum"] else ()))

    def _numbers(self, group):
        return picked(group, "lr", "alpha", "eps", "weight_decay", "momentum", "centered", "maximize")


class Adagrad(Optimizer):
    """Steps along the gradient over the root of the sum of its squares.

    Source: Duchi, Hazan and Singer, Adaptive subgradient methods, 2011.
    """

    _rule = REGISTRY["adagrad_update"]

    def __init__(
        self, params: Iterable, lr: Rate = 1e-2, lr_decay: float = 0, weight_decay: float = 0,
        initial_accumulator_value: float = 0, eps: float = 1e-10, foreach: bool | None = None, *,
        maximize: bool = False, differentiable: bool = False, fused: bool | None = None,
    ):  # fmt: skip
        common(lr, eps, weight_decay)
        require(lr_decay >= 0.0, "lr_decay value", lr_decay)
        require(initial_accumulator_value >= 0.0, "initial_accumulator_value", initial_accumulator_value)
        super().__init__(params, settings(locals()))

    def _states(self, group):
        return ("sum",)

    def _initial(self, name, group, p):
        return filled_like(p, float(group["initial_accumulator_value"]))

    def _numbers(self, group):
        return picked(group, "lr", "lr_decay", "eps", "weight_decay", "maximize")

    def _step_rows(self, group, p, grad):
        no_decay(self, group)
        state, values = self.state[p], grad.values()
        if not state:
            state.update(self._first_counters(group, p), sum=self._initial("sum", group, p))
        state["step"] = state["step"] + 1
        rate = float(group["lr"]) / (1 + (float(state["step"]) - 1) * group["lr_decay"])
        add_rows(state["sum"], grad, values.square())
        add_rows(p, grad, values * -rate / (rows_of(state["sum"], grad).sqrt() + group["eps"]))


class Adadelta(Optimizer):
    """Adagrad with means in place of sums, and steps in the parameters' own units. Source: Zeiler, 2012."""

    _rule = REGISTRY["adadelta_update"]
    _takes_step = False

    def __init__(
        self, params: Iterable, lr: Rate = 1.0, rho: float = 0.9, eps: float = 1e-6,
        weight_decay: float = 0, foreach: bool | None = None, *, capturable: bool = False,
        maximize: bool = False, differentiable: bool = False,
    ):  # fmt: skip
        common(lr, eps, weight_decay)
        require(0.0 <= rho <= 1.0, "rho value", rho)
        super().__init__(params, settings(locals()))

    def _states(self, group):
        return ("square_avg", "acc_delta")

    def _numbers(self, group):
        return picked(group, "lr", "rho", "eps", "weight_decay", "maximize")
