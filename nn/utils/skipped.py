"""Make a module without drawing its parameters."""

from __future__ import annotations

import inspect
from typing import Any

from ...ir.errors import ArgumentError, ArgumentValueError
from ...runtime.random import fork_rng
from ..module import Module

__all__ = ["skip_init"]


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
