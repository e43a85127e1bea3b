"""simplify: an example of each rule, what looks like one and is not, and that not a bit changes."""

import numpy as np
import pytest
from generate import agree, arrays_for, pure_graph, random_graph
from golden_cases import shown

from lamina.ir import Builder, Constant, symbol, type_of, verify
from lamina.ir.dtypes import bool_, float16, float32, float64, int8, int32, int64, uint8
from lamina.ir.op import REGISTRY
from lamina.ir.views import step
from lamina.passes.graphs.dce import dce
from lamina.passes.graphs.simplify import RULES, composed, holds, simplify

op = REGISTRY
n = symbol("n")
MATRIX = type_of(float32, (2, 3))


def graph(function, *types):
    """The graph of a function of values: a matrix, unless types are given."""
    with Builder("f") as b:
        params = [b.param(t, name) for t, name in zip(types or (MATRIX,), "xyz", strict=False)]
        return b.finish(function(*params))


def full(value, size=(2, 3), dtype=float32):
    return Constant(np.full(size, value, dtype.numpy), "c")


def scatter(x, v, *chain):
    return op["view_scatter"](x, v, chain)


ROW = step("basic_index", index=(("int", 0), ("slice", 0, 3, 1)))
OTHER_ROW = step("basic_index", index=(("int", 1), ("slice", 0, 3, 1)))
EXAMPLES = {
    "x * 1 -> x": graph(lambda x: x * 1.0),
    "1 * x -> x": graph(lambda x: op["mul"](op["ones_like"](x), x)),
    "x / 1 -> x": graph(lambda x: x / 1.0),
    "x / 2**k -> x * 2**-k": graph(lambda x: x / 4.0 + x / -0.125),
    "x + -0.0 -> x": graph(lambda x: x + -0.0),
    "-0.0 + x -> x": graph(lambda x: -0.0 + x),
    "x + 0.0 -> x, where x is never -0.0": graph(lambda x: (op["exp"](x) + 0.0, (x + 0.0) + 0.0)),
    "x - 0.0 -> x": graph(lambda x: x - 0.0),
    "pow(x, 2) -> square(x), and as its reference for 1, 0.5, -0.5, -1": graph(
        lambda x: [x**e for e in (1.0, 2.0, 0.5, -0.5, -1.0)]
    ),
    "f(f(x)) -> x": graph(lambda x: op["neg"](-x)),
    "f(f(x)) -> f(x)": graph(lambda x: op["relu"](op["relu"](x))),
    "abs(-x) -> abs(x)": graph(lambda x: abs(-x)),
    "cast(x) to its own dtype -> x": graph(lambda x: op["cast"](x, dtype=float32)),
    "cast(cast(x)) -> cast(x), where the first loses nothing": graph(
        lambda x, y: (
            op["cast"](op["cast"](x, dtype=float32), dtype=float16),
            op["cast"](op["cast"](y, dtype=int64), dtype=float64),
        ),
        type_of(float16, (3,)), type_of(int8, (3,)),
    ),
    "clone(x) -> x": graph(lambda x: op["clone"](x)),
    "where(True, a, b) -> a, where(c, a, a) -> a": graph(
        lambda x, y, z: (op["where"](np.asarray(True), y, x), op["where"](z, y, y)),
        MATRIX, type_of(int32, (3,)), type_of(bool_, (3,)),
    ),
    "copy(x, src) -> src, cast and expanded": graph(
        lambda x, y: op["copy"](x, y), MATRIX, type_of(int64, (3,))
    ),
    "zeros_like(x) -> zeros()": graph(
        lambda x: (op["zeros_like"](x), op["ones_like"](x), op["full_like"](x, 2.5), op["fill"](x, 7))
    ),
    "view(x) -> reshape(x)": graph(lambda x: op["view"](x, (3, 2))),
    "reshape(x) to its own shape -> x": graph(lambda x: op["reshape"](x, (2, 3)) * op["expand"](x, (2, 3))),
    "reshape(reshape(x)) -> reshape(x)": graph(
        lambda x: (op["unsqueeze"](op["reshape"](x, (3, 2)), 0), op["squeeze"](op["unsqueeze"](x, 0), 0))
    ),
    "transpose(transpose(x)) -> permute(x), or x": graph(
        lambda x, y: (
            op["transpose"](op["transpose"](x, 0, 1), 0, 1),
            op["permute"](x, (0, 1)),
            op["transpose"](op["permute"](y, (1, 2, 0)), 0, 1),
            op["permute"](op["permute"](y, (1, 2, 0)), (1, 2, 0)),
        ),
        MATRIX, type_of(float32, (2, 3, 4)),
    ),
    "expand(expand(x)) -> expand(x)": graph(
        lambda x: op["expand"](op["expand"](x, (2, 3)), (4, 2, 3)), type_of(float32, (2, 1))
    ),
    "x[:] -> x": graph(lambda x: x[:, :]),
    "x[i][j] -> x[k]": graph(lambda x: x[1:8:2, 0][None, 1:3], type_of(float32, (9, 2))),
    "cat(x, y)[i] -> y[j], which has all of it, transposed or not": graph(
        lambda x, y: (
            op["cat"]((x, y), 0)[3:, 1],
            op["cat"]((x, y), 1)[:, 2],
            op["transpose"](op["cat"]((x, y), 0), 0, 1)[:, -2:],
            op["permute"](op["stack"]((x, y), 1), (2, 0, 1))[1:, :, -1],
            op["stack"]((x, y), 0)[0, ::2],
        ),
        MATRIX, MATRIX,
    ),
    "amax(x) over sizes of 1 -> reshape(x)": graph(lambda x: op["amax"](x, 1), type_of(float32, (3, 1))),
    "view_scatter twice by one chain -> the second": graph(
        lambda x, y, z: scatter(scatter(x, y, ROW), z, ROW), MATRIX, *[type_of(float32, (3,))] * 2
    ),
    "view_scatter(x, v) over all of x -> v, the views undone": graph(
        lambda x, y, z: (
            scatter(x, y, step("transpose", dim0=0, dim1=1), step("view", shape=(6,))),
            scatter(z, op["new_ones"](x, 4, 3, 2), step("permute", dims=(2, 1, 0))),
            scatter(z, op["new_ones"](x, 3, 4, 2), step("permute", dims=(1, 2, 0))),
        ),
        MATRIX, type_of(float32, (6,)), type_of(float32, (2, 3, 4)),
    ),
    "cat(x) -> x": graph(lambda x: op["cat"]((x,), 0)),
    "pad(x) by nothing -> x": graph(lambda x: op["constant_pad"](x, ((0, 0), (0, 0)))),
}  # fmt: skip

KEPT = {
    "x + 0.0 makes 0.0 of -0.0": graph(lambda x: x + 0.0),
    "so does the integer 0 beside a float": graph(lambda x: op["add"](x, Constant(np.asarray(0)))),
    "x - -0.0 does too": graph(lambda x: x - -0.0),
    "exp(x) - 1 + 0.0 is never -0.0, but nothing here knows": graph(lambda x: (op["exp"](x) - 1.0) + 0.0),
    "a sum of halves and a tiny f32 may round to -0.0": graph(
        lambda x: (abs(x) + -1e-30) + 0.0, type_of(float16, (3,))
    ),
    "abs(-1) of u8 is 255": graph(lambda x: abs(-x), type_of(uint8, (3,))),
    "x * 0.0 makes NaN of inf": graph(lambda x: x * 0.0),
    "0.0 - x is no negation: 0.0 - 0.0 is 0.0": graph(lambda x: 0.0 - x),
    "x - x is NaN for inf, x / x for 0.0": graph(lambda x: (x - x) + x / x),
    "(x * 2.0) * 3.0 rounds twice": graph(lambda x: (x * 2.0) * 3.0),
    "x / 3.0 is not x * (1 / 3.0)": graph(lambda x: x / 3.0),
    "x / 0.0, x / inf": graph(lambda x: x / 0.0 + x / float("inf")),
    "1 / 2**-130 is no f32": graph(lambda x: x / 2.0**-130),
    "pow(x, 2) of a tensor of twos is approximated": graph(lambda x: x ** full(2.0)),
    "i64 * 1.0 is f32": graph(lambda x: x * 1.0, type_of(int64, (3,))),
    "x * ones of a larger shape": graph(lambda x: x * full(1.0), type_of(float32, (3,))),
    "f32 * ones of f64": graph(lambda x: x * full(1.0, (3,), float64), type_of(float32, (3,))),
    "f32 through f16 loses digits": graph(lambda x: op["cast"](op["cast"](x, dtype=float16), dtype=float32)),
    "i64 through f64 loses digits": graph(
        lambda x: op["cast"](op["cast"](x, dtype=float64), dtype=int64), type_of(int64, (3,))
    ),
    "i32 through f64 to i8: out of range floats promise nothing": graph(
        lambda x: op["cast"](op["cast"](x, dtype=float64), dtype=int8), type_of(int32, (3,))
    ),
    "not not x is a bool": graph(lambda x: op["logical_not"](op["logical_not"](x))),
    "where(c, a, b)": graph(lambda x: op["where"](x > 0.0, x, -x)),
    "a sum of one -0.0 is 0.0": graph(lambda x: op["sum"](x, 1), type_of(float32, (3, 1))),
    "expand then reshape": graph(lambda x: op["reshape"](op["expand"](x, (2, 2, 3)), (4, 3))),
    "x[j] of a size that is open": graph(lambda x: x[1:][1:], type_of(float32, (n,))),
    "an index that two parts have": graph(
        lambda x, y: (op["cat"]((x, y), 0)[1:3], op["stack"]((x, y), 0)[:1], op["cat"]((x, y), 0)[2:2]),
        MATRIX, MATRIX,
    ),
    "scatters by two chains": graph(
        lambda x, y: scatter(scatter(x, y, ROW), y, OTHER_ROW),
        MATRIX, type_of(float32, (3,)),
    ),
    "two flips of other dims": graph(lambda x: op["flip"](op["flip"](x, 0), 1)),
}  # fmt: skip


def simple(graph):
    return dce(simplify(graph))


def test_simplify_golden(golden):
    assert list(EXAMPLES) == [rule.text for rule in RULES], "an example for each rule, in order"
    golden("passes/simplify", shown(simple, EXAMPLES))


@pytest.mark.parametrize("name", EXAMPLES)
def test_simplify_examples_compute_the_same(name):
    before = EXAMPLES[name]
    after = simple(before)
    assert str(after) != str(before)
    for seed in range(5):
        agree(before, after, arrays_for(before, seed))


@pytest.mark.parametrize("name", KEPT)
def test_simplify_keeps(name):
    assert str(simple(KEPT[name])) == str(KEPT[name])


def test_simplify_refuses_writes():
    writing = random_graph(0, writes=True)
    with pytest.raises(ValueError, match="simplify: graph random holds writes"):
        simplify(writing)


@pytest.mark.parametrize("seed", range(60))
def test_simplify_fuzz(seed):
    before = pure_graph(seed)
    after = simplify(before)
    verify(after)
    assert str(simplify(after)) == str(after)
    agree(before, after, arrays_for(before, seed))


def test_composed_indices_take_what_both_take():
    x = np.arange(7 * 6).reshape(7, 6)
    rng = np.random.default_rng(0)
    for _ in range(300):
        inner = tuple(_item(rng, size) for size in x.shape)
        y = op["basic_index"](x, inner)
        outer = tuple(_item(rng, size) for size in y.shape)
        canonical = [op["basic_index"].bind(a, i)[1]["index"] for a, i in ((x, inner), (y, outer))]
        index = composed(*canonical)
        assert index == op["basic_index"].bind(x, index)[1]["index"], "it is canonical"
        np.testing.assert_array_equal(op["basic_index"](x, index), op["basic_index"](y, outer))


def _item(rng, size):
    if size and rng.random() < 0.3:
        return int(rng.integers(size))
    return slice(int(rng.integers(size + 1)), int(rng.integers(size + 2)), int(rng.integers(1, 4)))


def test_a_dtype_that_holds_another_gives_its_values_back():
    from_all = {d: np.arange(-300, 300).astype(np.int64) for d in (int8, int32, int64, float16)}
    for narrow, numbers in from_all.items():
        values = numbers.astype(narrow.numpy)
        for wide in (bool_, int8, int32, int64, float16, float32, float64):
            if holds(wide, narrow):
                np.testing.assert_array_equal(values.astype(wide.numpy).astype(narrow.numpy), values)
    assert holds(float64, int32) and not holds(float32, int32) and not holds(float64, int64)
