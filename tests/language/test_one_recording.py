"""A language model is recorded once for prompts of any length, single tokens and caches of any capacity, and
what is packed of its weights is there once."""

import gc

import numpy as np
import pytest
from small_decoders import language_model

import lamina
from lamina.jit.backend import Bound
from lamina.passes import cache as disk


def prologues():
    """What keeps packed weights, of all programs that there are."""
    gc.collect()
    found = [x.prologue for x in gc.get_objects() if isinstance(x, Bound) and x.prologue is not None]
    return {id(prologue): prologue for prologue in found if prologue._kept is not None}


@pytest.mark.parametrize(
    ("dtype", "weights"),
    [("float32", None), ("bfloat16", None), ("float32", "int8"), ("bfloat16", "int4")],
)
def test_prompts_single_tokens_and_growing_caches_share_a_recording_and_packed_weights(
    dtype, weights, tmp_path, monkeypatch
):
    monkeypatch.setattr(disk, "_default", disk.Cache(tmp_path))
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
