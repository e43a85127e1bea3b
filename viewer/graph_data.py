"""A graph as plain data: nodes by number, each with what it reads, its place and its modules."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..ir.graph import Constant, Graph, Node, Value, operand_names
from ..ir.printing import attr_text, scalar_text
from ..ir.where import origins, within
from .subjects import Subject

LONGEST = 400  # characters of an attribute
MOST_ENDS = 12  # inputs or results that are drawn: more are said at the ops that read and make them


def graph_data(subject: Subject) -> list[dict[str, Any]]:
    """The nodes of a subject's graph, in order.

    id: the node's number; those of inputs and results are below zero.  op, kind: "input", "result", or what
    sort of op it is.  type: of its outputs.  within: its modules.  where: file and line.  in: in pairs, what
    an operand is called, and the node that makes it or a text of what else it is.  attrs: in pairs.
    """
    graph, made, others, data = subject.graph, dict[Value, int](), dict[Value, str](), list[dict[str, Any]]()
    for at, param in enumerate(graph.params):
        if _is_input(subject, at, param):
            made[param] = ~len(data)
            data.append(_end(~len(data), "input", subject.name_of(param, f"input {at}"), str(param.type), []))
        else:
            others[param] = subject.name_of(param, "weight" if at in subject.frozen else "input")
    by_number: dict[int, dict[str, Any]] = {}
    for node in graph.nodes:
        (number,) = origins(node.where)
        made |= dict.fromkeys(node.outputs, number)
        data.append(_node(node, number, made, others))
        by_number[number] = data[-1]
    returned = [at for at in range(len(graph.results)) if _into(subject, at) is None]
    for at, value in enumerate(graph.results):
        into = _into(subject, at)
        if into is None and len(returned) <= MOST_ENDS:
            operand = [["", made[value] if value in made else _text(value, others)]]
            data.append(_end(~len(data), "result", f"result {at}", str(value.type), operand))
        elif (maker := by_number.get(made.get(value, -1))) is not None:
            target = None if into is None else subject.name_of(graph.params[into], f"input {into}")
            maker["attrs"].append(["is result", str(at)] if target is None else ["written to", target])
    return data


def _into(subject: Subject, at: int) -> int | None:
    return subject.code.into[at] if at < len(subject.code.into) else None


def _is_input(subject: Subject, at: int, param: Value) -> bool:
    """Whether a param is drawn: of a function its arguments, else what is no weight, if those are few."""
    if subject.arguments or subject.held:
        return (param.hint or "") in subject.arguments
    return at not in subject.frozen and len(subject.graph.params) - len(subject.frozen) <= MOST_ENDS


def _end(number: int, kind: str, name: str, type: str, operands: list[Any]) -> dict[str, Any]:
    return {"id": number, "op": name, "kind": kind, "type": type, "within": "", "where": "", "in": operands,
            "attrs": []}  # fmt: skip


def _node(node: Node, number: int, made: dict[Value, int], others: Mapping[Value, str]) -> dict[str, Any]:
    operands = []
    for name, value in zip(operand_names(node.op, len(node.inputs)), node.inputs, strict=True):
        if value is not None:
            operands.append([name, made[value] if value in made else _text(value, others)])
    attrs = [
        [name, attr_text(value)[:LONGEST]]
        for name, value in node.attrs.items()
        if value is not None and not isinstance(value, Graph)
    ]
    return {
        "id": number,
        "op": node.op.name,
        "kind": kind_of(node),
        "type": ", ".join(str(v.type) for v in node.visible),
        "within": within(node.where),
        "where": place_text(node.where),
        "in": operands,
        "attrs": attrs,
    }


def kind_of(node: Node) -> str:
    """What sort of op a node is, by what its record says: how it is painted."""
    traits = node.op.traits
    if traits.view or traits.movement:
        return "move"
    if traits.host:
        return "host"
    if traits.elementwise:
        return "elementwise"
    if traits.random or traits.creation:
        return "creation"
    return "product" if _is_product(node) else "reduction"


def _is_product(node: Node) -> bool:
    """Whether it multiplies two arrays of more than one dimension: products, convolutions, layers."""
    floats = [v for v in node.inputs if v is not None and v.dtype.inexact and v.ndim > 1]
    return len(floats) > 1


def _text(value: Value, others: Mapping[Value, str]) -> str:
    """What an operand is that no node makes."""
    if value in others:
        return f"{others[value]} {value.type}"
    if isinstance(value, Constant):
        if value.inline:
            return scalar_text(value)
        data = value.data.reshape(-1)
        few = np.array2string(data[:4], threshold=8, separator=", ") if data.size <= 4 else ""
        return f"constant {value.type} {few}".rstrip()
    return str(value.type)


def place_text(where: tuple[str, int] | None) -> str:
    """A place for people: the file's own name and the line, "" where there is none."""
    return f"{os.path.basename(where[0])}:{where[1]}" if where and where[0] else ""
