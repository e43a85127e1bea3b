"""Warnings that the library gives: what records a run hears of those that every call shows."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence

from .dims import Dim
from .graph import _active

TELLS: list[Callable[[str], None]] = []  # who is told why what is running is no use as a recording
AGAIN = frozenset(("always", "all", "error"))  # what filters do with each; they show others once


def warn(message: str, category: type[Warning] = UserWarning, stacklevel: int = 1) -> None:
    """`warnings.warn`, but not where a call on tensors, which has warned, is made once more on values."""
    if _on_values():
        return
    frame, count = sys._getframe(), stacklevel
    while count and frame.f_back is not None:
        frame, count = frame.f_back, count - 1
    scope, line = frame.f_globals, frame.f_lineno
    if _action(message, category, scope.get("__name__", "<unknown>"), line) in AGAIN:
        for tell in TELLS:
            tell("a warning was given, which every call shows")
    warnings.warn(message, category, stacklevel + 1)


def sizes_told(shape: Sequence[int | Dim]) -> list[int | Dim]:
    """A shape for the text of a warning: a recording holds for the sizes that it tells."""
    return [int(n) for n in shape] if _on_values() else [*shape]


def _on_values() -> bool:
    builder = _active.innermost()
    return builder is not None and builder.tensors is not None


def _action(text: str, category: type[Warning], module: str, line: int) -> str:
    """What the filters do with a warning: "always", "ignore" …"""
    for action, pattern, kind, where, at in warnings.filters:
        of_it = issubclass(category, kind) and (pattern is None or pattern.match(text))
        if of_it and at in (0, line) and (where is None or where.match(module)):
            return action
    return "default"
