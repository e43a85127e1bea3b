"""Transforms of transforms: in a row, of events, of parts, and of shapes alone."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from math import prod
from typing import Any

from ..ir.errors import ArgumentError, ArgumentValueError, ShapeError
from ..runtime import Size, ops
from . import constraints
from .parameters import sum_rightmost
from .transform import Transform


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
        return constraints.deepened(self.parts[0].domain, self._events(True))

    @property
    def codomain(self):
        if not self.parts:
            return constraints.real
        return constraints.deepened(self.parts[-1].codomain, self._events(False))

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
