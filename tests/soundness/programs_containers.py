"""Programs whose functions read and write lists, dicts, sets and other containers between changes of them."""

from __future__ import annotations

import array
import collections
import contextvars
import types
import weakref

from battery import lib as t
from battery import program


@program("containers", jax=True)
def an_item_of_a_list_changes(w):
    factors = [1.0, 2.0]
    f = w.trace(lambda x: x * factors[1])
    for factors[1] in w.rounds(2.0, 3.0, 2.0):
        w.call(f, w.x)


@program("containers", jax=True)
def a_list_grows_under_a_loop(w):
    factors = []

    @w.trace
    def f(x):
        for factor in factors:
            x = x * factor
        return x * 1.0

    for factors[:] in w.rounds([], [2.0], [2.0, 3.0], []):
        w.call(f, w.x)


@program("containers", jax=True)
def only_the_length_is_read(w):
    things = []
    f = w.trace(lambda x: x * len(things))
    for things[:] in w.rounds([0], [0, 0], ["a"], [0, 0]):
        w.call(f, w.x)


@program("containers", jax=True)
def only_the_truth_is_read(w):
    things = {}
    f = w.trace(lambda x: x * 2 if things else x * 3)
    for content in w.rounds({}, {"a": 1}, {"b": 2}, {}):
        things.clear()
        things.update(content)
        w.call(f, w.x)


@program("containers", jax=True)
def truth_by_a_len_of_ones_own(w):
    class Bag:
        size = 0

        def __len__(self):
            return self.size

    bag = Bag()
    f = w.trace(lambda x: x * 2 if bag else x * 3)
    for bag.size in w.rounds(0, 1, 2, 0):
        w.call(f, w.x)


@program("containers", jax=True)
def a_key_is_missing_then_there(w):
    settings = {}
    f = w.trace(lambda x: x * settings.get("scale", 2.0))
    for content in w.rounds({}, {"scale": 3.0}, {"other": 1.0}, {"scale": 2.0}):
        settings.clear()
        settings.update(content)
        w.call(f, w.x)


@program("containers", jax=True)
def membership_of_a_key(w):
    settings = {}
    f = w.trace(lambda x: x * 2 if "scale" in settings else x * 3)
    for content in w.rounds({}, {"scale": None}, {"other": 1}, {"scale": 1}):
        settings.clear()
        settings.update(content)
        w.call(f, w.x)


@program("containers", jax=True)
def a_missing_key_is_caught(w):
    settings = {}

    @w.trace
    def f(x):
        try:
            return x * settings["scale"]
        except KeyError:
            return x - 1

    for content in w.rounds({}, {"scale": 3.0}, {}):
        settings.clear()
        settings.update(content)
        w.call(f, w.x)


@program("containers", jax=True)
def the_order_of_a_dict_changes(w):
    steps = {}

    @w.trace
    def f(x):
        for name, value in steps.items():
            x = x * value if name == "mul" else x + value
        return x

    for order in w.rounds(("mul", "add"), ("add", "mul"), ("mul", "add")):
        steps.clear()
        steps.update(dict.fromkeys(order, 3.0))
        w.call(f, w.x)


@program("containers", jax=True)
def keys_and_values_apart(w):
    steps = {"a": 1.0}
    f = w.trace(lambda x: x * sum(steps.values()) + len("".join(steps.keys())))
    for content in w.rounds({"a": 1.0}, {"ab": 1.0}, {"a": 0.5, "b": 0.5}, {"a": 1.0}):
        steps.clear()
        steps.update(content)
        w.call(f, w.x)


@program("containers", jax=True)
def a_view_is_kept_from_outside(w):
    steps = {"a": 1.0}
    values = steps.values()
    f = w.trace(lambda x: x * sum(values))
    for steps["a"] in w.rounds(1.0, 2.0, 1.0):
        w.call(f, w.x)


@program("containers", jax=True)
def a_set_gains_a_member(w):
    on = set()
    f = w.trace(lambda x: x * 2 if "double" in on else x * 3)
    for content in w.rounds(set(), {"double"}, {"triple"}, set()):
        on.clear()
        on.update(content)
        w.call(f, w.x)


@program("containers", jax=True)
def sets_are_combined(w):
    left, right = {1, 2}, {2, 3}
    f = w.trace(lambda x: x * len(left & right) + len(left | right))
    for content in w.rounds({2, 3}, {1, 2}, {4}, {2, 3}):
        right.clear()
        right.update(content)
        w.call(f, w.x)


@program("containers", jax=True)
def a_list_is_sliced(w):
    factors = [1.0, 2.0, 3.0]
    f = w.trace(lambda x: x * sum(factors[1:]))
    for factors[:] in w.rounds([1.0, 2.0, 3.0], [9.0, 2.0, 3.0], [1.0, 2.0, 4.0], [1.0, 2.0]):
        w.call(f, w.x)


@program("containers", jax=True)
def the_last_item_is_another(w):
    factors = [1.0, 2.0]
    f = w.trace(lambda x: x * factors[-1])
    for factors[:] in w.rounds([1.0, 2.0], [1.0, 2.0, 3.0], [2.0]):
        w.call(f, w.x)


@program("containers", jax=True)
def a_list_is_compared(w):
    mine, other = [1, [2]], [1, [2]]
    f = w.trace(lambda x: x * 2 if mine == other else x * 3)
    for mine[1][0] in w.rounds(2, 3, 2):
        w.call(f, w.x)


@program("containers", jax=True)
def unpacking_a_list(w):
    pair = [1.0, 2.0]

    @w.trace
    def f(x):
        a, *rest = pair
        return x * a + len(rest)

    for pair[:] in w.rounds([1.0, 2.0], [2.0, 2.0], [1.0], [1.0, 5.0, 6.0]):
        w.call(f, w.x)


@program("containers", jax=True)
def sorted_by_a_key(w):
    names = ["b", "a"]
    order = {"a": 1, "b": 2}
    f = w.trace(lambda x: x * 2 if sorted(names, key=order.get)[0] == "a" else x * 3)
    for order["b"] in w.rounds(2, 0, 2):
        w.call(f, w.x)


@program("containers", jax=True)
def builtins_over_a_list(w):
    values = [1.0, 2.0]
    f = w.trace(lambda x: x * max(values) + min(values) - sum(values) + any(values) + all(values))
    for values[:] in w.rounds([1.0, 2.0], [3.0, 2.0], [0.0, 2.0], [1.0, 2.0]):
        w.call(f, w.x)


@program("containers", jax=True)
def a_default_dict_makes_its_items(w):
    counts = collections.defaultdict(lambda: start)
    start = 1.0
    f = w.trace(lambda x: x * counts["here"])
    w.see(counts=lambda: dict(counts))
    for start, keep in w.rounds((1.0, False), (2.0, True), (2.0, False)):
        if not keep:
            counts.clear()
        w.call(f, w.x)


@program("containers", jax=True)
def a_counter_says_zero(w):
    counts = collections.Counter()
    f = w.trace(lambda x: x * (1 + counts["seen"]))
    for counts["seen"] in w.rounds(0, 1, 2, 0):
        w.call(f, w.x)


@program("containers", jax=True)
def a_chain_of_maps(w):
    first, second = {}, {"scale": 2.0}
    both = collections.ChainMap(first, second)
    f = w.trace(lambda x: x * both["scale"])
    for content in w.rounds({}, {"scale": 3.0}, {}):
        first.clear()
        first.update(content)
        w.call(f, w.x)


@program("containers", jax=True)
def an_ordered_dict_is_reordered(w):
    steps = collections.OrderedDict(a=1.0, b=2.0)
    f = w.trace(lambda x: x * next(iter(steps.values())))
    for name in w.rounds("a", "b", "a"):
        steps.move_to_end(name, last=False)
        w.call(f, w.x)


@program("containers", jax=True)
def a_deque_rotates(w):
    values = collections.deque([1.0, 2.0, 3.0])
    f = w.trace(lambda x: x * values[0])
    for by in w.rounds(0, 1, 1, 1):
        values.rotate(by)
        w.call(f, w.x)


@program("containers", jax=True)
def a_missing_method_answers(w):
    class Answers(dict):
        def __missing__(self, key):
            return factor

    answers, factor = Answers(), 2.0
    f = w.trace(lambda x: x * answers["scale"])
    for factor, content in w.rounds((2.0, {}), (3.0, {}), (3.0, {"scale": 5.0}), (2.0, {})):
        answers.clear()
        answers.update(content)
        w.call(f, w.x)


@program("containers", jax=True)
def a_list_of_ones_own(w):
    class Shifted(list):
        def __getitem__(self, i):
            return list.__getitem__(self, i) + shift

    values, shift = Shifted([1.0, 2.0]), 0.0
    f = w.trace(lambda x: x * values[0])
    for shift in w.rounds(0.0, 1.0, 0.0):
        w.call(f, w.x)


@program("containers", jax=True)
def an_iterator_of_ones_own(w):
    class Steps:
        def __iter__(self):
            yield from steps

    steps = [1.0]
    f = w.trace(lambda x: x * sum(v for v in Steps()))
    for steps[:] in w.rounds([1.0], [1.0, 2.0], [1.0]):
        w.call(f, w.x)


@program("containers", jax=True)
def getitem_alone_is_iterated(w):
    class Steps:
        def __getitem__(self, i):
            if i >= count:
                raise IndexError
            return 2.0

    count = 1

    @w.trace
    def f(x):
        for value in Steps():
            x = x * value
        return x

    for count in w.rounds(1, 2, 1):
        w.call(f, w.x)


@program("containers", jax=True)
def contains_of_ones_own(w):
    class All:
        def __contains__(self, other):
            return answer

    answer = True
    f = w.trace(lambda x: x * 2 if "a" in All() else x * 3)
    for answer in w.rounds(True, False, True):
        w.call(f, w.x)


@program("containers", jax=True)
def a_memory_view_of_numbers(w):
    numbers = array.array("d", [1.0, 2.0])
    f = w.trace(lambda x: x * numbers[0])
    for numbers[0] in w.rounds(1.0, 2.0, 1.0):
        w.call(f, w.x)


@program("containers", jax=True)
def bytes_in_a_bytearray(w):
    numbers = bytearray(b"\x01\x02")
    f = w.trace(lambda x: x * numbers[0] + len(numbers))
    for content in w.rounds(b"\x01\x02", b"\x03\x02", b"\x01", b"\x01\x02"):
        numbers[:] = content
        w.call(f, w.x)


@program("containers", jax=True)
def a_mapping_proxy_shows_the_dict_below(w):
    below = {"scale": 2.0}
    shown = types.MappingProxyType(below)
    f = w.trace(lambda x: x * shown["scale"])
    for below["scale"] in w.rounds(2.0, 3.0, 2.0):
        w.call(f, w.x)


@program("containers", jax=True)
def a_context_variable(w):
    scale = contextvars.ContextVar("scale", default=2.0)
    f = w.trace(lambda x: x * scale.get())
    for value in w.rounds(2.0, 3.0, 2.0):
        scale.set(value)
        w.call(f, w.x)


@program("containers")
def a_context_variable_that_is_set_and_set_back(w):
    scale = contextvars.ContextVar("scale", default=2.0)

    def step(x):
        token = scale.set(scale.get() + 1)
        try:
            return x * scale.get()
        finally:
            scale.reset(token)

    f = w.trace(step)
    for value in w.rounds(2.0, 3.0, 2.0):
        scale.set(value)
        w.call(f, w.x)
        w.once(lambda: f(w.x) * scale.get())


@program("containers")
def a_context_variable_that_stays_set(w):
    seen = contextvars.ContextVar("seen")

    factor = 2.0

    def step(x):
        y = x * factor
        seen.set([y, 1])
        return y + 1

    f = w.trace(step)
    for factor in w.rounds(2.0, 3.0, 2.0):
        w.call(f, w.x)
        w.once(lambda: (seen.get()[0] + seen.get()[1], len(seen.get())))


@program("containers")
def a_context_variable_is_an_argument(w):
    either = [contextvars.ContextVar(name, default=1.0) for name in ("first", "second")]

    def step(variable, x):
        variable.set(variable.get() + x.shape[0])
        return x * variable.get(2.0)

    f = w.trace(step)
    for at in w.rounds(0, 1, 0):
        w.call(f, either[at], w.x)
        w.once(lambda: [variable.get() for variable in either])


@program("containers")
def a_context_variable_that_is_not_set_yet(w):
    scale = contextvars.ContextVar("scale")

    def step(x):
        try:
            return x * scale.get()
        except LookupError:
            return x - scale.get(1.0)

    f = w.trace(step)
    for value in w.rounds(None, 3.0, 4.0):
        if value is not None:
            scale.set(value)
        w.call(f, w.x)


@program("containers")
def a_context_variable_holds_what_dies(w):
    scale = contextvars.ContextVar("scale", default=None)
    dead = []

    class Noticed:
        def __del__(self):
            dead.append(1)

    def step(x):
        scale.set(len(dead))
        return x * (1 + len(dead))

    f = w.trace(step)
    for _ in w.rounds(0, 1, 2):
        scale.set(Noticed())
        w.call(f, w.x)
        w.once(lambda: w.x * len(dead))


@program("containers")
def classes_derived_from_containers_are_handed_out(w):
    class Result(collections.OrderedDict):
        def __setitem__(self, key, value):
            super().__setitem__(key, value)
            super().__setattr__(key, value)

        def items(self):
            return []

    class Row(list):
        __slots__ = ("name",)

    class Table(dict):
        pass

    kept = []

    def step(x):
        result, row, table = Result(), Row([x, 1]), Table(a=x)
        result["first"] = x * 2
        result["second"] = [row]
        result.move_to_end("first")
        row.name, table.own = "row", table
        kept.append(table)
        return result, row, step.__code__.co_varnames

    f = w.trace(step)
    for _ in w.rounds(0, 1, 2):
        w.call(f, w.x)
        w.once(lambda: f(w.x)[0].first + f(w.x)[0].second[0][0])
        w.once(
            lambda: [*collections.OrderedDict.keys(f(w.x)[0])] + [f(w.x)[1].name, kept[-1].own is kept[-1]]
        )


@program("containers", jax=True)
def a_weak_reference_dies(w):
    class Thing:
        scale = 3.0

    thing = Thing()
    reference = weakref.ref(thing)
    f = w.trace(lambda x: x * 2 if reference() is None else x * reference().scale)
    for alive in w.rounds(True, False, True):
        thing = Thing() if alive else None
        if alive:
            reference = weakref.ref(thing)
        w.call(f, w.x)


@program("containers", jax=True)
def a_weak_dictionary_loses_its_item(w):
    class Key:
        pass

    held = weakref.WeakKeyDictionary()
    key = Key()
    f = w.trace(lambda x: x * (1 + len(held)))
    for alive in w.rounds(True, False, True):
        key = Key() if alive else None
        if alive:
            held[key] = 1
        w.call(f, w.x)


@program("containers")
def a_tensor_is_a_key(w):
    held = {w.x: 2.0}
    f = w.trace(lambda x: x * held[x])
    for held[w.x] in w.rounds(2.0, 3.0, 2.0):
        w.call(f, w.x)


@program("containers")
def a_tensor_is_looked_up_by_identity(w):
    one, two = t.ones(4), t.ones(4)
    held = {one: 2.0, two: 3.0}
    f = w.trace(lambda x: x * held[x])
    for x in w.rounds(one, two, one):
        w.call(f, x)
