"""fewer_collectives: golden texts, and what stays."""

import pytest
from golden_cases import shown

from lamina.ir import parse
from lamina.passes.graphs.fewer_collectives import fewer_collectives

SUMS = """
graph f(%a: f32[4], %b: f32[4], %c: f32[4]) -> (f32[4]) {
  %0 = all_reduce(%a) {reduce="sum", group=(0,1)} : f32[4]
  %1 = all_reduce(%b) {reduce="sum", group=(0,1)} : f32[4]
  %2 = add(%0, %1) : f32[4]
  %3 = all_reduce(%c) {reduce="sum", group=(0,1)} : f32[4]
  %4 = add(%2, %3) : f32[4]
  return %4
}"""
SHARDED = """
graph f(%g: f32[4,3], %w: f32[2,3]) -> (f32[4,3]) {
  %0 = all_reduce(%g) {reduce="sum", group=(3,1)} : f32[4,3]
  %1 = div(%0, 2.0:f32) : f32[4,3]
  %2 = basic_index(%1) {index=(("slice",2,4,1),("slice",0,3,1))} : f32[2,3]
  %3 = sub(%w, %2) : f32[2,3]
  %4 = all_gather(%3) {dim=0, group=(3,1)} : f32[4,3]
  return %4
}"""
PARTS = """
graph f(%a: f32[2,4]) -> (f32[2,4]) {
  %0 = reduce_scatter(%a) {dim=1, reduce="avg", group=(0,1)} : f32[2,2]
  %1 = all_gather(%0) {dim=1, group=(0,1)} : f32[2,4]
  return %1
}"""
GATHERED_TWICE = """
graph f(%a: f32[2]) -> (f32[4], f32[2]) {
  %0 = all_gather(%a) {dim=0, group=(0,1)} : f32[4]
  %1 = basic_index(%0) {index=(("slice",2,4,1),)} : f32[2]
  %2 = all_gather(%1) {dim=0, group=(0,1)} : f32[4]
  return %2, %1
}"""
SAME = """
graph f(%a: f32[2]) -> (f32[2], f32[2], f32[2]) {
  %0 = all_reduce(%a) {reduce="sum", group=(0,1)} : f32[2]
  %1 = all_reduce(%0) {reduce="avg", group=(0,1)} : f32[2]
  %2 = broadcast(%0) {src=0, group=(0,1)} : f32[2]
  %3 = all_reduce(%0) {reduce="sum", group=(0,1)} : f32[2]
  return %1, %2, %3
}"""
CASES = {
    "sums of a gradient of several layers' input": SUMS,
    "a gradient of which this rank updates its part": SHARDED,
    "parts that are put together again": PARTS,
    "a part of what was gathered is gathered": GATHERED_TWICE,
    "what all ranks have already": SAME,
}
TWO = """
graph f(%a: f32[4], %b: f32[4]) -> (f32[4], f32[4]) {
  %0 = all_reduce(%a) {reduce="sum", group=(0,1)} : f32[4]
  %1 = all_reduce(%b) {reduce="sum", group=(0,1)} : f32[4]
  %2 = add(%0, %1) : f32[4]
  return %2, %a
}"""
OPEN = """
graph f(%g: f32[2*s1,3]) -> (f32[s1,3]) {
  %0 = all_reduce(%g) {reduce="sum", group=(0,1)} : f32[2*s1,3]
  %1 = basic_index(%0) {index=(("slice",s1,2*s1,1),("slice",0,3,1))} : f32[s1,3]
  return %1
}"""
ACROSS = """
graph f(%a: f32[2,4]) -> (f32[4,2]) {
  %0 = reduce_scatter(%a) {dim=1, reduce="avg", group=(0,1)} : f32[2,2]
  %1 = all_gather(%0) {dim=0, group=(0,1)} : f32[4,2]
  return %1
}"""
UNREAD = """
graph f(%a: f32[2]) -> (f32[2]) {
  %0 = all_reduce(%a) {reduce="sum", group=(0,1)} : f32[2]
  return %a
}"""
STAY = {
    "a sum that is read by itself": TWO.replace("return %2, %a", "return %2, %0"),
    "halves, which would be rounded on each rank": TWO.replace("f32", "f16"),
    "largest ones": TWO.replace('"sum"', '"max"'),
    "sums and averages": TWO.replace('"sum"', '"avg"', 1),
    "of other groups": TWO.replace("(0,1)", "(0,2)", 1),
    "another rank's part": SHARDED.replace('"slice",2,4,1', '"slice",0,2,1'),
    "a part, and the whole": SHARDED.replace("-> (f32[4,3])", "-> (f32[4,3], f32[4,3])").replace(
        "return %4", "return %4, %0"
    ),
    "a part of a size that is a symbol": OPEN,
    "parts along another dim": ACROSS,
    "parts that are read": PARTS.replace("-> (f32[2,4])", "-> (f32[2,4], f32[2,2])").replace(
        "return %1", "return %1, %0"
    ),
    "one whose result nobody reads": UNREAD,
}


def as_rank_one(graph):
    return fewer_collectives(graph, 1)


def test_fewer_collectives_golden(golden):
    golden(
        "passes/fewer_collectives", shown(as_rank_one, {name: parse(text) for name, text in CASES.items()})
    )


@pytest.mark.parametrize("name", STAY)
def test_other_collectives_stay(name):
    graph = parse(STAY[name])
    kinds = [node.op.name for node in graph.nodes if node.op.traits.meets]
    assert [node.op.name for node in as_rank_one(graph).nodes if node.op.traits.meets] == kinds
