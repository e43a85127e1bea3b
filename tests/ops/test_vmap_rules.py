"""vmap of every record, each operand batched or not, against a loop over the examples."""

import itertools
import warnings
from dataclasses import replace

import numpy as np
import pytest
from harness import Case, assert_near, cases

from lamina.ir import dtypes
from lamina.ir.op import REGISTRY, Op
from lamina.runtime.batched import vmap
from lamina.runtime.batching import rule_for
from lamina.runtime.dispatch import run_general
from lamina.runtime.tensor import tensor_of

SIZE = 3

# Records that vmap may run for one example after the other, with a warning, and when.
LOOPED = {
    "_assert_async": "it asserts each",
    "softmax_cross_entropy_grad": "where the weights of the classes are batched",
}
# Those it refuses, or that have no examples: shapes that hang on values, whole optimizer steps, draws (which
# vmap makes by its own rule, see test_func_random), what has no operand.
OUTSIDE = {
    name
    for name, op in REGISTRY.items()
    if op.traits.host or op.traits.mutates or op.traits.random or op.traits.creation
}
# Those of complex numbers are compared in tests/peers/test_torch_func.py.
OPS = sorted(name for name in set(REGISTRY) - OUTSIDE if REGISTRY[name].dtypes != "complex")


def batches(x: np.ndarray) -> np.ndarray:
    """Different values for each example, in the operand's own domain."""
    if x.dtype.kind in "iub":
        return np.stack([np.roll(x, i) for i in range(SIZE)])
    return np.stack([x * x.dtype.type(1 - 0.05 * i) for i in range(SIZE)])


def listed(x):
    return tuple(x) if isinstance(x, tuple) else (x,)


def ways(case: Case, most: int):
    """Which operands are batched: each alone, all together, then other combinations."""
    there = [i for i, x in enumerate(case.operands) if x is not None]
    every = [c for n in (len(there), *range(1, len(there))) for c in itertools.combinations(there, n)]
    return every[:most]


def check(case: Case, chosen: tuple[int, ...], last: bool) -> set[str]:
    """Compare one way of batching with the loop; the warnings it gave."""
    op: Op = case.op
    if op.name == "searchsorted":  # NumPy's answers for what is not sorted hang on what it was asked before
        case = replace(case, operands=(np.sort(case.operands[0]), case.operands[1]))
    full = [batches(x) if i in chosen else x for i, x in enumerate(case.operands)]
    tensors = [None if x is None else tensor_of(x) for x in full]
    dims = [(-1 if last else 0) if i in chosen else None for i in range(len(full))]
    given = [
        x if d is None else tensor_of(np.moveaxis(full[i], 0, d).copy())
        for i, (x, d) in enumerate(zip(tensors, dims, strict=True))
    ]
    there = [x for x in given if x is not None]

    def one(*xs):
        rest = iter(xs)
        return listed(run_general(op, [None if x is None else next(rest) for x in given], case.attrs))

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = vmap(one, tuple(d for x, d in zip(given, dims, strict=True) if x is not None))(*there)
    rows = [
        listed(
            run_general(
                op, [x if x is None or i not in chosen else x[k] for i, x in enumerate(tensors)], case.attrs
            )
        )
        for k in range(SIZE)
    ]
    for y, column in zip(found, zip(*rows, strict=True), strict=True):
        wanted = np.stack([z._data for z in column])
        what = f"{case}: operands {chosen} batched {'last' if last else 'first'}"
        assert y._data.dtype == wanted.dtype, f"{what}: dtype {y._data.dtype}, not {wanted.dtype}"
        # sums may be taken in another order: one rounding for each of at most 200 terms
        scale = np.max(np.abs(np.nan_to_num(np.asarray(wanted, np.float64), posinf=0, neginf=0)), initial=0.0)
        eps = float(np.finfo(wanted.dtype).eps) if wanted.dtype.kind == "f" else 0.0
        assert_near(y._data, wanted, 200 * eps * scale, what)
    return {op.name for w in caught if f"vmap runs {op.name}" in str(w.message)}


def check_record(name: str, samples: int | None, most: int) -> set[str]:
    op, looped = REGISTRY[name], set()
    takes = {"int": dtypes.int64, "byte": dtypes.int8}.get(op.dtypes, dtypes.float64)
    for case in cases(op, takes, count=samples):
        if any(x is not None and 0 in x.shape for x in case.operands) and op.traits.refuses:
            continue
        for chosen in ways(case, most):
            for last in (False, True):
                looped |= check(case, chosen, last)
    return looped


@pytest.mark.sampled(7)
@pytest.mark.parametrize("name", OPS)
def test_vmap_of_record(name):
    looped = check_record(name, 1, 2)
    assert (name in looped) <= (name in LOOPED), f"{name} falls back to a loop"


@pytest.mark.slow
@pytest.mark.parametrize("name", OPS)
def test_vmap_of_record_every_sample(name):
    check_record(name, None, 15)


def test_vmap_has_a_rule_for_every_record():
    assert [name for name in OPS if rule_for(REGISTRY[name], ()) is None] == ["_assert_async"]
