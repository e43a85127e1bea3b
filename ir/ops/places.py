"""Reads and writes at places of the flattened last dimensions: what pooling does backwards, and unpooling."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from .. import lowering
from ..errors import DimError, DTypeError, ShapeError
from ..op import Traits, define
from ..sample import Operand, sample
from ..types import Type


def flat(index: Any, sizes: tuple) -> Any:
    """The row-major place of `index` in `sizes`."""
    place = index[0]
    for i, n in zip(index[1:], sizes[1:], strict=True):
        place = place * n + i
    return place


def unflat(place: Any, sizes: tuple) -> tuple:
    """The index of row-major `place` in `sizes`: `flat` undone."""
    index: tuple = ()
    for n in reversed(sizes[1:]):
        index, place = (place % n, *index), place // n
    return (place, *index)


def rows(x: np.ndarray, n: int) -> np.ndarray:
    """x with its last `n` dimensions in one, and the others in one."""
    return x.reshape(prod(x.shape[: x.ndim - n]), prod(x.shape[x.ndim - n :]))


def check_places(op: str, input: Type, indices: Type) -> None:
    if indices.dtype.category != "int":
        raise DTypeError(f"{op}: indices must be integers, not {indices.dtype.name}")
    if indices.ndim != input.ndim:
        raise ShapeError(f"{op}: indices must have the dimensions of input ({indices.ndim} != {input.ndim})")


def in_range(op: str, indices: np.ndarray, count: int) -> None:
    """Raise DimError where a place lies outside; NumPy would count negative ones from the end."""
    if indices.size and (indices.min() < 0 or indices.max() >= count):
        raise DimError(
            f"{op}: indices lie between {indices.min()} and {indices.max()}, and there are {count}"
        )


def bind_spread_at(input, indices, *, size, add=True):
    """Write each element at its place in zeros, adding up those that meet (or, without `add`, one of them).

    indices: places in the flattened `size`.  Shapes: [..., places...], the same -> [..., *size].
    Raises DimError, ShapeError, DTypeError.
    """
    return (input, indices), {"size": tuple(size), "add": bool(add)}


def infer_spread_at(input: Type, indices: Type, *, size, add) -> Type:
    check_places("spread_at", input, indices)
    if input.dtype.category == "bool":
        raise DTypeError("spread_at: bools don't add up", "cast with .int()")
    if indices.shape != input.shape or input.ndim < len(size):
        raise ShapeError(
            "spread_at: input and indices must have one shape "
            f"({list(input.shape)} and {list(indices.shape)})"
        )
    return input.with_shape((*input.shape[: input.ndim - len(size)], *size))


def spread_at_reference(input, indices, *, size, add):
    n, count = len(size), prod(size)
    in_range("spread_at", indices, count)
    values, at = rows(input, n), rows(indices, n)
    out = np.zeros((values.shape[0], count), input.dtype)
    at = at + np.arange(0, out.size, count or 1).reshape(-1, 1)
    if add:
        np.add.at(out.reshape(-1), at.reshape(-1), values.reshape(-1))
    else:
        out.reshape(-1)[at] = values
    return out.reshape(*input.shape[: input.ndim - n], *size)


def build_spread_at(k, input, indices, *, size, add):
    axes = k.parallel(*input.shape)
    place = (*axes[: input.ndim - len(size)], *unflat(indices[axes], size))
    k.scatter(input[axes], at=place, combine="add" if add else "set")


spread_at = define(
    "spread_at",
    complex="analytic",
    bind=bind_spread_at,
    infer=infer_spread_at,
    reference=spread_at_reference,
    grad=(lambda g, indices, size, add: pick_at(g, indices, dims=len(size), add=add), None),
    lower=lowering.kernel(build_spread_at),
    traits=Traits(refuses=True),
    samples=lambda: [
        sample((2, 3), Operand((2, 3), 0, 5, "int"), size=(5,)),
        sample((2, 3, 2), Operand((2, 3, 2), 0, 12, "int"), size=(3, 4)),
        sample((0, 2), Operand((0, 2), 0, 5, "int"), size=(5,)),
        sample((17,), Operand((17,), 0, 9, "int"), size=(9,)),
        sample((33,), Operand((33,), 0, 9, "int"), size=(9,)),
        sample((1,), Operand((1,), 0, 1, "int"), size=(2,), add=False),
    ],
    inapplicable={"0-d": "a place is one in a dimension", "broadcast": "nothing is broadcast"},
    dtypes="number",
    method=False,
)


def bind_pick_at(input, indices, *, dims, add=True):
    """Take the elements at places of the flattened last `dims` dimensions: `spread_at` transposed.

    add: as in that, for its gradient.  Shapes: [..., sizes...], [..., places...] -> [..., places...].
    Raises DimError, ShapeError, DTypeError.
    """
    return (input, indices), {"dims": dims, "add": bool(add)}


def infer_pick_at(input: Type, indices: Type, *, dims, add) -> Type:
    check_places("pick_at", input, indices)
    if input.shape[: input.ndim - dims] != indices.shape[: input.ndim - dims]:
        raise ShapeError(
            f"pick_at: input and indices must agree before the last {dims} dimensions "
            f"({list(input.shape)} and {list(indices.shape)})"
        )
    return input.with_shape(indices.shape)


def pick_at_reference(input, indices, *, dims, add):
    in_range("pick_at", indices, prod(input.shape[input.ndim - dims :]))
    return np.take_along_axis(rows(input, dims), rows(indices, dims), axis=1).reshape(indices.shape)


def build_pick_at(k, input, indices, *, dims, add):
    axes = k.parallel(*indices.shape)
    lead, sizes = axes[: input.ndim - dims], input.shape[input.ndim - dims :]
    k.store(input[*lead, *unflat(indices[axes], sizes)], at=axes)


pick_at = define(
    "pick_at",
    complex="analytic",
    bind=bind_pick_at,
    infer=infer_pick_at,
    reference=pick_at_reference,
    grad=(
        lambda g, indices, input_type, dims, add: spread_at(
            g, indices, size=input_type.shape[input_type.ndim - dims :], add=add
        ),
        None,
    ),
    lower=lowering.kernel(build_pick_at),
    samples=lambda: [
        sample((2, 5), Operand((2, 3), 0, 5, "int"), dims=1),
        sample((2, 3, 4), Operand((2, 3, 2), 0, 12, "int"), dims=2),
        sample((0, 5), Operand((0, 2), 0, 5, "int"), dims=1),
        sample((17,), Operand((4,), 0, 17, "int"), dims=1),
        sample((33,), Operand((4,), 0, 33, "int"), dims=1),
        sample((1,), Operand((1,), 0, 1, "int"), dims=1, add=False),
    ],
    inapplicable={"0-d": "a place is one in a dimension", "broadcast": "nothing is broadcast"},
    traits=Traits(movement=True, refuses=True),
    method=False,
)
