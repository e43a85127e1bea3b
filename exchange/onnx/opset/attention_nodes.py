"""Operators of attention, and of the positions that it sees."""

from __future__ import annotations

from functools import reduce
from math import copysign, sqrt

import numpy as np

from ....ir.dtypes import DType, bfloat16, bool_, float16, float32, float64
from ....nn import functional as F
from ....runtime import Tensor, ops
from ..declared import Node, OnnxError, Subgraph
from .registry import Value, as_tensor, operator

PRECISIONS = {1: float32, 10: float16, 11: float64, 16: bfloat16}


def _precision(node: Node, default: DType) -> DType:
    """The dtype that a node has its weights computed in."""
    number = node.attr("softmax_precision")
    if number is not None and number not in PRECISIONS:
        raise OnnxError(f"{node.op}: softmax_precision {number} is no floating dtype", str(node))
    return default if number is None else PRECISIONS[number]


def _heads(node: Node, name: str, x: Tensor, count: int | None) -> Tensor:
    """[b, l, heads * d] as [b, heads, l, d]."""
    if not count or count < 0 or x.shape[2] % count:
        raise OnnxError(f"{node.op}: {name} of {x.shape[2]} features is not for {count} heads", str(node))
    batch, length, width = x.shape
    return x.reshape((batch, length, count, width // count)).transpose(1, 2)


def _check_heads(node: Node, q: Tensor, k: Tensor, v: Tensor) -> None:
    """Raise OnnxError unless these are queries, keys and values of heads that belong together."""
    shapes = [f"{name}: {[*x.shape]}" for name, x in (("Q", q), ("K", k), ("V", v))]
    if not q.ndim == k.ndim == v.ndim == 4:
        raise OnnxError(f"{node.op}: Q, K and V have one number of dimensions, 3 or 4", *shapes)
    one = q.shape[0] == k.shape[0] == v.shape[0] and k.shape[1:3] == v.shape[1:3] and q.shape[3] == k.shape[3]
    if not one or not k.shape[1] or q.shape[1] % k.shape[1]:
        raise OnnxError(
            f"{node.op}: Q is [b, h, l, d], K [b, g, s, d] and V [b, g, s, e], where g divides h", *shapes
        )


def _repeated(x: Tensor, heads: int) -> Tensor:
    """Keys or values [b, g, s, d] for each of so many heads."""
    return x if x.shape[1] == heads else ops.repeat_interleave(x, heads // x.shape[1], 1)


def _scores(q: Tensor, k: Tensor, scale: float | None) -> Tensor:
    """q @ k.mT * scale, where half of the scale's power is with either, so that narrow dtypes hold it."""
    scale = 1 / sqrt(q.shape[3] or 1) if scale is None else scale
    root = sqrt(abs(scale))
    return (q * copysign(root, scale)) @ (_repeated(k, q.shape[1]) * root).mT


# ---- what queries see
def _windows(node: Node) -> tuple[int, int]:
    """How many keys before and behind itself a query sees; -1 for all."""
    left, right = node.attr("left_window_size", -1), node.attr("right_window_size", -1)
    if min(left, right) < -1:
        raise OnnxError(f"{node.op}: windows of {left} and {right} keys: they are -1, 0 or more", str(node))
    return left, 0 if node.attr("is_causal", 0) else right


def _seen(node: Node, queries: int, keys: int, past: int, lengths: Value) -> Value:
    """Where keys may be seen by what the node says and how many there are, bool [q, k] or [b, 1, q, k]; None
    for all.  lengths: how many keys of each sequence hold; its queries are the last of them."""
    left, right = _windows(node)
    key, tests = as_tensor(np.arange(keys)), []
    if lengths is not None:
        lengths = lengths.reshape((-1, 1, 1, 1))
        tests.append(key < lengths)
    if max(left, right) >= 0:
        own = as_tensor(np.arange(queries)[:, None]) + (past if lengths is None else lengths - queries)
        tests += [key - own <= right] * (right >= 0) + [own - key <= left] * (left >= 0)
    return reduce(ops.logical_and, tests) if tests else None


def _mask(node: Node, mask: Value, q: Tensor, keys: int, seen: Value) -> Value:
    """What a node's mask and `seen` say together: bool, or of q's dtype and added to scores; None for all."""
    if mask is None:
        return seen
    scores = (*q.shape[:3], keys)
    if mask.dtype is not bool_:
        mask = mask.to(q.dtype)
    if mask.ndim and mask.shape[-1] < keys and (mask.shape[-1] != 1 or node.opset > 23):
        mask = F.pad(mask, (0, keys - mask.shape[-1]), value=False if mask.dtype is bool_ else -np.inf)
    fits = mask.ndim <= 4 and all(n in (1, m) for n, m in zip(mask.shape[::-1], scores[::-1], strict=False))
    if not fits:
        raise OnnxError(f"{node.op}: the mask {[*mask.shape]} is not for scores {[*scores]}", str(node))
    if seen is None:
        return mask
    return mask & seen if mask.dtype is bool_ else ops.where(seen, mask, -np.inf)


def _weights(scores: Tensor, mask: Value, precision: DType) -> Tensor:
    """The weights of scores that have the mask added; those of a query that sees nothing are 0."""
    wide = scores.to(precision)
    if mask is None:
        return ops.softmax(wide, -1)
    sees = (mask if mask.dtype is bool_ else mask != -np.inf).any(-1, keepdim=True)
    weights = ops.softmax(ops.where(sees, wide, 0.0), -1)
    return ops.where(sees, weights, 0.0)


def _masked(scores: Tensor, mask: Value) -> Tensor:
    if mask is None:
        return scores
    return ops.where(mask, scores, -np.inf) if mask.dtype is bool_ else scores + mask


def _in_steps(node: Node, q: Tensor, k: Tensor, v: Tensor, mask: Value) -> tuple[Tensor, Tensor]:
    """What attention gives, and the scores at the stage that the node asks for."""
    raw = _scores(q, k, node.attr("scale"))
    cap, mode = node.attr("softcap", 0.0), node.attr("qk_matmul_output_mode", 0)
    capped = cap * ops.tanh(raw / cap) if cap > 0 else raw
    masked = _masked(capped, mask)
    weights = _weights(masked, mask, _precision(node, q.dtype)).to(q.dtype)
    stages = raw, capped, masked, weights
    if not 0 <= mode < len(stages):
        raise OnnxError(f"{node.op}: qk_matmul_output_mode is 0 to 3, not {mode}", str(node))
    return weights @ _repeated(v, q.shape[1]), stages[mode]


def _with_past(node: Node, name: str, past: Value, new: Tensor) -> Tensor:
    """Keys or values behind those of before."""
    if past is None:
        return new
    if past.ndim != 4 or (*past.shape[:2], past.shape[3]) != (*new.shape[:2], new.shape[3]):
        raise OnnxError(f"{node.op}: {name} {[*past.shape]} does not go before {[*new.shape]}", str(node))
    return ops.cat([past, new], 2)


@operator("Attention")
def attention(
    node: Node, q: Tensor, k: Tensor, v: Tensor, mask: Value = None, past_key: Value = None,
    past_value: Value = None, lengths: Value = None,
) -> tuple[Value, ...]:  # fmt: skip
    packed = q.ndim == k.ndim == v.ndim == 3
    if packed:
        q = _heads(node, "Q", q, node.attr("q_num_heads"))
        k, v = (_heads(node, name, x, node.attr("kv_num_heads")) for name, x in (("K", k), ("V", v)))
    _check_heads(node, q, k, v)
    kept = past_key is not None
    if kept is not (past_value is not None) or kept and lengths is not None:
        raise OnnxError(f"{node.op}: past_key and past_value come both, without nonpad_kv_seqlen", str(node))
    if lengths is not None and tuple(lengths.shape) != q.shape[:1]:
        raise OnnxError(f"{node.op}: nonpad_kv_seqlen is [{q.shape[0]}], not {[*lengths.shape]}", str(node))
    k, v = _with_past(node, "past_key", past_key, k), _with_past(node, "past_value", past_value, v)
    found, stage = _attended(node, q, k, v.to(q.dtype), mask, past_key.shape[2] if kept else 0, lengths)
    if packed:
        found = found.transpose(1, 2).reshape((q.shape[0], q.shape[2], q.shape[1] * v.shape[3]))
    return found, k, v, stage


def _attended(
    node: Node, q: Tensor, k: Tensor, v: Tensor, mask: Value, past: int, lengths: Value
) -> tuple[Tensor, Value]:
    """What attention gives, and where the node asks for them the scores of one of its stages."""
    other = node.attr("softcap", 0.0) > 0 or _precision(node, q.dtype) is not q.dtype
    in_steps = other or any(node.outputs[3:])
    causal = not in_steps and not past and mask is lengths is None and _windows(node) == (-1, 0)
    if not causal:
        mask = _mask(node, mask, q, k.shape[2], _seen(node, q.shape[2], k.shape[2], past, lengths))
    if in_steps:
        return _in_steps(node, q, k, v, mask)
    about = {"is_causal": causal, "scale": node.attr("scale"), "enable_gqa": q.shape[1] != k.shape[1]}
    return F.scaled_dot_product_attention(q, k, v, mask, **about), None


@operator("FlexAttention", domain="ai.onnx.preview", scoped=True)
def flex_attention(scope: Value, node: Node, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    _check_heads(node, q, k, v)
    precision = _precision(node, float64 if q.dtype is float64 else float32)
    scores = _scores(q, k, node.attr("scale")).to(precision)
    weights = ops.softmax(_modified(scope, node, "score_mod", scores), -1)
    weights = _modified(scope, node, "prob_mod", weights)
    return (weights @ _repeated(v.to(precision), q.shape[1])).to(v.dtype)


def _modified(scope: Value, node: Node, name: str, x: Tensor) -> Tensor:
    """What a graph of the node makes of scores or weights."""
    graph = node.attr(name)
    if graph is None:
        return x
    if not isinstance(graph, Subgraph) or len(graph.inputs) != 1 or len(graph.outputs) != 1:
        raise OnnxError(f"{node.op}: {name} is a graph of one input and one output", str(node))
    made = as_tensor(scope.run(graph, [x])[0])
    if not isinstance(made, Tensor) or made.shape != x.shape:
        raise OnnxError(f"{node.op}: {name} gives what is not of shape {[*x.shape]}", str(node))
    return made.to(x.dtype)


# ---- linear attention
# Whether the rules have a decay and a beta.
RULES = {"linear": (False, False), "gated": (True, False), "delta": (False, True), "gated_delta": (True,) * 2}


def _by_steps(node: Node, name: str, x: Tensor, count: int, like: Value = None) -> Tensor:
    """[b, t, count * d] as [t, b, count, d], in float32.  like: what has the same b and t."""
    if x.ndim != 3 or count <= 0 or x.shape[2] % count or like is not None and x.shape[:2] != like.shape[:2]:
        raise OnnxError(f"{node.op}: {name} is [b, t, {count} * d], not {[*x.shape]}", str(node))
    return x.to(float32).reshape((*x.shape[:2], count, x.shape[2] // count)).transpose(0, 1)


def _linear_heads(node: Node, gates: tuple[bool, bool]) -> tuple[int, int]:
    """How many heads queries and keys have.  gates: whether decay and beta are given."""
    rule = node.attr("update_rule", "gated_delta")
    heads, groups = node.attr("q_num_heads", 0), node.attr("kv_num_heads", 0)
    if RULES.get(rule) != gates:
        raise OnnxError(
            f"{node.op}: {rule!r} is none of {', '.join(RULES)}, or not the rule of these operands",
            "decay is for gated and gated_delta, beta for delta and gated_delta",
            str(node),
        )
    if groups <= 0 or heads <= 0 or heads % groups:
        raise OnnxError(f"{node.op}: {groups} heads of keys are not for {heads} of queries", str(node))
    return heads, groups


@operator("LinearAttention")
def linear_attention(
    node: Node, q: Tensor, k: Tensor, v: Tensor, past: Value = None, decay: Value = None, beta: Value = None
) -> tuple[Tensor, Tensor]:
    heads, groups = _linear_heads(node, (decay is not None, beta is not None))
    queries, key = _by_steps(node, "query", q, heads, k), _by_steps(node, "key", k, groups)
    value = _by_steps(node, "value", v, groups, k)
    (time, batch, _, width), out = key.shape, value.shape[3]
    rates = None if beta is None else _by_steps(node, "beta", beta, beta.shape[-1] if beta.ndim else 0, k)
    kept = None if decay is None else ops.exp(_by_steps(node, "decay", decay, groups, k))
    shape = batch, groups, width, out
    state = queries.new_zeros(shape) if past is None else past.to(float32)
    fits = queries.shape[3] == width and tuple(state.shape) == shape
    fits = fits and (rates is None or rates.shape[2] in (1, groups))
    if not fits or kept is not None and kept.shape[3] not in (1, width):
        given = {"query": q, "key": k, "value": v, "past_state": past, "decay": decay, "beta": beta}
        shapes = (f"{name}: {[*x.shape]}" for name, x in given.items() if x is not None)
        raise OnnxError(f"{node.op}: the operands are not for {groups} heads", *shapes, str(node))
    outputs = []
    for t in range(time):
        state = state if kept is None else state * kept[t][..., None]
        new = value[t][:, :, None]  # a row, as what follows from a key is
        column = key[t][..., None]
        if rates is not None:
            new = rates[t][..., None] * (new - column.mT @ state)
        state = state + column * new
        outputs.append(queries[t].reshape((batch, groups, heads // groups, width)) @ state)
    found = ops.stack(outputs, 1) if time else queries.new_zeros((batch, 0, heads, out))
    found = found.reshape((batch, time, heads * out)) * (node.attr("scale", 0.0) or 1 / sqrt(width or 1))
    return found.to(q.dtype), state.to(q.dtype if past is None else past.dtype)


# ---- rotary embedding
def _angles(node: Node, cache: Tensor, positions: Value, half: int, heads_at: int) -> Tensor:
    """The cosines or sines of each place, with a dimension for the heads."""
    if positions is not None:
        if cache.ndim != 2:
            raise OnnxError(f"{node.op}: caches are [positions, {half}], not {[*cache.shape]}", str(node))
        found = ops.index_select(cache, 0, positions.reshape((-1,)))
        cache = found.reshape((*positions.shape, cache.shape[1]))
    if cache.ndim != 3 or cache.shape[2] != half:
        raise OnnxError(f"{node.op}: caches are [b, l, {half}], not {[*cache.shape]}", str(node))
    return cache.unsqueeze(heads_at)


@operator("RotaryEmbedding")
def rotary_embedding(node: Node, x: Tensor, cos: Tensor, sin: Tensor, positions: Value = None) -> Tensor:
    heads, shape = node.attr("num_heads", 0), x.shape
    if x.ndim == 3 and heads > 0 and shape[2] % heads == 0:
        x, heads_at = x.reshape((*shape[:2], heads, shape[2] // heads)), 2
    elif x.ndim == 4:
        heads_at = 1
    else:
        raise OnnxError(f"{node.op}: {[*shape]} is not for num_heads={heads}", str(node))
    width = node.attr("rotary_embedding_dim", 0) or x.shape[3]
    if not 0 <= width <= x.shape[3] or width % 2:
        raise OnnxError(f"{node.op}: {width} of {x.shape[3]} features are not pairs to turn", str(node))
    cos, sin = (_angles(node, each, positions, width // 2, heads_at) for each in (cos, sin))
    paired = bool(node.attr("interleaved", 0))
    turned = x[..., :width].reshape((*x.shape[:3], *((width // 2, 2) if paired else (2, width // 2))))
    axis = 4 if paired else 3
    a, b = (ops.select(turned, axis, at) for at in (0, 1))
    turned = ops.stack([cos * a - sin * b, sin * a + cos * b], axis).reshape((*x.shape[:3], width))
    found = turned if width == x.shape[3] else ops.cat([turned, x[..., width:]], -1)
    return found.reshape(shape)
