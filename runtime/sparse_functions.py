"""What there is for sparse tensors besides ops: methods of every tensor, and the functions of lamina.sparse.

Importing this module hangs the methods on `Tensor`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..ir.dtypes import DType
from ..ir.errors import ArgumentError, ArgumentValueError, DTypeError, ShapeError
from . import ops, printing, sparse_rules
from .compound import Compound, NoArray
from .layouts import LAYOUTS, Layout, sparse_coo, sparse_csc, sparse_csr
from .modes import _Mode
from .refusal import refusing, refusing_names
from .sparse_tensor import (
    COMPRESSED,
    Sparse,
    coalesced,
    coo_of,
    coordinates,
    densified,
    dims_of,
    is_ascending,
    numbers,
    to_compressed,
    to_layout,
)
from .tensor import Parameter, Tensor


# ---- methods -----------------------------------------------------------------------------------------------
def _layout(value: Any, call: str) -> Layout:
    found = LAYOUTS.get(value) if isinstance(value, str) else None
    if found is None:
        raise ArgumentValueError(
            f"{call}: no such layout: {value!r}", f"known: {', '.join(map(repr, LAYOUTS.values()))}"
        )
    return found


def to_sparse(
    self: Tensor, sparse_dim: int | None = None, *, layout: Any = None, blocksize: Any = None,
    dense_dim: int | None = None,
) -> Tensor:  # fmt: skip
    """The same tensor in a sparse layout, COO unless `layout` says another.

    sparse_dim: how many dims are sparse, all unless given; those behind them stay dense.  Raises ShapeError,
    ArgumentValueError.
    """
    if blocksize is not None:
        raise ArgumentValueError("to_sparse(blocksize): blocks are not built", "use layout=lamina.sparse_csr")
    if sparse_dim is not None and type(sparse_dim) is not int:
        raise ArgumentError(f"to_sparse(sparse_dim): must be an int, not {type(sparse_dim).__name__}")
    if isinstance(self, Compound) and not isinstance(self, Sparse):
        raise NoArray(f"to_sparse: a {self.what} tensor has no sparse form", self.remedy)
    wanted = sparse_coo if layout is None else _layout(layout, "to_sparse(layout)")
    return to_layout(self, wanted, sparse_dim, _count("to_sparse", dense_dim))


def _count(call: str, dims: Any) -> int | None:
    if dims is not None and (type(dims) is not int or dims < 0):
        raise ArgumentValueError(f"{call}(dense_dim): must be a number of dims, not {dims!r}")
    return dims


def to_sparse_coo(self: Tensor) -> Tensor:
    """The same tensor in COO."""
    return to_sparse(self)


def to_sparse_csr(self: Tensor, dense_dim: int | None = None) -> Tensor:
    """The same matrix by rows.  Raises ShapeError."""
    return to_sparse(self, layout=sparse_csr, dense_dim=dense_dim)


def to_sparse_csc(self: Tensor, dense_dim: int | None = None) -> Tensor:
    """The same matrix by columns.  Raises ShapeError."""
    return to_sparse(self, layout=sparse_csc, dense_dim=dense_dim)


def to_dense(self: Tensor, dtype: DType | None = None, *, masked_grad: bool | None = None) -> Tensor:
    """The ordinary tensor with the same elements; its gradient is asked for where something is stored."""
    found = densified(self) if isinstance(self, Sparse) else self
    return found if dtype is None else found.to(dtype)


def _sparse(x: Any, call: str, *layouts: Layout) -> Sparse:
    if not isinstance(x, Sparse) or layouts and x._layout not in layouts:
        known = " or ".join(layouts) or "sparse"
        raise ShapeError(
            f"{call}: a {known} tensor is needed, not {getattr(x, 'layout', type(x).__name__)}",
            "x.to_sparse() makes one",
        )
    return x


def coalesce(self: Tensor) -> Tensor:
    """The same COO tensor with each place once, in row order, holding the sum of what stood there."""
    return coalesced(_sparse(self, "coalesce", sparse_coo))


def is_coalesced(self: Tensor) -> bool:
    """Whether no place comes twice, and they ascend, as `coalesce` leaves them."""
    return _sparse(self, "is_coalesced", sparse_coo)._coalesced


def _coalesced_(self: Tensor, coalesced: bool) -> Tensor:
    """Say of this COO tensor that it is coalesced, or not.  Raises ShapeError where it can't be."""
    x = _sparse(self, "_coalesced_", sparse_coo)
    if coalesced and not is_ascending(x):
        raise ShapeError(
            "_coalesced_(True): places must ascend and come once each", f"tensor: {x._meta}", "x.coalesce()"
        )
    x._coalesced = bool(coalesced)
    return x


def _once(x: Any, call: str, *layouts: Layout) -> Sparse:
    found = _sparse(x, call, *layouts)
    if not found._coalesced:
        raise ShapeError(
            f"{call}: the tensor is not coalesced", f"tensor: {found._meta}", f"x.coalesce().{call}()"
        )
    return found


def indices(self: Tensor) -> Tensor:
    """The places of a coalesced COO tensor: int64[sparse dims, n].  Raises ShapeError."""
    return _once(self, "indices", sparse_coo)._places[0]


def values(self: Tensor) -> Tensor:
    """The elements that a coalesced sparse tensor stores: [n, *dense dims].  Raises ShapeError."""
    return _aliased(_once(self, "values"))


def _aliased(x: Sparse) -> Tensor:
    held = x._stored
    return held.view_as(held) if held.requires_grad else held.detach()


def _indices(self: Tensor) -> Tensor:
    """The places of a COO tensor as they are, coalesced or not."""
    return _sparse(self, "_indices", sparse_coo)._places[0]


def _values(self: Tensor) -> Tensor:
    """The elements that a sparse tensor stores as they are, coalesced or not."""
    return _aliased(_sparse(self, "_values"))


def _nnz(self: Tensor) -> int:
    """How many elements are stored."""
    return _sparse(self, "_nnz")._stored.shape[0]


def crow_indices(self: Tensor) -> Tensor:
    """Where each row of a CSR matrix begins: int64[rows + 1]."""
    return _sparse(self, "crow_indices", sparse_csr)._places[0]


def col_indices(self: Tensor) -> Tensor:
    """The column of each element of a CSR matrix."""
    return _sparse(self, "col_indices", sparse_csr)._places[1]


def ccol_indices(self: Tensor) -> Tensor:
    """Where each column of a CSC matrix begins: int64[columns + 1]."""
    return _sparse(self, "ccol_indices", sparse_csc)._places[0]


def row_indices(self: Tensor) -> Tensor:
    """The row of each element of a CSC matrix."""
    return _sparse(self, "row_indices", sparse_csc)._places[1]


def sparse_dim(self: Tensor) -> int:
    """How many dims are sparse: 0 of an ordinary tensor."""
    return dims_of(self) if isinstance(self, Sparse) else 0


def dense_dim(self: Tensor) -> int:
    """How many dims are dense: all of an ordinary tensor."""
    return self.ndim - sparse_dim(self)


def sparse_mask(self: Tensor, mask: Tensor) -> Tensor:
    """The elements of this tensor at the places of the sparse `mask`.  Raises ShapeError."""
    return sparse_rules.masked(self, _sparse(mask, "sparse_mask"))


def sparse_resize_(self: Tensor, size: Sequence[int], sparse_dim: int, dense_dim: int) -> Tensor:
    """Change the sizes in place; what stores something can only grow.  Raises ArgumentValueError."""
    x = _sparse(self, "sparse_resize_", sparse_coo)
    x._take(sparse_rules.resized(x, size, sparse_dim, dense_dim, False))
    return x


def sparse_resize_and_clear_(self: Tensor, size: Sequence[int], sparse_dim: int, dense_dim: int) -> Tensor:
    """Change the sizes in place, and drop all elements."""
    x = _sparse(self, "sparse_resize_and_clear_", sparse_coo)
    x._take(sparse_rules.resized(x, size, sparse_dim, dense_dim, True))
    return x


def resize_as_sparse_(self: Tensor, the_template: Tensor) -> Tensor:
    """Give this sparse tensor the sizes of another, in place."""
    like = _sparse(the_template, "resize_as_sparse_")
    return sparse_resize_(self, tuple(like.shape), dims_of(like), like.ndim - dims_of(like))


def spelled(x: Sparse) -> str:
    """The tensor as text, as PyTorch prints it."""
    names = {
        sparse_coo: ("indices",), sparse_csr: ("crow_indices", "col_indices"),
        sparse_csc: ("ccol_indices", "row_indices"),
    }[x._layout]  # fmt: skip
    parts = dict(zip(names, x._places)) | {"values": x._stored.detach()}
    notes = [f"size={tuple(x.shape)}", f"nnz={_nnz(x)}"]
    return printing.spelled_parts(x, parts, notes, x._layout, x._layout is sparse_coo)


METHODS: tuple[Callable, ...] = (
    to_sparse, to_sparse_coo, to_sparse_csr, to_sparse_csc, to_dense, coalesce, is_coalesced, _coalesced_,
    indices, values, _indices, _values, _nnz, crow_indices, col_indices, ccol_indices, row_indices,
    sparse_dim, dense_dim, sparse_mask, sparse_resize_, sparse_resize_and_clear_, resize_as_sparse_,
)  # fmt: skip


# ---- functions ---------------------------------------------------------------------------------------------
_REDUCTIONS = {  # amax and amin by their older names too
    "sum": "sum", "mean": "mean", "amax": "amax", "amin": "amin", "max": "amax", "min": "amin"
}  # fmt: skip


def mm(mat1: Tensor, mat2: Tensor, reduce: str = "sum") -> Tensor:
    """The product of a sparse matrix with a dense or a sparse one, either of them with gradients.

    Shapes: [n, m], [m, k] -> [n, k], sparse where both are.  reduce: "sum"; of a CSR matrix with a dense one
    also
    "mean", "amax" and "amin" of the elements' products.  Raises ShapeError, DTypeError, ArgumentValueError.
    """
    if not any(isinstance(x, Sparse) for x in (mat1, mat2)):
        raise ShapeError("sparse.mm: one operand must be sparse", "lamina.mm takes dense ones")
    if reduce == "sum":
        return ops.mm(mat1, mat2)
    if reduce not in _REDUCTIONS:
        raise ArgumentValueError(f"sparse.mm(reduce): must be one of {list(_REDUCTIONS)}, not {reduce!r}")
    x = _sparse(mat1, "sparse.mm(reduce)", sparse_csr)
    if isinstance(mat2, Compound) or x.ndim != 2 or mat2.ndim != 2 or x.shape[1] != mat2.shape[0]:
        raise ShapeError(
            "sparse.mm(reduce): takes a CSR matrix and a dense one that fit", f"{x._meta}", f"{mat2._meta}"
        )
    rows, columns = coordinates(x)
    parts = x._stored.unsqueeze(1) * mat2.index_select(0, numbers(columns))
    zeros = ops.zeros(x.shape[0], mat2.shape[1], dtype=parts.dtype)
    at = numbers(rows).unsqueeze(1).expand(parts.shape)
    return zeros.scatter_reduce(0, at, parts, _REDUCTIONS[reduce], include_self=False)


def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1.0, alpha: float = 1.0) -> Tensor:
    """beta * input + alpha * (mat1 @ mat2), of which mat1 is sparse.

    Shapes: [n, k], [n, m], [m, k] -> [n, k].
    """
    return ops.addmm(input, mat1, mat2, beta=beta, alpha=alpha)


def sum(input: Tensor, dim: Any = None, dtype: DType | None = None) -> Tensor:
    """The sum over dims of a sparse tensor: dense where no sparse dim is left, sparse otherwise."""
    x = _sparse(input, "sparse.sum")
    return ops.sum(x, dtype=dtype) if dim is None else ops.sum(x, dim, dtype=dtype)


def softmax(input: Tensor, dim: int, *, dtype: DType | None = None) -> Tensor:
    """The softmax over what is stored along a dim: what is not counts as -inf."""
    return ops.softmax(_sparse(input, "sparse.softmax", sparse_coo), dim, dtype=dtype)


def log_softmax(input: Tensor, dim: int, *, dtype: DType | None = None) -> Tensor:
    """The logarithm of `softmax`."""
    return ops.log_softmax(_sparse(input, "sparse.log_softmax", sparse_coo), dim, dtype=dtype)


def sampled_addmm(
    input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1.0, alpha: float = 1.0, out: Any = None
) -> Tensor:
    """alpha * (mat1 @ mat2) at the places of the CSR matrix `input`, and beta times what that holds.

    Shapes: [n, k], [n, m], [m, k] -> [n, k].  Raises ShapeError, DTypeError.
    """
    x = _sparse(input, "sampled_addmm", sparse_csr)
    fits = x.ndim == mat1.ndim == mat2.ndim == 2 and mat1.shape[1] == mat2.shape[0]
    if not fits or (mat1.shape[0], mat2.shape[1]) != tuple(x.shape):
        raise ShapeError(
            "sampled_addmm: [n, k], [n, m] and [m, k] are needed",
            f"{x._meta}",
            f"{mat1._meta}",
            f"{mat2._meta}",
        )
    if not (x.dtype is mat1.dtype is mat2.dtype):
        raise DTypeError("sampled_addmm: one dtype is needed", f"{x._meta}", f"{mat1._meta}", f"{mat2._meta}")
    rows, columns = map(numbers, coordinates(x))
    products = (mat1.index_select(0, rows) * mat2.t().index_select(0, columns)).sum(1) * alpha
    found = x._with(products if beta == 0 else products + x._stored * beta)
    if out is None:
        return found
    _sparse(out, "sampled_addmm(out)", sparse_csr)._take(found)
    return out


def spdiags(diagonals: Tensor, offsets: Tensor, shape: Sequence[int], layout: Any = None) -> Tensor:
    """The sparse matrix whose diagonals are the rows of `diagonals`, by offset: column j holds element j.

    Shapes: [d, m], int[d] -> shape; one diagonal may be given as [m] and 0-d.  Raises ShapeError, DTypeError.
    """
    rows, at = (diagonals, offsets) if diagonals.ndim == 2 else (diagonals.unsqueeze(0), offsets.reshape(-1))
    if rows.ndim != 2 or at.ndim != 1 or at.shape[0] != rows.shape[0] or len(shape) != 2:
        raise ShapeError(
            "spdiags: [d, m] diagonals need [d] offsets and a shape of two",
            f"{diagonals._meta}",
            f"{offsets._meta}",
        )
    if at.dtype.category != "int":
        raise DTypeError("spdiags: offsets must be integers", f"offsets: {at._meta}")
    wanted = sparse_coo if layout is None else _layout(layout, "spdiags(layout)")
    if wanted not in (sparse_coo, *COMPRESSED):
        raise ArgumentValueError(f"spdiags(layout): a sparse layout is needed, not {layout!r}")
    numbers_ = at._data.astype(np.int64)
    if len(np.unique(numbers_)) != len(numbers_):
        raise ArgumentValueError("spdiags: an offset comes twice")
    which = np.repeat(np.arange(len(numbers_)), rows.shape[1])
    column = np.tile(np.arange(rows.shape[1]), len(numbers_))
    row = column - numbers_[which]
    inside = (row >= 0) & (row < shape[0]) & (column < shape[1])
    held = rows[numbers(which[inside]), numbers(column[inside])]
    found = coo_of(np.stack((row[inside], column[inside])), held, tuple(shape), False)
    return found if wanted is sparse_coo else to_compressed(found, wanted)


def hspmm(mat1: Tensor, mat2: Tensor) -> Tensor:
    """The product of a sparse and a dense matrix, with the rows that hold something as one sparse dim."""
    dense = ops.mm(_sparse(mat1, "hspmm", sparse_coo), mat2)
    rows = np.unique(coordinates(mat1)[0])
    return coo_of(rows[None], dense.index_select(0, numbers(rows)), tuple(dense.shape), True)


def smm(input: Tensor, mat2: Tensor) -> Tensor:
    """The product of a sparse and a dense matrix, as a sparse one."""
    return to_sparse(ops.mm(_sparse(input, "smm"), mat2))


def sspaddmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1.0, alpha: float = 1.0) -> Tensor:
    """beta * input + alpha * (mat1 @ mat2), of which mat2 alone is dense, as a sparse matrix."""
    return _sparse(input, "sspaddmm") * beta + smm(mat1, mat2) * alpha


class check_sparse_tensor_invariants(_Mode):
    """Whether places are checked where a sparse tensor is made.  They always are: this changes nothing."""

    _changes: dict[str, Any] = {}
    _enabled = True

    def __init__(self, enable: bool = True):
        self._wanted = bool(enable)

    def clone(self) -> check_sparse_tensor_invariants:
        return type(self)(self._wanted)

    @staticmethod
    def is_enabled() -> bool:
        """True: places are checked always."""
        return True

    @staticmethod
    def enable() -> None:
        """Nothing to do: places are checked always."""

    @staticmethod
    def disable() -> None:
        """Nothing to do: places are checked always, which takes a look at each."""


refusing_names(globals(), "lamina.runtime.sparse_functions", tuple(f.__name__ for f in METHODS))
for _method in METHODS:
    setattr(Tensor, _method.__name__, refusing(_method, _method.__name__))


def _repr(self: Sparse) -> str:
    return f"Parameter containing:\n{spelled(self)}" if isinstance(self, Parameter) else spelled(self)


setattr(Sparse, "__repr__", _repr)  # noqa: B010
