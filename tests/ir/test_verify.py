"""The verifier: graphs broken on purpose are refused, with the rule and the node named."""

from types import MappingProxyType

import hypothesis.strategies as st
import numpy as np
import pytest
from graphs import OPS, graphs, small, split_sign, tagged
from hypothesis import assume, given

from lamina.ir import Builder, Constant, Graph, Node, Value, fused, parse, symbol, type_of, verify
from lamina.ir.dtypes import float32, float64, int64
from lamina.ir.errors import GraphError
from lamina.ir.op import REGISTRY, Op

BLOCK = """\
graph block(%x: f32[2,3], %w: f32[3,4]) -> (f32[2,4]) {
  %0 = mul(%x, 2.0:f32) : f32[2,3]  # model.py:4
  %1 = matmul(%0, %w) : f32[2,4]  # model.py:5
  return %1
}"""


def refusal(graph):
    with pytest.raises(GraphError) as error:
        verify(graph)
    return str(error.value)


@given(graphs(), graphs(symbolic=True))
def test_what_a_builder_makes_is_valid(one, two):
    verify(one)
    verify(two)


def test_wrong_type_is_refused():
    assert refusal(parse(BLOCK.replace("%0 = mul(%x, 2.0:f32) : f32", "%0 = mul(%x, 2.0:f32) : f64"))) == (
        "graph block: mul gives f32[2,3], the graph says f64[2,3]\n"
        "  %0 = mul(%x, 2.0:f32) : f64[2,3]\n"
        "  made at model.py:4"
    )


def test_broken_rule_of_an_op_is_told():
    text = refusal(parse(BLOCK.replace("%w: f32[3,4]", "%w: f32[5,4]")))
    assert text.startswith(
        "graph block: the operands of matmul break its rule\n  %1 = matmul(%0, %w) : f32[2,4]\n  "
    )
    assert text.endswith("made at model.py:5") and "3 != 5" in text


def broken(change):
    """BLOCK with `change(params, nodes, results)` made to its parts."""
    graph = parse(BLOCK)
    parts = list(graph.params), list(graph.nodes), list(graph.results)
    change(*parts)
    return Graph("block", *map(tuple, parts))


def swap_nodes(params, nodes, results):
    nodes.reverse()


def drop_first(params, nodes, results):
    del nodes[0]


def repeat_node(params, nodes, results):
    nodes.append(nodes[-1])


def repeat_param(params, nodes, results):
    params.append(params[0])


def constant_param(params, nodes, results):
    params[1] = Constant(np.ones((3, 4), np.float32), "w")


def foreign_result(params, nodes, results):
    results[0] = Value(results[0].type, "stranger")


def missing_operand(params, nodes, results):
    nodes[1] = nodes[1].replace(inputs=nodes[1].inputs[:1])


def none_operand(params, nodes, results):
    nodes[1] = nodes[1].replace(inputs=(nodes[1].inputs[0], None))


def more_attrs(params, nodes, results):
    nodes[1] = nodes[1].replace(attrs={"alpha": 1})


def unknown_op(params, nodes, results):
    mul = REGISTRY["mul"]
    fake = Op(
        "mul",
        reference=mul.reference,
        infer=mul.infer,
        lower=mul.lower,
        samples=list,
        operands=("a", "b"),
        attrs=(),
    )
    nodes[0] = nodes[0].replace(op=fake)


def fewer_outputs(params, nodes, results):
    nodes[0] = nodes[0].replace(outputs=())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (swap_nodes, "%1 is used before it is defined\n  %0 = matmul(%1, %w)"),
        (drop_first, "%?: f32[2,3] is used before it is defined"),
        (repeat_node, "%1 is defined twice\n  %1 = matmul(%0, %w)"),
        (repeat_param, "the parameter %x: f32[2,3] stands twice among the params"),
        (constant_param, "the parameter @w: f32[3,4] is a constant"),
        (foreign_result, "the result %stranger: f32[2,4] is not defined"),
        (missing_operand, "matmul takes 2 operands (a, b), not 1"),
        (none_operand, "matmul: operand b can't be left out\n  %1 = matmul(%0, none)"),
        (more_attrs, "matmul has the attrs (), not (alpha)\n  %1 = matmul(%0, %w) {alpha=1}"),
        (unknown_op, "'mul' is not an op of the operator set"),
        (fewer_outputs, "mul gives f32[2,3], the graph says"),
    ],
    ids=lambda p: getattr(p, "__name__", ""),
)
def test_broken_graph_is_refused(change, message):
    assert refusal(broken(change)).startswith(f"graph block: {message}")


def test_attrs_must_be_of_kinds_that_text_can_hold():
    x = Value(type_of(float32, ()), "x")
    for value in (np.float32(1), 1j, [1], (1, {2})):
        node = Node(tagged, (x,), (Value(x.type),), MappingProxyType({"tag": value}))
        assert "attr tag is a " in refusal(Graph("g", (x,), (node,), node.outputs))


def test_nested_graph_holds_scalars_only():
    with Builder("body") as inner:
        a = inner.param(type_of(float64, (3,)), "a")
        body = inner.finish(a + inner.constant(np.arange(3.0), "table"))
    with Builder("outer") as b:
        graph = b.finish(fused(b.param(a.type, "x"), body=body))
    assert "the nested graph body holds the constant @table" in refusal(graph)


def test_nested_graph_is_verified():
    text = """\
graph outer(%x: f64[3]) -> (f64[3]) {
  %0 = fused(%x) {body=graph body(%a: f64[3]) -> (f64[3]) {
    %0 = mul(%a, %a) : f64[3]
    return %0
  }} : f64[3]
  return %0
}"""
    verify(parse(text))
    assert "graph body: mul gives f64[3]" in refusal(
        parse(
            text.replace("%a) : f64[3]", "%a) : f64[4]").replace("-> (f64[3]) {\n    ", "-> (f64[4]) {\n    ")
        )
    )
    assert "fused(*operands): graph body takes (f64[3]), got (f64[4])" in refusal(
        parse(text.replace("outer(%x: f64[3])", "outer(%x: f64[4])"))
    )


def test_conditions_on_symbols_are_returned():
    n, m = symbol("n"), symbol("m")
    with Builder("g") as b:
        x = b.param(type_of(float32, (n, 3)), "x")
        y = b.param(type_of(float32, (m, 3)), "y")
        graph = b.finish(x + y)
    assert list(map(str, verify(graph))) == list(map(str, b.conditions)) == ["n == m"]


def test_optional_and_hidden_values_are_known():
    graph = small()
    assert verify(graph) == ()
    assert graph.nodes[1].op is split_sign and len(graph.nodes[1].visible) == 2
    assert verify(parse(str(graph), graph.constants, OPS)) == ()


MUTATIONS = ["type", "input", "drop", "swap", "attr"]


@given(graphs(), st.sampled_from(MUTATIONS), st.data())
def test_planted_bugs_are_caught(graph, kind, data):
    """A mutation that changes what is computed is refused; what is left would not run."""
    at = data.draw(st.integers(0, len(graph.nodes) - 1))
    node, nodes = graph.nodes[at], list(graph.nodes)
    if kind == "type":
        wrong = tuple(Value(v.type.with_dtype(int64), v.hint) for v in node.outputs)
        nodes[at] = node.replace(outputs=wrong)
    elif kind == "input":
        nodes[at] = node.replace(inputs=(*node.inputs[:-1], Value(node.inputs[-1].type)))
    elif kind == "drop":
        used = {v for later in graph.nodes[at + 1 :] for v in later.inputs} | set(graph.results)
        assume(not used.isdisjoint(node.outputs))
        del nodes[at]
    elif kind == "swap":
        last = max(
            (i for i, other in enumerate(graph.nodes) if set(node.inputs) & set(other.outputs)), default=None
        )
        assume(last is not None)
        nodes.insert(last, nodes.pop(at))
    else:
        nodes[at] = node.replace(attrs={**node.attrs, "unknown": 1})
    with pytest.raises(GraphError):
        verify(graph.replace(nodes=nodes))
