"""What a traced call hands out is made anew where eager code does it; what C code refuses is refused.

Each attribute of many objects, and what each of their methods gives, is returned: methods of C code among
them, which hold the object that they were asked of.  Two calls must not share what a user could tell by
changing it.  Functions and methods of C code are called with more and fewer arguments than they take.
"""

from __future__ import annotations

import builtins
import collections
import contextlib
import fractions
import functools
import io
import itertools
import math
import operator
import random
import re
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from many_programs import seed_of_the_day

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
    types.CodeType, types.MappingProxyType, lamina.Size, lamina.device, np.generic,
)  # fmt: skip
# What the interpreter or the recorder leaves otherwise than a plain run: frames, weak references.
LEFT_OUT = {
    "__array_interface__",
    "__array_struct__",
    "__weakref__",
    "gi_frame",
    "__reduce__",
    "__traceback__",
}
NOT_CALLED = {"__hash__", "__sizeof__", "__dir__", "__del__", "data_ptr", "const_data_ptr", "seed"}


def described(value: Any) -> str:
    """What a value is, without addresses."""
    held = getattr(value, "__self__", None)
    if isinstance(value, lamina.Tensor):  # compiled code rounds otherwise
        return f"{type(value).__name__} of {value.dtype}{list(value.shape)}"
    text = re.sub(r" at 0x[0-9a-f]+|grad_fn=<\w+>", "", repr(value))
    return f"{type(value).__name__}: {text if len(text) < 500 else ''} of {type(held).__name__}"


def shared(values: list[Any]) -> int:
    """How many objects these are, or are bound to."""
    values = [v for v in values if not isinstance(v, ATOMS)]
    held = [getattr(v, "__self__", v) for v in values]
    return len({id(o) for o in held if not isinstance(o, ATOMS)})


def outcomes(function: Callable, given: Callable[[], Any]) -> tuple[list[Any], list[Any]]:
    """What calls of a function return, errors too; and which argument each is bound to, and what that is."""
    found, kept, seen = [], [], []
    for _ in range(CALLS):
        lamina.manual_seed(0)
        kept.append(given())
        try:
            found.append(function(lamina.ones(2), kept[-1])[1])
        except Exception as error:
            found.append(type(error).__name__)
        held = getattr(found[-1], "__self__", found[-1])
        seen.append(
            ([at for at, o in enumerate(kept) if o is held and not isinstance(o, ATOMS)], described(kept[-1]))
        )
    return found, seen


def given_for(way: str, make: Callable) -> Callable[[], Any]:
    """What makes the second argument of a call."""
    if way == "made":
        return lambda: 0
    if way == "given":
        return lambda: make(lamina.ones(2))
    lamina.manual_seed(0)
    once = make(lamina.ones(2))
    return lambda: once


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", MAKERS)
def test_what_is_returned_is_made_anew(name: str, request: pytest.FixtureRequest) -> None:
    wrong, make = [], MAKERS[name]
    names = [n for n in dir(make(lamina.ones(2))) if n not in LEFT_OUT]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        forms = ["", *(f".{n}" for n in names), *(f".{n}()" for n in names if n not in NOT_CALLED)]
        cases = [(asked, way) for asked in forms for way in ("made", "given", "the same")]
        if not request.config.getoption("--all"):
            cases = random.Random(seed_of_the_day()).sample(cases, min(len(cases), 60))
        for asked, way in cases:
            o = "make(x)" if way == "made" else "o"
            function = eval(f"lambda x, o: (x * 2, {o}{asked})", {"make": make})
            eager, seen = outcomes(function, given_for(way, make))
            traced, theirs = outcomes(jit.trace(function), given_for(way, make))
            if [*map(described, eager)] != [*map(described, traced)]:
                wrong.append(f"{way} {asked}: {described(traced[-1])} for {described(eager[-1])}")
            elif (shared(eager), seen) != (shared(traced), theirs):
                wrong.append(f"{way} {asked}: {shared(traced)} {theirs} for {shared(eager)} {seen}")
    assert not wrong, f"{len(wrong)}: " + "\n".join(wrong)


# ---- calls that Python refuses ----
MODULES = {m.__name__: m for m in (builtins, math, operator, itertools, functools)}
# Which ask the user, run code, or tell addresses.
NOT_TRIED = {
    "exit", "quit", "input", "breakpoint", "help", "copyright", "credits", "license", "open", "exec", "eval",
    "id",
}  # fmt: skip
GIVEN = [
    "", "None", "None, None", "None, None, None", "1", "-1", "'a'", "b'a'", "1.5", "[1]", "[2], 1", "'a', 1",
    "{'a': 1}", "range(2)", "slice(0, 1)", "lambda *a: 1", "len", "int", "zz=1", "key=1",
    "[3, 1, 2], key=lambda v: -v",
]  # fmt: skip


@pytest.fixture(autouse=True)
def somewhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls such as `array.tofile("a")` write files."""
    monkeypatch.chdir(tmp_path)


def kinds_of(function: Callable) -> list[str]:
    """What became of calls: the kinds of their errors."""
    found = []
    for _ in range(3):
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                function(lamina.ones(2))
            found.append("returns")
        except Exception as error:
            found.append(type(error).__name__)
    return found


def called_with(given: str) -> list[tuple[str, dict[str, Any]]]:
    """Calls with these arguments, and the names in them."""
    calls: list[tuple[str, dict[str, Any]]] = [
        (f"{module}.{name}({given})", MODULES)
        for module, held in MODULES.items()
        for name, function in vars(held).items()
        if callable(function) and not name.startswith("_") and name not in NOT_TRIED
    ]
    for made, make in MAKERS.items():
        if made not in ("tensor", "parameter", "linear"):
            names = sorted({*dir(make(lamina.ones(2)))} - LEFT_OUT - NOT_CALLED)
            calls += [(f"make(x).{name}({given})", {"make": make, "made": made}) for name in names]
    return calls


@pytest.mark.sampled(9)
@pytest.mark.parametrize("given", GIVEN)
def test_other_arguments_raise_as_in_eager_calls(given: str, request: pytest.FixtureRequest) -> None:
    wrong, calls = [], called_with(given)
    if not request.config.getoption("--all"):
        calls = random.Random(seed_of_the_day()).sample(calls, 60)
    for text, names in calls:
        function = eval(f"lambda x: (x * 2, {text})", dict(names))
        eager, traced = kinds_of(function), kinds_of(jit.trace(function))
        if eager != traced:
            wrong.append(f"{names.get('made', '')}: {text}: {traced} for {eager}")
    assert not wrong, "\n".join(wrong)
