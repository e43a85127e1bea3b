"""Direct convolutions as `direct` writes them, in native code: packed weights, register tiles, rows of padded
images; against the interpreter, at every width."""

from dataclasses import replace

import numpy as np
import pytest
from image_programs import conv_kernel
from native import LEVELS_HERE, each_level, run_code

from lamina.ir.errors import KernelError
from lamina.ir.kernel import interpret, verify
from lamina.ir.kernel.form import Buffer
from lamina.ir.kernel.scalar import op, read
from lamina.passes.kernels.blocking import squeezed
from lamina.passes.kernels.product import product_of
from lamina.passes.llvm import generate
from lamina.passes.llvm.reductions import Reductions
from lamina.passes.programs.pack_convolution import direct
from lamina.passes.schedules.steps import Collapse, Peel, Schedule, Tile
from lamina.passes.schedules.steps import parse as schedule
from lamina.passes.schedules.target import AVX2, AVX512, GOLDEN_COVE

# channels and outputs in vectors (3: three plain channels), sizes, window, and how it moves
CASES = {
    "3x3": (1, 2, (6, 9), 3, {"padding": 1}),
    "three channels, stride": (3, 1, (11, 13), 7, {"padding": 3, "stride": 2}),
    "no padding": (2, 1, (6, 8), 3, {}),
    "narrow": (1, 2, (5, 4), 2, {}),
    "1x1": (2, 3, (5, 7), 1, {}),
    "1x1, stride": (1, 4, (6, 7), 1, {"stride": 2}),
    "dilated": (1, 1, (9, 9), 3, {"padding": 2, "dilation": 2}),
    "wider than the image": (1, 1, (3, 3), 5, {"padding": 2}),
    "padding above all": (1, 2, (2, 40), 3, {"padding": (2, 1), "stride": (2, 1)}),
    "padding beyond many tiles": (1, 2, (3, 150), 3, {"padding": (1, 70), "dilation": (1, 70)}),
    "one dimension": (1, 2, (37,), 5, {"padding": 2}),
    "three dimensions": (1, 1, (3, 4, 5), 3, {"padding": 1}),
    "depthwise": (2, 2, (5, 40), 3, {"padding": 1, "groups": -1}),
    "depthwise, stride": (1, 1, (8, 9), 5, {"padding": 2, "stride": 2, "groups": -1}),
}


def kernels(case, lanes: int, target):
    """The plain kernel and its direct form."""
    channels, outs, sizes, size, window = CASES[case]
    image = (2, channels if channels == 3 else channels * lanes, *sizes)
    groups = image[1] if window.get("groups") else 1
    weight = (outs * lanes, image[1] // groups, *(size,) * len(sizes))
    plain = squeezed(conv_kernel(image, weight, residual=True, **window | {"groups": groups}))
    made = direct(plain, product_of(plain).convolution, target)
    assert made is not None
    return made


def numbers(kernel, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(b.shape).astype(np.float32) for b in kernel.inputs]


@each_level
@pytest.mark.parametrize("case", CASES)
def test_code_agrees_with_its_kernel(case, target):
    made = kernels(case, target.lanes, target)
    verify(made.kernel)
    arrays = numbers(made.kernel)
    (want,), (got,) = interpret(made.kernel, *arrays), run_code(made.kernel, arrays, target, made.how)
    # float32 sums of at most 441 products of numbers near 1: 24 bits, errors of random sign
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-6 * np.abs(want).max())
    (weight,) = numbers(verify(made.pack), 1)
    (want,), (got,) = interpret(made.pack, weight), run_code(made.pack, [weight], target, made.pack_schedule)
    np.testing.assert_array_equal(got, want)


RAGGED = {  # channels, outputs, sizes, window, and how it moves
    "half a block": (24, 32, (6, 9), 1, {}),
    "a quarter, windows": (20, 16, (7, 9), 3, {"padding": 1}),
    "one, stride": (17, 48, (9, 8), 3, {"padding": 1, "stride": 2}),
    "less than a block": (9, 24, (5, 7), 3, {"padding": 1}),
    "many blocks": (72, 40, (4, 5), 1, {}),
    "no rows": (40, 16, (3, 3), 1, {}),
}


@each_level
@pytest.mark.parametrize("case", RAGGED)
def test_channels_that_are_not_there_are_not_multiplied(case, target):
    """What fills the last block of an image may be anything: here NaN."""
    ragged(case, target)


def test_nan_beyond_the_channels_is_seen_where_it_is_multiplied(monkeypatch):
    monkeypatch.setattr(Reductions, "ends_of", lambda *_: [])
    generate._generic.cache_clear()
    generate._function.cache_clear()
    with pytest.raises(AssertionError):
        ragged("one, stride", LEVELS_HERE[0])  # whose last block has zeros, however many lanes there are
    generate._generic.cache_clear()
    generate._function.cache_clear()


def ragged(case, target) -> None:
    channels, outs, sizes, size, window = RAGGED[case]
    plain = squeezed(conv_kernel((2, channels, *sizes), (outs, channels, size, size), **window))
    made = direct(plain, product_of(plain).convolution, target)
    assert made is not None
    verify(made.kernel)
    arrays, lanes = numbers(made.kernel), target.lanes
    image, weight = arrays[0], made.kernel.inputs[1]
    assert channels in weight.shape or channels % lanes == 0
    for channel in range(channels, image.shape[1] * lanes):
        image[:, channel // lanes, ..., channel % lanes] = 0
    (want,) = interpret(made.kernel, *arrays)
    for channel in range(channels, image.shape[1] * lanes):
        image[:, channel // lanes, ..., channel % lanes] = np.nan
    (got,) = run_code(made.kernel, arrays, target, made.how)
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-6 * np.abs(want).max())
    (weight,) = numbers(verify(made.pack), 1)
    (want,), (got,) = interpret(made.pack, weight), run_code(made.pack, [weight], target, made.pack_schedule)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    "batch, channels, outs, sizes", [(2, 2, 3, (5, 7)), (1, 1, 4, (7, 7)), (3, 2, 1, (2, 9))]
)
def test_places_of_a_whole_image_are_one_axis_where_no_window_is(batch, channels, outs, sizes):
    for level in LEVELS_HERE:
        target = replace(level, core=GOLDEN_COVE)
        image, weight = (
            (batch, channels * target.lanes, *sizes),
            (outs * target.lanes, channels * target.lanes),
        )
        plain = squeezed(conv_kernel(image, (*weight, 1, 1), residual=True))
        made = direct(plain, product_of(plain).convolution, target)
        assert made is not None and made.how.has(Collapse) and not made.how.has(Peel)
        arrays = numbers(verify(made.kernel))
        (want,), (got,) = interpret(made.kernel, *arrays), run_code(made.kernel, arrays, target, made.how)
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-6 * np.abs(want).max())
    assert not kernels("1x1, stride", 8, replace(AVX512, core=GOLDEN_COVE)).how.has(Collapse)


@pytest.mark.parametrize("channels, width, is_one", [(112, 14, False), (128, 14, True), (112, 7, True)])
def test_places_are_one_axis_of_many_channels_and_short_rows(channels, width, is_one):
    plain = squeezed(conv_kernel((1, channels, width, width), (32, channels, 1, 1)))
    for target in (AVX512, AVX2):
        made = direct(plain, product_of(plain).convolution, target)
        assert made is not None and made.how.has(Collapse) == (is_one or target is AVX2)


def test_narrow_images_are_tiled_over_rows():
    assert kernels("3x3", 8, AVX2).how.has(Peel)
    assert not kernels("narrow", 8, AVX2).how.has(Peel)


@each_level
@pytest.mark.parametrize("taps, padding", [(1, 0), (3, 0), (3, 1), (5, 2)])
def test_an_operand_as_wide_as_the_row_is_read_by_tiles(taps, padding, target):
    """In squares where a tile is the whole of the row, and as wide as a vector; else place by place."""
    lanes = target.lanes
    for width in (lanes, lanes + 1, 2 * lanes):
        image = (2, lanes, 4 + taps - 1 - 2 * padding, width + taps - 1 - 2 * padding)
        plain = squeezed(conv_kernel(image, (lanes, lanes, taps, taps), bias=False, padding=padding))
        store = plain.stages[-1]
        value = op("add", store.value, read("other", store.index[1:]))
        other = Buffer("other", "f32", plain.outputs[0].shape[1:])
        stages = (*plain.stages[:-1], replace(store, value=value))
        plain = plain.replace(inputs=(*plain.inputs, other), stages=stages)
        made = direct(plain, product_of(plain).convolution, target)
        is_one = taps == 1 and target.registers < 32  # places of a whole image are one axis
        assert made is not None and made.how.has(Collapse if is_one else Peel)
        (row,) = made.how.peeled or made.how.tiles
        arrays = numbers(verify(made.kernel))
        (want,) = interpret(made.kernel, *arrays)
        sizes = {made.how.tiles[row]} if is_one else {made.how.tiles[row], 3, lanes // 2, lanes}
        for size in sorted(sizes):
            others = (step for step in made.how.steps if not (isinstance(step, Tile) and step.axis == row))
            (got,) = run_code(made.kernel, arrays, target, Schedule(*others, Tile(row, size)))
            np.testing.assert_allclose(got, want, rtol=0, atol=1e-6 * np.abs(want).max())


def test_schedules_refuse_other_kernels():
    made = kernels("3x3", 8, AVX2)
    (row,) = made.how.peeled
    for text, message in (
        (str(made.how).replace("prefetch(packed", "prefetch(weight"), "names no buffer of the kernel"),
        (f"{made.how} tile({row}, 99)", "a tile fits its axis"),
        (f"{made.how} peel(q)", "names no axis of the kernel"),
    ):
        with pytest.raises(KernelError, match=message):
            run_code(made.kernel, numbers(made.kernel), AVX2, schedule(text))


# ---- planted bugs
def a_tap_too_few(monkeypatch):
    real = Reductions.reach
    monkeypatch.setattr(Reductions, "reach", lambda self, *a: (real(self, *a)[0], 2))


def inner_tiles_like_the_first(monkeypatch):
    real = Reductions.is_nothing

    def wrong(self, factor, point):
        (row,) = self.schedule.peeled
        return real(self, factor, point | {row: (0, point[row][1])})

    monkeypatch.setattr(Reductions, "is_nothing", wrong)


BUGS = [a_tap_too_few, inner_tiles_like_the_first]  # taps outside of the image: test_proof.py


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_the_comparison_sees(bug, monkeypatch):
    made = kernels("depthwise", 8, AVX2)
    arrays = numbers(made.kernel)
    (want,) = interpret(made.kernel, *arrays)
    bug(monkeypatch)
    other = replace(made.kernel, name="other", stages=made.kernel.stages)  # not what a memo holds
    generate._generic.cache_clear()
    generate._function.cache_clear()
    (got,) = run_code(other, arrays, AVX2, made.how)
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-6 * np.abs(want).max())
