"""Record a run, guard it, compile it: `trace` (see trace.py for the contract)."""

if not __name__.startswith("lamina."):  # found in the repository's root: a second copy under another name
    raise ImportError(f"{__name__} is a folder of Lamina's repository: write import lamina.jit")

from typing import Final

from .export import ExportError, export
from .loaded import Loaded, ModelError, load
from .observe.policy import pure
from .observe.sizes import mark_dynamic
from .torchscript import (
    Attribute,
    ScriptFunction,
    ScriptModule,
    TracerWarning,
    _overload,
    _overload_method,
    annotate,
    fork,
    freeze,
    ignore,
    interface,
    is_scripting,
    is_tracing,
    isinstance,
    optimize_for_inference,
    script,
    script_if_tracing,
    script_method,
    unused,
    wait,
)
from .trace import RefusedError, TooManyRecordings, TracedFunction, reset, trace
from .viewing import show

__all__ = [
    "Attribute", "ExportError", "Final", "Loaded", "ModelError", "RefusedError", "ScriptFunction",
    "ScriptModule", "TooManyRecordings", "TracedFunction", "TracerWarning", "_overload", "_overload_method",
    "annotate",
    "export", "fork", "freeze", "ignore", "interface", "is_scripting", "is_tracing", "isinstance", "load",
    "mark_dynamic", "optimize_for_inference", "pure", "reset", "script", "script_if_tracing",
    "script_method", "show", "trace", "unused", "wait",
]  # fmt: skip
