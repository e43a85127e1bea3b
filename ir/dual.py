"""The gradient of a scalar body, derived from the body itself.

Elementwise functions have diagonal Jacobians, so pushing a cotangent through each op's own gradient rule,
forwards, gives what pulling it backwards would.  A `Dual` carries a value and the cotangent scaled by the
derivative so far; running a body on duals is its vector-Jacobian product, for whatever kind of operand the
values are.  A branch that `where` does not choose is never multiplied by 0, so it may hold inf or NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .operators import Operators


class Dual(Operators):
    """A value, and g times its derivative along one operand (None: it does not vary)."""

    __slots__ = ("value", "slope")

    def __init__(self, value: Any, slope: Any):
        self.value, self.slope = value, slope

    def __lamina_op__(
        op: Any, args: tuple, kwargs: dict
    ) -> Any:  # called on the type: op takes the first place
        operands, attrs = op.bind(*args, **kwargs)
        slopes = tuple(a.slope if isinstance(a, Dual) else None for a in operands)
        values = tuple(a.value if isinstance(a, Dual) else a for a in operands)
        out = op(*(a.value if isinstance(a, Dual) else a for a in args), **kwargs)
        by_name = dict(zip(op.operands, values, strict=True)) | {"out": out}
        saved = tuple(by_name[name] for name in op.saves)
        total = None
        for position, slope in enumerate(slopes):
            if slope is not None and op.differentiates(position):
                needs = tuple(i == position for i in range(len(slopes)))
                term = op.cotangents(saved, (slope,), attrs, needs, ())[position]
                total = term if total is None else total if term is None else total + term
        return Dual(out, total)


def derived(body: Callable, position: int) -> Callable:
    """The vjp of `body` for one operand: f(cotangent, operands, attrs), None where the body does not vary."""

    def vjp(g: Any, operands: tuple, attrs: dict) -> Any:
        duals = [x if x is None else Dual(x, g if i == position else None) for i, x in enumerate(operands)]
        out = body(*duals, **attrs)
        return out.slope if isinstance(out, Dual) else None

    return vjp
