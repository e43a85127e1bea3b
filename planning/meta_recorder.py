"""Hears of ops, modules and saved tensors while a model runs forward on the meta device, and counts.

What tensor parallelism would split is inferred: a product with a weight splits its result by columns where
what comes in is whole, and sums parts of it where that is split, as Megatron's pairs do; what is computed of
something split is split.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, fields, replace
from math import prod
from typing import Any

from ..nn import Module, ModuleList, Parameter, Sequential
from ..nn.hooks import register_module_forward_hook, register_module_forward_pre_hook
from ..profiler.sessions import Listener, Timed
from ..runtime import Tensor, modes
from ..runtime.packing import saved_tensors_hooks
from .layer_costs import LayerCosts, Precision, Product

CONVOLUTIONS = ("conv1d", "conv2d", "conv3d")
CELLS = ("lstm_layer", "gru_layer", "rnn_layer")
PRODUCTS = ("linear", "matmul", "attention", *CONVOLUTIONS, *CELLS)
SMALLEST = 2  # layers of one kind that count as repeated


def parameter_of(x: Tensor) -> Parameter | None:
    """The parameter that a tensor is, or is a view of."""
    base = x if x._base is None else x._base
    return base if isinstance(base, Parameter) else None


def products_of(name: str, taken: Sequence[Tensor], out: Tensor | None) -> Iterator[Product]:
    """The products of an op, of the whole batch."""
    if out is None or len(taken) < 2:
        return
    a, b = taken[0], taken[1]
    if name == "linear":
        yield Product(prod(a.shape[:-1]), a.shape[-1], b.shape[0], weighted=parameter_of(b) is not None)
    elif name == "matmul" and a.ndim and b.ndim:
        inner, columns = a.shape[-1], b.shape[-1] if b.ndim > 1 else 1
        weighted = b.ndim <= 2
        if weighted:
            yield Product(prod(a.shape[:-1]), inner, columns, weighted=parameter_of(b) is not None)
        else:
            rows = a.shape[-2] if a.ndim > 1 else 1
            yield Product(rows, inner, columns, prod(out.shape) / (rows * columns), weighted=False)
    elif name == "attention":
        heads = prod(a.shape[:-2])
        yield Product(a.shape[-2], a.shape[-1], b.shape[-2], heads, "", False, 1.0, "result", True)
        yield Product(a.shape[-2], b.shape[-2], taken[2].shape[-1], heads, "", False, 1.0, "left", True)
    elif name in CONVOLUTIONS:
        channels = b.shape[0]
        yield Product(prod(out.shape) / channels, prod(b.shape[1:]), channels)
    elif name in CELLS:
        yield Product(prod(a.shape[:-1]), a.shape[-1], b.shape[-1])


SPLIT, WHOLE = True, False  # what tensor parallelism divides, and what it does not
Sides = dict[bool, float]


def _none() -> Sides:
    return {SPLIT: 0.0, WHOLE: 0.0}


@dataclass
class _Segment:
    """What was counted of a layer, of the whole batch."""

    name: str
    block: bool
    parameters: Sides = field(default_factory=_none)
    tensors: int = 0
    products: list[Product] = field(default_factory=list)
    traffic: Sides = field(default_factory=_none)
    saved: Sides = field(default_factory=_none)
    kernels: int = 0
    input: float = 0.0
    exchanges: float = 0.0
    exchanged: float = 0.0

    def costs(self, batch: int) -> LayerCosts:
        """Of one sample."""
        return LayerCosts(
            self.name, self.parameters[SPLIT], self.parameters[WHOLE], 0, self.tensors,
            tuple(_of_one(product, batch) for product in self.products),
            self.traffic[SPLIT] / batch, self.traffic[WHOLE] / batch, 0, self.kernels,
            self.saved[SPLIT] / batch, self.saved[WHOLE] / batch, 0, self.input / batch,
            self.exchanges, self.exchanged / batch / max(self.exchanges, 1), block=self.block,
        )  # fmt: skip

    def take(self, other: _Segment) -> None:
        """Count what another one did as this one's."""
        self.products += other.products
        self.tensors += other.tensors
        for name in ("kernels", "exchanges", "exchanged"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for mine, its in (
            (self.parameters, other.parameters),
            (self.traffic, other.traffic),
            (self.saved, other.saved),
        ):
            for side, number in its.items():
                mine[side] += number


def _of_one(product: Product, batch: int) -> Product:
    if product.weighted:
        return replace(product, rows=product.rows / batch)
    return replace(product, times=product.times / batch)


class Recorder(Listener):
    """What the runtime tells (runtime/modes.py), while one forward runs.

    Invariant: `kept` holds every array that an id in `split` or `roots` names, so no id is used twice.
    """

    def __init__(self, model: Module, precision: Precision, batch: int):
        self.precision, self.batch, self.model = precision, batch, model
        self.units = {id(module): name for name, module in repeated(model).items()}
        self.segments: list[_Segment] = []
        self.by_unit: dict[str, _Segment] = {}
        self.current = self._segment("inputs", False)
        self.open: list[str] = []
        self.kept: list[Any] = []
        self.split: set[int] = set()
        self.roots: dict[int, tuple[int, float]] = {}  # id of an array -> what it is a view of, and its bytes
        self.sharded: set[int] = set()  # parameters
        self.seen: set[int] = set()  # arrays whose bytes were counted as saved
        self.counted: dict[int, float] = {}  # of each array: bytes of its views that were
        self.packed: list[Any] = []
        self.homes: dict[int, _Segment] = {}  # of parameters
        self.divisors: set[int] = set()
        self.tied = 0.0

    def _segment(self, name: str, block: bool) -> _Segment:
        self.segments.append(segment := _Segment(name, block))
        return segment

    def listening(self) -> ExitStack:
        """Open what it hears of: ops, modules, what is saved."""
        with ExitStack() as stack:
            stack.enter_context(modes.enable_grad())
            stack.enter_context(Timed(self))
            stack.enter_context(saved_tensors_hooks(self._pack, _same))
            stack.callback(register_module_forward_pre_hook(self._enters).remove)
            stack.callback(register_module_forward_hook(self._leaves, always_call=True).remove)
            return stack.pop_all()

    # ---- modules
    def _enters(self, module: Module, args: tuple) -> None:
        name = self.units.get(id(module))
        if name is None or self.open:
            return
        self.open.append(name)
        between = self.current
        if name not in self.by_unit:
            self.by_unit[name] = self._segment(type(module).__name__, True)
            first = next((x for x in args if isinstance(x, Tensor)), None)
            self.by_unit[name].input = 0.0 if first is None else self._nbytes(first)
        self.current = self.by_unit[name]
        if between.name == "between":  # what joins two layers is the second one's
            self.segments.remove(between)
            self.current.take(between)
            self.homes = {key: self.current if home is between else home for key, home in self.homes.items()}

    def _leaves(self, module: Module, args: tuple, result: Any) -> None:
        if self.open and self.units.get(id(module)) == self.open[-1]:
            self.open.pop()
            self.current = self._segment("between", False)

    # ---- ops
    def of_op(self, run: Callable, op: Any, plan: Any, operands: tuple, suffix: str = "") -> Any:
        """Run an op and count it."""
        self.packed = []
        made = run(op, plan, operands)
        taken = [x for x in operands if isinstance(x, Tensor)]
        results = [x for x in (made if isinstance(made, tuple) else (made,)) if isinstance(x, Tensor)]
        for x in (*taken, *results):
            self._note(x)
        splits, products = self._count(op, taken, results), op.name in PRODUCTS
        if splits:
            self.split.update(id(x._data) for x in results)
        if not op.traits.view and not products:
            moved = (*results, *results) if op.name == "embedding" else (*taken, *results)
            self.current.kernels += 1
            self.current.traffic[splits] += sum(map(self._nbytes, moved))
        self._save(results[0].shape if splits and results and not products else None)
        return made

    def _note(self, x: Tensor) -> None:
        base = x if x._base is None else x._base
        if id(x._data) not in self.roots:
            self.kept += (x._data, base._data)
            self.roots[id(x._data)] = id(base._data), self._nbytes(base)
            if id(base._data) in self.split:
                self.split.add(id(x._data))
        parameter = parameter_of(x)
        if parameter is not None and id(parameter) not in self.homes:
            self.homes[id(parameter)] = self.current
            self.current.parameters[WHOLE] += parameter.numel()
            self.current.tensors += 1
        elif parameter is not None and self.homes[id(parameter)] is not self.current and not self.open:
            if self.homes[id(parameter)].name == "inputs" and self.by_unit:
                self.tied = float(parameter.numel())

    def _count(self, op: Any, taken: Sequence[Tensor], results: Sequence[Tensor]) -> bool:
        """Count an op's products.  Returns whether its results are split."""
        split = any(id(x._data) in self.split for x in taken)
        weights = [p for p in map(parameter_of, taken) if p is not None]
        if op.name == "embedding" and weights:
            self._splits(weights[0])
            self._exchange(results[0], 0.5)
            return False
        products = list(products_of(op.name, taken, results[0] if results else None))
        if not products:
            return split
        for product in products:
            how = "times"
            if product.weighted:
                how = "inner" if split else "columns"
                if self.open:
                    self.divisors.add(int(product.inner if split else product.columns))
            self.current.products.append(replace(product, split=how if split or product.weighted else ""))
        if not products[0].weighted:
            return split
        for weight in weights[: 1 if split else None]:  # a bias of what is summed is whole
            self._splits(weight)
        if split:
            self._exchange(results[0], 1)
        return not split

    def _splits(self, parameter: Parameter) -> None:
        home = self.homes[id(parameter)]
        if id(parameter) not in self.sharded:
            self.sharded.add(id(parameter))
            home.parameters[WHOLE] -= parameter.numel()
            home.parameters[SPLIT] += parameter.numel()

    def _exchange(self, x: Tensor, count: float) -> None:
        self.current.exchanges += count
        self.current.exchanged += count * self._nbytes(x)

    # ---- what is saved
    def _pack(self, x: Tensor) -> Tensor:
        self.packed.append(x)
        return x

    def _save(self, split: Any) -> None:
        """Count what an op saved.  split: the shape of a split result; what it is computed of, such as the
        mask of a dropout, is split as well if it has the same.
        """
        for x in self.packed:
            if parameter_of(x) is not None or not x.ndim:
                continue
            root, whole = self.roots.get(id(x._data), (id(x._data), self._nbytes(x)))
            if id(x._data) in self.seen:
                continue
            self.kept.append(x._data)
            self.seen.add(id(x._data))
            before = self.counted.get(root, 0.0)
            self.counted[root] = min(before + self._nbytes(x), whole)
            here = id(x._data) in self.split or x.shape == split
            self.current.saved[here] += self.counted[root] - before

    def _nbytes(self, x: Tensor) -> float:
        """Bytes of a tensor in the precision that is planned for."""
        size = float(prod(x.shape))
        if x.dtype.is_floating_point or x.dtype.is_complex:
            return size * self.precision.element * (1 + x.dtype.is_complex)
        return size * x.element_size()

    # ---- what comes of it
    def layers(self) -> tuple[LayerCosts, ...]:
        """The costs, equal ones as one object."""
        for parameter in self.model.parameters():
            if id(parameter) not in self.homes:  # no op took it
                self.segments[0].parameters[WHOLE] += parameter.numel()
        known: dict[LayerCosts, LayerCosts] = {}
        for segment in self.segments:
            if segment.name == "between":
                segment.name = "outputs"
        made = [segment.costs(self.batch) for segment in self.segments]
        empty = {f.name for f in fields(LayerCosts)} - {"name", "block"}
        made = [layer for layer in made if layer.block or any(getattr(layer, key) for key in empty)]
        return tuple(known.setdefault(layer, layer) for layer in made)


def _same(x: Tensor) -> Tensor:
    return x


# ---- where a pipeline may cut
def repeated(model: Module) -> dict[str, Module]:
    """The layers that a pipeline may cut between, by name: children of the outermost lists of modules that
    have `SMALLEST` or more with parameters.
    """
    return dict(_repeated(model, ""))


def _repeated(module: Module, path: str) -> Iterator[tuple[str, Module]]:
    children = [(f"{path}.{name}".lstrip("."), child) for name, child in module.named_children()]
    heavy = [pair for pair in children if any(True for _ in pair[1].parameters())]
    if isinstance(module, (ModuleList, Sequential)) and len(heavy) >= SMALLEST:
        for name, child in heavy:
            inner = list(_repeated(child, name)) if isinstance(child, (ModuleList, Sequential)) else []
            yield from inner or [(name, child)]
        return
    for name, child in children:
        yield from _repeated(child, name)
