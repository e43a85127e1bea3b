"""Convolutions and their gradients with the batch in the lanes, as native code of every width."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from edited import edited
from image_programs import Builder, arguments
from native import LEVELS_HERE, run_code, run_program
from training_programs import gradients, random_step

import lamina
from lamina import nn
from lamina.ir.errors import KernelError
from lamina.ir.kernel import interpret as interpret_kernel
from lamina.ir.kernel import parse
from lamina.passes.kernels.residues import residues
from lamina.passes.llvm import generate
from lamina.passes.llvm.binding import host_target
from lamina.passes.llvm.generate import code_of
from lamina.passes.llvm.reductions import Reductions
from lamina.passes.programs import batch_innermost as innermost
from lamina.passes.programs.batch_innermost import batch_innermost
from lamina.passes.programs.image_layout import permuted
from lamina.passes.programs.program import Program, interpret
from lamina.passes.programs.winograd_tiles import tiled
from lamina.passes.schedules.steps import Block, Prefetch
from lamina.passes.schedules.steps import parse as schedule
from lamina.passes.schedules.target import AVX512
from lamina.runtime.native import Executable

TARGETS = [host_target(), *LEVELS_HERE[1:]]


def arguments_of(kernel) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(b.shape).astype(np.float32) for b in kernel.inputs]


def check(program: Program, target, seed: int = 0, roundings: int = 64) -> None:
    """Against the interpreter's float64 sums.

    A sum of n products of numbers near 1 errs by some sqrt(n) roundings of its size: n < 4096 here, and the
    size is at most the largest result's, times 4 for cancellation.
    """
    given = arguments(program, seed)
    laid = batch_innermost(program, target)
    for want, got in zip(interpret(program, *given), run_program(laid, given, target), strict=True):
        bound = roundings * 4 * np.finfo(np.float32).eps * max(1, np.abs(want).max(initial=0))
        np.testing.assert_allclose(got, want, rtol=0, atol=bound)


def with_cache(target, cache: int):
    """A core of whose second cache images of tests are larger, so that they are cut as large ones are."""
    return replace(target, core=replace(target.core, cache=cache))


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("cache", [None, 1 << 15, 1 << 13])
def test_random_steps(seed, cache, target):
    check(random_step(seed), target if cache is None else with_cache(target, cache), seed)


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
@pytest.mark.parametrize("seed", range(8))
def test_random_steps_in_tiles(seed, target, monkeypatch):
    """Whether that pays or not.  Winograd's sums round what cancels; 30 times as much is allowed."""
    monkeypatch.setattr(innermost, "in_tiles", lambda kernel, *_: tiled(kernel))
    check(random_step(seed), target, seed, 30 * 64)


@pytest.mark.parametrize(
    "window",
    [
        {"padding": 1},
        {"stride": 2, "padding": 1},
        {"stride": 3, "dilation": 2, "padding": 1},
        {"padding": 2, "dilation": 2},
        {"stride": 4},
    ],
    ids=str,
)
def test_every_window(window):
    b = Builder("step", (32, 3, 9, 8))
    w = b.param("w", (6, 3, 3, 2))
    y = b.op("conv2d", b.image, w, **window)
    check(b.program(y, *gradients(b, y, b.image, w, **window)), host_target())


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
@pytest.mark.parametrize("window", [{"padding": 1, "stride": 3}, {"padding": 2, "stride": 5}], ids=str)
def test_windows_that_see_nothing_but_padding(window, target):
    """No tap is inside of the image, wherever the only window is: loops that never run leave no array."""
    b = Builder("step", (33, 3, 1, 1))
    y = b.op("conv2d", b.image, w := b.param("w", (6, 3, 1, 1)), **window)
    check(b.program(y, *gradients(b, y, b.image, w, **window)), target)


def test_a_plane_that_fills_the_cache_is_taken_in_strips():
    b = Builder("step", (16, 5, 24, 24))
    w = b.param("w", (6, 5, 3, 3))
    y = b.op("conv2d", b.image, w, padding=1)
    check(b.program(*gradients(b, y, b.image, w, padding=1)), host_target())


def test_a_strided_input_gradient_has_a_phase_for_each_remainder():
    b = Builder("step", (16, 3, 9, 9))
    w = b.param("w", (6, 3, 3, 3))
    y = b.op("conv2d", b.image, w, stride=2)
    laid = batch_innermost(b.program(*gradients(b, y, b.image, w, stride=2)), host_target())
    call = next(call for call in laid.calls if call.name == "conv_input_grad")
    code = code_of(call, host_target())
    assert len(code.phases) == len(residues(call.kernel)) == 4


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
@pytest.mark.parametrize("size", [1, 2])
def test_phases_for_remainders_that_no_place_leaves_are_linked(size, target):
    """Of an image smaller than the stride, several remainders have no place: equal code, kept once."""
    b = Builder("step", (16, 3, size, size))
    w = b.param("w", (6, 3, 1, 1))
    y = b.op("conv2d", b.image, w, stride=3)
    program = b.program(y, *gradients(b, y, b.image, w, stride=3))
    given = arguments(program, 0)
    laid = batch_innermost(program, target)
    for want, got in zip(interpret(program, *given), Executable(laid, target)(*given), strict=True):
        bound = 64 * 4 * np.finfo(np.float32).eps * max(1, np.abs(want).max(initial=0))  # as in `check`
        np.testing.assert_allclose(got, want, rtol=0, atol=bound)


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
@pytest.mark.parametrize("channels", [(24, 16), (8, 36), (12, 3), (10, 24)], ids=str)
@pytest.mark.parametrize("taps", [1, 3])
@pytest.mark.parametrize("window", [{}, {"stride": 2}, {"padding": 1}], ids=str)
def test_channels_whose_tiles_meet_a_strip_together(channels, window, taps, target):
    """And those that do not come out even, which do not."""
    outs, ins = channels
    b = Builder("step", (16, ins, 9, 11))
    w = b.param("w", (outs, ins, taps, taps))
    y = b.op("conv2d", b.image, w, **window)
    check(b.program(*gradients(b, y, b.image, w, **window)), with_cache(target, 1 << 14))


TWO = {"stride": 2}


@pytest.mark.parametrize(
    ("shape", "taps", "window", "wanted"),
    [
        ((16, 16, 9, 9), 3, {}, "strips(r1, 6) block(i2, 3) block(i3, 3)"),  # all of it stays in the cache
        ((16, 16, 56, 56), 1, {}, "strips(r1, 1) block(i2, 1) block(i3, 1) block(i, 12) block(i1, 4)"),
        (
            (16, 16, 56, 56),
            3,
            {"stride": 2},
            "strips(r1, 1) block(i2, 3) block(i3, 3) block(i, 12) block(i1, 4)",
        ),
    ],
)
def test_units_of_strips_are_blocks_of_both_channels(shape, taps, window, wanted):
    """Of which there are eight."""
    b = Builder("step", shape)
    w = b.param("w", (24, 16, taps, taps))
    y = b.op("conv2d", b.image, w, **window)
    laid = batch_innermost(b.program(*gradients(b, y, b.image, w, **window)), AVX512)
    (how,) = (call.how for call in laid.calls if call.name == "conv_weight_grad")
    assert str(how).endswith(f"join() {wanted}")


GRADIENT = """\
kernel dw(g: f32[{k},5,16], x: f32[{c},5,16]) -> (y: f32[{k},{c}]) {{
  parallel i:{k} j:{c}
  acc = sum(r:5 n:16) (g[i, r, n] * x[j, r, n])
  y[i, j] = acc
}}
"""
IN_STRIPS = "vectorise(n, 1) tile(i, 2) tile(j, 4) bound() join() strips(r, 2) block(i, 4) block(j, 8)"


def in_strips(outs: int, ins: int) -> None:
    kernel = parse(GRADIENT.format(k=outs, c=ins))
    rng = np.random.default_rng(0)
    g, x = (rng.standard_normal((n, 5, 16)).astype(np.float32) for n in (outs, ins))
    (y,) = run_code(kernel, [g, x], host_target(), schedule(IN_STRIPS))
    np.testing.assert_allclose(y, np.einsum("irn,jrn->ij", g, x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("size", [(4, 8), (12, 8), (4, 24), (12, 24)], ids=str)
def test_blocks_of_strips(size):
    in_strips(*size)


@pytest.mark.parametrize("size", [(6, 8), (4, 12)], ids=str)
def test_blocks_that_do_not_come_out_even_are_refused(size):
    with pytest.raises(KernelError, match="tiles of strips come out even"):
        in_strips(*size)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("self.sum(corner[axis], at[axis])", "at[axis]"),
        ("place = place * block + Affine", "place = place * 1 + Affine"),
        (
            "self.minimum(self.sum(index, step.size), int(self.kernel.extents[step.axis]))",
            "self.sum(index, step.size)",
        ),
    ],
    ids=["the first block's points", "sums that share a place", "a strip beyond the sum"],
)
def test_wrong_blocks_of_strips_are_seen(right, wrong, monkeypatch):
    generate._generic.cache_clear()
    generate._function.cache_clear()
    bad = edited("lamina.passes.llvm.units", right, wrong)
    monkeypatch.setattr(generate, "Units", bad.Units)
    with pytest.raises((AssertionError, KernelError)):
        in_strips(12, 24)


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("taps", [1, 3])
@pytest.mark.parametrize("channels", [(24, 6), (5, 33)], ids=str)
def test_places_of_a_row_that_meet_all_channels(channels, taps, stride, target):
    """As of images that come from memory: the figures of a core with little cache make these such."""
    small = with_cache(target, 1 << (15 if taps == 1 else 17))
    ins, outs = channels
    b = Builder("step", (32, ins, 50, 27))
    w = b.param("w", (outs, ins, taps, taps))
    y = b.op("conv2d", b.image, w, stride=stride)
    program = b.program(y, *gradients(b, y, b.image, w, stride=stride))
    hows = [call.how for call in batch_innermost(program, small).calls if call.name == "conv2d"]
    assert [(how.has(Block), how.has(Prefetch)) for how in hows] == [(True, taps == 1)]
    check(program, small)


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
@pytest.mark.parametrize("stride", [2, 3])
@pytest.mark.parametrize("shape", [(16, 6, 9, 8), (16, 3, 2, 5)], ids=str)
@pytest.mark.parametrize("order", [(1, 2, 3, 0), (0, 1, 2, 3)], ids=["images innermost", "places innermost"])
def test_a_strided_depthwise_input_gradient_has_a_phase_for_each_remainder(order, shape, stride, target):
    b = Builder("step", shape)
    w = b.param("w", (shape[1], 1, 3, 3))
    window = {"stride": stride, "padding": 1, "groups": shape[1]}
    y = b.op("conv2d", b.image, w, **window)
    program = b.program(*gradients(b, y, b.image, w, **window))
    call = next(call for call in program.calls if call.name == "conv_input_grad")
    turned = permuted(call.kernel, {"g": order, "out": order})
    code = code_of(replace(call, kernel=turned), target)
    assert len(code.phases) == stride**2
    given = [np.ascontiguousarray(a) for a in arguments_of(turned)]
    (got,) = run_code(turned, given, target)
    np.testing.assert_allclose(got, interpret_kernel(turned, *given)[0], rtol=1e-4, atol=1e-4)


# ---- refusals
def test_a_kernel_without_a_product_is_refused():
    kernel = parse(
        "kernel copy(x: f32[4,16]) -> (y: f32[4,16]) {\n  parallel i:4 n:16\n  y[i, n] = x[i, n]\n}"
    )
    with pytest.raises(KernelError, match="no sum of products over windows"):
        run_code(
            kernel, [np.ones((4, 16), np.float32)], host_target(), schedule("residues() vectorise(n) bound()")
        )


def test_what_is_not_zero_outside_is_refused():
    kernel = parse(
        "kernel conv(x: f32[4,16], w: f32[3,2]) -> (y: f32[4,2,16]) {\n"
        "  parallel i:4 k:2 n:16\n"
        "  acc = sum(r:3) (x[i+r-1, n else 1.0] * w[r, k])\n"
        "  y[i, k, n] = acc\n}"
    )
    with pytest.raises(KernelError, match="a guard here is the bound of one loop"):
        given = [np.ones((4, 16), np.float32), np.ones((3, 2), np.float32)]
        run_code(kernel, given, host_target(), schedule("vectorise(n) tile(k, 2) bound()"))


# ---- planted bugs
def test_a_tap_too_few_is_seen(monkeypatch):
    plain = Reductions.bounds.func

    def shortened(self):
        return {
            stage: {axis: [(part, size - 1) for part, size in limits] for axis, limits in bounds.items()}
            for stage, bounds in plain(self).items()
        }

    b = Builder("step", (16, 3, 6, 6))
    w = b.param("w", (7, 3, 3, 3))
    program = b.program(b.op("conv2d", b.image, w, padding=1))
    monkeypatch.setattr(Reductions, "bounds", property(shortened))
    generate._generic.cache_clear()
    generate._function.cache_clear()
    laid = batch_innermost(program, host_target())
    given = arguments(program, 1)
    (call,) = [call for call in laid.calls if call.how is not None]
    other = replace(call.kernel, name="other")  # not what the memo of codes holds
    values = dict(zip(laid.params, given, strict=True))
    for step in laid.steps:
        kernel = other if step is call else step.kernel
        made = run_code(kernel, [values[a] for a in step.inputs], host_target(), step.how)
        values.update(zip(step.outputs, made, strict=True))
    (want,) = interpret(program, *given)
    assert np.abs(values[laid.results[0]] - want).max() > 0.1


@pytest.mark.parametrize(
    ("size", "taps", "window"),
    [
        ((1,), 1, {"stride": 2}),
        ((1, 1), 1, {"stride": 3}),
        ((1, 1, 1), 3, {"stride": 2, "padding": 1}),
        ((1, 1), (1, 3), {"stride": 2, "padding": (1, 2)}),  # at whose place no window lies
        ((4, 4), 3, {"stride": 3, "padding": 3, "dilation": 3}),
        ((1, 1), 5, {"stride": 2, "padding": 13}),
        ((1, 7), 3, {"stride": 2, "padding": 1}),
    ],
    ids=str,
)
@pytest.mark.parametrize("channels", [(1, 1), (3, 16)], ids=str)
def test_a_place_that_is_alone_leaves_one_remainder(size, taps, window, channels):
    conv = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[len(size) - 1]
    lamina.manual_seed(0)
    model, x = conv(*channels, taps, **window), lamina.randn(3, channels[0], *size, requires_grad=True)

    def gradients_of(f):
        x.grad = None
        model.zero_grad()
        f(x).square().sum().backward()
        return [a.grad.numpy().copy() for a in (x, *model.parameters())]

    traced, wanted = lamina.jit.trace(model), gradients_of(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = [gradients_of(traced) for _ in range(3)]
    for one, other in zip(wanted, found[-1], strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-5)
