"""Write what moves elements: shapes, parts, joins, pads, and reads and writes at places."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from ....ir.dtypes import bool_, int64, uint8
from ....ir.graph import Node, Value
from ....ir.indices import whole
from ....ir.ops.gather import identity, is_empty
from ....ir.shapes import broadcast_shapes
from ....ir.types import Shape, Type
from ....ir.views import MAPS, Chain, replay
from .graph_writer import Name, Writer, Written, is_static, writer

LAST = np.iinfo(np.int64).min  # beyond the beginning, for what goes backwards

# ---- shapes


@writer("clone")
def clone(w: Writer, node: Node, input: Name) -> Written:
    return input


@writer("cast")
def cast(w: Writer, node: Node, input: Name) -> Written:
    return w.cast(input, node.attrs["dtype"])


@writer("reshape", "view")
def reshape(w: Writer, node: Node, input: Name) -> Written:
    return w.reshaped(input, node.inputs[0].shape, node.outputs[0].shape)


@writer("squeeze")
def squeeze(w: Writer, node: Node, input: Name) -> Written:
    return w.squeezed(input, *node.attrs["dim"])


@writer("unsqueeze")
def unsqueeze(w: Writer, node: Node, input: Name) -> Written:
    return w.unsqueezed(input, node.attrs["dim"])


@writer("expand")
def expand(w: Writer, node: Node, input: Name) -> Written:
    return (
        input if node.inputs[0].shape == node.outputs[0].shape else w.expanded(input, node.outputs[0].shape)
    )


@writer("permute")
def permute(w: Writer, node: Node, input: Name) -> Written:
    return turned(w, input, node.attrs["dims"])


@writer("transpose")
def transpose(w: Writer, node: Node, input: Name) -> Written:
    dims = [*range(node.inputs[0].ndim)]
    if dims:
        a, b = node.attrs["dim0"], node.attrs["dim1"]
        dims[a], dims[b] = dims[b], dims[a]
    return turned(w, input, dims)


def turned(w: Writer, name: Name, dims: Sequence[int]) -> Name:
    """With dimensions in another order."""
    return name if [*dims] == [*range(len(dims))] else w.emit("Transpose", name, perm=tuple(dims))


# ---- parts


@writer("basic_index")
def basic_index(w: Writer, node: Node, input: Name) -> Written:
    if node.inputs[0] in w.aliases:
        return w.aliases[node.inputs[0]]
    return part(w, input, node.inputs[0].shape, node.attrs["index"])


def part(w: Writer, name: Name, shape: Shape, index: tuple) -> Name:
    """What a canonical index selects."""
    kept = [item for item in index if item[0] != "new"]
    places = [d for d, item in enumerate(kept) if item[0] == "int"]
    cut = [d for d, item in enumerate(kept) if item[0] == "slice" and item != whole(shape[d])]
    if len(places) == 1 and not cut:
        name = w.emit("Gather", name, w.number(kept[places[0]][1]), axis=places[0])
    elif places or cut:
        dims = sorted([*places, *cut])
        items = [(kept[d][1], kept[d][1] + 1, 1) if d in places else kept[d][1:] for d in dims]
        starts, ends, steps = (w.vector(each) for each in zip(*items, strict=True))
        name = w.emit("Slice", name, starts, ends, w.constant(np.asarray(dims, np.int64)), steps)
        name = w.squeezed(name, *places)
    left = [item for item in index if item[0] != "int"]
    return w.unsqueezed(name, *[d for d, item in enumerate(left) if item[0] == "new"])


@writer("flip")
def flip(w: Writer, node: Node, input: Name) -> Written:
    dims = node.attrs["dims"]
    if not dims:
        return input
    vector = [np.full(len(dims), n, np.int64) for n in (-1, LAST, -1)]
    starts, ends, steps = map(w.constant, vector)
    return w.emit("Slice", input, starts, ends, w.constant(np.asarray(dims, np.int64)), steps)


@writer("diagonal")
def diagonal(w: Writer, node: Node, input: Name) -> Written:
    last = node.inputs[0].ndim - 2
    is_last = (node.attrs["dim1"], node.attrs["dim2"]) in ((last, last + 1), (last + 1, last))
    return picked(w, node, input, last if is_last else 0)


@writer("unfold")
def unfold(w: Writer, node: Node, input: Name) -> Written:
    return picked(w, node, input, node.attrs["dimension"] if node.inputs[0].ndim else 0)


@writer("as_strided")
def as_strided(w: Writer, node: Node, input: Name) -> Written:
    return picked(w, node, input, 0)


def picked(w: Writer, node: Node, name: Name, first: int) -> Name:
    """A view whose places are a list that is known; it leaves the dimensions before `first` alone."""
    before = node.inputs[0].shape
    lead, rest = before[:first], before[first:]
    if not is_static(rest, node.outputs[0].shape[first:], node.attrs.values()):
        raise w.refusal(node, "its places hang on sizes that change")
    attrs = {k: v - first if k in ("dim1", "dim2", "dimension") else v for k, v in node.attrs.items()}
    places = node.op.reference(np.arange(prod(rest)).reshape(rest), **attrs)
    flat = w.reshaped(name, before, (*lead, prod(rest)))
    return w.emit("Gather", flat, w.constant(np.asarray(places, order="C")), axis=first)


# ---- joins and pads


@writer("cat")
def cat(w: Writer, node: Node, *tensors: Name) -> Written:
    return tensors[0] if len(tensors) == 1 else w.emit("Concat", *tensors, axis=node.attrs["dim"])


@writer("stack")
def stack(w: Writer, node: Node, *tensors: Name) -> Written:
    dim = node.attrs["dim"]
    thin = [w.unsqueezed(name, dim) for name in tensors]
    return thin[0] if len(thin) == 1 else w.emit("Concat", *thin, axis=dim)


@writer("constant_pad")
def constant_pad(w: Writer, node: Node, input: Name) -> Written:
    return padded(w, input, node.attrs["pads"], node.attrs["value"])


def padded(w: Writer, name: Name, pads: Sequence[tuple], value: Any = 0) -> Name:
    """With elements added around, or cut off."""
    if not any(a or b for a, b in pads):
        return name
    return w.emit("Pad", name, w.vector([*(a for a, _ in pads), *(b for _, b in pads)]), value)


@writer("tril", "triu")
def triangle(w: Writer, node: Node, input: Name) -> Written:
    return w.emit(
        "Trilu", input, w.constant(node.attrs["diagonal"], int64), upper=int(node.op.name == "triu")
    )


# ---- reads at places


@writer("embedding")
def embedding(w: Writer, node: Node, input: Name, weight: Name) -> Written:
    return w.emit("Gather", weight, input, axis=0)


@writer("index_select")
def index_select(w: Writer, node: Node, input: Name, index: Name) -> Written:
    if not node.inputs[0].ndim:
        return input
    if not node.inputs[1].ndim:
        index = w.unsqueezed(index, 0)
    return w.emit("Gather", input, index, axis=node.attrs["dim"])


@writer("gather")
def gather(w: Writer, node: Node, input: Name, index: Name) -> Written:
    data, places = node.inputs
    if data.ndim != places.ndim and not is_empty(places):
        input = w.reshaped(input, data.shape, (1,)) if not data.ndim else input
        index = w.reshaped(index, places.shape, (1,)) if not places.ndim else index
        return w.reshaped(w.emit("GatherElements", input, index, axis=0), (1,), node.outputs[0].shape)
    if is_empty(places):
        return w.filled(node.outputs[0].type, 0)
    if not data.ndim:
        return input
    return w.emit("GatherElements", input, index, axis=node.attrs["dim"])


@writer("pick_at")
def pick_at(w: Writer, node: Node, input: Name, indices: Name) -> Written:
    data, places = node.inputs
    first = data.ndim - node.attrs["dims"]
    flat = [
        w.reshaped(x, v.shape, (*v.shape[:first], prod(v.shape[first:])))
        for x, v in ((input, data), (indices, places))
    ]
    found = w.emit("GatherElements", flat[0], w.cast(flat[1], int64), axis=first)
    return w.reshaped(found, (*places.shape[:first], prod(places.shape[first:])), places.shape)


@writer("index")
def index(w: Writer, node: Node, input: Name, *indices: Name) -> Written:
    dims = node.attrs["dims"]
    if len(dims) == 1:
        return w.emit("Gather", input, indices[0], axis=dims[0])
    order = _front(dims, node.inputs[0].ndim)
    count = max(v.ndim for v in node.inputs[1:])
    found = w.emit("GatherND", turned(w, input, order), _together(w, node.inputs[1:], indices))
    return turned(w, found, _from_front(dims, count, node.outputs[0].ndim))


def _place(dims: tuple[int, ...]) -> int:
    """Where in a result the picked dimensions stand: together, or in front."""
    return dims[0] if dims[-1] - dims[0] == len(dims) - 1 else 0


def _front(dims: tuple[int, ...], ndim: int) -> list[int]:
    """The order in which the picked dimensions come first."""
    return [*dims, *(d for d in range(ndim) if d not in dims)]


def _from_front(dims: tuple[int, ...], count: int, ndim: int) -> list[int]:
    """Where the dimensions of a result are found in one whose `count` new ones come first."""
    at = _place(dims)
    return [*range(count, count + at), *range(count), *range(count + at, ndim)]


def _together(w: Writer, values: Sequence[Value], names: Sequence[Name]) -> Name:
    """Indices of one shape, side by side along a last dimension."""
    shape = broadcast_shapes("index", *[v.shape for v in values])
    wide = [
        w.unsqueezed(name if v.shape == shape else w.expanded(name, shape), len(shape))
        for v, name in zip(values, names, strict=True)
    ]
    return wide[0] if len(wide) == 1 else w.emit("Concat", *wide, axis=len(shape))


# ---- writes at places

REDUCTIONS = {"set": None, "add": "add", "mul": "mul", "max": "max", "min": "min"}


@writer("ungather")
def ungather(w: Writer, node: Node, input: Name, index: Name) -> Written:
    combine, kind = node.attrs["combine"], node.outputs[0].type
    base = w.filled(kind, identity(combine, kind.dtype.numpy))
    values, places = node.inputs
    if is_empty(places):
        return base
    if values.shape != places.shape:
        input = w.expanded(input, places.shape)
    return _along(w, base, kind.shape, index, places.shape, input, node.attrs["dim"], combine)


@writer("scatter", "scatter_add")
def scatter(w: Writer, node: Node, input: Name, index: Name, src: Name) -> Written:
    data, places, source = node.inputs
    combine = {None: "set", "add": "add", "multiply": "mul"}[node.attrs.get("reduce", "add")]
    if is_empty(places):
        return input
    if not source.ndim:
        src = w.expanded(src, places.shape)
    elif source.shape != places.shape:
        src = part(w, src, source.shape, tuple(whole(n) for n in places.shape))
    return _along(w, input, data.shape, index, places.shape, src, node.attrs["dim"], combine)


@writer("scatter_reduce")
def scatter_reduce(w: Writer, node: Node, input: Name, index: Name, src: Name) -> Written:
    combine = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min"}.get(node.attrs["reduce"])
    data, places, source = node.inputs
    if combine is None or not node.attrs["include_self"] or source.shape != places.shape or is_empty(places):
        return None
    return _along(w, input, data.shape, index, places.shape, src, node.attrs["dim"], combine)


def _along(
    w: Writer, base: Name, shape: Shape, index: Name, places: Shape, values: Name, dim: int, combine: str
) -> Name:
    """Combine values into a base at places of a dimension."""
    if not shape or not places:
        index, values = (w.reshaped(x, places, places or (1,)) for x in (index, values))
        base = w.reshaped(base, shape, shape or (1,))
    made = combined(w, "ScatterElements", base, index, values, combine, axis=dim)
    return w.reshaped(made, shape or (1,), shape)


def combined(w: Writer, op: str, base: Name, index: Name, values: Name, combine: str, **attrs: int) -> Name:
    """Combine values into a base where an index says: halves in float32, bools as numbers."""
    reduction, dtype = REDUCTIONS[combine], w.dtypes[base]
    if reduction is None:
        return w.emit(op, base, index, values, **attrs)
    if dtype is bool_:
        reduction = {"add": "max", "mul": "min"}.get(reduction, reduction)
    wide = uint8 if dtype is bool_ else dtype.compute
    found = w.emit(op, w.cast(base, wide), index, w.cast(values, wide), reduction=reduction, **attrs)
    return w.cast(found, dtype)


@writer("spread_at", "max_pool_grad")
def spread_at(w: Writer, node: Node, input: Name, indices: Name) -> Written:
    values, places = node.inputs
    first, kind = values.ndim - len(node.attrs["size"]), node.outputs[0].type
    lead, count = values.shape[:first], prod(node.attrs["size"])
    flat = [
        w.reshaped(x, v.shape, (*lead, prod(v.shape[first:])))
        for x, v in ((input, values), (indices, places))
    ]
    base = w.filled(kind.with_shape((*lead, count)), 0)
    combine = "add" if node.attrs.get("add", True) else "set"
    made = combined(w, "ScatterElements", base, w.cast(flat[1], int64), flat[0], combine, axis=first)
    return w.reshaped(made, (*lead, count), kind.shape)


@writer("unindex")
def unindex(w: Writer, node: Node, input: Name, *indices: Name) -> Written:
    base = w.filled(node.outputs[0].type, 0)
    return _put(w, base, node.outputs[0].shape, node.inputs[0], input, node.inputs[1:], indices, node.attrs)


@writer("index_put")
def index_put(w: Writer, node: Node, input: Name, values: Name, *indices: Name) -> Written:
    attrs = {"dims": node.attrs["dims"], "combine": "add" if node.attrs["accumulate"] else "set"}
    return _put(w, input, node.outputs[0].shape, node.inputs[1], values, node.inputs[2:], indices, attrs)


def _put(
    w: Writer,
    base: Name,
    shape: Shape,
    value: Value,
    values: Name,
    places: Sequence[Value],
    indices: Sequence[Name],
    attrs: Any,
) -> Name:
    """Combine values into a base where indices of several dimensions pick."""
    dims = attrs["dims"]
    order, lead = _front(dims, len(shape)), broadcast_shapes("index_put", *[v.shape for v in places])
    rest = tuple(n for d, n in enumerate(shape) if d not in dims)
    at, count = _place(dims), len(lead)
    picked_shape = (*rest[:at], *lead, *rest[at:])
    if value.shape != picked_shape:
        values = w.expanded(values, picked_shape)
    back = [*range(at, at + count), *range(at), *range(at + count, len(picked_shape))]
    made = combined(
        w,
        "ScatterND",
        turned(w, base, order),
        _together(w, places, indices),
        turned(w, values, back),
        attrs["combine"],
    )
    return turned(w, made, [order.index(d) for d in range(len(order))])


# ---- writes through views


@writer("unview")
def unview(w: Writer, node: Node, input: Name) -> Written:
    kind, chain = node.outputs[0].type, node.attrs["chain"]
    if (pads := _around(kind.shape, chain)) is not None:
        items = dict(chain[0][1])["index"]
        kept = [d for d, item in enumerate(item for item in items) if item[0] == "int"]
        return padded(w, w.unsqueezed(input, *kept), pads)
    return _through(w, node, w.filled(kind, 0), input, kind, chain, "add")


@writer("view_scatter")
def view_scatter(w: Writer, node: Node, base: Name, value: Name) -> Written:
    kind, chain = node.outputs[0].type, node.attrs["chain"]
    if not is_static(kind.shape, node.inputs[1].shape):
        return None
    return _through(w, node, base, value, kind, chain, "set")


def _around(shape: Shape, chain: Chain) -> list[tuple] | None:
    """What a part that is cut out has around it; None for another chain of views."""
    if len(chain) != 1 or chain[0][0] != "basic_index":
        return None
    items = dict(chain[0][1])["index"]
    if any(item[0] == "new" or item[0] == "slice" and item[3] != 1 for item in items):
        return None
    ends = [(item[1], item[1] + 1) if item[0] == "int" else item[1:3] for item in items]
    return [(start, n - stop) for (start, stop), n in zip(ends, shape, strict=True)]


def _through(w: Writer, node: Node, base: Name, value: Name, kind: Type, chain: Chain, combine: str) -> Name:
    """Write through a chain of views whose places are a list that is known."""
    if not is_static(kind.shape, node.inputs[-1].shape):
        raise w.refusal(node, "the places that it writes hang on sizes that change")
    size = prod(kind.shape)
    places = np.ascontiguousarray(replay(np.arange(size).reshape(kind.shape), chain)).reshape(-1)
    overlaps = any(MAPS[name].overlaps for name, _ in chain)
    flat = w.reshaped(base, kind.shape, (size,)), w.reshaped(value, node.inputs[-1].shape, (places.size,))
    if not places.size:
        return base
    combine = combine if overlaps else "set"
    made = combined(w, "ScatterElements", flat[0], w.constant(places), flat[1], combine, axis=0)
    return w.reshaped(made, (size,), kind.shape)
