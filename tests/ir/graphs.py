"""Graphs for the tests: records of their own that use what the text form has, and random graphs."""

import hypothesis.strategies as st
import numpy as np

import lamina.ir.ops  # noqa: F401 - enters the operator set
from lamina.ir import Builder, lowering, symbol, type_of
from lamina.ir.dtypes import bool_, float32, float64, int64
from lamina.ir.op import REGISTRY, Op, Traits

n = symbol("n")

# An op of several outputs, one hidden, with an optional operand.
split_sign = Op(
    "split_sign",
    operands=("input", "scale"),
    optional=("scale",),
    attrs=(),
    outputs=("positive", "negative"),
    hidden=("mask",),
    infer=lambda input, scale: (input, input, input.with_dtype(bool_)),
    reference=lambda input, scale: (
        np.maximum(input, 0) * (1 if scale is None else scale),
        np.minimum(input, 0) * (1 if scale is None else scale),
        input > 0,
    ),
    vjp=lambda saved, cotangents, attrs, needs: (
        REGISTRY["where"](saved[0], *(0.0 if g is None else g for g in cotangents[:2])),
        None,
    ),
    saves=("mask",),
    lower=lowering.extern("a test's"),
    samples=lambda: [],
)

# An op whose attr may be of any kind.
tagged = Op(
    "tagged",
    operands=("input",),
    attrs=("tag",),
    bind=lambda input, tag: ((input,), {"tag": tag}),
    infer=lambda input, *, tag: input,
    reference=lambda input, *, tag: input.copy(),
    grad=lambda g: g,
    traits=Traits(movement=True),
    lower=lowering.extern("a test's"),
    samples=lambda: [],
)

OPS = {"split_sign": split_sign, "tagged": tagged}


@st.composite
def graphs(draw, dtype=float64, symbolic=False, size=8):
    """Random graphs of elementwise ops, reductions, movement and matmul; all smooth."""
    rows = n if symbolic else 3
    with Builder("random") as b:
        values = [
            b.param(type_of(dtype, (rows, 4)), "x"),
            b.param(type_of(dtype, (4,)), draw(st.sampled_from(["x", "w", None]))),
            b.param(type_of(dtype, (4, 4))),
        ]
        for _ in range(draw(st.integers(1, size))):
            b.where = draw(st.sampled_from([None, ("model.py", 7), ("a b/net.py", 12)]))
            values.append(_step(draw, values))
        results = draw(st.lists(st.sampled_from(values[3:]), min_size=1, max_size=3))
        return b.finish(results)


def _step(draw, values):
    ops = REGISTRY
    x = draw(st.sampled_from(values))
    kind = draw(
        st.sampled_from(["unary", "scalar", "binary", "sum", "matmul", "transpose", "array", "reshape"])
    )
    if kind == "unary":
        return ops[draw(st.sampled_from(["exp", "neg", "tanh", "sin"]))](ops["tanh"](x))
    if kind == "scalar":
        return x * draw(st.floats(-2, 2, allow_subnormal=False)) + draw(st.integers(-3, 3))
    if kind == "binary":
        others = [v for v in values if v.shape == x.shape or v.ndim == 0 or v.shape == x.shape[-1:]]
        return ops[draw(st.sampled_from(["add", "sub", "mul"]))](x, draw(st.sampled_from(others)))
    if kind == "sum" and x.ndim:
        return ops["sum"](x, dim=draw(st.integers(0, x.ndim - 1)), keepdim=draw(st.booleans())) * 0.25
    if kind == "matmul" and x.ndim == 2 and x.shape[-1] == 4:
        return ops["tanh"](x @ values[2])
    if kind == "transpose" and x.ndim == 2:
        return ops["transpose"](x, 0, 1)
    if kind == "array" and x.ndim:
        return x + np.linspace(-1, 1, 1).astype(x.dtype.numpy)
    if kind == "reshape" and x.ndim == 2:
        return ops["reshape"](x, -1)
    return ops["neg"](x)


def inputs(graph, rows=3):
    """Arrays for a graph's params; n is `rows`."""
    sizes = [tuple(rows if not isinstance(d, int) else d for d in p.shape) for p in graph.params]
    return [
        np.random.uniform(-1, 1, s).astype(p.dtype.numpy) for s, p in zip(sizes, graph.params, strict=True)
    ]


def small():
    """A graph of constants, numbers, an op of several outputs, an operand left out, symbols."""
    with Builder("small") as b:
        x = b.param(type_of(float32, (n, 3)), "x")
        k = b.param(type_of(int64, (n,)))
        b.where = ("model.py", 12)
        y, _ = split_sign(x * 2.5, None)
        b.where = None
        z = tagged(y + b.constant(np.ones(3, np.float32), "table"), tag=(1, (), ("a", None)))
        return b.finish([z, k * 2])
