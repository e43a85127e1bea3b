"""Every op record on a tensor's device, forwards and back, beside the CPU."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import lamina
from lamina.ir import dtypes
from lamina.ir.op import REGISTRY, Op
from lamina.runtime.cuda import eager
from lamina.runtime.dispatch import run_general

sys.path.append(str(Path(__file__).parents[1] / "ops"))  # the records' samples as arrays
from checks import first_dtype, layouts
from harness import TAKES, Case, assert_near, cases

ALIKE = {"view_as_complex"}  # whose samples' last dimension may have no gaps
SIGNS = {"linalg_eigh", "linalg_qr", "linalg_svd"}  # which each library gives to vectors as it likes


def calls(op: Op) -> Iterator[tuple[Case, bool]]:
    """The largest samples, and of each further layout one, whose operands are to have gaps on the device."""
    dtype = dtypes.float32 if dtypes.float32 in TAKES[op.dtypes] else first_dtype(op)
    for case in cases(op, dtype, count=2):
        yield case, False
    for layout in () if op.name in ALIKE else layouts(op):
        for case in cases(op, dtype, layout, count=1):
            yield case, True


def placed(x: np.ndarray | None, gaps: bool, wanted: bool) -> Any:
    """A leaf on the device with an array's values; every second element of another tensor, with `gaps`."""
    if x is None:
        return None
    given = lamina.tensor(np.array(x))
    made = given.cuda()
    if gaps and x.ndim:
        line = lamina.empty(tuple(2 * n for n in x.shape), dtype=given.dtype, device="cuda")
        made = line[tuple(slice(0, 2 * n, 2) for n in x.shape)].copy_(given).detach()
    return made.requires_grad_(wanted and given.dtype.inexact)


def several(found: Any) -> tuple:
    return found if isinstance(found, tuple) else (found,)


def near(found: Any, wanted: Any, what: str) -> None:
    assert found.dtype is wanted.dtype, f"{what}: {found.dtype}, not {wanted.dtype}"
    y, z = (x.detach().cpu().numpy() for x in (found, wanted))
    if y.dtype.kind == "c":
        y, z = (np.stack((x.real, x.imag)) for x in (y, z))
    scale = float(np.max(np.abs(np.nan_to_num(z.astype(np.float64), posinf=0, neginf=0)), initial=0))
    inexact = wanted.dtype.inexact
    assert_near(y, z, 1e-3 * np.abs(z) + 1e-5 * scale + 1e-6 if inexact else 0, what)


def loss(outputs: tuple) -> Any:
    squares = [y * y.conj() if y.dtype.is_complex else y * y for y in outputs if y.requires_grad]
    return sum(y.real.sum() if y.dtype.is_complex else y.sum() for y in squares) if squares else None


def check(op: Op) -> int:
    """Compare every call; return how many there were."""
    count = 0
    for case, gaps in calls(op):
        operands = [*case.operands]
        if op.name == "searchsorted":  # of rows that are in no order it says nothing
            operands[0] = np.sort(operands[0])
        given = [placed(x, gaps, op.differentiable) for x in operands]
        beside = [None if x is None else lamina.tensor(np.array(x)) for x in operands]
        for x in beside:
            if x is not None:
                x.requires_grad_(op.differentiable and x.dtype.inexact)
        found, wanted = (several(run_general(op, x, case.attrs)) for x in (given, beside))
        for y, z in zip(found, wanted, strict=True):
            assert y.is_cuda or not case.operands, f"{case}: the result is on {y.device}"
            if op.name in SIGNS:
                y, z = y.detach().cpu().abs(), z.detach().abs()
            if not op.name.startswith(("empty", "new_empty")):
                near(y, z, str(case))
        if (total := loss(wanted)) is not None:
            total.backward()
            loss(found).backward()
            for y, z in zip(given, beside, strict=True):
                if z is not None and z.grad is not None:
                    assert y.grad is not None and y.grad.is_cuda, f"{case}: no gradient"
                    near(y.grad, z.grad, f"{case}: gradient")
        count += 1
    return count


def check_part(part: int, of: int) -> int:
    """Check every `of`-th record from that one on; return how many calls there were."""
    warnings.filterwarnings("ignore", ".*is computed on the host")
    by_host, there = set(), eager._by_host

    def noted(at: Any, reference: Any, name: str, *arrays: Any) -> Any:
        found = there(at, reference, name, *arrays)
        if not any(x is not None and x.dtype.kind == "c" for x in (*arrays, *several(found))):
            by_host.add(name)
        return found

    eager._by_host = noted
    count = sum(check(REGISTRY[name]) for name in sorted(REGISTRY)[part::of])
    kernels = [name for name in by_host if not eager.is_of_host(REGISTRY[name], (), ())]
    assert not kernels, f"these have kernels, and went through the host: {kernels}"
    return count
