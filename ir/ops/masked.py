"""Choosing elements by truth, and what is found by looking at values: masks, nonzero, binary search."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from .. import lowering
from ..dims import symbol
from ..dtypes import DType, bool_, float64, int32, int64
from ..errors import ArgumentValueError, DTypeError, ShapeError
from ..kernel import scalar
from ..op import REGISTRY, Traits, composite, define
from ..sample import Operand, Sample, sample
from ..shapes import broadcast_shapes, check_together, common_device
from ..types import CPU, Device, Type, placed, type_of
from .cast import dtype_of
from .create import fits
from .getitem import is_mask
from .index import index as pick
from .split import unbind
from .view import expand, reshape

# A size that only the values tell.
_COUNT = symbol("count")
_HOST = Traits(host=True)


def _infer_masked_fill(input: Type, mask: Type, value: Type) -> Type:
    if mask.dtype is not bool_:
        got = f"masked_fill only supports boolean masks, not {mask.dtype.name}"
        raise DTypeError(got, "mask != 0 makes a mask")
    if value.ndim:
        raise ShapeError(f"masked_fill: value must be a number or 0-d, not of {value.ndim} dimensions")
    return input.with_shape(broadcast_shapes("masked_fill", input.shape, mask.shape))


def _write_masked_fill(input: np.ndarray, mask: np.ndarray, value: np.ndarray) -> None:
    np.copyto(input, value, where=mask, casting="unsafe")


masked_fill = define(
    "masked_fill",
    complex="analytic",
    number=lambda input, number: fits("masked_fill", number, input.dtype),
    doc="""Replace the elements where `mask` is true by one value.  Shapes: [...], [...] broadcast -> [...].

    Raises DTypeError for a mask that is not bool, ShapeError.
    """,
    operands=("input", "mask", "value"),
    attrs=(),
    infer=_infer_masked_fill,
    casts=lambda input, mask, value: (None, None, input.dtype),
    reference=lambda input, mask, value: np.where(mask, value, input),
    write=_write_masked_fill,
    grad=(
        lambda g, mask: masked_fill(g, mask, 0.0),
        None,
        lambda g, mask: REGISTRY["where"](mask, g, 0.0),
    ),
    lower=lowering.pointwise(lambda input, mask, value: scalar.op("select", mask, value, input)),
    traits=Traits(elementwise=True, inplace=True, movement=True, in_order=True),
    samples=lambda: [
        Sample((Operand(shape), Operand(mask, category="bool"), Operand(())))
        for shape, mask in (
            ((), ()), ((0,), (0,)), ((1,), ()), ((17,), (17,)), ((33,), (1,)),
            ((3, 17), (17,)), ((3, 1), (3, 4)),
        )
    ],
)  # fmt: skip


def _argwhere(input: np.ndarray) -> np.ndarray:
    # In rows, as compiled programs hand it out, and quicker than by argwhere.
    return np.array(input.nonzero()).T.copy() if input.ndim else np.argwhere(input)


argwhere = define(
    "argwhere",
    complex="analytic",
    doc="Give the places of the elements that are not zero, a row each.  Shapes: [...] -> int64[k, ndim].",
    operands=("input",),
    attrs=(),
    infer=lambda input: type_of(int64, (_COUNT, input.ndim), input.device),
    reference=_argwhere,
    lower=lowering.host_only("the number of places depends on the values"),
    traits=_HOST,
    samples=lambda: [sample(s) for s in ((), (0,), (1,), (17,), (33,), (3, 4))],
)


@composite()
def nonzero(input, *, as_tuple=False):
    """Give the places of the elements that are not zero: a row each, or (as_tuple) a tensor a dimension."""
    if not as_tuple:
        return argwhere(input)
    return unbind(argwhere(input if input.ndim else reshape(input, (1,))), 1)


@composite()
def nonzero_static(input, *, size, fill_value=-1):
    """Give the first `size` places of elements that are not zero, as rows; `fill_value` fills up what lacks.

    Shapes: [size, dimensions].  Raises ArgumentValueError for a negative size.
    """
    if size < 0:
        raise ArgumentValueError(f"nonzero_static: size must not be negative, as {size} is")
    places = argwhere(input)[:size]
    missing = REGISTRY["new_full"](places, (size - places.shape[0], input.ndim), fill_value)
    return REGISTRY["cat"]((places, missing))


@composite()
def masked_select(input, mask):
    """Take the elements where `mask`, broadcast, is true, as a list.  Raises DTypeError, ShapeError."""
    shape = broadcast_shapes("masked_select", input.shape, mask.shape)
    check_together("masked_select", input, mask)
    if not is_mask(mask):
        raise DTypeError("masked_select: expected BoolTensor for mask", "mask != 0 makes a mask")
    places = argwhere(reshape(expand(mask, shape), (-1,)))
    return pick(reshape(expand(input, shape), (-1,)), (reshape(places, (-1,)),))


@composite(inplace=True)
def masked_scatter(input, mask, source):
    """Replace the elements where `mask` is true by those of `source`, in order.

    Raises DimError where source holds fewer elements than the mask asks for, DTypeError.
    """
    if dtype_of(source) is not dtype_of(input):
        raise DTypeError(
            "masked_scatter: expected self and source to have same dtypes, not "
            f"{dtype_of(input).name} and {dtype_of(source).name}"
        )
    shape = broadcast_shapes("masked_scatter", input.shape, mask.shape)
    mask, input = expand(mask, shape), expand(input, shape)
    order = REGISTRY["cumsum"](reshape(mask, (-1,)), 0) - 1
    order = REGISTRY["where"](order < 0, 0, order)
    flat = reshape(source, (-1,))
    if not flat.shape[0]:
        return REGISTRY["clone"](input)
    return REGISTRY["where"](mask, reshape(pick(flat, (order,)), shape), input)


def bind_bincount(input, weights=None, minlength=0):
    """Count how often each integer occurs, or add up its weights.  Shapes: int[n] -> int64[k].

    Raises ArgumentValueError for negative elements, ShapeError, DTypeError.
    """
    if minlength < 0:
        raise ArgumentValueError(f"bincount: minlength can't be negative: {minlength}")
    return (input, weights), {"minlength": int(minlength)}


def _infer_bincount(input: Type, weights: Type | None, *, minlength: int) -> Type:
    if input.dtype.category != "int":
        raise input.dtype.refused("bincount", "its elements are integers")
    if input.ndim != 1 or (weights is not None and weights.shape != input.shape):
        raise ShapeError(
            "bincount only supports 1-d non-negative integral inputs, and weights of the same size",
            f"input: {input}",
            *(() if weights is None else (f"weights: {weights}",)),
        )
    dtype = int64 if weights is None else weights.dtype if weights.dtype.itemsize == 4 else float64
    return type_of(dtype, (_COUNT,), input.device)


def _bincount(input: np.ndarray, weights: np.ndarray | None, *, minlength: int) -> np.ndarray:
    if input.size and input.min() < 0:
        raise ArgumentValueError(
            f"bincount only supports 1-d non-negative integral inputs: one is {input.min()}"
        )
    counts = np.bincount(input, weights, minlength)
    return counts if weights is None or weights.dtype != np.float32 else counts.astype(np.float32)


bincount = define(
    "bincount",
    bind=bind_bincount,
    optional=("weights",),
    infer=_infer_bincount,
    reference=_bincount,
    lower=lowering.host_only("the number of counts depends on the values"),
    traits=Traits(host=True, refuses=True),
    dtypes="int",
    samples=lambda: [
        Sample((Operand(shape, 0, 5, category="int"), None), {"minlength": least})
        for shape, least in (((0,), 3), ((1,), 0), ((17,), 0), ((33,), 8))
    ],
    inapplicable={"0-d": "counts in one dimension"},
)


# Binary search


def bind_searchsorted(sorted_sequence, input, *, out_int32=False, right=False, side=None, sorter=None):
    """Find where each value would have to stand in a sorted last dimension for it to stay sorted.

    right (side="right"): after elements equal to it, else before.  Shapes: [n], [...] -> int64[...], or
    [..., n], [..., k] -> int64[..., k] row by row.  Raises ShapeError, ArgumentValueError.
    """
    if sorter is not None:
        if sorter.shape != sorted_sequence.shape:
            raise ShapeError("searchsorted: sorter must have the shape of sorted_sequence")
        sorted_sequence = REGISTRY["gather"](sorted_sequence, -1, sorter)
    if side not in (None, "left", "right") or (side == "left" and right):
        raise ArgumentValueError(f"searchsorted: side={side!r} with right={right}")
    return (sorted_sequence, input), {"right": right or side == "right", "out_int32": bool(out_int32)}


def _infer_searchsorted(sorted_sequence: Type, input: Type, *, right: bool, out_int32: bool) -> Type:
    if not sorted_sequence.ndim:
        raise ShapeError("searchsorted: sorted_sequence needs a dimension")
    if sorted_sequence.ndim > 1 and sorted_sequence.shape[:-1] != input.shape[:-1]:
        raise ShapeError(
            "searchsorted: sorted_sequence and input must be equal in all dimensions but the last"
        )
    device = common_device("searchsorted", sorted_sequence, input)
    return type_of(int32 if out_int32 else int64, input.shape, device)


def _searched(sorted_sequence: np.ndarray, input: np.ndarray, *, right: bool, out_int32: bool) -> np.ndarray:
    side = "right" if right else "left"
    if sorted_sequence.ndim == 1:
        found = np.asarray(np.searchsorted(sorted_sequence, input, side))
    else:
        rows = sorted_sequence.reshape(prod(sorted_sequence.shape[:-1]), sorted_sequence.shape[-1])
        values = input.reshape(len(rows), input.shape[-1])
        found = np.empty(values.shape, np.int64)
        for row, value, out in zip(rows, values, found, strict=True):
            out[...] = np.searchsorted(row, value, side)
    return found.reshape(input.shape).astype(np.int32 if out_int32 else np.int64)


searchsorted = define(
    "searchsorted",
    bind=bind_searchsorted,
    infer=_infer_searchsorted,
    reference=_searched,
    lower=lowering.extern("a binary search for each value"),
    method=False,
    samples=lambda: [
        sample((0,), (3,)), sample((1,), ()), sample((17,), (2, 3)), sample((33,), (5,), right=True),
        sample((2, 4), (2, 3), out_int32=True),
    ],
    inapplicable={"0-d": "needs a sorted dimension"},
)  # fmt: skip


@composite()
def bucketize(input, boundaries, *, out_int32=False, right=False):
    """Find the bucket of each value: the number of boundaries below it (right: or equal to it).

    Shapes: [...], [n] sorted -> int64[...].  Raises ShapeError.
    """
    if boundaries.ndim != 1:
        raise ShapeError(f"bucketize: boundaries must have one dimension, not {boundaries.ndim}")
    return searchsorted(boundaries, input, out_int32=out_int32, right=right)


# Places of a matrix's triangles


_SIZES = ("0-d", "empty", "1", "17", "33")


def _triangle_places(name: str, words: str, find: Any) -> Any:
    def bind(row, col, offset=0, *, dtype=int64, device=None):
        if row < 0 or col < 0:
            raise ArgumentValueError(f"{name}: row and col can't be negative: {row}, {col}")
        device = CPU if device is None else placed(device)
        return (), {"row": row, "col": col, "offset": offset, "dtype": dtype, "device": device}

    bind.__doc__ = f"Give the places on and {words} a diagonal of a matrix: row numbers, then column numbers."

    def reference(*, row: int, col: int, offset: int, dtype: DType, device: Device) -> np.ndarray:
        return np.stack(find(row, offset, col)).astype(dtype.numpy)

    def infer(*, row: int, col: int, offset: int, dtype: DType, device: Device) -> Type:
        return type_of(dtype, (2, find(row, offset, col)[0].size), device)

    return define(
        name,
        bind=bind,
        infer=infer,
        reference=reference,
        lower=lowering.extern("a list known when it is asked for, which no kernel need compute"),
        traits=Traits(creation=True),
        method=False,
        samples=lambda: [sample(row=3, col=4), sample(row=0, col=2), sample(row=7, col=3, offset=-1)],
        inapplicable=dict.fromkeys((*_SIZES, "transposed", "strided", "broadcast"), "no operand"),
    )


tril_indices = _triangle_places("tril_indices", "below", np.tril_indices)
triu_indices = _triangle_places("triu_indices", "above", np.triu_indices)
