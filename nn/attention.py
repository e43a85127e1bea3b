"""Attention and the layers of transformers."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from ..ir.errors import ArgumentError, ArgumentValueError
from ..runtime import Parameter, Tensor, ops
from ..runtime.nested_tensor import Nested, packed, padded, present
from . import functional as F
from . import init, sdp_kernels
from .containers import ModuleList
from .dropout import Dropout
from .linear import Linear
from .module import Module
from .norm import LayerNorm


class NonDynamicallyQuantizableLinear(Linear):
    """The output projection of MultiheadAttention; a class of its own only so that its repr is PyTorch's."""


class MultiheadAttention(Module):
    """Let each query look at all keys, in `num_heads` parts of the features, and sum the values it finds.

    Shapes: query [L, N, E], key [S, N, kdim], value [S, N, vdim] -> output [L, N, E], weights [N, L, S] (of
    each head unless `average_attn_weights`: [N, heads, L, S]); [N, L, E] with `batch_first`; the batch may be
    missing. Masks of bools say what must not be looked at; masks of floats are added. Source: Vaswani et al.,
    Attention Is All You Need, section 3.2.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: Any = None,
    ):
        super().__init__()
        if embed_dim <= 0 or num_heads <= 0 or embed_dim % num_heads:
            raise ArgumentValueError(
                f"MultiheadAttention: embed_dim must be divisible by num_heads ({embed_dim} by {num_heads})"
            )
        kind = {"device": device, "dtype": dtype}
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, embed_dim // num_heads
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self.dropout, self.batch_first, self.add_zero_attn = dropout, batch_first, add_zero_attn
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim

        def empty(*shape: int) -> Parameter:
            return Parameter(ops.empty(*shape, **kind))

        one = self._qkv_same_embed_dim
        if not one:
            self.q_proj_weight = empty(embed_dim, embed_dim)
            self.k_proj_weight = empty(embed_dim, self.kdim)
            self.v_proj_weight = empty(embed_dim, self.vdim)
            self.register_parameter("in_proj_weight", None)
        else:
            self.in_proj_weight = empty(3 * embed_dim, embed_dim)
            for name in ("q_proj_weight", "k_proj_weight", "v_proj_weight"):
                self.register_parameter(name, None)
        self.register_parameter("in_proj_bias", empty(3 * embed_dim) if bias else None)
        self.out_proj = NonDynamicallyQuantizableLinear(embed_dim, embed_dim, bias=bias, **kind)
        self.register_parameter("bias_k", empty(1, 1, embed_dim) if add_bias_kv else None)
        self.register_parameter("bias_v", empty(1, 1, embed_dim) if add_bias_kv else None)
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        for weight in (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
            if weight is not None:
                init.xavier_uniform_(weight)
        if self.in_proj_bias is not None:
            init.zeros_(self.in_proj_bias)
            init.zeros_(self.out_proj.bias)
        for bias in (self.bias_k, self.bias_v):
            if bias is not None:
                init.xavier_normal_(bias)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        if isinstance(query, Nested):
            return self._of_sequences(
                query, key, value, key_padding_mask=key_padding_mask, need_weights=need_weights,
                attn_mask=attn_mask, average_attn_weights=average_attn_weights, is_causal=is_causal,
            )  # fmt: skip
        swapped = self.batch_first and query.ndim == 3
        if swapped:
            same_key, same_value = key is query, value is key
            query = query.transpose(0, 1)
            key = query if same_key else key.transpose(0, 1)
            value = key if same_value else value.transpose(0, 1)
        output, weights = F.multi_head_attention_forward(
            query,
            key,
            value,
            self.embed_dim,
            self.num_heads,
            self.in_proj_weight,
            self.in_proj_bias,
            self.bias_k,
            self.bias_v,
            self.add_zero_attn,
            self.dropout,
            self.out_proj.weight,
            self.out_proj.bias,
            training=self.training,
            key_padding_mask=key_padding_mask,
            need_weights=need_weights,
            attn_mask=attn_mask,
            use_separate_proj_weight=not self._qkv_same_embed_dim,
            q_proj_weight=self.q_proj_weight,
            k_proj_weight=self.k_proj_weight,
            v_proj_weight=self.v_proj_weight,
            average_attn_weights=average_attn_weights,
            is_causal=is_causal,
        )
        return (output.transpose(0, 1) if swapped else output), weights

    def _of_sequences(self, *given: Any, key_padding_mask: Any, **rest: Any) -> tuple[Tensor, Any]:
        """Attention between nested tensors [N, j, E]: on padded ones, of which none sees what is padding."""
        if (
            not all(isinstance(x, Nested) for x in given)
            or not self.batch_first
            or key_padding_mask is not None
        ):
            raise ArgumentError(
                "MultiheadAttention: nested tensors are wanted for all three, with batch_first=True",
                "what is missing of a sequence is known: pass no key_padding_mask",
            )
        query, key, value = given
        whole = padded(query)
        keys = whole if key is query else padded(key)
        values = keys if value is key else padded(value)
        output, weights = self(whole, keys, values, key_padding_mask=~present(key), **rest)
        return packed(output, query), weights


SDPBackend, sdpa_kernel = sdp_kernels.SDPBackend, sdp_kernels.sdpa_kernel  # PyTorch has them here

ACTIVATIONS = {"relu": F.relu, "gelu": F.gelu}


def _activation(given: str | Callable) -> Callable:
    if callable(given):
        return given
    if given not in ACTIVATIONS:
        raise ArgumentValueError(f"activation must be 'relu', 'gelu' or a function, not {given!r}")
    return ACTIVATIONS[given]


def _attended(
    attention: Module, x: Tensor, to: Tensor, mask: Tensor | None, padding: Tensor | None, is_causal: bool
) -> Tensor:
    """What a layer of attention makes of `x` looking at `to`, without its weights."""
    settings = {"attn_mask": mask, "key_padding_mask": padding, "is_causal": is_causal}
    return attention(x, to, to, need_weights=False, **settings)[0]


class TransformerEncoderLayer(Module):
    """Self-attention, then two linear layers, each with dropout, a residual sum and a layer norm.

    Shapes: [S, N, E] -> the same, [N, S, E] with `batch_first`.  norm_first: normalise before rather than
    after each.
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable = F.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ):
        super().__init__()
        kind = {"device": device, "dtype": dtype}
        self.self_attn = MultiheadAttention(
            d_model, nhead, dropout=dropout, bias=bias, batch_first=batch_first, **kind
        )
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, **kind)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, **kind)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **kind)
        self.norm2 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **kind)
        self.dropout1, self.dropout2 = Dropout(dropout), Dropout(dropout)
        self.activation = _activation(activation)

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        x, rest = src, (src_mask, src_key_padding_mask, is_causal)
        if self.norm_first:
            x = x + self._sa_block(self.norm1(x), *rest)
            return x + self._ff_block(self.norm2(x))
        x = self.norm1(x + self._sa_block(x, *rest))
        return self.norm2(x + self._ff_block(x))

    # By PyTorch's names: derived classes replace them.
    def _sa_block(
        self, x: Tensor, attn_mask: Tensor | None, key_padding_mask: Tensor | None, is_causal: bool = False
    ) -> Tensor:
        return self.dropout1(_attended(self.self_attn, x, x, attn_mask, key_padding_mask, is_causal))

    def _ff_block(self, x: Tensor) -> Tensor:
        return self.dropout2(self.linear2(self.dropout(self.activation(self.linear1(x)))))


class TransformerDecoderLayer(Module):
    """Self-attention, attention to `memory`, then two linear layers.

    Each has dropout, a residual sum and a layer norm.
    Shapes: tgt [T, N, E], memory [S, N, E] -> [T, N, E]; batch first with `batch_first`.
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable = F.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ):
        super().__init__()
        kind = {"device": device, "dtype": dtype}
        heads = {"dropout": dropout, "batch_first": batch_first, "bias": bias}
        self.self_attn = MultiheadAttention(d_model, nhead, **heads, **kind)
        self.multihead_attn = MultiheadAttention(d_model, nhead, **heads, **kind)
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, **kind)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, **kind)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **kind)
        self.norm2 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **kind)
        self.norm3 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **kind)
        self.dropout1, self.dropout2, self.dropout3 = Dropout(dropout), Dropout(dropout), Dropout(dropout)
        self.activation = _activation(activation)

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        own = tgt_mask, tgt_key_padding_mask, tgt_is_causal
        outer = memory, memory_mask, memory_key_padding_mask, memory_is_causal
        x = tgt
        if self.norm_first:
            x = x + self._sa_block(self.norm1(x), *own)
            x = x + self._mha_block(self.norm2(x), *outer)
            return x + self._ff_block(self.norm3(x))
        x = self.norm1(x + self._sa_block(x, *own))
        x = self.norm2(x + self._mha_block(x, *outer))
        return self.norm3(x + self._ff_block(x))

    # By PyTorch's names: derived classes replace them.
    def _sa_block(
        self, x: Tensor, attn_mask: Tensor | None, key_padding_mask: Tensor | None, is_causal: bool = False
    ) -> Tensor:
        return self.dropout1(_attended(self.self_attn, x, x, attn_mask, key_padding_mask, is_causal))

    def _mha_block(
        self, x: Tensor, mem: Tensor, attn_mask: Tensor | None, key_padding_mask: Tensor | None,
        is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        return self.dropout2(_attended(self.multihead_attn, x, mem, attn_mask, key_padding_mask, is_causal))

    def _ff_block(self, x: Tensor) -> Tensor:
        return self.dropout3(self.linear2(self.dropout(self.activation(self.linear1(x)))))


MOST_LAYERS = 1 << 12


def layer_count(num_layers: int) -> int:
    """Refuse what is no sensible number of layers.  Raises ArgumentValueError."""
    if not isinstance(num_layers, int) or not 0 <= num_layers <= MOST_LAYERS:
        raise ArgumentValueError(f"a Transformer has from 0 to {MOST_LAYERS} layers, not {num_layers!r:.60}")
    return num_layers


class TransformerEncoder(Module):
    """`num_layers` copies of an encoder layer, and a last norm."""

    def __init__(
        self,
        encoder_layer: Module,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ):
        super().__init__()
        self.layers = ModuleList([copy.deepcopy(encoder_layer) for _ in range(layer_count(num_layers))])
        self.num_layers, self.norm = num_layers, norm
        self.enable_nested_tensor, self.mask_check = enable_nested_tensor, mask_check  # which change nothing

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        x = src
        for layer in self.layers:
            x = layer(x, src_mask=mask, src_key_padding_mask=src_key_padding_mask, is_causal=bool(is_causal))
        return x if self.norm is None else self.norm(x)


class TransformerDecoder(Module):
    """`num_layers` copies of a decoder layer, and a last norm."""

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None):
        super().__init__()
        self.layers = ModuleList([copy.deepcopy(decoder_layer) for _ in range(layer_count(num_layers))])
        self.num_layers, self.norm = num_layers, norm

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        x = tgt
        for layer in self.layers:
            x = layer(
                x,
                memory,
                tgt_mask=tgt_mask,
                memory_mask=memory_mask,
                tgt_key_padding_mask=tgt_key_padding_mask,
                memory_key_padding_mask=memory_key_padding_mask,
                tgt_is_causal=bool(tgt_is_causal),
                memory_is_causal=memory_is_causal,
            )
        return x if self.norm is None else self.norm(x)


class Transformer(Module):
    """An encoder, whose output the decoder looks at.  Shapes: src [S, N, E], tgt [T, N, E] -> [T, N, E]."""

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable = F.relu,
        custom_encoder: Module | None = None,
        custom_decoder: Module | None = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ):
        super().__init__()
        kind = {"device": device, "dtype": dtype}
        shape = (
            d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first,
            bias,
        )  # fmt: skip
        norm = {"eps": layer_norm_eps, "bias": bias, **kind}
        self.encoder = custom_encoder or TransformerEncoder(
            TransformerEncoderLayer(*shape, **kind), num_encoder_layers, LayerNorm(d_model, **norm)
        )
        self.decoder = custom_decoder or TransformerDecoder(
            TransformerDecoderLayer(*shape, **kind), num_decoder_layers, LayerNorm(d_model, **norm)
        )
        self._reset_parameters()
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first

    def _reset_parameters(self) -> None:
        """Draw all matrices by Xavier's rule."""
        for param in self.parameters():
            if param.ndim > 1:
                init.xavier_uniform_(param)

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        if src.shape[-1] != self.d_model or tgt.shape[-1] != self.d_model:
            raise ArgumentError(
                f"Transformer: src and tgt must have {self.d_model} features",
                f"src: {src._meta}",
                f"tgt: {tgt._meta}",
            )
        memory = self.encoder(
            src, mask=src_mask, src_key_padding_mask=src_key_padding_mask, is_causal=src_is_causal
        )
        return self.decoder(
            tgt,
            memory,
            tgt_mask=tgt_mask,
            memory_mask=memory_mask,
            tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask,
            tgt_is_causal=tgt_is_causal,
            memory_is_causal=memory_is_causal,
        )

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Tensor:
        """A mask [sz, sz] to add: -inf above the diagonal, so that nothing looks ahead, 0 elsewhere."""
        return ops.triu(ops.full((sz, sz), float("-inf"), dtype=dtype, device=device), diagonal=1)
