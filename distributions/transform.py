"""What an invertible transform is: it knows the logarithm of how it stretches volume, and its inverse.

`domain` and `codomain` are constraints; `sign` is that of a monotone transform's slope; `bijective` whether
each value has one inverse.
"""

from __future__ import annotations

import weakref
from typing import Any

from ..ir.errors import ArgumentValueError, MissingError
from ..runtime import Tensor
from . import constraints


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


class PlainTransform(Transform):
    """A transform without parameters: any two of one kind are equal."""

    def __eq__(self, other):
        return type(self) is type(other)

    __hash__ = object.__hash__
