"""join_parts: golden texts, refusals, the same bits, and loops over slices."""

import numpy as np
import pytest
from golden_cases import shown

from lamina.ir import parse, verify
from lamina.ir.interpret import interpret
from lamina.passes.graphs.dce import dce
from lamina.passes.graphs.join_parts import join_parts

ROW = '{{shape=({n},2), chain=(("basic_index",(("index",({part},("slice",0,2,1))),)),)}} : f32[{n},2]'


def sum_of(*parts, n=3, result="{last}"):
    """The text of a sum of gradients of slices; an int is a row, a pair the rows from one to another."""
    lines, given = [], []
    for k, part in enumerate(parts):
        rows = f"{part[1] - part[0]},2" if isinstance(part, tuple) else "2"
        item = f'("slice",{part[0]},{part[1]},1)' if isinstance(part, tuple) else f'("int",{part})'
        given.append(f"%p{k}: f32[{rows}]")
        lines.append(f"  %{k} = unview(%p{k}) {ROW.format(n=n, part=item)}")
    last, count = 0, len(parts)
    for k in range(1, len(parts)):
        lines.append(f"  %{count} = add(%{last}, %{k}) : f32[{n},2]")
        last, count = count, count + 1
    returned = result.format(last=f"%{last}")
    kinds = ", ".join([f"f32[{n},2]"] * len(returned.split(",")))
    return "\n".join([f"graph f({', '.join(given)}) -> ({kinds}) {{", *lines, f"  return {returned}", "}"])


COLUMNS = """
graph f(%p: f32[2,3,1], %q: f32[2,3,4]) -> (f32[2,3,5]) {
  %0 = unview(%p) {shape=(2,3,5), chain=(("basic_index",(("index",(("slice",0,2,1),("slice",0,3,1),("slice",4,5,1))),)),)} : f32[2,3,5]
  %1 = unview(%q) {shape=(2,3,5), chain=(("basic_index",(("index",(("slice",0,2,1),("slice",0,3,1),("slice",0,4,1))),)),)} : f32[2,3,5]
  %2 = add(%0, %1) : f32[2,3,5]
  return %2
}"""  # noqa: E501
CASES = {
    "slices of the last dimension": COLUMNS,
    "rows one by one, in any order": sum_of(2, 0, 1),
    "slices beside a row": sum_of((0, 2), 2),
}
REFUSED = {
    "a row that nobody gives": sum_of(0, 2),
    "a row given twice": sum_of(0, 1, 2, 1),
    "slices that overlap": sum_of((0, 2), (1, 3)),
    "a sum that others read before it is done": sum_of(0, 1, 2, result="{last}, %3"),
    "a gradient that others read as a whole": sum_of(0, 1, 2, result="{last}, %1"),
    "slices of two dimensions": COLUMNS.replace("f32[2,3,4]) ->", "f32[1,3,5]) ->").replace(
        '("slice",0,2,1),("slice",0,3,1),("slice",0,4,1)', '("slice",0,1,1),("slice",0,3,1),("slice",0,5,1)'
    ),
    "columns that nobody gives": COLUMNS.replace("f32[2,3,4]", "f32[2,3,3]").replace("0,4,1", "0,3,1"),
    "one slice of all rows": sum_of((0, 3)),
    "columns": """
graph f(%p: f32[2], %q: f32[2]) -> (f32[2,2]) {
  %0 = unview(%p) {shape=(2,2), chain=(("basic_index",(("index",(("slice",0,2,1),("int",0))),)),)} : f32[2,2]
  %1 = unview(%q) {shape=(2,2), chain=(("basic_index",(("index",(("slice",0,2,1),("int",1))),)),)} : f32[2,2]
  %2 = add(%0, %1) : f32[2,2]
  return %2
}""",
}


def joined(graph):
    return dce(join_parts(graph))


def test_join_parts_golden(golden):
    golden("passes/join_parts", shown(joined, {name: parse(text) for name, text in CASES.items()}))


@pytest.mark.parametrize("name", REFUSED)
def test_other_sums_stay(name):
    graph = parse(REFUSED[name])
    assert join_parts(graph) is graph


@pytest.mark.parametrize("name", CASES)
def test_join_parts_again_changes_nothing(name):
    made = joined(parse(CASES[name]))
    assert join_parts(made) is made


@pytest.mark.parametrize("seed", range(10))
def test_joined_sums_have_the_same_bits(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 9))
    ends = [0, *sorted(rng.choice(np.arange(1, n), rng.integers(1, n), replace=False).tolist()), n]
    parts = [a if b == a + 1 and rng.random() < 0.5 else (a, b) for a, b in zip(ends, ends[1:], strict=False)]
    graph = parse(sum_of(*(parts[k] for k in rng.permutation(len(parts))), n=n))
    made = joined(graph)
    verify(made)
    assert "unview" not in str(made)
    odd = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, 3.0], np.float32)
    given = [rng.choice(odd, p.shape) for p in graph.params]
    (found,), (wanted,) = interpret(made, *given), interpret(graph, *given)
    number = ~np.isnan(wanted)
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(np.signbit(found)[number], np.signbit(wanted)[number])


def test_joined_columns_are_the_sum():
    graph = parse(COLUMNS)
    given = [np.random.default_rng(0).standard_normal(p.shape, np.float32) for p in graph.params]
    (found,), (wanted,) = interpret(joined(graph), *given), interpret(graph, *given)
    np.testing.assert_array_equal(found, wanted)


def test_slices_of_open_rows_are_joined():
    """Queries, keys and values of one product, of any number of tokens."""
    text = (
        COLUMNS.replace("[2,3,", "[s1,3,")
        .replace("(2,3,5)", "(s1,3,5)")
        .replace('"slice",0,2,1', '"slice",0,s1,1')
    )
    made = joined(parse(text))
    assert "cat(%q, %p) {dim=2, sizes=(4,1)}" in str(made)
    assert "unview" not in str(made)


def test_without_the_zero_a_sign_would_be_lost():
    """The planted bug: a `cat` alone keeps -0.0, which the sum does not."""
    graph = parse(CASES["slices beside a row"])
    given = [np.full(p.shape, -0.0, np.float32) for p in graph.params]
    made = joined(graph)
    (cat,) = (node for node in made.nodes if node.op.name == "cat")
    without = made.replace(results=cat.outputs)
    signs = [np.signbit(interpret(g, *given)[0]).any() for g in (graph, made, without)]
    assert signs == [False, False, True]
