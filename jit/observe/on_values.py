"""What the functions of tensors are on the values of a graph: ops' records, and what is written with them.

A function of tensors that meets a value asks here (`modes.on_values`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...ir.dims import Dim
from ...ir.dtypes import DType
from ...ir.graph import Value, active
from ...ir.op import COMPOSITES, REGISTRY, Op
from ...ir.ops.random import draws
from ...runtime import Tensor
from ...runtime.calls import EAGER
from ...runtime.dispatch import torch_names
from ...runtime.methods import ARITHMETIC
from ...runtime.modes import UNSERVED
from ...runtime.refusal import unwrapped
from ..symbolic import IN_ORDER

RESHAPING = frozenset(("reshape", "flatten"))  # views, or copies
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


def _to(x: Any, *args: Any, dtype: Any = None, **kwargs: Any) -> Any:
    """`x.to(dtype)` and `x.to(other)`.  Raises AttributeError for what else `to` takes."""
    for given in args:
        dtype = given.dtype if isinstance(given, Value) else given
    if len(args) > 1 or kwargs or not isinstance(dtype, DType):
        raise AttributeError("a value of a graph has no `to` of these arguments")
    return x if dtype is x.dtype else REGISTRY["cast"](x, dtype=dtype)


def _assign(x: Value, index: Any, value: Any) -> None:
    """`x[index] = value`: where the index is basic and sizes fit, a copy into a view; else as written."""
    items = index if isinstance(index, tuple) else (index,)
    basic = all(item is None or item is Ellipsis or type(item) in (int, slice, Dim) for item in items)
    if not isinstance(value, (Value, Tensor)):
        if not isinstance(value, (bool, int, float)):
            raise AttributeError("a value of a graph is assigned numbers and tensors")
        value = active().constant(np.asarray(value, x.dtype.numpy))
    if basic and (x.ndim or isinstance(index, tuple)):
        part = x[index]
        if not value.ndim or len(value.shape) == len(part.shape) and tuple(value.shape) == part.shape:
            _written(REGISTRY["copy"], part, value)
            return
    COMPOSITES["setitem_"].function(x, index, value)


# Methods of tensors that are not written with ops.  Where a history ends is no matter of types.
_METHODS: dict[str, Callable] = {
    "detach": lambda x: x,  # the same memory
    "to": _to,
    "type_as": lambda x, other: _to(x, other),
    "zero_": lambda x: _written(REGISTRY["fill"], x, 0),
    "fill_": lambda x, value: _written(REGISTRY["fill"], x, value),
    "__setitem__": _assign,
    "dim": Value.dim,
    "is_floating_point": lambda x: x.dtype.is_floating_point,
    "is_complex": lambda x: x.dtype.is_complex,
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
    for spelled, name in ARITHMETIC.items():
        if (apply := vars(Tensor).get(f"__i{spelled}__")) is not None:
            found[unwrapped(apply)] = REGISTRY[name], True
    return found


@functools.cache
def _methods() -> dict[Callable, Callable]:
    return {unwrapped(vars(Tensor)[name]): method for name, method in _METHODS.items()}


def on_values(function: Callable) -> Callable:
    """What a function of tensors is on values."""
    inner = unwrapped(function)
    if (found := records(len(REGISTRY)).get(inner)) is not None:
        op, written = found
        return functools.partial(_written if written else _applied, op)
    if (method := _methods().get(inner)) is not None:
        return method
    name = getattr(inner, "__name__", "")
    if (op := REGISTRY.get(name)) is not None and getattr(inner, "__wrapped__", None) in EAGER.values():
        return functools.partial(_applied, op)
    composite = COMPOSITES.get(name)
    written = getattr(inner, "__wrapped__", inner)
    if composite is not None and written.__code__ is unwrapped(composite.function).__code__:
        return _fresh(composite.function) if composite.fresh else composite.function
    return inner


def _fresh(function: Callable) -> Callable:
    """The function, whose result is new memory."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return _apart(function(*args, **kwargs), (*args, *kwargs.values()))

    return call


def _apart(found: Any, operands: tuple) -> Any:
    """A result, copied where it is an operand or a view of one, as `ops.apart` has it.

    A reshape is taken for a copy behind what moves elements; where that is wrong, what is heard differs.
    """
    values = {x for x in operands if isinstance(x, Value)}
    root, reshaped, moved = found, False, False
    for node in reversed(active()._nodes):
        if root not in values and node.op.traits.view and node.outputs[0] is root:
            root = node.inputs[0]
            moved = moved or reshaped and node.op.name not in IN_ORDER
            reshaped = reshaped or node.op.name in RESHAPING
    shared = isinstance(found, Value) and root in values and not moved
    return REGISTRY["clone"](found) if shared else found


class Answer:
    """Makes calls with values.  symbolic: gives the value for the state operand of a draw."""

    def __init__(self, symbolic: Any):
        self._symbolic = symbolic

    def __call__(self, function: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
        """What a function that is given values makes of them; UNSERVED where it is given none."""
        if not _stands(args, 2) and not _stands(tuple(kwargs.values()), 2):
            return UNSERVED
        return on_values(function)(*args, **kwargs)

    def value(self, x: Any) -> Any:
        """The value for a tensor, one that the library has, or that a call has made of numbers."""
        return self._symbolic.met(x)

    def attribute(self, x: Value, name: str) -> Any:
        """What a value has of that which tensors have.  Raises AttributeError."""
        if name in OF_VALUES:
            return OF_VALUES[name](x)
        held = next((vars(kind)[name] for kind in Tensor.__mro__ if name in vars(kind)), None)
        if isinstance(held, property) and held.fget is not None:
            return held.fget(x)
        if callable(held) and not name.startswith("__"):
            return functools.partial(on_values(held), x)
        raise AttributeError(f"a value of a graph has no {name}", name=name, obj=x)

    def apart(self, found: Any, operands: tuple) -> Any:
        """A result that is no operand's memory."""
        return _apart(found, operands)

    def write(self, op: Op, operands: tuple, attrs: Mapping[str, Any]) -> Any:
        """Write the result of an op over its first operand, as `inplace.write` does."""
        active().emit(op, operands, attrs)
        return operands[0]

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


def _written(op: Op, x: Any, *args: Any, **kwargs: Any) -> Any:
    """A node for a write: what was written stays the value that it was, of a type."""
    _applied(op, x, *args, **kwargs)
    return x


def _applied(op: Op, *args: Any, **kwargs: Any) -> Any:
    """A node of the graph that is being built."""
    named = torch_names(op, kwargs)
    if not op.operands:
        for name, allowed in _IGNORED.items():
            if name in named and named[name] in allowed:
                del named[name]
    return active().apply(op, args, named)
