"""PyTorch, where it is installed: it is compared with, and nothing here needs it."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType


def torch() -> tuple[ModuleType | None, str]:
    """PyTorch and its version, or None and why it takes no part."""
    if find_spec("torch") is None:
        return None, "not installed, so it takes no part: pip install 'lamina[peer-torch]'"
    try:
        # By name: no module of this package imports a peer, and this one only hands it on to be timed.
        found = import_module("torch")
    except (ImportError, OSError) as error:
        return None, f"takes no part: it can't be imported: {error}"
    return found, f"{found.__version__}, eager"
