"""Views along several dimensions, or that meet an element more than once: diagonals, windows, any strides."""

from __future__ import annotations

from math import prod

import numpy as np

from ..dtypes import over
from ..errors import ShapeError
from ..sample import sample
from ..shapes import dim_of, sizes_of
from ..types import Shape
from ..views import flat_place, place_in, step, view_op
from .unview import unview


def bind_diagonal(input, offset=0, dim1=0, dim2=1):
    """Take the diagonal of two dimensions, as a last dimension; `offset` > 0: above it.  Raises DimError."""
    a, b = dim_of("diagonal", dim1, input.ndim), dim_of("diagonal", dim2, input.ndim)
    if a == b or input.ndim < 2:
        raise ShapeError(f"diagonal: dim1 and dim2 must be two dimensions, not {dim1} and {dim2}")
    offset, rows, columns = int(offset), input.shape[a], input.shape[b]
    if isinstance(rows, int) and isinstance(columns, int):
        offset = max(min(offset, columns), -rows)  # farther out, every diagonal is as empty
    return (input,), {"offset": offset, "dim1": a, "dim2": b}


def _diagonal_shape(shape: Shape, *, offset: int, dim1: int, dim2: int) -> Shape:
    rows, columns = shape[dim1] + min(offset, 0), shape[dim2] - max(offset, 0)
    return (*(n for d, n in enumerate(shape) if d not in (dim1, dim2)), max(min(rows, columns), 0))


def _diagonal_places(axes: tuple, shape: Shape, *, offset: int, dim1: int, dim2: int) -> tuple:
    rest = iter(axes)
    on = {dim1: axes[-1] + max(-offset, 0), dim2: axes[-1] + max(offset, 0)}
    return tuple(on[d] if d in on else next(rest) for d in range(len(shape)))


def _diagonal(input: np.ndarray, *, offset: int, dim1: int, dim2: int) -> np.ndarray:
    out = input.diagonal(offset, dim1, dim2)
    out.flags.writeable = input.flags.writeable  # NumPy guards this one view against writes
    return out


diagonal = view_op(
    "diagonal",
    bind=bind_diagonal,
    shape=_diagonal_shape,
    places=_diagonal_places,
    reference=_diagonal,
    grad=lambda g, input_type, offset, dim1, dim2: unview(
        g, input_type.shape, (step("diagonal", offset=offset, dim1=dim1, dim2=dim2),)
    ),
    samples=lambda: [
        sample((0, 3)), sample((1, 1)), sample((17, 2)), sample((33, 2), offset=-3),
        sample((3, 17), offset=2), sample((2, 3, 4), dim1=0, dim2=-1), sample((3, 3), offset=5),
    ],
    inapplicable={"0-d": "needs two dimensions"},
)  # fmt: skip


def bind_unfold(input, dimension, size, step):
    """Take all windows of `size` places of a dimension, `step` apart; a last dimension holds their elements.

    Shapes: [..., n, ...] -> [..., (n - size) // step + 1, ..., size].  Raises DimError, ShapeError.
    """
    dim = dim_of("unfold", dimension, input.ndim)
    n = input.shape[dim] if input.ndim else 1
    if size < 0:
        raise ShapeError(f"unfold: size is {size} but must be >= 0")
    if size > n:
        raise ShapeError(f"unfold: maximum size for tensor at dimension {dim} is {n} but size is {size}")
    if step <= 0:
        raise ShapeError(f"unfold: step is {step} but must be > 0")
    return (input,), {"dimension": dim, "size": int(size), "step": int(step)}


def _unfold_shape(shape: Shape, *, dimension: int, size: int, step: int) -> Shape:
    if not shape:
        return (size,)
    return (*shape[:dimension], (shape[dimension] - size) // step + 1, *shape[dimension + 1 :], size)


def _unfold_places(axes: tuple, shape: Shape, *, dimension: int, size: int, step: int) -> tuple:
    if not shape:
        return ()
    return (*axes[:dimension], axes[dimension] * step + axes[-1], *axes[dimension + 1 : -1])


def _unfold(input: np.ndarray, *, dimension: int, size: int, step: int) -> np.ndarray:
    if not input.ndim:
        return np.asarray(input).reshape(1)[:size]
    strides = input.strides
    return over(
        input,
        _unfold_shape(input.shape, dimension=dimension, size=size, step=step),
        (*strides[:dimension], strides[dimension] * step, *strides[dimension + 1 :], strides[dimension]),
    )


unfold = view_op(
    "unfold",
    bind=bind_unfold,
    shape=_unfold_shape,
    places=_unfold_places,
    overlaps=True,
    reference=_unfold,
    grad=lambda g, input_type, dimension, size, step: unview(
        g, input_type.shape, (("unfold", (("dimension", dimension), ("size", size), ("step", step))),)
    ),
    samples=lambda: [
        sample((), dimension=0, size=1, step=1), sample((0,), dimension=0, size=0, step=1),
        sample((1,), dimension=0, size=1, step=2), sample((17,), dimension=0, size=4, step=2),
        sample((33,), dimension=-1, size=3, step=5), sample((3, 8, 2), dimension=1, size=3, step=1),
    ],
)  # fmt: skip


def bind_as_strided(input, size, stride, storage_offset=0):
    """View a contiguous operand's elements in another shape and with any strides, counted in elements.

    `storage_offset` counts from the operand's first element.  Raises ShapeError where the operand is not
    contiguous or where the view would reach beyond it.
    """
    size, stride = sizes_of("as_strided", (tuple(size),)), sizes_of("as_strided", (tuple(stride),))
    offset = int(storage_offset or 0)
    if min(stride, default=0) < 0:
        raise ShapeError(
            "as_strided: Negative strides are not supported at the moment, got strides: "
            f"[{', '.join(map(str, stride))}]",
            "flip(x, dim) copies",
        )
    if len(size) != len(stride) or min((*size, offset), default=0) < 0:
        raise ShapeError(
            "as_strided: mismatch in length of strides and shape, or a negative one: size "
            f"{list(size)}, stride "
            f"{list(stride)}",
            f"and storage_offset at least 0, not {offset}",
        )
    last = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
    if 0 not in size and last >= prod(input.shape):
        raise ShapeError(
            f"as_strided: size {list(size)}, stride {list(stride)} and offset {offset} reach element {last}",
            f"the operand has {prod(input.shape)}",
        )
    return (input,), {"size": size, "stride": stride, "storage_offset": offset}


def _as_strided(input: np.ndarray, *, size: Shape, stride: tuple, storage_offset: int) -> np.ndarray:
    if not input.flags.c_contiguous:
        raise ShapeError(
            "as_strided(input, size, stride): the operand must be contiguous",
            "as_strided(input.contiguous(), ...) views a copy",
        )
    flat = input.reshape(-1)[storage_offset:] if input.size else input.reshape(-1)
    return over(flat, size, tuple(s * input.itemsize for s in stride))


as_strided = view_op(
    "as_strided",
    bind=bind_as_strided,
    shape=lambda shape, *, size, stride, storage_offset: size,
    places=lambda axes, shape, *, size, stride, storage_offset: place_in(
        flat_place(axes, stride) + storage_offset, shape
    ),
    overlaps=True,
    reference=_as_strided,
    grad=lambda g, input_type, size, stride, storage_offset: unview(
        g, input_type.shape, (step("as_strided", size=size, stride=stride, storage_offset=storage_offset),)
    ),
    samples=lambda: [
        sample((), size=(2,), stride=(0,)), sample((0,), size=(0, 2), stride=(1, 1)),
        sample((1,), size=(), stride=()), sample((17,), size=(5, 3), stride=(3, 1), storage_offset=1),
        sample((33,), size=(3, 5), stride=(2, 2)),
        sample((4, 6), size=(3, 4), stride=(6, 1), storage_offset=2),
    ],
    inapplicable=dict.fromkeys(("transposed", "strided", "broadcast"), "the operand must be contiguous"),
)  # fmt: skip
