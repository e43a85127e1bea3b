"""Graph to program: every node becomes a kernel on arrays, the same array under another shape, or a step of
the host.

    graph net(%x: f32[2,3], %w: f32[3,4]) -> (f32[8]) {
      %0 = matmul(%x, %w) : f32[2,4]
      %1 = reshape(%0) {shape=(8,)} : f32[8]
      return %1
    }
    ->
    program net(%x: f32[2,3], %w: f32[3,4]) -> (%reshape) {
      %matmul: f32[2,4] = matmul(%x, %w)
      %reshape: f32[8] = alias(%matmul)
      return %reshape
    }

A kernel that reads only a part of an array is given the part, an alias from an offset on.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...ir.dims import has_hint
from ...ir.errors import GraphError
from ...ir.fused import fused
from ...ir.graph import Constant, Graph, Node, Value
from ...ir.kernel.affine import Extent
from ...ir.kernel.form import Buffer, Kernel
from ...ir.lowering import NotLowered, Recurrence
from ...ir.memo import remember
from ...ir.put import put
from ...ir.size import size
from ..graphs.compose import compose
from ..graphs.dce import checks
from ..graphs.expand import expand
from ..graphs.fuse import body_of, is_number
from ..graphs.pieces import is_identity, is_reshape
from ..graphs.putting import putting
from ..kernels.slices import sliced
from .program import Alias, Array, Call, Program, Repeat, Step, of_op, verify


def build_program(graph: Graph, into: Sequence[int | None] = ()) -> Program:
    """The program that computes a graph; decompositions are expanded, nothing else is changed.

    into: for each result, the param that it overwrites, or None.  Kernels are named after the ops in them,
    arrays after their values.  Raises KernelError for sizes that aren't known, GraphError for a program that
    would be wrong.
    """
    return verify(_Building(expand(graph)).program(tuple(into)))


class _Building:
    """The steps so far, and the array that holds each value."""

    def __init__(self, graph: Graph):
        self.graph, self.results = graph, set(graph.results)
        self.params = tuple(_array(p, p.hint or "p") for p in graph.params)
        self.arrays: dict[Value, Array] = dict(zip(graph.params, self.params, strict=True))
        self.constants: dict[Array, np.ndarray] = {}
        self.steps: list[Step] = []
        self.parts: dict[tuple[Array, Extent, tuple[Extent, ...]], Array] = {}
        self.used = {*graph.results, *checks(graph), *(v for node in graph.nodes for v in node.inputs)}

    def program(self, into: tuple[int | None, ...]) -> Program:
        for node in self.graph.nodes:
            if self.used.intersection(node.outputs):
                self.add(node)
        results = tuple(map(self.array, self.graph.results))
        return Program(self.graph.name, self.params, tuple(self.steps), results, self.constants, into)

    def add(self, node: Node) -> None:
        if node.op is size and isinstance(node.attrs["value"], int):
            self.number(node)
        elif is_reshape(node.op):
            self.alias(node.inputs[0], node.outputs[0], node.op.name)
        elif isinstance(node.op.lower, NotLowered):
            self.host(node)
        elif isinstance(node.op.lower, Recurrence):
            self.repeat(node)
        else:
            self.call(node)

    def array(self, value: Value) -> Array:
        """The array of a value; a constant's is entered among the program's."""
        if value not in self.arrays:
            assert isinstance(value, Constant), f"{value} is read before it is made"
            self.arrays[value] = array = _array(value, value.hint or "c")
            self.constants[array] = np.ascontiguousarray(value.data).reshape(value.shape)
        return self.arrays[value]

    def number(self, node: Node) -> None:
        """A size as a constant."""
        (out,) = node.outputs
        self.arrays[out] = array = _array(out, "size")
        self.constants[array] = np.asarray(node.attrs["value"], np.int64)

    def alias(self, source: Value | None, out: Value, name: str) -> None:
        assert source is not None
        self.arrays[out] = _array(out, out.hint or name)
        self.steps.append(Alias((self.array(source),), (self.arrays[out],)))

    def host(self, node: Node) -> None:
        inputs = tuple(None if v is None else self.array(v) for v in node.inputs)
        outputs = tuple(_array(v, v.hint or node.op.name) for v in node.outputs)
        types = tuple(None if v is None else v.type for v in node.inputs)
        self.arrays |= zip(node.outputs, outputs, strict=True)
        self.steps.append(of_op(node.op, node.attrs, types, inputs, outputs, node.where))

    def repeat(self, node: Node) -> None:
        """A node's graph as a program of its own; its array constants are operands like others."""
        attrs = dict(node.attrs)
        body = build_program(attrs.pop("body"))
        inputs = (*map(self.array, _given(node)), *body.constants)
        self.constants |= body.constants
        body = body.replace(params=(*body.params, *body.constants), constants={})
        outputs = tuple(_array(v, v.hint or body.name) for v in node.outputs)
        self.steps.append(Repeat(body, inputs=inputs, outputs=outputs, where=node.where, **attrs))
        self.arrays |= zip(node.outputs, outputs, strict=True)

    def call(self, node: Node) -> None:
        """A node's kernel on the arrays that it reads; none where all that it does is to keep them."""
        if node.op is put:
            self.put(node)
            return
        body = node.attrs["body"] if node.op is fused else self.body(node)
        given = dict(zip(body.params, node.inputs if node.op is fused else _arrays(node), strict=True))
        outputs = node.outputs if node.op is fused else body.results
        kernel = compose(body)
        if is_identity(kernel):
            source, out = given[body.params[0]], outputs[0]
            assert source is not None
            return self.alias(source, out, kernel.name)
        kernel, places, offsets = reading(kernel)
        arrays = [self.array(given[body.params[place]]) for place in places]
        inputs = tuple(map(self.part, arrays, offsets, kernel.inputs))
        if is_identity(kernel) and outputs[0] not in self.results:
            self.arrays[outputs[0]] = self.part(arrays[0], offsets[0], kernel.outputs[0])
            return
        made = tuple(_array(v, v.hint or kernel.name) for v in outputs)
        self.arrays |= zip(outputs, made, strict=True)
        self.steps.append(Call(kernel, inputs, made, where=node.where))

    def put(self, node: Node) -> None:
        """The kernel that writes a part of its first operand."""
        made = tuple(_array(v, v.hint or node.attrs["body"].name) for v in node.outputs)
        given = tuple(map(self.array, _given(node)))
        self.steps.append(Call(putting(node.attrs["body"]), given, made, where=node.where))
        self.arrays |= zip(node.outputs, made, strict=True)

    def part(self, array: Array, offset: Extent, buffer: Buffer) -> Array:
        """The elements from `offset` on, in the buffer's shape; all of them are the array itself."""
        shape = buffer.shape
        if array.shape == shape:
            return array
        key = array, offset, shape
        if key not in self.parts:
            self.parts[key] = made = Array(array.name, array.dtype, shape)
            self.steps.append(Alias((array,), (made,), offset))
        return self.parts[key]

    def body(self, node: Node) -> Graph:
        """The graph of one node, with the outputs that somebody wants."""
        return body_of([node], _arrays(node), [v for v in node.outputs if v in self.used])


def _arrays(node: Node) -> list[Value]:
    """The operands of a node that are arrays to its kernel, each once."""
    return list(dict.fromkeys(v for v in node.inputs if v is not None and not is_number(v)))


def _given(node: Node) -> list[Value]:
    return [v for v in node.inputs if v is not None]


def _array(value: Value, name: str) -> Array:
    shape = tuple(value.shape)
    if not all(map(has_hint, shape)):
        raise GraphError("a program is built for known sizes", f"value: {value!r}")
    return Array(name, value.type.dtype.short, shape)


_reading: dict[int, tuple[Kernel, Kernel, tuple[int, ...], tuple[Extent, ...]]] = {}


def reading(kernel: Kernel) -> tuple[Kernel, tuple[int, ...], tuple[Extent, ...]]:
    """The kernel with only those inputs that it reads, cut to what it reads of them; their numbers; and the
    first element of each that is read.  One kernel gives one kernel.
    """
    found = _reading.get(id(kernel))
    if found is None or found[0] is not kernel:
        read = {access.buffer for _, access in kernel.reads}
        places = tuple(n for n, buffer in enumerate(kernel.inputs) if buffer.name in read)
        less = kernel
        if len(places) < len(kernel.inputs):
            less = kernel.replace(inputs=tuple(kernel.inputs[n] for n in places))
        less, offsets = sliced(less)
        found = remember(_reading, id(kernel), (kernel, less, places, offsets))
    return found[1:]
