"""Layouts: golden texts, refusals, random programs before and after, and planted bugs."""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from image_programs import Builder, check, conv_kernel, random_images, small_network
from training_programs import gradients, random_step

from lamina.ir.kernel import parse
from lamina.ir.kernel.affine import Affine
from lamina.ir.kernel.interpret import interpret as interpret_kernel
from lamina.ir.kernel.scalar import read
from lamina.ir.kernel.types import NUMPY
from lamina.ir.kernel.verify import verify as verify_kernel
from lamina.passes.kernels import blocking
from lamina.passes.programs import assign_layouts as module
from lamina.passes.programs import pack_convolution
from lamina.passes.programs.assign_layouts import Options, assign_layouts, block_kernel, unblock_kernel
from lamina.passes.programs.image_layout import permuted
from lamina.passes.programs.pack_matmuls import pack_matmuls
from lamina.passes.programs.program import Program
from lamina.passes.schedules.choose_blocks import images_together
from lamina.passes.schedules.steps import Peel
from lamina.passes.schedules.target import AVX2, AVX512, BASELINE
from lamina.runtime.native import Executable

SEEDS = range(60)


# ---- texts
def test_a_network_is_blocked_from_stem_to_mean(golden):
    before = small_network()
    after = assign_layouts(before, AVX512)
    golden("passes/assign_layouts_network", f"{before}\n\n{after}\n")
    check(before, after)


def test_kernels_of_a_blocked_network(golden):
    b = Builder("net", (2, 16, 6, 7))
    after = assign_layouts(b.program(b.conv(b.image, 24, padding=1, stride=2)), AVX512)
    golden("passes/assign_layouts_kernels", "\n".join(str(call.kernel) for call in after.calls) + "\n")


def refused(name: str) -> Program:
    b = Builder(name, (1, 16, 6, 6))
    match name:
        case "few channels":
            return b.program(b.conv(b.image, 5))
        case "two groups":
            return b.program(b.conv(b.image, 32, groups=2))
        case "one place":
            return b.program(b.conv(b.image, 32, 6))
        case "no convolution":
            return b.program(b.op("tanh", b.image))
    raise ValueError(name)


@pytest.mark.parametrize("name", ["few channels", "two groups", "one place", "no convolution"])
def test_what_cannot_be_blocked_is_left_alone(name):
    before = refused(name)
    assert str(assign_layouts(before, AVX512)) == str(before)


def test_a_pointwise_convolution_that_stands_alone_is_a_product():
    """Blocks would be made of its image, and its result be copied out of them; between others they are."""
    b = Builder("net", (2, 16, 6, 6))
    before = b.program(b.conv(b.image, 32, 1))
    after = pack_matmuls(assign_layouts(before, AVX512), AVX512)
    assert [call.how.has(Peel) for call in after.calls if call.name != "pack"] == [True]
    check(before, after)
    b = Builder("net", (2, 16, 6, 6))
    after = assign_layouts(b.program(b.conv(b.conv(b.image, 32, 1), 32, 1)), AVX512)
    assert [call.name for call in after.calls].count("block") == 1


@pytest.mark.parametrize("stride, outs, size", [(2, 64, 4), (2, 16, 3), (1, 32, 9)])
def test_an_image_of_one_channel_gives_blocks(stride, outs, size):
    b = Builder("net", (2, 1, 13, 11))
    before = b.program(b.conv(b.image, outs, size, padding=1, stride=stride))
    after = assign_layouts(before, AVX512)
    assert [call.name for call in after.calls] == ["pack_weights", "conv", "unblock"]
    check(before, after)


def test_rows_of_few_channels_are_as_good_as_blocks():
    """Where a copy would follow, or most lanes were padding."""
    b = Builder("net", (2, 1, 13, 11))
    before = b.program(b.conv(b.image, 16))
    assert str(assign_layouts(before, AVX512)) == str(before)
    b = Builder("net", (2, 1, 13, 11))
    before = b.program(b.conv(b.op("relu", b.conv(b.conv(b.image, 8), 8)), 16))
    after = assign_layouts(before, AVX512)
    assert [call.name for call in after.calls][:3] == ["conv", "conv", "relu"]
    check(before, after)


@pytest.mark.parametrize("size, stride, row, stays", [
    (3, 1, 7, True), (3, 2, 13, True), (3, 2, 12, False), (5, 1, 8, True), (5, 1, 7, False),
    (7, 1, 30, False),
])  # fmt: skip
def test_rows_of_channels_alone_are_as_good_as_blocks(size, stride, row, stays):
    """Where small windows fill half of a vector; between blocked images they are blocked."""
    b = Builder("net", (2, 16, 9, row))
    before = b.program(b.conv(b.image, 16, size, padding=size // 2, stride=stride, groups=16))
    assert (str(assign_layouts(before, AVX512)) == str(before)) == stays
    b = Builder("net", (2, 16, 9, row))
    y = b.conv(b.conv(b.image, 16), 16, size, padding=size // 2, stride=stride, groups=16)
    before = b.program(y)
    after = assign_layouts(before, AVX512)
    assert after.calls[-1].name == "unblock"
    check(before, after)


def test_a_call_with_a_schedule_is_left_alone():
    before = small_network()
    after = assign_layouts(before, AVX512)
    assert str(assign_layouts(after, AVX512)) == str(after)


def test_results_and_params_keep_their_shapes():
    b = Builder("net", (1, 16, 6, 6))
    y = b.conv(b.image, 16)
    before = b.program(y, b.image, y)
    after = assign_layouts(before, AVX512)
    assert [r.type for r in after.results] == [r.type for r in before.results]
    assert after.results[0] is after.results[2]  # converted once
    assert after.params == before.params
    check(before, after)


def test_a_weight_is_packed_once():
    b = Builder("net", (1, 16, 8, 8))
    w = b.param("w", (16, 16, 1, 1))
    y = b.conv(b.conv(b.image, 16, 1, weight=w), 16, 1, weight=w)
    after = assign_layouts(b.program(y), AVX512)
    assert [call.name for call in after.calls].count("pack_weights") == 1


def test_without_winograd_sums_are_direct():
    before = small_network()
    with_it, without = (str(assign_layouts(before, AVX512, Options(winograd=on))) for on in (True, False))
    assert "winograd" in with_it and "winograd" not in without


def test_a_call_between_blocks_and_rows_reads_what_it_can():
    """Softmax over channels is no blockwise kernel: it gets its operand unblocked, and nobody else does."""
    b = Builder("net", (1, 16, 6, 6))
    y = b.conv(b.image, 16, padding=1)
    before = b.program(b.op("softmax", y, dim=1), b.op("mean", b.op("tanh", y), dim=(2, 3)))
    after = assign_layouts(before, AVX512)
    assert [call.name for call in after.calls].count("unblock") == 1
    check(before, after)


# ---- random programs
@pytest.mark.parametrize("target", [BASELINE, AVX2], ids=str)
def test_random_programs_give_what_they_gave(target):
    blocked = 0
    for seed in SEEDS:
        before = random_images(seed)
        after = assign_layouts(before, target)
        check(before, after, seed)
        blocked += str(after) != str(before)
        assert str(assign_layouts(after, target)) == str(after), seed
    assert blocked > len(SEEDS) // 3


@pytest.mark.parametrize("channels, groups", [(8, 2), (8, 4), (16, 2), (16, 4), (16, 8), (12, 3), (12, 2)])
@pytest.mark.parametrize("batch", [1, 2])
def test_shuffled_channels_between_convolutions(channels, groups, batch):
    """An index such as i+4*g, whole blocks apart, splits i alone."""
    b = Builder("net", (batch, 8, 5, 6))
    y = b.shuffled(b.conv(b.image, channels, 1), groups)
    before = b.program(b.conv(y, channels, 3, padding=1))
    for target in (BASELINE, AVX2):
        check(before, assign_layouts(before, target))


@pytest.mark.parametrize("target", [BASELINE, AVX2], ids=str)
def test_random_training_steps_give_what_they_gave(target):
    for seed in SEEDS:
        before = random_step(seed)
        check(before, assign_layouts(before, target), seed)


@pytest.mark.parametrize("first", [4, 5, 7])
@pytest.mark.parametrize("second", [3, 6, 8])
def test_gradients_of_weights_between_blocked_images(first, second):
    """A weight has both images' channels, and is no image itself: neither dimension has room for a block."""
    b = Builder("step", (3, 4, 5, 6))
    w = b.param("w", (second, first, 3, 3))
    x = b.op("relu", b.conv(b.image, first, 1))
    y = b.op("conv2d", x, w, padding=1)
    before = b.program(*gradients(b, b.op("relu", y), x, w, padding=1))
    for target in (BASELINE, AVX2, AVX512):
        check(before, assign_layouts(before, target))


@pytest.mark.parametrize("channels", [3, 6, 8])
@pytest.mark.parametrize("size", [1, 2])
def test_depthwise_convolutions_that_grow_an_image(channels, size):
    """One place to a channel is not blocked, what is made of it is: its last block has channels beyond."""
    b = Builder("net", (1, channels, size, size))
    before = b.program(b.op("tanh", b.conv(b.image, channels, padding=3, groups=channels)))
    for target in (BASELINE, AVX2):
        after = assign_layouts(before, target)
        check(before, after)
        Executable(after, target)


@pytest.mark.parametrize("groups, outs", [(2, 8), (3, 12), (4, 16), (4, 32), (8, 32)])
def test_a_group_for_each_channel_and_blocks_of_outputs_in_each(groups, outs):
    """Where the channels fill no block, groups beyond the last would have outputs beyond the last."""
    b = Builder("net", (1, 3, 5, 5))
    y = b.conv(b.conv(b.image, groups, padding=1), outs, padding=1, groups=groups, bias=False)
    before = b.program(b.op("tanh", y))
    for target in (BASELINE, AVX2):
        after = assign_layouts(before, target)
        check(before, after)
        Executable(after, target)


@pytest.mark.parametrize("size", [6, 8])
def test_channels_that_meet_themselves_as_places(size):
    text = (
        f"kernel both(x: f32[1,{size},{size}]) -> (y: f32[1,{size},{size}]) {{\n"
        f"  parallel n:1 i:{size} j:{size}\n  y[n, i, j] = (x[n, i, j] * x[n, j, i])\n}}"
    )
    b = Builder("net", (1, size, size))
    before = b.program(b.call(parse(text), b.conv(b.image, size, padding=1)))
    after = assign_layouts(before, BASELINE)
    check(before, after)
    Executable(after, BASELINE)


def test_a_part_of_a_blocked_image_may_be_empty():
    text = (
        "kernel none(x: f32[1,16,6,6]) -> (y: f32[1,16,0,6]) {\n"
        "  parallel n:1 c:16 i:0 j:6\n  y[n, c, i, j] = x[n, c, i, j]\n}"
    )
    b = Builder("net", (1, 16, 6, 6))
    before = b.program(b.call(parse(text), y := b.conv(b.image, 16, padding=1)), y)
    check(before, assign_layouts(before, BASELINE))


@pytest.mark.parametrize("groups", [1, 2, 8])
@pytest.mark.parametrize("size", [1, 3])
def test_convolutions_that_store_in_any_order(size, groups):
    """As what follows a convolution makes it: its places may then stand where channels do."""
    for order in permutations(range(4)):
        b = Builder("net", (2, 8, 6, 5))
        shapes = [b.image.shape, (8, 8 // groups, size, size), (8,)]
        kernel = conv_kernel(*shapes[:2], groups=groups, padding=size // 2)
        kernel = permuted(kernel, {kernel.outputs[0].name: order})
        y = b.call(kernel, b.image, b.param("w", shapes[1]), b.param("b", shapes[2]))
        before = b.program(b.op("tanh", y))
        for target in (BASELINE, AVX2):
            check(before, assign_layouts(before, target))


@pytest.mark.parametrize("dtype", ["f32", "f64", "bool"])
@pytest.mark.parametrize("channels", [4, 5, 7, 8])
def test_blocks_convert_there_and_back(channels, dtype):
    x = np.random.default_rng(0).standard_normal((2, channels, 3, 5)).astype(NUMPY[dtype])
    block, unblock = (make(dtype, x.shape, 4) for make in (block_kernel, unblock_kernel))
    (there,) = interpret_kernel(verify_kernel(block), x)
    (back,) = interpret_kernel(verify_kernel(unblock), there)
    np.testing.assert_array_equal(back, x)
    padding = there[:, -1, :, :, channels % 4 or 4 :]
    assert not padding.any()


# ---- planted bugs
def blocks_begin_at_the_first_channel(monkeypatch):
    real = blocking._blocked_index

    def wrong(lanes, index):
        made = real(lanes, index)
        return (made[0], Affine(made[1].terms), *made[2:])

    monkeypatch.setattr(blocking, "_blocked_index", wrong)


def pads_are_not_zero(monkeypatch):
    monkeypatch.setattr(blocking, "_filled", lambda kernel, *rest: blocking._zeros_beyond(kernel))


def weights_packed_for_other_lanes(monkeypatch):
    real = pack_convolution.packed

    def wrong(kernel, roles, axes, summed):
        pack, new = real(kernel, roles, axes, summed)
        (store,) = pack.stages
        access = store.value
        mixed = read("weight", (access.index[0] * -1 + Affine((), 3), *access.index[1:]), 0)
        return pack.replace(stages=(replace(store, value=mixed),)), new

    monkeypatch.setattr(pack_convolution, "packed", wrong)


def stale_weight(monkeypatch):
    real = module._Assignment.pack

    def wrong(self, array, kernel, beside, how):
        key = next((k for k in self.packed if k[1] == str(kernel)), None)
        return self.packed[key] if key else real(self, array, kernel, beside, how)

    monkeypatch.setattr(module._Assignment, "pack", wrong)


def last_blocks_unfilled(monkeypatch):
    monkeypatch.setattr(blocking, "_has", lambda index, axis: False)


PLANTED = [
    blocks_begin_at_the_first_channel,
    weights_packed_for_other_lanes,
    pads_are_not_zero,
    stale_weight,
    last_blocks_unfilled,
]


@pytest.mark.parametrize("bug", PLANTED, ids=lambda bug: bug.__name__)
def test_random_programs_see(bug, monkeypatch):
    bug(monkeypatch)
    with pytest.raises(Exception):  # noqa: B017 - a verifier's error or a difference
        for seed in SEEDS:
            before = random_images(seed)
            check(before, assign_layouts(before, BASELINE), seed)


CHOSEN = {  # image, taps, window: on AVX-512
    "few channels": ((1, 64, 56, 56), 3, {}, "winograd(4, 14, 8, 2)"),
    "two threads": ((1, 128, 28, 28), 3, {}, "winograd(4, 25, 8, 2)"),
    "many channels": ((1, 256, 14, 14), 3, {}, "winograd(4, 16, 8, 2, True)"),
    "more weight than image": (
        (1, 512, 7, 7),
        3,
        {},
        "winograd(2, 16, 8, 2, True)",
    ),
    "and eight of them": ((8, 512, 7, 7), 3, {}, "winograd(4, 32, 8, 2, True)"),
    "stride": (
        (1, 64, 56, 56),
        3,
        {"stride": 2},
        "vectorise(i1i) tile(i3, 4) tile(i1oi, 4) unroll(r2, 3) unroll(ri, 2) block(i3, "
        "28) peel(i3) bound() prefetch(packed, 8192)",
    ),
    "dilation": (
        (1, 64, 56, 56),
        3,
        {"dilation": 2},
        "vectorise(i1i) tile(i3, 3) tile(i1oi, 4) unroll(r2, 3) unroll(ri, 2) block(i3, "
        "54) peel(i3) bound() prefetch(packed, 8192)",
    ),
    "other taps": ((1, 64, 56, 56), 5, {}, "winograd(2, 15, 8, 2)"),
}


@pytest.mark.parametrize("name", CHOSEN)
def test_how_a_convolution_runs(name):
    image, size, window, wanted = CHOSEN[name]
    b = Builder("net", image)
    program = b.program(b.conv(b.image, image[1], size, padding=1, **window))
    (how,) = (call.how for call in assign_layouts(program, AVX512).calls if call.name == "conv")
    assert str(how) == wanted


def test_images_that_a_cache_holds_meet_all_panels_before_the_next_ones_do():
    near = AVX512.core.cache
    assert images_together(near // 8, near, 16, 8, AVX512) == 4
    assert images_together(near // 8, near, 16, 6, AVX512) == 3  # that divide the batch
    assert images_together(near * 3 // 4, near, 16, 8, AVX512) == 1
    assert images_together(near // 8, near, 16, 4, AVX512) == 0  # the cache holds all of them
    assert images_together(near * 2, near // 8, 16, 8, AVX512) == 0  # and not even one
    assert images_together(near // 8, near * 64, 2, 8, AVX512) == 0  # the weight is far the larger


@pytest.mark.parametrize("batch", [1, 8, 9])
def test_the_batch_is_split_where_that_brings_less_from_afar(monkeypatch, batch):
    b = Builder("net", (batch, 32, 12, 12))
    before = b.program(b.conv(b.conv(b.image, 256, 1), 64, 3, stride=2))
    target = replace(AVX512, core=replace(AVX512.core, cache=160 << 10))
    after = assign_layouts(before, target, Options(winograd=False))
    check(before, after)
    first = next(call for call in after.calls if call.name == "conv").kernel
    places = [axis.extent for axis in first.parallel if axis.extent != 1]
    panels = places[1 if batch > 1 else 0]
    assert (
        panels > 1
        and places[: 1 + 2 * (batch > 1)] == {1: [panels], 8: [2, panels, 4], 9: [3, panels, 3]}[batch]
    )


@pytest.mark.parametrize(("channels", "size", "winograd"), [(512, 7, False), (64, 56, True)])
def test_weights_that_come_with_each_call_are_not_made_into_more(channels, size, winograd):
    """Of 512 x 512 weights 4 x 4 of Winograd's sums take longer than all of a direct sum over 7 x 7."""
    b = Builder("net", (1, channels, size, size))
    program = b.program(b.conv(b.image, channels, 3, padding=1))
    for seldom in (True, False):
        laid = assign_layouts(program, AVX2, Options(seldom=seldom))
        assert ("winograd" in str(laid)) is (seldom or winograd)
