"""The parts of a compiled program that Python runs: ops without a kernel, and looks at indices.

They are plain data, for a program may come from the cache: an op is the text of a graph of that one node, and
a check is the text of the kernel whose indices it looks at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ...ir.graph import Graph, Node, Value
from ...ir.kernel.form import Kernel
from .memory_plan import Place
from .program import Array, Host


@dataclass(frozen=True)
class View:
    """An array that Python sees: where it is, its element type and its shape."""

    place: Place
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class OnHost:
    """An op that its reference runs.  text: a graph of that one node; None: an operand left out."""

    text: str
    inputs: tuple[View | None, ...]
    outputs: tuple[View, ...]


@dataclass(frozen=True)
class Check:
    """The indices that the next kernel trusts, to be looked at before it runs.  text: the kernel."""

    text: str
    inputs: tuple[View, ...]


def on_host(step: Host, places: Mapping[Array, Place]) -> OnHost:
    """The part that runs an op's reference."""
    inferred = step.op.infer(*step.types, **step.attrs)
    types = inferred if isinstance(inferred, tuple) else (inferred,)
    params = tuple(None if kind is None else Value(kind, "x") for kind in step.types)
    outputs = tuple(Value(kind) for kind in types)
    node = Node(step.op, params, outputs, dict(step.attrs))
    text = str(Graph("host", tuple(p for p in params if p is not None), (node,), outputs))
    inputs = tuple(None if array is None else _view(array, places) for array in step.inputs)
    return OnHost(text, inputs, tuple(_view(array, places) for array in step.outputs))


def check(kernel: Kernel, inputs: Iterable[Array], places: Mapping[Array, Place]) -> Check:
    """The part that looks at the indices of a kernel's call."""
    return Check(str(kernel), tuple(_view(array, places) for array in inputs))


def _view(array: Array, places: Mapping[Array, Place]) -> View:
    return View(places[array], array.dtype, array.shape)


def _view_from(fields: Mapping[str, Any]) -> View:
    return View(Place(**fields["place"]), fields["dtype"], tuple(fields["shape"]))


def fields_from(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A part's fields, its views made again from what JSON has of them."""
    found = dict(fields)
    for name in found.keys() & {"inputs", "outputs"}:
        found[name] = tuple(None if view is None else _view_from(view) for view in found[name])
    return found
