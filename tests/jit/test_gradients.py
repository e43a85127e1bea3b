"""What a compiled half gives: arrays of their own, in whatever way params, constants and writes meet."""

import numpy as np

import lamina
from lamina.ir import Builder, parse, type_of
from lamina.ir.detach import detach
from lamina.ir.dtypes import float64
from lamina.jit.backend import compile_graph
from lamina.jit.gradients import Program, without_detach

TYPE = type_of(float64, (3,))


def graph_of(function, params=2):
    with Builder("f") as b:
        return b.finish(function(*(b.param(TYPE, "xyz"[i]) for i in range(params))))


def arrays(count):
    return [np.random.randn(3) for _ in range(count)]


def program(graph, into=None, compiled=compile_graph):
    return Program(graph, into or (None,) * len(graph.results), frozenset(), compiled)


def test_results_are_arrays_of_their_own():
    def repeated(x, y):
        total = x + y
        return [total, total, x, x, y]

    x, y = arrays(2)
    found = program(graph_of(repeated)).run([x, y])
    for one, two in zip(found, (x + y, x + y, x, x, y), strict=True):
        np.testing.assert_array_equal(one, two)
    everything = [*found, x, y]
    for i, one in enumerate(everything):
        assert not any(np.shares_memory(one, other) for other in everything[:i])


def test_params_that_change_places_do_so_at_once():
    x, y = arrays(2)
    a, b = x.copy(), y.copy()
    found = program(graph_of(lambda x, y: [y, x, x + y]), (0, 1, None)).run([a, b])
    assert found[0] is a and found[1] is b
    for one, two in zip(found, (y, x, x + y), strict=True):
        np.testing.assert_array_equal(one, two)


def test_constants_are_copied_into_params_and_results():
    zeros = np.zeros(3)
    with Builder("f") as b:
        b.param(TYPE, "x")
        c = b.constant(zeros, "c")
        graph = b.finish([c, c])
    (x,) = arrays(1)
    one, two = program(graph, (0, None)).run([x])
    assert one is x and not x.any() and two.flags.writeable and not np.shares_memory(two, zeros)


def test_what_is_compiled_gets_rows_without_gaps_and_writes_reach_the_original():
    class Strict:
        def __init__(self, graph, **how):
            self.inner = compile_graph(graph, **how)

        def run(self, given, tensors=None):
            assert all(a.flags.c_contiguous for a in given) and tensors is None
            return self.inner.run(given)

    wide, other = np.random.randn(3, 2), np.random.randn(3, 2)
    x, y = wide[:, 0], other[:, 1]
    expected = x + y
    strict = Program(graph_of(lambda x, y: x + y), (0,), frozenset({1}), Strict)
    (found,) = strict.run([x, y], [lamina.tensor(x), lamina.tensor(y)])
    assert found is x
    np.testing.assert_array_equal(wide[:, 0], expected)


def test_nothing_is_compiled_for_what_needs_no_computing():
    def refused(graph, **how):
        raise AssertionError("compiled")

    (x,) = arrays(1)
    (found,) = program(graph_of(lambda x: [detach(x)], 1), compiled=refused).run([x])
    np.testing.assert_array_equal(found, x)


def test_detach_nodes_are_gone_from_what_is_compiled():
    text = """\
graph f(%x: f32[3]) -> (f32[3], f32[3]) {
  %0 = detach(%x) : f32[3]
  %1 = exp(%0) : f32[3]
  %2 = detach(%1) : f32[3]
  return %2, %0
}"""
    assert (
        str(without_detach(parse(text)))
        == """\
graph f(%x: f32[3]) -> (f32[3], f32[3]) {
  %0 = exp(%x) : f32[3]
  return %0, %x
}"""
    )
    graph = parse(text.replace("detach", "neg"))
    assert without_detach(graph) is graph


def test_results_made_of_weights_alone_are_copies_of_what_is_kept():
    graph = graph_of(lambda w: [w * 2.0], 1)
    weight = lamina.randn(3, dtype=float64)
    made = Program(graph, (None,), frozenset({0}), compile_graph)
    for _ in range(3):
        (found,) = made.run([weight._data], [weight])
        np.testing.assert_array_equal(found, weight._data * 2.0)
        found += 1.0
