"""The node by which a part of an array is written where the array is, and nothing else of it is touched.

    %4 = put(%p1, %2, %3) {body=graph index_put(...) -> (f32[1,12,1024,64]) {...}} : f32[1,12,1024,64]

It is no operator of the operator set: `passes/graphs/puts_apart.py` makes it.  Its body is one node, whose
first operand is the array; its kernel writes what the others say over that (`passes/graphs/putting.py`).
"""

from __future__ import annotations

from typing import Any

from . import lowering
from .errors import GraphError
from .graph import Graph, active
from .interpret import interpret
from .op import Op, Traits
from .types import Type


def _infer(*types: Type, body: Graph) -> tuple[Type, ...]:
    wanted = tuple(p.type for p in body.params)
    if types != wanted:
        raise GraphError(
            f"put(*operands): graph {body.name} takes ({', '.join(map(str, wanted))}), "
            f"got ({', '.join(map(str, types))})"
        )
    return tuple(v.type for v in body.results)


def _inlined(*values: Any, body: Graph) -> tuple[Any, ...]:
    return active().inline(body, *values)


put = Op(
    "put",
    operands=("*operands",),
    attrs=("body",),
    outputs=("result",),
    bind=lambda *operands, body: (operands, {"body": body}),
    infer=_infer,
    reference=lambda *operands, body: interpret(body, *operands),
    lower=lowering.decomposition(_inlined),
    traits=Traits(movement=True),
    samples=lambda: [],
    doc="Write a part of an array, in place where nobody needs what it was.",
)
