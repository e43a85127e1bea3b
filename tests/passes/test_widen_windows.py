"""Convolutions of halves, which are made floats before they are multiplied."""

from dataclasses import replace

import numpy as np
import pytest
from byte_programs import AVX2, AVX512, bf16, compiled, f32, op, same

from lamina.ir.dtypes import bfloat16, float16

PAIRS = replace(AVX512, features="+avx512bf16", pairs="llvm.x86.avx512bf16.dpbf16ps.512")
DTYPES = pytest.mark.parametrize("dtype", [bfloat16, float16], ids=["bfloat16", "float16"])


def widened_in(program) -> list[tuple[int, ...]]:
    return [call.outputs[0].shape for call in program.calls if call.name == "widen"]


def halves(dtype, *shape: int) -> np.ndarray:
    return f32(*shape).astype(dtype.numpy)


@DTYPES
@pytest.mark.parametrize(
    ("image", "weight", "how"),
    [
        ((2, 8, 12, 12), (16, 8, 3, 3), {"padding": 1}),
        ((1, 3, 9, 10), (5, 3, 3, 3), {"stride": 2}),
        ((1, 16, 8, 8), (16, 1, 3, 3), {"padding": 1, "groups": 16}),
        ((2, 4, 20), (6, 4, 5), {"dilation": 2}),
    ],
    ids=["3 x 3", "stride", "depthwise", "one axis"],
)
def test_images_and_weights_become_floats(image, weight, how, dtype):
    """Not the weights of depthwise windows, which are read once for a whole plane: there they stay."""
    name = "conv1d" if len(image) == 3 else "conv2d"
    arrays = [halves(dtype, *image), halves(dtype, *weight)]
    program = same(lambda x, w: op(name, x, w, **how), arrays, AVX2, 1, terms=64)
    assert sorted(widened_in(program)) == sorted([image] if "groups" in how else [image, weight])


def test_an_image_is_widened_once_for_all_that_read_it():
    def both(x, w, v):
        return op("conv2d", x, w), op("conv2d", x, v) + op("sum", x)

    arrays = [bf16(1, 8, 12, 12), bf16(8, 8, 3, 3), bf16(4, 8, 5, 5)]
    assert widened_in(same(both, arrays, AVX2, 2, terms=400)).count((1, 8, 12, 12)) == 1


@DTYPES
def test_pairs_stay_what_they_are(dtype):
    arrays = [halves(dtype, 1, 16, 12, 12), halves(dtype, 16, 16, 3, 3)]
    _, program = compiled(lambda x, w: op("conv2d", x, w), arrays, PAIRS, 1)
    assert bool(widened_in(program)) == (dtype is float16)


def test_one_tap_is_a_product_of_matrices():
    _, program = compiled(lambda x, w: op("conv2d", x, w), [bf16(1, 16, 12, 12), bf16(16, 16, 1, 1)], AVX2, 1)
    assert widened_in(program) == []
