"""Views: ops whose output shares its operand's storage (see ir/views.py for how they are stated)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from operator import itemgetter, methodcaller
from typing import Any

import numpy as np

from ..dims import Dim, same
from ..errors import ArgumentError, DimError, ShapeError
from ..indices import canonical, indexed_shape, numpy_index, numpy_slice, place, whole
from ..op import COMPOSITES, Op, Traits, composite
from ..sample import sample
from ..shapes import dim_of, dims_of, filled_in, is_one, sizes_of
from ..stretch import stretched
from ..types import Shape
from ..views import flat_place, place_in, row_major, step, view_op
from .cast import dtype_of
from .complex import conj
from .unview import unview

# Same elements, other shape


def _same_elements(axes: tuple, input_shape: Shape, *, shape: Shape) -> tuple:
    return place_in(flat_place(axes, row_major(shape)), input_shape)


def is_view(out: np.ndarray, input: np.ndarray) -> bool:
    """Whether NumPy's reshape shared memory: a copy's base is neither the operand nor the operand's base."""
    return out.base is input or (out.base is not None and out.base is input.base) or not input.ndim


def _viewed(input: np.ndarray, *, shape: Shape) -> np.ndarray:
    out = input.reshape(shape)
    if not is_view(out, input):
        raise ShapeError(
            f"view(input, {list(shape)}): the strides of the operand don't allow this shape without a copy",
            "use reshape(input, shape), which copies where it must",
        )
    return out


def _on_arrays(function: Callable | None) -> tuple | None:
    """A quick gradient that looks at the cotangent alone."""
    return function and (lambda g, saved: function(g),)


def bind_view(input, *sizes, size=None, shape=None):
    """Give another shape to the same elements, without a copy.  One size may be -1 and is computed.

    Raises ShapeError where the sizes hold another number of elements, or where the strides would need a copy.
    """
    return (input,), {"shape": _shape_asked("view", input, sizes, size if shape is None else shape)}


def bind_reshape(input, *sizes, shape=None):
    """Give another shape to the elements: a view where the strides allow it, else a copy.

    One size may be -1 and is computed.  Raises ShapeError where the sizes hold another number of elements.
    """
    return (input,), {"shape": _shape_asked("reshape", input, sizes, shape)}


def _shape_asked(op: str, input: Any, sizes: tuple, given: Any) -> Shape:
    return filled_in(op, input.shape, sizes_of(op, sizes if given is None else (given,)))


def _reshape_samples() -> list:
    return [
        sample((), shape=(1, 1)), sample((0,), shape=(2, 0, 3)), sample((1,), shape=()),
        sample((17,), shape=(17, 1)), sample((33,), shape=(3, -1)), sample((4, 6), shape=(6, 4)),
        sample((2, 3, 4), shape=(2, 12)), sample((3, 17), shape=(51,)),
    ]  # fmt: skip


def _reshape_op(name: str, bind: Callable, reference: Callable, **record: Any) -> Op:
    return view_op(
        name,
        bind=bind,
        shape=lambda input_shape, *, shape: filled_in(name, input_shape, shape),
        places=_same_elements,
        reference=reference,
        grad=lambda g, input_type: reshape(g, input_type.shape),
        quick_grad=lambda types, attrs: _on_arrays(methodcaller("reshape", types[0].shape)),
        samples=_reshape_samples,
        # On strides that `view` must refuse this copies; the runtime, which looks, then runs the reference.
        quick=lambda types, attrs: methodcaller("reshape", attrs["shape"]),
        **record,
    )


reshape = _reshape_op(
    "reshape",
    bind_reshape,
    lambda input, *, shape: input.reshape(shape),
    traits=Traits(view=True, copies=True, movement=True),
)
_STRIDES = "a view of these strides would be a copy; test_indexing.py checks the error"
_COPIES = dict.fromkeys(("transposed", "strided", "broadcast"), _STRIDES)
view = _reshape_op("view", bind_view, _viewed, inapplicable=_COPIES)


@composite(by_type=True)
def flatten(input, start_dim=0, end_dim=-1):
    """Make one dimension of `start_dim` to `end_dim`.  A 0-d operand gives one element.  Raises DimError."""
    first, last = dim_of("flatten", start_dim, input.ndim), dim_of("flatten", end_dim, input.ndim)
    if first > last:
        raise ShapeError(f"flatten: start_dim cannot come after end_dim, as {start_dim} after {end_dim}")
    if first == last and input.ndim:
        return input
    shape = input.shape
    if last - first >= input.ndim - 1:
        return reshape(input, (prod(shape),))
    return reshape(input, (*shape[:first], prod(shape[first : last + 1]), *shape[last + 1 :]))


@composite()
def ravel(input):
    """Make one dimension of all.  A copy where the elements do not lie in order."""
    if input.ndim == 1:
        return COMPOSITES["contiguous"].function(input)
    return reshape(input, (prod(input.shape),))


@composite(by_type=True)
def unflatten(input, dim, sizes):
    """Split a dimension into several.  One size may be -1.  Raises ShapeError, DimError."""
    dim, shape = dim_of("unflatten", dim, input.ndim), input.shape
    parts = filled_in("unflatten", (shape[dim],), sizes_of("unflatten", (tuple(sizes),)))
    return reshape(input, (*shape[:dim], *parts, *shape[dim + 1 :]))


@composite()
def view_as(input, other):
    """View with the shape of `other`."""
    return view(input, other.shape)


@composite()
def reshape_as(input, other):
    """Reshape to the shape of `other`."""
    return reshape(input, other.shape)


# Other order of dimensions


def bind_permute(input, *dims_given, dims=None):
    """Reorder the dimensions: dimension j of the result is dimension dims[j] of the operand.

    Shapes: [s0, s1, ...] -> [s_dims[0], s_dims[1], ...].  Raises ShapeError unless `dims` names each once.
    """
    given = dims if dims is not None else dims_given
    if len(given) == 1 and isinstance(given[0], (tuple, list)):
        given = given[0]
    dims = tuple(dim_of("permute", d, input.ndim) for d in given)
    if len(dims) != input.ndim or len(set(dims)) != len(dims):
        raise ShapeError(f"permute: dims must name each of {input.ndim} dimensions once, not {list(given)}")
    return (input,), {"dims": dims}


def inverse(dims: tuple[int, ...]) -> tuple[int, ...]:
    """The permutation that undoes `dims`."""
    return tuple(sorted(range(len(dims)), key=dims.__getitem__))


permute = view_op(
    "permute",
    quick=lambda types, attrs: methodcaller("transpose", attrs["dims"]),
    quick_grad=lambda types, attrs: _on_arrays(methodcaller("transpose", inverse(attrs["dims"]))),
    bind=bind_permute,
    shape=lambda shape, *, dims: tuple(shape[d] for d in dims),
    places=lambda axes, shape, *, dims: tuple(axes[j] for j in inverse(dims)),
    reference=lambda input, *, dims: input.transpose(dims),
    grad=lambda g, dims: permute(g, dims=inverse(dims)),
    samples=lambda: [
        sample((), dims=()), sample((0,), dims=(0,)), sample((1,), dims=(0,)), sample((17,), dims=(-1,)),
        sample((33,), dims=(0,)), sample((3, 17), dims=(1, 0)), sample((2, 3, 4), dims=(2, 0, 1)),
        sample((2, 0, 3), dims=(1, -1, 0)), sample((2, 1, 3, 2), dims=(3, 1, 0, 2)),
    ],
)  # fmt: skip


def bind_transpose(input, dim0, dim1):
    """Exchange two dimensions.  Raises DimError."""
    a, b = dim_of("transpose", dim0, input.ndim), dim_of("transpose", dim1, input.ndim)
    return (input,), {"dim0": min(a, b), "dim1": max(a, b)}


def _exchanged(sequence: Sequence, dim0: int, dim1: int) -> tuple:
    items = list(sequence)
    if items:
        items[dim0], items[dim1] = items[dim1], items[dim0]
    return tuple(items)


def _quick_transpose(types, attrs):
    return methodcaller("swapaxes", attrs["dim0"], attrs["dim1"]) if types[0].ndim else None


transpose = view_op(
    "transpose",
    quick=_quick_transpose,
    quick_grad=lambda types, attrs: _on_arrays(_quick_transpose(types, attrs)),
    bind=bind_transpose,
    shape=lambda shape, *, dim0, dim1: _exchanged(shape, dim0, dim1),
    places=lambda axes, shape, *, dim0, dim1: _exchanged(axes, dim0, dim1),
    reference=lambda input, *, dim0, dim1: input.swapaxes(dim0, dim1) if input.ndim else input.view(),
    grad=lambda g, dim0, dim1: transpose(g, dim0, dim1),
    aliases=("swapaxes", "swapdims"),
    samples=lambda: [
        sample((), dim0=0, dim1=-1), sample((0,), dim0=0, dim1=0), sample((1,), dim0=0, dim1=0),
        sample((17,), dim0=-1, dim1=0), sample((33,), dim0=0, dim1=0), sample((3, 17), dim0=0, dim1=1),
        sample((2, 3, 4), dim0=-1, dim1=0),
    ],
)  # fmt: skip


@composite(by_type=True)
def t(input):
    """Transpose a matrix; fewer dimensions stay as they are.  Raises ShapeError for more than two."""
    if input.ndim > 2:
        kind = "sparse and 0 dense " if getattr(input, "is_sparse", False) else ""
        raise ShapeError(
            f"t() expects a tensor with <= 2 {kind}dimensions, but self is {input.ndim}D",
            "transpose(input, dim0, dim1) exchanges any two",
        )
    return transpose(input, 0, input.ndim - 1 if input.ndim else 0)


@composite(by_type=True)
def adjoint(input):
    """Transpose the last two dimensions, and conjugate.  Raises ShapeError for a vector."""
    if input.ndim == 1:
        raise ShapeError("adjoint is only supported on matrices, not on 1 dimension")
    return conj(transpose(input, -2, -1) if input.ndim else input)


@composite(aliases=("moveaxis",), by_type=True)
def movedim(input, source, destination):
    """Move dimensions to other places; those not named keep their order.  Raises DimError, ShapeError."""
    sources = source if isinstance(source, (tuple, list)) else (source,)
    targets = destination if isinstance(destination, (tuple, list)) else (destination,)
    if len(sources) != len(targets):
        raise ShapeError(
            f"movedim: Invalid source or destination dims: {len(sources)} in source, "
            f"{len(targets)} in destination"
        )
    sides = {"source": sources, "destination": targets}
    places = {side: [dim_of("movedim", d, input.ndim) for d in dims] for side, dims in sides.items()}
    for side, dims in places.items():
        if len(set(dims)) < len(dims):
            raise ShapeError(f"movedim: repeated dim in `{side}`: {tuple(sides[side])}")
    moved = dict(zip(places["destination"], places["source"], strict=True))
    if not input.ndim:
        return permute(input, ())
    rest = iter(d for d in range(input.ndim) if d not in moved.values())
    return permute(input, tuple(moved[d] if d in moved else next(rest) for d in range(input.ndim)))


# Dimensions of size 1


def bind_expand(input, *sizes, size=None):
    """Repeat dimensions of size 1, without a copy, and add dimensions in front.  -1 keeps a size.

    A symbol of the size asked for is not asked if it is 1.  Raises ShapeError for a dimension that is neither
    1 nor of the size asked for.
    """
    asked = sizes_of("expand", sizes if size is None else (size,))
    new = len(asked) - input.ndim
    if new < 0:
        raise ShapeError(
            f"expand: the number of sizes provided ({len(asked)}) must be greater or equal to the number of "
            f"dimensions in the tensor ({input.ndim}): {list(asked)} for shape {list(input.shape)}"
        )
    found = []
    for d, n in enumerate(asked):
        if isinstance(n, int) and n < 0:
            if n != -1 or d < new:
                raise ShapeError(
                    f"expand: size {n} of new dimension {d} in {list(asked)}", "-1 keeps a size that is there"
                )
            n = input.shape[d - new]
        elif d >= new and not _stretches(input.shape[d - new], n):
            raise ShapeError(
                f"expand: The expanded size of the tensor ({n}) must match the existing size "
                f"({input.shape[d - new]}) in dimension {d - new}, or that must be 1",
                f"shape {list(input.shape)} to {list(asked)}",
            )
        found.append(n)
    return (input,), {"size": tuple(found)}


def _stretches(old: int | Dim, new: int | Dim) -> bool:
    return is_one(old) or same(old, new) or same(old, 1)


def _expanded_places(axes: tuple, shape: Shape, *, size: Shape) -> tuple:
    own = axes[len(size) - len(shape) :]
    return tuple(0 if is_one(n) else axis for n, axis in zip(shape, own, strict=True))


def _quick_expand(types: tuple, attrs: dict) -> Callable:
    """`stretched` for one shape: where the operand is dense, strides are known but for their numbers."""
    (kind,), size = types, attrs["size"]
    new = len(size) - kind.ndim
    kept = [d - new if d >= new and kind.shape[d - new] == n else None for d, n in enumerate(size)]
    dtype = kind.dtype.numpy
    known = None  # of a dimension of one element an array may have any stride
    if 1 not in kind.shape and all([type(n) is int for n in kind.shape]):
        steps = [dtype.itemsize * prod(kind.shape[d + 1 :]) for d in range(kind.ndim)]
        known = tuple([0 if d is None else steps[d] for d in kept])

    def quick(x: np.ndarray) -> np.ndarray:
        if not x.flags.c_contiguous:
            return stretched(x, size)
        strides = known or [0 if d is None else x.strides[d] for d in kept]
        made = np.ndarray(size, dtype, x, 0, strides)
        made.setflags(False)  # type: ignore  # a quarter of the time of `flags.writeable = False`
        return made

    return quick


expand = view_op(
    "expand",
    bind=bind_expand,
    quick=_quick_expand,
    shape=lambda shape, *, size: size,
    places=_expanded_places,
    overlaps=True,
    reference=lambda input, *, size: stretched(input, size),
    grad=lambda g: g,
    samples=lambda: [
        sample((), size=(3,)), sample((0,), size=(2, 0)), sample((1,), size=(17,)),
        sample((17,), size=(2, -1)), sample((33,), size=(33,)), sample((3, 1), size=(2, 3, 4)),
        sample((1,), size=(0,)),
    ],
)  # fmt: skip


@composite(method=True)
def broadcast_to(input, size):
    """Expand to the sizes given."""
    return expand(input, size)


@composite()
def expand_as(input, other):
    """Expand to the shape of `other`."""
    return expand(input, other.shape)


def bind_squeeze(input, dim=None, *more):
    """Drop dimensions of size 1: all of them, or those among `dim` (an int or several).  Raises DimError."""
    dim = (dim, *more) if more else dim  # as x.squeeze(0, 1) has them
    dims = dims_of("squeeze", dim, input.ndim) if not isinstance(dim, tuple) or dim else ()
    if dim is not None and not input.ndim:
        dims_of("squeeze", dim, 0)
    return (input,), {"dim": tuple(d for d in dims if same(input.shape[d], 1))}


def _with_zeros(axes: tuple, shape: Shape, *, dim: tuple[int, ...]) -> tuple:
    rest = iter(axes)
    return tuple(0 if d in dim else next(rest) for d in range(len(shape)))


squeeze = view_op(
    "squeeze",
    bind=bind_squeeze,
    shape=lambda shape, *, dim: tuple(n for d, n in enumerate(shape) if d not in dim),
    places=_with_zeros,
    reference=lambda input, *, dim: np.asarray(input).squeeze(dim),
    grad=lambda g, input_type: view(g, input_type.shape),
    samples=lambda: [
        sample(()), sample((0,)), sample((1,)), sample((17,), dim=0), sample((33,)), sample((1, 3, 1)),
        sample((1, 3, 1), dim=-1), sample((1, 3, 1, 2), dim=(0, 1)),
    ],
)  # fmt: skip


_ALL = np.s_[:]


def bind_unsqueeze(input, dim):
    """Add a dimension of size 1 at `dim`, which counts in the result's dimensions.  Raises DimError."""
    return (input,), {"dim": dim_of("unsqueeze", dim, input.ndim + 1)}


unsqueeze = view_op(
    "unsqueeze",
    bind=bind_unsqueeze,
    shape=lambda shape, *, dim: (*shape[:dim], 1, *shape[dim:]),
    places=lambda axes, shape, *, dim: (*axes[:dim], *axes[dim + 1 :]),
    reference=lambda input, *, dim: np.asarray(input)[(_ALL,) * dim + (None, ...)],
    grad=lambda g, dim: squeeze(g, dim),
    samples=lambda: [
        sample((), dim=0), sample((0,), dim=-1), sample((1,), dim=1), sample((17,), dim=0),
        sample((33,), dim=-2), sample((2, 3, 4), dim=2),
    ],
)  # fmt: skip


# Parts of dimensions


def bind_basic_index(input, index):
    """Take the view that ints, slices, None and Ellipsis select, as x[index] does.

    `index` may be canonical (see ir/indices.py).  Raises DimError for an int out of range or too many
    indices, ArgumentValueError for a step that isn't positive.
    """
    return (input,), {"index": canonical("x[index]", index, input.shape)}


def _indexed_places(axes: tuple, shape: Shape, *, index: tuple) -> tuple:
    rest, found = iter(axes), []
    for item in index:
        if item[0] == "int":
            found.append(item[1])
            continue
        axis = next(rest)
        if item[0] == "slice":
            found.append(axis * item[3] + item[1])
    return tuple(found)


def _least_index(types: tuple, attrs: dict) -> Any:
    """The index without the whole dimensions at its end, unless it picks a scalar: half of NumPy's work."""
    index = attrs["index"]
    if len(index) == 1 and index[0][0] == "slice":
        return numpy_slice(index[0])
    index = list(index)
    shape, kept = types[0].shape, sum(item[0] != "new" for item in attrs["index"])
    while len(index) > 1 and index[-1] == whole(shape[kept - 1]):
        index.pop()
        kept -= 1
    found = numpy_index(tuple(index))
    if kept == len(shape) and all(item[0] == "int" for item in index):
        return found
    return found[0] if len(found) == 2 else found[:-1]


def _quick_index(types, attrs):
    return itemgetter(_least_index(types, attrs)) if types[0].ndim else None


def _quick_grad_index(types, attrs):
    shape, dtype, index = types[0].shape, types[0].dtype.numpy, numpy_index(attrs["index"])

    def padded(g, saved):
        h = np.zeros(shape, dtype)
        h[index] = g
        return h

    return (padded,)


basic_index = view_op(
    "basic_index",
    quick=_quick_index,
    quick_grad=_quick_grad_index,
    bind=bind_basic_index,
    shape=lambda shape, *, index: indexed_shape(index),
    places=_indexed_places,
    reference=lambda input, *, index: np.asarray(input)[numpy_index(index)],
    grad=lambda g, input_type, index: unview(g, input_type.shape, (step("basic_index", index=index),)),
    method=False,
    samples=lambda: [
        sample((), index=(None,)), sample((0,), index=np.s_[:]), sample((1,), index=(0,)),
        sample((17,), index=np.s_[3::4]), sample((33,), index=np.s_[-5:]),
        sample((3, 17), index=np.s_[1, 2:9:3]), sample((2, 3, 4), index=np.s_[..., None, -1]),
        sample((4, 3), index=np.s_[3:1, :, None]),
    ],
)  # fmt: skip


def part(op: str, input: Any, dim: int, item: tuple) -> Any:
    """The view that one item selects in dimension `dim`."""
    return parts(op, input, dim, (item,))[0]


def parts(op: str, input: Any, dim: int, items: Sequence[tuple]) -> tuple:
    """The views that items select in dimension `dim`, one for each."""
    if not input.ndim:
        raise ShapeError(f"{op}: a 0-d operand has no dimension to take a part of")
    before = (*map(whole, input.shape[:dim]),) if dim else ()
    return tuple([basic_index(input, (*before, item)) for item in items])


@composite(by_type=True)
def select(input, dim, index):
    """Take place `index` of a dimension, which is dropped.  Raises DimError."""
    if not input.ndim:
        raise DimError("select: a 0-d operand has no dimension to take a part of")
    dim = dim_of("select", dim, input.ndim)
    at = place("select", index, dim, input.shape[dim])
    return part("select", input, dim, ("int", at if isinstance(at, Dim) else int(at)))  # True is no mask here


@composite(by_type=True)
def narrow(input, dim, start, length):
    """Take `length` places of a dimension from `start` on.  Raises DimError, ShapeError."""
    dim = dim_of("narrow", dim, input.ndim)
    if not input.ndim:
        return part("narrow", input, dim, ())
    if hasattr(start, "dtype") and (start.ndim or dtype_of(start).category != "int"):
        raise ArgumentError(
            f"narrow: start must be an int, or a 0-d integer tensor, not {dtype_of(start).name} of shape "
            f"{list(start.shape)}"
        )
    start, length = (v if isinstance(v, Dim) else int(v) for v in (start, length))
    n = input.shape[dim]
    if start < -n or start > n:
        raise DimError(f"narrow: start {start} is out of range for dimension {dim} with size {n}")
    start = start + n if start < 0 else start
    if length < 0 or start + length > n:
        raise ShapeError(f"narrow: start {start} and length {length} leave dimension {dim} with size {n}")
    return part("narrow", input, dim, ("slice", start, start + length, 1))


@composite(method=False)
def slice(input, dim=0, start=None, stop=None, step=1):
    """Take places start, start + step, ... before stop of a dimension, as x[start:stop:step] does."""
    return part("slice", input, dim_of("slice", dim, input.ndim), ("slice", start, stop, step))
