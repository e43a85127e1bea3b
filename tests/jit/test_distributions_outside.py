"""Distributions that were there before a traced function was called: what they hold is read, or kept."""

import pytest

import lamina
from lamina import distributions as D
from lamina import jit

ONES = lamina.ones(3)
MAKE = {
    "numbers": lambda: D.Normal(0.0, 1.0), "normal": lambda: D.Normal(ONES * 0, ONES),
    "independent": lambda: D.Independent(D.Normal(ONES * 0, ONES), 1),
    "multivariate": lambda: D.MultivariateNormal(ONES * 0, lamina.eye(3)),
    "bernoulli": lambda: D.Bernoulli(probs=ONES * 0.3), "uniform": lambda: D.Uniform(ONES - 6, ONES + 5),
    "categorical": lambda: D.Categorical(logits=lamina.arange(12.0).reshape(3, 4)),
    "dirichlet": lambda: D.Dirichlet(ONES), "gamma": lambda: D.Gamma(ONES, ONES * 2),
    "laplace": lambda: D.Laplace(ONES, ONES), "poisson": lambda: D.Poisson(ONES),
    "mixture": lambda: D.MixtureSameFamily(D.Categorical(ONES), D.Normal(lamina.arange(3.0), ONES)),
    "lowrank": lambda: D.LowRankMultivariateNormal(ONES * 0, lamina.ones(3, 1), ONES),
}  # fmt: skip
VALUES = {"categorical": lamina.tensor([1, 2, 0]), "bernoulli": lamina.tensor([1.0, 0.0, 1.0]),
          "dirichlet": lamina.tensor([0.2, 0.3, 0.5]), "poisson": lamina.tensor([1.0, 0.0, 2.0])}  # fmt: skip
ASKED = {
    "log_prob": lambda d, value, x: d.log_prob(value) * x,
    "sample": lambda d, value, x: d.sample() * x,
    "mean": lambda d, value, x: d.mean * x,
    "kl": lambda d, value, x: D.kl_divergence(d, d) * x,
}


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("name", MAKE)
def test_methods_of_distributions_outside_are_served(name, asked):
    if asked == "kl" and name in ("mixture",):
        with pytest.raises(NotImplementedError):
            ASKED[asked](MAKE[name](), None, 1.0)
        return
    value = VALUES.get(name, ONES * 2)
    there, other = MAKE[name](), MAKE[name]()
    traced = jit.trace(lambda x: ASKED[asked](there, value, x))
    results = []
    for ask in (lambda x: ASKED[asked](other, value, x), traced):
        lamina.manual_seed(0)
        results.append([ask(lamina.tensor(float(n))) for n in range(6)])
    for wanted, found in zip(*results, strict=True):
        assert wanted.allclose(found, equal_nan=True)
    assert traced.counts()["served"] >= 3, traced.explain()
    assert vars(there).keys() == vars(other).keys()  # what is computed once is kept


def test_another_distribution_and_other_parameters_count():
    prior = D.Normal(ONES * 0, ONES)
    scope = {"prior": prior}
    traced = jit.trace(lambda x: scope["prior"].log_prob(x).sum())
    for change in (None, None, None, "written", None, "replaced", None, "set", None, None):
        if change == "written":
            prior.loc.add_(1.0)
        elif change == "replaced":
            scope["prior"] = prior = D.Normal(ONES * 3, ONES * 2)
        elif change == "set":
            prior.scale = ONES * 4
        x = ONES * 0.5
        assert traced(x).allclose(scope["prior"].log_prob(x).sum())
    assert traced.counts()["served"] >= 3, traced.explain()


def test_gradients_reach_the_parameters():
    loc = lamina.zeros(3, requires_grad=True)
    prior = D.Normal(loc, ONES)
    traced = jit.trace(lambda x: prior.log_prob(x).sum())
    for n in range(5):
        (found,) = lamina.autograd.grad(traced(ONES * n), loc)
        assert found.allclose(ONES * n)
    assert traced.counts()["served"] >= 3, traced.explain()
