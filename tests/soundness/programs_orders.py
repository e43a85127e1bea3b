"""Programs whose result hangs on the order of sets and dictionaries, and on how keys are found in them."""

from __future__ import annotations

import collections
import functools
import itertools

from battery import program


class Key:
    """A key found by its name alone, which may be one of few hashes."""

    def __init__(self, name, crowd=8):
        self.name, self.crowd = name, crowd

    def __hash__(self):
        return len(self.name) % self.crowd

    def __eq__(self, other):
        return isinstance(other, Key) and self.name == other.name

    def __repr__(self):
        return self.name


@functools.total_ordering
class Version:
    def __init__(self, number):
        self.number = number

    def __eq__(self, other):
        return self.number == other.number

    def __lt__(self, other):
        return self.number < other.number

    __hash__ = None


def in_order(w, held, *edits, read=lambda held: held):
    """A traced function that weighs the items of a container by their place in it, called after each edit."""

    @w.trace
    def f(x):
        for place, item in enumerate(read(held), 1):
            x = x * place + item
        return x

    w.see(held=held)
    for edit in w.rounds(*edits):
        edit(held)
        w.call(f, w.x)


# ---- dictionaries ------------------------------------------------------------------------------------------
@program("orders of dicts")
def a_key_is_deleted_and_put_back(w):
    def again(d):
        d.pop(1)
        d[1] = None

    in_order(w, {1: None, 2: None, 3: None}, lambda d: None, again, lambda d: d.update({2: d.pop(2)}))


@program("orders of dicts")
def values_change_places(w):
    def swap(d):
        d["a"], d["b"] = d["b"], d["a"]

    in_order(w, {"a": 1, "b": 2, "c": 3}, lambda d: None, swap, read=lambda d: d.values())


@program("orders of dicts")
def a_dict_is_gone_through_backwards(w):
    def again(d):
        d["a"] = d.pop("a")

    in_order(w, {"a": 1, "b": 2, "c": 3}, lambda d: None, again, read=lambda d: reversed(d.values()))


@program("orders of dicts")
def an_ordered_dict_moves_to_an_end(w):
    held = collections.OrderedDict(a=1, b=2, c=3)
    in_order(
        w,
        held,
        lambda d: d.move_to_end("a"),
        lambda d: d.move_to_end("c", last=False),
        read=lambda d: d.values(),
    )


def _updated(d):
    found = {}
    found.update(d)
    return found.values()


COPIED = {
    "dict": lambda d: dict(d).values(),
    "dict and more": lambda d: dict(d, z=4).values(),
    "OrderedDict": lambda d: collections.OrderedDict(d).values(),
    "defaultdict": lambda d: collections.defaultdict(int, d).values(),
    "Counter": lambda d: collections.Counter(d).values(),
    "update": _updated,
    "stars": lambda d: {**d}.values(),
    "or": lambda d: (d | {}).values(),
}


def _of_what_moved(name):
    def what_an_ordered_dict_is_copied_to(w):
        first, last = lambda d: d.move_to_end("a"), lambda d: d.move_to_end("c", last=False)
        in_order(w, collections.OrderedDict(a=1, b=2, c=3), first, last, read=COPIED[name])

    what_an_ordered_dict_is_copied_to.__name__ = f"moved_{name}"
    return what_an_ordered_dict_is_copied_to


globals().update({f"moved_{_name}": program("orders of dicts")(_of_what_moved(_name)) for _name in COPIED})


@program("orders of dicts")
def a_dict_that_goes_its_own_way_is_copied(w):
    class Backwards(dict):
        def __iter__(self):
            return reversed([*dict.keys(self)])

        def keys(self):
            return [*self]

    def again(d):
        d["a"] = d.pop("a")

    in_order(w, Backwards(a=1, b=2, c=3), lambda d: None, again, read=lambda d: dict(d).values())


@program("orders of dicts")
def a_dict_is_emptied_and_filled_in_another_order(w):
    def refill(keys):
        def edit(d):
            d.clear()
            d.update(dict.fromkeys(keys))

        return edit

    in_order(w, {}, refill([1, 2, 3]), refill([3, 2, 1]), refill([2, 3, 1]))


@program("orders of dicts")
def the_last_item_is_taken_and_put_back(w):
    table = {"a": 1, "b": 2, "c": 3}

    @w.trace
    def f(x):
        key, value = table.popitem()
        table[key] = value + 1
        return x * value + len(key)

    w.see(table=table)
    for order in w.rounds("abc", "cab"):
        table.clear()
        table.update((k, ord(k)) for k in order)
        w.call(f, w.x)


@program("orders of dicts")
def a_least_recently_used_table(w):
    table, log = collections.OrderedDict(), []

    @w.trace
    def f(x, key):
        if key in table:
            table.move_to_end(key)
        else:
            table[key] = len(table) + 1
            if len(table) > 2:
                log.append(table.popitem(last=False)[0])
                del log[:-3]
        return x * table[key] + list(table).index(key)

    w.see(table=table, log=log)
    for key in w.rounds("a", "b", "c", "a"):
        if key == "a":
            table.clear()
        w.call(f, w.x, key)


@program("orders of dicts")
def the_first_key_of_a_dict(w):
    in_order(
        w,
        {1: 0, 2: 0},
        lambda d: None,
        lambda d: d.update({1: d.pop(1)}),
        read=lambda d: [next(iter(d)), *d.values()],
    )


@program("orders of dicts")
def a_merge_keeps_the_first_place(w):
    first, second = {"a": 1, "b": 2}, {"b": 3, "c": 4}
    f = w.trace(lambda x: [x := x * v + len(k) for k, v in (first | second).items()])
    for change in w.rounds({"a": 1, "b": 2}, {"b": 2, "a": 1}, {"c": 5}):
        first.clear()
        first.update(change)
        w.call(f, w.x)


@program("orders of dicts")
def groups_are_made_in_order_of_arrival(w):
    names = ["bb", "a", "cc"]

    @w.trace
    def f(x):
        groups = collections.defaultdict(list)
        for name in names:
            groups[len(name)].append(name)
        for k, (size, group) in enumerate(groups.items()):
            x = x * size + len(group) * k
        return x, dict(groups)

    for names in w.rounds(["bb", "a", "cc"], ["a", "bb", "cc"], ["a", "b", "c"]):
        w.call(f, w.x)


@program("orders of dicts")
def keyword_arguments_come_in_order(w):
    @w.trace
    def f(x, **options):
        for place, (name, value) in enumerate(options.items(), 1):
            x = x * place + value * len(name)
        return x

    for order in w.rounds(("a", "bb"), ("bb", "a"), ("bb",)):
        w.call(f, w.x, **{name: i + 1 for i, name in enumerate(order)})


@program("orders of dicts")
def a_dict_view_is_a_set(w):
    one, two = {"a": 1, "b": 2}, {"b": 3, "c": 4}
    f = w.trace(
        lambda x: x * len(one.keys() & two.keys()) + len(one.keys() - two) + (one.keys() == two.keys())
    )
    for key in w.rounds("a", "b", "c"):
        two.clear()
        two.update({key: 1, "b": 2})
        w.call(f, w.x)


@program("orders of dicts")
def a_dict_of_attributes_in_order(w):
    class Config:
        pass

    config = Config()

    @w.trace
    def f(x):
        for place, (name, value) in enumerate(vars(config).items(), 1):
            x = x * value + place * len(name)
        return x

    for order in w.rounds("ab", "ba", "b"):
        vars(config).clear()
        for k, name in enumerate(order):
            setattr(config, name, k + 1)
        w.call(f, w.x)


# ---- sets --------------------------------------------------------------------------------------------------
@program("orders of sets")
def a_set_of_small_numbers_is_gone_through(w):
    in_order(w, {3, 1, 2}, lambda s: s.discard(4), lambda s: s.add(4))


@program("orders of sets")
def numbers_that_collide_in_a_set(w):
    def refill(items):
        def edit(s):
            s.clear()
            for i in items:
                s.add(i)

        return edit

    in_order(w, set(), refill([8, 0, 16]), refill([0, 8, 16]), refill([16, 8, 0]))


@program("orders of sets")
def a_set_that_was_larger_before(w):
    def edit(s):
        for i in range(20, 60):
            s.add(i)
        for i in range(20, 60):
            s.discard(i)

    in_order(w, {33, 1, 2}, lambda s: None, edit)


@program("orders of sets")
def a_set_is_sorted_before_use(w):
    in_order(w, {3, 1, 2}, lambda s: s.discard(7), lambda s: s.add(7), read=sorted)


@program("orders of sets")
def two_sets_are_joined(w):
    extra = {8, 16}
    held = {0, 1}
    f = w.trace(lambda x: [x := x * 2 + v for v in held | extra] and (x, len(held & extra)))
    for change in w.rounds({8, 16}, {16, 0}, {1}):
        extra.clear()
        extra.update(change)
        w.call(f, w.x)


@program("orders of sets")
def membership_after_an_edit(w):
    seen = {1, 2}

    @w.trace
    def f(x, n):
        fresh = n not in seen
        seen.add(n)
        return (x * 2 if fresh else x * 3), len(seen)

    w.see(seen=seen)
    for n in w.rounds(1, 3, 3, 2):
        seen.discard(3) if n == 2 else None
        w.call(f, w.x, n)


@program("orders of sets")
def a_frozen_set_is_a_key(w):
    table = {frozenset("ab"): 1.0, frozenset("bc"): 2.0}
    names = "ab"
    f = w.trace(lambda x: x * table.get(frozenset(names), 5.0))
    for names in w.rounds("ab", "ba", "cb", "ac"):
        w.call(f, w.x)


# ---- tables that change while they are gone through --------------------------------------------------------
def changing(w, held, change, entered):
    """A traced function that changes a container at each of `entered(held)`, and says how far it came."""
    said = []

    @w.trace
    def f(x):
        steps = 0
        try:
            for item in entered(held):
                steps += 1
                change(held, item)
        except RuntimeError as error:
            said.append(str(error))
        said.append(steps)
        return x * steps + 1

    w.see(held=held, said=said)
    for _ in w.rounds(0, 1, 2):
        w.call(f, w.x)


def moved(d, item):
    """The same number of keys, one of them another, at the end of the table."""
    if item in (2, 8):
        d[10 - item] = d.pop(item)


@program("tables gone through")
def a_set_changes_while_it_is_gone_through(w):
    def toggle(s, item):
        s ^= {2, 8}

    changing(w, {3, 2}, toggle, iter)


@program("tables gone through")
def items_of_a_set_are_exchanged_by_its_methods(w):
    def exchange(s, item):
        s.discard(item)
        s.add((item * 5 + 1) % 8)

    changing(w, {1, 2, 4}, exchange, lambda s: itertools.islice(s, 20))


@program("tables gone through")
def a_key_of_a_dict_moves_while_it_is_gone_through(w):
    changing(w, {1: 1, 2: 2, 3: 3}, moved, iter)


@program("tables gone through")
def a_key_moves_under_a_zip(w):
    changing(w, {1: 1, 2: 2, 3: 3}, lambda d, pair: moved(d, pair[0]), lambda d: zip(d, range(9)))


@program("tables gone through")
def a_key_moves_under_a_view(w):
    changing(w, {1: 1, 2: 2, 3: 3}, lambda d, pair: moved(d, pair[0]), lambda d: enumerate(d.items()))


@program("tables gone through")
def a_key_moves_under_a_generator(w):
    changing(w, {1: 1, 2: 2, 3: 3}, moved, lambda d: (k for k in d))


@program("tables gone through")
def a_key_moves_under_c_code(w):
    held, said = {1: 1, 2: 2, 3: 3}, []

    @w.trace
    def f(x):
        try:
            return x * len([*map(functools.partial(moved, held), held)])
        except RuntimeError as error:
            said.append(str(error))
            return x + len(said)

    w.see(held=held, said=said)
    for _ in w.rounds(0, 1, 2):
        w.call(f, w.x)


@program("tables gone through")
def a_copy_with_the_holes_of_its_model_is_changed(w):
    held = {1: 1, 2: 2, 3: 3}

    @w.trace
    def f(x):
        copy, steps = held.copy(), 0
        try:
            for k in copy:
                steps += 1
                moved(copy, k)
        except RuntimeError:
            steps += 10
        return x * steps

    w.see(held=held)
    for k in w.rounds(1, 2, 3):
        held[k] = held.pop(k)
        w.call(f, w.x)


@program("tables gone through")
def a_key_goes_and_the_loop_ends(w):
    held = {k: k for k in range(1, 60)}

    @w.trace
    def f(x):
        for k in held:
            if k % 3 == 0:
                del held[k]
                break
        return x * len(held)

    w.see(held=held)
    for k in w.rounds(60, 61, 62):
        held[k] = k
        w.call(f, w.x)


# ---- keys of one's own -------------------------------------------------------------------------------------
@program("keys")
def a_key_is_found_by_its_equal(w):
    table = {Key("a"): 1.0, Key("b"): 2.0}
    f = w.trace(lambda x, k: x * table.get(k, 5.0))
    for key in w.rounds(Key("a"), Key("b"), Key("c")):
        w.call(f, w.x, key)


@program("keys")
def keys_of_one_hash(w):
    table = {Key(name, 1): i for i, name in enumerate("abc", 1)}
    f = w.trace(lambda x, k: x * table[k])
    for name in w.rounds("a", "c", "b"):
        w.call(f, w.x, Key(name, 1))


@program("keys")
def the_name_of_a_key_changes(w):
    key = Key("a")
    table = {Key("a"): 1.0, Key("b"): 2.0}
    f = w.trace(lambda x: x * table.get(key, 5.0))
    for key.name in w.rounds("a", "b", "c"):
        w.call(f, w.x)


@program("keys")
def a_key_that_counts_its_comparisons(w):
    log = []

    class Watched(Key):
        __hash__ = Key.__hash__

        def __eq__(self, other):
            log.append(self.name)
            return super().__eq__(other)

    table = {Watched("a"): 1.0}
    f = w.trace(lambda x, k: x * table.get(k, 5.0))
    w.see(log=log)
    for name in w.rounds("a", "b"):
        log.clear()
        w.call(f, w.x, Watched(name))


@program("keys")
def numbers_of_other_types_are_one_key(w):
    table = {1: "one", 2: "two"}

    @w.trace
    def f(x, k):
        table[k] = "written"
        return x * len(table), list(table)

    w.see(table=table)
    for k in w.rounds(1, 1.0, True, 2.0):
        table.pop(3, None)
        table[1] = table[2] = "as before"
        w.call(f, w.x, k)


@program("keys")
def tuples_of_numbers_are_keys(w):
    memo = {}

    @w.trace
    def f(x, a, b):
        if (a, b) not in memo:
            memo[a, b] = a * 10 + b
        return x * memo[a, b]

    w.see(memo=memo)
    for a, b in w.rounds((1, 2), (2, 1), (1, 2)):
        memo.pop((2, 1), None)
        w.call(f, w.x, a, b)


@program("keys")
def objects_in_order_by_their_own_less(w):
    f = w.trace(lambda x, versions: [x := x * v.number + 1 for v in sorted(versions)][-1])
    for numbers in w.rounds((1, 2, 3), (3, 1, 2), (2, 2, 1)):
        w.call(f, w.x, [Version(n) for n in numbers])


@program("keys")
def the_largest_by_their_own_less(w):
    f = w.trace(lambda x, versions: x * max(versions).number + min(versions, key=lambda v: -v.number).number)
    for numbers in w.rounds((1, 2, 3), (3, 1, 2), (5, 2)):
        w.call(f, w.x, [Version(n) for n in numbers])


@program("keys")
def an_equal_of_ones_own_in_a_list(w):
    held = [Key("a"), Key("b"), Key("c")]
    f = w.trace(lambda x, k: x * held.index(k) + held.count(k) + (k in held[:1]))
    for name in w.rounds("a", "b", "c"):
        held.reverse()
        w.call(f, w.x, Key(name))
