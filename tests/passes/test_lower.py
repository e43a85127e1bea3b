"""Lowering of single ops: the kernels and graphs as text, and what has neither.

That every record's lowering computes what its reference does is tests/ops' business.
"""

import numpy as np
import pytest

import lamina.ir.ops  # noqa: F401 - enters the records
from lamina.ir import dtypes, lowering
from lamina.ir.errors import KernelError
from lamina.ir.op import REGISTRY, Op
from lamina.ir.types import type_of
from lamina.passes.graphs.lower import decompose, interpret_lowered, lower, numbered

STD = {"dim": (1,), "correction": 1, "keepdim": False}


def test_lower_pointwise_broadcasts_and_casts_as_the_record_says():
    kernel = lower(REGISTRY["add"], [type_of(dtypes.int64, (3,)), type_of(dtypes.float32, (2, 3))], {})
    assert str(kernel) == (
        "kernel add(input: i64[3], other: f32[2,3]) -> (out: f32[2,3]) {\n"
        "  parallel i:2 i1:3\n"
        "  out[i, i1] = (f32(input[i1]) + other[i, i1])\n"
        "}"
    )


def test_lower_halves_are_computed_in_f32():
    kernel = lower(
        REGISTRY["sum"], [type_of(dtypes.float16, (2, 3))], {"dim": (1,), "keepdim": False, "dtype": None}
    )
    assert str(kernel) == (
        "kernel sum(input: f16[2,3]) -> (out: f16[2]) {\n"
        "  parallel i:2\n"
        "  t = sum(r:3) f32(input[i, r])\n"
        "  out[i] = f16(t)\n"
        "}"
    )


def test_decompose_converts_once_on_the_way_in_and_once_on_the_way_out():
    graph = decompose(REGISTRY["std"], [type_of(dtypes.float16, (2, 3))], STD)
    assert str(graph) == (
        "graph std(%input: f16[2,3]) -> (f16[2]) {\n"
        "  %0 = cast(%input) {dtype=f32} : f32[2,3]\n"
        "  %1 = var(%0) {dim=(1,), correction=1, keepdim=False} : f32[2]\n"
        "  %2 = sqrt(%1) : f32[2]\n"
        "  %3 = cast(%2) {dtype=f16} : f16[2]\n"
        "  return %3\n"
        "}"
    )


def test_interpret_lowered_runs_kernels_and_decompositions():
    x = np.random.default_rng(0).normal(size=(4, 5))
    (found,) = interpret_lowered(REGISTRY["std"], [x], STD)
    np.testing.assert_allclose(found, x.std(1, ddof=1), rtol=1e-14)  # 5 terms, a few roundings each
    (found,) = interpret_lowered(REGISTRY["mul"], [x, np.asarray(2.0)], {})
    np.testing.assert_array_equal(found, 2 * x)


def test_interpret_lowered_runs_extern_nodes_by_their_references():
    op = Op(
        "smallest_doubled",
        infer=lambda input: input.with_shape((2,)),
        reference=lambda input: np.sort(input)[:2] * 2,
        lower=lowering.decomposition(lambda input: REGISTRY["sort"](input)[0][:2] * 2),
        samples=lambda: [],
    )
    (found,) = interpret_lowered(op, [np.array([3.0, 1.0, 2.0])], {})
    assert found.tolist() == [2.0, 4.0]


@pytest.mark.parametrize(
    "function, name, message",
    [
        (lower, "sort", "sort has no kernel, it is extern\n  sorting is a library routine of the host"),
        (
            lower,
            "argwhere",
            "argwhere has no kernel, it is host-only\n  the number of places depends on the values",
        ),
        (lower, "std", "std is a graph of other ops, not one kernel\n  decompose(op, types, attrs) makes it"),
    ],
)
def test_lower_refuses_with_the_records_reason(function, name, message):
    with pytest.raises(KernelError) as raised:
        function(REGISTRY[name], [type_of(dtypes.float32, (3, 4))], {})
    assert str(raised.value) == message


def test_decompose_refuses_an_op_with_a_kernel():
    with pytest.raises(KernelError, match="exp is not stated as a graph of other ops"):
        decompose(REGISTRY["exp"], [type_of(dtypes.float32, (3,))], {})


def test_numbered_names_each_of_a_variadic_ops_operands():
    assert numbered(("input", "*indices"), 3) == ("input", "indices0", "indices1")
    assert numbered(("input", "other"), 2) == ("input", "other")
    assert numbered((), 0) == ()
