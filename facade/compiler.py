"""Answer `torch.compile`, `torch.compiler` and `torch._dynamo` with Lamina's own tracing compiler.

PyTorch's switches say how its compiler is to go about things; where Lamina's does the same for any of their
values they are taken, and mean nothing.  What would mean another result is refused.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

from ..ir.errors import ArgumentError, ArgumentValueError, LaminaError
from ..nn import Module
from ..nn.optimized import OptimizedModule
from ..runtime import modes
from ..runtime.modes import is_compiling

ROOT = __package__.rpartition(".")[0]  # lamina
BACKENDS = ("inductor",)
PLAIN = ("eager", "aot_eager")  # which PyTorch has for debugging: the function as it is
STANCES: dict[str, dict[str, Any]] = {  # what each changes
    "default": {"eager": False, "on_miss": None}, "force_eager": {"eager": True, "on_miss": None},
    "eager_on_recompile": {"eager": False, "on_miss": modes.EAGER},
    "fail_on_recompile": {"eager": False, "on_miss": modes.FAIL},
}  # fmt: skip
for _name in ("eager_then_compile", "aot_eager_then_compile"):  # a recording is an eager run
    STANCES[_name] = STANCES["default"]
MODES = (None, "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


class BothError(LaminaError, RuntimeError):
    """`mode` and `options` were both given, or a stance and a backend, which PyTorch refuses, too."""


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


class set_stance(modes.set_grad_enabled):
    """Say what compiled functions do, from here on, for a `with` block, or for calls of a function.

    stance: "default"; "force_eager", to run as they are; "eager_on_recompile" and "fail_on_recompile", to use
    what is recorded, and otherwise to run as they are or to raise jit.RefusedError; "eager_then_compile",
    which is the default, as the run that is recorded is an eager one.  force_backend: as `backend` of
    `compile`, with the default stance.  skip_guard_eval_unsafe: guards are asked all the same.
    It holds for the thread that says it.  Raises ArgumentValueError.
    """

    def __init__(
        self, stance: str = "default", *, skip_guard_eval_unsafe: bool = False,
        force_backend: str | None = None,
    ):  # fmt: skip
        if stance not in STANCES:
            raise ArgumentValueError(f"set_stance(stance): {stance!r} is none of {', '.join(STANCES)}")
        if force_backend is not None and stance != "default":
            raise BothError("set_stance: non-default stance cannot have force_backend set")
        if force_backend not in (None, *BACKENDS, *PLAIN):
            raise ArgumentValueError(
                f"set_stance(force_backend): {force_backend!r} is none of {', '.join((*BACKENDS, *PLAIN))}"
            )
        if modes.CHANGED:
            modes.tell("refuse", "the compiler's stance was set")
        self._told = stance, force_backend
        self._changes = {**STANCES["force_eager" if force_backend in PLAIN else stance]}
        self._before = {name: getattr(modes.local, name) for name in self._changes}
        modes.update(**self._changes)

    def clone(self) -> set_stance:
        stance, backend = self._told
        return set_stance(stance, force_backend=backend)


def nested_compile_region(
    fn: Callable | None = None, *, options: Any = None, max_reuse_entries: int = 8, reuse_hash_fn: Any = None
) -> Any:
    """Return the function: what is the same in a recording is compiled once anyway."""
    return fn if fn is not None else nested_compile_region


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


def optimize_assert(backend: str = "inductor", **kwargs: Any) -> Any:
    """`optimize` of functions that must be recorded whole."""
    return optimize(backend, nopython=True, **kwargs)


def run(fn: Callable | None = None) -> Any:
    """Have a function's calls use what is recorded, and record no more; `@run` or `@run()`."""
    if fn is None:
        return run
    return set_stance("eager_on_recompile")(fn)


class ExplainOutput(SimpleNamespace):
    """How a function was recorded: see `explain`."""

    def __str__(self) -> str:
        counts = (("Graph", self.graph_count), ("Graph Break", self.graph_break_count), ("Op", self.op_count))
        lines = [f"{name} Count: {count}" for name, count in counts]
        lines.append("Break Reasons:")
        for i, each in enumerate(self.break_reasons, 1):
            lines += [f"  Break Reason {i}:", f"    Reason: {each.reason}", "    User Stack:"]
            lines += [f"      {where}" for where in each.user_stack]
        lines.append("Ops per Graph:")
        for i, ops in enumerate(self.ops_per_graph, 1):
            lines += [f"  Ops {i}:", *(f"    {op}" for op in ops)]
        return "\n".join([*lines, f"Compile Times: {self.compile_times}", ""])


def explain(f: Callable, *extra_args: Any, **extra_kwargs: Any) -> Any:
    """A function that calls `f`, records it anew, and returns how that went: an ExplainOutput.

    graphs: Lamina's own; there is one more where a value was asked for, and none where the call can't be
    recorded.  graph_break_count, break_reasons: how often and why (`reason`, `user_stack`).
    op_count, ops_per_graph: what the graphs hold.  compile_times: a text.
    """
    traced = _jit().trace(disable(f), budget=None)

    def inner(*args: Any, **kwargs: Any) -> ExplainOutput:
        traced.reset()
        traced(*args, **kwargs)
        told = traced.explain(as_dict=True)
        graphs = [s.graph for s in traced._segments()]
        ops = [[node.op.name for node in graph.nodes] for graph in graphs]
        causes = [
            SimpleNamespace(reason=each["what"], user_stack=[each["where"]] * bool(each["where"]))
            for each in told["causes"]
        ]
        return ExplainOutput(
            graphs=graphs, graph_count=len(graphs), graph_break_count=max(len(graphs) - 1, len(causes)),
            break_reasons=causes, op_count=sum(map(len, ops)), ops_per_graph=ops, out_guards=None,
            compile_times=f"{told['recording_seconds']:.3f} s of recording, "
            f"{told['compiling_seconds']:.3f} s of compiling",
        )  # fmt: skip

    if not extra_args and not extra_kwargs:
        return inner
    warnings.warn(
        "explain(f, *args, **kwargs) is deprecated, use explain(f)(*args, **kwargs) instead",
        FutureWarning,
        stacklevel=2,
    )
    return inner(*extra_args, **extra_kwargs)


def graph_break(msg: str = "") -> None:
    """Do nothing: what is recorded has no need to break off here."""


is_dynamo_compiling = is_exporting = is_compiling


class Switches(ModuleType):
    """Switches of PyTorch's compiler, which may be set, and change nothing; what was not set is False."""

    def __init__(self, name: str, **told: Any):
        super().__init__(f"{ROOT}.{name}", type(self).__doc__)
        vars(self).update(told)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return False

    @contextlib.contextmanager
    def patch(self, changes: Any = None, value: Any = None, /, **more: Any) -> Iterator[None]:
        """Set switches within a block, or a decorated function: one by its name, or several."""
        told = {changes: value} if isinstance(changes, str) else {**(changes or {}), **more}
        before = {name: getattr(self, name) for name in told}
        try:
            vars(self).update(told)
            yield
        finally:
            vars(self).update(before)


CONFIG = Switches(
    "_dynamo.config", cache_size_limit=8, recompile_limit=8, suppress_errors=False, verbose=False,
    capture_scalar_outputs=False,
)  # fmt: skip

_dynamo = ModuleType(f"{ROOT}._dynamo", "What scripts use of `torch._dynamo`.")
vars(_dynamo).update(
    is_dynamo_supported=lambda: True, is_inductor_supported=lambda: True,
    OptimizedModule=OptimizedModule, allow_in_graph=allow_in_graph, config=CONFIG, disable=disable,
    assume_constant_result=assume_constant_result, disallow_in_graph=allow_in_graph, graph_break=graph_break,
    is_compiling=is_compiling, list_backends=list_backends,
    mark_dynamic=mark_dynamic, maybe_mark_dynamic=mark_dynamic, mark_static=mark_static,
    mark_static_address=mark_static, optimize=optimize,
    reset=reset, explain=explain, optimize_assert=optimize_assert, run=run, set_stance=set_stance,
    nested_compile_region=nested_compile_region,
)  # fmt: skip

_wrapped = ModuleType(
    f"{ROOT}._dynamo._trace_wrapped_higher_order_op", "How PyTorch has vmap index by tensors."
)
vars(_wrapped).update(TransformGetItemToIndex=contextlib.nullcontext)  # which vmap does anyway
vars(_dynamo).update(_trace_wrapped_higher_order_op=_wrapped, eval_frame=_dynamo)

__all__ = [
    "allow_in_graph", "assume_constant_result", "compile", "cudagraph_mark_step_begin", "disable",
    "is_compiling", "is_dynamo_compiling", "is_exporting", "list_backends", "nested_compile_region", "reset",
    "set_stance",
]  # fmt: skip
