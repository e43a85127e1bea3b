"""functionalise: golden texts, refusals, and that the pure graph gives what the writes leave behind."""

import numpy as np
import pytest
from generate import agree, arrays_for, random_graph
from golden_cases import shown

from lamina.ir import parse, verify
from lamina.ir.write import write
from lamina.passes.graphs.functionalise import functionalise, written

ROW = '{index=(("int",0),("slice",0,3,1))}'
CASES = {
    "a view written: its base, views made before and after, and results are what they are at the end": f"""
graph f(%x: f32[2,3], %y: f32[2,3]) -> (f32[3], f32[6], f32[3]) {{
  %row = basic_index(%x) {ROW} : f32[3]
  %all = view(%x) {{shape=(6,)}} : f32[6]
  %0 = mul(%row, 2.0:f32) : f32[3]
  %1 = write(%row, %0) : f32[3]
  %2 = exp(%all) : f32[6]
  %later = basic_index(%x) {ROW} : f32[3]
  %3 = neg(%later) : f32[3]
  return %row, %2, %3
}}""",
    "overlapping slices, written one after the other": """
graph f(%x: f32[4]) -> (f32[4]) {
  %front = basic_index(%x) {index=(("slice",0,3,1),)} : f32[3]
  %back = basic_index(%x) {index=(("slice",1,4,1),)} : f32[3]
  %0 = add(%front, 1.0:f32) : f32[3]
  %1 = write(%front, %0) : f32[3]
  %2 = mul(%back, 2.0:f32) : f32[3]
  %3 = write(%back, %2) : f32[3]
  return %x
}""",
    "through a transpose of a slice": """
graph f(%x: f32[4,3], %y: f32[3,2]) -> (f32[4,3]) {
  %0 = basic_index(%x) {index=(("slice",0,4,2),("slice",0,3,1))} : f32[2,3]
  %1 = transpose(%0) {dim0=0, dim1=1} : f32[3,2]
  %2 = write(%1, %y) : f32[3,2]
  return %x
}""",
    "a whole tensor of another dtype, and what was made inside": """
graph f(%x: f32[3], %n: i64[3]) -> (f32[3], f32[3]) {
  %0 = write(%x, %n) : f32[3]
  %fresh = exp(%x) : f32[3]
  %1 = neg(%fresh) : f32[3]
  %2 = write(%fresh, %1) : f32[3]
  return %0, %fresh
}""",
    "two params exchanged": """
graph f(%x: f32[3], %y: f32[3]) -> () {
  %0 = clone(%x) {order="K"} : f32[3]
  %1 = write(%x, %y) : f32[3]
  %2 = write(%y, %0) : f32[3]
  return
}""",
    "an optimizer's update and its writes": """
graph f(%g: f32[2], %p: f32[2]) -> () {
  %0 = sgd_update(none, 0.1:f64, none, none, none, %g, %p) {count=1, nesterov=False, maximize=False} : f32[2]
  %1 = write(%p, %0) : f32[2]
  return
}""",
    "detached is the same memory, and stays detached": """
graph f(%x: f32[3]) -> (f32[3], f32[3]) {
  %0 = detach(%x) : f32[3]
  %1 = add(%x, 1.0:f32) : f32[3]
  %2 = write(%x, %1) : f32[3]
  %3 = mul(%0, 2.0:f32) : f32[3]
  return %3, %x
}""",
    "without writes only view changes, to the op that asks for no strides": """
graph f(%x: f32[2,3]) -> (f32[6]) {
  %0 = view(%x) {shape=(6,)} : f32[6]
  return %0
}""",
}  # fmt: skip
REFUSED = {
    "elements that share a place": """
graph f(%x: f32[3], %y: f32[2,3]) -> (f32[3]) {
  %0 = expand(%x) {size=(2,3)} : f32[2,3]
  %1 = write(%0, %y) : f32[2,3]
  return %x
}""",
    "windows that share a place": """
graph f(%x: f32[4], %y: f32[3,2]) -> (f32[4]) {
  %0 = unfold(%x) {dimension=0, size=2, step=1} : f32[3,2]
  %1 = write(%0, %y) : f32[3,2]  # model.py:3
  return %x
}""",
    "windows of a size that is open": """
graph f(%x: f32[2*n], %y: f32[n,2]) -> (f32[2*n]) {
  %0 = unfold(%x) {dimension=0, size=2, step=2} : f32[n,2]
  %1 = write(%0, %y) : f32[n,2]
  return %x
}""",
    "what a reshape took, and may share": """
graph f(%x: f32[2,3]) -> (f32[6]) {
  %0 = reshape(%x) {shape=(6,)} : f32[6]
  %1 = neg(%x) : f32[2,3]
  %2 = write(%x, %1) : f32[2,3]
  return %0
}""",
    "what a reshape gave": """
graph f(%x: f32[2,3]) -> (f32[2,3]) {
  %0 = reshape(%x) {shape=(6,)} : f32[6]
  %1 = neg(%0) : f32[6]
  %2 = write(%0, %1) : f32[6]
  return %x
}""",
}  # fmt: skip


def graphs(cases):
    return {name: parse(text) for name, text in cases.items()}


def test_functionalise_golden(golden):
    golden("passes/functionalise", shown(functionalise, graphs(CASES)))


def test_functionalise_refuses(golden):
    golden("passes/functionalise_refused", shown(functionalise, graphs(REFUSED)))


def test_functionalise_refuses_to_write_a_constant():
    node = "%0 = write(@t, @t) : f32[2]"
    graph = parse(f"graph f() -> () {{ @t : f32[2] {node} return }}", {"t": np.ones(2, np.float32)})
    with pytest.raises(ValueError, match="a constant can't be written\n.*\n  make it a param"):
        functionalise(graph)


@pytest.mark.parametrize("name", CASES)
def test_functionalise_examples_compute_the_same(name):
    graph = parse(CASES[name])
    agree(graph, functionalise(graph), arrays_for(graph, 0))


def test_windows_that_do_not_overlap_can_be_written():
    text = REFUSED["windows that share a place"].replace("step=1", "step=2").replace("[3,2]", "[2,2]")
    graph = parse(text)
    agree(graph, functionalise(graph), arrays_for(graph, 0))


def test_a_reshape_that_is_copied_before_the_write_is_what_it_was():
    text = REFUSED["what a reshape took, and may share"]
    kept = '  %kept = clone(%0) {order="C"} : f32[6]\n  %1 ='
    graph = parse(text.replace("  %1 =", kept).replace("return %0", "return %kept"))
    agree(graph, functionalise(graph), arrays_for(graph, 0))


def test_written_names_params_by_their_roots():
    assert written(parse(CASES["two params exchanged"])) == (0, 1)
    assert written(parse(CASES["through a transpose of a slice"])) == (0,)
    assert written(parse(CASES["an optimizer's update and its writes"])) == (1,)
    assert written(parse(CASES["without writes only view changes, to the op that asks for no strides"])) == ()


def test_functionalise_of_a_pure_graph_is_that_graph():
    graph = functionalise(random_graph(3, writes=True))
    assert functionalise(graph) is graph


@pytest.mark.parametrize("seed", range(100))
def test_functionalise_fuzz(seed):
    graph = random_graph(seed, writes=True)
    verify(graph)
    made = functionalise(graph)
    verify(made)
    assert not any(node.op is write for node in made.nodes)
    agree(graph, made, arrays_for(graph, seed))
