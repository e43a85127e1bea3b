"""`lamina.serialization`: what PyTorch keeps in torch.serialization."""

from __future__ import annotations

from ..ir.errors import ArgumentValueError
from ..runtime.pt_classes import add_safe_globals, clear_safe_globals, get_safe_globals, safe_globals
from ..runtime.pt_names import RefusedNameError
from ..runtime.saving import get_unsafe_globals_in_checkpoint, load, save
from ..runtime.serialize import SavedFileError


def get_crc32_options() -> bool:
    """Whether `save` writes checksums: always."""
    return True


def set_crc32_options(compute_crc32: bool) -> None:
    """Have `save` write checksums, as it always does.  Raises ArgumentValueError where it should not."""
    if not compute_crc32:
        raise ArgumentValueError(
            "set_crc32_options(compute_crc32): False is not built: files always have their checksums"
        )


__all__ = [
    "RefusedNameError", "SavedFileError", "add_safe_globals", "clear_safe_globals", "get_crc32_options",
    "get_safe_globals", "get_unsafe_globals_in_checkpoint", "load", "safe_globals", "save",
    "set_crc32_options",
]  # fmt: skip
