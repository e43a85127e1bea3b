"""What a distribution is: its shapes, the checks of its arguments, and what exponential families share."""

from __future__ import annotations

import warnings
from typing import Any

from ..ir.errors import ArgumentError, ArgumentValueError, MissingError
from ..runtime import Size, Tensor, no_grad, ops
from ..runtime.autograd import grad
from . import constraints
from .parameters import broadcast_all, lazy_property, sum_rightmost


def require(valid: Tensor, message: str, value: Tensor, *more: Any) -> None:
    """Raise ArgumentValueError unless all hold: at once in an eager run, and in the midst of a compiled one.

    message: says it without a value, as compiled code must; an eager run adds the value.
    """
    try:
        ops._assert_async(valid.all(), message)
    except ArgumentValueError:
        shown = [str(each) for each in more]
        raise ArgumentValueError(message, *shown, f"but found invalid values:\n{value}") from None


class Distribution:
    """The base of all distributions.

    batch_shape: the shape of the parameters' batch.  event_shape: of one draw from one of them.
    validate_args: whether arguments are checked; without, as `set_default_validate_args` said last.
    """

    has_rsample = False
    has_enumerate_support = False
    _validate_args = __debug__

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Choose whether arguments are checked where `validate_args` is not given."""
        if value not in (True, False):
            raise ArgumentValueError(f"set_default_validate_args(value): takes a bool, not {value!r}")
        Distribution._validate_args = value

    def __init__(self, batch_shape: Any = (), event_shape: Any = (), validate_args: bool | None = None):
        self._batch_shape, self._event_shape = Size(batch_shape), Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            self._check_arguments()
        super().__init__()

    def _check_arguments(self) -> None:
        try:
            checked = self.arg_constraints
        except NotImplementedError:
            warnings.warn(
                f"{type(self).__name__} does not define arg_constraints: set it to {{}}, or pass "
                "validate_args=False",
                stacklevel=3,
            )
            return
        kind = type(self)
        for name, constraint in checked.items():
            if constraints.is_dependent(constraint):
                continue
            if name not in self.__dict__ and isinstance(getattr(kind, name, None), lazy_property):
                continue  # what is computed of the others
            value = getattr(self, name)
            require(
                constraint.check(value),
                f"{kind.__name__}: Expected parameter {name} to satisfy the constraint "
                f"{constraint._described()}",
                value,
            )

    def _take(self, validate_args: bool | None, **parameters: Any) -> None:
        """Keep parameters, broadcast against each other, whose shape is the batch's."""
        taken = broadcast_all(*parameters.values())
        for name, value in zip(parameters, taken, strict=True):
            setattr(self, name, value)
        Distribution.__init__(self, taken[0].shape, (), validate_args)

    @property
    def batch_shape(self) -> Size:
        """The shape of the batch of parameters."""
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        """The shape of one draw."""
        return self._event_shape

    @property
    def arg_constraints(self) -> dict[str, constraints.Constraint]:
        """What each argument must satisfy, by name."""
        raise self._missing("arg_constraints")

    @property
    def support(self) -> constraints.Constraint:
        """What draws satisfy."""
        raise self._missing("support")

    def _missing(self, what: str) -> MissingError:
        return MissingError(f"{type(self).__name__} does not implement {what}")

    @property
    def mean(self) -> Tensor:
        """The mean.  Shapes: [*batch, *event]."""
        raise self._missing("mean")

    @property
    def mode(self) -> Tensor:
        """The most likely value.  Shapes: [*batch, *event]."""
        raise self._missing("mode")

    @property
    def variance(self) -> Tensor:
        """The variance of each element.  Shapes: [*batch, *event]."""
        raise self._missing("variance")

    @property
    def stddev(self) -> Tensor:
        """The standard deviation of each element.  Shapes: [*batch, *event]."""
        return self.variance.sqrt()

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Draw, without gradients.  Shapes: [*sample, *batch, *event]."""
        with no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Draw so that gradients reach the parameters.  Shapes: [*sample, *batch, *event]."""
        raise self._missing("rsample")

    def sample_n(self, n: int) -> Tensor:
        """Draw n times: `sample((n,))`."""
        warnings.warn("sample_n(n) is deprecated: write sample((n,))", FutureWarning, stacklevel=2)
        return self.sample((n,))

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density, or probability, at `value`.  Shapes: [..., *event] -> [...]."""
        raise self._missing("log_prob")

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of at most `value`."""
        raise self._missing("cdf")

    def icdf(self, value: Tensor) -> Tensor:
        """The value at which `cdf` is `value`."""
        raise self._missing("icdf")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All values.  Shapes: [n, *batch, *event]; without `expand`, ones in place of the batch."""
        raise self._missing("enumerate_support")

    def entropy(self) -> Tensor:
        """The entropy, in nats.  Shapes: [*batch]."""
        raise self._missing("entropy")

    def perplexity(self) -> Tensor:
        """The exponential of the entropy.  Shapes: [*batch]."""
        return self.entropy().exp()

    # ---- expanding
    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        """The same distribution for a larger batch; nothing is copied, nor checked again.

        _instance: what to fill in, where a subclass has made it.
        """
        shape, kept = Size(batch_shape), self._validate_args
        new = self._get_checked_instance(type(self), _instance)
        for name, value in self.__dict__.items():
            setattr(new, name, self._grown(name, value, shape))
        new._batch_shape, new._validate_args = shape, kept
        return new

    def _grown(self, name: str, value: Any, shape: Size) -> Any:
        """An attribute of this distribution's as one expanded to `shape` has it."""
        if isinstance(value, Distribution):
            return value.expand(shape)
        if not isinstance(value, Tensor):
            return value
        constraint = self.arg_constraints.get(name)
        event = self._EVENT_DIMS.get(name) if constraint is None else constraint.event_dim
        if event is None:
            return value
        return value.expand(shape + tuple(value.shape[value.ndim - event :]))

    _EVENT_DIMS: dict[str, int] = {}  # of attributes that are no arguments and yet belong to the batch

    def _extended_shape(self, sample_shape: Any = ()) -> Size:
        if isinstance(sample_shape, (int, str)) or not hasattr(sample_shape, "__iter__"):
            raise ArgumentError(f"sample_shape must be a tuple of ints, not {type(sample_shape).__name__}")
        return Size(tuple(sample_shape) + tuple(self._batch_shape) + tuple(self._event_shape))

    def _validate_sample(self, value: Tensor) -> None:
        """Raise ArgumentValueError for what can't have been drawn: by its kind, its shape or its values."""
        if not isinstance(value, Tensor):
            raise ArgumentValueError(
                f"{type(self).__name__}: The value argument must be a Tensor, not {type(value).__name__}",
                "lamina.tensor(value) makes one",
            )
        shape, events = tuple(value.shape), len(self._event_shape)
        if shape[len(shape) - events :] != tuple(self._event_shape) or len(shape) < events:
            raise ArgumentValueError(
                "The right-most size of value must match event_shape: "
                f"{list(shape)} vs {list(self._event_shape)}"
            )
        expected = tuple(self._batch_shape) + tuple(self._event_shape)
        for n, m in zip(reversed(shape), reversed(expected)):
            if n != 1 and m != 1 and n != m:
                raise ArgumentValueError(
                    "Value is not broadcastable with batch_shape+event_shape: "
                    f"{list(shape)} vs {list(expected)}"
                )
        try:
            support = self.support
        except NotImplementedError:
            warnings.warn(
                f"{type(self).__name__} does not define support: pass validate_args=False", stacklevel=3
            )
            return
        require(
            support.check(value),
            f"{type(self).__name__}: Expected value argument (of shape {list(shape)}) to be within the "
            f"support ({support._described()})",
            value,
        )

    def _get_checked_instance(self, cls: Any, _instance: Any = None) -> Any:
        own: Any = type(self)
        if _instance is None and own.__init__ is not cls.__init__:
            raise MissingError(
                f"{type(self).__name__}, a subclass of {cls.__name__} with an __init__ of its own, must have "
                "an expand() of its own"
            )
        return object.__new__(type(self)) if _instance is None else _instance

    def __repr__(self) -> str:
        kept = self.__dict__
        shown = [name for name in self.arg_constraints if name in kept]
        each = [f"{name}: {kept[name] if kept[name].numel() == 1 else kept[name].size()}" for name in shown]
        return f"{type(self).__name__}({', '.join(each)})"


class ExponentialFamily(Distribution):
    """Distributions with a density h(x) exp(<n, t(x)> - A(n)) of natural parameters n.

    The entropy and the divergence of two of one kind follow from A: F. Nielsen, R. Nock, "Entropies and
    cross-entropies of exponential families", 2010.
    """

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        raise self._missing("its natural parameters")

    def _log_normalizer(self, *args: Any, **kwargs: Any) -> Any:
        raise self._missing("its log-normaliser")

    @property
    def _mean_carrier_measure(self) -> float:
        """The mean of log h."""
        raise self._missing("the mean of its carrier measure")

    def entropy(self) -> Tensor:
        carrier = self._mean_carrier_measure
        naturals, normaliser, slopes = differentiated(self)
        result = normaliser - carrier
        for natural, slope in zip(naturals, slopes, strict=True):
            result = result - sum_rightmost(natural * slope, natural.ndim - len(self._batch_shape))
        return result


def differentiated(family: ExponentialFamily) -> tuple[list[Tensor], Tensor, tuple[Tensor, ...]]:
    """Natural parameters of a distribution, A of them, and A's derivatives."""
    naturals = [n if n.requires_grad else n.detach().requires_grad_() for n in family._natural_params]
    normaliser = family._log_normalizer(*naturals)
    return naturals, normaliser, grad(normaliser.sum(), naturals, create_graph=True)
