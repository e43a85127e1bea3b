"""The graph: an immutable, typed, ordered list of ops in single-assignment form, and the builder that makes
one.

    with Builder("scaled") as b:
        x = b.param(type_of(float32, (8, 3)), "x")
        graph = b.finish(exp(x * 2.0))

Values are operands like tensors and arrays: applying an op to them, calling a gradient rule or a composite on
them, appends nodes to the builder whose `with` block is running.  Passes never change a graph, they make
another, which may share values and nodes with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf, prod
from types import MappingProxyType
from typing import Any

import numpy as np

from .dims import Condition, Dim, conditions
from .dtypes import from_numpy_dtype, number_array, of_scalar
from .errors import ArgumentError, GraphError, LaminaError
from .op import COMPOSITES, REGISTRY, Op
from .open_blocks import OpenBlocks
from .operators import Operators
from .printing import Namer, graph_text, node_text, scalar_text
from .shapes import number_dtype
from .size import size
from .types import Device, Shape, Type, type_of

Place = tuple[str, int]  # the user's file and line
NO_ATTRS: Mapping[str, Any] = MappingProxyType({})


class Value(Operators):
    """What a graph computes at one place: a type, and a hint for its name.

    `==` is the op, as on tensors, so that rules mean the same; as keys, values are told apart by identity
    (`in` on sets and dicts).  `in` on a tuple of values asks for a truth that isn't known, and raises.
    """

    __slots__ = ("type", "hint")
    __iter__ = None  # without this, `for v in value` would index it for ever

    def __init__(self, type: Type, hint: str | None = None):
        self.type, self.hint = type, hint

    @property
    def shape(self) -> Shape:
        return self.type.shape

    @property
    def ndim(self) -> int:
        return self.type.ndim

    @property
    def dtype(self):
        return self.type.dtype

    @property
    def device(self) -> Device:
        return self.type.device

    def size(self, dim: int | None = None) -> Any:
        """The shape, or its entry `dim`."""
        return self.type.shape if dim is None else self.type.shape[dim]

    def dim(self) -> int:
        """The number of dimensions."""
        return self.type.ndim

    def numel(self) -> int | Dim:
        """The number of elements."""
        return prod(self.type.shape)

    def __getattr__(self, name: str) -> Any:
        """What tensors have as methods: ops, and what is written with them."""
        op, composite = REGISTRY.get(name), COMPOSITES.get(name)
        if op is not None and op.method:
            return partial(op, self)
        if composite is not None and composite.method:
            return partial(composite.function, self)
        builder = _active.innermost()
        if builder is not None and builder.tensors is not None:
            return builder.tensors.attribute(self, name)
        raise AttributeError(f"a value of a graph has no {name}", name=name, obj=self)

    __hash__ = object.__hash__

    def __eq__(self, other: Any) -> Any:
        return REGISTRY["eq"](self, other)

    def __ne__(self, other: Any) -> Any:
        return REGISTRY["ne"](self, other)

    def __bool__(self) -> bool:
        raise GraphError(
            "a value of a graph has no truth before the graph runs",
            f"value: {self!r}",
            "choose between values with where(condition, a, b)",
        )

    @staticmethod
    def __lamina_op__(op: Op, args: tuple, kwargs: dict) -> Any:
        return active().apply(op, args, kwargs)

    def spelled(self) -> str:
        """How it is written where its graph's names aren't known."""
        return f"%{self.hint or '?'}"

    def __repr__(self) -> str:
        return f"{self.spelled()}: {self.type}"


class Constant(Value):
    """A value known when the graph is made.  `data` is read-only; text shows the name or a scalar's value."""

    __slots__ = ("data",)

    def __init__(self, data: np.ndarray, hint: str | None = None, type: Type | None = None):
        dtype = from_numpy_dtype(data.dtype)
        if dtype is None or not (dtype.traced or dtype.is_complex):
            raise GraphError(
                f"a constant can't have NumPy's dtype {data.dtype}",
                "known: float, complex, int and bool types",
            )
        super().__init__(type or type_of(dtype, data.shape), hint)
        self.data = data.view()
        self.data.flags.writeable = False

    @property
    def inline(self) -> bool:
        """Whether its text is its value."""
        return self.hint is None and self.type == type_of(self.type.dtype, ()) and not self.dtype.is_complex

    def spelled(self) -> str:
        return scalar_text(self) if self.inline else f"@{self.hint or '?'}"


@dataclass(frozen=True, eq=False, slots=True)
class Node:
    """One application of an op.

    inputs: one value per operand, None for an optional one left out.  outputs: visible ones, then hidden
    ones. attrs: in the order of `op.attrs`; read-only.  where: the user's file and line; it has no meaning to
    passes.
    """

    op: Op
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    where: Place | None = None

    def __post_init__(self):
        if not isinstance(self.attrs, MappingProxyType):
            object.__setattr__(self, "attrs", MappingProxyType(dict(self.attrs)) if self.attrs else NO_ATTRS)

    @property
    def visible(self) -> tuple[Value, ...]:
        """The outputs that the user is handed."""
        return self.outputs[: len(self.outputs) - len(self.op.hidden)]

    def replace(self, **changes: Any) -> Node:
        return replace(self, **changes)

    def __str__(self) -> str:
        return node_text(self)


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Graph:
    """A function of `params`: nodes, each of which uses only what came before it, and results."""

    name: str
    params: tuple[Value, ...]
    nodes: tuple[Node, ...]
    results: tuple[Value, ...]

    def replace(self, **changes: Any) -> Graph:
        """The same graph with other params, nodes, results or name."""
        return replace(self, **{k: v if k == "name" else tuple(v) for k, v in changes.items()})

    @property
    def constants(self) -> dict[str, Constant]:
        """The constants that the text names, by that name.

        The names are the hints, made distinct, in order of use.  `parse(str(graph), graph.constants)` is this
        graph.
        """
        used = dict.fromkeys(v for v in self.used() if isinstance(v, Constant) and not v.inline)
        namer = Namer()
        return {namer.name(c.hint or "c"): c for c in used}

    def used(self) -> Iterable[Value]:
        """Every operand and result in order of use."""
        for node in self.nodes:
            for value in node.inputs:
                if value is not None:
                    yield value
        yield from self.results

    def __str__(self) -> str:
        return graph_text(self)

    __repr__ = __str__


def substituted(node: Node, values: Mapping[Value, Value]) -> Node:
    """The node with some of its operands exchanged; itself where none is."""
    if not any(v in values for v in node.inputs):
        return node
    return node.replace(inputs=tuple(v if v is None else values.get(v, v) for v in node.inputs))


_active = OpenBlocks()


def active() -> Builder:
    """The builder whose `with` block is running in this thread.  Raises GraphError."""
    builder = _active.innermost()
    if builder is None:
        raise GraphError(
            "an op was applied to a graph's value while no graph is being built",
            'write the call inside of: with Builder("name") as b: ...',
        )
    return builder


class Builder:
    """Makes a graph node by node, inferring types as it goes.

    `conditions` gathers what the symbols must satisfy for the shapes to be right; `where` is the
    user's line that the next nodes belong to.  sizes: as of `conditions`.  tensors: what makes values of
    tensors, and tells what values have of that which tensors have (`attribute(value, name)`, `value(x)`).
    """

    def __init__(self, name: str, sizes: Mapping[str, int] | None = None):
        self.name = name
        self.tensors: Any = None
        self.where: Place | None = None
        self.conditions: list[Condition] = []
        self._collecting = conditions(self.conditions, sizes)
        self._params: list[Value] = []
        self._nodes: list[Node] = []
        self._defined: set[Value] = set()

    @classmethod
    def extending(cls, graph: Graph, name: str | None = None) -> Builder:
        """A builder that starts with the params and nodes of `graph`."""
        made = cls(name or graph.name)
        made._params, made._nodes = list(graph.params), list(graph.nodes)
        made._defined = {*graph.params, *(v for node in graph.nodes for v in node.outputs)}
        return made

    def __enter__(self) -> Builder:
        self._collecting.__enter__()
        _active.enter(self)
        return self

    def __exit__(self, *error: Any) -> None:
        _active.leave(self)
        self._collecting.__exit__(*error)

    def param(self, type: Type, hint: str | None = None) -> Value:
        """A further parameter of the graph."""
        value = Value(type, hint)
        self._params.append(value)
        self._defined.add(value)
        return value

    def constant(self, data: Any, hint: str | None = None) -> Constant:
        """A known value; scalars without a hint are printed in place."""
        return Constant(np.asarray(data), hint)

    def apply(self, op: Op, args: tuple, kwargs: dict) -> Any:
        """The user's call: bind it, emit it, and return its visible outputs (one, or a tuple)."""
        operands, attrs = op.bind(*args, **kwargs)
        visible = self.emit(op, operands, attrs).visible
        return visible[0] if len(visible) == 1 else visible

    def emit(
        self, op: Op, operands: Sequence[Any], attrs: Mapping[str, Any], hint: str | None = None
    ) -> Node:
        """Append one node for a call that is bound already; numbers and arrays among the operands become
        constants.

        Raises the op's own errors, with a line for each operand, and GraphError for a value of another graph.
        """
        inputs = self._lifted(op, operands)
        types = tuple(None if v is None else v.type for v in inputs)
        try:
            inferred = op.infer(*types, **attrs)
        except LaminaError as error:
            named = zip(operand_names(op, len(inputs)), inputs, strict=True)
            lines = (f"{name}: {v.type}" for name, v in named if v is not None)
            raise named_with(error, lines) from None
        outs = inferred if isinstance(inferred, tuple) else (inferred,)
        outputs = tuple(Value(t, hint) for t in outs)
        ordered = {name: attrs[name] for name in op.attrs}
        return self.append(Node(op, inputs, outputs, ordered, self.where))

    def append(self, node: Node) -> Node:
        """Add a node that is made already (its types are its maker's word; the verifier re-infers them)."""
        self._nodes.append(node)
        self._defined.update(node.outputs)
        return node

    def inline(self, graph: Graph, *operands: Value) -> tuple[Value, ...]:
        """Repeat the nodes of `graph` on `operands`, and return what its results became."""
        if len(operands) != len(graph.params):
            raise GraphError(f"graph {graph.name} takes {len(graph.params)} operands, not {len(operands)}")
        became: dict[Value, Value] = dict(zip(graph.params, operands, strict=True))
        for node in graph.nodes:
            outputs = tuple(Value(v.type, v.hint) for v in node.outputs)
            self.append(substituted(node, became).replace(outputs=outputs))
            became.update(zip(node.outputs, outputs, strict=True))
        return tuple(became.get(v, v) for v in graph.results)

    def finish(self, results: Value | Sequence[Value]) -> Graph:
        """The graph that returns `results`.  Raises GraphError for a value that is not this graph's."""
        results = (results,) if isinstance(results, Value) else tuple(results)
        for value in results:
            self._check_mine(value, "a result")
        return Graph(self.name, tuple(self._params), tuple(self._nodes), results)

    def _check_mine(self, value: Any, role: str) -> None:
        if not isinstance(value, Value):
            raise GraphError(
                f"{role} of graph {self.name} must be a value of the graph, not {type(value).__name__}"
            )
        if value not in self._defined and not isinstance(value, Constant):
            raise GraphError(f"{role} of graph {self.name} belongs to another graph", f"value: {value!r}")

    def _lifted(self, op: Op, operands: Sequence[Any]) -> tuple[Value | None, ...]:
        tensors = [x.type for x in operands if isinstance(x, Value)]
        found: list[Value | None] = []
        for name, x in zip(operand_names(op, len(operands)), operands, strict=True):
            if x is None:
                if not op.variadic and name not in op.optional:
                    raise ArgumentError(f"{op.name}({', '.join(op.operands)}): {name} can't be left out")
                found.append(None)
            elif isinstance(x, (bool, int, float, complex, np.generic)):
                found.append(scalar_constant(x, tensors, op.traits.compares))
            elif isinstance(x, np.ndarray):
                found.append(Constant(x))
            elif isinstance(x, Dim):
                found.append(self.emit(size, (), {"value": x}).outputs[0])
            else:
                if self.tensors is not None and not isinstance(x, Value):
                    x = self.tensors.value(x)
                self._check_mine(x, f"operand {name} of {op.name}")
                found.append(x)
        return tuple(found)


def named_with(error: LaminaError, lines: Iterable[str]) -> LaminaError:
    """An op's error with further lines ahead of its own."""
    made = type(error)(error.rule, *lines, *error.details)
    made.__dict__.update({k: v for k, v in error.__dict__.items() if k not in ("rule", "details")})
    return made


def scalar_constant(
    value: bool | int | float | complex | np.generic, beside: Sequence[Type], compared: bool = False
) -> Constant:
    """A Python number as a 0-d constant of the dtype it takes beside operands of these types.

    compared: one that integers there can't hold is infinite, one beside halves is rounded to them.  Raises
    ArgumentError for others.
    """
    if isinstance(value, np.generic):
        value = value.item()
    dtype = number_dtype(value, *beside, compared=compared) if beside else of_scalar(value)
    try:
        return Constant(number_array(value, dtype))
    except OverflowError:
        if compared and isinstance(value, int):
            return scalar_constant(inf if value > 0 else -inf, beside)
        raise ArgumentError(f"the number {value} does not fit into {dtype}") from None


def operand_names(op: Op, count: int) -> tuple[str, ...]:
    """A name for each of `count` operands; those of an operand of any number are tensors[0], tensors[1]."""
    if not op.variadic:
        return op.operands
    fixed, rest = op.operands[:-1], op.operands[-1][1:]
    return (*fixed, *(f"{rest}[{i}]" for i in range(count - len(fixed))))
