"""Attention and its way back as a GPU's kernels divide them: records of one kernel each.

    whole_attention(q, k, v, mask)                              what the record `attention` says
    attention_with_lse(q, k, v, mask)                           the same, and of each query the log-sum-exp
    attention_to_query(q, k, v, mask, g, lse, products)         the cotangent of queries
    attention_to_key_value(q, k, v, mask, g, lse, products)     those of keys and of values

With a query's log-sum-exp, log(sum(exp(scores))), its weights are exp(scores - lse) wherever they are wanted
again: no kernel keeps or sums them.  products: sum(g * out) of each query, which is what a softmax's
cotangent takes off each of its terms.  groups: the heads of queries that share a head of keys and values.
Source: Dao et al., FlashAttention, 2022, algorithm 4; Dao, FlashAttention-2, 2023.
"""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np

from ...ir import lowering
from ...ir.dtypes import float32
from ...ir.errors import ShapeError
from ...ir.op import Op
from ...ir.ops.attention import attention, infer_attention, masked_scores
from ...ir.ops.attention_blocks import scale_of
from ...ir.types import Type

REASON = "a target's own kernel"
ATTRS = (*attention.attrs, "precision", "groups")
BACK = (*attention.operands, "g", "lse", "products")


def _repeated(t: Type, groups: int) -> Type:
    """The type of keys or values with a head for each head of queries."""
    return t if groups == 1 else t.with_shape((*t.shape[:-3], groups * t.shape[-3], *t.shape[-2:]))


def _infer(query: Any, key: Any, value: Any, mask: Any, *, precision: str, groups: int, **attrs: Any) -> Type:
    if not isinstance(groups, int) or groups < 1 or groups > 1 and key.ndim < 3:
        raise ShapeError(f"attention's kernels: groups are 1 or more of the heads, not {groups!r}")
    key, value = _repeated(key, groups), _repeated(value, groups)
    return infer_attention(query, key, value, mask, **attrs)


def _infer_with_lse(query: Any, *others: Any, **attrs: Any) -> tuple[Type, Type]:
    out = _infer(query, *others, **attrs)
    return out, query.with_shape(query.shape[:-1]).with_dtype(float32)


def _infer_to_query(query: Any, *others: Any, **attrs: Any) -> Type:
    _check_back(query, *others, **attrs)
    return query


def _infer_to_key_value(query: Any, key: Any, value: Any, *others: Any, **attrs: Any) -> tuple[Type, Type]:
    _check_back(query, key, value, *others, **attrs)
    return key, value


def _check_back(query, key, value, mask, g, lse, products, **attrs) -> None:
    wanted = (*_infer_with_lse(query, key, value, mask, **attrs), lse)
    for name, given, want in zip(BACK[4:], (g, lse, products), wanted, strict=True):
        if (given.dtype, given.shape) != (want.dtype, want.shape):
            raise ShapeError(f"attention's way back: {name} must be {want}, not {given}")


def _heads(x: np.ndarray, groups: int) -> np.ndarray:
    return x if groups == 1 else np.repeat(x, groups, axis=-3)


def _reference(query, key, value, mask, *, precision, groups, **attrs):
    return attention.reference(query, _heads(key, groups), _heads(value, groups), mask, **attrs)


def _reference_with_lse(query, key, value, mask, *, groups, **attrs):
    out = _reference(query, key, value, mask, groups=groups, **attrs)
    scores = masked_scores(query, _heads(key, groups), mask, attrs["is_causal"], attrs["scale"])
    top = np.maximum.reduce(scores, -1, keepdims=True, initial=-inf)
    top[top == -inf] = 0
    with np.errstate(divide="ignore"):  # a query that sees no key has -inf
        return out, (np.log(np.exp(scores - top).sum(-1, keepdims=True)) + top)[..., 0]


def _weights_and_cotangents(query, key, value, mask, g, lse, products, is_causal, scale):
    """exp(scores - lse), and the cotangents of scores."""
    lse = np.where(lse == -inf, 0, lse)[..., None]
    weights = np.exp(masked_scores(query, key, mask, is_causal, scale) - lse)
    return weights, weights * (g @ value.mT - products[..., None])


def _reference_to_query(
    query, key, value, mask, g, lse, products, *, is_causal, scale, precision, groups
):  # fmt: skip
    key, value = _heads(key, groups), _heads(value, groups)
    _, to_scores = _weights_and_cotangents(query, key, value, mask, g, lse, products, is_causal, scale)
    return (to_scores @ key) * query.dtype.type(scale_of(query, scale))


def _reference_to_key_value(
    query, key, value, mask, g, lse, products, *, is_causal, scale, precision, groups
):  # fmt: skip
    all_keys, all_values = _heads(key, groups), _heads(value, groups)
    weights, to_scores = _weights_and_cotangents(
        query, all_keys, all_values, mask, g, lse, products, is_causal, scale
    )
    to_key = (to_scores.mT @ query) * query.dtype.type(scale_of(query, scale))
    return _summed(to_key, key.shape, groups), _summed(weights.mT @ g, value.shape, groups)


def _summed(x: np.ndarray, shape: tuple[int, ...], groups: int) -> np.ndarray:
    """What the heads of a group give, added up."""
    if groups == 1:
        return x
    return x.reshape(*shape[:-2], groups, *shape[-2:]).sum(-3)


def _record(name: str, infer: Any, reference: Any, operands: tuple[str, ...], **more: Any) -> Op:
    return Op(
        name,
        operands=operands,
        optional=attention.optional,
        attrs=ATTRS,
        bind=attention.bind,
        infer=infer,
        reference=reference,
        lower=lowering.whole(REASON),
        samples=tuple,
        dtypes=attention.dtypes,
        doc=attention.__doc__,
        **more,
    )


whole_attention = _record("whole_attention", _infer, _reference, attention.operands)
attention_with_lse = _record(
    "attention_with_lse", _infer_with_lse, _reference_with_lse, attention.operands, hidden=("lse",)
)
attention_to_query = _record("attention_to_query", _infer_to_query, _reference_to_query, BACK)
attention_to_key_value = _record(
    "attention_to_key_value",
    _infer_to_key_value,
    _reference_to_key_value,
    BACK,
    outputs=("to_key", "to_value"),
)

KERNELS = {
    op.name: op for op in (whole_attention, attention_with_lse, attention_to_query, attention_to_key_value)
}
