"""Order: sort, topk, kthvalue, median.  Gradients go to where the values came from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .. import lowering
from ..dims import Dim, at_least
from ..dtypes import bool_, int64
from ..errors import DTypeError, ShapeError
from ..op import composite, define
from ..sample import Operand, Sample
from ..shapes import dim_of, reduced_shape
from ..types import Type
from .arithmetic import floor_divide
from .cast import dtype_of
from .compare import gt, isnan, logical_not, where
from .extremum import share, to_index
from .gather import gather
from .reduce import not_empty, sum
from .view import reshape, squeeze

EXTERN = lowering.extern("sorting is a library routine of the host")


def _order(input: Any, dim: int, descending: bool) -> Any:
    """The places of the elements in order; equal ones keep theirs."""
    if not descending:
        return input.argsort(axis=dim, kind="stable")
    # Reversed before and after, so that equal elements come out in the order they stood in.
    backwards = np.flip(np.flip(input, dim).argsort(axis=dim, kind="stable"), dim)
    return input.shape[dim] - 1 - backwards


def _picked(input: Any, indices: Any, dim: int) -> tuple:
    return np.take_along_axis(input, indices, dim), indices


def grad_picked(keepdim: bool) -> Callable:
    """The gradient of values picked along `dim`, which kept that dimension, or did as the attr says."""
    if keepdim:
        return lambda g, indices, input_type, dim: to_index(g, indices, input_type.shape, dim, True)
    return lambda g, indices, input_type, dim, keepdim: to_index(g, indices, input_type.shape, dim, keepdim)


def bind_sort(input, dim=-1, descending=False, stable=False):
    """Sort along `dim`; returns (values, int64 indices) of the input's shape.

    Equal elements keep their order, with or without `stable`.  NaN counts as the greatest.  The gradient goes
    to where the values came from.  Raises DimError.
    """
    return (input,), {"dim": dim_of("sort", dim, input.ndim), "descending": bool(descending)}


def _sort(input: Any, *, dim: int, descending: bool) -> tuple:
    if not input.ndim:
        return np.array(input), np.array(0)
    return _picked(input, _order(input, dim, descending), dim)


sort = define(
    "sort",
    bind=bind_sort,
    infer=lambda input, *, dim, descending: (input, input.with_dtype(int64)),
    reference=_sort,
    grad=grad_picked(True),
    outputs=("values", "indices"),
    lower=EXTERN,
    samples=lambda: [
        *(Sample((Operand(shape, distinct=True),)) for shape in ((), (0,), (1,), (17,), (3, 33))),
        Sample((Operand((4, 5), distinct=True),), {"dim": 0, "descending": True}),
        Sample((Operand((2, 3, 4), distinct=True),), {"dim": 1, "stable": True}),
    ],
)


@composite()
def argsort(input, dim=-1, descending=False, stable=False):
    """Find the places of the elements in order along `dim`, as int64; equal elements keep their order."""
    return sort(input, dim, descending, stable)[1]


@composite()
def msort(input):
    """Sort along the first dimension."""
    return sort(input, 0)[0]


# Some of the order


def bind_topk(input, k, dim=-1, largest=True, sorted=True):
    """Find the `k` largest (or smallest) elements along `dim`, the best first.

    Returns (values, int64 indices).  Shapes: [..., n, ...] -> [..., k, ...].  NaN counts as the greatest;
    which of equal elements come out is not said.  The gradient goes to where the values came from.  Raises
    DimError, ShapeError for k outside [0, n].
    """
    dim = dim_of("topk", dim, input.ndim)
    k = k if isinstance(k, Dim) else int(k)
    return (input,), {"k": k, "dim": dim, "largest": bool(largest), "sorted": bool(sorted)}


def _infer_topk(input: Type, *, k: int, dim: int, largest: bool, sorted: bool) -> tuple[Type, Type]:
    if input.dtype is bool_:
        raise DTypeError("topk: bools have no order", "convert them first: x.int()")
    n = input.shape[dim] if input.ndim else 1
    if not (at_least(k, 0) and at_least(n, k)):
        raise ShapeError(f"topk: k = {k} of {n} elements", f"k lies in [0, {n}]")
    out = input.with_shape(tuple(k if d == dim else n for d, n in enumerate(input.shape)))
    return out, out.with_dtype(int64)


def _topk(input: Any, *, k: int, dim: int, largest: bool, sorted: bool) -> tuple:
    if not input.ndim:
        return np.array(input), np.array(0)
    n = input.shape[dim]
    if 0 < 8 * k < n:  # where few are wanted, parting the best from the rest is quicker than sorting all
        best = np.argpartition(input, n - k if largest else k - 1, axis=dim)
        best = np.take(best, range(n - k, n) if largest else range(k), axis=dim)
        among = _order(np.take_along_axis(input, best, dim), dim, largest)
        return _picked(input, np.take_along_axis(best, among, dim), dim)
    return _picked(input, np.take(_order(input, dim, largest), range(k), axis=dim), dim)


topk = define(
    "topk",
    bind=bind_topk,
    infer=_infer_topk,
    reference=_topk,
    grad=grad_picked(True),
    outputs=("values", "indices"),
    lower=EXTERN,
    samples=lambda: [
        Sample((Operand((), distinct=True), 1)),
        Sample((Operand((0,), distinct=True), 0)),
        Sample((Operand((1,), distinct=True), 1)),
        Sample((Operand((17,), distinct=True), 2)),
        Sample((Operand((3, 33), distinct=True), 5), {"largest": False}),
        Sample((Operand((4, 3), distinct=True), 4), {"dim": 0}),
        Sample((Operand((2, 3, 4), distinct=True), 2), {"dim": 1, "sorted": False}),
    ],
    dtypes="number",
)


def _infer_one(op: str, input: Type, dim: int, keepdim: bool) -> tuple[Type, Type]:
    """The types of one element along `dim`, and of its place."""
    if input.dtype is bool_:
        raise DTypeError(f"{op}: bools have no order", "convert them first: x.int()")
    dims = (dim,) if input.ndim else ()
    not_empty(op, input.shape, dims)
    out = input.with_shape(reduced_shape(input.shape, dims, keepdim))
    return out, out.with_dtype(int64)


def picked_one(input: Any, indices: Any, dim: int, keepdim: bool) -> tuple:
    """The elements at `indices`, which have `dim` as one, and the indices."""
    values, indices = _picked(input, indices, dim)
    return (values, indices) if keepdim else (values.squeeze(dim), indices.squeeze(dim))


def bind_kthvalue(input, k, dim=-1, keepdim=False):
    """Find the `k`-th smallest element along `dim`, counted from 1; returns (values, int64 indices).

    Shapes: [..., n, ...] -> [...], or [..., 1, ...] with `keepdim`.  NaN counts as the greatest.  The
    gradient goes to where the values came from.  Raises DimError, ShapeError for k outside [1, n].
    """
    dim = dim_of("kthvalue", dim, input.ndim)
    return (input,), {"k": int(k), "dim": dim, "keepdim": bool(keepdim)}


def _infer_kthvalue(input: Type, *, k: int, dim: int, keepdim: bool) -> tuple[Type, Type]:
    n = input.shape[dim] if input.ndim else 1
    outs = _infer_one("kthvalue", input, dim, keepdim)
    if not (at_least(k, 1) and at_least(n, k)):
        raise ShapeError(f"kthvalue: k = {k} of {n} elements", f"k lies in [1, {n}]")
    return outs


def _kthvalue(input: Any, *, k: int, dim: int, keepdim: bool) -> tuple:
    if not input.ndim:
        return np.array(input), np.array(0)
    return picked_one(input, np.take(_order(input, dim, False), (k - 1,), axis=dim), dim, keepdim)


kthvalue = define(
    "kthvalue",
    bind=bind_kthvalue,
    infer=_infer_kthvalue,
    reference=_kthvalue,
    grad=grad_picked(False),
    outputs=("values", "indices"),
    lower=EXTERN,
    samples=lambda: [
        Sample((Operand((), distinct=True), 1)),
        Sample((Operand((0, 2), distinct=True), 1)),
        Sample((Operand((1,), distinct=True), 1)),
        Sample((Operand((17,), distinct=True), 5)),
        Sample((Operand((3, 33), distinct=True), 33), {"keepdim": True}),
        Sample((Operand((4, 3), distinct=True), 2), {"dim": 0}),
    ],
    dtypes="number",
)


def _middle(input: Any, dim: int) -> Any:
    """Where the lower median stands along `dim`, which is kept; or the first NaN."""
    middle = np.take(_order(input, dim, False), ((input.shape[dim] - 1) // 2,), axis=dim)
    if input.dtype.kind != "f":
        return middle
    unknown = np.isnan(input)
    first = unknown.argmax(dim, keepdims=True)
    return np.where(np.logical_or.reduce(unknown, axis=dim, keepdims=True), first, middle)


def bind_median_dim(input, dim=-1, keepdim=False):
    """Find the lower median along `dim`: what median(input, dim) calls; returns (values, int64 indices).

    Shapes: [..., n, ...] -> [...], or [..., 1, ...] with `keepdim`.  A NaN wins.  The gradient goes to where
    the values came from.  Raises DimError.
    """
    return (input,), {"dim": dim_of("median", dim, input.ndim), "keepdim": bool(keepdim)}


def _median_dim(input: Any, *, dim: int, keepdim: bool) -> tuple:
    if not input.ndim:
        return np.array(input), np.array(0)
    return picked_one(input, _middle(input, dim), dim, keepdim)


median_dim = define(
    "median_dim",
    bind=bind_median_dim,
    infer=lambda input, *, dim, keepdim: _infer_one("median", input, dim, keepdim),
    reference=_median_dim,
    grad=grad_picked(False),
    outputs=("values", "indices"),
    lower=EXTERN,
    samples=lambda: [
        *(Sample((Operand(shape, distinct=True),)) for shape in ((), (0, 2), (1,), (17,), (3, 33))),
        Sample((Operand((4, 3), distinct=True),), {"dim": 0, "keepdim": True}),
    ],
    method=False,
    dtypes="number",
)


def _infer_median_all(input: Type) -> Type:
    if input.dtype is bool_:
        raise DTypeError("median: bools have no order", "convert them first: x.int()")
    if not input.dtype.is_floating_point:
        not_empty("median", input.shape, tuple(range(input.ndim)))  # only floats have a NaN for it
    return input.with_shape(())


def _median_all(input: Any) -> Any:
    flat = input.reshape(-1)
    return flat[_middle(flat, 0)[0]] if flat.size else np.array(np.nan, flat.dtype)


def _of_all(name: str, reference: Callable, fate: str):
    """The record of a lower median of all elements."""
    return define(
        f"{name}_all",
        infer=_infer_median_all,
        reference=reference,
        grad=lambda g, input, out, input_type: share(g, input, out, tuple(range(input_type.ndim))),
        lower=EXTERN,
        samples=lambda: [
            Sample((Operand(shape, distinct=True),), differentiable=0 not in shape)
            for shape in ((), (0,), (1,), (17,), (33,), (3, 4))
        ],
        method=False,
        dtypes="number",
        doc=f"""Find the lower median of all elements: what {name}(input) calls.

        Shapes: [...] -> [].  {fate}, and of nothing it is NaN.  At ties the gradient is shared evenly.
        """,
    )


median_all = _of_all("median", _median_all, "A NaN wins")
nanmedian_all = _of_all("nanmedian", lambda input: _median_all(input[~np.isnan(input)]), "A NaN is left out")


@composite()
def median(input, dim=None, keepdim=False):
    """Find the lower median: of all elements, or along `dim` with indices, as (values, indices).  A NaN wins.

    median(input) shares its gradient evenly at ties, median(input, dim) sends it to the index chosen.
    Raises DimError, DTypeError for bools.
    """
    return median_all(input) if dim is None else median_dim(input, dim, keepdim)


class Median(NamedTuple):
    """What `nanmedian` returns along a dimension."""

    values: Any
    indices: Any


@composite()
def nanmedian(input, dim=None, keepdim=False):
    """Find the lower median of what is not NaN: of all elements, or along `dim` as (values, indices).

    Of nothing but NaN it is NaN.  nanmedian(input) shares its gradient evenly at ties, nanmedian(input, dim)
    sends it to where the values came from.  Raises DimError.
    """
    if not dtype_of(input).is_floating_point:
        return median(input, dim, keepdim)
    if dim is None:
        return nanmedian_all(input)
    line = input if input.ndim else reshape(input, (1,))
    at = dim_of("nanmedian", dim, input.ndim)
    if not line.shape[at]:
        return median(input, dim, keepdim)
    _, order = sort(line, at)
    known = sum(logical_not(isnan(line)), at, True)
    middle = floor_divide(where(gt(known, 0), known - 1, 0), 2)
    places = gather(order, at, middle)
    values = gather(line, at, places)
    if not input.ndim:
        return Median(reshape(values, ()), reshape(places, ()))
    return Median(values, places) if keepdim else Median(squeeze(values, at), squeeze(places, at))
