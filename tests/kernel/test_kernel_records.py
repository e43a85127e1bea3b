"""Every op record's kernel through both backends: LLVM against the interpreter, Triton source written."""

import sys
from pathlib import Path

import numpy as np
import pytest

import lamina.ir.ops  # noqa: F401 - enters the operator set
from lamina.ir.errors import KernelError
from lamina.ir.kernel import NUMPY, interpret, verify
from lamina.ir.lowering import Decomposition, NotLowered
from lamina.ir.op import REGISTRY
from lamina.passes.llvm.binding import run
from lamina.passes.lower import lower
from lamina.passes.triton import emit

sys.path.append(str(Path(__file__).parents[1] / "ops"))  # the records' samples as arrays
from checks import first_dtype, taken
from harness import cases

LOWERED = sorted(
    name for name, op in REGISTRY.items() if not isinstance(op.lower, (NotLowered, Decomposition))
)
# Words with no native spelling: these ops stay with their NumPy references.
UNSPELLED = ("pow of i", "pow of u", "digamma of f", "erfinv of f64")


def kernels(op):
    """A kernel with arrays, for the largest samples of three dtypes."""
    dtypes = [d for d in taken(op) if d.short in ("f32", "i64", "bool")] or [first_dtype(op)]
    for dtype in dtypes:
        for case in cases(op, dtype, count=1):
            kernel = verify(lower(op, case.types, case.attrs))
            yield kernel, [np.ascontiguousarray(x) for x in case.operands if x is not None]


def near(got: np.ndarray, want: np.ndarray, terms: int, what: str) -> None:
    """Normwise: each of at most `terms` operations rounds once, and an expansion is within 3 ulp."""
    if want.dtype.kind in "iub":
        np.testing.assert_array_equal(got, want, err_msg=what)
        return
    name = next(name for name, dtype in NUMPY.items() if dtype == want.dtype)
    eps = {"f64": 2.0**-52, "f32": 2.0**-23, "f16": 2.0**-10, "bf16": 2.0**-7}[name]
    got, want = got.astype(np.float64), want.astype(np.float64)
    scale = np.abs(want[np.isfinite(want)]).max(initial=1.0)
    np.testing.assert_allclose(got, want, rtol=0, atol=(terms + 16) * eps * scale, err_msg=what)


@pytest.mark.parametrize("name", LOWERED)
def test_record_runs_natively(name):
    for kernel, arrays in kernels(REGISTRY[name]):
        arrays = [x.reshape(buffer.shape) for x, buffer in zip(arrays, kernel.inputs, strict=True)]
        try:
            found = run(kernel, None, *(x.copy() for x in arrays))
        except KernelError as error:
            assert any(word in error.rule for word in UNSPELLED), error
            continue
        terms = max((x.size for x in arrays), default=0)
        for got, want in zip(found, interpret(kernel, *arrays), strict=True):
            near(got, want, terms, f"{name}\n{kernel}")


@pytest.mark.parametrize("name", LOWERED)
def test_record_is_written_as_triton(name):
    for kernel, _ in kernels(REGISTRY[name]):
        try:
            assert f"def {kernel.name}(" in emit.lower(kernel)
        except KernelError as error:
            assert any(word in error.rule for word in UNSPELLED), error
