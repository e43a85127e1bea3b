"""The node tests of the package onnx: one for each thing that an operator is to do.

python tests/exchange/node_tests.py [PART ...]     those whose names hold a part; what fails, and why
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

import lamina
from lamina.exchange.onnx.network import module_of
from lamina.exchange.onnx.reading import declared
from lamina.runtime import Tensor


@cache
def loaded() -> list[Any]:
    """All tests."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they are computed as they are loaded
        return load_model_tests(kind="node")


def every(parts: list[str]) -> Iterator[Any]:
    """The tests whose names hold one of the parts, or all."""
    return (test for test in loaded() if not parts or any(part in test.name for part in parts))


# The tests' tolerance is below what halves can tell apart, and they round after each step where Lamina's
# kernels round once: each of the two may be off by the distance of neighbours (attention, against float64:
# expected numbers by 0.0085, Lamina's by 0.0034).
STEP = {"bfloat16": 2 * 2**-7, "float16": 2 * 2**-10}
# Parts of names of tests that are left out, and why.
LEFT_OUT = {
    "test_bernoulli": "random numbers of another generator",
}


def left_out(name: str) -> str:
    """Why a test is not run; "" where it is."""
    return next((reason for part, reason in LEFT_OUT.items() if part in name), "")


def held(value: Any) -> Any:
    """A value of a test: some are messages of ONNX's."""
    from onnx import TensorProto, numpy_helper

    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else value


def given(value: Any) -> Any:
    """An input as a user has it: a tensor where there is such a dtype."""
    if not isinstance(value, np.ndarray) or value.dtype.kind in "OUS":
        return value
    try:
        return lamina.tensor(value)
    except lamina.DTypeError:
        return value


def plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return value.detach().numpy() if isinstance(value, Tensor) else value


def difference(found: Any, wanted: Any, rtol: float, atol: float) -> str:
    """What is wrong with a result; "" if nothing is."""
    if wanted is None or isinstance(wanted, (list, tuple)):
        if wanted is None or found is None or len(found) != len(wanted):
            return "" if found is wanted else f"{found} in place of {wanted}"
        return next(
            filter(None, (difference(f, w, rtol, atol) for f, w in zip(found, wanted, strict=True))), ""
        )
    found, wanted = np.asarray(found), np.asarray(wanted)
    if found.shape != wanted.shape:
        return f"shape {found.shape} in place of {wanted.shape}"
    if wanted.dtype.kind in "OUS":
        return "" if (found.astype(str) == wanted.astype(str)).all() else f"{found} in place of {wanted}"
    if found.dtype != wanted.dtype:
        return f"{found.dtype} in place of {wanted.dtype}"
    rtol = max(rtol, STEP.get(wanted.dtype.name, 0.0))
    if wanted.dtype.kind not in "biufc":  # those of ml_dtypes
        found, wanted = found.astype(np.float64), wanted.astype(np.float64)
    if np.allclose(found, wanted, rtol=rtol, atol=atol, equal_nan=True):
        return ""
    return f"off by {np.nanmax(np.abs(found.astype(complex) - wanted.astype(complex)))}"


def fault(test: Any) -> str:
    """What is wrong with what a model computes; "" if nothing is.  Raises what loading or running it does."""
    module = module_of(declared(test.model))
    for inputs, outputs in test.data_sets:
        inputs, outputs = [*map(held, inputs)], [*map(held, outputs)]
        with lamina.no_grad():
            found = module(*map(given, inputs))
        several = found if isinstance(found, tuple) else (found,)
        problem = difference(plain(several), outputs, test.rtol, test.atol)
        if problem:
            return problem
    return ""


def main() -> None:
    good, bad, missing = 0, [], Counter()
    for test in every(sys.argv[1:]):
        try:
            problem = fault(test)
        except Exception as error:
            problem = f"{type(error).__name__}: {' | '.join(str(error).splitlines())[:300]}"
            if "operators that are not known" in problem:
                missing.update(str(error).splitlines()[1:])
                continue
        good += not problem
        bad += [f"{test.name}: {problem}"] * bool(problem)
    print(*bad, sep="\n")
    print(f"{good} good, {len(bad)} not; operators missing: {dict(missing.most_common())}")


if __name__ == "__main__":
    main()
