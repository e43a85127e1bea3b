"""Attention, written with products of matrices and softmax."""

from __future__ import annotations

from math import inf, sqrt
from typing import Any

from ..dims import same
from ..dtypes import bool_
from ..errors import ArgumentError, ArgumentValueError, ShapeError
from ..op import composite
from ..shapes import is_one
from .compare import ne, where
from .create import new_ones
from .extremum import amax
from .matmul import matmul
from .rearrange import tril
from .softmax import softmax
from .view import expand, reshape


def check_attention(query: Any, key: Any, value: Any) -> None:
    """Raise ShapeError unless queries and keys have one width, and every key its value."""
    call = "scaled_dot_product_attention(query, key, value)"
    for name, x in (("query", query), ("key", key), ("value", value)):
        if x.ndim < 2:
            raise ShapeError(f"{call}: {name} needs 2 dimensions or more, not {x.ndim}")
    if not same(query.shape[-1], key.shape[-1]):
        raise ShapeError(
            f"{call}: the widths of query and key must be equal ({query.shape[-1]} != {key.shape[-1]})"
        )
    if not same(key.shape[-2], value.shape[-2]):
        raise ShapeError(
            f"{call}: there must be a value for every key ({value.shape[-2]} values, {key.shape[-2]} keys)"
        )


def repeated_heads(x: Any, heads: int) -> Any:
    """Each head of x [..., h, s, e] as many times in a row as makes `heads` of them."""
    count = x.shape[-3]
    if heads % count:
        raise ShapeError(
            "scaled_dot_product_attention(enable_gqa=True): the heads of key and value must divide query's "
            f"({heads} % {count} != 0)"
        )
    lead, rest = tuple(x.shape[:-3]), tuple(x.shape[-2:])
    spread = expand(x[..., None, :, :], (*lead, count, heads // count, *rest))
    return reshape(spread, (*lead, heads, *rest))


def attention_weights(
    query: Any, key: Any, attn_mask: Any, is_causal: bool, scale: float | None, repeat: bool
) -> Any:
    """The weights that queries give to keys, [..., l, s], each row summing to 1 or 0.

    Arguments as in scaled_dot_product_attention.  Raises ArgumentError for a mask that is given twice.
    """
    if repeat:
        key = repeated_heads(key, query.shape[-3])
    scores = matmul(query * (1 / sqrt(query.shape[-1]) if scale is None else scale), key.mT)
    if is_causal:
        if attn_mask is not None:
            raise ArgumentError(
                "scaled_dot_product_attention: attn_mask and is_causal=True are two masks",
                "put the causal one into attn_mask",
            )
        causal = tril(new_ones(scores, query.shape[-2], key.shape[-2], dtype=bool_))
        return softmax(where(causal, scores, -inf), dim=-1)
    if attn_mask is None:
        return softmax(scores, dim=-1)
    if not _fits(attn_mask.shape, scores.shape):
        raise ShapeError(
            "scaled_dot_product_attention: attn_mask must broadcast to [..., queries, keys]",
            f"attn_mask {list(attn_mask.shape)}, and there are {list(scores.shape)} scores",
        )
    scores = where(attn_mask, scores, -inf) if is_bool(attn_mask) else scores + attn_mask
    # A query that sees no key would divide 0 by 0, and its gradient with it.
    sees = ne(amax(scores, dim=-1, keepdim=True), -inf)
    return where(sees, softmax(where(sees, scores, 0.0), dim=-1), 0.0)


def _fits(shape: Any, scores: Any) -> bool:
    """Whether a mask's last two sizes are those of the scores, or 1."""
    return all(is_one(n) or same(n, m) for n, m in zip(shape[::-1][:2], scores[::-1]))


def is_bool(mask: Any) -> bool:
    return mask.dtype in (bool_, bool_.numpy)


@composite(method=False)
def scaled_dot_product_attention(
    query,
    key,
    value,
    attn_mask=None,
    dropout_p=0.0,
    is_causal=False,
    scale=None,
    enable_gqa=False,
):
    """Take the mean of the values, weighted by softmax(query @ key.mT * scale + mask).

    Shapes: [..., l, e], [..., s, e], [..., s, v] -> [..., l, v]; leading dimensions broadcast.
    attn_mask: broadcasts to [..., l, s]; bool (True takes part) or of query's dtype (added).
    is_causal: query i sees keys 0 .. i.  scale: 1 / sqrt(e) by default.
    enable_gqa: key and value have fewer heads, in dimension -3, and each serves several of the query's.
    A query that sees no key gives zeros.
    dropout_p: must be 0 here; nn.functional's function of this name drops weights.
    Raises ShapeError, ArgumentError, ArgumentValueError.
    Source: Vaswani et al., Attention is all you need, 2017.
    """
    if dropout_p:
        raise ArgumentValueError("scaled_dot_product_attention: dropout_p draws, use nn.functional's")
    check_attention(query, key, value)
    weights = attention_weights(query, key, attn_mask, is_causal, scale, enable_gqa)
    return matmul(weights, repeated_heads(value, query.shape[-3]) if enable_gqa else value)
