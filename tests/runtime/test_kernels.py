"""Eager ops on large arrays as native code: the same as NumPy's, for every record; and when they change over."""

import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import lamina
from lamina.ir.dtypes import bfloat16, float16, float32, int64
from lamina.ir.lowering import NotLowered
from lamina.ir.op import REGISTRY
from lamina.runtime import kernels
from lamina.runtime.plan import Plan

sys.path.append(str(Path(__file__).parents[1] / "ops"))  # the records' samples as arrays
from checks import taken
from harness import EPS, LAYOUTS, assert_near, bound, cases

LOWERED = sorted(
    name
    for name, op in REGISTRY.items()
    if not isinstance(op.lower, NotLowered) and not op.traits.view and not op.traits.host and op.operands
)
QUICK = LOWERED[:: len(LOWERED) // 24]


@pytest.fixture
def at_once(monkeypatch):
    """Every op with an array of more than one element is native from its first call on."""
    monkeypatch.setattr(kernels, "WHEN", kernels.AT_ONCE)
    for name in ("LEAST", "PLAIN_LEAST"):
        monkeypatch.setattr(kernels, name, 1)
    monkeypatch.setattr(kernels, "SLOWER", frozenset())
    kernels._known.clear()
    yield
    kernels._known.clear()


def agrees(case) -> bool:
    """Whether the case is one for native code, whose outputs are then checked."""
    plan = Plan(case.op, case.types, case.attrs)
    if not isinstance(plan.kernel, kernels.Large):
        return False
    with np.errstate(all="ignore"):
        plan.kernel(*case.operands)  # the first may look at what the reference makes of a layout
        found = plan.kernel(*case.operands)
    found = found if isinstance(found, tuple) else (found,)
    wanted, exact = case.run(), case.widened().run()
    floats = [t.dtype for t in (*case.types, *plan.outs) if t and t.dtype.is_floating_point]
    dtype = max(floats, key=EPS.__getitem__, default=float32)
    names = zip(case.names, found, wanted, exact, bound(case, exact, dtype), strict=True)
    for name, got, want, y, limit in names:
        assert type(got) is np.ndarray and got.dtype == want.dtype, f"{case}: {name} is {got.dtype}"
        if want.dtype.kind in "iub":
            limit = 0.0
            y = want
        assert_near(got, y, limit, f"{case}: {name}")
        if case.op.traits.elementwise and case.op.name != "copy":  # which the runtime writes into a tensor there is
            assert got.flags.c_contiguous == want.flags.c_contiguous, f"{case}: {name}'s strides {got.strides}"
    return True


def tried(name: str, dtypes, layouts, count: int) -> int:
    op = REGISTRY[name]
    return sum(
        agrees(case)
        for dtype in taken(op, dtypes)
        for layout in layouts
        for case in cases(op, dtype, layout, count=count)
    )


@pytest.mark.parametrize("name", QUICK)
def test_record_is_native_in_eager(name, at_once):
    tried(name, (float32, float16, int64), LAYOUTS[:2], 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", LOWERED)
def test_every_record_is_native_in_eager(name, at_once):
    assert tried(name, (float32, float16, bfloat16, int64), LAYOUTS, 3)
