"""Replaces ops by less: a table of rewrites, each of which gives the same bits.

    graph f(%x: f32[2,3]) -> (f32[3,2]) {
      %0 = mul(%x, 1.0:f32) : f32[2,3]
      %1 = div(%0, 4.0:f32) : f32[2,3]
      %2 = transpose(%1) {dim0=0, dim1=1} : f32[3,2]
      return %2
    }
    ->
    graph f(%x: f32[2,3]) -> (f32[3,2]) {
      %0 = mul(%x, 0.25:f32) : f32[2,3]
      %1 = transpose(%0) {dim0=0, dim1=1} : f32[3,2]
      return %1
    }

"The same bits" is meant for every input: x + 0.0 stays, which makes 0.0 of -0.0; x * 0.0 stays, which makes
NaN of inf; (x * 2.0) * 3.0 stays, which rounds twice.  A NaN may become another NaN.

A rule looks at a node whose operands are simplified already, and gives the value that stands for its output,
or None.  What it gives counts only where it has the output's type: so no rule needs to think of promotion or
broadcasting.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import frexp, isfinite
from typing import Any

import numpy as np

from ...ir.dims import Dim
from ...ir.dtypes import DType
from ...ir.graph import Builder, Constant, Graph, Node, Value, substituted
from ...ir.op import REGISTRY
from ...ir.types import Type
from ...ir.views import Chain, shapes_along
from ...ir.write import need_values

Number = bool | int | float


def simplify(graph: Graph) -> Graph:
    """The graph with the rules below applied until none does.  What they leave unused is for `dce` to drop.

    Raises GraphError for a graph with writes.
    """
    need_values("simplify", graph)
    s = Simplifier(graph)
    for node in graph.nodes:
        s.b.where = node.where
        s.add(substituted(node, s.became))
    if not s.changed:
        return graph
    return s.b.finish([s.became.get(v, v) for v in graph.results])


class Simplifier:
    """The graph as far as it is simplified: what rules look at, and add nodes to.

    became: what stands for the outputs that are gone.  makers: the node that makes a value.
    """

    def __init__(self, graph: Graph):
        self.b = Builder.extending(graph.replace(nodes=()))
        self.became: dict[Value, Value] = {}
        self.makers: dict[Value, Node] = {}
        self.changed = False

    def add(self, node: Node) -> Value:
        """Append the node, or what a rule says; the value that stands for its first output."""
        out = node.outputs[0]
        for rule in TABLE.get(node.op.name, ()):
            found = rule.apply(self, node)
            if found is not None and found.type is out.type:
                self.became[out], self.changed = found, True
                return found
        self.b.append(node)
        self.makers.update(dict.fromkeys(node.outputs, node))
        return out

    def emit(self, name: str, *inputs: Value, hint: str | None = None, **attrs: Any) -> Value:
        """Add an op, simplified as well."""
        return self.add(self.node(name, inputs, attrs, hint))

    def instead(self, node: Node, name: str, *inputs: Value, **attrs: Any) -> Value | None:
        """Add an op in place of a node; None where it gives another type."""
        made = self.node(name, inputs, attrs, node.outputs[0].hint)
        return self.add(made) if made.outputs[0].type is node.outputs[0].type else None

    def node(self, name: str, inputs: tuple[Value, ...], attrs: dict[str, Any], hint: str | None) -> Node:
        op = REGISTRY[name]
        type = op.infer(*(v.type for v in inputs), **attrs)
        return Node(op, inputs, (Value(type, hint),), {n: attrs[n] for n in op.attrs}, self.b.where)

    def maker(self, value: Value | None, *names: str) -> Node | None:
        """The node that makes a value, if its op is one of these."""
        made = self.makers.get(value) if value is not None else None
        return made if made is not None and made.op.name in names else None

    def number(self, value: Value | None) -> Number | None:
        """The number that a value holds in every place, if that is known."""
        if isinstance(value, Constant):
            if value.data.size == 1:
                return _python(value.data.reshape(())[()], value.dtype)
            return None
        made = self.maker(value, "zeros", "ones", "full")
        if made is None or value is None:
            return None
        filled = {"zeros": 0, "ones": 1}.get(made.op.name, made.attrs.get("fill_value"))
        return _python(np.asarray(filled).astype(value.dtype.numpy)[()], value.dtype)

    def fit(self, value: Value, type: Type, hint: str | None) -> Value:
        """The value cast and expanded to a type."""
        if value.dtype is not type.dtype:
            value = self.emit("cast", value, dtype=type.dtype, hint=hint)
        return value if value.shape == type.shape else self.emit("expand", value, size=type.shape, hint=hint)

    def never_minus_zero(self, value: Value) -> bool:
        """Whether no element can be -0.0."""
        if not value.dtype.is_floating_point:
            return True
        number = self.number(value)
        if number is not None:
            return not is_zero(number, -1.0)
        made = self.maker(value, "abs", "square", "exp", "exp2", "add", "cast")
        if made is None:
            return False
        if made.op.name == "add":  # only -0.0 and -0.0 add up to it, where neither is rounded before
            operands = [v for v in made.inputs if v is not None and v.dtype is value.dtype]
            return len(operands) == 2 and any(map(self.never_minus_zero, operands))
        source = made.inputs[0]
        return made.op.name != "cast" or (source is not None and not source.dtype.is_floating_point)


def _python(scalar: Any, dtype: DType) -> Number:
    return float(scalar) if dtype.is_floating_point else scalar.item()


def is_zero(number: Number | None, sign: float) -> bool:
    """Whether it is 0 of that sign; an integer's is both."""
    if number is None or isinstance(number, bool) or number != 0:
        return False
    return isinstance(number, int) or np.copysign(1.0, number) == sign


# The rules


Rewrite = Callable[[Simplifier, Node], "Value | None"]


@dataclass(frozen=True)
class Rule:
    """A rewrite.  text: "before -> after"; ops: whose nodes it looks at."""

    text: str
    ops: tuple[str, ...]
    apply: Rewrite


def neutral(
    position: int, is_neutral: Callable[[Number], bool]
) -> Callable[[Simplifier, Node], Value | None]:
    """The other of two operands, where the one at `position` changes nothing."""

    def apply(s: Simplifier, node: Node) -> Value | None:
        number = s.number(node.inputs[position])
        if number is not None and node.outputs[0].dtype.is_floating_point:
            number = float(number)  # as it is computed with: the integer 0 is 0.0, and not -0.0
        return node.inputs[1 - position] if number is not None and is_neutral(number) else None

    return apply


def plus_zero(s: Simplifier, node: Node) -> Value | None:
    for x, zero in (node.inputs, node.inputs[::-1]):
        assert x is not None, "add has two operands"
        if is_zero(s.number(zero), 1.0) and s.never_minus_zero(x):
            return x
    return None


def by_power_of_two(s: Simplifier, node: Node) -> Value | None:
    """Both are the product by 2**-k rounded once; the reciprocal must be an ordinary number of the dtype."""
    x, other = node.inputs
    number = s.number(other)
    if not isinstance(other, Constant) or x is None or not isinstance(number, float) or not isfinite(number):
        return None
    digits, exponent = frexp(number)
    if abs(digits) != 0.5 or abs(exponent) > (14 if other.dtype.itemsize == 2 else 120):
        return None
    data = np.asarray(1.0 / number, other.dtype.numpy).reshape(other.data.shape)
    return s.instead(node, "mul", x, Constant(data, other.hint, other.type))


POWERS = {1.0: "", 2.0: "square", 0.5: "sqrt", -0.5: "rsqrt", -1.0: "reciprocal"}


def known_power(s: Simplifier, node: Node) -> Value | None:
    """What the reference of pow itself does for one number of no more dimensions than the base."""
    x, exponent = node.inputs
    number = s.number(exponent)
    if x is None or exponent is None or number is None or isinstance(number, bool):
        return None
    if exponent.ndim > x.ndim or any(n != 1 for n in exponent.shape):
        return None
    name = POWERS.get(number)
    return x if name == "" else s.instead(node, name, x) if name else None


def twice(s: Simplifier, node: Node) -> Value | None:
    """x of f(f(x))."""
    made = s.maker(node.inputs[0], node.op.name)
    return made.inputs[0] if made and made.attrs == node.attrs else None


def once(s: Simplifier, node: Node) -> Value | None:
    """f(x) of f(f(x))."""
    return node.inputs[0] if s.maker(node.inputs[0], node.op.name) else None


def abs_of_neg(s: Simplifier, node: Node) -> Value | None:
    """Not of unsigned integers, where -1 is the greatest."""
    made = s.maker(node.inputs[0], "neg") if node.outputs[0].dtype.is_signed else None
    return s.instead(node, "abs", _given(made.inputs[0])) if made else None


def operand(s: Simplifier, node: Node) -> Value | None:
    """The operand itself, wherever it has the output's type."""
    return node.inputs[0]


def cast_of_cast(s: Simplifier, node: Node) -> Value | None:
    made = s.maker(node.inputs[0], "cast")
    if made is None:
        return None
    x, middle, last = _given(made.inputs[0]), made.outputs[0].dtype, node.attrs["dtype"]
    if not holds(middle, x.dtype):
        return None
    if last.category == "int" and middle.is_floating_point and not holds(last, x.dtype):
        return None  # what a float out of range becomes is nobody's promise
    return x if last is x.dtype else s.instead(node, "cast", x, dtype=last)


# The bits of the largest integer up to which a type has every one.
DIGITS = {"bool": 1, "uint8": 8, "int8": 7, "int16": 15, "int32": 31, "int64": 63}
DIGITS |= {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}


def holds(wide: DType, narrow: DType) -> bool:
    """Whether every value of `narrow` is one of `wide`."""
    if wide is narrow or narrow.category == "bool":
        return True
    if narrow.category == "float" and (wide.category != "float" or wide.itemsize <= narrow.itemsize):
        return False  # float16 and bfloat16 don't hold each other
    if wide.category == "int" and narrow.is_signed and not wide.is_signed:
        return False
    return wide.category != "bool" and DIGITS[wide.name] >= DIGITS[narrow.name]


def chosen(s: Simplifier, node: Node) -> Value | None:
    condition, a, b = node.inputs
    truth = s.number(condition)
    if a is not b and truth is None:
        return None
    return s.fit(_given(a if truth or a is b else b), node.outputs[0].type, node.outputs[0].hint)


def copied(s: Simplifier, node: Node) -> Value | None:
    return s.fit(_given(node.inputs[1]), node.outputs[0].type, node.outputs[0].hint)


FILLED = {"zeros_like": 0, "new_zeros": 0, "empty_like": 0, "new_empty": 0, "ones_like": 1, "new_ones": 1}


def made_anew(s: Simplifier, node: Node) -> Value | None:
    """So that what is filled does not wait for its operand, or keep it."""
    made, attrs = node.outputs[0].type, node.attrs
    value = FILLED.get(node.op.name, attrs.get("fill_value", attrs.get("value")))
    how = {"size": made.shape, "dtype": made.dtype, "device": made.device}
    if node.op.name in FILLED:
        return s.instead(node, "ones" if value else "zeros", **how)
    return s.instead(node, "full", fill_value=value, **how)


IN_ORDER = ("reshape", "view", "squeeze", "unsqueeze")  # views that keep the elements in their order


def reshape_of_reshape(s: Simplifier, node: Node) -> Value | None:
    made = s.maker(node.inputs[0], *IN_ORDER)
    if made is None:
        return None
    x, shape = _given(made.inputs[0]), node.outputs[0].shape
    return x if x.shape == shape else s.instead(node, "reshape", x, shape=shape)


def view_by_value(s: Simplifier, node: Node) -> Value | None:
    return s.instead(node, "reshape", _given(node.inputs[0]), shape=node.attrs["shape"])


TURNS = ("permute", "transpose")


def dims_of(node: Node) -> tuple[int, ...]:
    """The dims of a transpose, as permute has them."""
    if node.op.name == "permute":
        return node.attrs["dims"]
    dims = list(range(node.outputs[0].ndim))
    a, b = node.attrs["dim0"], node.attrs["dim1"]
    if dims:
        dims[a], dims[b] = dims[b], dims[a]
    return tuple(dims)


def turn(s: Simplifier, node: Node) -> Value | None:
    made = s.maker(node.inputs[0], *TURNS)
    x = _given(made.inputs[0] if made else node.inputs[0])
    dims = dims_of(node)
    if made:
        inner = dims_of(made)
        dims = tuple(inner[d] for d in dims)
    moved = [d for d, source in enumerate(dims) if d != source]
    if not moved:
        return x
    if not made:
        return None
    if len(moved) == 2:
        return s.instead(node, "transpose", x, dim0=moved[0], dim1=moved[1])
    return s.instead(node, "permute", x, dims=dims)


def expand_of_expand(s: Simplifier, node: Node) -> Value | None:
    made = s.maker(node.inputs[0], "expand")
    return s.instead(node, "expand", _given(made.inputs[0]), size=node.attrs["size"]) if made else None


def is_whole(node: Node) -> bool:
    """Whether an index keeps every place in its order, and adds no dimension."""
    index = node.attrs["index"]
    return index == tuple(("slice", 0, n, 1) for n in _given(node.inputs[0]).shape)


def index_of_index(s: Simplifier, node: Node) -> Value | None:
    made = s.maker(node.inputs[0], "basic_index")
    index = composed(made.attrs["index"], node.attrs["index"]) if made else None
    return s.instead(node, "basic_index", _given(made.inputs[0]), index=index) if made and index else None


def composed(inner: tuple, outer: tuple) -> tuple | None:
    """The index that takes what `outer` takes of what `inner` takes; None where sizes are symbols.

    (2:8), (1:6:2) -> (3:8:2)
    """
    if not all(isinstance(n, int) for item in (*inner, *outer) for n in item[1:]):
        return None
    found: list[tuple] = []
    rest = iter(inner)
    for item in outer:
        if item[0] == "new":
            found.append(item)
            continue
        source = next(rest)
        while source[0] == "int":  # a dimension that is gone already
            found.append(source)
            source = next(rest)
        if source[0] == "new":
            if item[0] == "slice":
                if item[1:3] != (0, 1):
                    return None  # nothing of one place
                found.append(source)
            continue
        _, start, _, stride = source
        if item[0] == "int":
            found.append(("int", start + item[1] * stride))
            continue
        count = (item[2] - item[1] + item[3] - 1) // item[3]
        first = start + item[1] * stride if count else 0
        stride *= item[3]
        found.append(("slice", first, first + (count - 1) * stride + 1 if count else 0, stride))
    return (*found, *rest)


def index_of_joined(s: Simplifier, node: Node) -> Value | None:
    """The part that has all that is taken, with the same dims turned."""
    turned = s.maker(node.inputs[0], *TURNS)
    joined = s.maker(turned.inputs[0] if turned else node.inputs[0], "cat", "stack")
    index = node.attrs["index"]
    if joined is None or not all(isinstance(n, int) for item in index for n in item[1:]):
        return None
    if any(item[0] == "new" for item in index):
        return None
    order = dims_of(turned) if turned else range(len(index))
    taken = dict(zip(order, index, strict=True))
    found = _part_with(joined, taken)
    if found is None:
        return None
    left = [d for d in sorted(taken) if taken[d][0] == "slice"]
    part = s.emit("basic_index", found, index=tuple(taken[d] for d in sorted(taken)))
    dims = tuple(left.index(d) for d, item in zip(order, index, strict=True) if item[0] == "slice")
    return part if dims == tuple(range(len(dims))) else s.instead(node, "permute", part, dims=dims)


def _part_with(joined: Node, taken: dict[int, tuple]) -> Value | None:
    """The operand of a cat or stack in which an index stays; None where there is none.

    taken: what is taken of each dim, which is made an index of that operand.
    """
    dim, parts = joined.attrs["dim"], [_given(v) for v in joined.inputs]
    kind, *numbers = taken[dim]
    first, last = numbers[0], numbers[0] if kind == "int" else numbers[1] - 1
    if joined.op.name == "stack":
        if kind == "int":
            del taken[dim]
        return parts[first] if kind == "int" else None
    for part in parts:
        size = part.shape[dim]
        if not isinstance(size, int):
            return None
        if 0 <= first <= last < size:
            taken[dim] = ("int", first) if kind == "int" else ("slice", first, last + 1, numbers[2])
            return part
        first, last = first - size, last - size
    return None


def one_each(s: Simplifier, node: Node) -> Value | None:
    """A reduction over sizes of 1.  A sum of one -0.0 may be 0.0, so a sum must not meet it."""
    x, dim = _given(node.inputs[0]), node.attrs["dim"]
    if any(x.shape[d] != 1 for d in dim) or (node.op.name == "sum" and not s.never_minus_zero(x)):
        return None
    if x.dtype is not node.outputs[0].dtype:
        return None
    return s.instead(node, "reshape", x, shape=node.outputs[0].shape)


def scatter_over_scatter(s: Simplifier, node: Node) -> Value | None:
    made = s.maker(node.inputs[0], "view_scatter")
    if made is None or made.attrs["chain"] != node.attrs["chain"]:
        return None
    base, value = _given(made.inputs[0]), _given(node.inputs[1])
    return s.instead(node, "view_scatter", base, value, chain=node.attrs["chain"])


def scatter_over_all(s: Simplifier, node: Node) -> Value | None:
    base, value = _given(node.inputs[0]), _given(node.inputs[1])
    chain: Chain = node.attrs["chain"]
    shapes = shapes_along(base.shape, chain)
    if not all(map(takes_all, chain, shapes, shapes[1:])):
        return None
    for (name, items), shape in zip(reversed(chain), reversed(shapes[:-1]), strict=True):
        attrs = dict(items)
        if name == "transpose":
            value = s.emit("transpose", value, **attrs)
        elif name == "permute":
            back = tuple(sorted(range(len(shape)), key=attrs["dims"].__getitem__))
            value = s.emit("permute", value, dims=back)
        elif value.shape != shape:
            value = s.emit("reshape", value, shape=shape)
    return s.fit(value, base.type, node.outputs[0].hint)


def takes_all(link: tuple, shape: tuple, into: tuple) -> bool:
    """Whether a step of a chain takes every element once, and by dims or in order."""
    name, attrs = link
    if name in (*IN_ORDER, *TURNS):
        return True
    if name != "basic_index" or not all(isinstance(n, int) for n in (*shape, *into)):
        return False
    return int(np.prod(shape)) == int(np.prod(into))  # steps are positive, so the order is kept


def nothing_added(s: Simplifier, node: Node) -> Value | None:
    by = [n for pair in node.attrs["pads"] for n in pair]
    return node.inputs[0] if not any(isinstance(n, Dim) or n for n in by) else None


def _given(value: Value | None) -> Value:
    assert value is not None, "the operand is not optional"
    return value


RULES = (
    Rule("x * 1 -> x", ("mul",), neutral(1, lambda n: n == 1)),
    Rule("1 * x -> x", ("mul",), neutral(0, lambda n: n == 1)),
    Rule("x / 1 -> x", ("div",), neutral(1, lambda n: n == 1)),
    Rule("x / 2**k -> x * 2**-k", ("div",), by_power_of_two),
    Rule("x + -0.0 -> x", ("add",), neutral(1, lambda n: is_zero(n, -1.0))),
    Rule("-0.0 + x -> x", ("add",), neutral(0, lambda n: is_zero(n, -1.0))),
    Rule("x + 0.0 -> x, where x is never -0.0", ("add",), plus_zero),
    Rule("x - 0.0 -> x", ("sub",), lambda s, n: n.inputs[0] if is_zero(s.number(n.inputs[1]), 1.0) else None),
    Rule("pow(x, 2) -> square(x), and as its reference for 1, 0.5, -0.5, -1", ("pow",), known_power),
    Rule("f(f(x)) -> x", ("neg", "bitwise_not", "logical_not", "flip"), twice),
    Rule("f(f(x)) -> f(x)", ("abs", "relu", "floor", "ceil", "trunc", "sign"), once),
    Rule("abs(-x) -> abs(x)", ("abs",), abs_of_neg),
    Rule("cast(x) to its own dtype -> x", ("cast",), operand),
    Rule("cast(cast(x)) -> cast(x), where the first loses nothing", ("cast",), cast_of_cast),
    Rule("clone(x) -> x", ("clone",), operand),
    Rule("where(True, a, b) -> a, where(c, a, a) -> a", ("where",), chosen),
    Rule("copy(x, src) -> src, cast and expanded", ("copy",), copied),
    Rule("zeros_like(x) -> zeros()", (*FILLED, "full_like", "new_full", "fill"), made_anew),
    Rule("view(x) -> reshape(x)", ("view",), view_by_value),
    Rule("reshape(x) to its own shape -> x", ("reshape", "expand", "squeeze"), operand),
    Rule("reshape(reshape(x)) -> reshape(x)", ("reshape", "squeeze", "unsqueeze"), reshape_of_reshape),
    Rule("transpose(transpose(x)) -> permute(x), or x", TURNS, turn),
    Rule("expand(expand(x)) -> expand(x)", ("expand",), expand_of_expand),
    Rule("x[:] -> x", ("basic_index",), lambda s, n: n.inputs[0] if is_whole(n) else None),
    Rule("x[i][j] -> x[k]", ("basic_index",), index_of_index),
    Rule("cat(x, y)[i] -> y[j], which has all of it, transposed or not", ("basic_index",), index_of_joined),
    Rule("amax(x) over sizes of 1 -> reshape(x)", ("amax", "amin", "sum"), one_each),
    Rule("view_scatter twice by one chain -> the second", ("view_scatter",), scatter_over_scatter),
    Rule("view_scatter(x, v) over all of x -> v, the views undone", ("view_scatter",), scatter_over_all),
    Rule("cat(x) -> x", ("cat",), lambda s, n: n.inputs[0] if len(n.inputs) == 1 else None),
    Rule("pad(x) by nothing -> x", ("constant_pad",), nothing_added),
)


def table(rules: tuple[Rule, ...]) -> dict[str, tuple[Rule, ...]]:
    """The rules by op, in their order."""
    ops = dict.fromkeys(op for rule in rules for op in rule.ops)
    return {op: tuple(rule for rule in rules if op in rule.ops) for op in ops}


TABLE = table(RULES)
