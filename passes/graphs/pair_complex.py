"""Complex values become real ones: each is a pair, of which code computes the parts.

    graph f(%x: c64[3], %y: c64[3]) -> (c64[3]) {
      %0 = mul(%x, %y) : c64[3]
      return %0
    }
    ->
    graph f(%x: f32[3,2], %y: f32[3,2]) -> (f32[3,2]) {
      %0 = basic_index(%x) {index=(("slice",0,3,1),("int",0))} : f32[3]
      %1 = basic_index(%x) {index=(("slice",0,3,1),("int",1))} : f32[3]
      %2 = basic_index(%y) {index=(("slice",0,3,1),("int",0))} : f32[3]
      %3 = basic_index(%y) {index=(("slice",0,3,1),("int",1))} : f32[3]
      %4 = mul(%0, %2) : f32[3]
      %5 = mul(%1, %3) : f32[3]
      %6 = sub(%4, %5) : f32[3]
      %7 = mul(%0, %3) : f32[3]
      %8 = mul(%1, %2) : f32[3]
      %9 = add(%7, %8) : f32[3]
      %10 = stack(%6, %9) {dim=1} : f32[3,2]
      return %10
    }

A param or result that is complex is its pairs, in the same memory.  Inside, a value is a `Pair`: a kind of
operand, so formulas are written with ops and operators, as rules are.  What is linear is done to each part; a
product is four of the parts; elementary functions have formulas; and what has none here (transforms,
factorisations, inverse functions) is a step of the host that sees complex numbers, `by_pairs`.  So nothing is
refused for being complex.
It comes before all other passes, after those that differentiate: rules are of complex numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...ir.by_pairs import by_pairs, paired_type
from ...ir.dtypes import DType
from ...ir.fused import fused
from ...ir.graph import Builder, Constant, Graph, Node, Value, active, scalar_constant
from ...ir.lowering import Decomposition, NotLowered, Pointwise
from ...ir.op import REGISTRY, Op
from ...ir.operators import Operators
from ...ir.shapes import broadcast_shapes
from ...ir.types import Type
from ...ir.views import MAPS, Chain
from .lower import inferred

_op = REGISTRY.__getitem__


class Pair(Operators):
    """A complex value: its parts, values of one real type.  whole: the same as pairs, if somebody has it."""

    __slots__ = ("im", "re", "whole")
    __iter__ = None
    __hash__ = object.__hash__

    def __eq__(self, other: Any) -> Any:
        return _op("eq")(self, other)

    def __ne__(self, other: Any) -> Any:
        return _op("ne")(self, other)

    def __init__(self, re: Any, im: Any, whole: Value | None = None):
        self.re, self.im, self.whole = re, im, whole

    @property
    def shape(self) -> Any:
        return self.re.shape

    @property
    def ndim(self) -> int:
        return self.re.ndim

    @property
    def dtype(self) -> DType:
        return self.re.dtype.to_complex()

    @property
    def type(self) -> Type:
        return self.re.type.with_dtype(self.dtype)

    @staticmethod
    def __lamina_op__(op: Op, args: tuple, kwargs: dict) -> Any:
        return active().apply(op, args, kwargs)

    def pairs(self) -> Value:
        """The parts side by side along a further dimension."""
        if self.whole is None:
            self.whole = _op("stack")((self.re, self.im), dim=self.ndim)
        return self.whole


class _Pairing(Builder):
    """A builder whose ops take pairs beside values."""

    def apply(self, op: Op, args: tuple, kwargs: dict) -> Any:
        operands, attrs = op.bind(*args, **kwargs)
        found = applied(op, operands, attrs)
        visible = found[: len(found) - len(op.hidden)]
        return visible[0] if len(visible) == 1 else tuple(visible)


def _part(whole: Value, at: int) -> Value:
    return whole[(..., at)]


def paired(whole: Value) -> Pair:
    """The complex value whose pairs these are."""
    return Pair(_part(whole, 0), _part(whole, 1), whole)


def has_complex(graph: Graph) -> bool:
    """Whether a value of the graph is complex."""
    return (
        any(v.dtype.is_complex for v in graph.params)
        or any(v.dtype.is_complex for node in graph.nodes for v in node.outputs)
        or any(v is not None and v.dtype.is_complex for v in graph.used())
    )


def pair_complex(graph: Graph) -> Graph:
    """The same in real numbers; itself where all are."""
    if not has_complex(graph):
        return graph
    with _Pairing(graph.name) as b:
        became: dict[Value, Any] = {}
        for param in graph.params:
            given = b.param(paired_type(param.type), param.hint)
            became[param] = paired(given) if param.dtype.is_complex else given
        for node in graph.nodes:
            b.where = node.where
            inputs = [None if v is None else _became(v, became) for v in node.inputs]
            if any(v.dtype.is_complex for v in (*node.outputs, *(v for v in node.inputs if v is not None))):
                outputs: Sequence[Any] = applied(node.op, inputs, node.attrs)
            else:
                outputs = tuple(Value(v.type, v.hint) for v in node.outputs)
                b.append(Node(node.op, tuple(inputs), tuple(outputs), node.attrs, node.where))
            became.update(zip(node.outputs, outputs, strict=True))
        results = [_became(v, became) for v in graph.results]
        return b.finish([r.pairs() if isinstance(r, Pair) else r for r in results])


def _became(value: Value, became: dict[Value, Any]) -> Any:
    if isinstance(value, Constant) and value.dtype.is_complex:
        return Pair(Constant(value.data.real.copy()), Constant(value.data.imag.copy()))
    return became.get(value, value)


# ---- one op
def applied(op: Op, operands: Sequence[Any], attrs: Mapping[str, Any]) -> tuple[Any, ...]:
    """The outputs of an op on pairs and values (and numbers, in formulas), each of its inferred type."""
    given = _lifted(operands)
    types = tuple(None if x is None else x.type for x in given)
    outs = inferred(op, types, attrs)
    if not any(t is not None and t.dtype.is_complex for t in (*types, *outs)):
        return active().emit(op, given, attrs).outputs
    casts = op.casts(*types, **attrs) if op.casts else (None,) * len(types)
    computed = [_converted(x, dtype) for x, dtype in zip(given, casts, strict=True)]
    found = _by_rule(op, computed, attrs)
    if found is None:
        return _by_host(op, given, types, outs, attrs)
    found = found if isinstance(found, tuple) else (found,)
    return tuple(_fitted(x, t) for x, t in zip(found, outs, strict=True))


def _lifted(operands: Sequence[Any]) -> list[Any]:
    """Numbers among the operands as constants, complex ones as pairs of them."""
    kinds = [x.type for x in operands if x is not None and hasattr(x, "type")]

    def lifted(x: Any) -> Any:
        if x is None or hasattr(x, "type"):
            return x
        constant = scalar_constant(x, kinds)
        return _became(constant, {})

    return [lifted(x) for x in operands]


def _converted(x: Any, dtype: DType | None) -> Any:
    """An operand in the dtype that the op computes in."""
    if x is None or dtype is None or x.dtype is dtype:
        return x
    part = dtype.to_real()
    if isinstance(x, Pair):
        return Pair(_cast(x.re, part), _cast(x.im, part)) if dtype.is_complex else _cast(x.re, part)
    if not dtype.is_complex:
        return _cast(x, dtype)
    real = _cast(x, part)
    return Pair(real, _zeros(real))


def _cast(x: Any, dtype: DType) -> Any:
    return x if x.dtype is dtype else _op("cast")(x, dtype=dtype)


def _zeros(x: Value) -> Any:
    return _op("zeros_like")(x)


def _fitted(x: Any, kind: Type) -> Any:
    """What a rule gave, in the dtype and the shape that the op's own rule tells."""
    if kind.dtype.is_complex and not isinstance(x, Pair):
        x = Pair(x, _zeros(x))
    if isinstance(x, Pair) and not kind.dtype.is_complex:
        x = x.re  # an attr asked for real numbers
    if isinstance(x, Pair):
        part = kind.dtype.to_real()
        re, im = (_shaped(_cast(p, part), kind) for p in (x.re, x.im))
        return x if re is x.re and im is x.im else Pair(re, im)
    return _shaped(_cast(x, kind.dtype), kind)


def _shaped(x: Any, kind: Type) -> Any:
    return x if x.shape == kind.shape else _op("expand")(x, kind.shape)


def _by_host(op: Op, operands: Sequence[Any], types: tuple, outs: tuple, attrs: Mapping[str, Any]) -> tuple:
    """One node of complex numbers, which the host runs on pairs."""
    params = [None if t is None else Value(t, "x") for t in types]
    results = tuple(Value(t) for t in outs)
    node = Node(op, tuple(params), results, {name: attrs[name] for name in op.attrs})
    body = Graph(op.name, tuple(p for p in params if p is not None), (node,), results)
    given = [x.pairs() if isinstance(x, Pair) else x for x in operands if x is not None]
    made = active().emit(by_pairs, given, {"body": body}).outputs
    return tuple(paired(v) if t.dtype.is_complex else v for v, t in zip(made, outs, strict=True))


# ---- rules by families
def _by_rule(op: Op, operands: list[Any], attrs: Mapping[str, Any]) -> Any:
    """The outputs in formulas of the parts; None where there are none."""
    own = FORMULAS.get(op.name)
    if own is not None:
        return own(*operands, **attrs)
    if op.name in PRODUCTS:
        return _product(op, operands, attrs)
    if op.name in BODIES and isinstance(op.lower, Pointwise):
        return op.lower.body(*operands, **attrs)
    if isinstance(op.lower, Decomposition) and op is not fused:
        return op.lower.function(*operands, **attrs)
    if op.name in LINEAR or (op.traits.view and not isinstance(op.lower, NotLowered)):
        return _each(op, operands, attrs)
    return None


def _each(op: Op, operands: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
    """What is linear, or only moves elements, of each part by itself; numbers in attrs have parts, too."""
    if any(isinstance(x, Value) and x.dtype.inexact for x in operands):
        return None  # a real number beside complex ones: it is not said what its imaginary part adds
    if any(name not in MAPS or MAPS[name].dtype is not None for name, _ in attrs.get("chain", ())):
        return None
    if attrs.get("combine", "add") not in ("add", "set"):
        return None  # elements that meet in one place are multiplied
    made = []
    for part in ("re", "im"):
        given = [getattr(x, part) if isinstance(x, Pair) else x for x in operands]
        if op.name == "as_strided":  # which reads memory as it lies
            given = [_op("clone")(x) for x in given]
        own = {
            name: _part_of_attr(value, part) if name in NUMBERS else value for name, value in attrs.items()
        }
        own = {n: v.to_real() if isinstance(v, DType) else v for n, v in own.items()}
        made.append(active().emit(op, given, own).outputs)
    return tuple(Pair(re, im) for re, im in zip(*made, strict=True))


def _part_of_attr(value: Any, part: str) -> Any:
    if isinstance(value, str) or value is None:
        return value
    if isinstance(value, bool):
        return value if part == "re" else False
    return value.real if part == "re" else value.imag


def _product(op: Op, operands: list[Any], attrs: Mapping[str, Any]) -> Any:
    """What is linear in each of its first two operands; a third is added."""
    x, y, *rest = operands
    if not isinstance(x, Pair) or not isinstance(y, Pair):
        return None
    bias = rest[0] if rest else None
    if len(rest) > 1 or not (bias is None or isinstance(bias, Pair)):
        return None

    def by(a: Any, b: Any, c: Any) -> Any:
        return active().emit(op, [a, b, *([c] if rest else ())], attrs).outputs[0]

    re = by(x.re, y.re, bias and bias.re) - by(x.im, y.im, None)
    return Pair(re, by(x.re, y.im, bias and bias.im) + by(x.im, y.re, None))


LINEAR = frozenset(
    "add sub neg sum mean cumsum cat stack flip tril triu index gather index_select embedding pick_at "
    "im2col col2im unview unindex ungather spread_at constant_pad clone zeros_like empty_like new_zeros "
    "new_empty full_like new_full fill masked_fill where detach".split()
)
NUMBERS = ("value", "fill_value")
PRODUCTS = frozenset("matmul linear conv1d conv2d conv3d conv_input_grad conv_weight_grad".split())
BODIES = frozenset("addcmul addcdiv lerp softsign square silu tanhshrink".split())


def _mul(x: Pair, y: Pair) -> Pair:
    return Pair(x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re)


def _div(x: Pair, y: Pair) -> Pair:
    """Source: R. L. Smith, Algorithm 116: Complex division, 1962, as NumPy."""
    where, size = _op("where"), _op("abs")
    across = size(y.re) < size(y.im)
    big, small = where(across, y.im, y.re), where(across, y.re, y.im)
    zero = _op("eq")(big, 0.0)
    ratio = where(zero, 0.0, small / big)
    scale = 1.0 / where(zero, 0.0, big + small * ratio)
    re = where(across, x.re * ratio + x.im, x.re + x.im * ratio)
    im = where(across, x.im * ratio - x.re, x.im - x.re * ratio)
    return Pair(re * scale, im * scale)


def _abs(x: Pair) -> Value:
    return _op("hypot")(x.re, x.im)


def _exp(x: Pair) -> Pair:
    size = _op("exp")(x.re)
    # of a real number a real one, infinity too
    return Pair(size * _op("cos")(x.im), _op("where")(_op("eq")(x.im, 0.0), x.im, size * _op("sin")(x.im)))


def _sqrt(x: Pair) -> Pair:
    where = _op("where")
    half = _op("sqrt")((_op("abs")(x.re) + _abs(x)) * 0.5)
    zero = _op("eq")(half, 0.0)
    other = where(zero, _op("abs")(x.im), _op("abs")(x.im) / where(zero, 1.0, half * 2.0))
    right = _op("ge")(x.re, 0.0)
    return Pair(where(right, half, other), _op("copysign")(where(right, other, half), x.im))


def _sgn(x: Pair) -> Pair:
    size = _abs(x)
    zero = _op("eq")(size, 0.0)
    size = _op("where")(zero, 1.0, size)
    return Pair(_op("where")(zero, 0.0, x.re / size), _op("where")(zero, 0.0, x.im / size))


def _tanh(x: Pair) -> Pair:
    t, u = _op("tanh")(x.re), _op("sin")(x.im) / _op("cos")(x.im)
    narrow, below = 1.0 / _op("cosh")(x.re), 1.0 + (t * u) * (t * u)
    return Pair(t * (1.0 + u * u) / below, u * (narrow * narrow) / below)


def _power(x: Pair, exponent: Pair) -> Pair | None:
    """Small whole powers, by products; others are the host's."""
    known = exponent.re, exponent.im
    if not all(isinstance(c, Constant) and c.ndim == 0 for c in known) or exponent.im.data != 0:
        return None
    n = float(exponent.re.data)
    if n not in (1.0, 2.0, 3.0, 4.0):
        return None
    square = _mul(x, x) if n > 1 else x
    return (x, square, _mul(square, x), _mul(square, square))[int(n) - 1] if n > 1 else x


def _cast_pair(x: Any, *, dtype: DType) -> Any:
    found = _converted(x, dtype)
    if dtype.category == "bool" and isinstance(x, Pair):
        return _truth(x)
    return found


def _truth(x: Any) -> Any:
    return _op("logical_or")(x.re, x.im) if isinstance(x, Pair) else _op("ne")(x, 0)


def _either(name: str) -> Callable:
    return lambda x: _op("logical_or")(_op(name)(x.re), _op(name)(x.im))


def _variance(input: Pair, **attrs: Any) -> Any:
    re, im = (active().emit(_op("var"), [part], attrs).outputs[0] for part in (input.re, input.im))
    return re + im


def _norm(x: Any, *, dtype: DType | None, **attrs: Any) -> Any:
    size = _abs(x) if isinstance(x, Pair) else x
    return (
        active()
        .emit(_op("linalg_vector_norm"), [size], {**attrs, "dtype": dtype and dtype.to_real()})
        .outputs[0]
    )


def _copied(input: Any, src: Any) -> Any:
    """Of complex numbers, written into real ones, the real parts."""
    if not isinstance(input, Pair):
        return _op("copy")(input, src.re)
    src = src if isinstance(src, Pair) else Pair(src, _zeros(src))
    return Pair(_op("copy")(input.re, src.re), _op("copy")(input.im, src.im))


def _ones(x: Any, *, dtype: DType | None = None, **attrs: Any) -> Any:
    x = x.re if isinstance(x, Pair) else x
    own = {"dtype": dtype and dtype.to_real(), **attrs}
    ones = active().emit(_op("new_ones" if "size" in attrs else "ones_like"), [x], own).outputs[0]
    return ones if dtype is not None and not dtype.is_complex else Pair(ones, _zeros(ones))


def _joined(real: Any, imag: Any) -> Pair:
    """Of parts that may have to be broadcast."""
    if real.shape == imag.shape:
        return Pair(real, imag)
    shape = broadcast_shapes("complex", real.shape, imag.shape)
    return Pair(_op("expand")(real, shape), _op("expand")(imag, shape))


def _view_scatter(base: Any, value: Any, *, chain: Chain) -> Any:
    """A write: through ordinary views into both parts, through a view of a part into that."""
    at = next((i for i, (name, _) in enumerate(chain) if MAPS[name].dtype is not None), None)
    scatter = _op("view_scatter")
    lower: Any = scatter.lower
    if at is None:
        return lower.function(base, value, chain=chain) if isinstance(base, Pair) else None
    name, rest = chain[at][0], (*chain[:at], *chain[at + 1 :])
    if any(MAPS[other].dtype is not None for other, _ in rest):
        return None
    if name == "real":
        return Pair(scatter(base.re, value, rest), base.im)
    if name == "imag":
        return Pair(base.re, scatter(base.im, value, rest))
    if name == "view_as_real" and at == 0:
        return paired(scatter(base.pairs(), value, rest))
    return value.pairs() if len(chain) == 1 else None


FORMULAS: dict[str, Callable] = {
    "mul": _mul, "div": _div, "abs": _abs, "exp": _exp, "sqrt": _sqrt, "sgn": _sgn, "tanh": _tanh,
    "pow": _power,
    "conj_physical": lambda x: Pair(x.re, -x.im),
    "reciprocal": lambda x: _div(Pair(_op("ones_like")(x.re), _zeros(x.re)), x),
    "angle": lambda x: _op("atan2")(x.im, x.re),
    "log": lambda x: Pair(_op("log")(_abs(x)), _op("atan2")(x.im, x.re)),
    "sin": lambda x: Pair(_op("sin")(x.re) * _op("cosh")(x.im), _op("cos")(x.re) * _op("sinh")(x.im)),
    "cos": lambda x: Pair(_op("cos")(x.re) * _op("cosh")(x.im), -(_op("sin")(x.re) * _op("sinh")(x.im))),
    "sinh": lambda x: Pair(_op("sinh")(x.re) * _op("cos")(x.im), _op("cosh")(x.re) * _op("sin")(x.im)),
    "cosh": lambda x: Pair(_op("cosh")(x.re) * _op("cos")(x.im), _op("sinh")(x.re) * _op("sin")(x.im)),
    "real": lambda x: x.re,
    "imag": lambda x: x.im,
    "complex": _joined, "var": _variance, "view_scatter": _view_scatter,
    "linalg_vector_norm": _norm,
    "view_as_real": lambda x: x.pairs(),
    "view_as_complex": paired,
    "pairs_to_complex": paired,
    "cast": _cast_pair,
    "eq": lambda x, y: _op("logical_and")(_op("eq")(x.re, y.re), _op("eq")(x.im, y.im)),
    "ne": lambda x, y: _op("logical_or")(_op("ne")(x.re, y.re), _op("ne")(x.im, y.im)),
    "isnan": _either("isnan"), "isinf": _either("isinf"),
    "isfinite": lambda x: _op("logical_and")(_op("isfinite")(x.re), _op("isfinite")(x.im)),
    "logical_not": lambda x: _op("logical_not")(_truth(x)),
    "logical_and": lambda x, y: _op("logical_and")(_truth(x), _truth(y)),
    "logical_or": lambda x, y: _op("logical_or")(_truth(x), _truth(y)),
    "logical_xor": lambda x, y: _op("logical_xor")(_truth(x), _truth(y)),
    "any": lambda x, **attrs: active().emit(_op("any"), [_truth(x)], attrs).outputs[0],
    "all": lambda x, **attrs: active().emit(_op("all"), [_truth(x)], attrs).outputs[0],
    "ones_like": _ones, "new_ones": _ones,
    "copy": _copied,
}  # fmt: skip
