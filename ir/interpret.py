"""Runs a graph in NumPy, node by node, by the records' references: the yardstick for passes and backends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .dims import Dim, symbols_of
from .dtypes import DType, from_numpy_dtype
from .errors import GraphError
from .execute import run_reference
from .graph import Constant, Graph, Value
from .specialise import specialise


def interpret(graph: Graph, *arrays: Any, dtype: DType | None = None) -> tuple[np.ndarray, ...]:
    """The results of a graph for these params, one array each.

    Symbols take the sizes that the arrays have.  dtype: compute as if every floating type of the graph were
    this one (float64, to see what rounding does); arrays of any floating dtype are then taken.  Raises
    GraphError for arrays that aren't what the params say, and where a reference doesn't give what `infer`
    says.
    """
    given = [np.asarray(a) for a in arrays]
    sizes = sizes_of_symbols(graph, given)
    if sizes or dtype:
        graph = specialise(graph, sizes, dtype)
    if dtype:
        given = [_as(a, dtype) for a in given]
    values: dict[Value | None, Any] = {None: None}
    for param, array in zip(graph.params, given, strict=True):
        _check(f"graph {graph.name}: %{param.hint or '?'} is {param.type}, the array given is", param, array)
        values[param] = array
    for constant in graph.used():
        if isinstance(constant, Constant):
            values[constant] = constant.data
    with np.errstate(all="ignore"):
        for node in graph.nodes:
            types = tuple(None if v is None else v.type for v in node.inputs)
            outputs = run_reference(node.op, types, node.attrs, [values[v] for v in node.inputs])
            if len(outputs) != len(node.outputs):
                raise GraphError(f"{node}: the reference of {node.op.name} gave {len(outputs)} arrays")
            for value, array in zip(node.outputs, outputs, strict=True):
                if not node.op.traits.host:  # where sizes depend on values, infer can't know them
                    _check(f"{node}: the reference of {node.op.name} gave", value, array)
                values[value] = array
    return tuple(values[v] for v in graph.results)


def sizes_of_symbols(graph: Graph, arrays: Sequence[np.ndarray]) -> dict[str, int]:
    """The size of every symbol in the params' shapes, read from arrays where it stands alone or linearly
    (2*n+1).

    Raises GraphError for a symbol that stands nowhere like that, and for a wrong number of arrays.
    """
    if len(arrays) != len(graph.params):
        raise GraphError(f"graph {graph.name} takes {len(graph.params)} arrays, got {len(arrays)}")
    found: dict[str, int] = {}
    wanted: set[str] = set()
    for param, array in zip(graph.params, arrays, strict=True):
        for dim, size in zip(param.shape, array.shape, strict=False):
            if isinstance(dim, Dim):
                wanted |= symbols_of(dim)
                found.update(_solved(dim, size))
    if wanted - found.keys():
        missing = ", ".join(sorted(wanted - found.keys()))
        raise GraphError(
            f"graph {graph.name}: the sizes of {missing} can't be read from the shapes of its params"
        )
    return found


def _solved(dim: Dim, size: int) -> dict[str, int]:
    """{symbol: its size} where `dim` is a*n + b, else nothing."""
    (monomial, a), *rest = dim.terms
    if len(monomial) != 1 or monomial[0].operands or len(rest) > 1 or (rest and rest[0][0]):
        return {}
    return {monomial[0].kind: (size - (rest[0][1] if rest else 0)) // a}


def _as(array: np.ndarray, dtype: DType) -> np.ndarray:
    own = from_numpy_dtype(array.dtype)
    return array.astype(dtype.numpy) if own and own.is_floating_point else array


def _check(message: str, value: Value, array: np.ndarray) -> None:
    if array.shape != value.shape or array.dtype != value.dtype.numpy:
        raise GraphError(f"{message} {array.dtype}{list(array.shape)}")
