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
from .dims import Dim, evaluate
from .dtypes import DType, float64, from_numpy_dtype, int64
from .errors import GraphError
from .graph import Builder, Constant, Graph, Node, Value
from .op import Op, Traits
from .types import type_of

FUNCTIONS: dict[str, Callable[..., np.ndarray]] = {}  # by the names that nodes have for them


def tabled(name: str, function: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """Let nodes name a function of sizes and other plain values, which gives an array of i64 or f64."""
    FUNCTIONS[name] = function
    return function


def _reference(*, name: str, args: tuple, shape: tuple, dtype: DType) -> np.ndarray:
    made = np.asarray(FUNCTIONS[name](*args))
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
    lower=lowering.extern("sizes are numbers before code is made, and the array is a constant then"),
    traits=Traits(creation=True),
    samples=lambda: [],
    doc="Give what a function makes of sizes as an array.",
)


def of_sizes(builder: Builder, name: str, args: tuple, shape: tuple, whole: bool) -> Value:
    """The value that stands for an array of i64, or of f64, which `name` makes of sizes."""
    dtype = int64 if whole else float64
    return emitted_table(builder, {"name": name, "args": args, "shape": shape, "dtype": dtype})


def emitted_table(builder: Builder, attrs: Mapping[str, Any]) -> Value:
    """The value that such attributes say: a constant where no size is a symbol, or is one any more."""
    if has_symbols((*attrs["args"], *attrs["shape"])):
        return builder.emit(table, (), dict(attrs)).outputs[0]
    return Constant(table.reference(**attrs))


def as_params(graph: Graph) -> tuple[Graph, tuple[Node, ...]]:
    """The graph with further params, the last, for what its tables give, and the nodes of these."""
    nodes = tuple([node for node in graph.nodes if node.op is table])
    if not nodes:
        return graph, ()
    params = [Value(node.outputs[0].type, node.attrs["name"]) for node in nodes]
    made = {node.outputs[0]: param for node, param in zip(nodes, params, strict=True)}
    left = [
        node.replace(inputs=tuple([v if v is None else made.get(v, v) for v in node.inputs]))
        for node in graph.nodes
        if node.op is not table
    ]
    results = [made.get(v, v) for v in graph.results]
    return graph.replace(params=(*graph.params, *params), nodes=left, results=results), nodes


def array_of(node: Node, sizes: Mapping[str, int]) -> np.ndarray:
    """What the node of a table gives where symbols are these sizes."""
    attrs = {k: evaluated(v, sizes) for k, v in node.attrs.items()}
    return _reference(**attrs)


def evaluated(x: Any, sizes: Mapping[str, int]) -> Any:
    if isinstance(x, tuple):
        return tuple([evaluated(y, sizes) for y in x])
    return evaluate(x, sizes) if isinstance(x, Dim) else x


def has_symbols(args: tuple) -> bool:
    """Whether a size among arguments is a symbol."""
    return any(isinstance(x, Dim) for x in args)
