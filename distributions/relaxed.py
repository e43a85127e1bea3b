"""Continuous relaxations of Bernoulli and one-hot draws, at a temperature.

Source: C. Maddison, A. Mnih, Y. W. Teh, "The Concrete distribution", ICLR 2017; E. Jang, S. Gu, B. Poole,
"Categorical reparameterization with Gumbel-softmax", ICLR 2017.
"""

from __future__ import annotations

import math
from typing import Any

from ..runtime import Tensor, ops, tensor
from ..runtime import random as draws
from . import constraints
from .categorical import _OF_CLASSES, Categorical
from .counts import _OF_TWO, _OfTwo
from .distribution import Distribution
from .location_scale import _Image
from .number_transforms import ExpTransform, SigmoidTransform
from .parameters import clamp_probs


def _temperature(given: Any, like: Tensor) -> Tensor:
    if isinstance(given, Tensor):
        return given
    return tensor(given, dtype=like.dtype, device=like.device)


class LogitRelaxedBernoulli(_OfTwo):
    """The logit of a relaxed Bernoulli number."""

    arg_constraints = _OF_TWO
    support = constraints.real
    has_rsample = True
    _EVENT_DIMS: dict = {}

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ):
        self._take_one(validate_args, probs, logits)
        self.temperature = _temperature(temperature, self._param)

    def rsample(self, sample_shape=()):
        shape = tuple(self._extended_shape(sample_shape))
        probs = clamp_probs(self.probs.expand(shape))
        u = clamp_probs(draws.rand(shape, dtype=probs.dtype, device=probs.device))
        drawn = u.log() - ops.log1p(-u) + probs.log() - ops.log1p(-probs)
        return drawn / self.temperature

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        logits, value = ops.broadcast_tensors(self.logits, value)
        off = logits - value * self.temperature
        return self.temperature.log() + off - 2 * ops.softplus(off)


class _Relaxed(_Image):
    """What has its parameters of the distribution that it is an image of."""

    @property
    def temperature(self):
        return self.base_dist.temperature

    @property
    def logits(self):
        return self.base_dist.logits

    @property
    def probs(self):
        return self.base_dist.probs


class RelaxedBernoulli(_Relaxed):
    """A number in (0, 1), the nearer to 0 or 1 the lower the temperature."""

    arg_constraints = _OF_TWO
    support = constraints.unit_interval

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ):
        base = LogitRelaxedBernoulli(temperature, probs, logits)
        super().__init__(base, SigmoidTransform(), validate_args)


class ExpRelaxedCategorical(Distribution):
    """The logarithm of a relaxed one-hot vector."""

    arg_constraints = _OF_CLASSES
    support = constraints.real_vector
    has_rsample = True

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ):
        self._categorical = Categorical(probs, logits)
        self.temperature = _temperature(temperature, self._categorical._param)
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args)

    @property
    def param_shape(self):
        """The shape of `probs` and `logits`."""
        return self._categorical.param_shape

    @property
    def logits(self):
        return self._categorical.logits

    @property
    def probs(self):
        return self._categorical.probs

    def rsample(self, sample_shape=()):
        shape = tuple(self._extended_shape(sample_shape))
        u = clamp_probs(draws.rand(shape, dtype=self.logits.dtype, device=self.logits.device))
        scores = (self.logits - (-u.log()).log()) / self.temperature
        return scores - scores.logsumexp(-1, keepdim=True)

    def log_prob(self, value):
        n = self._categorical._num_events
        if self._validate_args:
            self._validate_sample(value)
        logits, value = ops.broadcast_tensors(self.logits, value)
        whole = math.lgamma(n) + (n - 1) * self.temperature.log()
        score = logits - value * self.temperature
        return (score - score.logsumexp(-1, keepdim=True)).sum(-1) + whole


class RelaxedOneHotCategorical(_Relaxed):
    """A point of a simplex, the nearer to a corner the lower the temperature."""

    arg_constraints = _OF_CLASSES
    support = constraints.simplex

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ):
        base = ExpRelaxedCategorical(temperature, probs, logits, validate_args=validate_args)
        super().__init__(base, ExpTransform(), validate_args)
