"""Taps that never meet an image are left out: texts, meaning, and what stays as it is."""

import random

import numpy as np
import pytest
from image_programs import Builder, check

import lamina
from lamina.ir.kernel import parse
from lamina.passes.programs.narrow_windows import narrow_windows


def conv(image: tuple, outs: int, size: int, **how):
    b = Builder("net", image)
    return b.program(b.conv(b.image, outs, size, **how))


@pytest.mark.parametrize(
    ("program", "taps"),
    [
        (conv((2, 5, 1, 1), 6, 3, padding=1), "f32[6,5,1,1]"),
        (conv((2, 5, 2, 2), 6, 3, padding=1, stride=2), "f32[6,5,2,2]"),
        (conv((2, 5, 2, 9), 6, 5, padding=2), "f32[6,5,3,5]"),
        (conv((2, 5, 4, 4), 6, 3, padding=6, dilation=6), "f32[6,5,1,1]"),
        (conv((2, 5, 1), 6, 3, padding=1), "f32[6,5,1]"),
        (conv((2, 6, 1, 1), 6, 3, padding=1, groups=6), "f32[6,1,1,1]"),
    ],
    ids=str,
)
def test_fewer_taps_are_read(program, taps):
    after = narrow_windows(program)
    assert [call.name for call in after.calls] == ["taps", "conv"]
    assert after.calls[0].outputs[0].type == taps
    check(program, after)


@pytest.mark.parametrize(
    "program",
    [
        conv((2, 5, 3, 3), 6, 3, padding=1),
        conv((2, 5, 3, 3), 6, 3),
        conv((2, 5, 1, 1), 6, 1, padding=1),
        conv((2, 5, 1, 1), 6, 1, padding=2, stride=2),
        conv((2, 5, 1, 1), 6, 3, padding=4, stride=2),
    ],
    ids=str,
)
def test_windows_of_which_all_taps_count_stay_as_they_are(program):
    assert str(narrow_windows(program)) == str(program)


def test_two_that_read_one_weight_share_its_taps():
    b = Builder("net", (2, 5, 1, 1))
    weight = b.param("w", (5, 5, 3, 3))
    one = b.conv(b.image, 5, padding=1, weight=weight)
    program = b.program(b.conv(one, 5, padding=1, weight=weight))
    after = narrow_windows(program)
    assert [call.name for call in after.calls] == ["taps", "conv", "conv"]
    check(program, after)


def test_a_weight_that_is_read_elsewhere_too_is_left_whole():
    b = Builder("net", (2, 3, 1))
    w = b.param("w", (4, 3, 3))
    text = (
        "kernel f(x: f32[2,3,1], w: f32[4,3,3]) -> (y: f32[2,4,1]) {\n  parallel n:2 k:4 i:1\n"
        "  t = sum(c:3 r:3) (x[n, c, i+r-1 else 0.0] * w[k, c, r])\n  y[n, k, i] = (t + w[k, 0, 0])\n}"
    )
    program = b.program(b.call(parse(text), b.image, w))
    assert str(narrow_windows(program)) == str(program)


@pytest.mark.parametrize("seed", range(40))
def test_random_windows_keep_their_meaning(seed):
    rng = random.Random(seed)
    rank = rng.choice((1, 2, 2, 3))
    how = {
        "stride": rng.randint(1, 3), "padding": rng.randint(0, 4), "dilation": rng.randint(1, 3),
        "groups": rng.choice((1, 1, 2, 4)), "bias": rng.random() < 0.5,
    }  # fmt: skip
    size = rng.choice((1, 2, 3, 5))
    reach = how["dilation"] * (size - 1) + 1 - 2 * how["padding"]
    image = tuple(max(rng.randint(1, 5), reach) for _ in range(rank))
    program = conv((2, 4, *image), 4, size, **how)
    check(program, narrow_windows(program), seed)


@pytest.mark.parametrize("stride", [1, 2])
def test_gradients_of_small_images_are_those_of_eager(stride):
    net = lamina.nn.Sequential(
        lamina.nn.Conv2d(8, 16, 3, stride=stride, padding=1), lamina.nn.Conv2d(16, 8, 5, padding=2)
    )
    found = []
    for run in (net, lamina.jit.trace(net)):
        for _ in range(3):
            net.zero_grad()
            x = lamina.tensor(np.random.default_rng(0).standard_normal((4, 8, 2, 2)).astype("f4"))
            x.requires_grad_()
            run(x).square().sum().backward()
        found.append([x.grad.numpy(), *(p.grad.numpy() for p in net.parameters())])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-5)
