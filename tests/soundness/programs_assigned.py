"""Programs that assign globals and nonlocals, or whose code comes from elsewhere."""

from __future__ import annotations

import types

from battery import program

scale = 1.0
offset = None
weight = None
name = "relu"


@program("globals")
def assigned_global_is_read_back(w):
    @w.trace
    def f(x):
        global scale
        scale = scale * 2
        return x * scale

    global scale
    w.see(scale=lambda: scale)
    for scale in w.rounds(1.0, 3.0):
        w.call(f, w.x)


@program("globals")
def counting_in_a_global(w):
    @w.trace
    def f(x):
        global scale
        scale += 1
        return x + 1

    global scale
    w.see(scale=lambda: scale)
    for scale in w.rounds(0, 10):
        w.call(f, w.x)


@program("globals")
def counting_in_a_nonlocal(w):
    count = 0

    @w.trace
    def f(x):
        nonlocal count
        count += 1
        return x * count

    w.see(count=lambda: count)
    for count in w.rounds(0, 100):
        w.call(f, w.x)


@program("globals")
def a_global_holds_the_last_result(w):
    @w.trace
    def f(x):
        global weight
        before, weight = weight, x * 2
        return weight - before

    global weight
    w.see(weight=lambda: weight)
    for step in w.rounds(1.0, 2.0):
        weight = w.x * step
        w.call(f, w.x)


@program("globals")
def a_global_is_deleted_inside(w):
    @w.trace
    def f(x):
        global offset
        y = x + offset
        del offset
        return y

    global offset
    w.see(there=lambda: "offset" in globals())
    for value in w.rounds(1.0, 2.0):
        offset = value
        w.call(f, w.x)
    offset = None


@program("globals", jax=True)
def the_same_name_in_two_scopes(w):
    scope = types.ModuleType("scope")
    exec("scale = 2.0\ndef g(x): return x * scale", scope.__dict__)

    @w.trace
    def f(x):
        return scope.g(x) + scale

    global scale
    for scope.scale, scale in w.rounds((1.0, 2.0), (2.0, 1.0), (2.0, 2.0)):
        w.call(f, w.x)


@program("globals", jax=True)
def a_function_made_by_exec(w):
    scope = {"scale": 2.0}
    exec("def g(x):\n    return x * scale + (1 if scale > 2 else 0)", scope)
    f = w.trace(scope["g"])
    for scope["scale"] in w.rounds(2.0, 3.0, 2.0):
        w.call(f, w.x)


@program("globals", jax=True)
def a_lambda_without_source(w):
    factor = [2.0]
    g = eval("lambda x: x * factor[0]", {"factor": factor})
    f = w.trace(g)
    for factor[0] in w.rounds(2.0, 3.0, 2.0):
        w.call(f, w.x)


@program("globals")
def locals_are_read(w):
    @w.trace
    def f(x, factor):
        half = factor / 2
        return x * sum(v for n, v in locals().items() if n in ("half", "factor"))

    for value in w.rounds(2.0, 3.0):
        w.call(f, w.x, value)


@program("globals")
def eval_of_an_expression_that_changes(w):
    expression = "x * 2"
    f = w.trace(lambda x: eval(expression, {"x": x}))
    for expression in w.rounds("x * 2", "x + 5", "x * 2"):
        w.call(f, w.x)


@program("globals", jax=True)
def a_string_global_is_compared_and_sliced(w):
    @w.trace
    def f(x):
        return x * len(name) if name.startswith("re") else x - ord(name[0])

    global name
    for name in w.rounds("relu", "tanh", "reluu"):
        w.call(f, w.x)


@program("globals", jax=True)
def debug_flag_of_a_library_module(w):
    w.patch(types, "program_flag", 1.0)
    f = w.trace(lambda x: x * types.program_flag)
    for types.program_flag in w.rounds(1.0, 2.0, 1.0):
        w.call(f, w.x)
