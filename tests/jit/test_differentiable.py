"""A compiled forward under eager autograd: whatever is asked of its outputs, eager's own answer."""

import copy
import random
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded import Recording

sys.path.append(str(Path(__file__).parents[1] / "ir"))  # random graphs
from graphs import graphs

import lamina
from lamina import autograd, nn
from lamina.ir import Builder, Constant, interpret, lowering
from lamina.ir.errors import GradError, InplaceError
from lamina.ir.op import REGISTRY, Op
from lamina.jit import trace
from lamina.jit.autograd import differentiable
from lamina.jit.backend import compile_graph
from lamina.nn import functional as F
from lamina.runtime.dispatch import run_general
from lamina.runtime.places import here, spell

EPS = 2.0**-53


def close(found, expected):
    """Equal but for the order of sums: some 1,000 roundings lie on the longest way through these models."""
    assert (found is None) == (expected is None)
    if expected is not None:
        a, b = found.detach().numpy(), expected.detach().numpy()
        assert a.shape == b.shape and a.dtype == b.dtype
        assert np.abs(a - b).max(initial=0.0) <= 1000 * EPS * max(np.abs(b).max(initial=0.0), 1.0)


class Traced:
    """What a trace does with one path: record once, then run compiled on the tensors given and captured."""

    def __init__(self, function, *arguments):
        recording = Recording(function, *arguments)
        self.count = len(recording.outputs)
        self.captured = recording.captured
        self.graph = recording.graph
        self.ahead = differentiable(
            recording.graph, recording.needs, into=recording.into, compile_graph=compile_graph
        )

    def __call__(self, *arguments):
        outputs = self.ahead.run([*arguments, *self.captured])[: self.count]
        return outputs[0] if self.count == 1 else tuple(outputs)


def leaf(*shape):
    return lamina.randn(*shape, dtype=lamina.float64).requires_grad_()


def both(function, *shapes):
    """(the function, leaves for it), and the same traced with leaves of the same values."""
    leaves = [leaf(*shape) for shape in shapes]
    twins = [x.detach().clone().requires_grad_() for x in leaves]
    return (function, leaves), (Traced(function, *twins), twins)


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3))

    def forward(self, x):
        return self.layers(x)


class CNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.out = nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 3)

    def forward(self, x):
        x = F.max_pool2d(F.silu(self.norm(self.conv(x))), 2)
        return self.out(x.mean((2, 3)))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(8), nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x):
        q, k, v = (t.reshape(2, 5, 2, 4).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, -1))
        weights = (q @ k.transpose(-2, -1) / 2.0).softmax(-1)
        return x + self.out((weights @ v).transpose(1, 2).reshape(2, 5, 8))


class Embedded(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.norm, self.out = nn.Embedding(7, 4), nn.LayerNorm(4), nn.Linear(4, 7)
        self.register_buffer("words", lamina.tensor([[1, 2, 2], [6, 0, 1]]))

    def forward(self, x):
        h = self.norm(self.table(self.words)) * x
        return F.cross_entropy(self.out(h).flatten(0, 1), self.words.flatten(), reduction="none")


MODELS = {"mlp": (MLP, (5, 6)), "cnn": (CNN, (3, 2, 8, 8)), "attention": (Attention, (2, 5, 8)),
          "embedding": (Embedded, (2, 3, 4))}  # fmt: skip


def twins(name):
    """The model, its traced twin with the same values, and the shape of their input."""
    make, shape = MODELS[name]
    model = make().double()
    other = copy.deepcopy(model)
    traced = Traced(other.forward, leaf(*shape))
    other.load_state_dict(model.state_dict())  # recording was a run, too
    return model, other, traced, shape


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", MODELS)
def test_outputs_gradients_and_buffers_of_models(name):
    model, other, traced, shape = twins(name)
    for _ in range(3):
        x = leaf(*shape)
        y = x.detach().clone().requires_grad_()
        expected, found = model(x), traced(y)
        close(found, expected)
        weights = lamina.randn(*expected.shape, dtype=lamina.float64)
        (expected * weights).sum().backward()
        (found * weights).sum().backward()
        close(y.grad, x.grad)
        for p, q in zip(model.parameters(), other.parameters(), strict=True):
            close(q.grad, p.grad)
        for p, q in zip(model.buffers(), other.buffers(), strict=True):
            close(q, p)


def penalty(function, parameters, x):
    """A loss that holds the gradients of another."""
    loss = (function(x) ** 2).sum()
    gradients = autograd.grad(loss, (x, *parameters), create_graph=True)
    return loss + sum((g * g).sum() for g in gradients)


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_twenty_steps_of_training_with_a_traced_forward(name):
    make, shape = MODELS[name]
    models = [make().double() for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    forwards = [models[0], trace(models[1])]
    optimizers = [lamina.optim.SGD(model.parameters(), lr=0.1, momentum=0.9) for model in models]
    for _ in range(20):
        x = lamina.randn(*shape, dtype=lamina.float64)
        labels = lamina.randint(0, 3, shape[:1])
        for forward, optimizer in zip(forwards, optimizers, strict=True):
            optimizer.zero_grad()
            F.cross_entropy(forward(x), labels).backward()
            optimizer.step()
    assert "19 compiled calls, 0 eager" in forwards[1].explain(detail=True)
    for a, b in zip(models[0].state_dict().values(), models[1].state_dict().values(), strict=True):
        # a step's roundings, 20 times, in a system that neither grows nor shrinks them by much
        assert (a - b).abs().max().item() <= 20 * 1000 * EPS * max(a.abs().max().item(), 1.0)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", MODELS)
def test_second_order_of_models(name):
    model, other, traced, shape = twins(name)
    x = leaf(*shape)
    y = x.detach().clone().requires_grad_()
    expected, found = penalty(model, model.parameters(), x), penalty(traced, other.parameters(), y)
    close(found / expected.detach(), expected / expected.detach())
    scale = 1 / expected.item()
    (expected * scale).backward()
    (found * scale).backward()
    close(y.grad, x.grad)
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        close(q.grad, p.grad)


def test_second_order_where_a_value_is_handed_over_twice():
    def squeezed(x):
        h = x.sigmoid() - x.mean()
        return h.tanh() - h.mean()

    (f, (x,)), (g, (y,)) = both(squeezed, (3, 6))
    (a,), (b,) = (
        autograd.grad(f(x).sum(), x, create_graph=True),
        autograd.grad(g(y).sum(), y, create_graph=True),
    )
    (a,), (b,) = autograd.grad(a.square().sum(), x), autograd.grad(b.square().sum(), y)
    close(b, a)


def test_third_order():
    (f, (x,)), (g, (y,)) = both(lambda x: (x.sin() * x).exp().sum(), (4,))
    for _ in range(2):
        (a,), (b,) = autograd.grad(f(x), x, create_graph=True), autograd.grad(g(y), y, create_graph=True)
    for _ in range(2):
        (a,) = autograd.grad(a.sum(), x, create_graph=True)
        (b,) = autograd.grad(b.sum(), y, create_graph=True)
        close(b, a)


def mix(x, w):
    return (x * w).tanh() * w


def test_two_forwards_before_one_backward():
    (f, (x, w)), (g, (y, v)) = both(mix, (3,), (3,))
    for function, a, b in ((f, x, w), (g, y, v)):
        first, second = function(a, b), function(a, b)
        (first * second).sum().backward()
        first.sum()
    close(y.grad, x.grad)
    close(v.grad, w.grad)


def test_outputs_are_owned_by_their_call():
    _, (g, (y, v)) = both(mix, (3,), (3,))
    first = g(y, v)
    kept = first.detach().clone()
    with lamina.no_grad():
        v.add_(1)
    assert g(y, v).data_ptr() != first.data_ptr()
    np.testing.assert_array_equal(first.detach().numpy(), kept.numpy())


def test_retain_graph_and_going_twice():
    for function, leaves in both(mix, (3,), (3,)):
        y = function(*leaves).sum()
        y.backward(retain_graph=True)
        once = leaves[0].grad.clone()
        y.backward()
        close(leaves[0].grad, once * 2)
        with pytest.raises(GradError, match="a second time: what it saved was freed by the first"):
            y.backward()


def test_outputs_that_share_nothing_saved_are_gone_back_from_one_by_one():
    def losses(x, v, w):
        fixed, same = x.detach().exp(), v + w
        return (fixed * v + same).exp(), (fixed * w - same).exp(), same.sin()

    found = []
    for function, leaves in both(losses, (3,), (3,), (3,)):
        x, v, w = leaves
        one, two, three = function(x, v, w)
        two.detach().zero_()  # saved, but not for the other two
        one.sum().backward()
        three.sum().backward()
        with pytest.raises(InplaceError):
            two.sum().backward()
        with pytest.raises(GradError, match="a second time"):
            one.sum().backward()
        found += [v.grad, w.grad]
    close(found[2], found[0])
    close(found[3], found[1])


def test_what_only_the_node_can_see_is_freed_too():
    for function, (x,) in both(lambda x: x.exp() + 1.0, (3,)):
        y = function(x).sum()
        y.backward()
        with pytest.raises(GradError, match="a second time"):
            y.backward()


def test_what_saves_nothing_can_be_gone_through_twice():
    for function, leaves in both(lambda x, w: x + w, (3,), (3,)):
        y = function(*leaves)
        for _ in range(2):
            y.backward(lamina.ones(3, dtype=lamina.float64))


def raised(function, change, *leaves):
    """The text of what backward raises after a change, without the note that places it."""
    y = function(*leaves)
    change(y, *leaves)
    with pytest.raises(InplaceError) as caught:
        y.sum().backward()
    return str(caught.value)


def test_saved_params_changed_between_the_halves():
    def change(y, x, w):
        with lamina.no_grad():
            w.mul_(2)

    (f, a), (g, b) = both(lambda x, w: (x.sin() * w).exp(), (3,), (3,))
    expected = raised(f, change, *a)
    assert "saved by      mul      test_differentiable.py" in expected and "changed by    mul_ " in expected
    assert raised(g, change, *b) == expected


def test_saved_outputs_changed_between_the_halves():
    def change(y, x):
        y.detach().add_(1)

    (f, a), (g, b) = both(lambda x: (x * 2.0).exp(), (3,))
    expected = raised(f, change, *a)
    assert "saved by      exp " in expected
    assert raised(g, change, *b) == expected


# Seen through a view; not saved, as what a rule makes of it takes less memory.
@pytest.mark.parametrize(
    "function, change",
    [
        (lambda x, w: (x @ w.t(), x), lambda x, w, y: w.mul_(2)),
        (lambda x, w: (((y := x * 3.0)[1:] * w[1:]).exp(), y), lambda x, w, y: y[0].mul_(2)),
        (lambda x, w: (((y := x.detach() * 3.0) * w).exp() + y.maximum(w), y), lambda x, w, y: y.mul_(2)),
    ],
)
def test_memory_of_what_is_saved_changed_between_the_halves(function, change):
    texts = []
    for run, leaves in both(function, (3, 3), (3, 3)):
        out, y = run(*leaves)
        with lamina.no_grad():
            change(*leaves, y.detach())
        with pytest.raises(InplaceError) as caught:
            out.sum().backward()
        texts.append(str(caught.value))
    assert texts[0] == texts[1]


def test_what_eager_does_not_save_may_change():
    def change(y, x, w):
        with lamina.no_grad():
            x.zero_()

    for function, (x, w) in both(lambda x, w: (x.exp() + 1.0) * w, (3,), (3,)):
        expected = x.exp().detach() * w.detach()
        y = function(x, w)
        change(y, x, w)
        y.sum().backward()
        close(x.grad, expected)


def test_outputs_may_be_written_where_they_are_not_saved():
    (f, (x,)), (g, (y,)) = both(lambda x: x.exp() * 3.0, (3,))
    for function, leaf_ in ((f, x), (g, y)):
        out = function(leaf_)
        out.mul_(out.detach() + 1)
        out.sum().backward()
    close(y.grad, x.grad)


def twice(x):
    """Saves the first of two equal values, and returns the second."""
    h = x * 3.0
    return (h + 1.0).sin(), h + 1.0


def made_by_a_rule(x):
    """What the rule of expm1 computes is what is returned."""
    one_less = x.expm1()
    return x.expm1() * 2.0, one_less + 1.0


@pytest.mark.parametrize("function", [twice, made_by_a_rule])
def test_outputs_that_equal_what_is_saved_may_be_written(function):
    traced = trace(function)
    traced(leaf(3))
    x = leaf(3)
    y = x.detach().clone().requires_grad_()
    for run, leaf_ in ((function, x), (traced, y)):
        saving, out = run(leaf_)
        with lamina.no_grad():
            out.detach().zero_()
        (saving + out).sum().backward()
    close(y.grad, x.grad)
    assert "1 compiled call, 0 eager" in traced.explain(detail=True)


def test_a_leaf_gets_a_gradient_just_where_eager_gives_one():
    def two(x, w):
        return x * 2.0, w * x.detach()

    for which in (0, 1):
        (f, a), (g, b) = both(two, (3,), (3,))
        f(*a)[which].sum().backward()
        g(*b)[which].sum().backward()
        assert [x.grad is None for x in b] == [x.grad is None for x in a] == [which == 1, which == 0]
        for p, q in zip(a, b, strict=True):
            close(q.grad, p.grad)


def test_only_some_inputs_require_gradients():
    x, w = lamina.randn(3, dtype=lamina.float64), leaf(3)
    g = Traced(mix, x, w)
    g(x, w).sum().backward()
    assert x.grad is None
    found, w.grad = w.grad, None
    mix(x, w).sum().backward()
    close(found, w.grad)


def test_no_gradient_through_detached_values_and_no_grad():
    def cut(x):
        with lamina.no_grad():
            scale = x * 3.0
        return x * scale + x.exp().detach() * x

    (f, (x,)), (g, (y,)) = both(cut, (3,))
    f(x).sum().backward()
    g(y).sum().backward()
    close(y.grad, x.grad)


def test_integer_outputs_have_no_history():
    (f, (x,)), (g, (y,)) = both(lambda x: lamina.max(x, 1), (3, 4))
    for function, a in ((f, x), (g, y)):
        values, indices = function(a)
        assert values.requires_grad and not indices.requires_grad and indices.dtype is lamina.int64
        (values**2).sum().backward()
    close(y.grad, x.grad)


def test_an_output_made_of_another_hangs_on_it():
    def chain(x):
        h = (x * 2.0).sin()
        return h, (h * h).sum()

    results = []
    for function, (x,) in both(chain, (3,)):
        seen = []
        h, y = function(x)
        h.register_hook(lambda g, seen=seen: seen.append(g.clone()))
        h.retain_grad()
        (inner,) = autograd.grad(y, h, retain_graph=True)
        (y + h.sum()).backward()
        results.append((inner, *seen, h.grad, x.grad))
    for found, expected in zip(*results, strict=True):
        close(expected, found)


def test_outputs_that_are_equal_are_not_one_another():
    (f, (x,)), (g, (y,)) = both(lambda x: (x.exp(), x.exp(), x.clone()), (3,))
    for function, a in ((f, x), (g, y)):
        one, two, three = function(a)
        one.retain_grad()
        assert len({t.data_ptr() for t in (one, two, three, a)}) == 4
        with pytest.raises(GradError, match="do not depend on input 0"):
            autograd.grad(two.sum(), one, retain_graph=True)
        (one * two * three).sum().backward()
        close(one.grad, (two * three).detach())
    close(y.grad, x.grad)


def test_gradients_with_respect_to_inputs_that_are_no_leaves():
    (f, (x,)), (g, (y,)) = both(lambda x: x.sin() * x, (3,))
    found = []
    for function, a in ((f, x), (g, y)):
        middle = a * 2.0
        found += autograd.grad(function(middle).sum(), (middle, a))
    close(found[2], found[0])
    close(found[3], found[1])


def test_hooks_on_leaves():
    (f, (x,)), (g, (y,)) = both(lambda x: x.sin(), (3,))
    for function, a in ((f, x), (g, y)):
        a.register_hook(lambda grad: grad * 2.0)
        function(a).sum().backward()
    close(y.grad, x.grad)


def test_buffers_written_in_the_forward():
    buffer = lamina.zeros(3, dtype=lamina.float64)

    def count(x):
        with lamina.no_grad():
            buffer.add_(x.abs())
        return x * buffer.clone()

    x = leaf(3)
    g = Traced(count, x)
    buffer.zero_()
    version = buffer._version
    (g(x) + g(x)).sum().backward()
    close(buffer, x.abs() * 2)
    close(x.grad, x.abs() * 3)
    assert buffer._version == version + 2


def test_writes_are_counted_and_named_as_in_the_recorded_run():
    buffer = lamina.zeros(3, dtype=lamina.float64)
    x = leaf(3)
    recording = Recording(lambda x: (x * 2.0, buffer.add_(1.0).mul_(2.0))[0], x)
    place = here()
    ahead = differentiable(
        recording.graph, recording.needs, into=recording.into, compile_graph=compile_graph,
        writes={recording.into[-1]: (2, ("mul_", place))},
    )  # fmt: skip
    version = buffer._version
    ahead.run([x, *recording.captured])
    assert buffer._version == version + 2 and buffer._storage.writer == ("mul_", place)


def test_a_trace_counts_and_names_the_writes_of_the_recorded_run():
    weight = leaf(3)

    @trace
    def f(x, seen):
        seen[0].add_(1.0)
        seen.mul_(2.0)
        weight.grad.add_(1.0)
        return x * weight

    for _ in range(3):
        seen, weight.grad = (lamina.zeros(3, dtype=lamina.float64) for _ in range(2))
        f(leaf(3), seen)
        assert seen.tolist() == [2.0, 0.0, 0.0] and weight.grad.tolist() == [1.0, 1.0, 1.0]
        assert (seen._version, weight.grad._version) == (2, 1)
        for x, op, line in ((seen, "mul_", "seen.mul_(2.0)"), (weight.grad, "add_", "weight.grad.add_(1.0)")):
            name, place = x._storage.writer
            assert name == op and line in spell(place)
    assert "2 compiled calls, 0 eager" in f.explain(detail=True)


def test_a_write_to_memory_that_another_tensor_counts_is_left_to_eager():
    @trace
    def f(x, seen, same):
        y = x * seen
        same.add_(1.0)
        return y

    for _ in range(3):
        seen = lamina.zeros(3, dtype=lamina.float64)
        same = seen.data
        f(leaf(3), seen, same)
        assert (seen._version, same._version) == (0, 1) and seen.tolist() == [1.0, 1.0, 1.0]
    assert "another that shares its memory" in f.explain(detail=True)


def test_a_rule_that_reads_more_where_less_is_given():
    """Zeros then stand for what is missing: the rule reads what was saved for all cotangents."""

    def vjp(saved, cotangents, attrs, needs):
        (x, one), (to_one, to_two) = saved, cotangents
        if to_two is None:
            return (to_one * one,)
        return ((0.0 if to_one is None else to_one * exp(x)) + to_two * cos(x),)

    exp, cos = REGISTRY["exp"], REGISTRY["cos"]
    pair = Op(
        "pair", operands=("x",), attrs=(), outputs=("one", "two"), vjp=vjp, saves=("x", "one"),
        infer=lambda x: (x, x), reference=lambda x: (np.exp(x), np.sin(x)),
        lower=lowering.extern("a test's"), samples=list,
    )  # fmt: skip
    x = leaf(3)
    with Builder("f") as b:
        one, two = pair(b.param(x._meta, "x"))
        graph = b.finish([one * 1.0, two * 1.0])

    class Interpreted:  # the op is in no operator set
        def __init__(self, graph, **how):
            self.graph = graph

        def run(self, arrays, tensors=None):
            return interpret(self.graph, *arrays)

    ahead = differentiable(graph, [True], into=(None, None), compile_graph=Interpreted)
    for which, slope in ((0, x.exp()), (1, x.cos())):
        x.grad = None
        ahead.run([x])[which].sum().backward()
        close(x.grad, slope)
    gradients = ahead.stages[0].plan.op.vjp.__self__
    assert sorted(len(half.types) for half in gradients.halves.values()) == [1, 2]


def test_a_saved_buffer_that_the_forward_itself_writes_over():
    buffer = lamina.ones(3, dtype=lamina.float64)

    def late(x):
        y = x * buffer
        buffer.add_(1.0)
        return y

    x = leaf(3)
    for function in (late, Traced(late, x)):
        with pytest.raises(InplaceError, match="saved by      mul"):
            function(x).sum().backward()


def test_an_argument_written_in_the_forward_gets_its_history():
    def double(x):
        x.mul_(2.0)
        return x.sin()

    recorded = Traced(double, leaf(3) * 1.0)
    x = leaf(3)
    y = x.detach().clone().requires_grad_()
    for function, a in ((double, x), (recorded, y)):
        middle = a * 1.0
        (function(middle) * middle).sum().backward()
    close(y.grad, x.grad)


WRITES = {
    "add_": lambda y: y.add_(1.0),
    "mul_": lambda y: y.mul_(0.5),
    "div_": lambda y: y.div_(3.0),
    "pow_": lambda y: y.pow_(2),
    "sin_": lambda y: y.sin_(),
    "exp_": lambda y: y.exp_(),
    "clamp_": lambda y: y.clamp_(-0.1, 0.1),
    "lerp_": lambda y: y.lerp_(y + 1, 0.25),
    "addcmul_": lambda y: y.addcmul_(y + 1, y + 2, value=0.5),
}


@pytest.mark.parametrize("part", [False, True], ids=["all", "part"])
@pytest.mark.parametrize("name", WRITES)
def test_values_written_in_the_forward_that_gradients_look_at(name, part):
    """What a write in place saves of the value before it is no detached tensor of the user's."""
    lamina.manual_seed(3)
    layer = nn.Linear(4, 4, dtype=lamina.float64)

    def forward(x):
        y = layer(x).clone()
        WRITES[name](y[:, 1:] if part else y)
        return layer(y)

    traced = trace(forward)
    for _ in range(4):
        x = lamina.randn(3, 4, dtype=lamina.float64)
        found, wanted = traced(x), forward(x)
        close(found, wanted)
        pairs = [autograd.grad((y * y).sum(), [*layer.parameters()]) for y in (found, wanted)]
        for g, h in zip(*pairs, strict=True):
            close(g, h)
    assert "served" in str(traced.explain()).splitlines()[0] and "not served" not in str(traced.explain())


def test_a_leaf_written_without_history_is_refused():
    def clip(w):
        with lamina.no_grad():
            w.clamp_(-1.0, 1.0)
        return w * 2.0

    with pytest.raises(GradError, match="clip: a tensor that requires gradients is written without history"):
        Traced(clip, leaf(3))


def test_what_is_not_contiguous():
    (f, _), (g, _) = both(lambda x: (x @ x.transpose(0, 1)).sin(), (3, 4))
    one = leaf(4, 3)
    two = one.detach().clone().requires_grad_()
    for function, a in ((f, one), (g, two)):
        function(a.transpose(0, 1)).sum().backward()  # the cotangent has no strides at all
    close(two.grad, one.grad)


def test_what_is_made_of_weights_alone_is_kept_between_forwards():
    w = leaf(6, 5)

    def scaled(x):
        return x @ w.exp()

    recording = Recording(scaled, leaf(3, 6))
    ahead = differentiable(
        recording.graph, recording.needs, into=recording.into, frozen=frozenset({1}),
        compile_graph=compile_graph,
    )  # fmt: skip
    prologue = ahead.forward.compiled.prologue
    for runs in (1, 1, 2):
        if runs == 2:
            with lamina.no_grad():
                w.mul_(0.5)
        x = leaf(3, 6)
        (y,) = ahead.run([x, w])
        close(y, scaled(x))
        assert prologue.runs == runs
        found = autograd.grad(y.sum(), (x, w))
        for one, two in zip(found, autograd.grad(scaled(x).sum(), (x, w)), strict=True):
            close(one, two)


def test_concurrent_callers():
    f, (x, w) = both(mix, (64,), (64,))[0]
    g = Traced(mix, leaf(64), w)
    found, errors = {}, []

    def call(number):
        try:
            for _ in range(20):
                a = (x.detach() * number).requires_grad_()
                found[number] = autograd.grad(g(a, w).sum(), (a, w))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=call, args=(n,)) for n in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    for number, pair in found.items():
        a = (x.detach() * number).requires_grad_()
        for p, q in zip(autograd.grad(mix(a, w).sum(), (a, w)), pair, strict=True):
            close(q, p)


def eagerly(graph, leaves):
    """Run a graph by eager ops."""
    values = dict(zip(graph.params, leaves, strict=True))
    values |= {v: lamina.tensor(v.data.copy()) for v in graph.used() if isinstance(v, Constant)}
    for node in graph.nodes:
        values[node.outputs[0]] = run_general(
            node.op, tuple(values[v] for v in node.inputs), dict(node.attrs)
        )
    return [values[v] for v in graph.results]


@pytest.mark.sampled(3)
@given(graphs(size=10), st.integers(0, 2**32 - 1))
@settings(max_examples=40)
def test_random_graphs_to_second_order(graph, seed):
    rng = random.Random(seed)
    graph = graph.replace(results=dict.fromkeys(graph.results))  # one tensor twice is the caller's business
    needs = [rng.random() < 0.7 for _ in graph.params]
    ahead = differentiable(graph, needs, into=(None,) * len(graph.results), compile_graph=compile_graph)
    arrays = [np.random.uniform(-1, 1, p.shape) for p in graph.params]
    used = [rng.random() < 0.7 for _ in graph.results]
    second = rng.random() < 0.5
    found = []
    for function in (lambda leaves: eagerly(graph, leaves), ahead.run):
        leaves = [lamina.tensor(a.copy()).requires_grad_(n) for a, n in zip(arrays, needs, strict=True)]
        outputs = function(leaves)
        kept = [(y.sin() * y).sum() for y, use in zip(outputs, used, strict=True) if use and y.requires_grad]
        wanted = [x for x in (*leaves, *outputs) if x.requires_grad]
        results = [y.requires_grad for y in outputs]
        if kept:
            loss = sum(kept)
            gradients = autograd.grad(loss, wanted, create_graph=second, allow_unused=True)
            squares = [(g * g).sum() for g in gradients if second and g is not None and g.requires_grad]
            results += gradients
            if squares:
                results += autograd.grad(sum(squares), wanted, allow_unused=True)
        found.append((*outputs, *results))
    assert len(found[0]) == len(found[1])
    for one, two in zip(*found, strict=True):
        if isinstance(one, bool):
            assert one == two
        else:
            close(two, one)
