"""Kullback and Leibler's divergence, by the classes of two distributions."""

from __future__ import annotations

import math
from collections.abc import Callable
from math import inf, pi
from typing import Any

from ..ir.errors import ArgumentValueError, MissingError
from ..ir.shapes import broadcast_shapes
from ..runtime import Tensor, ops
from .categorical import Categorical, OneHotCategorical
from .counts import Bernoulli, Binomial, ContinuousBernoulli, Geometric, Poisson
from .distribution import Distribution, ExponentialFamily, differentiated
from .gamma_family import Beta, Dirichlet, Exponential, Gamma, Pareto
from .location_scale import Cauchy, Gumbel, HalfNormal, Laplace, Normal, Uniform
from .multivariate import (
    LowRankMultivariateNormal,
    MultivariateNormal,
    log_diagonal,
    mahalanobis,
    solve_lower,
)
from .parameters import euler_constant, sum_rightmost
from .registry import _KL_REGISTRY, nearest, register_kl, remember  # noqa: F401
from .transformed import Independent, TransformedDistribution


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """KL(p || q): what is lost, in nats, where q is taken for p.  Shapes: [*batch].

    Raises MissingError for a pair that has none.
    """
    remember(type(p), type(q))
    found = nearest[type(p)][type(q)]
    if found is None:
        raise MissingError(
            f"No KL(p || q) is implemented for p type {type(p).__name__} and q type {type(q).__name__}",
            "register_kl enters one",
        )
    return found(p, q)


# ---- two of one kind
@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p, q):
    one = p.probs * (ops.softplus(-q.logits) - ops.softplus(-p.logits))
    none = (1 - p.probs) * (ops.softplus(q.logits) - ops.softplus(p.logits))
    one = ops.where(p.probs == 0, 0.0, ops.where(q.probs == 0, inf, one))
    none = ops.where(p.probs == 1, 0.0, ops.where(q.probs == 1, inf, none))
    return one + none


@register_kl(Beta, Beta)
def _beta(p, q):
    return _dirichlet(p._dirichlet, q._dirichlet)


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p, q):
    a, b = p.concentration, q.concentration
    total = a.sum(-1)
    whole = ops.lgamma(total) - ops.lgamma(b.sum(-1)) - (ops.lgamma(a) - ops.lgamma(b)).sum(-1)
    return whole + ((a - b) * (ops.digamma(a) - ops.digamma(total).unsqueeze(-1))).sum(-1)


@register_kl(Binomial, Binomial)
def _binomial(p, q):
    if bool((p.total_count < q.total_count).any()):
        raise MissingError("KL between Binomials where q.total_count > p.total_count is not implemented")
    slope = p.probs * (p.logits - q.logits) + ops.log1p(-p.probs) - ops.log1p(-q.probs)
    return ops.where(p.total_count > q.total_count, inf, p.total_count * slope)


@register_kl(Categorical, Categorical)
def _categorical(p, q):
    terms = p.probs * (p.logits - q.logits)
    terms = ops.where(p.probs == 0, 0.0, ops.where(q.probs == 0, inf, terms))
    return terms.sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hot(p, q):
    return _categorical(p._categorical, q._categorical)


@register_kl(ExponentialFamily, ExponentialFamily)
def _exponential_family(p, q):
    """Bregman's divergence of the log-normaliser.  Source: as of `ExponentialFamily`."""
    if type(p) is not type(q):
        raise MissingError(
            "The cross KL-divergence between different exponential families cannot be computed using Bregman "
            f"divergences: {type(p).__name__} and {type(q).__name__}"
        )
    naturals, normaliser, slopes = differentiated(p)
    result = q._log_normalizer(*q._natural_params) - normaliser
    for mine, others, slope in zip(naturals, q._natural_params, slopes, strict=True):
        result = result - sum_rightmost((others - mine) * slope, others.ndim - len(q.batch_shape))
    return result


@register_kl(Gamma, Gamma)
def _gamma(p, q):
    scaled = q.concentration * (p.rate / q.rate).log()
    lgammas = ops.lgamma(q.concentration) - ops.lgamma(p.concentration)
    shapes = (p.concentration - q.concentration) * ops.digamma(p.concentration)
    return scaled + lgammas + shapes + (q.rate - p.rate) * (p.concentration / p.rate)


@register_kl(Geometric, Geometric)
def _geometric(p, q):
    return -p.entropy() - ops.log1p(-q.probs) / p.probs - q.logits


@register_kl(HalfNormal, HalfNormal)
def _half_normal(p, q):
    return _normal(p.base_dist, q.base_dist)


@register_kl(Laplace, Laplace)
def _laplace(p, q):
    ratio, off = p.scale / q.scale, (p.loc - q.loc).abs()
    return -ratio.log() + off / q.scale + ratio * (-off / p.scale).exp() - 1


@register_kl(Normal, Normal)
def _normal(p, q):
    square = (p.scale / q.scale).square()
    return 0.5 * (square + ((p.loc - q.loc) / q.scale).square() - 1 - square.log())


@register_kl(Gumbel, Gumbel)
def _gumbel(p, q):
    ratio, off = p.scale / q.scale, (p.loc - q.loc) / q.scale
    tail = (ops.lgamma(1 + ratio) - off).exp()
    return -ratio.log() + off + ratio * euler_constant + tail - (1 + euler_constant)


@register_kl(Cauchy, Cauchy)
def _cauchy(p, q):
    """Source: F. Chyzak, F. Nielsen, "A closed-form formula for the Kullback-Leibler divergence between
    Cauchy distributions", 2019.
    """
    return (((p.scale + q.scale).square() + (p.loc - q.loc).square()) / (4 * p.scale * q.scale)).log()


@register_kl(Pareto, Pareto)
def _pareto(p, q):
    ratio = q.alpha / p.alpha
    found = q.alpha * (p.scale / q.scale).log() - ratio.log() + ratio - 1
    return ops.where(p.scale < q.scale, inf, found)


@register_kl(Poisson, Poisson)
def _poisson(p, q):
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@register_kl(Uniform, Uniform)
def _uniform(p, q):
    found = ((q.high - q.low) / (p.high - p.low)).log()
    return ops.where((q.low > p.low) | (q.high < p.high), inf, found)


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p, q):
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise MissingError(
            "KL of transformed distributions is implemented where their transforms are the same"
        )
    found = kl_divergence(p.base_dist, q.base_dist)
    return sum_rightmost(found, len(p.event_shape) - len(p.base_dist.event_shape))


@register_kl(Independent, Independent)
def _independent(p, q):
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise MissingError(
            "KL of two Independents is implemented where reinterpreted_batch_ndims is the same"
        )
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


# ---- multivariate normal
def _of_factors(p: Any) -> tuple[Tensor, Tensor]:
    """Factors of a covariance, side by side, and the logarithm of its determinant's root."""
    if isinstance(p, MultivariateNormal):
        return p._unbroadcasted_scale_tril, log_diagonal(p._unbroadcasted_scale_tril)
    diagonal = ops.diag_embed(p._unbroadcasted_cov_diag.sqrt())
    factor = p._unbroadcasted_cov_factor
    batch = broadcast_shapes("kl_divergence", tuple(factor.shape[:-2]), tuple(diagonal.shape[:-2]))
    parts = [x.expand((*batch, *x.shape[-2:])) for x in (factor, diagonal)]
    return ops.cat(parts, -1), 0.5 * p._log_determinant()


def _multivariate(p: Any, q: Any) -> Tensor:
    if p.event_shape != q.event_shape:
        raise ArgumentValueError(
            "KL-divergence between two multivariate normals with different event shapes cannot be computed: "
            f"{list(p.event_shape)} and {list(q.event_shape)}"
        )
    factors, root = _of_factors(p)
    off = (q.loc - p.loc).unsqueeze(-1)
    n = p.event_shape[0]
    if isinstance(q, MultivariateNormal):
        own = q._unbroadcasted_scale_tril
        spread = solve_lower(own, factors).square().sum((-2, -1))
        distance = mahalanobis(own, off.squeeze(-1))
        return log_diagonal(own) - root + 0.5 * (spread + distance - n)
    diagonal = q._unbroadcasted_cov_diag.unsqueeze(-1)
    columns = q._unbroadcasted_cov_factor

    def squared(x: Tensor) -> Tensor:
        """The trace of x.mT @ inverse(q's covariance) @ x, by Woodbury's identity."""
        seen = solve_lower(q._capacitance_tril, columns.mT @ (x / diagonal))
        return (x.square() / diagonal).sum((-2, -1)) - seen.square().sum((-2, -1))

    return 0.5 * (q._log_determinant() + squared(factors) + squared(off) - n) - root


for _first in (MultivariateNormal, LowRankMultivariateNormal):
    for _second in (MultivariateNormal, LowRankMultivariateNormal):
        register_kl(_first, _second)(_multivariate)


# ---- two kinds: the entropy of p, and what q's density is on average over p
def _infinite(p: Any, q: Any) -> Tensor:
    """Where q does not reach all of p."""
    shape = broadcast_shapes("kl_divergence", tuple(p.batch_shape), tuple(q.batch_shape))
    return ops.full(shape, inf, dtype=p.mean.dtype, device=p.mean.device)


def _mean_log(p: Any) -> Tensor:
    """The mean of log x."""
    if isinstance(p, Beta):
        return ops.digamma(p.concentration1) - ops.digamma(p._total)
    if isinstance(p, Gamma):
        return ops.digamma(p.concentration) - p.rate.log()
    if isinstance(p, Exponential):
        return -euler_constant - p.rate.log()
    if isinstance(p, Pareto):
        return p.scale.log() + p.alpha.reciprocal()
    return (ops.xlogy(p.high, p.high) - ops.xlogy(p.low, p.low)) / (p.high - p.low) - 1  # Uniform


def _mean_exp(p: Any, t: Tensor) -> Tensor:
    """The mean of exp(-t x)."""
    if isinstance(p, Exponential):
        return p.rate / (p.rate + t)
    if isinstance(p, Gamma):
        return (1 + t / p.rate).pow(-p.concentration)
    if isinstance(p, Normal):
        return (0.5 * (t * p.scale).square() - t * p.loc).exp()
    return ((-t * p.low).exp() - (-t * p.high).exp()) / (t * (p.high - p.low))  # Uniform


def _to_exponential(p, q):
    return q.rate * p.mean - q.rate.log()


def _to_gamma(p, q):
    a, b = q.concentration, q.rate
    return ops.lgamma(a) - a * b.log() + b * p.mean - (a - 1) * _mean_log(p)


def _to_gumbel(p, q):
    t = q.scale.reciprocal()
    return q.scale.log() + (p.mean - q.loc) * t + (q.loc * t).exp() * _mean_exp(p, t)


def _to_normal(p, q):
    square = p.variance + (p.mean - q.loc).square()
    return q.scale.log() + 0.5 * math.log(2 * pi) + 0.5 * square / q.scale.square()


def _to_laplace(p, q):
    """Of a normal p: the mean of |x - loc| is that of a folded normal."""
    off = p.loc - q.loc
    ratio = off / (p.scale * math.sqrt(2.0))
    mean = math.sqrt(2 / pi) * p.scale * (-ratio.square()).exp() + off * ops.erf(ratio)
    return (2 * q.scale).log() + mean / q.scale


def _to_bernoulli(p, q):
    """The continuous kind."""
    return -p.mean * q.logits - ops.log1p(-q.probs) - q._cont_bern_log_norm()


def _to_beta(p, q):
    """Of a uniform p."""
    a, b = q.concentration1, q.concentration0
    mirrored = Uniform(1 - p.high, 1 - p.low, validate_args=False)
    whole = ops.lgamma(a) + ops.lgamma(b) - ops.lgamma(a + b)
    return whole - (a - 1) * _mean_log(p) - (b - 1) * _mean_log(mirrored)


def _to_pareto(p, q):
    return (q.alpha + 1) * _mean_log(p) - q.alpha.log() - q.alpha * q.scale.log()


def _to_uniform(p, q):
    return (q.high - q.low).log()


def _to_poisson(p, q):
    """Of a Bernoulli p, for which x! is 1."""
    return q.rate - p.probs * q.rate.log()


def _between(cross: Callable, outside: Callable | None = None) -> Callable:
    def divergence(p: Any, q: Any) -> Tensor:
        found = cross(p, q) - p.entropy()
        return found if outside is None else ops.where(outside(p, q), inf, found)

    return divergence


def _unit_leaves(p, q):
    """Whether q, uniform, leaves out a part of [0, 1]."""
    return (q.low > 0) | (q.high < 1)


def _leaves_unit(p, q):
    """Whether p, uniform, is outside of [0, 1] somewhere."""
    return (p.high > 1) | (p.low < 0)


def _is_below_zero(p, q):
    return p.low < 0


_PAIRS: dict[tuple[type, type], Callable] = {
    (Bernoulli, Poisson): _between(_to_poisson),
    (Beta, ContinuousBernoulli): _between(_to_bernoulli),
    (Beta, Exponential): _between(_to_exponential),
    (Beta, Gamma): _between(_to_gamma),
    (Beta, Normal): _between(_to_normal),
    (Beta, Uniform): _between(_to_uniform, _unit_leaves),
    (ContinuousBernoulli, ContinuousBernoulli): _between(_to_bernoulli),
    (ContinuousBernoulli, Exponential): _between(_to_exponential),
    (ContinuousBernoulli, Normal): _between(_to_normal),
    (ContinuousBernoulli, Uniform): _between(_to_uniform, _unit_leaves),
    (Exponential, Exponential): _between(_to_exponential),
    (Exponential, Gamma): _between(_to_gamma),
    (Exponential, Gumbel): _between(_to_gumbel),
    (Exponential, Normal): _between(_to_normal),
    (Gamma, Exponential): _between(_to_exponential),
    (Gamma, Gumbel): _between(_to_gumbel),
    (Gamma, Normal): _between(_to_normal),
    (Gumbel, Normal): _between(_to_normal),
    (Laplace, Normal): _between(_to_normal),
    (Normal, Gumbel): _between(_to_gumbel),
    (Normal, Laplace): _between(_to_laplace),
    (Pareto, Exponential): _between(_to_exponential),
    (Pareto, Gamma): _between(_to_gamma, lambda p, q: p.alpha <= 1),
    (Pareto, Normal): _between(_to_normal, lambda p, q: p.alpha <= 2),
    (Uniform, Beta): _between(_to_beta, _leaves_unit),
    (Uniform, ContinuousBernoulli): _between(_to_bernoulli, _leaves_unit),
    (Uniform, Exponential): _between(_to_exponential, _is_below_zero),
    (Uniform, Gamma): _between(_to_gamma, _is_below_zero),
    (Uniform, Gumbel): _between(_to_gumbel),
    (Uniform, Normal): _between(_to_normal),
    (Uniform, Pareto): _between(_to_pareto, lambda p, q: p.low < q.scale),
}
_OUTSIDE: dict[type, tuple[type, ...]] = {
    Beta: (Pareto,),
    ContinuousBernoulli: (Pareto,),
    Exponential: (Beta, ContinuousBernoulli, Pareto, Uniform),
    Gamma: (Beta, ContinuousBernoulli, Pareto, Uniform),
    Gumbel: (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform),
    Laplace: (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform),
    Normal: (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform),
    Pareto: (Beta, ContinuousBernoulli, Uniform),
    Poisson: (Bernoulli, Binomial),
}
_PAIRS |= {(first, second): _infinite for first, others in _OUTSIDE.items() for second in others}
for (_first, _second), _function in _PAIRS.items():
    register_kl(_first, _second)(_function)
