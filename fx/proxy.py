"""Stand-ins for values while a function is traced: what is done with them becomes steps of a graph."""

from __future__ import annotations

import dis
import inspect
import operator
import traceback
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from ..ir.dtypes import DType
from ..ir.errors import ArgumentValueError, StateError
from ..ir.types import Device
from ..runtime import overriding
from ..runtime.layouts import Layout
from ..runtime.places import is_internal
from ..runtime.tensor import Tensor
from .graph import Graph
from .node import Node, map_aggregate


class TraceError(ValueError):
    """A function does what can't be recorded without values."""


class TracerBase:
    """What makes the steps of a graph of what is done with proxies; `Tracer` adds modules."""

    graph: Graph
    record_stack_traces: bool = False
    check_mutable_operations: bool = False
    trace_asserts: bool = False
    proxy_buffer_attributes: bool = False
    traced_func_name: str = "forward"
    module_stack: dict[str, Any]

    def create_node(
        self, kind: str, target: Any, args: tuple, kwargs: dict[str, Any], name: str | None = None,
        type_expr: Any = None,
    ) -> Node:  # fmt: skip
        """Add a step to the graph."""
        made = self.graph.create_node(kind, target, args, kwargs, name, type_expr)
        stack = getattr(self, "module_stack", None)
        if stack:
            made.meta["nn_module_stack"] = dict(stack)
        return made

    def proxy(self, node: Node) -> Proxy:
        """The stand-in for what a step returns."""
        return Proxy(node, self)

    def create_proxy(
        self, kind: str, target: Any, args: tuple, kwargs: dict[str, Any], name: str | None = None,
        type_expr: Any = None, proxy_factory_fn: Callable[[Node], Proxy] | None = None,
    ) -> Proxy:  # fmt: skip
        """Add a step whose arguments hold proxies, for the proxy of what it returns."""
        args, kwargs = self.create_arg(args), self.create_arg(kwargs)
        if not isinstance(args, tuple) or not isinstance(kwargs, dict):
            raise AssertionError("create_arg must keep tuples and dictionaries")
        node = self.create_node(kind, target, args, kwargs, name, type_expr)
        made = (proxy_factory_fn or self.proxy)(node)
        if self.record_stack_traces and node.stack_trace is None:
            node.stack_trace = _stack_of_user()
        return made

    def create_arg(self, a: Any) -> Any:
        """What a node holds of an argument: proxies become their nodes.

        Raises NotImplementedError for a value that no code could be written for.
        """
        if isinstance(a, Proxy):
            return a.node
        if hasattr(a, "__fx_create_arg__"):
            return a.__fx_create_arg__(self)
        if isinstance(a, tuple):
            items = [self.create_arg(x) for x in a]
            if not hasattr(a, "_fields"):
                return tuple(items)
            return (
                self.create_node("call_function", type(a), tuple(items), {})
                if _named(items)
                else type(a)(*items)
            )
        if isinstance(a, list):
            return [self.create_arg(x) for x in a]
        if isinstance(a, dict):
            return {self._key(k): self.create_arg(v) for k, v in a.items()}
        if isinstance(a, slice):
            return slice(self.create_arg(a.start), self.create_arg(a.stop), self.create_arg(a.step))
        if isinstance(a, range):
            return range(*(self.create_arg(x) for x in (a.start, a.stop, a.step)))
        if is_dataclass(a) and not isinstance(a, type):
            held = {f.name: self.create_arg(getattr(a, f.name)) for f in fields(a)}
            return self.create_node("call_function", type(a), (), held)
        if a is None or a is ... or isinstance(a, _PLAIN) or callable(a):
            return a
        raise NotImplementedError(f"argument of type: {type(a)}")

    def _key(self, key: Any) -> Any:
        made = self.create_arg(key)

        def refuse(x: Any) -> Any:
            if isinstance(x, Node):
                raise StateError(
                    f"Keys for dictionaries used as an argument cannot contain a Node. Got key: {key}"
                )
            return x

        map_aggregate(made, refuse)
        return made

    def to_bool(self, obj: Proxy) -> bool:
        """What `if` sees of a proxy.  Raises TraceError; a subclass may answer."""
        raise TraceError(
            "symbolically traced variables cannot be used as inputs to control flow\n"
            f"  step: {obj.node.format_node()}\n"
            "  give the input its value by concrete_args, or wrap the function that asks (torch.fx.wrap)"
        )

    def iter(self, obj: Proxy) -> Iterator:
        """What a loop sees of a proxy.  Raises TraceError, unless it is taken apart into so many names."""
        frame = inspect.currentframe()
        while frame is not None and frame.f_globals.get("__name__", "") == __name__:
            frame = frame.f_back
        if frame is not None:
            for step in dis.get_instructions(frame.f_code):
                if step.offset == frame.f_lasti and step.opname == "UNPACK_SEQUENCE":
                    return (obj.__getitem__(i) for i in range(step.argval))
        raise TraceError(
            "Proxy object cannot be iterated: how often a loop runs, or what * hands over, is not known "
            "while a function is traced\n"
            f"  step: {obj.node.format_node()}\n"
            "  give the input its value by concrete_args, or wrap the function that loops (torch.fx.wrap)"
        )

    def keys(self, obj: Proxy) -> Any:
        """What `**` sees of a proxy."""
        return Attribute(obj, "keys")()


class GraphAppendingTracer(TracerBase):
    """Adds steps to a graph that is there."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.module_stack = {}


def _named(items: list) -> bool:
    """Whether a node stands in these values."""
    found: list[Any] = []
    map_aggregate(tuple(items), lambda x: found.append(x) if isinstance(x, Node) else None)
    return bool(found)


# The kinds of values that stand in code as they are.
_PLAIN = (str, int, float, bool, complex, bytes, Enum, type, Tensor, DType, Device, Layout)


def _stack_of_user() -> str:
    frames = [f for f in traceback.extract_stack() if not is_internal(f.filename)]
    return "".join(traceback.format_list(frames)).strip()


class Proxy:
    """Stands for what a node returns: operators, methods and functions of it add steps to the graph.

    What needs its value is refused with TraceError: `if`, loops over it, `int()`.
    """

    def __init__(self, node: Node, tracer: TracerBase | None = None):
        self.tracer = GraphAppendingTracer(node.graph) if tracer is None else tracer
        self.node = node
        if "objects" not in overriding.OPEN:  # functions ask their operands from now on
            overriding.OPEN.append("objects")

    def __repr__(self) -> str:
        return f"Proxy({self.node.name})"

    def __getattr__(self, k: str) -> Any:
        if k in ("tracer", "node"):  # a copy that is being made
            raise AttributeError(k)
        return Attribute(self, k)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = state

    def __deepcopy__(self, memo: dict) -> Proxy:
        made = object.__new__(type(self))
        memo[id(self)] = made
        made.__dict__.update(self.__dict__)
        return made

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __iter__(self) -> Iterator:
        return self.tracer.iter(self)

    def __abs__(self) -> Any:
        return self.tracer.create_proxy("call_function", operator.abs, (self,), {})

    def __bool__(self) -> bool:
        return self.tracer.to_bool(self)

    def __len__(self) -> int:
        raise StateError(
            "'len' is not supported in symbolic tracing by default: its result must be an int\n"
            "  to have its calls recorded, say torch.fx.wrap('len') at the top of the module"
        )

    def keys(self) -> Any:
        return self.tracer.keys(self)

    @classmethod
    def __torch_function__(
        cls, orig_method: Callable, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        found: dict[TracerBase, None] = {}
        map_aggregate((args, kwargs), lambda x: found.setdefault(x.tracer) if isinstance(x, cls) else None)
        if len(found) > 1:
            raise ArgumentValueError(
                f"Found multiple different tracers {list(found)} while trying to trace operations "
                f"{orig_method}"
            )
        tracer = next(iter(found))
        name = getattr(orig_method, "__name__", "")
        if name.startswith("__") and name.endswith("__"):  # of a tensor beside a proxy: Python's operator
            return tracer.create_proxy("call_method", name, args, kwargs)
        if name == "einsum" and len(args) == 2 and isinstance(args[1], (tuple, list)):
            args = (args[0], *args[1])  # as passes over graphs look for operands
        return tracer.create_proxy("call_function", orig_method, args, kwargs)


class Attribute(Proxy):
    """An attribute of a proxy: a method, if it is called; a step of its own where it is used otherwise."""

    def __init__(self, root: Proxy, attr: str):
        self.root, self.attr, self.tracer = root, attr, root.tracer
        self._node: Node | None = None

    @property
    def node(self) -> Node:  # type: ignore[override]
        if self._node is None:
            self._node = self.tracer.create_proxy("call_function", getattr, (self.root, self.attr), {}).node
        return self._node

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


class ParameterProxy(Proxy):
    """Of a parameter, whose shape is known."""

    def __init__(self, tracer: TracerBase, node: Node, name: str, param: Any):
        super().__init__(node, tracer)
        self.param, self.name = param, name

    def __repr__(self) -> str:
        return f"ParameterProxy({self.name})"

    @property
    def shape(self) -> Any:
        return self.param.shape

    @property
    def ndim(self) -> int:
        return self.param.ndim

    def size(self, *args: Any) -> Any:
        return self.param.size(*args)

    def dim(self) -> int:
        return self.param.dim()

    def numel(self) -> int:
        return self.param.numel()

    def nelement(self) -> int:
        return self.param.nelement()


_BOTH = "add sub mul floordiv truediv mod pow lshift rshift and_ or_ xor matmul".split()
_HERE = "eq ne lt gt le ge neg pos invert getitem".split()


def _recorded(function: Callable) -> Callable:
    def method(*args: Any, **kwargs: Any) -> Any:
        tracer = args[0].tracer
        return tracer.create_proxy("call_function", function, args, kwargs)

    method.__name__ = f"__{function.__name__.strip('_')}__"
    return method


def _reflected(function: Callable) -> Callable:
    def method(self: Proxy, other: Any) -> Any:
        return self.tracer.create_proxy("call_function", function, (other, self), {})

    method.__name__ = f"__r{function.__name__.strip('_')}__"
    return method


for _name in (*_BOTH, *_HERE):
    setattr(Proxy, f"__{_name.strip('_')}__", _recorded(getattr(operator, _name)))
for _name in _BOTH:
    setattr(Proxy, f"__r{_name.strip('_')}__", _reflected(getattr(operator, _name)))
Proxy.__hash__ = object.__hash__  # type: ignore[method-assign]
