"""Numbers that are inputs of a recording: they carry the expression that gives them at a later call.

A lifted number is an int or a float, or a text that tells of one, so that whatever reads it gets the value
of this run.  What reads it without being known to keep its expression must ask for the bare number
(`LiftedNumbers.plain`), which guards the value.  Containers and objects hold bare numbers: the lifted one
stands in the shadow of its place (`Shadow.put`), and is found by who reads the place.
What is computed of lifted numbers stands in a slot of its own (`LiftedNumbers.computed`): every expression is
the name of a slot, and nothing nests.
"""

from __future__ import annotations

import bisect
import functools
import io
import math
from collections import deque
from typing import Any

from ...runtime import Size
from ..facts import literal


class LiftedFloat(float):
    """A float that changes from call to call.  expression: over the slots `S`.  bare: the float itself."""

    expression: str
    bare: float


class LiftedInt(int):
    """An int that changes from call to call.  expression: over the slots `S`.  bare: the int itself."""

    expression: str
    bare: int


class LiftedText(str):
    """A text that tells of lifted numbers.  expression: over the slots `S`.  bare: the text itself."""

    expression: str
    bare: str


class LiftedSize(Size):
    """A shape with sizes that change from call to call.

    expression: over the slots `S`.  bare: the shape itself.  items: its sizes, those that change lifted.
    """

    expression: str
    bare: Size
    items: list


_OF = {float: LiftedFloat, int: LiftedInt, str: LiftedText, Size: LiftedSize}
LIFTED = tuple(_OF.values())


def lifted(value: int | float | str, expression: str) -> Any:
    """The number or text with the expression that gives it."""
    made = _OF[type(value)](value)
    made.expression, made.bare = expression, value
    return made


def raw(value: Any) -> Any:
    """The bare number."""
    return value.bare if type(value) in LIFTED else value


def spelled(value: Any) -> str:
    """The expression of an operand of arithmetic."""
    if type(value) is float and math.isinf(value):
        return f"float('{value}')"
    text = value.expression if type(value) in LIFTED else literal(value)
    return f"({text})" if text.startswith("-") else text


def is_number(x: Any) -> bool:
    """Whether a bare operand can stand in the expression of a lifted number."""
    return type(x) is int or type(x) is float and x == x


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
SEARCHES = frozenset((bisect.bisect_left, bisect.bisect_right))  # among numbers that stay
# What can be given lifted numbers as they are: functions, and methods by their object's class.
TAKING = (
    FUNCTIONS
    | SEARCHES
    | {
        divmod,
        len,
        math.prod,
        pow,
        print,
        str,
        repr,
        format,
        list,
        tuple,
        sum,
        any,
        all,
        isinstance,
        zip,
        enumerate,
        map,
        reversed,
        dict,
        functools.reduce,
    }
)
METHODS: dict[type, frozenset[str]] = {
    list: frozenset(("append", "insert")), deque: frozenset(("append", "appendleft")),
    dict: frozenset(("setdefault", "get", "pop", "update")), str: frozenset(("format",)),
    io.TextIOWrapper: frozenset(("write",)), io.StringIO: frozenset(("write",)),
}  # fmt: skip
