"""The node that makes a number of a dimension: where a graph computes with a size that is still a symbol.

    %3 = size() {value=2*n} : i64[]

It is no operator of the operator set: builders emit it where a dimension is the operand of an op.
"""

from __future__ import annotations

import numpy as np

from . import lowering
from .dtypes import int64
from .op import Op, Traits
from .types import type_of

size = Op(
    "size",
    operands=(),
    attrs=("value",),
    bind=lambda value: ((), {"value": value}),
    infer=lambda *, value: type_of(int64, ()),
    reference=lambda *, value: np.asarray(value, np.int64),
    lower=lowering.kernel(lambda k, *, value: k.store(k.cast(value, int64), at=k.parallel())),
    traits=Traits(creation=True),
    samples=lambda: [],
    doc="Give a dimension as a number.",
)
