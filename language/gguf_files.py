"""GGUF files: what they say of a network, its weights, and its vocabulary.

Metadata is read here, within bounds that the package `gguf` does not set; that package knows what blocks of
quantised weights mean.  Source: the GGUF specification, github.com/ggml-org/ggml, docs/gguf.md.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..ir import lazy
from ..ir.dtypes import dtype_named
from .decoder_network import DecoderConfig
from .families import FAMILIES
from .gguf_vocabulary import vocabulary_of
from .rotary import Rotary
from .untrusted import CheckpointError, Fields, mapped
from .vocabulary import Vocabulary

ARCHITECTURES = ("llama", "qwen2", "qwen3", "gpt2", "gemma")
MOST_ENTRIES, MOST_TENSORS, MOST_DIMS = 1 << 16, 1 << 17, 4
MOST_LISTED = 1 << 23  # entries of lists: a vocabulary of 262,144 has some 1,300,000
STRING, ARRAY = 8, 9
NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
PLAIN = {0: "f32", 1: "f16", 30: "bf16"}  # types that are no blocks
NAMES = (
    (r"^token_embd\.", "embed_tokens."),
    (r"^position_embd\.", "embed_positions."),
    (r"^output_norm\.", "norm."),
    (r"^output\.", "lm_head."),
    (r"^blk\.", "layers."),
    (r"\.attn_norm\.", ".input_layernorm."),
    (r"\.ffn_norm\.", ".post_attention_layernorm."),
    (r"\.attn_output\.", ".self_attn.o_proj."),
    (r"\.attn_([qk])_norm\.", r".self_attn.\1_norm."),
    (r"\.attn_([qkv])\.", r".self_attn.\1_proj."),
    (r"\.ffn_(gate|up|down)\.", r".mlp.\1_proj."),
)
# How descriptions in config.json call what the metadata have, where both say the same.
SETTINGS = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "rope.freq_base": "rope_theta",
}
GPT2_SETTINGS = {
    "context_length": "n_positions",
    "embedding_length": "n_embd",
    "block_count": "n_layer",
    "feed_forward_length": "n_inner",
    "attention.head_count": "n_head",
    "attention.layer_norm_epsilon": "layer_norm_epsilon",
}


@dataclass(frozen=True)
class Blocks:
    """A weight as it is stored.  rows: u8[shape[0], bytes of a row].  heads: whose rows are interleaved."""

    shape: tuple[int, ...]
    kind: int
    rows: np.ndarray
    heads: int = 0

    def array(self) -> np.ndarray:
        """Its numbers: in the file's memory where they are no blocks, else float32."""
        if self.kind in PLAIN:
            found = self.rows.view(_plain_dtype(self.kind)).reshape(self.shape)
        else:
            quants = lazy.load("gguf.quants", "language")
            found = quants.dequantize(self.rows, quants.GGMLQuantizationType(self.kind)).reshape(self.shape)
        if self.heads:  # pairs (2i, 2i + 1) of rows, where ours are (i, i + d / 2)
            apart = found.reshape(self.heads, self.shape[0] // self.heads // 2, 2, *self.shape[1:])
            found = np.ascontiguousarray(apart.swapaxes(1, 2)).reshape(self.shape)
        return found


@dataclass(frozen=True)
class GgufModel:
    """What a file holds.  blocks: by the network's names."""

    config: DecoderConfig
    blocks: dict[str, Blocks]
    vocabulary: Vocabulary
    template: str | None


def read_gguf(path: Path) -> GgufModel:
    """A model of a GGUF file, none of whose weights is read yet.

    Raises CheckpointError; MissingLibraryError without the packages `gguf` and `tokenizers`.
    """
    memory = mapped(path)
    try:
        metadata, tensors = _Reader(path, memory).contents()
    except (struct.error, UnicodeDecodeError, OverflowError) as error:
        raise CheckpointError(f"{path} is cut short or damaged: {error}") from None
    fields = Fields(metadata, str(path))
    kind = fields.word("general.architecture")
    if kind not in ARCHITECTURES:
        raise CheckpointError(
            f"{path}: the architecture {kind!r} is not known", f"known: {', '.join(ARCHITECTURES)}"
        )
    divisors = tensors.pop("rope_freqs.weight", None)
    config = _config(kind, fields, tensors)
    if divisors is not None:
        config = _divided(config, divisors, path)
    template = fields.word("tokenizer.chat_template", "") or None
    return GgufModel(config, _weights(kind, config, tensors), vocabulary_of(fields), template)


def _config(kind: str, fields: Fields, tensors: Mapping[str, Blocks]) -> DecoderConfig:
    told: dict[str, Any] = {"model_type": kind, "tie_word_embeddings": "output.weight" not in tensors}
    for theirs, ours in (GPT2_SETTINGS if kind == "gpt2" else SETTINGS).items():
        told[ours] = fields.fields.get(f"{kind}.{theirs}")
    if "token_embd.weight" not in tensors:
        raise CheckpointError(f"{fields.name} has no token_embd.weight")
    told["vocab_size"] = tensors["token_embd.weight"].shape[0]
    scaling = fields.word(f"{kind}.rope.scaling.type", "none")
    if scaling != "none":
        told["rope_scaling"] = {
            "rope_type": scaling,
            "factor": fields.fields.get(f"{kind}.rope.scaling.factor"),
            "original_max_position_embeddings": fields.fields.get(
                f"{kind}.rope.scaling.original_context_length"
            ),
        }
    if f"{kind}.attention.sliding_window" in fields and kind != "gpt2":
        raise CheckpointError(f"{fields.name}: windows of attention are not read from GGUF")
    return FAMILIES[kind].config(Fields(told, fields.name))  # type: ignore[return-value]


def _divided(config: DecoderConfig, divisors: Blocks, path: Path) -> DecoderConfig:
    """The configuration with Llama 3's frequencies, which files have as divisors."""
    by, plain = divisors.array().astype(np.float64), config.layers[0].rotary
    if plain is None or by.shape != (len(plain.frequencies),) or not (by > 0).all():
        raise CheckpointError(f"{path}: rope_freqs.weight is not one divisor for each pair of a head")
    rotary = Rotary(tuple((np.array(plain.frequencies) / by).tolist()), plain.scale)
    return replace(config, layers=tuple(replace(kind, rotary=rotary) for kind in config.layers))


def _weights(kind: str, config: DecoderConfig, tensors: Mapping[str, Blocks]) -> dict[str, Blocks]:
    found = {}
    for name, blocks in tensors.items():
        if "attn_qkv" in name:
            count = blocks.shape[0] // 3
            for at, part in enumerate("qkv"):
                rows = blocks.rows[at * count : (at + 1) * count]
                found[_named(name.replace("qkv", part))] = Blocks(
                    (count, *blocks.shape[1:]), blocks.kind, rows
                )
            continue
        if kind == "llama" and (known := re.search(r"attn_([qk])\.", name)):
            heads = config.heads if known[1] == "q" else config.key_heads
            if blocks.shape[0] != heads * config.head_width:
                raise CheckpointError(f"{name} has {blocks.shape[0]} rows, and {heads} heads")
            blocks = replace(blocks, heads=heads)
        found[_named(name)] = blocks
    return found


def _named(name: str) -> str:
    for pattern, ours in NAMES:
        name = re.sub(pattern, ours, name)
    return name


def _plain_dtype(kind: int) -> np.dtype:
    return dtype_named(PLAIN[kind]).numpy


class _Reader:
    """Reads a file's head.  at: the byte that comes next.  listed: entries of its lists so far."""

    def __init__(self, path: Path, memory: np.ndarray):
        self.path, self.memory, self.bytes, self.at = path, memory, memoryview(memory), 0
        self.listed = 0

    def contents(self) -> tuple[dict[str, Any], dict[str, Blocks]]:
        if bytes(self.bytes[:4]) != b"GGUF":
            raise CheckpointError(f"{self.path} is no GGUF file")
        self.at = 4
        version, tensors, entries = self.numbers("IQQ")
        if version not in (2, 3):
            raise CheckpointError(f"{self.path}: version {version} of GGUF is not known (2 and 3 are)")
        if entries > MOST_ENTRIES or tensors > MOST_TENSORS:
            raise CheckpointError(f"{self.path} says that it has {entries} entries and {tensors} tensors")
        metadata: dict[str, Any] = {}
        for _ in range(entries):
            self.once(key := self.string(), metadata)
            metadata[key] = self.value(*self.numbers("I"))
        infos = [self.info() for _ in range(tensors)]
        align = metadata.get("general.alignment", 32)
        if type(align) is not int or not 8 <= align <= 1 << 16 or align & (align - 1):
            raise CheckpointError(f"{self.path}: an alignment of {align!r}")
        start = -(-self.at // align) * align
        found: dict[str, Blocks] = {}
        end = start
        for name, shape, kind, at in sorted(infos, key=lambda info: info[3]):
            self.once(name, found)
            if start + at < end:  # what is there once would take memory as often as it is named
                raise CheckpointError(f"{self.path}: {name!r} lies over another tensor")
            found[name] = self.blocks(name, shape, kind, start + at)
            end = start + at + found[name].rows.nbytes
        return metadata, found

    def once(self, name: str, before: Mapping[str, Any]) -> None:
        if name in before:
            raise CheckpointError(f"{self.path} has {name!r} twice")

    def numbers(self, form: str) -> tuple[Any, ...]:
        found = struct.unpack_from(f"<{form}", self.bytes, self.at)
        self.at += struct.calcsize(f"<{form}")
        return found

    def string(self) -> str:
        (length,) = self.numbers("Q")
        if length > len(self.bytes) - self.at:
            raise CheckpointError(f"{self.path}: a text of {length} bytes at {self.at} goes beyond the file")
        self.at += length
        return bytes(self.bytes[self.at - length : self.at]).decode()

    def value(self, kind: int) -> Any:
        if kind == STRING:
            return self.string()
        if kind in NUMBERS:
            return self.numbers(NUMBERS[kind])[0]
        if kind != ARRAY:
            raise CheckpointError(f"{self.path}: values of type {kind} are not known")
        inner, count = self.numbers("IQ")
        size = 8 if inner == STRING else struct.calcsize(f"<{NUMBERS[inner]}") if inner in NUMBERS else 0
        if not size or count > (len(self.bytes) - self.at) // size:
            raise CheckpointError(f"{self.path}: a list of {count} of type {inner} at {self.at}")
        self.listed += count
        if self.listed > MOST_LISTED:
            raise CheckpointError(f"{self.path}: its lists have more than {MOST_LISTED} entries")
        if inner == STRING:
            return [self.string() for _ in range(count)]
        return [*self.numbers(f"{count}{NUMBERS[inner]}")]

    def info(self) -> tuple[str, tuple[int, ...], int, int]:
        name, (dims,) = self.string(), self.numbers("I")
        if not 1 <= dims <= MOST_DIMS:
            raise CheckpointError(f"{self.path}: {name!r} has {dims} dimensions")
        *sizes, kind, at = self.numbers(f"{dims}QIQ")
        return name, tuple(reversed(sizes)), kind, at

    def blocks(self, name: str, shape: tuple[int, ...], kind: int, start: int) -> Blocks:
        constants = lazy.load("gguf.constants", "language")
        known = {int(k): sizes for k, sizes in constants.GGML_QUANT_SIZES.items()}
        if kind not in PLAIN and kind not in _readable():
            raise CheckpointError(f"{self.path}: {name!r} has blocks of type {kind}, which are not known")
        count, size = known[kind]
        row = shape[-1] // count * size
        total = math.prod(shape[:-1]) * row
        if 0 in shape or shape[-1] % count or start + total > len(self.bytes):
            raise CheckpointError(f"{self.path}: {name!r}, {[*shape]}, goes beyond the file or its blocks")
        raw = np.asarray(self.memory[start : start + total])
        return Blocks(shape, kind, raw.reshape(shape[0], -1) if len(shape) > 1 else raw.reshape(-1, size))


def _readable() -> set[int]:
    """The types of blocks that the package can read."""
    quants = lazy.load("gguf.quants", "language")
    kinds = quants.GGMLQuantizationType
    return {int(kinds[name]) for name in vars(quants) if name in kinds.__members__ and name[0] not in "F"}
