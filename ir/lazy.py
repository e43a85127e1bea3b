"""The one sanctioned way to load a library late: those that `import lamina` must not pay for."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType

from .errors import LaminaError
from .locks import fork_safe_lock

# An import that is under way in one thread where another forks would be under way for ever in the child.
_importing = fork_safe_lock()


class MissingLibraryError(LaminaError, ImportError):
    """A library that is needed now and is not installed."""


def load(name: str, extra: str | None = None) -> ModuleType:
    """The module `name`, imported now.

    extra: the extra of Lamina that brings it; None for a plain dependency.  Raises MissingLibraryError, which
    names the pip command.
    """
    try:
        return _imported(name)
    except ModuleNotFoundError as error:
        top = name.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != top:
            raise  # it is there, and itself lacks something
        wanted = f"'lamina[{extra}]'" if extra else top
        raise MissingLibraryError(
            f"{top} is needed here and is not installed", f"pip install {wanted}"
        ) from None


def _imported(name: str) -> ModuleType:
    """The module, imported while no thread forks; ops ask for it at each call."""
    found = sys.modules.get(name)
    if found is not None and not getattr(getattr(found, "__spec__", None), "_initializing", False):
        return found
    with _importing:
        return import_module(name)
