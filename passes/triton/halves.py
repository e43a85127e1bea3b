"""Factors of a product that are halves but for their type: moved and chosen, never computed with in f32."""

from __future__ import annotations

import numpy as np

from ...ir.kernel.form import Kernel
from ...ir.kernel.scalar import Cast, Const, Expr, Op, const, op
from ...ir.kernel.types import NUMPY
from ..kernels.product import Product


def half_factors(kernel: Kernel, roles: Product) -> tuple[str, Expr, Expr] | None:
    """A half type and both factors in it, where that loses nothing: products of halves are exact in f32.

    select(c, f32(x[i]), 0.0) * f32(y[i]), of f16    ->    f16, select(c, x[i], f16(0.0)), y[i]
    """
    for dtype in ("f16", "bf16"):
        left, right = (_narrowed(kernel, e, dtype) for e in (roles.left, roles.right))
        if left is not None and right is not None:
            return dtype, left, right
    return None


def _narrowed(kernel: Kernel, expr: Expr, dtype: str) -> Expr | None:
    if isinstance(expr, Cast) and not expr.bits and kernel.dtype_of(expr.arg) == dtype:
        return expr.arg
    if isinstance(expr, Const):
        value = float(expr.value)
        with np.errstate(over="ignore"):
            exact = float(np.asarray(value).astype(NUMPY[dtype])) == value
        return const(value, dtype) if exact else None
    if isinstance(expr, Op) and expr.name == "select":
        condition, *choices = expr.args
        narrow = [_narrowed(kernel, choice, dtype) for choice in choices]
        return None if any(e is None for e in narrow) else op("select", condition, *narrow)
    return None
