"""The KernelBuilder: what a record's build function writes, as kernel text, and what it refuses."""

import numpy as np
import pytest

import lamina.ir.ops  # noqa: F401 - enters the records
from lamina.ir import dtypes
from lamina.ir.errors import KernelError
from lamina.ir.kernel.build import KernelBuilder
from lamina.ir.kernel.interpret import interpret
from lamina.ir.kernel.text import parse
from lamina.ir.kernel.verify import verify
from lamina.ir.op import REGISTRY
from lamina.ir.types import type_of

exp, maximum, where, matmul = (REGISTRY[name] for name in ("exp", "maximum", "where", "matmul"))


def builder(*operands, outputs=None, reads=None):
    named = [(f"x{n}" if n else "x", t) for n, t in enumerate(operands)]
    outs = outputs or (operands[0],)
    return KernelBuilder("f", named, [(f"y{n}" if n else "y", t) for n, t in enumerate(outs)], reads)


def f64(*shape):
    return type_of(dtypes.float64, shape)


def finished(k):
    kernel = verify(k.finish())
    assert str(parse(str(kernel))) == str(kernel)
    return kernel


def body(k):
    return [line.strip() for line in str(finished(k)).splitlines()[1:-1]]


def test_build_softmax_reads_as_the_form_does():
    k = builder(f64(3, 17))
    (x,) = k.operands
    (i,), (j,) = k.parallel(3), k.axes(17)
    high = k.max(x[i, j], over=(j,))
    e = k.local(exp(x[i, j] - high), over=(j,))
    k.store(e[j] / k.sum(e[j], over=(j,)), at=(i, j), over=(j,))
    assert body(k) == [
        "parallel i:3",
        "t = max(r:17) x[i, r]",
        "t1[r] = exp((x[i, r] - t)) for r:17",
        "t2 = sum(r:17) t1[r]",
        "y[i, r] = (t1[r] / t2) for r:17",
    ]


def test_build_halves_are_read_as_f32_and_rounded_at_the_store():
    half = type_of(dtypes.bfloat16, (4,))
    k = builder(half, reads={0: dtypes.float32})
    (i,) = k.parallel(4)
    k.store(k.operands[0][i] * 0.5, at=(i,))
    assert k.operands[0].dtype is dtypes.float32
    assert body(k)[1] == "y[i] = bf16((f32(x[i]) * 0.5))"


def test_build_indices_stay_affine_and_become_expressions_where_they_are_not():
    k = builder(f64(40), outputs=(f64(4, 5),))
    (x,) = k.operands
    i, j = k.parallel(4, 5)
    value = x[2 * i + 3 * j - 1 + 1] + x.at(i - j, outside=-1.0) + x[(i + j) // 2]
    k.store(where(i < j, value, 0.0), at=(i, j))
    assert body(k)[1] == (
        "y[i, i1] = select((coord(i) < coord(i1)), ((x[2*i+3*i1] + x[i-i1 else -1.0]) + "
        "x[floor_div(coord(i+i1), 2)]), 0.0)"
    )


def test_build_broadcast_reads_from_the_right():
    k = builder(f64(2, 3), f64(1), f64(2, 1), f64())
    i, j = k.parallel(2, 3)
    a, b, c, d = (x.broadcast(i, j) for x in k.operands)
    k.store(maximum(a + b, c + d), at=(i, j))
    assert body(k)[1] == "y[i, i1] = max((x[i, i1] + x1[0]), (x2[i, 0] + x3[]))"


def test_build_outside_fits_the_type():
    for dtype, spelled in ((dtypes.float64, "-inf"), (dtypes.int8, "-128"), (dtypes.bool_, "true")):
        k = builder(type_of(dtype, (3,)))
        (i,) = k.parallel(3)
        k.store(k.operands[0].at(i - 1, outside=-float("inf")), at=(i,))
        assert f"else {spelled}]" in str(finished(k))


def test_build_store_converts_constants_and_values():
    for value, dtype, spelled in (
        (2.5, dtypes.int64, "i64(2)"), (0, dtypes.bool_, "bool(false)"), (True, dtypes.float32, "f32(1.0)"),
    ):  # fmt: skip
        k = builder(f64(3), outputs=(type_of(dtype, (3,)),))
        (i,) = k.parallel(3)
        k.store(value, at=(i,))
        assert body(k)[1] == f"y[i] = {spelled}"
    k = builder(f64(3), outputs=(type_of(dtypes.bool_, (3,)),))
    (i,) = k.parallel(3)
    k.store(k.operands[0][i], at=(i,))
    assert body(k)[1] == "y[i] = (x[i] != 0)"


@pytest.mark.parametrize("merged", [False, True])
def test_build_argmax_takes_the_first_of_equals_and_the_first_nan(merged):
    k = builder(f64(4, 3, 2), outputs=(f64(4), type_of(dtypes.int64, (4,))))
    (i,), (r, s) = k.parallel(4), k.axes(3, 2)
    best, at = k.argmax(k.operands[0][i, r, s], over=(r, s))
    k.store(best, at=(i,))
    k.store(at, at=(i,), output=1)
    x = np.array([[1, 5, 2, 5, 0, 1], [7] * 6, [-np.inf] * 6, [1, 2, np.nan, 9, np.nan, 0]]).reshape(4, 3, 2)
    values, places = interpret(finished(k), x, merged=merged)
    assert places.tolist() == [1, 0, 0, 2]
    np.testing.assert_array_equal(values, [5, 7, -np.inf, np.nan])


def test_build_scan_and_fold_carry_state():
    k = builder(f64(5), outputs=(f64(5), f64()))
    k.parallel()
    (j,) = k.axes(5)
    (x,) = k.operands
    running = k.scan("sum", x[j], along=j)
    k.store(running[j], at=(j,), over=(j,))
    (total,) = k.fold((0.0,), lambda state: (state[0] * 0.5 + x[j],), over=(j,))
    k.store(total, at=(), output=1)
    values = np.arange(5.0)
    sums, last = interpret(finished(k), values)
    np.testing.assert_array_equal(sums, np.cumsum(values))
    assert last == ((0.5 * 1 + 2) * 0.5 + 3) * 0.5 + 4


def test_build_scatter_adds_where_indices_meet():
    k = builder(f64(4), type_of(dtypes.int64, (4,)), outputs=(f64(3),))
    (i,) = k.parallel(4)
    k.scatter(k.operands[0][i], at=(k.operands[1][i],))
    (found,) = interpret(finished(k), np.arange(1.0, 5.0), np.array([2, 0, 2, 2]))
    assert found.tolist() == [2, 0, 8]


def test_build_absent_operand_is_none_and_empty_sizes_are_fine():
    k = builder(f64(0, 3), None)
    assert k.operands[1] is None
    i, j = k.parallel(0, 3)
    k.store(k.operands[0][i, 0], at=(i, j))
    assert interpret(finished(k), np.zeros((0, 3)))[0].shape == (0, 3)


REFUSED = {
    "an operand is read with one index for each dimension": lambda k, x, i, j: x[i],
    "t is read at the axes it was made over": lambda k, x, i, j: k.local(x[i, j], over=(j,))[i],
    "f: `over` takes local axes, as k.axes made them": lambda k, x, i, j: k.sum(x[i, j], over=(i,)),
    "f: the parallel axes are laid out once": lambda k, x, i, j: k.parallel(3),
    "f: a stage's value needs an element type": lambda k, x, i, j: k.sum(1.0, over=(j,)),
    "matmul is not elementwise, so it can't be applied to the scalars of a kernel": (
        lambda k, x, i, j: matmul(x[i, j], x[i, j])
    ),
    "a scalar expression has no truth value while a kernel is built": lambda k, x, i, j: bool(x[i, j] > 0),
}


@pytest.mark.parametrize("rule", REFUSED)
def test_build_refuses(rule):
    k = builder(f64(3, 4))
    (i,), (j,) = k.parallel(3), k.axes(4)
    with pytest.raises(KernelError) as raised:
        REFUSED[rule](k, k.operands[0], i, j)
    assert raised.value.rule == rule


def test_build_refuses_symbolic_sizes():
    from lamina.ir.dims import symbol

    with pytest.raises(KernelError, match="a kernel is built for known sizes"):
        builder(type_of(dtypes.float64, (symbol("n"), 3)))


def test_build_refuses_stages_before_the_parallel_axes():
    k = builder(f64(3))
    (j,) = k.axes(3)
    with pytest.raises(KernelError, match="lay out the parallel axes before the stages"):
        k.sum(k.operands[0][j], over=(j,))
