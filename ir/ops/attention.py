"""Attention: one op with its way back, in blocks of queries where there are many scores."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from math import inf, prod
from typing import Any

import numpy as np

from .. import lowering
from ..dims import same
from ..dtypes import bool_
from ..errors import ArgumentError, ArgumentValueError, DTypeError, ShapeError
from ..op import composite, define
from ..sample import Operand, sample
from ..shapes import broadcast_shapes, is_one
from ..types import Type
from . import attention_blocks
from .attention_blocks import (
    all_seen,
    attention_backward_lowered,
    attention_lowered,
    block_of,
    is_bool,
    scale_of,
)
from .cells import total
from .compare import ne, where
from .extremum import amax
from .matmul import matmul
from .reduce import sum
from .softmax import softmax
from .view import expand, reshape, unsqueeze


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
    spread = expand(unsqueeze(x, -3), (*lead, count, heads // count, *rest))
    return reshape(spread, (*lead, heads, *rest))


def attention_weights(
    query: Any, key: Any, attn_mask: Any, is_causal: bool, scale: float | None, repeat: bool
) -> Any:
    """The weights that queries give to keys, [..., l, s], each row summing to 1 or 0.

    Arguments as in scaled_dot_product_attention.  Raises ArgumentError for a mask that is given twice.
    """
    if repeat:
        key = repeated_heads(key, query.shape[-3])
    check_mask(query, key, attn_mask, is_causal)
    return all_weights(query, key, attn_mask, is_causal, scale)


def check_mask(query: Any, key: Any, attn_mask: Any, is_causal: bool) -> None:
    """Raise ArgumentError for two masks, ShapeError for one that does not broadcast to the scores."""
    if attn_mask is None:
        return
    if is_causal:
        raise ArgumentError(
            "scaled_dot_product_attention: attn_mask and is_causal=True are two masks",
            "put the causal one into attn_mask",
        )
    scores = query.shape[-2], key.shape[-2]
    if not _fits(attn_mask.shape, scores):
        raise ShapeError(
            "scaled_dot_product_attention: attn_mask must broadcast to [..., queries, keys]",
            f"attn_mask {list(attn_mask.shape)}, and there are {list(scores)} scores",
        )


def all_weights(query: Any, key: Any, mask: Any, is_causal: bool, scale: float | None) -> Any:
    """Those of all queries to all keys at once."""
    return weights_of(query * scale_of(query, scale), key, mask, all_seen(query, key, is_causal))


def weights_of(query: Any, key: Any, mask: Any, causal: Any) -> Any:
    """The weights that scaled queries give.  causal: where keys are seen, or None."""
    scores = matmul(query, key.mT)
    if causal is not None:
        return softmax(where(causal, scores, -inf), dim=-1)
    if mask is None:
        return softmax(scores, dim=-1)
    scores = where(mask, scores, -inf) if is_bool(mask) else scores + mask
    # A query that sees no key would divide 0 by 0, and its gradient with it.
    sees = ne(amax(scores, dim=-1, keepdim=True), -inf)
    return where(sees, softmax(where(sees, scores, 0.0), dim=-1), 0.0)


def _fits(shape: Any, scores: Any) -> bool:
    """Whether a mask's last two sizes are those of the scores, or 1."""
    return all(is_one(n) or same(n, m) for n, m in zip(shape[::-1][:2], scores[::-1]))


# ---- attention as one op

CALL = "attention(query, key, value, mask)"


def bind_attention(query, key, value, mask=None, *, is_causal=False, scale=None):
    """Take the mean of the values, weighted by softmax(query @ key.mT * scale + mask), in blocks of queries.

    Shapes: [..., l, e], [..., s, e], [..., s, v] -> [..., l, v], with the same leading dimensions; mask and
    the rest as in scaled_dot_product_attention.  Memory: of order l + s, there and back.
    Source: Rabe and Staats, Self-attention does not need O(n^2) memory, 2021.
    """
    return (query, key, value, mask), {"is_causal": bool(is_causal), "scale": scale and float(scale)}


def infer_attention(
    query: Type, key: Type, value: Type, mask: Type | None, *, is_causal: bool, scale: float | None
) -> Type:
    _check(query, key, value, mask)
    return query.with_shape((*query.shape[:-1], value.shape[-1]))


def _check(query: Type, key: Type, value: Type, mask: Type | None) -> None:
    if not query.dtype.is_floating_point or key.dtype is not query.dtype or value.dtype is not query.dtype:
        raise DTypeError(
            f"{CALL}: operands of one floating dtype are needed",
            f"{query.dtype.name}, {key.dtype.name} and {value.dtype.name}",
        )
    check_attention(query, key, value)
    lead = query.shape[:-2]
    for x in (key, value):
        if x.ndim != query.ndim or not all(map(same, x.shape[:-2], lead)):
            raise ShapeError(f"{CALL}: leading dimensions must be equal, not {lead} and {x.shape[:-2]}")
    if mask is not None:
        if mask.dtype is not query.dtype and mask.dtype is not bool_:
            raise DTypeError(f"{CALL}: a mask is of bools or of {query.dtype.name}, not {mask.dtype.name}")
        check_mask(query, key, mask, False)
        if mask.ndim > query.ndim or not all(
            is_one(n) or same(n, m) for n, m in zip(mask.shape[:-2][::-1], lead[::-1])
        ):
            raise ShapeError(f"{CALL}: a mask must broadcast to the scores, {mask.shape} to {lead}")


def _blocks(query: np.ndarray, key: np.ndarray, mask: Any) -> Iterator[tuple[slice, Any]]:
    """Where blocks of queries are, and the mask of each."""
    queries = query.shape[-2]
    scores = prod(query.shape[:-2]) * key.shape[-2]
    is_large = scores * queries > attention_blocks.LARGE_TOGETHER
    size = block_of(scores, False) if is_large else queries
    for first in range(0, queries, max(1, size)):
        rows = slice(first, min(first + size, queries))
        whole = mask is None or mask.ndim < 2 or mask.shape[-2] == 1
        yield rows, mask if whole else mask[..., rows, :]


def masked_scores(
    query: np.ndarray, key: np.ndarray, mask: Any, is_causal: bool, scale: Any, first: int = 0
) -> np.ndarray:
    """Scores of queries, the first of which has that number, and -inf where one sees no key."""
    scores = (query * query.dtype.type(scale_of(query, scale))) @ key.mT
    if is_causal:
        mask = np.arange(first, first + query.shape[-2])[:, None] >= np.arange(key.shape[-2])
    if mask is None:
        return scores
    return np.where(mask, scores, -inf) if mask.dtype == np.bool_ else scores + mask


def _weights(query: np.ndarray, key: np.ndarray, mask: Any, is_causal: bool, scale: Any, first: int) -> Any:
    scores = masked_scores(query, key, mask, is_causal, scale, first)
    is_masked = is_causal or mask is not None
    top = np.maximum.reduce(scores, -1, keepdims=True, initial=-inf)
    if is_masked:
        top[top == -inf] = 0  # of a query that sees no key
    scores -= top
    np.exp(scores, out=scores)
    total = np.add.reduce(scores, -1, keepdims=True)
    if is_masked:
        total[total == 0] = 1
    scores /= total
    return scores


def attention_reference(query, key, value, mask, *, is_causal, scale):
    out = np.empty((*query.shape[:-1], value.shape[-1]), query.dtype)
    for rows, own in _blocks(query, key, mask):
        weights = _weights(query[..., rows, :], key, own, is_causal, scale, rows.start)
        np.matmul(weights, value, out=out[..., rows, :])
    return out


def vjp_attention(saved: tuple, cotangents: tuple, attrs: dict, needs: tuple) -> tuple:
    query, key, value, mask = saved
    (g,) = cotangents
    found = attention_backward(g, query, key, value, mask, **attrs) if any(needs[:3]) else (None,) * 3
    to_mask = None
    if mask is not None and needs[3]:
        weights = all_weights(query, key, mask, **attrs)
        to_mask = _to_scores(weights, matmul(g, value.mT))
    return (*found, to_mask)


def _to_scores(weights: Any, to_weights: Any) -> Any:
    """A softmax's cotangent."""
    return weights * (to_weights - sum(weights * to_weights, -1, True))


def _scores(query: Type, key: Type) -> int:
    """Elements that the reference goes over, which makes the scores and rewrites them: some eight times."""
    return int(8 * prod(query.shape[:-1]) * key.shape[-2])


attention = define(
    "attention",
    bind=bind_attention,
    operands=("query", "key", "value", "mask"),
    optional=("mask",),
    attrs=("is_causal", "scale"),
    infer=infer_attention,
    reference=attention_reference,
    vjp=vjp_attention,
    saves=("query", "key", "value", "mask"),
    lower=lowering.decomposition(attention_lowered, partial(attention_lowered, loops=False)),
    inner=lambda types: _scores(types[0], types[1]),
    samples=lambda: [
        sample((1, 1), (1, 1), (1, 1)),
        sample((0, 3), (4, 3), (4, 2)),
        sample((2, 0, 3), (2, 4, 3), (2, 4, 2), is_causal=True),
        sample((2, 5, 3), (2, 4, 3), (2, 4, 2), scale=0.3),
        sample((2, 4, 3), (2, 4, 3), (2, 4, 2), is_causal=True),
        sample((2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 4), Operand((2, 1, 5, 7), category="bool")),
        sample((2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 4), (5, 7)),
        sample((17, 33), (33, 33), (33, 17)),
    ],
    inapplicable={"0-d": "queries have rows", "broadcast": "operands have equal leading dimensions"},
    dtypes="float",
    method=False,
)


# ---- the way back


def bind_attention_backward(g, query, key, value, mask=None, *, is_causal=False, scale=None):
    """Take the cotangent of what attention gave back to queries, keys and values, in blocks of queries."""
    return (g, query, key, value, mask), {"is_causal": bool(is_causal), "scale": scale and float(scale)}


def infer_attention_backward(
    g: Type, query: Type, key: Type, value: Type, mask: Type | None, *, is_causal: bool, scale: float | None
) -> tuple[Type, ...]:
    out = infer_attention(query, key, value, mask, is_causal=is_causal, scale=scale)
    if g.dtype is not out.dtype or g.ndim != out.ndim or not all(map(same, g.shape, out.shape)):
        raise ShapeError(f"attention_backward: the cotangent must be {out}, not {g}")
    return query, key, value


def _back(g: Any, query: Any, key: Any, value: Any, weights: Any, scale: float) -> tuple:
    """What a block of queries, already scaled, gives to queries, keys and values."""
    to_scores = _to_scores(weights, g @ value.mT)
    return (to_scores @ key) * scale, to_scores.mT @ query, weights.mT @ g


def attention_backward_reference(g, query, key, value, mask, *, is_causal, scale):
    factor = query.dtype.type(scale_of(query, scale))
    to_query = np.empty_like(query)
    to_key, to_value = np.zeros_like(key), np.zeros_like(value)
    for rows, own in _blocks(query, key, mask):
        part = query[..., rows, :]
        weights = _weights(part, key, own, is_causal, scale, rows.start)
        to_query[..., rows, :], more_key, more_value = _back(
            g[..., rows, :], part * factor, key, value, weights, factor
        )
        to_key += more_key
        to_value += more_value
    return to_query, to_key, to_value


def vjp_attention_backward(saved: tuple, cotangents: tuple, attrs: dict, needs: tuple) -> tuple:
    """Of all queries at once, with ops, so that it has gradients of its own."""
    g, query, key, value, mask = saved
    of_query, of_key, of_value = cotangents
    factor = scale_of(query, attrs["scale"])
    weights = all_weights(query, key, mask, **attrs)
    to_weights = g @ value.mT
    centred = to_weights - sum(weights * to_weights, -1, True)
    to_scores = weights * centred
    found: dict[str, Any] = dict.fromkeys(("g", "query", "key", "value", "scores"))
    of_weights = None
    of_scores = None  # the cotangent of `to_scores`
    if of_query is not None:
        of_scores = factor * (of_query @ key.mT)
        found["key"] = factor * (to_scores.mT @ of_query)
    if of_key is not None:
        of_scores = total(of_scores, factor * (query @ of_key.mT))
        found["query"] = factor * (to_scores @ of_key)
    if of_value is not None:
        of_weights = g @ of_value.mT
        found["g"] = weights @ of_value
    if of_scores is not None:
        mean = sum(of_scores * weights, -1, True)
        of_weights = total(of_weights, of_scores * centred - mean * to_weights)
        inner = weights * (of_scores - mean)
        found["g"] = total(found["g"], inner @ value)
        found["value"] = inner.mT @ g
    if of_weights is not None:
        found["scores"] = _to_scores(weights, of_weights)
        found["query"] = total(found["query"], factor * (found["scores"] @ key))
        found["key"] = total(found["key"], factor * (found["scores"].mT @ query))
    to_mask = found["scores"] if mask is not None and needs[4] else None
    return found["g"], found["query"], found["key"], found["value"], to_mask


attention_backward = define(
    "attention_backward",
    bind=bind_attention_backward,
    operands=("g", "query", "key", "value", "mask"),
    optional=("mask",),
    attrs=("is_causal", "scale"),
    infer=infer_attention_backward,
    reference=attention_backward_reference,
    outputs=("to_query", "to_key", "to_value"),
    vjp=vjp_attention_backward,
    saves=("g", "query", "key", "value", "mask"),
    lower=lowering.decomposition(
        attention_backward_lowered, partial(attention_backward_lowered, loops=False)
    ),
    inner=lambda types: _scores(types[1], types[2]),
    samples=lambda: [
        sample((1, 1), (1, 1), (1, 1), (1, 1)),
        sample((0, 2), (0, 3), (4, 3), (4, 2)),
        sample((2, 4, 2), (2, 4, 3), (2, 4, 3), (2, 4, 2), is_causal=True),
        sample((2, 5, 4), (2, 5, 4), (2, 7, 4), (2, 7, 4), Operand((1, 5, 7), category="bool"), scale=0.3),
        sample((2, 5, 4), (2, 5, 4), (2, 7, 4), (2, 7, 4), (5, 7)),
        sample((17, 17), (17, 33), (33, 33), (33, 17)),
    ],
    inapplicable={"0-d": "queries have rows", "broadcast": "operands have equal leading dimensions"},
    dtypes="float",
    method=False,
)


# ---- as PyTorch calls it


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
    check_mask(query, key, attn_mask, is_causal)
    if enable_gqa:
        key, value = (repeated_heads(x, query.shape[-3]) for x in (key, value))
    mixed = any(x.dtype is not query.dtype or not x.dtype.is_floating_point for x in (query, key, value))
    if mixed or attn_mask is not None and attn_mask.dtype is not query.dtype and not is_bool(attn_mask):
        return matmul(all_weights(query, key, attn_mask, is_causal, scale), value)
    given = [x for x in (query, key, value, attn_mask) if x is not None]
    lead = broadcast_shapes("scaled_dot_product_attention", *(tuple(x.shape[:-2]) for x in given))
    query, key, value = (_led(x, lead) for x in (query, key, value))
    return attention(query, key, value, attn_mask, is_causal=is_causal, scale=scale)


def _led(x: Any, lead: tuple) -> Any:
    """The operand with these leading dimensions."""
    own = tuple(x.shape[:-2])
    return x if len(own) == len(lead) and all(map(same, own, lead)) else expand(x, (*lead, *x.shape[-2:]))
