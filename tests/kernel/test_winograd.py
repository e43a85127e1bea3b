"""Winograd's code against the interpreter of the kernel it stands for, at every width, size and dealing."""

import random
import re
from dataclasses import replace

import numpy as np
import pytest
from native import Native, call_of, each_level, guarded, run_code, untouched
from test_open_code import at_sizes

import lamina.ir.ops  # noqa: F401 - enters the records
from lamina.ir.dims import hints, limits, symbol
from lamina.ir.dtypes import float32
from lamina.ir.errors import KernelError
from lamina.ir.kernel import interpret, parse, verify
from lamina.ir.kernel.form import Buffer
from lamina.ir.kernel.scalar import op, read
from lamina.ir.op import REGISTRY
from lamina.ir.types import type_of
from lamina.passes.graphs.lower import lower
from lamina.passes.kernels.blocking import block, squeezed
from lamina.passes.kernels.product import product_of
from lamina.passes.kernels.winograd import PAIRS, TILES, shape_of, weight_products, weight_transform
from lamina.passes.llvm import conv_winograd, generate
from lamina.passes.llvm.conv_function import input_transform, output_transform
from lamina.passes.llvm.conv_winograd import WinogradCode
from lamina.passes.llvm.generate import code_of, open_code
from lamina.passes.programs.program import Call
from lamina.passes.schedules.choose_winograd import choose_winograd, pack_winograd
from lamina.passes.schedules.steps import Schedule, Winograd
from lamina.passes.schedules.target import AVX2, LEVELS

# batch, channels and outputs in vectors, height, width, padding
SHAPES = {
    "whole tiles": (1, 2, 2, 8, 8, 1),
    "odd": (2, 1, 2, 7, 9, 1),
    "smaller than a window": (3, 1, 2, 2, 3, 1),
    "no padding": (1, 1, 2, 5, 11, 0),
    "wide padding": (1, 1, 2, 6, 6, 2),
}
WAYS = [  # taps, and how
    (3, Winograd(4, 4, 4, 2, False)),
    (3, Winograd(4, 3, 2, 2, True)),
    (3, Winograd(2, 5, 3, 1, False)),
    (3, Winograd(2, 8, 8, 2, True)),
    (2, Winograd(5, 4, 3, 1, False)),
    (2, Winograd(3, 3, 2, 2, True)),
    (4, Winograd(3, 5, 4, 2, False)),
    (5, Winograd(2, 7, 4, 1, True)),
    (5, Winograd(2, 4, 4, 2, False)),
]


def plain_kernel(shape, lanes: int, taps: int = 3, missing: int = 0):
    """conv + bias, as the record states it.  missing: channels of the last vector."""
    batch, blocks, chunks, height, width, padding = shape
    channels = blocks * lanes - missing
    image, weight = (batch, channels, height, width), (chunks * lanes, channels, taps, taps)
    operands, attrs = REGISTRY["conv2d"].bind(
        *(type_of(float32, s) for s in (image, weight, weight[:1])), padding=padding + max(0, taps - 3)
    )
    return squeezed(lower(REGISTRY["conv2d"], operands, attrs))


def blocked_kernel(plain, lanes: int, how: Winograd):
    """max(conv + bias + residual, 0) on blocked arrays, with U beside the weight."""
    made = block(plain, ["input", "out"], lanes, beside=["weight"])
    assert made is not None
    kernel = made.kernel
    store, residual = kernel.stages[-1], Buffer("residual", "f32", kernel.outputs[0].shape)
    value = op("max", op("add", store.value, read("residual", store.index)), 0)
    x, w, *rest = kernel.inputs
    u = replace(pack_winograd(w.shape, how, lanes).outputs[0], name="u")
    return kernel.replace(
        inputs=(x, w, u, *rest, residual), stages=(*kernel.stages[:-1], replace(store, value=value))
    )


def convolution(shape, lanes: int, how: Winograd, taps: int = 3, missing: int = 0):
    """The kernel of those sizes, and arrays for it."""
    kernel = blocked_kernel(plain_kernel(shape, lanes, taps, missing), lanes, how)
    weight = kernel.inputs[1].shape
    pack = verify(pack_winograd(weight, how, lanes))
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(b.shape).astype(np.float32) for b in kernel.inputs]
    arrays[1] /= np.sqrt(np.float32(taps**2 * weight[1]))
    (arrays[2],) = interpret(pack, arrays[1], weight_products(how.tile, taps))
    return verify(kernel), arrays


def tolerance(tile: int, channels: int, taps: int = 3) -> float:
    """What the roundings of float32 come to, for sums of products near 1 in size.

    A transform multiplies them by at most the greatest row sum of its matrix in each dimension, and of the
    three, G has made its own in float64.  They are of random sign: the square root of their number.
    """
    of_inputs = {4: 2, 6: 4.5}[tile + taps - 1]  # of Bt, and At's
    of_outputs = (
        np.abs(np.array(output_transform(Numbers(), list(np.eye(tile + taps - 1)), tile))).sum(1).max()
    )
    rounded = float(np.finfo(np.float32).eps) * (of_inputs * of_outputs) ** 2
    return rounded / np.sqrt(taps**2 * channels) * 4


@each_level
@pytest.mark.parametrize("name", SHAPES)
def test_code_agrees_with_its_kernel(name, target):
    for taps, how in WAYS:
        kernel, arrays = convolution(SHAPES[name], target.lanes, how, taps)
        (want,), (got,) = interpret(kernel, *arrays), run_code(kernel, arrays, target, Schedule(how))
        channels = kernel.inputs[1].shape[1]
        np.testing.assert_allclose(
            got, want, rtol=0, atol=tolerance(how.tile, channels, taps), err_msg=str(how)
        )


@each_level
@pytest.mark.parametrize(("blocks", "missing"), [(1, 1), (1, 2), (2, 2), (3, 1)])
def test_channels_that_are_not_there_are_not_multiplied(blocks, missing, target):
    """In whole steps of four: of the others an image may have NaN."""
    missing = target.lanes * missing // 4
    for taps, how in WAYS[:5]:
        kernel, arrays = convolution((1, blocks, 2, 7, 9, 1), target.lanes, how, taps, missing)
        left = (target.lanes - missing + 3) // 4 * 4
        arrays[0][:, -1, ..., target.lanes - missing :] = 0
        (want,) = interpret(kernel, *arrays)
        arrays[0][:, -1, ..., left:] = np.nan
        (got,) = run_code(kernel, arrays, target, Schedule(how))
        within = tolerance(how.tile, kernel.inputs[1].shape[1], taps)
        within += 2 * float(np.finfo(np.float32).eps) * np.abs(want).max()  # of the bias and the residual
        np.testing.assert_allclose(got, want, rtol=0, atol=within, err_msg=str(how))


@each_level
@pytest.mark.parametrize(("taps", "how"), [way for way in WAYS if not way[1].spread], ids=str)
def test_one_code_for_any_number_of_images(taps, how, target):
    """The last block of tiles has as many as are left, in parts of any number of rows."""
    with limits({"n": (1, 1 << 40)}), hints({"n": 3}):
        plain = plain_kernel((symbol("n"), 1, 2, 5, 9, 1), target.lanes, taps)
        any_number = blocked_kernel(plain, target.lanes, how)
        code = open_code(Call(any_number, (), (), Schedule(how)), target)
    assert code is not None and not code.least
    run = Native(code, target)
    for n in (1, 2, 3, 4, 5, 7):
        kernel, arrays = convolution((n, 1, 2, 5, 9, 1), target.lanes, how, taps)
        (want,), (out,) = interpret(kernel, *arrays), [guarded(np.full(kernel.outputs[0].shape, 1, "f"))]
        run.code = at_sizes(code, {"n": n})
        run(*map(guarded, arrays), out)
        assert untouched(out)
        channels = kernel.inputs[1].shape[1]
        np.testing.assert_allclose(
            out, want, rtol=0, atol=tolerance(how.tile, channels, taps), err_msg=f"{n}"
        )


@each_level
@pytest.mark.parametrize("batch, block", [(4, 1), (4, 3), (4, 8), (8, 2), (8, 4), (16, 2), (24, 4)])
@pytest.mark.parametrize("by", ["+", "-"])
def test_a_block_of_tiles_on_images_agrees(batch, block, by, target):
    """Vectors of images and of tiles beside each other; the last block has fewer of these."""
    lanes = next(n for n in (16, 8, 4) if batch % n == 0 and n <= target.lanes)
    first = -1 if by == "+" else 1
    kernel = parse(f"""\
kernel conv(x: f32[7,9,24,{batch}], w: f32[3,3,24,16]) -> (y: f32[7,9,16,{batch}]) {{
  parallel i:7 j:9 k:16 n:{batch}
  t = sum(r:3 s:3 c:24) (x[i{by}r{first:+}, j{by}s{first:+}, c, n else 0.0] * w[r, s, c, k])
  y[i, j, k, n] = t
}}""")
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(b.shape).astype(np.float32) for b in kernel.inputs]
    arrays[1] /= np.sqrt(np.float32(9 * 24))
    how = Winograd(4, block, 8, 1, False, lanes)
    (want,), (got,) = interpret(kernel, *arrays), run_code(kernel, arrays, target, Schedule(how))
    np.testing.assert_allclose(got, want, rtol=0, atol=tolerance(4, 24))


@pytest.mark.parametrize(("taps", "tile"), [(taps, tile) for taps in TILES for tile in TILES[taps]])
def test_transforms_are_a_convolution(taps, tile):
    """At [(G w Gt) * (Bt x B)] A on numbers: the emitter's own transforms, taken from unit vectors."""
    rng = np.random.default_rng(0)
    n, g = tile + taps - 1, weight_transform(tile, taps)
    b = np.array(input_transform(Numbers(), list(np.eye(n))))
    a = np.array(output_transform(Numbers(), list(np.eye(n)), tile))
    x, w = rng.standard_normal((n, n)), rng.standard_normal((taps, taps))
    y = a @ ((g @ w @ g.T) * (b @ x @ b.T)) @ a.T
    want = [[(x[i : i + taps, j : j + taps] * w).sum() for j in range(tile)] for i in range(tile)]
    np.testing.assert_allclose(y, want, rtol=0, atol=1e-12)  # float64: 53 bits, times a growth of some 1000


class Numbers:
    """In place of a function: the transforms on NumPy rows in place of text."""

    def add(self, a, b):
        return a + b

    def sub(self, a, b):
        return a - b

    def axpy(self, factor, a, b):
        return factor * a + b

    def scaled(self, factor, a):
        return factor * a


def test_nothing_stands_for_other_kernels():
    how = Winograd(4, 4, 4, 2, False)
    kernel, _ = convolution(SHAPES["odd"], 8, how)
    strided = kernel.replace(stages=tuple(s for s in kernel.stages[1:]))
    with pytest.raises(KernelError, match="Winograd stands for"):
        WinogradCode(how, strided, AVX2)
    with pytest.raises(KernelError, match="chunks of 3 vectors"):
        WinogradCode(Winograd(4, 4, 4, 3), kernel, AVX2)
    big, _ = convolution((1, 16, 2, 64, 64, 1), 8, how)
    with pytest.raises(KernelError, match="bytes of a thread's stack"):
        WinogradCode(Winograd(4, 1000, 4, 2), big, AVX2)


CHANNELS = """\
kernel conv(x: f32[2,3,7,9,8], w: f32[16,24,3,3]) -> (y: f32[2,2,7,9,8]) {
  parallel n:2 ko:2 i:7 j:9 ki:8
  t = sum(co:3 r:3 s:3 ci:8) (x[n, co, i+r-1, j+s-1, ci else 0.0] * w[8*ko+ki, 8*co+ci, r, s])
  y[n, ko, i, j, ki] = t
}"""
IMAGES = """\
kernel conv(x: f32[7,9,24,16], w: f32[3,3,24,16]) -> (y: f32[7,9,16,16]) {
  parallel i:7 j:9 k:16 n:16
  t = sum(r:3 s:3 c:24) (x[i-r+1, j-s+1, c, n else 0.0] * w[r, s, c, k])
  y[i, j, k, n] = t
}"""
OTHERS = {
    "strides": ("i+r-1", "2*i+r-1"),
    "dilation": ("j+s-1", "j+2*s-1"),
    "other windows": ("s:3", "s:2"),
    "taps transposed": ("ci, r, s]", "ci, s, r]"),
    "taps backwards": ("i+r-1", "i-r+1"),
    "other blocks": ("8*ko+ki", "16*ko+ki"),
    "maxima": ("sum(", "max("),
    "no product": ("0.0] * w", "0.0] + w"),
    "channels outside": ("w[r, s, c, k]", "w[r, s, k, c]"),
    "images outside": ("c, n else", "n, c else"),
    "a weight for each image": ("c, k]", "c, n]"),
}


def test_the_shape_is_read_from_a_kernel():
    channels, images = shape_of(parse(CHANNELS)), shape_of(parse(IMAGES))
    assert channels is not None and images is not None
    assert (channels.block, channels.lane, channels.batch, channels.out) == (8, "ki", "n", "ko")
    assert (images.block, images.lane, images.batch, images.out) == (0, "n", "n", "k")
    assert (channels.origin, images.origin) == ((-1, -1), (-1, -1))


@pytest.mark.parametrize("case", OTHERS)
def test_no_shape_is_read_from_others(case):
    right, wrong = OTHERS[case]
    text = next(text for text in (CHANNELS, IMAGES) if right in text)
    assert shape_of(parse(text.replace(right, wrong))) is None


def test_every_choice_can_be_written():
    """Whatever the sizes, threads and width: V and M fit the stack, chunks divide the channels."""
    rng, chosen = random.Random(0), 0
    for _ in range(150):
        lanes = rng.choice((4, 8, 16))
        target = next(level for level in LEVELS if level.lanes == lanes)
        blocks, chunks = rng.choice((1, 3, 8, 64, 512)), rng.choice((1, 2, 5, 32))
        height, width = rng.choice((2, 7, 14, 56, 112)), rng.choice((3, 7, 28, 33))
        shape = (rng.choice((1, 8, 32)), blocks, chunks, height, width, rng.choice((1, 2)))
        kernel = plain_kernel(shape, lanes, rng.choice((3, 3, *TILES)))
        product = product_of(kernel)
        roles = product and product.convolution
        assert roles is not None
        how = choose_winograd(kernel, roles, target, rng.choice((1, 2, 16)))
        if how is not None:
            chosen += 1
            WinogradCode(how, blocked_kernel(kernel, lanes, how), target)
    assert chosen > 50


def test_equal_kernels_have_equal_code():
    how = Winograd(4, 4, 4, 2, False)
    kernel, _ = convolution(SHAPES["odd"], 8, how)
    one, two = (code_of(call_of(kernel.replace(name=name), Schedule(how)), AVX2) for name in ("one", "other"))
    assert one.text == two.text
    assert [p.symbol for p in one.phases] == [p.symbol for p in two.phases]


def test_convolutions_share_what_is_before_the_end():
    """They differ in what follows the sum, and in nothing that is compiled for itself."""
    how = Winograd(4, 4, 4, 2, False)
    kernel, _ = convolution(SHAPES["odd"], 8, how)
    *stages, last = kernel.stages
    other = kernel.replace(stages=(*stages, replace(last, value=op("neg", last.value))))
    one, two = (code_of(call_of(k, Schedule(how)), AVX2) for k in (kernel, other))
    assert one.text != two.text and one.beside == two.beside and len(one.beside) > 1
    head = r"((declare|!\d+ =) .*\n)*define weak_odr void @winograd_\w+\("
    assert all(re.match(head, text) for text in one.beside)
    loops = [text for text in one.beside if "@winograd_product" in text]
    assert loops and all(text.count(", !llvm.loop !1") == 1 for text in loops)  # the innermost one


# ---- planted bugs
def other_points(monkeypatch):
    monkeypatch.setitem(PAIRS, 6, (1.0, 2.0))  # G, At and Bt agree, U was made for others


def no_padding(monkeypatch):
    real = conv_winograd.shape_of
    monkeypatch.setattr(conv_winograd, "shape_of", lambda *args: replace(real(*args), origin=(0, 0)))


def last_block_as_long_as_others(monkeypatch):
    monkeypatch.setattr(conv_winograd.WinogradCode, "last", property(lambda self: max(1, self.block - 2)))


@pytest.mark.parametrize(
    "bug",
    [other_points, no_padding, last_block_as_long_as_others],
    ids=lambda bug: bug.__name__,
)
def test_the_comparison_sees(bug, monkeypatch):
    how = Winograd(4, 4, 4, 2, False)
    kernel, arrays = convolution(SHAPES["odd"], 8, how)
    (want,) = interpret(kernel, *arrays)
    bug(monkeypatch)
    generate._winograd.cache_clear()
    with pytest.raises(AssertionError):
        (got,) = run_code(kernel, arrays, AVX2, Schedule(how))
        np.testing.assert_allclose(got, want, rtol=0, atol=tolerance(4, 8))
    generate._winograd.cache_clear()
