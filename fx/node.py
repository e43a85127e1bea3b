"""One step of a graph: what is called, with what, and which steps use the result."""

from __future__ import annotations

import inspect
import operator
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from ..ir.errors import ArgumentValueError
from .immutable_collections import immutable_dict, immutable_list
from .names import written

if TYPE_CHECKING:
    from .graph import Graph

OPS = ("placeholder", "get_attr", "call_function", "call_method", "call_module", "output", "root")
Target: TypeAlias = Callable[..., Any] | str  # what a node calls
Argument: TypeAlias = Any  # a Node, a plain value, or containers of them

_effects: set[Callable] = set()


def has_side_effect(fn: Callable) -> Callable:
    """Note that calls of a function are kept even where nobody uses what they return.  A decorator."""
    _effects.add(fn)
    return fn


def map_aggregate(a: Any, fn: Callable[[Any], Any]) -> Any:
    """Apply `fn` to each value in tuples, lists, dictionaries and slices, which come back immutable."""
    if isinstance(a, tuple):
        mapped = tuple(map_aggregate(x, fn) for x in a)
        return type(a)(*mapped) if hasattr(a, "_fields") else mapped
    if isinstance(a, list):
        return immutable_list(map_aggregate(x, fn) for x in a)
    if isinstance(a, dict):
        return immutable_dict((k, map_aggregate(v, fn)) for k, v in a.items())
    if isinstance(a, slice):
        return slice(map_aggregate(a.start, fn), map_aggregate(a.stop, fn), map_aggregate(a.step, fn))
    return fn(a)


def map_arg(a: Any, fn: Callable[[Node], Any]) -> Any:
    """Apply `fn` to each Node in an argument."""
    if not callable(fn):
        raise AssertionError("torch.fx.map_arg(a, fn): fn must be a callable")
    return map_aggregate(a, lambda x: fn(x) if isinstance(x, Node) else x)


class Node:
    """A step of a graph.

    op: "placeholder", "get_attr", "call_function", "call_method", "call_module" or "output".
    target: the name of the input, of the attribute, method or module; the function itself.
    args, kwargs: what it is called with; nodes in them are results of earlier steps.
    users: the nodes that use this one, as keys.
    meta: what passes note of it.
    """

    def __init__(
        self, graph: Graph, name: str, op: str, target: Target, args: tuple = (), kwargs: dict | None = None,
        return_type: Any = None,
    ):  # fmt: skip
        if op not in OPS:
            raise AssertionError(f"{op} is none of {', '.join(OPS)}")
        if op == "call_function" and not callable(target):
            raise ArgumentValueError(
                f"Node [graph = {graph}, name = '{name}'] target {target} has type {type(target).__name__} "
                "but a Callable is expected"
            )
        if op != "call_function" and not isinstance(target, str):
            raise ArgumentValueError(
                f"Node [graph = {graph}, name = '{name}'] target {target} has type {type(target).__name__} "
                "but a str is expected"
            )
        self.graph, self.name, self.op, self.target, self.type = graph, name, op, target, return_type
        self.users: dict[Node, None] = {}
        self.meta: dict[str, Any] = {}
        self._args: tuple = ()
        self._kwargs: dict[str, Any] = {}
        self._input_nodes: dict[Node, None] = {}
        self._prev = self._next = self
        self._erased = False
        self._repr_fn: Callable[[Node], str] | None = None
        self._update(args, kwargs or {})

    # ---- what it is called with ----
    def _update(self, args: tuple, kwargs: dict[str, Any]) -> None:
        for old in self._input_nodes:
            old.users.pop(self, None)
        self._input_nodes = {}

        def used(node: Node) -> Node:
            self._input_nodes[node] = None
            node.users[self] = None
            return node

        self._args, self._kwargs = map_arg(args, used), map_arg(kwargs, used)

    @property
    def args(self) -> tuple:
        """The positional arguments.  To change one, assign a new tuple: the users of nodes follow."""
        return self._args

    @args.setter
    def args(self, args: tuple) -> None:
        self._update(args, self._kwargs)

    @property
    def kwargs(self) -> dict[str, Any]:
        """The arguments by name, as `args`."""
        return self._kwargs

    @kwargs.setter
    def kwargs(self, kwargs: dict[str, Any]) -> None:
        self._update(self._args, kwargs)

    @property
    def all_input_nodes(self) -> list[Node]:
        """The nodes in args and kwargs, each once, in their order."""
        return list(self._input_nodes)

    def update_arg(self, idx: int, arg: Any) -> None:
        """Put `arg` in place of one positional argument."""
        args = list(self.args)
        args[idx] = arg
        self.args = tuple(args)

    def insert_arg(self, idx: int, arg: Any) -> None:
        """Insert a positional argument before number `idx`."""
        if not 0 <= idx <= len(self.args):
            raise AssertionError("insert_args index must be between 0 and len(self.args)")
        self.args = (*self.args[:idx], arg, *self.args[idx:])

    def update_kwarg(self, key: str, arg: Any) -> None:
        """Put `arg` in place of the argument of this name."""
        self.kwargs = {**self.kwargs, key: arg}

    def replace_input_with(self, old_input: Node, new_input: Node) -> None:
        """Use another node wherever this one uses `old_input`."""

        def replaced(node: Node) -> Node:
            return new_input if node is old_input else node

        self._update(map_arg(self.args, replaced), map_arg(self.kwargs, replaced))

    def replace_all_uses_with(
        self, replace_with: Node, delete_user_cb: Callable[[Node], bool] = lambda user: True, *,
        propagate_meta: bool = False,
    ) -> list[Node]:  # fmt: skip
        """Have the nodes that use this one use another; returns them.

        delete_user_cb: tells which of them.  propagate_meta: hand `meta` on to the other, which has none yet.
        """
        if propagate_meta:
            if replace_with.meta:
                raise AssertionError(
                    "Called node.replace_all_uses_with(replace_with, propagate_meta=True), "
                    "but replace_with already has .meta keys"
                )
            replace_with.meta.update(self.meta)
        changed = [user for user in list(self.users) if delete_user_cb(user)]
        for user in changed:
            user.replace_input_with(self, replace_with)
        return changed

    # ---- its place among the steps ----
    @property
    def next(self) -> Node:
        """The step after this one."""
        return self._next

    @property
    def prev(self) -> Node:
        """The step before this one."""
        return self._prev

    def prepend(self, x: Node) -> None:
        """Move the node `x` of the same graph before this one."""
        if x.graph is not self.graph:
            raise AssertionError("Attempting to move a Node into a different Graph")
        if x is self:
            return
        x._remove_from_list()
        before = self._prev
        before._next, x._prev = x, before
        x._next, self._prev = self, x

    def append(self, x: Node) -> None:
        """Move the node `x` of the same graph behind this one."""
        if x is not self._next:
            self._next.prepend(x)

    def _remove_from_list(self) -> None:
        self._prev._next, self._next._prev = self._next, self._prev

    def __lt__(self, other: Node) -> bool:
        order = {node: place for place, node in enumerate(self.graph.nodes)}
        return order[self] < order[other]

    # ---- what is said of it ----
    @property
    def stack_trace(self) -> str | None:
        """Where the program made it, if that was recorded."""
        return self.meta.get("stack_trace")

    @stack_trace.setter
    def stack_trace(self, trace: str | None) -> None:
        self.meta["stack_trace"] = trace

    def is_impure(self, impure_random: bool = True) -> bool:
        """Whether it does something besides returning a value: inputs, outputs, writes, asserts.

        impure_random: whether drawing random numbers counts, which moves the generator on.
        """
        if self.op in ("placeholder", "output"):
            return True
        if self.op == "call_module":
            owner = self.graph.owning_module
            module = owner.get_submodule(self.target) if owner is not None else None
            return getattr(module, "_is_impure", False)
        if self.op == "get_attr":
            return False
        if self.target in _effects:
            return True
        name = self.target if isinstance(self.target, str) else getattr(self.target, "__name__", "")
        name = str(name)
        if self.target in (operator.setitem, operator.delitem, setattr) or name in ("_assert", "manual_seed"):
            return True
        if getattr(self.target, "__module__", "") == "_operator" and name in _INPLACE:
            return True
        return name.endswith("_") and not name.endswith("__") or "out" in self.kwargs or name == "__setitem__"

    def __repr__(self) -> str:
        return self._repr_fn(self) if self._repr_fn else self.name

    def _pretty_print_target(self, target: Any) -> str:
        if isinstance(target, str):
            return target
        if getattr(target, "__module__", None) == "builtins":
            return f"builtins.{target.__name__}"
        if getattr(target, "__module__", None) == "_operator":
            return f"operator.{target.__name__}"
        return written(target)

    def format_node(
        self, placeholder_names: list[str] | None = None, maybe_return_typename: list[str] | None = None
    ) -> str | None:
        """The step in a line.  Lists get what belongs into a head of the text: inputs, the output's type."""
        uses = f"[num_users={len(self.users)}]"
        if self.op == "placeholder":
            kind = f"{self.target} : {type_written(self.type)}" if self.type else str(self.target)
            if placeholder_names is not None:
                placeholder_names.append(kind)
                return None
            default = f"(default={self.args[0]})" if self.args else ""
            typed = f"{type_written(self.type)} " if self.type else ""
            return f"%{self.name} : {typed}{uses} = {self.op}[target={self.target}]{default}"
        typed = f"{type_written(self.type)} " if self.type else ""
        if self.op == "get_attr":
            target = self._pretty_print_target(self.target)
            return f"%{self.name} : {typed}{uses} = {self.op}[target={target}]"
        if self.op == "output":
            if self.type and maybe_return_typename is not None:
                maybe_return_typename[0] = f" -> {type_written(self.type)}"
            return f"return {self.args[0]}"
        target = self._pretty_print_target(self.target)
        args = ", ".join(_told(a) for a in self.args) + ("," if len(self.args) == 1 else "")
        kwargs = ", ".join(f"{k}: {_told(v)}" for k, v in self.kwargs.items())
        called = f"(args = ({args}), kwargs = {{{kwargs}}})"
        return f"%{self.name} : {typed}{uses} = {self.op}[target={target}]{called}"

    def normalized_arguments(
        self, root: Any, arg_types: Any = None, kwarg_types: Any = None,
        normalize_to_only_use_kwargs: bool = False,
    ) -> Any:  # fmt: skip
        """Arguments by name where the target's signature tells them, as (args, kwargs); None where not."""
        if self.op == "call_module":
            function = root.get_submodule(self.target).forward
        elif self.op == "call_function":
            function = self.target
        else:
            return None
        try:
            bound = inspect.signature(function).bind(*self.args, **self.kwargs)
        except (TypeError, ValueError):
            return None
        bound.apply_defaults()
        kinds = {p.kind for p in bound.signature.parameters.values()}
        if kinds & {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}:
            return None
        if normalize_to_only_use_kwargs:
            return ArgsKwargsPair((), dict(bound.arguments))
        count = len(self.args)
        items = list(bound.arguments.items())
        return ArgsKwargsPair(tuple(v for _, v in items[:count]), dict(items[count:]))


class ArgsKwargsPair(tuple):
    """Arguments by place, and by name."""

    def __new__(cls, args: tuple, kwargs: dict[str, Any]) -> ArgsKwargsPair:
        return super().__new__(cls, (args, kwargs))

    args = property(operator.itemgetter(0))
    kwargs = property(operator.itemgetter(1))


_INPLACE = frozenset(
    "iadd iand iconcat ifloordiv ilshift imatmul imod imul ior ipow irshift isub itruediv ixor".split()
)


def _told(arg: Any) -> str:
    """An argument as the text of a graph has it: nodes behind a percent sign."""
    if isinstance(arg, Node):
        return f"%{arg.name}"
    if isinstance(arg, list):
        return f"[{', '.join(map(_told, arg))}]"
    if isinstance(arg, tuple):
        inner = ", ".join(map(_told, arg)) + ("," if len(arg) == 1 else "")
        if hasattr(arg, "_fields"):
            named = ", ".join(f"{name}={_told(x)}" for name, x in zip(arg._fields, arg, strict=True))
            return f"{type(arg).__name__}({named})"
        return f"({inner})"
    if isinstance(arg, dict):
        return "{" + ", ".join(f"{k}: {_told(v)}" for k, v in arg.items()) + "}"
    if isinstance(arg, slice):
        return f"slice({', '.join(_told(x) for x in (arg.start, arg.stop, arg.step))})"
    if isinstance(arg, (types.FunctionType, types.BuiltinFunctionType, type)):
        return written(arg)
    return str(arg)


_format_arg = _told  # by PyTorch's name


def type_written(kind: Any) -> str:
    """A type as an annotation has it."""
    if isinstance(kind, str):
        return kind
    return written(kind) if isinstance(kind, type) else repr(kind)
