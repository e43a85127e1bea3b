"""Folders of tiny language models in which an author says something odd: in any of their files."""

from __future__ import annotations

import copy
import functools
import json
import os
import random
import shutil
import sys
import tempfile
import weakref
from pathlib import Path
from typing import Any

import mutations
from driver import Kind, Wrong, kind

sys.path.insert(0, str(Path(__file__).parents[1]))

import lamina
from lamina.runtime.checkpoints.own_form import safetensors_bytes

MOST = 1 << 28  # bytes that a folder of a few hundred kilobytes may take
TEXTS = ("the t", "aaaa aaaa", "Ä ﷺ\n é", "", "<|im_start|>x" * 3, "a" * 200)


def _llama() -> dict[str, Any]:
    from tiny_checkpoints import LLAMA, TEMPLATE, bytes_vocabulary, llama_arrays

    config = {**LLAMA, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1,
              "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                               "high_freq_factor": 4.0, "original_max_position_embeddings": 64},
              "layer_types": ["full_attention"], "head_dim": 4}  # fmt: skip
    tokenizer = json.loads(bytes_vocabulary().to_str())
    told = {"eos_token": "<|im_end|>", "bos_token": {"content": "<|endoftext|>"}, "chat_template": TEMPLATE}
    return {
        "config.json": config, "tokenizer.json": tokenizer, "tokenizer_config.json": told,
        "generation_config.json": {"eos_token_id": [0, 2]}, "model.safetensors": llama_arrays(config),
    }  # fmt: skip


def _in_parts() -> dict[str, Any]:
    found = _llama()
    arrays = found.pop("model.safetensors")
    names, told = [*arrays], {}
    for at, part in enumerate((names[:5], names[5:])):
        found[f"model-{at}.safetensors"] = {name: arrays[name] for name in part}
        told |= dict.fromkeys(part, f"model-{at}.safetensors")
    return found | {"model.safetensors.index.json": {"metadata": {}, "weight_map": told}}


def _steps() -> dict[str, Any]:
    """A vocabulary whose text goes through every kind of step."""
    found = _llama()
    tokenizer = found["tokenizer.json"]
    tokenizer["normalizer"] = {"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "_"}, {"type": "Replace", "pattern": {"String": " "}, "content": "__"},
        {"type": "Replace", "pattern": {"Regex": "a+"}, "content": "b"}, {"type": "NFKC"},
        {"type": "Lowercase"}, {"type": "Strip", "strip_left": True, "strip_right": True}]}  # fmt: skip
    tokenizer["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": "\\s+|\\w+"}, "behavior": "Isolated", "invert": False},
        {"type": "Digits", "individual_digits": True}, tokenizer["pre_tokenizer"]]}  # fmt: skip
    tokenizer["decoder"] = {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "_"}, "content": " "}, {"type": "ByteFallback"},
        {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True,
        "use_regex": True}]}  # fmt: skip
    piece = {"SpecialToken": {"id": "<|im_start|>", "type_id": 0}}
    tokenizer["post_processor"] = {"type": "Sequence", "processors": [
        {"type": "TemplateProcessing", "single": [piece, {"Sequence": {"id": "A", "type_id": 0}}],
         "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
         "special_tokens": {"<|im_start|>": {"id": "<|im_start|>", "ids": [1],
         "tokens": ["<|im_start|>"]}}}]}  # fmt: skip
    return found


def _bert() -> dict[str, Any]:
    import numpy as np
    import tokenizers

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abcdeht", "##h", "##e", "the"]
    model = tokenizers.models.WordPiece({word: at for at, word in enumerate(words)}, unk_token="[UNK]")
    made = tokenizers.Tokenizer(model)
    made.normalizer = tokenizers.normalizers.BertNormalizer()
    made.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    made.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    made.decoder = tokenizers.decoders.WordPiece()
    config = {
        "model_type": "bert", "vocab_size": len(words), "hidden_size": 8, "num_hidden_layers": 1,
        "num_attention_heads": 2, "intermediate_size": 12, "max_position_embeddings": 16,
        "type_vocab_size": 2,
        "layer_norm_eps": 1e-12, "hidden_act": "gelu", "position_embedding_type": "absolute",
    }  # fmt: skip
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (len(words), 8),
        "embeddings.position_embeddings.weight": (16, 8),
        "embeddings.token_type_embeddings.weight": (2, 8),
    }  # fmt: skip
    layer, rows = "encoder.layer.0.", {"attention.self.query": (8, 8), "attention.self.key": (8, 8),
        "attention.self.value": (8, 8), "attention.output.dense": (8, 8), "intermediate.dense": (12, 8),
        "output.dense": (8, 12)}  # fmt: skip
    for name, shape in rows.items():
        shapes |= {f"{layer}{name}.weight": shape, f"{layer}{name}.bias": shape[:1]}
    for name in ("embeddings.LayerNorm", f"{layer}attention.output.LayerNorm", f"{layer}output.LayerNorm"):
        shapes |= {f"{name}.weight": (8,), f"{name}.bias": (8,)}
    rng = np.random.default_rng(0)
    return {
        "config.json": config, "tokenizer.json": json.loads(made.to_str()),
        "modules.json": [{"type": "sentence_transformers.models.Transformer", "path": ""},
                         {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"},
                         {"type": "sentence_transformers.models.Normalize", "path": "2_Normalize"}],
        "1_Pooling/config.json": {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False},
        "sentence_bert_config.json": {"max_seq_length": 16},
        "model.safetensors": {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()},
    }  # fmt: skip


@functools.cache
def _seeds() -> list[dict[str, Any]]:
    """Folders: what each file's JSON says, and bytes of weights."""
    found = [_llama(), _in_parts(), _steps(), _steps(), _bert()]
    return [
        {
            name: safetensors_bytes(said) if name.endswith(".safetensors") else said
            for name, said in each.items()
        }
        for each in found
    ]


GROWN = (
    {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}, {"type": "NFKD"},
    {"type": "Replace", "pattern": {"Regex": ""}, "content": "a"}, {"type": "Prepend", "prepend": "a" * 900},
    {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": False},
    {"type": "Metaspace", "replacement": "_", "prepend_scheme": "always", "split": True},
    {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 1000},
    {"type": "Precompiled", "precompiled_charsmap": "AAAAAA=="}, {"type": "StripAccents"}, {"type": "Nmt"},
)  # fmt: skip


def _tokenizer(rng: random.Random, said: Any) -> Any:
    """What tokenizer.json says, with its steps more often there, or others."""
    lists = [inside[key] for inside, key in mutations.places(said) if isinstance(inside[key], list)]
    steps = [each for each in lists if each and isinstance(each[0], dict) and len(each) < 100]
    if steps and rng.random() < 0.5:
        some = rng.choice(steps)
        at, again = rng.randrange(len(some)), rng.choice((1, 2, 10, 40, 200))
        some[at:at] = [copy.deepcopy(rng.choice((some[at], rng.choice(GROWN))))] * again
        return said
    return mutations.altered(rng, said)


def _header(rng: random.Random, stored: bytes) -> bytes:
    length = int.from_bytes(stored[:8], "little")
    said = mutations.altered(rng, json.loads(stored[8 : 8 + length]))
    text = json.dumps(said).encode(errors="replace")
    return len(text).to_bytes(8, "little") + text + stored[8 + length :]


def _authored(rng: random.Random) -> dict[str, bytes]:
    """Files of a folder, one or two of which say something odd."""
    seed = rng.choice(_seeds())
    files = {
        name: said if isinstance(said, bytes) else json.dumps(said).encode() for name, said in seed.items()
    }
    for _ in range(rng.choice((1, 1, 1, 2))):
        name = rng.choice([*seed, "config.json", "tokenizer.json", "tokenizer.json"])
        said, way = copy.deepcopy(seed[name]), rng.randrange(10)
        if way == 0:
            files[name] = mutations.damaged(rng, files[name])
        elif way == 1 and rng.random() < 0.2:
            files.pop(name, None)
        elif isinstance(said, bytes):
            files[name] = _header(rng, said)
        else:
            altered = _tokenizer(rng, said) if name == "tokenizer.json" else mutations.altered(rng, said)
            files[name] = json.dumps(altered).encode(errors="replace")
    return files


@kind("model-folder", "lamina.language", "tokenizers", "jinja2", "safetensors")
def authored_folders() -> Kind:
    """What an author says in a folder is refused, or fits wherever it is looked at."""
    _seeds()
    holder = tempfile.mkdtemp("-hostile", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)

    def check(files: dict[str, bytes]) -> str:
        folder = Path(holder, f"m{os.getpid()}")
        shutil.rmtree(folder, ignore_errors=True)
        for name, data in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
        try:
            model: Any = lamina.language.load(folder)
            for text in TEXTS:
                tokens = model.tokens(text)
                model.text(tokens[:50])
                assert len(tokens) < 1 << 22
            if isinstance(model, lamina.language.LanguageModel):
                with lamina.no_grad():
                    model.network(lamina.tensor([[1, 3]]))
                if model.template:
                    model.prompt([{"role": "user", "content": "hi"}])
            else:
                model.embed(["the t", "a"])
        except MemoryError as error:
            if not isinstance(error, lamina.LaminaError):
                raise Wrong(f"memory was asked for beyond the bound: {str(error)[:200]}") from error
            raise
        return "ran"

    weakref.finalize(check, shutil.rmtree, holder, True)
    return Kind(make=_authored, check=check, refusals=(lamina.LaminaError,), batch=200, memory=MOST, share=50)
