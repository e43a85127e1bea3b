"""The standard's functions that move elements: manipulation, indexing, sorting, sets."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..ir.errors import ArgumentValueError
from ..runtime import Tensor, ops
from ..runtime import from_numpy as wrapped
from .kinds import cast, promoted, tensor_in, together


def _same_type(name: str, arrays: Any) -> list[Tensor]:
    dtype = promoted(name, *(tensor_in(name, x).dtype for x in arrays))
    return [cast(x, dtype) for x in arrays]


def broadcast_arrays(*arrays):
    """The tensors, stretched to their common shape."""
    return list(ops.broadcast_tensors(*(tensor_in("broadcast_arrays", x) for x in arrays)))


def broadcast_to(x, /, shape):
    """The tensor stretched to a shape, sharing memory."""
    return ops.broadcast_to(tensor_in("broadcast_to", x), tuple(shape))


def concat(arrays, /, *, axis=0):
    """The tensors one behind the other, in their promoted type; `axis` None flattens them first."""
    found = _same_type("concat", arrays)
    if axis is None:
        found, axis = [x.reshape(-1) for x in found], 0
    return ops.cat(found, axis)


def expand_dims(x, /, axis):
    """The tensor with a dimension of size 1 at `axis`."""
    return ops.unsqueeze(tensor_in("expand_dims", x), axis)


def flip(x, /, *, axis=None):
    """The elements in reverse order along an axis, some, or all."""
    return ops.flip(tensor_in("flip", x), _axes(axis, x.ndim))


def _axes(axis: Any, ndim: int) -> tuple[int, ...]:
    return tuple(range(ndim)) if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)


def moveaxis(x, source, destination, /):
    """The tensor with some axes at other places."""
    return ops.movedim(tensor_in("moveaxis", x), source, destination)


def permute_dims(x, /, axes):
    """The tensor with its axes in another order."""
    return ops.permute(tensor_in("permute_dims", x), tuple(axes))


def repeat(x, repeats, /, *, axis=None):
    """Each element, or each slice along an axis, several times; without an axis of the flattened tensor."""
    if isinstance(repeats, Tensor):
        repeats = _index("repeat", repeats)
    return ops.repeat_interleave(tensor_in("repeat", x), repeats, axis)


def reshape(x, /, shape, *, copy=None):
    """The elements in another shape; copy False raises ArgumentValueError where memory can't be shared."""
    x, shape = tensor_in("reshape", x), tuple(shape)
    if copy:
        return ops.reshape(x.clone(), shape)
    return ops.view(x, shape) if copy is False else ops.reshape(x, shape)


def roll(x, /, shift, *, axis=None):
    """The elements moved along axes, those that leave coming in at the other end."""
    return ops.roll(tensor_in("roll", x), shift, axis)


def squeeze(x, /, axis):
    """The tensor without some axes.  Raises ArgumentValueError where one is not of size 1."""
    axes = _axes(axis, tensor_in("squeeze", x).ndim)
    odd = [d for d in axes if x.shape[d] != 1]
    if odd:
        raise ArgumentValueError(f"squeeze: axis {odd[0]} is of size {x.shape[odd[0]]}, not 1")
    return ops.squeeze(x, axes)


def stack(arrays, /, *, axis=0):
    """The tensors side by side along a new axis, in their promoted type."""
    return ops.stack(_same_type("stack", arrays), axis)


def tile(x, repetitions, /):
    """The tensor several times along each axis."""
    return ops.tile(tensor_in("tile", x), tuple(repetitions))


def unstack(x, /, *, axis=0):
    """The slices along an axis, as a tuple."""
    return tuple(ops.unbind(tensor_in("unstack", x), axis))


# ---- indexing ----------------------------------------------------------------------------------------------
_INDEX = ops.arange(0).dtype


def _index(name: str, indices: Any) -> Tensor:
    return cast(tensor_in(name, indices, "integral"), _INDEX)


def take(x, indices, /, *, axis=None):
    """The slices at `indices`, one-dimensional, along an axis; negative ones count from its end."""
    if axis is None and tensor_in("take", x).ndim != 1:
        raise ArgumentValueError(f"take: an axis is needed for {x.ndim} dimensions")
    x, indices = tensor_in("take", x), _index("take", indices)
    from_end = ops.where(ops.lt(indices, 0), indices + x.shape[axis or 0], indices)
    return ops.index_select(x, axis or 0, from_end)


def take_along_axis(x, indices, /, *, axis=-1):
    """The elements at `indices` along an axis; the other axes broadcast."""
    return ops.take_along_dim(tensor_in("take_along_axis", x), _index("take_along_axis", indices), axis)


def nonzero(x, /):
    """Where the elements are not 0: for each axis its indices.  Raises ArgumentValueError for 0-d."""
    if not tensor_in("nonzero", x).ndim:
        raise ArgumentValueError("nonzero: a 0-d tensor has no indices", "array_api.reshape(x, (1,))")
    return tuple(ops.nonzero(x, as_tuple=True))


def searchsorted(x1, x2, /, *, side="left", sorter=None):
    """Where the elements of `x2` would stand in `x1`, sorted, or sorted by `sorter`."""
    if side not in ("left", "right"):
        raise ArgumentValueError(f"searchsorted(side): 'left' or 'right', not {side!r}")
    x1, x2 = together("searchsorted", (x1, x2), "real")
    if sorter is not None:
        x1 = ops.index_select(x1, 0, _index("searchsorted", sorter))
    return ops.searchsorted(x1.contiguous(), x2.contiguous(), right=side == "right")


def where(condition, x1, x2, /):
    """The elements of `x1` where `condition` is true, those of `x2` elsewhere, in their promoted type."""
    return ops.where(tensor_in("where", condition, "bool"), *together("where", (x1, x2), "all"))


# ---- sorting -----------------------------------------------------------------------------------------------
def argsort(x, /, *, axis=-1, descending=False, stable=True):
    """The indices that sort the elements along an axis."""
    return ops.sort(tensor_in("argsort", x, "real"), axis, descending, stable).indices


def sort(x, /, *, axis=-1, descending=False, stable=True):
    """The elements in order along an axis."""
    return ops.sort(tensor_in("sort", x, "real"), axis, descending, stable).values


# ---- sets --------------------------------------------------------------------------------------------------
class UniqueAll(NamedTuple):
    """What `unique_all` returns."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """What `unique_counts` returns."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """What `unique_inverse` returns."""

    values: Tensor
    inverse_indices: Tensor


def _unique(name: str, x: Any) -> UniqueAll:
    """All that is to be known; every NaN is a value of its own.  NumPy's, which knows first places, too."""
    x = tensor_in(name, x)
    values, first, inverse, counts = np.unique(x.detach().numpy(), True, True, True, equal_nan=False)
    parts = (values, first, inverse.reshape(tuple(x.shape)), counts)
    return UniqueAll(*(wrapped(np.asarray(part)) for part in parts))


def unique_all(x, /):
    """The different values, the first place of each, the number of its value for each place, the counts."""
    return _unique("unique_all", x)


def unique_counts(x, /):
    """The different values, and how often each occurs."""
    found = _unique("unique_counts", x)
    return UniqueCounts(found.values, found.counts)


def unique_inverse(x, /):
    """The different values, and for each place the number of its value."""
    found = _unique("unique_inverse", x)
    return UniqueInverse(found.values, found.inverse_indices)


def unique_values(x, /):
    """The different values."""
    return _unique("unique_values", x).values
