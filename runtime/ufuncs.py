"""NumPy's elementwise functions on tensors: np.sqrt(x) is sqrt(x), and array * x is the tensor's own product.

Importing this module hangs `__array_ufunc__` on `Tensor`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir.errors import ArgumentError
from . import ops
from .tensor import Tensor, tensor_of

# The operator of a ufunc, and the one that does the same with its operands exchanged.
OPERATORS = {
    np.add: ("__add__", "__radd__"), np.subtract: ("__sub__", "__rsub__"),
    np.multiply: ("__mul__", "__rmul__"), np.true_divide: ("__truediv__", "__rtruediv__"),
    np.floor_divide: ("__floordiv__", "__rfloordiv__"), np.remainder: ("__mod__", "__rmod__"),
    np.power: ("__pow__", "__rpow__"), np.matmul: ("__matmul__", "__rmatmul__"),
    np.bitwise_and: ("__and__", "__rand__"), np.bitwise_or: ("__or__", "__ror__"),
    np.bitwise_xor: ("__xor__", "__rxor__"), np.left_shift: ("__lshift__", "__rlshift__"),
    np.right_shift: ("__rshift__", "__rrshift__"),
    np.less: ("__lt__", "__gt__"), np.less_equal: ("__le__", "__ge__"), np.greater: ("__gt__", "__lt__"),
    np.greater_equal: ("__ge__", "__le__"), np.equal: ("__eq__", "__eq__"),
    np.not_equal: ("__ne__", "__ne__"),
}  # fmt: skip
# The others that have an op, where NumPy's name is not the op's.
RENAMED = {"conjugate": "conj", "fabs": "abs", "power": "pow", "invert": "bitwise_not"}


def _array_ufunc(self: Tensor, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
    """Apply the op that does what a ufunc does.  Raises ArgumentError where there is none."""
    name = ufunc.__name__
    if method != "__call__" or kwargs:
        call = name if method == "__call__" else f"{name}.{method}"
        raise ArgumentError(
            f"np.{call}({', '.join(kwargs)}{'=…' if kwargs else '…'}) does not take tensors",
            "give it x.detach().numpy(), an array over the same memory",
        )
    if ufunc in OPERATORS:
        first, second = inputs
        straight, swapped = OPERATORS[ufunc]
        if isinstance(first, Tensor):
            return getattr(first, straight)(second)
        return getattr(second, swapped)(first)
    function = ops.FUNCTIONS.get(RENAMED.get(name, name))
    if function is None:
        raise ArgumentError(
            f"np.{name} has no counterpart for tensors",
            "give it x.detach().numpy(), an array over the same memory",
        )
    return function(*(x if isinstance(x, Tensor) else tensor_of(np.asarray(x)) for x in inputs))


Tensor.__array_ufunc__ = _array_ufunc
