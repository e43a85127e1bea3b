"""Numbers that Python's and NumPy's own generators draw: a compiled call draws its own, where the run did.

Each is a question that divides the run, and its answer an input of what follows (tree.py).  A call that finds
no path after it has drawn puts the generators back, as it runs undecorated then and draws for itself.
"""

from __future__ import annotations

import _random
import random
import sys
from collections.abc import Callable, Mapping
from typing import Any

from .observe.lifted_numbers import liftable

Draw = Callable[..., Any]  # of a generator and arguments
# What stands in a generator's class, and is called with it.
PYTHONS = (_random.Random.random, _random.Random.getrandbits)

_EVERYBODYS: Any = getattr(random.random, "__self__", None)  # whose methods the functions of `random` are


class Undo:
    """The generators that a call has drawn from, and how they stood."""

    __slots__ = ("_stood",)

    def __init__(self) -> None:
        self._stood: dict[int, tuple[Any, Any]] = {}

    def note(self, generator: Any) -> None:
        """Ahead of a draw: how the generator stands."""
        if id(generator) not in self._stood:
            self._stood[id(generator)] = generator, _state(generator)

    def run(self) -> None:
        """Put all back."""
        while self._stood:
            _, (generator, state) = self._stood.popitem()
            _put_back(generator, state)


def is_numpys(x: Any) -> bool:
    """Whether it is a generator of NumPy's, whose module is not imported before somebody asks for it."""
    numpys = sys.modules.get("numpy.random")
    return numpys is not None and type(x) in (numpys.Generator, numpys.RandomState)


def is_generator(x: Any) -> bool:
    """Whether it is one of those that can be put back; no subclass's own code draws then."""
    return type(x) is random.Random or is_numpys(x)


def is_everybodys(x: Any) -> bool:
    """Whether it is the one that the functions of a module draw from."""
    numpys = sys.modules.get("numpy.random")
    everybodys = getattr(numpys, "beta", None)
    return x is _EVERYBODYS or (x is not None and x is getattr(everybodys, "__self__", None))


def drawn(about: Mapping[str, Any], undo: Undo) -> Any:
    """Draw what a question asks for."""
    undo.note(about["generator"])
    return about["draw"](about["generator"], *about["args"])


def fits(value: Any, args: tuple) -> bool:
    """Whether what was drawn, with such arguments, can be asked for at each call."""
    return liftable(value) and all(type(arg) in (int, float, str, type(None)) for arg in args)


def is_wide(name: str, args: tuple) -> bool:
    """Whether a draw has more results than are worth a recording each."""
    bounds = [arg for arg in args if type(arg) is int]
    if name == "getrandbits":
        return bounds[0] > 3
    return name != "randint" or not 0 < len(bounds) <= 2 or bounds[-1] - sum(bounds[:-1]) > 8


def _state(generator: Any) -> Any:
    if type(generator) is random.Random:
        return _random.Random.getstate(generator)
    if hasattr(generator, "bit_generator"):
        return generator.bit_generator.state
    return generator.get_state(legacy=False)


def _put_back(generator: Any, state: Any) -> None:
    if type(generator) is random.Random:
        _random.Random.setstate(generator, state)
    elif hasattr(generator, "bit_generator"):
        generator.bit_generator.state = state
    else:
        generator.set_state(state)
