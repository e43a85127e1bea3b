"""What PyTorch has in `torch.jit` besides `trace`."""

from __future__ import annotations

import builtins
import collections
from typing import Any

from ..runtime.modes import is_compiling
from .trace import TracedFunction, trace


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


unused = script_method = script_if_tracing = interface = ignore
_overload_method = _overload = ignore
Attribute = collections.namedtuple("Attribute", ("value", "type"))
isinstance = builtins.isinstance
ScriptModule = ScriptFunction = TracedFunction


class TracerWarning(Warning):
    """What programs tell `warnings` to let pass: here nothing warns of it, as guards see what it is about."""


def annotate(the_type: Any, the_value: Any) -> Any:
    """Return the value: PyTorch's language is told its type so."""
    return the_value


def freeze(mod: Any, *_: Any, **__: Any) -> Any:
    """Return the module: what a trace reads of it is guarded, and a constant until it changes."""
    return mod


optimize_for_inference = freeze


def fork(func: Any, *args: Any, **kwargs: Any) -> Any:
    """Call the function now; `wait` gives what it returned."""
    return func(*args, **kwargs)


def wait(future: Any) -> Any:
    """What a function returned that `fork` called."""
    return future


is_scripting = is_tracing = is_compiling
