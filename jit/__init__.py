"""Record a run, guard it, compile it: `trace` (see trace.py for the contract)."""

if not __name__.startswith("lamina."):  # found in the repository's root: a second copy under another name
    raise ImportError(f"{__name__} is a folder of Lamina's repository: write import lamina.jit")

from typing import Final

from ..ir.errors import LaminaError as Error
from .export import ExportError, export
from .loaded import Loaded, ModelError, load
from .observe.policy import pure
from .observe.sizes import mark_dynamic
from .torchscript import (
    Attribute,
    RecursiveScriptModule,
    ScriptFunction,
    ScriptModule,
    TopLevelTracedModule,
    TracerWarning,
    _overload,
    _overload_method,
    annotate,
    enable_onednn_fusion,
    fork,
    freeze,
    ignore,
    interface,
    is_scripting,
    is_tracing,
    isinstance,
    onednn_fusion_enabled,
    optimize_for_inference,
    optimized_execution,
    save,
    script,
    script_if_tracing,
    script_method,
    set_fusion_strategy,
    trace_module,
    unused,
    wait,
)
from .trace import RefusedError, TooManyRecordings, TracedFunction, reset, trace
from .viewing import show

__all__ = [
    "Attribute", "Error", "ExportError", "Final", "Loaded", "ModelError", "RecursiveScriptModule",
    "RefusedError", "ScriptFunction", "ScriptModule", "TopLevelTracedModule", "TooManyRecordings",
    "TracedFunction", "TracerWarning", "_overload", "_overload_method", "annotate", "enable_onednn_fusion",
    "export", "fork", "freeze", "ignore", "interface", "is_scripting", "is_tracing", "isinstance", "load",
    "mark_dynamic", "onednn_fusion_enabled", "optimize_for_inference", "optimized_execution", "pure",
    "reset", "save", "script", "script_if_tracing", "script_method", "set_fusion_strategy", "show", "trace",
    "trace_module", "unused", "wait",
]  # fmt: skip
