"""The interpreter against direct NumPy formulas; empty axes, no axes, symbols, merges."""

import numpy as np
import pytest
from probes import INPLACE, PROBES

from lamina.ir.errors import KernelError
from lamina.ir.kernel import bind, interpret, parse, verify

# 2e-6 of the largest value: float32 sums of at most 101 terms, 24 bits, errors of random sign; expansions are
# within 3 ulp.  Halves: one rounding to 8 bits.
FLOAT32, BF16, DOUBLE = 2e-6, 2.0**-8, 1e-14


def close(got: np.ndarray, want: np.ndarray, tolerance: float, name: str) -> None:
    got, want = np.asarray(got), np.asarray(want)
    if got.dtype.kind in "iub":
        np.testing.assert_array_equal(got, want, err_msg=name)
        return
    got, want = got.astype(np.float64), want.astype(np.float64)
    scale = max(1.0, np.abs(want[np.isfinite(want)]).max(initial=0))
    np.testing.assert_allclose(got, want, rtol=0, atol=tolerance * scale, err_msg=name)


@pytest.mark.parametrize("name", PROBES)
def test_probe_equals_its_formula(name):
    probe = PROBES[name]
    tolerance = BF16 if name == "halves" else FLOAT32
    for options in ({}, {"expanded": True}, {"merged": True}):
        for got, want, buffer in zip(
            interpret(probe.kernel, *probe.arrays(), **options),
            probe.wanted(),
            probe.kernel.outputs,
            strict=True,
        ):
            assert got.shape == buffer.shape
            close(got, want, tolerance, f"{name} {options}")


@pytest.mark.parametrize("name", PROBES)
def test_exact_runs_in_float64(name):
    probe = PROBES[name]
    for got, want in zip(interpret(probe.kernel, *probe.arrays(), exact=True), probe.wanted(), strict=True):
        assert got.dtype != np.float32
        if (
            name != "dropout"
        ):  # its scale is a float32 word of the kernel: 1 / 0.75 is rounded in the formula only
            close(got, want, DOUBLE, name)


def test_inplace_gives_the_new_values_and_leaves_its_input():
    kernel = verify(parse(INPLACE))
    x, b = np.ones((8, 33), np.float32), np.arange(33, dtype=np.float32)
    (y,) = interpret(kernel, x, b)
    np.testing.assert_array_equal(y, 1 + np.broadcast_to(b, (8, 33)))
    assert (x == 1).all()


SCALAR = "kernel double(x: f32[]) -> (y: f32[]) {\n  parallel\n  y[] = (x[] * 2.0)\n}"
ROWS = """\
kernel rows(x: f32[4,0]) -> (s: f32[4], p: f32[4], hi: f32[4], e: bool[4], a: bool[4]) {
  parallel i:4
  t = sum(j:0) x[i, j]
  q = prod(j:0) x[i, j]
  m = max(j:0) x[i, j]
  some = any(j:0) (x[i, j] > 0)
  every = all(j:0) (x[i, j] > 0)
  s[i] = t
  p[i] = q
  hi[i] = m
  e[i] = some
  a[i] = every
}"""
NONE = "kernel none(x: f32[0,3]) -> (y: f32[0,3]) {\n  parallel i:0 j:3\n  y[i, j] = exp(x[i, j])\n}"
OUTSIDE = "kernel outside(x: f32[0]) -> (y: f32[3]) {\n  parallel i:3\n  y[i] = x[i else 5.0]\n}"


def test_kernel_without_axes():
    (y,) = interpret(verify(parse(SCALAR)), np.array(3, np.float32))
    assert y.shape == () and y == 6


def test_empty_axes_leave_identities():
    found = interpret(verify(parse(ROWS)), np.empty((4, 0), np.float32))
    for got, want in zip(found, (0, 1, -np.inf, False, True), strict=True):
        assert (got == want).all()
    assert interpret(verify(parse(NONE)), np.empty((0, 3), np.float32))[0].shape == (0, 3)
    assert (interpret(verify(parse(OUTSIDE)), np.empty(0, np.float32))[0] == 5).all()


SYMBOLIC = """\
kernel shifted[n, s](x: f32[3,n] strides(s,1)) -> (y: f32[3,n], flipped: f32[3,n]) {
  parallel i:3 j:n
  y[i, j] = x[i, j-1 else 0]
  flipped[i, j] = x[i, -j+n-1]
}"""


@pytest.mark.parametrize("n", [0, 1, 5])
def test_symbols_are_bound_when_run(n):
    kernel = verify(parse(SYMBOLIC))
    x = np.arange(3 * n, dtype=np.float32).reshape(3, n)
    y, flipped = interpret(kernel, x, n=n, s=7)
    np.testing.assert_array_equal(flipped, x[:, ::-1])
    np.testing.assert_array_equal(y[:, 1:], x[:, :-1])
    bound = bind(kernel, n=n, s=7)
    assert not bound.symbols and f"x: f32[3,{n}] strides(7,1)" in str(bound)
    np.testing.assert_array_equal(interpret(verify(bound), x)[1], flipped)


def test_strided_read_and_broadcast_stride():
    text = """\
kernel view(x: f32[4,3] strides(1,4), b: f32[4,3] strides(0,0)) -> (y: f32[4,3]) {
  parallel i:4 j:3
  y[i, j] = (x[i, j] + b[i, j])
}"""
    x = np.arange(12, dtype=np.float32).reshape(3, 4).T
    b = np.broadcast_to(np.float32(2), (4, 3))
    np.testing.assert_array_equal(interpret(verify(parse(text)), x, b)[0], x + 2)


def test_set_store_keeps_the_last_point():
    text = "kernel put(v: f32[5], q: i64[5]) -> (y: f32[3]) {\n  parallel i:5\n  y[q[i]] set= v[i]\n}"
    values = np.array([1, 2, 3, 4, 5], np.float32)
    (y,) = interpret(verify(parse(text)), values, np.array([0, 2, 0, 2, 2]))
    np.testing.assert_array_equal(y, [3, 0, 5])


def test_a_merge_that_disagrees_with_its_step_is_seen():
    probe = PROBES["argmax"]
    wrong = verify(parse(probe.text.replace("min(place, right.place)", "max(place, right.place)")))
    folded, merged = (interpret(wrong, *probe.arrays(), merged=m)[0] for m in (False, True))
    assert (folded != merged).any()


@pytest.mark.parametrize(
    "arrays, message",
    [
        ((), "add takes 2 arrays, got 0"),
        ((np.zeros((37, 100)), np.zeros(100, np.float32)), "has the type and shape of its buffer"),
        ((np.zeros((37, 99), np.float32), np.zeros(100, np.float32)), "has the type and shape of its buffer"),
    ],
)
def test_interpreter_refuses_other_arrays(arrays, message):
    with pytest.raises(KernelError, match=message):
        interpret(PROBES["add"].kernel, *arrays)


def test_interpreter_refuses_an_index_out_of_range():
    x, ids = PROBES["gather"].arrays()
    ids[4] = 50
    with pytest.raises(KernelError, match="index 50 is out of range for dimension 0 of size 50"):
        interpret(PROBES["gather"].kernel, x, ids)
    ids[4] = -51
    with pytest.raises(KernelError, match="index -1 is out of range for dimension 0 of size 50"):
        interpret(PROBES["gather"].kernel, x, ids)


def test_bind_wants_exactly_the_symbols():
    with pytest.raises(KernelError, match="bound with exactly its symbols"):
        bind(verify(parse(SYMBOLIC)), n=3)
