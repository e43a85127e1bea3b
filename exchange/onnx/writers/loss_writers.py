"""Write what losses have of their own."""

from __future__ import annotations

from typing import Any

from ....ir.dtypes import int64
from ....ir.ops.cross_entropy import class_dim
from .graph_writer import made, stand_in, the


@stand_in("softmax_cross_entropy_grad")
def cross_entropy_grad(
    g: Any, input: Any, target: Any, weight: Any, high: Any, rest: Any, total: Any, *,
    ignore_index: int, reduction: str, label_smoothing: float, subtract: bool,
) -> Any:  # fmt: skip
    where, eq, unsqueeze = the("where"), the("eq"), the("unsqueeze")
    dim, s = class_dim(input), label_smoothing
    classes, thin = input.shape[dim], (-1,) + (1,) * (input.ndim - 1 - dim)
    kept = the("ne")(target, ignore_index)
    safe = where(kept, target, 0)
    chosen: Any = 1.0
    asked: Any = 1.0
    if weight is not None:
        row = the("reshape")(the("gather")(weight, 0, the("reshape")(safe, (-1,))), target.shape)
        chosen = asked = unsqueeze(row, dim)
        if s:
            asked = chosen * (1 - s) + the("sum")(weight) * (s / classes)
    value = the("exp")((input - unsqueeze(high, dim)) - unsqueeze(rest, dim)) * asked
    if subtract:
        places = the("reshape")(made("arange", classes, dtype=int64), thin)
        value = value - where(eq(places, unsqueeze(safe, dim)), chosen * (1 - s), 0.0)
        if s:
            value = value - (s / classes if weight is None else the("reshape")(weight, thin) * (s / classes))
    scale = unsqueeze(g, dim) if reduction == "none" else g / total if reduction == "mean" else g
    return where(unsqueeze(kept, dim), value * scale, 0.0)
