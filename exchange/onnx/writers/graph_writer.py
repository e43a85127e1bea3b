"""Write a graph of Lamina's ops as nodes of ONNX: values become names, ops become nodes by their writers.

    @writer("cumsum")
    def cumsum(w, node, input):
        return w.emit("CumSum", input, w.constant(node.attrs["dim"]))

A writer is given the names of a node's operands, in the types that the op computes in, and returns that of
its output: a tuple where there are several, None in it for those that nobody reads.  One that returns None
declines.  An op without a writer is written as what it stands for: its stand-in, its own decomposition, or
its scalar body.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Any

import numpy as np

from ....ir.dims import Atom, Dim, bounds
from ....ir.dtypes import DType, bool_, from_numpy_dtype, int64
from ....ir.graph import Builder, Constant, Graph, Node, Value, active
from ....ir.lowering import Decomposition, NotLowered, Pointwise
from ....ir.op import REGISTRY, Op
from ....ir.types import Shape, Type
from ....jit import ExportError
from ....passes.graphs.dce import leading_to
from ....passes.graphs.lower import as_dtype, decompose, inferred, numbered, read_dtypes
from ..declared import STANDARD, Subgraph, as_text
from ..declared import Node as OnnxNode
from .runtime_types import computed_in, subjects
from .word_writers import write_body

Name = str
Written = Name | Sequence[Name | None] | None

WRITERS: dict[str, Callable[..., Written]] = {}
STAND_INS: dict[str, Callable[..., Any]] = {}  # functions of a graph's values, in other ops
REFUSED: dict[str, str] = {}  # ops that can't be written, and why
PAIRED: set[str] = set()  # ops of complex numbers, of which pairs are left

SMALL = 1 << 16  # bytes of a constant that is written once for all who read it, and cast where it stands
LISTED = 64  # elements of an array of one number that is written as such


def writer(*names: str) -> Callable[[Callable], Callable]:
    """Enter what writes ops of these names."""
    return _entering(WRITERS, names)


def stand_in(*names: str) -> Callable[[Callable], Callable]:
    """Enter what says ops of these names by others: a function of values and attributes."""
    return _entering(STAND_INS, names)


def _entering(table: dict[str, Callable], names: tuple[str, ...]) -> Callable[[Callable], Callable]:
    def enter(function: Callable) -> Callable:
        for name in names:
            if name in table:
                raise ValueError(f"{name} is entered twice")
            table[name] = function
        return function

    return enter


def refused(reason: str, *names: str) -> None:
    """Enter ops that can't be written."""
    REFUSED.update(dict.fromkeys(names, reason))


def is_known(op: Op) -> bool:
    """Whether an op has an entry in a table of what is written."""
    return any(op.name in table for table in (WRITERS, STAND_INS, PAIRED))


def reason_against(op: Op) -> str | None:
    """Why an op can't be written; None where it can."""
    if op.name in REFUSED:
        return REFUSED[op.name]
    if is_known(op) or isinstance(op.lower, (Decomposition, Pointwise)):
        return None
    return op.lower.reason if isinstance(op.lower, NotLowered) else "ONNX has no operator for it"


class Writer:
    """The nodes of a graph as they are written, and what its values are called.

    dtypes: by name.  constants: by name, without the user's weights.  origins: of each symbol an input and a
    dimension of it.  makers, read: which node makes a value of the graph, and which nodes read it.  aliases:
    of values that are read in one way alone, what stands for what is read.
    """

    def __init__(self, opset: int, around: Writer | None = None):
        self.opset, self.around = opset, around
        self.nodes: list[OnnxNode] = []
        self.names: dict[Value, Name] = {}
        self.dtypes: dict[Name, DType] = around.dtypes if around else {}
        self.constants: dict[Name, np.ndarray] = around.constants if around else {}
        self.origins: dict[str, tuple[Name, int]] = around.origins if around else {}
        self.makers: dict[Value, Node] = {}
        self.read: dict[Value, list[Node]] = {}
        self.returned: set[Value] = set()
        self.aliases: dict[Value, Name] = {}
        self._sizes: dict[str, Name] = dict(around._sizes) if around else {}
        self._made: dict[tuple, tuple[Name, ...]] = dict(around._made) if around else {}
        self._known: dict[tuple, Name] = around._known if around else {}
        self._counts: dict[str, int] = around._counts if around else {}

    # ---- names
    def fresh(self, base: str) -> Name:
        """A name that no other value has."""
        base = as_text(base)
        while True:
            count = self._counts[base] = self._counts.get(base, 0) + 1
            name = base if count == 1 else f"{base}_{count}"
            if name not in self.dtypes:
                return name

    def declare(self, base: str, dtype: DType) -> Name:
        """A new name for a value of a dtype."""
        name = self.fresh(base)
        self.dtypes[name] = dtype
        return name

    def name_of(self, value: Value) -> Name:
        """What a value of the graph is called."""
        if value not in self.names:
            if not isinstance(value, Constant):
                assert self.around is not None, f"{value!r} is read before it is written"
                return self.around.name_of(value)
            self.names[value] = self.constant(value.data, hint=value.hint)
        return self.names[value]

    def wants(self, value: Value) -> bool:
        """Whether anybody reads a value."""
        return value in self.returned or bool(self.read.get(value))

    # ---- constants
    def constant(self, data: Any, dtype: DType | None = None, hint: str | None = None) -> Name:
        """The name of an array or a number."""
        array = np.asarray(data) if dtype is None else np.asarray(np.asarray(data).astype(dtype.numpy))
        key = array.dtype, array.shape, array.tobytes() if array.nbytes <= SMALL else object()
        if key not in self._known:
            found = from_numpy_dtype(array.dtype)
            assert found is not None
            name = self._known[key] = self.declare(hint or "constant", found)
            self.constants[name] = array
        return self._known[key]

    def filled(self, kind: Type, value: Any) -> Name:
        """An array of one number."""
        if all(isinstance(n, int) for n in kind.shape) and prod(kind.shape) <= LISTED:
            return self.constant(np.full(kind.shape, value, kind.dtype.numpy))
        one = np.full((1,), value, kind.dtype.numpy)
        return self.emit("ConstantOfShape", self.vector(kind.shape), dtype=kind.dtype, value=one)

    # ---- nodes
    def emit(
        self,
        op: str,
        *inputs: Any,
        dtype: DType | Sequence[DType | None] | None = None,
        outputs: int = 1,
        like: DType | None = None,
        **attrs: Any,
    ) -> Any:
        """Add a node; the name of its output, or a tuple of names.

        inputs: names; numbers, which take the dtype of the operands beside them, or `like`; None for one that
        is left out.  dtype: of the outputs, that of the first operand that counts unless given.  Where
        ONNX Runtime computes the operator in other types alone, operands are cast to one of these, and the
        outputs back.
        """
        at = subjects(op, len(inputs))
        given = next((self.dtypes[inputs[i]] for i in at if isinstance(inputs[i], str)), like)
        wide = given and computed_in(op, given)
        names = []
        for i, x in enumerate(inputs):
            if x is None:
                names.append("")
            elif not isinstance(x, str):
                names.append(self.constant(x, (wide if i in at else None) if wide else like))
            else:
                names.append(self.cast(x, wide) if i in at and wide else x)
        said = dtype if isinstance(dtype, Sequence) else (dtype,) * outputs
        kinds = [each or wide or bool_ for each in said]
        kept = {name: value for name, value in attrs.items() if value is not None}
        while names and not names[-1]:
            names.pop()
        made = self._node(op, tuple(names), kinds, kept)
        found = [
            self.cast(name, given) if each is None and given is not None else name
            for name, each in zip(made, said, strict=True)
        ]
        return found[0] if outputs == 1 else tuple(found)

    def copied(self, name: Name) -> Name:
        """The same value under a name of its own."""
        copy = self.declare("copy", self.dtypes[name])
        self.nodes.append(OnnxNode("Identity", STANDARD, self.opset, (name,), (copy,), {}, copy))
        return copy

    def _node(
        self, op: str, inputs: tuple[Name, ...], kinds: list[DType], attrs: dict[str, Any]
    ) -> tuple[Name, ...]:
        """The outputs of such a node: of one that is there already, or a new one."""
        key = op, inputs, len(kinds), tuple((name, _as_key(value)) for name, value in sorted(attrs.items()))
        if key not in self._made:
            made = tuple(self.declare(_spelled(op), kind) for kind in kinds)
            self.nodes.append(OnnxNode(op, STANDARD, self.opset, inputs, made, attrs, made[0]))
            self._made[key] = made
        return self._made[key]

    def cast(self, name: Name, dtype: DType) -> Name:
        """A value as a dtype."""
        if self.dtypes[name] is dtype:
            return name
        if name in self.constants and self.constants[name].nbytes <= SMALL:
            with np.errstate(all="ignore"):
                return self.constant(self.constants[name], dtype)
        return self.emit("Cast", name, dtype=dtype, to=dtype.numpy)

    # ---- sizes
    def size(self, dim: int | Dim) -> Name:
        """A size as an int64 array of one element."""
        if not isinstance(dim, Dim):
            return self.constant([dim], int64)
        if dim.text not in self._sizes:
            self._sizes[dim.text] = self._sum(dim)
        return self._sizes[dim.text]

    def _sum(self, dim: Dim) -> Name:
        total: Name | None = None
        for monomial, c in dim.terms:
            term = None if c == 1 and monomial else self.size(c)
            for atom in monomial:
                factor = self._atom(atom)
                term = factor if term is None else self.emit("Mul", term, factor)
            assert term is not None
            total = term if total is None else self.emit("Add", total, term)
        assert total is not None
        return total

    def _atom(self, atom: Atom) -> Name:
        if not atom.operands:
            if atom.kind not in self.origins:
                raise ExportError(f"export: no input has the size {atom.kind}")
            name, dim = self.origins[atom.kind]
            return self._once(
                atom.text, lambda: self.emit("Shape", name, dtype=int64, start=dim, end=dim + 1)
            )
        a, b = map(self.size, atom.operands)
        if atom.kind != "//":
            return self._once(atom.text, lambda: self.emit(atom.kind.capitalize(), a, b))
        if bounds(atom.operands[0])[0] < 0:  # ONNX rounds towards 0
            a = self.emit("Sub", a, self.emit("Mod", a, b))
        return self._once(atom.text, lambda: self.emit("Div", a, b))

    def _once(self, text: str, make: Callable[[], Name]) -> Name:
        if text not in self._sizes:
            self._sizes[text] = make()
        return self._sizes[text]

    def vector(self, dims: Iterable[int | Dim]) -> Name:
        """Sizes as an int64 vector."""
        dims = tuple(dims)
        if not any(isinstance(n, Dim) for n in dims):
            return self.constant(np.asarray(dims, np.int64))
        parts: list[Name] = []
        run: list[int] = []
        for n in (*dims, None):
            if isinstance(n, int):
                run.append(n)
                continue
            if run:
                parts.append(self.constant(np.asarray(run, np.int64)))
                run = []
            if n is not None:
                parts.append(self.size(n))
        return parts[0] if len(parts) == 1 else self.emit("Concat", *parts, axis=0)

    def number(self, dim: int | Dim, dtype: DType = int64) -> Name:
        """A size as an array without dimensions."""
        if not isinstance(dim, Dim):
            return self.constant(dim, dtype)
        axes = self.constant([0], int64)
        return self.cast(self.emit("Squeeze", self.size(dim), axes), dtype)

    def reshaped(self, name: Name, before: Shape, after: Shape) -> Name:
        """The same elements in another shape."""
        if before == after:
            return name
        if 0 in after:
            return self.emit("Reshape", name, self.vector(after), allowzero=1)
        kept = [
            0 if isinstance(n, Dim) and d < len(before) and before[d] == n else n for d, n in enumerate(after)
        ]
        if sum(isinstance(n, Dim) for n in kept) == 1:
            kept = [-1 if isinstance(n, Dim) else n for n in kept]
        return self.emit("Reshape", name, self.vector(kept))

    def squeezed(self, name: Name, *dims: int) -> Name:
        return self.emit("Squeeze", name, self.constant(np.asarray(dims, np.int64))) if dims else name

    def unsqueezed(self, name: Name, *dims: int) -> Name:
        return self.emit("Unsqueeze", name, self.constant(np.asarray(dims, np.int64))) if dims else name

    def expanded(self, name: Name, shape: Shape) -> Name:
        return self.emit("Expand", name, self.vector(shape))

    # ---- graphs
    def write_graph(self, graph: Graph, wanted: Sequence[Value] | None = None) -> None:
        """Write the nodes that lead to the results, or to some of them."""
        results = graph.results if wanted is None else wanted
        self.returned.update(results)
        nodes = leading_to(graph.nodes, results)
        for node in nodes:
            self.makers.update(dict.fromkeys(node.outputs, node))
            for value in dict.fromkeys(node.inputs):
                if value is not None:
                    self.read.setdefault(value, []).append(node)
        for node in nodes:
            self.write(node)

    def write(self, node: Node) -> None:
        """Write one node.  Raises ExportError for one that can't be."""
        made: Written = None
        if node.op.name in REFUSED:
            raise self.refusal(node, REFUSED[node.op.name])
        if (function := WRITERS.get(node.op.name)) is not None:
            made = function(self, node, *self.operands(node))
        if made is None:
            made = self._expanded(node)
        names = [made] if isinstance(made, str) else made
        for value, name in zip(node.outputs, names, strict=False):
            if name is not None:
                self.names[value] = self.cast(name, value.dtype)

    def _expanded(self, node: Node) -> Written:
        """What the node's op stands for, written."""
        if node.op.name in STAND_INS:
            return self.inline(self._stood_in(node), node)
        if isinstance(node.op.lower, Decomposition):
            types = tuple(None if v is None else v.type for v in node.inputs)
            return self.inline(decompose(node.op, types, node.attrs, loops=False), node)
        if isinstance(node.op.lower, Pointwise):
            return write_body(self, node, self.operands(node))
        raise self.refusal(node, reason_against(node.op) or "it can't be written with these arguments")

    def _stood_in(self, node: Node) -> Graph:
        """The graph that stands in for a node: results that nobody reads may be missing."""
        types = tuple(None if v is None else v.type for v in node.inputs)
        outputs, reads = inferred(node.op, types, node.attrs), read_dtypes(node.op, types, node.attrs)
        with Builder(node.op.name) as b:
            names = numbered(node.op.operands, len(types))
            params = [t and b.param(t, name) for t, name in zip(types, names, strict=True)]
            given = (x if x is None else as_dtype(x, reads.get(i, x.dtype)) for i, x in enumerate(params))
            made = STAND_INS[node.op.name](*given, **node.attrs)
            several = made if isinstance(made, tuple) else (made,)
            if len(several) < len(outputs) and any(map(self.wants, node.outputs[len(several) :])):
                raise self.refusal(node, "what it returns beside its first result is not written")
            return b.finish([as_dtype(x, t.dtype) for x, t in zip(several, outputs, strict=False)])

    def inline(self, graph: Graph, node: Node) -> Written:
        """Write a graph in place of a node; what its results are called."""
        given = [v for v in node.inputs if v is not None]
        self.names.update((p, self.name_of(v)) for p, v in zip(graph.params, given, strict=True))
        self.makers.update((p, self.makers[v]) for p, v in zip(graph.params, given) if v in self.makers)
        pairs = [*zip(graph.results, node.outputs, strict=False)]
        self.write_graph(_placed(graph, node), [inner for inner, outer in pairs if self.wants(outer)])
        return [self.name_of(inner) if self.wants(outer) else None for inner, outer in pairs]

    def operands(self, node: Node) -> list[Name | None]:
        """The names of a node's operands, in the types that it computes in."""
        types = tuple(None if v is None else v.type for v in node.inputs)
        reads = read_dtypes(node.op, types, node.attrs)
        return [
            None if v is None else self.cast(self.name_of(v), reads.get(i, v.dtype))
            for i, v in enumerate(node.inputs)
        ]

    def refusal(self, node: Node, reason: str) -> ExportError:
        """The error of a node that can't be written."""
        place = f" ({os.path.basename(node.where[0])}:{node.where[1]})" if node.where is not None else ""
        return ExportError(f"export: {node.op.name} can't be written as ONNX{place}", reason)


def _placed(graph: Graph, node: Node) -> Graph:
    """The graph with the user's line of a node on all of its own."""
    if node.where is None:
        return graph
    return graph.replace(nodes=[each.replace(where=node.where) for each in graph.nodes])


def _as_key(value: Any) -> Any:
    """What equal attributes have in common."""
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape, value.tobytes()
    return id(value) if isinstance(value, Subgraph) else value


def _spelled(op: str) -> str:
    """What a value is called that an operator made: `layer_normalization`."""
    return "".join(
        f"_{c.lower()}" if c.isupper() and n and op[n - 1].islower() else c.lower() for n, c in enumerate(op)
    )


def is_static(*shapes: Iterable[Any]) -> bool:
    """Whether no size is a symbol's."""
    return not any(isinstance(n, Dim) for shape in shapes for n in shape)


def the(name: str) -> Op:
    return REGISTRY[name]


def made(name: str, *args: Any, **kwargs: Any) -> Any:
    """Apply an op that is given no value to the graph that is being built."""
    return active().apply(REGISTRY[name], args, kwargs)
