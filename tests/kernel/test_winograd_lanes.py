"""Winograd's convolutions with the batch in the lanes, against the interpreter, at every width."""

from dataclasses import replace

import numpy as np
import pytest
from image_programs import Builder, arguments, conv_kernel
from native import LEVELS_HERE, each_level, run_program
from test_winograd import tolerance
from training_programs import gradients

from lamina.passes.llvm import generate
from lamina.passes.llvm.conv_winograd import WinogradCode
from lamina.passes.programs import batch_innermost as layouts
from lamina.passes.programs.batch_innermost import Options, batch_innermost
from lamina.passes.programs.program import Program, interpret
from lamina.passes.schedules import choose_winograd as module
from lamina.passes.schedules.target import AVX512, ZEN4

# batch, channels and output channels in vectors, height, width, padding
SHAPES = {
    "whole tiles": (2, 1, 2, 8, 8, 1),
    "one vector": (1, 2, 1, 8, 4, 1),
    "three vectors": (3, 1, 1, 4, 8, 1),
    "odd": (1, 1, 1, 7, 9, 1),
    "smaller than a window": (1, 1, 1, 3, 2, 1),
    "no padding": (1, 1, 1, 5, 11, 0),
    "wide padding": (1, 1, 1, 6, 6, 2),
    "large planes": (1, 1, 1, 18, 17, 1),
}


@pytest.fixture
def always(monkeypatch):
    """Winograd's products wherever they can be."""
    monkeypatch.setattr(module, "_gains", lambda *_: True)
    monkeypatch.setattr(layouts, "pays", lambda found, target: True)


def steps(shape, lanes: int) -> Program:
    """max(conv + bias + residual, 0) and the gradients of a convolution of those sizes."""
    vectors, channels, outs, height, width, padding = shape
    b = Builder("step", (vectors * lanes, channels * lanes, height, width))
    w, bias = b.param("w", (outs * lanes, channels * lanes, 3, 3)), b.param("b", (outs * lanes,))
    kernel = conv_kernel(b.image.shape, w.shape, residual=True, padding=padding)
    residual = b.param("r", kernel.outputs[0].shape)
    y = b.call(kernel, b.image, w, bias, residual)
    to_input, _ = gradients(b, y, b.image, w, padding=padding)
    return b.program(y, to_input)


@each_level
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_every_shape(always, shape, target):
    program = steps(shape, target.lanes)
    laid = batch_innermost(program, target)
    assert [c.how.sums_inputs for c in laid.calls if c.name in ("conv", "conv_input_grad")] == [True] * 2
    given = arguments(program)
    for want, got in zip(interpret(program, *given), run_program(laid, given, target), strict=True):
        bound = tolerance(4, shape[1] * target.lanes) * max(1, np.abs(want).max())
        np.testing.assert_allclose(got, want, rtol=0, atol=bound)


def ways(
    *shape, options: Options | None = None, outs: int = 64, size: int = 3, target=AVX512, **window
) -> list[str]:
    b = Builder("step", shape)
    w = b.param("w", (outs, shape[1], size, size))
    y = b.op("conv2d", b.image, w, **window)
    laid = batch_innermost(b.program(*gradients(b, y, b.image, w, **window)), target, options)
    return [str(call.how) for call in laid.calls if call.name in ("conv2d", "conv_input_grad")]


def test_it_is_chosen_where_it_gains():
    assert ways(32, 64, 32, 32, padding=1) == ["winograd(4, 1, 8, 2, False, 16)"] * 2


def test_a_core_that_multiplies_less_gains_more_and_memory_counts():
    """A Zen 4's direct sums take twice as long; 512 by 512 weights of tiles fill more than its last cache."""
    slow = replace(AVX512, core=ZEN4)
    assert ways(32, 256, 14, 14, outs=256, padding=1, target=slow)[0].startswith("winograd")
    assert not ways(32, 512, 7, 7, outs=512, padding=1, target=slow)[0].startswith("winograd")


def test_many_channels_hold_fewer_vectors():
    assert ways(32, 384, 64, 64, outs=384, padding=1) == ["winograd(4, 1, 24, 1, False, 16)"] * 2


@pytest.mark.parametrize(
    ("shape", "how"),
    [
        ((32, 512, 4, 4), {"outs": 512, "padding": 1}),  # U outweighs the images
        ((32, 64, 32, 32), {"padding": 1, "stride": 2}),
        ((32, 64, 32, 32), {"padding": 1, "dilation": 2}),
        ((32, 64, 32, 32), {"size": 1}),
        ((32, 64, 32, 32), {"padding": 1, "outs": 60}),  # by products between tiles
        ((24, 64, 32, 32), {"padding": 1}),  # likewise
        ((32, 64, 32, 32), {"padding": 1, "options": Options(winograd=False)}),
    ],
    ids=str,
)
def test_where_it_is_not(shape, how):
    forward, _ = ways(*shape, **how)
    assert not forward.startswith("winograd")


def test_a_planted_bug_is_seen(always, monkeypatch):
    stride = lambda self, d: self.shape.weight_at.coefficient(self.shape.taps[d])  # noqa: E731
    monkeypatch.setattr(WinogradCode, "tap", lambda self, d, number: stride(self, d) * number)
    target = LEVELS_HERE[0]
    program = steps((1, 1, 1, 6, 6, 1), target.lanes)
    laid = batch_innermost(program, target)
    given = arguments(program, 1)
    generate._winograd.cache_clear()
    _, want = interpret(program, *given)
    _, got = run_program(laid, given, target)
    generate._winograd.cache_clear()
    assert np.abs(got - want).max() > 0.1
