"""Continuous families of a place and a width: Normal, Laplace, Cauchy, StudentT, Uniform, VonMises, …"""

from __future__ import annotations

import math
from math import inf, nan, pi
from typing import Any

from ..runtime import Tensor, no_grad, ops
from ..runtime import random as draws
from . import constraints
from .distribution import Distribution, ExponentialFamily
from .matrix_transforms import StickBreakingTransform
from .number_transforms import AbsTransform, AffineTransform, ExpTransform
from .parameters import broadcast_all, eps_of, euler_constant, tiny_of
from .transformed import TransformedDistribution

_PLACED = {"loc": constraints.real, "scale": constraints.positive}


class _Placed(Distribution):
    """`loc` and `scale`."""

    arg_constraints: dict = _PLACED
    support = constraints.real
    has_rsample = True
    loc: Tensor
    scale: Tensor

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None):
        self._take(validate_args, loc=loc, scale=scale)

    @property
    def mode(self):
        return self.loc

    def _uniform(self, sample_shape: Any) -> Tensor:
        """Numbers in (0, 1)."""
        u = draws.rand(
            tuple(self._extended_shape(sample_shape)), dtype=self.loc.dtype, device=self.loc.device
        )
        return u.clamp(min=tiny_of(u.dtype))


class Normal(_Placed, ExponentialFamily):
    """The normal distribution of mean `loc` and standard deviation `scale`."""

    _mean_carrier_measure = 0.0

    @property
    def mean(self):
        return self.loc

    @property
    def stddev(self):
        return self.scale

    @property
    def variance(self):
        return self.stddev.square()

    def rsample(self, sample_shape=()):
        made = draws.randn(
            tuple(self._extended_shape(sample_shape)), dtype=self.loc.dtype, device=self.loc.device
        )
        return self.loc + made * self.scale

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        off = (value - self.loc) / self.scale
        return -0.5 * off.square() - self.scale.log() - 0.5 * math.log(2 * pi)

    def cdf(self, value):
        if self._validate_args:
            self._validate_sample(value)
        return 0.5 * (1 + ops.erf((value - self.loc) / (self.scale * math.sqrt(2.0))))

    def icdf(self, value):
        return self.loc + self.scale * ops.erfinv(2 * value - 1) * math.sqrt(2.0)

    def entropy(self):
        return 0.5 + 0.5 * math.log(2 * pi) + self.scale.log()

    @property
    def _natural_params(self):
        square = self.scale.square()
        return self.loc / square, -0.5 / square

    def _log_normalizer(self, x, y):
        return -0.25 * x.square() / y + 0.5 * (-pi / y).log()


class Laplace(_Placed):
    """Exponential to both sides of `loc`."""

    @property
    def mean(self):
        return self.loc

    @property
    def variance(self):
        return 2 * self.scale.square()

    @property
    def stddev(self):
        return math.sqrt(2.0) * self.scale

    def rsample(self, sample_shape=()):
        u = (
            draws.rand(
                tuple(self._extended_shape(sample_shape)), dtype=self.loc.dtype, device=self.loc.device
            )
            * 2
            - 1
        )
        u = u.clamp(min=eps_of(u.dtype) - 1)
        return self.loc - self.scale * u.sign() * ops.log1p(-u.abs())

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        return -(2 * self.scale).log() - (value - self.loc).abs() / self.scale

    def cdf(self, value):
        if self._validate_args:
            self._validate_sample(value)
        off = value - self.loc
        return 0.5 - 0.5 * off.sign() * (-off.abs() / self.scale).expm1()

    def icdf(self, value):
        off = value - 0.5
        return self.loc - self.scale * off.sign() * ops.log1p(-2 * off.abs())

    def entropy(self):
        return 1 + (2 * self.scale).log()


class Cauchy(_Placed):
    """The ratio of two normal numbers about `loc`; it has no mean."""

    @property
    def mean(self):
        return ops.full_like(self.loc, nan)

    @property
    def variance(self):
        return ops.full_like(self.loc, inf)

    def rsample(self, sample_shape=()):
        return self.loc + self.scale * (pi * (self._uniform(sample_shape) - 0.5)).tan()

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        return -math.log(pi) - self.scale.log() - ops.log1p(((value - self.loc) / self.scale).square())

    def cdf(self, value):
        if self._validate_args:
            self._validate_sample(value)
        return ((value - self.loc) / self.scale).atan() / pi + 0.5

    def icdf(self, value):
        return (pi * (value - 0.5)).tan() * self.scale + self.loc

    def entropy(self):
        return math.log(4 * pi) + self.scale.log()


class StudentT(Distribution):
    """Student's t distribution of `df` degrees of freedom."""

    arg_constraints = {"df": constraints.positive, **_PLACED}
    support = constraints.real
    has_rsample = True
    df: Tensor
    loc: Tensor
    scale: Tensor

    def __init__(self, df: Any, loc: Any = 0.0, scale: Any = 1.0, validate_args: bool | None = None):
        self._take(validate_args, df=df, loc=loc, scale=scale)

    @property
    def mean(self):
        return ops.where(self.df <= 1, nan, self.loc)

    @property
    def mode(self):
        return self.loc

    @property
    def variance(self):
        wide = self.scale.square() * self.df / (self.df - 2)
        return ops.where(self.df > 2, wide, ops.where(self.df > 1, inf, nan))

    def rsample(self, sample_shape=()):
        shape = self._extended_shape(sample_shape)
        x = draws.randn(tuple(shape), dtype=self.df.dtype, device=self.df.device)
        half = self.df.expand(shape) / 2
        z = draws._standard_gamma(half).clamp(min=tiny_of(self.df.dtype)) / half
        return self.loc + self.scale * x * z.rsqrt()

    def _normaliser(self) -> Tensor:
        half = 0.5 * self.df
        return ops.lgamma(half) + 0.5 * math.log(pi) - ops.lgamma(half + 0.5)

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        off = (value - self.loc) / self.scale
        whole = self.scale.log() + 0.5 * self.df.log() + self._normaliser()
        return -0.5 * (self.df + 1) * ops.log1p(off.square() / self.df) - whole

    def entropy(self):
        half = 0.5 * self.df
        slope = (half + 0.5) * (ops.digamma(half + 0.5) - ops.digamma(half))
        return self.scale.log() + slope + 0.5 * self.df.log() + self._normaliser()


class Uniform(Distribution):
    """Evenly in [low, high)."""

    has_rsample = True
    low: Tensor
    high: Tensor

    def __init__(self, low: Any, high: Any, validate_args: bool | None = None):
        self._take(validate_args, low=low, high=high)

    @property
    def arg_constraints(self):
        return {"low": constraints.less_than(self.high), "high": constraints.greater_than(self.low)}

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self):
        return constraints.interval(self.low, self.high)

    @property
    def mean(self):
        return (self.high + self.low) / 2

    @property
    def mode(self):
        return ops.full_like(self.high, nan)

    @property
    def stddev(self):
        return (self.high - self.low) / math.sqrt(12.0)

    @property
    def variance(self):
        return (self.high - self.low).square() / 12

    def rsample(self, sample_shape=()):
        u = draws.rand(
            tuple(self._extended_shape(sample_shape)), dtype=self.low.dtype, device=self.low.device
        )
        return self.low + u * (self.high - self.low)

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        inside = ((value >= self.low) & (value < self.high)).to(self.low.dtype)
        return inside.log() - (self.high - self.low).log()

    def cdf(self, value):
        if self._validate_args:
            self._validate_sample(value)
        return ((value - self.low) / (self.high - self.low)).clamp(min=0.0, max=1.0)

    def icdf(self, value):
        return value * (self.high - self.low) + self.low

    def entropy(self):
        return (self.high - self.low).log()


class VonMises(Distribution):
    """Angles about `loc`, in [-pi, pi); a normal distribution's kin on the circle."""

    arg_constraints = {"loc": constraints.real, "concentration": constraints.positive}
    support = constraints.real
    has_rsample = False
    loc: Tensor
    concentration: Tensor

    def __init__(self, loc: Any, concentration: Any, validate_args: bool | None = None):
        self._take(validate_args, loc=loc, concentration=concentration)

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        k = self.concentration
        # exp(-k) I0(k), so that a great k stays finite
        return k * ((value - self.loc).cos() - 1) - math.log(2 * pi) - ops.special_i0e(k).log()

    def sample(self, sample_shape=()):
        with no_grad():
            shape = self._extended_shape(sample_shape)
            angle = draws.draw("random_von_mises", operand=self.concentration.expand(shape))
            return (angle + pi + self.loc) % (2 * pi) - pi

    @property
    def mean(self):
        """The circular mean."""
        return self.loc

    @property
    def mode(self):
        return self.loc

    @property
    def variance(self):
        """The circular variance."""
        return 1 - ops.special_i1e(self.concentration) / ops.special_i0e(self.concentration)


# ---- images of these
class _Image(TransformedDistribution):
    """An image of a distribution whose parameters are, under their names, its own."""

    has_rsample = True
    base_dist: Any


class LogNormal(_Image):
    """The exponential of a normal number."""

    arg_constraints = _PLACED
    support = constraints.positive

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None):
        super().__init__(Normal(loc, scale, validate_args=validate_args), ExpTransform(), validate_args)

    @property
    def loc(self):
        return self.base_dist.loc

    @property
    def scale(self):
        return self.base_dist.scale

    @property
    def mean(self):
        return (self.loc + self.scale.square() / 2).exp()

    @property
    def mode(self):
        return (self.loc - self.scale.square()).exp()

    @property
    def variance(self):
        square = self.scale.square()
        return square.expm1() * (2 * self.loc + square).exp()

    def entropy(self):
        return self.base_dist.entropy() + self.loc


class LogisticNormal(_Image):
    """Normal numbers, broken as a stick: n of them make a point of a simplex of n + 1."""

    arg_constraints = _PLACED
    support = constraints.simplex

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None):
        base = Normal(loc, scale, validate_args=validate_args)
        if not base.batch_shape:
            base = base.expand((1,))
        super().__init__(base, StickBreakingTransform(), validate_args)

    @property
    def loc(self):
        return self.base_dist.base_dist.loc

    @property
    def scale(self):
        return self.base_dist.base_dist.scale


class _Half(_Image):
    """The distance from 0 of numbers that lie about it."""

    arg_constraints = {"scale": constraints.positive}
    support = constraints.nonnegative
    _whole: Any

    def __init__(self, scale: Any, validate_args: bool | None = None):
        super().__init__(self._whole(0.0, scale, validate_args=False), AbsTransform(), validate_args)

    @property
    def scale(self):
        return self.base_dist.scale

    @property
    def mode(self):
        return ops.zeros_like(self.scale)

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        found = self.base_dist.log_prob(value) + math.log(2.0)
        return ops.where(value >= 0, found, -inf)

    def cdf(self, value):
        if self._validate_args:
            self._validate_sample(value)
        return 2 * self.base_dist.cdf(value) - 1

    def icdf(self, prob):
        return self.base_dist.icdf((prob + 1) / 2)

    def entropy(self):
        return self.base_dist.entropy() - math.log(2.0)


class HalfNormal(_Half):
    """The absolute value of a normal number about 0."""

    _whole = Normal

    @property
    def mean(self):
        return self.scale * math.sqrt(2 / pi)

    @property
    def variance(self):
        return self.scale.square() * (1 - 2 / pi)


class HalfCauchy(_Half):
    """The absolute value of a Cauchy number about 0."""

    _whole = Cauchy

    @property
    def mean(self):
        return ops.full_like(self.scale, inf)

    @property
    def variance(self):
        return self.base_dist.variance


class Gumbel(_Image):
    """The greatest of many numbers, about `loc`."""

    arg_constraints = _PLACED
    support = constraints.real
    loc: Tensor
    scale: Tensor

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None):
        self.loc, self.scale = broadcast_all(loc, scale)
        dtype = self.loc.dtype
        low, high = ops.full_like(self.loc, tiny_of(dtype)), ops.full_like(self.loc, 1 - eps_of(dtype))
        steps = [
            ExpTransform().inv,
            AffineTransform(loc=0, scale=-ops.ones_like(self.scale)),
            ExpTransform().inv,
            AffineTransform(loc=self.loc, scale=-self.scale),
        ]
        super().__init__(Uniform(low, high, validate_args=False), steps, validate_args)

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        y = (self.loc - value) / self.scale
        return y - y.exp() - self.scale.log()

    @property
    def mean(self):
        return self.loc + self.scale * euler_constant

    @property
    def mode(self):
        return self.loc

    @property
    def stddev(self):
        return self.scale * (pi / math.sqrt(6.0))

    @property
    def variance(self):
        return self.stddev.square()

    def entropy(self):
        return self.scale.log() + (1 + euler_constant)
