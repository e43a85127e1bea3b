"""Modules called with other weights in traced functions: what is exchanged is put back, and compiled."""

import pytest

import lamina
import lamina.nn.functional as F
from lamina import autograd, jit, nn, optim
from lamina.func import functional_call, grad, vmap


def network(seed=0):
    lamina.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))


def maml():
    net = network()
    optimizer = optim.SGD(net.parameters(), lr=0.1)

    def step(x, y):
        params = dict(net.named_parameters())
        loss = F.mse_loss(functional_call(net, params, (x,)), y)
        grads = autograd.grad(loss, tuple(params.values()), create_graph=True)
        fast = {name: p - 0.1 * g for (name, p), g in zip(params.items(), grads)}
        outer = F.mse_loss(functional_call(net, fast, (x + 1,)), y)
        optimizer.zero_grad()
        outer.backward()
        optimizer.step()
        return outer.item()

    return step, net


def average():
    net = network()
    kept = {name: p.detach().clone() for name, p in net.state_dict().items()}

    def step(x, y):
        with lamina.no_grad():
            for name, p in net.named_parameters():
                kept[name].mul_(0.9).add_(p, alpha=0.1)
            return functional_call(net, kept, x).sum().item()

    return step, net


def samples():
    net = network()

    def step(x, y):
        params = {name: p.detach() for name, p in net.named_parameters()}

        def loss(params, x, y):
            return F.mse_loss(functional_call(net, params, (x.unsqueeze(0),)), y.unsqueeze(0))

        return vmap(grad(loss), in_dims=(None, 0, 0))(params, x, y)["0.weight"].norm().item()

    return step, net


def buffers():
    net = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))

    def step(x, y):
        given = {name: b.clone() for name, b in net.named_buffers()}
        out = functional_call(net, (dict(net.named_parameters()), given), (x,))
        return out.detach().sum().item() + given["1.running_mean"].sum().item()

    return step, net


def ties():
    net = network()

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.one = self.two = nn.Linear(4, 4)

        def forward(self, x):
            return self.two(self.one(x))

    net = Twice()

    def step(x, y):
        out = functional_call(net, {"one.weight": net.one.weight * 2}, (x,))
        apart = functional_call(net, {"one.weight": net.one.weight * 2}, (x,), tie_weights=False)
        return (out - apart.detach()).sum().item()

    return step, net


def counts():
    """A module that counts its calls."""

    class Counting(nn.Linear):
        calls = 0

        def forward(self, x):
            self.calls += 1
            return super().forward(x).detach() * self.calls

    net = Counting(4, 2)

    def step(x, y):
        return functional_call(net, {"weight": net.weight.detach() + 1}, (x,)).sum().item() + net.calls

    return step, net


KINDS = [maml, average, samples, buffers, ties, counts]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_other_weights_are_compiled(kind):
    told = []
    for trace in (lambda f: f, jit.trace):
        lamina.manual_seed(3)
        step, net = kind()
        members = {name: id(x) for name, x in (*net.named_parameters(), *net.named_buffers())}
        step, found = trace(step), []
        for _ in range(10):
            found.append(step(lamina.randn(5, 4), lamina.randn(5, 2)))
        assert members == {name: id(x) for name, x in (*net.named_parameters(), *net.named_buffers())}
        told.append((found, [x.tolist() for x in net.state_dict().values()], getattr(net, "calls", 0)))
    assert told[0][0] == pytest.approx(told[1][0], rel=1e-4, abs=1e-5) and told[0][2] == told[1][2]
    for a, b in zip(told[0][1], told[1][1], strict=True):
        assert lamina.allclose(lamina.tensor(a), lamina.tensor(b), atol=1e-5)
    assert step.counts()["served"] >= 5, step.explain()


def test_a_weight_that_is_replaced_between_calls_is_seen():
    net, x = network(), lamina.ones(1, 4)
    step = jit.trace(lambda x: functional_call(net, {"0.bias": net[0].bias * 0}, (x,)).detach())
    for _ in range(4):
        assert lamina.allclose(step(x), net[2](F.linear(x, net[0].weight).tanh()).detach())
    net[0].weight = nn.Parameter(net[0].weight.detach() * 3)
    for _ in range(3):
        assert lamina.allclose(step(x), net[2](F.linear(x, net[0].weight).tanh()).detach())


def test_a_call_that_raises_puts_the_weights_back():
    class Raising(nn.Linear):
        def forward(self, x):
            if x.shape[0] > 2:
                raise ValueError("too many")
            return super().forward(x)

    net = Raising(4, 2)
    weight = net.weight
    step = jit.trace(lambda x: functional_call(net, {"weight": net.weight.detach() * 2}, (x,)).sum().item())
    for _ in range(3):
        step(lamina.ones(2, 4))
    for _ in range(2):
        with pytest.raises(ValueError, match="too many"):
            step(lamina.ones(3, 4))
        assert net.weight is weight and dict(net.named_parameters())["weight"] is weight


def test_what_keeps_a_weight_keeps_the_one_that_was_given():
    class Keeping(nn.Linear):
        def forward(self, x):
            self.kept = self.weight
            return super().forward(x)

    told = []
    for trace in (lambda f: f, jit.trace):
        lamina.manual_seed(0)
        net = Keeping(4, 2)
        step = trace(
            lambda x, net=net: functional_call(net, {"weight": net.weight.detach() * 2}, (x,)).detach()
        )
        for _ in range(5):
            step(lamina.ones(2, 4))
        told.append((net.kept.tolist(), net.kept is net.weight))
    assert told[0] == told[1]
