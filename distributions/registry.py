"""The functions that compute divergences, by the classes of two distributions."""

from __future__ import annotations

from collections.abc import Callable

from ..ir.errors import ArgumentError

_KL_REGISTRY: dict[tuple[type, type], Callable] = {}
nearest: dict[
    type, dict[type, Callable | None]
] = {}  # by the classes that were asked for, of p and then of q


def register_kl(type_p: type, type_q: type) -> Callable[[Callable], Callable]:
    """Enter a function f(p, q) as the divergence of two kinds of distributions; a decorator.

    Where several fit a pair, the one whose classes are the nearest is taken: by p's first, then by q's.
    """
    for kind in (type_p, type_q):
        if not isinstance(kind, type):  # any class: a library's distributions need not derive from ours
            raise ArgumentError(f"register_kl(type_p, type_q): takes classes, not {kind!r}")

    def enter(function: Callable) -> Callable:
        _KL_REGISTRY[type_p, type_q] = function
        nearest.clear()
        return function

    return enter


def remember(p: type, q: type) -> None:
    """See to it that `nearest` holds the function for a pair of classes, or None where there is none."""
    if q not in nearest.get(p, ()):
        pairs = [(first, second) for first in p.__mro__ for second in q.__mro__]
        found = next((_KL_REGISTRY[pair] for pair in pairs if pair in _KL_REGISTRY), None)
        nearest.setdefault(p, {})[q] = found
