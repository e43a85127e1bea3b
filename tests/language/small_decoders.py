"""Small language models of random numbers."""

import numpy as np

import lamina
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


def language_model(dtype, weights, **sizes):
    """One of two layers, without a vocabulary.  sizes: of its config.json, other than SIZES."""
    config = family_of(Fields(SIZES | sizes, "config.json"))[1]
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
