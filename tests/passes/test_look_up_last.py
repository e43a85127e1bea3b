"""look_up_last: golden texts, refusals, random products of rows with their gradients, and rows left out."""

from functools import partial
from math import prod

import numpy as np
import pytest
from edited import edited
from golden_cases import shown

import lamina
from lamina.ir import parse, verify
from lamina.ir.dims import hints
from lamina.ir.dtypes import float64, int64
from lamina.ir.graph import Builder
from lamina.ir.interpret import interpret
from lamina.ir.ops.along import along, embedding
from lamina.ir.ops.gather import ungather
from lamina.ir.ops.matmul import linear, matmul
from lamina.ir.ops.reduce import sum as sum_
from lamina.ir.ops.view import permute, reshape, transpose
from lamina.ir.types import type_of
from lamina.passes.graphs.dce import dce
from lamina.passes.graphs.look_up_last import look_up_last

FORWARD = """
graph f(%ids: i64[8,16], %table: f32[40,16], %w: f32[32,16], %b: f32[32]) -> (f32[16,8,32]) {
  %0 = embedding(%ids, %table) {padding_idx=1} : f32[8,16,16]
  %1 = transpose(%0) {dim0=0, dim1=1} : f32[16,8,16]
  %2 = linear(%1, %w, %b) : f32[16,8,32]
  return %2
}"""
BACKWARD = """
graph f(%ids: i64[8,16], %table: f32[40,16], %w: f32[32,16], %g: f32[128,32]) -> (f32[32,16], f32[40,16], f32[32]) {
  %0 = embedding(%ids, %table) {padding_idx=None} : f32[8,16,16]
  %1 = transpose(%0) {dim0=0, dim1=1} : f32[16,8,16]
  %2 = reshape(%1) {shape=(128,16)} : f32[128,16]
  %3 = transpose(%g) {dim0=0, dim1=1} : f32[32,128]
  %4 = matmul(%3, %2) : f32[32,16]
  %5 = matmul(%g, %w) : f32[128,16]
  %6 = reshape(%5) {shape=(16,8,16)} : f32[16,8,16]
  %7 = transpose(%6) {dim0=0, dim1=1} : f32[8,16,16]
  %8 = reshape(%7) {shape=(128,16)} : f32[128,16]
  %9 = reshape(%ids) {shape=(128,1)} : i64[128,1]
  %10 = expand(%9) {size=(128,16)} : i64[128,16]
  %11 = ungather(%8, %10) {dim=0, shape=(40,16), combine="add"} : f32[40,16]
  %12 = sum(%g) {dim=(0,), keepdim=False, dtype=None} : f32[32]
  return %4, %11, %12
}"""  # noqa: E501
CASES = {
    "a product": FORWARD,
    "gradients": BACKWARD,
    "the rows are read, too": FORWARD.replace("(f32[16,8,32]) {", "(f32[16,8,32], f32[16,8,16]) {").replace(
        "return %2", "return %2, %1"
    ),
}
TABLE = """
graph f(%ids: i64[128,1], %w: f32[32,16], %g: f32[128,32]) -> (f32[40,16]) {
  %0 = matmul(%g, %w) : f32[128,16]
  %1 = expand(%ids) {size=(128,16)} : i64[128,16]
  %2 = ungather(%0, %1) {dim=0, shape=(40,16), combine="add"} : f32[40,16]
  return %2
}"""
COLUMNS = """
graph f(%ids: i64[8,16], %table: f32[40,8], %w: f32[32,8]) -> (f32[8,16,32]) {
  %0 = embedding(%ids, %table) {padding_idx=None} : f32[8,16,8]
  %1 = linear(%0, %w, none) : f32[8,16,32]
  return %1
}"""
MIXED = """
graph f(%ids: i64[16], %table: f32[4,16], %w: f32[32,16]) -> (f32[16,32]) {
  %0 = embedding(%ids, %table) {padding_idx=None} : f32[16,16]
  %1 = transpose(%0) {dim0=0, dim1=1} : f32[16,16]
  %2 = linear(%1, %w, none) : f32[16,32]
  return %2
}"""
REFUSED = {
    "not twice what the table has": FORWARD.replace("40,16", "65,16"),
    "few columns": COLUMNS,
    "halves, of which sums would be rounded": FORWARD.replace("f32", "f16"),
    "an open number of rows, and nothing says how many": FORWARD.replace("[8,16", "[s1,16").replace(
        "16,8,", "16,s1,"
    ),
    "a view that mixes columns": MIXED,
    "a product that others read": TABLE.replace("(f32[40,16])", "(f32[40,16], f32[128,16])").replace(
        "return %2", "return %2, %0"
    ),
    "a place for each element": TABLE.replace("i64[128,1]", "i64[128,16]").replace(
        "expand(%ids) {size=(128,16)}", "add(%ids, 0:i64)"
    ),
    "the greatest in place of the sum": TABLE.replace('"add"', '"max"'),
    "rows that nobody reads, whose places may be refused": FORWARD.replace(
        "(f32[16,8,32])", "(i64[8,16])"
    ).replace("return %2", "return %ids"),
}


def last(graph):
    return dce(look_up_last(graph))


def test_look_up_last_golden(golden):
    golden("passes/look_up_last", shown(last, {name: parse(text) for name, text in CASES.items()}))


@pytest.mark.parametrize("name", REFUSED)
def test_others_stay(name):
    graph = dce(parse(REFUSED[name]))
    assert look_up_last(graph) is graph


TAKEN = {
    "a table": TABLE,
    "columns enough": COLUMNS.replace(",8] {", ",16] {").replace(",8]", ",16]"),
    "rows under another shape": MIXED.replace(
        "transpose(%0) {dim0=0, dim1=1}", "reshape(%0) {shape=(16,16)}"
    ),
}


@pytest.mark.parametrize("name", TAKEN)
def test_what_the_refused_are_near_to_is_taken(name):
    graph = parse(TAKEN[name])
    assert look_up_last(graph) is not graph


@pytest.mark.parametrize("most, taken", [(4096, True), (4, False)])
def test_an_open_number_of_rows_goes_by_the_sizes_that_are_known_for_once(most, taken):
    graph = parse(REFUSED["an open number of rows, and nothing says how many"])
    block = hints({"s1": most})
    with block:
        assert (look_up_last(graph) is not graph) is taken
    assert len(block.chosen) == 1  # other sizes have a choice of their own


def viewed(rng, value):
    """The value after some views, of which most leave its rows whole; and the way back."""
    back = []
    for _ in range(rng.integers(0, 4)):
        shape, ndim = value.shape, value.ndim
        match rng.integers(0, 3):
            case 0 if ndim > 2:
                one, two = rng.choice(ndim - 1, 2, replace=False).tolist()
                value, undo = transpose(value, one, two), lambda v, a=one, b=two: transpose(v, a, b)
            case 1 if ndim > 2:
                dims = [*rng.permutation(ndim - 1).tolist(), ndim - 1]
                value, undo = permute(value, dims), partial(permute, dims=np.argsort(dims).tolist())
            case _:
                lead = prod(shape[:-1])
                first = int(rng.choice([n for n in range(1, lead + 1) if not lead % n]))
                to = (lead, shape[-1]) if rng.random() < 0.3 else (first, lead // first, shape[-1])
                value, undo = reshape(value, to), lambda v, s=shape: reshape(v, s)
        back.append(undo)
    return value, back[::-1]


def random_products(seed):
    """A graph that multiplies rows, and has gradients of that; its arrays."""
    rng = np.random.default_rng(seed)
    lead = tuple(int(n) for n in rng.integers(2, 9, rng.integers(1, 4)))
    count, columns, width = int(rng.integers(1, max(2, prod(lead) // 2))), int(rng.integers(16, 24)), 17
    n = prod(lead)
    with Builder("f") as b:
        ids, table = b.param(type_of(int64, lead)), b.param(type_of(float64, (count, columns)))
        weight, bias = b.param(type_of(float64, (width, columns))), b.param(type_of(float64, (width,)))
        g = b.param(type_of(float64, (n, width)))
        looked_up, back = viewed(rng, embedding(ids, table))
        flat = reshape(looked_up, (n, columns))
        made = linear(looked_up, weight, bias if rng.random() < 0.5 else None)
        if rng.random() < 0.5:
            made = matmul(looked_up, transpose(weight, 0, 1))
        to_weight = matmul(transpose(flat, 0, 1), g)
        if rng.random() < 0.5:
            to_weight = matmul(transpose(g, 0, 1), flat)
        values = reshape(matmul(g, weight), looked_up.shape)
        for undo in back:
            values = undo(values)
        places = along(reshape(ids, (n,)), 0, (count, columns))
        to_table = ungather(reshape(values, (n, columns)), places, 0, (count, columns))
        found = [made, to_weight, to_table, sum_(g, (0,))]
        kept = [v for v in found if rng.random() < 0.7] or found
        graph = b.finish(kept)
    arrays = [rng.standard_normal(p.shape) for p in graph.params]
    arrays[0] = rng.integers(0, count, lead)
    return graph, arrays


def differ(graph, made, arrays):
    verify(made)
    pairs = zip(interpret(graph, *arrays), interpret(made, *arrays), strict=True)
    return not all(np.allclose(x, y, rtol=1e-12, atol=1e-12, equal_nan=True) for x, y in pairs)


@pytest.mark.parametrize("seed", range(60))
def test_random_products_of_rows(seed):
    graph, arrays = random_products(seed)
    assert not differ(graph, last(graph), arrays)


def test_random_products_are_taken():
    taken = [look_up_last(graph) is not graph for graph in (random_products(seed)[0] for seed in range(60))]
    assert sum(taken) > 50


def test_what_nobody_asks_for_takes_no_part():
    """inf and NaN in a row that is not looked up, and in a weight where nothing comes of a row."""
    graph = parse(BACKWARD)
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 39, (8, 16))
    ids[ids == 7] = 8
    table, weight = rng.standard_normal((40, 16), np.float32), rng.standard_normal((32, 16), np.float32)
    table[7], table[39], weight[3, 3] = np.nan, np.inf, np.inf
    arrays = [ids, table, weight, rng.standard_normal((128, 32), np.float32)]
    to_weight, to_table, _ = interpret(look_up_last(graph), *arrays)
    assert np.isfinite(to_weight).all()
    assert (to_table[[7, 39]] == 0).all() and not np.isfinite(to_table[8, 3])


BUGS = {
    "the views of an index are forgotten": ("for view in self.views:", "for view in ():"),
    "the way back is taken forward": ("in reversed(self.views)", "in self.views"),
    "a permutation is not undone": ('inverse(view.attrs["dims"][:-1])', 'view.attrs["dims"][:-1]'),
    "rows times cotangents, turned": ("turned = node.inputs[1] is found.cotangents", "turned = False"),
    "columns are mixed": ("< source.ndim - 1", "< source.ndim"),
    "a bias is not added": ("node.op(rows.table, weight, *bias)", "node.op(rows.table, weight)"),
}


@pytest.mark.parametrize("name", BUGS)
def test_planted(name):
    wrong = edited("lamina.passes.graphs.look_up_last", *BUGS[name]).look_up_last

    def seen(graph, arrays):
        try:
            return differ(graph, dce(wrong(graph)), arrays)
        except Exception:
            return True

    assert any(seen(*random_products(seed)) for seed in range(100))


def test_a_network_of_letters_is_trained_alike():
    """Embedding, LSTM, linear: gradients as eagerly, and a place outside is refused at the user's line."""

    def step(ids):
        out = head(layer(words(ids))[0]).square().mean()
        out.backward()
        found = [p.grad.clone() for p in parameters]
        for p in parameters:
            p.grad = None
        return out, found

    lamina.manual_seed(0)
    words, layer, head = lamina.nn.Embedding(20, 16), lamina.nn.LSTM(16, 16), lamina.nn.Linear(16, 3)
    parameters = [p for part in (words, layer, head) for p in part.parameters()]
    traced = lamina.jit.trace(step)
    rng = np.random.default_rng(0)
    for shape in ((9, 20), (9, 20), (12, 17), (31, 8), (3, 5)):
        ids = lamina.tensor(rng.integers(0, 20, shape))
        (out, found), (wanted, gradients) = traced(ids), step(ids)
        np.testing.assert_allclose(out.detach().numpy(), wanted.detach().numpy(), rtol=1e-5)
        for one, two in zip(found, gradients, strict=True):
            np.testing.assert_allclose(one.numpy(), two.numpy(), rtol=1e-4, atol=1e-6)
    with pytest.raises(IndexError, match="embedding"):
        traced(lamina.tensor(np.full((12, 17), 20)))
