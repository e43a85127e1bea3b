"""What a right call is, and arguments that each call gets anew."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import lamina
from lamina.runtime.tensor import Tensor


@dataclass(frozen=True)
class Good:
    """A call: `make` returns the function, its arguments and named arguments, all fresh."""

    label: str
    make: Callable[[], tuple[Callable, tuple, dict]]


def good(label: str, function: Callable, *args: Callable[[], Any] | Any, **kwargs: Any) -> Good:
    """A call whose arguments are given as they are, or by a function that makes them."""

    def fresh(x: Any) -> Any:
        return x.make() if isinstance(x, Fresh) else x

    return Good(label, lambda: (function, tuple(map(fresh, args)), {k: fresh(v) for k, v in kwargs.items()}))


@dataclass(frozen=True)
class Fresh:
    """An argument that each call gets anew."""

    make: Callable[[], Any]


def t(*shape: int) -> Fresh:
    return Fresh(lambda: lamina.ones(*shape))


def ints(*shape: int) -> Fresh:
    return Fresh(lambda: lamina.ones(*shape, dtype=lamina.int64))


def grown(*shape: int) -> Tensor:
    """A leaf with a gradient."""
    x = lamina.ones(*shape or (3,), requires_grad=True)
    x.grad = lamina.ones(*shape or (3,))
    return x
