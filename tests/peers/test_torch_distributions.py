"""Distributions against PyTorch's: families, transforms, constraints, divergences, and their gradients."""

import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is the peer here: pip install lamina[peers]")

from distribution_cases import CASES, EACH, arguments  # noqa: E402
from torch import distributions as theirs  # noqa: E402

import lamina  # noqa: E402
from lamina import distributions as mine  # noqa: E402

# Where PyTorch differs on purpose of ours, by (family, number of the case, what).
DIFFERENT = {
    ("GeneralizedPareto", 1, "log_prob gradient 2"): "at a concentration of 0 the slope is not 0",
    ("Kumaraswamy", 1, "mode"): "PyTorch's takes the logarithm of 1 - concentration, which is negative",
    ("Wishart", 1, "log_prob gradient 1"): "PyTorch's reads the upper triangle of a lower one",
}
# Pairs whose divergence PyTorch has otherwise; ours agrees with the mean of log p - log q over draws.
DIVERGENT = {
    ("Uniform", "ContinuousBernoulli"): "PyTorch's is infinite where the uniform one touches 0 or 1",
    ("Wishart", "Wishart"): "PyTorch's sums the term of the degrees of freedom over the batch",
}
# Relative differences.  Both compute in float64; 1e-8 leaves room for sums that cancel (Wishart's variance of
# log-determinants).  PyTorch's von Mises takes polynomials of 7 digits (Abramowitz and Stegun 9.8) for Bessel
# functions, and the difference of two of them for the variance.
RTOL = {"VonMises": 5e-4}


@pytest.fixture(autouse=True)
def float64():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    lamina.set_default_dtype(lamina.float64)
    yield
    torch.set_default_dtype(before)
    lamina.set_default_dtype(lamina.float32)


def outcome(ask):
    """What a question is answered with: an array, or the name of a refusal."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = ask()
        except NotImplementedError:
            return "not implemented"
        except RuntimeError as error:
            if "grad" in str(error):
                return "no gradient"
            raise
    return [
        None if x is None else x.detach().numpy() for x in (found if isinstance(found, list) else [found])
    ]


def gradients(module, name, number, what, value):
    """The gradients of log_prob, or of a property, by parameters and value."""
    given = arguments(module, name, number, requires_grad=True)
    made = getattr(module.distributions, name)(**given)
    leaves = [x for x in given.values() if not isinstance(x, (int, float))]
    if what == "log_prob":
        value = value.detach().clone()
        if value.is_floating_point():
            leaves.append(value.requires_grad_())
        found = made.log_prob(value)
    else:
        found = getattr(made, what)
        found = found() if callable(found) else found
    found.sum().backward()
    return [module.zeros(tuple(x.shape)) if x.grad is None else x.grad for x in leaves]


def questions(module, name, number, value, probability):
    made = getattr(module.distributions, name)(**arguments(module, name, number))
    sizes = tuple(made.batch_shape)
    yield from (
        (what, lambda what=what: getattr(made, what)) for what in ("mean", "mode", "variance", "stddev")
    )
    yield from (
        (what, lambda what=what: getattr(made, what)())
        for what in ("entropy", "perplexity", "enumerate_support")
    )
    yield "enumerated", lambda: made.enumerate_support(expand=False)
    yield from ((what, lambda what=what: getattr(made, what)(value)) for what in ("log_prob", "cdf"))
    yield "icdf", lambda: made.icdf(probability)
    yield "support", lambda: made.support.check(value)
    yield "outside", lambda: made.support.check(value - 0.7)
    yield "expanded", lambda: made.expand((2, *sizes)).log_prob(value[:2])
    yield "sample", lambda: made.sample((3, 2)) * 0
    yield "rsample", lambda: made.rsample((2,)) * 0
    for what in ("log_prob", "entropy", "mean", "variance"):
        yield f"{what} gradient", lambda what=what: gradients(module, name, number, what, value)


@pytest.mark.parametrize("name,number", EACH)
def test_family(name, number):
    other = getattr(theirs, name)(**arguments(torch, name, number))
    own = getattr(mine, name)(**arguments(lamina, name, number))
    for what in ("batch_shape", "event_shape", "has_rsample", "has_enumerate_support"):
        assert getattr(own, what) == getattr(other, what), what
    assert repr(own).replace("lamina.Size", "torch.Size") == repr(other)
    torch.manual_seed(number)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Singular sample")  # PyTorch's Wishart
        value = other.sample((6,))
    probability = torch.rand(tuple(value.shape))
    ours = questions(lamina, name, number, lamina.tensor(value.numpy()), lamina.tensor(probability.numpy()))
    for (what, mine_), (_, theirs_) in zip(
        ours, questions(torch, name, number, value, probability), strict=True
    ):
        a, b = outcome(mine_), outcome(theirs_)
        if isinstance(a, str) or isinstance(b, str):
            assert a == b, what
            continue
        for place, (x, y) in enumerate(zip(a, b, strict=True)):
            spoken = f"{what} {place}" if "gradient" in what else what
            assert x.shape == y.shape, spoken
            if (name, number, spoken) in DIFFERENT:
                assert not np.allclose(x, y, equal_nan=True), "no longer different"
                continue
            rtol = RTOL.get(name, 1e-8)
            np.testing.assert_allclose(x.astype(float), y.astype(float), rtol, 1e-10, err_msg=spoken)


def pairs():
    for first in CASES:
        for second in CASES:
            if theirs.kl._dispatch_kl(getattr(theirs, first), getattr(theirs, second)) is not NotImplemented:
                yield first, second


def divergence(module, names, numbers):
    given = [arguments(module, n, k, requires_grad=True) for n, k in zip(names, numbers, strict=True)]
    p, q = (getattr(module.distributions, n)(**a) for n, a in zip(names, given, strict=True))
    found = module.distributions.kl_divergence(p, q)
    leaves = [x for a in given for x in a.values() if not isinstance(x, (int, float))]
    if found.requires_grad and np.isfinite(found.detach().numpy()).all():
        found.sum().backward()
    return [found, *(module.zeros(tuple(x.shape)) if x.grad is None else x.grad for x in leaves)]


def test_the_same_pairs_have_a_divergence():
    named = [
        {(p.__name__, q.__name__) for p, q in each.kl._KL_REGISTRY if p.__module__.startswith(each.__name__)}
        for each in (mine, theirs)
    ]  # other tests register theirs
    assert named[0] == named[1]


@pytest.mark.parametrize("names", [*pairs()], ids="-".join)
def test_divergence(names):
    """Of two with one batch shape: PyTorch's infinities have the shape of p alone."""
    if names in DIVERGENT:
        check_by_draws(*names)
        return
    shapes = [
        [tuple(getattr(theirs, n)(**arguments(torch, n, k)).batch_shape) for k in range(len(CASES[n]))]
        for n in names
    ]
    for i, first in enumerate(shapes[0]):
        for j, second in enumerate(shapes[1]):
            if len(first) < len(second) or (first != second and second):
                continue
            a = outcome_of_pair(lamina, names, (i, j))
            b = outcome_of_pair(torch, names, (i, j))
            if isinstance(a, str) or isinstance(b, str):
                assert a == b
                continue
            for x, y in zip(a, b, strict=True):
                assert x.shape == y.shape
                np.testing.assert_allclose(x, y, 1e-8, 1e-9)


def check_by_draws(first, second):
    """Against the mean of log p - log q over 20,000 draws, to five of its standard errors."""
    numbers = (1, 2) if first == "Wishart" else (1, 0)
    given = [arguments(lamina, n, k) for n, k in zip((first, second), numbers, strict=True)]
    if first == "Uniform":
        given[0] = {"low": lamina.tensor([0.0, 0.2]), "high": lamina.tensor([0.5, 1.0])}
    p, q = (getattr(mine, n)(**a) for n, a in zip((first, second), given, strict=True))
    lamina.manual_seed(0)
    x = p.sample((20_000,))
    terms = (p.log_prob(x) - q.log_prob(x)).detach().numpy()
    error = terms.std(0) / 20_000**0.5
    assert (abs(mine.kl_divergence(p, q).detach().numpy() - terms.mean(0)) <= 5 * error).all()


def outcome_of_pair(module, names, numbers):
    try:
        return outcome(lambda: divergence(module, names, numbers))
    except (RuntimeError, ValueError):  # event shapes that differ
        return "error"


# ---- transforms
def _affine(D):
    return D.AffineTransform(2.0, 3.0)


VECTOR, MATRIX = [0.3, -1.2, 0.8], [[0.3, -1.2], [0.7, 0.4]]
TRANSFORMS = {
    "abs": (lambda D, t: D.AbsTransform(), VECTOR),
    "affine": (lambda D, t: D.AffineTransform(1.5, t([2.0, -0.5, 1.0])), VECTOR),
    "affine number": (lambda D, t: D.AffineTransform(1.5, -2.0, event_dim=1), VECTOR),
    "cat": (lambda D, t: D.CatTransform([D.ExpTransform(), D.TanhTransform()], lengths=[1, 2]), VECTOR),
    "compose": (lambda D, t: D.ComposeTransform([D.TanhTransform(), _affine(D), D.ExpTransform()]), VECTOR),
    "vectors": (lambda D, t: D.ComposeTransform([_affine(D), D.StickBreakingTransform()]), VECTOR),
    "correlations": (lambda D, t: D.CorrCholeskyTransform(), VECTOR),
    "cumulative": (lambda D, t: D.CumulativeDistributionTransform(D.Normal(0.5, 2.0)), VECTOR),
    "exp": (lambda D, t: D.ExpTransform(), VECTOR),
    "identity": (lambda D, t: D.identity_transform, VECTOR),
    "independent": (lambda D, t: D.IndependentTransform(D.ExpTransform(), 1), VECTOR),
    "inverse": (lambda D, t: D.ComposeTransform([D.SigmoidTransform(), _affine(D)]).inv, [2.2, 3.7, 4.8]),
    "lower": (lambda D, t: D.LowerCholeskyTransform(), MATRIX),
    "positive definite": (lambda D, t: D.PositiveDefiniteTransform(), MATRIX),
    "power": (lambda D, t: D.PowerTransform(t([2.0, -0.5, 1.0])), [0.3, 1.2, 0.8]),
    "reshape": (lambda D, t: D.ReshapeTransform((4,), (2, 2)), [0.3, -1.2, 0.8, 2.0]),
    "sigmoid": (lambda D, t: D.SigmoidTransform(), VECTOR),
    "softmax": (lambda D, t: D.SoftmaxTransform(), VECTOR),
    "softplus": (lambda D, t: D.SoftplusTransform(), VECTOR),
    "stack": (lambda D, t: D.StackTransform([D.ExpTransform(), D.TanhTransform()], dim=0), MATRIX),
    "stick": (lambda D, t: D.StickBreakingTransform(), VECTOR),
    "tanh": (lambda D, t: D.TanhTransform(), VECTOR),
}  # fmt: skip


def transformed(module, name):
    make, value = TRANSFORMS[name]
    transform = make(module.distributions, module.tensor)
    x = module.tensor(value).requires_grad_()
    y = transform(x)
    yield "image", lambda: y
    yield "origin", lambda: transform.inv(y)
    yield "volume", lambda: transform.log_abs_det_jacobian(x, y)
    yield "gradient", lambda: [module.autograd.grad(y.square().sum(), x, retain_graph=True)[0]]
    yield (
        "volume's gradient",
        lambda: [module.autograd.grad(transform.log_abs_det_jacobian(x, y).sum(), x, retain_graph=True)[0]],
    )
    yield "sign", lambda: module.tensor(1.0) * transform.sign
    yield (
        "shapes",
        lambda: module.tensor([*transform.forward_shape((5, *x.shape)), transform.domain.event_dim]),
    )
    yield "back", lambda: module.tensor([*transform.inverse_shape(y.shape), transform.codomain.event_dim])
    yield "bijective", lambda: module.tensor(transform.bijective)
    yield "in the domain", lambda: transform.domain.check(x)
    yield "in the codomain", lambda: transform.codomain.check(y)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transform(name):
    for (what, a), (_, b) in zip(transformed(lamina, name), transformed(torch, name), strict=True):
        x, y = outcome(a), outcome(b)
        if isinstance(x, str) or isinstance(y, str):
            assert x == y, what
        else:
            assert x[0].shape == y[0].shape, what
            np.testing.assert_allclose(x[0], y[0], 1e-9, 1e-12, err_msg=what)


def test_transform_repr():
    for name, (make, _) in TRANSFORMS.items():
        assert repr(make(mine, lamina.tensor)) == repr(make(theirs, torch.tensor)), name


CONSTRAINED = {
    "real": "real", "positive": "positive", "unit": "unit_interval", "interval": ("interval", 1.0, 3.0),
    "half open": ("half_open_interval", 0.0, 2.0), "less": ("less_than", 2.0),
    "greater": ("greater_than", 1.0),
    "greater or equal": ("greater_than_eq", 1.0), "simplex": "simplex", "vectors": "real_vector",
    "correlations": "corr_cholesky", "lower": "lower_cholesky", "definite": "positive_definite",
    "semidefinite": "positive_semidefinite",
}  # fmt: skip


@pytest.mark.parametrize("registry", ["biject_to", "transform_to"])
@pytest.mark.parametrize("name", CONSTRAINED)
def test_registry(registry, name):
    def ask(module):
        kind, *given = CONSTRAINED[name] if isinstance(CONSTRAINED[name], tuple) else (CONSTRAINED[name],)
        constraint = getattr(module.distributions.constraints, kind)
        constraint = constraint(*given) if given else constraint
        x = module.tensor(MATRIX if name in ("lower", "definite", "semidefinite") else VECTOR)
        y = getattr(module.distributions, registry)(constraint)(x)
        assert constraint.check(y).all()
        return y

    a, b = outcome(lambda: ask(lamina)), outcome(lambda: ask(torch))
    assert (a == b) if isinstance(b, str) else np.allclose(a[0], b[0], rtol=1e-12)


def test_constraints_check_and_print_alike():
    values = [-1.5, -1.0, 0.0, 0.25, 1.0, 2.0, 2.5, float("inf"), float("nan")]
    rows = [[0.2, 0.8], [1.0, 0.0], [0.5, 0.6], [-1.0, 2.0], [2.0, 1.0]]
    squares = [
        [[1.0, 0.0], [0.6, 0.8]], [[1.0, 0.5], [0.5, 1.0]], [[1.0, 2.0], [2.0, 1.0]],
        [[0.0, 0.0], [1.0, 2.0]],
        [[1.0, 0.0], [1.0, 1.0]], [[-1.0, 0.0], [0.0, 3.0]],
    ]  # fmt: skip
    single = [
        "boolean", "nonnegative", "nonnegative_integer", "positive", "positive_integer", "real",
        "unit_interval",
        ("integer_interval", 0, 2), ("interval", -1, 1), ("half_open_interval", -1, 1), ("less_than", 1),
        ("greater_than", 1), ("greater_than_eq", 1),
    ]  # fmt: skip
    asked = [(each, values) for each in single]
    asked += [(each, rows) for each in ("one_hot", "simplex", "real_vector", ("multinomial", 3))]
    asked += [
        (each, squares)
        for each in (
            "corr_cholesky", "lower_cholesky", "lower_triangular", "positive_definite",
            "positive_semidefinite",
            "square", "symmetric",
        )
    ]  # fmt: skip
    for each, value in asked:
        kind, *given = each if isinstance(each, tuple) else (each,)
        made = [getattr(d.constraints, kind) for d in (mine, theirs)]
        made = [m(*given) if given else m for m in made]
        assert repr(made[0]) == repr(made[1])
        assert (made[0].event_dim, made[0].is_discrete) == (made[1].event_dim, made[1].is_discrete)
        for one in value:  # alone: of a batch with one that isn't symmetric PyTorch looks no further
            ours, peers = made[0].check(lamina.tensor(one)), made[1].check(torch.tensor(one))
            assert ours.tolist() == peers.tolist(), (each, one)


def test_names():
    assert set(theirs.__all__) <= set(mine.__all__)
    assert set(theirs.constraints.__all__) <= set(mine.constraints.__all__)
    assert set(theirs.transforms.__all__) <= set(mine.transforms.__all__)


def test_pathwise_gradients():
    """PyTorch's are rational approximations, of 1e-3 relative error by their paper; ours integrate."""
    a, q = np.meshgrid([0.05, 0.5, 1.0, 3.0, 30.0, 1000.0], [0.05, 0.3, 0.7, 0.95])
    torch.manual_seed(0)
    x = torch._standard_gamma(torch.tensor(a)).clamp(min=1e-12).numpy()
    ours = lamina.runtime.ops._standard_gamma_grad(lamina.tensor(a), lamina.tensor(x)).numpy()
    np.testing.assert_allclose(ours, torch._standard_gamma_grad(torch.tensor(a), torch.tensor(x)), 2e-3, 1e-9)
    total = a + 2.0
    ours = lamina.runtime.ops._dirichlet_grad(
        lamina.tensor(q), lamina.tensor(a), lamina.tensor(total)
    ).numpy()
    peer = torch._dirichlet_grad(torch.tensor(q), torch.tensor(a), torch.tensor(total)).numpy()
    np.testing.assert_allclose(ours[:, :4], peer[:, :4], 2e-2)


def test_refusals_are_of_the_same_kind():
    for ask in (
        lambda D, t: D.Normal(0.0, -1.0), lambda D, t: D.Uniform(1.0, 0.0), lambda D, t: D.Bernoulli(2.0),
        lambda D, t: D.Bernoulli(), lambda D, t: D.Bernoulli(0.5, 0.5), lambda D, t: D.Categorical(t(0.3)),
        lambda D, t: D.Normal(0.0, 1.0).log_prob(1.0), lambda D, t: D.Exponential(1.0).log_prob(t(-1.0)),
        lambda D, t: D.Normal("a", 1.0), lambda D, t: D.Categorical(t([1.0, 1.0])).log_prob(t(5)),
        lambda D, t: D.Independent(D.Normal(0.0, 1.0), 1),
        lambda D, t: D.MultivariateNormal(t(1.0), t([[1.0]])),
        lambda D, t: D.MultivariateNormal(t([1.0])), lambda D, t: D.Geometric(0.0),
        lambda D, t: D.MultivariateNormal(t([1.0, 2.0]), t([[1.0, 2.0], [2.0, 1.0]])),
        lambda D, t: D.Normal(t([0.0, 0.0]), 1.0).log_prob(t([1.0, 2.0, 3.0])), lambda D, t: D.LKJCholesky(1),
        lambda D, t: D.MixtureSameFamily(D.Normal(0.0, 1.0), D.Normal(0.0, 1.0)),
        lambda D, t: D.Categorical(t([-1.0, 2.0])),
    ):  # fmt: skip
        for module in (lamina, torch):
            with pytest.raises(ValueError):
                ask(module.distributions, module.tensor)
    for ask in (
        lambda D: D.Distribution().sample(),
        lambda D: D.kl_divergence(D.Cauchy(0.0, 1.0), D.Normal(0.0, 1.0)),
        lambda D: D.Poisson(1.0).rsample(), lambda D: D.Normal(0.0, 1.0).enumerate_support(),
        lambda D: D.biject_to(D.constraints.positive_definite),
    ):  # fmt: skip
        for module in (lamina, torch):
            with pytest.raises(NotImplementedError), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ask(module.distributions)
