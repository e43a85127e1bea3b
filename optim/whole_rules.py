"""Rules that look at a parameter as a whole: Adafactor and Muon."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ml_dtypes import finfo

from ..ir.errors import ArgumentValueError
from ..ir.op import REGISTRY
from ..runtime import ops
from .optimizer import Optimizer, require
from .rules import Rate, common, picked, settings


class Adafactor(Optimizer):
    """Adam's scale from the means of rows and columns alone, and no first moment.

    Source: Shazeer and Stern, Adafactor: adaptive learning rates with sublinear memory cost, 2018.
    """

    _rule = REGISTRY["adafactor_update"]
    _alike = False

    def __init__(
        self, params: Iterable, lr: Rate = 1e-2, beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3), d: float = 1.0, weight_decay: float = 0.0, *,
        foreach: bool | None = None, maximize: bool = False,
    ):  # fmt: skip
        common(lr, None, weight_decay)
        require(beta2_decay <= 0.0, "beta2_decay", beta2_decay)
        require(eps[0] is None or eps[0] >= 0.0, "epsilon1", eps[0])
        require(eps[1] >= 0.0, "epsilon2", eps[1])
        require(d >= 1.0, "clipping threshold d", d)
        super().__init__(params, settings(locals()))

    def _initial(self, name, group, p):
        shape = {"row_var": (*p.shape[:-1], 1), "col_var": (*p.shape[:-2], 1, *p.shape[-1:])}.get(
            name, p.shape
        )
        return ops.zeros(tuple(shape), dtype=p.dtype, device=p.device)

    def _numbers(self, group):
        eps1, eps2 = group["eps"]
        named = picked(group, "lr", "beta2_decay", "d", "weight_decay", "maximize")
        return {**named, "eps1": eps1, "eps2": eps2}

    def _step_group(self, group):
        kinds: dict[Any, list] = {}
        for p in group["params"]:
            kinds.setdefault((p.ndim > 1, p.dtype), []).append(p)
        for (factored, dtype), members in kinds.items():
            numbers = self._numbers(group)
            if numbers["eps1"] is None:
                numbers["eps1"] = float(finfo(dtype.numpy).eps)
            names = ("row_var", "col_var") if factored else ("variance",)
            self._step_part(group, members, names, {**numbers, "factored": factored})


class Muon(Optimizer):
    """Momentum made orthogonal, for the matrices of hidden layers; other parameters want another optimizer.

    adjust_lr_fn: how the rate hangs on the shape, "original" (None means it) or "match_rms_adamw".
    Source: Jordan et al., Muon: an optimizer for hidden layers, 2024; Liu et al., Muon is scalable, 2025.
    """

    _rule = REGISTRY["muon_update"]
    _alike = _counts = _takes_step = False

    def __init__(
        self, params: Iterable, lr: float = 1e-3, weight_decay: float = 0.1, momentum: float = 0.95,
        nesterov: bool = True, ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        eps: float = 1e-7, ns_steps: int = 5, adjust_lr_fn: str | None = None,
    ):  # fmt: skip
        common(lr, eps, weight_decay)
        require(momentum >= 0.0, "momentum value", momentum)
        if adjust_lr_fn not in (None, "original", "match_rms_adamw"):
            raise ArgumentValueError(
                f"Muon: adjust_lr_fn must be 'original' or 'match_rms_adamw', not {adjust_lr_fn!r:.60}"
            )
        if len(ns_coefficients) != 3 or not 0 <= ns_steps < 100:
            raise ArgumentValueError("Muon: there are three ns_coefficients, and fewer than 100 ns_steps")
        super().__init__(params, settings(locals()))

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Update further matrices from now on. Raises as that of all optimizers."""
        before = len(self.param_groups)
        super().add_param_group(param_group)
        for p in self.param_groups[-1]["params"]:
            if p.ndim != 2:
                del self.param_groups[before:]
                raise ArgumentValueError(
                    "Muon updates matrices only",
                    f"parameter: {p._meta}",
                    "give the others to AdamW, for example",
                )

    def _states(self, group):
        return ("momentum_buffer",)

    def _numbers(self, group):
        a, b, c = group["ns_coefficients"]
        named = picked(group, "lr", "momentum", "weight_decay", "eps", "nesterov", "ns_steps")
        return {**named, "a": a, "b": b, "c": c, "adjust": group["adjust_lr_fn"] == "match_rms_adamw"}
