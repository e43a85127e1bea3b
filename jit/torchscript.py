"""What PyTorch has in `torch.jit` besides `trace`."""

from __future__ import annotations

from typing import Any

from ..runtime.modes import is_compiling
from .trace import trace


def script(obj: Any, optimize: Any = None, *, example_inputs: Any = None) -> Any:
    """Trace a function or a module: PyTorch's `torch.jit.script`, without its language.

    PyTorch compiles the text of a function, for any input.  Here its calls are recorded, each way through an
    `if` once it is taken, and what is recorded is guarded, so results are those of the function as it is; all
    of Python is allowed.  A class is returned as it is.  optimize, example_inputs: mean nothing here.
    """
    return obj if isinstance(obj, type) else trace(obj)


def ignore(fn: Any = None, **options: Any) -> Any:
    """Return the function: `@ignore`, `@unused` and their kin tell PyTorch's compiler what to leave out."""
    return fn if callable(fn) else ignore


unused = ignore
is_scripting = is_tracing = is_compiling
