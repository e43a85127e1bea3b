"""dce: golden texts, its refusal of writes, and that results stay what they were."""

import pytest
from generate import agree, arrays_for, pure_graph, random_graph
from golden_cases import shown

from lamina.ir import parse, verify
from lamina.passes.graphs.dce import dce

CASES = {
    "what no result needs goes, with what it alone needed; params stay": """
graph f(%x: f32[3], %y: f32[3]) -> (f32[3]) {
  %0 = exp(%y) : f32[3]
  %1 = neg(%0) : f32[3]
  %2 = neg(%x) : f32[3]
  return %2
}""",
    "a node of several outputs stays if one is used": """
graph f(%x: f32[3]) -> (i64[]) {
  %0, %1 = max_dim(%x) {dim=0, keepdim=False} : f32[], i64[]
  return %1
}""",
    "unused draws go: the state is an operand, so no other draw moves": """
graph f(%state: i64[2]) -> (f32[3]) {
  %0 = random_uniform(%state) {size=(3,), dtype=f32} : f32[3]
  %1 = random_uniform(%state) {size=(3,), dtype=f32} : f32[3]
  return %1
}""",
    "what refuses some values stays, though nobody reads it": """
graph f(%x: f32[3], %i: i64[2]) -> (f32[3]) {
  %0 = exp(%x) : f32[3]
  %1 = gather(%0, %i) {dim=0} : f32[2]
  %2 = neg(%1) : f32[2]
  %3 = neg(%x) : f32[3]
  return %3
}""",
    "writes are refused": """
graph f(%x: f32[3]) -> (f32[3]) {
  %0 = neg(%x) : f32[3]
  %1 = write(%x, %0) : f32[3]
  return %x
}""",
}


def test_dce_golden(golden):
    golden("passes/dce", shown(dce, {name: parse(text) for name, text in CASES.items()}))


def test_dce_of_a_graph_without_dead_code_is_that_graph():
    graph = dce(random_graph(0))
    assert dce(graph) is graph


@pytest.mark.parametrize("seed", range(30))
def test_dce_fuzz(seed):
    graph = pure_graph(seed)
    made = dce(graph)
    verify(made)
    assert len(made.params) == len(graph.params) and len(made.nodes) < len(graph.nodes)
    agree(graph, made, arrays_for(graph, seed))
