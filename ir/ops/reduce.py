"""Reductions that add up, multiply or ask for truth, and what all reductions share."""

from __future__ import annotations

from math import prod as product
from typing import Any

import numpy as np

from .. import lowering
from ..dtypes import DType, bool_, int64, uint8
from ..errors import DimError, DTypeError, ShapeError
from ..op import REGISTRY, Traits, composite, define
from ..sample import Operand, Sample
from ..shapes import dim_of, dims_of, reduced_shape
from ..types import Shape, Type, type_of
from .cast import in_reals
from .compare import isnan, logical_not, ne, where
from .create import ones_like
from .join import cat
from .kept_arrays import ones
from .rearrange import flip
from .view import expand, narrow, reshape

Dims = tuple[int, ...]


def keep(value: Any, shape: Shape, dim: Dims, keepdim: bool = False) -> Any:
    """Put the dimensions `dim` of `shape` back as ones into what was reduced over them."""
    if keepdim or not dim or len(dim) == len(shape):
        return value  # without dimensions it broadcasts as it is
    return reshape(value, reduced_shape(shape, dim, True))


def restore(value: Any, shape: Shape, dim: Dims, keepdim: bool = False) -> Any:
    """Spread what was reduced over `dim` out to `shape` again: the gradient of a sum."""
    return expand(keep(value, shape, dim, keepdim), shape)


def count(shape: Shape, dim: Dims) -> Any:
    """The number of elements that meet in one result."""
    return product(shape[d] for d in dim)


def nothing(op: str) -> ShapeError:
    return ShapeError(
        f"{op}: Expected reduction dim to be specified for input.numel() == 0",
        f"of no elements there is no {op}: give a dim whose size is not 0",
    )


def not_empty(op: str, shape: Shape, dim: Dims) -> None:
    """Refuse to reduce nothing where there is no value to start from.  Raises DimError, ShapeError."""
    for d in dim:
        if shape[d] == 0 and isinstance(shape[d], int):
            if len(dim) < len(shape) or len(dim) == 1:
                raise DimError(
                    f"{op}: Expected reduction dim {d} to have non-zero size: of nothing there is no {op}"
                )
            raise nothing(op)


def stages(k: Any, input: Any, dim: Dims, keepdim: bool) -> tuple[Any, tuple, tuple]:
    """Lay out a reduction: (the element read, the local axes reduced over, where the result goes)."""
    kept = tuple(d for d in range(len(input.shape)) if d not in dim)
    outer = dict(zip(kept, k.parallel(*(input.shape[d] for d in kept)), strict=True))
    inner = dict(zip(dim, k.axes(*(input.shape[d] for d in dim)), strict=True))
    axes = outer | inner
    element = input[tuple(axes[d] for d in range(len(axes)))]
    at = tuple(outer.get(d, 0) for d in range(len(axes))) if keepdim else tuple(outer.values())
    return element, tuple(inner.values()), at


def reduction_samples() -> list[Sample]:
    """Samples of a reduction over any dims."""
    calls: list[tuple[tuple[int, ...], dict]] = [
        ((), {}), ((0,), {}), ((1,), {}), ((17,), {}), ((33,), {"dim": 0}), ((3, 17), {"dim": 1}),
        ((17,), {"dim": -1, "keepdim": True}), ((3, 17), {"dim": 0}), ((2, 3, 4), {"dim": (0, 2)}),
        ((2, 3, 4), {"dim": 1, "keepdim": True}), ((2, 0, 3), {"dim": 2}),
    ]  # fmt: skip
    return [Sample((Operand(shape),), kwargs, differentiable=0 not in shape) for shape, kwargs in calls]


def reduced(t: Type, dim: Dims, keepdim: bool, dtype: DType | None = None) -> Type:
    return type_of(dtype or t.dtype, reduced_shape(t.shape, dim, keepdim), t.device)


# Sum, mean, prod


def _bind_sum(input, dim=None, keepdim=False, *, dtype=None):
    """Add up the elements over `dim` (an int, several, or None: all).

    Shapes: [..., n, ...] -> [...], or [..., 1, ...] with `keepdim`.  Integers and bools add up in int64;
    `dtype` is what the elements are converted to beforehand.  The sum of nothing is 0.  Raises DimError.
    """
    if dtype is not None:
        input = in_reals(input, dtype)
    return (input,), {"dim": dims_of("sum", dim, input.ndim), "keepdim": bool(keepdim), "dtype": dtype}


def _sum_dtype(t: Type, dtype: DType | None) -> DType:
    return dtype or (t.dtype if t.dtype.inexact else int64)


def _infer_sum(input: Type, *, dim: Dims, keepdim: bool, dtype: DType | None) -> Type:
    return reduced(input, dim, keepdim, _sum_dtype(input, dtype))


def _cast_sum(input: Type, *, dtype: DType | None, **_: Any) -> tuple:
    return (_sum_dtype(input, dtype),)


def _build_sum(k: Any, input: Any, *, dim: Dims, keepdim: bool, dtype: DType | None) -> None:
    element, over, at = stages(k, input, dim, keepdim)
    k.store(k.sum(element, over=over), at=at)


def _quick_sum(types, attrs):
    (input,) = types
    size = input.size
    whole = len(attrs["dim"]) == input.ndim and not attrs["keepdim"] and not attrs["dtype"]
    if not whole or not input.small or not 1 < size <= 1024:  # -0.0 alone adds up to 0.0
        return None
    # All of a small array: a product with ones costs half of what NumPy's reduction does.  The BLAS adds up
    # in many lanes, so the error stays within that of adding in pairs.
    row = ones(size, input.dtype.numpy)
    return lambda input: np.asarray(input.ravel().dot(row))


def _quick_grad_sum(types, attrs):
    input = types[0]
    if len(attrs["dim"]) < input.ndim or attrs["dtype"]:
        return None
    shape, dtype = input.shape, input.dtype.numpy

    def filled(g, saved):
        h = np.empty(shape, dtype)
        h.fill(g.item())
        return h

    return (filled,)


sum = define(
    "sum",
    complex="analytic",
    bind=_bind_sum,
    infer=_infer_sum,
    casts=_cast_sum,
    reference=lambda input, *, dim, keepdim, dtype: np.add.reduce(
        input, axis=dim, keepdims=keepdim, dtype=dtype and dtype.compute.numpy
    ),
    grad=lambda g, input_type, dim, keepdim: restore(g, input_type.shape, dim, keepdim),
    quick=_quick_sum,
    quick_grad=_quick_grad_sum,
    lower=lowering.kernel(_build_sum),
    traits=Traits(in_order=True),
    samples=reduction_samples,
)


def _bind_mean(input, dim=None, keepdim=False, *, dtype=None):
    """Average the elements over `dim` (an int, several, or None: all).

    Shapes: [..., n, ...] -> [...], or [..., 1, ...] with `keepdim`.  `dtype` is what the elements are
    converted to beforehand.  The mean of nothing is NaN.  Raises DimError, and DTypeError for integers
    without a `dtype`.
    """
    if dtype is not None:
        input = in_reals(input, dtype)
    return (input,), {"dim": dims_of("mean", dim, input.ndim), "keepdim": bool(keepdim), "dtype": dtype}


def _infer_mean(input: Type, *, dim: Dims, keepdim: bool, dtype: DType | None) -> Type:
    if not (dtype or input.dtype).inexact:
        raise DTypeError(f"mean: {dtype or input.dtype} can't hold a mean", "give dtype=lamina.float32")
    return reduced(input, dim, keepdim, dtype)


def _mean(input: Any, *, dim: Dims, keepdim: bool, dtype: DType | None) -> Any:
    total = np.add.reduce(input, axis=dim, keepdims=keepdim, dtype=dtype and dtype.compute.numpy)
    return total / count(input.shape, dim)


def _build_mean(k: Any, input: Any, *, dim: Dims, keepdim: bool, dtype: DType | None) -> None:
    element, over, at = stages(k, input, dim, keepdim)
    k.store(k.sum(element, over=over) / count(input.shape, dim), at=at)


mean = define(
    "mean",
    complex="analytic",
    bind=_bind_mean,
    infer=_infer_mean,
    casts=lambda input, *, dtype, **_: (dtype,),
    reference=_mean,
    grad=lambda g, input_type, dim, keepdim: restore(
        g / count(input_type.shape, dim), input_type.shape, dim, keepdim
    ),
    lower=lowering.kernel(_build_mean),
    traits=Traits(in_order=True),
    samples=reduction_samples,
    dtypes="float",
)


def _bind_prod(input, dim=None, keepdim=False, *, dtype=None):
    """Multiply the elements along `dim` (None: all).

    Shapes: [..., n, ...] -> [...], or [..., 1, ...] with `keepdim`.  Integers and bools multiply in int64.
    The product of nothing is 1.  Gradients are right where elements are zero, to any order.  Raises DimError.
    """
    if dtype is not None:
        input = in_reals(input, dtype)
    if dim is not None:
        dim = dim_of("prod", dim, input.ndim)
    return (input,), {"dim": dims_of("prod", dim, input.ndim), "keepdim": bool(keepdim), "dtype": dtype}


def _before(input: Any, dim: int, size: Any) -> Any:
    """The product of the elements before each one along `dim`."""
    first = narrow(input, dim, 0, 1)
    return REGISTRY["cumprod"](cat((ones_like(first), narrow(input, dim, 0, size - 1)), dim), dim)


def _grad_prod(g: Any, input: Any, input_type: Type, dim: Dims, keepdim: bool) -> Any:
    """g times the product of all the others.  Dividing the result by the element would fail at zeros."""
    shape = input_type.shape
    if not dim or count(shape, dim) == 0:
        return restore(g, shape, dim, keepdim)
    if len(dim) > 1:  # prod takes one dim or all
        g, input, dim, keepdim, flat = reshape(g, (1,)), reshape(input, (-1,)), (0,), True, (product(shape),)
    else:
        flat = shape
    size = flat[dim[0]]
    after = flip(_before(flip(input, dim), dim[0], size), dim)
    return reshape(keep(g, flat, dim, keepdim) * (_before(input, dim[0], size) * after), shape)


def _build_prod(k: Any, input: Any, *, dim: Dims, keepdim: bool, dtype: DType | None) -> None:
    element, over, at = stages(k, input, dim, keepdim)
    k.store(k.prod(element, over=over), at=at)


def _prod_samples() -> list[Sample]:
    calls: list[tuple[Any, dict]] = [
        ((), {}), ((0,), {}), ((1,), {}), ((17,), {}), ((33,), {"dim": 0}), ((3, 17), {"dim": 1}),
        ((3, 4), {}), ((2, 3, 4), {"dim": 1, "keepdim": True}), ((2, 0, 3), {"dim": 1}),
    ]  # fmt: skip
    return [Sample((Operand(shape, low=0.5, high=1.5),), kwargs) for shape, kwargs in calls]


prod = define(
    "prod",
    complex="analytic",
    bind=_bind_prod,
    infer=_infer_sum,
    casts=_cast_sum,
    reference=lambda input, *, dim, keepdim, dtype: np.multiply.reduce(
        input, axis=dim, keepdims=keepdim, dtype=dtype and dtype.compute.numpy
    ),
    grad=_grad_prod,
    lower=lowering.kernel(_build_prod),
    traits=Traits(in_order=True),
    samples=_prod_samples,
)


# Truth and counts


def _truth(name: str, ufunc: np.ufunc):
    """The record of any or all."""

    def build(k: Any, input: Any, *, dim: Dims, keepdim: bool) -> None:
        element, over, at = stages(k, input, dim, keepdim)
        k.store((k.any if name == "any" else k.all)(element, over=over), at=at)

    def bind(input, dim=None, keepdim=False):
        return (input,), {"dim": dims_of(name, dim, input.ndim), "keepdim": bool(keepdim)}

    def reference(input: Any, *, dim: Dims, keepdim: bool) -> Any:
        found = ufunc.reduce(input, axis=dim, keepdims=keepdim)
        return found.astype(np.uint8) if input.dtype == np.uint8 else found

    return define(
        name,
        bind=bind,
        infer=lambda input, *, dim, keepdim: reduced(
            input, dim, keepdim, uint8 if input.dtype is uint8 else bool_
        ),
        reference=reference,
        complex="analytic",
        lower=lowering.kernel(build),
        traits=Traits(in_order=True),
        samples=reduction_samples,
        doc=f"""Tell whether {name} of the elements over `dim` (an int, several, or None: all) differ from 0.

        Shapes: [..., n, ...] -> bool [...], or [..., 1, ...] with `keepdim`; uint8 stays uint8.  A NaN is
        true.  Of nothing, any is False and all is True.  Raises DimError.
        """,
    )


any = _truth("any", np.logical_or)
all = _truth("all", np.logical_and)


@composite()
def count_nonzero(input, dim=None):
    """Count the elements over `dim` (an int, several, or None: all) that differ from 0.  Returns int64."""
    return sum(ne(input, 0), dim)


@composite()
def nansum(input, dim=None, keepdim=False, *, dtype=None):
    """Add up the elements over `dim` (an int, several, or None: all) that are not NaN."""
    return sum(where(isnan(input), 0, input), dim, keepdim, dtype=dtype)


@composite()
def nanmean(input, dim=None, keepdim=False, *, dtype=None):
    """Average the elements over `dim` (an int, several, or None: all) that are not NaN."""
    return nansum(input, dim, keepdim, dtype=dtype) / sum(logical_not(isnan(input)), dim, keepdim)
