"""tile_convolutions: golden text, the meaning of networks and training steps, estimates, planted bugs."""

from math import inf

import pytest
from image_programs import Builder, check, conv_kernel
from training_programs import random_step, small_step

from lamina.ir.errors import LaminaError
from lamina.passes.programs import channels_last as layouts
from lamina.passes.programs import tile_convolutions as subject
from lamina.passes.programs.channels_last import channels_last
from lamina.passes.programs.program import Program
from lamina.passes.programs.tile_convolutions import in_tiles, tile_convolutions

SEEDS = range(12)


def network(height: int = 8, width: int = 8, images: int = 2, inputs: int = 3, outs: int = 4) -> Program:
    b = Builder("net", (images, inputs, height, width))
    return b.program(b.op("conv2d", b.image, b.param("w", (outs, inputs, 3, 3)), padding=1))


def names(program: Program) -> list[str]:
    return [call.name for call in program.calls]


@pytest.mark.parametrize("height, width, last", [(8, 8, []), (7, 9, ["conv2d"])], ids=["whole", "ragged"])
def test_a_convolution_in_tiles(golden, height, width, last):
    before = network(height, width)
    after = tile_convolutions(before, inf)
    text = "\n".join(str(call.kernel) for call in after.calls if call.name == "products")
    golden(f"passes/tile_convolutions_{height}", f"{before}\n\n{after}\n\n{text}\n")
    assert names(after)[:3] == ["tiles_of_w", "tiles_of_x", "products"]
    assert names(after)[3:] == (["places", *last] if last else ["conv2d"])
    check(before, after, 0)


def test_images_that_meet_others_have_their_channels_in_every_kernel_innermost(monkeypatch):
    monkeypatch.setattr(layouts, "FEW", 1)
    before = network(7, 9)
    after = channels_last(before, tiles=inf)
    called = {call.name: call.kernel for call in after.calls}
    assert called["tiles_of_x"].outputs[0].shape == (36, 12, 3)
    assert called["places"].outputs[0].shape == (2, 8, 12, 4)
    check(before, after, 0)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_steps_keep_their_meaning(seed):
    before = random_step(seed)
    check(before, tile_convolutions(before, inf), seed)
    check(before, channels_last(before, tiles=inf), seed)


def test_a_training_step_has_its_three_products_in_tiles(monkeypatch):
    monkeypatch.setattr(layouts, "FEW", 1)
    made = [names(channels_last(random_step(seed), tiles=inf)) for seed in SEEDS]
    parts = {name for found in made for name in found}
    assert {"tiles_of_w", "tiles_of_x", "tiles_of_g", "products", "places", "taps"} <= parts
    before = small_step()
    check(before, channels_last(before, tiles=inf))


def test_what_gains_too_little_is_left_alone():
    for program in (network(), network(56, 56, 64, 16, 16)):
        assert tile_convolutions(program) is program
    assert tile_convolutions(network(14, 14, 64, 256, 256)).calls[0].name == "tiles_of_w"


def test_a_convolution_of_another_kind_leaves_all_as_they_are():
    b = Builder("net", (64, 256, 14, 14))
    y = b.op("conv2d", b.image, b.param("w", (256, 256, 3, 3)), padding=1)
    before = b.program(b.op("conv2d", y, b.param("v", (64, 256, 1, 1))))
    assert tile_convolutions(before) is before
    after = channels_last(before, tiles=subject.SHARE)
    assert [n for n in names(after) if n != "relayout"][-1] == "conv2d" and "products" in names(after)


@pytest.mark.parametrize("window", [{"stride": 2}, {"dilation": 2}, {"groups": 2}], ids=str)
def test_other_windows_are_not_taken(window):
    b = Builder("net", (2, 4, 8, 8))
    channels = 4 // window.get("groups", 1)
    before = b.program(b.op("conv2d", b.image, b.param("w", (4, channels, 3, 3)), **window))
    assert tile_convolutions(before, inf) is before


def test_dimensions_that_are_not_put_back_are_seen(monkeypatch):
    before = network(8, 8)
    check(before, tile_convolutions(before, inf))
    monkeypatch.setattr(subject, "_inverse", lambda order: order)
    with pytest.raises(LaminaError):
        check(before, tile_convolutions(before, inf))


def test_an_epilogue_that_reads_others_is_computed_with_the_places():
    b = Builder("net", (2, 3, 8, 8))
    kernel = conv_kernel((2, 3, 8, 8), (4, 3, 3, 3), residual=True, padding=1)
    operands = b.image, b.param("w", (4, 3, 3, 3)), b.param("b", (4,)), b.param("r", (2, 4, 8, 8))
    before = b.program(b.call(kernel, *operands))
    after = tile_convolutions(before, inf)
    assert names(after) == ["tiles_of_w", "tiles_of_x", "products", "conv"]
    check(before, after, 0)
    roles = next(call for call in before.calls)
    assert in_tiles(roles.kernel, subject.product_of(roles.kernel).widened) is None
