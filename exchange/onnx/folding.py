"""Run what a file leaves to do with constants alone, once, when it is loaded.

    q: i8[8,4], s: f32[8]; w = DequantizeLinear(q, s); y = MatMul(x, w)  ->  w: f32[8,4]; y = MatMul(x, w)

Weights that are trained keep their names, so what is made of them is left to each run.  What was quantised is
a weight from here on, under the name of its real numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ...ir.errors import LaminaError
from ...runtime.allowance import bounded
from ...runtime.modes import no_grad
from .declared import STANDARD, Declared, Node, Subgraph
from .opset import OPERATORS
from .opset.random_nodes import DRAWING
from .opset.registry import as_host
from .running import Model, Scope, reads

FLOATS = ("float16", "float32", "float64", "bfloat16")  # what is trained
GROWTH = 8  # times the bytes of its operands that a result may have: numbers of a byte become doubles
ALWAYS = 1 << 20  # bytes that it may have in any case
DEQUANTISING = "DequantizeLinear"


def is_weight(value: np.ndarray) -> bool:
    """Whether an array of a file is trained."""
    return value.dtype.name in FLOATS and value.size > 1


def folded(declared: Declared, most_bytes: int) -> tuple[Declared, frozenset[str]]:
    """The model without the nodes whose operands are constants, and the names of what these made that is no
    weight.  A node that fails, or would make too much, is left as it is."""
    graph = declared.graph
    values = {name: value for name, value in graph.constants.items() if name not in graph.inputs}
    weights = {name for name, value in values.items() if is_weight(value)}
    scope = Scope(Model(declared), {})
    kept, made, left = [], dict[str, np.ndarray](), most_bytes
    for node in graph.nodes:
        found = _made(scope, node, values, weights, left)
        if found is None:
            kept.append(node)
            continue
        made |= found
        values |= found
        left -= sum(value.nbytes for value in found.values())
        if node.op == DEQUANTISING:
            weights.update(name for name, value in found.items() if is_weight(value))
    if len(kept) == len(graph.nodes):
        return declared, frozenset()
    constants = {**graph.constants, **made}
    wanted = _read(kept, graph) - (_read(graph.nodes, graph) - constants.keys())
    constants = {n: v for n, v in constants.items() if n in wanted or n in graph.inputs}
    graph = replace(graph, nodes=tuple(kept), constants=constants)
    return replace(declared, graph=graph), frozenset(made.keys() - weights)


def _read(nodes: Any, graph: Subgraph) -> set[str]:
    names = {*graph.outputs}
    for node in nodes:
        names |= reads(node)
    return names


def _made(
    scope: Scope, node: Node, values: Mapping[str, np.ndarray], weights: set[str], left: int
) -> dict[str, np.ndarray] | None:
    """What a node makes of constants, by name; None where that is left to each run."""
    known = OPERATORS.get((node.domain, node.op))
    names = [name for name in node.inputs if name]
    if known is None or known.scoped or node.domain != STANDARD or node.op in DRAWING or [*node.graphs]:
        return None
    if (node.domain, node.op) in scope.model.functions or not values.keys() >= {*names}:
        return None
    is_quantised = node.op == DEQUANTISING and bool(names) and not is_weight(values[names[0]])
    if not (names or node.op == "Constant") or (not is_quantised and not weights.isdisjoint(names)):
        return None
    most = min(max(GROWTH * sum(values[name].nbytes for name in names), ALWAYS), left)
    try:
        with no_grad(), bounded(most):
            found = scope.call(node, [values[name] if name else None for name in node.inputs])
    except (LaminaError, MemoryError):  # each run says why
        return None
    results = found if isinstance(found, tuple) else (found,)
    if any(each is None or isinstance(each, list) for each in results):
        return None
    arrays = {n: as_host(value) for n, value in zip(node.outputs, results, strict=False) if n}
    fits = len(results) >= len(node.outputs) and sum(each.nbytes for each in arrays.values()) <= left
    return arrays if fits else None
