"""Functions that make tensors of sizes and numbers: `zeros(2, 3)`, `arange(4)`, `zeros_like(x)`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ..ir.dtypes import DType
from ..ir.errors import ArgumentError
from ..ir.op import Op
from ..ir.pretended_gpus import count
from ..ir.types import Device
from .calls import eager
from .modes import CHANGED, local
from .overriding import OPEN, UNSERVED, answered
from .plan import memo, remember
from .refusal import require_flag
from .tensor import Tensor

new = object.__new__
# What PyTorch's factories take besides the record's own arguments, and the only values Lamina has for them.
_IGNORED = {
    "layout": (None, "strided"),
    "pin_memory": (False,),
    "memory_format": (None, "contiguous_format", "preserve_format", "channels_last", "channels_last_3d"),
}
# Factories whose result may be sparse: nothing is stored.
_NOTHING = frozenset(("empty", "empty_like", "zeros", "zeros_like"))
_TOLD = frozenset((int, bool, str, type(None), DType, Device))  # what means the same wherever it is equal
HELD = 256  # elements of a result up to which it is held


def factory(op: Op) -> Callable:
    """The public function of such an op, which takes `requires_grad` besides."""
    run, needs_no_device = eager(op), bool(op.operands)

    @functools.wraps(run)
    def make(*args: Any, requires_grad: bool = False, **kwargs: Any) -> Any:
        if not OPEN and not kwargs and requires_grad is False and (needs_no_device or not CHANGED):
            return run(*args)
        layout = None
        if OPEN:
            given = {**kwargs, "requires_grad": True} if requires_grad else kwargs
            if (found := answered(public, args, given)) is not UNSERVED:
                return found
        if type(requires_grad) is not bool:
            require_flag(op.name, "requires_grad", requires_grad)
        for name, allowed in _IGNORED.items() if kwargs else ():
            value = kwargs.pop(name, allowed[0])
            if value not in allowed and not (name == "pin_memory" and value is True and count()):
                is_sparse = isinstance(value, str) and value.startswith("sparse")
                if name != "layout" or op.name not in _NOTHING or not is_sparse:
                    raise ArgumentError(f"{op.name}({name}=…) is not supported")
                layout = value
        if kwargs and isinstance(kwargs.get("out"), Tensor) and kwargs.get("dtype") is None:
            if "dtype" in op.attrs:
                kwargs["dtype"] = kwargs["out"].dtype
        if CHANGED and not op.operands and kwargs.get("device") is None:
            if local.device is not None:
                kwargs["device"] = local.device
        made = run(*args, **kwargs)
        if layout is not None:
            made = made.to_sparse(layout=layout)
        return made.requires_grad_(requires_grad) if requires_grad is not False else made

    public = make if op.operands else _holding(make)
    return public


def _holding(make: Callable) -> Callable:
    """The same where results follow from the arguments: small ones that come again are copies of one held."""
    held: dict[tuple, Any] = memo()  # by arguments: its type and the array

    def hold(key: tuple, values: tuple, made: Any) -> None:
        """Keep a small result; the first time only that it was asked for."""
        if not all([type(a) in _TOLD or (type(a) is float and a) or _is_shape(a) for a in values]):
            return
        if key not in held:
            remember(held, key, ())
        elif type(made) is Tensor and type(made._data) is np.ndarray and made._data.size <= HELD:
            held[key] = made._meta, made._data.copy()

    @functools.wraps(make)
    def call(*args: Any, **kwargs: Any) -> Any:
        if OPEN or (CHANGED and (local.watched or local.inference or local.device is not None)):
            return make(*args, **kwargs)
        values = (*args, *kwargs.values()) if kwargs else args
        key: tuple | None = (values, *map(type, values), *kwargs) if kwargs else (args, *map(type, args))
        try:
            known = held.get(key)
        except TypeError:  # a list, say; what is made of it may fail, and is not to tell of this
            key = known = None
        if key is None:
            return make(*args, **kwargs)
        if not known:
            made = make(*args, **kwargs)
            if made.requires_grad is False:
                hold(key, values, made)
            return made
        made = new(Tensor)
        made._meta, array = known
        made._data = array.copy()
        made._storage = made._view = made._edge = None
        return made

    return call


def _is_shape(sizes: Any) -> bool:
    return type(sizes) is tuple and all([type(n) is int for n in sizes])
