"""Spells graphs in the text form that text.py reads back.

    graph scaled(%x: f32[8,3]) -> (f32[8,3]) {
      @table : f32[3]
      %0 = mul(%x, 2.5:f32) : f32[8,3]
      %1 = sum(%0) {dim=(1,), keepdim=True, dtype=None} : f32[8,1]  # model.py:12
      return %1
    }

Values go by their hints, made distinct, or by consecutive numbers; constants by name, their data held apart,
but for scalars without a name, which stand where they are used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from math import isnan
from typing import TYPE_CHECKING, Any

import numpy as np

from .dtypes import DType
from .types import Device

if TYPE_CHECKING:
    from .graph import Constant, Graph, Node, Value

Names = Mapping["Value", str]


class Namer:
    """Gives out distinct names: the hint itself, then hint.1, hint.2."""

    def __init__(self):
        self._taken: set[str] = set()
        self._next: dict[str, int] = {}

    def name(self, hint: str) -> str:
        """`hint` made an identifier (dots allowed) and distinct from all names given before."""
        hint = re.sub(r"[^A-Za-z0-9_.]", "_", hint)
        if not re.match(r"[A-Za-z_]", hint):
            hint = "_" + hint
        found, k = hint, self._next.get(hint, 1)
        while found in self._taken:
            found, k = f"{hint}.{k}", k + 1
        self._next[hint] = k
        self._taken.add(found)
        return found


def names_of(graph: Graph) -> dict[Value, str]:
    """What the text calls each value and each named constant of a graph."""
    namer, number = Namer(), 0
    names: dict[Value, str] = {c: "@" + name for name, c in graph.constants.items()}
    defined = [*graph.params, *(v for node in graph.nodes for v in node.outputs)]
    for value in defined:
        if value.hint:
            names[value] = "%" + namer.name(value.hint)
        elif value not in names:
            names[value] = f"%{number}"
            number += 1
    return names


def graph_text(graph: Graph, *, where: bool = False) -> str:
    """The text of a graph; with `where`, each node's line of the user's program as a comment."""
    names = names_of(graph)
    params = ", ".join(f"{names[p]}: {p.type}" for p in graph.params)
    lines = [f"graph {graph.name}({params}) -> ({types_text(v.type for v in graph.results)}) {{"]
    lines += [f"  @{name} : {c.type}" for name, c in graph.constants.items()]
    for node in graph.nodes:
        place = f"  # {node.where[0]}:{node.where[1]}" if where and node.where else ""
        lines.append("  " + node_text(node, names).replace("\n", "\n  ") + place)
    lines.append("  return " + ", ".join(operand_text(v, names) for v in graph.results))
    return "\n".join(lines).rstrip() + "\n}"


def node_text(node: Node, names: Names | None = None) -> str:
    """One line (more where an attr is a graph); without `names`, values go by their hints."""
    names = {} if names is None else names
    outputs = ", ".join(operand_text(v, names) for v in node.outputs)
    inputs = ", ".join(operand_text(v, names) for v in node.inputs)
    attrs = ", ".join(f"{k}={attr_text(v)}" for k, v in node.attrs.items())
    braces = f" {{{attrs}}}" if attrs else ""
    return f"{outputs} = {node.op.name}({inputs}){braces} : {types_text(v.type for v in node.outputs)}"


def operand_text(value: Value | None, names: Names) -> str:
    """`none`, a value's name, or a scalar constant by its value: 2.5:f32."""
    if value is None:
        return "none"
    name = names.get(value)
    return name if name is not None else value.spelled()


def types_text(types: Any) -> str:
    return ", ".join(map(str, types))


def scalar_text(constant: Constant) -> str:
    """The value and dtype of a 0-d constant, in the fewest digits that give the same bits."""
    dtype, value = constant.type.dtype, constant.data[()]
    if dtype.category != "float":
        return f"{value.item()}:{dtype.short}"
    exact = float(value)
    short = str(value)
    if isnan(exact) or np.asarray(float(short), dtype.numpy).tobytes() != constant.data.tobytes():
        short = repr(exact)
    return f"{short if re.search('[.en]', short) else short + '.0'}:{dtype.short}"


def attr_text(value: Any) -> str:
    """An attr: a number, word, string, dtype, @device, dimension, tuple of these, or a graph."""
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, tuple):
        return "(" + ",".join(map(attr_text, value)) + ("," if len(value) == 1 else "") + ")"
    if isinstance(value, DType):
        return value.short
    if isinstance(value, Device):
        return f"@{value}"
    return str(value)  # int, float (its shortest exact form), bool, None, Dim, Type, Graph
