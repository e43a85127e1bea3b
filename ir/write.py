"""The node that writes into a tensor: how a graph says what a program did in place.

    %0 = basic_index(%x) {index=(("int",0),)} : f32[3]
    %1 = mul(%0, 2.0:f32) : f32[3]
    %2 = write(%0, %1) : f32[3]

A recorder emits it behind the plain op that an in-place one stands for (`x[0].mul_(2)` above); optimizer
updates and other ops with `mutates` are recorded as they are, with one write for each operand they change.
The target may be a view, made by ops of ir/views.py: what shares its memory changes too, as `interpret`
shows, where views are NumPy's.  `view` makes a view, `reshape` may: a recorder says `view` where memory is
shared.

It is no operator of the operator set: nobody calls it.  passes/graphs/functionalise.py replaces writes by
values, and the other passes want graphs without them.
"""

from __future__ import annotations

import numpy as np

from . import lowering
from .dims import same
from .dtypes import category_at_least
from .errors import DTypeError, GraphError, ShapeError
from .graph import Graph
from .op import Op, Traits
from .types import Type


def infer_write(target: Type, value: Type) -> Type:
    """The target's type.  Raises ShapeError for another shape, DTypeError for a higher category."""
    if target.ndim != value.ndim or not all(map(same, target.shape, value.shape)):
        raise ShapeError(
            f"write(target, value): a value of shape {list(value.shape)} can't be written into "
            f"{list(target.shape)}",
            "copy(target, value) broadcasts it",
        )
    if not category_at_least(target.dtype, value.dtype.category):
        raise DTypeError(f"write(target, value): {value.dtype} can't be written into {target.dtype}")
    return target


def _write(target: np.ndarray, value: np.ndarray) -> np.ndarray:
    np.copyto(target, value, casting="unsafe")
    return target


write = Op(
    "write",
    operands=("target", "value"),
    attrs=(),
    infer=infer_write,
    reference=_write,
    lower=lowering.extern("functionalise leaves no write in a graph"),
    traits=Traits(movement=True, mutates=("target",)),
    samples=lambda: [],
    doc="Write `value`, cast to the dtype of `target`, into its memory; return the target.",
)


def need_values(name: str, graph: Graph) -> None:
    """Refuse a graph in which values are overwritten, for the pass `name`.  Raises GraphError."""
    for node in graph.nodes:
        if node.op is write:
            raise GraphError(
                f"{name}: graph {graph.name} holds writes, so a value is not the same throughout",
                str(node),
                "run functionalise first",
            )
