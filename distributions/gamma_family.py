"""Families about the gamma function: Gamma, Beta, Dirichlet and kin, and powers of exponentials."""

from __future__ import annotations

from math import inf, nan
from typing import Any

from ..ir.errors import ArgumentValueError
from ..runtime import Tensor, as_tensor, ops
from ..runtime import random as draws
from . import constraints
from .distribution import Distribution, ExponentialFamily
from .location_scale import Uniform, _Image
from .number_transforms import AffineTransform, ExpTransform, PowerTransform
from .parameters import broadcast_all, eps_of, euler_constant, tiny_of


def _lbeta(a: Tensor, b: Tensor) -> Tensor:
    return ops.lgamma(a) + ops.lgamma(b) - ops.lgamma(a + b)


def _standard_gamma(concentration: Tensor, shape: Any) -> Tensor:
    """Draws that are above zero, to which a small concentration may round."""
    drawn = draws._standard_gamma(concentration.expand(shape))
    return drawn + (drawn.detach().clamp(min=tiny_of(drawn.dtype)) - drawn.detach())


class Exponential(ExponentialFamily):
    """The time to the next of independent events of which `rate` happen in one unit."""

    arg_constraints = {"rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True
    _mean_carrier_measure = 0.0
    rate: Tensor

    def __init__(self, rate: Any, validate_args: bool | None = None):
        self._take(validate_args, rate=rate)

    @property
    def mean(self):
        return self.rate.reciprocal()

    @property
    def mode(self):
        return ops.zeros_like(self.rate)

    @property
    def stddev(self):
        return self.rate.reciprocal()

    @property
    def variance(self):
        return self.rate.pow(-2)

    def rsample(self, sample_shape=()):
        shape = tuple(self._extended_shape(sample_shape))
        made = draws.draw("random_exponential", shape, dtype=self.rate.dtype)
        return made.to(self.rate.device) / self.rate

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        return self.rate.log() - self.rate * value

    def cdf(self, value):
        if self._validate_args:
            self._validate_sample(value)
        return -(-self.rate * value).expm1()

    def icdf(self, value):
        return -ops.log1p(-value) / self.rate

    def entropy(self):
        return 1.0 - self.rate.log()

    @property
    def _natural_params(self):
        return (-self.rate,)

    def _log_normalizer(self, x):
        return -(-x).log()


class Gamma(ExponentialFamily):
    """The gamma distribution of shape `concentration` and scale 1 / `rate`."""

    arg_constraints: dict = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True
    _mean_carrier_measure = 0.0
    concentration: Tensor
    rate: Tensor

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None):
        self._take(validate_args, concentration=concentration, rate=rate)

    @property
    def mean(self):
        return self.concentration / self.rate

    @property
    def mode(self):
        return ((self.concentration - 1) / self.rate).clamp(min=0)

    @property
    def variance(self):
        return self.concentration / self.rate.square()

    def rsample(self, sample_shape=()):
        shape = self._extended_shape(sample_shape)
        value = draws._standard_gamma(self.concentration.expand(shape)) / self.rate
        kept = value.detach()
        return value + (kept.clamp(min=tiny_of(value.dtype)) - kept)

    def log_prob(self, value):
        value = as_tensor(value, dtype=self.rate.dtype)  # a number, too
        if self._validate_args:
            self._validate_sample(value)
        a, b = self.concentration, self.rate
        return ops.xlogy(a, b) + ops.xlogy(a - 1, value) - b * value - ops.lgamma(a)

    def cdf(self, value):
        if self._validate_args:
            self._validate_sample(value)
        return ops.igamma(self.concentration, self.rate * value)

    def entropy(self):
        a = self.concentration
        return a - self.rate.log() + ops.lgamma(a) + (1.0 - a) * ops.digamma(a)

    @property
    def _natural_params(self):
        return self.concentration - 1, -self.rate

    def _log_normalizer(self, x, y):
        return ops.lgamma(x + 1) + (x + 1) * (-y.reciprocal()).log()


class Chi2(Gamma):
    """The sum of the squares of `df` standard normal numbers."""

    arg_constraints = {"df": constraints.positive}
    _EVENT_DIMS = {"concentration": 0, "rate": 0}

    def __init__(self, df: Any, validate_args: bool | None = None):
        (df,) = broadcast_all(df)
        super().__init__(0.5 * df, 0.5, validate_args=False)
        Distribution.__init__(self, self.concentration.shape, (), validate_args)

    @property
    def df(self):
        """The degrees of freedom."""
        return self.concentration * 2


class InverseGamma(_Image):
    """One over a gamma number."""

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.positive

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None):
        base = Gamma(concentration, rate, validate_args=validate_args)
        super().__init__(base, PowerTransform(-ops.ones_like(base.rate)), validate_args)

    @property
    def concentration(self):
        return self.base_dist.concentration

    @property
    def rate(self):
        return self.base_dist.rate

    @property
    def mean(self):
        return ops.where(self.concentration > 1, self.rate / (self.concentration - 1), inf)

    @property
    def mode(self):
        return self.rate / (self.concentration + 1)

    @property
    def variance(self):
        a = self.concentration
        return ops.where(a > 2, self.rate.square() / ((a - 1).square() * (a - 2)), inf)

    def entropy(self):
        a = self.concentration
        return a + self.rate.log() + ops.lgamma(a) - (1 + a) * ops.digamma(a)


class FisherSnedecor(Distribution):
    """The ratio of two chi-square numbers, each over its degrees of freedom."""

    arg_constraints = {"df1": constraints.positive, "df2": constraints.positive}
    support = constraints.positive
    has_rsample = True
    df1: Tensor
    df2: Tensor

    def __init__(self, df1: Any, df2: Any, validate_args: bool | None = None):
        self._take(validate_args, df1=df1, df2=df2)

    @property
    def mean(self):
        n = ops.where(self.df2 <= 2, nan, self.df2)
        return n / (n - 2)

    @property
    def mode(self):
        m = ops.where(self.df1 <= 2, nan, self.df1)
        return (m - 2) / m * self.df2 / (self.df2 + 2)

    @property
    def variance(self):
        m, n = self.df1, ops.where(self.df2 <= 4, nan, self.df2)
        return 2 * n.square() * (m + n - 2) / (m * (n - 2).square() * (n - 4))

    def rsample(self, sample_shape=()):
        shape = self._extended_shape(sample_shape)
        first = _standard_gamma(self.df1 / 2, shape) / self.df1
        second = _standard_gamma(self.df2 / 2, shape) / self.df2
        return first / second

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        m, n, ratio = self.df1 / 2, self.df2 / 2, self.df1 / self.df2
        start = m * ratio.log() + (m - 1) * value.log()
        return start - _lbeta(m, n) - (m + n) * ops.log1p(ratio * value)


class Dirichlet(ExponentialFamily):
    """Points of a simplex.  Shapes: [*batch, n]."""

    arg_constraints = {"concentration": constraints.independent(constraints.positive, 1)}
    support = constraints.simplex
    has_rsample = True
    concentration: Tensor

    def __init__(self, concentration: Tensor, validate_args: bool | None = None):
        if not isinstance(concentration, Tensor) or concentration.ndim < 1:
            raise ArgumentValueError("`concentration` parameter must be at least one-dimensional.")
        self.concentration = concentration
        super().__init__(concentration.shape[:-1], concentration.shape[-1:], validate_args)

    def rsample(self, sample_shape=()):
        return draws._sample_dirichlet(self.concentration.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        a = self.concentration
        whole = ops.lgamma(a.sum(-1)) - ops.lgamma(a).sum(-1)
        return ops.xlogy(a - 1.0, value).sum(-1) + whole

    @property
    def mean(self):
        return self.concentration / self.concentration.sum(-1, keepdim=True)

    @property
    def mode(self):
        """The most likely point; where all concentrations are below 1, of all corners the first."""
        a = self.concentration
        above = (a - 1).clamp(min=0.0)
        mode = above / above.sum(-1, keepdim=True)
        corner = (ops.arange(a.shape[-1], device=a.device) == 0).to(a.dtype)
        return ops.where((a < 1).all(-1, keepdim=True), corner, mode)

    @property
    def variance(self):
        a = self.concentration
        total = a.sum(-1, keepdim=True)
        return a * (total - a) / (total.square() * (total + 1))

    def entropy(self):
        a = self.concentration
        n, total = a.shape[-1], a.sum(-1)
        slope = (n - total) * ops.digamma(total) + ((a - 1.0) * ops.digamma(a)).sum(-1)
        return ops.lgamma(a).sum(-1) - ops.lgamma(total) - slope

    @property
    def _natural_params(self):
        return (self.concentration,)

    def _log_normalizer(self, x):
        return ops.lgamma(x).sum(-1) - ops.lgamma(x.sum(-1))


class Beta(ExponentialFamily):
    """A number in [0, 1]: the first part of a Dirichlet of two."""

    arg_constraints = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    support = constraints.unit_interval
    has_rsample = True

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: bool | None = None):
        both = ops.stack(broadcast_all(concentration1, concentration0), -1)
        self._dirichlet = Dirichlet(both, validate_args=False)
        super().__init__(self._dirichlet.batch_shape, (), validate_args)

    @property
    def concentration1(self):
        return self._dirichlet.concentration[..., 0]

    @property
    def concentration0(self):
        return self._dirichlet.concentration[..., 1]

    @property
    def _total(self):
        return self._dirichlet.concentration.sum(-1)

    @property
    def mean(self):
        return self.concentration1 / self._total

    @property
    def mode(self):
        return self._dirichlet.mode[..., 0]

    @property
    def variance(self):
        return self.concentration1 * self.concentration0 / (self._total.square() * (self._total + 1))

    def rsample(self, sample_shape=()):
        return self._dirichlet.rsample(sample_shape)[..., 0]

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        return self._dirichlet.log_prob(ops.stack([value, 1.0 - value], -1))

    def entropy(self):
        return self._dirichlet.entropy()

    @property
    def _natural_params(self):
        return self.concentration1, self.concentration0

    def _log_normalizer(self, x, y):
        return _lbeta(x, y)

    def __repr__(self):
        return Distribution.__repr__(self)


class Kumaraswamy(_Image):
    """A number x in [0, 1] with P(x <= t) = 1 - (1 - t^a)^b."""

    arg_constraints = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    support = constraints.unit_interval
    concentration1: Tensor
    concentration0: Tensor

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: bool | None = None):
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        zero = ops.zeros_like(self.concentration0.detach())
        base = Uniform(zero, zero + 1, validate_args=False)
        steps = [
            PowerTransform(self.concentration0.reciprocal()),
            AffineTransform(loc=1.0, scale=-1.0),
            PowerTransform(self.concentration1.reciprocal()),
        ]
        super().__init__(base, steps, validate_args)

    def _moment(self, n: int) -> Tensor:
        return self.concentration0 * _lbeta(1 + n / self.concentration1, self.concentration0).exp()

    @property
    def mean(self):
        return self._moment(1)

    @property
    def mode(self):
        a, b = self.concentration1, self.concentration0
        log = ((a - 1).log() - (a * b - 1).log()) / a
        return ops.where((a < 1) | (b < 1), nan, log.exp())

    @property
    def variance(self):
        return self._moment(2) - self.mean.square()

    def entropy(self):
        a, b = self.concentration1, self.concentration0
        harmonic = ops.digamma(b + 1) + euler_constant
        return (1 - b.reciprocal()) + (1 - a.reciprocal()) * harmonic - a.log() - b.log()


class Weibull(_Image):
    """A power of an exponential number: x with P(x > t) = exp(-(t / scale)^concentration)."""

    arg_constraints = {"scale": constraints.positive, "concentration": constraints.positive}
    support = constraints.positive
    scale: Tensor
    concentration: Tensor

    def __init__(self, scale: Any, concentration: Any, validate_args: bool | None = None):
        self.scale, self.concentration = broadcast_all(scale, concentration)
        base = Exponential(ops.ones_like(self.scale.detach()), validate_args=False)
        steps = [
            PowerTransform(exponent=self.concentration.reciprocal()),
            AffineTransform(loc=0, scale=self.scale),
        ]
        super().__init__(base, steps, validate_args)

    def _moment(self, n: int) -> Tensor:
        return ops.lgamma(1 + n / self.concentration).exp()

    @property
    def mean(self):
        return self.scale * self._moment(1)

    @property
    def mode(self):
        k = self.concentration
        return self.scale * ((k - 1) / k) ** k.reciprocal()

    @property
    def variance(self):
        return self.scale.square() * (self._moment(2) - self._moment(1).square())

    def entropy(self):
        inverse = self.concentration.reciprocal()
        return euler_constant * (1 - inverse) + (self.scale * inverse).log() + 1


class Pareto(_Image):
    """A number from `scale` on with P(x > t) = (scale / t)^alpha."""

    arg_constraints = {"alpha": constraints.positive, "scale": constraints.positive}
    scale: Tensor
    alpha: Tensor

    def __init__(self, scale: Any, alpha: Any, validate_args: bool | None = None):
        self.scale, self.alpha = broadcast_all(scale, alpha)
        steps = [ExpTransform(), AffineTransform(loc=0, scale=self.scale)]
        super().__init__(Exponential(self.alpha, validate_args=validate_args), steps, validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self):
        return constraints.greater_than_eq(self.scale)

    @property
    def mean(self):
        a = self.alpha.clamp(min=1)
        return a * self.scale / (a - 1)

    @property
    def mode(self):
        return self.scale

    @property
    def variance(self):
        a = self.alpha.clamp(min=2)
        return self.scale.square() * a / ((a - 1).square() * (a - 2))

    def entropy(self):
        return (self.scale / self.alpha).log() + (1 + self.alpha.reciprocal())


class GeneralizedPareto(Distribution):
    """What exceeds a high threshold `loc`; the tail is the heavier, the greater `concentration`, of any sign.

    Source: J. Pickands, "Statistical inference using extreme order statistics", 1975.
    """

    arg_constraints = {
        "loc": constraints.real,
        "scale": constraints.positive,
        "concentration": constraints.real,
    }
    has_rsample = True
    loc: Tensor
    scale: Tensor
    concentration: Tensor

    def __init__(self, loc: Any, scale: Any, concentration: Any, validate_args: bool | None = None):
        self._take(validate_args, loc=loc, scale=scale, concentration=concentration)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self):
        upper = self.loc - self.scale / self.concentration
        return constraints.interval(self.loc, ops.where(self.concentration < 0, upper, inf))

    def _is_exponential(self) -> Tensor:
        """Where the tail's weight is 0 to within the dtype, and the distribution exponential."""
        return self.concentration.abs() <= eps_of(self.loc.dtype)

    def _safe(self) -> Tensor:
        return ops.where(self._is_exponential(), 1.0, self.concentration)

    def rsample(self, sample_shape=()):
        u = draws.rand(
            tuple(self._extended_shape(sample_shape)), dtype=self.loc.dtype, device=self.loc.device
        )
        return self.icdf(u)

    def log_survival_function(self, value):
        """The logarithm of the probability of more than `value`."""
        if self._validate_args:
            self._validate_sample(value)
        z, k = (value - self.loc) / self.scale, self._safe()
        near = self.concentration * z.square() / 2 - z  # two terms, for the slope at 0
        return ops.where(self._is_exponential(), near, -ops.log1p(k * z) / k)

    def log_prob(self, value):
        return (1 + self.concentration) * self.log_survival_function(value) - self.scale.log()

    def log_cdf(self, value):
        """The logarithm of the probability of at most `value`."""
        return ops.log1p(-self.log_survival_function(value).exp())

    def cdf(self, value):
        return -self.log_survival_function(value).expm1()

    def icdf(self, value):
        rest, k = -ops.log1p(-value), self._safe()
        near = rest + self.concentration * rest.square() / 2
        return self.loc + self.scale * ops.where(self._is_exponential(), near, (k * rest).expm1() / k)

    @property
    def mean(self):
        k = self.concentration
        return ops.where(k < 1, self.loc + self.scale / (1 - k), nan)

    @property
    def variance(self):
        k = self.concentration
        found = self.scale.square() / ((1 - k).square() * (1 - 2 * k))
        return ops.where(k < 0.5, found, nan)

    def entropy(self):
        return self.scale.log() + self.concentration + 1

    @property
    def mode(self):
        return self.loc
