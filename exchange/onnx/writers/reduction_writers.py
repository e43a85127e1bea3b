"""Write reductions, scans, orders and what is normalised along dimensions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, nan, prod
from typing import Any

import numpy as np

from ....ir.dims import Dim
from ....ir.dtypes import DType, bool_, int32, int64
from ....ir.graph import Node
from ....ir.recur import recur
from .graph_writer import Name, Writer, Written, made, stand_in, the, writer


def reduced(w: Writer, op: str, name: Name, dims: Sequence[int], keepdim: bool) -> Name:
    """Reduced over dimensions; as it is where there are none."""
    if not dims:
        return name
    return w.emit(op, name, w.constant(np.asarray(dims, np.int64)), keepdims=int(keepdim))


def is_empty(shape: Sequence[Any], dims: Sequence[int]) -> bool:
    """Whether nothing is reduced."""
    return any(isinstance(shape[d], int) and shape[d] == 0 for d in dims)


def _reduction(op: str) -> Callable[..., Written]:
    def write(w: Writer, node: Node, input: Name) -> Written:
        return reduced(w, op, input, node.attrs["dim"], node.attrs["keepdim"])

    return write


for _name, _op in {
    "sum": "ReduceSum", "prod": "ReduceProd", "amax": "ReduceMax", "amin": "ReduceMin"
}.items():  # fmt: skip
    writer(_name)(_reduction(_op))


@writer("mean")
def mean(w: Writer, node: Node, input: Name) -> Written:
    """NaN of nothing, of which ONNX says nothing."""
    if is_empty(node.inputs[0].shape, node.attrs["dim"]):
        return w.filled(node.outputs[0].type, nan)
    return reduced(w, "ReduceMean", input, node.attrs["dim"], node.attrs["keepdim"])


@writer("any", "all")
def truth(w: Writer, node: Node, input: Name) -> Written:
    """all is not any of what is not; any counts, as ONNX's greatest of nothing is none."""
    truths = w.cast(input, bool_)
    truths = truths if node.op.name == "any" else w.emit("Not", truths)
    count = reduced(w, "ReduceSum", w.cast(truths, int32), node.attrs["dim"], node.attrs["keepdim"])
    found = w.cast(count, bool_)
    return found if node.op.name == "any" else w.emit("Not", found)


@writer("max_dim", "min_dim")
def extremum(w: Writer, node: Node, input: Name) -> Written:
    if not node.inputs[0].ndim:
        return input, w.constant(0, int64)
    greatest, dim, keepdim = node.op.name == "max_dim", node.attrs["dim"], node.attrs["keepdim"]
    values = indices = None
    if w.wants(node.outputs[0]):
        values = reduced(w, "ReduceMax" if greatest else "ReduceMin", input, (dim,), keepdim)
    if w.wants(node.outputs[1]):
        indices = _argument(w, "ArgMax" if greatest else "ArgMin", input, dim, keepdim)
    return values, indices


@writer("argmax", "argmin")
def argument(w: Writer, node: Node, input: Name) -> Written:
    (data,), op = node.inputs, "ArgMax" if node.op.name == "argmax" else "ArgMin"
    if not data.ndim:
        return w.constant(0, int64)
    dim, keepdim = node.attrs["dim"], node.attrs["keepdim"]
    if dim is not None:
        return _argument(w, op, input, dim, keepdim)
    flat = w.reshaped(input, data.shape, (prod(data.shape),))
    return w.reshaped(_argument(w, op, flat, 0, True), (1,), node.outputs[0].shape)


def _argument(w: Writer, op: str, input: Name, dim: int, keepdim: bool) -> Name:
    return w.emit(op, input, dtype=int64, axis=dim, keepdims=int(keepdim))


@writer("cumsum")
def cumsum(w: Writer, node: Node, input: Name) -> Written:
    if not node.inputs[0].ndim:
        return input
    return w.emit("CumSum", input, w.constant(node.attrs["dim"], int64))


@writer("softmax", "log_softmax")
def softmax(w: Writer, node: Node, input: Name) -> Written:
    shape, op = node.inputs[0].shape, "Softmax" if node.op.name == "softmax" else "LogSoftmax"
    made = w.emit(op, w.reshaped(input, shape, shape or (1,)), axis=node.attrs["dim"])
    return w.reshaped(made, shape or (1,), shape)


@writer("linalg_vector_norm")
def vector_norm(w: Writer, node: Node, input: Name) -> Written:
    op = {1.0: "ReduceL1", 2.0: "ReduceL2"}.get(node.attrs["ord"])
    if op is None or not node.attrs["dim"]:
        return None
    return reduced(w, op, input, node.attrs["dim"], node.attrs["keepdim"])


# ---- orders


def _best(w: Writer, node: Node, input: Name, k: int | Dim, largest: bool) -> Written:
    shape, dim = node.inputs[0].shape, node.attrs["dim"]
    if not shape:
        return input, w.constant(0, int64)
    if w.dtypes[input] is bool_:
        values, indices = _best_of(w, w.cast(input, int32), k, dim, largest)
        return w.cast(values, bool_), indices
    return _best_of(w, input, k, dim, largest)


def _best_of(w: Writer, input: Name, k: int | Dim, dim: int, largest: bool) -> tuple[Name, Name]:
    return w.emit(
        "TopK",
        input,
        w.size(k),
        outputs=2,
        dtype=(None, int64),
        axis=dim,
        largest=int(largest),
    )


@writer("sort")
def sort(w: Writer, node: Node, input: Name) -> Written:
    shape = node.inputs[0].shape
    return _best(w, node, input, shape[node.attrs["dim"]] if shape else 1, node.attrs["descending"])


@writer("topk")
def topk(w: Writer, node: Node, input: Name) -> Written:
    return _best(w, node, input, node.attrs["k"], node.attrs["largest"])


# ---- what others say


@stand_in("var")
def var(input: Any, *, dim: tuple, correction: float, keepdim: bool) -> Any:
    distance = input - the("mean")(input, dim, True) if dim else input - input
    total = the("sum")(distance * distance, dim, keepdim) if dim else distance
    left = prod(input.shape[d] for d in dim) - correction
    return total / (left if isinstance(left, Dim) or left > 0 else 0.0)


@stand_in("logsumexp")
def logsumexp(input: Any, *, dim: tuple, keepdim: bool) -> Any:
    if not dim:
        return input
    if is_empty(input.shape, dim):
        return the("sum")(input, dim, keepdim) - inf
    where, eq = the("where"), the("eq")
    high = the("amax")(input, dim, True)
    high = where(eq(abs(high), inf), 0.0, high)
    total = the("sum")(the("exp")(input - high), dim, True)
    out = the("log")(total) + high
    return out if keepdim else the("squeeze")(out, dim)


@stand_in("linalg_vector_norm")
def vector_norm_by_ops(x: Any, *, ord: float, dim: tuple, keepdim: bool, dtype: DType | None) -> Any:
    size, sum = abs(x), the("sum")
    if not dim:
        return the("cast")(the("ne")(x, 0), dtype=x.dtype) if ord == 0 else size
    if ord in (inf, -inf):
        return the("amax" if ord > 0 else "amin")(size, dim, keepdim)
    if ord == 0:
        return sum(the("cast")(the("ne")(x, 0), dtype=x.dtype), dim, keepdim)
    if ord == 2:
        return the("sqrt")(sum(x * x, dim, keepdim))
    return sum(size if ord == 1 else size**ord, dim, keepdim) ** (1 / ord)


@stand_in("kthvalue")
def kthvalue(input: Any, *, k: int, dim: int, keepdim: bool) -> Any:
    if not input.ndim:
        return input, the("zeros_like")(input, dtype=int64)
    return tuple(_last(x, k, dim, keepdim) for x in the("topk")(input, k, dim, False))


def _last(x: Any, k: Any, dim: int, keepdim: bool) -> Any:
    found = the("basic_index")(x, (slice(None),) * dim + (slice(k - 1, k),))
    return found if keepdim else the("squeeze")(found, dim)


@stand_in("median_dim")
def median_dim(input: Any, *, dim: int, keepdim: bool) -> Any:
    """The lower one; the first NaN, where there is one."""
    if not input.ndim:
        return input, the("zeros_like")(input, dtype=int64)
    if not input.dtype.is_floating_point:
        return the("kthvalue")(input, (input.shape[dim] + 1) // 2, dim, keepdim)
    where, unknown = the("where"), the("isnan")(input)
    known = where(unknown, inf, input)
    values, places = the("kthvalue")(known, (input.shape[dim] + 1) // 2, dim, True)
    several = the("any")(unknown, dim, True)
    first = the("argmax")(the("cast")(unknown, dtype=int64), dim, True)
    values, places = where(several, float("nan"), values), where(several, first, places)
    return (values, places) if keepdim else tuple(the("squeeze")(x, dim) for x in (values, places))


@stand_in("median_all")
def median_all(input: Any) -> Any:
    flat = the("reshape")(input, (prod(input.shape),))
    return (
        the("sum")(flat) + nan if is_empty(input.shape, range(input.ndim)) else the("median_dim")(flat, 0)[0]
    )


@stand_in("nanmedian_all")
def nanmedian_all(input: Any) -> Any:
    flat, where = the("reshape")(input, (prod(input.shape),)), the("where")
    if is_empty(input.shape, range(input.ndim)):
        return the("sum")(flat) + nan
    unknown = the("isnan")(flat)
    ordered = the("sort")(where(unknown, inf, flat), 0)[0]
    count = the("sum")(the("logical_not")(unknown))
    at = the("floor_divide")(where(count > 0, count - 1, 0), 2)
    found = the("reshape")(the("index_select")(ordered, 0, the("reshape")(at, (1,))), ())
    return where(count > 0, found, float("nan"))


@stand_in("searchsorted")
def searchsorted(sorted_sequence: Any, input: Any, *, right: bool, out_int32: bool) -> Any:
    """How many elements lie before each value, counted."""
    values = the("unsqueeze")(input, -1)
    row = sorted_sequence if sorted_sequence.ndim == 1 else the("unsqueeze")(sorted_sequence, -2)
    before = row <= values if right else row < values
    return the("cast")(the("sum")(before, -1), dtype=int32 if out_int32 else int64)


# ---- scans, as loops


def _scanned(step: Callable, *sequences: Any, dim: int, first: tuple[Any, ...]) -> tuple:
    """What a step makes of each element along a dimension in turn.  first: what the states begin with."""
    turned = [the("transpose")(x, 0, dim) for x in sequences]
    alike = the("basic_index")(turned[0], (0,))
    states = tuple(the("full_like")(alike, value, dtype=dtype) for value, dtype in first)
    found = recur(
        lambda elements, states, fixed: (step(elements, states), ()),
        tuple(turned),
        states,
        (),
        (True,) * len(first),
    )
    return tuple(the("transpose")(x, 0, dim) for x in found)


def _is_trivial(input: Any, dim: int) -> bool:
    return not input.ndim or any(isinstance(n, int) and n == 0 for n in input.shape)


@stand_in("cumprod")
def cumprod(input: Any, *, dim: int, dtype: DType | None) -> Any:
    if _is_trivial(input, dim):
        return input
    return _scanned(lambda e, s: (s[0] * e[0],), input, dim=dim, first=((1, input.dtype),))[0]


@stand_in("linear_recurrence")
def linear_recurrence(decay: Any, input: Any, *, dim: int) -> Any:
    if _is_trivial(input, dim):
        return input
    return _scanned(lambda e, s: (e[0] * s[0] + e[1],), decay, input, dim=dim, first=((0, input.dtype),))[0]


@stand_in("logcumsumexp")
def logcumsumexp(input: Any, *, dim: int) -> Any:
    if _is_trivial(input, dim):
        return input
    return _scanned(
        lambda e, s: (the("logaddexp")(s[0], e[0]),), input, dim=dim, first=((-inf, input.dtype),)
    )[0]


def _running(name: str) -> None:
    @stand_in(name)
    def write(input: Any, *, dim: int) -> Any:
        """The last of equal ones counts; a NaN stays."""
        if _is_trivial(input, dim):
            return input, the("zeros_like")(input, dtype=int64)
        where = the("where")
        places = made("arange", input.shape[dim], dtype=int64)
        thin = tuple(input.shape[dim] if d == dim else 1 for d in range(input.ndim))
        places = the("expand")(the("reshape")(places, thin), input.shape)
        least = _ends(input.dtype)[0 if name == "cummax" else 1]

        def step(elements: tuple, states: tuple) -> tuple:
            (value, place), (best, found) = elements, states
            beats = value >= best if name == "cummax" else value <= best
            if input.dtype.is_floating_point:
                beats = (beats & the("eq")(best, best)) | the("ne")(value, value)
            return where(beats, value, best), where(beats, place, found)

        return _scanned(step, input, places, dim=dim, first=((least, input.dtype), (0, int64)))


_running("cummax")
_running("cummin")


def _ends(dtype: DType) -> tuple[Any, Any]:
    """The least and the greatest of a type."""
    if dtype is bool_:
        return False, True
    if dtype.is_floating_point:
        return -inf, inf
    info = np.iinfo(dtype.numpy)
    return int(info.min), int(info.max)
