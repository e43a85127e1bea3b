"""Programs that notice when an object dies that was there before the call: what took it out of its place?"""

from __future__ import annotations

import collections
import gc
import types
import weakref

from battery import program

import lamina

kept = None


def speaking(log):
    """A class whose objects say when they die."""

    class Speaking:
        def __del__(self):
            log.append("died")

    return Speaking


def dying(w, put, take):
    """Call a function that takes an object out of where `put(held, object)` puts it, then reads the log."""
    log, held = (
        [],
        types.SimpleNamespace(o=None, items=[], table={}, few=collections.deque(maxlen=2), set=set()),
    )
    make = speaking(log)

    @w.trace
    def f(x):
        take(held)
        return x * (len(log) + 1)

    w.see(log=log)
    for lives in w.rounds(True, False, True):
        put(held, make() if lives else None)
        w.call(f, w.x)


@program("lives")
def an_attribute_is_written_over(w):
    dying(w, lambda h, o: setattr(h, "o", o), lambda h: setattr(h, "o", None))


@program("lives")
def an_attribute_is_deleted(w):
    def take(h):
        if hasattr(h, "o"):
            del h.o

    dying(w, lambda h, o: setattr(h, "o", o), take)


@program("lives")
def an_item_of_a_list_is_written_over(w):
    def take(h):
        h.items[0] = None

    dying(w, lambda h, o: h.items.__setitem__(slice(None), [o]), take)


@program("lives")
def an_error_is_kept_by_a_run_that_is_made_again(w):
    log, held = [], types.SimpleNamespace(o=None, error=None)
    make, watched = speaking(log), weakref.WeakSet()
    w.undo(gc.enable)
    gc.disable()  # which would end what holds itself

    @w.trace
    def f(x):
        try:
            raise ValueError(len(watched))
        except ValueError as error:
            held.error = error
        return x, held.o

    w.see(log=log, alive=lambda: len(watched))
    for _ in w.rounds(1, 2, 3, 4):
        held.o = make()
        watched.add(held.o)
        w.call(f, w.x)


@program("lives")
def a_list_is_popped(w):
    def take(h):
        if h.items:
            h.items.pop()

    dying(w, lambda h, o: h.items.append(o), take)


@program("lives")
def a_list_is_cleared(w):
    dying(w, lambda h, o: h.items.append(o), lambda h: h.items.clear())


@program("lives")
def a_slice_is_deleted(w):
    def take(h):
        del h.items[:]

    dying(w, lambda h, o: h.items.append([o]), take)


@program("lives")
def a_list_is_emptied_by_an_operator(w):
    def take(h):
        h.items *= 0

    dying(w, lambda h, o: h.items.append(o), take)


@program("lives")
def an_item_of_a_dict_is_written_over(w):
    def take(h):
        h.table["k"] = 1

    dying(w, lambda h, o: h.table.update(k=o), take)


@program("lives")
def a_dict_is_updated_over_an_object(w):
    dying(w, lambda h, o: h.table.update(k=o), lambda h: h.table.update(k=1))


@program("lives")
def a_dict_gives_an_object_away(w):
    dying(w, lambda h, o: h.table.update(k=(o,)), lambda h: h.table.pop("k", None) and None)


@program("lives")
def a_deque_is_full(w):
    dying(w, lambda h, o: h.few.extend([o, 1]), lambda h: h.few.append(2))


@program("lives")
def a_set_is_cleared(w):
    dying(w, lambda h, o: h.set.add((o,)), lambda h: h.set.clear())


@program("lives")
def a_function_that_closes_over_an_object_goes(w):
    dying(w, lambda h, o: setattr(h, "o", lambda: o), lambda h: setattr(h, "o", None))


@program("lives")
def a_global_is_written_over(w):
    log = []
    make = speaking(log)

    @w.trace
    def f(x):
        global kept
        kept = None
        return x * (len(log) + 1)

    global kept
    w.see(log=log)
    for lives in w.rounds(True, False, True):
        kept = make() if lives else None
        w.call(f, w.x)


@program("lives")
def a_variable_of_a_closure_is_written_over(w):
    log, mine = [], None
    make = speaking(log)

    @w.trace
    def f(x):
        nonlocal mine
        mine = None
        return x * (len(log) + 1)

    w.see(log=log)
    for lives in w.rounds(True, False, True):
        mine = make() if lives else None
        w.call(f, w.x)


@program("lives", peers=False)
def an_attribute_of_a_module_is_written_over(w):
    log = []
    make = speaking(log)

    class Net(w.lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.last = None

        def forward(self, x):
            self.last = None
            return x * (len(log) + 1)

    net = Net()
    f = w.trace(net)
    for lives in w.rounds(True, False, True):
        net.last = make() if lives else None
        w.call(f, w.x)


@program("lives")
def a_slot_is_written_over(w):
    log = []
    make = speaking(log)

    class Slotted:
        __slots__ = ("o",)

    thing = Slotted()

    @w.trace
    def f(x):
        thing.o = None
        return x * (len(log) + 1)

    for lives in w.rounds(True, False, True):
        thing.o = make() if lives else None
        w.call(f, w.x)


@program("lives")
def a_weak_reference_tells(w):
    class Plain:
        pass

    held = types.SimpleNamespace(o=None, r=None)

    @w.trace
    def f(x):
        held.o = None
        return x * 2 if held.r() is None else x * 3

    for stays in w.rounds(False, True, False):
        held.o = Plain()
        held.r, other = weakref.ref(held.o), held.o if stays else None
        w.once(f, w.x)
        del other


@program("lives")
def a_finalizer_runs(w):
    class Plain:
        pass

    log, held = [], types.SimpleNamespace(o=None)

    @w.trace
    def f(x):
        held.o = None
        return x * (len(log) + 1)

    w.see(log=log)
    for lives in w.rounds(True, False, True):
        held.o = Plain()
        if lives:
            weakref.finalize(held.o, log.append, "died").atexit = False
        w.once(f, w.x)


@program("lives")
def a_weak_dictionary_loses_its_key(w):
    class Plain:
        pass

    table, held = weakref.WeakKeyDictionary(), types.SimpleNamespace(o=None)

    @w.trace
    def f(x):
        held.o = None
        return x * (len(log) + 1)

    log = []
    for lives in w.rounds(True, False, True):
        held.o = Plain()
        if lives:
            table[held.o] = 1
            weakref.finalize(held.o, log.append, len(table)).atexit = False
        w.once(f, w.x)


@program("lives")
def a_suspended_generator_is_dropped(w):
    log, held = [], types.SimpleNamespace(g=None)

    def steps():
        try:
            yield 1
        finally:
            log.append("closed")

    @w.trace
    def f(x):
        held.g = None
        return x * (len(log) + 1)

    for lives in w.rounds(True, False, True):
        held.g = steps() if lives else None
        if lives:
            next(held.g)
        w.call(f, w.x)


@program("lives")
def what_is_popped_dies_at_once(w):
    log, items = [], []
    make = speaking(log)

    @w.trace
    def f(x):
        items.pop()
        log.append("after")
        return x * len(log)

    w.see(log=log)
    for count in w.rounds(1, 2, 3):
        log.clear()
        items.extend(make() for _ in range(count))
        w.once(f, w.x)
        items.clear()


@program("lives")
def what_dies_silently_is_written_over(w):
    held = types.SimpleNamespace(o=None)
    scale = 1.0

    @w.trace
    def f(x):
        held.o = None
        return x * scale

    w.see(held=held)
    for scale, held.o in w.rounds((1.0, [1, {"a": (2,)}]), (2.0, types.SimpleNamespace(n=3)), (3.0, None)):
        w.call(f, w.x)


def alone_for_the_collector(w):
    """Have the collector look at what is made from here on: a process of tests holds millions of objects."""
    w.undo(gc.unfreeze)
    gc.freeze()


def circles_that_die_later(w, make):
    """Objects in circles, made before a run is refused, whose class is given a `__del__` later."""
    log = []
    speaking_one = speaking(log)

    class Quiet:
        __slots__ = ("__dict__", "__weakref__", "other")

    class Many(list):
        pass

    @w.trace
    def f(x):
        make(Quiet, Many)
        speaking_one()
        return x * (len(log) + 1)

    w.see(log=log)
    w.undo(gc.enable)
    alone_for_the_collector(w)
    gc.disable()  # it would come when the collector's counters say so, which are others in a recording run
    for again in w.rounds(True, False, True):
        w.call(f, w.x)
        if again:
            Quiet.__del__ = lambda self: log.append("quietly")
            Many.__del__ = lambda self: log.append("many")
            gc.collect()


@program("lives")
def a_circle_of_an_attribute_dies_later(w):
    def make(quiet, many):
        o = quiet()
        o.me = o

    circles_that_die_later(w, make)


@program("lives")
def a_circle_of_a_slot_dies_later(w):
    def make(quiet, many):
        o, p = quiet(), quiet()
        o.other, p.other = p, o

    circles_that_die_later(w, make)


@program("lives")
def a_circle_of_a_list_dies_later(w):
    def make(quiet, many):
        o, p = quiet(), many()
        o.other = p
        p.me = o

    circles_that_die_later(w, make)


def circles_left_behind(w, make):
    """Objects in circles that each call leaves to the collector; their class is given a `__del__` later."""
    log = []

    class Quiet:
        __slots__ = ("__dict__", "__weakref__", "other")

    class Many(list):
        pass

    @w.trace
    def f(x):
        make(Quiet, Many, x)
        return x * 2

    w.see(log=log)
    w.undo(gc.enable)
    alone_for_the_collector(w)
    gc.collect()
    gc.disable()
    for turn in w.rounds(1, 2, 3, 4):
        w.call(f, w.x)
        if turn == 3:
            Quiet.__del__ = lambda self: log.append("quietly")
            Many.__del__ = lambda self: log.append("many")
            gc.collect()


@program("lives")
def a_circle_of_an_attribute_is_left(w):
    def make(quiet, many, x):
        o = quiet()
        o.me, o.held = o, [quiet(), x]

    circles_left_behind(w, make)


@program("lives")
def a_circle_of_slots_is_left(w):
    def make(quiet, many, x):
        o, p = quiet(), quiet()
        o.other, p.other, o.y = p, o, x * 3

    circles_left_behind(w, make)


@program("lives")
def a_circle_of_a_list_subclass_is_left(w):
    def make(quiet, many, x):
        o, p = quiet(), many()
        o.other = p
        p.me = o

    circles_left_behind(w, make)


@program("lives")
def an_instance_is_left_in_a_list_of_itself(w):
    def make(quiet, many, x):
        held = {"a": [quiet()]}
        held["me"] = held["a"]
        held["a"].append((held,))

    circles_left_behind(w, make)


@program("lives")
def a_recursive_function_keeps_an_instance(w):
    def make(quiet, many, x):
        o = quiet()

        def down(n):
            return o if n == 0 else down(n - 1)

        down(2)

    circles_left_behind(w, make)


@program("lives")
def an_instance_keeps_its_own_method(w):
    def make(quiet, many, x):
        o = quiet()
        o.again = o.__init__
        o.later = lambda: o

    circles_left_behind(w, make)


def errors_that_leave(w, fail):
    """A function fails while a generator of its own is suspended: it is closed as the error is dropped."""
    log = []

    def stepping():
        try:
            yield 1
        finally:
            log.append("closed")

    @w.trace
    def f(x, good):
        steps = stepping()
        next(steps)
        return x * 2 if good else fail(x)

    w.see(log=log)
    w.undo(gc.enable)
    alone_for_the_collector(w)
    gc.disable()
    for good in w.rounds(False, True, False):
        w.call(f, w.x, good)


@program("lives")
def an_error_of_a_module_without_forward_leaves(w):
    errors_that_leave(w, lamina.nn.Module())


@program("lives")
def an_error_of_a_forward_leaves(w):
    class Net(lamina.nn.Module):
        def forward(self, x):
            raise ValueError("never")

    errors_that_leave(w, Net())


@program("lives")
def an_error_of_an_operand_leaves(w):
    errors_that_leave(w, lamina.nn.Linear(2, 70))


@program("lives")
def an_error_of_an_op_leaves(w):
    errors_that_leave(w, lambda x: lamina.cat([x, lamina.ones(2, 3, 4)]))


@program("lives")
def an_error_of_c_code_leaves(w):
    errors_that_leave(w, lambda x: int("seven"))
