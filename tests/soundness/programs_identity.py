"""Programs that depend on which objects are one: aliases among captured things, arguments and results."""

from __future__ import annotations

import types

from battery import lib as t
from battery import program


@program("identity")
def two_given_lists_become_one(w):
    @w.trace
    def f(x, a, b):
        a.append(1.0)
        return x * len(b)

    one, two = [], []
    for a, b in w.rounds((one, two), (one, one), (two, one)):
        one.clear()
        two.clear()
        w.call(f, w.x, a, b)


@program("identity")
def two_captured_dicts_become_one(w):
    one, two = {}, {}
    held = types.SimpleNamespace(a=one, b=two)

    @w.trace
    def f(x):
        held.a["n"] = 1.0
        return x * len(held.b)

    w.see(held=held)
    for held.a, held.b in w.rounds((one, two), (one, one), (two, one)):
        one.clear()
        two.clear()
        w.call(f, w.x)


@program("identity")
def an_argument_is_the_captured_list(w):
    captured = [1.0]

    @w.trace
    def f(x, given):
        given.append(2.0)
        return x * len(captured)

    w.see(captured=captured)
    for same in w.rounds(False, True, False):
        captured[:] = [1.0]
        w.call(f, w.x, captured if same else [1.0])


@program("identity")
def two_given_tensors_become_one(w):
    @w.trace
    def f(a, b):
        a.add_(1)
        return b * 2

    y = w.x + 1
    for a, b in w.rounds((w.x, y), (w.x, w.x), (y, w.x)):
        w.call(f, a, b)


@program("identity")
def an_argument_is_the_captured_tensor(w):
    captured = t.ones(4)

    @w.trace
    def f(x):
        x.mul_(2)
        return captured + x

    w.see(captured=captured)
    for same in w.rounds(False, True, False):
        captured.fill_(1.0)
        w.call(f, captured if same else w.x.clone())


@program("identity")
def an_argument_is_a_view_of_the_captured_tensor(w):
    captured = t.ones(8)

    @w.trace
    def f(x):
        x.add_(1)
        return captured * 2

    w.see(captured=captured)
    for x in w.rounds(w.x, captured[:4], captured[4:], captured[::2]):
        captured.fill_(1.0)
        w.call(f, x)


@program("identity")
def views_overlap_or_do_not(w):
    base = t.ones(8)

    @w.trace
    def f(a, b):
        a.add_(1)
        return b * 2

    w.see(base=base)
    for a, b in w.rounds((0, 4), (0, 2), (0, 0), (4, 0)):
        base.fill_(1.0)
        w.call(f, base[a : a + 4], base[b : b + 4])


@program("identity")
def the_later_object_is_an_earlier_one(w):
    one, two = types.SimpleNamespace(v=1.0), types.SimpleNamespace(v=1.0)
    held = {"late": two}

    @w.trace
    def f(x):
        one.v = 5.0
        y = x * 2
        if y.sum() > 0:
            return y * held["late"].v
        return y

    w.see(one=one, two=two)
    for held["late"] in w.rounds(two, one, two):
        one.v = two.v = 1.0
        w.call(f, w.x)


@program("identity")
def is_between_arguments(w):
    f = w.trace(lambda a, b: a * 2 if a is b else a * 3)
    y = w.x + 0
    for a, b in w.rounds((w.x, w.x), (w.x, y), (y, y)):
        w.call(f, a, b)


@program("identity")
def is_between_an_argument_and_a_global(w):
    held = [None]
    f = w.trace(lambda x: x * 2 if held[0] is x else x * 3)
    for same in w.rounds(False, True, False):
        held[0] = w.x if same else t.ones(4)
        w.call(f, w.x)


@program("identity")
def in_asks_for_identity_first(w):
    class Odd:
        def __eq__(self, other):
            return False

        __hash__ = None

    thing, other = Odd(), Odd()
    things = [thing]
    f = w.trace(lambda x: x * 2 if thing in things else x * 3)
    for things[0] in w.rounds(thing, other, thing):
        w.call(f, w.x)


@program("identity")
def the_argument_itself_is_returned(w):
    factor = 1.0
    f = w.trace(lambda x: x if factor == 1.0 else x * factor)
    for factor in w.rounds(1.0, 2.0, 1.0):
        w.call(f, w.x)


@program("identity")
def a_captured_tensor_is_returned(w):
    held = [t.ones(4)]
    f = w.trace(lambda x: (held[0], x * held[0], held[0][:2]))
    w.see(held=held)
    for value in w.rounds(1.0, 2.0):
        held[0].fill_(value)
        w.call(f, w.x)


@program("identity")
def the_same_result_twice(w):
    twice = True

    @w.trace
    def f(x):
        y = x * 2
        return [y, y if twice else y + 0]

    for twice in w.rounds(True, False, True):
        w.call(f, w.x)


@program("identity")
def a_view_and_its_base_are_returned(w):
    start = 0

    @w.trace
    def f(x):
        y = x * 2
        return y, y[start:], y.reshape(2, 2), y.flip(0)

    for start in w.rounds(0, 1, 2):
        w.call(f, w.x)


@program("identity")
def results_are_written_afterwards(w):
    f = w.trace(lambda x: x * 2)

    def written(x, by):
        y = f(x)
        y.add_(by)
        return y, f(x)

    for by in w.rounds(1.0, 2.0):
        w.call(written, w.x * by, by)


@program("identity")
def the_last_result_is_given_again(w):
    f = w.trace(lambda x: x * 0.5)
    last = [w.x]

    def again():
        last[0] = f(last[0])
        return last[0]

    for start in w.rounds(1.0, 2.0):
        last[0] = w.x * start
        w.call(again)


@program("identity")
def a_cycle_of_objects(w):
    node = types.SimpleNamespace(value=1.0)
    node.next = node
    other = types.SimpleNamespace(value=2.0, next=node)
    f = w.trace(lambda x: x * node.next.next.value)
    for node.next, node.value in w.rounds((node, 1.0), (other, 1.0), (other, 3.0), (node, 1.0)):
        w.call(f, w.x)


@program("identity")
def one_list_under_two_names(w):
    shared = [1.0]
    held = {"a": shared, "b": shared}

    @w.trace
    def f(x):
        held["a"].append(len(held["b"]))
        return x * len(held["b"])

    w.see(held=held)
    for apart in w.rounds(False, True, False):
        shared[:] = [1.0]
        held["b"] = [1.0] if apart else shared
        w.call(f, w.x)


@program("identity")
def the_empty_tuple_is_one(w):
    given = empty = ()
    f = w.trace(lambda x: (x * 2 if tuple(given) is empty else x * 3, given[:0] is empty))
    for given in w.rounds((), [1], [], (2,)):
        w.call(f, w.x)


@program("identity")
def a_fresh_list_is_fresh_each_time(w):
    tail = 1.0
    f = w.trace(lambda x: [x * 2, [], [tail]])

    def changed():
        made = f(w.x)
        made[1].append("mine")
        return made

    for tail in w.rounds(1.0, 2.0):
        w.call(changed)


@program("identity")
def detached_shares_memory(w):
    weight = t.ones(4, requires_grad=True)
    f = w.trace(lambda x: (weight.detach(), x * weight.detach()))
    w.see(weight=weight)
    for value in w.rounds(1.0, 2.0):
        with t.no_grad():
            weight.fill_(value)
        w.call(f, w.x)
