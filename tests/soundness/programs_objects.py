"""Programs that write attributes, make objects, and ask for classes and identity."""

from __future__ import annotations

import types

from battery import lib as t
from battery import program


class Settings:
    scale = 2.0

    def __init__(self, scale=None):
        if scale is not None:
            self.scale = scale

    def apply(self, x):
        return x * self.scale


class Base:
    def apply(self, x):
        return x * 2


class Child(Base):
    pass


@program("attributes")
def an_attribute_is_written_and_read_back(w):
    thing = Settings(1.0)

    @w.trace
    def f(x):
        thing.scale = thing.scale + 1
        return x * thing.scale

    w.see(thing=thing)
    for thing.scale in w.rounds(1.0, 5.0):
        w.call(f, w.x)


@program("attributes")
def an_attribute_is_written_unless_it_is_there(w):
    thing = Settings()

    @w.trace
    def f(x):
        if not hasattr(thing, "cache"):
            thing.cache = x * 2
        return x + thing.cache

    w.see(thing=thing)
    for forget in w.rounds(True, False, True):
        if forget:
            vars(thing).pop("cache", None)
        w.call(f, w.x)
        w.call(f, w.x + 1)


@program("attributes")
def setattr_and_delattr_of_a_name(w):
    thing, name = Settings(), "first"

    @w.trace
    def f(x):
        setattr(thing, name, 2.0)
        if hasattr(thing, "gone"):
            delattr(thing, "gone")
        return x * len(vars(thing))

    w.see(thing=thing)
    for name in w.rounds("first", "second"):
        thing.__dict__.clear()
        thing.gone = 1
        w.call(f, w.x)


@program("attributes")
def setattr_of_ones_own(w):
    class Thing:
        def __setattr__(self, name, value):
            object.__setattr__(self, name, value * factor)

    thing, factor = Thing(), 2.0

    @w.trace
    def f(x):
        thing.last = 3.0
        return x * thing.last

    w.see(thing=thing)
    for factor in w.rounds(2.0, 5.0, 2.0):
        w.call(f, w.x)


@program("attributes")
def an_object_made_inside_is_returned(w):
    factor = 2.0

    @w.trace
    def f(x):
        made = Settings(factor)
        made.result = x * made.scale
        return made

    for factor in w.rounds(2.0, 3.0):
        w.call(f, w.x)


@program("attributes")
def two_results_share_one_new_object(w):
    step = 1.0

    @w.trace
    def f(x):
        made = types.SimpleNamespace(y=x * step)
        return [made, made], {"again": made}

    for step in w.rounds(1.0, 2.0):
        w.call(f, w.x)


@program("attributes", jax=True)
def isinstance_by_a_class_that_is_rebound(w):
    kind = Base
    thing = Child()
    f = w.trace(lambda x: x * 2 if isinstance(thing, kind) else x * 3)
    for kind in w.rounds(Base, Settings, Child):
        w.call(f, w.x)


@program("attributes", jax=True)
def instancecheck_of_ones_own(w):
    class Meta(type):
        def __instancecheck__(cls, other):
            return answer

    class Any(metaclass=Meta):
        pass

    answer = True
    f = w.trace(lambda x: x * 2 if isinstance(x, Any) else x * 3)
    for answer in w.rounds(True, False, True):
        w.call(f, w.x)


@program("attributes", jax=True)
def an_abstract_class_learns_a_class(w):
    import abc

    class Known(abc.ABC):  # noqa: B024
        pass

    thing = Settings()
    f = w.trace(lambda x: x * 2 if isinstance(thing, Known) else x * 3)
    for register in w.rounds(False, True):
        if register:
            Known.register(Settings)
        w.call(f, w.x)


@program("attributes", jax=True)
def identity_of_two_captured_objects(w):
    first, second = Settings(), Settings()
    other = second
    f = w.trace(lambda x: x * 2 if first is other else x * 3)
    for other in w.rounds(second, first, second):
        w.call(f, w.x)


@program("attributes")
def a_class_attribute_counts_instances(w):
    class Counted:
        made = 0

        def __init__(self):
            Counted.made += 1

    @w.trace
    def f(x):
        Counted()
        return x * Counted.made

    w.see(made=lambda: Counted.made)
    for Counted.made in w.rounds(0, 10):
        w.call(f, w.x)


@program("attributes", jax=True)
def a_tensor_kept_in_an_attribute_is_replaced(w):
    thing = types.SimpleNamespace(weight=t.ones(4))
    f = w.trace(lambda x: x * thing.weight)
    for thing.weight in w.rounds(t.ones(4), t.tensor([2.0, 2.0, 2.0, 2.0]), 3.0, None or 1.0):
        w.call(f, w.x)


@program("attributes", jax=True)
def a_class_is_defined_inside(w):
    factor = 2.0

    @w.trace
    def f(x):
        class Local(Settings):
            scale = factor

        return Local().apply(x)

    for factor in w.rounds(2.0, 3.0):
        w.call(f, w.x)
