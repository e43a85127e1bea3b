"""Numbers that are inputs of a recording: they carry the expression that gives them at a later call.

A lifted number is an int or a float, so that whatever reads it gets the value of this run.  What reads it
without being known to keep its expression must ask `Facts.plain` for the bare number, which guards the value.
"""

from __future__ import annotations

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


def spelled(value: Any) -> str:
    """The expression of an operand of arithmetic."""
    return value.expression if type(value) in LIFTED else literal(value)
