"""Checks a graph against the rules of the IR and, by running every `infer` again, those of its ops."""

from __future__ import annotations

from typing import Any

from .dims import Condition, Dim, conditions
from .dtypes import DType
from .errors import GraphError, LaminaError
from .fused import STRUCTURAL
from .graph import Constant, Graph, Node, Value, operand_names
from .op import REGISTRY, Op
from .printing import names_of, node_text, types_text
from .types import Device, Type

ATTRS = (bool, int, float, str, type(None), DType, Device, Dim, Type)


def verify(graph: Graph) -> tuple[Condition, ...]:
    """Check a graph and those nested in it.

    Returns what its symbols must satisfy for the shapes to be right.  Raises GraphError with the rule that is
    broken, the node's text and its place in the user's program.
    """
    return _Verifier(graph).check()


class _Verifier:
    def __init__(self, graph: Graph):
        self.graph = graph
        self.defined: set[Value] = set()
        self.collecting = conditions()

    def check(self) -> tuple[Condition, ...]:
        graph = self.graph
        for param in graph.params:
            if isinstance(param, Constant):
                raise self.error(f"the parameter {param!r} is a constant")
            if param in self.defined:
                raise self.error(f"the parameter {param!r} stands twice among the params")
            self.defined.add(param)
        for node in graph.nodes:
            self.check_form(node)
            with self.collecting:
                self.check_types(node)
            for value in node.outputs:
                if isinstance(value, Constant):
                    raise self.error(f"{node.op.name} defines a constant", node)
                if value in self.defined:
                    raise self.error(f"{self.named(value)} is defined twice", node)
                self.defined.add(value)
        for value in graph.results:
            if not self.known(value):
                raise self.error(f"the result {value!r} is not defined")
        return tuple(self.collecting.into)

    def check_form(self, node: Node) -> None:
        """That the node is well made: a known op with the operands and attrs that its record names."""
        op = node.op
        if not isinstance(op, Op) or STRUCTURAL.get(op.name, REGISTRY.get(op.name, op)) is not op:
            raise self.error(f"{getattr(op, 'name', op)!r} is not an op of the operator set", node)
        count, fixed = len(node.inputs), len(op.operands) - op.variadic
        if count < fixed if op.variadic else count != fixed:
            least = "at least " if op.variadic else ""
            raise self.error(
                f"{op.name} takes {least}{fixed} operands ({', '.join(op.operands)}), not {count}", node
            )
        for name, value in zip(operand_names(op, count), node.inputs, strict=True):
            if value is None:
                if not op.variadic and name not in op.optional:
                    raise self.error(f"{op.name}: operand {name} can't be left out", node)
            elif not self.known(value):
                raise self.error(f"{self.named(value)} is used before it is defined", node)
            elif isinstance(value, Constant) and (value.data.shape, value.data.dtype) != (
                value.shape,
                value.dtype.numpy,
            ):
                raise self.error(
                    f"constant {name} is {value.type}, its data {value.data.dtype}{list(value.data.shape)}",
                    node,
                )
        if tuple(node.attrs) != op.attrs:
            raise self.error(
                f"{op.name} has the attrs ({', '.join(op.attrs)}), not ({', '.join(node.attrs)})", node
            )
        for name, value in node.attrs.items():
            self.check_attr(name, value, node)

    def check_attr(self, name: str, value: Any, node: Node) -> None:
        if type(value) is tuple:
            for item in value:
                self.check_attr(name, item, node)
        elif isinstance(value, Graph):
            if value.constants:
                raise self.error(
                    f"the nested graph {value.name} holds the constant @{next(iter(value.constants))}; "
                    "only scalars may stand in a nested graph, others are its params",
                    node,
                )
            self.collecting.into.extend(c for c in verify(value) if c not in self.collecting.into)
        elif type(value) not in ATTRS:
            raise self.error(
                f"attr {name} is a {type(value).__name__}",
                node,
                "known: numbers, bools, strings, None, dtypes, devices, types, sizes; tuples of them; graphs",
            )

    def check_types(self, node: Node) -> None:
        """That the outputs have the types that the op's own rule infers."""
        types = tuple(None if v is None else v.type for v in node.inputs)
        try:
            inferred = node.op.infer(*types, **node.attrs)
        except LaminaError as error:
            raise self.error(
                f"the operands of {node.op.name} break its rule", node, error.rule, *error.details
            ) from None
        except (
            Exception
        ) as error:  # rules presume operands and attrs as `bind` makes them; a text may say any
            raise self.error(
                f"the operands and attrs of {node.op.name} are not what its rule takes",
                node,
                f"{type(error).__name__}: {error}",
            ) from error
        outs = inferred if isinstance(inferred, tuple) else (inferred,)
        stated = tuple(v.type for v in node.outputs)
        if outs != stated:
            raise self.error(
                f"{node.op.name} gives {types_text(outs)}, the graph says {types_text(stated)}", node
            )

    def known(self, value: Any) -> bool:
        return isinstance(value, Value) and (value in self.defined or isinstance(value, Constant))

    def named(self, value: Value) -> str:
        return names_of(self.graph).get(value, repr(value))

    def error(self, rule: str, node: Node | None = None, *details: str) -> GraphError:
        lines = list(details)
        if node is not None:
            lines.insert(0, node_text(node, names_of(self.graph)))
            if node.where:
                lines.append(f"made at {node.where[0]}:{node.where[1]}")
        return GraphError(f"graph {self.graph.name}: {rule}", *lines)
