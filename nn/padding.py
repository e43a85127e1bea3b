"""Modules that widen an input at its borders."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..ir.errors import ArgumentValueError
from ..runtime import Tensor
from . import functional as F
from .module import Module


class _Pad(Module):
    """`sizes`: how many of the last dimensions are widened.  `mode`: with what."""

    _sizes: int
    mode = "constant"
    value: float = 0.0

    def __init__(self, padding: Any):
        super().__init__()
        given = tuple(padding) if isinstance(padding, Iterable) else (padding,) * (2 * self._sizes)
        if len(given) != 2 * self._sizes:
            raise ArgumentValueError(
                f"{type(self).__name__}(padding): one int or {2 * self._sizes} are wanted, not {len(given)}"
            )
        self.padding = given

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, self.mode, self.value if self.mode == "constant" else None)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ZeroPad1d(_Pad):
    """Widen the last dimension with zeros: (left, right)."""

    _sizes = 1


class ZeroPad2d(_Pad):
    """Widen the last two dimensions with zeros: (left, right, top, bottom)."""

    _sizes = 2


class ZeroPad3d(_Pad):
    """Widen the last three dimensions with zeros: (left, right, top, bottom, front, back)."""

    _sizes = 3


class _ConstantPad(_Pad):
    def __init__(self, padding: Any, value: float):
        super().__init__(padding)
        self.value = value

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPad):
    """Widen the last dimension with `value`."""

    _sizes = 1


class ConstantPad2d(_ConstantPad):
    """Widen the last two dimensions with `value`."""

    _sizes = 2


class ConstantPad3d(_ConstantPad):
    """Widen the last three dimensions with `value`."""

    _sizes = 3


class ReflectionPad1d(_Pad):
    """Widen the last dimension with what lies inside, mirrored at the border element."""

    _sizes, mode = 1, "reflect"


class ReflectionPad2d(_Pad):
    """Widen the last two dimensions with what lies inside, mirrored at the border elements."""

    _sizes, mode = 2, "reflect"


class ReflectionPad3d(_Pad):
    """Widen the last three dimensions with what lies inside, mirrored at the border elements."""

    _sizes, mode = 3, "reflect"


class ReplicationPad1d(_Pad):
    """Widen the last dimension with the border elements."""

    _sizes, mode = 1, "replicate"


class ReplicationPad2d(_Pad):
    """Widen the last two dimensions with the border elements."""

    _sizes, mode = 2, "replicate"


class ReplicationPad3d(_Pad):
    """Widen the last three dimensions with the border elements."""

    _sizes, mode = 3, "replicate"


class CircularPad1d(_Pad):
    """Widen the last dimension with what stands at the other end."""

    _sizes, mode = 1, "circular"


class CircularPad2d(_Pad):
    """Widen the last two dimensions with what stands at the other ends."""

    _sizes, mode = 2, "circular"


class CircularPad3d(_Pad):
    """Widen the last three dimensions with what stands at the other ends."""

    _sizes, mode = 3, "circular"
