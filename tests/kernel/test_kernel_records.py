"""Every op record's kernel through LLVM, against the interpreter."""

import sys
from pathlib import Path

import numpy as np
import pytest
from native import LEVELS_HERE, run_code

import lamina.ir.ops  # noqa: F401 - enters the operator set
from lamina.ir.dtypes import ALL
from lamina.ir.kernel import NUMPY, interpret, verify
from lamina.ir.lowering import Decomposition, NotLowered
from lamina.ir.op import REGISTRY
from lamina.passes.graphs.lower import lower

sys.path.append(str(Path(__file__).parents[1] / "ops"))  # the records' samples as arrays
from checks import first_dtype, taken
from harness import cases

LOWERED = sorted(
    name for name, op in REGISTRY.items() if not isinstance(op.lower, (NotLowered, Decomposition))
)


def kernels(op, dtypes=("f32", "i64", "bool"), count=1):
    """A kernel with arrays, for the largest samples of some dtypes."""
    for dtype in [d for d in taken(op, ALL) if d.short in dtypes] or [first_dtype(op)]:
        for case in cases(op, dtype, count=count):
            kernel = verify(lower(op, case.types, case.attrs))
            arrays = [np.ascontiguousarray(x) for x in case.operands if x is not None]
            yield kernel, [x.reshape(b.shape) for x, b in zip(arrays, kernel.inputs, strict=True)]


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


def agrees(name, kernel, arrays, target):
    """Native code and the interpreter give the same on copies of the arrays."""
    terms = max((x.size for x in arrays), default=0)
    for got, want in zip(run_code(kernel, arrays, target), interpret(kernel, *arrays), strict=True):
        near(got, want, terms, f"{name} {target.name}\n{kernel}")


@pytest.mark.sampled(7)
@pytest.mark.parametrize("name", LOWERED)
def test_record_runs_natively(name):
    """At one width, which goes round with the records; the slow test takes each at all."""
    target = LEVELS_HERE[LOWERED.index(name) % len(LEVELS_HERE)]
    for kernel, arrays in kernels(REGISTRY[name]):
        agrees(name, kernel, arrays, target)


@pytest.mark.slow
@pytest.mark.parametrize("name", LOWERED)
def test_record_runs_natively_at_every_width_in_every_dtype(name):
    for kernel, arrays in kernels(REGISTRY[name], [d.short for d in ALL], count=3):
        for target in LEVELS_HERE:
            agrees(name, kernel, arrays, target)
