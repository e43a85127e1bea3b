"""Answer `torch.compile`, `torch.compiler` and `torch._dynamo` with Lamina's own tracing compiler.

PyTorch's switches say how its compiler is to go about things; where Lamina's does the same for any of their
values they are taken, and mean nothing.  What would mean another result is refused.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

from ..ir.errors import ArgumentError, ArgumentValueError, LaminaError
from ..nn import Module
from ..nn.optimized import OptimizedModule
from ..runtime.modes import is_compiling

ROOT = __package__.rpartition(".")[0]  # lamina
BACKENDS = ("inductor",)
PLAIN = ("eager", "aot_eager")  # which PyTorch has for debugging: the function as it is
MODES = (None, "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


class BothError(LaminaError, RuntimeError):
    """`mode` and `options` were both given, which PyTorch refuses, too."""


def compile(
    model: Callable | None = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str = "inductor",
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    disable: bool = False,
) -> Any:
    """Record a function's or a module's calls, and run compiled code from then on, as `jit.trace` does.

    Works as a decorator, with arguments or without; of a module it makes a module, `_orig_mod` being the one
    given.  What can't be recorded runs as it is, and `explain()` of what is returned says why.

    fullgraph: raise jit.RefusedError where a call can't be recorded, and jit.TooManyRecordings where it fits
    none of 32 recordings, in place of running it as it is.  backend: "inductor" stands for Lamina's
    compiler, the only one; "eager" and "aot_eager" for the function as it is.  disable: return it as it is.
    dynamic: as of `jit.trace`; mode, options mean nothing here (there is one way to compile), but a mode that
    PyTorch does not know is refused.  Raises ArgumentValueError.
    """
    if model is None:
        return functools.partial(
            compile, fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode, options=options,
            disable=disable,
        )  # fmt: skip
    if mode is not None and options is not None:
        raise BothError("compile(model): takes mode or options, not both")
    if mode not in MODES:
        raise ArgumentValueError(f"compile(mode): {mode!r} is none of {', '.join(map(str, MODES))}")
    if options is not None and not isinstance(options, Mapping):
        raise ArgumentError(f"compile(options): takes a dictionary, not {type(options).__name__}")
    if backend not in (*BACKENDS, *PLAIN):
        raise ArgumentValueError(
            f"compile(backend): {backend!r} is none of {', '.join((*BACKENDS, *PLAIN))}",
            "Lamina has a compiler of its own, which makes no torch.fx graphs",
        )
    if disable or backend in PLAIN or isinstance(model, OptimizedModule):
        return model
    traced = _jit().trace(model, fullgraph=fullgraph, dynamic=dynamic)
    return OptimizedModule(model, traced) if isinstance(model, Module) else traced


def _jit() -> Any:
    """The room of the compiler, which is loaded at its first use."""
    return import_module(f"{ROOT}.jit")


def compile_in_place(self: Module, *args: Any, **kwargs: Any) -> None:
    """Have the module's calls run compiled code from now on; takes what `lamina.compile` does.

    What is compiled is `forward`, between the module's hooks: `module.forward.explain()` says how it fares.
    """
    before = self.forward
    if (compiled := compile(before, *args, **kwargs)) is not before:
        self.forward = compiled  # type: ignore[method-assign]


Module.compile = compile_in_place  # type: ignore[attr-defined]  # here, as nn knows of no compiler


# ---- torch.compiler ----------------------------------------------------------------------------------------
def disable(fn: Callable | None = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """Return a function as it is, without the compiler where it was compiled: `@disable` or `@disable()`.

    Where another compiled function calls it, it is recorded with that, which changes nothing that it does.
    """
    if fn is None:
        return functools.partial(disable, recursive=recursive, reason=reason)
    if isinstance(fn, OptimizedModule):
        return fn._orig_mod
    jit = sys.modules.get(f"{ROOT}.jit")  # if it is not there, nothing was compiled
    return fn.__wrapped__ if jit is not None and isinstance(fn, jit.TracedFunction) else fn


def reset() -> None:
    """Forget all recordings of all compiled functions."""
    _jit().reset()


def list_backends(exclude_tags: Any = ("debug", "experimental")) -> list[str]:
    """The names that `compile(backend=...)` takes for a compiler."""
    return [*BACKENDS]


def allow_in_graph(fn: Callable) -> Callable:
    """Return the function: what it does is recorded anyway."""
    return fn


def assume_constant_result(fn: Callable) -> Callable:
    """Vouch that a function's result hangs on its arguments alone, as `jit.pure` does."""
    return _jit().pure(fn)


def cudagraph_mark_step_begin() -> None:
    """Do nothing: there are no CUDA graphs."""


def mark_dynamic(t: Any, index: Any, *, min: int | None = None, max: int | None = None, **hints: Any) -> None:
    """Say that dimensions of an argument vary, as `jit.mark_dynamic` does.  index: of one, or of several."""
    for dim in index if isinstance(index, (list, tuple)) else (index,):
        _jit().mark_dynamic(t, dim, 2 if min is None or min < 2 else min, max)


def mark_static(t: Any, index: Any = None) -> None:
    """Do nothing: a size is a number as long as it stays, and a recording's guards say which."""


def optimize(backend: str = "inductor", *, nopython: bool = False, dynamic: bool | None = None) -> Any:
    """The decorator `compile(backend=..., fullgraph=nopython)`, by its older name."""
    return compile(backend=backend, fullgraph=nopython, dynamic=dynamic)


def graph_break(msg: str = "") -> None:
    """Do nothing: what is recorded has no need to break off here."""


is_dynamo_compiling = is_exporting = is_compiling

# Switches that may be set, and change nothing.
CONFIG = SimpleNamespace(
    cache_size_limit=8, recompile_limit=8, suppress_errors=False, verbose=False, capture_scalar_outputs=False
)  # fmt: skip

_dynamo = ModuleType(f"{ROOT}._dynamo", "What scripts use of `torch._dynamo`.")
vars(_dynamo).update(
    is_dynamo_supported=lambda: True, is_inductor_supported=lambda: True,
    OptimizedModule=OptimizedModule, allow_in_graph=allow_in_graph, config=CONFIG, disable=disable,
    assume_constant_result=assume_constant_result, disallow_in_graph=allow_in_graph, graph_break=graph_break,
    is_compiling=is_compiling, list_backends=list_backends,
    mark_dynamic=mark_dynamic, maybe_mark_dynamic=mark_dynamic, mark_static=mark_static,
    mark_static_address=mark_static, optimize=optimize,
    reset=reset,
)  # fmt: skip

_wrapped = ModuleType(
    f"{ROOT}._dynamo._trace_wrapped_higher_order_op", "How PyTorch has vmap index by tensors."
)
vars(_wrapped).update(TransformGetItemToIndex=contextlib.nullcontext)  # which vmap does anyway
vars(_dynamo).update(_trace_wrapped_higher_order_op=_wrapped, eval_frame=_dynamo)

__all__ = [
    "allow_in_graph", "assume_constant_result", "compile", "cudagraph_mark_step_begin", "disable",
    "is_compiling", "is_dynamo_compiling", "is_exporting", "list_backends", "reset",
]  # fmt: skip
