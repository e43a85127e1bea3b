"""Symbolic sizes through the rules of real ops: shapes, conditions and gradients."""

import numpy as np
import pytest
from graphs import n

from lamina.ir import Builder, interpret, parse, specialise, symbol, type_of, verify
from lamina.ir.dtypes import float64
from lamina.ir.errors import ShapeError
from lamina.ir.op import COMPOSITES, REGISTRY
from lamina.passes.graphs.differentiate import differentiate

m, h, w = map(symbol, "mhw")
SIZES = {"n": 4, "m": 6, "h": 7, "w": 9}


def op(name):
    return REGISTRY[name] if name in REGISTRY else COMPOSITES[name].function


CASES = {
    "add": (lambda x, y: x + y, [(n, 3), (n, 3)], "[n,3]", []),
    "add of symbols": (lambda x, y: x + y, [(n, 3), (m, 1, 1)], "[m,n,3]", []),
    "add of two names": (lambda x, y: x + y, [(n, 3), (m, 3)], "[n,3]", ["n == m"]),
    "add of a number": (lambda x, y: x + y, [(n, 3), (4, 3)], "[4,3]", ["n == 4"]),
    "matmul": (lambda x, y: x @ y, [(n, m), (m, 4)], "[n,4]", []),
    "matmul of batches": (lambda x, y: x @ y, [(n, 3, m), (n, m, 4)], "[n,3,4]", []),
    "cat": (lambda x, y: op("cat")((x, y), dim=0), [(n, 3), (m, 3)], "[m+n,3]", []),
    "flatten": (lambda x: op("flatten")(x, 1), [(n, h, w)], "[n,h*w]", []),
    "reshape": (lambda x: op("reshape")(x, -1, 4), [(n, 4)], "[n,4]", []),
    "reshape to pairs": (lambda x: op("reshape")(x, -1, 2), [(n,)], "[n//2,2]", ["2*(n//2) == n"]),
    "conv2d": (
        lambda x, k: op("conv2d")(x, k, stride=2, padding=1),
        [(n, 3, h, w), (5, 3, 3, 3)],
        "[n,5,(h+1)//2,(w+1)//2]",
        ["h-1 >= 0", "w-1 >= 0"],
    ),
    "mean": (lambda x: op("mean")(x, dim=0), [(n, 3)], "[3]", []),
    "softmax": (lambda x: op("softmax")(x, dim=1), [(n, m)], "[n,m]", []),
    "layer_norm": (lambda x: op("layer_norm")(x, (4,)), [(n, 4)], "[n,4]", []),
    "slice": (lambda x: x[1:], [(n, 4)], "[-min(1,n)+n,4]", []),
}


def built(make, shapes):
    with Builder("g") as b:
        return b.finish(make(*[b.param(type_of(float64, shape)) for shape in shapes]))


@pytest.mark.parametrize("name", CASES)
def test_symbols_go_through(name):
    make, shapes, result, wanted = CASES[name]
    graph = built(make, shapes)
    assert str(graph.results[0].type) == "f64" + result
    assert list(map(str, verify(graph))) == wanted
    assert str(parse(str(graph))) == str(graph)


@pytest.mark.parametrize("name", [name for name in CASES if "add of" not in name])
def test_one_graph_serves_all_sizes(name):
    """The symbolic gradient, given sizes, is the gradient of the graph made with those sizes."""
    make, shapes, _, _ = CASES[name]
    symbolic = differentiate(built(make, shapes))
    verify(symbolic)
    sizes = [tuple(SIZES.get(str(d), d) for d in shape) for shape in shapes]
    known = differentiate(built(make, sizes))
    verify(specialise(symbolic, SIZES))
    arrays = [np.random.uniform(0.5, 1.5, p.shape) for p in known.params]
    for got, expected in zip(interpret(symbolic, *arrays), interpret(known, *arrays), strict=True):
        # the same ops in the same order, but for a size: as a number beside the operands or within them
        np.testing.assert_allclose(got, expected, rtol=4 * 2.0**-53)


def test_sizes_become_numbers_where_a_graph_computes_with_them():
    with Builder("g") as b:
        x = b.param(type_of(float64, (n, 3)), "x")
        graph = b.finish(x / n)
    assert (
        str(graph)
        == """\
graph g(%x: f64[n,3]) -> (f64[n,3]) {
  %0 = size() {value=n} : i64[]
  %1 = div(%x, %0) : f64[n,3]
  return %1
}"""
    )
    np.testing.assert_array_equal(interpret(graph, np.ones((4, 3)))[0], np.full((4, 3), 0.25))


def test_sizes_that_never_fit_are_refused():
    with pytest.raises(ShapeError, match="don't broadcast"):
        built(lambda x, y: x + y, [(2 * n, 3), (2 * m + 1, 3)])
    with pytest.raises(ShapeError, match="4"):
        built(lambda x, y: x @ y, [(n, 3), (4, m)])
