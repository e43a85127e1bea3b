"""The node by which a real graph does what has no kernel for complex numbers: the host does it, on pairs.

    %3 = by_pairs(%2) {body=graph fft_c2c(%x: c64[8]) -> (c64[8]) {...}} : f32[8,2]

It is no operator of the operator set: `passes/graphs/pair_complex.py` makes it.  Its body is one node of
complex types; what is complex there is a pair of reals here, along a further dimension, in the same memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import lowering
from .errors import GraphError
from .execute import executor
from .graph import Graph
from .interpret import interpret
from .op import Op, Traits
from .types import Type


def paired_type(kind: Type) -> Type:
    """The type of the pairs of a complex type; a real one itself."""
    if not kind.dtype.is_complex:
        return kind
    return kind.with_shape((*kind.shape, 2)).with_dtype(kind.dtype.to_real())


def to_pairs(array: np.ndarray) -> np.ndarray:
    """Complex numbers as pairs, in the same memory where they lie row by row; others as they are."""
    if array.dtype.kind != "c":
        return array
    array = np.asarray(array, order="C")
    return array.reshape(-1).view(array.real.dtype).reshape(*array.shape, 2)


def from_pairs(array: np.ndarray) -> np.ndarray:
    """Pairs as complex numbers, in the same memory where they lie row by row."""
    array = np.asarray(array, order="C")
    kind = np.result_type(array.dtype, np.complex64)
    return array.reshape(-1).view(kind).reshape(array.shape[:-1])


def _infer(*types: Type, body: Graph) -> tuple[Type, ...]:
    wanted = tuple(paired_type(p.type) for p in body.params)
    if types != wanted:
        raise GraphError(
            f"by_pairs(*operands): graph {body.name} takes ({', '.join(map(str, wanted))}), "
            f"got ({', '.join(map(str, types))})"
        )
    return tuple(paired_type(v.type) for v in body.results)


def _given(arrays: tuple, body: Graph) -> list[np.ndarray]:
    pairs = zip(arrays, body.params, strict=True)
    return [from_pairs(a) if p.dtype.is_complex else a for a, p in pairs]


def _reference(*operands: np.ndarray, body: Graph) -> tuple[np.ndarray, ...]:
    return tuple(to_pairs(np.asarray(out)) for out in interpret(body, *_given(operands, body)))


def _quick(types: tuple, attrs: dict) -> Callable | None:
    """The reference of the one node, without the graph around it."""
    body = attrs["body"]
    if len(body.nodes) != 1 or body.results != body.nodes[0].outputs:
        return None
    (node,) = body.nodes
    compute, _ = executor(node.op, tuple(None if v is None else v.type for v in node.inputs), node.attrs)
    at = {p: i for i, p in enumerate(body.params)}
    if any(v is not None and v not in at for v in node.inputs):
        return None
    places = [None if v is None else at[v] for v in node.inputs]

    def run(*arrays: np.ndarray) -> Any:
        given = _given(arrays, body)
        found = compute(*(None if i is None else given[i] for i in places))
        found = found if isinstance(found, tuple) else (found,)
        return tuple([to_pairs(x) for x in found])

    return run


by_pairs = Op(
    "by_pairs",
    operands=("*operands",),
    attrs=("body",),
    outputs=("*results",),
    bind=lambda *operands, body: (operands, {"body": body}),
    infer=_infer,
    reference=_reference,
    quick=_quick,
    lower=lowering.extern("kernels are of real numbers, and its parts have no formula of theirs"),
    traits=Traits(),
    samples=lambda: [],
    doc="Run an op on complex numbers, given and returned as pairs.",
)
