"""GGUF files of tiny language models: damaged ones, and those in which an author says something odd."""

from __future__ import annotations

import functools
import random
import struct
import tempfile
from pathlib import Path
from typing import Any

import mutations
import numpy as np
from driver import Held, Kind, Wrong, kind
from gguf_pieces import altered, taken_apart, written

import lamina

WIDE, INNER, LAYERS, HEADS, KEY_HEADS = 64, 96, 1, 4, 2
MOST = 1 << 28  # bytes that a file of a few hundred kilobytes may take


def _arrays(words: int, biased: bool) -> dict[str, np.ndarray]:
    rng, keys = np.random.default_rng(0), WIDE // HEADS * KEY_HEADS
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (words, WIDE), "output_norm.weight": (WIDE,)}
    for at in range(LAYERS):
        inside = {
            "attn_norm": (WIDE,), "ffn_norm": (WIDE,), "attn_q": (WIDE, WIDE), "attn_k": (keys, WIDE),
            "attn_v": (keys, WIDE), "attn_output": (WIDE, WIDE), "ffn_gate": (INNER, WIDE),
            "ffn_up": (INNER, WIDE), "ffn_down": (WIDE, INNER),
        }  # fmt: skip
        shapes |= {f"blk.{at}.{name}.weight": shape for name, shape in inside.items()}
        if biased:
            shapes |= {f"blk.{at}.attn_{x}.bias": inside[f"attn_{x}"][:1] for x in "qkv"}
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def _written(path: Path, arch: str, blocks: str) -> bytes:
    import gguf

    writer = gguf.GGUFWriter(path, arch)
    writer.add_context_length(32)
    writer.add_embedding_length(WIDE)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEY_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "t", "h", "▁t"]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(pieces)
    writer.add_token_scores([-float(at) for at in range(len(pieces))])
    writer.add_token_types([2, 3, 3] + [6] * 256 + [1] * 4)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_chat_template("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}")
    kind = gguf.GGMLQuantizationType[blocks]
    for name, array in _arrays(len(pieces), arch == "qwen2").items():
        if array.ndim == 1 or blocks == "F32":
            writer.add_tensor(name, array)
        else:
            writer.add_tensor(name, gguf.quants.quantize(array, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.read_bytes()


@functools.cache
def _seeds() -> list[bytes]:
    ways = (("llama", "F32"), ("llama", "Q8_0"), ("qwen2", "Q4_0"))
    with tempfile.TemporaryDirectory() as folder:
        return [_written(Path(folder, "seed.gguf"), arch, blocks) for arch, blocks in ways]


def _head(data: bytes) -> int:
    """About how long the part of a file is that says what the rest means."""
    return data.find(b"output_norm.weight") + 2000


def _authored(rng: random.Random, data: bytes) -> bytes:
    """A file whose lengths, counts, types and numbers say something else, where they stand."""
    made = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 3))):
        way, end = rng.randrange(4), _head(data)
        if way == 0:  # what an entry of the metadata is
            names = [b"context_length", b"block_count", b"head_count", b"rope.freq_base", b"token_id"]
            names += [b"embedding_length", b"feed_forward_length", b"rms_epsilon", b"head_count_kv"]
            at = made.find(rng.choice(names)) + rng.randrange(12, 40)
        elif way == 1:  # a size, a type or a place of a tensor
            at = made.find(rng.choice([b"attn_q.weight", b"token_embd.weight", b"ffn_up.weight"])) + 13
            at += rng.randrange(40)
        else:
            at = rng.randrange(end)
        value = rng.choice((*mutations.EXTREMES, rng.randrange(64), 1 << 20, 1 << 24, 1 << 30))
        width = rng.choice((4, 8))
        made[at : at + width] = struct.pack("<Q", value)[:width]
        if way == 3:
            other = rng.randrange(end)
            made[other : other + 16] = made[at : at + 16]
    return bytes(made)


def _read(file: Held, data: bytes) -> str:
    try:
        model: Any = lamina.language.load(file.hold(data))
        with lamina.no_grad():
            model.network(lamina.tensor([[1, 3]]))
        model.text(model.tokens("the t"))
        if model.template:
            model.prompt([{"role": "user", "content": "hi"}])
    except MemoryError as error:
        if not isinstance(error, lamina.LaminaError):
            raise Wrong(f"memory was asked for beyond the bound: {str(error)[:200]}") from error
        raise
    return "ran"


def _kind(make: Any, share: int) -> Kind:
    file = Held(".gguf")
    refusals = (lamina.LaminaError,)
    check = functools.partial(_read, file)
    return Kind(make=make, check=check, refusals=refusals, batch=500, memory=MOST, share=share)


@kind("gguf", "gguf", "lamina.language", "tokenizers", "jinja2")
def damaged_gguf() -> Kind:
    """Whatever damage does, a file is refused or runs, in a bounded memory and time."""
    seeds = _seeds()

    def make(rng: random.Random) -> bytes:
        data = rng.choice(seeds)
        end = _head(data)
        return mutations.damaged(rng, data[:end], [each[:end] for each in seeds]) + data[end:]

    return _kind(make, 200)


@kind("gguf-authored", "gguf", "lamina.language", "tokenizers", "jinja2")
def authored_gguf() -> Kind:
    """What an author says is refused, or fits wherever it is looked at."""
    seeds = _seeds()
    return _kind(lambda rng: _authored(rng, rng.choice(seeds)), 200)


@kind("gguf-written", "gguf", "lamina.language", "tokenizers", "jinja2")
def written_gguf() -> Kind:
    """What a writer says in values, types, names and places, in a file that is whole, is refused or fits."""
    pieces = [taken_apart(data) for data in _seeds()]
    assert [written(each) for each in pieces] == _seeds(), "what is not changed is what it was"
    return _kind(lambda rng: written(altered(rng, rng.choice(pieces))), 200)
