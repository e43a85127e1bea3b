"""Python source of a graph: one statement a step, values dropped behind the last step that uses them."""

from __future__ import annotations

import enum
import math
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from ..facade import pytree
from .names import ROOT, Namespace, qualified_name
from .node import Node
from .specs import tree_flatten_spec
from .wrapping import is_wrapped

if TYPE_CHECKING:
    from .graph import Graph

# How calls of Python's operators are written.
_BINARY = {
    "add": "+", "sub": "-", "mul": "*", "floordiv": "//", "truediv": "/", "mod": "%", "pow": "**",
    "lshift": "<<", "rshift": ">>", "and_": "&", "or_": "|", "xor": "^", "matmul": "@", "eq": "==",
    "ne": "!=", "lt": "<", "gt": ">", "le": "<=", "ge": ">=", "is_": "is", "is_not": "is not",
}  # fmt: skip
_UNARY = {"neg": "-", "invert": "~", "pos": "+"}
_INPLACE = {
    "iadd": "+=", "iand": "&=", "ifloordiv": "//=", "ilshift": "<<=", "imod": "%=", "imul": "*=",
    "imatmul": "@=", "ior": "|=", "ipow": "**=", "irshift": ">>=", "isub": "-=", "itruediv": "/=",
    "ixor": "^=",
}  # fmt: skip


class PythonCode(NamedTuple):
    """src: the function's source.  globals: what its names mean.  wrapped: which stay whole if traced."""

    src: str
    globals: dict[str, Any]
    wrapped: tuple[str, ...] = ()


def attribute(base: str, target: str) -> str:
    """An expression for a dotted attribute, some of whose names may be no identifiers."""
    for part in target.split("."):
        base = f"{base}.{part}" if part.isidentifier() else f'getattr({base}, "{part}")'
    return base


class Globals:
    """The names that code is run with: of functions, classes and constants."""

    def __init__(self, names: Namespace):
        self.names = names
        self.held: dict[str, Any] = {}
        self.wrapped: dict[str, None] = {}

    def add(self, hint: str, value: Any) -> str:
        """An expression for a value: its qualified name, or one that is made."""
        root = import_module(ROOT)
        if hint.startswith("torch.") and _reached(root, hint.partition(".")[2]) is value:
            self.held["torch"] = root
            return hint
        if hint == "torch" or "." not in hint and _reached(import_module("builtins"), hint) is value:
            return hint
        if is_wrapped(value) and hint.rpartition(".")[2].isidentifier():
            hint = hint.rpartition(".")[2]
        name = next((n for n, held in self.held.items() if held is value), None)
        if name is None:
            name = self.names.create_name(hint.replace(".", "_"), value)
            self.held[name] = value
            if is_wrapped(value):
                self.wrapped[name] = None
        return name

    def write(self, arg: Any) -> str:
        """An argument as source."""
        if isinstance(arg, Node):
            return repr(arg)
        if isinstance(arg, tuple):
            inner = ", ".join(map(self.write, arg)) + ("," if len(arg) == 1 else "")
            if hasattr(arg, "_fields"):
                return f"{self.add(qualified_name(type(arg)), type(arg))}({inner})"
            return f"({inner})"
        if isinstance(arg, list):
            return f"[{', '.join(map(self.write, arg))}]"
        if isinstance(arg, dict):
            return "{" + ", ".join(f"{self.write(k)}: {self.write(v)}" for k, v in arg.items()) + "}"
        if isinstance(arg, slice):
            return f"slice({self.write(arg.start)}, {self.write(arg.stop)}, {self.write(arg.step)})"
        if isinstance(arg, enum.Enum):
            return f"{self.add(qualified_name(type(arg)), type(arg))}.{arg.name}"
        if isinstance(arg, float) and not math.isfinite(arg):
            self.held.update(inf=math.inf, nan=math.nan)
            return repr(arg)
        if arg is Ellipsis:
            return "..."
        if isinstance(arg, type) or callable(arg) and hasattr(arg, "__qualname__"):
            return self.add(qualified_name(arg), arg)
        root = import_module(ROOT)
        if isinstance(arg, (root.dtype, root.layout)):
            self.held["torch"] = root
            return f"torch.{str(arg).rpartition('.')[2]}"
        if isinstance(arg, root.device):
            self.held["device"] = root.device
            return repr(arg)
        return repr(arg)

    def annotation(self, kind: Any) -> str:
        """A type as source."""
        if kind is None or kind is type(None):
            return "None" if kind is None else self.add("NoneType", type(None))
        args = getattr(kind, "__args__", None)
        origin = getattr(kind, "_name", None) or getattr(getattr(kind, "__origin__", None), "__name__", None)
        if args is not None and origin:
            holder = import_module("typing") if hasattr(kind, "_name") and kind._name else None
            base = getattr(holder, origin, None) if holder else kind.__origin__
            if base is None:
                return self.add(self.names.create_name("annotation", None), kind)
            name = self.add(f"typing_{origin}" if holder else origin, base)
            if args == ((),) or not args:
                return f"{name}[()]" if origin in ("Tuple", "tuple") else name
            return f"{name}[{', '.join('...' if a is Ellipsis else self.annotation(a) for a in args)}]"
        if isinstance(kind, type):
            return self.add(qualified_name(kind), kind)
        name = getattr(kind, "_name", None)
        return self.add(f"typing_{name}" if name else "annotation", kind)


def _reached(root: Any, dotted: str) -> Any:
    for part in dotted.split("."):
        root = getattr(root, part, None)
    return root


class CodeGen:
    """How a graph becomes a function; its methods are what a subclass changes."""

    def __init__(self) -> None:
        self._body_transformer: Any = None

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str) -> str:
        """The head of the function, and what stands before all steps."""
        if not free_vars or free_vars[0] != "self":
            free_vars.insert(0, "self")
        return f"def forward({', '.join(free_vars)}){maybe_return_annotation}:"

    def generate_output(self, output_args: Any) -> str:
        """The statement that returns, without a line's end."""
        return f"return {self._write(output_args)}"

    def process_inputs(self, *args: Any) -> Any:
        """What the placeholders are given, of what the function is called with."""
        return args

    def process_outputs(self, outputs: Any) -> Any:
        """What the function returns, of what the output holds."""
        return outputs

    def additional_globals(self) -> list[tuple[str, Any]]:
        """Names that `gen_fn_def` uses besides."""
        return []

    _write: Any = staticmethod(repr)

    def generate(self, graph: Graph, root_module: str, names: Namespace) -> PythonCode:
        """The source of a graph whose nodes have `names`."""
        known = Globals(names)
        for name, value in self.additional_globals():
            known.held[name] = value
            names.associate_name_with_obj(name, value)
        self._write = known.write
        last: dict[Node, list[Node]] = {}  # whose last use a node is
        seen: set[Node] = set()
        for node in reversed(list(graph.nodes)):
            for used in (*node.all_input_nodes, node):
                if used not in seen:
                    seen.add(used)
                    last.setdefault(node, []).append(used)
        free, body, returned = [], [], [""]
        for node in graph.nodes:
            line = self._statement(graph, node, root_module, known, free, returned)
            dropped = [] if node.op == "output" else [repr(n) for n in last.get(node, ()) if n.op != "output"]
            if node.op == "placeholder" and not line:
                if node in last.get(node, ()):
                    body.append(f"{node!r} = None")
                continue
            if len(last.get(node, ())) == 1 and last[node] == [node] and node.op != "output":
                body.append(f"{line};  {node!r} = None")
            else:
                body.append(f"{line};  {' = '.join([*dropped, 'None'])}" if dropped else line)
        if self._body_transformer is not None:
            body = [line.rstrip("\n") for line in self._body_transformer([f"{line}\n" for line in body])]
        head = self.gen_fn_def(free, returned[0])
        del self._write  # which holds modules, and a copy or a pickle need not
        lines = (
            "\n".join("\n".join(f"    {part}" for part in line.split("\n")) for line in body if line)
            or "    pass"
        )
        return PythonCode(f"\n\n\n{head}\n{lines}\n", known.held, tuple(known.wrapped))

    def _statement(
        self, graph: Graph, node: Node, root: str, known: Globals, free: list[str], returned: list[str]
    ) -> str:
        typed = f" : {known.annotation(node.type)}" if node.type is not None else ""
        if node.op == "placeholder":
            default = f" = {known.write(node.args[0])}" if node.args else ""
            free.append(f"{node.target}{typed}{default}")
            raw = str(node.target).lstrip("*")
            return f"{node!r} = {raw}" if raw != repr(node) else ""
        if node.op == "output":
            if node.type is not None:
                returned[0] = f" -> {known.annotation(node.type)}"
            return self.generate_output(node.args[0])
        if node.op == "get_attr":
            return f"{node!r}{typed} = {attribute(root, node.target)}"
        if node.op == "call_method":
            this, *rest = node.args
            method = f"{_callee(known.write(this), this)}.{node.target}"
            return f"{node!r}{typed} = {method}({_arguments(known, rest, node.kwargs)})"
        if node.op == "call_module":
            called = _arguments(known, node.args, node.kwargs)
            return f"{node!r}{typed} = {attribute(root, node.target)}({called})"
        return self._call(node, typed, known)

    def _call(self, node: Node, typed: str, known: Globals) -> str:
        target: Any = node.target
        if getattr(target, "__module__", "") == "_operator" and not node.kwargs:
            args = [
                f"({known.write(a)})"
                if isinstance(a, (int, float)) and not isinstance(a, bool) and a < 0
                else known.write(a)
                for a in node.args
            ]
            name = target.__name__
            if name in _BINARY and len(args) == 2:
                return f"{node!r}{typed} = {args[0]} {_BINARY[name]} {args[1]}"
            if name in _UNARY and len(args) == 1:
                return f"{node!r}{typed} = {_UNARY[name]}{args[0]}"
            if name in _INPLACE and len(args) == 2 and isinstance(node.args[0], Node):
                return f"{args[0]} {_INPLACE[name]} {args[1]};  {node!r}{typed} = {args[0]}"
            if name == "getitem" and len(args) == 2:
                return f"{node!r}{typed} = {_callee(args[0], node.args[0])}[{args[1]}]"
        if target is getattr and len(node.args) == 2 and isinstance(node.args[1], str) and not node.kwargs:
            this, leaf = node.args
            if leaf.isidentifier():
                return f"{node!r}{typed} = {_callee(known.write(this), this)}.{leaf}"
        function = known.add(qualified_name(target), target)
        return f"{node!r}{typed} = {function}({_arguments(known, node.args, node.kwargs)})"


def _callee(text: str, value: Any) -> str:
    """What stands before a dot or a bracket: a number needs parentheses."""
    return text if isinstance(value, Node) or text[-1:] in "])}" else f"({text})"


def _arguments(known: Globals, args: Any, kwargs: dict[str, Any]) -> str:
    return ", ".join([*map(known.write, args), *(f"{k} = {known.write(v)}" for k, v in kwargs.items())])


class PyTreeCodeGen(CodeGen):
    """Of a function whose arguments were traced part by part: it takes them whole, and takes them apart.

    names: of the arguments.  in_specs: of each.  out_spec: of what it returns, None for a tensor.
    """

    def __init__(self, names: list[str], in_specs: list[Any], out_spec: Any = None):
        super().__init__()
        self.names, self.in_specs, self.out_spec = names, in_specs, out_spec

    def process_inputs(self, *args: Any) -> Any:
        return [
            leaf for x, spec in zip(args, self.in_specs, strict=True) for leaf in tree_flatten_spec(x, spec)
        ]

    def process_outputs(self, outputs: Any) -> Any:
        if self.out_spec is None:
            return outputs
        leaves = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
        return pytree.tree_unflatten(leaves, self.out_spec)

    def additional_globals(self) -> list[tuple[str, Any]]:
        specs = [(f"_spec_of_{name}", spec) for name, spec in zip(self.names, self.in_specs, strict=True)]
        return [
            ("pytree", pytree),
            ("fx_pytree", import_module("..specs", __name__)),
            ("_out_spec", self.out_spec),
            *specs,
        ]

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str) -> str:
        leaves = [v.partition(":")[0].partition("=")[0].strip() for v in free_vars]
        head = super().gen_fn_def(list(self.names), "")
        for name, spec in zip(self.names, self.in_specs, strict=True):
            held, leaves = leaves[: spec.num_leaves], leaves[spec.num_leaves :]
            if held:
                head += f"\n    {', '.join(held)}, = fx_pytree.tree_flatten_spec({name}, _spec_of_{name})"
        return head

    def generate_output(self, output_args: Any) -> str:
        if self.out_spec is None:
            return super().generate_output(output_args)
        return f"return pytree.tree_unflatten({self._write(output_args)}, _out_spec)"
