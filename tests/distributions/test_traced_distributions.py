"""Steps with distributions compile from the third call on, their checks of values among them."""

import pytest

import lamina
from lamina import distributions as D
from lamina import jit, nn, optim
from lamina.ir.errors import ArgumentValueError


def check(make, *args, calls=6):
    """Traced and undecorated from the same seed: the same results, compiled from the third call on."""
    results = []
    for decorate in (lambda f: f, jit.trace):
        lamina.manual_seed(0)
        step = decorate(make())
        results.append([step(*args) for _ in range(calls)])
    for eager, traced in zip(*results, strict=True):
        # Both compute in float32; what is fused rounds otherwise, and Adam divides by small numbers.
        assert lamina.allclose(eager, traced, rtol=1e-4, atol=1e-5)
    counts = step.counts()
    assert counts["served"] >= calls - 3, step.explain()
    return step


@pytest.mark.slow
def test_vae():
    x = (lamina.rand(8, 12, generator=lamina.Generator().manual_seed(1)) > 0.5).float()

    def make():
        encoder, decoder = nn.Linear(12, 6), nn.Linear(3, 12)
        optimizer = optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=0.01)

        def step(x):
            optimizer.zero_grad()
            mean, width = encoder(x).chunk(2, -1)
            code = D.Independent(D.Normal(mean, nn.functional.softplus(width)), 1)
            prior = D.Independent(D.Normal(lamina.zeros_like(mean), lamina.ones_like(mean)), 1)
            shown = D.Bernoulli(logits=decoder(code.rsample()))
            loss = D.kl_divergence(code, prior).mean() - shown.log_prob(x).sum(-1).mean()
            loss.backward()
            optimizer.step()
            return loss

        return step

    check(make, x)


def test_ppo():
    generator = lamina.Generator().manual_seed(1)
    states = lamina.randn(16, 4, generator=generator)
    actions = lamina.randint(0, 3, (16,), generator=generator)
    gains = lamina.randn(16, generator=generator)

    def make():
        net = nn.Linear(4, 3)
        optimizer = optim.SGD(net.parameters(), lr=0.05)
        with lamina.no_grad():
            before = D.Categorical(logits=net(states)).log_prob(actions)

        def step(states, actions, gains):
            policy = D.Categorical(logits=net(states))
            ratio = (policy.log_prob(actions) - before).exp()
            clipped = ratio.clamp(0.8, 1.2)
            loss = -lamina.minimum(ratio * gains, clipped * gains).mean() - 0.01 * policy.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        return step

    step = check(make, states, actions, gains)
    with pytest.raises(ArgumentValueError, match="Categorical: Expected value argument .* to be within"):
        step(states, actions + 3, gains)


@pytest.mark.slow
def test_mixture():
    x = lamina.randn(32, generator=lamina.Generator().manual_seed(1))

    def make():
        weights = lamina.zeros(3, requires_grad=True)
        means = lamina.tensor([-1.0, 0.0, 1.0], requires_grad=True)
        optimizer = optim.Adam([weights, means], lr=0.01)

        def step(x):
            optimizer.zero_grad()
            mixture = D.MixtureSameFamily(D.Categorical(logits=weights), D.Normal(means, 0.5))
            loss = -mixture.log_prob(x).mean()
            loss.backward()
            optimizer.step()
            return loss

        return step

    check(make, x)


@pytest.mark.slow
def test_gamma_draws():
    def make():
        a = lamina.ones(3, requires_grad=True)

        def step():
            drawn = D.Gamma(a.exp(), 2.0).rsample((5,)).sum() + D.Beta(a.exp(), 2.0).rsample().sum()
            return lamina.autograd.grad(drawn, a)[0] + D.Poisson(a.detach() * 20).sample()

        return step

    check(make)


def test_a_parameter_is_refused_in_compiled_code():
    @jit.trace
    def step(loc, scale):
        return D.Normal(loc, scale).rsample()

    for _ in range(4):
        step(lamina.zeros(3), lamina.ones(3))
    assert step.counts()["served"]
    with pytest.raises(
        ArgumentValueError, match="Normal: Expected parameter scale to satisfy the constraint"
    ):
        step(lamina.zeros(3), -lamina.ones(3))
