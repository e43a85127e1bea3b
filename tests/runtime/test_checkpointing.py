"""Checkpoints: the gradients and random numbers of plain calls, and what is refused."""

import pytest

import lamina
from lamina import nn
from lamina.utils.checkpoint import (
    CheckpointError,
    checkpoint,
    checkpoint_sequential,
    set_checkpoint_early_stop,
)


def gradients(call, **more):
    lamina.manual_seed(3)
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Dropout(0.5), nn.Linear(4, 3))
    x = lamina.randn(6, 4, requires_grad=True)
    scaled = x * 2
    loss = (call(net, scaled) ** 2).sum() + scaled.sum()
    drawn = lamina.rand(2).tolist()
    loss.backward()
    return (
        loss.tolist(),
        x.grad.tolist(),
        [p.grad.tolist() for p in net.parameters()],
        drawn,
        lamina.rand(2).tolist(),
    )


@pytest.mark.parametrize("reentrant", [False, True])
def test_gradients_and_random_numbers_are_those_of_a_plain_call(reentrant):
    plain = gradients(lambda net, x: net(x))
    assert gradients(lambda net, x: checkpoint(net, x, use_reentrant=reentrant)) == plain
    assert gradients(lambda net, x: checkpoint_sequential(net, 2, x, use_reentrant=reentrant)) == plain
    assert gradients(lambda net, x: checkpoint_sequential(list(net), 1, x, use_reentrant=reentrant)) == plain
    drawn_anew = gradients(lambda net, x: checkpoint(
        lambda x: net(x), x, preserve_rng_state=False, use_reentrant=reentrant))  # fmt: skip
    assert drawn_anew[1] != plain[1]


@pytest.mark.parametrize("reentrant", [False, True])
def test_nothing_of_the_forward_is_kept_and_it_runs_again_once(reentrant):
    runs = []

    def part(pair, *, scale):
        runs.append(lamina.is_grad_enabled())
        return {"y": pair[0].exp() * scale, "n": pair[0].shape, "z": [pair[1] * 2]}

    x, w = lamina.ones(3, requires_grad=True), lamina.tensor(2.0, requires_grad=True)

    def call(part, pair):
        if reentrant:  # which takes no keyword arguments
            return checkpoint(lambda pair: part(pair, scale=w), pair, use_reentrant=True)
        return checkpoint(part, pair, scale=w, use_reentrant=False)

    out = call(part, (x, lamina.ones(2)))
    assert runs == [True] and out["n"] == (3,) and not out["z"][0].requires_grad
    found = lamina.autograd.grad(out["y"].sum(), (x, w))
    assert runs == [True, True]
    assert found[0].tolist() == pytest.approx([2 * 2.718281828] * 3) and found[1].item() == pytest.approx(
        8.154845
    )
    with lamina.no_grad():
        assert not call(part, (x, x))["y"].requires_grad
    assert len(runs) == 3


def test_mixed_precision_and_contexts_are_those_of_the_forward():
    seen = []

    class Seeing:
        def __init__(self, name):
            self.name = name

        def __enter__(self):
            seen.append(self.name)

        def __exit__(self, *_):
            pass

    def product(x):
        seen.append((x @ x).dtype)
        return (x @ x).sum()

    x = lamina.ones(2, 2, requires_grad=True)
    with lamina.autocast("cpu"):
        y = checkpoint(
            product, x, use_reentrant=False, context_fn=lambda: (Seeing("first"), Seeing("second"))
        )
    y.backward()
    assert seen == ["first", lamina.bfloat16, "second", lamina.bfloat16]
    assert x.grad.tolist() == [[4.0, 4.0], [4.0, 4.0]]


def test_refusals_of_checkpoints():
    x = lamina.ones(3, requires_grad=True)
    with pytest.raises(ValueError, match="a function is needed, not int"):
        checkpoint(3, x)
    with pytest.raises(ValueError, match="2 functions can't be cut into 3 segments"):
        checkpoint_sequential([lamina.sin, lamina.cos], 3, x)
    with pytest.raises(RuntimeError, match="a gradient of its gradient is not supported"):
        checkpoint(lamina.sin, x, use_reentrant=True).sum().backward(create_graph=True)
    sizes = iter([3, 2])
    out = checkpoint(lambda x: x[: next(sizes)] * 2, x, use_reentrant=True)
    with pytest.raises(RuntimeError, match=r"gave other outputs.*\n.*f32\[3\]\n.*f32\[2\]"):
        out.sum().backward()
    with pytest.warns(UserWarning, match="None of the inputs"):
        checkpoint(lamina.sin, lamina.ones(2), use_reentrant=True)


def test_what_differs_the_second_time_is_told():
    def changing(*functions):
        left = list(functions)
        x = lamina.ones(3, requires_grad=True)
        return checkpoint(lambda x: left.pop(0)(x), x, use_reentrant=False, debug=True).sum().backward

    with pytest.raises(CheckpointError, match=r"different number of tensors.*\n  first: 2\n  again: 1"):
        changing(lambda x: x.sin().exp(), lambda x: x.sin())()
    with pytest.raises(
        CheckpointError, match=r"different metadata.*\n  tensor 1: f32\[3\], then f32\[2\](.|\n)*debug"
    ):
        changing(lambda x: x.sin().sin(), lambda x: x.sin()[:2].sin())()
    changing(lambda x: x.sin(), lambda x: x.sin().exp())()  # it stops before
    with (
        set_checkpoint_early_stop(False),
        pytest.raises(CheckpointError, match="trying to save more tensors"),
    ):
        changing(lambda x: x.sin(), lambda x: x.sin().exp())()
    x = lamina.ones(3, requires_grad=True) * 1
    y = checkpoint(lamina.sin, x, use_reentrant=False)
    x.add_(1)
    with pytest.raises(lamina.InplaceError, match="an argument was changed in place"):
        y.sum().backward()
    with pytest.warns(UserWarning, match="use_reentrant parameter should be passed explicitly"):
        checkpoint(lamina.sin, x)


def test_gradients_of_every_order_go_through_checkpoints_in_checkpoints():
    def part(x):
        (g,) = lamina.autograd.grad((x.sin() * x).sum(), x, create_graph=True)
        return g.exp()

    def within(f):
        return lambda x: checkpoint(f, x, use_reentrant=False)

    found = []
    for f in (part, within(part), within(within(part))):
        x = lamina.tensor([0.5, 1.5], requires_grad=True)
        (g,) = lamina.autograd.grad(f(x).sum(), x, create_graph=True)
        (h,) = lamina.autograd.grad(g.sum(), x)
        found.append((g.tolist(), h.tolist()))
    assert found[0] == found[1] == found[2]


def test_a_traced_step_with_a_checkpoint_is_served():
    def steps(wrap):
        lamina.manual_seed(0)
        net, x = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)), lamina.randn(5, 4)
        optimizer = lamina.optim.SGD(net.parameters(), lr=0.1)

        @wrap
        def step(x):
            optimizer.zero_grad()
            loss = checkpoint(net, x, use_reentrant=False).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        return [step(x).item() for _ in range(6)]

    plain, traced = steps(lambda f: f), steps(lamina.jit.trace)
    assert max(abs(a - b) for a, b in zip(plain, traced, strict=True)) < 1e-6  # a few roundings of about 1
