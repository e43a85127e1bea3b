"""Numbers that are inputs of a recording: they carry the expression that gives them at a later call.

A lifted number is an int or a float, so that whatever reads it gets the value of this run.  What reads it
without being known to keep its expression must ask `Facts.plain` for the bare number, which guards the value.
What is computed of lifted numbers stands in a slot of its own (`Facts.computed`): every expression is the
name of a slot, and nothing nests.
"""

from __future__ import annotations

import math
from typing import Any

from ..facts import literal


class LiftedFloat(float):
    """A float that changes from call to call.  expression: over the slots `S`.  bare: the float itself."""

    expression: str
    bare: float


class LiftedInt(int):
    """An int that changes from call to call.  expression: over the slots `S`.  bare: the int itself."""

    expression: str
    bare: int


LIFTED = (LiftedFloat, LiftedInt)


def lifted(value: int | float, expression: str) -> Any:
    """The number with the expression that gives it."""
    made = LiftedFloat(value) if type(value) is float else LiftedInt(value)
    made.expression, made.bare = expression, value
    return made


def raw(value: Any) -> Any:
    """The bare number."""
    return value.bare if type(value) in LIFTED else value


def bare(result: Any) -> Any:
    """What a run returns, with bare numbers: only what is made to be returned holds others."""
    if type(result) is tuple and any(type(x) in LIFTED for x in result):
        return tuple(map(raw, result))
    if type(result) is dict and any(type(x) in LIFTED for x in result.values()):
        result.update([(k, raw(x)) for k, x in result.items()])
    return raw(result)


def spelled(value: Any) -> str:
    """The expression of an operand of arithmetic."""
    text = value.expression if type(value) in LIFTED else literal(value)
    return f"({text})" if text.startswith("-") else text


def is_number(x: Any) -> bool:
    """Whether a bare operand can stand in the expression of a lifted number."""
    return type(x) is int or type(x) is float and math.isfinite(x)


# Functions of numbers alone that give a number or a truth; `OF_SEVERAL`: those that take a list as well.
OF_SEVERAL = frozenset((max, min))
FUNCTIONS = frozenset((
    *OF_SEVERAL, abs, round, int, float,
    *(getattr(math, name) for name in (
        "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "copysign", "cos", "cosh",
        "degrees", "erf", "erfc", "exp", "exp2", "expm1", "fabs", "floor", "fmod", "gamma", "gcd", "hypot",
        "isclose", "isfinite", "isinf", "isnan", "isqrt", "ldexp", "lgamma", "log", "log10", "log1p", "log2",
        "pow", "radians", "remainder", "sin", "sinh", "sqrt", "tan", "tanh", "trunc",
    )),
))  # fmt: skip
TAKING = FUNCTIONS | {pow}  # what can be given lifted numbers as they are
