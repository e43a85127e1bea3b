"""The standard's elementwise functions: a table of what they take, and of Lamina's functions that do them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..ir.errors import ArgumentError
from ..runtime import Tensor, ops
from .kinds import NUMBERS, binary, cast, of_number, tensor_in, unary


def _of_parts(function: Callable) -> Callable:
    """Rounding: of complex numbers each part; integers are whole already."""

    def rounded(x: Tensor) -> Tensor:
        if x.dtype.category == "int":
            return x.clone()
        return ops.complex(function(x.real), function(x.imag)) if x.is_complex() else function(x)

    return rounded


def _sign(x: Tensor) -> Tensor:
    """The sign; of a complex number x / |x|.  NaN stays NaN, which Lamina's `sgn`, as PyTorch's, makes 0."""
    found = ops.sgn(x)
    return ops.where(ops.isnan(x), x, found) if x.is_floating_point() else found


def _expm1(x: Tensor) -> Tensor:
    """exp(x) - 1 without cancellation near 0; of a + ib expm1(a) cos b - 2 sin(b/2)^2 + i exp(a) sin b.

    Where a part is not finite it is exp(x) - 1, whose special cases are those of C99.
    """
    if not x.is_complex():
        return ops.expm1(x)
    a, b, plain = x.real, x.imag, ops.exp(x)
    near = ops.expm1(a) * ops.cos(b) - 2 * ops.sin(b / 2) ** 2 + 0.0  # of -0.0 it is 0.0, too
    return ops.complex(ops.where(ops.isfinite(x), near, plain.real - 1), plain.imag)


def _floor_divide(x1: Tensor, x2: Tensor) -> Tensor:
    """The quotient rounded down; with infinities that of IEEE 754, where Python says NaN and -1."""
    found = ops.floor_divide(x1, x2)
    if not x1.is_floating_point():
        return found
    finite = ops.logical_and(ops.isfinite(x1), ops.isfinite(x2))
    return ops.where(finite, found, ops.floor(ops.div(x1, x2)))


def _remainder(x1: Tensor, x2: Tensor) -> Tensor:
    """What a division rounded down leaves; a zero has the divisor's sign."""
    found = ops.remainder(x1, x2)
    if not x1.is_floating_point():
        return found
    return ops.where(ops.eq(found, 0), ops.copysign(found, x2), found)


def _whole(function: Callable) -> Callable:
    """Functions of floats that leave integers as they are."""
    return lambda x: function(x) if x.dtype.inexact else x.clone()


# name: (kind, Lamina's function, or its name where it differs)
UNARY: dict[str, tuple[str, Any]] = {
    "abs": ("numeric", None), "acos": ("floating", None), "acosh": ("floating", None),
    "asin": ("floating", None), "asinh": ("floating", None), "atan": ("floating", None),
    "atanh": ("floating", None), "bitwise_invert": ("integral or bool", "bitwise_not"),
    "ceil": ("real", _whole(ops.ceil)), "conj": ("numeric", "conj_physical"), "cos": ("floating", None),
    "cosh": ("floating", None), "exp": ("floating", None), "expm1": ("floating", _expm1),
    "floor": ("real", _whole(ops.floor)), "imag": ("complex floating", None), "isfinite": ("numeric", None),
    "isinf": ("numeric", None), "isnan": ("numeric", None), "log": ("floating", None),
    "log1p": ("floating", None), "log2": ("floating", None), "log10": ("floating", None),
    "logical_not": ("bool", None), "negative": ("numeric", None), "positive": ("numeric", None),
    "real": ("numeric", None), "reciprocal": ("floating", None), "round": ("numeric", _of_parts(ops.round)),
    "sign": ("numeric", _sign), "signbit": ("real floating", None), "sin": ("floating", None),
    "sinh": ("floating", None), "square": ("numeric", None), "sqrt": ("floating", None),
    "tan": ("floating", None), "tanh": ("floating", None), "trunc": ("real", _whole(ops.trunc)),
}  # fmt: skip
BINARY: dict[str, tuple[str, Any]] = {
    "add": ("numeric", None), "atan2": ("real floating", None), "bitwise_and": ("integral or bool", None),
    "bitwise_left_shift": ("integral", None), "bitwise_or": ("integral or bool", None),
    "bitwise_right_shift": ("integral", None), "bitwise_xor": ("integral or bool", None),
    "copysign": ("real floating", None), "divide": ("floating", None), "equal": ("all", "eq"),
    "floor_divide": ("real", _floor_divide), "greater": ("real", "gt"), "greater_equal": ("real", "ge"),
    "hypot": ("real floating", None), "less": ("real", "lt"), "less_equal": ("real", "le"),
    "logaddexp": ("real floating", None), "logical_and": ("bool", None), "logical_or": ("bool", None),
    "logical_xor": ("bool", None), "maximum": ("real", None), "minimum": ("real", None),
    "multiply": ("numeric", None), "nextafter": ("real floating", None), "not_equal": ("all", "ne"),
    "pow": ("numeric", None), "remainder": ("real", _remainder), "subtract": ("numeric", None),
}  # fmt: skip


def _made(table: dict[str, tuple[str, Any]], make: Callable) -> dict[str, Callable]:
    return {
        name: make(name, kind, found if callable(found) else ops.FUNCTIONS[found or name])
        for name, (kind, found) in table.items()
    }


FUNCTIONS = _made(UNARY, unary) | _made(BINARY, binary)


def clip(x, /, min=None, max=None):
    """Keep each element between `min` and `max`, numbers or tensors that broadcast, in the type of `x`.

    Raises DTypeError, ArgumentError.
    """
    found = tensor_in("clip", x, "real")
    for bound, choose in ((min, ops.maximum), (max, ops.minimum)):
        if bound is None:
            continue
        if isinstance(bound, NUMBERS):
            of_number("clip", bound, x.dtype)
            bound = ops.full((), bound, dtype=x.dtype)
        elif tensor_in("clip", bound, "real").dtype.category != x.dtype.category:
            raise ArgumentError(f"clip: bounds of {bound.dtype.name} for {x.dtype.name}")
        found = choose(found, cast(bound, x.dtype))
    return found.clone() if found is x else found


FUNCTIONS["clip"] = clip
