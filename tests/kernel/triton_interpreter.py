"""Run probes in Triton's interpreter: one line for each, and 1 as exit status where a result differs.

In a process of its own, since TRITON_INTERPRET counts when triton is imported.
"""

import os
import sys

os.environ["TRITON_INTERPRET"] = "1"

import numpy as np
import triton.language as tl
from probes import PROBES
from triton.runtime.interpreter import TensorHandle

from lamina.ir.kernel import NUMPY
from lamina.ir.kernel.form import identity
from lamina.passes.triton.compiler import build
from lamina.passes.triton.emit import TYPES, lower
from lamina.passes.triton.schedule import default_schedule, grid


def pointer(array: np.ndarray, dtype: str) -> tl.tensor:
    """A ready pointer value: the interpreter passes on what has no data_ptr, and writes land in the array."""
    kind = tl.pointer_type(getattr(tl, TYPES[dtype]))
    return tl.tensor(TensorHandle(np.array([array.ctypes.data], np.uint64), kind), kind)


def blank(kernel, buffer) -> np.ndarray:
    combine = next((s.combine for s in kernel.stores if s.buffer == buffer.name and s.combine), None)
    start = identity(combine, buffer.dtype) if combine else 0
    return np.full(buffer.shape, start, NUMPY[buffer.dtype])


def run(name: str) -> float:
    """The largest error of a probe's outputs, relative to the largest value."""
    probe, kernel = PROBES[name], PROBES[name].kernel
    function = build(lower(kernel), kernel.name)
    arrays = [*probe.arrays(), *(blank(kernel, b) for b in kernel.outputs)]
    pointers = [pointer(a, b.dtype) for a, b in zip(arrays, kernel.buffers.values(), strict=True)]
    function[(grid(kernel, default_schedule(kernel)),)](*pointers)
    worst = 0.0
    for got, want in zip(arrays[len(kernel.inputs) :], probe.wanted(), strict=True):
        got, want = got.astype(np.float64), np.asarray(want, np.float64)
        same = (got == want) | (np.isnan(got) & np.isnan(want))
        error = np.where(same, 0, np.abs(got - want)) / max(
            1.0, np.abs(want[np.isfinite(want)]).max(initial=0)
        )
        worst = max(worst, float(np.max(error, initial=0)))
    return worst


if __name__ == "__main__":
    failed = False
    for name in sys.argv[1:]:
        with np.errstate(all="ignore"):
            worst = run(name)
        # float32 sums of at most 101 terms as in test_kernel_llvm.py; a comparison with NaN is a failure
        bound = 2.0**-8 if name == "halves" else 2e-6
        failed |= not worst <= bound
        print(f"{name} {worst:.1e} {'ok' if worst <= bound else 'WRONG'}", flush=True)
    sys.exit(failed)
