"""Programs of context managers, recursion, comprehensions and pattern matching."""

from __future__ import annotations

import contextlib
import types

from battery import lib as t
from battery import program

scale = 2.0


class Point:
    __match_args__ = ("a", "b")

    def __init__(self, a, b):
        self.a, self.b = a, b


# ---- comprehensions, recursion, matching -------------------------------------------------------------------
@program("comprehensions", jax=True)
def comprehensions_of_all_kinds(w):
    values, low = {"a": 1.0, "b": 2.0}, 0.0

    @w.trace
    def f(x):
        made = [x * v for v in values.values() if v > low]
        named = {k: x + v for k, v in values.items() if v > low}
        return made, named, sorted({round(v) for v in values.values()})

    for low, values["b"] in w.rounds((0.0, 2.0), (1.5, 2.0), (1.5, 1.0), (0.0, 2.0)):
        w.call(f, w.x)


@program("comprehensions", jax=True)
def a_nested_comprehension_with_a_walrus(w):
    rows = [[1.0, 2.0], [3.0]]
    f = w.trace(lambda x: [x * last for row in rows for v in row if (last := v) != 2.0] or [x])
    for rows[1][:] in w.rounds([3.0], [2.0], [3.0, 4.0]):
        w.call(f, w.x)


@program("comprehensions", jax=True)
def a_comprehension_in_a_class_body_of_a_function(w):
    factor = 2.0

    @w.trace
    def f(x):
        class Table:
            rows = [i * factor for i in range(3)]

        return x * Table.rows[-1]

    for factor in w.rounds(2.0, 3.0, 2.0):
        w.call(f, w.x)


@program("recursion", jax=True)
def the_depth_is_a_global(w):
    depth = 2

    def power(x, n):
        return x if n == 0 else power(x * 2 + n, n - 1)

    f = w.trace(lambda x: power(x, depth))
    for depth in w.rounds(2, 0, 4, 2):
        w.call(f, w.x)


@program("recursion", jax=True)
def a_tree_is_walked(w):
    tree = {"value": 1.0, "children": [{"value": 2.0, "children": []}]}

    def total(node):
        return node["value"] + sum(total(child) for child in node["children"])

    f = w.trace(lambda x: x * total(tree))
    leaf = {"value": 5.0, "children": []}
    for tree["children"][0]["children"] in w.rounds([], [leaf], [leaf, leaf], []):
        w.call(f, w.x)


@program("recursion", jax=True)
def two_functions_call_each_other(w):
    def even(x, n):
        return x * a if n == 0 else odd(x + 1, n - 1)

    def odd(x, n):
        return x * b if n == 0 else even(x - 2, n - 1)

    a, b, n = 2.0, 3.0, 2
    f = w.trace(lambda x: even(x, n))
    for a, b, n in w.rounds((2.0, 3.0, 2), (2.0, 3.0, 3), (2.0, 4.0, 3), (2.0, 3.0, 2)):
        w.call(f, w.x)


@program("matching", jax=True)
def a_dict_is_matched(w):
    config = {"kind": "scale", "by": 2.0}

    @w.trace
    def f(x):
        match config:
            case {"kind": "scale", "by": by}:
                return x * by
            case {"kind": "add", **rest} if rest:
                return x + sum(rest.values())
            case _:
                return x * 1.0

    cases = (
        {"kind": "scale", "by": 2.0},
        {"kind": "add", "a": 1.0},
        {"kind": "add"},
        {"kind": "scale", "by": 3.0},
    )
    for content in w.rounds(*cases):
        config.clear()
        config.update(content)
        w.call(f, w.x)


@program("matching", jax=True)
def an_object_is_matched(w):
    point = Point(0.0, 1.0)

    @w.trace
    def f(x):
        match point:
            case Point(0.0, b):
                return x + b
            case Point(a, b) if a == b:
                return x * a
            case Point():
                return x - point.a

    for point.a, point.b in w.rounds((0.0, 1.0), (2.0, 2.0), (2.0, 1.0), (0.0, 1.0)):
        w.call(f, w.x)


@program("matching", jax=True)
def a_sequence_is_matched(w):
    values = [1.0]

    @w.trace
    def f(x):
        match values:
            case []:
                return x * 1.0
            case [a]:
                return x * a
            case [a, *_, b]:
                return x * a + b

    for values[:] in w.rounds([], [2.0], [2.0, 3.0, 4.0], [5.0]):
        w.call(f, w.x)


@program("matching", jax=True)
def loops_with_else_break_and_continue(w):
    values, stop = [1.0, 2.0, 3.0], 2.0

    @w.trace
    def f(x):
        for value in values:
            if value == stop:
                break
            if value > stop:
                continue
            x = x * (value + 1)
        else:
            x = x + 10
        while len(values) > 3:
            x = x - 1
            break
        return x

    for stop, values[:] in w.rounds(
        (2.0, [1.0, 2.0]), (9.0, [1.0, 2.0]), (2.0, [1.0, 3.0]), (2.0, [1.0] * 4)
    ):
        w.call(f, w.x)


# ---- context managers --------------------------------------------------------------------------------------
@program("contexts", jax=True)
def a_context_manager_of_ones_own(w):
    class Scaled:
        def __enter__(self):
            stack.append(factor)
            return stack[-1]

        def __exit__(self, *error):
            stack.pop()

    stack, factor = [1.0], 2.0

    @w.trace
    def f(x):
        with Scaled() as by, Scaled():
            x = x * by * len(stack)
        return x + len(stack)

    for factor in w.rounds(2.0, 3.0, 2.0):
        w.call(f, w.x)


@program("contexts")
def a_context_manager_from_a_generator(w):
    @contextlib.contextmanager
    def scaled(name):
        print("enter", name)
        try:
            yield factor
        finally:
            print("exit", name)

    factor = 2.0

    @w.trace
    def f(x):
        with scaled("a") as by:
            return x * by

    for factor in w.rounds(2.0, 3.0, 2.0):
        w.call(f, w.x)


@program("contexts")
def a_setting_for_the_length_of_a_block(w):
    settings = types.SimpleNamespace(scale=1.0)

    @contextlib.contextmanager
    def setting(value):
        before, settings.scale = settings.scale, value
        try:
            yield
        finally:
            settings.scale = before

    @w.trace
    def f(x):
        with setting(5.0):
            y = x * settings.scale
        return y + settings.scale

    w.see(settings=settings)
    for settings.scale in w.rounds(1.0, 2.0, 1.0):
        w.call(f, w.x)


@program("contexts")
def an_exit_stack(w):
    names, closed = ["a"], []

    @w.trace
    def f(x):
        with contextlib.ExitStack() as stack:
            for name in names:
                stack.callback(closed.append, name)
            x = x * len(names)
        return x, list(closed)

    w.see(closed=closed)
    for names[:] in w.rounds(["a"], ["a", "b"], []):
        closed.clear()
        w.call(f, w.x)


@program("contexts", jax=True)
def the_enter_method_is_replaced(w):
    class Scope:
        def __enter__(self):
            return 2.0

        def __exit__(self, *error):
            pass

    scope, first = Scope(), Scope.__enter__

    @w.trace
    def f(x):
        with scope as by:
            return x * by

    for Scope.__enter__ in w.rounds(first, lambda self: 3.0, first):
        w.call(f, w.x)


@program("contexts", jax=True)
def the_instance_cannot_hide_enter(w):
    class Scope:
        value = 2.0

        def __enter__(self):
            return self.value

        def __exit__(self, *error):
            pass

    scope = Scope()
    scope.__enter__ = lambda: 100.0

    @w.trace
    def f(x):
        with scope as by:
            return x * by

    for scope.value in w.rounds(2.0, 3.0, 2.0):
        w.call(f, w.x)


@program("contexts")
def a_null_context_or_no_grad(w):
    weight = t.ones(4, requires_grad=True)
    scope = contextlib.nullcontext()

    @w.trace
    def f(x):
        with scope:
            return x * weight

    for scope in w.rounds(contextlib.nullcontext(), t.no_grad(), contextlib.nullcontext()):
        w.call(f, w.x)


@program("contexts")
def output_is_redirected_inside(w):
    import io

    tag = "a"

    @w.trace
    def f(x):
        stream = io.StringIO()
        with contextlib.redirect_stdout(stream):
            print(tag)
        print("outside")
        return x * 2, stream.getvalue()

    for tag in w.rounds("a", "b", "a"):
        w.call(f, w.x)
