"""Opening models: a folder with config.json, or a GGUF file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from math import gcd
from pathlib import Path

import numpy as np

from ..ir.dtypes import DType, dtype_named, float16, float32
from ..ir.errors import ArgumentValueError
from ..nn import Linear
from ..quantization import quantize
from .chat_template import ChatTemplate
from .decoder_network import Decoder, DecoderConfig
from .encoder_network import POOLINGS, EncoderConfig, EncoderNetwork
from .families import Arrays, family_of
from .gguf_files import Blocks, read_gguf
from .mapped_weights import FLOATS, assign_weights, check_weights, map_folder, stored_dtype
from .text_encoder import Encoder
from .text_model import LanguageModel
from .untrusted import CheckpointError, Fields, parsed, read_bytes, read_object
from .vocabulary import Vocabulary, read_template, read_vocabulary

WEIGHTS = ("int8", "int4")  # what weights of layers are rounded to where that is asked for
ACTIVATIONS = ("int8",)  # ... and what they are multiplied with
GROUP = 64  # inputs that share a scale where weights have 4 bits, or what of it divides all widths


def load(
    path: str | os.PathLike,
    dtype: DType | str | None = None,
    context: int | None = None,
    weights: str | None = None,
    activations: str | None = None,
) -> LanguageModel | Encoder:
    """The model of a folder with config.json and safetensors, or of a GGUF file.

    Weights lie in the memory of their file, which is read as it is used; those of another dtype than asked
    for are converted and take memory.  dtype: of weights and products; None for that of the file, and
    float32 where that is float16.  Blocks of GGUF become float32 for None.  context: how many tokens a prompt
    and its answer may have together; as many as the model knows for None.  weights: "int8" or "int4", for
    linear layers rounded to so many bits, in groups of 64 inputs for 4 (`lamina.quantize`): they take memory
    of their own, a half or a quarter of bfloat16's, and are read in as much less time.  activations: "int8"
    rounds what such weights are multiplied with as well, in groups of 64 of each row: answers are a
    little further from the model's, and prompts take half of the time on CPUs that multiply bytes by fours
    and have no matrix registers.

    Nothing of the checkpoint is run but its chat template, in a sandbox.  Raises CheckpointError for files
    that contradict one another or are of no known kind, before memory is taken; MissingLibraryError without
    the libraries `tokenizers`, `jinja2` (where there is a template) and `gguf` (for its files).
    """
    if weights not in (None, *WEIGHTS):
        raise ArgumentValueError(f"load(weights): one of {', '.join(WEIGHTS)}, not {weights!r}")
    if activations not in (None, *ACTIVATIONS) or activations is not None and weights is None:
        raise ArgumentValueError(f"load(activations): 'int8' beside weights=, not {activations!r}")
    model = _opened(Path(path), _dtype(dtype), context)
    if weights is not None:
        _round(model.network, weights, activations)
    return model


def _round(network: Decoder | EncoderNetwork, weights: str, activations: str | None = None) -> None:
    """Put layers of few bits in place of linear ones; of a tied head one that is apart from the embedding."""
    if isinstance(network, Decoder) and network.lm_head is None:
        words = network.embed_tokens.weight
        network.lm_head = Linear(words.shape[1], words.shape[0], bias=False, dtype=words.dtype, device="meta")
        network.lm_head.weight = words
    group = None
    if weights == "int4":
        group = gcd(GROUP, *(layer.in_features for layer in network.modules() if isinstance(layer, Linear)))
    quantize(
        network, scheme=f"{weights}-weights", group=group, activations=activations,
        skip=lambda name: "embed" in name, inplace=True,
    )  # fmt: skip


def _opened(where: Path, wanted: DType | None, context: int | None) -> LanguageModel | Encoder:
    if not where.is_dir():
        if where.suffix != ".gguf":
            found = "is no folder with config.json" if where.exists() else "is not there"
            raise CheckpointError(f"load(path): {where} {found}, nor a .gguf file")
        stored = read_gguf(where)
        template = (
            None if stored.template is None else ChatTemplate(stored.template, stored.vocabulary.special)
        )
        return _language_model(
            stored.config, stored.blocks, stored.vocabulary, template, wanted or float32, context, where
        )
    fields = Fields(read_object(where / "config.json"), str(where / "config.json"))
    family, config = family_of(fields)
    vocabulary = read_vocabulary(where)
    arrays = family.weights(map_folder(where), config)
    told = stored_dtype(arrays, where)
    kept = wanted or (float32 if told is float16 else told)
    if isinstance(config, EncoderConfig):
        return _encoder(config, arrays, vocabulary, kept, where)
    source = read_template(where)
    template = None if source is None else ChatTemplate(source, vocabulary.special)
    return _language_model(config, arrays, vocabulary, template, kept, context, where)


def _dtype(dtype: DType | str | None) -> DType | None:
    """The dtype that is asked for.  Raises ArgumentValueError where it is no float's."""
    if dtype is None:
        return None
    name = dtype if isinstance(dtype, str) else dtype.name
    try:
        found = dtype_named(name)
    except KeyError:
        found = None
    if found is None or found.short not in FLOATS:
        raise ArgumentValueError(f"load(dtype): weights are of floats, not of {name}")
    return found


def _language_model(
    config: DecoderConfig,
    arrays: Mapping[str, np.ndarray] | Mapping[str, Blocks],
    vocabulary: Vocabulary,
    template: ChatTemplate | None,
    dtype: DType,
    context: int | None,
    where: Path,
) -> LanguageModel:
    if context is not None and not 2 <= context <= config.longest:
        raise ArgumentValueError(
            f"load(context): {where} takes from 2 to {config.longest} tokens, not {context}"
        )
    _check_vocabulary(vocabulary, config.vocabulary, where)
    network = Decoder(config, dtype)
    check_weights(arrays, network, where)
    assign_weights(arrays, network, dtype)
    network.eval()
    return LanguageModel(network, vocabulary, template, context or config.longest, where.stem)


def _check_vocabulary(vocabulary: Vocabulary, words: int, where: Path) -> None:
    if vocabulary.size > words:
        raise CheckpointError(f"{where}: a vocabulary of {vocabulary.size}, and weights for {words} tokens")


def _encoder(
    config: EncoderConfig, arrays: Arrays, vocabulary: Vocabulary, dtype: DType, where: Path
) -> Encoder:
    config, longest = _pooled(config, where)
    _check_vocabulary(vocabulary, config.vocabulary, where)
    network = EncoderNetwork(config, dtype)
    check_weights(arrays, network, where)
    assign_weights(arrays, network, dtype)
    network.eval()
    return Encoder(network, vocabulary, longest, where.stem)


def _pooled(config: EncoderConfig, where: Path) -> tuple[EncoderConfig, int]:
    """The configuration with the pooling that modules.json asks for, and the tokens of a text."""
    longest, told = config.longest, where / "sentence_bert_config.json"
    if told.exists():
        most = config.longest
        longest = Fields(read_object(told), str(told)).size("max_seq_length", most, most=most, least=2)
    steps = where / "modules.json"
    if not steps.exists():
        return config, longest
    modules = parsed(read_bytes(steps), steps)
    pooling, normalised = None, False
    for module in modules if isinstance(modules, list) else [None]:
        if not isinstance(module, dict):
            raise CheckpointError(f"{steps} is no list of modules")
        fields = Fields(module, str(steps))
        kind, inside = fields.word("type").rpartition(".")[2], fields.word("path", "")
        if kind == "Pooling":
            if Path(inside).name != inside:
                raise CheckpointError(f"{steps} names {inside!r}, which is no folder beside it")
            settings = where / inside / "config.json"
            pooling = _pooling(Fields(read_object(settings), str(settings)))
        elif kind == "Normalize":
            normalised = True
        elif kind != "Transformer":
            raise CheckpointError(f"{steps}: modules of type {kind!r} are not known")
    if pooling is None:
        raise CheckpointError(f"{steps} names no Pooling")
    return EncoderConfig(**{**vars(config), "pooling": pooling, "normalised": normalised}), longest


def _pooling(fields: Fields) -> str:
    if "pooling_mode" in fields:
        found = [fields.word("pooling_mode")]
    else:
        names = {
            "pooling_mode_mean_tokens": "mean",
            "pooling_mode_cls_token": "cls",
            "pooling_mode_max_tokens": "max",
        }
        on = [
            key for key, value in fields.fields.items() if key.startswith("pooling_mode_") and value is True
        ]
        found = [names.get(key, key) for key in on]
    if len(found) != 1 or found[0] not in POOLINGS:
        raise CheckpointError(f"{fields.name}: the pooling {found} is not known", f"known: {POOLINGS}")
    return found[0]
