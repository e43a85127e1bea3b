"""Every op record's kernel, with arrays, and the lists of the records that have none."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

import lamina.ir.ops  # noqa: F401 - enters the operator set
from lamina.ir.dtypes import ALL
from lamina.ir.kernel import Kernel, verify
from lamina.ir.lowering import Decomposition, NotLowered
from lamina.ir.op import REGISTRY
from lamina.passes.graphs.lower import lower

sys.path.append(str(Path(__file__).parents[1] / "ops"))  # the records' samples as arrays
from checks import first_dtype, taken
from harness import cases

LOWERED = sorted(n for n, op in REGISTRY.items() if not isinstance(op.lower, (NotLowered, Decomposition)))


def record_kernels(
    dtypes: Sequence[str] | None = None, names: Sequence[str] = LOWERED, count: int = 1
) -> Iterator[tuple[str, Kernel, list[np.ndarray]]]:
    """A label, a kernel and its arrays for the largest samples of each record in each dtype it takes."""
    for name in names:
        op = REGISTRY[name]
        for dtype in taken(op, ALL) or [first_dtype(op)]:
            if dtypes is not None and dtype.short not in dtypes:
                continue
            for case in cases(op, dtype, count=count):
                kernel = verify(lower(op, case.types, case.attrs))
                arrays = [np.ascontiguousarray(x) for x in case.operands if x is not None]
                shaped = [x.reshape(b.shape) for x, b in zip(arrays, kernel.inputs, strict=True)]
                yield f"{name} {dtype.short}", kernel, shaped
