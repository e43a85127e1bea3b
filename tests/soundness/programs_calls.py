"""Programs that call: swapped functions, partials, decorators, operators of one's own, nested traces."""

from __future__ import annotations

import copy
import functools
import math
import operator
import types

from battery import lib as t
from battery import program


class Number:
    """A number with operators of its own, which C code calls too."""

    def __init__(self, value):
        self.value = value

    def __add__(self, other):
        return self.value + other

    def __radd__(self, other):
        return other + self.value * 10

    def __mul__(self, other):
        return self.value * other

    __rmul__ = __mul__

    def __float__(self):
        return self.value * 2.0

    def __index__(self):
        return int(self.value)

    def __call__(self, x):
        return x * self.value

    def __lt__(self, other):
        return self.value < other

    def __bool__(self):
        return self.value > 2


@program("swapped", jax=True)
def a_function_of_the_library_is_swapped(w):
    w.patch(t, "sin", t.sin)
    f = w.trace(lambda x: t.sin(x) + 1)
    for t.sin in w.rounds(t.sin, t.cos, t.sin):
        w.call(f, w.x)


@program("swapped")
def a_method_of_the_tensor_is_swapped(w):
    real = t.Tensor.relu
    w.undo(setattr, t.Tensor, "relu", real)
    f = w.trace(lambda x: x.relu() + 1)
    for t.Tensor.relu in w.rounds(real, lambda x: x * 5, real):
        w.call(f, w.x)
    t.Tensor.relu = real


@program("swapped")
def a_function_of_nn_functional_is_swapped(w):
    functional = t.nn.functional
    w.patch(functional, "relu", functional.relu)
    f = w.trace(lambda x: functional.relu(x) + 1)
    for functional.relu in w.rounds(functional.relu, t.tanh, functional.relu):
        w.call(f, w.x)


@program("swapped", jax=True)
def math_is_swapped(w):
    w.patch(math, "sqrt", math.sqrt)
    f = w.trace(lambda x: x * math.sqrt(4.0))
    for math.sqrt in w.rounds(math.sqrt, math.exp, math.sqrt):
        w.call(f, w.x)


@program("swapped", jax=True)
def a_function_in_a_table_is_swapped(w):
    acts = {"act": t.sin}
    f = w.trace(lambda x: acts["act"](x))
    for acts["act"] in w.rounds(t.sin, t.cos, t.sin):
        w.call(f, w.x)


@program("swapped", jax=True)
def a_pipeline_of_functions_is_reordered(w):
    steps = [t.sin, t.exp]

    @w.trace
    def f(x):
        for step in steps:
            x = step(x)
        return x

    for steps[:] in w.rounds([t.sin, t.exp], [t.exp, t.sin], [t.sin], [t.sin, t.exp]):
        w.call(f, w.x)


@program("swapped", jax=True)
def an_alias_of_the_traced_function(w):
    def g(x):
        return x * 2

    held = types.SimpleNamespace(g=g)
    f = w.trace(lambda x: held.g(x) + 1)
    for held.g in w.rounds(g, lambda x: x * 3, g):
        w.call(f, w.x)


@program("swapped", jax=True)
def a_function_is_given(w):
    f = w.trace(lambda x, g: g(x) + 1)
    for g in w.rounds(t.sin, t.cos, lambda x: x * 2, lambda x: x * 3):
        w.call(f, w.x, g)


@program("swapped", jax=True)
def closures_of_the_same_code_are_given(w):
    def make(factor):
        return lambda x: x * factor

    f = w.trace(lambda x, g: g(x) + 1)
    for g in w.rounds(make(2.0), make(3.0), make(2.0)):
        w.call(f, w.x, g)


@program("calls", jax=True)
def a_partial_is_rebuilt(w):
    def g(x, a, b=1.0):
        return x * a + b

    held = functools.partial(g, a=2.0)
    f = w.trace(lambda x: held(x))
    for keywords in w.rounds({"a": 2.0}, {"a": 3.0}, {"a": 2.0, "b": 5.0}):
        held = functools.partial(g, **keywords)
        w.call(f, w.x)


@program("calls", jax=True)
def the_keywords_of_a_partial_change(w):
    held = functools.partial(lambda x, a: x * a, a=2.0)
    f = w.trace(lambda x: held(x))
    for held.keywords["a"] in w.rounds(2.0, 3.0, 2.0):
        w.call(f, w.x)


@program("calls", jax=True)
def a_partial_is_traced(w):
    settings = [2.0]
    f = w.trace(functools.partial(lambda s, x: x * s[0], settings))
    for settings[0] in w.rounds(2.0, 3.0, 2.0):
        w.call(f, w.x)


@program("calls", jax=True)
def a_decorator_wraps_and_reads(w):
    def scaled(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            return function(*args, **kwargs) * factor

        return wrapper

    @w.trace
    @scaled
    def f(x, *, shift=0.0):
        return x + shift

    factor = 2.0
    for factor, shift in w.rounds((2.0, 0.0), (3.0, 0.0), (3.0, 1.0)):
        w.call(f, w.x, shift=shift)


@program("calls", jax=True)
def an_object_that_is_called(w):
    number = Number(2.0)
    f = w.trace(lambda x: number(x))
    for number.value in w.rounds(2.0, 3.0, 2.0):
        w.call(f, w.x)


@program("calls", jax=True)
def the_call_method_is_replaced(w):
    class Thing:
        def __call__(self, x):
            return x * 2

    thing, first = Thing(), Thing.__call__
    f = w.trace(lambda x: thing(x))
    for Thing.__call__ in w.rounds(first, lambda self, x: x * 3, first):
        w.call(f, w.x)


@program("calls", jax=True)
def star_arguments_from_captured_containers(w):
    args, kwargs = [2.0], {"b": 1.0}

    def g(x, a, b, *rest, **more):
        return x * a + b + sum(rest) + len(more)

    f = w.trace(lambda x: g(x, *args, **kwargs))
    cases = ([2.0], {"b": 1.0}), ([3.0, 4.0, 5.0], {}), ([2.0], {"b": 1.0, "c": 1}), ([2.0], {"b": 1.0})
    for args[:], content in w.rounds(*cases):
        kwargs.clear()
        kwargs.update(content)
        w.call(f, w.x)


@program("calls", jax=True)
def keyword_arguments_in_another_order(w):
    f = w.trace(lambda x, **kwargs: (x * 2, list(kwargs)))
    for kwargs in w.rounds({"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 1}):
        w.call(f, w.x, **kwargs)


@program("calls", jax=True)
def positional_or_by_name(w):
    f = w.trace(lambda x, a=1.0, b=2.0: x * a + b)
    for args, kwargs in w.rounds(((), {}), ((3.0,), {}), ((), {"b": 3.0}), ((), {"a": 3.0})):
        w.call(f, w.x, *args, **kwargs)


@program("calls", jax=True)
def an_argument_of_another_type(w):
    f = w.trace(lambda x, a: x * 2 if isinstance(a, str) else x * (3 if a is None else 4))
    for a in w.rounds("s", None, 1, (), 1.0, "s"):
        w.call(f, w.x, a)


@program("calls")
def a_cached_function(w):
    @functools.lru_cache(None)
    def cached(n):
        return n * factor

    factor = 2.0
    f = w.trace(lambda x: x * cached(3.0))
    for factor, forget in w.rounds((2.0, True), (3.0, False), (3.0, True)):
        if forget:
            cached.cache_clear()
        w.call(f, w.x)


@program("calls", jax=True)
def single_dispatch_learns_a_type(w):
    @functools.singledispatch
    def by(value):
        return 1.0

    by.register(str, lambda value: 2.0)
    f = w.trace(lambda x: x * by("s"))
    for value in w.rounds(2.0, 3.0, 2.0):
        by.register(str, lambda _, value=value: value)
        w.call(f, w.x)


# ---- operators of one's own --------------------------------------------------------------------------------
@program("operators", jax=True)
def addition_of_ones_own(w):
    number = Number(2.0)
    f = w.trace(lambda x: x * (number + 1.0) + (1.0 + number))
    for number.value in w.rounds(2.0, 3.0, 2.0):
        w.call(f, w.x)


@program("operators", jax=True)
def sum_calls_an_operator_of_ones_own(w):
    number = Number(2.0)
    f = w.trace(lambda x: x * sum([number, 1.0]))
    for number.value in w.rounds(2.0, 3.0, 2.0):
        w.call(f, w.x)


@program("operators", jax=True)
def float_and_index_of_ones_own(w):
    number = Number(1.0)
    values = [1.0, 2.0, 4.0, 8.0]
    f = w.trace(lambda x: x * float(number) + values[number] + len(range(number)))
    for number.value in w.rounds(1.0, 3.0, 1.0):
        w.call(f, w.x)


@program("operators", jax=True)
def bool_of_ones_own(w):
    number = Number(1.0)
    f = w.trace(lambda x: x * 2 if number else x * (3 if not number and True else 4))
    for number.value in w.rounds(1.0, 3.0, 1.0):
        w.call(f, w.x)


@program("operators", jax=True)
def comparison_and_sorting_of_ones_own(w):
    a, b = Number(1.0), Number(2.0)
    a.__class__.__gt__ = lambda self, other: self.value > getattr(other, "value", other)
    a.__class__.__lt__ = lambda self, other: self.value < getattr(other, "value", other)
    f = w.trace(lambda x: x * sorted([a, b])[0].value + max(a, b).value)
    for a.value in w.rounds(1.0, 3.0, 1.0):
        w.call(f, w.x)


@program("operators", jax=True)
def the_reflected_operator_of_a_subclass(w):
    class Special(Number):
        def __radd__(self, other):
            return factor

    factor, left, right = 2.0, Number(1.0), Special(1.0)
    f = w.trace(lambda x: x * (left + right))
    for factor in w.rounds(2.0, 3.0, 2.0):
        w.call(f, w.x)


@program("operators", jax=True)
def not_implemented_falls_through(w):
    class Left:
        def __add__(self, other):
            return NotImplemented if refuse else 5.0

    class Right:
        def __radd__(self, other):
            return 7.0

    refuse, left, right = True, Left(), Right()
    f = w.trace(lambda x: x * (left + right))
    for refuse in w.rounds(True, False, True):
        w.call(f, w.x)


@program("operators", jax=True)
def an_operator_is_given_to_the_class_later(w):
    class Plain:
        pass

    left = Plain()

    @w.trace
    def f(x):
        try:
            return x * (left @ 2.0)
        except TypeError:
            return x - 1

    for give in w.rounds(False, True, False):
        if give:
            Plain.__matmul__ = lambda self, other: other * 2
        elif hasattr(Plain, "__matmul__"):
            del Plain.__matmul__
        w.call(f, w.x)


@program("operators", jax=True)
def operator_functions(w):
    values = {"a": [1.0, 2.0]}
    f = w.trace(lambda x: operator.mul(x, operator.getitem(values["a"], 1)) + operator.contains(values, "b"))
    for content in w.rounds({"a": [1.0, 2.0]}, {"a": [1.0, 3.0]}, {"a": [1.0, 3.0], "b": 1}):
        values.clear()
        values.update(content)
        w.call(f, w.x)


@program("operators", jax=True)
def in_place_operator_of_ones_own(w):
    class Total:
        value = 0.0

        def __iadd__(self, other):
            self.value += other * factor
            return self

    factor = 1.0

    @w.trace
    def f(x):
        total = Total()
        total += 2.0
        return x * total.value

    for factor in w.rounds(1.0, 2.0, 1.0):
        w.call(f, w.x)


@program("operators")
def a_subclass_of_float(w):
    class Metres(float):
        def __mul__(self, other):
            return other * (float(self) + shift)

        __rmul__ = __mul__

    length, shift = Metres(2.0), 0.0
    f = w.trace(lambda x: x + length * 3.0)
    for shift in w.rounds(0.0, 1.0, 0.0):
        w.call(f, w.x)


@program("operators")
def conversion_by_array_method(w):
    import numpy as np

    class Held:
        def __array__(self, dtype=None, copy=None):
            return np.array([factor] * 4, np.float32)

    held, factor = Held(), 2.0
    f = w.trace(lambda x: x * t.tensor(np.asarray(held)))
    for factor in w.rounds(2.0, 3.0, 2.0):
        w.call(f, w.x)


# ---- traced functions inside traced functions --------------------------------------------------------------
@program("nested")
def a_traced_function_calls_another(w):
    factor = 2.0
    inner = w.trace(lambda x: x * factor)
    outer = w.trace(lambda x: inner(x) + 1)
    for factor in w.rounds(2.0, 3.0, 2.0):
        w.call(outer, w.x)
        w.call(inner, w.x)


@program("nested")
def the_inner_one_is_called_first(w):
    state = []
    w.see(state=state)

    @w.trace
    def inner(x):
        state.append(len(state))
        return x * len(state)

    outer = w.trace(lambda x: inner(x) + inner(x))
    for f in w.rounds(inner, outer):
        state.clear()
        w.call(f, w.x)


@program("nested")
def the_inner_one_is_swapped(w):
    one, two = w.trace(lambda x: x * 2), w.trace(lambda x: x * 3)
    held = [one]
    outer = w.trace(lambda x: held[0](x) + 1)
    for held[0] in w.rounds(one, two, one):
        w.call(outer, w.x)


@program("nested")
def a_traced_recursion(w):
    factor = 2.0

    @w.trace
    def power(x, n):
        return x if n == 0 else power(x * factor, n - 1)

    for factor, n in w.rounds((2.0, 2), (3.0, 2), (3.0, 1), (2.0, 2)):
        w.call(power, w.x, n)


@program("nested")
def the_inner_one_refuses(w):
    expression = "x * 2"
    inner = w.trace(lambda x: eval(expression, {"x": x}))
    outer = w.trace(lambda x: inner(x) + 1)
    for expression in w.rounds("x * 2", "x * 3", "x * 2"):
        w.call(outer, w.x)


@program("nested")
def made_and_traced_inside(w):
    factor = 2.0

    @w.trace
    def outer(x):
        inner = w.library.trace(lambda y: y * factor)
        return inner(x) + 1

    for factor in w.rounds(2.0, 3.0, 2.0):
        w.call(outer, w.x)


@program("nested")
def a_traced_function_is_copied(w):
    settings = {"scale": 2.0}
    f = w.trace(lambda x: x * settings["scale"])
    g = copy.copy(f)
    for settings["scale"] in w.rounds(2.0, 3.0, 2.0):
        w.call(f, w.x)
        w.call(g, w.x)


# ---- vouching ----------------------------------------------------------------------------------------------
@program("pure", peers=False)
def a_pure_function_of_its_arguments(w):
    import json

    text = '{"scale": 2}'
    load = w.pure(lambda text: json.loads(text)["scale"])
    f = w.trace(lambda x: x * load(text))
    for text in w.rounds('{"scale": 2}', '{"scale": 3}', '{"scale": 2}'):
        w.call(f, w.x)


@program("pure", peers=False)
def a_pure_function_of_an_attribute(w):
    settings = types.SimpleNamespace(width=2)
    steps = w.pure(lambda n: bin(n).count("1"))
    f = w.trace(lambda x: x * steps(settings.width))
    for settings.width in w.rounds(2, 3, 7, 2):
        w.call(f, w.x)


@program("pure", peers=False)
def a_pure_function_of_a_list(w):
    values = [1.0, 2.0]
    total = w.pure(lambda values: sum(v * v for v in values))
    f = w.trace(lambda x: x * total(values))
    for values[0] in w.rounds(1.0, 2.0, 1.0):
        w.call(f, w.x)
