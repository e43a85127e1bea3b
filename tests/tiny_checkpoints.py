"""Checkpoints of a few thousand numbers, written as others write theirs."""

import json

import numpy as np
import pytest

from lamina.runtime.checkpoints.own_form import safetensors_bytes

WORDS = 320
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
LLAMA = {
    "model_type": "llama", "vocab_size": WORDS, "hidden_size": 32, "num_hidden_layers": 2,
    "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2,
    "max_position_embeddings": 600, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
    "tie_word_embeddings": False, "hidden_act": "silu", "eos_token_id": 0,
}  # fmt: skip


def bytes_vocabulary():
    """A tokenizer of bytes, with a few merges and three special tokens: WORDS tokens at most."""
    tokenizers = pytest.importorskip("tokenizers", reason="the extra language is not installed")
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    words = {token: at for at, token in enumerate([*SPECIAL, *alphabet])}
    merges = [("t", "h"), ("th", "e"), ("i", "n"), ("Ġ", "a"), ("o", "n")]
    for pair in merges:
        words["".join(pair)] = len(words)
    found = tokenizers.Tokenizer(tokenizers.models.BPE(words, merges))
    found.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    found.decoder = tokenizers.decoders.ByteLevel()
    found.add_special_tokens(list(SPECIAL))
    return found


def write_vocabulary(folder, template=TEMPLATE):
    """tokenizer.json and tokenizer_config.json."""
    bytes_vocabulary().save(str(folder / "tokenizer.json"))
    config = {"eos_token": "<|im_end|>", "bos_token": None, "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def llama_arrays(config=LLAMA, seed=0, dtype=np.float32):
    """Random weights by the names of Llama's checkpoints."""
    rng, width, inner = np.random.default_rng(seed), config["hidden_size"], config["intermediate_size"]
    head = config.get("head_dim", width // config["num_attention_heads"])
    queries, keys = head * config["num_attention_heads"], head * config["num_key_value_heads"]
    shapes = {"model.embed_tokens.weight": (config["vocab_size"], width), "model.norm.weight": (width,)}
    for layer in range(config["num_hidden_layers"]):
        for name, shape in {
            "self_attn.q_proj": (queries, width), "self_attn.k_proj": (keys, width),
            "self_attn.v_proj": (keys, width), "self_attn.o_proj": (width, queries),
            "mlp.gate_proj": (inner, width), "mlp.up_proj": (inner, width), "mlp.down_proj": (width, inner),
            "input_layernorm": (width,), "post_attention_layernorm": (width,),
        }.items():  # fmt: skip
            shapes[f"model.layers.{layer}.{name}.weight"] = shape
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (config["vocab_size"], width)
    return {
        name: (rng.standard_normal(shape) * 0.3 + (len(shape) == 1)).astype(dtype)
        for name, shape in shapes.items()
    }


def write_llama(folder, config=LLAMA, arrays=None, **options):
    """A folder as a checkpoint of Llama's is; returns it."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    arrays = llama_arrays(config) if arrays is None else arrays
    (folder / "model.safetensors").write_bytes(safetensors_bytes(arrays))
    write_vocabulary(folder, **options)
    return folder
