"""A module whose `forward` is the code of a graph."""

from __future__ import annotations

import copy
import itertools
import linecache
import sys
import traceback
from importlib import import_module
from types import ModuleType
from typing import Any

from ..ir.errors import StateError
from ..nn import Module
from ..runtime.tensor import Parameter, Tensor
from .code import PythonCode
from .graph import Graph
from .tracer import Tracer
from .wrapping import note_wrapped

_numbers = itertools.count()


def _run(code: PythonCode) -> Any:
    """The function that source defines; tracebacks and `inspect` find its lines."""
    name = f"<eval_with_key>.{next(_numbers)}"
    names = dict(code.globals)
    exec(compile(code.src, name, "exec"), names)
    linecache.cache[name] = (len(code.src), None, code.src.splitlines(keepends=True), name)
    for wrapped in code.wrapped:
        note_wrapped(names, wrapped)
    return names["forward"]


class GraphModule(Module):
    """A module made of a graph and of what the graph names.

    root: a module, or a dictionary of names and values, whose members the graph's steps read and call; only
    these are taken over.  class_name: of the class that is made for this object.  After the graph was
    changed, `recompile()` makes `forward` anew.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> GraphModule:
        for base in cls.__mro__:  # a class of its own, whose `forward` is this object's alone
            if base.__qualname__.partition(".")[2] != "GraphModuleImpl" and not base.__dict__.get("_made"):
                cls = base
                break
        made = type("GraphModuleImpl", (cls,), {"_made": True, "__module__": cls.__module__})
        return Module.__new__(made)

    def __init__(self, root: Any, graph: Graph, class_name: str = "GraphModule"):
        super().__init__()
        self.__class__.__name__ = class_name
        self.meta: dict[str, Any] = {}
        if isinstance(root, Module):
            if hasattr(root, "training"):
                self.training = root.training
            for node in graph.nodes:
                if node.op in ("get_attr", "call_module"):
                    _copy_attr(root, self, node.target)
            if isinstance(root, GraphModule):
                self.meta.update(root.meta)
        elif isinstance(root, dict):
            targets = []
            for node in graph.nodes:
                if node.op in ("get_attr", "call_module"):
                    if node.target not in root:
                        raise StateError(
                            f"Node {node} referenced target {node.target} but that target was not "
                            "provided in ``root``!"
                        )
                    targets.append(node.target)
            for target in sorted(set(targets), key=lambda t: t.count(".")):
                _assign_attr(root[target], self, target)
        else:
            raise StateError(f"Unsupported type {root} passed for root!")
        self.graph = graph
        self._tracer_cls = None
        if graph._tracer_cls and "<locals>" not in graph._tracer_cls.__qualname__:
            self._tracer_cls = graph._tracer_cls
        self._tracer_extras = graph._tracer_extras or {}

    @property
    def graph(self) -> Graph:
        """The graph that `forward` is made of.  Assigning one makes it anew."""
        return self._graph

    @graph.setter
    def graph(self, g: Graph) -> None:
        if not isinstance(g, Graph):
            raise AssertionError(f"Expected a Graph instance, but got {type(g)}")
        object.__setattr__(self, "_graph", g)
        g.owning_module = self
        self.recompile()

    @property
    def code(self) -> str:
        """The source of `forward`."""
        return self._code

    def recompile(self) -> PythonCode:
        """Make `forward` of the graph as it is now."""
        made = self._graph.python_code(root_module="self")
        object.__setattr__(self, "_code", made.src)
        object.__setattr__(self, "_python_code", made)
        forward = _run(made)
        cls = type(self)
        fields = getattr(self._graph, "_co_fields", None)
        if fields is not None:
            forward._co_fields = fields
        cls.forward = forward  # type: ignore[method-assign]
        return made

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().__call__(*args, **kwargs)
        except Exception as error:
            _tell_line(error)
            raise

    # ---- members ----
    def add_submodule(self, target: str, m: Module) -> bool:
        """Put a module at a dotted name, with modules above it where there are none.

        Returns False where something else stands there or above.
        """
        *above, leaf = target.split(".")
        at: Module = self
        for name in above:
            below = getattr(at, name, None)
            if below is None:
                below = Module()
                setattr(at, name, below)
            if not isinstance(below, Module):
                return False
            at = below
        at.add_module(leaf, m)
        return True

    def delete_submodule(self, target: str) -> bool:
        """Remove the module of a dotted name.  Returns False where there is none."""
        *above, leaf = target.split(".")
        at: Any = self
        for name in above:
            at = getattr(at, name, None)
            if not isinstance(at, Module):
                return False
        if not isinstance(getattr(at, leaf, None), Module):
            return False
        delattr(at, leaf)
        return True

    def delete_all_unused_submodules(self) -> None:
        """Remove the modules that no step calls, reads from, or goes through."""
        used: set[str] = set()
        for node in self.graph.nodes:
            if node.op in ("call_module", "get_attr"):
                parts = node.target.split(".")
                used.update(".".join(parts[:i]) for i in range(1, len(parts) + 1))
                if node.op == "call_module":
                    called = _at(self, node.target)
                    if isinstance(called, Module):
                        used.update(f"{node.target}.{name}" for name, _ in called.named_modules() if name)
        for name in [name for name, _ in self.named_modules() if name and name not in used]:
            self.delete_submodule(name)

    # ---- copies and text ----
    def __deepcopy__(self, memo: dict) -> GraphModule:
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        Module.__init__(made)
        made.__class__.__name__ = type(self).__name__
        for name, value in vars(self).items():
            if name not in ("_graph", "_code", "_python_code"):
                vars(made)[name] = copy.deepcopy(value, memo)
        made._own()
        made.graph = copy.deepcopy(self.graph, memo)
        return made

    def __copy__(self) -> GraphModule:
        made = GraphModule(self, copy.copy(self.graph), type(self).__name__)
        made.meta = self.meta
        return made

    def __reduce__(self) -> tuple:
        """As its members and its code, which is traced again where it is loaded, modules left whole."""
        state = {
            name: value
            for name, value in vars(self).items()
            if name not in ("_graph", "_code", "_python_code")
        }
        wanted = [(name, *_place(name, value)) for name, value in self._python_code.globals.items()]
        source = PythonCode(self._code, {}, self._python_code.wrapped)
        return _loaded, (state, source, wanted, type(self).__name__, self._graph._codegen)

    def __str__(self) -> str:
        about = super().__repr__()
        return f"{about}\n{self._code}\n# To see more debug info, please use `graph_module.print_readable()`"

    def print_readable(
        self, print_output: bool = True, include_stride: bool = False, include_device: bool = False,
        colored: bool = False, **_: Any,
    ) -> str:  # fmt: skip
        """The source of this module and of the GraphModules in it, printed unless told otherwise."""
        parts = [f"class {type(self).__name__}({Module.__name__}):", _indented(self._code.strip("\n"))]
        for name, module in self.named_children():
            if isinstance(module, GraphModule):
                parts.append(_indented(f"# {name}\n{module.print_readable(print_output=False)}"))
        text = "\n".join(parts)
        if print_output:
            print(text)
        return text


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" if line else line for line in text.split("\n"))


def _tell_line(error: Exception) -> None:
    """Print the lines of generated code around the one that failed, if that is where the error is from."""
    frames = traceback.extract_tb(error.__traceback__)
    if (
        getattr(error, "_fx_told", False)
        or not frames
        or not frames[-1].filename.startswith("<eval_with_key>")
    ):
        return
    error._fx_told = True  # type: ignore[attr-defined]
    frame = frames[-1]
    lines = linecache.getlines(frame.filename)
    at = frame.lineno or 1
    before, line, after = lines[max(at - 4, 0) : at], "~" * 27, lines[at : at + 3]
    head = f"Call using an FX-traced Module, line {at} of the traced Module's generated forward function:\n"
    print("".join([head, *before, f"\n{line} <--- HERE\n", *after]), file=sys.stderr)


def _at(module: Any, dotted: str) -> Any:
    for part in dotted.split("."):
        module = getattr(module, part, None)
    return module


def _copy_attr(source: Any, target: Any, dotted: str) -> None:
    """Give `target` what stands at a dotted name of `source`."""
    *above, leaf = dotted.split(".")
    for name in above:
        below = getattr(target, name, None)
        source = getattr(source, name)
        if below is source:  # shared already
            return
        if below is None:
            below = Module()
            setattr(target, name, below)
        target = below
    _put(target, leaf, getattr(source, leaf))


def _assign_attr(value: Any, target: Any, dotted: str) -> None:
    *above, leaf = dotted.split(".")
    for name in above:
        below = getattr(target, name, None)
        if below is None:
            below = Module()
            setattr(target, name, below)
        target = below
    _put(target, leaf, value)


def _put(target: Any, name: str, value: Any) -> None:
    if isinstance(value, Tensor) and not isinstance(value, Parameter):
        target.register_buffer(name, value)
    else:
        setattr(target, name, value)


def _place(name: str, value: Any) -> tuple[Any, ...]:
    """How a name of generated code is found again: pickled as it is, or a module by its name."""
    return ("module", value.__name__) if isinstance(value, ModuleType) else ("value", value)


class _Whole(Tracer):
    """Leaves all modules as steps."""

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        return True


def _loaded(
    state: dict[str, Any], source: PythonCode, wanted: list[tuple], class_name: str, codegen: Any
) -> GraphModule:
    names = {n: import_module(what) if kind == "module" else what for n, kind, what in wanted}
    forward = _run(source._replace(globals=names))

    class Holder(Module):
        def __init__(self) -> None:
            super().__init__()
            vars(self).update(state)
            self._own()

    Holder.forward = forward  # type: ignore[method-assign]
    Holder.__name__ = class_name
    root = Holder()
    graph = _Whole().trace(root)
    tracer = state.get("_tracer_cls")
    graph._tracer_cls = tracer
    made = GraphModule(root, graph, class_name)
    for name, value in state.items():
        if name not in vars(made):
            vars(made)[name] = value
    for name in ("_parameters", "_buffers", "_modules"):
        for key, value in state.get(name, {}).items():
            if key not in getattr(made, name):
                getattr(made, name)[key] = value
    vars(made)["training"] = state.get("training", True)
    return made
