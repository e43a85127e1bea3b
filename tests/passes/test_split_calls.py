"""Calls as several launches: golden texts, which calls are divided, and the same meaning."""

import numpy as np
import pytest

from lamina.ir.kernel import parse
from lamina.ir.kernel.verify import verify as verify_kernel
from lamina.passes.kernels.split_reductions import split_reductions
from lamina.passes.programs import split_calls as module
from lamina.passes.programs.plan_memory import plan_memory
from lamina.passes.programs.program import Array, Call, Program, interpret, verify
from lamina.passes.programs.split_calls import cut, split_calls
from lamina.passes.triton.generate import generate, programs_of

COUNT = """\
kernel count(ids: i64[{n}]) -> (y: i64[6]) {{
  parallel i:{n}
  y[ids[i]] add= i64(1)
}}"""
ROWS = """\
kernel rows(x: f32[{m},{n}]) -> (y: f32[{m}]) {{
  parallel i:{m}
  s = sum(j:{n}) x[i, j]
  y[i] = sqrt(s)
}}"""
CHANNELS = """\
kernel channels(x: f32[{n},{c},{h}]) -> (y: f32[{c}]) {{
  parallel i:{c}
  s = sum(n:{n} h:{h}) x[n, i, h]
  y[i] = s
}}"""
WEIGHT = """\
kernel weight(g: f16[{n},{h},6,{k}], x: f16[{n},{h},6,{c}]) -> (y: f16[3,3,{k},{c}]) {{
  parallel r:3 s:3 k:{k} c:{c}
  t = sum(n:{n} i:{h} j:6) (f32(g[n, i, j, k]) * f32(x[n, i+r-1, j+s-1, c else 0.0]))
  y[r, s, k, c] = f16(t)
}}"""
LAST = """\
kernel last(x: f32[{n},{h},{w},{c}]) -> (y: f32[{c}]) {{
  parallel i:{c}
  s = sum(n:{n} h:{h} w:{w}) x[n, h, w, i]
  y[i] = s
}}"""
SOFTMAX = """\
kernel softmax(x: f32[{m},{n}]) -> (y: f32[{m},{n}]) {{
  parallel i:{m}
  hi = max(j:{n}) x[i, j]
  z = sum(j:{n}) exp((x[i, j] - hi))
  y[i, j] = (exp((x[i, j] - hi)) / z) for j:{n}
}}"""


def program(text: str, **sizes: int) -> Program:
    kernel = verify_kernel(parse(text.format(**sizes)))
    inputs = tuple(Array(b.name, b.dtype, b.shape) for b in kernel.inputs)
    outputs = tuple(Array(b.name, b.dtype, b.shape) for b in kernel.outputs)
    return verify(Program(kernel.name, inputs, (Call(kernel, inputs, outputs),), outputs))


def same(before: Program, after: Program) -> None:
    verify(after)
    rng = np.random.default_rng(0)
    given = [
        rng.integers(0, 6, p.shape) if p.dtype == "i64" else rng.standard_normal(p.shape).astype(np.float32)
        for p in before.params
    ]
    for want, got in zip(interpret(before, *given), interpret(after, *given), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5)


def test_what_accumulates_is_filled_first(golden):
    before = program(COUNT, n=100)
    after = split_calls(before, programs_of)
    golden("passes/split_calls_count", f"{before}\n\n{after}\n\n{plan_memory(after)}\n")
    same(before, after)


def test_a_long_reduction_at_few_points_is_cut(golden):
    before = program(ROWS, m=3, n=40_000)
    after = split_calls(before, programs_of)
    golden(
        "passes/split_calls_rows", f"{before}\n\n{after}\n\n" + "\n".join(str(c.kernel) for c in after.calls)
    )
    same(before, after)


@pytest.mark.parametrize(("m", "n", "calls"), [(512, 64, 1), (255, 8191, 1), (300, 9000, 1), (2, 65_536, 5)])
def test_rows_are_cut_where_they_are_few_and_long(m, n, calls):
    before = program(SOFTMAX, m=m, n=n)
    after = split_calls(before, programs_of)
    assert len(after.calls) == calls
    if n > 9000:
        same(before, after)


def test_the_longest_axis_is_cut_where_the_slowest_is_short():
    before = program(CHANNELS, n=4, c=3, h=5000)
    after = split_calls(before, programs_of)
    partial, _ = (call.kernel for call in after.calls)
    cut = partial.parallel[-1].extent
    length, images = (int(axis.extent) for axis in partial.stages[0].axes)
    assert cut > 4 and images == 4 and length % 64 == 0, partial
    same(before, after)


def test_several_axes_are_cut_where_one_is_too_short():
    """Channels that come last: 32 programs, the rows of an image, left three of four cores without one."""
    before = program(LAST, n=128, h=32, w=32, c=64)
    partial, whole = (call.kernel for call in split_calls(before, programs_of).calls)
    assert [int(axis.extent) for axis in partial.parallel] == [64, 128, 2]
    assert [int(axis.extent) for axis in whole.stages[0].axes] == [256]


@pytest.mark.parametrize("sizes", [(2, 3, 4000), (5, 7, 1001), (1, 1, 9000), (40, 50, 3)])
def test_parts_of_several_axes_add_up_to_the_whole(sizes):
    n, h, w = sizes
    before = program(LAST, n=n, h=h, w=w, c=3)
    (call,) = before.calls
    for count in (2, 3, 7, 64, 200):
        parts = split_reductions(call.kernel, count, even=True)
        assert parts is not None
        same_numbers(before, before.replace(steps=tuple(module.in_turn(call, parts))), np.float32)


def test_a_weight_gradient_goes_from_image_to_image_and_is_cut_by_rows(golden):
    before = program(WEIGHT, n=64, h=14, k=128, c=64)
    after = split_calls(before, programs_of)
    partial, whole = (call.kernel for call in after.calls)
    golden("passes/split_calls_weight", f"{before}\n\n{after}\n\n{partial}\n\n{whole}\n")
    source = generate(partial).source
    assert "k_tile[:, None] * 5376" in source  # images are a step of the sum: no index of it is divided
    small = program(WEIGHT, n=32, h=4, k=2, c=3)
    (call,) = small.calls
    same_numbers(small, small.replace(steps=tuple(cut(call, "i", 2))), np.float16)


def same_numbers(before: Program, after: Program, dtype: type) -> None:
    """Whole numbers, so that no sum of them rounds before the last."""
    verify(after)
    rng = np.random.default_rng(0)
    given = [rng.integers(-3, 4, p.shape).astype(dtype) for p in before.params]
    for want, got in zip(interpret(before, *given), interpret(after, *given), strict=True):
        np.testing.assert_array_equal(got, want)


def test_parts_of_a_product_leave_no_core_with_a_last_tile_alone():
    """36 tiles in 7 parts are one round of those that run at once, in 14 two, and in 8 one and a bit."""
    before = program(WEIGHT, n=64, h=14, k=256, c=256)
    (call,) = before.calls
    assert module._cut_of_product(call, 36) == ("i", 7)
    assert module._cut_of_product(call, 5) != ("n", 64)  # the axis of the steps stays whole


def test_a_second_time_changes_nothing():
    for before in (program(COUNT, n=100), program(ROWS, m=3, n=40_000)):
        once = split_calls(before, programs_of)
        assert str(split_calls(once, programs_of)) == str(once)


def test_a_planted_bug_is_seen(monkeypatch):
    right, before = module.filling, program(COUNT, n=100)

    def ones(kernel, buffer):
        fill = right(kernel, buffer)
        return fill and parse(str(fill).replace("i64(0)", "i64(1)"))

    same(before, split_calls(before, programs_of))
    monkeypatch.setattr(module, "filling", ones)
    with pytest.raises(AssertionError):
        same(before, split_calls(before, programs_of))
