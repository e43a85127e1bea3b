"""What ops do on sparse tensors, by the names of their records.

Each rule says which places the result has, in NumPy, and makes its values by ordinary ops on those of the
operands.
Importing this module fills `Sparse.rules`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from ..ir.dtypes import int64
from ..ir.errors import ArgumentValueError, DimError, DTypeError, ShapeError
from ..ir.shapes import broadcast_shapes, result_dtype
from . import ops
from .compound import Compound, entering
from .layouts import sparse_coo, sparse_csc, sparse_csr
from .sparse_tensor import (
    Sparse,
    coalesced,
    coo_of,
    coordinates,
    densified,
    dims_of,
    flattened,
    numbers,
    picked,
    sparse_of,
    summed,
    to_compressed,
    to_coo,
    unflattened,
)
from .tensor import Tensor, tensor_of

RULES = Sparse.rules
rule = entering(RULES)


# ---- element by element ------------------------------------------------------------------------------------
# f(0) = 0.  Those of the first row are done on each element, so that places that come twice may stay so.
_LINEAR = ("neg", "real", "imag", "conj_physical", "cast")
_ZERO_AT_ZERO = (
    "abs", "angle", "asin", "asinh", "atan", "atanh", "ceil", "deg2rad", "erf", "erfinv",
    "expm1", "floor", "frac", "isinf",
    "isnan", "isneginf", "isposinf", "log1p", "rad2deg", "relu", "round", "sgn", "sign", "signbit",
    "sin", "sinh", "sqrt",
    "square", "tan", "tanh", "trunc",
)  # fmt: skip


def _on_values(name: str, linear: bool) -> Callable:
    def apply(x: Sparse, **attrs: Any) -> Any:
        if not linear:
            x = coalesced(x)
        if name == "cast":
            return x._with(x._stored.to(attrs["dtype"]))
        return x._with(ops.FUNCTIONS[name](x._stored, **attrs))

    return apply


RULES.update({name: _on_values(name, name in _LINEAR) for name in (*_LINEAR, *_ZERO_AT_ZERO)})


@rule("clone")
def _clone(x: Sparse, **_: Any) -> Sparse:
    places = tuple(place.clone() for place in x._places)
    return sparse_of(x._layout, places, x._stored.clone(), x.shape, x._coalesced)


@rule("zeros_like", "empty_like")
def _empty(x: Sparse, dtype: Any = None, **_: Any) -> Sparse:
    return nothing(x, x.shape, dtype)


def nothing(x: Sparse, shape: Sequence[int], dtype: Any = None) -> Sparse:
    """A tensor of a shape that stores nothing, with the layout and the sparse dims of another."""
    dims = dims_of(x)
    values = ops.zeros(0, *shape[dims:], dtype=dtype or x.dtype)
    made = coo_of(np.zeros((dims, 0), np.int64), values, shape, True)
    return made if x._layout is sparse_coo else to_compressed(made, x._layout)


@rule("fill")
def _fill(x: Sparse, value: Any, **_: Any) -> Any:
    if isinstance(value, Tensor) or value:
        return NotImplemented
    return nothing(x, x.shape)


@rule("copy")
def _copy(x: Tensor, src: Tensor, **_: Any) -> Any:
    if not isinstance(x, Sparse):
        return (
            densified(src).to(x.dtype).expand(tuple(x.shape)) if isinstance(src, Sparse) else NotImplemented
        )
    if not isinstance(src, Sparse):
        return NotImplemented
    if src.shape != x.shape:
        raise ShapeError(
            "copy_: sparse tensors are copied without broadcasting", f"to: {x._meta}", f"from: {src._meta}"
        )
    return _clone(as_layout(src, x)).to(x.dtype)


def as_layout(x: Sparse, like: Sparse) -> Sparse:
    """The tensor in the layout of another."""
    return to_coo(x) if like._layout is sparse_coo else to_compressed(x, like._layout)


# ---- two operands ------------------------------------------------------------------------------------------
def _sum_of(a: Tensor, b: Tensor, sign: int) -> Any:
    if not isinstance(a, Sparse) or not isinstance(b, Sparse):
        sparse, dense = (a, b) if isinstance(a, Sparse) else (b, a)
        if isinstance(dense, Compound) or not dense.ndim and sparse.ndim:
            return NotImplemented
        x, y = (densified(t) if isinstance(t, Sparse) else t for t in (a, b))
        return x + y if sign > 0 else x - y
    if a.shape != b.shape:
        raise ShapeError(
            "add: sparse tensors are added without broadcasting", f"input: {a._meta}", f"other: {b._meta}"
        )
    x, y = to_coo(a), to_coo(b)
    if dims_of(x) != dims_of(y):
        raise ShapeError(
            "add: sparse tensors must have as many sparse dims", f"input: {a._meta}", f"other: {b._meta}"
        )
    second = y._stored if sign > 0 else -y._stored
    if x._stored.dtype is not second.dtype:
        kind = result_dtype(x._stored._meta, second._meta)
        x, second = x._with(x._stored.to(kind)), second.to(kind)
    places = np.concatenate((coordinates(x), coordinates(y)), axis=1)
    found = coo_of(places, ops.cat((x._stored, second)), a.shape, False)
    # As PyTorch's: what has places twice is not put in order by adding to it, as gradients add up.
    return as_layout(coalesced(found) if x._coalesced and y._coalesced else found, a)


RULES["add"] = lambda a, b: _sum_of(a, b, 1)
RULES["sub"] = lambda a, b: _sum_of(a, b, -1)


@rule("mul")
def _mul(a: Tensor, b: Tensor) -> Any:
    if isinstance(a, Sparse) and isinstance(b, Sparse):
        return _common(a, b)
    sparse, dense = (a, b) if isinstance(a, Sparse) else (b, a)
    if isinstance(dense, Compound) or not isinstance(sparse, Sparse):
        return NotImplemented
    if dense.numel() == 1 and dense.ndim <= sparse.ndim:
        values = dense.reshape(())
        return sparse._with(sparse._stored * values)
    if broadcast_shapes("mul", sparse.shape, dense.shape) != tuple(sparse.shape):
        raise ShapeError(
            "mul: the sparse operand is not broadcast", f"sparse: {sparse._meta}", f"dense: {dense._meta}"
        )
    sparse = coalesced(sparse)
    factors = picked(dense.expand(tuple(sparse.shape)), coordinates(sparse))
    return sparse._with(sparse._stored * factors)


def _common(a: Sparse, b: Sparse) -> Sparse:
    """The product of two sparse tensors: where both store something."""
    if a.shape != b.shape:
        raise ShapeError(
            "mul: sparse tensors are multiplied without broadcasting", f"{a._meta}", f"{b._meta}"
        )
    x, y = coalesced(to_coo(a)), coalesced(to_coo(b))
    if dims_of(x) != dims_of(y):
        raise ShapeError("mul: sparse tensors must have as many sparse dims", f"{a._meta}", f"{b._meta}")
    shape = x.shape[: dims_of(x)]
    flats = [flattened(coordinates(t), shape) for t in (x, y)]
    found, at, other = np.intersect1d(*flats, assume_unique=True, return_indices=True)
    values = x._stored.index_select(0, numbers(at)) * y._stored.index_select(0, numbers(other))
    return as_layout(coo_of(unflattened(found, shape), values, x.shape, True), a)


def _by_number(name: str, linear: bool) -> Callable:
    def apply(a: Tensor, b: Tensor) -> Any:
        if not isinstance(a, Sparse) or isinstance(b, Compound) or b.numel() != 1 or b.ndim > a.ndim:
            return NotImplemented
        x, number = a if linear else coalesced(a), b.reshape(())
        if name == "pow" and not float(number.real if number.dtype.is_complex else number) > 0:
            return NotImplemented  # 0 ** 0 is 1
        return x._with(ops.FUNCTIONS[name](x._stored, number))

    return apply


RULES.update(
    {
        name: _by_number(name, name == "div")
        for name in ("div", "floor_divide", "trunc_divide", "pow", "remainder", "fmod")
    }
)


# ---- products ----------------------------------------------------------------------------------------------
def product(places: np.ndarray, values: Tensor, dense: Tensor, rows: int) -> Tensor:
    """The product of a matrix of these elements with a dense one [columns, k]: [rows, k]."""
    parts = values.unsqueeze(1) * dense.index_select(0, numbers(places[1]))
    return summed(parts, places[0], rows)


def _same_dtype(a: Tensor, b: Tensor) -> None:
    if a.dtype is not b.dtype:
        raise DTypeError("matmul: the operands must have one dtype", f"a: {a._meta}", f"b: {b._meta}")


@rule("matmul")
def _matmul(a: Tensor, b: Tensor) -> Any:
    _same_dtype(a, b)
    for x in (a, b):
        if isinstance(x, Compound) and (not isinstance(x, Sparse) or x._stored.ndim != 1):
            return NotImplemented
    if isinstance(a, Sparse) and isinstance(b, Sparse):
        return _of_sparse(a, b) if a.ndim == b.ndim == 2 else NotImplemented
    if isinstance(b, Sparse):
        if b.ndim != 2:
            return NotImplemented
        rows = a.reshape(-1, a.shape[-1])
        flipped = coordinates(b)[::-1]
        found = product(flipped, b._stored, rows.t(), b.shape[1]).t()
        return found.reshape(*a.shape[:-1], b.shape[1])
    assert isinstance(a, Sparse)
    if a.ndim == 3 and b.ndim == 3:
        return _batched(a, b)
    if a.ndim != 2 or b.ndim > 2:
        return NotImplemented
    columns = b if b.ndim == 2 else b.unsqueeze(1)
    found = product(coordinates(a), a._stored, columns, a.shape[0])
    return found if b.ndim == 2 else found.squeeze(1)


def _batched(a: Sparse, b: Tensor) -> Any:
    count, rows, inner = a.shape
    if b.shape[0] != count:
        return NotImplemented
    batch, row, column = coordinates(a)
    places = np.stack((batch * rows + row, batch * inner + column))
    found = product(places, a._stored, b.reshape(count * inner, b.shape[2]), count * rows)
    return found.reshape(count, rows, b.shape[2])


def _of_sparse(a: Sparse, b: Sparse) -> Sparse:
    """The product of two sparse matrices: every element of `a` with each of the row of `b` that it meets."""
    x, y = coordinates(a), to_compressed(b, sparse_csr)
    starts = y._places[0]._data
    counts = np.diff(starts)[x[1]]
    left = np.repeat(np.arange(x.shape[1]), counts)
    within = np.arange(len(left)) - np.repeat(np.cumsum(counts) - counts, counts)
    right = starts[x[1]][left] + within
    values = a._stored.index_select(0, numbers(left)) * y._stored.index_select(0, numbers(right))
    places = np.stack((x[0][left], y._places[1]._data[right]))
    found = coalesced(coo_of(places, values, (a.shape[0], b.shape[1]), False))
    return as_layout(found, a)


@rule("linear")
def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    found = ops.matmul(input, transposed(weight, 0, 1) if isinstance(weight, Sparse) else weight.t())
    return found if bias is None else found + bias


# ---- shapes ------------------------------------------------------------------------------------------------
def transposed(x: Sparse, dim0: int, dim1: int) -> Any:
    """The tensor with two dims exchanged."""
    if dim0 == dim1:
        return x
    if x._layout is not sparse_coo:
        other = sparse_csc if x._layout is sparse_csr else sparse_csr
        if {dim0, dim1} != {0, 1}:
            return NotImplemented
        return sparse_of(other, x._places, x._stored, (x.shape[1], x.shape[0], *x.shape[2:]), True)
    order = list(range(x.ndim))
    order[dim0], order[dim1] = dim1, dim0
    return _permuted(x, tuple(order))


RULES["transpose"] = transposed


@rule("permute")
def _permuted(x: Sparse, dims: tuple[int, ...]) -> Any:
    if tuple(dims) == tuple(range(x.ndim)):
        return x
    if x._layout is not sparse_coo:
        return transposed(x, 0, 1) if tuple(dims[:2]) == (1, 0) else NotImplemented
    count = dims_of(x)
    sparse, dense = dims[:count], dims[count:]
    if any(d >= count for d in sparse):
        raise DimError("permute: a sparse dim can't change places with a dense one", f"tensor: {x._meta}")
    values = x._stored.permute(0, *(d - count + 1 for d in dense))
    still = sparse == tuple(range(count))
    shape = tuple(x.shape[d] for d in dims)
    return coo_of(coordinates(x)[list(sparse)], values, shape, x._coalesced and still)


@rule("unsqueeze")
def _unsqueezed(x: Sparse, dim: int) -> Any:
    if x._layout is not sparse_coo:
        return NotImplemented
    count, shape = dims_of(x), (*x.shape[:dim], 1, *x.shape[dim:])
    if dim > count:
        return sparse_of(sparse_coo, x._places, x._stored.unsqueeze(dim - count + 1), shape, x._coalesced)
    return coo_of(np.insert(coordinates(x), dim, 0, axis=0), x._stored, shape, x._coalesced)


@rule("squeeze")
def _squeezed(x: Sparse, dim: Any) -> Any:
    if x._layout is not sparse_coo:
        return NotImplemented
    count = dims_of(x)
    dims = range(x.ndim) if dim is None else dim if isinstance(dim, tuple) else (dim,)
    gone = {d for d in dims if x.shape[d] == 1}
    values = x._stored.squeeze(tuple(d - count + 1 for d in gone if d >= count)) if gone else x._stored
    kept = [d for d in range(count) if d not in gone]
    shape = [n for d, n in enumerate(x.shape) if d not in gone]
    return coo_of(coordinates(x)[kept], values, shape, x._coalesced)


@rule("basic_index")
def _indexed(x: Sparse, index: tuple) -> Any:
    found, dim = to_coo(x), 0
    for number, item in enumerate(index):
        if item[0] == "new":
            found = _unsqueezed(found, dim)
        elif item[0] == "slice":
            at = np.arange(*item[1:])
            if not np.array_equal(at, np.arange(found.shape[dim])):
                found = _taken(found, dim, at)
        else:
            found = _selected(found, dim, item[1])
            if not isinstance(found, Sparse):  # no sparse dim is left
                rest = [
                    {"new": None, "int": i[-1], "slice": slice(*i[1:])}[i[0]] for i in index[number + 1 :]
                ]
                return found[tuple(rest)] if rest else found
        dim += item[0] != "int"
    return as_layout(found, x) if x._layout is not sparse_coo and found.ndim == 2 else found


def _selected(x: Sparse, dim: int, at: int) -> Tensor:
    """The slice number `at`: one dim less.  Dense where no sparse dim is left."""
    count, shape = dims_of(x), (*x.shape[:dim], *x.shape[dim + 1 :])
    if dim >= count:
        values = x._stored.select(dim - count + 1, at)
        return sparse_of(sparse_coo, x._places, values, shape, x._coalesced)
    places = coordinates(x)
    kept = np.flatnonzero(places[dim] == at)
    values = x._stored.index_select(0, numbers(kept))
    if count == 1:
        return values.sum(0, dtype=values.dtype)
    return coo_of(np.delete(places[:, kept], dim, axis=0), values, shape, x._coalesced)


@rule("index_select")
def _index_selected(x: Sparse, index: Tensor, dim: int) -> Any:
    at = index._data.reshape(-1).astype(np.int64)
    size = x.shape[dim]
    at = np.where(at < 0, at + size, at)  # as PyTorch counts here, unlike in dense tensors
    if at.size and (at.min() < 0 or at.max() >= size):
        raise DimError(
            f"index_select: an index is outside of dim {dim}, whose size is {size}", f"x: {x._meta}"
        )
    return as_layout(_taken(to_coo(x), dim, at), x)


def _taken(x: Sparse, dim: int, at: np.ndarray) -> Sparse:
    """The slices of a dim at these places, in this order."""
    count, shape = dims_of(x), (*x.shape[:dim], len(at), *x.shape[dim + 1 :])
    if dim >= count:
        values = x._stored.index_select(dim - count + 1, numbers(at))
        return sparse_of(sparse_coo, x._places, values, shape, x._coalesced)
    places = coordinates(x)
    order = np.argsort(places[dim], kind="stable")
    sorted_ = places[dim][order]
    first, last = np.searchsorted(sorted_, at), np.searchsorted(sorted_, at, side="right")
    counts = last - first
    to = np.repeat(np.arange(len(at)), counts)
    source = order[np.repeat(first - (np.cumsum(counts) - counts), counts) + np.arange(len(to))]
    made = places[:, source]
    made[dim] = to
    found = coo_of(made, x._stored.index_select(0, numbers(source)), shape, False)
    return coalesced(found) if x._coalesced else found


@rule("cat")
def _joined(*tensors: Tensor, dim: int = 0, **_: Any) -> Any:
    parts = [x for x in tensors if not (x.ndim == 1 and not x.numel() and not isinstance(x, Sparse))]
    if not all(isinstance(x, Sparse) and x._layout is sparse_coo for x in parts):
        return NotImplemented
    count = dims_of(parts[0])
    if any(dims_of(x) != count for x in parts):
        raise ShapeError("cat: sparse tensors must have as many sparse dims")
    shape = list(parts[0].shape)
    shape[dim] = sum(x.shape[dim] for x in parts)
    places, values, passed = [], [], 0
    for x in parts:
        mine, held = coordinates(x).copy(), x._stored
        if dim < count:
            mine[dim] += passed
        else:  # beside what the others hold there
            around = [0, 0] * (x.ndim - dim - 1) + [passed, shape[dim] - passed - x.shape[dim]]
            held = ops.FUNCTIONS["constant_pad_nd"](held, around)
        passed += x.shape[dim]
        places.append(mine)
        values.append(held)
    found = coo_of(np.concatenate(places, axis=1), ops.cat(values), shape, False)
    return coalesced(found) if dim == 0 and all(x._coalesced for x in parts) else found


@rule("stack")
def _stacked(*tensors: Tensor, dim: int = 0, **_: Any) -> Any:
    if not all(isinstance(x, Sparse) and x._layout is sparse_coo for x in tensors):
        return NotImplemented
    return _joined(*(_unsqueezed(x, dim) for x in tensors), dim=dim)


# ---- reductions --------------------------------------------------------------------------------------------
@rule("sum")
def summed_over(x: Sparse, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    """The sum over dims: dense over all of the sparse ones, sparse otherwise."""
    values = x._stored.to(dtype) if dtype is not None else x._stored
    if dtype is None and values.dtype.category in ("int", "bool"):
        values = values.to(int64)
    if dim is None or isinstance(dim, tuple) and not dim:
        return values.sum().reshape((1,) * x.ndim if keepdim else ())
    dims = sorted({d % x.ndim for d in (dim if isinstance(dim, tuple) else (dim,))})
    x = to_coo(x)
    count, places = dims_of(x), coordinates(x)
    dense = [d - count + 1 for d in dims if d >= count]
    if dense:
        values = values.sum(tuple(dense), keepdim=keepdim)
    kept = [d for d in range(count) if d not in dims]
    shape = [1 if d in dims else n for d, n in enumerate(x.shape) if keepdim or d not in dims]
    if not kept and not keepdim:
        return values.sum(0)
    if len(kept) == count:
        return sparse_of(sparse_coo, x._places, values, shape, x._coalesced)
    if keepdim:
        places = places.copy()
        places[[d for d in dims if d < count]] = 0
    else:
        places = places[kept]
    return coalesced(coo_of(places, values, shape, False))


def _softmax(log: bool) -> Callable:
    def apply(x: Sparse, dim: int, dtype: Any = None) -> Any:
        if x._layout is not sparse_coo:
            return NotImplemented
        x = coalesced(x)
        values, count = x._stored.to(dtype) if dtype is not None else x._stored, dims_of(x)
        if not values.dtype.is_floating_point:
            raise DTypeError("softmax: floating numbers are needed", f"x: {x._meta}")
        if dim >= count:
            function = ops.log_softmax if log else ops.softmax
            return x._with(function(values, dim - count + 1))
        places = coordinates(x)
        kept = [d for d in range(count) if d != dim]
        _, group = np.unique(flattened(places[kept], [x.shape[d] for d in kept]), return_inverse=True)
        groups = int(group.max()) + 1 if group.size else 0
        greatest = np.full((groups, *values.shape[1:]), -np.inf, values._data.dtype)
        np.maximum.at(greatest, group, values._data)
        shifted = values - tensor_of(greatest[group])
        total = summed(shifted.exp(), group, groups).index_select(0, numbers(group))
        return x._with(shifted - total.log() if log else shifted.exp() / total)

    return apply


RULES["softmax"], RULES["log_softmax"] = _softmax(False), _softmax(True)


@rule("linalg_vector_norm")
def _norm(x: Sparse, ord: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    every = dim is None or len(dim if isinstance(dim, tuple) else (dim,)) == x.ndim
    if not every or keepdim or not ord > 0:
        return NotImplemented
    return ops.linalg_vector_norm(coalesced(x)._stored, ord, None, False, dtype=dtype)


def masked(x: Tensor, mask: Sparse) -> Sparse:
    """The elements of `x` at the places of `mask`."""
    if x.shape != mask.shape:
        raise ShapeError(
            "sparse_mask: the mask must have the tensor's shape", f"x: {x._meta}", f"mask: {mask._meta}"
        )
    where = coordinates(mask)
    if not isinstance(x, Sparse):
        return mask._with(picked(x, where))
    mine = coalesced(to_coo(x))
    shape = mine.shape[: dims_of(mine)]
    have, want = flattened(coordinates(mine), shape), flattened(where, shape)
    at = np.searchsorted(have, want)
    there = (
        np.flatnonzero((at < len(have)) & (have[np.minimum(at, max(len(have) - 1, 0))] == want))
        if len(have)
        else at[:0]
    )
    taken = mine._stored.index_select(0, numbers(at[there]))
    return mask._with(summed(taken, there, len(want)))


def resized(x: Sparse, size: Sequence[int], sparse_dims: int, dense_dims: int, clear: bool) -> Sparse:
    """The tensor with other sizes, as `sparse_resize_` makes it.  Raises ArgumentValueError."""
    shape = tuple(size)
    if sparse_dims + dense_dims != len(shape):
        raise ArgumentValueError(
            f"sparse_resize_: {sparse_dims} sparse and {dense_dims} dense dims make no size of {len(shape)}"
        )
    if clear or not x._stored.shape[0]:
        values = ops.zeros(0, *shape[sparse_dims:], dtype=x.dtype)
        return coo_of(np.zeros((sparse_dims, 0), np.int64), values, shape, True)
    same = sparse_dims == dims_of(x) and all(n >= m for n, m in zip(shape, x.shape, strict=False))
    if not same or len(shape) != x.ndim:
        raise ArgumentValueError(
            "sparse_resize_: a tensor that stores something can only grow, in as many sparse and dense dims",
            f"tensor: {x._meta}", f"size: {list(shape)}",
        )  # fmt: skip
    grown = ops.zeros(x._stored.shape[0], *shape[sparse_dims:], dtype=x.dtype)
    if prod(x._stored.shape[1:]) != prod(shape[sparse_dims:]):
        grown[tuple(slice(n) for n in x._stored.shape)] = x._stored
    else:
        grown = x._stored
    return sparse_of(sparse_coo, x._places, grown, shape, x._coalesced)
