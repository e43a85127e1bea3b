"""What is long after a tile's sums is a loop over its rows: the same numbers in less text."""

import math

import numpy as np
import pytest
from native import each_level, run_code

import lamina
from lamina import jit
from lamina.ir.kernel import interpret, parse
from lamina.jit import backend, targets
from lamina.nn import functional as F
from lamina.passes.programs import pack_matmuls as module
from lamina.passes.schedules.steps import parse as schedule
from lamina.passes.schedules.target import AVX512


def long(x, w, b):
    y = F.linear(x, w, b)
    return F.gelu(lamina.tanh(lamina.exp(y) * b)) + x[..., :1]


def dropped(x, w, b):
    return F.dropout(F.linear(x, w, b), 0.4) * lamina.sigmoid(b)


def two_results(x, w, b):
    y = F.linear(x, w, b)
    return lamina.erf(y).sin(), y


def compiled(function, arguments, longest, monkeypatch):
    """What compiled code gives, and its kernels' text for AVX-512, where so many instructions are long."""
    monkeypatch.setattr(module, "LONG_TILE", longest)
    backend.forget()
    traced = jit.trace(function)
    with lamina.no_grad():
        for _ in range(3):
            lamina.manual_seed(3)
            found = traced(*arguments)
    assert traced.counts()["served"], traced.explain()
    with monkeypatch.context() as patch:
        patch.setattr(targets, "host_target", lambda: AVX512)  # others may add up these sums in other ways
        text = "\n".join(code.source() for code in backend._known.values())
    return found if isinstance(found, tuple) else (found,), text


@pytest.mark.parametrize("function", [long, dropped, two_results])
@pytest.mark.parametrize(
    ("dtype", "rows", "outs"),
    [
        (lamina.float32, 40, 64),
        (lamina.float32, 37, 50),
        (lamina.float32, 13, 7),
        (lamina.float32, (2, 3, 9), 33),
        (lamina.float64, 37, 33),
        (lamina.bfloat16, 37, 50),
    ],
)
def test_a_loop_over_the_rows_gives_the_same_bits(function, dtype, rows, outs, monkeypatch):
    shape = (*rows, 24) if isinstance(rows, tuple) else (rows, 24)
    arguments = (
        lamina.randn(shape, dtype=dtype),
        lamina.randn((outs, 24), dtype=dtype),
        lamina.randn(outs, dtype=dtype),
    )
    looped, short = compiled(function, arguments, 0, monkeypatch)
    plain, long_text = compiled(function, arguments, math.inf, monkeypatch)
    for one, other in zip(looped, plain, strict=True):
        assert one.dtype is other.dtype and one.shape == other.shape
        assert one.numpy().tobytes() == other.numpy().tobytes()
    assert ".sums" not in long_text
    if function is not two_results and rows in (40, 37):  # one kernel, of several rows to a tile
        assert ".sums" in short and len(short) < 0.7 * len(long_text)


@each_level
def test_what_is_met_row_by_row_is_not_transposed_together(target):
    """As many rows as lanes, and a read with neighbours along the rows, behind whose last nothing lies."""
    lanes = target.lanes
    rows, columns = lanes, lanes - 2
    kernel = parse(
        f"kernel rolled(x: f32[{rows},4], w: f32[{columns},4], c: f32[{columns},{rows}]) -> "
        f"(y: f32[{rows},{columns}], z: f32[{rows},{columns}]) {{\n  parallel i:{columns} r:{rows}\n"
        "  t = sum(k:4) (x[r, k] * w[i, k])\n  y[r, i] = exp(t)\n  z[r, i] = (c[i, r] * exp(t))\n}"
    )
    how = schedule(f"collapse() vectorise(i) block(i, {lanes}) peel(i) tile(r, {lanes}) roll(r)")
    rng = np.random.default_rng(0)
    given = [rng.standard_normal(buffer.shape, dtype=np.float32) for buffer in kernel.inputs]
    for found, wanted in zip(run_code(kernel, given, target, how), interpret(kernel, *given), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)
