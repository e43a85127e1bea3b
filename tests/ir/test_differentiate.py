"""Differentiation of graphs: golden text, finite differences to second order, and what it refuses."""

import numpy as np
import pytest
from graphs import graphs, inputs, split_sign, tagged
from hypothesis import given, settings

from lamina.ir import Builder, fused, interpret, parse, symbol, type_of, verify
from lamina.ir.dtypes import bfloat16, float32, float64, int64
from lamina.ir.errors import GradError
from lamina.ir.op import REGISTRY
from lamina.passes.graphs.differentiate import Options, differentiate, joint

PRODUCT = """\
graph f(%x: f32[2,3], %y: f32[3]) -> (f32[2,3]) {
  %0 = mul(%x, %y) : f32[2,3]
  return %0
}"""

GRADIENT = """\
graph f_grad(%x: f32[2,3], %y: f32[3], %g: f32[2,3]) -> (f32[2,3], f32[2,3], f32[3]) {
  %0 = mul(%x, %y) : f32[2,3]
  %1 = mul(%g, %y) : f32[2,3]
  %2 = mul(%g, %x) : f32[2,3]
  %3 = sum(%2) {dim=(0,), keepdim=False, dtype=None} : f32[3]
  return %0, %1, %3
}"""


def test_gradient_of_a_product():
    assert str(differentiate(parse(PRODUCT))) == GRADIENT


def test_only_what_is_wanted_is_computed():
    made = differentiate(parse(PRODUCT), Options(wrt=(1,), results=False))
    assert [str(node.op.name) for node in made.nodes] == ["mul", "mul", "sum"]
    assert len(made.results) == 1 and made.results[0].shape == (3,)


def test_param_that_nothing_depends_on_has_zeros():
    text = PRODUCT.replace("mul(%x, %y)", "mul(%x, 2.0:f32)")
    _, dx, dy = interpret(
        differentiate(parse(text)), np.ones((2, 3), "f4"), np.ones(3, "f4"), np.ones((2, 3), "f4")
    )
    np.testing.assert_array_equal(dx, np.full((2, 3), 2))
    np.testing.assert_array_equal(dy, np.zeros(3))


def scalar(graph):
    """The graph with a random weighting of its results added up to one number."""
    b = Builder.extending(graph)
    with b:
        total = None
        for value in graph.results:
            weights = b.constant(np.random.uniform(0.5, 1.5, value.shape), "weights")
            term = REGISTRY["sum"](value * weights)
            total = term if total is None else total + term
        return b.finish(total)


def slope(graph, arrays, directions, step):
    """The central difference of a one-number graph along `directions`."""
    ends = [
        interpret(graph, *[a + s * d for a, d in zip(arrays, directions, strict=True)])[0]
        for s in (step, -step)
    ]
    return (ends[0] - ends[1]) / (2 * step)


@given(graphs(size=6))
@settings(max_examples=20)
def test_gradients_agree_with_finite_differences_to_second_order(graph):
    loss = scalar(graph)
    first = differentiate(loss, Options(seeds="ones", results=False))
    verify(first)
    arrays = inputs(graph)
    directions = inputs(graph)
    gradients = interpret(first, *arrays)
    along = sum(np.sum(g * d) for g, d in zip(gradients, directions, strict=True))
    # Central differences err by step**2 / 6 of the third derivative and by eps / step of the value; at 1e-5
    # both are near 1e-10 of the terms' size, and the graphs' terms and third derivatives stay within some
    # hundreds.
    size = 1 + sum(np.abs(g).sum() for g in gradients)
    value = abs(interpret(loss, *arrays)[0])
    assert abs(slope(loss, arrays, directions, 1e-5) - along) < 1e-7 * (size + value) ** 2

    second = scalar(first)
    double = differentiate(second, Options(seeds="ones", results=False))
    verify(double)
    curvatures = interpret(double, *arrays)
    along = sum(np.sum(g * d) for g, d in zip(curvatures, directions, strict=True))
    size = 1 + sum(np.abs(g).sum() for g in curvatures)
    value = abs(interpret(second, *arrays)[0])
    assert abs(slope(second, arrays, directions, 1e-5) - along) < 1e-7 * (size + value) ** 2


def test_hidden_outputs_and_left_out_operands():
    with Builder("f") as b:
        x = b.param(type_of(float64, (4,)), "x")
        positive, negative = split_sign(x)
        graph = b.finish(REGISTRY["sum"](positive * 3.0 + negative))
    (gradient,) = interpret(
        differentiate(graph, Options(seeds="ones", results=False)), np.array([1.0, -1, 2, -2])
    )
    np.testing.assert_array_equal(gradient, [3, 1, 3, 1])


def test_unused_output_has_no_cotangent():
    with Builder("f") as b:
        graph = b.finish(split_sign(b.param(type_of(float64, (2,)), "x"))[0])
    _, gradient = interpret(differentiate(graph), np.array([1.0, -1]), np.array([5.0, 7]))
    np.testing.assert_array_equal(gradient, [5, 0])


def test_cotangents_come_in_the_dtype_of_their_operand():
    with Builder("f") as b:
        x, y = b.param(type_of(bfloat16, (2, 3)), "x"), b.param(type_of(float32, (3,)), "y")
        graph = b.finish(x * y)
    made = differentiate(graph, Options(results=False))
    verify(made)
    assert [v.type for v in made.results] == [x.type, y.type]


def test_integer_results_and_params_are_left_out():
    with Builder("f") as b:
        x, k = b.param(type_of(float64, (3,)), "x"), b.param(type_of(int64, (3,)), "k")
        graph = b.finish([x * k, k + 1])
    made = differentiate(graph, Options(results=False))
    assert [p.hint for p in made.params] == ["x", "k", "g"] and len(made.results) == 1
    rule = "param 1 of f is not floating, so it has no gradient\n  param: %k: i64"
    with pytest.raises(GradError, match=rule):
        differentiate(graph, Options(wrt=(1,)))


def test_fused_nodes_are_opened():
    with Builder("body") as inner:
        a = inner.param(type_of(float64, (3,)), "a")
        body = inner.finish([REGISTRY["tanh"](a), a * 2.0])
    with Builder("f") as b:
        x = b.param(a.type, "x")
        y, z = fused(x, body=body)
        graph = b.finish(REGISTRY["sum"](y * z))
    x = np.array([0.5, -1, 2])
    (gradient,) = interpret(differentiate(graph, Options(seeds="ones", results=False)), x)
    expected = 2 * x * (1 - np.tanh(x) ** 2) + 2 * np.tanh(x)
    np.testing.assert_allclose(gradient, expected, rtol=16 * 2.0**-53)  # some roundings on each side


def test_symbols_go_through():
    n = symbol("n")
    with Builder("f") as b:
        x, w = b.param(type_of(float64, (n, 3)), "x"), b.param(type_of(float64, (3,)), "w")
        graph = b.finish(REGISTRY["sum"](REGISTRY["exp"](x * w)))
    made = differentiate(graph, Options(seeds="ones", results=False))
    assert verify(made) == ()
    assert str(parse(str(made))) == str(made)
    for rows in (1, 4):
        x, w = np.random.rand(rows, 3), np.random.rand(3)
        dx, dw = interpret(made, x, w)
        # one rounding per op, and a sum of 4 rows
        np.testing.assert_allclose(dx, np.exp(x * w) * w, rtol=8 * 2.0**-53)
        np.testing.assert_allclose(dw, (np.exp(x * w) * x).sum(0), rtol=16 * 2.0**-53)


def test_where_of_a_node_is_kept_by_its_gradient():
    with Builder("f") as b:
        x = b.param(type_of(float64, ()), "x")
        b.where = ("model.py", 3)
        graph = b.finish(tagged(x * 2.0, tag=1))
    made = differentiate(graph)
    assert [node.where for node in made.nodes] == [("model.py", 3)] * len(made.nodes)


def test_hidden_outputs_carry_cotangents_in_second_order():
    with Builder("f") as b:
        x = b.param(type_of(float64, (2, 5)), "x")
        weights = b.constant(np.random.uniform(0.5, 1.5, (2, 5)), "weights")
        graph = b.finish(REGISTRY["sum"](REGISTRY["layer_norm"](x, (5,)) * weights))
    first = scalar(differentiate(graph, Options(seeds="ones", results=False)))
    (curvature,) = interpret(
        differentiate(first, Options(seeds="ones", results=False)), x := np.random.randn(2, 5)
    )
    direction = np.random.randn(2, 5)
    # the central difference errs by step**2 / 6 of the third derivative and by eps / step of the value
    assert abs(slope(first, [x], [direction], 1e-5) - np.sum(curvature * direction)) < 1e-6


def test_a_result_without_cotangent_contributes_nothing():
    with Builder("f") as b:
        x, y = b.param(type_of(float64, (3,)), "x"), b.param(type_of(float64, (3,)), "y")
        graph = b.finish([x * 2.0, y * 3.0])
    made, reached = joint(graph, Options(of=(1,)))
    assert [p.hint for p in made.params] == ["x", "y", "g"] and reached == (1,)
    assert [str(v.hint or v.type) for v in made.results] == ["f64[3]"] * 3
    ones = np.ones(3)
    np.testing.assert_array_equal(interpret(made, ones, ones, ones)[2], np.full(3, 3.0))
    with pytest.raises(GradError, match="result 0 of g is not floating"):
        differentiate(parse("graph g(%k: i64[]) -> (i64[]) {\n  return %k\n}"), Options(of=(0,)))


def test_no_gradient_flows_through_detach():
    text = PRODUCT.replace(
        "return %0", "%1 = detach(%0) : f32[2,3]\n  %2 = mul(%1, %y) : f32[2,3]\n  return %2"
    )
    graph = parse(text)
    assert str(graph) == text and verify(graph) == ()
    made, reached = joint(graph)
    assert reached == (1,)
    x, y = np.float32([[1, 2, 3], [4, 5, 6]]), np.float32([2, 3, 4])
    *_, dy = interpret(made, x, y, np.ones((2, 3), "f4"))
    np.testing.assert_array_equal(dy, (x * y).sum(0))
