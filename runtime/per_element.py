"""Python functions of each element: `apply_`, `map_` and `map2_`, for what no op does, at Python's speed."""

from __future__ import annotations

from collections.abc import Callable
from itertools import starmap
from typing import Any

import numpy as np

from ..ir.dtypes import converted
from ..ir.errors import ArgumentError, DTypeError, GradError
from . import modes
from .refusal import refusing
from .tensor import Tensor, tensor_of


def apply_(self: Tensor, callable: Callable) -> Tensor:
    """Replace each element by what a function makes of it, as a Python number.  Raises GradError."""
    return _each("apply_", callable, self)


def map_(self: Tensor, tensor: Tensor, callable: Callable) -> Tensor:
    """Replace each element by what a function makes of it and of that of another tensor, broadcast.

    Raises GradError, DTypeError where the dtypes differ.
    """
    return _each("map_", callable, self, tensor)


def map2_(self: Tensor, x: Tensor, y: Tensor, callable: Callable) -> Tensor:
    """Replace each element by what a function makes of it and of those of two tensors, broadcast.

    Raises GradError, DTypeError where the dtypes differ.
    """
    return _each("map2_", callable, self, x, y)


def _each(name: str, function: Callable, *tensors: Any) -> Tensor:
    self = tensors[0]
    if not callable(function):
        raise ArgumentError(f"{name}(callable): a {type(function).__name__} is not callable")
    for x in tensors:
        if not isinstance(x, Tensor):
            raise ArgumentError(f"{name}: takes tensors, not a {type(x).__name__}")
        if x.requires_grad:
            raise GradError(
                f"Can't call {name}() on Variable that requires grad. Use var.detach().{name}() instead"
            )
        if x.dtype is not self.dtype:
            raise DTypeError(f"{name}: the tensors must be of one dtype, not {self.dtype} and {x.dtype}")
    if modes.CHANGED:
        modes.tell("refuse", f"{name}() calls a function with each element")
    numbers = [x.expand(self.shape).reshape(-1).tolist() for x in tensors]
    found = np.array([*starmap(function, zip(*numbers, strict=True))]).reshape(tuple(self.shape))
    return self.copy_(tensor_of(converted(found, self.dtype.numpy)))


for _method in (apply_, map_, map2_):
    setattr(Tensor, _method.__name__, refusing(_method))
