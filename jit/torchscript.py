"""What PyTorch has in `torch.jit` besides `trace`."""

from __future__ import annotations

import builtins
import collections
import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from ..ir.errors import ArgumentError
from ..nn import Module
from ..runtime.modes import is_compiling
from .export import ExportError, export
from .trace import TracedFunction, TracedModule, trace


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
ScriptFunction = TracedFunction


class _OfTraced(type):
    """Has what `trace` and `script` give count as an instance of ScriptModule."""

    def __instancecheck__(cls, x: object) -> bool:
        return (
            type.__instancecheck__(cls, x) or cls is ScriptModule and type.__instancecheck__(TracedModule, x)
        )


class ScriptModule(Module, metaclass=_OfTraced):
    """A module as any other, where programs derive from it; what traced modules are asked to be."""


RecursiveScriptModule = TopLevelTracedModule = ScriptModule


def trace_module(mod: Any, inputs: Mapping[str, Any], *_: Any, **__: Any) -> Any:
    """`trace(mod, inputs["forward"])`.  Raises ArgumentError for other methods: trace these by themselves."""
    if set(inputs) != {"forward"}:
        raise ArgumentError(
            f"trace_module(inputs): takes an example for forward alone, not for {', '.join(inputs)}",
            "trace(mod.method, example) records another method",
        )
    return trace(mod, inputs["forward"])


def save(m: Any, f: str | os.PathLike | IO[bytes], _extra_files: Any = None, **options: Any) -> None:
    """Write what `trace(function, example)` gave as a file that `load` runs, as `export` does: see there.

    f: a path, or a file open for writing.  options: those of `export`; sizes are the example's, but for
    `dynamic`.  Raises ExportError for what was traced without an example, and ArgumentError.
    """
    if _extra_files:
        raise ArgumentError("save(_extra_files): the file holds a model alone: write them beside it")
    if not isinstance(m, TracedFunction):
        raise ArgumentError(f"save(m): takes what trace or script gave, not {type(m).__name__}")
    if m._example is None:
        raise ExportError(
            f"save(m): {m._name} was traced without an example, which says what a file is to take",
            "jit.trace(function, example), or jit.export(function, path, *example)",
        )
    if isinstance(f, (str, os.PathLike)):
        export(m, f, *m._example, **options)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        export(m, path, *m._example, **options)
        f.write(path.read_bytes())


TracedFunction.save = save  # type: ignore[attr-defined]  # here, as what records knows of no files


def set_fusion_strategy(strategy: Any) -> list[tuple[str, int]]:
    """Return the strategy so far: this compiler fuses for all sizes, or for known ones, as it sees fit."""
    return [("STATIC", 2), ("DYNAMIC", 10)]


def enable_onednn_fusion(enabled: bool) -> None:
    """Do nothing: there is no oneDNN."""


def onednn_fusion_enabled() -> bool:
    """Whether graphs are fused for oneDNN: never."""
    return False


@contextlib.contextmanager
def optimized_execution(should_optimize: bool) -> Iterator[None]:
    """Do nothing: a trace runs what it compiled, or the function as it is, and both give the same."""
    yield


class TracerWarning(Warning):
    """What programs tell `warnings` to let pass: here nothing warns of it, as guards see what it is about."""

    @staticmethod
    def ignore_lib_warnings() -> None:
        """Do nothing: there are none."""


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
