"""Attention: one op with its way back, in blocks of queries where there are many scores."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, prod, sqrt
from typing import Any

import numpy as np

from .. import lowering
from ..dims import has_hint, hint, likely, same
from ..dtypes import bool_, int64
from ..errors import ArgumentError, ArgumentValueError, DTypeError, ShapeError
from ..graph import Value
from ..op import composite, define
from ..recur import recur
from ..sample import Operand, sample
from ..shapes import broadcast_shapes, is_one
from ..types import Type
from .cells import total
from .compare import ge, ne, where
from .create import new_ones, zeros_like
from .extremum import amax
from .join import constant_pad
from .matmul import matmul
from .rearrange import tril
from .reduce import sum
from .scan import cumsum
from .softmax import softmax
from .view import expand, permute, reshape


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
    causal = tril(new_ones(query, query.shape[-2], key.shape[-2], dtype=bool_)) if is_causal else None
    return weights_of(query * scale_of(query, scale), key, mask, causal)


def scale_of(query: Any, scale: float | None) -> float:
    return 1 / sqrt(query.shape[-1]) if scale is None else scale


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


def is_bool(mask: Any) -> bool:
    return mask.dtype in (bool_, bool_.numpy)


# ---- attention as one op

CALL = "attention(query, key, value, mask)"
LARGE = 1 << 20  # scores: of more there are never all at once
PIECE = 1 << 18  # scores that there are at once then, about: a megabyte of float32
LEAST, MOST, STEP = 16, 128, 16  # queries of a block


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


def block_of(scores_of_one: int, queries: int) -> int:
    """How many queries a block has, of so many scores each of all heads; all where there are few."""
    if scores_of_one * queries <= LARGE:
        return queries
    return min(MOST, max(LEAST, PIECE // scores_of_one // STEP * STEP))


def _blocks(query: np.ndarray, key: np.ndarray, mask: Any) -> Iterator[tuple[slice, Any]]:
    """Where blocks of queries are, and the mask of each."""
    queries = query.shape[-2]
    size = block_of(prod(query.shape[:-2]) * key.shape[-2], queries)
    for first in range(0, queries, max(1, size)):
        rows = slice(first, min(first + size, queries))
        whole = mask is None or mask.ndim < 2 or mask.shape[-2] == 1
        yield rows, mask if whole else mask[..., rows, :]


def _weights(query: np.ndarray, key: np.ndarray, mask: Any, is_causal: bool, scale: Any, first: int) -> Any:
    scores = (query * query.dtype.type(scale_of(query, scale))) @ key.mT
    if is_causal:
        mask = np.arange(first, first + query.shape[-2])[:, None] >= np.arange(key.shape[-2])
    if mask is not None:
        scores = np.where(mask, scores, -inf) if mask.dtype == np.bool_ else scores + mask
    top = np.maximum.reduce(scores, -1, keepdims=True, initial=-inf)
    if mask is not None:
        top[top == -inf] = 0  # of a query that sees no key
    scores -= top
    np.exp(scores, out=scores)
    total = np.add.reduce(scores, -1, keepdims=True)
    if mask is not None:
        total[total == 0] = 1
    scores /= total
    return scores


def attention_reference(query, key, value, mask, *, is_causal, scale):
    out = np.empty((*query.shape[:-1], value.shape[-1]), query.dtype)
    for rows, own in _blocks(query, key, mask):
        weights = _weights(query[..., rows, :], key, own, is_causal, scale, rows.start)
        np.matmul(weights, value, out=out[..., rows, :])
    return out


def attention_by_blocks(query, key, value, mask, *, is_causal, scale):
    """As ops: all at once, or a recurrence over blocks of queries."""
    if not _is_large(query, key):
        return matmul(all_weights(query, key, mask, is_causal, scale), value)
    blocks = _Blocks(query, key)
    names, sequences, masks = blocks.given(query, mask, is_causal)

    def step(elements: tuple, states: tuple, fixed: tuple) -> tuple:
        at = dict(zip(names, elements, strict=True))
        own, causal = blocks.masked(at, fixed)
        weights = weights_of(at["query"] * scale_of(query, scale), fixed[0], own, causal)
        return (), (matmul(weights, fixed[1]),)

    (out,) = recur(step, sequences, (), (key, value, *masks), ())
    return blocks.joined(out)


def _is_large(query: Any, key: Any) -> bool:
    """Whether a graph's values have blocks: by the sizes that a program is made by."""
    if not isinstance(query, Value) or not all(has_hint(n) for n in (*query.shape, *key.shape)):
        return False
    if not likely(prod(query.shape[:-1]) * key.shape[-2], LARGE + 1):
        return False
    return _block(query, key) < hint(query.shape[-2])


def _block(query: Any, key: Any) -> int:
    return block_of(hint(prod(query.shape[:-2])) * hint(key.shape[-2]), hint(query.shape[-2]))


class _Blocks:
    """Queries, and what there is for each of them, in blocks, the last of which is filled up with zeros."""

    def __init__(self, query: Any, key: Any):
        self.queries, self.ndim = query.shape[-2], query.ndim
        self.size = _block(query, key)
        self.count = (self.queries + (self.size - 1)) // self.size
        self.more = self.count * self.size - self.queries
        self.like, self.keys = key, key.shape[-2]

    def apart(self, x: Any, value: Any = 0) -> Any:
        """[..., l, e] -> [blocks, ..., size, e]"""
        lead = x.ndim - 2
        x = constant_pad(x, ((0, 0),) * lead + ((0, self.more), (0, 0)), value)
        x = reshape(x, (*x.shape[:lead], self.count, self.size, x.shape[-1]))
        return permute(x, (lead, *range(lead), lead + 1, lead + 2))

    def joined(self, x: Any) -> Any:
        """[blocks, ..., size, e] -> [..., l, e]"""
        lead = x.ndim - 3
        x = permute(x, (*range(1, lead + 1), 0, lead + 1, lead + 2))
        x = reshape(x, (*x.shape[:lead], self.count * self.size, x.shape[-1]))
        return constant_pad(x, ((0, 0),) * lead + ((0, -self.more), (0, 0)), 0)

    def given(self, query: Any, mask: Any, is_causal: bool, **others: Any) -> tuple[list[str], tuple, tuple]:
        """Sequences by name, and of masks what is the same for all blocks."""
        found = {"query": self.apart(query)} | {name: self.apart(x) for name, x in others.items()}
        if is_causal:
            found["place"] = reshape(_places(query, self.count * self.size), (self.count, self.size, 1))
            return [*found], tuple(found.values()), (_places(query, self.keys),)
        if mask is not None and mask.ndim > 1 and not is_one(mask.shape[-2]):
            found["mask"] = self.apart(mask, True if is_bool(mask) else 0)
            return [*found], tuple(found.values()), ()
        return [*found], tuple(found.values()), () if mask is None else (mask,)

    @staticmethod
    def masked(at: dict[str, Any], fixed: tuple) -> tuple[Any, Any]:
        """A block's mask, and where its queries see keys; fixed: keys, values and what `given` says."""
        if "place" in at:
            return None, ge(at["place"], fixed[2])
        return at.get("mask", fixed[2] if len(fixed) > 2 else None), None


def _places(like: Any, count: Any) -> Any:
    """0, 1, ... below a count that may be a symbol."""
    return cumsum(new_ones(like, count, dtype=int64), 0) - 1


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
    lower=lowering.decomposition(attention_by_blocks),
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


def attention_backward_by_blocks(g, query, key, value, mask, *, is_causal, scale):
    factor = scale_of(query, scale)
    if not _is_large(query, key):
        return _back(g, query * factor, key, value, all_weights(query, key, mask, is_causal, scale), factor)
    blocks = _Blocks(query, key)
    names, sequences, masks = blocks.given(query, mask, is_causal, g=g)

    def step(elements: tuple, states: tuple, fixed: tuple) -> tuple:
        at = dict(zip(names, elements, strict=True))
        own, causal = blocks.masked(at, fixed)
        part = at["query"] * factor
        weights = weights_of(part, fixed[0], own, causal)
        to_query, to_key, to_value = _back(at["g"], part, fixed[0], fixed[1], weights, factor)
        return (states[0] + to_key, states[1] + to_value), (to_query,)

    zeros = zeros_like(key), zeros_like(value)
    to_key, to_value, to_query = recur(step, sequences, zeros, (key, value, *masks), (False, False))
    return blocks.joined(to_query), to_key, to_value


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
    lower=lowering.decomposition(attention_backward_by_blocks),
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
