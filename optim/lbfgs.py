"""LBFGS: steps along a direction that the last gradients and steps tell about the curvature."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..ir.errors import ArgumentError, ArgumentValueError, GradError
from ..runtime import Tensor, enable_grad, no_grad, ops
from .line_search import Point, strong_wolfe
from .optimizer import Optimizer, closure_of
from .rules import Rate, common, settings

KEPT = ("d", "t", "old_dirs", "old_stps", "ro", "H_diag", "prev_flat_grad", "prev_loss")


class LBFGS(Optimizer):
    """A quasi-Newton method, of one parameter group: `step(closure)` evaluates the closure several times.

    The closure sets the gradients to zero, computes the loss, calls backward and returns the loss.
    Source: Nocedal and Wright, Numerical optimization, 2006, algorithm 7.4.
    """

    _alike = False

    def __init__(
        self, params: Iterable, lr: Rate = 1, max_iter: int = 20, max_eval: int | None = None,
        tolerance_grad: float = 1e-7, tolerance_change: float = 1e-9, history_size: int = 100,
        line_search_fn: str | None = None,
    ):  # fmt: skip
        common(lr, None, 0)
        if max_eval is None:
            max_eval = max_iter * 5 // 4
        super().__init__(params, settings(locals()))
        if len(self.param_groups) != 1:
            raise ArgumentValueError("LBFGS updates one parameter group", "pass all parameters in one list")

    def _numbers(self, group: dict[str, Any]) -> dict[str, Any]:
        """None: there is no update record, as how a step goes on hangs on what the closure returns."""
        return {}

    def step(self, closure: Callable[[], Any]) -> Any:  # type: ignore[override]
        """Take up to `max_iter` iterations, and return the loss at the start.

        Raises ArgumentError for what is no closure, GradError for an unknown `line_search_fn`.
        """
        if not callable(closure):
            raise ArgumentError(
                "LBFGS.step(closure): the closure must be callable, as the loss is asked for anew"
            )
        self._opt_called = True
        for hook in self._hooks_before():
            closure = closure_of(hook(self, (self, closure), {}), closure)
        with no_grad():
            loss = self._search(closure)
        for hook in self._hooks_after():
            hook(self, (self, closure), {})
        return loss

    def _search(self, closure: Callable[[], Any]) -> Any:
        group = self.param_groups[0]
        lr, searching = group["lr"], group["line_search_fn"]
        if searching not in (None, "strong_wolfe"):
            raise GradError(f"LBFGS: line_search_fn must be None or 'strong_wolfe', not {searching!r:.60}")
        state = self.state[group["params"][0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)

        def evaluate() -> Any:
            with enable_grad():
                return closure()

        first = evaluate()
        loss, evaluations = float(first), 1
        state["func_evals"] += 1
        grad = self._gradient()
        if _largest(grad) <= group["tolerance_grad"]:
            return first
        rate = float(lr)
        kept: Any = [state.get(name) for name in KEPT]
        d, t, dirs, steps, ro, scale, before, loss_before = kept
        for iteration in range(1, group["max_iter"] + 1):
            state["n_iter"] += 1
            if state["n_iter"] == 1:
                d, dirs, steps, ro, scale = -grad, [], [], [], 1
            else:
                y, s = grad - before, d * t
                curvature = y.dot(s)
                if curvature > 1e-10:
                    if len(dirs) == group["history_size"]:
                        del dirs[0], steps[0], ro[0]
                    dirs.append(y)
                    steps.append(s)
                    ro.append(1.0 / curvature)
                    scale = curvature / y.dot(y)
                al = state.setdefault("al", [None] * group["history_size"])
                d = direction(grad, dirs, steps, ro, scale, al)
            before, loss_before = grad.clone(), loss
            t = min(1.0, float(1.0 / grad.abs().sum())) * rate if state["n_iter"] == 1 else rate
            slope = float(grad.dot(d))
            if slope > -group["tolerance_change"]:
                break
            asked = 0
            if searching:
                at = self._line(d, evaluate)
                end, asked = strong_wolfe(at, Point(0.0, loss, grad, slope), t, _largest(d))
                t, loss, grad = end.step, end.loss, end.gradient
                self._move(t, d)
            else:
                self._move(t, d)
                if iteration < group["max_iter"]:  # the last is evaluated by who calls next
                    loss, asked = float(evaluate()), 1
                    grad = self._gradient()
            evaluations += asked
            state["func_evals"] += asked
            if (
                evaluations >= group["max_eval"]
                or _largest(grad) <= group["tolerance_grad"]
                or _largest(d * t) <= group["tolerance_change"]
                or abs(loss - loss_before) < group["tolerance_change"]
            ):
                break
        state.update(zip(KEPT, (d, t, dirs, steps, ro, scale, before, loss_before), strict=True))
        return first

    def _line(self, along: Tensor, evaluate: Callable[[], Any]) -> Callable[[float], Point]:
        """The loss, its gradient and slope at a step from where the parameters are, which they stay at."""
        params = self.param_groups[0]["params"]
        places = [p.clone() for p in params]

        def at(step: float) -> Point:
            self._move(step, along)
            loss, gradient = float(evaluate()), self._gradient()
            for p, place in zip(params, places, strict=True):
                p.copy_(place)
            return Point(step, loss, gradient, float(gradient.dot(along)))

        return at

    def _gradient(self) -> Tensor:
        """All gradients in one row; zeros for those that there are none of."""
        params = self.param_groups[0]["params"]
        return ops.cat(
            [ops.zeros_like(p).reshape(-1) if p.grad is None else p.grad.reshape(-1) for p in params]
        )

    def _move(self, step: float, along: Tensor) -> None:
        """Add a step along a direction to the parameters."""
        start = 0
        for p in self.param_groups[0]["params"]:
            p.add_(along[start : start + p.numel()].reshape(p.shape), alpha=step)
            start += p.numel()


def _largest(x: Tensor) -> float:
    return float(x.abs().max())


def direction(grad: Tensor, dirs: list, steps: list, ro: list, scale: Any, al: list) -> Tensor:
    """The inverse Hessian, as the pairs of gradients' changes and steps tell it, times -grad (two loops).

    ro: per pair the inverse of their product.  scale: the inverse Hessian to begin with.  al: room for
    numbers of the first loop.
    """
    q = -grad
    for i in range(len(dirs) - 1, -1, -1):
        al[i] = steps[i].dot(q) * ro[i]
        q = q - dirs[i] * al[i]
    d = q * scale
    for i in range(len(dirs)):
        d = d + steps[i] * (al[i] - dirs[i].dot(d) * ro[i])
    return d
