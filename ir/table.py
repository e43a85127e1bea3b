"""The node that makes an array of dimensions: what a function gives for sizes that are symbols.

    %3 = table() {name='nearest', args=(n,2*n,None,False), shape=(2*n,), dtype=i64} : i64[2*n]

It is no operator of the operator set: where sizes are numbers it is the array itself, a constant; programs of
symbols take it as a param (`as_params`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from . import lowering
from .dims import Dim
from .dtypes import DType, float64, from_numpy_dtype, int64
from .errors import GraphError
from .graph import Builder, Constant, Graph, Node, Value
from .op import Op, Traits
from .types import type_of

# By the names that nodes have for them: what makes an array of sizes and other plain values, what shape that
# has, and of which kind it is, "i64" or "f64" (nn/resizing.py).
FUNCTIONS: dict[str, tuple[Callable[..., np.ndarray], Callable[..., tuple], str]] = {}


def _reference(*, name: str, args: tuple, shape: tuple, dtype: DType) -> np.ndarray:
    function, *_ = FUNCTIONS[name]
    made = np.asarray(function(*args))
    if made.shape != shape or from_numpy_dtype(made.dtype) is not dtype:
        raise GraphError(f"table {name}{args} is {made.dtype}{list(made.shape)}, not {dtype}{list(shape)}")
    return made


table = Op(
    "table",
    operands=(),
    attrs=("name", "args", "shape", "dtype"),
    bind=lambda name, args, shape, dtype: (
        (),
        {"name": name, "args": args, "shape": shape, "dtype": dtype},
    ),
    infer=lambda *, name, args, shape, dtype: type_of(dtype, shape),
    reference=_reference,
    lower=lowering.extern("the array is a constant, or a param, before code is made"),
    traits=Traits(creation=True),
    samples=lambda: [],
    doc="Give what a function makes of sizes as an array.",
)


def of_sizes(builder: Builder, name: str, args: tuple) -> Value:
    """The value that stands for the array which `name` makes of sizes."""
    _, shape, kind = FUNCTIONS[name]
    attrs = {"name": name, "args": args, "shape": shape(*args), "dtype": BY_SHORT[kind]}
    return emitted_table(builder, attrs)


BY_SHORT = {dtype.short: dtype for dtype in (int64, float64)}


def emitted_table(builder: Builder, attrs: Mapping[str, Any]) -> Value:
    """The value that such attributes say: a constant where no size is a symbol, or is one any more."""
    if has_symbols((*attrs["args"], *attrs["shape"])):
        return builder.emit(table, (), dict(attrs)).outputs[0]
    return Constant(table.reference(**attrs))


def as_params(graph: Graph, at: int | None = None) -> tuple[Graph, tuple[Node, ...]]:
    """The graph with further params for what its tables give, and the nodes of these.

    at: before which param they stand; behind all unless given.
    """
    nodes = tuple([node for node in graph.nodes if node.op is table])
    if not nodes:
        return graph, ()
    params = [Value(node.outputs[0].type, f"{node.attrs['name']}{n}") for n, node in enumerate(nodes)]
    made = {node.outputs[0]: param for node, param in zip(nodes, params, strict=True)}
    left = [
        node.replace(inputs=tuple([v if v is None else made.get(v, v) for v in node.inputs]))
        for node in graph.nodes
        if node.op is not table
    ]
    results = [made.get(v, v) for v in graph.results]
    at = len(graph.params) if at is None else at
    every = (*graph.params[:at], *params, *graph.params[at:])
    return graph.replace(params=every, nodes=left, results=results), nodes


def has_symbols(args: tuple) -> bool:
    """Whether a size among arguments is a symbol."""
    return any(isinstance(x, Dim) for x in args)
