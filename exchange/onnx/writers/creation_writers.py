"""Write what makes new values: of given sizes, of the sizes of another, and steps that are repeated."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from ....ir.dims import Dim
from ....ir.dtypes import float64, int64
from ....ir.graph import Graph, Node, Value
from ....ir.recur import is_split
from ..declared import Kind, Subgraph
from .graph_writer import Name, Writer, Written, is_static, writer

LARGE = 1 << 14  # elements of a list that is computed, and not stored

FILLED = {"zeros": 0, "ones": 1, "empty": 0}
FILLED |= {f"{name}_like": value for name, value in FILLED.items()} | {
    f"new_{n}": v for n, v in FILLED.items()
}


@writer(*FILLED, "full", "full_like", "new_full", "fill")
def filled(w: Writer, node: Node, *_: Name) -> Written:
    kind = node.outputs[0].type
    value = FILLED.get(node.op.name, node.attrs.get("fill_value", node.attrs.get("value")))
    if isinstance(value, Dim):
        return w.expanded(w.number(value, kind.dtype), kind.shape)
    return w.filled(kind, np.asarray(value).astype(kind.dtype.numpy))


@writer("copy")
def copy(w: Writer, node: Node, input: Name, source: Name) -> Written:
    kind = node.outputs[0].type
    made = w.cast(source, kind.dtype)
    return made if node.inputs[1].shape == kind.shape else w.expanded(made, kind.shape)


@writer("arange")
def arange(w: Writer, node: Node) -> Written:
    (size,), start, step = (node.attrs[name] for name in ("size", "start", "step"))
    dtype = node.outputs[0].dtype
    if is_static((size, start, step)) and size <= LARGE:
        return known(w, node)
    wide = int64 if dtype.category == "int" else float64
    first = w.number(start, wide) if isinstance(start, Dim) else w.constant(start, wide)
    by = w.number(step, wide) if isinstance(step, Dim) else w.constant(step, wide)
    counts = w.emit("Range", w.constant(0, int64), w.number(size), w.constant(1, int64))
    return w.cast(w.emit("Add", first, w.emit("Mul", w.cast(counts, wide), by)), dtype)


@writer("eye")
def eye(w: Writer, node: Node) -> Written:
    kind = node.outputs[0].type
    if is_static(kind.shape) and prod(kind.shape) <= LARGE:
        return known(w, node)
    return w.emit("EyeLike", w.filled(kind, 0))


@writer("linspace", "logspace", "tril_indices", "triu_indices")
def known(w: Writer, node: Node) -> Written:
    """The values, which are known."""
    if not is_static(node.outputs[0].shape, node.attrs.values()):
        raise w.refusal(node, "it makes a list of a size that changes")
    made = node.op.reference(**node.attrs)
    return w.constant(np.asarray(made).astype(node.outputs[0].dtype.numpy))


@writer("size")
def size(w: Writer, node: Node) -> Written:
    return w.number(node.attrs["value"])


# ---- loops


@writer("recur")
def recur(w: Writer, node: Node, *operands: Name) -> Written:
    """ONNX's Scan: a graph that runs for each element in turn."""
    attrs, results = node.attrs, node.attrs["body"].results
    if is_split(attrs["rows"]):
        raise w.refusal(node, "it goes over blocks of rows")
    sequences, kept = attrs["sequences"], attrs["kept"]
    last = sequences + len(kept)
    whole = [n >= len(kept) or kept[n] for n in range(len(results))]
    every = [n for n, out in enumerate(node.outputs) if whole[n] and w.wants(out)]
    given = [*results[: len(kept)], *(results[n] for n in every)]
    direction = (int(attrs["back"]),)
    made = w.emit(
        "Scan", *operands[sequences:last], *operands[:sequences],
        outputs=len(given), dtype=tuple(v.dtype for v in given),
        body=_body(w, attrs["body"], operands[last:], sequences, last, given),
        num_scan_inputs=sequences,
        scan_input_directions=direction * sequences,
        scan_output_directions=direction * len(every) if every else None,
    )  # fmt: skip
    names = (made,) if len(given) == 1 else made
    found: dict[int, Name] = {n: names[n] for n in range(len(kept)) if not whole[n]}
    found |= dict(zip(every, names[len(kept) :], strict=True))
    return [found.get(n) for n in range(len(results))]


def _body(
    w: Writer, body: Graph, fixed: Sequence[Name], sequences: int, last: int, results: Sequence[Value]
) -> Subgraph:
    """The graph of one run: of states, then elements; what is the same for all runs it sees around it."""
    inner = Writer(w.opset, w)
    inner.names.update(zip(body.params[last:], fixed, strict=True))
    inputs: dict[str, Kind] = {}
    for param in (*body.params[sequences:last], *body.params[:sequences]):
        name = inner.names[param] = inner.declare(param.hint or "element", param.dtype)
        inputs[name] = _kind(param)
    inner.write_graph(body, results)
    outputs = {inner.copied(inner.name_of(value)): _kind(value) for value in results}
    return Subgraph(w.fresh("step"), tuple(inner.nodes), inputs, outputs)


def _kind(value: Value) -> Kind:
    return Kind(value.dtype.numpy, tuple(None if isinstance(n, Dim) else n for n in value.shape))
