"""Programs whose functions read globals, cells, defaults and builtins that change between calls."""

from __future__ import annotations

import builtins
import sys
import types

from battery import lib as t
from battery import program

scale = 1.0
offset = None
weight = None
table = {"scale": 2.0}
flag = False
name = "relu"


def act(x):
    return t.relu(x)


def inner(x):
    return x * scale


def middle(x):
    return inner(x) + 1


@program("globals", jax=True)
def a_global_number_changes(w):
    @w.trace
    def f(x):
        return x * scale

    global scale
    for scale in w.rounds(2.0, 3.0, 2.0):
        w.call(f, w.x)


@program("globals", jax=True)
def a_global_of_a_function_called_by_a_function(w):
    f = w.trace(middle)
    global scale
    for scale in w.rounds(0.5, 4.0, 0.5):
        w.call(f, w.x)


@program("globals", jax=True)
def a_global_flag_chooses_the_branch(w):
    @w.trace
    def f(x):
        if flag:
            return x + 1
        return x - 1

    global flag
    for flag in w.rounds(False, True, False):
        w.call(f, w.x)


@program("globals", jax=True)
def truth_of_a_global_whose_type_changes(w):
    @w.trace
    def f(x):
        return x * 2 if flag else x * 3

    global flag
    for flag in w.rounds(0, "", [], [0], "no", 1, None):
        w.call(f, w.x)


@program("globals", jax=True)
def a_global_tensor_is_rebound(w):
    @w.trace
    def f(x):
        return x + weight

    global weight
    for weight in w.rounds(t.tensor([1.0, 2.0, 3.0, 4.0]), t.tensor([4.0, 3.0, 2.0, 1.0])):
        w.call(f, w.x)


@program("globals")
def a_global_tensor_is_changed_in_place(w):
    @w.trace
    def f(x):
        return x * weight

    global weight
    weight = t.ones(4)
    for step in w.rounds(1.0, 2.0, -2.0):
        weight.add_(step)
        w.call(f, w.x)


@program("globals", jax=True)
def a_global_becomes_none(w):
    @w.trace
    def f(x):
        return x if offset is None else x + offset

    global offset
    for offset in w.rounds(None, 1.0, None, 0.0):
        w.call(f, w.x)


@program("globals", jax=True)
def a_global_is_deleted_and_the_builtin_shows(w):
    @w.trace
    def f(x):
        return x * abs(-2.0)

    for hidden in w.rounds(False, True, False):
        if hidden:
            globals()["abs"] = lambda v: 10.0
        else:
            globals().pop("abs", None)
        w.call(f, w.x)


@program("globals", jax=True)
def a_builtin_is_replaced(w):
    @w.trace
    def f(x):
        return x * max(1.0, 2.0)

    real = builtins.max
    w.undo(setattr, builtins, "max", real)
    for found in w.rounds(real, min, real):
        builtins.max = found
        w.call(f, w.x)
    builtins.max = real


@program("globals")
def a_missing_global_appears(w):
    @w.trace
    def f(x):
        try:
            return x * appears
        except NameError as error:
            return x, str(error)

    for there in w.rounds(False, True, False):
        if there:
            globals()["appears"] = 3.0
        else:
            globals().pop("appears", None)
        w.call(f, w.x)


@program("globals", jax=True)
def a_global_read_through_globals(w):
    @w.trace
    def f(x):
        return x * globals()["scale"]

    global scale
    for scale in w.rounds(2.0, 5.0):
        w.call(f, w.x)


@program("globals", jax=True)
def a_global_read_through_the_module_table(w):
    @w.trace
    def f(x):
        return x * sys.modules[__name__].scale

    global scale
    for scale in w.rounds(2.0, 5.0):
        w.call(f, w.x)


@program("globals", jax=True)
def a_global_function_is_rebound(w):
    @w.trace
    def f(x):
        return act(x) + 1

    global act
    relu = act
    for act in w.rounds(relu, lambda x: x * 2, relu):
        w.call(f, w.x)


@program("globals", jax=True)
def a_name_picks_the_function(w):
    @w.trace
    def f(x):
        return getattr(t, name)(x)

    global name
    for name in w.rounds("tanh", "sin", "tanh"):
        w.call(f, w.x)


@program("globals", jax=True)
def two_globals_trade_values(w):
    @w.trace
    def f(x):
        return x * scale + offset

    global scale, offset
    for scale, offset in w.rounds((2.0, 3.0), (3.0, 2.0), (2.0, 3.0)):
        w.call(f, w.x)


@program("globals", jax=True)
def a_global_int_becomes_an_equal_float(w):
    @w.trace
    def f(x):
        return x * 1.0, scale

    global scale
    for scale in w.rounds(1, 1.0, True, 1):
        w.call(f, w.x)


@program("globals")
def a_number_becomes_a_float_and_promotes(w):
    i = t.tensor([1, 2, 3, 4])

    @w.trace
    def f(x):
        return x * scale

    global scale
    for scale in w.rounds(2, 2.0, True):
        w.call(f, i)


@program("globals", jax=True)
def zero_changes_its_sign(w):
    @w.trace
    def f(x):
        return (x * 0 + 1) / (x * 0 + scale)

    global scale
    for scale in w.rounds(0.0, -0.0, 0.0):
        w.call(f, w.x)


@program("globals", jax=True)
def a_global_is_nan_then_a_number(w):
    @w.trace
    def f(x):
        return x * 2 if scale == scale else x * 3

    global scale
    for scale in w.rounds(float("nan"), 1.0, float("inf"), float("nan")):
        w.call(f, w.x)


@program("globals", jax=True)
def a_closure_number_changes(w):
    factor = 1.0

    @w.trace
    def f(x):
        return x * factor

    for factor in w.rounds(2.0, -3.0, 2.0):
        w.call(f, w.x)


@program("globals", jax=True)
def a_cell_of_a_cell_changes(w):
    factor = 1.0

    def outer():
        def innermost(x):
            return x * factor

        return innermost

    g = outer()
    f = w.trace(lambda x: g(x) - 1)
    for factor in w.rounds(2.0, -3.0, 2.0):
        w.call(f, w.x)


@program("globals")
def an_empty_cell_is_filled(w):
    @w.trace
    def f(x):
        try:
            return x * late
        except NameError as error:
            return x, str(error)

    for there in w.rounds(False, True):
        if there:
            late = 4.0
        else:
            late = None
            del late
        w.call(f, w.x)


@program("globals")
def cell_contents_are_written_from_outside(w):
    factor = 2.0

    def g(x):
        return x * factor

    f = w.trace(lambda x: g(x) + 1)
    for value in w.rounds(2.0, 7.0, 2.0):
        g.__closure__[0].cell_contents = value
        w.call(f, w.x)


@program("globals", jax=True)
def a_late_bound_loop_variable(w):
    functions = []
    for i in range(3):
        functions.append(lambda x: x * i)

    f = w.trace(lambda x: [g(x) for g in functions])
    for i in w.rounds(2, 5, 2):
        w.call(f, w.x)


@program("globals")
def defaults_are_replaced(w):
    def g(x, factor=2.0):
        return x * factor

    f = w.trace(lambda x: g(x))
    for value in w.rounds(2.0, 6.0, 2.0):
        g.__defaults__ = (value,)
        w.call(f, w.x)


@program("globals")
def keyword_defaults_are_changed_in_place(w):
    def g(x, *, factor=2.0):
        return x * factor

    f = w.trace(lambda x: g(x))
    for value in w.rounds(2.0, 6.0, 2.0):
        g.__kwdefaults__["factor"] = value
        w.call(f, w.x)


@program("globals")
def defaults_of_the_traced_function_itself(w):
    def g(x, factor=2.0):
        return x * factor

    f = w.trace(g)
    for value in w.rounds(2.0, 6.0, 2.0):
        g.__defaults__ = (value,)
        w.call(f, w.x)


@program("globals")
def a_mutable_default_is_changed(w):
    held = [1.0]

    def g(x, factors=held):
        return x * factors[0] + len(factors)

    f = w.trace(g)
    for values in w.rounds([1.0], [2.0], [1.0, 1.0]):
        held[:] = values
        w.call(f, w.x)


@program("globals")
def a_mutable_default_remembers(w):
    @w.trace
    def f(x, seen=[]):
        seen.append(len(seen))
        return x + len(seen)

    for step in w.rounds(1.0, 2.0):
        w.call(f, w.x * step)


@program("globals")
def code_is_replaced(w):
    def g(x):
        return x * 2

    def h(x):
        return x - 2

    f = w.trace(lambda x: g(x))
    for code in w.rounds(g.__code__, h.__code__):
        g.__code__ = code
        w.call(f, w.x)


@program("globals", jax=True)
def function_attributes_are_read(w):
    def g(x):
        return x * g.factor

    f = w.trace(lambda x: g(x))
    for g.factor in w.rounds(2.0, 3.0, 2.0):
        w.call(f, w.x)


@program("globals", jax=True)
def a_global_table_of_numbers(w):
    @w.trace
    def f(x):
        return x * table["scale"]

    for value in w.rounds(2.0, 3.0, 2.0):
        table["scale"] = value
        w.call(f, w.x)


@program("globals", jax=True)
def a_namespace_module_is_read(w):
    settings = types.ModuleType("settings")
    f = w.trace(lambda x: x * settings.scale)
    for settings.scale in w.rounds(2.0, 3.0, 2.0):
        w.call(f, w.x)


@program("globals", jax=True)
def a_module_attribute_by_module_getattr(w):
    settings = types.ModuleType("settings")
    value = 2.0
    settings.__getattr__ = lambda name: value
    f = w.trace(lambda x: x * settings.anything)
    for value in w.rounds(2.0, 3.0, 2.0):
        w.call(f, w.x)


@program("globals", jax=True)
def imported_inside_the_function(w):
    settings = types.ModuleType("settings_of_a_program")
    sys.modules[settings.__name__] = settings
    w.undo(sys.modules.pop, settings.__name__)

    @w.trace
    def f(x):
        from settings_of_a_program import scale as imported

        return x * imported

    for settings.scale in w.rounds(2.0, 3.0, 2.0):
        w.call(f, w.x)
