"""Modules made without drawing their parameters, or with these in PyTorch's other memory formats."""

from __future__ import annotations

import inspect
from typing import Any

from ...ir.errors import ArgumentError, ArgumentValueError
from ...runtime.random import fork_rng
from ..module import Module

__all__ = ["convert_conv2d_weight_memory_format", "convert_conv3d_weight_memory_format", "skip_init"]

FORMATS = ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")


def convert_conv2d_weight_memory_format(module: Module, memory_format: Any) -> Module:
    """Return the module: how its weights lie for the CPU's vectors is the compiler's affair.

    Raises ArgumentValueError for what is no memory format.
    """
    if memory_format not in FORMATS:
        raise ArgumentValueError(
            f"convert_conv_weight_memory_format: {memory_format!r} is none of {', '.join(FORMATS)}"
        )
    return module


convert_conv3d_weight_memory_format = convert_conv2d_weight_memory_format


def skip_init(module_cls: type[Module], *args: Any, **kwargs: Any) -> Any:
    """A module of a class that takes `device`, whose parameters may hold anything; nothing is drawn.

    Raises ArgumentError for no class of modules, ArgumentValueError for one that takes no device.
    """
    if not (isinstance(module_cls, type) and issubclass(module_cls, Module)):
        raise ArgumentError(f"skip_init(module_cls): a class of modules is wanted, not {module_cls!r}")
    if "device" not in inspect.signature(module_cls).parameters:
        raise ArgumentValueError(f"skip_init: {module_cls.__name__}(…) takes no device")
    with fork_rng():  # what the class draws is drawn by nobody
        return module_cls(*args, **kwargs)
