"""A language model is recorded once for prompts of any length, single tokens and caches of any capacity, and
what is packed of its weights is there once."""

import gc

import numpy as np
import pytest

import lamina
from lamina.jit.backend import Bound
from lamina.language.decoder_network import Decoder
from lamina.language.families import family_of
from lamina.language.model_folders import _round
from lamina.language.text_model import LanguageModel
from lamina.language.untrusted import Fields

SIZES = {
    "model_type": "qwen2", "vocab_size": 90, "hidden_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96,
    "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "rope_theta": 1e4, "tie_word_embeddings": True,
    "hidden_act": "silu",
}  # fmt: skip


def language_model(dtype, weights):
    config = family_of(Fields(SIZES, "config.json"))[1]
    network = Decoder(config, getattr(lamina, dtype))
    numbers = np.random.default_rng(0)
    state = {
        name: lamina.tensor(numbers.standard_normal(p.shape) / 8, dtype=p.dtype)
        for name, p in network.named_parameters()
    }
    network.load_state_dict(state, assign=True)
    network.requires_grad_(False)
    if weights:
        _round(network, weights)
    return LanguageModel(network, None, None, 4096, "of a test")


def prologues():
    """What keeps packed weights, of all programs that there are."""
    gc.collect()
    found = [x.prologue for x in gc.get_objects() if isinstance(x, Bound) and x.prologue is not None]
    return {id(prologue): prologue for prologue in found}


@pytest.mark.parametrize(
    ("dtype", "weights"),
    [("float32", None), ("bfloat16", None), ("float32", "int8"), ("bfloat16", "int4")],
)
def test_prompts_single_tokens_and_growing_caches_share_a_recording_and_packed_weights(dtype, weights):
    before = prologues()
    model = language_model(dtype, weights)
    cache, tokens = model.cache(), [*np.random.default_rng(1).integers(0, 90, 600).tolist()]
    ends = [0, 40, 41, 42, 300, 301, 520, 521, 524]
    for start, end in zip(ends, ends[1:]):
        found = model._logits(tokens[start:end], start, cache)
        with lamina.no_grad():
            wanted = model.network(lamina.tensor([tokens[:end]]))[0, -1].numpy()
        assert np.abs(found - wanted).max() < (0.2 if dtype == "bfloat16" else 2e-4) * np.abs(wanted).max()
    assert cache.capacity == 1024
    assert model.traced.counts()["recorded"] == 1
    made = [p for key, p in prologues().items() if before.get(key) is not p]
    assert len(made) == 1


def test_sizes_of_tensors_in_lists_are_symbols_where_no_other_argument_has_one():
    model = language_model("float32", None)
    traced = lamina.jit.trace(model.network, budget=None)
    for capacity in (256, 512, 384):
        kept = [tuple(lamina.zeros(1, 2, capacity, 16) for _ in range(2)) for _ in range(2)]
        for one in (x for pair in kept for x in pair):
            lamina.jit.mark_dynamic(one, 2)
        with lamina.no_grad():
            traced(lamina.tensor([[7]]), lamina.tensor([0]), kept)
    assert traced.counts()["recorded"] == 1
