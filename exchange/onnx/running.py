"""Run the graph of a model: node by node, on tensors and what is known without them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from ...ir.errors import LaminaError
from ...jit.observe.modules_around import PARTS
from ...jit.observe.policy import settled
from .declared import Declared, Function, Node, OnnxError, Reference, Subgraph
from .opset import OPERATORS
from .opset.registry import Value, as_tensor, is_host, on_host
from .opset.size_numbers import Sizes, computed, with_sizes

# What Python and NumPy raise where operands or attributes are not what an operator takes.
UNFIT = (TypeError, ValueError, LookupError, ArithmeticError, AttributeError)
MOST_NODES = 1 << 20
DEEPEST = 64  # calls of functions inside of functions, and graphs inside of graphs


@settled
class Model:
    """What a file says, and what follows from it for every run; nothing in it changes once it is made.

    constants: values of the graph's names that are no weights.  paths: where in the module each weight is.
    bodies: of each call of a function, its nodes with what the call says of its attributes.  last: for each
    node of a graph or a body the names that no later one reads.  Both by identity, of what `declared` and
    `bodies` hold.  Raises OnnxError for functions that call themselves.
    """

    def __init__(
        self,
        declared: Declared,
        constants: Mapping[str, Value] = MappingProxyType({}),
        paths: Mapping[str, str] = MappingProxyType({}),
    ):
        self.declared, self.functions = declared, declared.functions
        self.constants, self.paths = constants, paths
        self.bodies: dict[int, tuple[Node, ...]] = {}
        self.last: dict[int, list[list[str]]] = {}
        self._count = 0
        self._prepare(declared.graph.nodes, declared.graph.outputs, 0)

    def _prepare(self, nodes: tuple[Node, ...], outputs: Iterable[str], depth: int) -> None:
        if depth > DEEPEST:
            raise OnnxError(f"graphs and functions are more than {DEEPEST} deep inside of each other")
        self._count += len(nodes)
        if self._count > MOST_NODES:
            raise OnnxError(f"calls of functions written out are more than {MOST_NODES:,} nodes")
        self.last[id(nodes)] = last_uses(nodes, outputs)
        for node in nodes:
            function = self.functions.get((node.domain, node.op))
            if function is not None:
                attrs = {name: node.attrs.get(name, default) for name, default in function.attrs.items()}
                body = self.bodies[id(node)] = _with(function.nodes, attrs)
                self._prepare(body, function.outputs, depth + 1)
            for graph in node.graphs:
                self._prepare(graph.nodes, graph.outputs, depth + 1)


class Scope:
    """The values of a graph's names while it runs; `around` are those of the graphs that it stands in."""

    def __init__(self, model: Model, constants: Mapping[str, Value], around: Scope | None = None):
        self.model, self.constants, self.around = model, constants, around
        self.left = [0] if around is None else around.left  # nodes that loops may still run, of all scopes
        self.values: dict[str, Value] = {}

    def __getitem__(self, name: str) -> Value:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            if name in scope.constants:
                return scope.constants[name]
            weight = scope.weight(name)
            if weight is not None:
                return weight
            scope = scope.around
        raise OnnxError(f"{name!r} is read, and nothing made it")

    def weight(self, name: str) -> Value:
        """A parameter or a buffer of the model, None where it has none of this name."""
        return None

    def run(self, graph: Subgraph, given: Sequence[Value]) -> list[Value]:
        """The outputs of a graph of a node, given its inputs, in their order."""
        inner = Scope(self.model, graph.constants, self)
        inner.values.update(zip(graph.inputs, given, strict=False))
        return inner.outputs(graph.nodes, [*graph.outputs])

    def spend(self, node: Node, graph: Subgraph, trips: int = 1) -> None:
        """Count trips of a loop.  Raises OnnxError where all loops have run as many nodes as they may."""
        self.left[0] -= trips * (len(graph.nodes) + 1)
        if self.left[0] < 0:
            raise OnnxError(
                f"{node.op}: the model's loops run more nodes than are allowed in one call",
                "load(..., most_nodes=) allows more",
                str(node),
            )

    def outputs(self, nodes: tuple[Node, ...], names: Sequence[str]) -> list[Value]:
        """The values of these names, once the nodes ran."""
        for node, done in zip(nodes, self.model.last[id(nodes)], strict=True):
            self.step(node)
            for name in done:
                self.values.pop(name, None)
        return [self[name] for name in names]

    def step(self, node: Node) -> None:
        """Run a node."""
        operands = [self[name] if name else None for name in node.inputs]
        made = self.call(node, operands)
        results = made if isinstance(made, tuple) else (made,)
        for name, value in zip(node.outputs, results, strict=False):
            if name:
                self.values[name] = value

    def call(self, node: Node, operands: list[Value]) -> Value:
        """What a node makes of its operands: a tuple where that may be several values."""
        while operands and operands[-1] is None:
            operands.pop()
        key = node.domain, node.op
        if key in self.model.functions:
            return self.function(self.model.functions[key], node, operands)
        found = OPERATORS.get(key)
        if found is None:
            raise OnnxError(f"{node.op} of {node.domain or 'ONNX'} is not known", str(node))
        try:
            if Sizes in [type(each) for each in operands]:
                sizes = computed(node, operands)
                if sizes is not None:
                    return sizes
                operands = with_sizes(node, operands, found.raw, found.host is not None)
            if found.host is not None and all(map(is_host, operands)) and on_host(node, operands):
                return found.host(node, *operands)
            if not found.raw:
                operands = [as_tensor(each) for each in operands]
            return found.function(*((self,) if found.scoped else ()), node, *operands)
        except OnnxError:
            raise
        except LaminaError as error:
            error.add_note(f"in the ONNX model: {node}")
            raise
        except KeyError as error:
            raise OnnxError(f"{node.op}: it lacks {error}", str(node)) from error
        except UNFIT as error:
            raise OnnxError(f"{node.op}: {error}", str(node)) from error

    def function(self, function: Function, node: Node, operands: Sequence[Value]) -> tuple[Value, ...]:
        """What an operator makes that the model defines itself."""
        inner = Scope(self.model, {})
        inner.left = self.left
        inner.values.update(dict.fromkeys(function.inputs))
        inner.values.update(zip(function.inputs, operands, strict=False))
        return tuple(inner.outputs(self.model.bodies[id(node)], function.outputs))


def parts_of(node: Node) -> tuple[str, ...]:
    """What a node is called, from the outermost module on: `/layer1/layer1.0/conv1/Conv`, as PyTorch's
    exporter writes it, is layer1, 0, conv1, Conv."""
    parts, before = [], ""
    for part in node.name.split("/"):
        if part:
            parts.append(part.removeprefix(f"{before}.") if before else part)
            before = part
    return tuple(parts) or (f"{node.op}:{next(filter(None, node.outputs), '')}".replace(".", "_"),)


PARTS[Scope.step.__code__] = lambda node: ".".join(parts_of(node))


def _with(nodes: Iterable[Node], attrs: Mapping[str, Any]) -> tuple[Node, ...]:
    """The nodes of a function, with what a call says of its attributes."""

    def value(given: Any) -> Any:
        if isinstance(given, Reference):
            return attrs.get(given.name)
        return replace(given, nodes=_with(given.nodes, attrs)) if isinstance(given, Subgraph) else given

    made = []
    for node in nodes:
        if any(isinstance(each, (Reference, Subgraph)) for each in node.attrs.values()):
            own = {name: value(each) for name, each in node.attrs.items()}
            node = replace(node, attrs={name: each for name, each in own.items() if each is not None})
        made.append(node)
    return tuple(made)


def last_uses(nodes: Sequence[Node], outputs: Iterable[str]) -> list[list[str]]:
    """For each node the names that no later one reads, and that are no outputs."""
    later = {*outputs}
    found = []
    for node in reversed(nodes):
        read = reads(node)
        found.append([name for name in {*read, *node.outputs} if name and name not in later])
        later |= read
    return found[::-1]


def reads(node: Node) -> set[str]:
    """What a node reads, its graphs included, whatever is made inside of them."""
    names = set(node.inputs)
    for graph in node.graphs:
        names |= {*graph.outputs}
        for each in graph.nodes:
            names |= reads(each)
    return names
