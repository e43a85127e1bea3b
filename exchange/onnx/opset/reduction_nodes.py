"""Operators that fold the elements along axes into one, keep every step of that, or order them."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, prod

import numpy as np

from ....ir.dtypes import bool_, float64
from ....nn import functional as F
from ....runtime import Tensor, ops
from ..declared import Node, OnnxError
from .registry import Value, as_tensor, axis_of, ints, number, operator

Dims = tuple[int, ...]


def _dims(node: Node, x: Value, axes: Value) -> Dims:
    """The axes that a node names, by an operand or in older opsets an attribute; without any, all or none."""
    named, rank = ints(axes, node.attr("axes", ())), len(x.shape)
    if not named:
        return () if node.attr("noop_with_empty_axes", 0) else tuple(range(rank))
    dims = {axis_of(axis, rank, node) for axis in named}
    if len(dims) < len(named):
        raise OnnxError(f"{node.op}: an axis is named twice: {named}", str(node))
    return tuple(sorted(dims)) if rank else ()


# ---- folds: of a tensor, the dims, which may be none, and whether these stay as ones
def _sum(x: Tensor, dims: Dims, kept: bool) -> Tensor:
    return ops.FUNCTIONS["sum"](x, dims, kept, dtype=x.dtype) if dims else x


def _product(x: Tensor, dims: Dims, kept: bool) -> Tensor:
    for dim in dims[::-1]:
        x = ops.FUNCTIONS["prod"](x, dim, kept, dtype=x.dtype)
    return x


def _mean(x: Tensor, dims: Dims, kept: bool) -> Tensor:
    if x.dtype.is_floating_point:
        return ops.FUNCTIONS["mean"](x, dims, kept) if dims else x
    count = prod(x.shape[dim] for dim in dims)
    if count == 0:
        raise OnnxError(
            f"ReduceMean: of no elements of {x.dtype.name} there is no mean", f"shape: {[*x.shape]}"
        )
    return ops.FUNCTIONS["div"](_sum(x, dims, kept), count, rounding_mode="trunc").to(x.dtype)


def _extremum(name: str) -> Callable[[Tensor, Dims, bool], Tensor]:
    def fold(x: Tensor, dims: Dims, kept: bool) -> Tensor:
        if not dims:
            return x
        if all(x.shape[dim] != 0 for dim in dims):
            return ops.FUNCTIONS[name](x, dims, kept)
        shape = [1 if at in dims else size for at, size in enumerate(x.shape) if kept or at not in dims]
        return x.new_full(shape, _furthest(x, below=name == "amax"))

    return fold


def _furthest(x: Tensor, below: bool) -> float | int | bool:
    """The value of a dtype that no other is below, or above."""
    if x.dtype is bool_:
        return not below
    if x.dtype.is_floating_point:
        return -inf if below else inf
    reach = np.iinfo(x.dtype.numpy)
    return int(reach.min if below else reach.max)


def _norm(order: int) -> Callable[[Tensor, Dims, bool], Tensor]:
    def fold(x: Tensor, dims: Dims, kept: bool) -> Tensor:
        if not dims:
            return ops.FUNCTIONS["abs"](x)
        if x.dtype.is_floating_point:  # whose gradient at 0 is 0
            return ops.FUNCTIONS["linalg_vector_norm"](x, order, dims, kept)
        if order == 1:
            return _sum(ops.FUNCTIONS["abs"](x), dims, kept)
        return ops.FUNCTIONS["sqrt"](_squares(x, dims, kept).to(float64)).to(x.dtype)

    return fold


def _squares(x: Tensor, dims: Dims, kept: bool) -> Tensor:
    return _sum(x * x, dims, kept)


def _log_sum(x: Tensor, dims: Dims, kept: bool) -> Tensor:
    return ops.FUNCTIONS["log"](_sum(x, dims, kept)).to(x.dtype)


def _log_sum_exp(x: Tensor, dims: Dims, kept: bool) -> Tensor:
    return ops.FUNCTIONS["logsumexp"](x, dims, kept).to(x.dtype) if dims else x


FOLDS: dict[str, tuple[Callable[[Tensor, Dims, bool], Tensor], np.ufunc | None]] = {
    "ReduceSum": (_sum, np.add), "ReduceProd": (_product, np.multiply), "ReduceMean": (_mean, None),
    "ReduceMax": (_extremum("amax"), np.maximum), "ReduceMin": (_extremum("amin"), np.minimum),
    "ReduceL1": (_norm(1), None), "ReduceL2": (_norm(2), None), "ReduceSumSquare": (_squares, None),
    "ReduceLogSum": (_log_sum, None), "ReduceLogSumExp": (_log_sum_exp, None),
}  # fmt: skip


def _folded(fold: Callable[[Tensor, Dims, bool], Tensor]) -> Callable[..., Value]:
    def run(node: Node, x: Value, axes: Value = None) -> Value:
        return fold(as_tensor(x), _dims(node, x, axes), bool(node.attr("keepdims", 1)))

    return run


def _folded_host(ufunc: np.ufunc, of_tensors: Callable[..., Value]) -> Callable[..., Value]:
    def run(node: Node, x: np.ndarray, axes: Value = None) -> Value:
        if 0 in x.shape:  # NumPy has no extremum of nothing
            return of_tensors(node, x, axes)
        dims, kept = _dims(node, x, axes), bool(node.attr("keepdims", 1))
        return np.asarray(ufunc.reduce(x, dims, keepdims=kept)).astype(x.dtype)

    return run


for _name, (_fold, _ufunc) in FOLDS.items():
    _run = _folded(_fold)
    operator(_name, raw=True, host=_ufunc and _folded_host(_ufunc, _run))(_run)


# ---- along one axis
@operator("ArgMax", "ArgMin")
def arg_extremum(node: Node, x: Value) -> Value:
    axis, kept = axis_of(node.attr("axis", 0), x.ndim, node), bool(node.attr("keepdims", 1))
    find = ops.FUNCTIONS[node.op.lower()]
    if not node.attr("select_last_index", 0) or not x.ndim:
        return find(x, axis, kept)
    return x.shape[axis] - 1 - find(ops.FUNCTIONS["flip"](x, (axis,)), axis, kept)


def _running(op: str, first: int) -> Callable[..., Value]:
    """Running sums or products.  first: what an exclusive one starts from."""

    def run(node: Node, x: Value, axis: Value) -> Value:
        x = as_tensor(x)
        at = axis_of(number(axis), x.ndim, node)
        turned = (lambda x: ops.FUNCTIONS["flip"](x, (at,))) if node.attr("reverse", 0) else lambda x: x
        found = ops.FUNCTIONS[op](turned(x), at, dtype=x.dtype)
        if node.attr("exclusive", 0) and x.shape[at] != 0:
            start = x.new_full([1 if d == at else n for d, n in enumerate(x.shape)], first)
            found = ops.FUNCTIONS["cat"]((start, found.narrow(at, 0, x.shape[at] - 1)), at)
        return turned(found)

    return run


operator("CumSum", raw=True)(_running("cumsum", 0))
operator("CumProd", raw=True)(_running("cumprod", 1))


@operator("TopK", raw=True)
def top_k(node: Node, x: Value, k: Value = None) -> tuple[Value, ...]:
    x = as_tensor(x)
    axis, count = axis_of(node.attr("axis", -1), x.ndim, node), number(k, node.attr("k"))
    if not x.ndim or count is None or not 0 <= count <= x.shape[axis]:
        raise OnnxError(
            f"TopK: there are not {count} elements along the axis {axis} of {[*x.shape]}", str(node)
        )
    # Of equal elements the first are asked for: `topk` does not say which it takes.
    values, indices = ops.FUNCTIONS["sort"](x, axis, bool(node.attr("largest", 1)), True)
    return values.narrow(axis, 0, count), indices.narrow(axis, 0, count)


def _hardmax(x: Tensor, dim: int) -> Tensor:
    if 0 in x.shape:
        return x
    return ops.FUNCTIONS["scatter"](ops.FUNCTIONS["zeros_like"](x), dim, x.argmax(dim, True), 1)


def _along(function: Callable[[Tensor, int], Tensor]) -> Callable[..., Value]:
    """A function along an axis; before opset 13 along that one and all after it, as if they were one."""

    def run(node: Node, x: Value) -> Value:
        if node.opset >= 13:
            return function(x, axis_of(node.attr("axis", -1), x.ndim, node))
        axis = node.attr("axis", 1)
        axis = x.ndim if axis == x.ndim else axis_of(axis, x.ndim, node)
        if axis == x.ndim - 1:
            return function(x, axis)
        rows = x.reshape((*x.shape[:axis], prod(x.shape[axis:])))
        return function(rows, axis).reshape(x.shape)

    return run


for _name, _function in (("Softmax", F.softmax), ("LogSoftmax", F.log_softmax), ("Hardmax", _hardmax)):
    operator(_name)(_along(_function))
