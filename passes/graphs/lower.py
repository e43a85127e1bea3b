"""From an op's record to its kernel, or to the graph of simpler ops that it stands for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...ir.dtypes import DType, from_numpy_dtype
from ...ir.errors import KernelError
from ...ir.execute import executor, operand_dtypes
from ...ir.graph import Builder, Graph, Value
from ...ir.kernel.build import KernelBuilder
from ...ir.kernel.form import Kernel
from ...ir.kernel.interpret import interpret
from ...ir.kernel.verify import verify
from ...ir.lowering import Decomposition, KernelForm, NotLowered, Pointwise, Recurrence
from ...ir.op import REGISTRY, Op
from ...ir.recur import in_turn
from ...ir.types import Type, type_of

Attrs = Mapping[str, Any]


def lower(op: Op, types: Sequence[Type | None], attrs: Attrs) -> Kernel:
    """The kernel of one op on operands of these types; None for an optional operand left out.

    add(i64[3], f32[2,3]) -> out[i, i1] = (f32(input[i1]) + other[i, i1])

    Raises KernelError for symbolic sizes, and where the record states no kernel: extern and host-only ops
    (with the record's reason), and decompositions, which `decompose` turns into a graph.
    """
    if isinstance(op.lower, NotLowered):
        raise KernelError(f"{op.name} has no kernel, it is {op.lower.kind}", op.lower.reason)
    if isinstance(op.lower, Decomposition):
        raise KernelError(
            f"{op.name} is a graph of other ops, not one kernel", "decompose(op, types, attrs) makes it"
        )
    outputs = inferred(op, types, attrs)
    k = KernelBuilder(
        op.name,
        list(zip(numbered(op.operands, len(types)), types, strict=True)),
        list(zip(numbered(op.all_outputs, len(outputs)), outputs, strict=True)),
        read_dtypes(op, types, attrs),
    )
    if isinstance(op.lower, KernelForm):
        op.lower.build(k, *k.operands, **attrs)
    elif isinstance(op.lower, Pointwise):
        axes = k.parallel(*outputs[0].shape)
        values = op.lower.body(*(x and x.broadcast(*axes) for x in k.operands), **attrs)
        for n, value in enumerate(values if isinstance(values, tuple) else (values,)):
            k.store(value, at=axes, output=n)
    return k.finish()


def decompose(op: Op, types: Sequence[Type | None], attrs: Attrs, loops: bool = True) -> Graph:
    """The graph of other ops that a decomposed op stands for; its results are the op's outputs, hidden ones
    too.  loops: whether it is for programs that have any.

    Operands are converted as for the reference (halves to f32), results to the inferred dtypes.  Raises
    KernelError for an op that is not a decomposition.
    """
    if not isinstance(op.lower, Decomposition):
        raise KernelError(f"{op.name} is not stated as a graph of other ops", f"its lowering: {op.lower}")
    outputs, reads = inferred(op, types, attrs), read_dtypes(op, types, attrs)
    with Builder(op.name) as b:
        names = numbered(op.operands, len(types))
        params = [t and b.param(t, name) for t, name in zip(types, names, strict=True)]
        operands = (x if x is None else as_dtype(x, reads.get(i, x.dtype)) for i, x in enumerate(params))
        results = (op.lower.function if loops else op.lower.flat)(*operands, **attrs)
        results = results if isinstance(results, tuple) else (results,)
        return b.finish([as_dtype(x, t.dtype) for x, t in zip(results, outputs, strict=True)])


def interpret_lowered(op: Op, arrays: Sequence[np.ndarray | None], attrs: Attrs, **how: bool) -> tuple:
    """Run the lowering in NumPy: the kernel's interpreter, or that of each node's kernel in a decomposition.

    how: as `interpret` takes it.  A node that is extern runs its reference.  Raises KernelError as `lower`
    does.
    """
    types = tuple(x if x is None else type_of(dtype_of(x), x.shape) for x in arrays)
    if not isinstance(op.lower, Decomposition):
        kernel = verify(lower(op, types, attrs))
        return tuple(interpret(kernel, *(x for x in arrays if x is not None), **how))
    given = [x for x in arrays if x is not None]
    return _interpreted(decompose(op, types, attrs), *given, **how)


def _interpreted(graph: Graph, *arrays: np.ndarray, **how: bool) -> tuple:
    values = dict(zip(graph.params, arrays, strict=True))
    for node in graph.nodes:
        operands = [v if v is None else values.get(v, getattr(v, "data", None)) for v in node.inputs]
        if isinstance(node.op.lower, NotLowered):
            run, _ = executor(node.op, tuple(None if v is None else v.type for v in node.inputs), node.attrs)
            results = run(*operands)
            results = results if isinstance(results, tuple) else (results,)
        elif isinstance(node.op.lower, Recurrence):
            attrs = dict(node.attrs)
            results = in_turn(partial(_interpreted, attrs.pop("body"), **how), operands, **attrs)
        else:
            results = interpret_lowered(node.op, operands, node.attrs, **how)
        values.update(zip(node.outputs, results, strict=True))
    return tuple(values.get(v, getattr(v, "data", None)) for v in graph.results)


def inferred(op: Op, types: Sequence[Type | None], attrs: Attrs) -> tuple[Type, ...]:
    """The types of all outputs."""
    outputs = op.infer(*types, **attrs)
    return outputs if isinstance(outputs, tuple) else (outputs,)


def read_dtypes(op: Op, types: Sequence[Type | None], attrs: Attrs) -> dict[int, DType]:
    """By position, the operands that are converted before they are computed with."""
    return {i: element_type(dtype) for i, dtype in operand_dtypes(op, tuple(types), attrs)}


def element_type(dtype: np.dtype) -> DType:
    found = from_numpy_dtype(dtype)
    assert found is not None, f"NumPy's {dtype} stands for no element type"
    return found


def dtype_of(array: np.ndarray) -> DType:
    return element_type(array.dtype)


def as_dtype(x: Value, dtype: DType) -> Value:
    return x if x.dtype is dtype else REGISTRY["cast"](x, dtype=dtype)


def numbered(names: tuple[str, ...], count: int) -> tuple[str, ...]:
    """A name for each of `count` operands or outputs: those that a last "*name" stands for are numbered."""
    if not names or not names[-1].startswith("*"):
        return names
    fixed, last = names[:-1], names[-1][1:]
    return (*fixed, *(f"{last}{n}" for n in range(count - len(fixed))))
