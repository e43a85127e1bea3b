"""The channels innermost: golden text, refusals, random training steps before and after, and planted bugs."""

import pytest
from image_programs import Builder, check
from training_programs import random_step, small_step

from lamina.ir.errors import GraphError
from lamina.passes.programs import image_layout
from lamina.passes.programs.channels_last import channels_last

SEEDS = range(20)


def test_a_training_step_is_laid_out_anew(golden):
    before = small_step()
    golden("passes/channels_last_step", f"{before}\n\n{channels_last(before)}\n")


def test_weights_have_their_taps_first_and_images_their_channels_last():
    b = Builder("net", (2, 3, 6, 7))
    y = b.op("conv2d", b.image, b.param("w", (4, 3, 3, 3)))
    after = channels_last(b.program(b.op("conv2d", y, b.param("v", (5, 4, 1, 1)))))
    first, second = (call for call in after.calls if call.name == "conv2d")
    assert [a.shape for a in (*first.inputs, *first.outputs)] == [(2, 6, 7, 3), (3, 3, 3, 4), (2, 4, 5, 4)]
    assert second.inputs[0] is first.outputs[0]  # and no copy between the two
    assert [a.shape for a in after.results] == [(2, 5, 4, 5)]


def test_one_convolution_is_not_worth_the_copies():
    b = Builder("net", (2, 3, 6, 6))
    before = b.program(b.op("conv2d", b.image, b.param("w", (4, 3, 3, 3))))
    assert channels_last(before) is before


def test_products_of_matrices_are_left_alone():
    b = Builder("net", (16, 5, 4))
    before = b.program(b.op("matmul", b.image, b.param("w", (16, 4, 6))))
    assert channels_last(before) is before


@pytest.mark.parametrize("seed", SEEDS)
def test_random_steps_keep_their_meaning(seed):
    before = random_step(seed)
    check(before, channels_last(before), seed)


def test_a_second_time_changes_nothing():
    for seed in range(8):
        once = channels_last(random_step(seed))
        assert channels_last(once) is once


def test_some_random_steps_are_laid_out():
    assert sum(channels_last(p) is not p for p in map(random_step, SEEDS)) > len(SEEDS) // 2


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
    check(before, channels_last(before))
    monkeypatch.setattr(owner, name, wrong)
    with pytest.raises(GraphError):
        check(before, channels_last(before))
