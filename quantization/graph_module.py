"""A module that runs a graph: node by node on tensors, its weights parameters and buffers under their names.

It runs eagerly, differentiates, traces (for sizes that are symbols too), exports, pickles, copies; its
`state_dict()` holds the weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..ir.dims import Dim
from ..ir.graph import Constant, Graph, Node, Value
from ..ir.indices import NEW, whole
from ..ir.ops.along import index_select
from ..ir.ops.join import cat
from ..ir.ops.view import basic_index
from ..ir.size import size
from ..ir.text import parse
from ..jit.pytree import DICTS
from ..nn import Buffer, Module, Parameter
from ..runtime import Tensor, ops
from ..runtime.dispatch import run_general
from ..runtime.tensor import tensor_of
from .schemes import QuantizationError


@dataclass(frozen=True)
class Weight:
    """An array that a graph reads.  path: the name that it has in the module.  trained: a parameter."""

    path: str
    array: np.ndarray
    trained: bool = False


@dataclass(frozen=True)
class Recorded:
    """A model's graph, as a module runs it.

    graph: of the tensors among the arguments, in order, then of weights.  arguments: the structure of
    (positional arguments, those by name), with `Leaf` where a tensor stands.  outputs: that of the results: a
    result's number, ["tuple" or "list", ...], ["dict", [key, ...], ...] or ["value", x].  names: of the
    arguments that the model takes by place.  returned: the classes of the results, as pytree has them.
    """

    graph: Graph
    weights: tuple[Weight, ...]
    arguments: Any
    outputs: Any
    names: tuple[str, ...] = ()
    returned: Any = None


class Leaf(NamedTuple):
    """Stands for a tensor in the structure of arguments."""

    number: int


class Step(NamedTuple):
    """A node as it is called.  general: the op, where its function is not called by the user's arguments.

    inputs: for each operand the slot of a value, or the value itself where it is known.  sized: whether
    there are formulas of sizes, or tuples, among the attributes.  free: the slots that nobody reads after it.
    """

    function: Callable
    general: Any
    inputs: tuple[tuple[int, Any], ...]
    joined: bool
    attrs: dict[str, Any]
    sized: bool
    outputs: tuple[int, ...]
    free: tuple[int, ...]


class Formula(NamedTuple):
    """A size that depends on others: the sum of numbers times atoms, which are names or triples."""

    terms: tuple[tuple[int, tuple[Any, ...]], ...]


class GraphModule(Module):
    """Run a graph on the tensors among the arguments.

    All that is no tensor among the arguments is as it was when the graph was recorded.
    Raises QuantizationError for arguments of another structure, type or size.
    """

    def __init__(self, recorded: Recorded):
        super().__init__()
        self.graph, self.arguments, self.outputs = recorded.graph, recorded.arguments, recorded.outputs
        self.argument_names, self.returned = recorded.names, recorded.returned
        self.paths = []
        for weight in recorded.weights:
            kept = tensor_of(weight.array)
            self.paths.append(place(self, weight.path, Parameter(kept) if weight.trained else Buffer(kept)))
        self._prepare()

    # ---- the graph as it is called
    def _prepare(self) -> None:
        """Work out how each node is called, once for all runs."""
        slots: dict[Value, int] = {}
        for value in (*self.graph.params, *(v for node in self.graph.nodes for v in node.outputs)):
            slots[value] = len(slots)
        self._slots, self._nodes = slots, self.graph.nodes
        self._count = len(self.graph.params) - len(self.paths)
        self._results = tuple(self._operand(v) for v in self.graph.results)
        last: dict[int, int] = {}
        for at, node in enumerate(self.graph.nodes):
            for v in node.inputs:
                if v in slots:
                    last[slots[v]] = at
        kept = {slots[v] for v in self.graph.results if v in slots}
        frees: dict[int, list[int]] = {}
        for slot, at in last.items():
            if slot not in kept:
                frees.setdefault(at, []).append(slot)
        self._steps = [self._step(node, tuple(frees.get(at, ()))) for at, node in enumerate(self.graph.nodes)]
        self._shapes = [tuple(_formula(n) for n in p.shape) for p in self.graph.params[: self._count]]
        self._dtypes = [p.dtype for p in self.graph.params[: self._count]]

    def _operand(self, value: Value | None) -> tuple[int, Any]:
        """Where a value is found: (its slot, None), or (-1, the value)."""
        if value is None:
            return -1, None
        if isinstance(value, Constant):
            return -1, value.data.item() if value.inline else tensor_of(np.array(value.data))
        return self._slots[value], None

    def _step(self, node: Node, free: tuple[int, ...]) -> Step:
        op, attrs = node.op, dict(node.attrs)
        outputs = tuple(self._slots[v] for v in node.visible)
        inputs = tuple(map(self._operand, node.inputs))
        called = _spelled(node)
        if op is size:
            made = _formula(attrs["value"])
            return Step(_number, None, (), False, {"value": made}, True, outputs, free)
        joined = op is cat
        if op is basic_index:
            called, function, general = {"index": _index_of(node)}, _indexed, None
        elif op is index_select:
            called, function, general = attrs, _selected, None
        elif called is None or op.name not in ops.FUNCTIONS:
            called, function, general = attrs, run_general, op
        else:
            function, general = ops.FUNCTIONS[op.name], None
        formulas = {name: _formula(attr) for name, attr in called.items()}
        # Tuples are put together anew as well: a tracer has to see what they are made of.
        sized = any(isinstance(attr, (Formula, tuple)) for attr in formulas.values())
        return Step(function, general, inputs, joined, formulas, sized, outputs, free)

    # ---- running
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.run(args, kwargs, None)

    def run(self, args: tuple, kwargs: dict[str, Any], seen: Callable[[int, Any], Any] | None) -> Any:
        """Run the graph.  seen: is told each value as it is made, by its slot, and says what is read."""
        tensors: list[Any] = [None] * self._count
        self._take(self.arguments, self._spelled(args, kwargs), tensors)
        sizes: dict[str, Any] = {}
        for at, x in enumerate(tensors):
            self._fit(at, x, sizes)
        values: dict[int, Any] = {}
        for slot, x in enumerate(tensors):
            values[slot] = x if seen is None else seen(slot, x)
        for at, path in enumerate(self.paths):
            values[self._count + at] = self.weight(path)
        made: dict[int, Any] = {}  # results as they were made
        wanted = {slot for slot, _ in self._results}
        for step in self._steps:
            operands = [known if slot < 0 else values[slot] for slot, known in step.inputs]
            attrs = _computed(step.attrs, sizes) if step.sized else step.attrs
            if step.general is not None:
                out = step.function(step.general, operands, dict(attrs))
            elif step.joined:
                out = step.function(operands, **attrs)
            else:
                out = step.function(*operands, **attrs)
            for slot, value in zip(step.outputs, out if isinstance(out, (tuple, list)) else (out,)):
                if slot in wanted:
                    made[slot] = value
                values[slot] = value if seen is None else seen(slot, value)
            for slot in step.free:
                values.pop(slot, None)
        found = [known if slot < 0 else made.get(slot, values.get(slot)) for slot, known in self._results]
        return _classed(self.returned, _built(self.outputs, found))

    def weight(self, path: str) -> Any:
        """A parameter or buffer as the graph reads it."""
        owner: Any = self
        for part in path.split("."):
            owner = getattr(owner, part)
        return owner

    def _spelled(self, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        """Arguments by place or by name as they were when the graph was recorded."""
        names, by_name = self.argument_names, dict(kwargs)
        count = len(self.arguments[0])
        moved = dict(zip(names[count:], args[count:]))
        if moved.keys() <= self.arguments[1].keys() - kwargs.keys() and len(moved) == len(args[count:]):
            args, by_name = args[:count], by_name | moved
        for name in names[len(args) : count]:
            if name not in by_name:
                break
            args = (*args, by_name.pop(name))
        return args, by_name

    def _take(self, structure: Any, given: Any, tensors: list[Any]) -> None:
        """Put the tensors among arguments at their numbers.  Raises QuantizationError for what differs."""
        if isinstance(structure, Leaf):
            if not isinstance(given, Tensor):
                number = isinstance(given, (bool, int, float))  # as numbers go: it has no dtype of its own
                dtype = self._dtypes[structure.number].numpy if number else None
                given = tensor_of(np.asarray(given, dtype))
            tensors[structure.number] = given
        elif isinstance(structure, (tuple, list)):
            if not isinstance(given, (tuple, list)) or len(given) != len(structure):
                raise QuantizationError(
                    f"the model was recorded with {_described(structure)}, not {_described(given)}",
                    "quantize it with data of the kind that it is called with",
                )
            for part, x in zip(structure, given):
                self._take(part, x, tensors)
        elif isinstance(structure, dict):
            if not isinstance(given, dict) or given.keys() != structure.keys():
                raise QuantizationError(
                    f"the model was recorded with {_described(structure)}, not {_described(given)}",
                    "quantize it with data of the kind that it is called with",
                )
            for name, part in structure.items():
                self._take(part, given[name], tensors)
        elif isinstance(given, Tensor) or given != structure:
            raise QuantizationError(f"the model was recorded with an argument {structure!r}, not {given!r}")

    def _fit(self, at: int, x: Any, sizes: dict[str, Any]) -> None:
        """Enter the sizes of an argument.  Raises QuantizationError for one of another type or size."""
        wanted = self._shapes[at]
        fits = len(wanted) == x.ndim and x.dtype is self._dtypes[at]
        for dim, want in enumerate(wanted if fits else ()):
            n = x.shape[dim]  # one by one: a tracer knows sizes that are asked for singly
            if isinstance(want, int):
                fits = fits and n == want
            elif len(want.terms) == 1 and want.terms[0][0] == 1 and len(want.terms[0][1]) == 1:
                name = want.terms[0][1][0]
                if name not in sizes:
                    sizes[name] = n
                elif sizes[name] != n:
                    fits = False
        if not fits:
            dtype = self._dtypes[at]
            raise QuantizationError(
                f"the model was recorded for an argument {self.graph.params[at].type}, not {x._meta}",
                "say which sizes change: quantize(dynamic={0: {0: 'batch', 2: 'height'}})"
                if x.dtype is dtype
                else f"cast it: x.to({dtype})",
            )

    # ---- copies
    def __getstate__(self) -> dict[str, Any]:
        own = super().__getstate__()
        for name in ("_steps", "_slots", "_nodes", "_results", "_shapes", "_dtypes"):
            own.pop(name, None)
        constants = {name: np.array(c.data) for name, c in self.graph.constants.items()}
        return own | {"graph": (str(self.graph), constants)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        text, arrays = state["graph"]
        constants = {name: Constant(array, name) for name, array in arrays.items()}
        super().__setstate__(state | {"graph": parse(text, constants)})
        self._prepare()

    def extra_repr(self) -> str:
        return f"{len(self.graph.nodes)} nodes"


def place(module: Module, path: str, value: Any) -> str:
    """Enter a parameter or buffer under its path, in modules of modules; the path at which it is then.

    A name that is a module's own word (`weight` of a `GraphModule`) gets an underscore.
    """
    *parts, leaf = path.split(".")
    for at, part in enumerate(parts):
        while part not in module._modules and hasattr(module, part):
            part += "_"
        if part not in module._modules:
            module.add_module(part, Module())
        module, parts[at] = module._modules[part], part
    while hasattr(module, leaf):
        leaf += "_"
    setattr(module, leaf, value)
    return ".".join([*parts, leaf])


def _described(x: Any) -> str:
    if isinstance(x, dict):
        return f"the names {', '.join(x) or 'none'}"
    return f"{len(x)} items" if isinstance(x, (tuple, list)) else repr(x)


# ---- attributes
# Names that functions have for arguments, where these differ from the attributes that they become.
ARGUMENTS = {"kernel": "kernel_size"}


def _spelled(node: Node) -> dict[str, Any] | None:
    """The arguments by name that a node's function takes; None where they are not its attributes."""
    attrs = dict(node.attrs)
    if node.op is cat:
        return {"dim": attrs["dim"]}
    named = dict(attrs)
    for spelled in (named, {ARGUMENTS.get(name, name): value for name, value in attrs.items()}):
        try:
            operands, bound = node.op.bind(*node.inputs, **spelled)
        except Exception:  # a function of other arguments: it is run as it was bound
            continue
        same = len(operands) == len(node.inputs) and all(a is b for a, b in zip(operands, node.inputs))
        if same and dict(bound) == attrs:
            return spelled
    return None


def _formula(value: Any) -> Any:
    """An attribute with a `Formula` for each dimension of symbols."""
    if isinstance(value, tuple):
        return tuple(map(_formula, value))
    if not isinstance(value, Dim):
        return value
    return Formula(tuple((c, tuple(map(_atom, monomial))) for monomial, c in value.terms))


def _atom(atom: Any) -> Any:
    if not atom.operands:
        return atom.kind
    return (atom.kind, *(_formula(n) for n in atom.operands))


def _computed(attrs: Mapping[str, Any], sizes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _value(attr, sizes) for name, attr in attrs.items()}


def _value(attr: Any, sizes: Mapping[str, Any]) -> Any:
    """An attribute for sizes: written for Python's numbers, which may be symbols while a run is recorded."""
    if isinstance(attr, Formula):
        total: Any = 0
        for c, atoms in attr.terms:
            product: Any = c
            for atom in atoms:
                product = product * (sizes[atom] if isinstance(atom, str) else _of_two(atom, sizes))
            total = total + product
        return total
    if isinstance(attr, tuple):
        return tuple([_value(each, sizes) for each in attr])
    return attr


def _of_two(atom: tuple, sizes: Mapping[str, Any]) -> Any:
    kind, a, b = atom[0], _value(atom[1], sizes), _value(atom[2], sizes)
    if kind == "//":
        return a // b
    return min(a, b) if kind == "min" else max(a, b)


def _number(value: Any) -> Any:
    return value


# Two functions that are not called by their operands and attributes, as a user calls them: a tracer follows
# these for sizes that are symbols.
def _indexed(input: Tensor, index: tuple) -> Tensor:
    return input[tuple([None if n == NEW else n[1] if n[0] == "int" else slice(*n[1:]) for n in index])]


def _selected(input: Tensor, index: Tensor, dim: int) -> Tensor:
    return ops.FUNCTIONS["index_select"](input, dim, index)


def _index_of(node: Node) -> tuple:
    """An index in which what takes all of a dimension says no size."""
    source: Any = node.inputs[0]
    sizes, index = iter(source.shape), []
    for item in node.attrs["index"]:
        all_of_it = item != NEW and item == whole(next(sizes))
        index.append(("slice", None, None, None) if all_of_it else item)
    return tuple(index)


def _built(outputs: Any, found: Sequence[Any]) -> Any:
    """Results in their structure."""
    if isinstance(outputs, int):
        return found[outputs]
    kind, *items = outputs
    if kind == "value":
        return items[0]
    if kind == "dict":
        return {name: _built(item, found) for name, item in items}
    made: Iterable[Any] = [_built(item, found) for item in items]
    return made if kind == "list" else tuple(made)


def _classed(shape: Any, made: Any) -> Any:
    """Results in the classes that the model returned them in: named tuples and dataclasses too."""
    if shape is None:
        return made
    kind, names, shapes = shape
    items = made.values() if isinstance(made, dict) else made
    parts = [_classed(each, item) for each, item in zip(shapes, items, strict=True)]
    if isinstance(names, int):
        return kind(parts)
    if issubclass(kind, tuple):
        return kind(*parts)
    named = dict(zip(names, parts, strict=True))
    return kind(named) if kind in DICTS else kind(**named)
