"""The module that `compile(module)` returns: its calls run compiled code, in all else it is the module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .members import fields
from .module import Module

_OWN = frozenset(("_orig_mod", "_run", "training"))


class OptimizedModule(Module):
    """A module whose calls go through `run`, such as a traced module.

    The module itself is the child `_orig_mod`, so that keys in `state_dict()` begin with that, as in PyTorch.
    Attributes are the module's, else those of `run`: `compiled.explain()`.
    """

    def __init__(self, module: Module, run: Callable[..., Any]):
        super().__init__()
        self._orig_mod = module
        object.__setattr__(self, "_run", run)  # which is no child, though it may wrap one
        self.training = module.training

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call what runs in the module's place."""
        return self._run(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        own = fields(self)
        if (name.startswith("__") and name.endswith("__")) or "_run" not in own or name in _OWN:
            return super().__getattr__(name)
        return getattr(self._orig_mod if hasattr(self._orig_mod, name) else own["_run"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _OWN or "_run" not in fields(self):
            super().__setattr__(name, value)
        else:
            setattr(self._orig_mod, name, value)
