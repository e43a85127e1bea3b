"""Attention with several heads, as a function."""

from __future__ import annotations

from math import sqrt

from ..ir.dtypes import bool_
from ..ir.errors import ArgumentValueError, ShapeError
from ..ir.ops.attention import attention_weights, check_attention, repeated_heads
from ..runtime import Tensor, ops
from ..runtime import random as draws
from ..runtime.nested_rules import attended
from ..runtime.nested_tensor import Nested


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Take the mean of the values, weighted by softmax(query @ key.mT * scale + mask).

    As the op of this name, which tells more; weights are dropped with probability `dropout_p`.
    """
    if isinstance(query, Nested):
        return attended(
            lambda q, k, v, mask: scaled_dot_product_attention(
                q, k, v, mask, dropout_p, scale=scale, enable_gqa=enable_gqa
            ),
            query, key, value, attn_mask, is_causal,
        )  # fmt: skip
    if not dropout_p:
        return ops.scaled_dot_product_attention(
            query, key, value, attn_mask=attn_mask, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa
        )
    check_attention(query, key, value)
    weights = attention_weights(query, key, attn_mask, is_causal, scale, enable_gqa)
    value = repeated_heads(value, query.shape[-3]) if enable_gqa else value
    return ops.matmul(draws.dropout(weights, dropout_p), value)


class _Misfit(ShapeError, AssertionError):
    """Sizes that don't fit together; PyTorch's function asserts that they do."""


class _NoRoom(ArgumentValueError, AssertionError):
    """Arguments that exclude each other; PyTorch's function asserts that only one is there."""


def _check_ranks(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None,
    attn_mask: Tensor | None,
    num_heads: int,
) -> bool:
    """Compare the ranks; whether there is a batch.  Raises ShapeError."""
    n = query.ndim
    if n not in (2, 3):
        raise _Misfit(
            "multi_head_attention_forward: query should be unbatched 2D or batched 3D tensor but received "
            f"{n}-D query tensor"
        )
    which = f"For {'batched' if n == 3 else 'unbatched'} ({n}-D) `query`, expected"
    if key.ndim != n or value.ndim != n:
        raise _Misfit(
            f"{which} `key` and `value` to be {n}-D but found {key.ndim}-D and {value.ndim}-D tensors "
            "respectively"
        )
    if key_padding_mask is not None and key_padding_mask.ndim != n - 1:
        raise _Misfit(
            f"{which} `key_padding_mask` to be `None` or {n - 1}-D but found {key_padding_mask.ndim}-D "
            "tensor instead"
        )
    if attn_mask is not None and attn_mask.ndim not in (2, 3):
        raise _Misfit(
            f"{which} `attn_mask` to be `None`, 2-D or 3-D but found {attn_mask.ndim}-D tensor instead"
        )
    if attn_mask is not None and n == 2 and attn_mask.ndim == 3:
        wanted = (num_heads, query.shape[0], key.shape[0])
        if tuple(attn_mask.shape) != wanted:
            raise _Misfit(f"Expected `attn_mask` shape to be {wanted} but got {tuple(attn_mask.shape)}")
    return n == 3


def _added(mask: Tensor, like: Tensor) -> Tensor:
    """A mask as what is added to scores: -inf where a bool says that must not be looked at."""
    if mask.dtype is bool_:
        return ops.zeros(mask.shape, dtype=like.dtype, device=mask.device).masked_fill(mask, float("-inf"))
    return mask.type_as(like)


def _mask(
    attn_mask: Tensor | None,
    key_padding_mask: Tensor | None,
    query: Tensor,
    sizes: tuple[int, int, int, int],
    added: int,
) -> Tensor | None:
    """Both masks as one to add, [N or 1, heads or 1, L, S + added]; the added keys may be looked at.

    Raises ShapeError.
    """
    batch, heads, length, keys = sizes
    found = None
    if attn_mask is not None:
        shape = tuple(attn_mask.shape)
        if shape == (length, keys):
            found = _added(attn_mask, query).reshape(1, 1, length, keys)
        elif shape == (batch * heads, length, keys):
            found = _added(attn_mask, query).reshape(batch, heads, length, keys)
        else:
            raise ShapeError(
                f"multi_head_attention_forward: attn_mask must have shape {[length, keys]} or "
                f"{[batch * heads, length, keys]}, not {list(shape)}"
            )
    if key_padding_mask is not None:
        if tuple(key_padding_mask.shape) != (batch, keys):
            raise ShapeError(
                f"multi_head_attention_forward: key_padding_mask must have shape {[batch, keys]}, "
                f"not {list(key_padding_mask.shape)}"
            )
        padding = _added(key_padding_mask, query).reshape(batch, 1, 1, keys)
        found = padding if found is None else found + padding
    return found if found is None or not added else ops.pad(found, (0, added))


def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Project queries, keys and values, attend in `num_heads` parts of the features, project what was found.

    Shapes: query [L, N, E], key [S, N, *], value [S, N, *] -> [L, N, E] and the weights [N, L, S], of each
    head [N, heads, L, S] unless averaged; without N everywhere for inputs of two dimensions.  Masks of bools
    say what must not be looked at.  static_k, static_v: [N * heads, S, head size], used as they are.
    is_causal only says what attn_mask is, and needs one.  Raises ShapeError, ArgumentValueError.
    """
    alone = query.ndim == 2
    _check_ranks(query, key, value, key_padding_mask, attn_mask, num_heads)
    if alone:
        query, key, value = query.unsqueeze(1), key.unsqueeze(1), value.unsqueeze(1)
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    if key.shape[:2] != value.shape[:2]:
        raise _Misfit(
            "multi_head_attention_forward: query is [L, N, E], and key and value [S, N, features]",
            f"query: {query._meta}",
            f"key: {key._meta}",
            f"value: {value._meta}",
        )
    length, batch, width = query.shape
    if width != embed_dim_to_check:
        raise _Misfit(
            f"multi_head_attention_forward: was expecting embedding dimension of {embed_dim_to_check}, but "
            f"got {width}"
        )
    if is_causal and attn_mask is None:
        raise ArgumentValueError(
            "multi_head_attention_forward: is_causal is a word about attn_mask; pass one too"
        )
    head = width // num_heads
    q, k, v = _projections(
        query, key, value, in_proj_bias, in_proj_weight, (q_proj_weight, k_proj_weight, v_proj_weight),
        use_separate_proj_weight,
    )  # fmt: skip
    for which, static in (("key", static_k), ("value", static_v)):
        if bias_k is not None and bias_v is not None and static is not None:
            raise _NoRoom(f"multi_head_attention_forward: bias cannot be added to static {which}.")
    added = 0
    keys = key.shape[0] if static_k is None else static_k.shape[1]
    if bias_k is not None and bias_v is not None:
        k = ops.cat([k, bias_k.expand(1, batch, width)])
        v = ops.cat([v, bias_v.expand(1, batch, width)])
        added += 1

    def heads(x: Tensor) -> Tensor:  # [S, N, E] -> [N, heads, S, head]
        return x.reshape(x.shape[0], batch, num_heads, head).permute(1, 2, 0, 3)

    q = heads(q)
    k = heads(k) if static_k is None else static_k.reshape(batch, num_heads, keys, head)
    v = heads(v) if static_v is None else static_v.reshape(batch, num_heads, keys, head)
    if add_zero_attn:
        k, v, added = ops.pad(k, (0, 0, 0, 1)), ops.pad(v, (0, 0, 0, 1)), added + 1
    mask = _mask(attn_mask, key_padding_mask, query, (batch, num_heads, length, keys), added)
    p = dropout_p if training else 0.0
    weights = None
    if need_weights:
        scores = ops.matmul(q * sqrt(1.0 / head), k.transpose(-2, -1))
        weights = ops.softmax(scores if mask is None else scores + mask, -1)
        weights = draws.dropout(weights, p) if p else weights
        found = ops.matmul(weights, v)
        weights = weights.mean(1) if average_attn_weights else weights
        weights = weights.squeeze(0) if alone else weights
    else:
        found = scaled_dot_product_attention(q, k, v, mask, p)
    output = found.permute(2, 0, 1, 3).reshape(length, batch, width)
    output = ops.linear(output, out_proj_weight, out_proj_bias)
    return (output.squeeze(1) if alone else output), weights


def _projections(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    weight: Tensor | None,
    separate: tuple,
    use_separate: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values, each projected to E features; in one product where they are one tensor."""
    width = query.shape[-1]
    if not use_separate and query is key and key is value:
        q, k, v = ops.linear(query, weight, bias).chunk(3, -1)
        return q, k, v
    weights = separate if use_separate else tuple(weight.chunk(3))
    biases = (None,) * 3 if bias is None else tuple(bias.split(width))
    q, k, v = (ops.linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases))
    return q, k, v
