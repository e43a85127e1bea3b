"""A graph: steps in an order in which they can run, each made, moved and erased with its users kept true."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ..ir.errors import StateError
from ..ir.warned import warn
from ..nn import Module
from .code import CodeGen, PythonCode, PyTreeCodeGen
from .names import Namespace, snake_case
from .node import Node, Target, map_arg

_CodeGen, _PyTreeCodeGen = CodeGen, PyTreeCodeGen  # PyTorch's names for these


class _nodes:
    """The steps of a graph, forwards or backwards."""

    def __init__(self, graph: Graph, backwards: bool = False):
        self.graph, self.backwards = graph, backwards

    def __len__(self) -> int:
        return self.graph._len

    def __iter__(self) -> Iterator[Node]:
        root = self.graph._root
        at = root._prev if self.backwards else root._next
        while at is not root:
            if not at._erased:
                yield at
            at = at._prev if self.backwards else at._next

    def __reversed__(self) -> _nodes:
        return _nodes(self.graph, not self.backwards)


class Graph:
    """Steps from placeholders to an output, each a call of a function, method or module.

    owning_module: whose attributes `get_attr` and `call_module` name.  tracer_cls: what traced it.
    """

    def __init__(
        self, owning_module: Any = None, tracer_cls: type | None = None,
        tracer_extras: dict[str, Any] | None = None,
    ):  # fmt: skip
        self._root = Node(self, "", "root", "", (), {})
        self._insert: Callable[[Node], None] = self._root.prepend
        self._len = 0
        self._graph_namespace = Namespace()
        self._owning_module = owning_module
        self._tracer_cls, self._tracer_extras = tracer_cls, tracer_extras
        self._codegen = CodeGen()

    @property
    def owning_module(self) -> Any:
        return self._owning_module

    @owning_module.setter
    def owning_module(self, module: Any) -> None:
        self._owning_module = module

    @property
    def nodes(self) -> _nodes:
        """The steps in order.  Erasing one while they are gone through is safe."""
        return _nodes(self)

    def find_nodes(self, *, op: str, target: Target | None = None, sort: bool = True) -> list[Node]:
        """The steps of a kind, those that call `target` where it is given, in order."""
        return [n for n in self.nodes if n.op == op and (target is None or n.target == target)]

    # ---- making steps ----
    def create_node(
        self, op: str, target: Target, args: tuple | None = None, kwargs: dict[str, Any] | None = None,
        name: str | None = None, type_expr: Any = None,
    ) -> Node:  # fmt: skip
        """Add a step at the point of insertion, the end if no other was set."""
        if args is not None and not isinstance(args, tuple):
            raise AssertionError(f"args must be a tuple, got {type(args)}")
        if kwargs is not None and not isinstance(kwargs, dict):
            raise AssertionError(f"kwargs must be a dict, got {type(kwargs)}")
        name = self._graph_namespace.create_name(name or self._target_to_str(target), None)
        made = Node(self, name, op, target, args or (), kwargs or {}, type_expr)
        self._graph_namespace.associate_name_with_obj(name, made)
        self._insert(made)
        self._len += 1
        return made

    def _target_to_str(self, target: Any) -> str:
        name = target if isinstance(target, str) else getattr(target, "__name__", type(target).__name__)
        if name.startswith("__") and name.endswith("__"):
            name = name[2:-2]
        name = (
            name.rstrip("_")
            if not isinstance(target, str) and name.rstrip("_") in ("and", "or", "is")
            else name
        )
        return snake_case(name)

    def placeholder(self, name: str, type_expr: Any = None, default_value: Any = ...) -> Node:
        """Add an input."""
        args = () if default_value is ... else (default_value,)
        return self.create_node("placeholder", name, args, type_expr=type_expr)

    def get_attr(self, qualified_name: str, type_expr: Any = None) -> Node:
        """Add a step that reads a parameter or another attribute of the module."""
        owner = self.owning_module
        if owner is not None and not _has(owner, qualified_name):
            warn(
                f"get_attr: the graph's module has no {qualified_name!r} yet; "
                "add it with GraphModule.add_submodule, register_parameter or register_buffer"
            )
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def call_module(
        self, module_name: str, args: tuple | None = None, kwargs: dict[str, Any] | None = None,
        type_expr: Any = None,
    ) -> Node:  # fmt: skip
        """Add a call of a module of the module."""
        owner = self.owning_module
        if owner is not None and not _has(owner, module_name):
            warn(
                f"call_module: the graph's module has no {module_name!r} yet; "
                "add it with GraphModule.add_submodule"
            )
        return self.create_node("call_module", module_name, args, kwargs, type_expr=type_expr)

    def call_method(
        self, method_name: str, args: tuple | None = None, kwargs: dict[str, Any] | None = None,
        type_expr: Any = None,
    ) -> Node:  # fmt: skip
        """Add a call of a method of the first argument."""
        return self.create_node("call_method", method_name, args, kwargs, type_expr=type_expr)

    def call_function(
        self, the_function: Callable, args: tuple | None = None, kwargs: dict[str, Any] | None = None,
        type_expr: Any = None, name: str | None = None,
    ) -> Node:  # fmt: skip
        """Add a call of a function."""
        return self.create_node("call_function", the_function, args, kwargs, name, type_expr)

    def output(self, result: Any, type_expr: Any = None) -> Node:
        """Add the step that returns `result`, a node or containers of them."""
        return self.create_node("output", "output", (result,), type_expr=type_expr)

    def output_node(self) -> Node:
        """The step that returns.  Raises AssertionError where there is none."""
        found = next(iter(reversed(self.nodes)), None)
        if found is None or found.op != "output":
            raise AssertionError("the graph has no output")
        return found

    def node_copy(self, node: Node, arg_transform: Callable[[Node], Any] = lambda x: x) -> Node:
        """Add a copy of a step, of any graph, whose arguments become what `arg_transform` makes of them."""
        args, kwargs = map_arg(node.args, arg_transform), map_arg(node.kwargs, arg_transform)
        made = self.create_node(node.op, node.target, args, kwargs, node.name, node.type)
        made.meta = copy.copy(node.meta)
        return made

    def graph_copy(self, g: Graph, val_map: dict[Node, Node], return_output_node: bool = False) -> Any:
        """Add copies of another graph's steps.  val_map: from its nodes to these, filled in as it goes.

        Returns what its output returns, or None; with return_output_node a pair of that and its node.
        """
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                result = map_arg(node.args[0], lambda n: val_map[n])
                return (result, node) if return_output_node else result
            val_map[node] = self.node_copy(node, lambda n: val_map[n])
        return None

    def __deepcopy__(self, memo: dict | None = None) -> Graph:
        made = Graph(tracer_cls=self._tracer_cls, tracer_extras=copy.copy(self._tracer_extras))
        made._codegen = copy.copy(self._codegen)
        copied: dict[Node, Node] = {}
        made.graph_copy(self, copied)
        for node in self.nodes:
            if node.op == "output":
                output = made.output(map_arg(node.args[0], lambda n: copied[n]), node.type)
                output.meta = copy.copy(node.meta)
        return made

    # ---- changing them ----
    def erase_node(self, to_erase: Node) -> None:
        """Remove a step that nobody uses.  Raises StateError (a RuntimeError) where it has users."""
        if to_erase.users:
            raise StateError(
                f"Tried to erase Node {to_erase} but it still had {len(to_erase.users)} users in the graph: "
                f"{to_erase.users}!"
            )
        if to_erase.graph is not self:
            raise StateError(f"Attempting to remove {to_erase} from wrong graph!")
        if to_erase._erased:
            return
        to_erase._remove_from_list()
        to_erase._erased = True
        self._len -= 1
        to_erase._update((), {})

    def inserting_before(self, n: Node | None = None) -> Any:
        """A block whose new steps stand before `n`, or at the beginning."""
        if n is None:
            return self.inserting_after(self._root)
        return self._set(n, n.prepend)

    def inserting_after(self, n: Node | None = None) -> Any:
        """A block whose new steps stand behind `n`, or at the end."""
        if n is None:
            return self._set(self._root, self._root.prepend)
        at = [n]

        def behind(made: Node) -> None:
            at[0].append(made)
            at[0] = made

        return self._set(n, behind)

    def _set(self, n: Node, insert: Callable[[Node], None]) -> _Insertion:
        if n.graph is not self:
            raise AssertionError("Node to insert before is not in graph.")
        return _Insertion(self, insert)

    def eliminate_dead_code(self, is_impure_node: Callable[[Node], bool] | None = None) -> bool:
        """Remove steps whose result nobody uses and that do nothing else.  Returns whether there were any."""
        self.lint()
        impure = is_impure_node or Node.is_impure
        dead = 0
        for node in reversed(self.nodes):
            if not node.users and not impure(node) and node.op not in ("placeholder", "output"):
                self.erase_node(node)
                dead += 1
        return dead > 0

    def lint(self) -> None:
        """Check that steps use earlier ones, have names of their own, and that the module has what they name.

        Raises StateError, ArgumentValueError.
        """
        seen: set[Node] = set()
        names: set[str] = set()
        for node in self.nodes:
            if node.graph is not self:
                raise StateError(f"Node '{node}' does not belong to this Graph!")
            for used in node.all_input_nodes:
                if used.graph is not self:
                    raise StateError(
                        f"Argument '{used}' of Node '{node}' does not belong to this Graph, "
                        "but was used as an argument! node_copy() maps those of another by `arg_transform`"
                    )
                if used not in seen:
                    raise StateError(
                        f"Argument '{used}' of Node '{node}' was used before it has been defined! "
                        f"Please check that Nodes in the graph are topologically ordered\n{self}"
                    )
            if node.name in names:
                raise StateError(f"Node redefined name {node.name}!")
            seen.add(node)
            names.add(node.name)
            owner = self.owning_module
            if owner is not None and node.op in ("get_attr", "call_module"):
                self._check_target(owner, node)

    def _check_target(self, owner: Any, node: Node) -> None:
        assert isinstance(node.target, str)
        at = owner
        parts = node.target.split(".")
        for i, part in enumerate(parts):
            if not hasattr(at, part):
                raise StateError(
                    f"Node {node} target {node.target} references nonexistent attribute {part} of "
                    f"{'.'.join(parts[:i])}"
                )
            at = getattr(at, part)
        if node.op == "call_module" and not isinstance(at, Module):
            raise StateError(
                f"Node {node} target {node.target} {'.'.join(parts)} does not reference an nn.Module"
            )

    # ---- as code and text ----
    def set_codegen(self, codegen: CodeGen) -> None:
        """Have the graph become a function another way."""
        self._codegen = codegen

    def on_generate_code(self, make_transformer: Callable) -> Any:
        """Set what changes the lines of code: made of what did so before, or None.  A context manager."""
        before = self._codegen._body_transformer
        self._codegen._body_transformer = make_transformer(before)

        @contextmanager
        def restoring() -> Iterator[None]:
            try:
                yield
            finally:
                self._codegen._body_transformer = before

        return restoring()

    def process_inputs(self, *args: Any) -> Any:
        return self._codegen.process_inputs(*args)

    def process_outputs(self, out: Any) -> Any:
        return self._codegen.process_outputs(out)

    def python_code(self, root_module: str, *, verbose: bool = False, **_: Any) -> PythonCode:
        """The graph as Python source, a function `forward` whose first argument is called `root_module`."""
        names = Namespace()

        def renamed(node: Node) -> str:
            return names.create_name(node.name, node)

        before = [(node, node._repr_fn) for node in self.nodes]
        for node, _repr in before:
            node._repr_fn = renamed
        try:
            names.create_name(root_module, _Self)
            return self._codegen.generate(self, root_module, names)
        finally:
            for node, was in before:
                node._repr_fn = was

    def __str__(self) -> str:
        lines = [node.format_node() for node in self.nodes]
        return "graph():" + "".join(f"\n    {line}" for line in lines)

    def print_tabular(self) -> None:
        """Print a row for each step."""
        rows = [["opcode", "name", "target", "args", "kwargs"]]
        rows += [[n.op, n.name, str(n.target), str(n.args), str(n.kwargs)] for n in self.nodes]
        widths = [max(len(row[i]) for row in rows) for i in range(5)]
        rows.insert(1, ["-" * width for width in widths])
        print("\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows))


class _Self:
    """Whose name is that of the module in a graph's code."""


class _Insertion:
    """Sets the point of insertion at once; as a block, puts the former one back."""

    def __init__(self, graph: Graph, insert: Callable[[Node], None]):
        self._graph, self._before = graph, graph._insert
        graph._insert = insert

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: Any) -> None:
        self._graph._insert = self._before


def _has(module: Any, dotted: str) -> bool:
    for part in dotted.split("."):
        if not hasattr(module, part):
            return False
        module = getattr(module, part)
    return True


_snake_case = snake_case
