"""Graphs and their builder: values as operands, weak numbers, and misuse."""

import threading

import numpy as np
import pytest
from graphs import split_sign

from lamina.ir import Builder, Constant, Value, interpret, type_of, verify
from lamina.ir.dtypes import bfloat16, bool_, float16, float32, float64, int32, int64, uint8
from lamina.ir.errors import ArgumentError, GraphError, ShapeError
from lamina.ir.op import REGISTRY


@pytest.mark.parametrize(
    ("dtype", "number", "scalar", "result"),
    [
        (float16, 2.5, float16, float16),
        (bfloat16, 3, bfloat16, bfloat16),
        (float64, True, float64, float64),
        (int32, 2, int32, int32),
        (int32, 2.5, float32, float32),
        (uint8, 2.5, float32, float32),
        (bool_, 2, int64, int64),
        (bool_, 0.5, float32, float32),
    ],
    ids=str,
)
@pytest.mark.parametrize("shape", [(3,), ()], ids=str)
def test_number_takes_the_dtype_of_the_tensor_beside_it(dtype, number, scalar, result, shape):
    with Builder("g") as b:
        x = b.param(type_of(dtype, shape), "x")
        graph = b.finish([x * number, number * x])
    # Beside a half with dimensions a number keeps the digits of the float32 that halves are computed in.
    assert graph.nodes[0].inputs[1].dtype is (scalar.compute if shape else scalar)
    assert [v.dtype for v in graph.results] == [result, result]
    verify(graph)


def test_number_beside_several_tensors_takes_their_common_dtype():
    with Builder("g") as b:
        choose, x = b.param(type_of(bool_, (3,))), b.param(type_of(float64, (3,)))
        y = REGISTRY["where"](choose, x, 0.1)
        graph = b.finish(y)
    assert graph.nodes[-1].inputs[2].data == 0.1 and y.dtype is float64


def test_number_too_large_is_refused():
    with (
        Builder("g") as b,
        pytest.raises(ArgumentError, match="the number 300 does not fit into lamina.uint8"),
    ):
        b.param(type_of(uint8, (3,)), "x") + 300


def test_operators_and_composites_run_on_values():
    with Builder("g") as b:
        x, w = b.param(type_of(float32, (2, 3)), "x"), b.param(type_of(float32, (3, 4)), "w")
        graph = b.finish(-((2.0 - x) @ w) / 3.0 ** x[0, 1])
    verify(graph)
    given = np.random.rand(2, 3).astype(np.float32), np.random.rand(3, 4).astype(np.float32)
    (out,) = interpret(graph, *given)
    # 3 terms of a product, then three roundings, relative to the largest
    np.testing.assert_allclose(out, -((2 - given[0]) @ given[1]) / 3 ** given[0][0, 1], rtol=16 * 2.0**-24)


def test_op_of_several_outputs_gives_the_visible_ones():
    with Builder("g") as b:
        out = split_sign(b.param(type_of(float32, (3,)), "x"))
        graph = b.finish(out)
    assert len(out) == 2 and len(graph.nodes[0].outputs) == 3


def test_error_of_an_op_shows_the_operands():
    with Builder("g") as b, pytest.raises(ShapeError) as error:
        b.param(type_of(float32, (2,)), "x") + b.param(type_of(float32, (3,)), "y")
    assert "input: f32[2]\n  other: f32[3]" in str(error.value)


def test_comparing_values_is_an_op_and_keys_go_by_identity():
    with Builder("g") as b:
        x, y = b.param(type_of(float32, (3,)), "x"), b.param(type_of(float32, (3,)), "y")
        graph = b.finish([x == y, x != 2.0])
        assert {x: 1, y: 2}[y] == 2 and x in {x} and y not in {x}
        with pytest.raises(GraphError, match="no truth"):
            (y,).index(x)
    verify(graph)
    equal, other = interpret(graph, np.float32([1, 2, np.nan]), np.float32([1, 3, np.nan]))
    np.testing.assert_array_equal(equal, [True, False, False])
    np.testing.assert_array_equal(other, [True, False, True])


def test_value_has_no_truth_and_no_length():
    x = Value(type_of(float32, (3,)), "x")
    with pytest.raises(GraphError, match="no truth before the graph runs"):
        bool(x)
    with pytest.raises(TypeError):
        iter(x)


def test_op_without_a_builder_is_refused():
    x = Value(type_of(float32, (3,)), "x")
    with pytest.raises(GraphError, match="while no graph is being built"):
        x + 1


def test_value_of_another_graph_is_refused():
    with Builder("one") as b:
        x = b.param(type_of(float32, (3,)), "x")
    with Builder("two") as b:
        with pytest.raises(GraphError, match="operand input of add of graph two belongs to another graph"):
            x + 1.0
        with pytest.raises(GraphError, match="a result of graph two belongs to another graph"):
            b.finish(x)
        with pytest.raises(GraphError, match="must be a value of the graph, not str"):
            b.finish(["x"])


def test_builders_of_threads_and_of_nested_blocks_do_not_mix():
    made = {}

    def work(name):
        with Builder(name) as b:
            x = b.param(type_of(float32, (3,)), "x")
            barrier.wait()
            for _ in range(50):
                x = x + 1.0
            made[name] = b.finish(x)

    barrier = threading.Barrier(2)
    threads = [threading.Thread(target=work, args=(f"t{i}",)) for i in range(2)]
    with Builder("outer") as outer:
        y = outer.param(type_of(float32, ()), "y")
        for t in threads:
            t.start()
        with Builder("inner") as inner:
            graph = inner.finish(inner.param(y.type) * 2.0)
        for t in threads:
            t.join()
        assert len(outer.finish(y + y).nodes) == 1
    assert [len(g.nodes) for g in made.values()] == [50, 50] and len(graph.nodes) == 1


def test_parts_of_a_graph_can_not_be_changed():
    with Builder("g") as b:
        x = b.param(type_of(float32, (3,)), "x")
        graph = b.finish(REGISTRY["sum"](x + b.constant(np.ones(3, np.float32)), dim=0))
    with pytest.raises(AttributeError):
        graph.name = "h"
    with pytest.raises(TypeError):
        graph.nodes[1].attrs["dim"] = (1,)
    with pytest.raises(ValueError, match="read-only"):
        graph.nodes[0].inputs[1].data[0] = 2
    assert graph.replace(name="h").nodes is graph.nodes


def test_constant_of_no_dtype_is_refused():
    with pytest.raises(GraphError, match="NumPy's dtype <U1"):
        Constant(np.array(["a"]))


def test_inlining_repeats_the_nodes():
    with Builder("f") as b:
        x = b.param(type_of(float64, (3,)), "x")
        f = b.finish(x * x + 1.0)
    with Builder("g") as b:
        x = b.param(type_of(float64, (3,)), "x")
        (y,) = b.inline(f, x)
        (z,) = b.inline(f, y)
        graph = b.finish(z)
        with pytest.raises(GraphError, match="takes 1 operands, not 2"):
            b.inline(f, x, y)
    verify(graph)
    np.testing.assert_array_equal(interpret(graph, np.arange(3.0))[0], [2, 5, 26])
