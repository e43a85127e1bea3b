"""`lamina.serialization`: what PyTorch keeps in torch.serialization."""

from __future__ import annotations

from types import ModuleType
from typing import IO, Any, TypeAlias
from warnings import warn

from ..ir.errors import ArgumentValueError
from ..runtime.checkpoints.classes import add_safe_globals, clear_safe_globals, get_safe_globals, safe_globals
from ..runtime.checkpoints.names import RefusedNameError
from ..runtime.checkpoints.own_form import SavedFileError
from ..runtime.checkpoints.reader import Place, located
from ..runtime.checkpoints.saving import ZIP, get_unsafe_globals_in_checkpoint, load, save
from ..runtime.layouts import LAYOUTS, Layout
from ..runtime.memory_view import TypedStorage

MAP_LOCATION: TypeAlias = Place


def get_crc32_options() -> bool:
    """Whether `save` writes checksums: always."""
    return True


def set_crc32_options(compute_crc32: bool) -> None:
    """Have `save` write checksums, as it always does.  Raises ArgumentValueError where it should not."""
    if not compute_crc32:
        raise ArgumentValueError(
            "set_crc32_options(compute_crc32): False is not built: files always have their checksums"
        )


def default_restore_location(storage: TypedStorage, location: str) -> TypedStorage:
    """The storage at a location, the CPU or meta.  Raises DeviceError for a device that is not there."""
    return located(None, storage, location)


class SourceChangeWarning(Warning):
    """What programs tell `warnings` to let pass: the source of a module in a file is not looked at."""


def check_module_version_greater_or_equal(
    module: ModuleType, req_version_tuple: tuple[Any, ...], error_if_malformed: bool = True
) -> bool:
    """Whether a module's `__version__` is at least this one, part by part.

    Raises ArgumentValueError for one that can't be compared, or warns, and says yes.
    """
    parts = module.__version__.split(".")
    try:
        return tuple(type(r)(part) for r, part in zip(req_version_tuple, parts)) >= req_version_tuple
    except ValueError as error:
        told = f"{module.__name__!r} module version is malformed: {module.__version__!r}"
        if error_if_malformed:
            raise ArgumentValueError(told) from error
        warn(f"{told}, but continuing", stacklevel=2)
        return True


def _is_zipfile(f: IO[bytes]) -> bool:
    at = f.tell()
    start: Any = f.read(len(ZIP))
    f.seek(at)
    return start == ZIP


def _get_layout(name: str) -> Layout:
    """The layout that PyTorch's pickles name: "torch.strided"."""
    return LAYOUTS[name.removeprefix("torch.")]


DEFAULT_PROTOCOL = 2  # of what `save` pickles

__all__ = [
    "DEFAULT_PROTOCOL",
    "MAP_LOCATION", "RefusedNameError", "SavedFileError", "add_safe_globals", "clear_safe_globals",
    "default_restore_location", "get_crc32_options", "get_safe_globals", "get_unsafe_globals_in_checkpoint",
    "load", "safe_globals", "save", "set_crc32_options",
]  # fmt: skip
