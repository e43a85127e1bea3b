"""Tracing: a function or a module's `forward` runs on proxies, once, and becomes a graph."""

from __future__ import annotations

import builtins
import copy
import functools
import inspect
import math
import operator
from collections.abc import Callable
from importlib import import_module
from types import CodeType, FunctionType, ModuleType
from typing import Any

from ..facade import pytree, root
from ..ir.errors import ArgumentValueError, StateError
from ..nn import Module, Sequential
from ..runtime import overriding
from ..runtime.tensor import Parameter, Tensor
from .code import PyTreeCodeGen
from .graph import Graph
from .node import Node, map_aggregate
from .proxy import ParameterProxy, Proxy, TracerBase
from .wrapping import METHODS as _wrapped_methods_to_patch
from .wrapping import NAMES, wrap

_STARS = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
_tracing = 0


class PHBase:
    """A place in `concrete_args` that stays an input."""

    def __repr__(self) -> str:
        return "PH"


class PHWithMeta(PHBase):
    """The same, with what its node's `meta` is to hold."""

    def __init__(self, ph_key: str | None = None):
        self.ph_key = ph_key

    def transfer_attrs(self, to: Any) -> None:
        for name, value in self.__dict__.items():
            if name != "ph_key":
                setattr(to, name, value)


PH = PHBase()


class ProxyableClassMeta(type):
    """Of a class that can be made of proxies: making one is a step of the graph."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        found: list[Proxy] = []
        map_aggregate((args, kwargs), lambda x: found.append(x) if isinstance(x, Proxy) else None)
        if found:
            return found[0].tracer.create_proxy("call_function", cls, args, kwargs)
        return super().__call__(*args, **kwargs)


def is_fx_tracing() -> bool:
    """Whether a function is being traced."""
    return _tracing > 0


def _leaf(original: Callable) -> Callable:
    """A function that is a step of the graph where it is given proxies."""

    @functools.wraps(original, updated=())
    def recorded(*args: Any, **kwargs: Any) -> Any:
        found = _proxy_in((args, kwargs))
        if found is None:
            return original(*args, **kwargs)
        return found.tracer.create_proxy("call_function", original, args, kwargs)

    recorded._leaf = True  # type: ignore[attr-defined]
    return recorded


def _leaf_method(name: str, original: Callable) -> Callable:
    @functools.wraps(original)
    def recorded(*args: Any, **kwargs: Any) -> Any:
        found = _proxy_in((args, kwargs))
        if found is None:
            return original(*args, **kwargs)
        return found.tracer.create_proxy("call_method", name, args, kwargs)

    return recorded


def _proxy_in(values: Any) -> Proxy | None:
    found: list[Proxy] = []
    map_aggregate(values, lambda x: found.append(x) if isinstance(x, Proxy) else None)
    return found[0] if found else None


class _Patches:
    """What is changed while a function is traced, and put back."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def attribute(self, owner: Any, name: str, value: Any) -> None:
        own = vars(owner).get(name, self)
        setattr(owner, name, value)
        self._undo.append(lambda: delattr(owner, name) if own is self else setattr(owner, name, own))

    def item(self, held: dict[str, Any], name: str, value: Any) -> None:
        own = held.get(name, self)
        held[name] = value
        self._undo.append(lambda: held.pop(name, None) if own is self else held.__setitem__(name, own))

    def undo(self) -> None:
        while self._undo:
            self._undo.pop()()


class Tracer(TracerBase):
    """Traces functions and modules; its methods are what a subclass changes.

    autowrap_modules: whose functions are steps where they are given proxies, those of `math` unless told;
    autowrap_functions: single functions beside them.  param_shapes_constant: have shapes of parameters known.
    """

    def __init__(
        self, autowrap_modules: tuple[ModuleType, ...] = (math,),
        autowrap_functions: tuple[Callable, ...] = (), param_shapes_constant: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self._autowrap_search = list(autowrap_modules)
        self._autowrap = {
            id(f): f
            for module in autowrap_modules
            for name, f in vars(module).items()
            if not name.startswith("_") and callable(f)
        } | {id(f): f for f in autowrap_functions}
        self.param_shapes_constant = param_shapes_constant
        self.submodule_paths: dict[Any, str] | None = None
        self.module_stack = {}
        self.root_module_name = ""
        self.root: Any = None

    def __deepcopy__(self, memo: dict) -> Tracer:
        """Without what it traced last."""
        made = object.__new__(type(self))
        for name, value in self.__dict__.items():
            if name == "_autowrap_search":
                made._autowrap_search = list(value)
            elif name in ("_autowrap", "graph", "root", "submodule_paths", "tensor_attrs"):
                setattr(made, name, value)
            else:
                setattr(made, name, copy.deepcopy(value, memo))
        return made

    # ---- what subclasses change ----
    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        """Whether calls of a module stay one step: those of `torch.nn` do, but for Sequential."""
        ours = m.__module__.startswith((f"{__package__.partition('.')[0]}.nn", "torch.nn", "torch.ao.nn"))
        return ours and not isinstance(m, Sequential)

    def path_of_module(self, mod: Module) -> str:
        """A module's name below the root.  Raises NameError where it is not below it."""
        if self.submodule_paths:
            path = self.submodule_paths.get(mod)
            if path is None:
                raise NameError("module is not installed as a submodule")
            return path
        for name, module in self.root.named_modules():
            if module is mod:
                return name
        raise NameError("module is not installed as a submodule")

    def call_module(self, m: Module, forward: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
        """What a call of a module becomes: a step if it is a leaf, what `forward` does if not."""
        path = self.path_of_module(m)
        before = dict(self.module_stack)
        self.module_stack[path] = (path, type(m))
        try:
            if self.is_leaf_module(m, path):
                return self.create_proxy("call_module", path, args, kwargs)
            return forward(*args, **kwargs)
        finally:
            self.module_stack = before

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        """What reading a member of a module gives: a step for a parameter (a buffer, if that is asked)."""
        if isinstance(attr_val, Parameter):
            named = self.root.named_parameters()
        elif self.proxy_buffer_attributes and isinstance(attr_val, Tensor):
            named = self.root.named_buffers()
        else:
            return attr_val
        name = next((name for name, value in named if value is attr_val), None)
        if name is None:
            return attr_val
        if name not in parameter_proxy_cache:
            known = self.param_shapes_constant and isinstance(attr_val, Parameter)

            def of_known_shape(node: Node) -> Proxy:
                return ParameterProxy(self, node, name, attr_val)

            parameter_proxy_cache[name] = self.create_proxy(
                "get_attr", name, (), {}, proxy_factory_fn=of_known_shape if known else None
            )
        return parameter_proxy_cache[name]

    def create_arg(self, a: Any) -> Any:
        """As in TracerBase; tensors and modules become steps that read them from the root."""
        if isinstance(a, Parameter):
            for name, value in self.root.named_parameters():
                if value is a:
                    return self.create_node("get_attr", name, (), {})
            raise NameError("parameter is not a member of this module")
        if isinstance(a, Tensor):
            for name, value in self.root.named_buffers():
                if value is a:
                    return self.create_node("get_attr", name, (), {})
            return self.create_node("get_attr", self._constant("_tensor_constant", a), (), {})
        if isinstance(a, Module):
            for name, value in self.root.named_modules():
                if value is a and name:
                    return self.create_node("get_attr", name, (), {})
        if isinstance(type(a), ProxyableClassMeta):
            return self.create_node("get_attr", self._constant(f"_{type(a).__name__}_constant_", a), (), {})
        return super().create_arg(a)

    def _constant(self, base: str, value: Any) -> str:
        """The name of an attribute of the root that holds a value; it is made if there is none."""
        known = self.tensor_attrs.get(id(value))
        if known is None:
            number = 0
            while hasattr(self.root, f"{base}{number}"):
                number += 1
            known = f"{base}{number}"
            self.tensor_attrs[id(value)] = known
            setattr(self.root, known, value)
        return known

    # ---- tracing ----
    def create_args_for_root(
        self, root_fn: Callable, is_module: bool, concrete_args: dict[str, Any] | tuple | None = None
    ) -> tuple[Callable, list[Any]]:
        """The inputs of the graph: proxies for a function's parameters, and the function they go to."""
        function = inspect.unwrap(root_fn)
        code: CodeType = function.__code__
        total = code.co_argcount + code.co_kwonlyargcount
        names = list(code.co_varnames)
        args: list[Any] = []
        at = 0
        if is_module:
            if total == 0:
                raise StateError("``self`` argument cannot be part of *args expansion!")
            args.append(self.root)
            at = 1
        signature = inspect.signature(function)
        if isinstance(concrete_args, tuple):
            if len(names[at:total]) != len(concrete_args):
                raise StateError(
                    f"Tracing expected {len(names[at:total])} arguments but got {len(concrete_args)} "
                    "concrete arguments"
                )
            concrete_args = dict(zip(names[at:total], concrete_args, strict=True))
        self._flat: list[str] | None = None  # names of the arguments, if they are taken apart
        self._specs: list[Any] = []
        if concrete_args and any(_holds_place(v) for v in concrete_args.values()):
            self._flat = names[at:total]
        for name in names[at:total]:
            args.append(self._placeholder(name, signature.parameters, concrete_args or {}, root_fn))
        if code.co_flags & inspect.CO_VARARGS:
            args.append(self._star("*", names[total]))
        if code.co_flags & inspect.CO_VARKEYWORDS:
            args.append(self._star("**", names[total + bool(code.co_flags & inspect.CO_VARARGS)]))
        if code.co_flags & _STARS or code.co_kwonlyargcount:
            root_fn = _without_stars(root_fn, len(args))
        return root_fn, args

    def _star(self, stars: str, name: str) -> Proxy:
        return self.create_proxy("placeholder", f"{stars}{name}", (), {}, name=name)

    def _placeholder(self, name: str, parameters: Any, concrete: dict[str, Any], function: Callable) -> Any:
        kind = getattr(function, "__annotations__", {}).get(name)
        parameter = parameters.get(name)
        default = (
            () if parameter is None or parameter.default is inspect.Parameter.empty else (parameter.default,)
        )
        if name not in concrete and self._flat is None:
            return self.create_proxy("placeholder", name, default, {}, type_expr=kind)
        given = concrete.get(name, PH)
        if self._flat is None:
            return self._fixed(name, given, self.create_proxy("placeholder", name, default, {}))
        leaves, spec = pytree.tree_flatten(given)
        self._specs.append(spec)
        made = []
        for number, leaf in enumerate(leaves, 1):
            proxy = self.create_proxy("placeholder", f"{name}_{number}", (), {})
            if isinstance(leaf, PHWithMeta):
                leaf.transfer_attrs(proxy.node)
            made.append(proxy if isinstance(leaf, PHBase) else self._fixed(name, leaf, proxy))
        return pytree.tree_unflatten(made, spec)

    def _fixed(self, name: str, value: Any, proxy: Proxy) -> Any:
        """A value that the graph is made for: its input is checked to be that."""
        check = root._assert
        if isinstance(value, (bool, int, float, str)):
            check(
                operator.eq(proxy, value),
                f"{name} has been specialized to have value {value} but got another value",
            )
        elif value is None:
            none = self.create_proxy("call_function", is_none, (proxy,), {})
            check(none, f"{name} has been specialized to have value None but got another value")
        return value

    def trace(self, root: Module | Callable, concrete_args: dict[str, Any] | None = None) -> Graph:
        """The graph of a module's `forward`, or of a function.

        concrete_args: values of some parameters, for which the graph is made; `PH` in them stays an input.
        Raises TraceError for what depends on values.
        """
        global _tracing
        if isinstance(root, Module):
            self.root = root
            if not hasattr(type(root), self.traced_func_name):
                raise AssertionError(
                    f"traced_func_name={self.traced_func_name} doesn't exist in {type(root).__name__}"
                )
            function = getattr(type(root), self.traced_func_name)
            self.root_module_name = root._get_name()
            self.submodule_paths = {m: name for name, m in root.named_modules(remove_duplicate=False)}
        else:
            self.root = Module()
            function = root
            self.submodule_paths = None
            self.root_module_name = ""
        self.graph = Graph(tracer_cls=type(self))
        if hasattr(function, "__code__"):
            self.graph._co_fields = {  # type: ignore[attr-defined]
                "co_name": function.__code__.co_name, "co_filename": function.__code__.co_filename,
                "co_firstlineno": function.__code__.co_firstlineno,
            }  # fmt: skip
        self.tensor_attrs: dict[Any, str] = {}
        for prefix, module in self.root.named_modules():
            for name, value in vars(module).items():
                if (
                    isinstance(value, Tensor)
                    and name not in module._parameters
                    and name not in module._buffers
                ):
                    self.tensor_attrs[id(value)] = f"{prefix}.{name}" if prefix else name
        self.module_stack = {}
        plain = inspect.unwrap(function)
        if not isinstance(plain, FunctionType):
            raise ArgumentValueError(
                f"trace: a function or a module, whose arguments are known, not {type(root).__name__}"
            )
        asked = "objects" in overriding.OPEN
        call, args = self.create_args_for_root(function, isinstance(root, Module), concrete_args)
        patches = _Patches()
        _tracing += 1
        try:
            self._patch(patches, plain)
            result = call(*args)
        finally:
            _tracing -= 1
            patches.undo()
            if not asked and "objects" in overriding.OPEN:  # which costs every call of a program
                overriding.OPEN.remove("objects")
        flat = self._flat
        if flat is not None:
            leaves, spec = pytree.tree_flatten(result)
            single = isinstance(result, Proxy)
            self.graph._codegen = PyTreeCodeGen(flat, self._specs, None if single else spec)
            result = result if single else leaves
        returned = getattr(plain, "__annotations__", {}).get("return")
        self.create_node("output", "output", (self.create_arg(result),), {}, type_expr=returned)
        self.submodule_paths = None
        return self.graph

    def _patch(self, patches: _Patches, function: FunctionType) -> None:
        cache: dict[str, Any] = {}
        read, tracer = Module.__getattribute__, self
        called = Module.__call__

        def getattribute(module: Module, name: str) -> Any:
            value = read(module, name)
            if isinstance(value, Tensor) and not name.startswith("__"):
                return tracer.getattr(name, value, cache)
            return value

        def call(module: Module, *args: Any, **kwargs: Any) -> Any:
            def forward(*args: Any, **kwargs: Any) -> Any:
                return called(module, *args, **kwargs)

            tracer._autowrap_names(patches, getattr(type(module).forward, "__globals__", {}))
            return tracer.call_module(module, forward, args, kwargs)

        patches.attribute(Module, "__getattribute__", getattribute)
        patches.attribute(Module, "__call__", call)
        for (_, name), names in list(NAMES.items()):
            original = names.get(name, getattr(builtins, name, None))
            if original is not None and not getattr(original, "_leaf", False):
                patches.item(names, name, _leaf(original))
        for kind, name in _wrapped_methods_to_patch:
            patches.attribute(kind, name, _leaf_method(name, getattr(kind, name)))
        self._searched: set[int] = set()
        self._autowrap_names(patches, function.__globals__)
        for module in self._autowrap_search:
            self._autowrap_names(patches, vars(module))

    def _autowrap_names(self, patches: _Patches, names: dict[str, Any]) -> None:
        if id(names) in self._searched:
            return
        self._searched.add(id(names))
        for name, value in list(names.items()):
            if not name.startswith("_") and callable(value) and id(value) in self._autowrap:
                patches.item(names, name, _leaf(value))


def is_none(x: Any) -> bool:
    """Whether a value is None."""
    return x is None


def _holds_place(value: Any) -> bool:
    return any(isinstance(leaf, PHBase) for leaf in pytree.tree_leaves(value))


def _without_stars(function: Callable, count: int) -> Callable:
    """The same function with its `*args` and `**kwargs` as plain parameters, which proxies stand for."""
    function = inspect.unwrap(function)
    code = function.__code__
    plain = code.replace(
        co_flags=code.co_flags & ~_STARS, co_argcount=count, co_posonlyargcount=0, co_kwonlyargcount=0
    )
    return FunctionType(
        plain,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )


def symbolic_trace(root: Module | Callable, concrete_args: dict[str, Any] | None = None) -> Any:
    """A GraphModule that does what a module or a function does, as a graph.

    Shapes, types and values are not known while it is traced: what depends on them is refused (TraceError).
    concrete_args: see `Tracer.trace`.
    """
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = type(root).__name__ if isinstance(root, Module) else root.__name__
    return import_module(".graph_module", __package__).GraphModule(tracer.root, graph, name)


__all__ = [
    "PH", "PHBase", "PHWithMeta", "ProxyableClassMeta", "Tracer", "is_fx_tracing",
    "symbolic_trace", "wrap",
]  # fmt: skip
