"""Strided convolutions of few channels by Winograd, between the places that a stride passes."""

import random
from dataclasses import replace

import numpy as np
import pytest
from image_programs import Builder, arguments, check, conv_kernel
from native import LEVELS_HERE, each_level, run_program

import lamina
from lamina import nn
from lamina.ir import dims
from lamina.passes.kernels import space_to_depth as kernels
from lamina.passes.kernels.blocking import can_block
from lamina.passes.programs import assign_layouts as module
from lamina.passes.programs.assign_layouts import Options, assign_layouts
from lamina.passes.programs.program import Program, interpret
from lamina.passes.schedules.target import AVX512, ZEN4
from lamina.profiler import profile

SLOW = replace(AVX512, core=ZEN4)  # whose sums take twice as long
# batch, channels, height, width, outputs, taps, stride, padding
SHAPES = {
    "a ResNet's": (1, 3, 33, 37, 16, 7, 2, 3),
    "an AlexNet's": (2, 3, 47, 43, 32, 11, 4, 2),
    "four channels": (1, 4, 20, 20, 16, 4, 2, 1),
    "taps less than twice the stride": (1, 3, 21, 30, 16, 5, 4, 0),
    "as many taps as two strides": (3, 4, 25, 18, 32, 8, 4, 3),
    "padding wider than the taps": (1, 3, 9, 9, 16, 3, 2, 4),
    "rows without the last place": (1, 3, 32, 34, 16, 7, 2, 0),
}


def stem(shape) -> Program:
    batch, channels, height, width, outs, taps, stride, padding = shape
    b = Builder("net", (batch, channels, height, width))
    w, bias = b.param("w", (outs, channels, taps, taps)), b.param("b", (outs,))
    kernel = conv_kernel(b.image.shape, w.shape, stride=stride, padding=padding)
    return b.program(b.call(kernel, b.image, w, bias))


@pytest.fixture
def always(monkeypatch):
    """However little it gains."""
    monkeypatch.setattr(module, "directly", lambda *_: float("inf"))


@each_level
@pytest.mark.parametrize("name", SHAPES)
def test_code_agrees(always, name, target):
    before = stem(SHAPES[name])
    after = assign_layouts(before, target)
    blocks = can_block(before.params[0].shape, target.lanes)  # as 3 channels a block of 4
    assert any(call.name == "space_to_depth" for call in after.calls) != blocks
    check(before, after)
    given = arguments(before)
    for want, got in zip(interpret(before, *given), run_program(after, given, target), strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=2e-5 * max(1, np.abs(want).max()))


def test_text(golden):
    before = stem((1, 3, 224, 224, 64, 7, 2, 3))
    after = assign_layouts(before, SLOW)
    golden(
        "passes/space_to_depth", "\n".join(map(str, (after, *(call.kernel for call in after.calls)))) + "\n"
    )


def is_deep(shape, target=SLOW, options: Options | None = None) -> bool:
    return any(call.name == "space_to_depth" for call in assign_layouts(stem(shape), target, options).calls)


def test_it_is_chosen_where_it_gains():
    assert is_deep((1, 3, 224, 224, 64, 7, 2, 3)) and is_deep((8, 3, 224, 224, 64, 11, 4, 2))
    assert not is_deep((1, 3, 224, 224, 32, 3, 2, 1))  # two taps of 16 channels for three of 3
    assert not is_deep((1, 3, 224, 224, 64, 7, 2, 3), options=Options(winograd=False))


def test_it_is_left_alone_where_channels_fill_no_blocks(always):
    assert not is_deep((1, 3, 32, 32, 16, 7, 3, 3))  # 27 channels, of which three more would be 54
    assert not is_deep((1, 16, 32, 32, 16, 7, 2, 3))  # blocks are there already
    assert not is_deep((1, 3, 32, 32, 16, 7, 1, 3))


def test_any_number_of_images(always):
    rows = dims.symbol("n")
    with dims.hints({"n": 3}):
        before = stem((rows, 3, 33, 37, 16, 7, 2, 3))
        assert is_deep((rows, 3, 33, 37, 16, 7, 2, 3))
        assert before.params[0].shape[0] == rows


@pytest.mark.parametrize("seed", range(12))
def test_random_stems(always, seed):
    rng = random.Random(seed)
    stride = rng.choice((2, 2, 4))
    taps = rng.randint(stride + 1, min(11, 5 * stride))
    shape = (
        rng.choice((1, 3)), rng.choice((1, 3)), rng.randint(taps, 40), rng.randint(taps, 60),
        rng.choice((16, 24, 48)), taps, stride, rng.randint(0, taps // 2),
    )  # fmt: skip
    before = stem(shape)
    target = rng.choice(LEVELS_HERE)
    after = assign_layouts(before, target)
    check(before, after)
    given = arguments(before)
    for want, got in zip(interpret(before, *given), run_program(after, given, target), strict=True):
        np.testing.assert_allclose(
            got, want, rtol=0, atol=2e-5 * max(1, np.abs(want).max()), err_msg=str(shape)
        )


def test_traced(always):
    """From its entry: with a batch that changes, and weights that do."""
    lamina.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3), nn.ReLU(), nn.MaxPool2d(3, 2, 1)).eval()
    traced = lamina.jit.trace(net)
    with lamina.no_grad():
        for batch in (1, 2, 5, 1):
            x = lamina.randn(batch, 3, 96, 96)
            np.testing.assert_allclose(traced(x).numpy(), net(x).numpy(), rtol=0, atol=2e-5)
            net[0].weight.mul_(0.5)
        with profile() as profiled:
            traced(x)
    assert "space_to_depth" in {event.name for event in profiled.events()}


# ---- planted bugs
def a_place_further(real):
    def made(image, shape, roles):
        return real(image, shape, replace(roles, padding=tuple(p + 1 for p in roles.padding)))

    return made


def taps_in_another_order(real):
    def made(weight, shape, step):
        kernel = real(weight, shape, step)
        (store,) = kernel.stages
        one, channel, r, s = store.index
        return kernel.replace(stages=(replace(store, index=(one, channel, s, r)),))

    return made


@pytest.mark.parametrize(
    ("name", "bug"),
    [("_image", a_place_further), ("_weight", taps_in_another_order)],
    ids=["image", "weight"],
)
def test_the_comparison_sees(always, name, bug, monkeypatch):
    monkeypatch.setattr(kernels, name, bug(getattr(kernels, name)))
    before = stem(SHAPES["a ResNet's"])
    with pytest.raises(AssertionError):
        check(before, assign_layouts(before, AVX512))
