"""Classes derived from `Tensor`: how they are made, and what their instances answer.

Importing this module hangs `as_subclass`, `_make_subclass` and `__torch_function__` on `Tensor`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from sys import _getframe
from types import FunctionType
from typing import Any

from ..ir.dtypes import default_dtype
from ..ir.errors import ArgumentError
from ..ir.op import REGISTRY
from ..ir.types import CPU
from . import below
from .calls import eager
from .overriding import (
    BELOW,
    OPEN,
    TENSOR,
    UNSERVED,
    DisableTorchFunctionSubclass,
    answered,
    answered_below,
    overrides,
)
from .places import is_internal
from .tensor import Parameter, Tensor, fields, retyped
from .trees import like

# Methods written in Python that no edge stands around, and that give or take what a class may care about.
FORWARDED = (
    "detach", "to", "item", "tolist", "cpu", "numpy", "__bool__", "__int__", "__float__", "__len__",
)  # fmt: skip
PROPERTIES = ("data",)


def as_subclass(self: Tensor, cls: type) -> Any:
    """The same memory and history as a tensor of a class derived from Tensor.  Raises ArgumentError."""
    _require_class("as_subclass(cls)", cls)
    if self._node is not None:
        with DisableTorchFunctionSubclass():
            return retyped(_alias(self), cls)
    made = retyped(self.detach(), cls)
    made._view = self._view
    return made


def _alias(x: Tensor) -> Tensor:
    return eager(REGISTRY["view"])(x, x._meta.shape)


def _make_subclass(cls: type, data: Tensor, require_grad: bool = False) -> Any:
    """A tensor of class `cls` over the memory of `data`, without history.  Raises ArgumentError."""
    _require_class("_make_subclass(cls, data)", cls)
    if not isinstance(data, Tensor):
        raise ArgumentError(f"_make_subclass(cls, data): data must be a tensor, not {type(data).__name__}")
    made = retyped(Tensor.detach(data), cls)
    return made.requires_grad_() if require_grad else made


def _make_wrapper_subclass(
    cls: type, size: Any, strides: Any = None, storage_offset: Any = None, memory_format: Any = None,
    dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: bool = False,
    requires_grad: bool = False, dispatch_sizes_strides_policy: Any = None, dispatch_device: bool = False,
    dispatch_layout: bool = False,
) -> Any:  # fmt: skip
    """A tensor of class `cls` without memory, whose `__torch_dispatch__` does what ops do (below.py).

    It is contiguous, whatever the strides given.  Raises ArgumentError where the class has no such method.
    """
    _require_class("_make_wrapper_subclass(cls)", cls)
    if not cls._dispatches:  # type: ignore[attr-defined]
        raise ArgumentError(
            f"_make_wrapper_subclass: {cls.__name__} has no __torch_dispatch__ to do its ops",
            "hold the tensors in an object with __torch_function__, or derive from Tensor by _make_subclass",
        )
    return below.make(cls, size, dtype or default_dtype(), requires_grad)


def _require_class(call: str, cls: Any) -> None:
    if not (isinstance(cls, type) and issubclass(cls, Tensor)):
        raise ArgumentError(f"{call}: must be a class derived from Tensor, not {cls!r}")


def _torch_function(
    cls: type, func: Callable, types: tuple, args: tuple = (), kwargs: dict[str, Any] | None = None
) -> Any:
    """Call the function as if this class answered nothing, and give results this class.

    Returns NotImplemented where a class among `types` is none that this one derives from.
    """
    if not all(issubclass(cls, kind) for kind in types):
        return NotImplemented
    with DisableTorchFunctionSubclass():
        found = answered_below(func, args, kwargs or {})
        if found is UNSERVED:
            found = func(*args, **(kwargs or {}))
    kept = cls is Tensor or func in UNWRAPPED or cls._dispatches  # type: ignore[attr-defined]
    return found if kept else wrapped(found, cls)


UNWRAPPED: set[Callable] = set()  # whose results stay plain


def wrapped(found: Any, cls: type) -> Any:
    """A result with its tensors of class `cls`, in tuples and lists, too."""
    if isinstance(found, Tensor):
        return found if isinstance(found, cls) or issubclass(cls, Parameter) else retyped(found, cls)
    if type(found) is list:
        return [wrapped(x, cls) for x in found]
    if isinstance(found, tuple) and not hasattr(found, "numel"):
        return like(found, [wrapped(x, cls) for x in found])
    return found


def _forwarding(name: str, method: Callable) -> Callable:
    @functools.wraps(method)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        found = answered(method, (self, *args), kwargs)
        return method(self, *args, **kwargs) if found is UNSERVED else found

    return forward


def _forwarding_property(held: property) -> property:
    getter = functools.wraps(held.fget)(lambda x: held.fget(x))  # type: ignore[misc]
    getter.__name__ = "__get__"

    def get(self: Any) -> Any:
        found = answered(getter, (self,), {})
        return held.fget(self) if found is UNSERVED else found  # type: ignore[misc]

    return property(get, held.fset)


def _init_subclass(cls: type, **kwargs: Any) -> None:
    """A class of the user's: from here on edges ask."""
    super(Tensor, cls).__init_subclass__(**kwargs)  # type: ignore[misc]
    if cls.__module__.startswith("lamina."):
        return
    dispatch = getattr(cls, "__torch_dispatch__", None)
    cls._dispatches = dispatch is not None  # type: ignore[attr-defined]
    if dispatch is None and not overrides(cls):
        return
    for why in ("classes", "dispatches")[: 1 + (dispatch is not None)]:
        if why not in OPEN:
            OPEN.append(why)
    if dispatch is not None:
        for name, shown in _AS_IF_ON_THE_CPU.items():
            if name not in vars(cls):
                setattr(cls, name, shown)
    for name in OWN & _names_used(cls) - vars(cls).keys():
        setattr(cls, name, _apart(name, getattr(Tensor, name)))
    for name in FORWARDED:
        if name not in vars(cls):
            setattr(cls, name, _forwarding(name, getattr(Tensor, name)))
    for name in PROPERTIES:
        if name not in vars(cls):
            setattr(cls, name, _forwarding_property(vars(Tensor)[name]))


# What the library keeps in a tensor, and what classes of the user's may call an attribute, too.
OWN = {"_data", "_meta", "_edge", "_storage", "_view", "_node", "_resting"}


def _names_used(cls: type) -> set[str]:
    """The names of attributes, among others, in the methods that a class defines."""
    held = [getattr(x, "__func__", x) for x in vars(cls).values()]
    held += [f for x in held if isinstance(x, property) for f in (x.fget, x.fset)]
    return {name for f in held if isinstance(f, FunctionType) for name in f.__code__.co_names}


def _apart(name: str, slot: Any) -> property:
    """An attribute of which the library and the user's code have one each."""

    def read(self: Any) -> Any:
        if is_internal(_getframe(1).f_code.co_filename):
            return slot.__get__(self)
        if name not in fields(self):
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        return fields(self)[name]

    def write(self: Any, value: Any) -> None:
        if is_internal(_getframe(1).f_code.co_filename):
            slot.__set__(self, value)
        else:
            fields(self)[name] = value

    def delete(self: Any) -> None:
        if is_internal(_getframe(1).f_code.co_filename):
            slot.__delete__(self)
        else:
            fields(self).pop(name, None)

    return property(read, write, delete)


def _grad_outside(self: Any) -> Any:
    found = _GRAD.fget(self)
    return found if found is None else below.outer(found)


_GRAD = vars(Tensor)["grad"]
_AS_IF_ON_THE_CPU = {
    "device": property(lambda self: CPU),
    "grad": property(_grad_outside, lambda self, value: _GRAD.fset(self, below.plain(value, []))),
}


def disabled_torch_function(
    cls: type, func: Callable, types: tuple, args: tuple = (), kwargs: Any = None
) -> Any:
    """Nothing is answered."""
    with DisableTorchFunctionSubclass():
        return func(*args, **(kwargs or {}))


setattr(disabled_torch_function, "disabled", True)  # noqa: B010


def install() -> None:
    """Hang the methods on `Tensor`; done once, when the runtime is imported."""
    named = {
        "as_subclass": as_subclass, "_make_subclass": staticmethod(_make_subclass),
        "_make_wrapper_subclass": staticmethod(_make_wrapper_subclass), "_is_tensor": True,
        "__torch_function__": classmethod(_torch_function), "__init_subclass__": classmethod(_init_subclass),
    }  # fmt: skip
    for name, method in named.items():
        setattr(Tensor, name, method)
    setattr(Parameter, "__torch_function__", classmethod(disabled_torch_function))  # noqa: B010
    TENSOR.append(Tensor)
    BELOW.extend((below.called, below.outer))
    for name in ("__getitem__", "__setitem__", *FORWARDED):
        method = getattr(Tensor, name)
        method.__name__ = method.__qualname__ = name
    UNWRAPPED.update(getattr(Tensor, name) for name in ("numpy", "tolist", "item"))


install()
