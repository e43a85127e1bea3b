"""Axes in another order: golden kernels, refusals, and the same results."""

import numpy as np
from native import LEVELS_HERE, run_code

from lamina.ir.kernel import interpret, parse, verify
from lamina.passes.kernels.arrange_axes import accumulated_apart, in_strips

TRANSPOSED = """\
kernel k(x: f32[2048,4096]) -> (y: f32[4096,2048]) {
  parallel i:4096 j:2048
  y[i, j] = x[j, i]
}"""
STRIPS = """\
kernel k(x: f32[2048,4096]) -> (y: f32[4096,2048]) {
  parallel i_strip:64 j:2048 i:64
  y[i+64*i_strip, j] = x[j, i+64*i_strip]
}"""
SCATTER = """\
kernel k(x: f32[6,9], at: i64[6]) -> (y: f32[4,9]) {
  parallel i:6 j:9
  twice = (x[i, j] * 2.0)
  y[at[i], j] add= twice
}"""
APART = """\
kernel k(x: f32[6,9], at: i64[6]) -> (y: f32[4,9]) {
  parallel j:9
  y[at[i], j] add= (x[i, j] * 2.0) for i:6
}"""
COUNT = """\
kernel k(at: i64[6]) -> (y: i64[4]) {
  parallel i:6
  y[at[i]] add= 1
}"""


def test_transposed_copies_go_in_strips():
    kernel = verify(parse(TRANSPOSED))
    assert str(in_strips(kernel, "j", "i")) == STRIPS
    small = verify(parse(TRANSPOSED.replace("2048", "500")))
    assert in_strips(small, "j", "i") is small


def test_what_accumulates_keeps_points_apart():
    assert str(accumulated_apart(verify(parse(SCATTER)))) == APART
    assert accumulated_apart(verify(parse(APART))) is None
    assert accumulated_apart(verify(parse(COUNT))) is None
    assert accumulated_apart(verify(parse(TRANSPOSED))) is None


def test_results_stay_the_same():
    rng = np.random.default_rng(0)
    for text in (TRANSPOSED, STRIPS):
        x = rng.standard_normal((2048, 4096)).astype(np.float32)
        for target in LEVELS_HERE:
            np.testing.assert_array_equal(run_code(verify(parse(text)), [x], target)[0], x.T)
    arrays = [rng.standard_normal((6, 9)).astype(np.float32), np.array([3, 0, 3, 1, 3, 0])]
    for text in (SCATTER, APART):
        want = interpret(verify(parse(SCATTER)), *arrays)[0]
        for target in LEVELS_HERE:
            np.testing.assert_array_equal(run_code(verify(parse(text)), arrays, target)[0], want)
