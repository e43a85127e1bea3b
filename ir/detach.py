"""The node at which history ends: its operand's values, to which no gradient flows back.

    %1 = detach(%0) : f32[3]

It is no operator of the operator set: `Tensor.detach` shares memory and runs no op.  A recorder emits it
where a run's history ended, so that differentiating the record gives the run's own gradients: at a detached
tensor, and at what was computed of tensors with history under `no_grad`.
"""

from __future__ import annotations

from . import lowering
from .op import Op, Traits

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
