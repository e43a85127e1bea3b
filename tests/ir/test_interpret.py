"""Running graphs in NumPy, and the contract under which references are run."""

from functools import partial

import numpy as np
import pytest
from graphs import OPS, graphs, inputs, small, split_sign
from hypothesis import given

from lamina.ir import Builder, interpret, lowering, parse, specialise, symbol, type_of
from lamina.ir.dtypes import ALL, bfloat16, bool_, float16, float32, float64, int64
from lamina.ir.errors import GraphError
from lamina.ir.execute import executor
from lamina.ir.interpret import sizes_of_symbols
from lamina.ir.op import REGISTRY, Op, Traits


def by_calls(graph, arrays):
    """What the graph computes, by calling each op on arrays."""
    values = dict(zip(graph.params, arrays, strict=True))
    for node in graph.nodes:
        operands = [values[v] if v in values else v.data for v in node.inputs]
        out = node.op.reference(*operands, **node.attrs)
        values[node.outputs[0]] = np.asarray(out)
    return [values[v] for v in graph.results]


@given(graphs())
def test_interpret_gives_what_calls_give(graph):
    arrays = inputs(graph)
    for got, expected in zip(interpret(graph, *arrays), by_calls(graph, arrays), strict=True):
        np.testing.assert_array_equal(got, expected)
        assert type(got) is np.ndarray


@given(graphs(symbolic=True))
def test_symbols_take_the_sizes_of_the_arrays(graph):
    for rows in (1, 5):
        arrays = inputs(graph, rows)
        sizes = {"n": rows}
        assert sizes_of_symbols(graph, arrays) in (sizes, {})
        for got, expected in zip(
            interpret(graph, *arrays), by_calls(specialise(graph, sizes), arrays), strict=True
        ):
            np.testing.assert_array_equal(got, expected)


@given(graphs(dtype=float32))
def test_interpret_in_another_dtype(graph):
    arrays = inputs(graph)
    wide = interpret(graph, *arrays, dtype=float64)
    again = interpret(specialise(graph, {}, float64), *[a.astype(np.float64) for a in arrays])
    for a, b in zip(wide, again, strict=True):
        assert a.dtype == np.float64
        np.testing.assert_array_equal(a, b)


def test_casts_and_constants_follow_the_dtype_asked_for():
    with Builder("g") as b:
        x = b.param(type_of(float64, (1,)), "x")
        narrow = REGISTRY["cast"](x, dtype=float16)
        graph = b.finish(
            REGISTRY["sum"](narrow * b.constant(np.array([3], np.float16)), dim=0, dtype=float32)
        )
    assert interpret(graph, np.array([0.1]), dtype=float64)[0] == 0.1 * 3
    assert interpret(graph, np.array([0.1]))[0] == np.float16(0.1) * np.float16(3)


def test_arrays_must_be_what_the_params_say():
    graph = small()
    x, k = np.ones((2, 3), np.float32), np.arange(2)
    y, z = interpret(graph, x, k)
    np.testing.assert_array_equal(y, np.full((2, 3), 3.5))
    np.testing.assert_array_equal(z, [0, 2])
    for wrong, message in [
        ((x,), "takes 2 arrays, got 1"),
        ((x.astype(float), k), r"%x is f32\[2,3\], the array given is float64\[2, 3\]"),
        ((x, np.arange(3)), r"the array given is"),
        ((x[:, :2], k), r"%x is f32\[2,3\], the array given is float32\[2, 2\]"),
    ]:
        with pytest.raises(GraphError, match=message):
            interpret(graph, *wrong)


def test_symbols_are_read_where_they_stand_linearly():
    n, m = symbol("n"), symbol("m")
    with Builder("g") as b:
        x = b.param(type_of(float32, (2 * n + 1, n * m)), "x")
        y = b.param(type_of(float32, (3, m)), "y")
    assert sizes_of_symbols(b.finish([x, y]), [np.ones((7, 12)), np.ones((3, 4))]) == {"n": 3, "m": 4}
    with Builder("g") as b:
        x = b.param(type_of(float32, (n * m,)), "x")
    with pytest.raises(GraphError, match="the sizes of m, n can't be read from the shapes of its params"):
        interpret(b.finish(x), np.ones(12, np.float32))


def test_reference_that_breaks_its_word_is_told():
    liar = Op(
        "liar",
        reference=lambda input: input[:1],
        infer=lambda input: input,
        lower=lowering.extern(""),
        samples=list,
    )
    with Builder("g") as b:
        graph = b.finish(liar(b.param(type_of(float32, (3,)), "x")))
    with pytest.raises(GraphError, match=r"the reference of liar gave float32\[1\]"):
        interpret(graph, np.ones(3, np.float32))


@pytest.mark.parametrize("dtype", ALL, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3)], ids=str)
def test_executor_returns_arrays_of_the_inferred_type(dtype, shape):
    t, a = type_of(dtype, shape), np.ones(shape, dtype.numpy)
    for op, operands, attrs in [
        (REGISTRY["add"], (a, a), {}),
        (REGISTRY["exp"], (a,), {}),
        (REGISTRY["sum"], (a,), {"dim": tuple(range(len(shape))), "keepdim": False, "dtype": None}),
        (split_sign, (a, None), {}),
    ]:
        run, outs = executor(op, tuple(None if x is None else t for x in operands), attrs)
        found = run(*operands)
        for array, out in zip(found if isinstance(found, tuple) else (found,), outs, strict=True):
            assert type(array) is np.ndarray
            assert (array.shape, array.dtype) == (out.shape, out.dtype.numpy)


def test_executor_is_the_reference_where_nothing_needs_doing():
    t = type_of(float32, (3,))
    assert executor(REGISTRY["add"], (t, t), {})[0] is np.add


def test_attrs_reach_references_of_every_signature():
    def named(x, *, scale, shift):
        return x * scale + shift

    def collected(x, **attrs):
        return named(x, **attrs)

    def positional(x, scale, shift):
        return named(x, scale=scale, shift=shift)

    t, attrs = type_of(float32, (2,)), {"scale": 3, "shift": 1}
    for reference in (named, collected, positional, partial(named)):
        op = Op(
            "scaled",
            operands=("x",),
            attrs=("scale", "shift"),
            reference=reference,
            infer=lambda x, *, scale, shift: x,
            lower=lowering.extern(""),
            samples=list,
        )
        run, _ = executor(op, (t,), attrs)
        np.testing.assert_array_equal(run(np.ones(2, np.float32)), [4, 4])


def seen_by(types, casts=None, movement=False):
    """The dtypes that a reference is handed for operands of these types."""
    seen = []
    op = Op(
        "spy",
        operands=("a", "b"),
        attrs=(),
        reference=lambda *arrays: (seen.extend(a.dtype.name for a in arrays), arrays[0])[1],
        infer=lambda a, b: a,
        casts=casts and (lambda a, b: casts),
        traits=Traits(movement=movement),
        lower=lowering.extern(""),
        samples=list,
    )
    run, (out,) = executor(op, types, {})
    result = run(*[np.ones(t.shape, t.dtype.numpy) for t in types])
    assert result.dtype == out.dtype.numpy
    return seen


def test_reference_sees_halves_widened_and_operands_cast():
    half, brain, long = (type_of(d, (3,)) for d in (float16, bfloat16, int64))
    assert seen_by((half, brain)) == ["float32", "float32"]
    assert seen_by((half, long)) == ["float32", "int64"]
    assert seen_by((half, long), casts=(None, float16)) == ["float32", "float32"]
    assert seen_by((long, half), casts=(float64, bool_)) == ["float64", "bool"]
    assert seen_by((half, brain), movement=True) == ["float16", "bfloat16"]
    assert seen_by((half, long), casts=(None, float16), movement=True) == ["float16", "float16"]


def test_half_sums_are_rounded_once():
    t = type_of(float16, (4096,))
    run, _ = executor(REGISTRY["sum"], (t,), {"dim": (0,), "keepdim": False, "dtype": None})
    assert run(np.ones(4096, np.float16)) == 4096  # in float16 itself 2048 + 1 is 2048


def test_text_runs_as_the_graph_does():
    graph = small()
    x, k = np.random.rand(2, 3).astype(np.float32), np.arange(2)
    for a, b in zip(
        interpret(graph, x, k), interpret(parse(str(graph), graph.constants, OPS), x, k), strict=True
    ):
        np.testing.assert_array_equal(a, b)
