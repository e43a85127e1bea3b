"""Programs that can't be recorded as a whole: what they call is traced in its place, and must be as it was.

Each asks the outside for something at every call, and calls modules and functions, whose state
changes between the calls.
"""

import random
import time

from battery import lib as t
from battery import program
from networks import held, linear, numbers

scale = 2.0
bias = numbers(4)


class Dice(random.Random):
    """Of which nobody knows that it can be put back."""


dice = Dice(0)


class Block(t.nn.Module):
    """Enough ops that a compiled call pays, with a history too."""

    def __init__(self):
        super().__init__()
        self.first, self.second = linear(4, 4), linear(4, 4)
        self.calls, self.factor = 0, 1.0

    def forward(self, x):
        self.calls += 1
        return (self.second(self.first(x).tanh()) * self.factor + x).sigmoid() - x.mean()


class Clocked(t.nn.Module):
    """A module of which nothing but what is inside can be recorded."""

    def __init__(self):
        super().__init__()
        self.inside = t.nn.Sequential(Block(), t.nn.Tanh())
        self.drawn = 0.0

    def forward(self, x):
        self.drawn = dice.random()
        return self.inside(x) * self.drawn


def reseeded(w, *steps):
    for seed, step in enumerate(w.rounds(*steps)):
        dice.seed(seed % 3)
        yield step


@program("within")
def an_attribute_of_a_module_in_place(w):
    net = Clocked().requires_grad_(False)
    f = w.trace(net)
    w.see(calls=lambda: net.inside[0].calls, drawn=lambda: net.drawn)

    for factor in reseeded(w, 1.0, 3.0, -2.0):
        net.inside[0].factor = factor
        w.call(f, w.x)


@program("within")
def a_weight_of_a_module_in_place(w):
    net = Clocked().requires_grad_(False)
    f = w.trace(net)
    weight = net.inside[0].first.weight

    for factor in reseeded(w, 1.0, 0.5):
        weight.copy_(numbers(4, 4) * factor)
        w.call(f, w.x)


@program("within")
def a_hook_on_a_module_in_place(w):
    net, seen = Clocked().requires_grad_(False), []
    f = w.trace(net)
    w.see(seen=seen)

    for factor in reseeded(w, None, 2.0, -1.0):
        seen.clear()
        if factor:

            def hook(module, args, out, factor=factor):
                seen.append(factor)
                return out * factor

            handle = net.inside.register_forward_hook(hook)
        w.call(f, w.x)
        if factor:
            handle.remove()


@program("within")
def a_module_in_place_is_swapped(w):
    net = Clocked().requires_grad_(False)
    f = w.trace(net)
    blocks = [Block().requires_grad_(False), t.nn.Sequential(Block(), Block()).requires_grad_(False)]

    for which in reseeded(w, 0, 1):
        net.inside = blocks[which]
        w.call(f, w.x)


@program("within")
def statistics_and_training_of_a_module_in_place(w):
    norm = t.nn.Sequential(t.nn.BatchNorm1d(3), t.nn.Tanh(), t.nn.BatchNorm1d(3)).requires_grad_(False)
    w.see(buffers=list(norm.buffers()))

    @w.trace
    def f(x):
        return norm(x) * dice.random()

    for training in reseeded(w, True, False):
        norm.train(training)
        w.call(f, w.m)


@program("within", chained=True)
def a_step_with_something_from_outside(w):
    net = Block()
    optimizer = t.optim.SGD(net.parameters(), lr=0.01)
    w.see(parameters=list(net.parameters()), state=lambda: held(optimizer), calls=lambda: net.calls)

    @w.trace
    def step(x):
        weight = 1 + dice.random()
        optimizer.zero_grad()
        loss = (net(x) * weight).square().sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    for factor in reseeded(w, 1.0, 2.0):
        w.call(step, w.x * factor)


def scaled(x):
    return (x * scale).tanh() + x.mean() * 2


def shifted(x):
    return (x + bias).tanh() - x.mean()


made = scaled


def called_by_name(x):
    return made(x) * dice.random()


@program("within")
def a_function_in_place_reads_a_global(w):
    global scale
    f = w.trace(called_by_name)
    for scale in reseeded(w, 2.0, 3.0, 2.0):
        w.call(f, w.x)


@program("within")
def a_function_in_place_is_another(w):
    global made
    f = w.trace(called_by_name)
    for made in reseeded(w, scaled, shifted):
        w.call(f, w.x)


@program("within")
def a_function_in_place_replaces_itself(w):
    global made

    def once(x):
        global made
        made = scaled
        return (x * 3).tanh() + x.mean()

    f = w.trace(called_by_name)
    for made in reseeded(w, once, shifted):
        w.call(f, w.x)


@program("within")
def functions_of_an_enclosing_one(w):
    kept, factor = [], 1.0
    w.see(kept=kept)

    def note(x):
        kept.append(len(kept))
        return (x * factor).tanh() + len(kept)

    def f(x):
        drawn = dice.random()
        return note(x) * drawn

    traced = w.trace(f)
    for factor in reseeded(w, 1.0, -2.0):
        del kept[:]
        w.call(traced, w.x)


@program("within")
def a_function_in_place_raises(w):
    limit = 10.0

    def checked(x):
        y = (x * x).tanh() + 1
        if y.sum() > limit:
            raise ValueError(f"more than {limit}")
        return y * 2

    def f(x):
        drawn = dice.random()
        try:
            return checked(x) * drawn
        except ValueError as error:
            return str(error), drawn

    traced = w.trace(f)
    for limit in reseeded(w, 100.0, 1.0):
        w.call(traced, w.x)


@program("within")
def a_loop_with_prints_and_a_clock(w):
    net = Block().requires_grad_(False)
    seen = {}
    w.see(seen=seen, calls=lambda: net.calls)

    def one(x, number):
        seen[number] = number * 2
        return net(x) * number

    def loop(x, count):
        began = time.time()
        for number in range(count):
            x = one(x, number + 1.0)
            print("step", number, time.time() >= began)
        return x

    f = w.trace(loop)
    for count in w.rounds(3, 6):
        seen.clear()
        w.call(f, w.x, count)


@program("within")
def a_module_in_place_calls_itself(w):
    class Nested(t.nn.Module):
        def __init__(self):
            super().__init__()
            self.block, self.drawn = Block(), 0.0

        def forward(self, x, depth):
            if not depth:
                self.drawn = dice.random()
                return x * self.drawn
            return self(self.block(x), depth - 1)

    net = Nested().requires_grad_(False)
    f = w.trace(net)
    for depth in reseeded(w, 1, 3, 2):
        w.call(f, w.x, depth)


@program("within")
def a_module_in_place_keeps_its_features(w):
    class Keeps(Block):
        features = None

        def forward(self, x):
            self.features = super().forward(x)
            return self.features * 2

    net = Keeps()
    w.see(features=lambda: net.features)

    def f(x):
        y = net(x) * dice.random()
        return y.sum() + net.features.square().sum()

    f = w.trace(f)
    for grad in reseeded(w, True, False):
        with t.set_grad_enabled(grad):
            w.call(f, w.x)


@program("within")
def gradients_of_a_module_in_place(w):
    net = Block()
    x = numbers(4).requires_grad_()
    w.see(x=x, parameters=list(net.parameters()))

    @w.trace
    def f(factor):
        net.zero_grad()
        x.grad = None
        (net(x) * dice.random() * factor).sum().backward()
        return x.grad * 2

    for factor in reseeded(w, 1.0, -3.0):
        w.call(f, factor)
