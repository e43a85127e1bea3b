"""Methods of builtin objects: a recording that is served reads and writes what the call would have."""

import io
from collections import Counter, OrderedDict, defaultdict, deque

import numpy as np
import pytest
from served import compared


def holding(value, run):
    """A program whose function runs on a value that it captures."""

    def make():
        held = {"v": value()}
        return lambda x: run(held["v"], x), held

    return make


def put(value):
    """A change: something else stands in the place."""
    return lambda held: held.__setitem__("v", value())


STEADY = {  # methods that leave the object as it was: every call but the first is served
    "index": (lambda: [3, 1, 2], lambda v, x: (v.index(1), v.count(2), v.copy(), len(v))),
    "append_pop": (lambda: [3, 1], lambda v, x: (v.append(x), v[-1], v.pop())),
    "insert_remove": (lambda: [3, 1], lambda v, x: (v.insert(0, 9), v[0], v.remove(9), list(v))),
    "pop_front": (lambda: [3, 1], lambda v, x: (v.insert(0, v.pop(0)), v)[0]),
    "extend": (lambda: [3], lambda v, x: (v.extend(i for i in (1, 2)), len(v), v.clear(), v.append(3))),
    "reverse_twice": (lambda: [3, 1, 2], lambda v, x: (v.reverse(), v[0], v.reverse(), v[0])),
    "slice": (lambda: [3, 1, 2], lambda v, x: (v[1:], v[::-1], v + [1], v * 2)),
    "dict": (
        lambda: {"a": 1},
        lambda v, x: (
            v.get("a"),
            v.get("z", 0),
            v.setdefault("q", x),
            v.pop("q"),
            v.pop("z", 5),
            [*v.items()],
        ),
    ),
    "dict_update": (
        lambda: {"a": 1},
        lambda v, x: (v.update(b=2), v["b"], v.pop("b"), v | {"c": 3}, "b" in v),
    ),
    "setdefault": (lambda: {"a": []}, lambda v, x: (v.setdefault("a", None).append(x), v["a"].pop())),
    "dict_views": (
        lambda: {"a": 1, "b": 2},
        lambda v, x: (v.keys() & {"a"}, sum(v.values()), len(v.items())),
    ),
    "popitem": (lambda: {"a": 1}, lambda v, x: v.update([v.popitem()])),
    "defaultdict": (lambda: defaultdict(list), lambda v, x: (v["k"].append(x), v.pop("k"), len(v))),
    "ordered": (
        lambda: OrderedDict(a=1, b=2),
        lambda v, x: (v.move_to_end("a"), [*v], v.move_to_end("b"), v.update(c=3), v.popitem()),
    ),
    "counter": (lambda: Counter("aab"), lambda v, x: (v.most_common(1), v["z"], sum(v.values()))),
    "set": (
        lambda: {1, 2},
        lambda v, x: (v | {3}, 1 in v, v.issubset({1, 2, 3}), v.add(7), 7 in v, v.remove(7)),
    ),
    "frozenset": (lambda: frozenset((1, 2)), lambda v, x: (v & {1}, v.union([5]), len(v))),
    "deque": (
        lambda: deque([1, 2], 3),
        lambda v, x: (v.appendleft(0), v[0], v.popleft(), v.rotate(1), v[0], v.rotate(-1), len(v)),
    ),
    "tuple": (lambda: (1, [2]), lambda v, x: (v.index(1), v.count(3), v + (1,), v[1][0])),
    "text": (
        lambda: "a,b",
        lambda v, x: (
            v.split(","),
            v.join("xy"),
            f"{x} {v}",
            "%s" % v,  # noqa: UP031
            v.translate(str.maketrans("a", "b")),
        ),
    ),
    "bytes": (lambda: b"ab", lambda v, x: (v.decode(), v.hex(), v + b"c")),
    "array": (
        lambda: np.array([1.0, 2.0]),
        lambda v, x: (v.sum(), v.mean(), v.reshape(2, 1) * 2, v.tolist(), v.shape),
    ),
    "stream": (io.StringIO, lambda v, x: v.write("line\n")),
    "own_stream": (
        lambda: None,
        lambda v, x: (lambda b: (b.write("a"), print("b", file=b), b.getvalue()))(io.StringIO()),
    ),
}
CHANGED = {
    "index": lambda: [1, 1, 5],
    "append_pop": lambda: [3, 1, 7],
    "insert_remove": lambda: [1, 3],
    "pop_front": lambda: [1],
    "extend": lambda: [3, 3],
    "reverse_twice": lambda: [2, 1, 3],
    "slice": lambda: (3, 1),
    "dict": lambda: {"a": 1, "q": 2},
    "dict_update": lambda: {"b": 1, "a": 1},
    "setdefault": lambda: {},
    "dict_views": lambda: {"b": 1, "a": 2},
    "popitem": lambda: {"b": 1},
    "defaultdict": lambda: defaultdict(list, k=[1]),
    "ordered": lambda: OrderedDict(b=1, a=2),
    "counter": lambda: Counter("abb"),
    "set": lambda: {2},
    "frozenset": lambda: frozenset((1,)),
    "deque": lambda: deque([2, 1], 2),
    "tuple": lambda: (1, [3]),
    "text": lambda: "b,b",
    "bytes": lambda: b"b",
    "array": lambda: np.array([1.0, 2.5]),
    "stream": io.StringIO,
    "own_stream": lambda: 1,
}


@pytest.mark.parametrize("name", STEADY)
def test_methods_that_are_served(name):
    value, run = STEADY[name]
    compared(holding(value, run), serves=3)
    compared(holding(value, run), put(CHANGED[name]), serves=1)


@pytest.mark.parametrize("name", [n for n in STEADY if n not in ("frozenset", "tuple", "text", "bytes")])
def test_methods_see_changes_in_place(name):
    value, run = STEADY[name]

    def change(held):
        v = held["v"]
        if isinstance(v, (list, deque)):
            v.append(8)
        elif isinstance(v, dict):
            v["a"] = 8 if not isinstance(v.get("a"), list) else [8]
        elif isinstance(v, set):
            v.add(8)
        elif isinstance(v, np.ndarray):
            v[0] = 8

    compared(holding(value, run), change, serves=1)


GROWING = {  # what they write, a later call reads: no recording may serve the next call with an old value
    "append_len": (lambda: [1], lambda v, x: (v.append(x), len(v))),
    "pop": (lambda: [1, 2, 3, 4, 5], lambda v, x: v.pop()),
    "count": (lambda: {"n": 0}, lambda v, x: v.update(n=v["n"] + 1)),
    "extend_itself": (lambda: [1], lambda v, x: (v.extend(v), sum(v))),
    "counter_update": (lambda: Counter("ab"), lambda v, x: (v.update("a"), v["a"])),
    "set_add": (lambda: {0}, lambda v, x: (v.add(len(v)), sorted(v))),
    "rotate": (lambda: deque([1, 2, 3]), lambda v, x: (v.rotate(1), v[0])),
    "sort": (lambda: [3, 1, 2], lambda v, x: (v.sort(key=lambda i: -i), v[0], v.reverse())),
}


@pytest.mark.parametrize("name", GROWING)
def test_methods_that_change_what_they_read(name):
    compared(holding(*GROWING[name]), serves=0)


def test_list_taken_in_as_it_was_then():
    def make():
        out = []

        def run(x):
            new = [x]
            out.extend(new)
            new.append(2)
            return new

        return run, out

    compared(make, serves=3)


class Doubling(list):
    def append(self, item):
        super().append(2 * item)


class Shifted(dict):
    def __setitem__(self, key, value):
        super().__setitem__(key, value + 1)


def test_methods_called_past_an_override():
    compared(holding(Doubling, lambda v, x: (v.append(x), v[-1], v.pop())))
    compared(holding(Shifted, lambda v, x: (v.__setitem__("a", x), v["a"], v.pop("a"))))


REFUSED = {
    "getvalue": (io.StringIO, lambda v, x: v.getvalue(), "StringIO.getvalue() reads or writes a file"),
    "fill": (lambda: np.zeros(2), lambda v, x: v.fill(0.0), "ndarray.fill() changes an array in place"),
    "iterator": (lambda: iter([1, 2]), lambda v, x: next(v), "from outside was gone through"),
    "file": (lambda: None, lambda v, x: open("/dev/null").close(), "io.open() reads or writes a file"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_methods_that_are_refused(name):
    value, run, why = REFUSED[name]
    assert why in compared(holding(value, run), serves=0).refused
