"""Code of the user's that the framework calls is recorded: hooks, functions of one's own, closures.

Each program is run undecorated and traced, on a state of its own, with changes between the calls.
"""

from __future__ import annotations

import traceback
from types import SimpleNamespace

import numpy as np
import pytest

import lamina
from lamina import jit, nn, optim

SCALE = 1.0
STEPS = 3  # calls after each change: the first may be recorded


def leaf(*values):
    return lamina.tensor([float(v) for v in values], requires_grad=True)


@pytest.fixture(autouse=True)
def as_it_was():
    yield
    scale_by(1.0)


def scale_by(scale):
    global SCALE
    SCALE = scale


def scaled(state):
    """Change the global that the programs read."""
    scale_by(4.0 - SCALE)


# Compiled code and NumPy round sums and powers in other orders: 27 calls at most that go on from what the
# calls before left, of 16 roundings each that do not cancel.
RTOL = 27 * 16 * 2.0**-24


def shown(value):
    """What a program can see of a value, now."""
    if isinstance(value, lamina.Tensor):
        return value.detach().numpy().copy(), value.requires_grad, shown(value.grad)
    if isinstance(value, (list, tuple)):
        return [shown(v) for v in value]
    if isinstance(value, dict):
        return [[k, shown(v)] for k, v in value.items()]
    return value


def alike(a, b):
    """Whether two programs saw the same, but for roundings."""
    if isinstance(a, (list, tuple)) and type(a) is type(b) and len(a) == len(b):
        return all(map(alike, a, b))
    if isinstance(a, (float, np.ndarray)) and type(a) is type(b):
        return np.shape(a) == np.shape(b) and np.allclose(a, b, rtol=RTOL, atol=0.0)
    return type(a) is type(b) and a == b


def differing(make, changes=(None,), rounds=2, trace=jit.trace):
    """Run what `make()` returns, (function, state, given), undecorated and traced; return the latter.

    changes: called with the state before each stretch of calls, in turn.
    """
    worlds = []
    for decorate in (lambda f: f, trace):
        scale_by(1.0)
        function, state, given = make()
        called, seen = decorate(function), []
        for _ in range(rounds):
            for change in changes:
                if change is not None:
                    change(state)
                for step in range(STEPS):
                    try:
                        result = called(*given(step))
                    except ValueError as error:
                        result = str(error), [f.name for f in traceback.extract_tb(error.__traceback__)
                                              if f.filename == __file__][1:]  # fmt: skip
                    seen.append(shown([result, *vars(state).values()]))
        worlds.append(seen)
    for number, (expected, found) in enumerate(zip(*worlds, strict=True)):
        assert alike(found, expected), f"call {number}: {found} != {expected}\n{called.explain()}"
    return called


def assert_served(traced, recordings, calls):
    """Compiled code must have served all calls but the recorded ones.

    One recording is of the first call, which finds no gradient to drop or to add to.
    """
    counts = traced.counts()
    assert (counts["recorded"], counts["served"]) == (recordings, calls - recordings), traced.explain()


def x_of(step):
    return (lamina.tensor([1.0, -2.0, 3.0]) * (step + 1),)


# ---- functions of one's own --------------------------------------------------------------------------------
class Bounded(lamina.autograd.Function):
    """Reads globals, its class and what it was given, counts its calls, and keeps things on ctx."""

    limit = 1.0
    log: list = []

    @staticmethod
    def forward(ctx, x, power):
        ctx.save_for_backward(x)
        ctx.power = power
        ctx.seen = {"wanted": ctx.needs_input_grad[0]}
        Bounded.log.append(("forward", power, SCALE))
        return x**power * SCALE

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        Bounded.log.append(("backward", ctx.power, ctx.seen["wanted"]))
        return (grad * SCALE * ctx.power * x ** (ctx.power - 1)).clamp(-Bounded.limit, Bounded.limit), None


def bounded():
    state = SimpleNamespace(weight=leaf(1, 2, 3), power=2, log=[])
    Bounded.limit, Bounded.log = 1.0, state.log

    def f(x):
        state.weight.grad = None
        (Bounded.apply(state.weight, state.power) * x).sum().backward()
        return state.weight.grad * 2

    return f, state, x_of


def test_a_function_of_ones_own_is_served():
    assert_served(differing(bounded), 2, 6)


def test_what_forward_and_backward_read_is_guarded():
    def limited(state):
        Bounded.limit = 5.0 if Bounded.limit == 1.0 else 1.0

    def raised(state):
        state.power = 3 if state.power == 2 else 2

    traced = differing(bounded, (scaled, limited, raised), rounds=4)
    assert traced.counts()["served"] >= 24, traced.explain()


def test_backward_of_a_class_that_is_replaced():
    class Twice(lamina.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    kept = Twice.backward

    def make():
        Twice.backward = staticmethod(kept)
        state = SimpleNamespace(weight=leaf(1, 2, 3))

        def f(x):
            state.weight.grad = None
            (Twice.apply(state.weight) * x).sum().backward()

        return f, state, x_of

    def replace(state):
        Twice.backward = staticmethod(lambda ctx, grad: grad * -7)

    traced = differing(make, (None, replace), rounds=1)
    assert_served(traced, 3, 6)


def test_a_function_with_setup_context_and_several_outputs():
    class Split(lamina.autograd.Function):
        @staticmethod
        def forward(x, y):
            return x * y, x + 1, x.argmax()

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs, output[0])
            ctx.mark_non_differentiable(output[2])
            ctx.count = len(output)

        @staticmethod
        def backward(ctx, first, second, _):
            x, y, product = ctx.saved_tensors
            return first * y + second * ctx.count, first * x + product * 0

    def make():
        state = SimpleNamespace(a=leaf(1, 2, 3), b=leaf(4, 5, 6))

        def f(x):
            first, second, at = Split.apply(state.a, state.b)
            (first * x + second).sum().backward()
            return at

        return f, state, x_of

    traced = differing(make)
    assert traced.counts()["served"] >= 4, traced.explain()


def test_a_function_that_writes_its_input():
    class Double(lamina.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x.mul_(2)

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    def make():
        state = SimpleNamespace(weight=leaf(1, 2, 3))

        def f(x):
            y = state.weight * x
            Double.apply(y)
            y.sum().backward()
            return y.detach()

        return f, state, x_of

    traced = differing(make)
    assert traced.counts()["served"] >= 4, traced.explain()


def test_a_function_differentiated_twice():
    class Cube(lamina.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x * x

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad * 3 * x * x

    def make():
        state = SimpleNamespace(weight=leaf(1, 2, 3))

        def f(x):
            (first,) = lamina.autograd.grad(
                Cube.apply(state.weight * x).sum(), state.weight, create_graph=True
            )
            first.pow(2).sum().backward()
            return first.detach()

        return f, state, x_of

    traced = differing(make)
    assert traced.counts()["served"] >= 4, traced.explain()


def test_a_function_whose_result_keeps_its_history_runs_eagerly_with_a_reason():
    state = SimpleNamespace(weight=leaf(1, 2, 3), log=[])
    Bounded.limit, Bounded.log = 1.0, state.log
    f = jit.trace(lambda x: Bounded.apply(state.weight, 2) * x)
    for _ in range(3):
        state.weight.grad = None
        f(lamina.ones(3)).sum().backward()
        np.testing.assert_array_equal(state.weight.grad.numpy(), [1.0, 1.0, 1.0])
    assert f.counts()["served"] == 0
    assert "Bounded" in f.explain(detail=True)


def test_functions_inside_functions_and_modules():
    class Inner(lamina.autograd.Function):
        @classmethod
        def forward(cls, ctx, x):
            ctx.set_materialize_grads(False)
            return x * cls.factor, x + 1

        @classmethod
        def backward(cls, ctx, first, second):
            return first * cls.factor if second is None else second

        factor = 2.0

    class Outer(Inner):
        @staticmethod
        def forward(ctx, x):
            with lamina.enable_grad():
                y = x.detach().requires_grad_()
                ctx.kept = y, Inner.apply(y)[0].pow(2)
            return ctx.kept[1].detach(), x + 2

        @staticmethod
        def backward(ctx, first, second):
            y, out = ctx.kept
            return lamina.autograd.grad(out, y, first)[0]

    class Layer(nn.Module):
        def forward(self, x):
            return Outer.apply(x)[0]

    def make():
        Inner.factor = 2.0
        net = nn.Sequential(Layer(), nn.ReLU())
        state = SimpleNamespace(weight=leaf(1, 2, 3))

        def f(x):
            state.weight.grad = None
            net(state.weight * x).sum().backward()

        return f, state, x_of

    def change(state):
        Inner.factor = 5.0 - Inner.factor

    traced = differing(make, (None, change), rounds=3)
    assert traced.counts()["served"] >= 12, traced.explain()


def test_an_error_in_forward_or_backward_is_the_users():
    class Fails(lamina.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            if SCALE == 3.0:
                raise ValueError("in forward")
            return x * SCALE

        @staticmethod
        def backward(ctx, grad):
            if SCALE == 2.0:
                raise ValueError("in backward")
            return grad

    def make():
        state = SimpleNamespace(weight=leaf(1, 2, 3))

        def f(x):
            state.weight.grad = None
            Fails.apply(state.weight * x).sum().backward()

        return f, state, x_of

    def change(state):
        scale_by(SCALE % 3 + 1)

    differing(make, (None, change, change), rounds=2)


def test_a_context_that_is_kept():
    kept = []

    class Keep(lamina.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.shape = tuple(x.shape)
            kept.append(ctx)
            return x * 1

        @staticmethod
        def backward(ctx, grad):
            ctx.shape = (*ctx.shape, 1)
            return grad

    def make():
        kept.clear()
        state = SimpleNamespace(weight=leaf(1, 2, 3))

        def f(x):
            (Keep.apply(state.weight) * x).sum().backward()
            return kept[-1].shape

        return f, state, x_of

    differing(make)


def test_functions_that_are_differentiated_in_whole():
    lamina.manual_seed(0)
    net = Counted()

    def make():
        state = SimpleNamespace(powers=[2], seen=[])

        def power(x):
            state.seen[:] = [SCALE]
            return (x ** state.powers[0]).sum() * SCALE

        def f(x):
            whole = lamina.autograd.functional
            return whole.jacobian(power, x), whole.hessian(power, x), whole.jacobian(net, x)

        return f, state, x_of

    def change(state):
        state.powers[0] = 5 - state.powers[0]

    traced = differing(make, (None, change, scaled), rounds=3)
    assert traced.counts()["served"] >= 9, traced.explain()


# ---- hooks on tensors --------------------------------------------------------------------------------------
def hooked():
    state = SimpleNamespace(weight=leaf(1, 2, 3), seen=[], factor=[2.0])

    def f(x):
        state.weight.grad = None
        (x * state.weight * state.weight).sum().backward()
        return state.weight.grad.sum()

    return f, state, x_of


def scaling(state, number):
    def hook(grad):
        state.seen[:] = [number, state.factor[0]]
        return grad * state.factor[0] + number

    return hook


def test_a_hook_on_a_leaf_is_served_and_what_it_reads_is_guarded():
    def hang(state):
        if not hanging:
            hanging.append(state.weight.register_hook(scaling(state, 1)))

    def factor(state):
        state.factor[0] = 5.0 if state.factor[0] == 2.0 else 2.0

    def make():
        hanging.clear()
        return hooked()

    hanging = []
    traced = differing(make, (hang, factor), rounds=4)
    assert traced.counts()["served"] >= 18, traced.explain()


def test_hooks_that_come_go_and_change_their_order():
    orders = [(), "a", "ab", "ba", "b", ()]
    handles, at, hooks = [], [], {}

    def make():
        f, state, given = hooked()
        handles.clear()
        at[:] = [0]
        hooks.update(a=lambda grad: grad * 2, b=lambda grad: grad + state.factor[0])
        return f, state, given

    def next_order(state):
        while handles:
            handles.pop().remove()
        at[0] = (at[0] + 1) % len(orders)
        handles.extend(state.weight.register_hook(hooks[name]) for name in orders[at[0]])

    traced = differing(make, (next_order,), rounds=18)
    assert_served(traced, 6, 18 * STEPS)  # there are five orders, as the empty one comes twice


def test_a_hook_on_an_argument_is_seen():
    def f(x):
        (x * x).sum().backward()

    for decorate in (lambda f: f, jit.trace):
        called = decorate(f)
        plain, other = leaf(1, 2), leaf(1, 2)
        handle = other.register_hook(lambda grad: grad * 10)
        for x, expected in ((plain, 2.0), (plain, 2.0), (other, 20.0), (plain, 2.0), (other, 20.0)):
            x.grad = None
            called(x)
            assert x.grad[0].item() == expected
        handle.remove()
        other.grad = None
        called(other)
        assert other.grad[0].item() == 2.0
    assert called.counts()["served"] >= 3, called.explain()


def test_a_hook_on_what_the_run_makes():
    def make():
        state = SimpleNamespace(weight=leaf(1, 2, 3), seen=[], factor=1.0)

        def f(x):
            h = x * state.weight
            handle = h.register_hook(lambda grad: state.seen.append(grad) or grad * state.factor)
            gone = h.register_hook(lambda grad: grad * 100)
            gone.remove()
            (h * h).sum().backward()
            state.seen[:-1] = []
            return h.detach(), handle is gone

        return f, state, x_of

    def change(state):
        state.factor = -state.factor

    traced = differing(make, (change, change))
    assert traced.counts()["served"] >= 6, traced.explain()


def test_a_hook_that_asks_for_a_value():
    def make():
        f, state, given = hooked()
        seen = state.seen

        def hook(grad):
            if grad.sum() > 10:
                seen.append("much")
                return grad / 10
            seen[:] = []

        state.weight.register_hook(hook)
        return f, state, given

    traced = differing(make)
    assert traced.counts()["served"] >= 3, traced.explain()


def test_a_hook_after_accumulation():
    def make():
        f, state, given = hooked()

        def shrink(x):
            state.seen.append(x.grad.sum().item() if not state.seen else None)
            state.seen[1:] = []
            x.grad.mul_(state.factor[0])

        state.weight.register_post_accumulate_grad_hook(shrink)
        return f, state, given

    def factor(state):
        state.factor[0] = 0.5 if state.factor[0] == 2.0 else 2.0

    traced = differing(make, (None, factor), rounds=3)
    assert traced.counts()["served"] >= 10, traced.explain()


def test_hooks_that_are_methods_and_objects():
    class Meter:
        def __init__(self):
            self.count, self.factor = 0, 2.0

        def __call__(self, grad):
            self.count += 1
            return grad * self.factor

        def method(self, grad):
            return grad + self.factor

    def make():
        meter = Meter()
        f, state, given = hooked()
        state.weight.register_hook(meter)
        state.weight.register_hook(meter.method)
        state.meter = vars(meter)
        return f, state, given

    def change(state):
        state.meter["factor"] = 7.0 - state.meter["factor"]

    traced = differing(make, (None, change), rounds=3)
    assert traced.counts()["served"] >= 6, traced.explain()


def test_a_hook_under_a_decorator_of_the_librarys():
    def make():
        f, state, given = hooked()

        @lamina.enable_grad()
        def hook(grad):
            state.seen[:] = [state.factor[0], lamina.is_grad_enabled()]
            return grad * state.factor[0]

        state.weight.register_hook(hook)
        return f, state, given

    def factor(state):
        state.factor[0] = 5.0 - state.factor[0]

    traced = differing(make, (None, factor), rounds=3)
    assert traced.counts()["served"] >= 10, traced.explain()


def test_an_error_in_a_hook_is_the_users():
    def make():
        f, state, given = hooked()

        def hook(grad):
            if state.factor[0] > 2:
                raise ValueError("too large a gradient")

        state.weight.register_hook(hook)
        return f, state, given

    def factor(state):
        state.factor[0] = 5.0 - state.factor[0] if state.factor[0] != 2.0 else 3.0

    differing(make, (None, factor), rounds=2)


def test_hanging_a_hook_on_what_was_there_is_refused_with_a_reason():
    def make():
        state = SimpleNamespace(weight=leaf(1, 2, 3))

        def f(x):
            handle = state.weight.register_hook(lambda grad: grad * 3)
            state.weight.grad = None
            (state.weight * x).sum().backward()
            handle.remove()

        return f, state, x_of

    assert "there before" in differing(make).explain(detail=True)


def test_a_hook_that_removes_itself():
    def make():
        f, state, given = hooked()
        held = {}

        def once(grad):
            held["handle"].remove()
            return grad * 100

        held["handle"] = state.weight.register_hook(once)
        return f, state, given

    assert differing(make).counts()["served"] >= 3


def test_a_tensor_returned_with_a_spent_history_keeps_its_hook():
    def make():
        state = SimpleNamespace(weight=leaf(1, 2, 3), seen=[])

        def f(x):
            h = x * state.weight
            h.register_hook(lambda grad: state.seen.append(0))
            (h * h).sum().backward()
            return h

        return f, state, x_of

    seen = []
    for decorate in (lambda f: f, jit.trace):
        f, state, given = make()
        called = decorate(f)
        for step in range(4):
            state.weight.grad = None
            with pytest.raises(lamina.GradError):
                called(*given(step)).sum().backward()
            seen.append(len(state.seen))
    assert seen[:4] == seen[4:]


def test_a_hook_that_comes_late_is_seen():
    def hang(state):
        if not state.seen:
            state.weight.register_hook(scaling(state, 1))
            state.seen.append("hung")

    traced = differing(hooked, (None, hang))
    assert traced.counts()["served"] >= 6, traced.explain()


def test_a_step_taken_in_backward():
    def make():
        state = SimpleNamespace(a=leaf(1, 2, 3), b=leaf(4, 5, 6), steps=[])
        for p in (state.a, state.b):
            own = optim.SGD([p], lr=2.0**-10, momentum=0.5)

            def step(p, own=own):
                own.step()
                own.zero_grad()
                state.steps[:] = [*state.steps[-1:], own.param_groups[0]["lr"]]

            p.register_post_accumulate_grad_hook(step)

        def f(x):
            loss = (state.a * x + state.b).pow(2).sum()
            loss.backward()
            return loss.detach()

        return f, state, x_of

    traced = differing(make)
    assert traced.counts()["served"] >= 3, traced.explain()


def test_a_hook_that_differentiates():
    def make():
        f, state, given = hooked()

        def hook(grad):
            y = grad.detach().requires_grad_()
            with lamina.enable_grad():
                (found,) = lamina.autograd.grad((y * y * y).sum(), y)
            return found * state.factor[0]

        state.weight.register_hook(hook)
        return f, state, given

    traced = differing(make)
    assert traced.counts()["served"] >= 4, traced.explain()


def test_the_gradient_that_retain_grad_keeps_is_guarded():
    def make():
        state = SimpleNamespace(weight=leaf(1, 2, 3), kept=[])

        def f(x):
            return state.kept[0].grad

        state.kept[:] = [state.weight * 2]
        state.kept[0].retain_grad()
        return f, state, x_of

    def back(state):
        state.kept[0].sum().backward(retain_graph=True)

    differing(make, (None, back), rounds=2)


def test_the_gradient_that_a_frozen_tensor_has_left_is_guarded():
    def make():
        state = SimpleNamespace(weight=leaf(1, 2, 3))
        optimizer = optim.SGD([state.weight], lr=1.0)
        state.weight.requires_grad_(False)

        def f(x):
            found = state.weight.grad
            optimizer.zero_grad()
            return found

        return f, state, x_of

    def back(state):
        state.weight.requires_grad_(True)
        state.weight.sum().backward()
        state.weight.requires_grad_(False)

    differing(make, (None, back, back), rounds=2)


# ---- hooks on modules --------------------------------------------------------------------------------------
class Counted(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.calls = nn.Linear(3, 2), 0

    def forward(self, x):
        self.calls += 1
        return self.layer(x) * 2


def module_hooks():
    lamina.manual_seed(0)
    model = Counted()
    state = SimpleNamespace(parameters=list(model.parameters()), seen={}, factor=[2.0])

    def ahead(module, args):
        state.seen["ahead"] = len(args)
        return (args[0] * state.factor[0],)

    def after(module, args, out):
        state.seen["after"] = tuple(out.shape), SCALE
        return out * SCALE

    def backward_ahead(module, got):
        state.seen["backward ahead"] = got[0]
        return (got[0] * 2,)

    def backward(module, given, got):
        state.seen["backward"] = [g is None for g in given], got[0]
        return tuple(g if g is None else g * state.factor[0] for g in given)

    model.register_forward_pre_hook(ahead)
    model.register_forward_hook(after)
    model.layer.register_full_backward_pre_hook(backward_ahead)
    model.layer.register_full_backward_hook(backward)

    def f(x):
        for p in state.parameters:
            p.grad = None
        model(x).pow(2).sum().backward()

    return f, state, x_of


def test_hooks_of_all_kinds_on_modules():
    def factor(state):
        state.factor[0] = 5.0 - state.factor[0]

    traced = differing(module_hooks, (None, factor, scaled), rounds=3)
    assert traced.counts()["served"] >= 12, traced.explain()


def test_a_hook_that_is_hung_anew_is_the_hook_it_was():
    seen = []

    def hook(module, given, got):
        seen.append(SCALE)
        del seen[:-1]

    model = nn.Sequential(nn.Linear(3, 2), nn.Tanh())

    @jit.trace
    def f(x):
        model.zero_grad()
        model(x).sum().backward()

    for _ in range(5):
        seen.clear()
        handle = model[0].register_full_backward_hook(hook)
        f(lamina.ones(3))
        assert seen == [1.0]
        handle.remove()
        f(lamina.ones(3))
    assert_served(f, 3, 10)


# ---- optimizers --------------------------------------------------------------------------------------------
def stepping(hooks=False, closure=False, start=optim.SGD):
    def make():
        state = SimpleNamespace(weight=leaf(1, 2, 3), seen=[], rate=[1.0])
        optimizer = start([state.weight], lr=2.0**-10)  # far from where steps amplify errors

        def note(optimizer, args, kwargs):
            state.seen[:] = [(len(args), args[0] is None, SCALE)]
            state.weight.grad.mul_(state.rate[0])

        if hooks:
            optimizer.register_step_pre_hook(note)
            optimizer.register_step_post_hook(lambda o, args, kwargs: state.seen.append(len(state.seen)))

        def f(x):
            optimizer.zero_grad()

            def loss():
                state.seen[:] = []
                value = (state.weight * x).pow(2).sum() * SCALE
                value.backward()
                state.seen.append("closure")
                return value

            if closure:
                return optimizer.step(loss).detach()
            loss()
            optimizer.step()

        return f, state, x_of

    return make


@pytest.mark.parametrize("start", [optim.SGD, optim.Adam])
@pytest.mark.parametrize(("hooks", "closure"), [(True, False), (False, True)])
def test_step_hooks_and_closures(hooks, closure, start):
    def rate(state):
        state.rate[0] = 3.0 - state.rate[0]

    traced = differing(stepping(hooks, closure, start), (None, rate, scaled), rounds=3)
    assert traced.counts()["served"] >= 12, traced.explain()


def test_hooks_of_every_optimizer_are_called_by_traced_steps():
    weight, seen = leaf(1, 2, 3), []
    optimizer = optim.SGD([weight], lr=2.0**-10)

    @jit.trace
    def step(x):
        optimizer.zero_grad()
        (weight * x).pow(2).sum().backward()
        optimizer.step()

    for _ in range(4):
        step(lamina.ones(3))
    handle = optim.optimizer.register_optimizer_step_post_hook(lambda o, args, kwargs: seen.append(o))
    try:
        for _ in range(4):
            step(lamina.ones(3))
    finally:
        handle.remove()
    assert seen == [optimizer] * 4
    step(lamina.ones(3))
    assert len(seen) == 4


def test_a_step_with_hooks_alone_asks_whether_there_are_gradients():
    def make():
        state = SimpleNamespace(weight=leaf(1, 2, 3), seen=[])
        optimizer = optim.SGD([state.weight], lr=0.5)
        optimizer.register_step_post_hook(lambda *_: state.seen.append(0))
        return optimizer.step, state, lambda step: ()

    def given(state):
        state.seen.clear()
        state.weight.grad = lamina.ones(3)

    def none(state):
        state.weight.grad = None

    def make_function():
        step, state, given = make()
        return lambda: step(), state, given

    differing(make_function, (given, none, given), rounds=2)
