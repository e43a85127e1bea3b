"""Distributions over n classes: the class, its one-hot vector, and the counts of many draws."""

from __future__ import annotations

from typing import Any

from ..ir.dtypes import int64
from ..ir.errors import ArgumentValueError, MissingError
from ..runtime import Tensor, no_grad, ops
from ..runtime import random as draws
from . import constraints
from .counts import Binomial
from .distribution import Distribution
from .parameters import largest_of, lazy_property, logits_to_probs, one_of, probs_to_logits

_OF_CLASSES = {"probs": constraints.simplex, "logits": constraints.real_vector}


class Categorical(Distribution):
    """A class 0 ... n - 1, of probabilities (which are normalised) or logits.  Shapes: [*batch, n]."""

    arg_constraints = _OF_CLASSES
    has_enumerate_support = True

    def __init__(
        self, probs: Tensor | None = None, logits: Tensor | None = None, validate_args: bool | None = None
    ):
        name = one_of(probs=probs, logits=logits)
        given: Any = probs if logits is None else logits
        if not isinstance(given, Tensor):
            raise ArgumentValueError(f"`{name}` parameter must be a tensor, not {type(given).__name__}")
        if given.ndim < 1:
            raise ArgumentValueError(f"`{name}` parameter must be at least one-dimensional.")
        if logits is None:
            self.probs = given / given.sum(-1, keepdim=True)
        else:
            self.logits = given - given.logsumexp(-1, keepdim=True)
        self._num_events = given.shape[-1]
        super().__init__(given.shape[:-1], (), validate_args)

    @property
    def _param(self) -> Tensor:
        return self.__dict__["probs"] if "probs" in self.__dict__ else self.logits

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self):
        return constraints.integer_interval(0, self._num_events - 1)

    @lazy_property
    def logits(self):
        return probs_to_logits(self.probs)

    @lazy_property
    def probs(self):
        return logits_to_probs(self.logits)

    @property
    def param_shape(self):
        """The shape of `probs` and `logits`."""
        return self._param.size()

    def _no_number(self) -> Tensor:
        return ops.full(
            tuple(self._batch_shape), float("nan"), dtype=self._param.dtype, device=self._param.device
        )

    @property
    def mean(self):
        return self._no_number()

    @property
    def mode(self):
        return self.probs.argmax(dim=-1)

    @property
    def variance(self):
        return self._no_number()

    def sample(self, sample_shape=()):
        shape = self._extended_shape(sample_shape)
        count = 1
        for n in tuple(sample_shape):
            count *= n
        with no_grad():
            rows = self.probs.reshape((-1, self._num_events))
            if not count or not rows.shape[0]:
                return ops.zeros(tuple(shape), dtype=int64, device=rows.device)
            return draws.multinomial(rows, count, True).T.reshape(tuple(shape))

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        value, logits = ops.broadcast_tensors(value.long().unsqueeze(-1), self.logits)
        return logits.gather(-1, value[..., :1]).squeeze(-1)

    def entropy(self):
        kept = self.logits.clamp(min=-largest_of(self.logits.dtype))
        return -(kept * self.probs).sum(-1)

    def enumerate_support(self, expand=True):
        values = ops.arange(self._num_events, dtype=int64, device=self._param.device)
        values = values.reshape((-1,) + (1,) * len(self._batch_shape))
        return values.expand((-1, *self._batch_shape)) if expand else values


class OneHotCategorical(Distribution):
    """A class as its one-hot vector.  Shapes: [*batch, n]."""

    arg_constraints = _OF_CLASSES
    support = constraints.one_hot
    has_enumerate_support = True

    def __init__(
        self, probs: Tensor | None = None, logits: Tensor | None = None, validate_args: bool | None = None
    ):
        self._categorical = Categorical(probs, logits)
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args)

    @property
    def _param(self):
        return self._categorical._param

    @property
    def probs(self):
        return self._categorical.probs

    @property
    def logits(self):
        return self._categorical.logits

    @property
    def mean(self):
        return self._categorical.probs

    @property
    def mode(self):
        return self._one_hot(self._categorical.mode)

    @property
    def variance(self):
        return self._categorical.probs * (1 - self._categorical.probs)

    @property
    def param_shape(self):
        """The shape of `probs` and `logits`."""
        return self._categorical.param_shape

    def _one_hot(self, classes: Tensor) -> Tensor:
        all_ = ops.arange(self._categorical._num_events, dtype=int64, device=classes.device)
        return (classes.unsqueeze(-1) == all_).to(self._param.dtype)

    def sample(self, sample_shape=()):
        with no_grad():
            return self._one_hot(self._categorical.sample(sample_shape))

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        return self._categorical.log_prob(value.argmax(-1))

    def entropy(self):
        return self._categorical.entropy()

    def enumerate_support(self, expand=True):
        n = self._categorical._num_events
        values = ops.eye(n, dtype=self._param.dtype, device=self._param.device)
        values = values.reshape((n,) + (1,) * len(self._batch_shape) + (n,))
        return values.expand((n, *self._batch_shape, n)) if expand else values


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """A one-hot vector whose gradient is taken for that of the probabilities.

    Source: Y. Bengio, N. Léonard, A. Courville, "Estimating or propagating gradients through stochastic
    neurons", 2013.
    """

    has_rsample = True

    def rsample(self, sample_shape=()):
        probs = self._categorical.probs
        return self.sample(sample_shape) + (probs - probs.detach())


class Multinomial(Distribution):
    """How often each class is drawn in `total_count` draws.  Shapes: [*batch, n]."""

    arg_constraints = _OF_CLASSES
    total_count: int

    def __init__(
        self,
        total_count: int = 1,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ):
        if not isinstance(total_count, int):
            raise MissingError("Multinomial: inhomogeneous total_count is not supported; it must be an int")
        self.total_count = total_count
        self._categorical = Categorical(probs=probs, logits=logits)
        self._binomial = Binomial(total_count=total_count, probs=self._categorical.probs)
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args)

    def _grown(self, name, value, shape):
        if name == "_binomial":
            return value.expand(tuple(shape) + tuple(self._event_shape))
        return super()._grown(name, value, shape)

    @property
    def mean(self):
        return self.probs * self.total_count

    @property
    def variance(self):
        return self.total_count * self.probs * (1 - self.probs)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self):
        return constraints.multinomial(self.total_count)

    @property
    def logits(self):
        return self._categorical.logits

    @property
    def probs(self):
        return self._categorical.probs

    @property
    def param_shape(self):
        """The shape of `probs` and `logits`."""
        return self._categorical.param_shape

    def sample(self, sample_shape=()):
        with no_grad():
            drawn = self._categorical.sample((self.total_count, *sample_shape))
            drawn = drawn.movedim(0, -1)
            counts = ops.zeros(
                tuple(self._extended_shape(sample_shape)), dtype=self.probs.dtype, device=self.probs.device
            )
            return counts.scatter_add(-1, drawn, ops.ones_like(drawn, dtype=counts.dtype))

    def entropy(self):
        n = self.probs.new_full((), float(self.total_count))
        values = self._binomial.enumerate_support(expand=False)[1:]
        weights = self._binomial.log_prob(values).exp() * ops.lgamma(values + 1)
        return n * self._categorical.entropy() - ops.lgamma(n + 1) + weights.sum((0, -1))

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        logits, value = ops.broadcast_tensors(self.logits, value)
        logits = ops.where((value == 0) & (logits == -float("inf")), 0.0, logits)
        total = ops.lgamma(value.sum(-1) + 1) - ops.lgamma(value + 1).sum(-1)
        return total + (logits * value).sum(-1)
