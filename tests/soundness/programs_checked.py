"""Programs that ask classes, identity and order: protocols, bases, `callable`, NaN, tables of sets."""

from __future__ import annotations

import collections
import collections.abc
import functools
import itertools
import math
import operator
import types
import typing

from battery import lib as t
from battery import program


@typing.runtime_checkable
class HasScale(typing.Protocol):
    def scale(self): ...


@typing.runtime_checkable
class HasRate(typing.Protocol):
    rate: float


def asked(w, question, changes, make=None):
    """Call a function that asks a question of an object of a fresh class, between changes of that class."""

    class Thing:
        pass

    thing = make(Thing) if make else Thing()
    f = w.trace(lambda x: x * 2 if question(thing) else x * 3)
    for change in w.rounds(*changes):
        change(Thing, thing)
        w.call(f, w.x)


def give(name, value):
    return lambda kind, thing: setattr(kind, name, value)


def take(name):
    return lambda kind, thing: delattr(kind, name) if name in vars(kind) else None


@program("classes")
def a_protocol_finds_a_method_in_the_class(w):
    asked(w, lambda o: isinstance(o, HasScale), (take("scale"), give("scale", lambda self: 1)))


@program("classes")
def a_protocol_finds_a_method_in_the_object(w):
    def put(kind, thing):
        thing.scale = len

    def drop(kind, thing):
        vars(thing).pop("scale", None)

    asked(w, lambda o: isinstance(o, HasScale), (drop, put))


@program("classes")
def a_protocol_asks_a_property(w):
    here = False

    class Thing:
        @property
        def rate(self):
            if not here:
                raise AttributeError("rate")
            return 1.0

    thing = Thing()
    f = w.trace(lambda x: x * 2 if isinstance(thing, HasRate) else x * 3)
    for here in w.rounds(False, True):
        w.call(f, w.x)


@program("classes")
def a_module_satisfies_a_protocol(w):
    class Net(t.nn.Module):
        def forward(self, x):
            return x * 2 if isinstance(self, HasScale) else x * 3

    net = Net()
    f = w.trace(net)
    for here in w.rounds(False, True, False):
        if here:
            net.scale = len
        elif hasattr(net, "scale"):
            del net.scale
        w.call(f, w.x)


@program("classes")
def typing_supports_float(w):
    float_of = give("__float__", lambda self: 1.0)
    asked(w, lambda o: isinstance(o, typing.SupportsFloat), (take("__float__"), float_of))


@program("classes")
def typing_supports_abs_in_a_tuple(w):
    kinds = (int, (typing.SupportsAbs, str))
    asked(w, lambda o: isinstance(o, kinds), (take("__abs__"), give("__abs__", lambda self: 1)))


@program("classes")
def an_abstract_class_takes_one_in(w):
    made = [type("Base", (collections.abc.Sized,), {"__len__": lambda self: 1})]

    class Thing:
        pass

    thing = Thing()
    f = w.trace(lambda x: x * 2 if isinstance(thing, made[0]) else x * 3)
    for register in w.rounds(False, True):
        made[0] = type("Base", (collections.abc.Sized,), {"__len__": lambda self: 1})
        if register:
            made[0].register(Thing)
        w.call(f, w.x)


def based(w, question):
    class A:
        pass

    class B:
        pass

    class C(A):
        pass

    thing = C()
    f = w.trace(lambda x: x * 2 if question(thing, C, B) else x * 3)
    for base in w.rounds(A, B, A):
        C.__bases__ = (base,)
        w.call(f, w.x)


@program("classes")
def bases_are_assigned_under_isinstance(w):
    based(w, lambda o, kind, b: isinstance(o, b))


@program("classes")
def bases_are_assigned_under_isinstance_of_many(w):
    based(w, lambda o, kind, b: isinstance(o, (int, b | str)))


@program("classes")
def bases_are_assigned_under_issubclass(w):
    based(w, lambda o, kind, b: issubclass(kind, b))


@program("classes")
def bases_are_assigned_under_a_class_pattern(w):
    def question(o, kind, b):
        match o:
            case b():
                return True
            case _:
                return False

    based(w, question)


@program("classes")
def bases_are_assigned_under_except(w):
    class A(Exception):
        pass

    class B(Exception):
        pass

    class C(A):
        pass

    @w.trace
    def f(x):
        try:
            raise C
        except B:
            return x * 2
        except C:
            return x * 3

    for base in w.rounds(A, B, A):
        C.__bases__ = (base,)
        w.call(f, w.x)


@program("classes")
def a_class_becomes_a_sequence_to_patterns(w):
    made = []

    @w.trace
    def f(x):
        match made[0]:
            case [*_]:
                return x * 2
            case _:
                return x * 3

    for register in w.rounds(False, True):
        kind = type("Thing", (), {"__len__": lambda self: 0, "__getitem__": lambda self, k: None})
        made[:] = [kind()]
        if register:
            collections.abc.Sequence.register(kind)
        w.call(f, w.x)


@program("classes")
def a_property_gives_the_class(w):
    class K:
        pass

    class Proxy:
        kind = int

        @property
        def __class__(self):
            return self.kind

    proxy = Proxy()
    f = w.trace(lambda x: x * 2 if isinstance(proxy, K) else x * 3)
    for proxy.kind in w.rounds(int, K, int):
        w.call(f, w.x)


@program("classes")
def a_class_learns_to_be_called(w):
    asked(w, callable, (take("__call__"), give("__call__", lambda self: 1)))


@program("classes")
def callable_is_called_from_c(w):
    changes = (take("__call__"), give("__call__", lambda self: 1))
    asked(w, lambda o: [*filter(callable, [o])] != [], changes)


# ---- identity ----
def identity_of(w, question):
    """Ask a question of two numbers that are equal in bits, and sometimes one object."""
    one, two = float("nan"), float("nan")
    held = types.SimpleNamespace(a=one, b=one)
    f = w.trace(lambda x: x * (question(held.a, held.b) + 2))
    for held.b in w.rounds(one, two, one):
        w.call(f, w.x)


QUESTIONS = {
    "in_a_list": lambda a, b: a in [b],
    "in_a_tuple": lambda a, b: a in (b, 1.0),
    "counted": lambda a, b: [b].count(a),
    "counted_in_a_tuple": lambda a, b: (b,).count(a),
    "counted_by_operator": lambda a, b: operator.countOf([b], a),
    "equal_lists": lambda a, b: [a] == [b],
    "equal_tuples": lambda a, b: (1, a) == (1, b),
    "equal_dicts": lambda a, b: {"k": a} == {"k": b},
    "ordered_tuples": lambda a, b: (a, 1) < (b, 2),
    "least": lambda a, b: min((a, 1), (b, 0))[1],
    "in_a_dict": lambda a, b: {b: 1}.get(a, 0),
    "in_a_set": lambda a, b: a in {b},
    "joined_sets": lambda a, b: len({a} | {b}),
    "made_a_set": lambda a, b: len(frozenset((a, b))),
    "keys": lambda a, b: len(dict(zip((a, b), (1, 2)))),
    "grouped": lambda a, b: len([*itertools.groupby([a, b])]),
    "in_a_deque": lambda a, b: collections.deque([b]).count(a),
    "in_values": lambda a, b: a in {"k": b}.values(),
    "is": lambda a, b: operator.is_(a, b),
    "is_not": lambda a, b: operator.is_not(a, b),
    "mapped": lambda a, b: sum(map(operator.is_, [a], [b])),
    "reduced": lambda a, b: int(functools.reduce(operator.is_, (a, b))),
}


def _program_of(name, question):
    def nan(w):
        identity_of(w, question)

    nan.__name__ = f"nan_{name}"
    return program("identity")(nan)


for _name, _question in QUESTIONS.items():
    globals()[f"nan_{_name}"] = _program_of(_name, _question)


@program("identity")
def numbers_are_one_to_operator_is(w):
    held = types.SimpleNamespace(a=1000.5, b=0.0)
    f = w.trace(lambda x: x * 2 if operator.is_(held.a, held.b) else x * 3)
    for same in w.rounds(True, False):
        held.b = held.a if same else float("1000.5")
        w.call(f, w.x)


@program("identity")
def a_tuple_of_constants_is_made_anew(w):
    thing = types.SimpleNamespace(n=1)
    f = w.trace(lambda x: (x * thing.n, (thing.n, 0), (1, 2)))

    def ones():
        first, second = f(w.x), f(w.x)
        return first[0], first[1] is second[1], first[2] is second[2]

    for thing.n in w.rounds(1, 2):
        w.call(ones)


# ---- tables ----
def refilled(values):
    """A set that once was large."""
    made = set(range(100))
    for k in range(100):
        if k not in values:
            made.discard(k)
    return made


@program("order")
def a_set_is_added_to_and_gone_through(w):
    held = types.SimpleNamespace(s=set())

    @w.trace
    def f(x):
        held.s.add(8)
        for k in held.s:
            x = x * k + 1
        return x

    for large in w.rounds(False, True, False):
        held.s = refilled({1, 2}) if large else {1, 2}
        w.once(f, w.x)


@program("order")
def a_set_is_popped(w):
    held = types.SimpleNamespace(s=set())
    f = w.trace(lambda x: x * (held.s.pop() + 1))
    for large in w.rounds(False, True, False):
        held.s = refilled({1, 8}) if large else {1, 8}
        w.call(f, w.x)


@program("order")
def a_set_is_copied_and_added_to(w):
    held = types.SimpleNamespace(s=set())

    @w.trace
    def f(x):
        for k in held.s | {8, 9, 16}:
            x = x * k + 1
        return x

    for held.s in w.rounds({1, 2}, refilled({1, 2}), {1, 2, 3}, refilled({1, 2, 3})):
        w.call(f, w.x)


@program("order")
def a_returned_set_is_added_to(w):
    top = 50

    @w.trace
    def f(x):
        made = set(range(top))
        for k in range(3, top):
            made.discard(k)
        return x, made

    def added():
        made = f(w.x)[1]
        made |= {8, 9}
        return [*made], top

    for top in w.rounds(50, 4):
        w.call(added)


# ---- methods that C code asks ----
@program("denied")
def a_hash_that_counts(w):
    counts = [0]

    class Key:
        def __hash__(self):
            counts[0] += 1
            return 1

    key = Key()
    table = {key: 2.0}
    f = w.trace(lambda x: x * table[key] * (key in table) * len({key: 1}))
    w.see(counts=counts)
    for table[key] in w.rounds(2.0, 3.0):
        w.call(f, w.x)


@program("denied")
def a_hash_that_counts_in_writes(w):
    counts = [0]

    class Key:
        def __hash__(self):
            counts[0] += 1
            return 1

        def __eq__(self, other):
            counts[0] += 10
            return self is other

    key, seen = Key(), set()
    table = {}

    @w.trace
    def f(x):
        table[key] = counts[0]
        table.setdefault(key, 1)
        table.pop(key)
        seen.add(key)
        return x * counts[0]

    w.see(counts=counts)
    for counts[0] in w.rounds(0, 5):
        w.call(f, w.x)


@program("denied")
def numbers_of_ones_own_are_rounded(w):
    n = 3

    class Number(float):
        def __floor__(self):
            return n

        def __ceil__(self):
            return n + 1

        def __trunc__(self):
            return n + 2

    number = Number(2.5)
    f = w.trace(lambda x: x * (math.floor(number) + math.ceil(number) + math.trunc(number)))
    for n in w.rounds(3, 7):
        w.call(f, w.x)


@program("denied")
def a_length_is_guessed(w):
    n = 3

    class Items:
        def __length_hint__(self):
            return n

        def __iter__(self):
            return iter([1])

    items = Items()
    f = w.trace(lambda x: x * operator.length_hint(items))
    for n in w.rounds(3, 7):
        w.call(f, w.x)


@program("denied")
def a_list_is_joined_by_operator(w):
    items = []
    f = w.trace(lambda x: x * len(operator.iconcat(items, [2])) * len(operator.concat(items, [3])))
    w.see(items=items)
    for items[:] in w.rounds([], [1]):
        w.call(f, w.x)


# ---- modules past the epoch ----
@program("modules", peers=False)
def a_kept_dictionary_of_a_module_is_written(w):
    class Net(t.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = 1.0
            self.settings = vars(self)

        def forward(self, x):
            return x * self.scale

    net = Net()
    f = w.trace(net)
    for scale in w.rounds(2.0, 3.0, 2.0):
        net.settings["scale"] = scale
        w.call(f, w.x)


@program("modules", peers=False)
def a_dictionary_of_a_module_is_kept_later(w):
    class Net(t.nn.Module):
        def forward(self, x):
            return x * self.scale

    net = Net()
    net.scale, kept = 1.0, None
    f = w.trace(net)
    for scale in w.rounds(1.0, 2.0, 3.0):
        if kept is None:
            net.scale = scale
            w.call(f, w.x)
            kept = vars(net)
        kept["scale"] = scale
        w.call(f, w.x)


@program("modules", peers=False)
def a_slot_of_a_module_is_set_by_its_descriptor(w):
    class Net(t.nn.Module):
        __slots__ = ("scale",)

        def forward(self, x):
            return x * self.scale

    net = Net()
    f = w.trace(net)
    for scale in w.rounds(2.0, 3.0, 2.0):
        Net.scale.__set__(net, scale)
        w.call(f, w.x)
