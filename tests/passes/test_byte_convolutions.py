"""Convolutions of bytes on targets of every kind: exact, proved, with bytes between them."""

import random

import numpy as np
import pytest
from byte_programs import TARGETS, f32, i8, op, same, scaled, to_bytes, u8

from lamina.ir.dtypes import int8

each_target = pytest.mark.parametrize("target", TARGETS, ids=[target.name for target in TARGETS])


def convolution(seed: int):
    """A function and its arrays, the weight last: kernels, strides, paddings and channels of every kind."""
    rng = random.Random(seed)
    kind = rng.choice(("plain", "plain", "pointwise", "stem", "depthwise", "groups", "line"))
    a, size = rng.choice((i8, u8)), rng.choice((1, 2, 3))
    how = {
        "stride": rng.choice((1, 2)),
        "padding": rng.choice((0, 1, 2)),
        "dilation": rng.choice((1, 1, 2)),
        "padding_value": rng.choice((0, 0, 7, 127)),
    }
    batch, places = rng.choice((1, 2)), (rng.choice((5, 9, 14)), rng.choice((6, 7, 17)))
    channels, outs, groups = rng.choice((8, 20, 32, 64)), rng.choice((8, 16, 33, 64)), 1
    if kind == "pointwise":
        size, how = 1, {"stride": how["stride"]}
    if kind == "stem":
        channels, size, outs, how["stride"] = 3, 3, 32, 2
    if kind == "depthwise":
        groups, outs, size = channels, channels, 3
    if kind == "groups":
        groups, outs = 2, 32
    if kind == "line":
        return (
            (lambda x, w: op("int_conv1d", x, w, groups=groups, **how)),
            [a(batch, channels, 17), i8(outs, channels, size)],
        )
    given = [a(batch, channels, *places), i8(outs, channels // groups, size, size)]
    return (lambda x, w: op("int_conv2d", x, w, groups=groups, **how)), given


@each_target
@pytest.mark.parametrize("seed", range(40))
def test_convolutions_are_exact(seed, target):
    same(*convolution(seed), target, 1)


def block(x, *weights):
    """conv, conv with a residual, depthwise and pointwise: each is scaled, clamped and rounded to bytes."""
    w1, w2, w3, w4, s, b = weights
    y = to_bytes(scaled(op("int_conv2d", x, w1, padding=1, padding_value=3), s, b), 40.0, zero=3)
    z = scaled(op("int_conv2d", y, w2, padding=1, padding_value=3), s, b)
    y = to_bytes(op("relu", z + (op("cast", y, z.type.dtype) - 3.0) * 40.0), 50.0)
    y = to_bytes(op("relu6", scaled(op("int_conv2d", y, w3, padding=1, groups=32, stride=2), s) / 500), 0.03)
    return to_bytes(scaled(op("int_conv2d", y, w4), s), 40.0, int8)


def block_arrays():
    s, b = np.abs(f32(32, 1, 1)) + 0.1, f32(32, 1, 1) * 100
    return [
        u8(2, 32, 14, 14),
        i8(32, 32, 3, 3),
        i8(32, 32, 3, 3, seed=1),
        i8(32, 1, 3, 3),
        i8(32, 32, 1, 1),
        s,
        b,
    ]


@each_target
def test_a_block_of_a_network_is_what_it_was_and_all_between_are_bytes(target):
    program = same(block, block_arrays(), target, 6)
    for call in program.calls:
        if any(a in program.params and a.name != program.params[0].name for a in call.inputs):
            for array in call.outputs:
                assert array.dtype in ("u8", "i8", "i16", "f32")
    print(program)
