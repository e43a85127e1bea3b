"""What C code calls back stands in `jit/observe/reads.py`: C asks for no more, the recorder hears it."""

from __future__ import annotations

import builtins
import collections
import contextlib
import itertools
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import counting_proxies
import pytest
from counting_proxies import examples_of, functions_of, name_of, watched

import lamina
from lamina.jit import backend
from lamina.jit.interpreted import compile_graph
from lamina.jit.observe import methods, policy, reads

_LISTS = policy.LIST_READS | policy.LIST_WRITES | policy.LIST_READ_WRITES
_NAMES: dict[type, frozenset[str]] = {  # the methods that the recorder lets C run
    list: _LISTS, collections.deque: _LISTS,
    dict: methods._DICT_READS | methods._DICT_KEYED | methods._DICT_WRITES,
    set: policy.SET_READS | policy.SET_WRITES, frozenset: policy.SET_READS,
    **{kind: frozenset(n for n, held in vars(kind).items() if callable(held) and n not in (
        "__new__", "__init__", "__getattribute__", "__getnewargs__"
    )) for kind in (tuple, str, bytes, int, float, complex)},
}  # fmt: skip
_TYPES = policy.PURE_BUILTINS | policy.CONSUMERS | set(policy.SCALARS)
# Every function of C that a recording may call, and the class of its first argument if it is a method.
CALLABLE: list[tuple[Any, type | None]] = [
    *((held, None) for held in sorted(_TYPES, key=name_of)),
    *((held, None) for held in functions_of(policy.PURE_MODULES, policy.IMPURE_IN_PURE)),
    *((getattr(kind, name), kind) for kind, names in _NAMES.items() for name in sorted(names)
      if hasattr(kind, name)),
]  # fmt: skip
# Without examples of plain values: they take what C code makes for them, or refuse.
UNTRIED = {
    "_json.scanstring", "_operator.matmul", "_operator.imatmul", "_sre.compile", "_sre.template",
    "_struct.calcsize",
    "binascii.a2b_base64", "unicodedata.lookup", "zlib.decompress", "builtins.str.__getitem__",
    "builtins.dict.__missing__",
    "builtins.str.__format__", "builtins.int.__format__", "builtins.float.__format__",
    "builtins.complex.__format__",
    "builtins.bytes.fromhex", "builtins.float.fromhex", "builtins.int.from_bytes",
    "builtins.float.__getformat__",
}  # fmt: skip


@pytest.mark.parametrize("home", sorted({name_of(f).rpartition(".")[0] for f, _ in CALLABLE}))
def test_c_asks_for_no_more_than_the_table_says(home):
    beyond = []
    for function, receiver in CALLABLE:
        name = name_of(function)
        if name.rpartition(".")[0] != home:
            continue
        examples = examples_of(function, receiver)
        assert examples or name in UNTRIED, name
        for (place, at), heard in watched(function, examples).items():
            beyond += [(name, place, at, n) for n in sorted(heard - reads.reads(name, place, at))]
    assert not beyond


@pytest.mark.sampled(3)
def test_the_table_says_no_more_than_c_asks():
    """Of each set of methods that a line names, some function of the line asks for one; BUFFER is of 3.12."""
    heard: dict[str, set[str]] = {}
    for function, receiver in CALLABLE:
        seen = watched(function, examples_of(function, receiver)).values()
        heard.setdefault(name_of(function), set()).update(*seen)
    idle = []
    for line in reads.TABLE:
        known = line.names & heard.keys() - UNTRIED
        asked = set().union(*(heard[name] for name in known))
        every = (*line.of, *line.inside, *line.named.values())
        idle += [(line.functions, sorted(m)) for m in every if known and m - reads.BUFFER and not m & asked]
    assert not idle


def test_each_name_of_the_table_may_be_called():
    known = {name_of(function) for function, _ in CALLABLE}
    named = {name for line in reads.TABLE for name in line.names}
    of_others = {"nt.fspath", "math.fma", "math.sumprod", "builtins.bytes.__buffer__"}  # Pythons and systems
    absent = {
        n for n in named if n.count(".") == 2 and not hasattr(_CLASSES[n.split(".")[1]], n.split(".")[2])
    }
    assert named - known <= of_others | absent


_CLASSES = vars(builtins) | {"deque": collections.deque}


def test_pure_functions_raise_no_audit_events():
    """They open, import and start nothing while they run."""
    command = [sys.executable, "-W", "ignore", counting_proxies.__file__]
    place = Path(counting_proxies.__file__).parent
    run = subprocess.run(command, capture_output=True, text=True, check=True, cwd=place)
    events = json.loads(run.stdout)
    assert events == {}


def test_proxies_notice_what_is_asked():
    """An own function that asks for more than it should is found out."""

    def asks(a, b):
        return len(a) + int(b)

    assert watched(asks, [(([1, 2], 3), {})]) == {
        ("of", 0): {"__len__"}, ("of", 1): {"__int__", "__index__"},
    }  # fmt: skip
    assert watched(min, [(([2, 1],), {})])["in", 0] == {"__lt__", "__gt__"}


# ---- the recorder hears it ---------------------------------------------------------------------------------
ANSWERS = (1, 1, 1, 2, 2, 1, 3)  # what the user's method goes by, at each call


def _answer(name: str, n: int, args: tuple) -> Any:
    """What a special method of the user's gives, by the number that changes from call to call."""
    match name:
        case "__iter__" | "__reversed__":
            return iter([n, n + 1])
        case "__getitem__" if type(args[0]) is int and args[0] > n:
            raise IndexError
        case "__getitem__":
            return n + args[0] if type(args[0]) is int else n
        case "__float__" | "__complex__" | "__bytes__":
            return {"__float__": float, "__complex__": complex, "__bytes__": bytes}[name](n)
        case "__str__" | "__repr__" | "__format__" | "__fspath__":
            return f"own{n}"
        case "__bool__" | "__eq__" | "__ne__" | "__lt__" | "__gt__" | "__le__" | "__ge__" | "__contains__":
            return n % 2 == 0
        case "__divmod__" | "__rdivmod__":
            return n, n
        case "keys":
            return ["a"]
    return n


def _ran(trace: Any, function: Any, args: tuple, kwargs: dict, place: tuple, name: str) -> list:
    """What calls give and ask where an object that has one special method stands in a place."""
    asked: list[str] = []
    now = {"n": 1}

    def method(self, *given):
        asked.append(name)
        return _answer(name, now["n"], given)

    space = {name: method} | ({"__hash__": lambda self: 7} if name == "__eq__" else {})
    own = type("Own", (), space | ({"__getitem__": method} if name == "keys" else {}))()
    args, kwargs = counting_proxies.fresh(args, kwargs)
    into: Any = kwargs if isinstance(place[1], str) else args
    held = into[place[1]]
    if place[0] == "of":
        into[place[1]] = own
    elif isinstance(held, dict):
        into[place[1]] = dict.fromkeys(held, own)
    else:
        into[place[1]] = type(held)([own] * len(held))

    @trace
    def f(x):
        result = function(*args, **kwargs)
        if hasattr(type(result), "__next__"):
            result = list(itertools.islice(result, 6))
        return x * 2, result

    seen = []
    for now["n"] in ANSWERS:
        asked.clear()
        try:
            result = _plain(f(X)[1])
        except Exception as error:
            result = type(error).__name__
        seen.append((result, tuple(asked)))
    return seen


X = lamina.ones(2)


def _plain(result: Any) -> Any:
    if type(result).__name__ == "Own":
        return "Own"
    if isinstance(result, (list, tuple, set, frozenset, collections.deque)):
        inside = [_plain(item) for item in result]
        unordered = isinstance(result, (set, frozenset))
        return type(result).__name__, sorted(inside, key=repr) if unordered else inside
    if isinstance(result, dict):
        return "dict", [(_plain(k), _plain(v)) for k, v in result.items()]
    told = re.sub(r" at 0x\w+|own\d+", "", repr(result))  # addresses, and the names of the proxies
    return type(result).__name__, None if hasattr(type(result), "__next__") else told


def unheard(callables: list[tuple[Any, type | None]]) -> dict[tuple[str, str, Any, str], str]:
    """Methods that C calls and the recorder doesn't hear: what a call gives or asks then differs."""
    found: dict[tuple[str, str, Any, str], str] = {}
    for function, receiver in callables:
        tried = set()
        for args, kwargs in examples_of(function, receiver):
            for (place, at), names in watched(function, [(args, kwargs)]).items():
                for name in sorted(names - {"insert", "items"} - tried):
                    eager = _ran(lambda f: f, function, args, kwargs, (place, at), name)
                    if not any(asked for _, asked in eager) or all(type(r) is str for r, _ in eager):
                        continue
                    tried.add((place, at, name))
                    traced = _ran(lamina.jit.trace, function, args, kwargs, (place, at), name)
                    first = next(((a, b) for a, b in zip(eager, traced, strict=True) if a != b), None)
                    if first is not None:
                        found[name_of(function), place, at, name] = f"{first[0]} became {first[1]}"
    return found


# What is known to go wrong, by function: methods that go unheard, or run more often than they should.
UNHEARD: dict[str, frozenset[str]] = {
    "collections.OrderedDict": frozenset(("__getitem__",)),
    "builtins.set.intersection_update": frozenset(("__getitem__",)),
}


@contextlib.contextmanager
def interpreted() -> Iterator[None]:
    native, backend.compile_graph = backend.compile_graph, compile_graph
    try:
        yield
    finally:
        backend.compile_graph = native


def held_to(callables: list[tuple[Any, type | None]]) -> None:
    with interpreted():
        found = unheard(callables)
    print(f"\n{len(found)} unheard")
    news = {k: why for k, why in found.items() if k[3] not in UNHEARD.get(k[0], ())}
    assert not news, "\n".join(f"{k}: {why}" for k, why in news.items())


def test_the_recorder_hears_what_c_calls():
    held_to(CALLABLE[date.today().toordinal() % 27 :: 27])


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_recorder_hears_all_that_c_calls():
    held_to(CALLABLE)
