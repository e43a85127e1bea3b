"""What the functions of tensors are on the values of a graph: ops' records, and what is written with them.

A function of tensors that meets a value asks here (`modes.on_values`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ...ir.dims import Dim
from ...ir.graph import Value, active
from ...ir.op import COMPOSITES, REGISTRY, Op
from ...ir.ops.getitem import split_index
from ...ir.ops.random import draws
from ...runtime import Tensor
from ...runtime.dispatch import EAGER, torch_names
from ...runtime.modes import UNSERVED
from ...runtime.refusal import unwrapped

# What a factory takes besides, and means nothing to a value.
_IGNORED: dict[str, tuple] = {
    "requires_grad": (False,), "layout": (None, "strided"), "pin_memory": (False,), "out": (None,),
    "memory_format": (None, "contiguous_format", "preserve_format"), "device": (None,),
}  # fmt: skip


# Attributes of tensors that are ops.
OF_VALUES: dict[str, Callable[[Value], Any]] = {
    "T": lambda x: REGISTRY["permute"](x, dims=tuple(reversed(range(x.ndim)))),
    "data": lambda x: x,  # the same memory
}


@functools.cache
def records(count: int) -> dict[Callable, tuple[Op, bool]]:
    """The functions and methods of so many ops, with the op and whether it is the form that writes."""
    found: dict[Callable, tuple[Op, bool]] = {}
    for op in REGISTRY.values():
        if (apply := EAGER.get(op)) is not None:
            found[unwrapped(apply)] = op, False
        for name in (op.name, *op.aliases):
            if op.traits.inplace and (apply := vars(Tensor).get(f"{name}_")) is not None:
                found[unwrapped(apply)] = op, True
    return found


def on_values(function: Callable) -> Callable:
    """What a function of tensors is on values."""
    inner = unwrapped(function)
    if (found := records(len(REGISTRY)).get(inner)) is not None:
        return functools.partial(_applied, found[0])
    name = getattr(inner, "__name__", "")
    if (op := REGISTRY.get(name)) is not None and getattr(inner, "__wrapped__", None) in EAGER.values():
        return functools.partial(_applied, op)
    composite = COMPOSITES.get(name)
    written = getattr(inner, "__wrapped__", inner)
    if composite is not None and written.__code__ is unwrapped(composite.function).__code__:
        return composite.function
    return inner


def setitem(x: Value, index: Any, value: Any) -> None:
    """What `x[index] = value` computes: the part with what is written there."""
    part, indices = split_index(x, index)
    if indices:
        REGISTRY["index_put"](part, indices, value)
    else:
        REGISTRY["copy"](part, value)


class Answer:
    """Makes calls with values.  symbolic: gives the value for the state operand of a draw."""

    def __init__(self, symbolic: Any):
        self._symbolic = symbolic

    def __call__(self, function: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
        """What a function that is given values makes of them; UNSERVED where it is given none."""
        if not _stands(args, 2) and not _stands(tuple(kwargs.values()), 2):
            return UNSERVED
        return on_values(function)(*args, **kwargs)

    def draw(self, name: str, args: tuple, generator: Any, operand: Any, kwargs: dict[str, Any]) -> Any:
        """Random numbers, as `random.draw` has them."""
        op, state = REGISTRY[name], self._symbolic.state()
        before = () if operand is None else operand if isinstance(operand, tuple) else (operand,)
        operands, attrs = op.bind(*before, state, *args, **kwargs)
        self._symbolic.takes(state, draws(op, *(x.type for x in operands), **attrs))
        visible = active().emit(op, operands, attrs).visible
        return visible[0] if len(visible) == 1 else visible


def _stands(given: Any, deep: int) -> bool:
    """Whether a value or a dimension is among some."""
    if isinstance(given, (Value, Dim)):
        return True
    return bool(deep) and isinstance(given, (tuple, list)) and any(_stands(x, deep - 1) for x in given)


def _applied(op: Op, *args: Any, **kwargs: Any) -> Any:
    """A node of the graph that is being built."""
    named = torch_names(op, kwargs)
    if not op.operands:
        for name, allowed in _IGNORED.items():
            if name in named and named[name] in allowed:
                del named[name]
    return active().apply(op, args, named)
