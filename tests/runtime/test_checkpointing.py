"""Checkpoints: the gradients and random numbers of plain calls, and what is refused."""

import pytest

import lamina
from lamina import nn
from lamina.utils.checkpoint import checkpoint, checkpoint_sequential


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
    assert gradients(lambda net, x: checkpoint_sequential(list(net), 1, x)) == plain
    assert gradients(lambda net, x: checkpoint(lambda x: net(x), x, preserve_rng_state=False))[1] != plain[1]


def test_nothing_of_the_forward_is_kept_and_it_runs_again_once():
    runs = []

    def part(pair, *, scale):
        runs.append(lamina.is_grad_enabled())
        return {"y": pair[0].exp() * scale, "n": pair[0].shape, "z": [pair[1] * 2]}

    x, w = lamina.ones(3, requires_grad=True), lamina.tensor(2.0, requires_grad=True)
    out = checkpoint(part, (x, lamina.ones(2)), scale=w)
    assert runs == [True] and out["n"] == (3,) and not out["z"][0].requires_grad
    found = lamina.autograd.grad(out["y"].sum(), (x, w))
    assert runs == [True, True]
    assert found[0].tolist() == pytest.approx([2 * 2.718281828] * 3) and found[1].item() == pytest.approx(
        8.154845
    )
    with lamina.no_grad():
        assert not checkpoint(part, (x, x), scale=w)["y"].requires_grad
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
        checkpoint(lamina.sin, x).sum().backward(create_graph=True)
    sizes = iter([3, 2])
    out = checkpoint(lambda x: x[: next(sizes)] * 2, x)
    with pytest.raises(RuntimeError, match=r"gave other outputs.*\n.*f32\[3\]\n.*f32\[2\]"):
        out.sum().backward()
    with pytest.warns(UserWarning, match="None of the inputs"):
        checkpoint(lamina.sin, lamina.ones(2), use_reentrant=True)


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
