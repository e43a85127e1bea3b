"""Families of models: what config.json says of a network, and the names that checkpoints give its weights."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .decoder_network import ACTIVATIONS, DecoderConfig, LayerKind
from .encoder_network import EncoderConfig
from .rotary import Rotary, rotary_of
from .untrusted import CheckpointError, Fields

MOST_LAYERS, MOST_WORDS, MOST_PLACES = 1024, 1 << 21, 1 << 24
Config = DecoderConfig | EncoderConfig
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Family:
    """A kind of model.

    config: of what config.json says.  names: patterns of a checkpoint's names, and what they are in the
    network; what no pattern knows keeps its name.  ignored: a pattern of names that the network has not.
    adapted: makes the network's arrays of the checkpoint's, under the network's names.
    """

    config: Callable[[Fields], Config]
    names: tuple[tuple[str, str], ...] = ((r"^model\.", ""),)
    ignored: str = r"rotary_emb\.inv_freq$"
    adapted: Callable[[Arrays, Any], Arrays] = lambda arrays, config: arrays

    def weights(self, arrays: Mapping[str, np.ndarray], config: Config) -> Arrays:
        """The network's arrays, by its names."""
        found = {}
        for name, array in arrays.items():
            if not re.search(self.ignored, name):
                for pattern, ours in self.names:
                    name = re.sub(pattern, ours, name)
                found[name] = array
        if isinstance(config, DecoderConfig) and config.tied:
            found.pop("lm_head.weight", None)  # some hold it a second time
        return self.adapted(found, config)


def family_of(fields: Fields) -> tuple[Family, Config]:
    """The family that `model_type` names, and the network's configuration.  Raises CheckpointError."""
    kind = fields.word("model_type")
    family = FAMILIES.get(kind)
    if family is None:
        raise CheckpointError(
            f"{fields.name}: models of type {kind!r} are not known", f"known: {', '.join(FAMILIES)}"
        )
    if "quantization_config" in fields:
        raise CheckpointError(
            f"{fields.name}: the weights are quantised in a form that is not read (quantization_config)",
            "load the model's unquantised weights, or its GGUF file",
        )
    return family, family.config(fields)


# ---- decoders ----------------------------------------------------------------------------------------------
def _activation(fields: Fields, keys: str, default: str) -> str:
    name = fields.word(keys, default)
    if name not in ACTIVATIONS:
        raise CheckpointError(
            f"{fields.name}: the activation {name!r} is not known", f"known: {', '.join(ACTIVATIONS)}"
        )
    return name


def _sizes(fields: Fields) -> dict[str, Any]:
    """What all descendants of Llama say in the same words."""
    width, heads = fields.size("hidden_size"), fields.size("num_attention_heads")
    key_heads = fields.size("num_key_value_heads", heads)
    if heads % key_heads:
        raise CheckpointError(f"{fields.name}: {heads} heads can't share {key_heads} heads of keys")
    if "head_dim" not in fields and width % heads:
        raise CheckpointError(f"{fields.name}: {heads} heads can't share a width of {width}")
    head_width = fields.size("head_dim", width // heads, most=1 << 13)
    if head_width % 2:
        raise CheckpointError(f"{fields.name}: rotary positions need an even head_dim, not {head_width}")
    return {
        "vocabulary": fields.size("vocab_size", most=MOST_WORDS),
        "width": width,
        "heads": heads,
        "key_heads": key_heads,
        "head_width": head_width,
        "inner": fields.size("intermediate_size", most=1 << 22),
        "longest": fields.size("max_position_embeddings", most=MOST_PLACES),
        "eps": fields.number("rms_norm_eps", 1e-6, most=1.0),
        "tied": fields.flag("tie_word_embeddings", False),
    }


def _depth(fields: Fields, key: str = "num_hidden_layers") -> int:
    return fields.size(key, most=MOST_LAYERS)


def _rotary(fields: Fields, sizes: dict[str, Any], theta: float = 1e4, of: str = "") -> Rotary:
    """The rotary positions, as either spelling has them.  of: a kind of layers that has its own."""
    new = fields.within("rope_parameters")
    if of and of in new:
        new = new.within(of)
    scaling = new if new.fields else fields.within("rope_scaling")
    if new.fields:
        theta = new.number("rope_theta", theta, least=1.0)
    else:
        theta = fields.number("rope_theta", theta, least=1.0)
    for each in (fields, new):
        if each.number("partial_rotary_factor", 1.0) != 1.0:
            raise CheckpointError(f"{each.name}: heads that are rotated in part are not known")
    return rotary_of(theta, sizes["head_width"], scaling, sizes["longest"])


def _windows(fields: Fields, depth: int, by_default: Callable[[int], bool]) -> list[int | None]:
    """The window of each layer: where `layer_types` says so, or the default does."""
    window = fields.size("sliding_window", MOST_PLACES, most=MOST_PLACES)
    if "layer_types" not in fields:
        return [window if by_default(layer) else None for layer in range(depth)]
    kinds = fields.sequence("layer_types")
    unknown = [kind for kind in kinds if kind not in ("full_attention", "sliding_attention")]
    if unknown or len(kinds) != depth:
        raise CheckpointError(
            f"{fields.name}: layer_types must name full_attention or sliding_attention for {depth} layers"
        )
    return [window if kind == "sliding_attention" else None for kind in kinds]


def _llama(fields: Fields, **more: Any) -> DecoderConfig:
    sizes = _sizes(fields)
    kind = LayerKind(rotary=_rotary(fields, sizes))
    return DecoderConfig(
        layers=(kind,) * _depth(fields),
        **{
            **sizes,
            "activation": more.get("activation") or _activation(fields, "hidden_act", "silu"),
            "qkv_bias": fields.flag("attention_bias", False),
            "out_bias": fields.flag("attention_bias", False),
            "inner_bias": fields.flag("mlp_bias", False),
            **more,
        },
    )


def _windowed(config: DecoderConfig, windows: list[int | None]) -> tuple[LayerKind, ...]:
    return tuple(LayerKind(window, kind.rotary) for window, kind in zip(windows, config.layers, strict=True))


def _mistral(fields: Fields) -> DecoderConfig:
    plain = _llama(fields)
    slides = "sliding_window" in fields
    return _with_layers(plain, _windowed(plain, _windows(fields, len(plain.layers), lambda layer: slides)))


def _with_layers(config: DecoderConfig, layers: tuple[LayerKind, ...]) -> DecoderConfig:
    return DecoderConfig(**{**vars(config), "layers": layers})


def _qwen(fields: Fields, **more: Any) -> DecoderConfig:
    plain = _llama(fields, **more)
    depth = len(plain.layers)
    if not fields.flag("use_sliding_window", False):
        return plain
    first = fields.size("max_window_layers", depth, most=MOST_LAYERS, least=0)
    return _with_layers(plain, _windowed(plain, _windows(fields, depth, lambda layer: layer >= first)))


def _qwen2(fields: Fields) -> DecoderConfig:
    return _qwen(fields, qkv_bias=True, out_bias=False, inner_bias=False)


def _qwen3(fields: Fields) -> DecoderConfig:
    return _qwen(fields, head_norms=True, inner_bias=False)


def _gemma(fields: Fields, **more: Any) -> DecoderConfig:
    sizes = _sizes(fields)
    return _llama(
        fields,
        activation=_activation(fields, "hidden_activation|hidden_act", "gelu_pytorch_tanh"),
        embedding_scale=sizes["width"] ** 0.5,
        tied=fields.flag("tie_word_embeddings", True),
        **more,
    )


def _gemma1(fields: Fields) -> DecoderConfig:
    # Its checkpoints say "gelu" in hidden_act, and were trained with the approximation.
    return _gemma(Fields({**fields.fields, "hidden_act": None}, fields.name), inner_bias=False)


def _gemma2(fields: Fields) -> DecoderConfig:
    plain = _gemma(
        fields,
        post_norms=True,
        score_scale=fields.number("query_pre_attn_scalar", 256.0, least=1e-3) ** -0.5,
        score_cap=_cap(fields, "attn_logit_softcapping"),
        logit_cap=_cap(fields, "final_logit_softcapping"),
    )
    windows = _windows(fields, len(plain.layers), lambda layer: layer % 2 == 0)
    return _with_layers(plain, _windowed(plain, windows))


def _gemma3(fields: Fields) -> DecoderConfig:
    plain = _gemma(
        fields,
        post_norms=True,
        head_norms=True,
        score_scale=fields.number("query_pre_attn_scalar", 256.0, least=1e-3) ** -0.5,
        score_cap=_cap(fields, "attn_logit_softcapping"),
        logit_cap=_cap(fields, "final_logit_softcapping"),
    )
    sizes = {"head_width": plain.head_width, "longest": plain.longest}
    every = fields.size("sliding_window_pattern", 6)
    windows = _windows(fields, len(plain.layers), lambda layer: (layer + 1) % every != 0)
    far = _rotary(fields, sizes, 1e6, "full_attention")
    local = Fields({"rope_theta": fields.number("rope_local_base_freq", 1e4, least=1.0)}, fields.name)
    if "rope_parameters" in fields:
        local = fields
    near = _rotary(local, sizes, 1e4, "sliding_attention")
    kinds = tuple(LayerKind(window, far if window is None else near) for window in windows)
    return _with_layers(plain, kinds)


def _cap(fields: Fields, key: str) -> float | None:
    return fields.number(key, least=1e-3) if key in fields else None


def _raised(arrays: Arrays, config: Any) -> Arrays:
    """Gemma's norms multiply by 1 + weight."""
    return {
        name: (array.astype(np.float32) + 1).astype(array.dtype)
        if name.endswith(("norm.weight", "layernorm.weight"))
        else array
        for name, array in arrays.items()
    }


def _gpt2(fields: Fields) -> DecoderConfig:
    width, heads = fields.size("n_embd"), fields.size("n_head")
    if width % heads:
        raise CheckpointError(f"{fields.name}: {heads} heads can't share a width of {width}")
    for key in ("scale_attn_by_inverse_layer_idx", "add_cross_attention"):
        if fields.flag(key, False):
            raise CheckpointError(f"{fields.name}: {key} is not known")
    scaled = fields.flag("scale_attn_weights", True)
    return DecoderConfig(
        vocabulary=fields.size("vocab_size", most=MOST_WORDS),
        width=width,
        layers=(LayerKind(),) * _depth(fields, "n_layer"),
        heads=heads,
        key_heads=heads,
        head_width=width // heads,
        inner=fields.size("n_inner", 4 * width, most=1 << 22),
        longest=fields.size("n_positions", most=MOST_PLACES),
        norm="layer",
        eps=fields.number("layer_norm_epsilon", 1e-5, most=1.0),
        activation=_activation(fields, "activation_function", "gelu_new"),
        gated=False,
        qkv_bias=True,
        out_bias=True,
        inner_bias=True,
        learned=True,
        tied=fields.flag("tie_word_embeddings", True),
        score_scale=None if scaled else 1.0,
    )


def _split(arrays: Arrays, config: DecoderConfig) -> Arrays:
    """GPT-2's products hold their matrices transposed, and one holds queries, keys and values together.

    They are copied: products of transposed memory are packed anew at each call.
    """
    found = {}
    for name, array in arrays.items():
        if re.search(r"(qkv|proj)\.weight$", name) and array.ndim == 2:
            array = np.ascontiguousarray(array.T)
        if ".qkv." in name:
            if array.shape[0] % 3:
                raise CheckpointError(f"{name}: {array.shape[0]} rows are not three times as many")
            for part, piece in zip("qkv", np.split(array, 3), strict=True):
                found[name.replace("qkv", f"{part}_proj")] = piece
        else:
            found[name] = array
    return found


# ---- encoders ----------------------------------------------------------------------------------------------
def _bert(fields: Fields) -> EncoderConfig:
    width, heads = fields.size("hidden_size"), fields.size("num_attention_heads")
    if width % heads:
        raise CheckpointError(f"{fields.name}: {heads} heads can't share a width of {width}")
    positions = fields.word("position_embedding_type", "absolute")
    if positions != "absolute":
        raise CheckpointError(f"{fields.name}: positions of type {positions!r} are not known, only absolute")
    return EncoderConfig(
        vocabulary=fields.size("vocab_size", most=MOST_WORDS),
        width=width,
        layers=_depth(fields),
        heads=heads,
        inner=fields.size("intermediate_size", most=1 << 22),
        longest=fields.size("max_position_embeddings", most=MOST_PLACES),
        kinds=fields.size("type_vocab_size", 2),
        eps=fields.number("layer_norm_eps", 1e-12, most=1.0),
        activation=_activation(fields, "hidden_act", "gelu"),
    )


GPT2_NAMES = (
    (r"^transformer\.", ""),
    (r"^wte\.", "embed_tokens."),
    (r"^wpe\.", "embed_positions."),
    (r"^h\.", "layers."),
    (r"\.ln_1\.", ".input_layernorm."),
    (r"\.ln_2\.", ".post_attention_layernorm."),
    (r"^ln_f\.", "norm."),
    (r"\.attn\.c_attn\.", ".self_attn.qkv."),
    (r"\.attn\.c_proj\.", ".self_attn.o_proj."),
    (r"\.mlp\.c_fc\.", ".mlp.up_proj."),
    (r"\.mlp\.c_proj\.", ".mlp.down_proj."),
)
BERT_NAMES = (
    (r"^(bert|model)\.", ""),
    (r"\.gamma$", ".weight"),
    (r"\.beta$", ".bias"),
    (r"^embeddings\.LayerNorm\.", "embedding_norm."),
    (r"^embeddings\.", ""),
    (r"^encoder\.layer\.", "layers."),
    (r"\.attention\.self\.", "."),
    (r"\.attention\.output\.dense\.", ".out."),
    (r"\.attention\.output\.LayerNorm\.", ".out_norm."),
    (r"\.intermediate\.dense\.", ".up."),
    (r"\.output\.dense\.", ".down."),
    (r"\.output\.LayerNorm\.", ".down_norm."),
)
FAMILIES = {
    "gpt2": Family(_gpt2, GPT2_NAMES, r"\.attn\.(masked_)?bias$", _split),
    "llama": Family(_llama),
    "mistral": Family(_mistral),
    "qwen2": Family(_qwen2),
    "qwen3": Family(_qwen3),
    "gemma": Family(_gemma1, adapted=_raised),
    "gemma2": Family(_gemma2, adapted=_raised),
    "gemma3_text": Family(_gemma3, adapted=_raised),
    "bert": Family(_bert, BERT_NAMES, r"(^|\.)pooler\.|position_ids$|^cls\."),
}
