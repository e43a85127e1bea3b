"""bucket_collectives: golden texts, and what stays."""

import pytest
from golden_cases import shown

from lamina.ir import parse, verify
from lamina.passes.graphs import bucket_collectives as module
from lamina.passes.graphs.bucket_collectives import bucket_collectives

REDUCED = """
graph f(%a: f32[2,2], %b: f32[3], %c: i64[]) -> (f32[2,2], f32[3], i64[], f32[2,2]) {
  %0 = all_reduce(%a) {reduce="sum", group=(0,1)} : f32[2,2]
  %1 = exp(%0) : f32[2,2]
  %2 = all_reduce(%c) {reduce="sum", group=(0,1)} : i64[]
  %3 = all_reduce(%b) {reduce="sum", group=(0,1)} : f32[3]
  return %0, %3, %2, %1
}"""
BROADCAST = """
graph f(%a: f32[3], %n: i64[], %b: f32[3], %m: i64[]) -> (f32[3], i64[], f32[3], i64[]) {
  %0 = broadcast(%a) {src=0, group=(0,1)} : f32[3]
  %1 = broadcast(%n) {src=0, group=(0,1)} : i64[]
  %2 = broadcast(%b) {src=0, group=(0,1)} : f32[3]
  %3 = broadcast(%m) {src=0, group=(0,1)} : i64[]
  return %0, %1, %2, %3
}"""
GATHERED = """
graph f(%a: f32[2,3], %b: f32[2]) -> (f32[2,6], f32[4]) {
  %0 = all_gather(%a) {dim=1, group=(0,1)} : f32[2,6]
  %1 = all_gather(%b) {dim=0, group=(0,1)} : f32[4]
  return %0, %1
}"""
SCATTERED = """
graph f(%a: f32[3,4], %b: f32[2]) -> (f32[3,2], f32[1]) {
  %0 = reduce_scatter(%a) {dim=1, reduce="sum", group=(0,1)} : f32[3,2]
  %1 = reduce_scatter(%b) {dim=0, reduce="sum", group=(0,1)} : f32[1]
  return %0, %1
}"""
CHAIN = """
graph f(%a: f32[2], %b: f32[2], %c: f32[2]) -> (f32[2], f32[2], f32[2], f32[2]) {
  %0 = all_reduce(%a) {reduce="sum", group=(0,1)} : f32[2]
  %1 = all_reduce(%b) {reduce="sum", group=(0,1)} : f32[2]
  %2 = add(%0, %1) : f32[2]
  %3 = all_reduce(%2) {reduce="sum", group=(0,1)} : f32[2]
  %4 = all_reduce(%c) {reduce="sum", group=(0,1)} : f32[2]
  return %0, %1, %3, %4
}"""
CASES = {
    "what reads the first waits for the last": REDUCED,
    "statistics of layers": BROADCAST,
    "parts of other dims": GATHERED,
    "parts of sums": SCATTERED,
    "a collective of others' results is in the next": CHAIN,
}
TWO = """
graph f(%a: f32[4], %b: f32[4]) -> (f32[4], f32[4]) {
  %0 = all_reduce(%a) {reduce="sum", group=(0,1)} : f32[4]
  %1 = all_reduce(%b) {reduce="sum", group=(0,1)} : f32[4]
  return %0, %1
}"""
STAY = {
    "of its result": TWO.replace("all_reduce(%b)", "all_reduce(%0)"),
    "of another reduction": TWO.replace('%b) {reduce="sum"', '%b) {reduce="avg"'),
    "of another group": TWO.replace('%b) {reduce="sum", group=(0,1)', '%b) {reduce="sum", group=(1,0)'),
    "of other numbers": TWO.replace("%b: f32", "%b: f64").replace(
        '%b) {reduce="sum", group=(0,1)} : f32', '%b) {reduce="sum", group=(0,1)} : f64'
    ).replace("(f32[4], f32[4])", "(f32[4], f64[4])"),
    "of sizes that are symbols": TWO.replace("[4]", "[s1]"),
    "large ones": TWO.replace("[4]", f"[{module.SMALL // 4 + 1}]"),
    "one small one beside a large one": TWO.replace("%b: f32[4]", "%b: f32[99999]").replace(
        '%b) {reduce="sum", group=(0,1)} : f32[4]', '%b) {reduce="sum", group=(0,1)} : f32[99999]'
    ).replace("(f32[4], f32[4])", "(f32[4], f32[99999])"),
    "from another rank": BROADCAST.replace("%b) {src=0", "%b) {src=1").replace("%m) {src=0", "%m) {src=1"),
}  # fmt: skip


def test_bucket_collectives_golden(golden):
    golden(
        "passes/bucket_collectives",
        shown(bucket_collectives, {name: parse(text) for name, text in CASES.items()}),
    )


@pytest.mark.parametrize("name", STAY)
def test_what_stays(name):
    graph = parse(STAY[name])
    verify(graph)
    assert bucket_collectives(graph) is graph


def test_a_bucket_has_a_limit():
    count, n = 20, module.SMALL // 4
    params = ", ".join([f"%p{i}: f32[{n}]" for i in range(count)])
    lines = [f'  %{i} = all_reduce(%p{i}) {{reduce="sum", group=(0,1)}} : f32[{n}]' for i in range(count)]
    kinds, results = ", ".join([f"f32[{n}]"] * count), ", ".join([f"%{i}" for i in range(count)])
    text = "\n".join([f"graph f({params}) -> ({kinds}) {{", *lines, f"  return {results}", "}"])
    made = bucket_collectives(parse(text))
    verify(made)
    sizes = [node.inputs[0].type.size for node in made.nodes if node.op.traits.meets]
    assert sizes == [16 * n, 4 * n] and 16 * n * 4 == module.MOST
