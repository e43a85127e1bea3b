"""Distributions made of others: transformed, with batch dimensions as events, mixed."""

from __future__ import annotations

from typing import Any

from ..ir.errors import ArgumentError, ArgumentValueError, MissingError
from ..ir.shapes import broadcast_shapes
from ..runtime import Size, Tensor, no_grad, ops
from . import constraints
from .categorical import Categorical
from .composed_transforms import ComposeTransform
from .distribution import Distribution
from .parameters import sum_rightmost
from .transform import Transform


class Independent(Distribution):
    """A distribution whose last `reinterpreted_batch_ndims` batch dimensions count as the event's."""

    arg_constraints: dict = {}

    def __init__(
        self,
        base_distribution: Distribution,
        reinterpreted_batch_ndims: int,
        validate_args: bool | None = None,
    ):
        if not isinstance(base_distribution, Distribution):
            raise ArgumentError(
                f"Independent: a distribution is needed, not {type(base_distribution).__name__}"
            )
        batch = base_distribution.batch_shape
        if not 0 <= reinterpreted_batch_ndims <= len(batch):
            raise ArgumentValueError(
                "Expected reinterpreted_batch_ndims <= len(base_distribution.batch_shape), "
                f"actual {reinterpreted_batch_ndims} vs {len(batch)}"
            )
        cut = len(batch) - reinterpreted_batch_ndims
        self.base_dist = base_distribution
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims
        event = tuple(batch[cut:]) + tuple(base_distribution.event_shape)
        super().__init__(batch[:cut], event, validate_args)

    def _grown(self, name, value, shape):
        if name == "base_dist":
            return value.expand(tuple(shape) + tuple(self.event_shape[: self.reinterpreted_batch_ndims]))
        return value

    @property
    def has_rsample(self):  # type: ignore[override]
        return self.base_dist.has_rsample

    @property
    def has_enumerate_support(self):  # type: ignore[override]
        return self.reinterpreted_batch_ndims == 0 and self.base_dist.has_enumerate_support

    @constraints.dependent_property
    def support(self):
        found, n = self.base_dist.support, self.reinterpreted_batch_ndims
        return constraints.independent(found, n) if n else found

    @property
    def mean(self):
        return self.base_dist.mean

    @property
    def mode(self):
        return self.base_dist.mode

    @property
    def variance(self):
        return self.base_dist.variance

    def sample(self, sample_shape=()):
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape=()):
        return self.base_dist.rsample(sample_shape)

    def log_prob(self, value):
        return sum_rightmost(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def entropy(self):
        return sum_rightmost(self.base_dist.entropy(), self.reinterpreted_batch_ndims)

    def enumerate_support(self, expand=True):
        if self.reinterpreted_batch_ndims:
            raise MissingError("Enumeration over cartesian product is not implemented")
        return self.base_dist.enumerate_support(expand)

    def __repr__(self):
        return f"{type(self).__name__}({self.base_dist}, {self.reinterpreted_batch_ndims})"


class TransformedDistribution(Distribution):
    """What becomes of draws of a distribution under transforms, one after the other."""

    arg_constraints: dict = {}

    def __init__(self, base_distribution: Distribution, transforms: Any, validate_args: bool | None = None):
        self.transforms: list[Transform] = [transforms] if isinstance(transforms, Transform) else transforms
        if not isinstance(self.transforms, list) or not all(
            isinstance(t, Transform) for t in self.transforms
        ):
            raise ArgumentValueError(
                "TransformedDistribution: transforms must be a transform or a list of them, "
                f"not {type(transforms).__name__}"
            )
        if not isinstance(base_distribution, Distribution):
            raise ArgumentError(
                f"TransformedDistribution: a distribution is needed, not {type(base_distribution).__name__}"
            )
        base_shape = tuple(base_distribution.batch_shape) + tuple(base_distribution.event_shape)
        whole = ComposeTransform(self.transforms)
        if len(base_shape) < whole.domain.event_dim:
            raise ArgumentValueError(
                f"base_distribution needs to have shape with size at least {whole.domain.event_dim}, "
                f"but got {list(base_shape)}."
            )
        image = tuple(whole.forward_shape(base_shape))
        deeper = whole.domain.event_dim - len(base_distribution.event_shape)
        # A base that the transforms broadcast is expanded; batch dimensions that they mix become its events.
        expanded = tuple(whole.inverse_shape(image))
        if base_shape != expanded:
            batch = expanded[: len(expanded) - len(base_distribution.event_shape)]
            base_distribution = base_distribution.expand(batch)
        self.base_dist = Independent(base_distribution, deeper) if deeper > 0 else base_distribution
        dims = max(
            whole.codomain.event_dim,
            len(base_distribution.event_shape) + whole.codomain.event_dim - whole.domain.event_dim,
        )
        cut = len(image) - dims
        super().__init__(image[:cut], image[cut:], validate_args)

    def expand(self, batch_shape, _instance=None):
        new = self._get_checked_instance(type(self), _instance)
        shape = tuple(batch_shape) + tuple(self.event_shape)
        for part in reversed(self.transforms):
            shape = tuple(part.inverse_shape(shape))
        for name, value in self.__dict__.items():
            if name != "base_dist":
                setattr(new, name, self._grown(name, value, Size(batch_shape)))
        new.base_dist = self.base_dist.expand(shape[: len(shape) - len(self.base_dist.event_shape)])
        new._batch_shape = Size(batch_shape)
        return new

    @property
    def has_rsample(self):  # type: ignore[override]
        return self.base_dist.has_rsample

    @constraints.dependent_property
    def support(self):
        if not self.transforms:
            return self.base_dist.support
        return constraints.independent(self.transforms[-1].codomain, self._missing_events())

    def _missing_events(self) -> int:
        return max(len(self.event_shape) - self.transforms[-1].codomain.event_dim, 0)

    def sample(self, sample_shape=()):
        with no_grad():
            x = self.base_dist.sample(sample_shape)
            for transform in self.transforms:
                x = transform(x)
            return x

    def rsample(self, sample_shape=()):
        x = self.base_dist.rsample(sample_shape)
        for transform in self.transforms:
            x = transform(x)
        return x

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        dims, total, y = len(self.event_shape), 0.0, value
        for transform in reversed(self.transforms):
            x = transform.inv(y)
            dims += transform.domain.event_dim - transform.codomain.event_dim
            found = transform.log_abs_det_jacobian(x, y)
            total = total - sum_rightmost(found, dims - transform.domain.event_dim)
            y = x
        return total + sum_rightmost(self.base_dist.log_prob(y), dims - len(self.base_dist.event_shape))

    def _rising(self, value: Tensor) -> Tensor:
        """A cumulative probability, or its complement where the transforms fall."""
        sign: Any = 1
        for transform in self.transforms:
            sign = sign * transform.sign
        if isinstance(sign, int) and sign == 1:
            return value
        return sign * (value - 0.5) + 0.5

    def cdf(self, value):
        for transform in reversed(self.transforms):
            value = transform.inv(value)
        if self._validate_args:
            self.base_dist._validate_sample(value)
        return self._rising(self.base_dist.cdf(value))

    def icdf(self, value):
        value = self.base_dist.icdf(self._rising(value))
        for transform in self.transforms:
            value = transform(value)
        return value


class MixtureSameFamily(Distribution):
    """One of a batch of distributions, by a Categorical; the last batch dimension is the components'."""

    arg_constraints: dict = {}
    has_rsample = False

    def __init__(
        self, mixture_distribution: Any, component_distribution: Any, validate_args: bool | None = None
    ):
        if not isinstance(mixture_distribution, Categorical):
            raise ArgumentValueError(
                "MixtureSameFamily: the mixture distribution must be a Categorical, "
                f"not {type(mixture_distribution).__name__}"
            )
        if not isinstance(component_distribution, Distribution):
            raise ArgumentValueError(
                "MixtureSameFamily: the component distribution must be a Distribution, "
                f"not {type(component_distribution).__name__}"
            )
        outer = tuple(mixture_distribution.batch_shape)
        inner = tuple(component_distribution.batch_shape)
        if not inner or broadcast_shapes("MixtureSameFamily", outer, inner[:-1]) != inner[:-1]:
            raise ArgumentValueError(
                f"MixtureSameFamily: the mixture's batch {list(outer)} does not fit the components' "
                f"{list(inner)}, whose last dimension counts them"
            )
        count = mixture_distribution._num_events
        if count != inner[-1]:
            raise ArgumentValueError(
                f"MixtureSameFamily: the mixture has {count} components, their distribution {inner[-1]}"
            )
        self._mixture_distribution = mixture_distribution
        self._component_distribution = component_distribution
        self._num_component = count
        self._event_ndims = len(component_distribution.event_shape)
        super().__init__(inner[:-1], component_distribution.event_shape, validate_args)

    def _grown(self, name, value, shape):
        if name == "_component_distribution":
            return value.expand(tuple(shape) + (self._num_component,))
        return value.expand(shape) if name == "_mixture_distribution" else value

    @constraints.dependent_property
    def support(self):
        return constraints.MixtureSameFamilyConstraint(self._component_distribution.support)

    @property
    def mixture_distribution(self):
        """The Categorical over the components."""
        return self._mixture_distribution

    @property
    def component_distribution(self):
        """The batch of components."""
        return self._component_distribution

    def _weights(self) -> Tensor:
        return self._pad_mixture_dimensions(self.mixture_distribution.probs)

    def _along(self) -> int:
        """The dimension of the components."""
        return -1 - self._event_ndims

    @property
    def mean(self):
        return (self._weights() * self.component_distribution.mean).sum(self._along())

    @property
    def variance(self):
        """By the law of total variance."""
        weights = self._weights()
        off = self.component_distribution.mean - self._pad(self.mean)
        return (weights * (self.component_distribution.variance + off.square())).sum(self._along())

    def cdf(self, x):
        return (self.component_distribution.cdf(self._pad(x)) * self.mixture_distribution.probs).sum(-1)

    def log_prob(self, x):
        if self._validate_args:
            self._validate_sample(x)
        each = self.component_distribution.log_prob(self._pad(x))
        return ops.logsumexp(each + ops.log_softmax(self.mixture_distribution.logits, dim=-1), dim=-1)

    def sample(self, sample_shape=()):
        with no_grad():
            event = tuple(self.event_shape)
            chosen = self.mixture_distribution.expand(self.batch_shape).sample(sample_shape)
            drawn = self.component_distribution.sample(sample_shape)
            at = chosen.reshape(tuple(chosen.shape) + (1,) * (len(event) + 1))
            at = at.expand(tuple(chosen.shape) + (1, *event))
            return drawn.gather(self._along(), at).squeeze(self._along())

    def _pad(self, x: Tensor) -> Tensor:
        return x.unsqueeze(self._along())

    def _pad_mixture_dimensions(self, x: Tensor) -> Tensor:
        missing = len(self.batch_shape) - len(self.mixture_distribution.batch_shape)
        shape = tuple(x.shape)
        return x.reshape(shape[:-1] + (1,) * missing + shape[-1:] + (1,) * self._event_ndims)

    def __repr__(self):
        return f"MixtureSameFamily(\n  {self.mixture_distribution},\n  {self.component_distribution})"
