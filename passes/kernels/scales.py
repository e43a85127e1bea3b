"""What multiplies a sum after it is taken: factors that do not vary along what is summed.

sum(r) (x[i, g, r] * (f32(q[j, g, r]) * s[j, g]))    ->    s[j, g] * sum(r) (x[i, g, r] * f32(q[j, g, r]))
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

from ...ir.kernel.form import Kernel, Reduce
from ...ir.kernel.scalar import Expr, Op, op
from ...ir.kernel.types import is_floating


def split_scales(kernel: Kernel, stage: Reduce, inner: Iterable[str]) -> tuple[Expr, Expr] | None:
    """The product of the factors of a floating sum that are the same along some axes, and that of the others;
    None where there are no such, or no others."""
    if stage.combine != "sum" or not is_floating(kernel.dtypes[stage.name]):
        return None
    factors, waiting, along = list[Expr](), [stage.value], frozenset(inner)
    while waiting:
        value = waiting.pop()
        if isinstance(value, Op) and value.name == "mul":
            waiting += reversed(value.args)
        else:
            factors.append(value)
    scales = [factor for factor in factors if not kernel.free_axes(factor) & along]
    others = [factor for factor in factors if kernel.free_axes(factor) & along]
    return (_product(scales), _product(others)) if scales and others else None


def _product(factors: list[Expr]) -> Expr:
    return reduce(lambda one, other: op("mul", one, other), factors)
