"""cse: golden texts, what must not merge, its cost, and that results stay what they were."""

import numpy as np
import pytest
from generate import agree, arrays_for, pure_graph
from golden_cases import shown

from lamina.ir import Builder, Constant, parse, type_of, verify
from lamina.ir.dtypes import float32
from lamina.passes.graphs.cse import cse
from lamina.passes.graphs.dce import dce

CASES = {
    "operands of a commutative op may be exchanged, results too merge": """
graph f(%x: f32[3], %y: f32[3]) -> (f32[3], f32[3]) {
  %0 = add(%x, %y) : f32[3]
  %1 = add(%y, %x) : f32[3]
  %2 = exp(%0) : f32[3]
  %3 = exp(%1) : f32[3]
  return %2, %3
}""",
    "of others not; nor of maximum, where 0.0 and -0.0 are told apart by their order": """
graph f(%x: f32[3], %y: f32[3]) -> (f32[3], f32[3], f32[3], f32[3]) {
  %0 = sub(%x, %y) : f32[3]
  %1 = sub(%y, %x) : f32[3]
  %2 = maximum(%x, %y) : f32[3]
  %3 = maximum(%y, %x) : f32[3]
  return %0, %1, %2, %3
}""",
    "hidden outputs merge with the visible one": """
graph f(%x: f32[2,3]) -> (f32[2,3], f32[2,1]) {
  %0, %1, %2 = layer_norm(%x, none, none) {dim=(1,), eps=1e-05} : f32[2,3], f32[2,1], f32[2,1]
  %3, %4, %5 = layer_norm(%x, none, none) {dim=(1,), eps=1e-05} : f32[2,3], f32[2,1], f32[2,1]
  return %0, %4
}""",
    "draws merge where their states are one": """
graph f(%state: i64[2], %next: i64[2]) -> (f32[3], f32[3], f32[3]) {
  %0 = random_uniform(%state) {size=(3,), dtype=f32} : f32[3]
  %1 = random_uniform(%state) {size=(3,), dtype=f32} : f32[3]
  %2 = random_uniform(%next) {size=(3,), dtype=f32} : f32[3]
  return %0, %1, %2
}""",
    "attrs and numbers that are equal and mean another thing": """
graph f(%x: f32[3]) -> (f32[3], f32[3], f32[3], f32[3], f64[3], i64[3]) {
  %0 = full_like(%x) {fill_value=0.0, dtype=None, device=None} : f32[3]
  %1 = full_like(%x) {fill_value=-0.0, dtype=None, device=None} : f32[3]
  %2 = add(%x, 0.0:f32) : f32[3]
  %3 = add(%x, -0.0:f32) : f32[3]
  %4 = full() {size=(3,), fill_value=1, dtype=f64, device=@cpu} : f64[3]
  %5 = full() {size=(3,), fill_value=1, dtype=i64, device=@cpu} : i64[3]
  return %0, %1, %2, %3, %4, %5
}""",
    "writes are refused: between two equal nodes, one may change what they read": """
graph f(%x: f32[3]) -> (f32[3]) {
  %0 = neg(%x) : f32[3]
  %1 = write(%x, %0) : f32[3]
  %2 = neg(%x) : f32[3]
  return %2
}""",
}  # fmt: skip


def test_cse_golden(golden):
    golden("passes/cse", shown(cse, {name: parse(text) for name, text in CASES.items()}))


def test_cse_tells_equal_attrs_of_other_kinds_apart():
    text = "graph f(%x: f32[3]) -> (f32[3], f32[3]) {{\n  %0 = {0}\n  %1 = {1}\n  return %0, %1\n}}"
    node = "full_like(%x) {{fill_value={}, dtype=None, device=None}} : f32[3]".format
    for a, b in (("1", "1.0"), ("1", "True"), ("0", "False"), ("0.0", "-0.0")):
        graph = parse(text.format(node(a), node(b)))
        assert cse(graph) is graph
    assert len(cse(parse(text.format(node("nan"), node("nan")))).nodes) == 1


def test_cse_leaves_apart_what_is_to_stay_apart():
    graph = parse("""
graph f(%x: f32[3]) -> (f32[3], f32[3]) {
  %0 = exp(%x) : f32[3]
  %1 = exp(%x) : f32[3]
  %2 = exp(%x) : f32[3]
  %3 = mul(%1, %2) : f32[3]
  return %0, %3
}""")
    made = cse(graph, apart={graph.results[0]})
    assert [node.op.name for node in made.nodes] == ["exp", "exp", "mul"]
    assert made.results == graph.results and made.nodes[2].inputs == made.nodes[1].outputs * 2
    assert cse(graph, apart={node.outputs[0] for node in graph.nodes}) is graph


def test_cse_compares_small_constants_by_bits_and_large_ones_by_identity():
    def kept(a, b):
        with Builder("f") as builder:
            x = builder.param(type_of(float32, ()))
            made = cse(builder.finish([x + Constant(a), x + Constant(b)]))
        verify(made)
        return len(made.nodes)

    ones = np.ones(3, np.float32)
    assert kept(ones, ones.copy()) == 1
    assert kept(ones, -ones) == 2
    assert kept(np.zeros(3, np.float32), np.full(3, -0.0, np.float32)) == 2
    assert kept(np.ones(1000, np.float32), np.ones(1000, np.float32)) == 2


@pytest.mark.parametrize("seed", range(30))
def test_cse_fuzz(seed):
    graph = pure_graph(seed)
    made = cse(graph)
    verify(made)
    agree(graph, made, arrays_for(graph, seed))


def test_cse_and_dce_of_a_long_graph():
    """10,000 nodes, half of them products by one of a hundred numbers."""
    with Builder("long") as b:
        x = y = b.param(type_of(float32, (4,)))
        for i in range(5_000):
            y = y + x * float(i % 100)
        graph = b.finish(y)
    made = dce(cse(graph))
    assert len(made.nodes) == 5_100
