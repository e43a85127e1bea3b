"""The parts of a compiled program that Python runs: ops without kernels, collectives, looks at indices.

They are plain data, for a program may come from the cache: an op is the text of a graph of that one node, and
a check is the text of the kernel whose indices it looks at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...ir.graph import Graph, Node, Value
from ...ir.kernel.substitute import bind
from ..kernels.index_check import index_check, trusted
from .memory_plan import Place
from .program import Array, Call, Host


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
class Meet:
    """A collective that is begun; its arrays are left alone until the `Land` of the same number.

    text: a graph of that one node.
    """

    text: str
    input: View
    output: View
    number: int


@dataclass(frozen=True)
class Land:
    """A collective that is waited for."""

    number: int


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


def meet(step: Host, places: Mapping[Array, Place], number: int) -> Meet:
    """The part that begins a collective."""
    part = on_host(step, places)
    (input,), (output,) = part.inputs, part.outputs
    assert input is not None
    return Meet(part.text, input, output, number)


def check(call: Call, places: Mapping[Array, Place], sizes: Mapping[str, int]) -> Check | None:
    """The part that looks at the indices that a call trusts, if there are any that no kernel can check.

    sizes: what the symbols of its kernel are.
    """
    if not is_looked_at(call):
        return None
    kernel = bind(call.kernel, **{name: sizes[name] for name in call.kernel.symbols})
    return Check(str(kernel), tuple(_view(array, places) for array in call.inputs))


def is_looked_at(call: Call) -> bool:
    """Whether a call trusts indices that no kernel can check."""
    return any(trusted(call.kernel)) and index_check(call.kernel) is None


def _view(array: Array, places: Mapping[Array, Place]) -> View:
    return View(places[array], array.dtype, array.shape)
