"""Sums, means, extremes, norms, and what goes along a dim: right where that dim is not cut.

A sum along a dim that is cut is a partial sum.  Means and norms along such a dim are written with sums; what
has no such form gathers its operand.
"""

from __future__ import annotations

from math import inf, prod
from typing import Any

from ...ir.dtypes import float32
from ...runtime import ops
from .dtensor import DTensor
from .placement_types import Partial, Placement, Shard
from .strategies import INSTEAD, Call, Family, P, R, Way, cuts, enter, linear_partials


def kept_dims(ndim: int, dims: Any, keepdim: bool) -> dict[int, int]:
    """By a dim that is not reduced: which it is of the result."""
    gone = set(range(ndim)) if dims is None else {dims} if isinstance(dims, int) else set(dims)
    kept = [d for d in range(ndim) if d not in gone]
    return {d: d if keepdim else i for i, d in enumerate(kept)}


def _along(call: Call) -> list[Way]:
    """Cut along another dim than the one, or those, that it goes along."""
    ndim, attrs = len(call.shapes[0] or ()), call.attrs
    # What has no keepdim keeps the dim.
    to = kept_dims(ndim, attrs["dim"], attrs.get("keepdim", True))
    rest: list[Placement | None] = [None if x is None else R for x in call.operands[1:]]
    return [((Shard(d), *rest), (Shard(to[d]),) * len(call.outs)) for d in cuts(call) if d in to]


def _sum(call: Call) -> list[Way]:
    found = _along(call)
    found += [((Shard(d),), (P,)) for d in cuts(call) if d in call.attrs["dim"]]
    found += [((p,), (p,)) for p in linear_partials(call)]
    return found


def _mean(call: Call) -> list[Way]:
    return _along(call) + [((p,), (p,)) for p in linear_partials(call)]


def _extreme(call: Call) -> list[Way]:
    found = _along(call)
    if not call.differentiated:  # the gradient of a partial extreme is not built
        kind = Partial("max" if call.op.name in ("amax", "any") else "min")
        found += [((Shard(d),), (kind,)) for d in cuts(call) if d in call.attrs["dim"] and _has(call, d)]
    return found


def _has(call: Call, d: int) -> bool:
    """Whether each rank has something along a dim: nothing has no extreme."""
    size = (call.shapes[0] or ())[d]
    return size % call.even == 0 and size > 0


enter(Family(_sum), "sum")
enter(Family(_mean), "mean")
enter(Family(_extreme), "amax", "amin")
enter(
    Family(_along), "prod", "any", "all", "var", "std", "logsumexp", "linalg_vector_norm", "argmax", "argmin",
    "max_dim", "min_dim", "softmax", "log_softmax", "cumsum", "cumprod", "cummax", "cummin", "logcumsumexp",
    "sort", "topk", "kthvalue", "median_dim", "mode",
)  # fmt: skip


# ---- written with sums
def _is_cut_along(x: DTensor, dims: Any) -> bool:
    return any(isinstance(p, Shard) and p.dim in dims for p in x._placements)


def _mean_by_sum(input: DTensor, dim: tuple[int, ...], keepdim: bool, dtype: Any) -> Any:
    if not _is_cut_along(input, dim):
        return NotImplemented
    kind = dtype or input.dtype
    wide = float32 if kind.itemsize < 4 else kind
    total = input.to(wide).sum(dim, keepdim)
    return (total / max(prod([input._meta.shape[d] for d in dim]), 1)).to(kind)


def _norm_by_sum(x: DTensor, ord: float, dim: tuple[int, ...], keepdim: bool, dtype: Any) -> Any:
    if not _is_cut_along(x, dim) or dtype is not None or x.dtype.is_complex:
        return NotImplemented
    if ord == inf:
        return ops.amax(x.abs(), dim, keepdim)
    if ord == -inf:
        return ops.amin(x.abs(), dim, keepdim)
    if ord == 0:
        return (x != 0).sum(dim, keepdim).to(x.dtype)
    if ord == 1:
        return x.abs().sum(dim, keepdim)
    if ord != 2 or x.requires_grad:  # the gradient at 0 is that of the op alone
        return NotImplemented
    wide = x.to(float32) if x.dtype.itemsize < 4 else x
    return wide.square().sum(dim, keepdim).sqrt().to(x.dtype)


def _batch_norm_by_sums(input: DTensor, weight: Any, bias: Any, eps: float) -> Any:
    """Over the examples of all ranks: two short sums travel, not the batch."""
    dims = (0, *range(2, input._meta.ndim))
    if not isinstance(input, DTensor) or not _is_cut_along(input, dims):
        return NotImplemented
    row = (1, input._meta.shape[1], *[1] * (input._meta.ndim - 2))
    wide = input.to(float32) if input.dtype.itemsize < 4 else input
    center = wide.mean(dims, True).redistribute(placements=_by_channels(input))
    distance = wide - center
    variance = (distance * distance).mean(dims, True).redistribute(placements=_by_channels(input))
    out = distance * (variance + eps).rsqrt()
    if weight is not None:
        out = out * weight.reshape(row)
    if bias is not None:
        out = out + bias.reshape(row)
    return out.to(input.dtype), center.reshape(-1), variance.reshape(-1)


def _by_channels(x: DTensor) -> list[Placement]:
    """How one number a channel lies beside a batch."""
    return [p if isinstance(p, Shard) and p.dim == 1 else R for p in x._placements]


INSTEAD["mean"], INSTEAD["linalg_vector_norm"] = _mean_by_sum, _norm_by_sum
INSTEAD["batch_norm_train"] = _batch_norm_by_sums


# ---- norms
def _normed(call: Call) -> list[Way]:
    """layer_norm and rms_norm, along dims that are not cut."""
    rest: list[Placement | None] = [None if x is None else R for x in call.operands[1:]]
    return [((Shard(d), *rest), (Shard(d),)) for d in cuts(call) if d not in call.attrs["dim"]]


def _channels(call: Call) -> list[Way]:
    """Batch norm: each channel by itself."""
    rest: list[Placement | None] = [None if x is None else Shard(0) for x in call.operands[1:]]
    after = (Shard(1), *[Shard(0)] * (len(call.outs) - 1))
    return [((Shard(1), *rest), after) for d in cuts(call) if d == 1]


def _channels_by_statistics(call: Call) -> list[Way]:
    found = _channels(call)
    if 0 in cuts(call):
        rest: list[Placement | None] = [None if x is None else R for x in call.operands[1:]]
        found.append(((Shard(0), *rest), (Shard(0),)))
    return found


enter(Family(_normed), "layer_norm", "rms_norm")
enter(Family(_channels), "batch_norm_train")
enter(Family(_channels_by_statistics), "batch_norm_eval")
