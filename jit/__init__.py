"""Record a run, guard it, compile it: `trace` (see trace.py for the contract)."""

if not __name__.startswith("lamina."):  # found in the repository's root: a second copy under another name
    raise ImportError(f"{__name__} is a folder of Lamina's repository: write import lamina.jit")

from .export import ExportError, export
from .loaded import Loaded, ModelError, load
from .observe.policy import pure
from .torchscript import ignore, is_scripting, is_tracing, script, unused
from .trace import RefusedError, TooManyRecordings, TracedFunction, reset, trace

__all__ = [
    "ExportError", "Loaded", "ModelError", "RefusedError", "TooManyRecordings", "TracedFunction", "export",
    "ignore", "is_scripting", "is_tracing", "load", "pure", "reset", "script", "trace", "unused",
]  # fmt: skip
