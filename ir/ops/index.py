"""Picking places of several dimensions at once by integer tensors, and writing there.

Where the picked dimensions stand next to each other, the result's new dimensions take their place; else they
come first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import lowering
from ..dtypes import bool_, converter, int64, uint8
from ..errors import ArgumentError, DimError, DTypeError, IndexDTypeError, ShapeError
from ..kernel import scalar
from ..op import REGISTRY, Traits, define
from ..sample import Operand, Sample
from ..shapes import broadcast_shapes
from ..types import Shape, Type
from ..views import row_major
from ..warned import warn
from .cast import dtype_of


def picked(indices: Sequence) -> tuple[tuple[int, ...], tuple]:
    """The dimensions that an index tuple names, and the shapes of its tensors."""
    dims = tuple(d for d, i in enumerate(indices) if i is not None)
    return dims, tuple(indices[d].shape for d in dims)


def _place(dims: tuple[int, ...]) -> int:
    """Where in the result the new dimensions stand."""
    return dims[0] if dims[-1] - dims[0] == len(dims) - 1 else 0


def result_shape(shape: Shape, dims: tuple[int, ...], shapes: tuple[Shape, ...]) -> Shape:
    """The shape of index(x, indices).  Raises DimError where the indices don't broadcast."""
    rest = tuple(n for d, n in enumerate(shape) if d not in dims)
    at = _place(dims)
    try:
        picked = broadcast_shapes("x[index]", *shapes)
    except ShapeError:
        every = ", ".join(str(list(shape)) for shape in shapes)
        raise DimError(  # the built-in that PyTorch raises here
            f"x[index]: shape mismatch: indexing tensors could not be broadcast together with shapes {every}"
        ) from None
    return (*rest[:at], *picked, *rest[at:])


def out_of_range(op: str, index: np.ndarray, dim: int, n: int, least: int) -> DimError:
    """The error for an index tensor with a place outside of [least, n)."""
    bad = index[(index < least) | (index >= n)].reshape(-1)[0]
    if not n:
        return DimError(f"{op}: index {bad} is out of bounds for dimension with size 0, dimension {dim}")
    return DimError(f"{op}: index {bad} is out of bounds for dimension {dim} with size {n}")


def check_places(op: str, index: np.ndarray, dim: int, n: int) -> None:
    """Refuse places outside of [0, n).  Raises DimError."""
    # as unsigned numbers negative ones are the largest, so that one reduction finds both
    if index.dtype != np.int64:  # a gradient rule on plain arrays meets them as they were given
        index = index.astype(np.int64)
    if index.size and np.maximum.reduce(index.view(np.uint64), None) >= n:
        raise out_of_range(op, index, dim, n, 0)


def counted_places(op: str, index: np.ndarray, dim: int, n: int) -> np.ndarray:
    """Places of [-n, n), counted from the front.  Raises DimError."""
    if index.size and (np.minimum.reduce(index, None) < -n or np.maximum.reduce(index, None) >= n):
        raise out_of_range(op, index, dim, n, -n)
    return np.where(index < 0, index + n, index)


def _key(dims: tuple[int, ...], indices: tuple) -> tuple:
    key: list[Any] = [slice(None)] * (dims[-1] + 1)
    for d, i in zip(dims, indices, strict=True):
        key[d] = i
    return tuple(key)


def _first_bad(input_shape: Shape, dims: tuple[int, ...], indices: tuple) -> DimError:
    """The error that NumPy found, told in the house form."""
    for d, i in zip(dims, indices, strict=True):
        n = input_shape[d]
        if ((i < -n) | (i >= n)).any():
            return out_of_range("x[index]", np.asarray(i), d, n, -n)
    return DimError("x[index]: an index is out of bounds for dimension with size 0")


def _offsets(shape: Shape, strides: Sequence, dims: Sequence[int]) -> np.ndarray:
    """The flat offsets of all places of some dimensions, in row-major order."""
    found = np.zeros(1, np.int64)
    for d in dims:
        found = (found[:, None] + np.arange(shape[d]) * strides[d]).reshape(-1)
    return found


def flat_places(shape: Shape, dims: tuple[int, ...], indices: tuple) -> np.ndarray:
    """Where in a contiguous array the elements of index(x, indices) stand, in the result's order."""
    strides = row_major(shape)
    flat: Any = 0
    for d, i in zip(dims, indices, strict=True):
        flat = flat + counted_places("x[index]", i, d, shape[d]) * strides[d]
    rest, at = [d for d in range(len(shape)) if d not in dims], _place(dims)
    before, after = _offsets(shape, strides, rest[:at]), _offsets(shape, strides, rest[at:])
    return (before[:, None, None] + np.reshape(flat, (1, -1, 1)) + after).reshape(-1)


def add_at(out: np.ndarray, places: np.ndarray, values: np.ndarray) -> None:
    """Add values at flat places of a contiguous array, in order.

    One dimension and one dtype are what NumPy's add.at is quick at: 8192 rows of 64 take 0.8 ms here and 3.8
    ms with an index of rows.
    """
    np.add.at(out.reshape(-1), places, values.reshape(-1))


def add_into(out: np.ndarray, values: np.ndarray, dims: tuple[int, ...], indices: tuple) -> None:
    """Add values, broadcast, to the places that indices pick, in place.  Halves are added up in float32."""
    if out.dtype.kind not in "fiubc" or out.dtype == np.float16 or not out.flags.c_contiguous:
        wide = np.float32 if out.dtype.itemsize == 2 and out.dtype.kind not in "iu" else out.dtype
        sums = np.array(out, wide, order="C")
        add_into(sums, values, dims, indices)
        out[...] = sums
        return
    picked = result_shape(out.shape, dims, tuple(i.shape for i in indices))
    add_at(out, flat_places(out.shape, dims, indices), np.broadcast_to(values, picked).astype(out.dtype))


# index and its transpose


def _operands(op: str, indices: Any) -> tuple[tuple, tuple[int, ...]]:
    if not isinstance(indices, (tuple, list)):
        raise ArgumentError(f"{op}: indices must be a tuple of tensors, not {type(indices).__name__}")
    dims = tuple(d for d, i in enumerate(indices) if i is not None)
    if not dims:
        raise ArgumentError(f"{op}: indices name no tensor")
    return tuple(indices[d] for d in dims), dims


def check_index_dtype(op: str, *indices: Type, kind: type[DTypeError] = DTypeError) -> None:
    """Refuse index tensors that don't hold places.  Raises DTypeError, or what `kind` says."""
    for i in indices:
        if i.dtype.category != "int" or i.dtype.name == "uint8":
            raise kind(
                f"{op}: an index tensor must be int64, int32, int16 or int8, not {i.dtype.name}",
                "x[mask] takes a bool mask; index.long() makes an index",
            )


def check_source(rule: str, input: Type, source: Type) -> None:
    """Refuse to write elements of another dtype than that of where they go.  Raises DTypeError.

    One element without dimensions is taken as a number, which is converted.
    """
    if source.dtype is not input.dtype and source.ndim:
        raise DTypeError(
            f"{rule}, not {input.dtype.scalar_type} ({input.dtype.name}) and {source.dtype.scalar_type} "
            f"({source.dtype.name})",
            f"source.to(lamina.{input.dtype.name}) converts",
        )


def bind_index(input, indices):
    """Pick places of dimensions: element b of the result is input[..., indices[0][b], indices[1][b], ...].

    indices: for each leading dimension a tensor, or None to keep it whole; they are broadcast.  Negative
    places count from the end.  Raises DimError for places out of range, ShapeError, DTypeError.
    """
    tensors, dims = _operands("index", indices)
    if dims[-1] >= input.ndim:
        raise DimError(f"x[index]: too many indices for tensor of dimension {input.ndim}: {dims[-1] + 1}")
    return (input, *tensors), {"dims": dims, "shape": tuple(input.shape)}


def _infer_index(input: Type, *indices: Type, dims: tuple, shape: Shape) -> Type:
    check_index_dtype("x[index]", *indices, kind=IndexDTypeError)
    return input.with_shape(result_shape(input.shape, dims, tuple(i.shape for i in indices)))


def _index(input: np.ndarray, *indices: np.ndarray, dims: tuple, shape: Shape) -> np.ndarray:
    try:
        if len(dims) == 1:
            return input.take(indices[0], dims[0])
        return np.array(input[indices if dims == (*range(len(dims)),) else _key(dims, indices)])
    except IndexError:
        raise _first_bad(input.shape, dims, indices) from None


def _axes_at(axes: tuple, shape: Shape, dims: tuple, indices: tuple) -> tuple:
    """One index of the indexed operand per dimension, for the result's axes."""
    at, count = _place(dims), max(i.ndim for i in indices)
    rest = iter((*axes[:at], *axes[at + count :]))
    picked = dict(zip(dims, indices, strict=True))
    found = []
    for d, n in enumerate(shape):
        if d in picked:
            i = picked[d].broadcast(*axes[at : at + count])
            found.append(scalar.op("select", scalar.op("lt", i, 0), i + n, i))
        else:
            found.append(next(rest))
    return tuple(found)


def _build_index(k: Any, input: Any, *indices: Any, dims: tuple, shape: Shape) -> None:
    axes = k.parallel(*result_shape(input.shape, dims, tuple(i.shape for i in indices)))
    k.store(input[_axes_at(axes, input.shape, dims, indices)], at=axes)


def _restored(dims: tuple, indices: tuple) -> tuple:
    """The user's index tuple again."""
    found: list[Any] = [None] * (dims[-1] + 1)
    for d, i in zip(dims, indices, strict=True):
        found[d] = i
    return tuple(found)


def _vjp_index(saved: tuple, cotangents: tuple, attrs: dict, needs: tuple) -> tuple:
    indices = _restored(attrs["dims"], saved[0])
    back = unindex(cotangents[0], attrs["shape"], indices) if needs[0] else None
    return (back, *(None for _ in saved[0]))


def _index_case(shape: tuple, *picks: tuple | None, low: int = 0, high: int = 2) -> Sample:
    indices = tuple(None if p is None else Operand(p, low, high, category="int") for p in picks)
    return Sample((Operand(shape), indices))


def _index_samples() -> list[Sample]:
    return [
        _index_case((0, 3), (0,)), _index_case((1,), (4,), low=-1, high=1),
        _index_case((17,), (3, 2), low=-17, high=17), _index_case((33,), (33,), high=33),
        _index_case((3, 17), (5,), (5,), high=3), _index_case((3, 4, 2), None, (2, 3)),
        _index_case((3, 2, 4), (3, 1), None, (2,), high=3), _index_case((3, 4), (), high=3),
        _index_case((3, 4), (0,)),
    ]  # fmt: skip


index = define(
    "index",
    complex="analytic",
    operands=("input", "*indices"),
    attrs=("dims", "shape"),
    bind=bind_index,
    infer=_infer_index,
    casts=lambda input, *indices, **_: (None, *(int64 for _ in indices)),
    reference=_index,
    vjp=_vjp_index,
    saves=("*indices",),
    lower=lowering.kernel(_build_index),
    traits=Traits(movement=True, refuses=True),
    method=False,
    samples=_index_samples,
    inapplicable={"0-d": "needs a dimension to pick from"},
)


def bind_unindex(input, shape, indices, combine="add"):
    """Put elements into zeros of `shape` at the places that index(x, indices) takes them from.

    combine: "add" (elements that meet are added, which makes it the transpose of `index`) or "set" (the last
    one stays).  Raises ShapeError, DimError.
    """
    tensors, dims = _operands("unindex", indices)
    return (input, *tensors), {"shape": tuple(shape), "dims": dims, "combine": combine}


def _infer_unindex(input: Type, *indices: Type, shape: Shape, dims: tuple, combine: str) -> Type:
    check_index_dtype("unindex", *indices)
    picked = result_shape(shape, dims, tuple(i.shape for i in indices))
    if broadcast_shapes("unindex", picked, input.shape) != picked:
        raise ShapeError(f"unindex: the indices pick shape {list(picked)}, not {list(input.shape)}")
    return input.with_shape(shape)


def _unindexed(
    input: np.ndarray, *indices: np.ndarray, shape: Shape, dims: tuple, combine: str
) -> np.ndarray:
    out = np.zeros(shape, input.dtype)
    _write(out, input, *indices, dims=dims, accumulate=combine == "add")
    return out


def _build_unindex(k: Any, input: Any, *indices: Any, shape: Shape, dims: tuple, combine: str) -> None:
    axes = k.parallel(*result_shape(shape, dims, tuple(i.shape for i in indices)))
    k.scatter(input.broadcast(*axes), at=_axes_at(axes, shape, dims, indices), combine=combine)


def _vjp_unindex(saved: tuple, cotangents: tuple, attrs: dict, needs: tuple) -> tuple:
    taken = index(cotangents[0], _restored(attrs["dims"], saved[0])) if needs[0] else None
    return (taken, *(None for _ in saved[0]))


def _written_samples(first: Any) -> list[Sample]:
    """Samples of values, put at places of a shape."""
    return [first(*case) for case in (
        ((), (3,), ((),)), ((0,), (3,), ((0,),)), ((1,), (3,), ((1,),)), ((17,), (5,), ((17,),)),
        ((33,), (4, 33), ((),)), ((3, 2), (4, 2), ((3,),)), ((2, 3), (2, 4), (None, (3,))),
        ((2, 3), (3, 3, 3), ((2, 3), (3,), ())), ((2, 3, 4), (3, 4, 3), ((2, 1), None, (3,))),
    )]  # fmt: skip


def _unindex_sample(values: tuple, shape: tuple, picks: tuple) -> Sample:
    indices = tuple(None if p is None else Operand(p, -2, 3, category="int") for p in picks)
    return Sample((Operand(values),), {"shape": shape, "indices": indices})


unindex = define(
    "unindex",
    complex="analytic",
    operands=("input", "*indices"),
    attrs=("shape", "dims", "combine"),
    bind=bind_unindex,
    infer=_infer_unindex,
    casts=lambda input, *indices, **_: (None, *(int64 for _ in indices)),
    reference=_unindexed,
    vjp=_vjp_unindex,
    saves=("*indices",),
    lower=lowering.kernel(_build_unindex),
    method=False,
    traits=Traits(refuses=True),
    samples=lambda: _written_samples(_unindex_sample),
)


def warn_of_bytes() -> None:
    """Tell that a uint8 tensor among indices is a mask, of the time before there were bools."""
    warn(
        "indexing with dtype uint8 is now deprecated: the tensor is taken as a mask; make it bool",
        UserWarning,
        stacklevel=3,
    )


def _is_mask(index: Any) -> bool:
    return index is not None and (dtype_of(index) is uint8 or dtype_of(index).category == "bool")


def _places_in(index: Any) -> Sequence:
    """A mask as the indices of where it is true, one for each of its dimensions; others as they are."""
    if not _is_mask(index):
        return (index,)
    if dtype_of(index) is uint8:
        warn_of_bytes()
    places = REGISTRY["argwhere"](index)
    return [REGISTRY["basic_index"](places, (("slice", None, None, None), d)) for d in range(index.ndim)]


def bind_index_put(input, indices, values, accumulate=False):
    """Replace the elements that index(input, indices) picks by `values`, or add to them (`accumulate`).

    The values are broadcast.  Where places repeat, the last one stays, or all are added.
    Raises DimError, ShapeError, DTypeError.
    """
    if isinstance(indices, (tuple, list)) and any(map(_is_mask, indices)):
        indices = [j for i in indices for j in _places_in(i)]
    tensors, dims = _operands("index_put", indices)
    if dims[-1] >= input.ndim:
        raise DimError(f"index_put: too many indices for tensor of dimension {input.ndim}: {dims[-1] + 1}")
    return (input, values, *tensors), {"dims": dims, "accumulate": bool(accumulate)}


def _infer_index_put(input: Type, values: Type, *indices: Type, dims: tuple, accumulate: bool) -> Type:
    check_index_dtype("index_put", *indices, kind=IndexDTypeError)
    picked = result_shape(input.shape, dims, tuple(i.shape for i in indices))
    if broadcast_shapes("index_put", picked, values.shape) != picked:
        raise ShapeError(
            f"index_put: shape mismatch: values of shape {list(values.shape)} for a part of shape "
            f"{list(picked)}"
        )
    check_source("Index put requires the source and destination dtypes match", input, values)
    return input


def _write(out: np.ndarray, values: np.ndarray, *indices: np.ndarray, dims: tuple, accumulate: bool) -> None:
    try:
        if accumulate and converter(out.dtype, out.dtype):
            raise DTypeError(f"index_put(accumulate=True): nothing is added in {out.dtype.name}", "x.float()")
        if accumulate:
            add_into(out, values, dims, indices)
        else:
            out[_key(dims, indices)] = values
    except IndexError:
        raise _first_bad(out.shape, dims, indices) from None


def _index_put(input: np.ndarray, values: np.ndarray, *indices: np.ndarray, **attrs: Any) -> np.ndarray:
    out = np.array(input, order="C")
    _write(out, values, *indices, **attrs)
    return out


def _vjp_index_put(saved: tuple, cotangents: tuple, attrs: dict, needs: tuple) -> tuple:
    (g,), indices = cotangents, _restored(attrs["dims"], saved[0])
    kept = None
    if needs[0]:
        kept = g if attrs["accumulate"] else index_put(g, indices, 0.0)
    return (kept, index(g, indices) if needs[1] else None, *(None for _ in saved[0]))


def _put(input: Any, values: Any, *indices: Any, dims: tuple, accumulate: bool) -> Any:
    """The decomposition: what is put, in zeros, beside where it is put."""
    named, shape = _restored(dims, indices), input.shape
    if accumulate:
        return input + unindex(values, shape, named)
    inside = unindex(REGISTRY["ones_like"](values, dtype=bool_), shape, named, "set")
    return REGISTRY["where"](inside, unindex(values, shape, named, "set"), input)


def _index_put_sample(values: tuple, shape: tuple, picks: tuple) -> Sample:
    indices = tuple(None if p is None else Operand(p, -2, 3, category="int") for p in picks)
    return Sample((Operand(shape), indices, Operand(values)), {"accumulate": True})


index_put = define(
    "index_put",
    complex="analytic",
    operands=("input", "values", "*indices"),
    attrs=("dims", "accumulate"),
    bind=bind_index_put,
    infer=_infer_index_put,
    casts=lambda input, values, *indices, **_: (None, input.dtype, *(int64 for _ in indices)),
    reference=_index_put,
    write=_write,
    vjp=_vjp_index_put,
    saves=("*indices",),
    lower=lowering.decomposition(_put),
    traits=Traits(inplace=True, refuses=True, storage=True),
    samples=lambda: [
        *_written_samples(_index_put_sample),
        Sample((Operand((4, 3)), (Operand((), 0, 4, category="int"),), Operand((3,)))),
        Sample((Operand((17, 2)), (Operand((1,), -17, 17, category="int"),), Operand(()))),
        Sample((Operand((33,)), (Operand((1,), 0, 33, category="int"),), Operand((1,)))),
        Sample((Operand((1,)), (Operand((1,), -1, 1, category="int"),), Operand((1,)))),
    ],
    inapplicable={"0-d": "needs a dimension to pick from", "empty": "nothing could be put"},
)
