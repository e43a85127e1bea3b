"""The transpose of a chain of views, and a write through one (see ir/views.py)."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from .. import lowering
from ..dims import same
from ..dtypes import bool_
from ..errors import ShapeError
from ..indices import whole
from ..op import COMPOSITES, REGISTRY, Traits, define
from ..sample import sample
from ..types import Shape, Type
from ..views import BY_VALUE, MAPS, Chain, dtype_along, places_in, replay, shapes_along, step

# The transpose of a chain of views, and a write through one


def _as_chain(chain: Any) -> Chain:
    return tuple((name, tuple((k, v) for k, v in attrs)) for name, attrs in chain)


def _region(op: str, shape: Shape, input: Shape, chain: Chain) -> None:
    region = shapes_along(shape, chain)[-1]
    if len(region) != len(input) or not all(map(same, region, input)):
        raise ShapeError(f"{op}: the chain of views selects shape {list(region)}, not {list(input)}")


def bind_unview(input, shape, chain):
    """Add the elements of `input` into zeros of `shape`, each where a chain of views takes it from.

    This is the transpose of the chain as a linear map, hence the gradient of a view.  Raises ShapeError
    unless `input` has the shape that the chain selects.
    """
    return (input,), {"shape": tuple(shape), "chain": _as_chain(chain)}


def _infer_unview(input: Type, *, shape: Shape, chain: Chain) -> Type:
    _region("unview", shape, input.shape, chain)
    return input.with_shape(shape)


def _run(x: np.ndarray, chain: Chain) -> np.ndarray:
    """What the chain selects of an array; a copy where its strides don't allow what its base's did."""
    for name, attrs in chain:
        x = REGISTRY[BY_VALUE.get(name, name)].reference(x, **dict(attrs))
    return x


def _places(shape: Shape, chain: Chain) -> np.ndarray:
    """Where in a contiguous array of `shape` stands what the chain selects."""
    return _run(np.arange(prod(shape)).reshape(shape), chain).ravel()


def _unview(input: np.ndarray, *, shape: Shape, chain: Chain) -> np.ndarray:
    out = np.zeros(shape, input.dtype)
    if any(MAPS[name].overlaps for name, _ in chain):
        np.add.at(out.reshape(-1), _places(shape, chain), input.ravel())
        return out
    region = _run(out, chain)
    if np.may_share_memory(region, out):
        region[...] = input
    else:
        out.reshape(-1)[_places(shape, chain)] = input.ravel()
    return out


def _build_unview(k: Any, input: Any, *, shape: Shape, chain: Chain) -> None:
    axes = k.parallel(*input.shape)
    k.scatter(input[axes], at=places_in(axes, shape, chain), combine="add")


_WINDOWS = (("unfold", (("dimension", 0), ("size", 3), ("step", 2))),)
_DIAGONAL = (
    step("transpose", dim0=0, dim1=2),
    step("diagonal", offset=0, dim1=1, dim2=2),
    step("basic_index", index=(whole(4), ("int", 1))),
)
_SQUARE = (step("view", shape=(3, 11)), step("basic_index", index=(whole(3), ("slice", 4, 6, 1))))

unview = define(
    "unview",
    complex="analytic",
    bind=bind_unview,
    infer=_infer_unview,
    reference=_unview,
    grad=lambda g, chain: replay(g, chain),
    lower=lowering.kernel(_build_unview),
    method=False,
    samples=lambda: [
        sample((), shape=(3,), chain=(step("basic_index", index=(("int", 1),)),)),
        sample((0,), shape=(3,), chain=(step("basic_index", index=(("slice", 1, 1, 1),)),)),
        sample((1,), shape=(3,), chain=(step("basic_index", index=(("slice", 2, 3, 1),)),)),
        sample((17,), shape=(17, 2), chain=(step("basic_index", index=(whole(17), ("int", 1))),)),
        sample((33,), shape=(33,), chain=()),
        sample((3, 3), shape=(8,), chain=_WINDOWS),
        sample((4,), shape=(2, 3, 4), chain=_DIAGONAL),
    ],
)  # fmt: skip


def bind_view_scatter(base, value, chain):
    """Return `base` with the region that a chain of views selects replaced by `value`.

    A write in place to a view is this, seen from the base.  Raises ShapeError unless `value` has the shape of
    the region.
    """
    return (base, value), {"chain": _as_chain(chain)}


def _infer_view_scatter(base: Type, value: Type, *, chain: Chain) -> Type:
    _region("view_scatter", base.shape, value.shape, chain)
    return base


def _view_scatter(base: np.ndarray, value: np.ndarray, *, chain: Chain) -> np.ndarray:
    # So that mostly what was a view of base is one of the copy; pairs of parts have to lie side by side.
    out = np.array(base, order="K" if value.dtype == base.dtype else "C")
    region = _run(out, chain)
    if region.flags.writeable and np.may_share_memory(region, out):  # NumPy guards what lies below `expand`
        region[...] = value
    else:
        out = np.array(base, order="C")
        out.reshape(-1)[_places(base.shape, chain)] = value.ravel()
    return out


def _scattered(base: Any, value: Any, *, chain: Chain) -> Any:
    inside = unview(REGISTRY["ones_like"](value, dtype=bool_), base.shape, chain)
    return REGISTRY["where"](inside, unview(value, base.shape, chain), base)


def _zeros(g: Any, kind: Type) -> Any:
    """What is written over: of a complex base it may be parts, which are real."""
    zeros = REGISTRY["new_zeros"](g, kind.shape)
    return zeros if kind.dtype.is_complex else COMPOSITES["real"].function(zeros)


view_scatter = define(
    "view_scatter",
    complex="analytic",
    bind=bind_view_scatter,
    infer=_infer_view_scatter,
    casts=lambda base, value, *, chain: (None, dtype_along(base.dtype, chain)),
    reference=_view_scatter,
    grad=(
        lambda g, value_type, chain: view_scatter(g, _zeros(g, value_type), chain),
        lambda g, chain: replay(g, chain),
    ),
    lower=lowering.decomposition(_scattered),
    traits=Traits(movement=True),
    method=False,
    samples=lambda: [
        sample((3,), (), chain=(step("basic_index", index=(("int", 1),)),)),
        sample((), (), chain=()),
        sample((0,), (0,), chain=()),
        sample((1,), (1,), chain=(step("unsqueeze", dim=0), step("squeeze", dim=(0,)))),
        sample((17,), (5,), chain=(step("basic_index", index=(("slice", 1, 15, 3),)),)),
        sample((33,), (3, 2), chain=_SQUARE),
        sample((3, 4), (3,), chain=(step("diagonal", offset=1, dim1=0, dim2=1),)),
    ],
)  # fmt: skip
