"""fold_constants: golden texts, what stays, and that results stay what they were."""

import numpy as np
import pytest
from generate import agree, arrays_for, pure_graph
from golden_cases import shown

from lamina.ir import Builder, Constant, fused, parse, type_of, verify
from lamina.ir.dtypes import float32
from lamina.passes.graphs.fold_constants import fold_constants

CASES = {
    "numbers stay numbers, and what is made of a creation op is kept": """
graph f(%x: f32[3]) -> (f32[3]) {
  %0 = arange() {start=0, step=1, size=(3,), dtype=f32, device=@cpu} : f32[3]
  %half = mul(%0, 0.5:f32) : f32[3]
  %two = sqrt(4.0:f32) : f32[]
  %3 = mul(%x, %two) : f32[3]
  %4 = add(%3, %half) : f32[3]
  return %4
}""",
    "a creation op of one element is a number; results may be constants": """
graph f() -> (f32[], f32[2]) {
  %0 = ones() {size=(), dtype=f32, device=@cpu} : f32[]
  %1 = zeros() {size=(2,), dtype=f32, device=@cpu} : f32[2]
  return %0, %1
}""",
    "all outputs": """
graph f() -> (i64[], i64[]) {
  %0 = arange() {start=0, step=2, size=(3,), dtype=i64, device=@cpu} : i64[3]
  %1, %2 = max_dim(%0) {dim=0, keepdim=False} : i64[], i64[]
  return %1, %2
}""",
    "draws stay, whatever the state": """
graph f() -> (f32[3]) {
  %0 = zeros() {size=(2,), dtype=i64, device=@cpu} : i64[2]
  %1 = random_uniform(%0) {size=(3,), dtype=f32} : f32[3]
  return %1
}""",
    "so do host ops, whose sizes are not known, and large results": """
graph f() -> (i64[count,1], f32[200,200]) {
  %0 = ones() {size=(2,), dtype=f32, device=@cpu} : f32[2]
  %1 = argwhere(%0) : i64[count,1]
  %2 = ones() {size=(200,1), dtype=f32, device=@cpu} : f32[200,1]
  %3 = expand(%2) {size=(200,200)} : f32[200,200]
  return %1, %3
}""",
    "sizes that are symbols are not known": """
graph f(%x: f32[n]) -> (f32[n]) {
  %0 = size() {value=n} : i64[]
  %1 = zeros() {size=(n,), dtype=f32, device=@cpu} : f32[n]
  %2 = add(%1, %0) : f32[n]
  return %2
}""",
    "an op that fails is left to fail in the run": """
graph f() -> (f32[2,2]) {
  %0 = zeros() {size=(2,2), dtype=f32, device=@cpu} : f32[2,2]
  %1 = linalg_inv(%0) : f32[2,2]
  return %1
}""",
    "writes are refused": """
graph f(%x: f32[]) -> (f32[]) {
  %0 = exp(1.0:f32) : f32[]
  %1 = write(%x, %0) : f32[]
  return %x
}""",
}


def test_fold_constants_golden(golden):
    graphs = {name: parse(text) for name, text in CASES.items()}
    golden("passes/fold_constants", shown(fold_constants, graphs))


def test_fold_constants_keeps_the_bound_it_is_given():
    with Builder("f") as b:
        graph = b.finish(Constant(np.ones((4, 1), np.float32)) + Constant(np.ones((1, 4), np.float32)))
    assert len(fold_constants(graph, limit=16).nodes) == 0
    assert fold_constants(graph, limit=15) is graph


def test_fold_constants_opens_nodes_that_hold_a_graph():
    with Builder("body") as b:
        x = b.param(type_of(float32, (3,)))
        body = b.finish(x * 2.0)
    with Builder("f") as b:
        made = fold_constants(b.finish(b.apply(fused, (np.ones(3, np.float32),), {"body": body})))
    assert made.nodes == () and made.results[0].data.tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize("seed", range(30))
def test_fold_constants_fuzz(seed):
    graph = pure_graph(seed)
    made = fold_constants(graph)
    verify(made)
    agree(graph, made, arrays_for(graph, seed))
