"""Every miss names its first cause: the place as its reader knows it, what stood there and what stands there
now, and the line that reads it.
"""

from __future__ import annotations

import builtins
import math
import types
from dataclasses import dataclass, field

import numpy as np
import pytest

import lamina
from lamina import jit, nn, optim

FILE = "test_misses.py"
scale, steps, half = 2.0, {"a": 1.0}, None
tools = types.ModuleType("tools")
CASES = {}


def case(*expected, line=None):
    """Enter a maker of (function, arguments, change); `expected` is what is told of the miss.

    line: a text in the line that is named; None where no line reads it.
    """

    def enter(make):
        CASES[make.__name__] = make, expected, line
        return make

    return enter


@dataclass
class Config:
    scale: float = 2.0
    names: list = field(default_factory=lambda: ["a"])


class Thing:
    kind = 1.0

    def __init__(self):
        self.config = Config()
        self.scale = 2.0

    def times(self):
        return 2.0


def x_of(*shape, dtype=None):
    return lamina.ones(*(shape or (4,)), dtype=dtype)


def changed(**named):
    def change():
        globals().update(named)

    return change


# ---- globals, closures, functions --------------------------------------------------------------------------
@case("the global scale: 2.0 -> 3.0", line="# reads scale")
def a_global():
    def f(x):
        return x * scale  # reads scale

    globals()["scale"] = 2.0
    return f, (x_of(),), changed(scale=3.0)


@case("the global scale: 2.0 -> 2", line="# reads scale as an int")
def another_type_of_number():
    def f(x):
        return x * scale  # reads scale as an int

    globals()["scale"] = 2.0
    return f, (x_of(),), changed(scale=2)


@case("the global scale: 1 -> True", line="# reads scale as a bool")
def one_and_true():
    def f(x):
        return x * scale  # reads scale as a bool

    globals()["scale"] = 1
    return f, (x_of(),), changed(scale=True)


@case("the global scale: 0.0 -> -0.0", line="# reads a zero")
def minus_zero():
    def f(x):
        return x * scale  # reads a zero

    globals()["scale"] = 0.0
    return f, (x_of(),), changed(scale=-0.0)


@case("the global scale: 2.0 -> nan", line="# reads a number")
def not_a_number():
    def f(x):
        return x * scale  # reads a number

    globals()["scale"] = 2.0
    return f, (x_of(),), changed(scale=math.nan)


@case("the global late: nothing -> 3.0", line="# looks for late")
def a_global_that_appears():
    def f(x):
        try:
            return x * late  # looks for late
        except NameError:
            return x

    globals().pop("late", None)
    return f, (x_of(),), changed(late=3.0)


@case(
    "the global half: function a_function.<locals>.one -> function a_function.<locals>.two",
    line="# calls half",
)
def a_function():
    def one(x):
        return x / 2

    def two(x):
        return x / 4

    def f(x):
        return half(x)  # calls half

    globals()["half"] = one
    return f, (x_of(),), changed(half=two)


@case("the global half: function a_function_that_is_gone.<locals>.one -> function ", line="# calls what goes")
def a_function_that_is_gone():
    def one(x):
        return x / 2

    def f(x):
        return half(x)  # calls what goes

    globals()["half"] = one
    del one
    return f, (x_of(),), lambda: globals().update(half=lambda x: x / 4)


@case("k: 1.0 -> 5.0", line="# reads k")
def a_closure():
    k = 1.0

    def f(x):
        return x * k  # reads k

    def change():
        nonlocal k
        k = 5.0

    return f, (x_of(),), change


@case("k: nothing -> 5.0", line="# reads a variable without value")
def a_closure_that_gets_a_value():
    def f(x):
        try:
            return x * k  # reads a variable without value
        except NameError:
            return x

    def change():
        nonlocal k
        k = 5.0

    k = 1.0
    del k
    return f, (x_of(),), change


@case("helper.__defaults__: (1.0,) -> (3.0,)", line="# calls with a default")
def a_default():
    def helper(x, by=1.0):
        return x + by

    def f(x):
        return helper(x)  # calls with a default

    def change():
        helper.__defaults__ = (3.0,)

    return f, (x_of(),), change


@case("helper.__code__: a code -> another code", line="# calls other code")
def the_code():
    def helper(x):
        return x + 1

    def f(x):
        return helper(x)  # calls other code

    def change():
        helper.__code__ = (lambda x: x + 2).__code__

    return f, (x_of(),), change


@case("the global max: nothing -> function ", line="# calls max")
def a_builtin_that_is_hidden():
    def f(x):
        return x * max(1, 2)  # calls max

    globals().pop("max", None)
    return f, (x_of(),), lambda: globals().update(max=lambda a, b: 5)


@case("builtins.sum: function sum -> function ", line="# calls sum")
def a_builtin_that_is_replaced():
    def f(x):
        return x * sum((1, 2))  # calls sum

    return f, (x_of(),), lambda: setattr(builtins, "sum", lambda o: 7)


@case("tools.factor: 3.0 -> 4.0", line="# reads tools")
def an_attribute_of_a_module_of_python():
    def f(x):
        return x * tools.factor  # reads tools

    tools.factor = 3.0
    return f, (x_of(),), lambda: setattr(tools, "factor", 4.0)


@case("tools.double: function twice -> function thrice", line="# calls double")
def a_function_of_a_module_of_python():
    def f(x):
        return tools.double(x)  # calls double

    tools.double = twice
    return f, (x_of(),), lambda: setattr(tools, "double", thrice)


def twice(x):
    return x * 2


def thrice(x):
    return x * 3


# ---- objects -----------------------------------------------------------------------------------------------
@case("thing.scale: 2.0 -> 3.0", line="# reads thing.scale")
def an_attribute():
    thing = Thing()

    def f(x):
        return x * thing.scale  # reads thing.scale

    return f, (x_of(),), lambda: setattr(thing, "scale", 3.0)


@case("thing.config.names[0]: 'a' -> 'bb'", line="# reads deep")
def a_deep_path():
    thing = Thing()

    def f(x):
        return x * len(thing.config.names[0])  # reads deep

    return f, (x_of(),), lambda: thing.config.names.__setitem__(0, "bb")


@case("thing.extra: nothing -> 3.0", line="# asks for extra")
def an_attribute_that_appears():
    thing = Thing()

    def f(x):
        return x * getattr(thing, "extra", 1.0)  # asks for extra

    return f, (x_of(),), lambda: setattr(thing, "extra", 3.0)


@case("thing.scale: 2.0 -> nothing", line="# reads what goes")
def an_attribute_that_disappears():
    thing = Thing()

    def f(x):
        return x * (thing.scale if hasattr(thing, "scale") else 5.0)  # reads what goes

    return f, (x_of(),), lambda: delattr(thing, "scale")


@case("Thing.kind: 1.0 -> 4.0", line="# reads kind")
def an_attribute_of_a_class():
    thing = Thing()

    def f(x):
        return x * thing.kind  # reads kind

    return f, (x_of(),), lambda: setattr(Thing, "kind", 4.0)


@case("Thing.times: function Thing.times -> function the_times", line="# calls times")
def a_method_that_is_swapped():
    thing = Thing()

    def f(x):
        return x * thing.times()  # calls times

    return f, (x_of(),), lambda: setattr(Thing, "times", the_times)


def the_times(self):
    return 9.0


class Other(Thing):
    pass


@case("thing.__class__: class Thing -> class Other", line="# asks for the class")
def a_class_that_changed():
    thing = Thing()

    def f(x):
        return x * thing.times()  # asks for the class

    return f, (x_of(),), lambda: setattr(thing, "__class__", Other)


@case("config.scale: 2.0 -> 3.0", line="# reads an argument's")
def an_attribute_of_an_argument():
    config = Config()

    def f(x, config):
        return x * config.scale  # reads an argument's

    return f, (x_of(), config), lambda: setattr(config, "scale", 3.0)


# ---- containers --------------------------------------------------------------------------------------------
@case("the global steps['a']: 1.0 -> 2.0", line="# reads an item")
def an_item():
    def f(x):
        return x * steps["a"]  # reads an item

    globals()["steps"] = {"a": 1.0}
    return f, (x_of(),), lambda: steps.update(a=2.0)


@case("the keys of the global steps: ['a', 'b'] -> ['b', 'a']", line="# goes through keys")
def the_order_of_keys():
    def f(x):
        for key in steps:  # goes through keys
            x = x * 2 if key == "a" else x + 1
        return x

    globals()["steps"] = {"a": 1.0, "b": 2.0}
    return f, (x_of(),), lambda: steps.update(a=steps.pop("a"))


@case("the global steps['b']: nothing -> 2.0", line="# asks for b")
def a_key_that_appears():
    def f(x):
        return x * steps.get("b", 1.0)  # asks for b

    globals()["steps"] = {"a": 1.0}
    return f, (x_of(),), lambda: steps.update(b=2.0)


@case("the length of names: 1 -> 2", line="# asks for the length")
def a_length():
    names = ["a"]

    def f(x):
        return x * len(names)  # asks for the length

    return f, (x_of(),), lambda: names.append("b")


@case("the length of xs: 2 -> 3", line="# goes through the list")
def a_longer_list_as_argument():
    xs = [x_of(), x_of()]

    def f(xs):
        total = 0.0
        for x in xs:  # goes through the list
            total = total + x
        return total

    return f, (xs,), lambda: xs.append(x_of())


@case("weights: a ndarray -> another ndarray", line="# reads an array")
def a_small_array():
    weights = np.array([1.0, 2.0])

    def f(x):
        return x * float(weights[0])  # reads an array

    return f, (x_of(),), lambda: weights.__setitem__(0, 5.0)


# ---- arguments ---------------------------------------------------------------------------------------------
def argument_case(name, expected, before, after):
    def make():
        given = [before()]

        def f(x):  # the first argument
            return x * 2

        return f, lambda: (given[0],), lambda: given.__setitem__(0, after())

    make.__name__ = name
    case(expected, line="# the first argument")(make)


argument_case("another_shape", "x: f32[4] -> f32[5]", x_of, lambda: x_of(5))
argument_case("another_dtype", "x: f32[4] -> f64[4]", x_of, lambda: x_of(4, dtype=lamina.float64))
argument_case("another_number", "x: 3 -> 4", lambda: 3, lambda: 4)
argument_case("another_type", "x: f32[4] -> 4", x_of, lambda: 4)
argument_case("gradients", "x.requires_grad: False -> True", x_of, lambda: x_of().requires_grad_())
argument_case(
    "strides", "the strides of x, in bytes: (16, 4) -> (4, 16)", lambda: x_of(4, 4), lambda: x_of(4, 4).t()
)


@case("whether two of its objects are one: no -> y is x", line="# two arguments")
def one_tensor_for_two_arguments():
    x, given = x_of(), [x_of()]

    def f(x, y):  # two arguments
        return x * y

    return f, lambda: (x, given[0]), lambda: given.__setitem__(0, x)


@case("y: is x -> f32[4]", line="# the same twice")
def two_tensors_that_were_one():
    x = x_of()
    given = [x]

    def f(x, y):  # the same twice
        return x * y

    return f, lambda: (x, given[0]), lambda: given.__setitem__(0, x_of())


# ---- tensors that are reached ------------------------------------------------------------------------------
@case("w: f32[4] -> f64[4]", line="# reads w")
def another_type_of_a_captured_tensor():
    w = x_of()

    def f(x):
        return x * w  # reads w

    return f, (x_of(),), lambda: setattr(w, "data", x_of(4, dtype=lamina.float64))


@case("the history of w: none -> starts here", line="# uses w")
def gradients_of_a_captured_tensor():
    w = x_of()

    def f(x):
        return (x * w).detach()  # uses w

    return f, (x_of(),), lambda: w.requires_grad_()


@case("the layout of w: row by row -> strides of (4, 16) bytes", line="# uses all of w")
def strides_of_a_captured_tensor():
    w = x_of(4, 4)

    def f(x):
        return x * w  # uses all of w

    return f, (x_of(),), lambda: setattr(w, "data", x_of(4, 4).t())


@case("w: f32[4] -> another f32[4]", line="# names w")
def another_captured_tensor():
    w = x_of()
    keep = w

    def f(x):
        return x * w  # names w

    def change():
        nonlocal w
        w = keep * 2

    return f, (x_of(),), change


@case("the gradient of w: is None -> is there")
def a_gradient_that_is_there():
    w = nn.Parameter(x_of())

    def f(x):
        (x * w).sum().backward()

    def change():
        w.grad = x_of()

    w.grad = None
    return f, (x_of(),), change, lambda: setattr(w, "grad", None)


@case("the hooks of w: 0 -> 1", line="# w has hooks")
def a_hook_on_a_parameter():
    w = nn.Parameter(x_of())

    def f(x):
        w.grad = None
        (x * w).sum().backward()  # w has hooks

    return f, (x_of(),), lambda: w.register_hook(lambda g: g * 2)


# ---- modules, optimizers, modes ----------------------------------------------------------------------------
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = 2.0
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        y = self.layer(x) * self.scale  # runs the layer
        return y * 2 if self.training else y  # asks for the mode


@case("net.training: True -> False", line="# asks for the mode")
def the_mode():
    net = Net()

    def f(x):
        return net(x).detach()

    return f, (x_of(),), net.eval


@case("net.scale: 2.0 -> 3.0", line="# runs the layer")
def an_attribute_of_a_model():
    net = Net()

    def f(x):
        return net(x).detach()

    return f, (x_of(),), lambda: setattr(net, "scale", 3.0)


@case("net.layer.weight: Parameter f32[4,4] -> another Parameter f32[4,4]", line="# runs the layer")
def a_parameter_that_is_exchanged():
    net = Net()

    def f(x):
        return net(x).detach()

    return f, (x_of(),), lambda: setattr(net.layer, "weight", nn.Parameter(x_of(4, 4)))


@case("net.hooks: 0 -> 1", line="# runs the layer")
def a_hook():
    net = nn.Sequential(nn.Linear(4, 4))

    def f(x):
        return net(x).detach()  # runs the layer

    return f, (x_of(),), lambda: net.register_forward_hook(lambda m, a, y: y + 1)


@case("Net.forward: function Net.forward -> function other_forward", line="# calls the net")
def the_forward_of_a_class():
    net = Net()

    def f(x):
        return net(x).detach()  # calls the net

    return f, (x_of(),), lambda: setattr(Net, "forward", other_forward)


def other_forward(self, x):
    return self.layer(x)


@case("SGD.param_groups[0]['weight_decay']: 0.0 -> 0.1")
def a_setting_of_an_optimizer():
    w = nn.Parameter(x_of())
    optimizer = optim.SGD([w], lr=0.5, weight_decay=0.0)

    def f(x):
        optimizer.zero_grad()
        (x * w).sum().backward()
        optimizer.step()

    return f, (x_of(),), lambda: optimizer.param_groups[0].update(weight_decay=0.1)


@case("the answer to bool: True -> False", line="# asks the tensor")
def another_answer():
    given = [x_of()]

    def f(x):
        return x * 2 if x.sum() > 0 else x - 1  # asks the tensor

    return f, lambda: (given[0],), lambda: given.__setitem__(0, -x_of())


def lines_with(text):
    with open(__file__) as file:
        return [number for number, line in enumerate(file, 1) if line.rstrip().endswith(text)]


@pytest.fixture(autouse=True)
def as_it_was():
    """Undo what a case changes in this file, in its classes and among the builtins."""
    kept = [(o, dict(vars(o))) for o in (Thing, Net, tools)]
    own, total = dict(globals()), builtins.sum
    yield
    builtins.sum = total
    for name in globals().keys() - own.keys():
        del globals()[name]
    globals().update(own)
    for o, before in kept:
        for name, value in before.items():
            if vars(o).get(name) is not value and name in ("kind", "times", "forward"):
                setattr(o, name, value)


@pytest.mark.parametrize("name", CASES)
def test_the_first_cause_is_named(name):
    make, expected, line = CASES[name]
    f, args, change, *again = make()
    given = args if callable(args) else lambda: args
    traced = jit.trace(f)
    total = builtins.sum
    for _ in range(3):
        for undo in again:
            undo()
        traced(*given())
    before = traced.explain(as_dict=True)
    assert before["served"] >= 1, traced.explain()
    change()
    result = traced(*given())
    right = f(*given())
    builtins.sum = total
    misses = traced.explain(as_dict=True)["misses"][len(before["misses"]) :]
    assert misses, traced.explain()
    for text in expected:
        assert misses[-1].startswith(text), misses
    if line is not None:
        assert misses[-1].endswith(tuple(f"({FILE}:{n})" for n in lines_with(line))), misses
    if isinstance(result, lamina.Tensor):
        np.testing.assert_array_equal(result._data, right._data)
