"""Elements in another order, repeated, or set to zero by their place: flip, roll, repeat, tril, diag."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import lowering
from ..dtypes import dense
from ..errors import ArgumentError, DimError, DTypeError, ShapeError
from ..kernel import scalar
from ..op import REGISTRY, Traits, composite, define
from ..sample import sample
from ..shapes import check_together, dim_of, dims_of, is_one, sizes_of
from ..views import step
from .unview import unview
from .view import expand, narrow, reshape, transpose, unsqueeze


def bind_flip(input, *dims_given, dims=None):
    """Reverse elements along dimensions.  Always copies.  Raises DimError for one named twice."""
    given = dims if dims is not None else dims_given
    if len(given) == 1 and isinstance(given[0], (tuple, list)):
        given = given[0]
    if not given and given is dims_given and dims is None:
        raise ArgumentError("flip(dims): the dimensions to reverse are missing", "dims=() reverses none")
    return (input,), {"dims": dims_of("flip", tuple(given), input.ndim) if given else ()}


_BACKWARDS, _ALL = np.s_[::-1], np.s_[:]


def _flipped(input: np.ndarray, *, dims: tuple[int, ...]) -> np.ndarray:
    turned = input[tuple(_BACKWARDS if d in dims else _ALL for d in range(input.ndim))]
    out = np.empty_like(dense(input))
    out[...] = turned
    return out


def _build_flip(k: Any, input: Any, *, dims: tuple[int, ...]) -> None:
    axes = k.parallel(*input.shape)
    pairs = enumerate(zip(axes, input.shape, strict=True))
    k.store(input[tuple(n - 1 - axis if d in dims else axis for d, (axis, n) in pairs)], at=axes)


flip = define(
    "flip",
    complex="analytic",
    bind=bind_flip,
    infer=lambda input, *, dims: input,
    reference=_flipped,
    grad=lambda g, dims: flip(g, dims),
    lower=lowering.kernel(_build_flip),
    traits=Traits(movement=True),
    samples=lambda: [
        sample((), dims=()), sample((0,), dims=(0,)), sample((1,), dims=(0,)), sample((17,), dims=(-1,)),
        sample((33,), dims=(0,)), sample((3, 17), dims=(0, 1)), sample((2, 3, 4), dims=(2, 0)),
    ],
)  # fmt: skip


@composite()
def fliplr(input):
    """Reverse the columns.  Raises ShapeError for fewer than two dimensions."""
    if input.ndim < 2:
        raise ShapeError(f"fliplr: Input must be >= 2-d, and is {input.ndim}-d")
    return flip(input, (1,))


@composite()
def flipud(input):
    """Reverse the rows.  Raises ShapeError for a 0-d operand."""
    if not input.ndim:
        raise ShapeError("flipud: Input must be >= 1-d, and is 0-d")
    return flip(input, (0,))


@composite()
def rot90(input, k=1, dims=(0, 1)):
    """Rotate in the plane of two dimensions by k quarter turns, from the first towards the second."""
    if len(dims) != 2:
        raise ShapeError(f"rot90: dims must name two dimensions, not {list(dims)}")
    a, b = (dim_of("rot90", d, input.ndim) for d in dims)
    if a == b or input.ndim < 2:
        raise ShapeError(f"rot90: dims must be two dimensions, not {list(dims)}")
    turns = k % 4
    if turns == 1:
        return transpose(flip(input, (b,)), a, b)
    if turns == 3:
        return transpose(flip(input, (a,)), a, b)
    return flip(input, (a, b) if turns else ())


@composite()
def roll(input, shifts, dims=None):
    """Move elements by `shifts` places along dimensions, those beyond the end to the start.

    Without dims, all elements are rolled as one dimension.  Raises ShapeError, DimError.
    """
    shifts = tuple(shifts) if isinstance(shifts, (tuple, list)) else (shifts,)
    if not shifts:
        raise ShapeError("roll: `shifts` required")
    if dims is None or dims == ():
        if len(shifts) != 1:
            raise ShapeError(f"roll: dims are required for {len(shifts)} shifts")
        return reshape(roll(reshape(input, (-1,)), shifts, (0,)), input.shape)
    dims = tuple(dims) if isinstance(dims, (tuple, list)) else (dims,)
    if len(shifts) != len(dims):
        raise ShapeError(f"roll: shifts and dims must align, and are {len(shifts)} and {len(dims)}")
    join = REGISTRY["cat"]
    for shift, d in zip(shifts, (dim_of("roll", d, input.ndim) for d in dims), strict=True):
        n = input.shape[d] if input.ndim else 1
        at = -shift % n if n else 0
        if input.ndim:
            input = join((narrow(input, d, at, n - at), narrow(input, d, 0, at)), d)
    return input if input.ndim else REGISTRY["clone"](input)


def _build_triangle(keep: str):
    def build(k: Any, input: Any, *, diagonal: int) -> None:
        axes = k.parallel(*input.shape)
        inside = scalar.op(keep, k.coordinate(axes[-1] - axes[-2]), diagonal)
        k.store(scalar.op("select", inside, input[axes], k.cast(0, input.dtype)), at=axes)

    return build


def _triangle(name: str, keep: str, words: str) -> Any:
    def bind(input, diagonal=0):
        if input.ndim < 2:
            raise ShapeError(f"{name}: takes at least 2 dimensions, not {input.ndim}")
        return (input,), {"diagonal": int(diagonal)}

    bind.__doc__ = (
        f"Keep the elements of matrices on and {words} a diagonal; the others become 0.  Raises ShapeError."
    )
    compare = np.less_equal if keep == "le" else np.greater_equal

    def reference(input: np.ndarray, *, diagonal: int) -> np.ndarray:
        rows, columns = input.shape[-2:]
        inside = compare(np.arange(columns), np.arange(diagonal, diagonal + rows)[:, None])
        return np.where(inside, input, input.dtype.type(0))

    return define(
        name,
        complex="analytic",
        bind=bind,
        infer=lambda input, *, diagonal: input,
        reference=reference,
        grad=lambda g, diagonal: REGISTRY[name](g, diagonal),
        lower=lowering.kernel(_build_triangle(keep)),
        traits=Traits(movement=True, inplace=True, in_order=True),
        samples=lambda: [
            sample((0, 2)), sample((1, 1)), sample((17, 2), diagonal=-3), sample((2, 33), diagonal=1),
            sample((3, 17)), sample((2, 3, 4), diagonal=-1), sample((3, 3), diagonal=5),
        ],
        inapplicable={"0-d": "needs two dimensions"},
    )  # fmt: skip


tril = _triangle("tril", "le", "below")
triu = _triangle("triu", "ge", "above")


@composite()
def repeat(input, *sizes, repeats=None):
    """Repeat the whole sizes[d] times along dimension d; more sizes than dimensions add some in front."""
    sizes = sizes_of("repeat", sizes if repeats is None else (repeats,))
    new = len(sizes) - input.ndim
    if new < 0:
        raise ShapeError(f"repeat: {list(sizes)} has fewer sizes than shape {list(input.shape)}")
    if any(k < 0 for k in sizes):
        raise ShapeError(f"repeat: sizes can't be negative: {list(sizes)}")
    shape = (1,) * new + tuple(input.shape)
    if all(map(is_one, sizes)):
        return REGISTRY["clone"](reshape(input, shape), memory_format="contiguous_format")
    thin = tuple(part for n in shape for part in (1, n))
    full = tuple(part for k, n in zip(sizes, shape, strict=True) for part in (k, n))
    # copied before, or what only adds dimensions in front would be a view; in order, whatever the strides
    repeated = REGISTRY["clone"](expand(reshape(input, thin), full), memory_format="contiguous_format")
    return reshape(repeated, tuple(k * n for k, n in zip(sizes, shape, strict=True)))


@composite()
def tile(input, *sizes, dims=None):
    """Repeat the whole along each dimension; fewer numbers than dimensions count for the last ones."""
    sizes = sizes_of("tile", sizes if dims is None else (dims,))
    return repeat(input, (1,) * (input.ndim - len(sizes)) + sizes)


@composite(fresh=True)
def repeat_interleave(input, repeats=None, dim=None, *, output_size=None):
    """Repeat each element along a dimension (all elements as one dimension if None).

    repeats: how often, an int, or one for each place: then the host reads them.  With `repeats` alone, the
    places themselves are repeated.  Raises ShapeError.
    """
    if repeats is None:
        places = REGISTRY["cumsum"](REGISTRY["ones_like"](input), 0) - 1
        return repeat_interleave(places, input, 0)
    if dim is None:
        input, dim = reshape(input, (-1,)), 0
    dim = dim_of("repeat_interleave", dim, input.ndim)
    shape = input.shape
    if not isinstance(repeats, int):
        check_together("repeat_interleave", input, repeats)
        if hasattr(repeats, "dtype") and getattr(repeats.dtype, "category", "int") != "int":
            raise DTypeError(f"repeat_interleave: repeats must be integers, not {repeats.dtype.name}")
        counts = repeats.tolist() if hasattr(repeats, "tolist") else list(repeats)
        counts = counts if isinstance(counts, list) else [counts]
        if len(counts) == 1:
            repeats = counts[0]
        elif len(counts) != shape[dim]:
            raise ShapeError(
                f"repeat_interleave: {len(counts)} repeats for dimension {dim} with size {shape[dim]}"
            )
        else:
            return REGISTRY["index_select"](input, dim, np.repeat(np.arange(len(counts)), counts))
    if repeats < 0:
        raise ShapeError(f"repeat_interleave: repeats can't be negative: {repeats}")
    wide = expand(unsqueeze(input, dim + 1), (*shape[: dim + 1], repeats, *shape[dim + 1 :]))
    return reshape(wide, (*shape[:dim], shape[dim] * repeats, *shape[dim + 1 :]))


@composite()
def diag_embed(input, offset=0, dim1=-2, dim2=-1):
    """Put the last dimension on a diagonal of two new ones, among zeros.  Shapes: [..., n] -> [..., n, n]."""
    a, b = (dim_of("diag_embed", d, input.ndim + 1) for d in (dim1, dim2))
    if a == b:
        raise DimError(f"diag_embed: dim1 and dim2 must be two dimensions, not {dim1} and {dim2}")
    if not input.ndim:
        raise DimError("diag_embed: a 0-d operand has no dimension to embed")
    side = input.shape[-1] + abs(offset)
    rest = iter(input.shape[:-1])
    shape = tuple(side if d in (a, b) else next(rest) for d in range(input.ndim + 1))
    return unview(input, shape, (step("diagonal", offset=offset, dim1=a, dim2=b),))


@composite()
def diag(input, diagonal=0):
    """Make a matrix with one dimension on its diagonal, or take the diagonal of a matrix (a copy)."""
    if input.ndim == 1:
        return diag_embed(input, diagonal)
    if input.ndim != 2:
        raise ShapeError(f"diag: takes one or two dimensions, not {input.ndim}")
    return REGISTRY["clone"](REGISTRY["diagonal"](input, diagonal))


@composite()
def diagflat(input, offset=0):
    """Make a matrix with all elements on its diagonal."""
    return diag_embed(reshape(input, (-1,)), offset)
