"""Transforms of numbers."""

from __future__ import annotations

import math
from typing import Any

from ..ir.shapes import broadcast_shapes
from ..runtime import Size, Tensor, ops
from . import constraints
from .parameters import broadcast_all, eps_of, sum_rightmost, tiny_of
from .transform import PlainTransform, Transform


class ExpTransform(PlainTransform):
    """y = exp(x)."""

    domain, codomain = constraints.real, constraints.positive
    bijective, sign = True, 1

    def _call(self, x):
        return x.exp()

    def _inverse(self, y):
        return y.log()

    def log_abs_det_jacobian(self, x, y):
        return x


class PowerTransform(Transform):
    """y = x ** exponent, of numbers above zero."""

    domain = codomain = constraints.positive
    bijective = True

    def __init__(self, exponent: Any, cache_size: int = 0):
        super().__init__(cache_size)
        (self.exponent,) = broadcast_all(exponent)

    def __eq__(self, other):
        return isinstance(other, PowerTransform) and bool(self.exponent.eq(other.exponent).all())

    __hash__ = object.__hash__

    @property
    def sign(self):
        return self.exponent.sign()

    def _call(self, x):
        return x.pow(self.exponent)

    def _inverse(self, y):
        return y.pow(1 / self.exponent)

    def log_abs_det_jacobian(self, x, y):
        return (self.exponent * y / x).abs().log()

    def forward_shape(self, shape):
        return Size(broadcast_shapes("PowerTransform", tuple(shape), tuple(self.exponent.shape)))

    inverse_shape = forward_shape


def _into_open(values: Tensor, low: float, high: float) -> Tensor:
    return values.clamp(min=low, max=high)


class SigmoidTransform(PlainTransform):
    """y = 1 / (1 + exp(-x)), kept off 0 and 1."""

    domain, codomain = constraints.real, constraints.unit_interval
    bijective, sign = True, 1

    def _call(self, x):
        return _into_open(ops.sigmoid(x), tiny_of(x.dtype), 1 - eps_of(x.dtype))

    def _inverse(self, y):
        y = _into_open(y, tiny_of(y.dtype), 1 - eps_of(y.dtype))
        return y.log() - ops.log1p(-y)

    def log_abs_det_jacobian(self, x, y):
        return -ops.softplus(-x) - ops.softplus(x)


class SoftplusTransform(PlainTransform):
    """y = log(1 + exp(x))."""

    domain, codomain = constraints.real, constraints.positive
    bijective, sign = True, 1

    def _call(self, x):
        return ops.softplus(x)

    def _inverse(self, y):
        return (-y).expm1().neg().log() + y

    def log_abs_det_jacobian(self, x, y):
        return -ops.softplus(-x)


class TanhTransform(PlainTransform):
    """y = tanh(x)."""

    domain, codomain = constraints.real, constraints.interval(-1.0, 1.0)
    bijective, sign = True, 1

    def _call(self, x):
        return x.tanh()

    def _inverse(self, y):
        return y.atanh()

    def log_abs_det_jacobian(self, x, y):
        return 2.0 * (math.log(2.0) - x - ops.softplus(-2.0 * x))


class AbsTransform(PlainTransform):
    """y = |x|, whose inverse is taken to be y."""

    domain, codomain = constraints.real, constraints.positive

    def _call(self, x):
        return x.abs()

    def _inverse(self, y):
        return y


class AffineTransform(Transform):
    """y = loc + scale * x."""

    bijective = True

    def __init__(self, loc: Any, scale: Any, event_dim: int = 0, cache_size: int = 0):
        super().__init__(cache_size)
        self.loc, self.scale, self._event_dim = loc, scale, event_dim

    @property
    def event_dim(self):
        return self._event_dim

    @property
    def domain(self):
        return constraints.deepened(constraints.real, self._event_dim)

    codomain = domain

    def __eq__(self, other):
        return (
            isinstance(other, AffineTransform)
            and _same(self.loc, other.loc)
            and _same(self.scale, other.scale)
        )

    __hash__ = object.__hash__

    @property
    def sign(self):
        if isinstance(self.scale, Tensor):
            return self.scale.sign()
        return (self.scale > 0) - (self.scale < 0)

    def _call(self, x):
        return self.loc + self.scale * x

    def _inverse(self, y):
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x, y):
        if isinstance(self.scale, Tensor):
            found = self.scale.abs().log()
        else:
            found = ops.full_like(x, math.log(abs(self.scale)))
        if self._event_dim:
            found = found.expand(tuple(x.shape)) if found.ndim < x.ndim else found
            found = sum_rightmost(found, self._event_dim)
        return found.expand(tuple(x.shape[: x.ndim - self._event_dim]))

    def forward_shape(self, shape):
        shapes = (tuple(getattr(each, "shape", ())) for each in (self.loc, self.scale))
        return Size(broadcast_shapes("AffineTransform", tuple(shape), *shapes))

    inverse_shape = forward_shape


def _same(a: Any, b: Any) -> bool:
    found = a == b
    return bool(found.all()) if isinstance(found, Tensor) else bool(found)


class CumulativeDistributionTransform(Transform):
    """y = distribution.cdf(x)."""

    bijective, codomain, sign = True, constraints.unit_interval, 1

    def __init__(self, distribution: Any, cache_size: int = 0):
        super().__init__(cache_size)
        self.distribution = distribution

    @property
    def domain(self):
        return self.distribution.support

    def _call(self, x):
        return self.distribution.cdf(x)

    def _inverse(self, y):
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x, y):
        return self.distribution.log_prob(x)
