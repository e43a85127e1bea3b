"""Containers: what a run reads of them is seen to change, what it does not read is not."""

import types
from collections import ChainMap, Counter, OrderedDict, defaultdict, deque, namedtuple

import numpy as np
import pytest
from watched import Thing, Watched, check

import lamina
from lamina import nn


def of(read):
    """Run `read(w, c)` on the container of a thing."""
    return lambda w, o: read(w, w.attribute(o, "c"))


def make(value):
    """A thing that holds a container made by `value`."""
    return lambda: Thing(c=value())


def change(alter):
    return lambda o: alter(o.c)


# ---- single items ----
def test_item_of_a_list():
    check(
        make(lambda: [1, 2, 3]),
        of(lambda w, c: (w.item(c, 1), w.item(c, -1))),
        result=(2, 3),
        changes=[
            change(lambda c: c.__setitem__(1, 2.0)),
            change(lambda c: c.append(4)),
            change(lambda c: c.__setitem__(2, 4)),
            lambda o: setattr(o, "c", [1, 2, 3]),
        ],
        keeps=[change(lambda c: c.__setitem__(0, 5))],
    )


def test_item_that_is_not_there_is_a_length():
    def run(w, c):
        with pytest.raises(IndexError):
            w.item(c, 3)

    check(
        make(lambda: [1, 2, 3]),
        of(run),
        changes=[change(lambda c: c.append(4))],
        keeps=[change(lambda c: c.__setitem__(0, 5))],
    )


def test_slice_reads_the_length_and_its_items():
    check(
        make(lambda: [1, 2, 3]),
        of(lambda w, c: w.item(c, slice(None, None, 2))),
        result=[1, 3],
        changes=[change(lambda c: c.__setitem__(2, 5)), change(lambda c: c.append(5))],
        keeps=[change(lambda c: c.__setitem__(1, 5))],
    )


class Index:
    def __index__(self):
        return 1


def test_index_is_called():
    def run(w, o):
        found = w.item(w.attribute(o, "c"), w.attribute(o, "i"))
        assert w.called == ["__index__"]
        return found

    check(lambda: Thing(c=[1, 2], i=Index()), run, result=2, changes=[lambda o: o.c.__setitem__(1, 5)])


@pytest.mark.parametrize(
    "kind", [dict, OrderedDict, Counter, lambda c: defaultdict(int, c), types.MappingProxyType]
)
def test_item_of_a_mapping(kind):
    def made():
        inner = {"a": 1, "b": 2, 1: "x", (1, "{"): 3, None: 4, "{o}": 5}
        o = Thing(c=kind(inner))
        o.inner = inner if kind is types.MappingProxyType else o.c
        return o

    def run(w, c):
        return [w.item(c, k) for k in ("a", 1, (1, "{"), None, "{o}")]

    check(
        made,
        of(run),
        result=[1, "x", 3, 4, 5],
        changes=[
            lambda o: o.inner.update(a=1.0),
            lambda o: o.inner.pop("a"),
            lambda o: o.inner.update({1: "y"}),
            lambda o: o.inner.update({(1, "{"): 4}),
        ],
        keeps=[lambda o: o.inner.update(b=3), lambda o: o.inner.update(c=3)],
    )


def test_missing_key_is_a_fact():
    def run(w, c):
        with pytest.raises(KeyError):
            w.item(c, "z")

    check(
        make(lambda: {"a": 1}),
        of(run),
        changes=[change(lambda c: c.update(z=1))],
        keeps=[change(lambda c: c.update(y=1))],
    )


def test_missing_is_called():
    class Own(dict):
        def __missing__(self, key):
            return key

    def run(w, c):
        found = w.item(c, "z")
        assert w.called == ["__missing__"]
        return found

    check(
        make(lambda: type("Own", (Own,), {})()),
        of(run),
        result="z",
        changes=[
            change(lambda c: c.update(z="z")),
            change(lambda c: setattr(type(c), "__missing__", None)),
        ],
    )


def test_defaultdict_makes_an_item():
    w, c = Watched(), defaultdict(list)
    w.pin(c)
    assert w.item(c, "z") == [] and list(c) == ["z"] and len(w.written.effects) == 1
    del c["z"]
    assert w.holds()
    c.default_factory = dict
    assert not w.holds()


def test_getitem_of_the_users_is_called():
    class Own(list):
        def __getitem__(self, at):
            return list.__getitem__(self, at) * 2

    def run(w, c):
        found = w.item(c, 0), w.truth(c)
        assert w.called == ["__getitem__"]
        return found

    check(make(lambda: Own([4])), of(run), result=(8, True))
    chain = ChainMap({"a": 1})
    w = Watched()
    w.pin(chain)
    assert w.item(chain, "a") == 1 and w.called == ["__getitem__"]


def test_keys_that_hash_themselves():
    class Key:
        def __init__(self, n):
            self.n = n

        def __hash__(self):
            return self.n

        def __eq__(self, other):
            return self.n == other.n

    key = Key(1)
    check(
        lambda: Thing(c={key: 2}, k=key),
        lambda w, o: w.item(w.attribute(o, "c"), w.attribute(o, "k")),
        result=2,
        changes=[change(lambda c: c.update({key: 3}))],
    )
    check(
        lambda: Thing(c={key: 2}),
        of(lambda w, c: w.item(c, w.new(Key(1)))),
        result=2,
        refused="hashes itself",
    )
    check(
        lambda: Thing(c={(key,): 2}),
        of(lambda w, c: w.item(c, w.new((Key(1),)))),
        result=2,
        refused="hashes itself",
    )
    check(
        lambda: Thing(c={1: 2}),
        of(lambda w, c: w.contains(c, w.new(Thing()))),
        result=False,
        refused="looked up",
    )


def test_named_tuple_and_frozenset_as_keys():
    Pair = namedtuple("Pair", "a b")
    check(
        make(lambda: {Pair(1, 2): 5, frozenset((1,)): 6}),
        of(
            lambda w, c: (
                w.item(c, w.new(Pair(1, 2))),
                w.item(c, w.new((1, 2))),
                w.item(c, w.new(frozenset((1,)))),
            )
        ),
        result=(5, 5, 6),
        changes=[change(lambda c: c.update({(1, 2): 6}))],
    )


def test_generic_alias_is_made():
    w = Watched()
    assert w.item(list, int) == list[int] and w.refused is None


# ---- numpy ----
def test_arrays_are_compared_by_value():
    check(
        make(lambda: np.arange(4.0)),
        of(lambda w, c: float(w.item(c, 2))),
        result=2.0,
        changes=[change(lambda c: c.__setitem__(0, 5.0)), lambda o: setattr(o, "c", np.arange(4))],
    )
    check(
        make(lambda: np.arange(4.0)),
        of(lambda w, c: w.set_item(c, 0, 1.0)),
        refused="NumPy array was written",
    )
    check(
        make(lambda: np.array([[]], object)),
        of(lambda w, c: w.truth(w.item(c, 0).size == 0)),
        refused="NumPy array",
    )


def test_fresh_array_may_be_written_but_not_a_view():
    w, o = Watched(), Thing(c=np.zeros(2))
    w.pin(o)
    made = w.new(np.zeros(2))
    w.set_item(made, 0, 1.0)
    assert w.refused is None and made[0] == 1.0
    w.set_item(w.item(w.attribute(o, "c"), w.new(slice(None))), 0, 1.0)
    assert "NumPy array was written" in w.refused and o.c[0] == 1.0


# ---- lengths and truth ----
@pytest.mark.parametrize("kind", [list, tuple, set, frozenset, deque, dict.fromkeys])
def test_truth_of_containers(kind):
    check(
        make(lambda: kind([1, 2])),
        of(lambda w, c: w.truth(c)),
        result=True,
        changes=[lambda o: setattr(o, "c", kind([]))],
    )
    if hasattr(kind, "clear"):
        check(
            make(lambda: kind([1, 2])),
            of(lambda w, c: w.truth(c)),
            result=True,
            changes=[change(lambda c: c.clear())],
            keeps=[change(lambda c: c.pop())],
        )


def test_truth_of_objects():
    class Own:
        def __bool__(self):
            return False

    class Sized:
        def __len__(self):
            return 0

    check(make(Own), of(lambda w, c: (w.truth(c), w.called)), result=(False, ["__bool__"]))
    check(make(Sized), of(lambda w, c: (w.truth(c), w.called)), result=(False, ["__len__"]))
    plain = type("Plain", (), {})
    check(
        make(lambda: type("Plain", (plain,), {})()),
        of(lambda w, c: w.truth(c)),
        result=True,
        changes=[
            change(lambda c: setattr(type(c), "__bool__", lambda self: False)),
            change(lambda c: setattr(type(c), "__len__", lambda self: 0)),
        ],
    )
    Own.__bool__ = lambda self: 1
    w = Watched()
    with pytest.raises(TypeError, match="should return bool"):
        w.truth(w.new(Own()))


def test_truth_of_a_number_of_a_class_of_its_own():
    Number = type("Number", (int,), {})
    w = Watched()
    w.argument("n", number := Number(0))
    assert w.truth(number) is False and w.holds(Number(0)) and not w.holds(Number(1))


# ---- all of it ----
@pytest.mark.parametrize(
    ("value", "alter"),
    [
        (lambda: [1, 2], lambda c: c.reverse()),
        (lambda: {"a": 1, "b": 2}, lambda c: c.update(a=c.pop("a"))),
        (lambda: {1: 1}, lambda c: (c.clear(), c.update({True: 1}))),
        (lambda: {0.0: 1}, lambda c: (c.clear(), c.update({-0.0: 1}))),
        (lambda: {"a": 0.0}, lambda c: c.update(a=-0.0)),
        (lambda: [float("nan")], lambda c: c.__setitem__(0, 0.0)),
        (lambda: {1, 2}, lambda c: c.add(3)),
        (lambda: {1}, lambda c: (c.clear(), c.add(1.0))),
        (lambda: deque([1, 2], 5), lambda c: c.rotate()),
        (lambda: OrderedDict(a=1, b=2), lambda c: c.move_to_end("a")),
        (lambda: defaultdict(int, a=1), lambda c: c["b"]),
        (lambda: Counter("aab"), lambda c: c.update("b")),
    ],
)
def test_iteration_reads_all_in_order(value, alter):
    def run(w, c):
        it = w.iterator(c)
        found = []
        while True:
            try:
                found.append(w.next_of(it))
            except StopIteration:
                assert list(map(repr, found)) == list(map(repr, c))
                return

    check(make(value), of(run), changes=[change(alter)])


def test_containers_within_are_read_only_when_deep():
    check(
        make(lambda: [[1], {"a": [2]}]),
        of(lambda w, c: w.read_all(c)),
        keeps=[change(lambda c: c[0].append(1))],
    )
    check(
        make(lambda: [[1], {"a": [2]}]),
        of(lambda w, c: w.read_deep(c)),
        changes=[change(lambda c: c[0].append(1)), change(lambda c: c[1]["a"].append(1))],
    )
    check(make(lambda: [[1], Thing()]), of(lambda w, c: w.read_deep(c)), refused="Thing was given to C code")


def test_container_that_holds_itself():
    def made():
        c = [1]
        c.append(c)
        return Thing(c=c)

    check(made, of(lambda w, c: w.read_deep(c)), changes=[change(lambda c: c.__setitem__(0, 2))])


def test_dict_keyed_by_objects():
    keys = [Thing(), Thing()]
    check(
        make(lambda: {keys[0]: 1, keys[1]: 2}),
        of(lambda w, c: w.read_all(c)),
        changes=[
            change(lambda c: c.update({keys[0]: 2})),
            change(lambda c: c.pop(keys[1])),
            change(lambda c: c.update({keys[0]: c.pop(keys[0])})),
        ],
    )
    w = Watched()
    w.argument("c", c := {Thing(): 1})
    w.read_all(c)
    assert "of objects" in w.refused


def test_overridden_methods_of_containers_are_not_asked_by_guards():
    class Own(dict):
        def __iter__(self):
            raise AssertionError

        __getitem__ = __len__ = __contains__ = __iter__

    check(
        make(lambda: Own(a=1)),
        of(lambda w, c: (w.read_all(c), w.membership(c, "b"))),
        changes=[change(lambda c: c.update(a=2)), change(lambda c: c.update(b=2))],
    )


# ---- iterators ----
def test_iterators():
    w = Watched()
    made = w.iterator(w.new(zip([1], [(2, 3)])))
    assert w.next_of(made) == (1, (2, 3)) and w.refused is None
    assert w.unpack(w.new(iter([0, 1, 2]))) == [0, 1, 2]
    w.unpack(iter([1]))
    assert "from outside" in w.refused


def test_iteration_by_index_and_of_the_users():
    class Old:
        def __getitem__(self, at):
            if at > 1:
                raise IndexError
            return at

    class Own:
        def __iter__(self):
            return iter([5])

    class Wrong:
        def __iter__(self):
            return 5

    check(make(Old), of(lambda w, c: (w.unpack(c), w.called)), result=([0, 1], ["__getitem__"] * 3))
    w = Watched()
    it = w.iterator(w.new(Own()))
    assert w.called == ["__iter__"] and it.__next__() == 5
    with pytest.raises(TypeError, match="non-iterator"):
        w.iterator(w.new(Wrong()))
    with pytest.raises(TypeError, match="not iterable"):
        w.iterator(w.new(Thing()))


def test_list_changed_while_gone_through():
    w, o = Watched(), Thing(c=[1, 2])
    w.pin(o)
    c = w.attribute(o, "c")
    it = w.iterator(c)
    assert w.next_of(it) == 1
    w.set_item(c, 1, 9)
    assert w.next_of(it) == 9
    o.c[:] = [1, 2]
    assert w.holds()


# ---- membership ----
@pytest.mark.parametrize("kind", [dict.fromkeys, set, frozenset])
def test_membership_is_one_fact(kind):
    check(
        make(lambda: kind(["a", "b"])),
        of(lambda w, c: (w.contains(c, "a"), w.contains(c, "z"))),
        result=(True, False),
        changes=[lambda o: setattr(o, "c", kind(["b"]))],
    )
    if kind is set:
        check(
            make(lambda: {"a", "b"}),
            of(lambda w, c: (w.contains(c, "a"), w.contains(c, "z"))),
            changes=[change(lambda c: c.add("z")), change(lambda c: c.remove("a"))],
            keeps=[change(lambda c: c.add("y")), change(lambda c: c.remove("b"))],
        )


def test_membership_in_sequences_compares():
    class Own:
        def __eq__(self, other):
            return other == 5

    def run(w, c):
        return w.contains(c, 5), w.called

    check(make(lambda: [1, Own()]), of(run), result=(True, ["__eq__"]), changes=[change(lambda c: c.pop())])
    check(
        make(lambda: [1, 2]),
        of(lambda w, c: w.contains(c, 2)),
        result=True,
        changes=[change(lambda c: c.remove(2))],
    )
    check(
        make(lambda: range(3)),
        of(lambda w, c: w.contains(c, 2)),
        result=True,
        changes=[lambda o: setattr(o, "c", range(2))],
    )
    w = Watched()
    w.argument("r", r := range(3))
    assert w.contains(r, 2) and w.holds(range(0, 3)) and not w.holds(range(2))


def test_membership_in_views_and_generators():
    w, c = Watched(), {"a": 1}
    w.pin(c)
    keys, values = w.new(c.keys()), w.new(c.values())
    assert (
        w.contains(keys, "a") and w.contains(values, 1) and not w.contains(w.new(c.items()), w.new(("a", 2)))
    )
    assert w.contains(w.new(x for x in [1, 2]), 2) and w.refused is None and w.holds()
    del c["a"]
    assert not w.holds()
    w.contains({"b": 1}.keys(), "b")
    assert "from outside" in w.refused


# ---- writing ----
def test_written_items_are_no_facts():
    w, o = Watched(), Thing(c=[1, 2, 3], d={"a": 1, "b": 2})
    w.pin(o)
    c, d = w.attribute(o, "c"), w.attribute(o, "d")
    w.set_item(c, -1, 7)
    w.set_item(d, "a", 8)
    assert (w.item(c, 2), w.item(d, "a"), len(w.written.effects)) == (7, 8, 2)
    o.c[2], o.d["a"] = 3, 4
    assert w.holds()
    o.c.append(1)
    assert not w.holds()


def test_item_of_a_list_whose_items_were_moved():
    w, o = Watched(), Thing(c=[5, 5, 5])
    w.pin(o)
    c = w.attribute(o, "c")
    w.writes_to(c)
    c.pop(0)
    c.append(5)
    assert w.item(c, 1) == 5
    o.c[:] = [5, 5, 6]
    assert not w.holds()


def test_new_key_makes_length_and_order_known():
    w, o = Watched(), Thing(d={"a": 1})
    w.pin(o)
    d = w.attribute(o, "d")
    w.set_item(d, "b", 2)
    assert w.unpack(d) == ["a", "b"] and w.contains(d, "b")
    w.delete_item(d, "a")
    assert not w.contains(d, "a") and w.unpack(d) == ["b"]
    o.d.clear()
    o.d["a"] = 1
    assert w.holds() and len(w.written.effects) == 2
    o.d["b"] = 1
    assert not w.holds()


def test_deleting_from_a_list_reads_it():
    w, o = Watched(), Thing(c=[1, 2, 3])
    w.pin(o)
    c = w.attribute(o, "c")
    w.delete_item(c, 0)
    assert w.item(c, 0) == 2
    o.c[:] = [1, 2, 3]
    assert w.holds()
    o.c[1] = 5
    assert not w.holds()


def test_slice_assignment_keeps_what_was_put():
    w, o = Watched(), Thing(c=[1, 2, 3])
    w.pin(o)
    given = w.new([7])
    w.set_item(w.attribute(o, "c"), slice(0, 2), given)
    given.append(8)
    assert o.c == [7, 3]
    ((_, (_, _, taken), _),) = w.written.effects
    assert taken == [7]


@pytest.mark.parametrize(
    ("run", "why"),
    [
        (lambda w: w.set_item(w.pin(bytearray(2)), 0, 1), "bytearray was written"),
        (lambda w: w.item(w.new(memoryview(b"ab")), 0), "memoryview was read"),
        (lambda w: w.set_item(w.pin(nn.Linear(1, 1)._parameters), "weight", None), "module's own dictionary"),
        (lambda w: w.delete_item(w.pin(nn.Linear(1, 1)._buffers), "x"), "module's own dictionary"),
        (lambda w: w.set_item([1], 0, 1), "nothing known leads to"),
        (lambda w: w.set_item({}, 0, 1), "nothing known leads to"),
    ],
)
def test_refusals(run, why):
    w = Watched()
    try:
        run(w)
    except KeyError:
        pass
    assert why in w.refused


def test_bytearray_is_read_by_value():
    check(
        make(lambda: bytearray(b"ab")),
        of(lambda w, c: w.item(c, 0)),
        result=97,
        changes=[change(lambda c: c.append(1))],
    )


def test_module_members_are_read_like_dictionaries():
    m, w = nn.Linear(2, 2), Watched()
    w.pin(m, "m")
    p = w.item(w.attribute(m, "_parameters"), "weight")
    assert p is m.weight and w.refused is None and w.holds()
    m.weight = nn.Parameter(lamina.ones(2, 2))
    assert not w.holds()


def test_after_refusing_everything_runs_natively():
    w = Watched()
    w.refuse("enough")
    c = [1, 2]
    w.set_item(c, 0, 5)
    w.delete_item(c, 1)
    assert (w.item(c, 0), w.truth(c), w.unpack(c), w.contains(c, 5), next(w.iterator(c))) == (
        5,
        True,
        [5],
        True,
        5,
    )
    assert not w.written.effects and not w.guards.parts[0].lines


def test_lifted_item_of_a_list():
    w, o = Watched(lift=frozenset([("thing.c[0]", "item")])), Thing(c=[2.0, 1.0])
    w.pin(o, "thing")
    found = w.item(w.attribute(o, "c"), 0)
    o.c[0] = 3.0
    assert found.expression == "S[0]" and w.holds()
    w.read_all(o.c)  # whoever goes through it gets the number itself
    assert not w.holds()
