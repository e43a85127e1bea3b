"""Values that a reader, or a careless guard, takes for one another, and what can be asked of them.

`WAYS[kind]` makes such values, `QUESTIONS[kind]` asks: by builtins, C code of the standard library, and ops.
Classes derived from Python's own override one method each, which C code asks in one place and not in another.
"""

from __future__ import annotations

import copy
import enum
import functools
import itertools
import json
import math
import operator
from collections import ChainMap, Counter, OrderedDict, UserDict, UserList, defaultdict, deque, namedtuple
from dataclasses import asdict, astuple, dataclass, replace
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np

import lamina as t


# ---- classes ----
def _overriding(base: type, name: str, method: Any) -> type:
    """A class derived from one of Python's, with one method of its own."""
    return type(f"{base.__name__}{name}", (base,), {name: method})


ITERATED = _overriding(list, "__iter__", lambda self: iter([9, 8]))
MEASURED = _overriding(list, "__len__", lambda self: 7)
PICKED = _overriding(list, "__getitem__", lambda self, at: 5)
DERIVED = _overriding(list, "extra", None)
HOLDING = _overriding(tuple, "__contains__", lambda self, value: True)
WORDY = _overriding(str, "__str__", lambda self: "other")
NAMED = _overriding(str, "extra", None)
COUNT = _overriding(int, "extra", None)
SCALED = _overriding(float, "__mul__", lambda self, other: -1.0)
MAPPINGS = [
    _overriding(dict, "__missing__", lambda self, key: 42), _overriding(dict, "keys", lambda self: ["z"]),
    _overriding(dict, "__iter__", lambda self: iter(["a"])), _overriding(dict, "extra", None),
    _overriding(dict, "__getitem__", lambda self, key: 3),
]  # fmt: skip
Pair = namedtuple("Pair", "a b")
Choice = enum.Enum("Choice", "X Y")
Number = enum.IntEnum("Number", "X Y")


@dataclass
class Fields:
    a: Any = 1
    b: float = 2.0


@dataclass(frozen=True)
class Frozen:
    a: int = 1
    b: float = 2.0


class Alike:
    """All of them are equal, and have one hash."""

    def __init__(self, a: int):
        self.a = a

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Alike)

    def __hash__(self) -> int:
        return 7

    def __repr__(self) -> str:
        return f"Alike({self.a})"


class Untrue:
    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "Untrue"


# ---- ways ----
SHARED = [1, 2]


def _moved() -> OrderedDict:
    made = OrderedDict(a=1, b=2)
    made.move_to_end("a")
    return made


def _with_a_gap() -> dict:
    made = {"x": 0, "a": 1, "b": 2}
    del made["x"]
    return made


def _grown(*items: int) -> set:
    """A set whose order tells in which order its items came."""
    made: set = set()
    for item in items:
        made.add(item)
    return made


def _lists() -> defaultdict:
    made = defaultdict(list)
    made["a"].append(1)
    return made


WAYS: dict[str, list] = {
    "mapping": [
        lambda: {"a": 1, "b": 2}, lambda: {"b": 2, "a": 1}, lambda: {"a": True, "b": 2},
        lambda: {"a": 1.0, "b": 2}, lambda: {1: "a"}, lambda: {True: "a"}, lambda: {1.0: "a"}, dict, _moved,
        lambda: OrderedDict(a=1, b=2), _lists, lambda: defaultdict(int, a=1, b=2),
        lambda: defaultdict(None, a=1), lambda: Counter("aab"), _with_a_gap,
        *[functools.partial(kind, a=1, b=2) for kind in MAPPINGS],
        lambda: MappingProxyType({"a": 1, "b": 2}), lambda: {"a": SHARED, "b": SHARED},
        lambda: {"a": [1, 2], "b": [1, 2]}, lambda: {"a": -0.0}, lambda: {"a": 0.0},
        lambda: {"a": math.nan}, lambda: ChainMap({"a": 1}, {"b": 2}), lambda: UserDict(a=1, b=2),
        lambda: {0: 1, 8: 2}, lambda: {8: 2, 0: 1}, lambda: {"a": None}, lambda: {(1, 2): 3},
        lambda: {Alike(1): 1}, lambda: {Alike(2): 1},
    ],
    "sequence": [
        lambda: [1, 2], lambda: [2, 1], lambda: [True, 2], lambda: [1.0, 2], lambda: [1, 2, 3], list,
        lambda: [-0.0], lambda: [0.0], lambda: [math.nan], lambda: ITERATED([1, 2]), lambda: MEASURED([1, 2]),
        lambda: PICKED([1, 2]), lambda: DERIVED([1, 2]), lambda: (1, 2), lambda: HOLDING((1, 2)),
        lambda: Pair(1, 2), lambda: deque([1, 2]), lambda: deque([1, 2], maxlen=2),
        lambda: deque([1, 2], maxlen=3), lambda: range(1, 3), lambda: range(0, 3, 2),
        lambda: [SHARED, SHARED], lambda: [[1, 2], [1, 2]], lambda: "ab", lambda: b"ab",
        lambda: bytearray(b"ab"), lambda: np.array([1, 2]), lambda: np.array([1.0, 2.0]),
        lambda: UserList([1, 2]), lambda: [Alike(1), Alike(2)], lambda: [Alike(2), Alike(1)],
        lambda: [None, None], lambda: (i for i in [1, 2]), lambda: iter([1, 2]), lambda: map(abs, [1, 2]),
        lambda: zip([1], [2]), lambda: {"a": 1}.items(), lambda: {"a": 1}.keys(),
        lambda: [np.float32(1), np.int64(2)], lambda: [Number.X, 2], lambda: [Fraction(1), 2],
        lambda: memoryview(b"ab"),
    ],
    "set": [
        lambda: {1, 2}, lambda: {2, 1}, lambda: _grown(8, 0), lambda: _grown(0, 8),
        lambda: frozenset({1, 2}), lambda: _grown(0, 8, 16), lambda: _grown(16, 8, 0), lambda: {True, 2},
        lambda: {1.0, 2}, set, lambda: {"a"}, lambda: {Alike(1)}, lambda: {Alike(2)},
        lambda: _grown(-1, -2), lambda: _grown(-2, -1), lambda: {(1, 2)}, lambda: {None},
    ],
    "number": [
        lambda: 1, lambda: True, lambda: 1.0, lambda: COUNT(1), lambda: COUNT(2), lambda: SCALED(1.0),
        lambda: np.int64(1), lambda: np.float32(1), lambda: np.float64(1), lambda: np.bool_(True),
        lambda: Number.X, lambda: Fraction(1), lambda: Decimal(1), lambda: 1 + 0j, lambda: 0, lambda: -0.0,
        lambda: 0.0, lambda: math.nan, lambda: math.inf, lambda: 1000, lambda: -1, lambda: None, lambda: 2,
        lambda: 3, lambda: 1.5, lambda: np.array(1), lambda: np.array([1]), lambda: Choice.X, Untrue,
        lambda: "1", lambda: 257,
    ],
    "object": [
        Fields, lambda: Fields(1.0, 2), Frozen, lambda: SimpleNamespace(a=1, b=2.0), lambda: Pair(1, 2.0),
        lambda: Alike(1), lambda: Alike(2), lambda: NAMED("ab"), lambda: WORDY("ab"), lambda: "ab",
        lambda: enum.Enum("Choice", "X Y").X, lambda: enum.Enum("Choice", "X Y").Y, lambda: None,
        lambda: int, lambda: float, lambda: type("Local", (), {}),
        lambda: len, lambda: lambda v: 1, lambda: functools.partial(max, 3), lambda: slice(1, 2), lambda: ...,
    ],
}  # fmt: skip


# ---- questions ----
def _matched(x: Any) -> Any:
    match x:
        case str():
            return "text"
        case None:
            return "nothing"
        case Pair(a=1):
            return "pair"
        case Fields(a=1):
            return "fields"
        case int():
            return "number"
        case _:
            return "other"


def _updated(made: dict, x: Any) -> dict:
    made.update(x)
    return made


def _parts(x: Any) -> list:
    first, *rest = x
    return [first, rest]


def _named(x: Any) -> dict:
    return (lambda **given: given)(**x)


QUESTIONS: dict[str, list] = {
    "mapping": [
        list, dict, len, bool, str, sorted, max, OrderedDict, Counter, copy.deepcopy, any, json.dumps, _named,
        lambda x: list(x.items()), lambda x: {**x}, lambda x: x.get("a"), lambda x: x["a"],
        lambda x: "a" in x, lambda x: 1 in x, lambda x: x == {"a": 1, "b": 2}, lambda x: [(k,) for k in x],
        lambda x: {k: [v] for k, v in x.items()}, lambda x: sum(x.values()), lambda x: x.copy(),
        lambda x: x.pop("a"), lambda x: x.popitem(), lambda x: x.setdefault("q", 1), lambda x: x.update(b=5),
        lambda x: x | {"c": 1}, lambda x: {"c": 1} | x, lambda x: list(reversed(x)),
        lambda x: type(x).__name__,
        lambda x: isinstance(x, dict), lambda x: x["zz"], lambda x: next(iter(x)), lambda x: f"{x}",
        lambda x: ChainMap(x, {"c": 1})["c"], operator.itemgetter("a"), lambda x: list(map(str, x)),
        lambda x: list(zip(x, x.values())), lambda x: x.clear(), lambda x: x.__setitem__("n", 3),
        lambda x: [x["a"] is v for v in x.values()], lambda x: list(x.keys() & {"a"}),
        lambda x: x.fromkeys(["k"], 0), lambda x: t.tensor(x["a"]), lambda x: _updated({}, x),
        lambda x: _updated(OrderedDict(), x), lambda x: defaultdict(int, x),
    ],
    "sequence": [
        list, tuple, len, sum, max, min, str, repr, bool, sorted, set, all, any, dict.fromkeys, copy.copy,
        copy.deepcopy, math.prod, bytes, deque, frozenset, np.array, t.tensor, json.dumps, _parts,
        lambda x: [(v,) for v in x], lambda x: x[0], lambda x: x[-1], lambda x: x[0:1], lambda x: 1 in x,
        lambda x: list(reversed(x)), lambda x: list(enumerate(x)), lambda x: list(zip(x, x)),
        lambda x: x == [1, 2], lambda x: x == (1, 2), lambda x: x + x, lambda x: x * 2, lambda x: [*x, 3],
        lambda x: x.append(4), lambda x: x.pop(), lambda x: x.index(2), lambda x: x.count(1),
        lambda x: x.insert(0, 9), lambda x: x.extend([1]), lambda x: x.sort(), lambda x: x.reverse(),
        lambda x: list(map(lambda *v: v, x)), lambda x: list(filter(None, x)),
        lambda x: functools.reduce(operator.add, x), lambda x: list(itertools.chain(x, x)),
        lambda x: list(itertools.accumulate(x)), lambda x: type(x).__name__,
        lambda x: isinstance(x, (list, tuple)), lambda x: ",".join(map(str, x)), lambda x: next(iter(x)),
        lambda x: x[0] is x[1], lambda x: x < [1, 3], lambda x: x.__iadd__([5]), lambda x: f"{x!r:>20}",
        lambda x: list(itertools.islice(x, 1)), lambda x: t.ones(3) * len(x),
        lambda x: x.__setitem__(slice(0, 1), [7]), lambda x: (lambda *given: given)(*x),
    ],
    "set": [
        list, len, str, bool, max, sum, tuple, frozenset, set, dict.fromkeys, lambda x: [(v,) for v in x],
        lambda x: sorted(x, key=str), lambda x: 1 in x, lambda x: x | {5}, lambda x: list(x | {5}),
        lambda x: x & {1}, lambda x: x - {1}, lambda x: list(x.union([3])), lambda x: x.pop(),
        lambda x: x.add(7), lambda x: [x.add(7), list(x)], lambda x: x.discard(1),
        lambda x: x == frozenset({1, 2}), lambda x: x <= {1, 2, 3}, lambda x: next(iter(x)), lambda x: [*x],
        lambda x: x.copy(), lambda x: {(v,) for v in x}, lambda x: type(x).__name__,
        lambda x: hash(frozenset(x)), lambda x: list(map(str, x)), lambda x: x.update([9]),
        lambda x: x.isdisjoint({4}), lambda x: list(zip(x, [1, 2, 3])),
    ],
    "number": [
        abs, int, float, str, repr, bool, round, math.floor, math.sqrt, math.isnan, range, complex,
        json.dumps, np.sqrt, t.tensor, t.zeros, t.arange, lambda x: x + 1, lambda x: 1 + x, lambda x: x * 2.5,
        lambda x: -x, lambda x: f"{x}", lambda x: f"{x:.2f}", lambda x: x == 1, lambda x: x is True,
        lambda x: x is None, lambda x: not x, lambda x: x if x else 0, lambda x: type(x).__name__,
        lambda x: isinstance(x, int), lambda x: isinstance(x, float), lambda x: round(x, 1),
        lambda x: x // 2, lambda x: x % 2, lambda x: x / 2, lambda x: x**2, lambda x: max(x, 0),
        lambda x: min(x, 0.5), lambda x: [0, 1, 2][x], lambda x: "ab" * x, lambda x: [x] * 2, lambda x: x < 2,
        lambda x: x > 0.5, lambda x: x & 1, lambda x: x << 1, lambda x: ~x, lambda x: divmod(x, 2),
        lambda x: t.ones(3) * x, lambda x: t.ones(3) + x, lambda x: x - t.ones(3), lambda x: t.full((2,), x),
        lambda x: t.ones(3).pow(x), lambda x: t.ones(3)[x], lambda x: t.ones(3) > x,
        lambda x: t.where(t.ones(3) > 0, x, 0), lambda x: t.ones(3).clamp(x), lambda x: t.ones(3).add_(x),
        lambda x: t.ones(3).to(t.int64) * x, lambda x: t.ones(3, dtype=t.int64) // x,
        lambda x: t.ones(3).fill_(x), lambda x: {1: "one"}.get(x), lambda x: x in (1, 2),
        lambda x: x in {1, 2}, lambda x: math.copysign(1, x), lambda x: x.real, lambda x: np.float32(x) + 1,
        lambda x: t.ones(3).roll(x),
    ],
    "object": [
        str, vars, len, callable, bool, asdict, astuple, copy.copy, copy.deepcopy, operator.attrgetter("a"),
        _matched, lambda x: x.a, lambda x: x.b, lambda x: repr(x)[:2], lambda x: x == Fields(),
        lambda x: getattr(x, "a", 7), lambda x: hasattr(x, "b"), lambda x: type(x).__name__,
        lambda x: isinstance(x, str), lambda x: x.upper(), lambda x: x + "c", lambda x: replace(x, a=9),
        lambda x: x.name, lambda x: x.value, lambda x: setattr(x, "a", 4), lambda x: x(2),
        lambda x: x([1, 2]), lambda x: f"{x}", lambda x: x is None, lambda x: [1, 2, 3][x],
        lambda x: x._fields, lambda x: x._replace(a=3), lambda x: t.ones(2) * x.a,
        lambda x: x.__class__.__name__, lambda x: x == "ab", lambda x: x in ("ab", None),
        lambda x: {"ab": 1}.get(x), lambda x: x[0],
    ],
}  # fmt: skip


# ---- pairs of tensors ----
def _of(make: Any, start: Any) -> Any:
    """A pair that a function makes of one tensor."""
    return lambda: make(start())


SHAPE = (3, 4)


def _leaf(size: Any = SHAPE, asks: bool = False) -> t.Tensor:
    return t.arange(float(math.prod(size))).reshape(size).clone().requires_grad_(asks)


def _long(asks: bool = False) -> t.Tensor:
    return _leaf((24,), asks) * 1


_CUTS = {
    "view": lambda x: (x, x.view(SHAPE)),
    "viewed": lambda x: (x.view(SHAPE), x),
    "views": lambda x: (x.view(SHAPE), x.view(SHAPE)),
    "same": lambda x: (x, x),
}
_HALVES = {
    "halves": lambda x: (x[:12].view(SHAPE), x[12:].view(SHAPE)),
    "overlap": lambda x: (x[:12].view(SHAPE), x[4:16].view(SHAPE)),
    "overlapped": lambda x: (x[4:16].view(SHAPE), x[:12].view(SHAPE)),
}
PAIRS: dict[str, list] = {
    "plain": [
        lambda: (_leaf(), _leaf()), *[_of(cut, _leaf) for cut in _CUTS.values()],
        *[_of(cut, _long) for cut in _HALVES.values()], _of(lambda x: (x, x.data), _leaf),
        _of(lambda x: (x, x.detach()), _leaf), _of(lambda x: (x, t.from_numpy(x.numpy())), _leaf),
        lambda: (lambda a: (t.from_numpy(a), t.from_numpy(a)))(np.arange(12, dtype="f").reshape(SHAPE)),
    ],
    "a leaf": [
        lambda: (_leaf(asks=True), _leaf()), _of(lambda x: (x, x.data), lambda: _leaf(asks=True)),
        _of(lambda x: (x, x.detach()), lambda: _leaf(asks=True)),
        _of(lambda x: (x, t.from_numpy(x.detach().numpy())), lambda: _leaf(asks=True)),
    ],
    "computed": [
        lambda: (_leaf(asks=True) * 1, _leaf(asks=True) * 2),
        *[_of(cut, lambda: _leaf(asks=True) * 1) for cut in _CUTS.values()],
        *[_of(cut, lambda: _long(True)) for cut in _HALVES.values()],
        _of(lambda x: x.reshape(2, *SHAPE).unbind(0), lambda: _long(True)),
    ],
}  # fmt: skip


def _written_first(x: t.Tensor, y: t.Tensor) -> Any:
    x.add_(1)
    return y * 1


def _written_second(x: t.Tensor, y: t.Tensor) -> Any:
    y.mul_(2)
    return x + 0


def _item(x: t.Tensor, y: t.Tensor) -> Any:
    x[0, 0] = 5.0
    return y.sum()


def _both(x: t.Tensor, y: t.Tensor) -> Any:
    x.mul_(3.0)
    return x, y


def _chained(x: t.Tensor, y: t.Tensor) -> Any:
    x.add_(y)
    y.add_(x)
    return x - y


def _through_a_view(x: t.Tensor, y: t.Tensor) -> Any:
    flat = x.view(-1)
    flat[1:3] = 7.0
    return y[0] * 1, flat


def _copied(x: t.Tensor, y: t.Tensor) -> Any:
    x.copy_(y + 1)
    return y * 2


def _unseen(x: t.Tensor, y: t.Tensor) -> Any:
    with t.no_grad():
        x.sub_(1)
    return (y * y).sum()


def _too_late(x: t.Tensor, y: t.Tensor) -> Any:
    found = (y * y).sum()
    with t.no_grad():
        x.sub_(1)
    return found


def _who(x: t.Tensor, y: t.Tensor) -> Any:
    return x is y, x._base is y, y._base is x, x._base is not None and x._base is y._base, x.is_set_to(y)


OF_PAIRS = [
    _written_first, _written_second, _item, _both, _chained, _through_a_view, _copied, _unseen, _too_late,
    _who,
]  # fmt: skip
