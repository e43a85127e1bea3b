"""Sparse tensors: the places that hold something, and what they hold.

A sparse tensor is a `Compound`: `_stored` [n, *dense] is an ordinary tensor with a history, `_places` are
int64 tensors without one.  By layout:

    coo  (indices [sparse dims, n],)      element k stands at indices[:, k]; a place may come several times
    csr  (crow [rows + 1], columns [n])   row r holds elements crow[r] ... crow[r + 1]
    csc  (ccol [columns + 1], rows [n])   the same by columns

Whatever makes elements from elements is an ordinary op on `_stored`, so gradients, to any order, are those
of such ops, and the gradient of a sparse tensor has its places.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from math import prod
from typing import Any

import numpy as np

from ..ir.dtypes import DType, int64
from ..ir.errors import (
    ArgumentError,
    ArgumentValueError,
    DeviceError,
    DimError,
    DTypeError,
    GradError,
    ShapeError,
)
from ..ir.types import type_of
from . import ops
from .compound import Compound, NoArray, made_of
from .conversion import require_cpu
from .creation import as_tensor
from .layouts import Layout, sparse_coo, sparse_csc, sparse_csr, strided
from .tensor import Size, Tensor, fields, wrap

COMPRESSED = (sparse_csr, sparse_csc)


class Sparse(Compound):
    """A tensor of which the elements that are not zero are stored.

    Invariant: places lie inside the shape, and in a compressed layout they ascend within each row.
    `_coalesced`: no place comes twice, and they ascend.
    """

    __slots__ = ("_places", "_layout", "_coalesced")
    _places: tuple[Tensor, ...]
    _layout: Layout
    _coalesced: bool
    what = "sparse"
    rules: dict[str, Callable] = {}
    is_sparse_csr = property(lambda self: self._layout is sparse_csr)
    is_sparse = property(lambda self: self._layout is sparse_coo)

    @property
    def layout(self) -> Layout:
        return self._layout

    def new(self, *args: Any, size: Sequence[int] | None = None) -> Tensor:
        """A sparse tensor of this tensor's dtype: new(indices, values), or new(2, 3) without values."""
        return old_coo(self.dtype, args if size is None else (Size(size),))

    def _with(self, values: Tensor) -> Sparse:
        return sparse_of(self._layout, self._places, values, self._meta.shape, self._coalesced)

    def _gradient(self, values: Tensor) -> Sparse:
        if self._coalesced:
            return self._with(values)
        # All values of a place have its gradient, which stands there once.
        shape, indices = self.shape[: dims_of(self)], coordinates(self)
        places, first = np.unique(flattened(indices, shape), return_index=True)
        return coo_of(unflattened(places, shape), values.index_select(0, numbers(first)), self.shape, True)

    def _spread(self, gradient: Tensor) -> Tensor:
        if gradient._meta.shape != self._meta.shape:
            raise ShapeError(
                "the gradient must have the tensor's shape",
                f"tensor: {self._meta}",
                f"gradient: {gradient._meta}",
            )
        if isinstance(gradient, Sparse):
            if gradient._layout is self._layout and all(
                np.array_equal(a._data, b._data) for a, b in zip(gradient._places, self._places)
            ):
                return gradient._stored.to(self.dtype)
            gradient = gradient.to_dense()
        return picked(gradient, coordinates(self)).to(self.dtype)

    def _take(self, other: Sparse) -> None:
        self._meta, self._stored, self._places = other._meta, other._stored, other._places
        self._layout, self._coalesced = other._layout, other._coalesced

    def parts(self) -> tuple:
        """What `restored` makes it of again."""
        grads = self.requires_grad and self.is_leaf
        held = (self._places, self._stored.detach(), tuple(self.shape), self._coalesced)
        return (self._layout.name, *held, grads)

    def __reduce_ex__(self, protocol: Any) -> Any:
        made = restored, self.parts()
        return (*made, fields(self)) if fields(self) else made

    def __deepcopy__(self, memo: dict) -> Sparse:
        if not self.is_leaf:
            raise GradError(
                "only leaves can be copied deeply", f"tensor: {self._meta}", "use x.detach().clone()"
            )
        made = restored(
            self._layout.name, tuple(p.clone() for p in self._places), self._stored.detach().clone(),
            tuple(self.shape), self._coalesced, self.requires_grad,
        )  # fmt: skip
        fields(made).update(deepcopy(fields(self), memo))
        memo[id(self)] = made
        if self.grad is not None:
            made.grad = deepcopy(self.grad if self.grad.is_leaf else self.grad.detach(), memo)
        return made


# ---- making ------------------------------------------------------------------------------------------------
def sparse_of(
    layout: Layout, places: tuple[Tensor, ...], values: Tensor, shape: Sequence[int], coalesced: bool
) -> Sparse:
    """A sparse tensor of parts that fit."""
    made = made_of(Sparse, type_of(values.dtype, tuple(shape)), values)
    made._places, made._layout = places, layout
    made._coalesced = coalesced or layout is not sparse_coo or values.shape[0] < 2
    return made


def restored(
    layout: str, places: Sequence[Tensor], values: Tensor, shape: tuple, coalesced: bool, requires_grad: bool
) -> Sparse:
    """A sparse tensor of the parts that were saved.  Raises LaminaError where they don't fit."""
    kind = next((each for each in (sparse_coo, *COMPRESSED) if each == layout), None)
    flags = isinstance(coalesced, bool) and isinstance(requires_grad, bool)
    count = 1 if kind is sparse_coo else 2
    if kind is None or not flags or not isinstance(places, tuple) or len(places) != count:
        raise ArgumentValueError(f"these are no parts of a sparse tensor of layout {layout!r:.40}")
    check(kind, places, values, shape)
    if any(place.dtype is not int64 for place in places):
        raise DTypeError(f"{kind}_tensor: places must be int64")
    made = sparse_of(kind, places, values, shape, False)
    if kind is sparse_coo and coalesced:
        made._coalesced = is_ascending(made)
    return made.requires_grad_() if requires_grad else made


def is_ascending(x: Sparse) -> bool:
    """Whether no place comes twice, and they ascend."""
    return bool((np.diff(flattened(coordinates(x), x.shape[: dims_of(x)])) > 0).all())


def numbers(array: np.ndarray) -> Tensor:
    """Places as a tensor."""
    return wrap(array, type_of(int64, array.shape))


def coo_of(indices: np.ndarray, values: Tensor, shape: Sequence[int], coalesced: bool) -> Sparse:
    """A COO tensor of an array of places."""
    return sparse_of(
        sparse_coo, (numbers(np.ascontiguousarray(indices, np.int64)),), values, shape, coalesced
    )


def coordinates(x: Sparse) -> np.ndarray:
    """The places of the elements that are stored: int64[sparse dims, n]."""
    if x._layout is sparse_coo:
        return x._places[0]._data
    pointers, other = (p._data for p in x._places)
    lines = np.repeat(np.arange(len(pointers) - 1), np.diff(pointers))
    return np.stack((lines, other) if x._layout is sparse_csr else (other, lines))


def flattened(indices: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """Places as numbers in row order."""
    found = np.zeros(indices.shape[1], np.int64)
    for row, size in zip(indices, shape):
        found = found * size + row
    return found


def unflattened(flat: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """The inverse of `flattened`."""
    return (
        np.stack(np.unravel_index(flat, shape)).astype(np.int64)
        if len(shape)
        else np.zeros((0, len(flat)), np.int64)
    )


def picked(x: Tensor, indices: np.ndarray) -> Tensor:
    """The elements of a dense tensor at places: [n, *dense dims]."""
    if not len(indices):
        return x.unsqueeze(0).expand(indices.shape[1], *x.shape)
    return x[tuple(numbers(row) for row in indices)]


def summed(values: Tensor, group: np.ndarray, count: int) -> Tensor:
    """The sums of values [n, ...] by groups: [count, ...]."""
    kind = values.dtype
    if kind.category == "bool":
        return summed(values.to(int64), group, count).to(kind)
    return ops.zeros(count, *values.shape[1:], dtype=kind).index_add(0, numbers(group), values)


def dims_of(x: Sparse) -> int:
    """How many of its dims are sparse."""
    return x._places[0].shape[0] if x._layout is sparse_coo else 2


def coalesced(x: Sparse) -> Sparse:
    """The same tensor with each place once, in row order."""
    if x._coalesced:
        return x
    shape, indices = x.shape[: dims_of(x)], coordinates(x)
    flat = flattened(indices, shape)
    steps = np.diff(flat)
    if (steps > 0).all():
        return sparse_of(sparse_coo, x._places, x._stored, x.shape, True)
    if (steps >= 0).all():
        kept = np.flatnonzero(np.concatenate(([True], steps > 0)))
        places, group = flat[kept], np.cumsum(np.concatenate(([0], steps > 0)))
    else:
        places, group = np.unique(flat, return_inverse=True)
    return coo_of(unflattened(places, shape), summed(x._stored, group, len(places)), x.shape, True)


def to_coo(x: Sparse) -> Sparse:
    """The same tensor in COO."""
    if x._layout is sparse_coo:
        return x
    found = coo_of(coordinates(x), x._stored, x.shape, x._layout is sparse_csr)
    return found if x._layout is sparse_csr else coalesced(found)


def to_compressed(x: Sparse, layout: Layout) -> Sparse:
    """The same tensor in CSR or CSC.  Raises ShapeError unless it is a matrix."""
    if x._layout is layout:
        return x
    if dims_of(x) != 2 or x.ndim < 2:
        raise ShapeError(
            f"to_{layout.name}: a matrix is needed: two sparse dims, not {dims_of(x)}", f"tensor: {x._meta}"
        )
    x = coalesced(to_coo(x))
    rows, columns = coordinates(x)
    values = x._stored
    if layout is sparse_csc:
        order = np.argsort(columns, kind="stable")
        rows, columns, values = columns[order], rows[order], values.index_select(0, numbers(order))
    count = x.shape[0 if layout is sparse_csr else 1]
    return sparse_of(
        layout, (numbers(pointers_of(rows, count)), numbers(columns.copy())), values, x.shape, True
    )


def pointers_of(lines: np.ndarray, count: int) -> np.ndarray:
    """Where each of `count` lines begins among sorted line numbers: int64[count + 1]."""
    return np.concatenate(([0], np.cumsum(np.bincount(lines, minlength=count)))).astype(np.int64)


def from_dense(x: Tensor, sparse_dims: int) -> Sparse:
    """The elements of a dense tensor that are not zero, as COO."""
    marks = x._data != 0
    if sparse_dims < x.ndim:
        marks = marks.any(axis=tuple(range(sparse_dims, x.ndim)))
    indices = np.stack(np.nonzero(marks)) if sparse_dims else np.zeros((0, int(marks)), np.int64)
    return coo_of(indices, picked(x, indices), x.shape, True)


def to_layout(
    x: Tensor, layout: Layout, sparse_dims: int | None = None, dense_dims: int | None = None
) -> Tensor:
    """A tensor, dense or sparse, in another layout.  Raises ShapeError, ArgumentValueError."""
    if layout is strided:
        return x.to_dense()
    if not isinstance(x, Sparse):
        if layout in COMPRESSED:
            dims = x.ndim - (dense_dims or 0)
            if dims != 2:
                raise ShapeError(
                    f"to_{layout.name}: a matrix is needed, not {dims} sparse dims", f"tensor: {x._meta}"
                )
            return to_compressed(from_dense(x, dims), layout)
        if sparse_dims is not None and not (0 < sparse_dims <= x.ndim or sparse_dims == x.ndim):
            raise ArgumentValueError(
                f"to_sparse({sparse_dims}): a tensor of {x.ndim} dims has no so many sparse ones"
            )
        return from_dense(x, x.ndim if sparse_dims is None else sparse_dims)
    if layout is sparse_coo:
        if sparse_dims is not None and sparse_dims != dims_of(x):
            raise ArgumentValueError(
                f"to_sparse({sparse_dims}): the tensor has {dims_of(x)} sparse dims already"
            )
        return to_coo(x)
    return to_compressed(x, layout)


def densified(x: Sparse) -> Tensor:
    """The ordinary tensor with these elements, and 0 where nothing is stored."""
    sparse_dims = dims_of(x)
    shape = tuple(x.shape[:sparse_dims])
    flat = flattened(coordinates(x), shape)
    return summed(x._stored, flat, prod(shape)).reshape(tuple(x.shape))


# ---- checks ------------------------------------------------------------------------------------------------
def check(layout: Layout, places: tuple[Tensor, ...], values: Tensor, shape: Sequence[int]) -> None:
    """Refuse parts that make no sparse tensor.  Raises LaminaError of the kind that is broken."""
    call = f"{layout.name}_tensor"
    for part in (*places, values):
        if not isinstance(part, Tensor) or isinstance(part, Compound):
            raise ArgumentError(f"{call}: its parts are dense tensors, not {type(part).__name__}")
    for part in places:
        if part.dtype.category != "int":
            raise DTypeError(f"{call}: places must be integers", f"places: {part._meta}")
    if not isinstance(shape, (tuple, list)) or not all(type(n) is int and n >= 0 for n in shape):
        raise ShapeError(f"{call}: the size must hold sizes, not {shape!r}")
    if layout is sparse_coo:
        (indices,) = places
        if indices.ndim != 2:
            raise ShapeError(f"{call}: indices must be [sparse dims, n]", f"indices: {indices._meta}")
        dims, count = indices.shape
        if not values.ndim or values.shape[0] != count:
            raise ShapeError(
                f"{call}: there must be as many values as places",
                f"indices: {indices._meta}",
                f"values: {values._meta}",
            )
        if dims + values.ndim - 1 != len(shape):
            raise ShapeError(
                f"{call}: {dims} sparse and {values.ndim - 1} dense dims make no size of {len(shape)}",
                f"size: {list(shape)}",
            )
        _inside(call, indices._data, shape[:dims])
        rest = shape[dims:]
    else:
        pointers, other = places
        if len(shape) - (values.ndim - 1) != 2 or pointers.ndim != 1 or other.ndim != 1:
            raise ShapeError(f"{call}: only matrices are built, no batches of them", f"size: {list(shape)}")
        lines, across = shape[:2] if layout is sparse_csr else shape[1::-1]
        if pointers.shape[0] != lines + 1 or other.shape[0] != values.shape[0]:
            raise ShapeError(
                f"{call}: {lines} lines need {lines + 1} pointers, and each value a place",
                f"pointers: {pointers._meta}", f"places: {other._meta}", f"values: {values._meta}",
            )  # fmt: skip
        starts = pointers._data
        if starts[0] != 0 or starts[-1] != len(other._data) or (np.diff(starts) < 0).any():
            raise ArgumentValueError(
                f"{call}: pointers must grow from 0 to the number of values, {len(other._data)}"
            )
        _inside(call, other._data[None], (across,))
        inner = np.ones(len(other._data), bool)
        inner[starts[:-1][starts[:-1] < len(inner)]] = False  # the first of each line
        if (np.diff(other._data, prepend=0)[inner] <= 0).any():
            raise ArgumentValueError(f"{call}: places must ascend within each line, and come once")
        rest = shape[2:]
    if tuple(values.shape[1:]) != tuple(rest):
        raise ShapeError(f"{call}: values must have the dense dims {list(rest)}", f"values: {values._meta}")


def _inside(call: str, indices: np.ndarray, shape: Sequence[int]) -> None:
    if not indices.size:
        return
    for dim, (row, size) in enumerate(zip(indices, shape)):
        low, high = int(row.min()), int(row.max())
        if low < 0 or high >= size:
            raise DimError(
                f"{call}: place {low if low < 0 else high} is outside of dim {dim}, whose size is {size}"
            )


# ---- constructors ------------------------------------------------------------------------------------------
def _as_places(x: Any, layout: Layout) -> Tensor:
    """Places as int64: in COO of bools and of floats that are whole numbers, too, as PyTorch takes them."""
    found = as_tensor(x)
    whole = layout is sparse_coo and not found.dtype.is_complex and bool((found._data % 1 == 0).all())
    if whole or not found.numel() and not isinstance(x, Tensor):
        found = found.to(int64)
    if found.dtype.category != "int":
        raise DTypeError("a sparse tensor's places must be integers", f"places: {found._meta}")
    return found.detach().to(int64)


def _made(
    layout: Layout, places: tuple[Any, ...], values: Any, size: Any, dtype: DType | None, device: Any,
    requires_grad: bool, coalesced: bool,
) -> Sparse:  # fmt: skip
    if gpus := [x.device for x in (*places, values) if isinstance(x, Tensor) and x.is_cuda]:
        raise DeviceError(
            f"{layout.name}_tensor: there are no sparse tensors on a GPU yet, and a part is on {gpus[0]}",
            "make it of x.cpu()",
        )
    require_cpu(device)
    where = tuple([_as_places(x, layout) for x in places])
    given = as_tensor(values) if dtype is None else as_tensor(values, dtype=dtype)
    if isinstance(given, Compound):
        raise NoArray(f"{layout.name}_tensor: the values of a sparse tensor are dense", "use x.values()")
    if size is None:
        size = _least(layout, where, given)
    shape = tuple(size) if isinstance(size, (tuple, list)) else size
    check(layout, where, given, shape)
    if requires_grad:
        given = given.detach().requires_grad_()
    elif given.requires_grad:
        given = given.view_as(given)  # so that what is made is no leaf
    return sparse_of(layout, where, given, shape, coalesced)


def _least(layout: Layout, places: tuple[Tensor, ...], values: Tensor) -> tuple[int, ...]:
    """The least size that has all places."""

    def reach(array: np.ndarray) -> list[int]:
        if not array.shape[1]:
            return [0] * len(array)
        return [max(int(row.max()) + 1, 0) for row in array]

    if layout is sparse_coo:
        if places[0].ndim != 2:
            raise ShapeError(
                "sparse_coo_tensor: indices must be [sparse dims, n]", f"indices: {places[0]._meta}"
            )
        return (*reach(places[0]._data), *values.shape[1:])
    across = reach(places[1]._data.reshape(1, -1))[0]
    lines = max(places[0].numel() - 1, 0)
    return (*((lines, across) if layout is sparse_csr else (across, lines)), *values.shape[1:])


def sparse_coo_tensor(
    indices: Any = None, values: Any = None, size: Any = None, *, dtype: DType | None = None,
    device: Any = None, pin_memory: bool = False, requires_grad: bool = False,
    check_invariants: bool | None = None, is_coalesced: bool | None = None,
) -> Sparse:  # fmt: skip
    """A sparse tensor of places and values: indices int[sparse dims, n], values [n, *dense dims].

    size: the least that has all places unless given; sparse_coo_tensor(size) alone is empty.  A place that
    comes several times holds the sum.  is_coalesced: they ascend and come once each.  Places are checked
    always.  Raises ShapeError, DTypeError, DimError.
    """
    if indices is None and values is None and size is None:
        raise ArgumentError("sparse_coo_tensor(indices, values, size): needs places or a size")
    if values is None and (indices is None) is not (size is None):
        shape = tuple(indices if size is None else size)
        empty = ops.zeros(0, dtype=dtype)
        return _made(
            sparse_coo,
            (np.zeros((len(shape), 0), np.int64),),
            empty,
            shape,
            dtype,
            device,
            requires_grad,
            True,
        )
    if indices is None:
        raise ArgumentError("sparse_coo_tensor(indices, values, size): indices are missing")
    if values is None and not isinstance(indices, (Tensor, np.ndarray)) and isinstance(size, (tuple, list)):
        raise ArgumentError("sparse_coo_tensor(indices, values, size): values are missing")
    made = _made(sparse_coo, (indices,), values, size, dtype, device, requires_grad, bool(is_coalesced))
    if is_coalesced:
        flat = flattened(coordinates(made), made.shape[: dims_of(made)])
        if (np.diff(flat) <= 0).any():
            raise ArgumentValueError(
                "sparse_coo_tensor(is_coalesced=True): places must ascend and come once each"
            )
    return made


def old_coo(dtype: DType, args: Sequence[Any], device: Any = None) -> Sparse:
    """PyTorch's old constructor: (indices, values[, size]), or an empty tensor of a size, of `dtype`.

    Values keep their dtype.  Raises ArgumentError for anything else.
    """
    if 2 <= len(args) <= 3 and all(isinstance(x, Tensor) for x in args[:2]):
        return sparse_coo_tensor(*args, device=device)
    sizes = args[0] if len(args) == 1 and isinstance(args[0], Size) else args or (0,)
    if not all(type(size) is int for size in sizes):
        raise ArgumentError(
            "a sparse tensor is made of (indices, values), (indices, values, size), sizes or a Size",
            "lamina.sparse_coo_tensor(indices, values) takes lists, too",
        )
    return sparse_coo_tensor(sizes, dtype=dtype, device=device)


def sparse_csr_tensor(
    crow_indices: Any, col_indices: Any, values: Any, size: Any = None, *, dtype: DType | None = None,
    device: Any = None, pin_memory: bool = False, requires_grad: bool = False,
    check_invariants: bool | None = None,
) -> Sparse:  # fmt: skip
    """A sparse matrix by rows: crow_indices int[rows + 1] say where each begins among col_indices and values.

    size: the least that has all columns unless given.  Columns ascend within each row.  Raises ShapeError,
    DTypeError, DimError, ArgumentValueError.
    """
    parts = (crow_indices, col_indices)
    return _made(sparse_csr, parts, values, size, dtype, device, requires_grad, True)


def sparse_csc_tensor(
    ccol_indices: Any, row_indices: Any, values: Any, size: Any = None, *, dtype: DType | None = None,
    device: Any = None, pin_memory: bool = False, requires_grad: bool = False,
    check_invariants: bool | None = None,
) -> Sparse:  # fmt: skip
    """`sparse_csr_tensor` by columns."""
    parts = (ccol_indices, row_indices)
    return _made(sparse_csc, parts, values, size, dtype, device, requires_grad, True)


def sparse_compressed_tensor(
    compressed_indices: Any, plain_indices: Any, values: Any, size: Any = None, *, dtype: DType | None = None,
    layout: Any = None, device: Any = None, pin_memory: bool = False, requires_grad: bool = False,
    check_invariants: bool | None = None,
) -> Sparse:  # fmt: skip
    """`sparse_csr_tensor` or `sparse_csc_tensor`, as `layout` says.  Raises ArgumentValueError for others."""
    if layout not in COMPRESSED:
        raise ArgumentValueError(
            f"sparse_compressed_tensor(layout): lamina.sparse_csr or lamina.sparse_csc, not {layout!r}"
        )
    kind = sparse_csr if layout == sparse_csr else sparse_csc
    parts = (compressed_indices, plain_indices)
    return _made(kind, parts, values, size, dtype, device, requires_grad, True)
