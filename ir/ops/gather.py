"""Reading and writing single elements along one dimension: gather and the scatters.

Their places count from 0; unlike x[index], negative ones are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import lowering
from ..dims import at_least
from ..dtypes import int64
from ..errors import ArgumentError, ArgumentValueError, GradError, ShapeError
from ..op import REGISTRY, Traits, define
from ..sample import Operand, Sample
from ..shapes import broadcast_shapes, dim_of
from ..types import Shape, Type
from ..views import row_major
from .create import fits, new_zeros
from .index import add_at, check_index_dtype, check_places, check_source
from .join import constant_pad
from .view import basic_index, expand


def _places(shape: tuple) -> Operand:
    """Places that the dimension of each sample has."""
    return Operand(shape, 0, 2 if shape else 1, category="int")


# gather and its transpose


def bind_gather(input, dim, index, *, sparse_grad=False):
    """Pick an element of a dimension for each place of `index`: out[i][j] = input[index[i][j]][j] for dim 0.

    Shapes: [..., n, ...], [..., k, ...] -> [..., k, ...]; in other dimensions index may be smaller than
    input.  sparse_grad: the gradient is a sparse tensor, in eager.  Raises DimError for an index outside of
    [0, n), ShapeError, DTypeError.
    """
    return (input, index), {"dim": dim_of("gather", dim, input.ndim)}


def is_empty(index: Any) -> bool:
    """Whether there are no places, so that the index may have any number of dimensions."""
    return any(isinstance(n, int) and n == 0 for n in index.shape)


def _check_index(op: str, shape: Shape, index: Type, dim: int) -> None:
    if index.dtype.name != "uint8":  # which these take, and indexing doesn't: there it was a mask
        check_index_dtype(op, index)
    if is_empty(index):
        return
    if (index.ndim or 1) != (len(shape) or 1):
        raise ShapeError(f"{op}: index must have as many dimensions as input, {len(shape)}, not {index.ndim}")
    for d, (n, k) in enumerate(zip(shape, index.shape, strict=False)):
        if d != dim and not at_least(n, k):
            raise ShapeError(f"{op}: index has size {k} in dimension {d}, where input has only {n}")


def _infer_gather(input: Type, index: Type, *, dim: int) -> Type:
    _check_index("gather", input.shape, index, dim)
    return input.with_shape(index.shape)


def _along(index: np.ndarray, dim: int) -> tuple:
    """The NumPy key of the places that gather reads."""
    key = [np.arange(n).reshape((-1,) + (1,) * (index.ndim - 1 - d)) for d, n in enumerate(index.shape)]
    key[dim] = index
    return tuple(key)


def flat_along(op: str, shape: Shape, index: np.ndarray, dim: int) -> np.ndarray:
    """Where in a contiguous array of `shape` the places stand.  Raises DimError."""
    if not index.size:
        return np.zeros(0, np.int64)
    check_places(op, index, dim, shape[dim])
    places: Any = 0
    for part, stride in zip(_along(index, dim), row_major(shape), strict=True):
        places = places + part * stride
    return places.reshape(-1)


def lined(x: np.ndarray) -> np.ndarray:
    """A 0-d array as one of one dimension."""
    return x if x.ndim else np.reshape(x, (1,))


def _gather(input: np.ndarray, index: np.ndarray, *, dim: int) -> np.ndarray:
    if not index.size:
        return np.empty(index.shape, input.dtype)
    shape, input, index = index.shape, lined(input), lined(index)
    check_places("gather", index, dim, input.shape[dim])
    return input[_along(index, dim)].reshape(shape)


def _axes_along(axes: tuple, dim: int, index: Any, ndim: int) -> tuple:
    """Where in an array of `ndim` dimensions a place stands; any expression will do where there is none."""
    place = index[axes]
    return (*axes[:dim], place, *axes[dim + 1 :]) if axes and len(axes) == ndim else (place,) * ndim


def _build_gather(k: Any, input: Any, index: Any, *, dim: int) -> None:
    axes = k.parallel(*index.shape)
    k.store(input[_axes_along(axes, dim, index, input.ndim)], at=axes)


def _gather_samples() -> list[Sample]:
    return [
        Sample((Operand(shape), dim, _places(index)))
        for shape, dim, index in (
            ((), 0, ()), ((0,), 0, (0,)), ((1,), -1, (0,)), ((17,), 0, (33,)), ((33,), 0, (5,)),
            ((3, 17), 1, (3, 4)),
            ((2, 3, 4), -2, (2, 5, 1)), ((0, 3), 1, (0, 2)),
        )
    ]  # fmt: skip


gather = define(
    "gather",
    complex="analytic",
    operands=("input", "index"),
    attrs=("dim",),
    bind=bind_gather,
    infer=_infer_gather,
    casts=lambda input, index, *, dim: (None, int64),
    reference=_gather,
    grad=(lambda g, index, input_type, dim: ungather(g, index, dim, input_type.shape), None),
    lower=lowering.kernel(_build_gather),
    traits=Traits(movement=True, refuses=True, in_order=True),
    samples=_gather_samples,
)


def bind_ungather(input, index, dim, shape, combine="add"):
    """Put elements into zeros of `shape` at the places that gather reads: the transpose of `gather`.

    combine: how elements that meet are combined: "add", "set" (the last one stays), or "mul", "max", "min",
    which start from their identity and not from zero.  Raises DimError, ShapeError.
    """
    return (input, index), {
        "dim": dim_of("ungather", dim, len(shape)),
        "shape": tuple(shape),
        "combine": combine,
    }


_COMBINE: dict[str, np.ufunc] = {"mul": np.multiply, "max": np.maximum, "min": np.minimum}


def identity(combine: str, dtype: np.dtype) -> Any:
    """What combines with x to x."""
    if combine in ("add", "set", "mul"):
        return int(combine == "mul")
    if dtype.kind == "b":
        return combine == "min"
    lowest, highest = (-np.inf, np.inf) if dtype.kind == "f" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return lowest if combine == "max" else highest


def _multiply_at(out: np.ndarray, places: np.ndarray, values: np.ndarray) -> None:
    """Multiply complex numbers at places by values, in order, each product rounded as `mul` rounds it.

    NumPy's multiply.at takes another loop, without fused products.
    """
    order = np.argsort(places, kind="stable")
    places, values = places[order], values[order]
    first = np.flatnonzero(np.diff(places, prepend=-1))
    turn = np.arange(places.size) - np.repeat(first, np.diff(first, append=places.size))
    for n in range(turn.max(initial=-1) + 1):
        now = turn == n
        out[places[now]] = out[places[now]] * values[now]


def combine_at(out: np.ndarray, places: np.ndarray, values: np.ndarray, combine: str) -> None:
    """Combine values into flat places of a contiguous array, in order."""
    if combine == "add":
        add_at(out, places, values)
    elif combine == "set":
        out.reshape(-1)[places] = values.reshape(-1)
    elif combine == "mul" and out.dtype.kind == "c":
        _multiply_at(out.reshape(-1), places, values.reshape(-1))
    else:
        _COMBINE[combine].at(out.reshape(-1), places, values.reshape(-1))


def _ungather(input: np.ndarray, index: np.ndarray, *, dim: int, shape: Shape, combine: str) -> np.ndarray:
    out = np.full(shape, identity(combine, input.dtype), input.dtype)
    places = flat_along("scatter", shape or (1,), lined(index), dim)
    combine_at(out, places, np.broadcast_to(input, index.shape), combine)
    return out


def _build_ungather(k: Any, input: Any, index: Any, *, dim: int, shape: Shape, combine: str) -> None:
    axes = k.parallel(*index.shape)
    k.scatter(input.broadcast(*axes), at=_axes_along(axes, dim, index, len(shape)), combine=combine)


def _infer_ungather(input: Type, index: Type, *, dim: int, shape: Shape, combine: str) -> Type:
    _check_index("ungather", shape, index, dim)
    if broadcast_shapes("ungather", input.shape, index.shape) != index.shape:
        raise ShapeError(
            f"ungather: shape {list(input.shape)} doesn't broadcast to that of index, {list(index.shape)}"
        )
    return input.with_shape(shape)


ungather = define(
    "ungather",
    complex="analytic",
    operands=("input", "index"),
    attrs=("dim", "shape", "combine"),
    bind=bind_ungather,
    infer=_infer_ungather,
    casts=lambda input, index, **_: (None, int64),
    reference=_ungather,
    grad=(lambda g, index, dim: gather(g, dim, index), None),
    lower=lowering.kernel(_build_ungather),
    method=False,
    traits=Traits(refuses=True),
    samples=lambda: [
        Sample((Operand(values), _places(values)), {"dim": dim, "shape": shape})
        for values, dim, shape in (
            ((), 0, ()), ((0,), 0, (3,)), ((1,), 0, (3,)), ((17,), 0, (5,)), ((33,), 0, (2,)),
            ((3, 4), 1, (3, 2)),
            ((2, 5, 1), 1, (2, 3, 4)),
        )
    ],
)  # fmt: skip


# scatter


def _source(op: str, src: Type, index: Type) -> None:
    """Check that src holds an element for each place (a 0-d one holds it for all)."""
    if is_empty(index):
        return
    if src.ndim and src.ndim != index.ndim:
        raise ShapeError(f"{op}: src must have as many dimensions as index, {index.ndim}, not {src.ndim}")
    for d, (n, k) in enumerate(zip(src.shape, index.shape, strict=False)):
        if not at_least(n, k):
            raise ShapeError(f"{op}: index has size {k} in dimension {d}, where src has only {n}")


def infer_scatter(op: str) -> Callable:
    def infer(input: Type, index: Type, src: Type, *, dim: int, **_: Any) -> Type:
        _check_index(op, input.shape, index, dim)
        _source(op, src, index)
        check_source(f"{op}: Expected self.dtype to be equal to src.dtype", input, src)
        return input

    return infer


def _used_part(src: np.ndarray, shape: Shape) -> np.ndarray:
    """What of src the places of an index of `shape` ask for."""
    if not np.ndim(src):
        return np.broadcast_to(src, shape)
    return np.empty(shape, src.dtype) if 0 in shape else src[tuple(np.s_[:n] for n in shape)]


def _scatter_into(
    op: str, input: np.ndarray, index: np.ndarray, src: np.ndarray, dim: int, combine: str
) -> np.ndarray:
    out = np.array(input, order="C")
    places = flat_along(op, out.shape or (1,), lined(index), dim)
    combine_at(out, places, _used_part(src, index.shape), combine)
    return out


def padded_to(x: Any, src: Any) -> Any:
    """A cotangent of the elements of src that index asks for, with zeros for the others."""
    if not src.ndim or tuple(src.shape) == tuple(x.shape):
        return x
    if is_empty(x) and src.ndim != x.ndim:
        return new_zeros(x, src.shape)
    return constant_pad(x, tuple((0, n - k) for n, k in zip(src.shape, x.shape, strict=True)), 0)


def cropped(src: Any, index: Any) -> Any:
    """What of src the places ask for, as an op."""
    if not src.ndim:
        return expand(src, index.shape)
    if tuple(src.shape) == tuple(index.shape):
        return src
    if is_empty(index) and src.ndim != index.ndim:
        return new_zeros(src, index.shape)
    return basic_index(src, tuple(("slice", 0, n, 1) for n in index.shape))


def source_casts(input: Type, index: Type, src: Type, **_: Any) -> tuple:
    return None, int64, input.dtype


def _scatter_samples(**more: Any) -> Callable[[], list[Sample]]:
    return lambda: [
        Sample((Operand(shape), dim, _places(index), Operand(src)), more)
        for shape, dim, index, src in (
            ((), 0, (), ()), ((0,), 0, (0,), (0,)), ((1,), 0, (0,), (2,)), ((17,), 0, (33,), (33,)),
            ((33,), 0, (5,), (7,)),
            ((3, 4), 1, (2, 4), (2, 4)), ((2, 3, 4), -2, (2, 5, 1), (2, 6, 3)),
        )
    ]  # fmt: skip


def bind_scatter_add(input, dim, index, src):
    """Add the elements of `src` to `input` at places of a dimension.

    For dim 0: input[index[i][j]][j] += src[i][j].
    Raises DimError for an index outside of the dimension, ShapeError, DTypeError.
    """
    return (input, index, src), {"dim": dim_of("scatter_add", dim, input.ndim)}


scatter_add = define(
    "scatter_add",
    complex="analytic",
    operands=("input", "index", "src"),
    attrs=("dim",),
    bind=bind_scatter_add,
    infer=infer_scatter("scatter_add"),
    casts=source_casts,
    reference=lambda input, index, src, *, dim: _scatter_into("scatter_add", input, index, src, dim, "add"),
    grad=(lambda g: g, None, lambda g, index, src_type, dim: padded_to(gather(g, dim, index), src_type)),
    lower=lowering.decomposition(
        lambda input, index, src, *, dim: input + ungather(cropped(src, index), index, dim, input.shape)
    ),
    traits=Traits(inplace=True, refuses=True),
    samples=_scatter_samples(),
)


def bind_scatter(input, dim, index, src=None, *, value=None, reduce=None):
    """Write the elements of `src`, or one value, to places of a dimension.

    For dim 0: input[index[i][j]][j] = src[i][j].  Where places repeat, the last element stays.  reduce: "add"
    or "multiply" combine with what is there.  Raises DimError for an index outside of the dimension,
    ShapeError, DTypeError.
    """
    if (src is None) == (value is None):
        raise ArgumentError("scatter: give either src or value")
    if reduce not in (None, "add", "multiply"):
        raise ArgumentValueError(f"scatter: reduce must be 'add' or 'multiply', not {reduce!r}")
    source = value if src is None else src
    return (input, index, source), {"dim": dim_of("scatter", dim, input.ndim), "reduce": reduce}


_SCATTER = {None: "set", "add": "add", "multiply": "mul"}


def _check_differentiable(reduce: str | None) -> None:
    if reduce == "multiply":
        raise GradError(
            "scatter(reduce='multiply') has no gradient",
            "scatter_reduce(input, dim, index, src, 'prod') has one",
        )


def _scatter_to_input(g, index, dim, reduce):
    _check_differentiable(reduce)
    return g if reduce == "add" else scatter(g, dim, index, 0.0)


def _scatter_to_src(g, index, src_type, dim, reduce):
    _check_differentiable(reduce)
    return padded_to(gather(g, dim, index), src_type)


def _scattered(input: Any, index: Any, src: Any, *, dim: int, reduce: str | None) -> Any:
    src = cropped(src, index)
    placed = ungather(src, index, dim, input.shape, _SCATTER[reduce])
    if reduce:
        return input + placed if reduce == "add" else input * placed
    inside = ungather(REGISTRY["ones_like"](src), index, dim, input.shape, "set") != 0
    return REGISTRY["where"](inside, placed, input)


scatter = define(
    "scatter",
    number=lambda input, number: fits("scatter", number, input.dtype),
    complex="analytic",
    operands=("input", "index", "src"),
    attrs=("dim", "reduce"),
    bind=bind_scatter,
    infer=infer_scatter("scatter"),
    casts=source_casts,
    reference=lambda input, index, src, *, dim, reduce: _scatter_into(
        "scatter", input, index, src, dim, _SCATTER[reduce]
    ),
    grad=(_scatter_to_input, None, _scatter_to_src),
    lower=lowering.decomposition(_scattered),
    traits=Traits(inplace=True, refuses=True),
    samples=_scatter_samples(reduce="add"),
)
