"""The one sanctioned way to load a library late: those that `import lamina` must not pay for."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from .errors import LaminaError


class MissingLibraryError(LaminaError, ImportError):
    """A library that is needed now and is not installed."""


def load(name: str, extra: str | None = None) -> ModuleType:
    """The module `name`, imported now.

    extra: the extra of Lamina that brings it; None for a plain dependency.  Raises MissingLibraryError, which
    names the pip command.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        top = name.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != top:
            raise  # it is there, and itself lacks something
        wanted = f"'lamina[{extra}]'" if extra else top
        raise MissingLibraryError(
            f"{top} is needed here and is not installed", f"pip install {wanted}"
        ) from None
