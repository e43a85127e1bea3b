"""The node that holds a graph: what passes make when they have decided that some ops become one kernel.

It is no operator of the operator set: nobody calls it, and its rules are those of the graph it holds.
"""

from __future__ import annotations

from typing import Any

from . import lowering
from .by_pairs import by_pairs
from .detach import crossing, detach
from .errors import GraphError
from .graph import Graph, active
from .interpret import interpret
from .op import Op, Traits
from .put import put
from .recur import recurrent
from .size import size
from .types import Type
from .write import write


def infer_fused(*types: Type, body: Graph) -> tuple[Type, ...]:
    """The types of the body's results.  Raises GraphError where the operands aren't what the body takes."""
    wanted = tuple(p.type for p in body.params)
    if types != wanted:
        raise GraphError(
            f"fused(*operands): graph {body.name} takes ({', '.join(map(str, wanted))}), "
            f"got ({', '.join(map(str, types))})"
        )
    return tuple(v.type for v in body.results)


def inlined(*values: Any, body: Graph) -> tuple[Any, ...]:
    """The body's nodes in place of the one that holds it."""
    return active().inline(body, *values)


fused = Op(
    "fused",
    operands=("*operands",),
    attrs=("body",),
    outputs=("*results",),
    bind=lambda *operands, body: (operands, {"body": body}),
    infer=infer_fused,
    reference=lambda *operands, body: interpret(body, *operands),
    lower=lowering.decomposition(inlined),
    traits=Traits(movement=True),  # the nodes inside widen halves for themselves
    samples=lambda: [],
    doc="Run a graph as one node.",
)

# The ops that graphs may hold beside those of the operator set.
STRUCTURAL = {op.name: op for op in (fused, by_pairs, put, recurrent, size, detach, crossing, write)}
