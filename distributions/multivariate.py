"""Families of vectors and matrices: multivariate normal, of low rank too, Wishart, LKJ's correlations."""

from __future__ import annotations

import math
from math import nan, pi
from typing import Any

from ..ir.errors import ArgumentValueError
from ..ir.shapes import broadcast_shapes
from ..runtime import Size, Tensor, no_grad, ops, tensor
from ..runtime import random as draws
from . import constraints
from .distribution import Distribution, ExponentialFamily
from .gamma_family import Beta, _standard_gamma
from .parameters import broadcast_all, lazy_property, one_of, tiny_of

_BY_MATRIX: dict = {
    "covariance_matrix": constraints.positive_definite,
    "precision_matrix": constraints.positive_definite,
    "scale_tril": constraints.lower_cholesky,
}


def solve_lower(factor: Tensor, right: Tensor) -> Tensor:
    """X of factor @ X = right, for a lower triangle."""
    return ops.linalg_solve_triangular(factor, right, upper=False)


def mahalanobis(factor: Tensor, off: Tensor) -> Tensor:
    """off @ inverse(factor @ factor.mT) @ off.  Shapes: [..., n, n], [..., n] -> [...]."""
    return solve_lower(factor, off.unsqueeze(-1)).square().sum((-2, -1))


def log_diagonal(factor: Tensor) -> Tensor:
    """The logarithm of a triangle's determinant."""
    return factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def inverse_of(factor: Tensor) -> Tensor:
    """The inverse of factor @ factor.mT."""
    return ops.cholesky_solve(ops.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device), factor)


def factor_of_inverse(precision: Tensor) -> Tensor:
    """The Cholesky factor of a matrix's inverse, by the factor of the matrix turned by half a turn."""
    turned = ops.flip(ops.linalg_cholesky(ops.flip(precision, (-2, -1))), (-2, -1))
    return solve_lower(
        turned.mT, ops.eye(precision.shape[-1], dtype=precision.dtype, device=precision.device)
    )


def _matrix_of(given: dict[str, Any]) -> Tensor:
    """The matrix among these that is given.  Raises ArgumentValueError."""
    name = one_of(**given)
    matrix = given[name]
    if not isinstance(matrix, Tensor) or matrix.ndim < 2:
        raise ArgumentValueError(
            f"{name} must be at least two-dimensional, with optional leading batch dimensions"
        )
    return matrix


class _ByMatrix(Distribution):
    """A covariance, given as itself, as its inverse, or as its Cholesky factor; each computed when asked."""

    _unbroadcasted_scale_tril: Tensor

    def _init_matrix(self, given: dict[str, Any], batch: Any, event: Any, validate_args: Any) -> None:
        """Keep the matrix that is given, check the arguments, then factor it: errors tell of it."""
        name, matrix = one_of(**given), _matrix_of(given)
        setattr(self, name, matrix.expand((*batch, *matrix.shape[-2:])))
        Distribution.__init__(self, batch, event, validate_args)
        if name == "scale_tril":
            self._unbroadcasted_scale_tril = matrix
        elif name == "covariance_matrix":
            self._unbroadcasted_scale_tril = ops.linalg_cholesky(matrix)
        else:
            self._unbroadcasted_scale_tril = factor_of_inverse(matrix)

    def _whole(self, matrix: Tensor) -> Tensor:
        return matrix.expand((*self._batch_shape, *matrix.shape[-2:]))

    @lazy_property
    def scale_tril(self):
        return self._whole(self._unbroadcasted_scale_tril)

    @lazy_property
    def covariance_matrix(self):
        factor = self._unbroadcasted_scale_tril
        return self._whole(factor @ factor.mT)

    @lazy_property
    def precision_matrix(self):
        return self._whole(inverse_of(self._unbroadcasted_scale_tril))


class MultivariateNormal(_ByMatrix):
    """Vectors of the mean `loc` and a covariance.  Shapes: [*batch, n] and [*batch, n, n]."""

    arg_constraints = {"loc": constraints.real_vector, **_BY_MATRIX}
    support = constraints.real_vector
    has_rsample = True

    def __init__(
        self,
        loc: Tensor,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ):
        if not isinstance(loc, Tensor) or loc.ndim < 1:
            raise ArgumentValueError("loc must be at least one-dimensional.")
        given = {
            "covariance_matrix": covariance_matrix,
            "precision_matrix": precision_matrix,
            "scale_tril": scale_tril,
        }
        matrix = _matrix_of(given)
        batch = broadcast_shapes("MultivariateNormal", tuple(matrix.shape[:-2]), tuple(loc.shape[:-1]))
        event = broadcast_shapes("MultivariateNormal", tuple(matrix.shape[-1:]), tuple(loc.shape[-1:]))
        self.loc = loc.expand((*batch, *event))
        self._init_matrix(given, batch, event, validate_args)

    @property
    def mean(self):
        return self.loc

    @property
    def mode(self):
        return self.loc

    @property
    def variance(self):
        return (
            self._unbroadcasted_scale_tril.square().sum(-1).expand((*self._batch_shape, *self._event_shape))
        )

    def rsample(self, sample_shape=()):
        made = draws.randn(
            tuple(self._extended_shape(sample_shape)), dtype=self.loc.dtype, device=self.loc.device
        )
        return self.loc + (self._unbroadcasted_scale_tril @ made.unsqueeze(-1)).squeeze(-1)

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        factor = self._unbroadcasted_scale_tril
        distance = mahalanobis(factor, value - self.loc)
        return -0.5 * (self._event_shape[0] * math.log(2 * pi) + distance) - log_diagonal(factor)

    def entropy(self):
        found = 0.5 * self._event_shape[0] * (1.0 + math.log(2 * pi))
        return (found + log_diagonal(self._unbroadcasted_scale_tril)).expand(self._batch_shape)


class LowRankMultivariateNormal(Distribution):
    """Vectors whose covariance is cov_factor @ cov_factor.mT + diag(cov_diag).

    Shapes: [*batch, n], [*batch, n, r], [*batch, n].  The determinant lemma and Woodbury's identity need only
    matrices of r x r.
    """

    arg_constraints = {
        "loc": constraints.real_vector,
        "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }
    support = constraints.real_vector
    has_rsample = True

    def __init__(self, loc: Tensor, cov_factor: Tensor, cov_diag: Tensor, validate_args: bool | None = None):
        for name, given, least in (("loc", loc, 1), ("cov_factor", cov_factor, 2), ("cov_diag", cov_diag, 1)):
            if not isinstance(given, Tensor) or given.ndim < least:
                raise ArgumentValueError(f"{name} must be a tensor of at least {least} dimensions")
        event = tuple(loc.shape[-1:])
        if tuple(cov_factor.shape[-2:-1]) != event or tuple(cov_diag.shape[-1:]) != event:
            raise ArgumentValueError(
                f"LowRankMultivariateNormal: loc, cov_factor and cov_diag must have {event[0]} rows, not "
                f"{cov_factor.shape[-2]} and {cov_diag.shape[-1]}"
            )
        batch = broadcast_shapes(
            "LowRankMultivariateNormal",
            tuple(loc.shape[:-1]),
            tuple(cov_factor.shape[:-2]),
            tuple(cov_diag.shape[:-1]),
        )
        self.loc = loc.expand((*batch, *event))
        self.cov_factor = cov_factor.expand((*batch, *cov_factor.shape[-2:]))
        self.cov_diag = cov_diag.expand((*batch, *event))
        super().__init__(batch, event, validate_args)
        self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag = cov_factor, cov_diag
        self._capacitance_tril = capacitance(cov_factor, cov_diag)

    @property
    def mean(self):
        return self.loc

    @property
    def mode(self):
        return self.loc

    @lazy_property
    def variance(self):
        found = self._unbroadcasted_cov_factor.square().sum(-1) + self._unbroadcasted_cov_diag
        return found.expand((*self._batch_shape, *self._event_shape))

    _EVENT_DIMS = {"variance": 1, "scale_tril": 2, "covariance_matrix": 2, "precision_matrix": 2}

    def _whole(self, matrix: Tensor) -> Tensor:
        return matrix.expand((*self._batch_shape, *matrix.shape[-2:]))

    @lazy_property
    def scale_tril(self):
        return ops.linalg_cholesky(self.covariance_matrix)

    @lazy_property
    def covariance_matrix(self):
        factor = self._unbroadcasted_cov_factor
        return self._whole(factor @ factor.mT + ops.diag_embed(self._unbroadcasted_cov_diag))

    @lazy_property
    def precision_matrix(self):
        diagonal = self._unbroadcasted_cov_diag
        half = solve_lower(self._capacitance_tril, self._unbroadcasted_cov_factor.mT / diagonal.unsqueeze(-2))
        return self._whole(ops.diag_embed(diagonal.reciprocal()) - half.mT @ half)

    def rsample(self, sample_shape=()):
        shape = tuple(self._extended_shape(sample_shape))
        first = draws.randn(
            (*shape[:-1], self.cov_factor.shape[-1]), dtype=self.loc.dtype, device=self.loc.device
        )
        second = draws.randn(shape, dtype=self.loc.dtype, device=self.loc.device)
        spread = (self._unbroadcasted_cov_factor @ first.unsqueeze(-1)).squeeze(-1)
        return self.loc + spread + self._unbroadcasted_cov_diag.sqrt() * second

    def _log_determinant(self) -> Tensor:
        return 2 * log_diagonal(self._capacitance_tril) + self._unbroadcasted_cov_diag.log().sum(-1)

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        off = value - self.loc
        diagonal = self._unbroadcasted_cov_diag
        seen = (self._unbroadcasted_cov_factor.mT @ (off / diagonal).unsqueeze(-1)).squeeze(-1)
        distance = (off.square() / diagonal).sum(-1) - mahalanobis(self._capacitance_tril, seen)
        return -0.5 * (self._event_shape[0] * math.log(2 * pi) + self._log_determinant() + distance)

    def entropy(self):
        found = 0.5 * (self._event_shape[0] * (1.0 + math.log(2 * pi)) + self._log_determinant())
        return found.expand(self._batch_shape)


def capacitance(factor: Tensor, diagonal: Tensor) -> Tensor:
    """The Cholesky factor of 1 + factor.mT @ diag(diagonal)^-1 @ factor."""
    inner = (factor.mT / diagonal.unsqueeze(-2)) @ factor
    return ops.linalg_cholesky(inner + ops.eye(inner.shape[-1], dtype=inner.dtype, device=inner.device))


class Wishart(_ByMatrix, ExponentialFamily):
    """Sums of `df` outer products of normal vectors, for df > n - 1.  Shapes: [*batch], [*batch, n, n]."""

    support = constraints.positive_definite
    has_rsample = True
    _mean_carrier_measure = 0.0
    _EVENT_DIMS = {"df": 0}
    df: Tensor

    def __init__(
        self,
        df: Any,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ):
        given = {
            "covariance_matrix": covariance_matrix,
            "precision_matrix": precision_matrix,
            "scale_tril": scale_tril,
        }
        matrix = _matrix_of(given)
        degrees = df if isinstance(df, Tensor) else tensor(df, dtype=matrix.dtype, device=matrix.device)
        degrees = degrees if degrees.is_floating_point() else degrees.to(matrix.dtype)
        batch = broadcast_shapes("Wishart", tuple(matrix.shape[:-2]), tuple(degrees.shape))
        event = tuple(matrix.shape[-2:])
        self.df = degrees.expand(batch)
        self._event_shape = Size(event)  # which arg_constraints asks
        self._init_matrix(given, batch, event, validate_args)

    @property
    def arg_constraints(self):
        return {**_BY_MATRIX, "df": constraints.greater_than(self._event_shape[-1] - 1)}

    def _degrees(self) -> Tensor:
        return self.df.reshape((*self._batch_shape, 1, 1))

    @property
    def mean(self):
        return self._degrees() * self.covariance_matrix

    @property
    def mode(self):
        factor = self._degrees() - self._event_shape[-1] - 1
        return ops.where(factor <= 0, nan, factor) * self.covariance_matrix

    @property
    def variance(self):
        v = self.covariance_matrix
        diagonal = v.diagonal(dim1=-2, dim2=-1)
        return self._degrees() * (v.square() + diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2))

    def _halves(self) -> Tensor:
        """(df - i) / 2, i = 0 ... n - 1, of the chi-square numbers on the diagonal."""
        n = self._event_shape[-1]
        return (self.df.unsqueeze(-1) - ops.arange(n, dtype=self.df.dtype, device=self.df.device)) / 2

    def rsample(self, sample_shape=()):
        """By Bartlett's decomposition: chi numbers on the diagonal of a triangle of normal ones."""
        shape = tuple(self._extended_shape(sample_shape))
        diagonal = (2 * _standard_gamma(self._halves(), shape[:-1])).sqrt()
        below = draws.randn(shape, dtype=self.df.dtype, device=self.df.device).tril(-1)
        factor = self._unbroadcasted_scale_tril @ (below + ops.diag_embed(diagonal))
        return factor @ factor.mT

    _bartlett_sampling = rsample  # PyTorch's name of one draw, without a look at whether it is singular

    def _lgammas(self) -> Tensor:
        """The logarithm of the multivariate gamma function at df / 2."""
        n = self._event_shape[-1]
        return ops.lgamma(self._halves()).sum(-1) + 0.25 * n * (n - 1) * math.log(pi)

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        n, df, factor = self._event_shape[-1], self.df, self._unbroadcasted_scale_tril
        own = ops.linalg_cholesky(value)
        trace = solve_lower(factor, own).square().sum((-2, -1))
        whole = df * (0.5 * n * math.log(2.0) + log_diagonal(factor)) + self._lgammas()
        return (df - n - 1) * log_diagonal(own) - 0.5 * trace - whole

    def entropy(self):
        n, df, factor = self._event_shape[-1], self.df, self._unbroadcasted_scale_tril
        scaled = (n + 1) * (0.5 * n * math.log(2.0) + log_diagonal(factor))
        slope = 0.5 * (df - n - 1) * ops.digamma(self._halves()).sum(-1)
        return scaled + self._lgammas() - slope + 0.5 * df * n

    @property
    def _natural_params(self):
        return -self.precision_matrix / 2, (self.df - self._event_shape[-1] - 1) / 2

    def _log_normalizer(self, x, y):
        n = self._event_shape[-1]
        halves = (y + (n + 1) / 2).unsqueeze(-1) - ops.arange(n, dtype=y.dtype, device=y.device) / 2
        lgammas = ops.lgamma(halves).sum(-1) + 0.25 * n * (n - 1) * math.log(pi)
        return lgammas - (y + (n + 1) / 2) * (ops.linalg_slogdet(-2 * x)[1] - n * math.log(2.0))


class LKJCholesky(Distribution):
    """Cholesky factors of correlation matrices of `dim` variables, weighed by a power of their determinant.

    concentration: 1 makes all matrices equally likely; more favours the identity.  Source: D. Lewandowski,
    D. Kurowicka, H. Joe, "Generating random correlation matrices based on vines and extended onion
    method", 2009.
    """

    arg_constraints = {"concentration": constraints.positive}
    support = constraints.corr_cholesky
    concentration: Tensor

    def __init__(self, dim: int, concentration: Any = 1.0, validate_args: bool | None = None):
        if not isinstance(dim, int) or dim < 2:
            raise ArgumentValueError(
                f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}."
            )
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        super().__init__(self.concentration.shape, (dim, dim), validate_args)
        # The squared length of row i before its diagonal; row 0 has none, and is not read.
        row = ops.arange(dim, dtype=self.concentration.dtype, device=self.concentration.device).clamp(min=1.0)
        rest = self.concentration.unsqueeze(-1) + 0.5 * (dim - 1 - row)
        self._beta = Beta(0.5 * row, rest, validate_args=False)

    def _grown(self, name, value, shape):
        return value.expand((*shape, self.dim)) if name == "_beta" else super()._grown(name, value, shape)

    def sample(self, sample_shape=()):
        with no_grad():
            shape = tuple(self._extended_shape(sample_shape))
            square = self._beta.sample(sample_shape).unsqueeze(-1)
            made = draws.randn(shape, dtype=square.dtype, device=square.device).tril(-1)
            tiny = tiny_of(square.dtype)
            direction = made / ops.linalg_vector_norm(made, dim=-1, keepdim=True).clamp(min=tiny)
            below = square.sqrt() * direction
            diagonal = (1 - below.square().sum(-1)).clamp(min=tiny).sqrt()
            return below + ops.diag_embed(diagonal)

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        n = self.dim - 1
        diagonal = value.diagonal(dim1=-1, dim2=-2)[..., 1:]
        row = ops.arange(2, self.dim + 1, dtype=self.concentration.dtype, device=self.concentration.device)
        powers = 2 * (self.concentration - 1).unsqueeze(-1) + self.dim - row
        alpha = self.concentration + 0.5 * n
        steps = ops.arange(n, dtype=alpha.dtype, device=alpha.device) / 2
        lgammas = ops.lgamma((alpha - 0.5).unsqueeze(-1) - steps).sum(-1) + 0.25 * n * (n - 1) * math.log(pi)
        whole = 0.5 * n * math.log(pi) + lgammas - n * ops.lgamma(alpha)
        return (powers * diagonal.log()).sum(-1) - whole
