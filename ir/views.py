"""What a view is: a shape and an *index map*, which says where in the operand an output's element stands.

The kernel form of a view, that of its transpose (`unview`) and of a write through a chain of views
(`view_scatter`) all follow from the map.  A chain is a tuple of steps (op name, attrs items), nearest to the
storage first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from . import lowering
from .dims import Dim
from .dtypes import DType
from .op import REGISTRY, Op, Traits, define
from .types import Shape, Type

Chain = tuple[tuple[str, tuple[tuple[str, Any], ...]], ...]


@dataclass(frozen=True)
class Map:
    """How a view's elements stand in its operand.

    shape(input shape, **attrs) -> the output's shape; raises the errors a user sees.
    places(axes, input shape, **attrs) -> one index of the operand per dimension, of the output's axes.
    overlaps: several places of the output may be one element of the operand.
    dtype: the operand's dtype -> the output's, where these differ (parts of complex numbers).
    """

    shape: Callable[..., Shape]
    places: Callable[..., tuple]
    overlaps: bool = False
    dtype: Callable[[DType], DType] | None = None


MAPS: dict[str, Map] = {}


def view_op(
    name: str,
    *,
    shape: Callable,
    places: Callable,
    overlaps: bool = False,
    dtype: Callable | None = None,
    **record: Any,
) -> Op:
    """Enter a view by its index map; type, kernel and traits follow from that."""
    MAPS[name] = Map(shape, places, overlaps, dtype)

    def infer(input: Type, **attrs: Any) -> Type:
        found = input.with_shape(shape(input.shape, **attrs))
        return found if dtype is None else found.with_dtype(dtype(input.dtype))

    def build(k: Any, input: Any, **attrs: Any) -> None:
        axes = k.parallel(*shape(input.shape, **attrs))
        k.store(input[places(axes, input.shape, **attrs)], at=axes)

    return define(
        name,
        infer=infer,
        **(
            {
                "lower": lowering.kernel(build),
                "traits": Traits(view=True, movement=True),
                "complex": "analytic",
            }
            | record
        ),
    )


def step(name: str, **attrs: Any) -> tuple[str, tuple[tuple[str, Any], ...]]:
    """One step of a chain."""
    return name, tuple(attrs.items())


# What stands for a view where only values matter: strides may be others.
BY_VALUE = {"view": "reshape", "view_as_complex": "pairs_to_complex"}


def replay(x: Any, chain: Chain) -> Any:
    """Select what a chain of views selects of its base, of any kind of operand; not always a view."""
    for name, attrs in chain:
        x = REGISTRY[BY_VALUE.get(name, name)](x, **dict(attrs))
    return x


def shapes_along(shape: Shape, chain: Chain) -> list[Shape]:
    """The shapes that a chain passes through, its operand's first."""
    found = [shape]
    for name, attrs in chain:
        found.append(MAPS[name].shape(found[-1], **dict(attrs)))
    return found


def dtype_along(dtype: DType, chain: Chain) -> DType:
    """The dtype of what a chain selects of an operand of `dtype`."""
    for name, _ in chain:
        change = MAPS[name].dtype
        dtype = dtype if change is None else change(dtype)
    return dtype


def places_in(axes: tuple, shape: Shape, chain: Chain) -> tuple:
    """Where in an operand of `shape` the element at `axes` of the chain's end stands."""
    shapes = shapes_along(shape, chain)
    for (name, attrs), at in zip(reversed(chain), reversed(shapes[:-1]), strict=True):
        axes = MAPS[name].places(axes, at, **dict(attrs))
    return tuple(axes)


def flat_place(axes: Sequence, strides: Sequence) -> Any:
    """The sum of indices times strides."""
    return sum((axis * stride for axis, stride in zip(axes, strides, strict=True)), 0)


def place_in(flat: Any, shape: Shape) -> tuple:
    """The indices that a place in row-major order has in an array of `shape`."""
    indices = (flat // stride for stride in row_major(shape))
    pairs = enumerate(zip(indices, shape, strict=True))
    return tuple(0 if n == 1 else i if d == 0 else i % (n or 1) for d, (i, n) in pairs)


def row_major(shape: Shape) -> tuple:
    """Strides, in elements, of a contiguous array; in an empty one a size of 0 counts as 1.

    A symbol isn't asked if it is 0: where it is there are no elements, and strides are of no matter.
    """
    strides, total = [], 1
    for n in reversed(shape):
        strides.append(total)
        total = total * (n if isinstance(n, Dim) else n or 1)
    return tuple(reversed(strides))
