"""Offer torch.fx: a function recorded as a graph of calls, to be looked at, changed and made code again.

This graph is for programs that write programs; what compiles is `jit.trace`, which records runs on real
values and takes a GraphModule as it takes every module.  Names and semantics are PyTorch's.
"""

if not __name__.startswith("lamina."):  # found in the repository's root: a second copy under another name
    raise ImportError(f"{__name__} is a folder of Lamina's repository: write import lamina.fx")

from . import graph, graph_module, immutable_collections, interpreter, node, passes, proxy, subgraph_rewriter
from .code import CodeGen, PythonCode
from .graph import Graph
from .graph_module import GraphModule
from .interpreter import Interpreter, Transformer
from .node import Node, has_side_effect, map_arg
from .proxy import Proxy
from .subgraph_rewriter import replace_pattern
from .tracer import PH, ProxyableClassMeta, Tracer, is_fx_tracing, symbolic_trace, wrap

__all__ = [
    "PH", "CodeGen", "Graph", "GraphModule", "Interpreter", "Node", "Proxy", "ProxyableClassMeta",
    "PythonCode", "Tracer", "Transformer", "graph", "graph_module", "has_side_effect",
    "immutable_collections", "interpreter", "is_fx_tracing", "map_arg", "node", "passes", "proxy",
    "replace_pattern", "subgraph_rewriter", "symbolic_trace", "wrap",
]  # fmt: skip
