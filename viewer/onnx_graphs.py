"""What there is to be shown of an ONNX model: its graphs as the file has them, and what they became."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from ..exchange.onnx.declared import Declared, Kind, Node, Subgraph
from ..exchange.onnx.network import OnnxModule, module_of
from ..exchange.onnx.run_file import inputs_of
from ..exchange.onnx.running import parts_of
from ..ir.errors import ArgumentError
from ..jit import trace
from ..jit.viewing import codes_of
from ..runtime.modes import no_grad
from .subjects import Shown, subject_of

ROOT = __name__.partition(".")[0]
CALLS = 2  # the second shows which values change from call to call
LONGEST = 200  # characters of an attribute


def shown_of_onnx(path: Path, sizes: Mapping[str, int], timed: bool, title: str | None) -> Shown:
    """A model of a file.

    sizes: by the names that it has for them; 1 where nothing is said.  timed: whether it is run and compiled;
    otherwise its graph alone is shown.  Raises OnnxError, ArgumentError, and ImportError without `onnx`.
    """
    declared: Declared = import_module(f"{ROOT}.exchange.onnx.reading").read(path)
    model = module_of(declared)
    named = {n for kind in model.inputs.values() for n in kind.shape or () if isinstance(n, str)}
    if unknown := sizes.keys() - named:
        known = ", ".join(sorted(named)) if named else "none of its sizes has a name"
        raise ArgumentError(f"show: the model has no size {', '.join(sorted(unknown))}", f"sizes: {known}")
    model.inputs = {name: _sized(kind, sizes) for name, kind in model.inputs.items()}
    about = [("file", path.name)]
    about += [(f"opset of {domain or 'ONNX'}", str(opset)) for domain, opset in declared.opsets.items()]
    if declared.producer:
        about.append(("producer", declared.producer))
    if named:
        about.append(("sizes", ", ".join(f"{name} = {sizes.get(name, 1)}" for name in sorted(named))))
    subjects = []
    if timed:
        traced = trace(model)
        given = inputs_of(model, [])
        about += [(name, str(x._meta)) for name, x in given.items()]
        with no_grad():
            for _ in range(CALLS):
                traced.call_for_code(*given.values())
        subjects = [subject_of(code) for code in codes_of(traced)]
        if not subjects:
            about.append(("not compiled", traced.explain().splitlines()[0]))
    graphs = {"the file": _nodes(declared.graph)}
    graphs |= {f"function {f.name}": _function(f.nodes, f.inputs) for f in declared.functions.values()}
    return Shown(title or path.name, tuple(about), tuple(subjects), graphs)


def _sized(kind: Kind, sizes: Mapping[str, int]) -> Kind:
    shape = kind.shape and tuple(sizes.get(n, n) if isinstance(n, str) else n for n in kind.shape)
    return replace(kind, shape=shape)


# ---- graphs as the file has them ---------------------------------------------------------------------------
def _nodes(graph: Subgraph) -> list[dict[str, Any]]:
    """The nodes of a graph and of those inside of it, as `graph_data` has them.

    path: what recorded nodes have for their modules that are of this node.
    """
    data: list[dict[str, Any]] = []
    _add(data, graph, (), (OnnxModule.__name__,), {})
    return data


def _function(nodes: tuple[Node, ...], inputs: tuple[str, ...]) -> list[dict[str, Any]]:
    return _nodes(Subgraph("", nodes, dict.fromkeys(inputs, Kind()), {nodes[-1].outputs[0]: Kind()}))


def _add(
    data: list[dict[str, Any]], graph: Subgraph, within: tuple[str, ...], path: tuple[str, ...],
    around: Mapping[str, Any],
) -> list[int]:  # fmt: skip
    """Add a graph's nodes; the numbers of its results.

    around: by name, what is there outside of it: a node's number, or a text.
    """
    made: dict[str, Any] = {**around, **{name: _constant(x) for name, x in graph.constants.items()}}
    for name, kind in graph.inputs.items():
        if name not in graph.constants:
            made[name] = len(data)
            data.append(_entry(len(data), name, "input", _kind(kind), ".".join(within), [], []))
    for node in graph.nodes:
        *outer, own = parts_of(node)
        here = (*within, *outer)
        operands = [["", made.get(name, name)] for name in node.inputs if name]
        attrs = []
        for name, x in node.attrs.items():
            if isinstance(x, Subgraph):  # what it gives, the node gives
                here = (*within, *outer, own)
                operands += [
                    [name, number] for number in _add(data, x, (*here, name), (*path, *outer, own), made)
                ]
            else:
                attrs.append([name, _attr(x)])
        made |= dict.fromkeys(filter(None, node.outputs), len(data))
        entry = _entry(
            len(data), node.op, _sort(node), ", ".join(node.outputs), ".".join(here), operands, attrs
        )
        entry["path"] = ".".join((*path, *outer, own))
        data.append(entry)
    results = []
    for name, kind in graph.outputs.items():
        results.append(len(data))
        operands = [["", made.get(name, name)]]
        data.append(_entry(len(data), name, "result", _kind(kind), ".".join(within), operands, []))
    return results


def _entry(
    number: int, op: str, sort: str, type: str, within: str, operands: Any, attrs: Any
) -> dict[str, Any]:
    return {"id": number, "op": op, "kind": sort, "type": type, "within": within, "where": "", "in": operands,
            "attrs": attrs}  # fmt: skip


SORTS = {
    "product": ("Conv", "MatMul", "Gemm", "Einsum", "LSTM", "GRU", "RNN", "Attention"),
    "move": ("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Concat", "Split", "Slice", "Gather",
             "Expand", "Identity", "Cast", "Pad", "Tile", "Shape", "Constant", "Resize"),
    "reduction": ("Reduce", "Softmax", "LogSoftmax", "Norm", "BatchNorm", "Layer", "Instance", "Pool", "Max",
                  "Average", "Global", "Arg", "TopK"),
    "host": ("If", "Loop", "Scan", "Sequence", "Optional"),
}  # fmt: skip


def _sort(node: Node) -> str:
    """How an operator is painted: by how its name begins."""
    return next((sort for sort, names in SORTS.items() if node.op.startswith(names)), "elementwise")


def _constant(x: Any) -> str:
    if isinstance(x, np.ndarray):
        few = f" {x.reshape(-1).tolist()}" if x.size <= 4 else ""
        return f"constant {x.dtype}[{','.join(map(str, x.shape))}]{few}"[:LONGEST]
    return str(x)[:LONGEST]


def _kind(kind: Kind) -> str:
    if kind.dtype is None:
        return ""
    shape = "…" if kind.shape is None else ",".join("?" if n is None else str(n) for n in kind.shape)
    return f"{kind.dtype}[{shape}]"


def _attr(x: Any) -> str:
    return _constant(x) if isinstance(x, np.ndarray) else str(x)[:LONGEST]
