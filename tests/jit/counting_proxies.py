"""What CPython's C code calls back: functions are given proxies that note each special method asked of them.

`watched(function, examples)` puts a proxy in the place of each argument in turn, and of what each container
among the arguments holds.  A proxy stands for a plain value and has the methods that its class has; those
asked for are then taken away, and the call is made again, so that what C falls back on is seen as well.

`python tests/jit/counting_proxies.py` prints what was seen, and which audit events were raised meanwhile.
"""

from __future__ import annotations

import collections
import copy
import importlib
import itertools
import json
import math
import operator
import os
import sys
import types
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

ARITHMETIC = "add sub mul truediv floordiv mod divmod pow lshift rshift and or xor matmul".split()
SPECIAL = tuple(
    [f"__{name}__" for name in ARITHMETIC] + [f"__r{name}__" for name in ARITHMETIC]
    + [f"__i{name}__" for name in ARITHMETIC if name != "divmod"]
    + [f"__{name}__" for name in (
        "neg pos abs invert index int float complex round trunc floor ceil bool len length_hint iter next "
        "reversed contains getitem setitem delitem missing lt le gt ge eq ne hash repr str format bytes "
        "fspath "
        "call copy deepcopy enter exit instancecheck subclasscheck sizeof dir buffer"
    ).split()]
)  # fmt: skip
_PLAINLY: dict[str, Callable] = {  # what a method gives that a class may not have under its name
    "__trunc__": math.trunc, "__floor__": math.floor, "__ceil__": math.ceil, "__bool__": bool,
    "__next__": next,
    "__complex__": complex, "__length_hint__": operator.length_hint, "__fspath__": os.fspath,
    "__bytes__": bytes, "__call__": lambda value, *args, **kwargs: value(*args, **kwargs),
    "__format__": format, "__reversed__": reversed, "__iter__": iter, "__index__": operator.index,
    "__float__": float, "__int__": int,
}  # fmt: skip
_GIVEN: dict[type, tuple[str, ...]] = {  # methods that values could have besides those of their classes
    int: ("__complex__",), float: ("__complex__",), list: ("__length_hint__",), tuple: ("__length_hint__",),
    str: ("__fspath__",), bytes: ("__bytes__",),
}  # fmt: skip


class Ledger:
    """The values that proxies stand for, and what was asked of them."""

    def __init__(self) -> None:
        self.values: dict[int, tuple[Any, Any]] = {}
        self.heard: list[tuple[Any, str]] = []
        self._proxies: list[Any] = []
        self._classes: dict[frozenset[str], type] = {}

    def proxy(self, value: Any, place: Any, without: frozenset[str] = frozenset()) -> Any:
        """A stand-in for a value, which notes under a place what is asked of it."""
        kind = type(value)
        names = {n for n in SPECIAL if getattr(kind, n, None) is not None} | {*_GIVEN.get(kind, ())}
        names = frozenset(names) - without
        if names not in self._classes:
            space = {name: self._method(name) for name in names}
            if "__hash__" not in names:
                space["__hash__"] = None
            self._classes[names] = type("Proxy", (), space | {"__getattribute__": self._attribute()})
        made = object.__new__(self._classes[names])
        self.values[id(made)] = value, place
        self._proxies.append(made)  # or its id would be another's
        return made

    def value_of(self, o: Any) -> Any:
        return self.values[id(o)][0] if type(o).__name__ == "Proxy" else o

    def _method(self, name: str) -> Callable:
        def run(o: Any, *args: Any, **kwargs: Any) -> Any:
            value, place = self.values[id(o)]
            self.heard.append((place, name))
            args = tuple(map(self.value_of, args))
            if name in _PLAINLY:
                return _PLAINLY[name](value, *args, **kwargs)
            return getattr(type(value), name)(value, *args, **kwargs)

        run.__name__ = name
        return run

    def _attribute(self) -> Callable:
        def run(o: Any, name: str) -> Any:
            value, place = self.values[id(o)]
            self.heard.append((place, name))
            return getattr(value, name)

        return run


def used_up(result: Any) -> None:
    """Draw what an iterator of C's gives, as that is when it asks."""
    if type(result).__name__ != "Proxy" and hasattr(type(result), "__next__"):
        for _ in itertools.islice(result, 6):
            pass


def _replaced(ledger: Ledger, value: Any, place: tuple, without: frozenset[str]) -> Any:
    """A value with a proxy in its place, or in that of all that it holds."""
    if place[0] == "of":
        return ledger.proxy(value, place, without)
    if isinstance(value, dict):
        return {ledger.proxy(k, place, without): ledger.proxy(v, place, without) for k, v in value.items()}
    return type(value)(ledger.proxy(item, place, without) for item in value)


def _places(args: tuple, kwargs: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for at, value in (*enumerate(args), *kwargs.items()):
        yield "of", at
        if type(value) in (list, tuple, set, frozenset, dict, collections.deque):
            yield "in", at


def watched(function: Callable, examples: Iterable[tuple[tuple, dict]]) -> dict[tuple[str, Any], set[str]]:
    """What a function asks of its arguments, ("of", position or name), and of what they hold, ("in", ...)."""
    found: dict[tuple[str, Any], set[str]] = defaultdict(set)
    for args, kwargs in examples:
        for place in _places(args, kwargs):
            without: frozenset[str] = frozenset()
            while True:
                heard = {
                    name for where, name in _heard(function, args, kwargs, place, without) if where == place
                }
                found[place] |= heard
                if not heard - without or not heard - without - {n for n in heard if n[:2] != "__"}:
                    break
                without |= heard
    return {place: names for place, names in found.items() if names}


def fresh(args: tuple, kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Copies, each of its own: a list that is extended by itself has no end."""
    return [copy.deepcopy(a) for a in args], {name: copy.deepcopy(a) for name, a in kwargs.items()}


def _heard(function: Callable, args: tuple, kwargs: dict, place: tuple, without: frozenset[str]) -> list:
    ledger = Ledger()
    args, kwargs = fresh(args, kwargs)
    into: Any = kwargs if isinstance(place[1], str) else args
    try:
        into[place[1]] = _replaced(ledger, into[place[1]], place, without)
        ledger.heard.clear()  # what making a set or a dictionary asks
        LISTENING.append(function)
        used_up(function(*args, **kwargs))
    except Exception:
        pass  # what was asked until then counts
    finally:
        if LISTENING:
            LISTENING.pop()
    return ledger.heard


LISTENING: list[Any] = []  # the function that runs, for the audit hook

# ---- examples ----------------------------------------------------------------------------------------------
_FEW: tuple[Any, ...] = (
    2, 0.5, 7, "a", b"ab", [3, 1, 2], [0.5, 1.5], (1, 2), {"a": 1}, {1, 2}, [("k", 1)], ["b", "a"], id, [
    b"a"], None,
)  # fmt: skip
_TWO: tuple[tuple, ...] = (
    (operator.is_, [1, 2, 3]), (operator.is_, [(1, 2), (3, 4)]), ([1, 2, 3], operator.is_), ([1, 2, 3],
    [True, False, 1]),
    ([1, 2, 3], [1, 2, 3]), ((1, 2), (1, 3)), ({1: 2}, {1: 3}), (1.0, 1.5), ("ab{}", "x"), ("%s", "x"), (
    "%d", 3),
    ("<i", b"abcd"), ("i", 5), ("NFC", "é"), ({"a": 1}, {"b": 2}), ([1], [2]),
    ([[1], [2, 3]], [1]), (b"6162", 0), (["a", "b", "c"], "b"),
)  # fmt: skip
_THREE: tuple[tuple, ...] = (
    (6, 4, 5), (1.5, 2.5, 3.5), (operator.is_, [1, 2, 3], 4), ([1, 2, 3], 1, 5), ([3, 1, 2], 0, 2), ("<i",
    b"abcd", 0),
    ("ab", "a", "c"), (b"ab", b"a", b"c"), ([1, 2, 3], 2, 0), ("abc", "a", 0), (b"abc", b"a", 0),
)  # fmt: skip
_FOUR: tuple[tuple, ...] = ((1, 2, 3, 4), ([1, 2, 3], 2, 0, 3), ("abc", "a", 0, 2), ("aab", "a", "c", 1))
_NAMED: dict[str, tuple[tuple[tuple, dict], ...]] = {
    "builtins.sorted": ((([3, 1, 2],), {"key": callable, "reverse": True}),),
    "builtins.max": ((([3, 1, 2],), {"key": callable, "default": 0}), (([],), {"default": 0})),
    "builtins.min": ((([3, 1, 2],), {"key": callable, "default": 0}),),
    "builtins.sum": ((([3, 1, 2],), {"start": 2}),),
    "builtins.zip": ((([3, 1], [1, 2]), {"strict": True}),),
    "builtins.enumerate": ((([3, 1],), {"start": 2}),),
    "builtins.list.sort": ((([3, 1, 2],), {"key": callable, "reverse": True}),),
    "builtins.str.format": ((("{a:>3}{b!r}{c[0]}",), {"a": 1, "b": [2], "c": [3]}), (("{0}{1:>4}", 2, 3),
    {})),
    "builtins.str.format_map": ((("{a}", {"a": 1}), {}),),
    "builtins.str.split": ((("a b",), {"sep": " ", "maxsplit": 1}),),
    "builtins.int": ((("11",), {"base": 2}),),
    "builtins.int.to_bytes": (((3,), {"length": 2, "signed": True}),),
    "builtins.dict.update": ((({"a": 1},), {"b": 2}),),
    "itertools.accumulate": ((([3, 1, 2],), {"func": operator.is_, "initial": 0}),),
    "itertools.groupby": ((([3, 1, 2],), {"key": callable}),),
    "itertools.product": ((([3, 1],), {"repeat": 2}),),
    "itertools.zip_longest": ((([3, 1], [2]), {"fillvalue": 0}),),
    "_bisect.bisect_left": ((([1, 2, 3], 2), {"key": callable}),),
    "_bisect.bisect_right": ((([1, 2, 3], 2), {"key": callable}),),
    "math.isclose": (((1.0, 1.5), {"rel_tol": 0.5, "abs_tol": 0.5}),),
    "math.prod": ((([3, 1],), {"start": 2}),),
}  # fmt: skip


def name_of(function: Any) -> str:
    """A function's name with its home."""
    return f"{getattr(function, '__module__', None) or 'builtins'}.{function.__qualname__}"


def examples_of(function: Any, receiver: type | None = None) -> list[tuple[tuple, dict]]:
    """Calls of plain values that a function takes; of a method those whose first one is of its class."""
    candidates: list[tuple[tuple, dict]] = [*_NAMED.get(name_of(function), ())]
    several = [(), *((a,) for a in _FEW), *itertools.product(_FEW, _FEW), *_TWO, *_THREE, *_FOUR]
    candidates += [(args, {}) for args in several]
    if receiver is not None:
        firsts = _RECEIVERS[receiver]
        more = [(first, *args) for first in firsts for args in several if len(args) < 3]
        candidates = [(args, kw) for args, kw in candidates if args and type(args[0]) is receiver]
        candidates += [(args, {}) for args in more] + [((first, first), {}) for first in firsts]
    found = []
    for args, kwargs in candidates:
        try:
            given, named = fresh(args, kwargs)
            used_up(function(*given, **named))
        except Exception:
            continue
        found.append((args, kwargs))
    return _varied(found)


_MOST = 20  # examples of a function, of as many sorts as it has


def _varied(examples: list[tuple[tuple, dict]]) -> list[tuple[tuple, dict]]:
    """Of many examples those whose arguments are of different classes."""
    sorts: dict[Any, tuple[tuple, dict]] = {}
    for args, kwargs in examples:
        inside = [
            type(next(iter(a), None)) if isinstance(a, (list, tuple, set, dict)) else None for a in args
        ]
        sorts.setdefault((*map(type, args), *inside, *kwargs), (args, kwargs))
    return [*sorts.values()][:_MOST]


_RECEIVERS: dict[type, tuple[Any, ...]] = {
    list: ([3, 1, 2], ["b", "a"]), tuple: ((3, 1, 2),), dict: ({"a": 1, 2: 3},), set: ({1, 2}, {"a"}),
    frozenset: (frozenset((1, 2)),), collections.deque: (collections.deque([3, 1, 2]),), str: ("ab", "3"),
    bytes: (b"ab",), int: (3,), float: (0.5,), complex: (1j,),
}  # fmt: skip


# ---- what may be called ------------------------------------------------------------------------------------
def functions_of(modules: Iterable[str], without: Iterable[str]) -> list[Any]:
    """The C functions of these modules, each once."""
    found = {}
    for home in sorted(modules):
        try:
            module = importlib.import_module(home)
        except ImportError:
            continue
        for name, held in vars(module).items():
            if isinstance(held, types.BuiltinFunctionType) and name not in without:
                found[name_of(held)] = held
    return [held for name, held in found.items() if name.partition(".")[0] in modules]


def main() -> None:
    """Print as JSON what audit events each function raises that a run may call."""
    from test_what_c_reads import CALLABLE

    events: dict[str, set[str]] = defaultdict(set)

    def hear(event: str, args: tuple) -> None:
        if LISTENING and event not in ("builtins.id", "object.__getattr__"):  # which the proxies ask for
            events[name_of(LISTENING[-1])].add(event)

    calls = [(function, examples_of(function, receiver)) for function, receiver in CALLABLE]
    sys.addaudithook(hear)
    for function, examples in calls:
        watched(function, examples[:4])
    print(json.dumps({name: sorted(found) for name, found in events.items()}))


if __name__ == "__main__":
    main()
