"""What an ONNX file says, without its form: graphs of nodes whose operands are names.

A node's operands are strings; "" is one that was left out.  A graph inside of a node (the body of a loop, the
branch of an `If`) sees the names of those around it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...ir.errors import LaminaError

STANDARD = ""  # the domain of ONNX's own operators


def as_text(name: str) -> str:
    """A name that a file can have, which is UTF-8: half a surrogate pair is spelled, as Python spells it."""
    return name.encode(errors="backslashreplace").decode()


class OnnxError(LaminaError):
    """A file that is no ONNX model, one that asks for what is not there, or inputs that it does not take."""


@dataclass(frozen=True)
class Kind:
    """What a value is.  dtype: NumPy's, or that of ml_dtypes; `object` of strings.  shape: a size, a name
    that stands for one, or None for any; None for any shape.  sequence, optional: of such values."""

    dtype: np.dtype | None = None
    shape: tuple[int | str | None, ...] | None = None
    sequence: bool = False
    optional: bool = False


@dataclass(frozen=True)
class Node:
    """One call of an operator.  opset: of its domain, as the model imports it.  attrs: numbers, strings,
    NumPy arrays, tuples of these, or graphs."""

    op: str
    domain: str
    opset: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""

    def attr(self, name: str, default: Any = None) -> Any:
        return self.attrs.get(name, default)

    @property
    def graphs(self) -> Iterator[Subgraph]:
        for value in self.attrs.values():
            yield from (
                each
                for each in (value if isinstance(value, tuple) else (value,))
                if isinstance(each, Subgraph)
            )

    def __str__(self) -> str:
        op = f"{self.domain}.{self.op}" if self.domain else self.op
        outputs = ", ".join(self.outputs)
        return f"{outputs} = {op}({', '.join(self.inputs)})" + (f"  # {self.name}" if self.name else "")


@dataclass(frozen=True)
class Subgraph:
    """Nodes in an order in which each reads what is there before it.

    inputs, outputs: names, with their kinds.  constants: the values of names that come with the file; inputs
    among them are defaults.
    """

    name: str
    nodes: tuple[Node, ...]
    inputs: Mapping[str, Kind]
    outputs: Mapping[str, Kind]
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True)
class Function:
    """An operator that the model defines by others.  attrs: names that a node gives, with what else they are;
    those without default have None."""

    domain: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Reference:
    """An attribute of a function's node that stands for one of the function's own."""

    name: str


@dataclass(frozen=True)
class Declared:
    """A model.  opsets: by domain.  functions: by domain and name.  metadata: what its author noted."""

    graph: Subgraph
    opsets: Mapping[str, int]
    functions: Mapping[tuple[str, str], Function]
    producer: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
