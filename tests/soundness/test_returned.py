"""What a traced call hands out is made anew where eager code makes it anew, whatever it is bound to.

Each attribute of many new objects is returned: methods of C code among them, which hold the object that they
were asked of.  Two calls must not share what a user could tell by changing it.
"""

from __future__ import annotations

import collections
import fractions
import functools
import itertools
import re
import types
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lamina
from lamina import jit

CALLS = 4


class Plain:
    """An instance, with a method of each kind."""

    def method(self) -> int:
        return 1

    @property
    def me(self) -> Plain:
        return self

    @functools.cached_property
    def kept(self) -> list:
        return [self]

    @classmethod
    def of_class(cls) -> int:
        return 1


class Slotted:
    __slots__ = ("a",)


class Derived(list):
    pass


class Raised(Exception):
    pass


Pair = collections.namedtuple("Pair", "a b")

# What a function makes, given a tensor.
MAKERS: dict[str, Callable[[Any], Any]] = {
    "list": lambda x: [1],
    "list of a tensor": lambda x: [x * 3],
    "dict": lambda x: {"a": 1},
    "set": lambda x: {1},
    "frozenset": lambda x: frozenset([1, 2]),
    "tuple": lambda x: (1, [2]),
    "deque": lambda x: collections.deque([1]),
    "Counter": lambda x: collections.Counter("ab"),
    "OrderedDict": lambda x: collections.OrderedDict(a=1),
    "defaultdict": lambda x: collections.defaultdict(list),
    "ChainMap": lambda x: collections.ChainMap({}),
    "UserDict": lambda x: collections.UserDict(a=1),
    "UserList": lambda x: collections.UserList([1]),
    "namedtuple": lambda x: Pair([1], 2),
    "range": lambda x: range(3),
    "slice": lambda x: slice(1, 2),
    "bytearray": lambda x: bytearray(3),
    "instance": lambda x: Plain(),
    "slots": lambda x: Slotted(),
    "derived": lambda x: Derived([1]),
    "error": lambda x: KeyError("a"),
    "own error": lambda x: Raised("a"),
    "object": lambda x: object(),
    "namespace": lambda x: types.SimpleNamespace(a=1),
    "function": lambda x: lambda: x,
    "method": lambda x: Plain().method,
    "partial": lambda x: functools.partial(max, 1),
    "property": lambda x: property(len),
    "staticmethod": lambda x: staticmethod(len),
    "module": lambda x: types.ModuleType("m"),
    "generator": lambda x: (n for n in (1, 2)),
    "iterator": lambda x: iter([1]),
    "map": lambda x: map(str, [1]),
    "chain": lambda x: itertools.chain([1]),
    "fraction": lambda x: fractions.Fraction(1, 2),
    "tensor": lambda x: x * 2,
    "parameter": lambda x: lamina.nn.Parameter(x.detach()),
    "linear": lambda x: lamina.nn.Linear(2, 2),
    "generator of chance": lambda x: lamina.Generator(),
    "size": lambda x: x.shape,
    "array": lambda x: np.ones(2),
}
# Values that are what they are; None of them can be changed.
ATOMS = (
    int, float, complex, str, bytes, bool, type(None), type(NotImplemented), tuple, frozenset, type,
    types.CodeType, types.MappingProxyType, lamina.Size, lamina.device,
)  # fmt: skip
# What the interpreter or the recorder leaves otherwise than a plain run: frames, weak references.
LEFT_OUT = {"__weakref__", "gi_frame", "__reduce__", "__traceback__"}


def described(value: Any) -> str:
    """What a value is, without addresses."""
    held = getattr(value, "__self__", None)
    text = re.sub(r" at 0x[0-9a-f]+|grad_fn=<\w+>", "", repr(value))
    return f"{type(value).__name__}: {text if len(text) < 500 else ''} of {type(held).__name__}"


def shared(values: list[Any]) -> int:
    """How many objects these are, or are bound to."""
    values = [v for v in values if not isinstance(v, ATOMS)]
    held = [getattr(v, "__self__", v) for v in values]
    return len({id(o) for o in held if not isinstance(o, ATOMS)})


def outcomes(function: Callable) -> list[Any]:
    """What calls of a function return, errors too."""
    found = []
    for _ in range(CALLS):
        lamina.manual_seed(0)
        try:
            found.append(function(lamina.ones(2))[1])
        except Exception as error:
            found.append(f"{type(error).__name__}: {error}")
    return found


@pytest.mark.parametrize("name", MAKERS)
def test_what_is_returned_is_made_anew(name: str) -> None:
    wrong = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        make = MAKERS[name]
        names = [n for n in dir(make(lamina.ones(2))) if n not in LEFT_OUT]
        for asked in ["", *(f".{n}" for n in names)]:
            function = eval(f"lambda x: (x * 2, make(x){asked})", {"make": make})
            eager, traced = outcomes(function), outcomes(jit.trace(function))
            if [*map(described, eager)] != [*map(described, traced)]:
                wrong.append(f"{asked}: {described(traced[-1])} for {described(eager[-1])}")
            elif shared(eager) != shared(traced):
                wrong.append(f"{asked}: {shared(traced)} objects for {shared(eager)}")
    assert not wrong, f"{len(wrong)} of {len(names)}: " + "\n".join(wrong)
