"""Decoders as one network with options: GPT-2, Llama, Mistral, Qwen, Gemma.

Names of parameters are those of Llama's checkpoints; families.py has those of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..ir.dtypes import DType, float32
from ..nn import Embedding, LayerNorm, Linear, Module, ModuleList, RMSNorm
from ..nn import functional as F
from ..runtime import Tensor, ops, tensor
from .rotary import Rotary, angles, rotated

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_new": partial(F.gelu, approximate="tanh"),
    "gelu_pytorch_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
}


@dataclass(frozen=True)
class LayerKind:
    """What may differ from layer to layer.  window: how many tokens are seen, the own one among them."""

    window: int | None = None
    rotary: Rotary | None = None


@dataclass(frozen=True)
class DecoderConfig:
    """The sizes and options of a decoder.

    vocabulary, width, heads, key_heads, head_width, inner, longest: sizes.  layers: one kind each.
    norm: "rms" or "layer".  gated: whether the inner product is of two.  biases: of queries, keys and values;
    of their output; of the inner products.  head_norms: of queries and keys.  post_norms: also after
    attention and inner products.  learned: positions are an embedding.  caps: of scores and logits,
    c * tanh(x / c).  score_scale: of scores; 1 / sqrt(head_width) for None.
    """

    vocabulary: int
    width: int
    layers: tuple[LayerKind, ...]
    heads: int
    key_heads: int
    head_width: int
    inner: int
    longest: int
    norm: str = "rms"
    eps: float = 1e-6
    activation: str = "silu"
    gated: bool = True
    qkv_bias: bool = False
    out_bias: bool = False
    inner_bias: bool = False
    head_norms: bool = False
    post_norms: bool = False
    learned: bool = False
    tied: bool = False
    embedding_scale: float = 1.0
    score_scale: float | None = None
    score_cap: float | None = None
    logit_cap: float | None = None


class Attention(Module):
    """Causal attention of grouped heads, over what a cache holds where there is one."""

    def __init__(self, config: DecoderConfig, kind: LayerKind, dtype: DType):
        super().__init__()
        self.config, self.kind = config, kind
        queries, keys = config.heads * config.head_width, config.key_heads * config.head_width
        product = partial(Linear, dtype=dtype, device="meta")
        self.q_proj = product(config.width, queries, bias=config.qkv_bias)
        self.k_proj = product(config.width, keys, bias=config.qkv_bias)
        self.v_proj = product(config.width, keys, bias=config.qkv_bias)
        self.o_proj = product(queries, config.width, bias=config.out_bias)
        if config.head_norms:
            self.q_norm = RMSNorm(config.head_width, config.eps, dtype=dtype, device="meta")
            self.k_norm = RMSNorm(config.head_width, config.eps, dtype=dtype, device="meta")

    def forward(
        self,
        x: Tensor,
        turn: tuple[Tensor, Tensor] | None,
        hidden: Tensor,
        place: Tensor,
        keys: Tensor | None,
        values: Tensor | None,
    ) -> Tensor:
        """Shapes: x [b, t, width], turn f32[t, head_width] each, hidden f32[t, s], place i64[t],
        keys and values f32[b, key_heads, s, head_width], written at `place` -> [b, t, width].
        """
        config, (batch, time, _) = self.config, x.shape
        groups = config.heads // config.key_heads
        q = self.q_proj(x).view(batch, time, config.heads, config.head_width)
        k = self.k_proj(x).view(batch, time, config.key_heads, config.head_width)
        v = self.v_proj(x).view(batch, time, config.key_heads, config.head_width)
        if config.head_norms:
            q, k = self.q_norm(q), self.k_norm(k)
        # Scores, and what a cache keeps, are of float32: halves would be converted at each step.
        q, k, v = (part.float().transpose(1, 2) for part in (q, k, v))
        if turn is not None:
            q, k = rotated(q, *turn), rotated(k, *turn)
        if keys is None or values is None:
            keys, values = k, v
        else:
            keys.index_copy_(2, place, k)
            values.index_copy_(2, place, v)
        # The queries of a group lie below one another, so that no key is copied for each head.
        q = q.reshape(batch, config.key_heads, groups * time, config.head_width)
        scale = config.head_width**-0.5 if config.score_scale is None else config.score_scale
        scores = q @ keys.transpose(2, 3) * scale
        if config.score_cap is not None:
            scores = config.score_cap * (scores / config.score_cap).tanh()
        scores = scores.view(batch, config.key_heads, groups, time, keys.shape[2]) + hidden
        weights = scores.softmax(-1).view(batch, config.key_heads, groups * time, keys.shape[2])
        y = (weights @ values).view(batch, config.heads, time, config.head_width).transpose(1, 2)
        return self.o_proj(y.reshape(batch, time, config.heads * config.head_width).to(x.dtype))


class Inner(Module):
    """The products inside of a layer, gated or not."""

    def __init__(self, config: DecoderConfig, dtype: DType):
        super().__init__()
        self.activation = ACTIVATIONS[config.activation]
        product = partial(Linear, bias=config.inner_bias, dtype=dtype, device="meta")
        self.gate_proj = product(config.width, config.inner) if config.gated else None
        self.up_proj = product(config.width, config.inner)
        self.down_proj = product(config.inner, config.width)

    def forward(self, x: Tensor) -> Tensor:
        """Shapes: [..., width] -> the same."""
        if self.gate_proj is None:
            return self.down_proj(self.activation(self.up_proj(x)))
        return self.down_proj(self.activation(self.gate_proj(x)) * self.up_proj(x))


class Layer(Module):
    """Attention and inner products, each around a norm and added to what came in."""

    def __init__(self, config: DecoderConfig, kind: LayerKind, dtype: DType):
        super().__init__()
        self.input_layernorm = _norm(config, dtype)
        self.self_attn = Attention(config, kind, dtype)
        self.post_attention_layernorm = _norm(config, dtype)
        self.mlp = Inner(config, dtype)
        self.post_norms = config.post_norms
        if config.post_norms:
            self.pre_feedforward_layernorm = _norm(config, dtype)
            self.post_feedforward_layernorm = _norm(config, dtype)

    def forward(self, x: Tensor, *how: Tensor | tuple[Tensor, Tensor] | None) -> Tensor:
        """Shapes: [b, t, width] -> the same.  how: as Attention takes it."""
        y = self.self_attn(self.input_layernorm(x), *how)
        if not self.post_norms:
            x = x + y
            return x + self.mlp(self.post_attention_layernorm(x))
        x = x + self.post_attention_layernorm(y)
        return x + self.post_feedforward_layernorm(self.mlp(self.pre_feedforward_layernorm(x)))


class Decoder(Module):
    """A decoder on the meta device: `load_state_dict(…, assign=True)` gives it its weights."""

    def __init__(self, config: DecoderConfig, dtype: DType = float32):
        super().__init__()
        self.config = config
        embedding = partial(Embedding, dtype=dtype, device="meta")
        self.embed_tokens = embedding(config.vocabulary, config.width)
        self.embed_positions = embedding(config.longest, config.width) if config.learned else None
        self.layers = ModuleList([Layer(config, kind, dtype) for kind in config.layers])
        self.norm = _norm(config, dtype)
        self.lm_head = None
        if not config.tied:
            self.lm_head = Linear(config.width, config.vocabulary, bias=False, dtype=dtype, device="meta")
        # Which angles and which mask each layer takes: numbers, as the tracer follows no hashes of objects.
        rotaries = list(dict.fromkeys(kind.rotary for kind in config.layers if kind.rotary is not None))
        self.windows = list(dict.fromkeys(kind.window for kind in config.layers))
        self.choices = [
            (0 if kind.rotary is None else rotaries.index(kind.rotary), self.windows.index(kind.window))
            for kind in config.layers
        ]
        self.scales = [rotary.scale for rotary in rotaries]
        for at, rotary in enumerate(rotaries):
            frequencies = tensor(rotary.frequencies, dtype=float32)
            self.register_buffer(f"frequencies_{at}", frequencies, persistent=False)

    def forward(
        self,
        tokens: Tensor,
        positions: Tensor | None = None,
        kept: Sequence[tuple[Tensor, Tensor]] | None = None,
        rows: Tensor | None = None,
    ) -> Tensor:
        """Logits of the tokens that follow.

        tokens: i64[b, t].  positions: i64[t], 0 to t - 1 for None.  kept: for each layer keys and values,
        f32[b, key_heads, s, head_width], which are written at the positions and seen up to them; for None the
        tokens see one another alone.  rows: i64[r], of which tokens logits are wanted; of all for None.
        Returns f32[b, r, vocabulary].
        """
        config = self.config
        if positions is None:
            positions = ops.arange(tokens.shape[1])
        seen = positions if kept is None else ops.arange(kept[0][0].shape[2])
        x = self.embed_tokens(tokens)
        if config.embedding_scale != 1.0:
            x = x * tensor(config.embedding_scale, dtype=x.dtype)  # rounded to the dtype, as it was trained
        if self.embed_positions is not None:
            x = x + self.embed_positions(positions)
        turns: list[Any] = [
            angles(getattr(self, f"frequencies_{at}"), scale, positions)
            for at, scale in enumerate(self.scales)
        ] or [None]
        back = positions[:, None] - seen
        hidden = [
            ops.zeros(1, dtype=float32).masked_fill(
                back < 0 if window is None else (back < 0) | (back >= window), -float("inf")
            )
            for window in self.windows
        ]
        for at, (layer, (turn, window)) in enumerate(zip(self.layers, self.choices)):
            keys, values = (None, None) if kept is None else kept[at]
            x = layer(x, turns[turn], hidden[window], positions, keys, values)
        x = self.norm(x if rows is None else x.index_select(1, rows))
        logits = F.linear(x, self.embed_tokens.weight) if self.lm_head is None else self.lm_head(x)
        logits = logits.float()
        return logits if config.logit_cap is None else config.logit_cap * (logits / config.logit_cap).tanh()


def _norm(config: DecoderConfig, dtype: DType) -> Module:
    if config.norm == "layer":
        return LayerNorm(config.width, config.eps, dtype=dtype, device="meta")
    return RMSNorm(config.width, config.eps, dtype=dtype, device="meta")
