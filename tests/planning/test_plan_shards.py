"""What a rank holds and how long a step takes, against formulas and against what must hold of any layout."""

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lamina.planning import DEVICES, Layout, Mesh, PlanError, predict, transformer
from lamina.planning.layout_search import candidates, search
from lamina.planning.rank_memory import rank_memory
from lamina.planning.stage_cuts import cut
from lamina.planning.step_time import KINDS, fit

A100 = DEVICES["a100-80"]
TEXT = "layers=8,hidden=512,heads=8,vocab=8192,seq=256"
GPT = transformer(TEXT)


def test_sixteen_bytes_a_parameter_are_sharded_as_zero_says():
    """2 of parameters, 2 of gradients, 12 of Adam's states and the float32 copy: Rajbhandari et al. 2020."""
    n = GPT.parameters
    for zero, (parameters, gradients, states) in enumerate(((2, 2, 12), (2, 2, 12 / 8), (2, 2 / 8, 12 / 8))):
        memory = fit(GPT, Layout(dp=8, zero=zero), Mesh(8, 1), 8, "adamw")
        assert memory[:3] == (parameters * n, gradients * n, states * n)
    memory = fit(GPT, Layout(dp=8, zero=3), Mesh(8, 1), 8, "adamw")
    assert sum(memory[:3]) == 16 * n / 8


@pytest.mark.parametrize(
    ("precision", "optimizer", "each"),
    [("bf16", "adamw", 16), ("fp32", "adamw", 16), ("fp32", "sgd", 8), ("fp32", "momentum", 12),
     ("bf16", "lion", 12)],
)  # fmt: skip
def test_bytes_of_a_parameter_by_precision_and_optimizer(precision, optimizer, each):
    costs = transformer(TEXT, precision=precision)
    assert sum(fit(costs, Layout(), Mesh(1, 1), 1, optimizer)[:3]) == each * costs.parameters


def test_tensor_parallel_ranks_hold_norms_whole():
    """Of a layer 12 h^2 + 7 h are split, and 6 h whole: two norms, and the biases of two sums."""
    h, layers, vocab, seq = 512, 8, 8192, 256
    memory = fit(GPT, Layout(tp=8), Mesh(8, 1), 1, "adamw")
    whole = layers * 6 * h + seq * h + 2 * h
    split = layers * (12 * h * h + 7 * h) + vocab * h
    assert memory.parameters == 2 * (whole + split / 8)


def test_the_last_rank_of_a_pipeline_has_a_copy_of_a_tied_embedding():
    """As where it has logits of its own."""
    layout, last = Layout(pp=8), []
    for costs in (GPT, transformer(f"{TEXT},tied=0")):
        last.append(rank_memory(costs, layout, cut(costs, layout)[7], 7, 8, 8).parameters)
    assert last[0] == last[1] == 2 * (8192 * 512 + 2 * 512 + 12 * 512**2 + 13 * 512)
    alone = fit(GPT, Layout(), Mesh(1, 1), 8, "adamw").parameters
    assert alone == 2 * GPT.parameters


def test_experts_are_spread_over_data_parallel_ranks():
    costs = transformer(f"{TEXT},experts=8")
    one, four = (fit(costs, Layout(dp=8, ep=ep), Mesh(8, 1), 8, "adamw") for ep in (1, 4))
    expert = sum(layer.expert for layer in costs.layers)
    assert one.parameters - four.parameters == 2 * expert * 3 / 4
    sharded = [sum(fit(costs, Layout(dp=8, ep=ep, zero=3), Mesh(8, 1), 8, "adamw")[:3]) for ep in (1, 8)]
    assert sharded[0] == sharded[1] == 16 * costs.parameters / 8


LAYOUTS = st.builds(
    Layout, dp=st.sampled_from([1, 2, 4]), tp=st.sampled_from([1, 2, 4]), pp=st.sampled_from([1, 2, 4]),
    micro_batch=st.sampled_from([1, 2]), zero=st.integers(0, 3), recompute=st.sampled_from(["none", "full"]),
    sequence_parallel=st.booleans(),
)  # fmt: skip


@given(LAYOUTS, st.sampled_from(["dp", "tp", "pp", "zero"]))
def test_more_devices_or_sharding_never_take_more_memory(layout, axis):
    """Of one batch, where layers divide: each axis twice as wide; or one more kind of state sharded."""
    batch = 32
    if axis == "zero":
        assume(layout.zero < 2)  # 3 gathers layers for a moment, which the smallest models don't win back
        more = replace(layout, zero=layout.zero + 1)
    else:
        more = replace(layout, **{axis: 2 * getattr(layout, axis)})
    memory = [
        sum(fit(GPT, each, Mesh(1, each.devices), batch, "adamw")[: 4 if axis == "zero" else 5])
        for each in (layout, more)
    ]
    assert memory[1] <= memory[0]


@given(LAYOUTS)
def test_seconds_are_of_every_kind_and_none_is_negative(layout):
    made = predict(GPT, A100, Mesh(8, layout.devices), replace(layout, dp=8 * layout.dp), 256)
    assert set(made.seconds) == set(KINDS) and min(made.seconds.values()) >= 0
    assert made.step == sum(made.seconds.values()) > 0
    assert 0 < made.utilisation < 1 and made.tokens_per_second == 256 * 256 / made.step
    assert made.executed >= made.flops
    assert (made.seconds["pipeline sends"] > 0) == (layout.pp > 1)
    assert (made.seconds["tensor parallel"] > 0) == (layout.tp > 1)


@given(LAYOUTS, st.sampled_from([2.0, 4.0]))
def test_a_quicker_device_is_never_slower(layout, times):
    mesh = Mesh(layout.devices, 1)
    slow = predict(GPT, A100, mesh, layout, 32)
    for changes in (
        {"bandwidth": A100.bandwidth * times},
        {"peak": {name: rate * times for name, rate in A100.peak.items()}},
        {"node": replace(A100.node, bandwidth=A100.node.bandwidth * times)},
        {"network": replace(A100.network, bandwidth=A100.network.bandwidth * times)},
    ):
        assert predict(GPT, replace(A100, **changes), mesh, layout, 32).step <= slow.step * (1 + 1e-12)


def test_a_single_device_takes_what_its_products_and_bytes_take():
    """No collective, no pipeline: three kinds of seconds and the update."""
    made = predict(GPT, replace(A100, launch=0.0), Mesh(1, 1), Layout(micro_batch=4), 4)
    assert {kind for kind, s in made.seconds.items() if s} == {
        "products",
        "attention",
        "pointwise",
        "optimizer",
    }
    update = GPT.parameters * (2 + 2 * 12 + 2) / (A100.bandwidth * A100.streaming)
    assert made.seconds["optimizer"] == pytest.approx(update, rel=1e-12)  # the same product in another order
    rate = A100.peak["bf16"] * A100.products
    linear = 3 * 4 * sum(p.flops for layer in GPT.layers for p in layer.products if not p.core) / rate
    assert linear < made.seconds["products"] < 2 * linear


def test_full_recomputation_is_one_more_forward_of_the_layers():
    plain, again = (predict(GPT, A100, Mesh(1, 1), Layout(recompute=r), 1) for r in ("none", "full"))
    assert again.executed - plain.executed == sum(layer.flops for layer in GPT.layers if layer.block)
    assert again.memory.activations < plain.memory.activations
    assert plain.executed == plain.flops == again.flops


def test_data_parallel_bytes_are_those_of_a_ring():
    """2 (n - 1) / n of the gradients; sharding sends as much, and half more to gather parameters again."""
    n = 2 * GPT.parameters
    sent = [predict(GPT, A100, Mesh(8, 1), Layout(dp=8, zero=z), 8).sent["dp"] for z in range(4)]
    assert sent == pytest.approx([2 * 7 / 8 * n] * 3 + [3 * 7 / 8 * n], rel=1e-12)  # sums by layers


def test_overlap_hides_data_parallel_collectives():
    hidden, seen = (predict(GPT, A100, Mesh(8, 1), Layout(dp=8, overlap=o), 8) for o in (True, False))
    assert 0 < hidden.seconds["data parallel"] < seen.seconds["data parallel"]


def test_ranks_of_a_cpu_share_it():
    cpu = replace(A100, shared=True, peak={"fp32": 8e10}, launch=0.0)
    costs = transformer(TEXT, precision="fp32")
    one = predict(costs, cpu, Mesh(1, 1), Layout(), 8)
    four = predict(costs, cpu, Mesh(4, 1), Layout(dp=4), 8)
    assert four.capacity == one.capacity / 4 and not four.layout.overlap
    work = [sum(p.seconds[kind] for kind in ("products", "attention", "pointwise")) for p in (one, four)]
    assert work[1] == pytest.approx(work[0], rel=1e-12)  # a fourth of the batch by a fourth of the rate


def test_a_search_looks_at_each_layout_once_and_sorts():
    mesh, batch = Mesh(4, 2), 16
    tried = [str(layout) for layout in candidates(GPT, mesh, batch)]
    assert len(tried) == len(set(tried))
    found = search(GPT, A100, mesh, batch, "adamw", 5)
    assert found.tried == len(tried) == found.fitting + found.refused.total()
    steps = [p.step for p in found.best]
    assert len(steps) == 5 and steps == sorted(steps) and all(p.fits for p in found.best)
    layouts = candidates(GPT, mesh, batch)
    quickest = min(
        predict(GPT, A100, mesh, layout, batch).step for layout in layouts if _suits(layout, mesh, batch)
    )
    assert steps[0] == quickest


def _suits(layout, mesh, batch):
    try:
        return fit(GPT, layout, mesh, batch, "adamw").total <= A100.memory
    except PlanError:
        return False


def test_what_is_too_large_says_by_how_much():
    costs, mesh = transformer("gpt3-175b"), Mesh(8, 1)
    found = search(costs, A100, mesh, 64, "adamw")
    assert not found.best and found.refused["needs more than 80 GB"] == found.tried
    layout, memory = found.nearest
    least = min(fit(costs, each, mesh, 64, "adamw").total for each in candidates(costs, mesh, 64))
    assert memory.total == least == fit(costs, layout, mesh, 64, "adamw").total > 80e9
