"""How far elements spread and how long they are together: variances, logsumexp, norms."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np

from .. import lowering
from ..dtypes import DType
from ..errors import ArgumentError, ArgumentValueError, DTypeError, ShapeError
from ..op import REGISTRY, Traits, composite, define
from ..sample import Operand, Sample, sample
from ..shapes import dims_of, float_dtype
from ..types import Shape, Type
from .arithmetic import abs, sgn
from .compare import eq, ne, where
from .create import zeros_like
from .extremum import share
from .math import exp, log
from .powers import sqrt
from .reduce import Dims, count, keep, mean, not_empty, reduced, stages, sum
from .view import movedim, reshape

_SPREAD = {"var": "variance", "std": "standard deviation"}


def _spread(name: str):
    """The bind of var or std: the newer `correction` and the older `unbiased` spell the same divisor."""

    def bind(input, dim=None, unbiased=None, keepdim=False, *, correction=None):
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        if unbiased is not None and correction is not None:
            raise ArgumentError(f"{name}: unbiased and correction say the same", "give correction only")
        if correction is None:
            correction = 1 if unbiased is None or unbiased else 0
        dims = dims_of(name, dim, input.ndim)
        return (input,), {"dim": dims, "correction": correction, "keepdim": bool(keepdim)}

    bind.__doc__ = f"""Compute the {_SPREAD[name]} over `dim` (an int, several, or None: all).

    The squared distances from the mean add up and are divided by n - `correction` (`unbiased=False` is the
    older spelling of correction=0).  Shapes: [..., n, ...] -> [...], or [..., 1, ...] with `keepdim`.  NaN
    where nothing is left to divide by.  Raises DimError, and DTypeError for integers.
    """
    return bind


def _spread_samples() -> list[Sample]:
    alone = [sample(s, differentiable=False) for s in ((), (0,), (1,))]  # NaN: nothing is left to divide by
    return alone + [
        sample((17,)), sample((33,), dim=0), sample((3, 17), dim=1), sample((5,), correction=2),
        sample((2, 3, 4), dim=(0, 2), keepdim=True), sample((3, 5), dim=1, correction=0),
        sample((2, 4), dim=0, unbiased=False),
    ]  # fmt: skip


def _infer_spread(input: Type, *, dim: Dims, correction: float, keepdim: bool) -> Type:
    if not input.dtype.inexact:
        raise DTypeError(f"var, std: {input.dtype} can't hold them", "convert first: x.float()")
    return reduced(input, dim, keepdim, input.dtype.to_real())


def _squared(x: Any) -> Any:
    """|x|^2, as real numbers."""
    return x.real * x.real + x.imag * x.imag if x.dtype.kind == "c" else x * x


def _freedom(shape: Shape, dim: Dims, correction: float) -> Any:
    """The divisor of a variance, not below 0."""
    left = count(shape, dim) - correction
    return left if not isinstance(left, (int, float)) or left > 0 else 0.0


def _var(input: Any, *, dim: Dims, correction: float, keepdim: bool) -> Any:
    center = np.add.reduce(input, axis=dim, keepdims=True) / count(input.shape, dim)
    distance = input - center
    return np.add.reduce(_squared(distance), axis=dim, keepdims=keepdim) / _freedom(
        input.shape, dim, correction
    )


def _build_var(k: Any, input: Any, *, dim: Dims, correction: float, keepdim: bool) -> None:
    element, over, at = stages(k, input, dim, keepdim)
    distance = element - k.sum(element, over=over) / count(input.shape, dim)
    k.store(k.sum(distance * distance, over=over) / _freedom(input.shape, dim, correction), at=at)


var = define(
    "var",
    complex="stated",
    bind=_spread("var"),
    infer=_infer_spread,
    reference=_var,
    grad=lambda g, input, input_type, dim, correction, keepdim: (
        keep(g * 2.0 / _freedom(input_type.shape, dim, correction), input_type.shape, dim, keepdim)
        * (input - mean(input, dim, True))
    ),
    lower=lowering.kernel(_build_var),
    traits=Traits(in_order=True),
    samples=_spread_samples,
    dtypes="float",
)


def ratio_or_zero(g: Any, length: Any) -> Any:
    """g / length, and 0 where the length is, to any order: nothing is divided by 0 on the way."""
    zero = eq(length, 0.0)
    return where(zero, 0.0, g / where(zero, 1.0, length))


def _grad_std(
    g: Any, input: Any, out: Any, input_type: Type, dim: Dims, correction: float, keepdim: bool
) -> Any:
    """g (x - mean) / ((n - correction) std), and 0 where all elements are equal."""
    scale = ratio_or_zero(g, out) / _freedom(input_type.shape, dim, correction)
    return keep(scale, input_type.shape, dim, keepdim) * (input - mean(input, dim, True))


std = define(
    "std",
    complex="stated",
    bind=_spread("std"),
    infer=_infer_spread,
    reference=lambda input, *, dim, correction, keepdim: np.sqrt(
        _var(input, dim=dim, correction=correction, keepdim=keepdim)
    ),
    grad=_grad_std,
    lower=lowering.decomposition(
        lambda input, *, dim, correction, keepdim: sqrt(
            var(input, dim, keepdim=keepdim, correction=correction)
        )
    ),
    traits=Traits(in_order=True),
    samples=_spread_samples,
    dtypes="float",
)


@composite(method=False)
def var_mean(input, dim=None, unbiased=None, keepdim=False, *, correction=None):
    """Compute the variance and the mean over `dim`, as var and mean do; returns both."""
    return (
        var(input, dim, unbiased, keepdim, correction=correction),
        mean(input, None if isinstance(dim, bool) else dim, keepdim),
    )


@composite(method=False)
def std_mean(input, dim=None, unbiased=None, keepdim=False, *, correction=None):
    """Compute the standard deviation and the mean over `dim`, as std and mean do; returns both."""
    return (
        std(input, dim, unbiased, keepdim, correction=correction),
        mean(input, None if isinstance(dim, bool) else dim, keepdim),
    )


# Lengths


def _bind_logsumexp(input, dim, keepdim=False):
    """Compute log(sum(exp(x))) over `dim` (an int or several) without overflow.

    Shapes: [..., n, ...] -> [...], or [..., 1, ...] with `keepdim`.  Of nothing it is -inf.  Raises DimError.
    """
    return (input,), {"dim": dims_of("logsumexp", dim, input.ndim), "keepdim": bool(keepdim)}


def _logsumexp(input: Any, *, dim: Dims, keepdim: bool) -> Any:
    high = np.maximum.reduce(input.real, axis=dim, keepdims=True, initial=-inf)
    high = np.where(np.isinf(high), 0.0, high)  # inf - inf would be NaN
    total = np.log(np.add.reduce(np.exp(input - high), axis=dim, keepdims=keepdim))
    return total + high.reshape(total.shape)


def _build_logsumexp(k: Any, input: Any, *, dim: Dims, keepdim: bool) -> None:
    element, over, at = stages(k, input, dim, keepdim)
    high = k.max(element, over=over)
    high = where(eq(abs(high), inf), 0.0, high)
    k.store(log(k.sum(exp(element - high), over=over)) + high, at=at)


logsumexp = define(
    "logsumexp",
    complex="analytic",
    bind=_bind_logsumexp,
    infer=lambda input, *, dim, keepdim: reduced(input, dim, keepdim, float_dtype(input)),
    casts=lambda input, **_: (float_dtype(input),),
    reference=_logsumexp,
    grad=lambda g, input, out, input_type, dim, keepdim: (
        keep(g, input_type.shape, dim, keepdim) * exp(input - keep(out, input_type.shape, dim, keepdim))
    ),
    lower=lowering.kernel(_build_logsumexp),
    traits=Traits(in_order=True),
    samples=lambda: [
        sample((), dim=0), sample((0,), dim=0, differentiable=False), sample((1,), dim=0),
        sample((17,), dim=0), sample((33,), dim=-1), sample((3, 17), dim=1), sample((3, 4), dim=(0, 1)),
        sample((2, 3, 4), dim=1, keepdim=True),
    ],
)  # fmt: skip


def _bind_vector_norm(x, ord=2, dim=None, keepdim=False, *, dtype=None):
    """Compute the `ord`-norm over `dim` (an int, several, or None: all), as of one vector.

    (sum |x|^ord)^(1/ord); the greatest |x| for inf, the least for -inf, the number of nonzeros for 0.  The
    gradient at 0 is 0.  Shapes: [..., n, ...] -> [...], or [..., 1, ...] with `keepdim`.  Raises DimError,
    DTypeError for integers, ShapeError where an infinite norm has nothing to choose from.
    """
    if isinstance(ord, str):
        raise ArgumentValueError(f"linalg_vector_norm: ord must be a number, not {ord!r}")
    dims = dims_of("linalg_vector_norm", dim, x.ndim)
    return (x,), {"ord": float(ord), "dim": dims, "keepdim": bool(keepdim), "dtype": dtype}


def _infer_vector_norm(x: Type, *, ord: float, dim: Dims, keepdim: bool, dtype: DType | None) -> Type:
    if not (dtype or x.dtype).inexact:
        raise DTypeError(
            f"linalg_vector_norm: {dtype or x.dtype} can't hold a norm", "convert first: x.float()"
        )
    if dtype is not None and (dtype.category == "complex") != (x.dtype.category == "complex"):
        raise DTypeError(
            f"linalg_vector_norm: dtype should be complex for complex inputs, and real for real ones: {dtype}"
        )
    if ord < 0 or ord == inf:
        not_empty("linalg_vector_norm", x.shape, dim)
    return reduced(x, dim, keepdim, (dtype or x.dtype).to_real())


def _vector_norm(x: Any, *, ord: float, dim: Dims, keepdim: bool, dtype: DType | None) -> Any:
    x = x if dtype is None else x.astype(dtype.compute.numpy)
    if ord == 2:
        return np.sqrt(np.add.reduce(_squared(x), axis=dim, keepdims=keepdim))
    size = np.abs(x)
    if ord in (inf, -inf):
        return (np.maximum if ord > 0 else np.minimum).reduce(size, axis=dim, keepdims=keepdim)
    if ord == 0:
        return np.add.reduce(size != 0, axis=dim, keepdims=keepdim, dtype=size.dtype)
    return np.add.reduce(size if ord == 1 else size**ord, axis=dim, keepdims=keepdim) ** (1 / ord)


def _build_vector_norm(k: Any, x: Any, *, ord: float, dim: Dims, keepdim: bool, dtype: DType | None) -> None:
    element, over, at = stages(k, x, dim, keepdim)
    size = abs(element)
    if ord in (inf, -inf):
        out = (k.max if ord > 0 else k.min)(size, over=over)
    elif ord == 0:
        out = k.sum(k.cast(k.truth(size), x.dtype), over=over)
    elif ord == 2:
        out = sqrt(k.sum(element * element, over=over))
    else:
        out = k.sum(size if ord == 1 else size**ord, over=over) ** (1 / ord)
    k.store(out, at=at)


def _grad_vector_norm(g: Any, x: Any, out: Any, x_type: Type, ord: float, dim: Dims, keepdim: bool) -> Any:
    """g sign(x) (|x| / norm)^(ord - 1), and 0 where the norm is not differentiable for a zero."""
    shape = x_type.shape
    g, out = keep(g, shape, dim, keepdim), keep(out, shape, dim, keepdim)
    if ord == 0:
        return zeros_like(x)
    if ord == 1:
        return g * sgn(x)
    if ord == 2:
        return x * ratio_or_zero(g, out)
    if ord in (inf, -inf):
        return sgn(x) * share(g, abs(x), out, dim)
    kept = ne(x, 0.0) if ord < 2 else ne(out, 0.0)
    ratio = where(kept, abs(x), 1.0) / where(ne(out, 0.0), out, 1.0)
    return where(kept, g * sgn(x) * ratio ** (ord - 1), 0.0)


linalg_vector_norm = define(
    "linalg_vector_norm",
    complex="stated",
    bind=_bind_vector_norm,
    infer=_infer_vector_norm,
    casts=lambda x, *, dtype, **_: (dtype,),
    reference=_vector_norm,
    grad=_grad_vector_norm,
    lower=lowering.kernel(_build_vector_norm),
    traits=Traits(in_order=True),
    samples=lambda: [
        sample((), differentiable=False), sample((0,)), sample((1,)), sample((17,)), sample((33,), dim=0),
        *(
            Sample((Operand((2, 3, 4), distinct=True, away_from=(0.0,)),), {"ord": p, "dim": (0, 2)})
            for p in (0, 0.5, 1, 1.5, 3, -1, inf, -inf)
        ),
        sample((3, 17), dim=1, keepdim=True), sample((3, 17), ord=3, dim=0),
    ],
    method=False,
    dtypes="float",
)  # fmt: skip


def _matrices(input: Any, dim: Any) -> Any:
    """The operand with the two dimensions that matrices stand in at its end.  Raises ShapeError."""
    if input.ndim < 2 or (dim is None and input.ndim != 2) or (dim is not None and len(dim) != 2):
        raise ShapeError("norm('nuc'): takes a matrix, or two dimensions by dim")
    return input if dim is None else movedim(input, tuple(dim), (-2, -1))


@composite(by_type=True)
def norm(input, p="fro", dim=None, keepdim=False, dtype=None):
    """Compute the `p`-norm over `dim`, as of one vector ("fro" and None: 2).  See linalg_vector_norm."""
    if p == "nuc":
        values = REGISTRY["linalg_svd"](_matrices(input, dim), False)[1]
        found = sum(values, -1)
        if not keepdim:
            return found
        pair = range(input.ndim) if dim is None else [d % input.ndim for d in dim]
        return reshape(found, [1 if d in pair else n for d, n in enumerate(input.shape)])
    return linalg_vector_norm(input, 2 if p in ("fro", None) else p, dim, keepdim, dtype=dtype)


@composite()
def dist(input, other, p=2):
    """Compute the `p`-norm of input - other, which broadcast.  Returns a 0-d tensor."""
    return linalg_vector_norm(input - other, p)
