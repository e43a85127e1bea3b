"""`lamina.overrides`: asking about `__torch_function__`, as PyTorch's module of that name does."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from types import FunctionType
from typing import Any

from .. import nn, runtime
from ..ir.errors import ArgumentError
from ..runtime.overriding import (
    OPEN,
    UNSERVED,
    DisableTorchFunction,
    DisableTorchFunctionSubclass,
    TorchFunctionMode,
    answered,
    asked,
    overrides,
    relevant,
)
from ..runtime.subclassing import UNWRAPPED
from ..runtime.tensor import Tensor
from . import fft, linalg, special

BaseTorchFunctionMode = TorchFunctionMode


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether one of these objects answers calls, or a mode does."""
    if runtime.modes.local.functions:
        return True
    return any(overrides(type(x)) for x in relevant_args)


def has_torch_function_unary(x: Any) -> bool:
    """`has_torch_function` of one object."""
    return has_torch_function((x,))


def has_torch_function_variadic(*args: Any) -> bool:
    """`has_torch_function` of the arguments."""
    return has_torch_function(args)


def handle_torch_function(
    public_api: Callable, relevant_args: Iterable[Any], *args: Any, **kwargs: Any
) -> Any:
    """Have a call answered: by the innermost mode, else by one of `relevant_args`.

    Raises ArgumentError (a TypeError) where none of them does.
    """
    if runtime.modes.local.functions:
        found = answered(public_api, args, kwargs)
        if found is not UNSERVED:
            return found
    if "objects" not in OPEN:  # the functions called inside may meet them
        OPEN.append("objects")
    return asked(relevant([*relevant_args]), public_api, args, kwargs)


def wrap_torch_function(dispatcher: Callable) -> Callable:
    """Decorate a function so that objects answer it which `dispatcher(*args, **kwargs)` names."""

    def decorate(function: Callable) -> Callable:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            asked_first = dispatcher(*args, **kwargs)
            if has_torch_function(asked_first):
                return handle_torch_function(wrapped, asked_first, *args, **kwargs)
            return function(*args, **kwargs)

        return wrapped

    return decorate


def is_tensor_like(inp: Any) -> bool:
    """Whether an object is a tensor or has `__torch_function__`."""
    return isinstance(inp, Tensor) or hasattr(inp, "__torch_function__")


def get_default_nowrap_functions() -> set[Callable]:
    """Functions whose results the default `__torch_function__` gives no derived class."""
    return set(UNWRAPPED)


def _spaces() -> dict[str, Any]:
    from_root = {name: function for name, function in vars(runtime).items() if name[0] != "_"}
    return {
        "torch": from_root, "torch.Tensor": vars(Tensor), "torch.nn.functional": vars(nn.functional),
        "torch.linalg": vars(linalg), "torch.special": vars(special), "torch.fft": vars(fft),
    }  # fmt: skip


def get_overridable_functions() -> dict[str, list[Callable]]:
    """The functions that `__torch_function__` hears of, by the name of where they stand."""
    return {
        name: [f for n, f in space.items() if type(f) is FunctionType and (n[0] != "_" or n[1] == "_")]
        for name, space in _spaces().items()
    }


def resolve_name(f: Callable) -> str | None:
    """A function's name as PyTorch spells it: "torch.add"; None where it has none."""
    for name, space in _spaces().items():
        for spelled, function in space.items():
            if function is f:
                return f"{name}.{spelled}"
    return None


def is_tensor_method_or_property(func: Callable) -> bool:
    """Whether a function heard of is a method of tensors or the getter of a property."""
    if not callable(func):
        raise ArgumentError(
            f"is_tensor_method_or_property(func): takes a function, not {type(func).__name__}"
        )
    return any(f is func for f in vars(Tensor).values()) or getattr(func, "__name__", "") == "__get__"


__all__ = [
    "BaseTorchFunctionMode", "DisableTorchFunction", "DisableTorchFunctionSubclass", "TorchFunctionMode",
    "get_default_nowrap_functions", "get_overridable_functions", "handle_torch_function",
    "has_torch_function", "has_torch_function_unary", "has_torch_function_variadic",
    "is_tensor_like", "is_tensor_method_or_property", "resolve_name", "wrap_torch_function",
]  # fmt: skip
