"""Reductions over the elements that a mask selects, as `torch.masked` has them.

`mask` broadcasts to the input; where it is false, an element does not count. `dim` is an int, several, or
None or () for all. What none was selected for is the reduction's value of nothing: 0, 1, an infinity, or NaN.
Of normalised and running results, those where the mask is false mean nothing.

Sparse masks select as dense ones do. Sums, products, extremes and means of sparse tensors lie as these do,
and hold no element where none was selected.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..ir import dtypes
from ..ir.dtypes import DType
from ..ir.errors import ArgumentError, DTypeError, ShapeError
from ..runtime import Tensor, ops
from ..runtime.layouts import strided
from ..runtime.refusal import refusing_names
from .names import finfo, iinfo

Dims = int | tuple[int, ...] | None

__all__ = [
    "amax", "amin", "argmax", "argmin", "cumprod", "cumsum", "log_softmax", "logaddexp", "logsumexp", "mean",
    "median", "norm", "normalize", "prod", "softmax", "softmin", "std", "sum", "var",
]  # fmt: skip


# ---- what counts for nothing -------------------------------------------------------------------------------
def _least(dtype: DType) -> float:
    return -math.inf if dtype.is_floating_point else _limits(dtype).min


def _greatest(dtype: DType) -> float:
    return math.inf if dtype.is_floating_point else _limits(dtype).max


def _limits(dtype: DType) -> Any:
    if dtype.category not in ("int", "float"):
        raise DTypeError(f"masked: {dtype} has no least and no greatest number", "convert it: x.float()")
    return (finfo if dtype.is_floating_point else iinfo)(dtype)


def _least_of_all(dtype: DType) -> complex:
    return -math.inf if dtype.is_complex else _least(dtype)


# The result of no elements, which adds nothing to a result; None where there is no such number.
_NOTHING: dict[str, Any] = {
    "sum": 0, "cumsum": 0, "prod": 1, "cumprod": 1, "amax": _least, "argmax": _least, "amin": _greatest,
    "argmin": _greatest, "logsumexp": _least_of_all, "logaddexp": _least, "softmax": _least,
    "log_softmax": _least, "softmin": _greatest, "normalize": 0, "norm": 0, "median": math.nan,
    "mean": None, "var": None, "std": None,
}  # fmt: skip


def _reduction_identity(op_name: str, input: Tensor, *args: Any) -> Tensor | None:
    """The result of no elements of `input`'s dtype, as a 0-d tensor: who pads what is reduced asks for it.

    op_name: a reduction's.  args: the order of a norm.  Raises ArgumentError, DTypeError.
    """
    name = op_name.rsplit(".", 1)[-1]
    if name not in _NOTHING:
        raise ArgumentError(f"masked._reduction_identity(op_name): there is no reduction {op_name!r}")
    nothing = math.inf if name == "norm" and args[:1] == (-math.inf,) else _NOTHING[name]
    if nothing is None:
        return None
    floating = name != "median" or input.dtype.is_floating_point
    return _nothing_of(nothing, input.dtype if floating else dtypes.float32)


def _nothing_of(nothing: Any, dtype: DType) -> Tensor:
    return ops.full((), nothing(dtype) if callable(nothing) else nothing, dtype=dtype)


def _mask(call: str, x: Tensor, mask: Tensor | None) -> Tensor:
    """The mask in the shape of `x`.  Raises ShapeError."""
    if mask is None:
        return ops.ones(x.shape, dtype=dtypes.bool_)
    if not isinstance(mask, Tensor):
        raise ArgumentError(f"{call}: mask must be a tensor, not {type(mask).__name__}")
    if mask.ndim > x.ndim:
        raise ShapeError(f"{call}: mask has {mask.ndim} dimensions, more than the {x.ndim} of input")
    if mask.layout is not strided:
        mask = mask.to_dense()
    return mask.to(dtypes.bool_).expand(x.shape)


def _dims(dim: Dims, x: Tensor) -> tuple[int, ...]:
    if dim is None or (isinstance(dim, tuple | list) and not dim):
        return tuple(range(x.ndim))
    return tuple(dim) if isinstance(dim, tuple | list) else (dim,)


def _filled(call: str, input: Tensor, dtype: DType | None, mask: Tensor | None, nothing: Any) -> Tensor:
    if not isinstance(input, Tensor):
        raise ArgumentError(f"{call}: input must be a tensor, not {type(input).__name__}")
    x = input if dtype is None else input.to(dtype)
    if mask is None:
        return x
    return ops.where(_mask(call, x, mask), x, _nothing_of(nothing, x.dtype))


def _input_mask(input: Tensor, *args: Any, mask: Tensor, **kwargs: Any) -> Tensor:
    """The elements of `input` that count, in its shape and layout."""
    found = _mask("masked._input_mask", input, mask)
    return found if input.layout is strided else found.to_sparse(layout=input.layout)


# ---- reductions --------------------------------------------------------------------------------------------
def _totals(name: str, op: Callable) -> Callable:
    def reduced(
        input: Tensor, dim: Dims = None, *, keepdim: bool = False, dtype: DType | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        x = _filled(f"masked.{name}", input, dtype, mask, _NOTHING[name])
        if dtype is None and x.dtype.category in ("int", "bool"):
            x = x.to(dtypes.int64)
        return op(x, _dims(dim, x), bool(keepdim), x.dtype)

    return _named(reduced, name)


def _extremes(name: str, several: bool) -> Callable:
    op = ops.FUNCTIONS[name]

    def reduced(
        input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: DType | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        x = _filled(f"masked.{name}", input, dtype, mask, _NOTHING[name])
        found = op(x, _dims(dim, x) if several else dim, keepdim=bool(keepdim))
        return found if several else found.to(x.dtype)

    return _named(reduced, name)


def _products(x: Tensor, dims: tuple[int, ...], keepdim: bool, dtype: DType) -> Tensor:
    """The product over several dimensions, of which `prod` takes one."""
    places = [d + x.ndim if -x.ndim <= d < 0 else d for d in dims]
    if not x.ndim and len({*places} - {-1, 0}) == 0 and len(places) < 2:
        return ops.prod(x, dtype=dtype)
    if len({*places}) < len(places):
        raise ShapeError(f"masked.prod: a dim appears multiple times in the list of dims {list(dims)}")
    for d in sorted(places, reverse=True):
        x = ops.prod(x, d, keepdim=keepdim, dtype=dtype)
    return x


def _named(function: Callable, name: str) -> Callable:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"`{name}` over the selected elements.  Raises ShapeError, DTypeError."
    return function


def _of_any_layout(function: Callable) -> Callable:
    """The same reduction, of sparse tensors too."""

    def reduced(
        input: Tensor, dim: Dims = None, *, keepdim: bool = False, dtype: DType | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        if not isinstance(input, Tensor) or input.layout is strided:
            return function(input, dim, keepdim=keepdim, dtype=dtype, mask=mask)
        x = input.to_dense()
        found = function(x, dim, keepdim=keepdim, dtype=dtype, mask=mask)
        if mask is not None:
            found = ops.where(_count(f"masked.{name}", x, dim, keepdim, mask) > 0, found, 0)
        return found.to_sparse(layout=input.layout)

    name = function.__name__
    return _named(reduced, name)


sum = _totals("sum", lambda x, dims, keepdim, dtype: ops.sum(x, dims, keepdim, dtype=dtype))
prod = _totals("prod", _products)
amax, amin = _extremes("amax", True), _extremes("amin", True)
sum, prod, amax, amin = (_of_any_layout(each) for each in (sum, prod, amax, amin))
argmax, argmin = _extremes("argmax", False), _extremes("argmin", False)


def logsumexp(
    input: Tensor, dim: Dims = None, *, keepdim: bool = False, dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The logarithm of the sum of exponentials, in `input`'s dtype or `dtype`; -inf for no element."""
    x = _filled("masked.logsumexp", input, dtype, mask, _NOTHING["logsumexp"])
    return ops.logsumexp(x, _dims(dim, x), bool(keepdim)).to(x.dtype)


def mean(
    input: Tensor, dim: Dims = None, *, keepdim: bool = False, dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The mean of floats or complex numbers; NaN for no element.  Raises DTypeError."""
    x = _filled("masked.mean", input, dtype, mask, 0)
    if x.dtype.category in ("int", "bool"):
        raise _Unmeant(f"masked.mean: takes floats and complex numbers, not {x.dtype}", "pass dtype=")
    if mask is None:
        return ops.mean(x, _dims(dim, x), bool(keepdim))
    return sum(x, dim, keepdim=keepdim) / _count("masked.mean", x, dim, keepdim, mask)


mean = _of_any_layout(mean)


class _Unmeant(DTypeError, ValueError):
    """A mean of integers, which PyTorch calls a bad value."""


def _count(call: str, x: Tensor, dim: Dims, keepdim: bool, mask: Tensor | None) -> Tensor:
    return ops.sum(_mask(call, x, mask), _dims(dim, x), bool(keepdim))


def var(
    input: Tensor, dim: Dims = None, unbiased: bool | None = None, *, correction: float | None = None,
    keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The variance: squares of distances from the mean, over the count less `correction` (1)."""
    if correction is not None and unbiased is not None:
        raise ArgumentError("masked.var, masked.std: give correction or unbiased, not both")
    if correction is None:
        correction = 1 if unbiased is None else int(unbiased)
    whole = dtype is None and isinstance(input, Tensor) and input.dtype.category in ("int", "bool")
    x = _filled("masked.var", input, dtypes.default_dtype() if whole else dtype, None, 0)
    if mask is None and not x.is_complex():
        return ops.var(x, _dims(dim, x), correction=correction, keepdim=bool(keepdim))
    away = x - mean(x, dim, keepdim=True, mask=mask)
    squares = sum(away * away.conj(), dim, keepdim=keepdim, mask=mask)
    count = _count("masked.var", x, dim, keepdim, mask) - correction
    return (squares / ops.clamp(count, min=0)).to(squares.dtype)  # whatever number the correction is


def std(
    input: Tensor, dim: Dims = None, unbiased: bool | None = None, *, correction: float | None = None,
    keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The standard deviation: the root of `var`."""
    return ops.sqrt(var(input, dim, unbiased, correction=correction, keepdim=keepdim, dtype=dtype, mask=mask))


def median(
    input: Tensor, dim: int = -1, *, keepdim: bool = False, dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The lower median along `dim`; NaN for no element, so integers need one in each row.

    Raises ArgumentError where a row of integers has none.
    """
    x = _filled("masked.median", input, dtype, None, 0)
    if x.is_complex():
        raise DTypeError("masked.median: complex numbers have no order", "take its parts: x.real, x.imag")
    selected = _mask("masked.median", x, mask)
    if not x.dtype.is_floating_point and not bool(ops.all(ops.any(selected, dim))):
        raise ArgumentError(f"masked.median: no element of a row is selected, and {x.dtype} has no NaN")
    floating = x if x.dtype.is_floating_point else x.to(dtypes.float64)
    found = ops.nanmedian(ops.where(selected, floating, math.nan), dim, bool(keepdim))[0]
    return found.to(x.dtype)


def norm(
    input: Tensor, ord: float | None = 2.0, dim: Dims = None, *, keepdim: bool = False,
    dtype: DType | None = None, mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The vector norm of order `ord`, where an element that is not selected is 0 (infinite for -inf)."""
    order = 2.0 if ord is None else ord
    x = _filled("masked.norm", input, dtype, mask, math.inf if order == -math.inf else 0)
    return ops.linalg_vector_norm(x, order, _dims(dim, x), bool(keepdim))


# ---- along a dimension -------------------------------------------------------------------------------------
def _along(name: str) -> Callable:
    op = ops.FUNCTIONS[name]

    def run(input: Tensor, dim: int, *, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
        x = _filled(f"masked.{name}", input, dtype, mask, _NOTHING[name])
        if x.dtype is dtypes.bool_:
            raise DTypeError(f"masked.{name}: takes numbers, not bools", "pass dtype=")
        return op(x, dim, dtype=x.dtype) if name.startswith("cum") else op(x, dim)

    return _named(run, name)


softmax, log_softmax, softmin = _along("softmax"), _along("log_softmax"), _along("softmin")
cumsum, cumprod = _along("cumsum"), _along("cumprod")


def normalize(
    input: Tensor, ord: float, dim: int, *, eps: float = 1e-12, dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """`input` over its norm along `dim`, or over eps where that is greater."""
    x = _filled("masked.normalize", input, dtype, mask, 0)
    size = norm(x, ord, dim, keepdim=True, mask=mask)
    return x / ops.clamp(size, min=eps)


def logaddexp(
    input: Tensor, other: Tensor, *, dtype: DType | None = None, input_mask: Tensor | None = None,
    other_mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """log(exp(input) + exp(other)), of those that are selected."""
    left = _filled("masked.logaddexp", input, dtype, input_mask, -math.inf)
    return ops.logaddexp(left, _filled("masked.logaddexp", other, dtype, other_mask, -math.inf))


refusing_names(globals(), __name__)
