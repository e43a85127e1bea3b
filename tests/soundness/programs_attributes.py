"""Programs whose functions read attributes, by all of Python's ways, that change between calls."""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import operator
import types

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


@program("attributes", jax=True)
def an_attribute_of_a_captured_object(w):
    settings = Settings(2.0)
    f = w.trace(lambda x: x * settings.scale)
    for settings.scale in w.rounds(2.0, 3.0, 2.0):
        w.call(f, w.x)


@program("attributes", jax=True)
def a_deep_path_is_cut_in_the_middle(w):
    root = types.SimpleNamespace(a=types.SimpleNamespace(b=types.SimpleNamespace(c=2.0)))
    f = w.trace(lambda x: x * root.a.b.c)
    first, second = root.a, types.SimpleNamespace(b=types.SimpleNamespace(c=5.0))
    for root.a in w.rounds(first, second, first):
        w.call(f, w.x)


@program("attributes", jax=True)
def a_deep_leaf_changes(w):
    root = types.SimpleNamespace(a=types.SimpleNamespace(b=[{"c": Settings(1.0)}]))
    f = w.trace(lambda x: x * root.a.b[-1]["c"].scale)
    for root.a.b[0]["c"].scale in w.rounds(2.0, 3.0, 2.0):
        w.call(f, w.x)


@program("attributes", jax=True)
def an_instance_attribute_hides_the_class_one(w):
    settings = Settings()
    f = w.trace(lambda x: x * settings.scale)
    for hide in w.rounds(False, True, False):
        if hide:
            settings.scale = 7.0
        else:
            vars(settings).pop("scale", None)
        w.call(f, w.x)


@program("attributes", jax=True)
def the_class_attribute_changes(w):
    settings = Settings()
    f = w.trace(lambda x: x * settings.scale)
    for Settings.scale in w.rounds(2.0, 3.0, 2.0):
        w.call(f, w.x)


@program("attributes", jax=True)
def a_subclass_gets_the_attribute(w):
    class Sub(Settings):
        pass

    settings = Sub()
    f = w.trace(lambda x: x * settings.scale)
    for hide in w.rounds(False, True, False):
        if hide:
            Sub.scale = 9.0
        elif "scale" in vars(Sub):
            del Sub.scale
        w.call(f, w.x)


@program("attributes", jax=True)
def a_method_is_replaced_on_the_class(w):
    settings = Settings(2.0)
    f = w.trace(lambda x: settings.apply(x))
    for Settings.apply in w.rounds(Settings.apply, lambda self, x: x - self.scale, Settings.apply):
        w.call(f, w.x)


@program("attributes", jax=True)
def a_method_is_put_on_the_instance(w):
    settings = Settings(2.0)
    f = w.trace(lambda x: settings.apply(x))
    for hide in w.rounds(False, True, False):
        if hide:
            settings.apply = lambda x: x + 10
        else:
            vars(settings).pop("apply", None)
        w.call(f, w.x)


@program("attributes", jax=True)
def a_child_class_overrides_later(w):
    child = Child()
    f = w.trace(lambda x: child.apply(x))
    for override in w.rounds(False, True, False):
        if override:
            Child.apply = lambda self, x: x * 3
        elif "apply" in vars(Child):
            del Child.apply
        w.call(f, w.x)


@program("attributes", jax=True)
def the_class_of_an_object_changes(w):
    class Other(Base):
        def apply(self, x):
            return x * 5

    thing = Base()
    f = w.trace(lambda x: thing.apply(x))
    for thing.__class__ in w.rounds(Base, Other, Base):
        w.call(f, w.x)


@program("attributes", jax=True)
def the_bases_of_a_class_change(w):
    class Left:
        factor = 2.0

    class Right:
        factor = 3.0

    class Both(Left):
        pass

    thing = Both()
    f = w.trace(lambda x: x * thing.factor)
    for Both.__bases__ in w.rounds((Left,), (Right,), (Left,)):
        w.call(f, w.x)


@program("attributes", jax=True)
def a_base_comes_between_in_the_lookup(w):
    class Middle(Base):
        pass

    class Last(Middle):
        pass

    thing = Last()
    f = w.trace(lambda x: thing.apply(x))
    for override in w.rounds(False, True, False):
        if override:
            Middle.apply = lambda self, x: x * 4
        elif "apply" in vars(Middle):
            del Middle.apply
        w.call(f, w.x)


@program("attributes", jax=True)
def super_finds_another_method(w):
    class Last(Base):
        def apply(self, x):
            return super().apply(x) + 1

    thing = Last()
    f = w.trace(lambda x: thing.apply(x))
    for Base.apply in w.rounds(Base.apply, lambda self, x: x * 6, Base.apply):
        w.call(f, w.x)


@program("attributes", jax=True)
def super_in_a_diamond(w):
    class Left(Base):
        def apply(self, x):
            return super().apply(x) + 1

    class Right(Base):
        factor = 3.0

        def apply(self, x):
            return super().apply(x) * self.factor

    class Both(Left, Right):
        pass

    thing = Both()
    f = w.trace(lambda x: thing.apply(x))
    for Right.factor in w.rounds(3.0, 4.0, 3.0):
        w.call(f, w.x)


@program("attributes", jax=True)
def a_property_reads_hidden_state(w):
    class Thing:
        hidden = 2.0

        @property
        def scale(self):
            return self.hidden * 2

    thing = Thing()
    f = w.trace(lambda x: x * thing.scale)
    for thing.hidden in w.rounds(2.0, 3.0, 2.0):
        w.call(f, w.x)


@program("attributes", jax=True)
def a_property_is_replaced(w):
    class Thing:
        @property
        def scale(self):
            return 2.0

    thing, first = Thing(), Thing.scale
    f = w.trace(lambda x: x * thing.scale)
    for Thing.scale in w.rounds(first, property(lambda self: 4.0), first):
        w.call(f, w.x)


@program("attributes")
def a_property_setter_runs(w):
    class Thing:
        stored = 0.0

        @property
        def scale(self):
            return self.stored

        @scale.setter
        def scale(self, value):
            self.stored = value * factor

    thing, factor = Thing(), 2.0

    @w.trace
    def f(x):
        thing.scale = 3.0
        return x * thing.scale

    w.see(thing=thing)
    for factor in w.rounds(2.0, 4.0, 2.0):
        w.call(f, w.x)


@program("attributes")
def a_property_has_side_effects(w):
    class Thing:
        reads = 0

        @property
        def scale(self):
            self.reads += 1
            return 2.0

    thing = Thing()
    f = w.trace(lambda x: x * thing.scale)
    w.see(thing=thing)
    for thing.reads in w.rounds(0, 10):
        w.call(f, w.x)


@program("attributes", jax=True)
def a_descriptor_of_ones_own(w):
    class Scaled:
        def __get__(self, owner, kind=None):
            return owner.raw * factor

    class Thing:
        raw = 1.0
        scale = Scaled()

    thing, factor = Thing(), 2.0
    f = w.trace(lambda x: x * thing.scale)
    for factor, thing.raw in w.rounds((2.0, 1.0), (3.0, 1.0), (3.0, 2.0)):
        w.call(f, w.x)


@program("attributes", jax=True)
def a_descriptor_gets_a_setter_and_wins(w):
    class Plain:
        def __get__(self, owner, kind=None):
            return 5.0

    class Thing:
        scale = Plain()

    thing = Thing()
    vars(thing)["scale"] = 2.0
    f = w.trace(lambda x: x * thing.scale)
    for data in w.rounds(False, True, False):
        if data:
            Plain.__set__ = lambda self, owner, value: None
        elif hasattr(Plain, "__set__"):
            del Plain.__set__
        w.call(f, w.x)


@program("attributes", jax=True)
def a_cached_property_keeps_its_value(w):
    class Thing:
        raw = 2.0

        @functools.cached_property
        def scale(self):
            return self.raw * 2

    thing = Thing()
    f = w.trace(lambda x: x * thing.scale)
    w.see(kept=lambda: vars(thing).get("scale"))
    for thing.raw, forget in w.rounds((2.0, False), (3.0, False), (3.0, True), (2.0, True)):
        if forget:
            vars(thing).pop("scale", None)
        w.call(f, w.x)


@program("attributes", jax=True)
def getattr_of_ones_own(w):
    class Thing:
        def __getattr__(self, name):
            return values[name]

    thing, values = Thing(), {"scale": 2.0}
    f = w.trace(lambda x: x * thing.scale)
    for values["scale"] in w.rounds(2.0, 3.0, 2.0):
        w.call(f, w.x)


@program("attributes", jax=True)
def getattribute_of_ones_own(w):
    class Thing:
        def __getattribute__(self, name):
            return factor

    thing, factor = Thing(), 2.0
    f = w.trace(lambda x: x * thing.scale)
    for factor in w.rounds(2.0, 3.0, 2.0):
        w.call(f, w.x)


@program("attributes", jax=True)
def getattr_is_hidden_by_an_attribute(w):
    class Thing:
        def __getattr__(self, name):
            return 2.0

    thing = Thing()
    f = w.trace(lambda x: x * thing.scale)
    for there in w.rounds(False, True, False):
        if there:
            thing.scale = 8.0
        else:
            vars(thing).pop("scale", None)
        w.call(f, w.x)


@program("attributes", jax=True)
def hasattr_turns_true(w):
    thing = Settings()
    f = w.trace(lambda x: x * 2 if hasattr(thing, "extra") else x * 3)
    for there in w.rounds(False, True, False):
        if there:
            thing.extra = None
        else:
            vars(thing).pop("extra", None)
        w.call(f, w.x)


@program("attributes", jax=True)
def getattr_with_a_default(w):
    thing = Settings()
    f = w.trace(lambda x: x * getattr(thing, "extra", 2.0))
    for there in w.rounds(False, True, False):
        if there:
            thing.extra = 3.0
        else:
            vars(thing).pop("extra", None)
        w.call(f, w.x)


@program("attributes", jax=True)
def a_metaclass_property(w):
    class Meta(type):
        @property
        def scale(cls):
            return factor

    class Thing(metaclass=Meta):
        pass

    factor = 2.0
    f = w.trace(lambda x: x * Thing.scale)
    for factor in w.rounds(2.0, 3.0, 2.0):
        w.call(f, w.x)


@program("attributes", jax=True)
def a_metaclass_getattr(w):
    class Meta(type):
        def __getattr__(cls, name):
            return factor

    class Thing(metaclass=Meta):
        pass

    factor = 2.0
    f = w.trace(lambda x: x * Thing.anything)
    for factor in w.rounds(2.0, 3.0, 2.0):
        w.call(f, w.x)


@program("attributes", jax=True)
def a_metaclass_call(w):
    class Meta(type):
        def __call__(cls, value):
            return value * factor

    class Thing(metaclass=Meta):
        pass

    factor = 2.0
    f = w.trace(lambda x: Thing(x))
    for factor in w.rounds(2.0, 3.0, 2.0):
        w.call(f, w.x)


@program("attributes", jax=True)
def slots_change(w):
    class Thing:
        __slots__ = ("scale",)

    thing = Thing()
    f = w.trace(lambda x: x * getattr(thing, "scale", 10.0))
    for value in w.rounds(2.0, 3.0, None, 2.0):
        if value is None:
            del thing.scale
        else:
            thing.scale = value
        w.call(f, w.x)


@program("attributes", jax=True)
def a_slot_descriptor_is_shadowed_by_a_subclass(w):
    class Thing:
        __slots__ = ("scale",)

    class Sub(Thing):
        pass

    thing = Sub()
    thing.scale = 2.0
    f = w.trace(lambda x: x * thing.scale)
    for hide in w.rounds(False, True, False):
        if hide:
            Sub.scale = 6.0
        elif "scale" in vars(Sub):
            del Sub.scale
        w.call(f, w.x)


@program("attributes", jax=True)
def a_static_and_a_class_method_change(w):
    class Thing:
        factor = 2.0

        @staticmethod
        def add(x):
            return x + 1

        @classmethod
        def scaled(cls, x):
            return x * cls.factor

    thing, add = Thing(), staticmethod(Thing.add)
    f = w.trace(lambda x: thing.scaled(thing.add(x)))
    other = staticmethod(lambda x: x - 1)
    for Thing.factor, Thing.add in w.rounds((2.0, add), (3.0, add), (3.0, other), (2.0, add)):
        w.call(f, w.x)


@program("attributes", jax=True)
def vars_of_an_object_are_written(w):
    thing = Settings(2.0)
    f = w.trace(lambda x: x * thing.scale)
    for vars(thing)["scale"] in w.rounds(2.0, 3.0, 2.0):
        w.call(f, w.x)


@program("attributes", jax=True)
def vars_of_an_object_are_read(w):
    thing = Settings(2.0)
    f = w.trace(lambda x: x * vars(thing)["scale"] + len(vars(thing)))
    for scale, extra in w.rounds((2.0, None), (3.0, None), (2.0, 1), (2.0, None)):
        thing.scale = scale
        vars(thing).pop("extra", None)
        if extra:
            thing.extra = extra
        w.call(f, w.x)


@program("attributes", jax=True)
def the_whole_dictionary_of_an_object_is_replaced(w):
    thing = Settings(2.0)
    f = w.trace(lambda x: x * thing.scale)
    for thing.__dict__ in w.rounds({"scale": 2.0}, {"scale": 3.0}, {}):
        w.call(f, w.x)


@program("attributes", jax=True)
def object_setattr_goes_around(w):
    class Thing:
        scale = 1.0

        def __setattr__(self, name, value):
            raise AttributeError("frozen")

    thing = Thing()
    f = w.trace(lambda x: x * thing.scale)
    for value in w.rounds(2.0, 3.0, 2.0):
        object.__setattr__(thing, "scale", value)
        w.call(f, w.x)


@program("attributes", jax=True)
def a_frozen_dataclass_is_replaced(w):
    @dataclasses.dataclass(frozen=True)
    class Config:
        scale: float = 2.0
        bias: float = 0.0

    config = Config()
    f = w.trace(lambda x: x * config.scale + config.bias)
    for change in w.rounds({"scale": 3.0}, {"bias": 1.0}, {"scale": 2.0, "bias": 0.0}):
        config = dataclasses.replace(config, **change)
        w.call(f, w.x)


@program("attributes", jax=True)
def a_dataclass_is_given_and_compared(w):
    @dataclasses.dataclass
    class Config:
        scale: float

    f = w.trace(lambda x, c: x * 2 if c == Config(2.0) else x * c.scale)
    config = Config(2.0)
    for config.scale in w.rounds(2.0, 3.0, 2.0):
        w.call(f, w.x, config)


@program("attributes", jax=True)
def a_named_tuple_is_given(w):
    Point = collections.namedtuple("Point", "a b")
    f = w.trace(lambda x, p: Point(x * p.a, p.b))
    for point in w.rounds(Point(1.0, 2.0), Point(2.0, 2.0), Point(2.0, 1.0)):
        w.call(f, w.x, point)


@program("attributes", jax=True)
def an_enum_chooses(w):
    class Mode(enum.Enum):
        DOUBLE = 2.0
        TRIPLE = 3.0

    config = types.SimpleNamespace(mode=Mode.DOUBLE)
    f = w.trace(lambda x: x * config.mode.value if config.mode is Mode.TRIPLE else x + 1)
    for config.mode in w.rounds(Mode.DOUBLE, Mode.TRIPLE, Mode.DOUBLE):
        w.call(f, w.x)


@program("attributes", jax=True)
def an_object_given_has_an_attribute_that_changes(w):
    f = w.trace(lambda x, s: s.apply(x))
    settings = Settings(2.0)
    for settings.scale in w.rounds(2.0, 3.0, 2.0):
        w.call(f, w.x, settings)


@program("attributes", jax=True)
def an_object_given_is_another_of_its_class(w):
    f = w.trace(lambda x, s: s.apply(x))
    for settings in w.rounds(Settings(2.0), Settings(3.0), Settings(2.0)):
        w.call(f, w.x, settings)


@program("attributes", jax=True)
def an_object_given_is_of_another_class(w):
    class Same:
        scale = 2.0

        def apply(self, x):
            return x - self.scale

    f = w.trace(lambda x, s: s.apply(x))
    for settings in w.rounds(Settings(2.0), Same(), Settings(2.0)):
        w.call(f, w.x, settings)


@program("attributes", jax=True)
def a_bound_method_is_kept_and_its_owner_changes(w):
    settings = Settings(2.0)
    apply = settings.apply
    f = w.trace(lambda x: apply(x))
    for settings.scale in w.rounds(2.0, 3.0, 2.0):
        w.call(f, w.x)


@program("attributes")
def a_method_is_traced_for_two_instances(w):
    class Thing:
        def __init__(self, scale):
            self.scale = scale

        @w.trace
        def apply(self, x):
            return x * self.scale

    first, second = Thing(2.0), Thing(3.0)
    for thing, first.scale in w.rounds((first, 2.0), (second, 2.0), (first, 4.0)):
        w.call(lambda x: thing.apply(x), w.x)


@program("attributes", jax=True)
def attrgetter_and_methodcaller(w):
    settings = Settings(2.0)
    get, call = operator.attrgetter("scale"), operator.methodcaller("apply", w.x)
    f = w.trace(lambda x: call(settings) * get(settings) + x)
    for settings.scale in w.rounds(2.0, 3.0, 2.0):
        w.call(f, w.x)


@program("attributes")
def dictionaries_with_attributes_leave(w):
    """An OrderedDict and a Counter are objects too: state_dict() hangs versions on one."""
    settings = Settings(2.0)

    @w.trace
    def f(x):
        made, counted = collections.OrderedDict(y=x * 2), collections.Counter("aab")
        made.scale, counted.kinds = settings.scale, [settings.scale, x + 1]
        made.itself = made
        return made, counted

    for settings.scale in w.rounds(2.0, 3.0):
        w.call(f, w.x)


@program("attributes")
def an_attribute_of_a_captured_dictionary(w):
    table = collections.OrderedDict(scale=3.0)
    table.scale = 2.0
    f = w.trace(lambda x: x * table.scale + table["scale"])
    for table.scale in w.rounds(2.0, 4.0):
        w.call(f, w.x)
