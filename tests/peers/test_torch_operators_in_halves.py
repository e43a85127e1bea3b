"""PyTorch's operator database in float16 and bfloat16: as near to the truth as PyTorch, and of its dtypes.

The truth is what PyTorch gives of the same numbers in float64.  What PyTorch computes in float32 and rounds
once must not be rounded here at each step.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is the peer here: pip install lamina[peers]")
pytest.importorskip("expecttest", reason="PyTorch's operator database asks for it: pip install lamina[peers]")

from operator_comparison import UNDEFINED, Case, _ours, quiet, reason_left_out  # noqa: E402
from operator_forms import Absent, Unsayable, argument, copied, flat  # noqa: E402
from test_torch_operators import drawn, entries, seed  # noqa: E402, F401

import lamina  # noqa: E402
from lamina.runtime.tensor import Tensor  # noqa: E402

SHARE, SAMPLES = 4, 4
HALVES = (torch.float16, torch.bfloat16)
# Last bits of the largest number that a result may be off where PyTorch is off by less than half of them:
# half a bit each of a cotangent, of what it is multiplied by and of the product, and one of a sum.
ROUNDINGS = 2.5
APART = {
    "as_strided_scatter": "PyTorch's gradient is wrong (operators.md)",
    "sort": "equal numbers, of which there are many among halves: PyTorch's order of them is its own",
    "msort": "as sort",
    "topk": "as sort",
    "complex": "complex numbers of halves are none here",
    "view_as_complex": "complex numbers of halves are none here",
    "addcdiv": "a sum over a broadcast dimension, of rounded terms that cancel",
}


def widened(x: Any) -> Any:
    """The arguments in float64."""
    if isinstance(x, torch.Tensor):
        y = x.detach()
        return (y.double() if y.dtype in HALVES else y.clone()).requires_grad_(x.requires_grad)
    if isinstance(x, (list, tuple)) and not isinstance(x, torch.Size):
        items = [widened(item) for item in x]
        return type(x)(*items) if hasattr(x, "_fields") else type(x)(items)
    return {key: widened(value) for key, value in x.items()} if isinstance(x, dict) else x


def gradients(library: Any, results: list, asked: list[int], arguments: Any) -> list:
    """Of the results at the places `asked`, by each argument that asks for them."""
    leaves = [x for x in flat(arguments) if isinstance(x, (Tensor, torch.Tensor)) and x.requires_grad]
    ends = [results[n] for n in asked]
    weights = []
    for y in ends:
        values = np.random.default_rng(int(np.prod(y.shape))).uniform(0.5, 1.5, tuple(y.shape))
        weights.append(library.tensor(values).to(library.bfloat16).to(y.dtype))
    return list(library.autograd.grad(ends, leaves, weights, allow_unused=True)) if ends and leaves else []


def wide(x: Any) -> np.ndarray:
    x = x.detach().double()
    return x.numpy() if isinstance(x, Tensor) else x.numpy(force=True)


def off(found: Any, theirs: Any, truth: Any) -> str | None:
    """How a result is not as it should be."""
    if not isinstance(theirs, torch.Tensor) or not isinstance(found, Tensor) or truth is None:
        return None
    if found.dtype.name != str(theirs.dtype).removeprefix("torch."):
        return f"of {found.dtype}, PyTorch's is of {theirs.dtype}"
    if not theirs.is_floating_point():
        return None
    limits = torch.finfo(theirs.dtype)
    a, b, t = wide(found), wide(theirs), wide(truth)
    known = np.isfinite(t) & np.isfinite(b) & (np.abs(t) < limits.max)
    unit = limits.eps * np.max(np.abs(t[known]), initial=0.0) or limits.eps
    error, allowed = (np.max(np.abs(x - t)[known], initial=0.0) / unit for x in (a, b))
    return (
        None
        if error <= max(ROUNDINGS, 2 * allowed)
        else f"off by {error:.1f} last bits, PyTorch {allowed:.1f}"
    )


def judged(entry: Any, dtype: Any) -> Iterator[str]:
    """What is wrong with some samples of an entry."""
    theirs, ours = _ours(entry, "function")
    torch.manual_seed(0)
    np.random.seed(0)
    made = list(entry.sample_inputs("cpu", dtype, requires_grad=True))
    for number, sample in enumerate(made[:: max(1, len(made) // SAMPLES)][:SAMPLES]):
        case = Case(entry, sample, False)
        if any(isinstance(x, torch.dtype) for x in flat(case.arguments)):
            continue  # it computes in another
        process, mine = case.process

        def called(function: Any, arguments: Any, process: Any) -> tuple[list, Any]:
            input, args, kwargs = arguments
            return flat(process(function(input, *args, **kwargs))), arguments

        try:
            given = argument(case.arguments)
            theirs_done = called(theirs, copied(case.arguments), process)
            truly = called(theirs, widened(case.arguments), process)
            asked = [
                n for n, y in enumerate(theirs_done[0]) if isinstance(y, torch.Tensor) and y.requires_grad
            ]
            slopes = [gradients(torch, done[0], asked, done[1]) for done in (theirs_done, truly)]
        except (Unsayable, RuntimeError, NotImplementedError, ValueError):
            continue  # PyTorch has none of it
        what = f"{entry.name} {str(dtype).removeprefix('torch.')} #{number}"
        try:
            done = called(ours, given, mine)
            ours_slopes = gradients(lamina, done[0], asked, done[1])
        except Exception as error:
            yield f"{what}: {type(error).__name__}: {str(error).splitlines()[0]}"
            continue
        rows = [("result", done[0], theirs_done[0], truly[0]), ("gradient", ours_slopes, *slopes)]
        for name, *columns in rows:
            if len(columns[0]) != len(columns[1]):
                yield f"{what}: {len(columns[0])} {name}s, PyTorch has {len(columns[1])}"
                continue
            for n, row in enumerate(zip(*columns, strict=True)):
                how = off(*row)
                if how:
                    yield f"{what}: {name} {n}: {how}"


@pytest.mark.timeout(300)
def test_a_days_share_is_as_near_as_pytorch(entries):  # noqa: F811
    wrong = []
    with quiet():
        for name in drawn(sorted(entries), SHARE):
            entry = entries[name]
            random = "wrapper_set_seed" in getattr(getattr(entry.op, "__code__", None), "co_names", ())
            if random or UNDEFINED.search(entry.name) or reason_left_out(entry) or entry.name in APART:
                continue
            for dtype in HALVES:
                try:
                    if entry.supports_dtype(dtype, "cpu"):
                        wrong += judged(entry, dtype)
                except (Absent, Unsayable):
                    continue
    assert not wrong, f"seed {seed()}:\n" + "\n".join(wrong)
