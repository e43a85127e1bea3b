"""Attributes, globals and cells: what a run reads of them is seen to change, what it does not read is not."""

import enum
import functools
import threading
import types
import weakref
from collections import namedtuple
from dataclasses import dataclass

import numpy as np
import pytest
from watched import Thing, Watched, check

import lamina
from lamina import nn
from lamina.jit.observe.kinds import MISSING


def fresh_class(**body):
    """A class of its own for one test, so that changing it changes no other."""
    return type("Fresh", (Thing,), body)


def test_attribute_of_the_object():
    check(
        lambda: Thing(x=1.5, y=2),
        lambda w, o: w.attribute(o, "x"),
        result=1.5,
        changes=[
            lambda o: setattr(o, "x", 1.25),
            lambda o: delattr(o, "x"),
            lambda o: setattr(o, "x", True),
            lambda o: setattr(o, "__class__", fresh_class()),
        ],
        keeps=[lambda o: setattr(o, "y", 3), lambda o: setattr(o, "z", 3), lambda o: setattr(o, "x", 1.5)],
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (0.0, -0.0),
        (1, True),
        (1, 1.0),
        (float("nan"), 1.0),
        (float("inf"), -float("inf")),
        ("a", "b"),
        (None, 0),
        ((), []),
        (complex(0.0, -0.0), complex(0.0, 0.0)),
    ],
)
def test_attribute_is_compared_in_type_and_bits(old, new):
    check(lambda: Thing(x=old), lambda w, o: w.attribute(o, "x"), changes=[lambda o: setattr(o, "x", new)])


def test_attribute_under_a_name_that_is_no_identifier():
    check(
        lambda: Thing(**{"{o}": 1, "class": 2, "a b": 3}),
        lambda w, o: [w.attribute(o, name) for name in ("{o}", "class", "a b")],
        changes=[lambda o, n=n: setattr(o, n, 5) for n in ("{o}", "class", "a b")],
    )


def test_attribute_of_the_class():
    check(
        lambda: fresh_class(k=3)(),
        lambda w, o: w.attribute(o, "k"),
        result=3,
        changes=[
            lambda o: setattr(o, "k", 3.0),
            lambda o: setattr(type(o), "k", 4),
            lambda o: delattr(type(o), "k"),
            lambda o: setattr(type(o), "k", property(lambda self: 3)),
        ],
        keeps=[lambda o: setattr(type(o), "other", 4)],
    )


def test_class_attribute_deleted_and_found_further_up():
    def make():
        base = type("Base", (Thing,), {"f": lambda self: 1})
        return type("Derived", (base,), {"f": lambda self: 1})()

    check(
        make,
        lambda w, o: w.attribute(o, "f"),
        changes=[lambda o: delattr(type(o), "f")],
        keeps=[lambda o: delattr(type(o).__base__, "f")],
    )


def test_class_attribute_set_between_the_class_and_its_base():
    def make():
        base = type("Base", (Thing,), {"f": 1})
        return type("Derived", (base,), {})()

    other = type("Other", (Thing,), {"f": 1})
    check(
        make,
        lambda w, o: w.attribute(o, "f"),
        changes=[lambda o: setattr(type(o), "f", 1), lambda o: setattr(type(o), "__bases__", (other,))],
    )


def test_missing_attribute_is_a_fact():
    def make():
        return fresh_class()(y=1)

    check(
        make,
        lambda w, o: w.attribute(o, "x", None),
        result=None,
        changes=[
            lambda o: setattr(o, "x", None),
            lambda o: setattr(type(o), "x", None),
            lambda o: setattr(type(o), "__getattr__", lambda self, name: None),
        ],
        keeps=[lambda o: setattr(o, "y", 2)],
    )
    with pytest.raises(AttributeError, match="no attribute 'x'"):
        w = Watched()
        w.attribute(w.pin(make()), "x")


def test_property_is_called():
    def make():
        return fresh_class(x=property(lambda self: 7))(y=1)

    def run(w, o):
        found = w.attribute(o, "x")
        assert w.called == ["<lambda>"]
        return found

    check(
        make,
        run,
        result=7,
        changes=[lambda o: setattr(type(o), "x", 7)],
        keeps=[lambda o: o.__dict__.update(x=8)],
    )


def test_property_raising_attribute_error_falls_back_to_getattr():
    def getter(self):
        raise AttributeError("none")

    def make():
        return fresh_class(x=property(getter), __getattr__=lambda self, name: name)()

    check(
        make,
        lambda w, o: w.attribute(o, "x"),
        result="x",
        changes=[lambda o: setattr(type(o), "__getattr__", lambda self, name: "y")],
    )


def test_getattribute_and_getattr_are_called():
    def look(self, name):
        if name == "far":
            raise AttributeError(name)
        return object.__getattribute__(self, name)

    def make():
        return fresh_class(__getattribute__=look, __getattr__=lambda self, name: 5)(x=1)

    def run(w, o):
        found = w.attribute(o, "far")
        assert w.called == ["look", "<lambda>"]
        return found

    check(make, run, result=5, changes=[lambda o: delattr(type(o), "__getattribute__")])


def test_generic_attribute_of_a_class_with_getattribute():
    def made():
        o = fresh_class()(x=4)
        type(o).__getattribute__ = lambda self, name: 0
        return o

    check(
        made,
        lambda w, o: w.generic_attribute(o, "x"),
        result=4,
        changes=[lambda o: object.__setattr__(o, "x", 5)],
    )


class OnlyGet:
    def __get__(self, o, kind):
        return 3


class GetAndSet(OnlyGet):
    def __set__(self, o, value):
        object.__setattr__(o, "kept", value)


def test_descriptors_go_before_or_after_the_object():
    check(
        lambda: fresh_class(x=OnlyGet())(),
        lambda w, o: w.attribute(o, "x"),
        result=3,
        changes=[lambda o: o.__dict__.update(x=3)],
    )
    check(
        lambda: fresh_class(x=GetAndSet())(),
        lambda w, o: w.attribute(o, "x"),
        result=3,
        keeps=[lambda o: o.__dict__.update(x=4)],
    )


def test_attribute_of_a_class_that_becomes_a_descriptor():
    class Later:
        pass

    def make():
        if "__get__" in vars(Later):
            del Later.__get__
        return fresh_class(x=Later())()

    check(
        make,
        lambda w, o: w.attribute(o, "x"),
        changes=[lambda o: setattr(Later, "__get__", lambda self, o, kind: self)],
    )


def test_slots():
    class Slotted:
        __slots__ = ("x", "y")

        def __init__(self):
            self.x = 1

    def read(w, o):
        return w.attribute(o, "x"), w.attribute(o, "y", None)

    check(
        Slotted,
        read,
        result=(1, None),
        changes=[lambda o: setattr(o, "x", 2), lambda o: delattr(o, "x"), lambda o: setattr(o, "y", None)],
    )


def test_named_tuple_and_dataclass():
    Pair = namedtuple("Pair", "a b")
    check(
        lambda: Thing(p=Pair(1, 2)),
        lambda w, o: w.attribute(w.attribute(o, "p"), "b"),
        result=2,
        changes=[lambda o: setattr(o, "p", Pair(1, 3))],
    )

    @dataclass
    class Point:
        a: int
        b: int = 4

    check(
        lambda: Point(1),
        lambda w, o: (w.attribute(o, "a"), w.attribute(o, "b")),
        result=(1, 4),
        changes=[lambda o: setattr(o, "b", 5)],
    )


def test_enum_member():
    class Color(enum.Enum):
        RED = 1
        BLUE = 2

    def run(w, o):
        return w.attribute(o, "c") is Color.RED

    check(lambda: Thing(c=Color.RED), run, result=True, changes=[lambda o: setattr(o, "c", Color.BLUE)])


def test_cached_property_and_partial():
    cached = functools.cached_property(lambda self: 9)

    def make():
        return fresh_class(x=cached)()

    cached.__set_name__(Thing, "x")

    def run(w, o):
        assert w.attribute(o, "x") == 9
        assert w.called == ["__get__"]

    watched, thing = Watched(), make()
    watched.pin(thing)
    run(watched, thing)
    # The value is kept on the object now, where the facts said that it was not.
    assert not watched.holds()
    check(
        lambda: Thing(f=functools.partial(max, 1)),
        lambda w, o: w.attribute(w.attribute(o, "f"), "args"),
        result=(1,),
        changes=[lambda o: setattr(o, "f", functools.partial(max, 1))],
    )


def test_function_attributes():
    def make():
        def f(x=1):
            return x

        f.tag = "a"
        return Thing(f=f)

    def run(w, o):
        f = w.attribute(o, "f")
        return w.attribute(f, "__defaults__"), w.attribute(f, "tag"), w.attribute(f, "none", 0)

    check(
        make,
        run,
        changes=[
            lambda o: setattr(o.f, "__defaults__", (2,)),
            lambda o: setattr(o.f, "tag", "b"),
            lambda o: setattr(o.f, "none", 0),
        ],
    )


def test_static_and_class_methods():
    def make():
        return fresh_class(s=staticmethod(lambda: 1), c=classmethod(lambda cls: cls))()

    def run(w, o):
        static, bound = w.attribute(o, "s"), w.attribute(o, "c")
        assert not w.is_fresh(static) and bound.__self__ is type(o)

    check(
        make,
        run,
        changes=[
            lambda o: setattr(type(o), "s", staticmethod(lambda: 2)),
            lambda o: setattr(type(o), "c", None),
        ],
    )


def test_attributes_of_classes_and_metaclasses():
    class Meta(type):
        @property
        def size(cls):
            return 4

        def __getattr__(cls, name):
            return name

    def make():
        return Thing(k=Meta("K", (), {"x": 1}))

    def run(w, o):
        k = w.attribute(o, "k")
        found = w.attribute(k, "x"), w.attribute(k, "size"), w.attribute(k, "far"), w.attribute(k, "__name__")
        assert w.called == ["size", "__getattr__"]
        return found

    check(
        make,
        run,
        result=(1, 4, "far", "K"),
        changes=[
            lambda o: setattr(o.k, "x", 2),
            lambda o: setattr(o.k, "far", "far"),
            lambda o: setattr(o.k, "__name__", "L"),
        ],
        keeps=[lambda o: setattr(o.k, "size_", 4)],
    )


def test_class_dictionary():
    def run(w, o):
        return w.item(w.attribute(w.class_of(o), "__dict__"), "k")

    check(
        lambda: fresh_class(k=1)(),
        run,
        result=1,
        changes=[lambda o: setattr(type(o), "k", 2)],
        keeps=[lambda o: setattr(type(o), "j", 2)],
    )


def test_super_reads_the_classes_after_its_own():
    def make():
        base = type("Base", (Thing,), {"f": lambda self: 1})
        middle = type("Middle", (base,), {})
        made = type("Last", (middle,), {"f": lambda self: 2})()
        made.classes = base, middle
        return made

    def run(w, o):
        found = w.attribute(w.new(super(type(o), o)), "f")
        return found.__func__ is o.classes[0].f

    check(
        make,
        run,
        result=True,
        changes=[
            lambda o: setattr(o.classes[0], "f", None),
            lambda o: setattr(o.classes[1], "f", o.classes[0].f),
            lambda o: delattr(o.classes[0], "f"),
            lambda o: setattr(o, "__class__", o.classes[1]),
        ],
        keeps=[lambda o: setattr(type(o), "f", None)],
    )


# ---- modules of Python, globals, cells ----
def python_module():
    made = types.ModuleType("made")
    made.x = 1
    return Thing(m=made)


def test_python_module():
    check(
        python_module,
        lambda w, o: (w.attribute(w.attribute(o, "m"), "x"), w.attribute(o.m, "y", None)),
        changes=[
            lambda o: setattr(o.m, "x", 2),
            lambda o: setattr(o.m, "y", None),
            lambda o: setattr(o.m, "__getattr__", lambda name: None),
            lambda o: setattr(o.m, "__class__", type("Lazy", (types.ModuleType,), {})),
        ],
        keeps=[lambda o: setattr(o.m, "z", 2)],
    )


def test_python_module_with_getattr():
    def make():
        made = python_module()
        made.m.__getattr__ = lambda name: name
        return made

    def run(w, o):
        found = w.attribute(w.attribute(o, "m"), "far")
        assert w.called == ["<lambda>"]
        return found

    check(
        make,
        run,
        result="far",
        changes=[lambda o: setattr(o.m, "__getattr__", len), lambda o: setattr(o.m, "far", "far")],
    )


def test_globals():
    def run(w, o):
        return w.load_global(o.scope, o.builtins, "x"), w.load_global(o.scope, o.builtins, "len")

    check(
        lambda: Thing(scope={"x": 1}, builtins={"len": len, "x": 2}),
        run,
        result=(1, len),
        changes=[
            lambda o: o.scope.update(x=2),
            lambda o: o.scope.pop("x"),
            lambda o: o.scope.update(len=len),
            lambda o: o.builtins.update(len=max),
        ],
        keeps=[lambda o: o.builtins.update(x=3), lambda o: o.scope.update(y=3)],
    )


def test_missing_global_is_a_fact():
    def run(w, o):
        with pytest.raises(NameError, match="name 'y' is not defined"):
            w.load_global(o.scope, o.builtins, "y")

    check(
        lambda: Thing(scope={}, builtins={}),
        run,
        changes=[lambda o: o.scope.update(y=1), lambda o: o.builtins.update(y=1)],
    )


def test_written_globals_are_no_facts():
    w, scope = Watched(), {"x": 1}
    w.store_global(scope, "x", 5)
    assert w.load_global(scope, {}, "x") == 5
    w.delete_global(scope, "x")
    assert w.load_global(scope, {"x": 6}, "x") == 6
    scope["x"] = 8
    assert w.holds() and len(w.written.effects) == 2


def test_module_attribute_and_global_are_one_place():
    w, m = Watched(), python_module().m
    w.store_global(m.__dict__, "x", 5)
    assert w.attribute(m, "x") == 5
    m.x = 1
    assert w.holds()


def cells():
    x = y = 1

    def f():
        return x, y

    return Thing(a=f.__closure__[0], b=f.__closure__[1], empty=types.CellType())


def test_cells():
    def run(w, o):
        for cell in (o.a, o.b, o.empty):
            w.pin(cell)
        with pytest.raises(ValueError):
            w.load_cell(o.empty)
        return w.load_cell(o.a)

    check(
        cells,
        run,
        result=1,
        changes=[lambda o: setattr(o.a, "cell_contents", 2), lambda o: setattr(o.empty, "cell_contents", 2)],
        keeps=[lambda o: setattr(o.b, "cell_contents", 2)],
    )


def test_written_cell_is_no_fact():
    w, o = Watched(), cells()
    w.pin(o.a)
    w.store_cell(o.a, 7)
    assert w.load_cell(o.a) == 7 and len(w.written.effects) == 1
    o.a.cell_contents = 8
    assert w.holds()


# ---- lifted numbers ----
def test_lifted_number_stands_for_the_slot_until_something_looks():
    w, o = Watched(lift=frozenset([("thing.x", "attr")])), Thing(x=2)
    w.pin(o, "thing")
    found = w.attribute(o, "x")
    o.x = 3
    assert w.holds()
    twice = w.binary("*", found, 2)
    assert twice == 4 and twice.expression == "S[1]"
    o.x = 2
    w.set_attribute(o, "x", twice)
    assert w.attribute(o, "x") is twice and type(o.x) is int
    o.x = 3
    assert w.plain(found) == 2 and not w.holds()


# ---- writing ----
def test_written_attribute_is_no_fact():
    w, o = Watched(), fresh_class()(x=1)
    w.pin(o)
    w.set_attribute(o, "x", 5)
    w.set_attribute(o, "y", 6)
    assert (w.attribute(o, "x"), w.attribute(o, "y")) == (5, 6)
    w.delete_attribute(o, "y")
    assert w.attribute(o, "y", None) is None
    o.x = 2
    assert w.holds() and len(w.written.effects) == 3
    o.__class__ = Thing
    assert not w.holds()


def test_write_through_property_and_descriptor():
    def put(self, value):
        self.__dict__["kept"] = value

    w, o = Watched(), fresh_class(x=property(None, put), y=GetAndSet())()
    w.pin(o)
    w.set_attribute(o, "x", 5)
    w.set_attribute(o, "y", 6)
    assert w.called == ["put", "__set__"] and o.kept == 6
    type(o).x = 3
    assert not w.holds()
    read_only = w.pin(fresh_class(x=property(lambda self: 1))())
    with pytest.raises(AttributeError):
        w.set_attribute(read_only, "x", 5)


def test_write_by_way_of_the_dictionary_is_a_write():
    w, o = Watched(), Thing(x=1, y=2)
    w.pin(o)
    own = w.attribute(o, "__dict__")
    w.set_item(own, "x", 5)
    assert w.attribute(o, "x") == 5
    w.set_attribute(o, "y", 6)
    assert w.item(own, "y") == 6
    o.x, o.y = 7, 8
    assert w.holds()


def test_dictionary_after_a_write_is_refused():
    def run(w, o):
        w.set_attribute(o, "x", 5)
        return w.attribute(o, "__dict__")["x"]

    check(lambda: Thing(x=1), run, result=5, refused="after a write")


def test_setting_a_class_attribute():
    w, o = Watched(), fresh_class(k=1)()
    w.pin(o)
    w.set_attribute(type(o), "k", 2)
    assert w.attribute(o, "k") == 2 and len(w.written.effects) == 1
    type(o).k = 3
    assert w.holds()


def test_class_of_an_object_written():
    other = fresh_class(x=1)
    w, o = Watched(), Thing(x=0)
    w.pin(o)
    w.set_attribute(o, "__class__", other)
    assert w.class_of(o) is other and len(w.written.effects) == 1


@pytest.mark.parametrize(
    ("make", "run", "why"),
    [
        (threading.local, lambda w, o: w.attribute(o, "x", 1), "thread-local"),
        (
            lambda: Thing(x=(t := Thing(y=1)), p=weakref.proxy(t)),
            lambda w, o: w.attribute(w.attribute(o, "p"), "y"),
            "weak proxy",
        ),
        (lambda: Thing(x=1), lambda w, o: w.set_attribute(o, "__dict__", {"x": 2}), "replaced"),
        (
            lambda: Thing(a=np.zeros(4)),
            lambda w, o: w.set_attribute(w.attribute(o, "a"), "real", 1.0),
            "written",
        ),
        (lambda: Thing(a=np.zeros(4)[1:]), lambda w, o: w.attribute(w.attribute(o, "a"), "base"), "base"),
        (lambda: fresh_class(k=1), lambda w, o: w.delete_attribute(o, "k"), "deleted"),
    ],
)
def test_refusals(make, run, why):
    check(make, run, refused=why)


def test_unknown_object_is_refused():
    w = Watched()
    assert w.attribute(Thing(x=1), "x") == 1
    assert "nothing known leads to" in w.refused


# ---- Lamina's modules and tensors ----
def test_module_attributes_are_read_without_moving_the_epoch():
    from lamina.nn import epoch

    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(2, 2)
            self.scale = 2.0

    m = Scaled()
    w = Watched()
    w.pin(m, "m")
    before = epoch.value
    assert w.attribute(m, "scale") == 2.0 and w.attribute(m, "inner") is m.inner
    assert w.attribute(m, "far", None) is None
    assert epoch.value == before and w.refused is None
    assert w.holds() and w.guards.parts[0].later
    for change in (lambda: setattr(m, "scale", 3.0), lambda: setattr(m, "far", 1)):
        change()
        assert not w.holds()
        m.scale = 2.0
        if "far" in dir(m):
            del m.far
        assert w.holds()
    m.inner = nn.Linear(2, 2)
    assert not w.holds()


def test_write_to_a_module():
    m, w = nn.Linear(2, 2), Watched()
    w.pin(m, "m")
    w.set_attribute(m, "steps", 3)
    assert m.steps == 3 and w.attribute(m, "steps") == 3 and len(w.written.effects) == 1
    m.steps = 4
    assert w.holds()
    m.register_parameter("more", None)
    assert w.holds()
    del m.steps
    m.register_parameter("steps", None)
    assert not w.holds()


def test_write_to_a_module_through_a_property():
    class Guarded(nn.Module):
        @property
        def x(self):
            return self._x

        @x.setter
        def x(self, value):
            self._x = value

    m, w = Guarded(), Watched()
    w.pin(m, "m")
    w.set_attribute(m, "x", 3)
    assert w.called == ["x"] and m.x == 3


def test_dictionary_of_a_module_is_refused():
    check(
        lambda: nn.Linear(2, 2),
        lambda w, m: "weight" in w.attribute(m, "__dict__"),
        result=True,
        refused="vars",
    )


def test_tensor_attributes_are_native():
    x = lamina.ones(2, 3)
    w = Watched()
    w.argument("x", x)
    assert w.attribute(x, "shape") == (2, 3) and w.attribute(x, "T").shape == (3, 2)
    assert w.attribute(x, "far", None) is None
    assert w.refused is None and w.holds(x)


def test_tensor_of_a_users_class_is_refused():
    class Mine(lamina.Tensor):
        pass

    x = lamina.ones(2)
    mine = object.__new__(Mine)
    for name in ("_data", "_meta", "_edge", "_storage", "_view"):
        setattr(mine, name, getattr(x, name))
    w = Watched()
    assert w.attribute(mine, "ndim") == 1
    assert "Mine" in w.refused


def test_default_is_given_as_it_is():
    w, o = Watched(), Thing()
    w.pin(o)
    assert w.attribute(o, "x", w) is w and w.attribute(o, "x", None) is None
    with pytest.raises(AttributeError):
        w.attribute(o, "x", MISSING)
