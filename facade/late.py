"""What the face hands on only when it is asked for: the compiler, which loads LLVM, rooms that few programs
enter, and ops entered later.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ..ir.errors import ArgumentValueError
from ..runtime import Tensor, ops

ROOT = __name__.partition(".")[0]
# By the name that is asked for: the module.
ROOMS = {
    "array_api": "array_api",
    "fx": "facade.fx",
    "fx._symbolic_trace": "facade.fx",
    "hub": "facade.hub",
    "jit": "jit",
    "jit.annotations": "facade.annotations",
    "library": "facade.library",
    "multiprocessing": "facade.multiprocessing",
}


def __getattr__(name: str) -> Any:
    """A room of the package that is imported at its first use, or an op.  Raises AttributeError."""
    if name in ROOMS:
        return import_module(f"{ROOT}.{ROOMS[name]}")
    if name == "ops":
        return import_module(f"{ROOT}.facade.library").registry
    return ops.__getattr__(name)


def __array_namespace__(self, /, *, api_version: str | None = None) -> Any:
    """The functions of the array API standard for tensors.  Raises ArgumentValueError for another version."""
    found = __getattr__("array_api")
    if api_version not in (None, found.__array_api_version__):
        raise ArgumentValueError(
            f"__array_namespace__(api_version): there is {found.__array_api_version__!r}, not {api_version!r}"
        )
    return found


def to_device(self, device: Any, /, *, stream: Any = None) -> Tensor:
    """The tensor on a device, as the array API standard spells it.  Raises DeviceError."""
    if stream is not None:
        raise ArgumentValueError(f"to_device(stream): memory of the CPU has no stream, not {stream!r}")
    return self.to(device=device)


for _method in (__array_namespace__, to_device):  # the standard's own, which PyTorch lacks
    setattr(Tensor, _method.__name__, _method)
