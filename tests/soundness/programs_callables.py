"""Programs of callables and copies: partials, closures, caches, backwards of one's own, pickles, threads."""

from __future__ import annotations

import copy
import functools
import operator
import pickle
import re
import string
import threading
import types

from battery import lib as t
from battery import program
from networks import linear, network, numbers, quietly

nn = t.nn


# ---- partials and closures ---------------------------------------------------------------------------------
@program("callables", jax=True)
def a_partial_comes_and_goes(w):
    def scaled(x, by, plus=0.0):
        return x * by + plus

    f = w.trace(lambda x, g: g(x))
    for make in w.rounds((2.0, 0.0), (3.0, 0.0), (2.0, 1.0)):
        w.call(f, w.x, functools.partial(scaled, by=make[0], plus=make[1]))


@program("callables")
def a_partial_of_a_partial(w):
    held = types.SimpleNamespace(f=functools.partial(pow, 2))

    @w.trace
    def f(x, n):
        return x * held.f(n), held.f.args, held.f.keywords

    for n, held.f in w.rounds((1, functools.partial(pow, 2)), (2, functools.partial(pow, 2)),
                              (2, functools.partial(functools.partial(pow, 3)))):  # fmt: skip
        w.call(f, w.x, n)


@program("callables")
def a_partial_method(w):
    class Scaler:
        rate = 2.0

        def scale(self, x, by):
            return x * by * self.rate

        twice = functools.partialmethod(scale, by=2)

    scaler = Scaler()
    f = w.trace(lambda x: scaler.twice(x))
    for scaler.rate in w.rounds(2.0, 3.0):
        w.call(f, w.x)


@program("callables")
def functions_are_composed(w):
    steps = [lambda x: x * 2, lambda x: x + 1]

    def composed(*parts):
        return functools.reduce(lambda f, g: lambda x: g(f(x)), parts)

    f = w.trace(lambda x: composed(*steps)(x))
    for extra in w.rounds(lambda x: -x, lambda x: x * x):
        steps[1:] = [extra, lambda x: x + 1]
        w.call(f, w.x)


@program("callables")
def a_closure_is_returned(w):
    @w.trace
    def f(x, n):
        y = x * n

        def later(z):
            return z + y * n

        return later

    for n in w.rounds(2.0, 3.0, 5.0):
        for _ in range(2):
            w.note(f(w.x, n)(w.x))
        w.call(lambda n=n: f(w.x, n)(w.x))


@program("callables")
def a_closure_that_counts_is_returned(w):
    @w.trace
    def f(x, start):
        count = start

        def more():
            nonlocal count
            count += 1
            return count

        return x * more(), more

    for start in w.rounds(0, 10):
        y, more = f(w.x, start)
        w.note((y, more(), more()))
        w.call(lambda start=start: f(w.x, start)[1]())


@program("callables")
def a_table_of_functions(w):
    table = {"relu": t.relu, "double": lambda x: x * 2, "neg": operator.neg}
    name = "relu"
    f = w.trace(lambda x: table[name](x))
    for name, table["double"] in w.rounds(
        ("relu", table["double"]), ("double", lambda x: x * 3), ("neg", abs)
    ):
        w.call(f, w.x)


@program("callables")
def a_registry_filled_by_a_decorator(w):
    registry = {}

    def register(function):
        registry[function.__name__] = function
        return function

    @register
    def double(x):
        return x * 2

    f = w.trace(lambda x, name: registry[name](x))
    for by in w.rounds(2, 3):

        @register
        def scale(x, by=by):
            return x * by

        w.call(f, w.x, "scale")
        w.call(f, w.x, "double")


@program("callables")
def a_decorator_counts_calls(w):
    def counted(function):
        @functools.wraps(function)
        def call(*args, **kwargs):
            call.count += 1
            return function(*args, **kwargs) * call.count

        call.count = 0
        return call

    @counted
    def double(x):
        return x * 2

    f = w.trace(lambda x: double(x) + double(x))
    w.see(double=lambda: double.count)
    for double.count in w.rounds(0, 10):
        w.call(f, w.x)


@program("callables")
def a_function_dispatches_on_its_argument(w):
    @functools.singledispatch
    def weigh(o, x):
        return x

    weigh.register(int, lambda o, x: x * o)
    weigh.register(list, lambda o, x: x + len(o))
    f = w.trace(lambda x, o: weigh(o, x))
    for o in w.rounds(2, [1, 2], "other", 3):
        w.call(f, w.x, o)


# ---- caches ------------------------------------------------------------------------------------------------
@program("callables")
def a_cache_by_hand_on_a_function(w):
    def table(n):
        if n not in table.known:
            table.known[n] = t.arange(float(n)) * table.factor
        return table.known[n]

    table.known, table.factor = {}, 2.0
    f = w.trace(lambda x: x * table(4))
    w.see(known=table.known)
    for table.factor in w.rounds(2.0, 3.0):
        w.call(f, w.x)
        table.known.clear()


@program("callables")
def a_cached_property_of_a_module(w):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.size = 4

        @functools.cached_property
        def frequencies(self):
            return 1.0 / (1 + t.arange(float(self.size)))

        def forward(self, x):
            return x * self.frequencies

    net = Net()
    f = w.trace(net)
    for factor in w.rounds(1.0, 2.0):
        vars(net).pop("frequencies", None)
        w.call(f, w.x)
        net.frequencies = net.frequencies * factor
        w.call(f, w.x)


@program("callables")
def a_cache_of_masks_by_length(w):
    masks = {}

    @w.trace
    def f(x):
        n = x.shape[-1]
        if n not in masks:
            masks[n] = t.tril(t.ones(n, n))
        return masks[n] @ x

    w.see(masks=masks)
    for n in w.rounds(4, 3, 2):
        w.call(f, w.x[:n])
        if n == 2:
            masks.clear()


# ---- functions with a backward of one's own ----------------------------------------------------------------
def scaled_gradient(factor):
    class Scaled(t.autograd.Function):
        by = factor

        @staticmethod
        def forward(ctx, x, power):
            ctx.save_for_backward(x)
            ctx.power = power
            return x**power

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * ctx.power * x ** (ctx.power - 1) * Scaled.by, None

    return Scaled


@program("callables")
def a_backward_of_ones_own_changes(w):
    scaled = scaled_gradient(1.0)

    @w.trace
    def f(x):
        leaf = x.detach().requires_grad_()
        scaled.apply(leaf, 2).sum().backward()
        return leaf.grad

    for scaled.by in w.rounds(1.0, 3.0):
        w.call(f, w.x)


@program("callables")
def a_number_is_given_to_a_function_of_ones_own(w):
    scaled = scaled_gradient(0.5)

    @w.trace
    def f(x, power):
        leaf = x.detach().requires_grad_()
        y = scaled.apply(leaf, power)
        y.sum().backward()
        return y.detach(), leaf.grad

    for power in w.rounds(1, 2, 3):
        w.call(f, w.x, power)


@program("callables")
def a_straight_through_estimator(w):
    class Rounded(t.autograd.Function):
        @staticmethod
        def forward(ctx, x, step):
            return t.round(x / step) * step

        @staticmethod
        def backward(ctx, g):
            return g, None

    step = 0.5
    weight = numbers(4).requires_grad_()

    @w.trace
    def f(x):
        weight.grad = None
        y = Rounded.apply(weight * x, step)
        y.sum().backward()
        return y.detach(), weight.grad.clone()

    for step in w.rounds(0.5, 0.25, 1.0):
        w.call(f, w.x)


# ---- copies and pickles ------------------------------------------------------------------------------------
@program("callables")
def settings_are_copied_inside(w):
    settings = {"scale": [1.0], "plus": 2.0}

    @w.trace
    def f(x):
        mine, deep = copy.copy(settings), copy.deepcopy(settings)
        mine["plus"] = 5.0
        deep["scale"].append(3.0)
        return x * settings["scale"][0] + mine["plus"] + len(deep["scale"]), deep

    w.see(settings=settings)
    for settings["scale"] in w.rounds([1.0], [2.0, 3.0]):
        w.call(f, w.x)


@program("callables")
def an_object_copies_itself(w):
    class State:
        def __init__(self, n):
            self.n = n

        def __copy__(self):
            return State(self.n + 1)

        def __deepcopy__(self, memo):
            return State(self.n + 10)

    state = State(0)
    f = w.trace(lambda x: x * copy.copy(state).n + copy.deepcopy(state).n)
    for state.n in w.rounds(0, 5):
        w.call(f, w.x)


@program("callables")
def a_model_is_copied_between_calls(w):
    models = [quietly(network())]
    f = w.trace(lambda m: models[-1](m))
    for value in w.rounds(0.5, -0.5):
        models.append(copy.deepcopy(models[0]))
        models[-1][0].bias.data.fill_(value)
        del models[1:-1]
        w.call(f, w.m)


@program("callables")
def a_model_comes_back_from_a_pickle(w):
    models = [quietly(network())]
    f = w.trace(lambda m: models[0](m))
    for value in w.rounds(0.5, -0.5):
        models[0] = pickle.loads(pickle.dumps(models[0]))
        models[0][0].bias.data.fill_(value)
        w.call(f, w.m)


@program("callables")
def a_layer_is_cloned_inside_by_its_weights(w):
    layer = quietly(linear())

    @w.trace
    def f(x):
        weight, bias = layer.weight.clone(), layer.bias.clone()
        weight.mul_(2)
        return t.nn.functional.linear(x, weight, bias)

    w.see(layer=layer)
    for value in w.rounds(1.0, 2.0):
        layer.bias.data.fill_(value)
        w.call(f, w.x)


# ---- text that says what to do -----------------------------------------------------------------------------
@program("callables")
def a_pattern_says_how_to_turn(w):
    pattern = "a b -> b a"

    @w.trace
    def f(m):
        left, right = (side.split() for side in pattern.split("->"))
        return m.permute(*(left.index(name) for name in right)) * len(set(left))

    for pattern in w.rounds("a b -> b a", "a b -> a b", "x y->y x"):
        w.call(f, w.m)


@program("callables")
def a_pattern_is_parsed_by_expressions(w):
    pattern = "(h 2) -> h"

    @w.trace
    def f(x):
        groups = re.findall(r"\((\w+) (\d+)\)|(\w+)", pattern)
        size = int(next(g[1] for g in groups if g[1]))
        return x.reshape(-1, size).sum(1), groups

    for pattern in w.rounds("(h 2) -> h", "(h 4) -> h", "(w 1) -> w"):
        w.call(f, w.x)


@program("callables")
def letters_for_axes(w):
    equation = "ij,kj->ik"

    @w.trace
    def f(m):
        inputs, output = equation.split("->")
        unused = [c for c in string.ascii_lowercase if c not in equation][0]
        sums = [c for c in dict.fromkeys(inputs.replace(",", "")) if c not in output]
        return t.einsum(equation, m, m) * len(sums), unused

    for equation in w.rounds("ij,kj->ik", "ij,ij->i", "ab,ab->"):
        w.call(f, w.m)


@program("callables")
def a_recipe_of_layers_in_text(w):
    recipe = "scale:2 shift:1"
    steps = {"scale": lambda x, n: x * n, "shift": lambda x, n: x + n}

    @w.trace
    def f(x):
        for part in recipe.split():
            name, _, value = part.partition(":")
            x = steps[name](x, float(value))
        return x

    for recipe in w.rounds("scale:2 shift:1", "shift:1 scale:2", "scale:3"):
        w.call(f, w.x)


@program("callables")
def names_of_weights_are_matched(w):
    weights = {"body.0.weight": numbers(4), "body.0.bias": numbers(4) * 2, "head.weight": numbers(4) * 3}
    pattern = r"body\..*"

    @w.trace
    def f(x):
        for name, weight in weights.items():
            if re.fullmatch(pattern, name):
                x = x + weight
        return x

    for pattern in w.rounds(r"body\..*", r".*weight", r"none"):
        w.call(f, w.x)


# ---- threads -----------------------------------------------------------------------------------------------
def elsewhere(function, *args):
    """What a function gives in another thread."""
    found = []
    thread = threading.Thread(target=lambda: found.append(function(*args)))
    thread.start()
    thread.join()
    return found[0]


@program("callables")
def a_counter_is_brought_on_by_two_threads(w):
    state = {"n": 0}

    @w.trace
    def f(x):
        state["n"] += 1
        return x * state["n"]

    w.see(state=state)
    for state["n"] in w.rounds(0, 10):
        w.call(f, w.x)
        w.note(elsewhere(f, w.x))


@program("callables")
def a_model_trains_in_another_thread(w):
    layer = linear()

    @w.trace
    def f(x):
        loss = (layer(x) ** 2).mean()
        (grad,) = t.autograd.grad(loss, layer.bias)
        with t.no_grad():
            layer.bias.sub_(grad * 0.01)
        return loss.detach()

    w.see(layer=layer)
    for value in w.rounds(1.0, -1.0):
        layer.bias.data.fill_(value)
        w.note(elsewhere(f, w.x))
        w.call(f, w.x)


@program("callables")
def a_lock_guards_the_state(w):
    lock, state = threading.Lock(), [0]

    @w.trace
    def f(x):
        with lock:
            state[0] += 1
            return x * state[0]

    w.see(state=state)
    for state[0] in w.rounds(0, 10):
        w.call(f, w.x)
        w.note((elsewhere(f, w.x), lock.locked()))
