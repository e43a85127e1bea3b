"""begin_apart: a golden text, what gains nothing, the same bits, and layers of networks."""

from functools import partial

import numpy as np
import pytest
from edited import edited
from golden_cases import shown

import lamina
from lamina.ir.dtypes import float32, float64
from lamina.ir.graph import Builder, Constant
from lamina.ir.interpret import interpret
from lamina.ir.op import REGISTRY as OPS
from lamina.ir.recur import recur
from lamina.ir.types import type_of
from lamina.ir.verify import verify
from lamina.passes.graphs import begin_apart as module
from lamina.passes.graphs.begin_apart import begin_apart

WEIGHTS = frozenset((1, 2))


def step(elements, states, fixed):
    (x,), (h, c), (w, b) = elements, states, fixed
    c = c * 0.5 + OPS["linear"](h, w, b)
    h = OPS["tanh"](x + c)
    return (h, c), (h * x,)


def repeated(count=5, kept=(True, False), back=False, rows=0, given=False, size=16, dtype=float64):
    """A loop that begins with zeros, or with a state that is given for both."""
    with Builder("net") as b:
        x = b.param(type_of(dtype, (count, 2, size)), "x")
        w, bias = b.param(type_of(dtype, (size, size)), "w"), b.param(type_of(dtype, (size,)), "b")
        zeros = Constant(np.zeros((2, size), dtype.numpy), "zeros")
        h = b.param(type_of(dtype, (2, size)), "h") if given else zeros
        return b.finish(recur(step, (x,), (h, h), (w, bias), kept, back, rows))


def arrays_of(graph, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.uniform(-1, 1, p.shape).astype(p.dtype.numpy) for p in graph.params]


def test_begin_apart_golden(golden):
    cases = {
        "zeros times a weight": repeated(3, dtype=float32, size=64),
        "from the end": repeated(2, back=True, size=64),
        "a longer sequence": repeated(20, size=64),
    }
    golden("passes/begin_apart", shown(partial(begin_apart, frozen=WEIGHTS), cases))


CASES = [
    (count, kept, back)
    for count in (2, 3, 9)
    for kept in ((True, True), (True, False), (False, True), (False, False))
    for back in (False, True)
]


@pytest.mark.parametrize(("count", "kept", "back"), CASES)
def test_the_bits_are_the_same(count, kept, back, monkeypatch):
    monkeypatch.setattr(module, "SHARE", 0)
    graph = repeated(count, kept, back)
    made = begin_apart(graph, WEIGHTS)
    verify(made)
    assert [n.op.name for n in made.nodes].count("linear") == 1
    arrays = arrays_of(graph)
    for found, wanted in zip(interpret(made, *arrays), interpret(graph, *arrays), strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    "case",
    [{"count": 1}, {"rows": 1}, {"given": True}, {"count": 200, "size": 64}],
    ids=["one run", "blocks of rows", "a state that is given", "more to copy than to multiply"],
)
def test_what_gains_nothing_stays(case):
    graph = repeated(**case)
    assert begin_apart(graph, WEIGHTS) is graph or str(begin_apart(graph, WEIGHTS)) == str(graph)


def test_weights_that_change_stay():
    assert str(begin_apart(repeated(), frozenset())) == str(repeated())


def test_planted_bugs_are_caught():
    for right, wrong in (
        ("first, rest = (count - 1, slice(0, count - 1)) if", "first, rest = (0, slice(1, count)) if"),
        ('parts[::-1] if attrs["back"] else parts', "parts"),
        ("*begun[:states]", "*inputs[split : split + states]"),
    ):
        bad = edited("lamina.passes.graphs.begin_apart", right, wrong)
        bad.SHARE = 0
        graph = repeated(back=True)
        arrays = arrays_of(graph)
        pairs = zip(interpret(bad.begin_apart(graph, WEIGHTS), *arrays), interpret(graph, *arrays))
        assert not all(np.array_equal(a, b) for a, b in pairs), wrong


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize(
    "how", [{}, {"num_layers": 2, "bidirectional": True}, {"batch_first": True}], ids=str
)
def test_a_layer_without_a_state_multiplies_weights_by_zeros_once(kind, how):
    lamina.manual_seed(0)
    layer = getattr(lamina.nn, kind)(8, 24, **how).eval()
    x = lamina.randn(3, 1, 8) if "batch_first" not in how else lamina.randn(1, 3, 8)
    traced = lamina.jit.trace(lambda x: layer(x)[0])
    with lamina.no_grad():
        wanted = layer(x)
        traced(x)
        for _ in range(2):
            np.testing.assert_allclose(traced(x).numpy(), wanted[0].numpy(), rtol=1e-5, atol=1e-6)
        for p in layer.parameters():  # which counts: the next call must not find what was
            p.mul_(1.5)
        np.testing.assert_allclose(traced(x).numpy(), layer(x)[0].numpy(), rtol=1e-5, atol=1e-6)
        layer.weight_hh_l0[0, 0] = float("inf")  # times zero
        np.testing.assert_array_equal(np.isnan(traced(x).numpy()), np.isnan(layer(x)[0].numpy()))
