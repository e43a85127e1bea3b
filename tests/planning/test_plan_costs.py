"""Costs of transformers against the formulas of the literature, worked out here anew."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.planning import Layout, transformer
from lamina.planning.rank_memory import saved_by

SHAPES = [(24, 2304, 24, 51200, 2048), (96, 12288, 96, 51200, 2048), (16, 1024, 4, 32000, 512)]


def gpt(heads, hidden, layers, vocab, seq, more="attention=stored", precision="bf16"):
    text = f"layers={layers},hidden={hidden},heads={heads},vocab={vocab},seq={seq},{more}"
    return transformer(text, precision=precision)


@pytest.mark.parametrize("shape", SHAPES)
def test_parameters_of_a_gpt(shape):
    """A layer has 12 h^2 + 13 h, embeddings (V + s) h, the last norm 2 h."""
    heads, h, layers, vocab, seq = shape
    assert gpt(*shape).parameters == layers * (12 * h * h + 13 * h) + (vocab + seq) * h + 2 * h


@pytest.mark.parametrize("shape", SHAPES)
def test_flops_of_a_gpt(shape):
    """6 for each weight and token, and 12 s h a layer for scores: 72 s l h^2 (1 + s/6h + V/12lh)."""
    heads, h, layers, vocab, seq = shape
    weights = layers * 12 * h * h + vocab * h
    assert gpt(*shape).flops == 6 * weights * seq + 12 * layers * seq * seq * h
    published = 72 * seq * layers * h * h * (1 + seq / (6 * h) + vocab / (12 * layers * h))
    assert gpt(*shape).flops == pytest.approx(published, rel=1e-12)  # the same sum in another order


def test_fused_attention_skips_what_is_masked():
    stored, fused = gpt(*SHAPES[2]), gpt(*SHAPES[2], "attention=fused")
    heads, h, layers, vocab, seq = SHAPES[2]
    assert stored.flops - fused.flops == 6 * layers * seq * seq * h
    assert stored.parameters == fused.parameters


@pytest.mark.parametrize("shape", SHAPES)
def test_saved_bytes_are_those_of_korthikanti(shape):
    """sbh (34 + 5as/h), of it 10 sbh whole and 24 sbh split; scores are the rest."""
    a, h, layers, vocab, s = shape
    block = gpt(*shape).layers[1]
    assert block.saved == s * h * 34 + 5 * a * s * s
    assert (block.whole_saved, block.split_saved, block.core_saved) == (10 * s * h, 24 * s * h, 5 * a * s * s)
    assert block.input == 2 * s * h


def test_saved_bytes_on_a_rank():
    a, h, layers, vocab, s = SHAPES[1]
    block, t = gpt(*SHAPES[1]).layers[1], 8
    alone = Layout(tp=t, micro_batch=2, sequence_parallel=False)
    both = Layout(tp=t, micro_batch=2)
    assert saved_by(block, alone, "none") == 2 * s * h * (10 + 24 / t + 5 * a * s / (h * t))
    assert saved_by(block, both, "none") == 2 * s * h / t * (34 + 5 * a * s / h)
    assert saved_by(block, both, "selective") == 2 * 34 * s * h / t
    assert saved_by(block, alone, "full") == 2 * 2 * s * h
    assert saved_by(block, Layout(cp=4), "none") == saved_by(block, Layout(), "none") / 4


@pytest.mark.parametrize(
    ("name", "billions"),
    [("llama3-8b", 8.03), ("llama3-70b", 70.55), ("llama3-405b", 405.85), ("mixtral-8x7b", 46.70)],
)  # fmt: skip
def test_parameters_of_known_models(name, billions):
    """As their authors' checkpoints have them, to the digits given."""
    assert round(transformer(name).parameters / 1e9, 2) == billions


def test_experts_take_the_tokens_that_are_sent_to_them():
    """Of 8 experts a token takes 2: the products of two layers, the parameters of eight."""
    plain = gpt(16, 1024, 4, 32000, 512).layers[1]
    mixed = gpt(16, 1024, 4, 32000, 512, "attention=stored,experts=8,top=2").layers[1]
    h, s = 1024, 512
    assert mixed.expert == 8 * (8 * h * h + 5 * h)
    assert mixed.flops - plain.flops == 2 * s * 8 * h * h + 2 * s * h * 8  # one more of them, and the choice


def test_float32_takes_twice_the_bytes_but_for_masks_and_logits():
    half, full = gpt(*SHAPES[2]).layers[1], gpt(*SHAPES[2], precision="fp32").layers[1]
    a, h, layers, vocab, s = SHAPES[2]
    masks = 2 * s * h + a * s * s
    assert full.saved - masks == 2 * (half.saved - masks)
    assert full.parameters == half.parameters and full.flops == half.flops


@given(
    heads=st.sampled_from([1, 2, 4, 8]), layers=st.integers(1, 6), size=st.sampled_from([8, 16, 64]),
    seq=st.integers(1, 300), vocab=st.integers(2, 5000), groups=st.sampled_from([1, 2]),
    gated=st.booleans(), tied=st.booleans(), bias=st.booleans(), fused=st.booleans(),
)  # fmt: skip
def test_products_hold_all_large_parameters(
    heads, layers, size, seq, vocab, groups, gated, tied, bias, fused
):
    """Each weight of a product is a parameter, and all others are of one dimension, or an embedding."""
    hidden, groups = heads * size, min(groups, heads)
    costs = transformer(
        f"layers={layers},hidden={hidden},heads={heads},kv_heads={groups},vocab={vocab},seq={seq},"
        f"gated={int(gated)},tied={int(tied)},bias={int(bias)},attention={'fused' if fused else 'stored'}"
    )
    for layer in costs.layers[1:-1]:
        weights = sum(p.inner * p.columns for p in layer.products if p.weighted)
        assert 0 <= layer.parameters - weights <= 20 * max(hidden, 1) + bias * 2 * 4 * hidden
    head = costs.layers[-1]
    assert head.split == (0 if tied else vocab * hidden)
    assert costs.flops == 3 * sum(layer.flops for layer in costs.layers) > 0
