"""The batch innermost: golden texts, refusals, random training steps before and after, and planted bugs."""

import pytest
from image_programs import Builder, check
from training_programs import gradients, random_step, small_step

from lamina.ir.errors import GraphError
from lamina.ir.kernel import parse
from lamina.passes.programs import batch_innermost as innermost
from lamina.passes.programs import image_layout
from lamina.passes.programs.batch_innermost import batch_innermost
from lamina.passes.programs.pack_matmuls import pack_matmuls
from lamina.passes.programs.winograd_tiles import tiled
from lamina.passes.schedules.target import AVX2, AVX512, BASELINE

SEEDS = range(30)


# ---- texts
def test_a_training_step_is_laid_out_anew(golden):
    before = small_step()
    golden("passes/batch_innermost_step", f"{before}\n\n{batch_innermost(before, AVX512)}\n")


@pytest.mark.parametrize("size", [1, 2])
def test_large_planes_keep_the_channels_of_a_place_together(size):
    """Where windows are summed over directly."""
    b = Builder("step", (16, 2, 20, 20))
    w = b.param("w", (4, 2, size, size))
    y = b.op("conv2d", b.image, w)
    after = batch_innermost(b.program(*gradients(b, y, b.image, w)), AVX512)
    forward = next(call for call in after.calls if call.name == "conv2d")
    weight = next(call for call in after.calls if call.name == "conv_weight_grad")
    assert forward.inputs[0].shape == ((20, 20, 2, 16) if size > 1 else (2, 20, 20, 16))
    assert weight.inputs[1].shape == (2, 20, 20, 16)


CONVS = {"conv2d", "conv_input_grad", "conv_weight_grad"}


@pytest.mark.parametrize(
    "side, ins, outs, packed",
    [
        (8, 32, 48, CONVS),
        (33, 30, 48, set()),
        (33, 32, 48, {"conv_weight_grad"}),
        (33, 48, 32, set()),
    ],
)
def test_layers_without_windows_are_products_of_matrices_where_planes_are_small(
    side, ins, outs, packed, monkeypatch
):
    """Both gradients, too, that of a large weight on larger planes; `pack_matmuls` finds a way for each."""
    monkeypatch.setattr(innermost, "LARGE", 32 * 48)
    b = Builder("step", (16, ins, side, side))
    w = b.param("w", (outs, ins, 1, 1))
    before = b.program(*gradients(b, b.op("conv2d", b.image, w), b.image, w))
    after = batch_innermost(before, AVX512)
    ways = {call.name: call.how for call in after.calls if call.name.startswith("conv")}
    assert set(ways) == CONVS and {name for name, way in ways.items() if way is None} == packed
    program = pack_matmuls(after, AVX512)
    assert all(call.how is not None for call in program.calls if call.name in ways)
    check(before, program, within=1e-5)


@pytest.mark.parametrize("outs, copies", [(256, 1), (240, 0)])
def test_a_layer_without_taps_and_its_weights_gradient_read_one_copy_of_places_that_are_apart(outs, copies):
    b = Builder("step", (16, 8, 7, 8))
    w = b.param("w", (outs, 8, 1, 1))
    before = b.program(*gradients(b, b.op("conv2d", b.image, w, stride=(2, 3)), b.image, w, stride=(2, 3)))
    after = batch_innermost(before, AVX512)
    made = [call.outputs[0] for call in after.calls if call.name == "pad"]
    readers = [call.name for call in after.calls if set(made).intersection(call.inputs)]
    assert [array.shape for array in made] == [(8, 4, 3, 16)] * copies
    assert readers == ["conv2d", "conv_weight_grad"] * copies
    check(before, after, within=1e-5)


CONV = """\
kernel conv(x: f32[16,4,8,8], w: f32[8,4,3,3], a: f32[16,8,6,6]) -> (y: f32[16,8,6,6], mask: bool[16,8,6,6]) {
  parallel n:16 k:8 i:6 j:6
  t = sum(c:4 r:3 s:3) (x[n, c, i+r, j+s] * w[k, c, r, s])
  y[n, k, i, j] = max(0, (t + a[n, k, i, j]))
  mask[n, k, i, j] = ((t + a[n, k, i, j]) <= 0)
}"""


def test_a_mask_beside_the_result_and_what_is_added_lie_as_the_result_does():
    """As of a convolution with a ReLU, in training: they went by panels of packed windows, at a quarter."""
    b = Builder("step", (16, 4, 8, 8))
    w, more = b.param("w", (8, 4, 3, 3)), b.param("more", (16, 8, 6, 6))
    y = b.call(parse(CONV), b.image, w, more)
    mask = b.steps[-1].outputs[1]
    grads = gradients(b, y, b.image, w)
    before = b.program(y, mask, *grads)
    after = batch_innermost(before, AVX512)
    conv = next(call for call in after.calls if call.name == "conv")
    assert conv.how is not None and {a.shape for a in (*conv.outputs, conv.inputs[2])} == {(8, 6, 6, 16)}
    check(before, after)


# ---- refusals
@pytest.mark.parametrize("batch", [1, 2, 3])
def test_a_batch_that_fills_hardly_a_vector_is_left_alone(batch):
    before = small_step(batch)
    assert batch_innermost(before, AVX512) is before


def test_groups_are_left_alone():
    b = Builder("net", (16, 4, 6, 6))
    before = b.program(b.op("conv2d", b.image, b.param("w", (4, 1, 3, 3)), groups=4))
    assert batch_innermost(before, AVX512) is before


def test_inference_over_many_channels_is_left_to_blocks():
    b = Builder("net", (16, 64, 6, 6))
    before = b.program(b.op("conv2d", b.image, b.param("w", (4, 64, 3, 3))))
    assert batch_innermost(before, AVX512) is before


def test_inference_over_few_channels_needs_whole_vectors():
    b = Builder("net", (24, 4, 6, 6))
    before = b.program(b.op("conv2d", b.image, b.param("w", (4, 4, 3, 3))))
    assert batch_innermost(before, AVX512) is before
    assert batch_innermost(before, AVX2) is not before


def test_an_image_without_channels_is_laid_out_with_the_others():
    b = Builder("net", (16, 3, 6, 6))
    before = b.program(b.cat(b.conv(b.image, 4), b.param("none", (16, 0, 4, 4))))
    after = batch_innermost(before, AVX512)
    assert after is not before
    check(before, after)


def test_products_of_matrices_are_left_alone():
    b = Builder("net", (16, 5, 4))
    before = b.program(b.op("matmul", b.image, b.param("w", (16, 4, 6))))
    assert batch_innermost(before, AVX512) is before


# ---- meaning
@pytest.mark.parametrize("seed", SEEDS)
def test_random_steps_keep_their_meaning(seed):
    before = random_step(seed)
    for target in (AVX512, AVX2, BASELINE):
        check(before, batch_innermost(before, target), seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_steps_keep_their_meaning_where_all_that_is_apart_is_copied(seed, monkeypatch):
    monkeypatch.setattr(innermost, "SAMPLED", 1)
    before = random_step(seed)
    check(before, batch_innermost(before, AVX512))


def test_random_steps_keep_their_meaning_with_gradients_in_tiles(monkeypatch):
    """Whether that pays or not; what is stored between the five kernels is rounded."""
    monkeypatch.setattr(innermost, "in_tiles", lambda kernel, *_: tiled(kernel))
    monkeypatch.setattr(innermost, "is_product", lambda kernel, roles: False)
    made = 0
    for seed in SEEDS:
        before = random_step(seed)
        after = batch_innermost(before, AVX512)
        check(before, after, seed, within=1e-5)
        made += sum(call.name == "tiles_of_g" for call in after.calls)
    assert made > len(SEEDS) // 3


def test_a_second_time_changes_nothing():
    for seed in range(8):
        once = batch_innermost(random_step(seed), AVX512)
        assert batch_innermost(once, AVX512) is once


def test_some_random_steps_are_laid_out():
    laid = sum(batch_innermost(p, AVX512) is not p for p in map(random_step, SEEDS))
    assert laid > len(SEEDS) // 2


# ---- planted bugs
@pytest.mark.parametrize(
    ("owner", "name", "wrong"),
    [
        (image_layout, "permuted", lambda kernel, orders: kernel),
        (image_layout.ImageLayout, "reordered", lambda self, array, order: array),
    ],
    ids=["kernels as they were", "arrays as they were"],
)
def test_a_planted_bug_is_seen(monkeypatch, owner, name, wrong):
    before = small_step()
    check(before, batch_innermost(before, AVX512))
    monkeypatch.setattr(owner, name, wrong)
    with pytest.raises(GraphError):
        check(before, batch_innermost(before, AVX512))
