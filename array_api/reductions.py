"""The standard's functions that make fewer elements of many, and running sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..ir.dtypes import bool_
from ..runtime import Tensor, ops
from .kinds import cast, promoted, summed_type, tensor_in


def axes_of(axis: Any, ndim: int) -> tuple[int, ...]:
    """The axes to be reduced, counted from the front: all for None."""
    given = range(ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    return tuple(d % ndim if -ndim <= d < ndim else d for d in given)


def _reduced(function: Callable, x: Tensor, axis: Any, keepdims: bool, **more: Any) -> Tensor:
    """One call over the axes; where there are none, each element is its own result."""
    axes = axes_of(axis, x.ndim)
    if not axes:
        return function(x.unsqueeze(0), (0,), False, **more)
    return function(x, axes, keepdims, **more)


def sum(x, /, *, axis=None, dtype=None, keepdims=False):
    """The sums; of integers in 64 bits unless `dtype` says otherwise."""
    made = summed_type(tensor_in("sum", x, "numeric"), dtype)
    return _reduced(ops.sum, cast(x, made), axis, keepdims, dtype=made)


def prod(x, /, *, axis=None, dtype=None, keepdims=False):
    """The products; of integers in 64 bits unless `dtype` says otherwise."""
    made = summed_type(tensor_in("prod", x, "numeric"), dtype)
    found = cast(x, made)
    axes = sorted(axes_of(axis, x.ndim), reverse=True)
    for d in axes:
        found = ops.prod(found, d, keepdims, dtype=made)
    return found if axes else found.clone()


def max(x, /, *, axis=None, keepdims=False):
    """The largest elements; NaN where there is one.  Raises an error where there are no elements."""
    return _reduced(ops.amax, tensor_in("max", x, "real"), axis, keepdims)


def min(x, /, *, axis=None, keepdims=False):
    """The smallest elements; NaN where there is one.  Raises an error where there are no elements."""
    return _reduced(ops.amin, tensor_in("min", x, "real"), axis, keepdims)


def mean(x, /, *, axis=None, keepdims=False):
    """The means."""
    return _reduced(ops.mean, tensor_in("mean", x, "floating"), axis, keepdims)


def var(x, /, *, axis=None, correction=0.0, keepdims=False):
    """The variances, divided by the number of elements minus `correction`."""
    x = tensor_in("var", x, "real floating")
    axes = axes_of(axis, x.ndim)
    if not axes:
        x, axes, keepdims = x.unsqueeze(0), (0,), False
    return ops.var(x, axes, correction=correction, keepdim=keepdims)


def std(x, /, *, axis=None, correction=0.0, keepdims=False):
    """The standard deviations: the roots of `var`."""
    return ops.sqrt(var(x, axis=axis, correction=correction, keepdims=keepdims))


def all(x, /, *, axis=None, keepdims=False):
    """Whether all elements are true, or not 0."""
    return _reduced(ops.all, cast(tensor_in("all", x), bool_), axis, keepdims)


def any(x, /, *, axis=None, keepdims=False):
    """Whether an element is true, or not 0."""
    return _reduced(ops.any, cast(tensor_in("any", x), bool_), axis, keepdims)


def count_nonzero(x, /, *, axis=None, keepdims=False):
    """How many elements are not 0."""
    return sum(ops.ne(tensor_in("count_nonzero", x), 0).long(), axis=axis, keepdims=keepdims)


def argmax(x, /, *, axis=None, keepdims=False):
    """The first place of the largest element, along an axis or among all."""
    return ops.argmax(tensor_in("argmax", x, "real"), axis, keepdims)


def argmin(x, /, *, axis=None, keepdims=False):
    """The first place of the smallest element, along an axis or among all."""
    return ops.argmin(tensor_in("argmin", x, "real"), axis, keepdims)


def _cumulative(function: Callable, start: int, x: Tensor, axis: Any, dtype: Any, include: bool) -> Tensor:
    if not x.ndim:
        x, axis = x.reshape(1), 0
    elif axis is None and x.ndim == 1:
        axis = 0
    made = summed_type(x, dtype)
    found = function(cast(x, made), axis, dtype=made)
    if not include:
        return found
    first = list(x.shape)
    first[axis] = 1
    return ops.cat([ops.full(first, start, dtype=made), found], axis)


def cumulative_sum(x, /, *, axis=None, dtype=None, include_initial=False):
    """The sums up to each element; `include_initial`: with 0 before them."""
    return _cumulative(ops.cumsum, 0, tensor_in("cumulative_sum", x, "numeric"), axis, dtype, include_initial)


def cumulative_prod(x, /, *, axis=None, dtype=None, include_initial=False):
    """The products up to each element; `include_initial`: with 1 before them."""
    x = tensor_in("cumulative_prod", x, "numeric")
    return _cumulative(ops.cumprod, 1, x, axis, dtype, include_initial)


def diff(x, /, *, axis=-1, n=1, prepend=None, append=None):
    """The differences of neighbours along an axis, `n` times; with `prepend` before and `append` behind."""
    given = [tensor_in("diff", v, "numeric") for v in (prepend, x, append) if v is not None]
    made = promoted("diff", *(v.dtype for v in given))
    x, prepend, append = (None if v is None else cast(v, made) for v in (x, prepend, append))
    return ops.diff(x, n, axis, prepend, append)
