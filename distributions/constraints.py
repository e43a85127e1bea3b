"""Constraints: which values a parameter, or a sample, may have.

`check` gives a bool for each event, `event_dim` says how many of the last dimensions an event takes,
`is_discrete` whether its values are countable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..ir.dtypes import bool_
from ..ir.errors import ArgumentError, ArgumentValueError
from ..runtime import Tensor, ops
from ..runtime.refusal import refusing_methods
from .parameters import all_rightmost, eps_of


class Constraint:
    """A set of values."""

    is_discrete = False
    event_dim = 0
    _shown: tuple[str, ...] = ()

    def check(self, value: Tensor) -> Tensor:
        """Whether each event is allowed.  Shapes: [..., *event] -> bool[...]."""
        raise NotImplementedError

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={_text(getattr(self, name))}" for name in self._shown)
        return f"{type(self).__name__.removeprefix('_')}({shown})"

    def _described(self) -> str:
        """As repr, with the types of tensors in place of their values."""
        shown = ", ".join(f"{name}={_described(getattr(self, name))}" for name in self._shown)
        return f"{type(self).__name__.removeprefix('_')}({shown})"


def _text(value: Any) -> str:
    return str(value.item()) if isinstance(value, Tensor) and value.numel() == 1 else repr(value)


def _described(value: Any) -> str:
    if isinstance(value, Constraint):
        return value._described()
    return str(value._meta) if isinstance(value, Tensor) else repr(value)


class _Dependent(Constraint):
    """What depends on other parameters: it can't be checked alone."""

    def __init__(self, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented):
        self._is_discrete, self._event_dim = is_discrete, event_dim

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]
        if self._is_discrete is NotImplemented:
            raise NotImplementedError(".is_discrete cannot be determined statically")
        return self._is_discrete

    @property
    def event_dim(self) -> int:  # type: ignore[override]
        if self._event_dim is NotImplemented:
            raise NotImplementedError(".event_dim cannot be determined statically")
        return self._event_dim

    def __call__(self, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented) -> _Dependent:
        return _Dependent(
            is_discrete=self._is_discrete if is_discrete is NotImplemented else is_discrete,
            event_dim=self._event_dim if event_dim is NotImplemented else event_dim,
        )

    def check(self, value: Tensor) -> Tensor:
        raise ArgumentValueError("a dependent constraint can't be checked alone", "ask an instance for it")


class _DependentProperty(property, _Dependent):
    """A property that gives the constraint of an instance, and stands for a dependent one in the class."""

    def __init__(
        self,
        fn: Callable | None = None,
        *,
        is_discrete: Any = NotImplemented,
        event_dim: Any = NotImplemented,
    ):
        property.__init__(self, fn)
        _Dependent.__init__(self, is_discrete=is_discrete, event_dim=event_dim)

    def __call__(self, fn: Callable) -> Any:  # type: ignore[override]
        return _DependentProperty(fn, is_discrete=self._is_discrete, event_dim=self._event_dim)

    def __repr__(self) -> str:
        return "DependentProperty()"

    _described = __repr__


def is_dependent(constraint: Any) -> bool:
    """Whether a constraint depends on other parameters, and so can't be checked alone."""
    return isinstance(constraint, _Dependent)


class _IndependentConstraint(Constraint):
    """`base_constraint` over events that have `reinterpreted_batch_ndims` more dimensions."""

    def __init__(self, base_constraint: Constraint, reinterpreted_batch_ndims: int):
        if not isinstance(base_constraint, Constraint) or isinstance(reinterpreted_batch_ndims, bool):
            raise ArgumentError("independent(base_constraint, n): takes a constraint and an int")
        if not isinstance(reinterpreted_batch_ndims, int) or reinterpreted_batch_ndims < 0:
            raise ArgumentValueError("independent(base_constraint, n): n must be an int, at least 0")
        self.base_constraint = base_constraint
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]
        return self.base_constraint.is_discrete

    @property
    def event_dim(self) -> int:  # type: ignore[override]
        return self.base_constraint.event_dim + self.reinterpreted_batch_ndims

    def check(self, value: Tensor) -> Tensor:
        result = self.base_constraint.check(value)
        if result.ndim < self.reinterpreted_batch_ndims:
            raise ArgumentValueError(
                f"a value of at least {self.event_dim} dimensions is needed, not {value.ndim}"
            )
        return all_rightmost(result, self.reinterpreted_batch_ndims)

    def __repr__(self) -> str:
        return f"IndependentConstraint({self.base_constraint!r}, {self.reinterpreted_batch_ndims})"

    def _described(self) -> str:
        return f"IndependentConstraint({self.base_constraint._described()}, {self.reinterpreted_batch_ndims})"


class MixtureSameFamilyConstraint(Constraint):
    """What every component of a mixture allows; the components are the batch dimension that is looked at."""

    def __init__(self, base_constraint: Constraint):
        if not isinstance(base_constraint, Constraint):
            raise ArgumentError("MixtureSameFamilyConstraint(base_constraint): takes a constraint")
        self.base_constraint = base_constraint

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]
        return self.base_constraint.is_discrete

    @property
    def event_dim(self) -> int:  # type: ignore[override]
        return self.base_constraint.event_dim

    def check(self, value: Tensor) -> Tensor:
        each = value.unsqueeze(-1 - self.event_dim)
        result = self.base_constraint.check(each)
        if value.ndim < self.event_dim:
            raise ArgumentValueError(
                f"a value of at least {self.event_dim} dimensions is needed, not {value.ndim}"
            )
        return all_rightmost(result, 1)

    def __repr__(self) -> str:
        return f"MixtureSameFamilyConstraint({self.base_constraint!r})"

    def _described(self) -> str:
        return f"MixtureSameFamilyConstraint({self.base_constraint._described()})"


# ---- numbers
class _Boolean(Constraint):
    """0 and 1."""

    is_discrete = True

    def check(self, value):
        return (value == 0) | (value == 1)


class _OneHot(Constraint):
    """One 1 among zeros."""

    is_discrete = True
    event_dim = 1

    def check(self, value):
        return ((value == 0) | (value == 1)).all(-1) & value.sum(-1).eq(1)


class _Real(Constraint):
    """All numbers, infinite ones too; no NaN."""

    def check(self, value):
        return value == value


def _whole(value: Tensor) -> Tensor:
    return value % 1 == 0


class _Above(Constraint):
    _shown = ("lower_bound",)

    def __init__(self, lower_bound: Any):
        self.lower_bound = lower_bound


class _Below(Constraint):
    _shown = ("upper_bound",)

    def __init__(self, upper_bound: Any):
        self.upper_bound = upper_bound


class _Between(Constraint):
    _shown = ("lower_bound", "upper_bound")

    def __init__(self, lower_bound: Any, upper_bound: Any):
        self.lower_bound, self.upper_bound = lower_bound, upper_bound


class _GreaterThan(_Above):
    """Numbers above a bound."""

    def check(self, value):
        return value > self.lower_bound


class _GreaterThanEq(_Above):
    """Numbers from a bound on."""

    def check(self, value):
        return value >= self.lower_bound


class _LessThan(_Below):
    """Numbers below a bound."""

    def check(self, value):
        return value < self.upper_bound


class _Interval(_Between):
    """Numbers between two bounds, and these."""

    def check(self, value):
        return (value >= self.lower_bound) & (value <= self.upper_bound)


class _HalfOpenInterval(_Between):
    """Numbers from one bound on, below the other."""

    def check(self, value):
        return (value >= self.lower_bound) & (value < self.upper_bound)


class _IntegerInterval(_Between):
    """Whole numbers between two bounds, and these."""

    is_discrete = True

    def check(self, value):
        return _whole(value) & (value >= self.lower_bound) & (value <= self.upper_bound)


class _IntegerGreaterThan(_Above):
    """Whole numbers from a bound on."""

    is_discrete = True

    def check(self, value):
        return _whole(value) & (value >= self.lower_bound)


# ---- vectors and matrices
class _Simplex(Constraint):
    """Numbers of at least 0 whose sum is 1, to 1e-6."""

    event_dim = 1

    def check(self, value):
        return (value >= 0).all(-1) & ((value.sum(-1) - 1).abs() < 1e-6)


class _Multinomial(Constraint):
    """Counts of at least 0 whose sum is the bound."""

    is_discrete = True
    event_dim = 1

    def __init__(self, upper_bound: Any):
        self.upper_bound = upper_bound

    def check(self, value):
        return (value >= 0).all(-1) & (value.sum(-1) <= self.upper_bound)


class _LowerTriangular(Constraint):
    """Square matrices that are zero above the diagonal."""

    event_dim = 2

    def check(self, value):
        return (ops.tril(value) == value).flatten(-2).all(-1)


class _LowerCholesky(Constraint):
    """Lower triangles with a diagonal above zero."""

    event_dim = 2

    def check(self, value):
        return lower_triangular.check(value) & (value.diagonal(dim1=-2, dim2=-1) > 0).all(-1)


class _CorrCholesky(Constraint):
    """Lower triangles whose rows have length 1: Cholesky factors of correlations."""

    event_dim = 2

    def check(self, value):
        tolerance = _EPS_OF_A_ROW * value.shape[-1] * eps_of(value.dtype)
        length = ops.linalg_vector_norm(value.detach(), dim=-1)
        return lower_cholesky.check(value) & ((length - 1).abs() <= tolerance).all(-1)


class _Square(Constraint):
    """Square matrices."""

    event_dim = 2

    def check(self, value):
        fits = value.ndim >= 2 and value.shape[-1] == value.shape[-2]
        return ops.full(value.shape[:-2], fits, dtype=bool_, device=value.device)


class _Symmetric(_Square):
    """Symmetric matrices, to 1e-6."""

    def check(self, value):
        if value.ndim < 2 or value.shape[-1] != value.shape[-2]:
            return super().check(value)
        return ops.isclose(value, value.mT, atol=1e-6).all(-2).all(-1)


class _PositiveSemidefinite(_Symmetric):
    """Symmetric matrices without a negative eigenvalue."""

    def check(self, value):
        symmetric_ = super().check(value)
        if value.ndim < 2 or value.shape[-1] != value.shape[-2]:
            return symmetric_
        return symmetric_ & (ops.linalg_eigvalsh(value.detach()) >= 0).all(-1)


class _PositiveDefinite(_Symmetric):
    """Symmetric matrices whose eigenvalues are above zero."""

    def check(self, value):
        symmetric_ = super().check(value)
        if value.ndim < 2 or value.shape[-1] != value.shape[-2]:
            return symmetric_
        return symmetric_ & (ops.linalg_eigvalsh(value.detach()) > 0).all(-1)


# ---- parts of one tensor
class _Cat(Constraint):
    """Constraints of parts that lie one behind the other along `dim`; lengths: 1 each unless given."""

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0, lengths: Sequence[int] | None = None):
        self.cseq = list(cseq)
        if not all(isinstance(c, Constraint) for c in self.cseq):
            raise ArgumentError("cat(cseq): takes constraints")
        self.lengths = [1] * len(self.cseq) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.cseq):
            raise ArgumentValueError(f"cat: {len(self.cseq)} constraints have {len(self.lengths)} lengths")
        self.dim = dim

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]
        return any(c.is_discrete for c in self.cseq)

    @property
    def event_dim(self) -> int:  # type: ignore[override]
        return max(c.event_dim for c in self.cseq)

    def check(self, value):
        parts = ops.split(value, self.lengths, dim=self.dim)
        return ops.cat([c.check(part) for c, part in zip(self.cseq, parts, strict=True)], self.dim)


class _Stack(Constraint):
    """Constraints of the parts that stand side by side along `dim`."""

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0):
        self.cseq = list(cseq)
        if not all(isinstance(c, Constraint) for c in self.cseq):
            raise ArgumentError("stack(cseq): takes constraints")
        self.dim = dim

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]
        return any(c.is_discrete for c in self.cseq)

    @property
    def event_dim(self) -> int:  # type: ignore[override]
        deepest = max(c.event_dim for c in self.cseq)
        return deepest + 1 if self.dim + deepest < 0 else deepest

    def check(self, value):
        parts = ops.unbind(value, self.dim)
        return ops.stack([c.check(part) for c, part in zip(self.cseq, parts, strict=True)], self.dim)


_EPS_OF_A_ROW = 10

dependent, dependent_property = _Dependent(), _DependentProperty
independent = _IndependentConstraint
boolean, one_hot, real = _Boolean(), _OneHot(), _Real()
nonnegative_integer, positive_integer = _IntegerGreaterThan(0), _IntegerGreaterThan(1)
integer_interval, multinomial = _IntegerInterval, _Multinomial
real_vector = independent(real, 1)
positive, nonnegative, unit_interval = _GreaterThan(0.0), _GreaterThanEq(0.0), _Interval(0.0, 1.0)
greater_than, greater_than_eq, less_than = _GreaterThan, _GreaterThanEq, _LessThan
interval, half_open_interval = _Interval, _HalfOpenInterval
simplex, square, symmetric = _Simplex(), _Square(), _Symmetric()
lower_triangular, lower_cholesky, corr_cholesky = _LowerTriangular(), _LowerCholesky(), _CorrCholesky()
positive_semidefinite, positive_definite = _PositiveSemidefinite(), _PositiveDefinite()
cat, stack = _Cat, _Stack

refusing_methods(
    [c for c in globals().values() if isinstance(c, type) and issubclass(c, Constraint)], "check"
)


def deepened(constraint: Constraint, dims: int) -> Constraint:
    """The constraint for events of so many dimensions."""
    missing = dims - constraint.event_dim
    return independent(constraint, missing) if missing > 0 else constraint


__all__ = [
    "Constraint", "MixtureSameFamilyConstraint", "boolean", "cat", "corr_cholesky", "dependent",
    "dependent_property", "greater_than", "greater_than_eq", "half_open_interval", "independent",
    "integer_interval", "interval", "is_dependent", "less_than", "lower_cholesky", "lower_triangular",
    "multinomial", "nonnegative", "nonnegative_integer", "one_hot", "positive", "positive_definite",
    "positive_integer", "positive_semidefinite", "real", "real_vector", "simplex", "square", "stack",
    "symmetric", "unit_interval",
]  # fmt: skip
