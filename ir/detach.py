"""The nodes at which history ends, or goes another way than values do.

    %1 = detach(%0) : f32[3]
    %2 = crossing(%1, %0) {scale=0.5, groups=((0,1),)} : f32[3]

They are no operators of the operator set: `Tensor.detach` shares memory and runs no op.  A recorder emits
`detach` where a run's history ended, so that differentiating the record gives the run's own gradients: at a
detached tensor, and at what was computed of tensors with history under `no_grad`.

A crossing has the values of its first operand and the history of its second, whose cotangent is scaled and
summed over groups of ranks: where a tensor passes between ranks that each have the whole of its cotangent,
and ranks that have shares of it (`distributed/tensor/crossings.py`).
"""

from __future__ import annotations

from typing import Any

from . import lowering
from .op import REGISTRY, Op, Traits

detach = Op(
    "detach",
    operands=("input",),
    attrs=(),
    infer=lambda input: input,
    reference=lambda input: input,  # the same memory
    lower=lowering.pointwise(lambda input: input),
    traits=Traits(elementwise=True, movement=True),
    samples=lambda: [],
    doc="Give the values without their history.",
)


def _crossed(g: Any, scale: float, groups: tuple[tuple[int, ...], ...]) -> Any:
    """The cotangent of what crossed."""
    g = g if scale == 1 else g * scale
    for group in groups:
        g = REGISTRY["all_reduce"](g, "sum", group)
    return g


crossing = Op(
    "crossing",
    operands=("value", "source"),
    attrs=("scale", "groups"),
    infer=lambda value, source, *, scale, groups: value,
    reference=lambda value, source, *, scale, groups: value.copy(),
    grad=(None, _crossed),
    complex="stated",
    lower=lowering.pointwise(lambda value, source, scale, groups: value),
    traits=Traits(elementwise=True, movement=True),
    samples=lambda: [],
    doc="Give the first operand's values the history of the second.",
)
