"""What the face hands on only when it is asked for: the compiler, which loads LLVM, and ops entered later."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ..runtime import ops

ROOMS = ("jit",)


def __getattr__(name: str) -> Any:
    """A room of the package that is imported at its first use, or an op.  Raises AttributeError."""
    if name in ROOMS:
        return import_module(f"{__name__.partition('.')[0]}.{name}")
    return ops.__getattr__(name)
