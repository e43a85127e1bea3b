"""Fewer axes, one text: golden kernels, refusals, and the same results for every record's kernel."""

import sys
from pathlib import Path

import numpy as np
import pytest
from native import Native, call_of, each_level, guarded, untouched
from probes import PROBES

import lamina.ir.ops  # noqa: F401 - enters the operator set
from lamina.ir.kernel import interpret, parse, verify
from lamina.ir.op import REGISTRY
from lamina.passes.kernels.collapse import canonical, collapsed, generalised
from lamina.passes.llvm.generate import code_of
from lamina.passes.schedules.target import AVX512

sys.path.append(str(Path(__file__).parents[1] / "ops"))
from test_kernel_records import LOWERED, kernels

BEFORE = """\
kernel k(x: f32[4,1,8,10], b: f32[8,10], s: f32[]) -> (y: f32[4,1,80]) {
  parallel i:4 j:1 k:8 l:10
  y[i, j, 10*k+l] = ((x[i, j, k, l] + b[k, l]) * s[])
}"""
AFTER = """\
kernel k(x: f32[320], b: f32[80], s: f32[1]) -> (y: f32[320]) {
  parallel i:4 k:80
  y[80*i+k] = ((x[80*i+k] + b[k]) * s[0])
}"""
OPENED = """\
kernel kernel[extent](b0: f32[extent,80], b1: f32[80], b2: f32[1]) -> (b3: f32[extent,80]) {
  parallel a0:extent a1:80
  b3[a0, a1] = ((b0[a0, a1] + b1[a1]) * b2[0])
}"""
ROWS = """\
kernel k(x: f32[6,5,8]) -> (y: f32[6]) {
  parallel i:6
  s = sum(j:5 k:8) (x[i, j, k] * f32(coord(8*j+k)))
  y[i] = s
}"""
ROWS_AFTER = """\
kernel k(x: f32[240]) -> (y: f32[6]) {
  parallel i:6
  s = sum(j:40) (x[40*i+j] * f32(coord(j)))
  y[i] = s
}"""
TRANSPOSED = """\
kernel k(x: f32[8,6]) -> (y: f32[6,8]) {
  parallel i:6 j:8
  y[i, j] = x[j, i]
}"""
GUARDED = """\
kernel k(x: f32[4,6]) -> (y: f32[24]) {
  parallel i:4 j:6
  y[6*i+j] = x[i, j-1 else 0.0]
}"""
LAST = """\
kernel k(at: i64[4,6], x: f32[4,6]) -> (y: f32[9]) {
  parallel i:4 j:6
  y[at[i, j]] set= x[i, j]
}"""


def flat(text: str) -> str:
    return str(collapsed(verify(parse(text))))


def test_axes_that_run_together_become_one():
    assert flat(BEFORE) == AFTER
    assert flat(AFTER) == AFTER
    assert flat(ROWS) == ROWS_AFTER


def test_the_slowest_axis_is_left_open():
    opened = generalised(canonical(collapsed(verify(parse(BEFORE)))))
    assert str(opened) == OPENED
    assert str(verify(opened)) == OPENED


def test_axes_that_run_apart_stay():
    assert flat(TRANSPOSED).splitlines()[1] == "  parallel i:6 j:8"
    assert flat(GUARDED).splitlines()[0] == "kernel k(x: f32[4,6]) -> (y: f32[24]) {"
    assert flat(LAST).splitlines()[1] == "  parallel i:24"  # neighbours keep their order as one axis
    assert generalised(canonical(collapsed(verify(parse(TRANSPOSED))))) is None


@pytest.mark.parametrize("name", LOWERED)
def test_a_records_kernel_stays_what_it_is(name):
    for kernel, arrays in kernels(REGISTRY[name]):
        fewer = canonical(collapsed(kernel))
        assert str(collapsed(fewer)) == str(fewer)
        assert len(fewer.axes) <= len(kernel.axes)
        verify(fewer)
        given = [x.reshape(b.shape) for x, b in zip(arrays, fewer.inputs, strict=True)]
        for got, want in zip(interpret(fewer, *given), interpret(kernel, *arrays), strict=True):
            # sums run over other dims, in NumPy's other order: 24 bits, at most 1e3 terms of size 1
            tolerance = {"rtol": 1e-5, "atol": 1e-5} if got.dtype.kind == "f" else {"rtol": 0}
            wide = np.float64 if got.dtype.kind not in "iub" else got.dtype
            np.testing.assert_allclose(got.astype(wide).reshape(want.shape), want.astype(wide), **tolerance)


def of_size(n: int, inner: str):
    text = f"""\
kernel k(x: f32[{n}{inner}], z: f32[{n}{inner}]) -> (y: f32[{n}{inner}]) {{
  parallel i:{n}{" j:5" if inner else ""}
  y[i{", j" if inner else ""}] = (exp(x[i{", j" if inner else ""}]) * z[i{", j" if inner else ""}])
}}"""
    return verify(parse(text))


@each_level
def test_one_code_serves_every_size_and_stays_in_bounds(target):
    first = code_of(call_of(of_size(7, "")), target)
    run, rng = Native(first, target), np.random.default_rng(0)
    for n, inner in [
        *((n, "") for n in range(70) if n != 1),
        (4096, ""),
        (4097, ""),
        (12_289, ""),
        (9, ",5"),
    ]:
        kernel = of_size(n, inner)
        code = code_of(call_of(kernel), target)
        size = n * 5 if inner else n
        assert code.text == first.text and code.symbols == (size,)
        run.code = code
        x, z, y = (guarded(rng.standard_normal(size).astype(np.float32)) for _ in range(3))
        run(x, z, y)
        assert untouched(y)
        np.testing.assert_allclose(y, np.exp(x) * z, rtol=4 * 2.0**-23)


def test_names_do_not_matter():
    one = code_of(call_of(of_size(64, "")), AVX512)
    other = str(of_size(64, "")).replace("x", "left").replace("z", "right").replace("eleftp", "exp")
    assert code_of(call_of(verify(parse(other))), AVX512).text == one.text


@pytest.mark.parametrize("name", ["softmax", "sum", "argmax"])
def test_rows_are_open_too(name):
    kernel = PROBES[name].kernel
    code = code_of(call_of(kernel), AVX512)
    assert len(code.symbols) == 1 and "i64 %extent" in code.text
