"""What an ONNX model may take: memory, nodes of loops, time to load; constants are computed once."""

import os
import re
from unittest import mock

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the package onnx is not installed: pip install 'lamina[onnx]'")

from onnx import helper, numpy_helper, parser

import lamina
from lamina.exchange.onnx import running
from lamina.exchange.onnx.running import Scope
from lamina.ir.errors import OutOfMemoryError
from lamina.runtime import allowance

MOST = 1 << 26
HEAD = '<ir_version: 9, opset_import: ["" : 20]> '


def loaded(text, **bounds):
    return lamina.onnx.load(
        parser.parse_model(HEAD + text).SerializeToString(), **{"most_bytes": MOST, **bounds}
    )


BIG, HUGE = 1 << 34, (1 << 63) - 1
VALUES = {
    "n": f"int64[1] n = {{{BIG}}}", "many": f"int64[2] many = {{{1 << 20}, {1 << 20}}}",
    "one": "int64 one = {1}",
    "zero": "int64 zero = {0}", "big": f"int64 big = {{{BIG}}}", "pads": f"int64[2] pads = {{0, {BIG}}}",
    "two": "float[2] two = {0, 1}", "rows": "float[1,1,2] rows = {1, 2}", "at": "int64[1] at = {0}",
    "times": "float[1] times = {1e12}", "picture": f"int64[4] picture = {{1, 1, {1 << 20}, {1 << 20}}}",
    "theta": "float[1,2,3] theta = {1, 0, 0, 0, 1, 0}",
}  # fmt: skip
# What asks for more than memory holds, each within a file of a few hundred bytes.
GREEDY = {
    "Expand": "z = Expand(x, n) y = Neg(z)", "Tile": "y = Tile(x, n)", "Pad": "y = Pad(x, pads)",
    "ConstantOfShape": "z = ConstantOfShape(many) y = Add(z, x)", "Range": "y = Range(zero, big, one)",
    "EyeLike": "z = ConstantOfShape(many) y = EyeLike(z)", "Resize": "y = Resize(x, , times)",
    "OneHot": "z = ConstantOfShape<value = int64[1] {0}>(n) y = OneHot(z, one, two)",
    "Gather": "z = ConstantOfShape<value = int64[1] {0}>(n) y = Gather(x, z)",
    "NonZero": "z = ConstantOfShape(many) y = NonZero(z)",
    "a product": "z = ConstantOfShape(many) y = MatMul(z, z)",
    "a text": "z = ConstantOfShape(n) y = Cast<to = 8>(z)",
    "parts": "z = ConstantOfShape(n) q = SplitToSequence(z, one) y = SequenceLength(q)",
    "padding that windows jump over": f"y = Conv<pads = [{BIG}, {BIG}], strides = [{BIG}]>(rows, rows)",
    "what is cut off": f"y = ConvTranspose<pads = [{BIG}, {BIG}], strides = [{2 * BIG}]>(rows, rows)",
    "windows": f"y = AveragePool<kernel_shape = [{BIG}], pads = [{BIG - 1}, {BIG - 1}]>(rows)",
    "random numbers": "y = RandomNormal<shape = [16384, 16384]>()",
    "a grid": "y = AffineGrid(theta, picture)",
}  # fmt: skip


@pytest.mark.parametrize("name", GREEDY)
def test_what_would_be_too_much_is_refused_before_memory_is_taken(name):
    body = GREEDY[name]
    constants = ", ".join(v for key, v in VALUES.items() if re.search(rf"\b{key}\b", body))
    model = loaded(f"agraph (float[1] x) => (float[k] y) <{constants or VALUES['one']}> {{ {body} }}")
    before = allowance._own()
    with pytest.raises((OutOfMemoryError, lamina.onnx.OnnxError)) as caught:
        model(lamina.ones(1))
    assert "Unable to allocate" not in str(caught.value)
    assert allowance._own() - before < MOST


def doubled(count):
    nodes = " ".join(f"y{n + 1} = Concat<axis = 0>(y{n}, y{n})" for n in range(count))
    return nodes + f" y = Identity(y{count})"


@pytest.mark.parametrize("first", ["y0 = Identity(x)", "y0 = Cast<to = 8>(x)", "y0 = Identity(at)"])
def test_what_doubles_sixty_times_is_refused(first):
    made = "int64[1] at = {0}" if "at" in first else "int64 one = {1}"
    kind = "string" if "8" in first else "int64" if "at" in first else "float"
    text = f"agraph (float[1] x) => ({kind}[k] y) <{made}> {{ {first} {doubled(60)} }}"
    with pytest.raises(OutOfMemoryError, match="allowed"):
        loaded(text)(lamina.ones(1))


def test_texts_that_double_are_refused():
    nodes = " ".join(f"y{n + 1} = StringConcat(y{n}, y{n})" for n in range(60))
    text = f"agraph (float[1] x) => (string[k] y) {{ y0 = Cast<to = 8>(x) {nodes} y = Identity(y60) }}"
    with pytest.raises(OutOfMemoryError, match="allowed"):
        loaded(text)(lamina.ones(1))


LOOP = (
    "agraph (float[1] x, int64 n) => (float[1] y) { y = Loop <body = body (int64 i, bool c, float[1] s) => "
    "(bool d, float[1] e) { d = Identity(c) e = Identity(s) }> (n, , x) }"
)


def test_loops_without_an_end_are_refused():
    model = loaded(LOOP, most_nodes=1000)
    assert model(lamina.ones(1), lamina.tensor(300)).tolist() == [1]
    with pytest.raises(lamina.onnx.OnnxError, match="more nodes than are allowed"):
        model(lamina.ones(1), lamina.tensor(HUGE))
    assert model(lamina.ones(1), lamina.tensor(300)).tolist() == [1], "each call counts for itself"


def test_results_one_after_the_other_are_bounded():
    """A loop whose steps are small, and which would take hours."""
    body = LOOP.replace("e = Identity(s)", "e = Add(s, s)").replace("float[1]", "float[100000]")
    with pytest.raises(OutOfMemoryError, match="all results together"):
        loaded(body, most_bytes=1 << 20)(lamina.ones(100_000), lamina.tensor(HUGE))


def test_scans_of_endless_sequences_are_refused():
    text = (
        "agraph (float[1] x) => (float[k,0] y) <int64[2] many = {1099511627776, 0}> { "
        "z = ConstantOfShape(many) y = Scan <num_scan_inputs = 1, body = body "
        "(float[0] s) => (float[0] e) { e = Identity(s) }> (z) }"
    )
    with pytest.raises(lamina.onnx.OnnxError, match="more nodes than are allowed"):
        loaded(text)(lamina.ones(1))


def test_functions_that_would_be_written_out_without_end_are_refused(monkeypatch):
    monkeypatch.setattr(running, "MOST_NODES", 1 << 12)  # of a million, which takes ten seconds
    own = " ".join(
        f'<domain: "own", opset_import: ["" : 20, "own" : 1]> f{n + 1} (x) => (y) '
        f"{{ a = own.f{n}(x) y = own.f{n}(a) }}"
        for n in range(40)
    )
    text = (
        '<ir_version: 9, opset_import: ["" : 20, "own" : 1]> agraph (float[1] x) => (float[1] y) '
        '{ y = own.f40(x) } <domain: "own", opset_import: ["" : 20]> f0 (x) => (y) { y = Identity(x) } ' + own
    )
    with pytest.raises(lamina.onnx.OnnxError, match="written out are more than 4,096 nodes"):
        lamina.onnx.load(parser.parse_model(text).SerializeToString())


def test_a_sparse_tensor_is_held_against_the_bound():
    values = numpy_helper.from_array(np.ones(1, np.float32), "w")
    sparse = helper.make_sparse_tensor(values, numpy_helper.from_array(np.zeros(1, np.int64)), [1 << 30])
    graph = helper.make_graph(
        [helper.make_node("Identity", ["w"], ["y"])], "g", [], [helper.make_tensor_value_info("y", 1, None)]
    )
    graph.sparse_initializer.append(sparse)
    with pytest.raises(OutOfMemoryError, match="sparse"):
        lamina.onnx.load(helper.make_model(graph).SerializeToString(), most_bytes=MOST)


def test_what_is_traced_is_held_to_the_bound():
    text = "agraph (float[n] x, int64[1] to) => (float[k] y) { e = Expand(x, to) y = Add(e, e) }"
    model = loaded(text)
    with pytest.raises(OutOfMemoryError, match="allowed"):
        lamina.jit.trace(model)(lamina.ones(1), lamina.tensor([1 << 30]))


def test_the_default_is_of_the_machine():
    text = "agraph (float[1] x) => (float[1] y) { y = Relu(x) }"
    model = loaded(text, most_bytes=None)
    assert model.most_bytes == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * 3 // 4
    with pytest.raises(lamina.LaminaError, match="above 0"):
        loaded(text, most_bytes=0)


def test_a_bound_that_nobody_asks_is_noticed(monkeypatch):
    monkeypatch.setattr(allowance.Allowance, "take", lambda self, nbytes, what: None)
    model = loaded(
        "agraph (float[1] x) => (float[k] y) <int64[1] n = {100000000}> { y0 = Expand(x, n) y = Neg(y0) }"
    )
    assert model(lamina.ones(1)).shape == (100_000_000,)


def test_memory_that_was_freed_may_be_taken_again():
    """Sixty results of an eighth of the bound, of which two live at a time."""
    nodes = " ".join(f"y{n + 1} = Neg(y{n})" for n in range(60))
    text = f"agraph (float[n] x) => (float[n] y) {{ y0 = Neg(x) {nodes} y = Neg(y60) }}"
    assert loaded(text)(lamina.ones(MOST // 4 // 8)).shape == (MOST // 32,)


# ---- constants
QUANTISED = (
    "agraph (float[2,4] x) => (float[2,3] y) <int8[4,3] q = {1,2,3,4,5,6,7,8,9,10,11,-12}, "
    "float[3] s = {0.5, 0.25, 2}> { w = DequantizeLinear <axis = 1> (q, s) y = MatMul(x, w) }"
)


def test_quantised_weights_are_weights_once_they_are_loaded():
    model = loaded(QUANTISED)
    assert [name for name, _ in model.named_parameters()] == ["w"]
    weight = (
        np.arange(1, 13).reshape(4, 3) * [1, 1, -1] ** (np.arange(12).reshape(4, 3) == 11) * [0.5, 0.25, 2]
    )
    np.testing.assert_array_equal(model.w.detach().numpy(), weight.astype(np.float32))
    with mock.patch.object(Scope, "step", autospec=True, side_effect=Scope.step) as steps:
        model(lamina.ones(2, 4))
    assert [call.args[1].op for call in steps.call_args_list] == ["MatMul"]


def test_what_is_made_of_constants_is_computed_once():
    text = (
        "agraph (float[2] x) => (float[2] y) <float[2] a = {1, 2}> { b = Constant<value = float[2] {3, 4}>() "
        "c = Mul(b, b) d = Add(c, x) y = Mul(d, a) }"
    )
    model = loaded(text)
    assert [node.op for node in model._model.declared.graph.nodes] == ["Add", "Mul"]
    assert [name for name, _ in model.named_parameters()] == ["a"], "a weight of the file stays one"
    assert model(lamina.zeros(2)).tolist() == [9, 32]


@pytest.mark.parametrize(
    "body", ["y = RandomNormal<shape = [1]>()", "z = ConstantOfShape(n) y = Neg(z)", "y = Reshape(n, m)"]
)
def test_what_differs_is_large_or_fails_is_left_to_each_run(body):
    model = loaded(
        f"agraph (float[1] x) => (float[k] y) <int64[1] n = {{10000000}}, int64[2] m = {{3, 5}}> {{ {body} }}"
    )
    assert model._model.declared.graph.nodes


@pytest.mark.parametrize("op", ["Equal", "Less", "Greater"])
def test_expanding_as_exporters_write_it_keeps_sizes_symbols(op):
    """What PyTorch writes for x.expand(n, -1): ones, minus one, a comparison, a choice."""
    text = (
        "agraph (float[n,3] x, float[1,3] b) => (float[n,3] y) <int64 zero = {0}, int64[1] at = {0}, "
        "int64[1] three = {3}, int64[1] two = {2}, int64 less = {-1}> { s = Shape(x) m = Gather(s, zero) "
        "u = Unsqueeze(m, at) t = Concat<axis = 0>(u, three) "
        f"o = ConstantOfShape<value = int64[1] {{1}}>(two) k = Mul(o, less) "
        f"e = {op}(t, k) w = Where(e, o, t) z = Expand(b, w) y = Add(x, z) }}"
    )
    if op == "Greater":
        text = text.replace("Where(e, o, t)", "Where(e, t, o)")
    model = loaded(text)
    traced = lamina.jit.trace(model, budget=None)
    with lamina.no_grad():
        for rows in range(2, 8):
            x, b = lamina.randn(rows, 3), lamina.randn(1, 3)
            assert lamina.equal(traced(x, b), model(x, b)) and lamina.equal(model(x, b), x + b)
    assert traced.counts()["recorded"] <= 2, traced.explain()


SIZED = {
    "a scale of a size": "s = Shape(x) n = Gather(s, zero) f = Cast<to = 1>(n) r = Sqrt(f) y = Div(x, r)",
    "positions": "s = Shape(x) n = Gather(s, zero) p = Range(zero, n, one) q = Unsqueeze(p, last) "
    "f = Cast<to = 1>(q) y = Add(x, f)",
    "a part of a table": "s = Shape(x) n = Gather(s, zero) e = Unsqueeze(n, first) "
    "t = Slice(table, first, e) y = Add(x, t)",
    "a state": "s = Shape(x) n = Gather(s, zero) e = Unsqueeze(n, first) c = Concat<axis = 0>(e, width) "
    "z = ConstantOfShape(c) y = Add(x, z)",
    "halves": "s = Shape(x) h = Div(s, two) k = Mul(h, two) d = Sub(s, k) m = Max(s, k) f = Add(d, m) "
    "g = Sub(f, d) y = Reshape(x, g)",
    "a mean": "s = Shape(x) p = ReduceProd<keepdims = 0>(s) f = Cast<to = 1>(p) "
    "t = ReduceSum<keepdims = 0>(x) m = Div(t, f) y = Sub(x, m)",
}  # fmt: skip


@pytest.mark.parametrize("name", SIZED)
def test_numbers_that_follow_from_sizes_keep_one_recording(name):
    table = ", ".join(map(str, range(32)))
    text = (
        "agraph (float[n,3] x) => (float[n,3] y) <int64 zero = {0}, int64 one = {1}, int64[1] first = {0}, "
        f"int64[1] last = {{1}}, int64[1] width = {{3}}, int64 two = {{2}}, float[32,1] table = {{{table}}}> "
        f"{{ {SIZED[name]} }}"
    )
    model = loaded(text)
    traced = lamina.jit.trace(model, budget=None)
    with lamina.no_grad():
        for rows in range(2, 9):
            x = lamina.randn(rows, 3)
            np.testing.assert_allclose(traced(x).numpy(), model(x).numpy(), rtol=1e-6, atol=1e-6)
    assert traced.counts()["recorded"] <= 2, traced.explain()


def test_a_model_is_one_fact_whatever_nodes_it_has():
    def guards(count):
        nodes = " ".join(f"y{n + 1} = Relu(y{n})" for n in range(count))
        model = loaded(f"agraph (float[n] x) => (float[n] y) {{ y0 = Neg(x) {nodes} y = Neg(y{count}) }}")
        traced = lamina.jit.trace(model, budget=None)
        with lamina.no_grad():
            for size in (3, 4, 5):
                traced(lamina.ones(size))
        return max(int(found) for found in re.findall(r"(\d+) guards", traced.explain(detail=True)))

    assert guards(40) <= guards(4)


NAMED = (
    '<ir_version: 9, opset_import: ["" : 20, "own" : 1], producer_name: "maker", '
    'metadata_props: ["told": "more"]> '
    "agraph (float[length] given) => (float[length] result) <float stored = {1}> "
    "{ middle = own.twice(given) result = Add(middle, stored) } "
    '<domain: "own", opset_import: ["" : 20]> twice (inner) => (outer) { outer = Add(inner, inner) }'
)


@pytest.mark.parametrize(
    "name",
    [
        "maker",
        "told",
        "more",
        "agraph",
        "given",
        "result",
        "stored",
        "middle",
        "twice",
        "inner",
        "outer",
        "length",
    ],
)
def test_a_name_that_is_no_text_is_refused(name, tmp_path):
    """Protobuf hands it over as bytes, where all who read a model look for text."""
    whole = parser.parse_model(NAMED).SerializeToString()
    path = tmp_path / "model.onnx"
    path.write_bytes(whole)
    lamina.jit.show(path, tmp_path / "page.html", time=False)
    path.write_bytes(whole.replace(name.encode(), b"\xff" * len(name)))
    with pytest.raises(lamina.LaminaError, match=r"no text|damaged|no ONNX file"):
        lamina.jit.show(path, tmp_path / "page.html", time=False)
