"""Draws follow their distributions, from a seed, with the gradients of a fixed quantile."""

import numpy as np
import pytest

import lamina
from lamina import distributions as D
from lamina.ir.errors import ArgumentError, ArgumentValueError, DTypeError, MissingError
from lamina.ir.op import REGISTRY
from lamina.ir.ops import pathwise

N = 4000
# Kolmogorov's statistic of N draws stays below this but once in a million: sqrt(-ln(p / 2) / 2 / N).
FURTHEST = (7.25 / N) ** 0.5

CONTINUOUS = [
    D.Beta(0.5, 2.0), D.Cauchy(1.0, 2.0), D.Chi2(3.0), D.ContinuousBernoulli(0.2), D.Exponential(2.0),
    D.Gamma(0.3, 2.0), D.Gamma(7.0, 1.0), D.GeneralizedPareto(0.0, 1.0, 0.3), D.Gumbel(0.5, 2.0),
    D.HalfCauchy(2.0), D.HalfNormal(2.0), D.Kumaraswamy(2.0, 3.0), D.Laplace(0.5, 2.0), D.LogNormal(0.0, 0.5),
    D.Normal(1.0, 2.0), D.Pareto(1.0, 3.0), D.StudentT(5.0), D.Uniform(-1.0, 2.0), D.Weibull(1.0, 2.0),
    D.VonMises(0.5, 2.0), D.InverseGamma(4.0, 2.0), D.FisherSnedecor(5.0, 9.0),
    D.MixtureSameFamily(D.Categorical(lamina.tensor([0.3, 0.7])), D.Normal(lamina.tensor([-2.0, 1.0]), 0.5)),
]  # fmt: skip


def cumulated(distribution, x):
    """The distribution's own cdf, or the integral of its density from the left by trapezia."""
    try:
        return distribution.cdf(lamina.tensor(x)).numpy()
    except NotImplementedError:
        finite = np.clip(np.linspace(x.min() - 1.0, x.max(), 200_001), None, None)
        finite = finite[finite > 0] if not isinstance(distribution, (D.StudentT, D.VonMises)) else finite
        if isinstance(distribution, D.VonMises):
            finite = np.linspace(-np.pi, np.pi, 200_001)
        if isinstance(distribution, D.StudentT):
            finite = np.linspace(-200.0, x.max(), 2_000_001)
        if isinstance(distribution, D.Beta):
            finite = np.linspace(0, 1, 400_001)[1:-1]
        density = distribution.log_prob(lamina.tensor(finite)).exp().numpy()
        steps = np.diff(finite) * (density[1:] + density[:-1]) / 2
        return np.interp(x, finite, np.concatenate([[0.0], steps.cumsum()]))


@pytest.mark.parametrize("distribution", CONTINUOUS, ids=lambda d: type(d).__name__)
def test_continuous_draws_follow_their_density(distribution):
    lamina.manual_seed(3)
    x = np.sort(distribution.sample((N,)).double().numpy())
    assert len(x) == N and np.isfinite(x).all()
    expected = cumulated(distribution, x)
    # An integral of a density with a pole at 0 misses up to a hundredth (Beta of 0.5).
    slack = 0.01 if isinstance(distribution, (D.Beta, D.StudentT)) else 2e-3
    steps = np.arange(1, N + 1) / N
    assert max(abs(expected - steps).max(), abs(expected - steps + 1 / N).max()) < FURTHEST + slack


COUNTED = [
    D.Bernoulli(0.3), D.Binomial(5, 0.4), D.Binomial(100, 0.5), D.Binomial(1000, lamina.tensor(0.97)),
    D.Categorical(lamina.tensor([0.2, 0.5, 0.3])), D.Geometric(0.3), D.NegativeBinomial(3.0, 0.4),
    D.Poisson(0.5), D.Poisson(25.0), D.Poisson(9.5),
]  # fmt: skip


@pytest.mark.parametrize("distribution", COUNTED, ids=lambda d: type(d).__name__)
def test_counts_follow_their_probabilities(distribution):
    """Pearson's statistic, for counts that are expected ten times or more, is within six deviations."""
    lamina.manual_seed(4)
    drawn = distribution.sample((N,)).numpy().astype(int)
    found = np.bincount(drawn)
    values = lamina.arange(len(found)).float()
    expected = distribution.log_prob(values).exp().numpy() * N
    seen = expected >= 10
    statistic = ((found - expected)[seen] ** 2 / expected[seen]).sum()
    degrees = seen.sum() - 1
    assert statistic < degrees + 6 * (2 * degrees) ** 0.5 + 6


MATRICES = [
    D.Dirichlet(lamina.tensor([0.5, 2.0, 3.0])),
    D.MultivariateNormal(lamina.tensor([1.0, -1.0]), lamina.tensor([[2.0, 0.5], [0.5, 1.0]])),
    D.LowRankMultivariateNormal(lamina.zeros(2), lamina.tensor([[1.0], [0.5]]), lamina.ones(2)),
    D.Multinomial(5, lamina.tensor([0.2, 0.5, 0.3])),
    D.OneHotCategorical(lamina.tensor([0.2, 0.5, 0.3])),
    D.Wishart(lamina.tensor(6.0), lamina.tensor([[2.0, 0.5], [0.5, 1.0]])),
]


@pytest.mark.parametrize("distribution", MATRICES, ids=lambda d: type(d).__name__)
def test_moments_of_vectors(distribution):
    """Means within five of their standard errors; variances within a fifth, of draws of light tails."""
    lamina.manual_seed(5)
    x = distribution.sample((N,)).numpy()
    error = distribution.stddev.numpy() / N**0.5
    assert (abs(x.mean(0) - distribution.mean.numpy()) <= 5 * error + 1e-6).all()
    np.testing.assert_allclose(x.var(0), distribution.variance.numpy(), 0.2)


def test_correlations_are_correlations():
    lamina.manual_seed(6)
    factor = D.LKJCholesky(4, 2.0).sample((N,)).double()
    matrix = (factor @ factor.mT).numpy()
    np.testing.assert_allclose(matrix.diagonal(axis1=1, axis2=2), 1.0, atol=1e-6)
    # An element of a 4 x 4 matrix of concentration 2 is 2 Beta(3, 3) - 1 (Lewandowski et al. 2009).
    assert abs(matrix[:, 0, 1].var() - 1 / 7) < 0.02 and abs(matrix[:, 2, 3].var() - 1 / 7) < 0.02


def test_a_seed_gives_the_same_draws_and_an_element_its_own():
    a = lamina.tensor([0.1, 1.0, 5.0])
    for name in ("random_gamma", "random_poisson", "random_von_mises", "random_dirichlet"):
        state = np.array([7, 11])
        first = REGISTRY[name].reference(a.numpy(), state)
        assert (first == REGISTRY[name].reference(a.numpy(), state)).all()
        if name != "random_dirichlet":  # whatever the others are
            other = REGISTRY[name].reference(np.array([0.1, 30.0, 5.0], np.float32), state)
            assert (first[[0, 2]] == other[[0, 2]]).all()
    lamina.manual_seed(1)
    x, y = lamina._standard_gamma(a), lamina._standard_gamma(a)
    lamina.manual_seed(1)
    assert (lamina._standard_gamma(a) == x).all() and (x != y).all()


def test_gradients_of_draws():
    """Of exponential draws in closed form; of others as the slope of the mean, which is linear in a."""
    lamina.manual_seed(2)
    a = lamina.ones(1000, dtype=lamina.float64, requires_grad=True)
    x = lamina._standard_gamma(a)
    (slope,) = lamina.autograd.grad(x.sum(), a)
    b = lamina.tensor(2.5, dtype=lamina.float64, requires_grad=True)
    mean = D.Gamma(b, 2.0).rsample((N,)).mean()
    assert abs(lamina.autograd.grad(mean, b)[0].item() - 0.5) < 0.02
    mean = D.Beta(b, 2.0).rsample((N,)).mean()  # b / (b + 2)
    assert abs(lamina.autograd.grad(mean, b)[0].item() - 2 / 4.5**2) < 0.005
    # d/da of the mean of x, a, is 1; its standard error over 1000 draws is about 0.02.
    assert abs(slope.mean().item() - 1) < 0.1


def test_fills():
    lamina.manual_seed(1)
    x = lamina.empty(N).cauchy_(1.0, 2.0)
    assert abs(x.median().item() - 1.0) < 0.3
    x = lamina.empty(N, dtype=lamina.int64).geometric_(0.25)
    assert x.min() == 1 and abs(x.float().mean().item() - 4.0) < 0.3
    assert lamina.binomial(lamina.tensor([0.0, 3.0]), lamina.tensor([0.5, 1.0])).tolist() == [0.0, 3.0]


@pytest.mark.parametrize(
    "call,error",
    [
        (lambda: lamina.poisson(lamina.tensor([-1.0])), ArgumentValueError),
        (lambda: lamina.poisson(lamina.tensor([1])), DTypeError),
        (lambda: lamina.poisson(None), ArgumentError),
        (lambda: lamina.binomial(lamina.tensor([3.0]), lamina.tensor([1.5])), ArgumentValueError),
        (lambda: lamina.binomial(lamina.tensor([3.0]), 0.5), ArgumentError),
        (lambda: lamina.empty(2).cauchy_(0.0, 0.0), ArgumentValueError),
        (lambda: lamina.empty(2).geometric_(1.0), ArgumentValueError),
        (lambda: D.Normal(None, 1.0), ArgumentValueError),
        (lambda: D.Normal(0.0, 1.0).sample(3), ArgumentError),
        (lambda: D.Normal(0.0, 1.0).sample((-1,)), ArgumentValueError),
        (lambda: D.Independent(None, 1), ArgumentError),
        (lambda: D.TransformedDistribution(D.Normal(0.0, 1.0), "exp"), ArgumentValueError),
        (lambda: D.Cauchy(0.0, 1.0).enumerate_support(), MissingError),
        (lambda: D.register_kl(1, float), ArgumentError),
        (lambda: D.ComposeTransform([1]), ArgumentError),
    ],
)
def test_refusals(call, error):
    with pytest.raises(error):
        call()


def test_validation_can_be_left_out():
    assert D.Normal(0.0, -1.0, validate_args=False).scale == -1.0
    D.Distribution.set_default_validate_args(False)
    try:
        D.Normal(0.0, -1.0)
    finally:
        D.Distribution.set_default_validate_args(True)


def test_a_subclass_of_the_users():
    class Twice(D.Distribution):
        arg_constraints = {}
        support = D.constraints.real

        def __init__(self):
            super().__init__(lamina.Size((2,)), validate_args=False)

        def rsample(self, sample_shape=()):
            return lamina.full(self._extended_shape(sample_shape), 2.0)

    @D.register_kl(Twice, Twice)
    def none(p, q):
        return lamina.zeros(p.batch_shape)

    assert Twice().sample((3,)).shape == (3, 2)
    assert D.kl_divergence(Twice(), Twice()).tolist() == [0.0, 0.0]
    assert repr(Twice()) == "Twice()"


SMALL = [
    (0.339, 0.01, 0.01),
    (0.01, 0.01, 1.0),
    (0.9858, 0.147, 0.0018),
    (0.9, 2.4, 0.0012),
    (5e-4, 0.002, 3.0),
]


def test_gradients_of_draws_of_small_betas():
    """By the integral from 0 to the draw as by that from it to 1, which the side chosen is one of."""
    x, a, b = (np.array(v) for v in zip(*SMALL))
    with np.errstate(all="ignore"):
        below, above = pathwise._beta_below(x, a, b), pathwise._beta_above(x, a, b)
    np.testing.assert_allclose(below, above, 1e-11)  # 94 terms of 1e-16 each, some larger than the sum


@pytest.mark.parametrize("dtype", [lamina.float32, lamina.float64])
def test_draws_of_small_concentrations_are_off_the_ends(dtype):
    small = lamina.tensor(1e-3, dtype=dtype)
    drawn = D.Beta(small, small).sample((2000,))
    assert bool(((drawn > 0) & (drawn < 1)).all()) and bool(((drawn < 0.1) | (drawn > 0.9)).any())
    assert bool(D.Beta(small, small).log_prob(drawn).isfinite().all())
    drawn = D.Dirichlet(small.expand(3)).sample((2000,))
    assert bool((drawn > 0).all())


def test_what_normal_draws_does_not_follow_its_mean():
    mean, std = lamina.ones(3, requires_grad=True), lamina.ones(3, requires_grad=True)
    for drawn in (lamina.normal(mean, std), lamina.normal(mean, 2.0), lamina.normal(0.5, std)):
        assert drawn.requires_grad
        (drawn + mean + std).sum().backward()
    assert mean.grad.tolist() == std.grad.tolist() == [3, 3, 3]

    @lamina.jit.trace
    def step(mean):
        drawn = lamina.normal(mean, 1.0)
        lamina.autograd.backward(-((drawn.detach() - mean) * drawn).sum())
        return drawn, mean.grad

    for _ in range(3):
        mean = lamina.ones(3, requires_grad=True)
        drawn, gradient = step(mean)
        assert gradient.tolist() == drawn.tolist()


def test_extreme_odds_of_a_continuous_bernoulli():
    odds = lamina.tensor([-1e2, 1e2, 1e38], requires_grad=True)
    found = D.ContinuousBernoulli(logits=odds).log_prob(lamina.tensor([0.0, 1.0, 1.0]))
    assert bool(found.isfinite().all())
    found.sum().backward()
    assert bool(odds.grad.isfinite().all())


def test_numbers_as_arguments():
    assert D.Gamma(2.0, 1.0).log_prob(1).item() == D.Gamma(2.0, 1.0).log_prob(lamina.tensor(1.0)).item() == -1
    assert D.Wishart(lamina.tensor(3), lamina.eye(2)).sample().shape == (2, 2)


def test_what_is_computed_later_has_a_history():
    scale = lamina.eye(2).requires_grad_()
    made = D.MultivariateNormal(lamina.zeros(2), scale)
    with lamina.no_grad():
        assert made.scale_tril.requires_grad


def test_a_divergence_of_classes_that_do_not_derive():
    class Alike:
        """A library's base of distributions, which stands beside Lamina's."""

    class Own(Alike, D.Normal):
        pass

    @D.register_kl(Alike, D.Normal)
    def divergence(p, q):
        return lamina.full((), 7.0)

    assert D.kl_divergence(Own(0.0, 1.0), D.Normal(1.0, 2.0)).item() == 7.0


def test_wishart_draws_under_pytorchs_name_of_one():
    wishart = D.Wishart(lamina.tensor(6.0), lamina.tensor([[2.0, 0.5], [0.5, 1.0]]))
    lamina.manual_seed(3)
    one = wishart._bartlett_sampling(lamina.Size([4]))
    lamina.manual_seed(3)
    assert one.shape == (4, 2, 2) and lamina.equal(one, wishart.rsample((4,)))
