"""Invertible transforms, with the logarithm of how they stretch volume: of numbers, and of parts.

`domain` and `codomain` are constraints; `sign` is that of a monotone transform's slope; `bijective` whether
each value has one inverse.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from math import prod
from typing import Any

from ..ir.errors import ArgumentError, ArgumentValueError, MissingError, ShapeError
from ..ir.shapes import broadcast_shapes
from ..runtime import Size, Tensor, ops
from . import constraints
from .parameters import broadcast_all, eps_of, sum_rightmost, tiny_of


class Transform:
    """The base of all transforms.

    cache_size: 1 to keep the last value and its image, so that an inverse right after costs nothing.
    """

    def __init__(self, cache_size: int = 0):
        if cache_size not in (0, 1):
            raise ArgumentValueError(f"cache_size must be 0 or 1, not {cache_size!r}")
        self._cache_size = cache_size
        self._inv: Any = None
        self._cached: tuple[Any, Any] = (None, None)

    def __getstate__(self) -> dict:
        return {**self.__dict__, "_inv": None, "_cached": (None, None)}

    @property
    def bijective(self) -> bool:
        """Whether each value has one inverse."""
        return False

    @property
    def domain(self) -> constraints.Constraint:
        """What the transform takes."""
        raise MissingError(f"{type(self).__name__} does not implement domain")

    @property
    def codomain(self) -> constraints.Constraint:
        """What the transform gives."""
        raise MissingError(f"{type(self).__name__} does not implement codomain")

    @property
    def event_dim(self) -> int:
        """The dimensions of an event, where domain and codomain have as many."""
        if self.domain.event_dim == self.codomain.event_dim:
            return self.domain.event_dim
        raise ArgumentValueError(
            "event_dim: domain and codomain differ", "ask .domain.event_dim or .codomain.event_dim"
        )

    @property
    def inv(self) -> Transform:
        """The inverse, whose own inverse is this transform."""
        inverse = None if self._inv is None else self._inv()
        if inverse is None:
            inverse = _InverseTransform(self)
            self._inv = weakref.ref(inverse)
        return inverse

    @property
    def sign(self) -> Any:
        """1 where the transform rises, -1 where it falls."""
        raise MissingError(f"{type(self).__name__} does not implement sign")

    def with_cache(self, cache_size: int = 1) -> Transform:
        """The same transform with a cache of this size."""
        if self._cache_size == cache_size:
            return self
        made = object.__new__(type(self))
        for name, value in self.__dict__.items():
            setattr(made, name, value)
        Transform.__init__(made, cache_size)
        return made

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

    def __call__(self, x: Tensor) -> Tensor:
        """The image of x."""
        if not self._cache_size:
            return self._call(x)
        known, image = self._cached
        if x is known:
            return image
        y = self._call(x)
        self._cached = (x, y)
        return y

    def _inv_call(self, y: Tensor) -> Tensor:
        if not self._cache_size:
            return self._inverse(y)
        origin, known = self._cached
        if y is known:
            return origin
        x = self._inverse(y)
        self._cached = (x, y)
        return x

    def _call(self, x: Tensor) -> Tensor:
        raise MissingError(f"{type(self).__name__} does not implement its forward direction")

    def _inverse(self, y: Tensor) -> Tensor:
        raise MissingError(f"{type(self).__name__} does not implement its inverse")

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """The logarithm of the volume that an event's neighbourhood is stretched by."""
        raise MissingError(f"{type(self).__name__} does not implement log_abs_det_jacobian")

    def forward_shape(self, shape: Any) -> Any:
        """The shape of the image of something of this shape."""
        return shape

    def inverse_shape(self, shape: Any) -> Any:
        """The shape of what has an image of this shape."""
        return shape

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class _InverseTransform(Transform):
    """The other direction of a transform."""

    def __init__(self, transform: Transform):
        super().__init__(cache_size=transform._cache_size)
        self._inv: Transform = transform

    @property
    def domain(self):
        return self._inv.codomain

    @property
    def codomain(self):
        return self._inv.domain

    @property
    def bijective(self):
        return self._inv.bijective

    @property
    def sign(self):
        return self._inv.sign

    @property
    def inv(self):
        return self._inv

    def __getstate__(self) -> dict:
        return {**self.__dict__, "_cached": (None, None)}

    def with_cache(self, cache_size=1):
        return self._inv.with_cache(cache_size).inv

    def __eq__(self, other):
        return isinstance(other, _InverseTransform) and self._inv == other._inv

    __hash__ = object.__hash__

    def __repr__(self):
        return f"_InverseTransform({self._inv!r})"

    def __call__(self, x):
        return self._inv._inv_call(x)

    def log_abs_det_jacobian(self, x, y):
        return -self._inv.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape):
        return self._inv.inverse_shape(shape)

    def inverse_shape(self, shape):
        return self._inv.forward_shape(shape)


class ComposeTransform(Transform):
    """Transforms in a row, the first first."""

    def __init__(self, parts: Sequence[Transform], cache_size: int = 0):
        parts = list(parts)
        if not all(isinstance(part, Transform) for part in parts):
            raise ArgumentError("ComposeTransform(parts): takes transforms")
        super().__init__(cache_size)
        self.parts = [part.with_cache(cache_size) for part in parts] if cache_size else parts

    def __eq__(self, other):
        return isinstance(other, ComposeTransform) and self.parts == other.parts

    __hash__ = object.__hash__

    def _events(self, forward: bool) -> int:
        """The dimensions of events at the beginning (or, not forward, at the end)."""
        parts = self.parts if forward else self.parts[::-1]
        dims = (parts[-1].codomain if forward else parts[-1].domain).event_dim
        for part in reversed(parts):
            ends = (part.domain.event_dim, part.codomain.event_dim)
            start, end = ends if forward else ends[::-1]
            dims = max(dims + start - end, start)
        return dims

    @property
    def domain(self):
        if not self.parts:
            return constraints.real
        return _deepened(self.parts[0].domain, self._events(True))

    @property
    def codomain(self):
        if not self.parts:
            return constraints.real
        return _deepened(self.parts[-1].codomain, self._events(False))

    @property
    def bijective(self):
        return all(part.bijective for part in self.parts)

    @property
    def sign(self):
        sign: Any = 1
        for part in self.parts:
            sign = sign * part.sign
        return sign

    @property
    def inv(self):
        inverse = None if self._inv is None else self._inv()
        if inverse is None:
            inverse = ComposeTransform([part.inv for part in reversed(self.parts)])
            self._inv, inverse._inv = weakref.ref(inverse), weakref.ref(self)
        return inverse

    def with_cache(self, cache_size=1):
        return self if self._cache_size == cache_size else ComposeTransform(self.parts, cache_size)

    def __call__(self, x):
        for part in self.parts:
            x = part(x)
        return x

    def log_abs_det_jacobian(self, x, y):
        if not self.parts:
            return ops.zeros_like(x)
        values = [x]
        for part in self.parts[:-1]:
            values.append(part(values[-1]))
        values.append(y)
        dims, terms = self.domain.event_dim, []
        for part, before, after in zip(self.parts, values[:-1], values[1:], strict=True):
            found = part.log_abs_det_jacobian(before, after)
            terms.append(sum_rightmost(found, dims - part.domain.event_dim))
            dims += part.codomain.event_dim - part.domain.event_dim
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        return total

    def forward_shape(self, shape):
        for part in self.parts:
            shape = part.forward_shape(shape)
        return shape

    def inverse_shape(self, shape):
        for part in reversed(self.parts):
            shape = part.inverse_shape(shape)
        return shape

    def __repr__(self):
        inner = ",\n    ".join(repr(part) for part in self.parts)
        return f"ComposeTransform(\n    {inner}\n)"


def _deepened(constraint: constraints.Constraint, dims: int) -> constraints.Constraint:
    """The constraint for events of so many dimensions."""
    missing = dims - constraint.event_dim
    return constraints.independent(constraint, missing) if missing > 0 else constraint


identity_transform = ComposeTransform([])


class IndependentTransform(Transform):
    """A transform whose last batch dimensions count as the event's."""

    def __init__(self, base_transform: Transform, reinterpreted_batch_ndims: int, cache_size: int = 0):
        if not isinstance(base_transform, Transform):
            raise ArgumentError("IndependentTransform(base_transform): takes a transform")
        super().__init__(cache_size)
        self.base_transform = base_transform.with_cache(cache_size)
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    def with_cache(self, cache_size=1):
        if self._cache_size == cache_size:
            return self
        return IndependentTransform(self.base_transform, self.reinterpreted_batch_ndims, cache_size)

    @property
    def domain(self):
        return constraints.independent(self.base_transform.domain, self.reinterpreted_batch_ndims)

    @property
    def codomain(self):
        return constraints.independent(self.base_transform.codomain, self.reinterpreted_batch_ndims)

    @property
    def bijective(self):
        return self.base_transform.bijective

    @property
    def sign(self):
        return self.base_transform.sign

    def _needs(self, value, constraint):
        if value.ndim < constraint.event_dim:
            raise ShapeError(
                f"IndependentTransform: {constraint.event_dim} dimensions are needed, not {value.ndim}"
            )
        return value

    def _call(self, x):
        return self.base_transform(self._needs(x, self.domain))

    def _inverse(self, y):
        return self.base_transform.inv(self._needs(y, self.codomain))

    def log_abs_det_jacobian(self, x, y):
        found = self.base_transform.log_abs_det_jacobian(x, y)
        return sum_rightmost(found, self.reinterpreted_batch_ndims)

    def forward_shape(self, shape):
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape):
        return self.base_transform.inverse_shape(shape)

    def __repr__(self):
        return f"IndependentTransform({self.base_transform!r}, {self.reinterpreted_batch_ndims})"


class ReshapeTransform(Transform):
    """Events of one shape as events of another."""

    bijective = True

    def __init__(self, in_shape: Any, out_shape: Any, cache_size: int = 0):
        self.in_shape, self.out_shape = Size(in_shape), Size(out_shape)
        if prod(self.in_shape) != prod(self.out_shape):
            raise ArgumentValueError(
                f"ReshapeTransform: {list(self.in_shape)} and {list(self.out_shape)} differ in their elements"
            )
        super().__init__(cache_size)

    @property
    def domain(self):
        return constraints.independent(constraints.real, len(self.in_shape))

    @property
    def codomain(self):
        return constraints.independent(constraints.real, len(self.out_shape))

    def _call(self, x):
        return x.reshape(self._moved(x.shape, self.in_shape, self.out_shape))

    def _inverse(self, y):
        return y.reshape(self._moved(y.shape, self.out_shape, self.in_shape))

    def log_abs_det_jacobian(self, x, y):
        return x.new_zeros(tuple(x.shape[: x.ndim - len(self.in_shape)]))

    def forward_shape(self, shape):
        return Size(self._moved(shape, self.in_shape, self.out_shape))

    def inverse_shape(self, shape):
        return Size(self._moved(shape, self.out_shape, self.in_shape))

    def _moved(self, shape, old, new):
        cut = len(shape) - len(old)
        if cut < 0 or tuple(shape[cut:]) != tuple(old):
            raise ArgumentValueError(
                f"ReshapeTransform: events are {list(old)}, which {list(shape)} does not end in"
            )
        return tuple(shape[:cut]) + tuple(new)


class _Plain(Transform):
    """A transform without parameters: any two of one kind are equal."""

    def __eq__(self, other):
        return type(self) is type(other)

    __hash__ = object.__hash__


class ExpTransform(_Plain):
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


class SigmoidTransform(_Plain):
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


class SoftplusTransform(_Plain):
    """y = log(1 + exp(x))."""

    domain, codomain = constraints.real, constraints.positive
    bijective, sign = True, 1

    def _call(self, x):
        return ops.softplus(x)

    def _inverse(self, y):
        return (-y).expm1().neg().log() + y

    def log_abs_det_jacobian(self, x, y):
        return -ops.softplus(-x)


class TanhTransform(_Plain):
    """y = tanh(x)."""

    domain, codomain = constraints.real, constraints.interval(-1.0, 1.0)
    bijective, sign = True, 1

    def _call(self, x):
        return x.tanh()

    def _inverse(self, y):
        return y.atanh()

    def log_abs_det_jacobian(self, x, y):
        return 2.0 * (math.log(2.0) - x - ops.softplus(-2.0 * x))


class AbsTransform(_Plain):
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
        return _deepened(constraints.real, self._event_dim)

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


class _Parts(Transform):
    """Transforms of the parts of one tensor."""

    transforms: list[Transform]

    @property
    def bijective(self):
        return all(t.bijective for t in self.transforms)


def _checked(name: str, transforms: Any, cache_size: int) -> list[Transform]:
    transforms = list(transforms)
    if not all(isinstance(t, Transform) for t in transforms):
        raise ArgumentError(f"{name}(tseq): takes transforms")
    return [t.with_cache(cache_size) for t in transforms] if cache_size else transforms


class CatTransform(_Parts):
    """Transforms of parts that lie one behind the other along `dim`; lengths: 1 each unless given."""

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, lengths: Any = None, cache_size: int = 0):
        super().__init__(cache_size)
        self.transforms = _checked("CatTransform", tseq, cache_size)
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.transforms):
            raise ArgumentValueError(
                f"CatTransform: {len(self.transforms)} transforms have {len(self.lengths)} lengths"
            )
        self.dim = dim

    @property
    def event_dim(self):
        return max(t.event_dim for t in self.transforms)

    @property
    def length(self):
        """The size of all parts together."""
        return sum(self.lengths)

    def with_cache(self, cache_size=1):
        if self._cache_size == cache_size:
            return self
        return CatTransform(self.transforms, self.dim, self.lengths, cache_size)

    @property
    def domain(self):
        return constraints.cat([t.domain for t in self.transforms], self.dim, self.lengths)

    @property
    def codomain(self):
        return constraints.cat([t.codomain for t in self.transforms], self.dim, self.lengths)

    def _split(self, value):
        if value.shape[self.dim] != self.length:
            raise ShapeError(
                f"CatTransform: size {value.shape[self.dim]} is not that of the parts, {self.length}"
            )
        return ops.split(value, self.lengths, dim=self.dim)

    def _call(self, x):
        parts = zip(self.transforms, self._split(x), strict=True)
        return ops.cat([t(part) for t, part in parts], dim=self.dim)

    def _inverse(self, y):
        parts = zip(self.transforms, self._split(y), strict=True)
        return ops.cat([t.inv(part) for t, part in parts], dim=self.dim)

    def log_abs_det_jacobian(self, x, y):
        found = []
        for t, before, after in zip(self.transforms, self._split(x), self._split(y), strict=True):
            each = t.log_abs_det_jacobian(before, after)
            found.append(sum_rightmost(each, self.event_dim - t.event_dim))
        dim = self.dim - x.ndim if self.dim >= 0 else self.dim
        dim += self.event_dim
        if dim < 0:
            return ops.cat(found, dim=dim)
        total = found[0]
        for each in found[1:]:
            total = total + each
        return total


class StackTransform(_Parts):
    """Transforms of the parts that stand side by side along `dim`."""

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, cache_size: int = 0):
        super().__init__(cache_size)
        self.transforms = _checked("StackTransform", tseq, cache_size)
        self.dim = dim

    def with_cache(self, cache_size=1):
        return (
            self if self._cache_size == cache_size else StackTransform(self.transforms, self.dim, cache_size)
        )

    @property
    def domain(self):
        return constraints.stack([t.domain for t in self.transforms], self.dim)

    @property
    def codomain(self):
        return constraints.stack([t.codomain for t in self.transforms], self.dim)

    def _parts(self, value):
        if value.shape[self.dim] != len(self.transforms):
            raise ShapeError(f"StackTransform: size {value.shape[self.dim]} is not {len(self.transforms)}")
        return ops.unbind(value, self.dim)

    def _call(self, x):
        return ops.stack([t(part) for t, part in zip(self.transforms, self._parts(x), strict=True)], self.dim)

    def _inverse(self, y):
        parts = zip(self.transforms, self._parts(y), strict=True)
        return ops.stack([t.inv(part) for t, part in parts], self.dim)

    def log_abs_det_jacobian(self, x, y):
        parts = zip(self.transforms, self._parts(x), self._parts(y), strict=True)
        return ops.stack([t.log_abs_det_jacobian(before, after) for t, before, after in parts], self.dim)


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
