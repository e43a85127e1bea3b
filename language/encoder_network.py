"""BERT's encoder, pooled to one vector a text, as sentence-transformers does."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from ..ir.dtypes import DType, float32
from ..nn import Embedding, LayerNorm, Linear, Module, ModuleList
from ..nn import functional as F
from ..runtime import Tensor, ops
from .decoder_network import ACTIVATIONS

POOLINGS = ("mean", "cls", "max")


@dataclass(frozen=True)
class EncoderConfig:
    """The sizes of an encoder, and how tokens become one vector.

    kinds: of token types.  pooling: one of POOLINGS.  normalised: whether vectors have length 1.
    """

    vocabulary: int
    width: int
    layers: int
    heads: int
    inner: int
    longest: int
    kinds: int = 2
    eps: float = 1e-12
    activation: str = "gelu"
    pooling: str = "mean"
    normalised: bool = True


class EncoderLayer(Module):
    """Attention over the whole text and inner products, each added to what came in and normed after."""

    def __init__(self, config: EncoderConfig, dtype: DType):
        super().__init__()
        self.heads = config.heads
        self.activation = ACTIVATIONS[config.activation]
        product = partial(Linear, dtype=dtype, device="meta")
        norm = partial(LayerNorm, config.width, config.eps, dtype=dtype, device="meta")
        self.query, self.key = product(config.width, config.width), product(config.width, config.width)
        self.value, self.out = product(config.width, config.width), product(config.width, config.width)
        self.out_norm = norm()
        self.up, self.down = product(config.width, config.inner), product(config.inner, config.width)
        self.down_norm = norm()

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        """Shapes: x [b, t, width], seen bool[b, 1, 1, t] -> [b, t, width]."""
        batch, time, width = x.shape
        split = (batch, time, self.heads, width // self.heads)
        q, k, v = (part(x).view(split).transpose(1, 2) for part in (self.query, self.key, self.value))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
        x = self.out_norm(x + self.out(y.transpose(1, 2).reshape(batch, time, width)))
        return self.down_norm(x + self.down(self.activation(self.up(x))))


class EncoderNetwork(Module):
    """An encoder on the meta device: `load_state_dict(…, assign=True)` gives it its weights."""

    def __init__(self, config: EncoderConfig, dtype: DType = float32):
        super().__init__()
        self.config = config
        embedding = partial(Embedding, dtype=dtype, device="meta")
        self.word_embeddings = embedding(config.vocabulary, config.width)
        self.position_embeddings = embedding(config.longest, config.width)
        self.token_type_embeddings = embedding(config.kinds, config.width)
        self.embedding_norm = LayerNorm(config.width, config.eps, dtype=dtype, device="meta")
        self.layers = ModuleList([EncoderLayer(config, dtype) for _ in range(config.layers)])

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """One vector for each text.

        tokens: i64[b, t].  mask: i64[b, t], 1 for tokens and 0 for what fills a row.  Returns f32[b, width].
        """
        x = self.hidden_states(tokens, mask)
        weight = mask[:, :, None].to(x.dtype)
        if self.config.pooling == "cls":
            pooled = x[:, 0]
        elif self.config.pooling == "max":
            pooled = x.masked_fill(weight == 0, -1e9).amax(1)
        else:
            pooled = (x * weight).sum(1) / weight.sum(1).clamp(min=1e-9)
        return F.normalize(pooled, dim=-1) if self.config.normalised else pooled

    def hidden_states(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """What the last layer makes of each token.  Shapes: i64[b, t] twice -> f32[b, t, width]."""
        places = ops.arange(tokens.shape[1])
        # All tokens are of the first type: a text is one sentence.
        x = self.word_embeddings(tokens) + self.token_type_embeddings.weight[0]
        x = self.embedding_norm(x + self.position_embeddings(places))
        seen = mask[:, None, None, :] != 0
        for layer in self.layers:
            x = layer(x, seen)
        return x.float()
