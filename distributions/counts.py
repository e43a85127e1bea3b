"""Counts, and what happens or not: Bernoulli, Geometric, Binomial, NegativeBinomial, Poisson, and a kin."""

from __future__ import annotations

import math
from typing import Any

from ..ir.errors import MissingError
from ..runtime import Tensor, no_grad, ops
from ..runtime import random as draws
from . import constraints
from .distribution import Distribution, ExponentialFamily, require
from .parameters import (
    broadcast_all,
    clamp_probs,
    lazy_property,
    logits_to_probs,
    one_of,
    probs_to_logits,
    tiny_of,
)

_OF_TWO = {"probs": constraints.unit_interval, "logits": constraints.real}


class _OfTwo(Distribution):
    """Parameters `probs` or `logits` of one of two outcomes, each computed from the other when asked."""

    def _take_one(self, validate_args: bool | None, probs: Any, logits: Any, **others: Any) -> None:
        name = one_of(probs=probs, logits=logits)
        self._take(validate_args, **others, **{name: probs if logits is None else logits})

    @property
    def _param(self) -> Tensor:
        return self.__dict__["probs"] if "probs" in self.__dict__ else self.logits

    @property
    def param_shape(self):
        """The shape of `probs` and `logits`."""
        return self._param.size()

    @lazy_property
    def logits(self):
        return probs_to_logits(self.probs, is_binary=True)

    @lazy_property
    def probs(self):
        return logits_to_probs(self.logits, is_binary=True)


def _cross_entropy(logits: Tensor, value: Tensor) -> Tensor:
    return ops.binary_cross_entropy_with_logits(logits, value, reduction="none")


class Bernoulli(_OfTwo, ExponentialFamily):
    """1 with probability `probs`, else 0."""

    arg_constraints = _OF_TWO
    support = constraints.boolean
    has_enumerate_support = True
    _mean_carrier_measure = 0.0

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None):
        self._take_one(validate_args, probs, logits)

    @property
    def mean(self):
        return self.probs

    @property
    def mode(self):
        mode = (self.probs >= 0.5).to(self.probs.dtype)
        return ops.where(self.probs == 0.5, float("nan"), mode)

    @property
    def variance(self):
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape=()):
        with no_grad():
            return draws.bernoulli(self.probs.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        logits, value = ops.broadcast_tensors(self.logits, value)
        return -_cross_entropy(logits, value)

    def entropy(self):
        return _cross_entropy(self.logits, self.probs)

    def enumerate_support(self, expand=True):
        values = ops.arange(2, dtype=self._param.dtype, device=self._param.device)
        values = values.reshape((-1,) + (1,) * len(self._batch_shape))
        return values.expand((-1, *self._batch_shape)) if expand else values

    @property
    def _natural_params(self):
        return (ops.logit(self.probs),)

    def _log_normalizer(self, x):
        return ops.softplus(x)


class Geometric(_OfTwo):
    """How many trials fail before the first success: 0, 1, 2, ..."""

    arg_constraints = _OF_TWO
    support = constraints.nonnegative_integer

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None):
        self._take_one(validate_args, probs, logits)
        if self._validate_args and probs is not None:
            require(self.probs > 0, "Geometric: Expected parameter probs to be positive", self.probs)

    @property
    def mean(self):
        return 1.0 / self.probs - 1.0

    @property
    def mode(self):
        return ops.zeros_like(self.probs)

    @property
    def variance(self):
        return (1.0 / self.probs - 1.0) / self.probs

    def sample(self, sample_shape=()):
        with no_grad():
            u = draws.rand(
                tuple(self._extended_shape(sample_shape)), dtype=self.probs.dtype, device=self.probs.device
            )
            u = u.clamp(min=tiny_of(u.dtype))
            return (u.log() / ops.log1p(-self.probs)).floor()

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        value, probs = ops.broadcast_tensors(value, self.probs)
        probs = ops.where((probs == 1) & (value == 0), 0.0, probs)
        return value * ops.log1p(-probs) + self.probs.log()

    def entropy(self):
        return _cross_entropy(self.logits, self.probs) / self.probs


class Binomial(_OfTwo):
    """How many of `total_count` trials succeed, each with probability `probs`."""

    arg_constraints = {"total_count": constraints.nonnegative_integer, **_OF_TWO}
    has_enumerate_support = True
    total_count: Tensor

    def __init__(
        self, total_count: Any = 1, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ):
        self._take_one(validate_args, probs, logits, total_count=total_count)
        self.total_count = self.total_count.to(self._param.dtype)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self):
        return constraints.integer_interval(0, self.total_count)

    @property
    def mean(self):
        return self.total_count * self.probs

    @property
    def mode(self):
        return ((self.total_count + 1) * self.probs).floor().minimum(self.total_count)

    @property
    def variance(self):
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape=()):
        shape = self._extended_shape(sample_shape)
        with no_grad():
            return draws.binomial(self.total_count.expand(shape), self.probs.expand(shape))

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        n, logits = self.total_count, self.logits
        ways = ops.lgamma(n + 1) - ops.lgamma(value + 1) - ops.lgamma(n - value + 1)
        return ways + value * logits + n * ops.logsigmoid(-logits)

    def entropy(self):
        most = self._same_count("entropy")
        found = self.log_prob(self._up_to(most, False))
        return -(found.exp() * found).sum(0)

    def _same_count(self, what: str) -> int:
        most = int(self.total_count.max())
        if not int(self.total_count.min()) == most:
            raise MissingError(f"Inhomogeneous total count not supported by `{what}`.")
        return most

    def _up_to(self, most: int, expand: bool) -> Tensor:
        values = ops.arange(1 + most, dtype=self._param.dtype, device=self._param.device)
        values = values.reshape((-1,) + (1,) * len(self._batch_shape))
        return values.expand((-1, *self._batch_shape)) if expand else values

    def enumerate_support(self, expand=True):
        return self._up_to(self._same_count("enumerate_support"), expand)


class NegativeBinomial(_OfTwo):
    """How many trials succeed, each with probability `probs`, before `total_count` have failed."""

    arg_constraints = {
        "total_count": constraints.greater_than_eq(0),
        "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
    }
    support = constraints.nonnegative_integer
    total_count: Tensor

    def __init__(
        self, total_count: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ):
        self._take_one(validate_args, probs, logits, total_count=total_count)
        self.total_count = self.total_count.to(self._param.dtype)

    @property
    def mean(self):
        return self.total_count * self.logits.exp()

    @property
    def mode(self):
        return ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0.0)

    @property
    def variance(self):
        return self.mean / ops.sigmoid(-self.logits)

    def sample(self, sample_shape=()):
        """A Poisson draw of a rate that is drawn from a gamma distribution."""
        shape = self._extended_shape(sample_shape)
        with no_grad():
            rate = draws._standard_gamma(self.total_count.expand(shape)) * self.logits.exp()
            return draws.poisson(rate)

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        n = self.total_count
        ways = ops.lgamma(n + value) - ops.lgamma(1.0 + value) - ops.lgamma(n)
        ways = ops.where(n + value == 0, 0.0, ways)
        return n * ops.logsigmoid(-self.logits) + value * ops.logsigmoid(self.logits) + ways


class Poisson(ExponentialFamily):
    """A count of independent events of which `rate` are expected."""

    arg_constraints = {"rate": constraints.nonnegative}
    support = constraints.nonnegative_integer
    rate: Tensor

    def __init__(self, rate: Any, validate_args: bool | None = None):
        self._take(validate_args, rate=rate)

    @property
    def mean(self):
        return self.rate

    @property
    def mode(self):
        return self.rate.floor()

    @property
    def variance(self):
        return self.rate

    def sample(self, sample_shape=()):
        with no_grad():
            return draws.poisson(self.rate.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        rate, value = broadcast_all(self.rate, value)
        return ops.xlogy(value, rate) - rate - ops.lgamma(value + 1)

    @property
    def _natural_params(self):
        return (self.rate.log(),)

    def _log_normalizer(self, x):
        return x.exp()


class ContinuousBernoulli(_OfTwo, ExponentialFamily):
    """A number x in [0, 1] with a density in proportion to probs^x (1 - probs)^(1 - x).

    Near 1/2 (inside of `lims`) the normaliser and its kin are Taylor's polynomials.
    Source: G. Loaiza-Ganem, J. Cunningham, "The continuous Bernoulli", NeurIPS 2019.
    """

    arg_constraints = _OF_TWO
    support = constraints.unit_interval
    has_rsample = True
    _mean_carrier_measure = 0.0

    def __init__(
        self,
        probs: Any = None,
        logits: Any = None,
        lims: tuple[float, float] = (0.499, 0.501),
        validate_args: bool | None = None,
    ):
        self._lims = lims
        self._take_one(validate_args, probs, logits)
        if probs is not None:
            self.probs = clamp_probs(self.probs)

    @lazy_property
    def probs(self):
        return clamp_probs(logits_to_probs(self.logits, is_binary=True))

    def _is_safe(self) -> Tensor:
        return (self.probs <= self._lims[0]) | (self.probs > self._lims[1])

    def _safe_probs(self) -> Tensor:
        """The probabilities, with a bound of the limits in place of what is too near 1/2."""
        return ops.where(self._is_safe(), self.probs, self._lims[0])

    def _chosen(self, far: Any, near: Any) -> Tensor:
        """`far` of the probabilities away from 1/2, `near` of the square of their distance beside it."""
        x = self.probs - 0.5
        return ops.where(self._is_safe(), far(self._safe_probs()), near(x, x * x))

    def _cont_bern_log_norm(self) -> Tensor:
        """The logarithm of 2 atanh(1 - 2p) / (1 - 2p)."""
        return self._chosen(
            lambda p: (ops.log1p(-p) - p.log()).abs().log() - (1 - 2 * p).abs().log(),
            lambda x, square: math.log(2.0) + (4.0 / 3.0 + 104.0 / 45.0 * square) * square,
        )

    @property
    def mean(self):
        return self._chosen(
            lambda p: p / (2 * p - 1) + 1 / (ops.log1p(-p) - p.log()),
            lambda x, square: 0.5 + (1.0 / 3.0 + 16.0 / 45.0 * square) * x,
        )

    @property
    def variance(self):
        return self._chosen(
            lambda p: p * (p - 1) / (1 - 2 * p).square() + 1 / (ops.log1p(-p) - p.log()).square(),
            lambda x, square: 1.0 / 12.0 - (1.0 / 15.0 - 128.0 / 945.0 * square) * square,
        )

    @property
    def stddev(self):
        return self.variance.sqrt()

    def sample(self, sample_shape=()):
        with no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape=()):
        return self.icdf(
            draws.rand(
                tuple(self._extended_shape(sample_shape)), dtype=self.probs.dtype, device=self.probs.device
            )
        )

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        logits, value = ops.broadcast_tensors(self.logits, value)
        return -_cross_entropy(logits, value) + self._cont_bern_log_norm()

    def cdf(self, value):
        if self._validate_args:
            self._validate_sample(value)
        p = self._safe_probs()
        found = (p.pow(value) * (1 - p).pow(1 - value) + p - 1) / (2 * p - 1)
        inside = ops.where(self._is_safe(), found, value)
        return ops.where(value <= 0, 0.0, ops.where(value >= 1, 1.0, inside))

    def icdf(self, value):
        p = self._safe_probs()
        rest = ops.log1p(-p)
        found = (ops.log1p(-p + value * (2 * p - 1)) - rest) / (p.log() - rest)
        return ops.where(self._is_safe(), found, value)

    def entropy(self):
        none, one = ops.log1p(-self.probs), self.probs.log()
        return self.mean * (none - one) - self._cont_bern_log_norm() - none

    @property
    def _natural_params(self):
        return (self.logits,)

    def _log_normalizer(self, x):
        """log((e^x - 1) / x), by its series near 0."""
        low, high = self._lims[0] - 0.5, self._lims[1] - 0.5
        away = (x <= low) | (x > high)
        cut = ops.where(away, x, low)
        far = (cut.exp() - 1).abs().log() - cut.abs().log()
        near = 0.5 * x + x.square() / 24.0 - x.pow(4) / 2880.0
        return ops.where(away, far, near)
