"""Splitting a graph into what weights alone decide, and the rest."""

import numpy as np

from lamina.ir.interpret import interpret
from lamina.ir.text import parse
from lamina.ir.verify import verify
from lamina.passes.graphs.freeze import freeze

BEFORE = """\
graph f(%x: f32[4,8], %w: f32[3,8], %s: f32[3,1], %b: f32[3]) -> (f32[4,3], f32[3,8]) {
  %0 = mul(%w, %s) : f32[3,8]
  %1 = linear(%x, %0, %b) : f32[4,3]
  return %1, %0
}"""
WEIGHTS = """\
graph f_weights(%w: f32[3,8], %s: f32[3,1], %b: f32[3]) -> (f32[3], f32[3,8]) {
  %0 = mul(%w, %s) : f32[3,8]
  return %b, %0
}"""
REST = """\
graph f(%x: f32[4,8], %b: f32[3], %0: f32[3,8]) -> (f32[4,3], f32[3,8]) {
  %1 = linear(%x, %0, %b) : f32[4,3]
  return %1, %0
}"""
REPEATED = """\
graph f(%x: f32[4000,8], %w: f32[8]) -> (f32[4000,8]) {
  %0 = expand(%w) {shape=(4000, 8)} : f32[4000,8]
  %1 = mul(%x, %0) : f32[4000,8]
  return %1
}"""
VIEWED = """\
graph f(%x: f32[4,8], %w: f32[8,3], %s: f32[3]) -> (f32[4,3]) {
  %0 = reshape(%s) {shape=(1,3)} : f32[1,3]
  %1 = mul(%w, %0) : f32[8,3]
  %2 = transpose(%1) {dim0=0, dim1=1} : f32[3,8]
  %3 = linear(%x, %2, none) : f32[4,3]
  return %3
}"""


def test_freeze_moves_what_weights_decide():
    first, rest = freeze(parse(BEFORE), frozenset({1, 2, 3}))
    assert str(first) == WEIGHTS
    assert [p.type for p in rest.params] == [p.type for p in parse(REST).params]
    assert [n.op.name for n in rest.nodes] == ["linear"]
    verify(first), verify(rest)


def test_freeze_leaves_repetition_and_what_depends_on_inputs():
    first, rest = freeze(parse(REPEATED), frozenset({1}))
    assert not first.nodes and len(rest.nodes) == 2
    first, rest = freeze(parse(BEFORE), frozenset())
    assert not first.nodes and str(rest) == BEFORE


def test_freeze_goes_through_views_and_stores_none():
    first, rest = freeze(parse(VIEWED), frozenset({1, 2}))
    assert [n.op.name for n in first.nodes] == ["reshape", "mul"]
    assert [n.op.name for n in rest.nodes] == ["transpose", "linear"]
    verify(first), verify(rest)


def test_freeze_keeps_the_meaning():
    graph, rng = parse(BEFORE), np.random.default_rng(0)
    x, *weights = (rng.standard_normal(p.shape).astype(np.float32) for p in graph.params)
    first, rest = freeze(graph, frozenset({1, 2, 3}))
    found = interpret(rest, x, *interpret(first, *weights))
    for a, b in zip(interpret(graph, x, *weights), found, strict=True):
        assert np.array_equal(a, b)
