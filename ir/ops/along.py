"""Reading and writing whole slices of a dimension by places: index_select and its kin, embedding, take."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import lowering
from ..dims import same
from ..dtypes import from_numpy_dtype, int64
from ..errors import ArgumentValueError, DimError, DTypeError, ShapeError
from ..op import REGISTRY, Traits, composite, define
from ..sample import Operand, Sample
from ..shapes import broadcast_shapes, check_together, dim_of
from ..types import Shape, Type
from .cast import dtype_of, type_as
from .compare import where
from .create import fits
from .gather import gather, lined, scatter, ungather
from .index import add_into, check_index_dtype, check_places, check_source, counted_places, index_put
from .index import index as pick
from .reduce import sum
from .view import expand, reshape, unsqueeze


def _line(op: str, index: Type) -> None:
    """Check that an index is a list of places."""
    check_index_dtype(op, index)
    if index.ndim > 1:
        raise ShapeError(f"{op}: index must have one dimension, not {index.ndim}")


def along(index: Any, dim: int, shape: tuple) -> Any:
    """A list of places of `dim` as the index that `gather` and `scatter` take: a place for each element.

    Of a 0-d tensor, which counts as one of one element, that is the list itself.
    These refuse negative places, as `index_select` and its kin do; `index_put` counts them from the end.
    """
    count = index.shape[0] if index.ndim else 1
    thin = (1,) * dim + (count,) + (1,) * (len(shape) - dim - 1)
    return expand(reshape(index, thin), (*shape[:dim], count, *shape[dim + 1 :]))


def _to_selected(g: Any, index: Any, dim: int, shape: tuple) -> Any:
    """Slices added up in zeros of `shape`: `index_select` transposed."""
    places = along(index, dim, shape)
    return ungather(reshape(g, places.shape), places, dim, shape)


def _places(shape: tuple) -> Operand:
    return Operand(shape, 0, 2, category="int")


_FIRST = Operand((1,), 0, 1, category="int")  # the one place of a 0-d tensor


# One more dimension's slices: (input, dim, index, source) of every sample below
_CASES = (
    ((0, 2), 1, (0,), (0, 0)), ((2,), 0, (1,), (1,)), ((17,), 0, (3,), (3,)), ((33,), -1, (5,), (5,)),
    ((3, 4), 1, (2,), (3, 2)), ((2, 3, 4), -2, (1,), (2, 1, 4)), ((1, 1), 0, (0,), (0, 1)),
)  # fmt: skip


def bind_index_select(input, dim, index):
    """Take slices of a dimension in the order of a list of places.

    Shapes: [..., n, ...], [k] -> [..., k, ...]; of a 0-d input, one place and a 0-d result.
    Raises DimError for a place outside of [0, n), ShapeError, DTypeError.
    """
    return (input, index), {"dim": dim_of("index_select", dim, input.ndim)}


def _infer_select(input: Type, index: Type, *, dim: int) -> Type:
    _line("index_select", index)
    size = index.shape[0] if index.ndim else 1
    if not input.ndim:
        if size != 1:
            raise ShapeError(f"index_select: a 0-d input has one place to take, not {size}")
        return input
    return input.with_shape((*input.shape[:dim], size, *input.shape[dim + 1 :]))


def _selected(input: np.ndarray, index: np.ndarray, *, dim: int) -> np.ndarray:
    index = np.reshape(index, (-1,))
    check_places("index_select", index, dim, lined(input).shape[dim])
    return input.take(index, dim) if input.ndim else input.copy()


def _build_select(k: Any, input: Any, index: Any, *, dim: int) -> None:
    if not input.ndim:
        k.parallel()
        k.store(input[()], at=())
        return
    size = index.shape[0] if index.ndim else 1
    axes = k.parallel(*input.shape[:dim], size, *input.shape[dim + 1 :])
    place = index[axes[dim]] if index.ndim else index[()]
    k.store(input[(*axes[:dim], place, *axes[dim + 1 :])], at=axes)


index_select = define(
    "index_select",
    complex="analytic",
    bind=bind_index_select,
    infer=_infer_select,
    casts=lambda input, index, *, dim: (None, int64),
    reference=_selected,
    grad=(
        lambda g, index, input_type, dim: _to_selected(g, index, dim, input_type.shape),
        None,
    ),
    lower=lowering.kernel(_build_select),
    traits=Traits(movement=True, refuses=True),
    samples=lambda: [
        Sample((Operand(()), 0, _FIRST)),
        *(Sample((Operand(shape), dim, _places(k))) for shape, dim, k, _ in _CASES),
    ],
)


def _infer_written(op: str):
    def infer(input: Type, index: Type, source: Type, *, dim: int, **_: Any) -> Type:
        _line(op, index)
        size = index.shape[0] if index.ndim else 1
        wanted = (*input.shape[:dim], size, *input.shape[dim + 1 :])  # [size] for a 0-d input
        given = source.shape or (1,)
        if len(given) != len(wanted) or not all(map(same, given, wanted)):
            raise ShapeError(
                f"{op}: source must have shape {list(wanted)}: {size} places in dimension {dim}",
                f"source has shape {list(source.shape)}",
            )
        check_source(f"{op}: self and source must have the same scalar type", input, source)
        return input

    return infer


def _slices(g: Any, dim: int, index: Any) -> Any:
    """The slices at places, one for each place even of a 0-d tensor."""
    return index_select(g, dim, index) if g.ndim else gather(g, 0, reshape(index, (-1,)))


def _source_casts(input: Type, index: Type, source: Type, **_: Any) -> tuple:
    return None, int64, input.dtype


def _infer_add(input: Type, index: Type, source: Type, *, dim: int, alpha: Any) -> Type:
    whole = not isinstance(alpha, float) or alpha.is_integer()
    if not (whole or input.dtype.is_floating_point or input.dtype.is_complex):
        raise DTypeError(f"index_add: alpha must be an integer for {input.dtype.name}, not {alpha}")
    return _infer_written("index_add")(input, index, source, dim=dim)


def _write_add(input: np.ndarray, index: np.ndarray, source: np.ndarray, *, dim: int, alpha: Any) -> None:
    wide = from_numpy_dtype(input.dtype).compute.numpy
    if wide != input.dtype:  # halves are rounded once, in place too
        input[...] = _added(input.astype(wide), index, source.astype(wide), dim=dim, alpha=alpha)
        return
    index = np.reshape(index, (-1,)).astype(np.int64, copy=False)
    input = lined(input)
    check_places("index_add", index, dim, input.shape[dim])
    shape = (*input.shape[:dim], index.size, *input.shape[dim + 1 :])
    if alpha != 1:
        source = source * np.asarray(alpha).astype(source.dtype)  # -1 is 255 among uint8, as in PyTorch
    add_into(input, np.reshape(source, shape), (dim,), (index,))


def _added(input: np.ndarray, index: np.ndarray, source: np.ndarray, *, dim: int, alpha: Any) -> np.ndarray:
    out = np.array(input, order="C")
    _write_add(out, index, source, dim=dim, alpha=alpha)
    return out


def bind_index_add(input, dim, index, source, *, alpha=1):
    """Add `alpha` times slices of `source` to the slices of a dimension at a list of places.

    A place that repeats is added to each time.  Raises DimError for a place outside of the dimension,
    ShapeError, DTypeError.
    """
    return (input, index, source), {"dim": dim_of("index_add", dim, input.ndim), "alpha": alpha}


index_add = define(
    "index_add",
    complex="analytic",
    bind=bind_index_add,
    infer=_infer_add,
    casts=_source_casts,
    reference=_added,
    write=_write_add,
    grad=(
        lambda g: g,
        None,
        lambda g, index, source_type, dim, alpha: reshape(_slices(g, dim, index) * alpha, source_type.shape),
    ),
    lower=lowering.decomposition(
        lambda input, index, source, *, dim, alpha: (
            input + _to_selected(source if alpha == 1 else source * alpha, index, dim, input.shape)
        )
    ),
    traits=Traits(inplace=True, refuses=True),
    samples=lambda: (
        [Sample((Operand(()), 0, _FIRST, Operand(())), {"alpha": 2})]
        + [
            Sample((Operand(shape), dim, _places(k), Operand(source)), {"alpha": alpha})
            for (shape, dim, k, source), alpha in zip(_CASES, (1, 1, 2, 3, 1, 2, 1), strict=True)
        ]
    ),
)


def bind_index_copy(input, dim, index, source):
    """Replace the slices of a dimension at a list of places by those of `source`.

    Raises DimError for a place outside of the dimension, ShapeError, DTypeError.
    """
    return (input, index, source), {"dim": dim_of("index_copy", dim, input.ndim)}


def _write_copy(input: np.ndarray, index: np.ndarray, source: np.ndarray, *, dim: int) -> None:
    index = np.reshape(index, (-1,)).astype(np.int64, copy=False)
    input = lined(input)
    check_places("index_copy", index, dim, input.shape[dim])
    shape = (*input.shape[:dim], index.size, *input.shape[dim + 1 :])
    input[(np.s_[:],) * dim + (index,)] = np.reshape(source, shape)


def _copied(input: np.ndarray, index: np.ndarray, source: np.ndarray, *, dim: int) -> np.ndarray:
    out = np.array(input, order="C")
    _write_copy(out, index, source, dim=dim)
    return out


def _replaced(input: Any, index: Any, source: Any, dim: int) -> Any:
    places = along(index, dim, input.shape)
    source = reshape(source, places.shape) if source.ndim else source
    return scatter(input, dim, places, source)


index_copy = define(
    "index_copy",
    complex="analytic",
    bind=bind_index_copy,
    infer=_infer_written("index_copy"),
    casts=_source_casts,
    reference=_copied,
    write=_write_copy,
    grad=(
        lambda g, index, dim: scatter(g, dim, along(index, dim, g.shape), 0.0),
        None,
        lambda g, index, source_type, dim: reshape(_slices(g, dim, index), source_type.shape),
    ),
    lower=lowering.decomposition(
        lambda input, index, source, *, dim: _replaced(input, index, source, dim)
    ),
    traits=Traits(inplace=True, movement=True, refuses=True),
    samples=lambda: [
        # one place each: which of two equal places stays is not defined
        Sample((Operand(shape), dim, _places((n,)) if shape else _FIRST, Operand(source)))
        for shape, dim, n, source in (
            ((), 0, 1, ()), ((0, 2), 1, 1, (0, 1)), ((1,), 0, 0, (0,)), ((17,), 0, 1, (1,)),
            ((33,), 0, 1, (1,)),
            ((3, 4), 1, 1, (3, 1)),
        )
    ],
)  # fmt: skip


def bind_index_fill(input, dim, index, value):
    """Fill the slices of a dimension at a list of places, negative ones from the end, with a number.

    value: a number or a 0-d tensor.  Raises DimError for a place outside of the dimension, ShapeError,
    DTypeError.
    """
    return (input, index, value), {"dim": dim_of("index_fill", dim, input.ndim)}


def _infer_fill(input: Type, index: Type, value: Type, *, dim: int) -> Type:
    _line("index_fill", index)
    if value.ndim:
        raise ShapeError(f"index_fill: value must be one number, not {list(value.shape)}")
    return input


def _write_fill(input: np.ndarray, index: np.ndarray, value: np.ndarray, *, dim: int) -> None:
    index = np.reshape(index, (-1,)).astype(np.int64, copy=False)
    input = lined(input)
    index = counted_places("index_fill", index, dim, input.shape[dim])
    input[(np.s_[:],) * dim + (index,)] = value


def _filled(input: np.ndarray, index: np.ndarray, value: np.ndarray, *, dim: int) -> np.ndarray:
    out = np.array(input, order="C")
    _write_fill(out, index, value, dim=dim)
    return out


index_fill = define(
    "index_fill",
    complex="analytic",
    number=lambda input, number: fits("index_fill", number, input.dtype),
    bind=bind_index_fill,
    infer=_infer_fill,
    casts=lambda input, index, value, **_: (None, int64, input.dtype),
    reference=_filled,
    write=_write_fill,
    grad=(
        lambda g, index, dim: index_fill(g, dim, index, 0.0),
        None,
        lambda g, index, dim: sum(g - index_fill(g, dim, index, 0.0)),
    ),
    lower=lowering.decomposition(
        lambda input, index, value, *, dim: reshape(
            index_put(
                input if input.ndim else reshape(input, (1,)),
                (None,) * dim + (reshape(index, (-1,)),),
                type_as(value, input),
            ),
            input.shape,
        )
    ),
    traits=Traits(inplace=True, movement=True, refuses=True),
    samples=lambda: [
        Sample((Operand(shape), dim, _places(k) if shape else _FIRST, Operand(())))
        for shape, dim, k in (
            ((), 0, (1,)), ((0, 2), 1, (2,)), ((1,), 0, (0,)), ((17,), 0, (2,)), ((33,), 0, ()),
            ((3, 4), 1, (1,)),
            ((2, 3, 4), -2, (3,)),
        )
    ],
)  # fmt: skip


# embedding


def bind_embedding(
    input, weight, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False
):
    """Look up rows of `weight`.  Shapes: [...], [n, d] -> [..., d].

    padding_idx: a row whose gradient is zero.  Raises DimError for an index outside of [0, n), ShapeError,
    DTypeError; ArgumentValueError for max_norm, scale_grad_by_freq and sparse, which are not supported.
    """
    for name, value in (
        ("max_norm", max_norm),
        ("scale_grad_by_freq", scale_grad_by_freq),
        ("sparse", sparse),
    ):
        if value:
            raise ArgumentValueError(f"embedding({name}={value}) is not supported")
    if weight.ndim != 2:
        raise ShapeError(f"embedding: 'weight' must be 2-D, and has {weight.ndim} dimensions")
    if padding_idx is not None:
        n = weight.shape[0]
        if not -n <= padding_idx < n:
            raise DimError(f"embedding: padding_idx {padding_idx} is out of range for {n} rows")
        padding_idx = padding_idx % n
    return (input, weight), {"padding_idx": padding_idx}


def _infer_embedding(input: Type, weight: Type, *, padding_idx: int | None) -> Type:
    check_index_dtype("embedding", input)
    return weight.with_shape((*input.shape, weight.shape[1]))


def _embedded(input: np.ndarray, weight: np.ndarray, *, padding_idx: int | None) -> np.ndarray:
    check_places("embedding", input, 0, weight.shape[0])
    return weight.take(input, 0)


def _embedding_to_weight(g, input, weight_type, padding_idx):
    if padding_idx is not None:
        g = where(unsqueeze(REGISTRY["eq"](input, padding_idx), -1), 0.0, g)
    return _to_selected(g, reshape(input, (-1,)), 0, weight_type.shape)


def _build_embedding(k: Any, input: Any, weight: Any, *, padding_idx: int | None) -> None:
    axes = k.parallel(*input.shape, weight.shape[1])
    k.store(weight[input[axes[:-1]], axes[-1]], at=axes)


embedding = define(
    "embedding",
    complex="analytic",
    bind=bind_embedding,
    infer=_infer_embedding,
    casts=lambda input, weight, *, padding_idx: (int64, None),
    reference=_embedded,
    grad=(None, _embedding_to_weight),
    lower=lowering.kernel(_build_embedding),
    traits=Traits(movement=True, refuses=True),
    method=False,
    samples=lambda: [
        Sample(
            (Operand(shape, 0, rows, category="int"), Operand((rows, width))),
            {"padding_idx": padding},
            differentiable=padding is None,  # its row's gradient is zero on purpose
        )
        for shape, rows, width, padding in (
            ((), 3, 2, None), ((0,), 3, 2, 0), ((1,), 3, 2, -1), ((17,), 4, 3, 1), ((33,), 2, 1, None),
            ((2, 3), 5, 4, 2),
        )
    ],
)  # fmt: skip


# take


@composite()
def take(input, index):
    """Pick elements by their places in row-major order, negative ones from the end.  The shape is index's."""
    check_together("take", input, index)
    return pick(reshape(input, (-1,)), (index,))


@composite()
def take_along_dim(input, indices, dim=None):
    """Pick elements along a dimension, the others broadcast; without dim, among all, as `gather` does.

    With dim, negative places count from the end.
    """
    if dim is None:
        return gather(reshape(input, (-1,)), 0, reshape(indices, (-1,)))
    if input.ndim != indices.ndim:
        raise ShapeError(
            "take_along_dim: input and indices should have the same number of dimensions, not "
            f"{input.ndim} and {indices.ndim}"
        )
    dim = dim_of("take_along_dim", dim, input.ndim)
    thin = [tuple(1 if d == dim else n for d, n in enumerate(x.shape)) for x in (input, indices)]
    shape: Shape = broadcast_shapes("take_along_dim", *thin)
    wide = [(*shape[:dim], x.shape[dim], *shape[dim + 1 :]) for x in (input, indices)]
    if dtype_of(indices).category != "int" or not dtype_of(indices).is_signed:
        raise DTypeError(
            f"take_along_dim: dtype of indices should be Long (int64), not {dtype_of(indices).name}",
            "indices.long() makes them so",
        )
    indices = REGISTRY["cast"](indices, dtype=int64)  # which holds every size: 200 is no int8
    indices = where(indices < 0, indices + input.shape[dim], indices)
    return gather(expand(input, wide[0]), dim, expand(indices, wide[1]))
