"""Writes of small parts: the graph, the kernels, and that a plan writes them where the array is."""

import numpy as np
import pytest

from lamina.ir.interpret import interpret
from lamina.ir.text import parse
from lamina.passes.graphs.expand import expand
from lamina.passes.graphs.puts_apart import puts_apart
from lamina.passes.programs.build_program import build_program
from lamina.passes.programs.memory_plan import verify
from lamina.passes.programs.plan_memory import plan_memory
from lamina.passes.programs.program import interpret as run
from lamina.passes.programs.with_checks import with_checks

PUT = """\
graph f(%c: f32[64,128], %x: f32[128], %i: i64[]) -> (f32[64,128]) {
  %0 = index_put(%c, %x, %i) {dims=(0,), accumulate=False} : f32[64,128]
  return %0
}"""
COPY = """\
graph f(%c: f32[64,128], %x: f32[64,2], %i: i64[2]) -> (f32[64,128]) {
  %0 = index_copy(%c, %i, %x) {dim=1} : f32[64,128]
  return %0
}"""
SCATTER = """\
graph f(%c: f32[64,128], %x: f32[1,128], %i: i64[1,128]) -> (f32[64,128]) {
  %0 = scatter(%c, %i, %x) {dim=0, reduce=None} : f32[64,128]
  return %0
}"""
VIEW = """\
graph f(%c: f32[64,99], %x: f32[99]) -> (f32[64,99]) {
  %0 = view_scatter(%c, %x) {chain=(("basic_index",(("index",(("int",3),("slice",0,99,1))),)),)} : f32[64,99]
  return %0
}"""
TURNS = """\
graph f(%c: f32[64,128], %x: f32[128], %i: i64[], %j: i64[]) -> (f32[128], f32[64,128]) {
  %0 = index_put(%c, %x, %i) {dims=(0,), accumulate=False} : f32[64,128]
  %1 = basic_index(%0) {index=(("int",5),("slice",0,128,1))} : f32[128]
  %2 = mul(%1, 2.0:f32) : f32[128]
  %3 = index_put(%0, %2, %j) {dims=(0,), accumulate=False} : f32[64,128]
  return %2, %3
}"""
KEPT = {
    "adds": PUT.replace("False", "True"),
    "much": PUT.replace("64,128", "2,2048").replace("f32[128]", "f32[2048]"),
    "small": PUT.replace("64,128", "8,128"),
    "no result": """\
graph f(%c: f32[64,128], %x: f32[128], %i: i64[]) -> (f32[64]) {
  %0 = index_put(%c, %x, %i) {dims=(0,), accumulate=False} : f32[64,128]
  %1 = sum(%0) {dim=(1,), keepdim=False, dtype=None} : f32[64]
  return %1
}""",
}


def arrays(graph):
    rng = np.random.default_rng(0)
    return [
        rng.integers(0, 60, p.shape) if p.dtype.short == "i64" else rng.standard_normal(p.shape, np.float32)
        for p in graph.params
    ]


@pytest.mark.parametrize("text", [PUT, COPY, SCATTER, VIEW, TURNS])
def test_the_array_is_written_where_it_is(text):
    graph = parse(text)
    made = puts_apart(graph)
    assert {n.op.name for n in made.nodes} <= {"put", "basic_index", "mul"}
    results = len(graph.results)
    program = build_program(expand(made), (*(None,) * (results - 1), 0))
    plan = verify(plan_memory(with_checks(program)[0]))
    assert not plan.moves, str(plan)
    given = arrays(graph)
    wanted = interpret(graph, *given)
    for found in (interpret(made, *given), run(build_program(expand(made)), *given)):
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", KEPT)
def test_others_stay(name):
    graph = parse(KEPT[name])
    assert puts_apart(graph) is graph or str(puts_apart(graph)) == str(graph)


def test_an_array_that_is_kept_is_copied():
    program = build_program(expand(puts_apart(parse(PUT))))
    plan = verify(plan_memory(with_checks(program)[0]))
    assert [str(move) for moves in plan.moves.values() for move in moves] == ["param 0 -> result 0"]


def test_what_was_there_is_read_before_it_is_written():
    text = TURNS.replace("basic_index(%0)", "basic_index(%c)")
    program = build_program(expand(puts_apart(parse(text))), (None, 0))
    verify(plan_memory(with_checks(program)[0]))
    given = arrays(parse(text))
    for a, b in zip(run(program, *given), interpret(parse(text), *given), strict=True):
        np.testing.assert_array_equal(a, b)
