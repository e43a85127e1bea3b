"""Answer `torch.fx` as far as programs only ask about it: `wrap`, and whether something is a `Proxy`.

Nothing is traced by it: `jit.trace` records runs, and has a graph of its own.
"""

from __future__ import annotations

from typing import Any

from .absent import kind

_INSTEAD = "graphs of PyTorch's are not built: jit.trace records a function's runs, and compiles them"
Proxy, Node, Graph, GraphModule, Tracer, Interpreter, Transformer = (
    kind(name, "fx", _INSTEAD)
    for name in ("Proxy", "Node", "Graph", "GraphModule", "Tracer", "Interpreter", "Transformer")
)


def wrap(fn_or_name: Any) -> Any:
    """Return what was given: a function that PyTorch's tracer leaves alone; there is no such tracer here."""
    return fn_or_name


def is_fx_tracing() -> bool:
    """Whether PyTorch's tracer runs: no."""
    return False


def symbolic_trace(root: Any, concrete_args: Any = None) -> Any:
    """Refused, with what to do instead."""
    return Tracer()


__all__ = [
    "Graph", "GraphModule", "Interpreter", "Node", "Proxy", "Tracer", "Transformer", "is_fx_tracing",
    "symbolic_trace", "wrap",
]  # fmt: skip
