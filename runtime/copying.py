"""Copies of tensors: deep ones, shallow ones, pickles."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np

from ..ir import dtypes
from ..ir.dtypes import over
from ..ir.errors import GradError
from . import modes
from .memory_view import memory_of
from .meta import NoValues
from .meta import array as nothing
from .on_device import OnDevice, on_host
from .storage import Storage
from .tensor import Parameter, Tensor, fields, leaf, retyped, slots, tensor_of, wrap


def _deepcopy(self: Tensor, memo: dict) -> Tensor:
    if modes.CHANGED:
        modes.tell("refuse", "a tensor was deep-copied")
    if not self.is_leaf:
        raise GradError("only leaves can be deep-copied", f"tensor: {self._meta}", "use x.detach().clone()")
    if id(self) in memo:
        return memo[id(self)]
    if issubclass(type(self), Parameter):  # as PyTorch's: without its gradient, and without what hangs on it
        memo[id(self)] = made = type(self)(wrap(self._data.copy(), self._meta), self.requires_grad)
        return made
    memo[id(self)] = made = retyped(_over_copied_memory(self, memo), type(self))
    if self._node is not None:
        made._node = leaf(made)
    if self.grad is not None:
        made.grad = deepcopy(self.grad if self.grad.is_leaf else self.grad.detach(), memo)
    if fields(self):
        vars(made).update(deepcopy(fields(self), memo))
    for name, value in slots(self).items():
        setattr(made, name, deepcopy(value, memo))
    return made


def _over_copied_memory(x: Tensor, memo: dict) -> Tensor:
    """The tensor over a copy of all memory that it is a part of, one for all that one call finds there."""
    data, store = x._data, x._storage
    root = data if x._view is None else x._view[0]._data
    if store is None or type(data) is not np.ndarray or min((*root.strides, *data.strides), default=0) < 0:
        return wrap(data.copy("K") if type(data) is np.ndarray else data.copy(), x._meta)
    copied: Any = memo.get(id(store))
    if copied is None:
        copied = memo[id(store)] = Storage()
        copied.memory = memory_of(x).copy()
    line = copied.memory
    line = line if line.dtype == data.dtype else line.view(data.dtype)
    made = wrap(over(line[x.storage_offset() :], data.shape, data.strides), x._meta)
    made._storage = copied
    return made


def _reduce(self: Tensor, protocol: int) -> tuple:
    if modes.CHANGED:
        modes.tell("refuse", "a tensor was pickled")
    if issubclass(type(self), Parameter):
        return self.__reduce__()  # type: ignore[return-value]
    data = self._data
    kind: tuple = () if type(self) is Tensor else (type(self),)
    held = slots(self)
    state: tuple = ((fields(self), held),) if held else (fields(self),) if fields(self) else ()
    if type(data) is NoValues:
        return (_restored_nowhere, (self._meta, self.requires_grad, *kind), *state)
    raw = (on_host(data).tobytes(), self._meta.dtype.name, data.shape)
    if type(data) is OnDevice:
        kind = (type(self), str(self._meta.device))
    return (_restored, (*raw, self.requires_grad, *kind), *state)


def _restored(
    raw: bytes, dtype: str, shape: tuple, requires_grad: bool, cls: type = Tensor, device: str = "cpu"
) -> Tensor:
    array = np.frombuffer(bytearray(raw), dtypes.dtype_named(dtype).numpy).reshape(shape)
    made = retyped(tensor_of(array).to(device), cls)
    return made.requires_grad_() if requires_grad else made


def _restored_nowhere(kind: Any, requires_grad: bool, cls: type = Tensor) -> Tensor:
    made = retyped(wrap(nothing(kind), kind), cls)
    return made.requires_grad_() if requires_grad else made


def _copy_object(self: Tensor) -> Tensor:
    """Another tensor over the same memory, with the same attributes."""
    if modes.CHANGED:
        modes.tell("refuse", "a tensor was copied by copy.copy")
    made = retyped(self.detach(), type(self))
    if self._node is not None:
        made.requires_grad_()
    vars(made).update(fields(self))
    for name, value in slots(self).items():
        setattr(made, name, value)
    return made


def _module_load(self: Tensor, other: Tensor, assign: bool = False) -> Tensor:
    """What `load_state_dict` swaps with this parameter or buffer for `other`, which the state has.

    Neither of the two: here, with the state's values, or `other` itself.  Asked under
    `__future__.set_swap_module_params_on_conversion(True)`; classes may answer otherwise.
    """
    return other.detach() if assign else self.copy_(other).detach()


METHODS: dict[str, Any] = {
    "__deepcopy__": _deepcopy,
    "__reduce_ex__": _reduce,
    "__copy__": _copy_object,
    "module_load": _module_load,
}
