"""Runs the parts of compiled programs that are Python's: ops without a kernel, and looks at indices."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..ir.errors import DimError, KernelError
from ..ir.execute import executor
from ..ir.kernel.interpret import check_indices
from ..ir.kernel.text import parse as parse_kernel
from ..ir.meeting import Pending, carrier_for
from ..ir.text import parse as parse_graph
from ..passes.programs.host_parts import Check, Meet, OnHost


def op_of(part: OnHost) -> tuple[str, Callable[..., tuple[np.ndarray, ...]]]:
    """The name of a part's op, and what that makes of its operands (None: one left out)."""
    (node,) = parse_graph(part.text).nodes
    types = tuple(None if value is None else value.type for value in node.inputs)
    compute, _ = executor(node.op, types, node.attrs)

    def run(*arrays: np.ndarray | None) -> tuple[np.ndarray, ...]:
        results = compute(*arrays)
        return results if isinstance(results, tuple) else (results,)

    return node.attrs["body"].name if "body" in node.attrs else node.op.name, run


def collective_of(part: Meet) -> tuple[str, Callable[[np.ndarray, np.ndarray], Pending | None]]:
    """The name of a collective, and what begins it from one array to another."""
    (node,) = parse_graph(part.text).nodes
    kind, attrs = node.op.name, node.attrs
    if len(attrs["group"]) > 1:
        return kind, lambda x, out: carrier_for(kind, attrs["group"]).start(kind, attrs, (x,), (out,), True)
    _, compute = op_of(OnHost(part.text, (part.input,), (part.output,)))

    def alone(x: np.ndarray, out: np.ndarray) -> None:
        np.copyto(out, compute(x)[0])

    return kind, alone


def check_of(part: Check, name: str) -> Callable[..., None]:
    """Looks at the indices of a kernel; the arrays are its inputs.  Raises DimError.  name: the program's."""
    kernel = parse_kernel(part.text)

    def run(*arrays: np.ndarray) -> None:
        try:
            check_indices(kernel, *arrays)
        except KernelError as error:
            raise DimError(f"{name}: an index is out of range", error.rule, *error.details) from None

    return run


def out_of_range(name: str, kernel: str) -> DimError:
    """The error of a program whose own code found an index out of range, before that kernel."""
    return DimError(f"{name}: an index is out of range", f"in: {kernel}")
