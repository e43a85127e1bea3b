"""The text form: what it looks like, that it can be read back, and what malformed text is told."""

import re

import hypothesis.strategies as st
import numpy as np
import pytest
from graphs import OPS, graphs, small, tagged
from hypothesis import given

from lamina.ir import Builder, Constant, Device, fused, graph_text, interpret, parse, symbol, type_of, verify
from lamina.ir.dtypes import ALL, bfloat16, float16, float32, float64, int64
from lamina.ir.errors import GraphError

SMALL = """\
graph small(%x: f32[n,3], %0: i64[n]) -> (f32[n,3], i64[n]) {
  @table : f32[3]
  %1 = mul(%x, 2.5:f32) : f32[n,3]  # model.py:12
  %2, %3, %4 = split_sign(%1, none) : f32[n,3], f32[n,3], bool[n,3]  # model.py:12
  %5 = add(%2, @table) : f32[n,3]
  %6 = tagged(%5) {tag=(1,(),("a",None))} : f32[n,3]
  %7 = mul(%0, 2:i64) : i64[n]
  return %6, %7
}"""
PLAIN = re.sub("  # model.py:12", "", SMALL)
TABLE = {"table": np.ones(3, np.float32)}


def test_graph_is_printed():
    assert graph_text(small(), where=True) == SMALL
    assert str(small()) == PLAIN


def test_text_is_read_back():
    read = parse(SMALL, TABLE, OPS)
    assert graph_text(read, where=True) == SMALL
    assert read.nodes[0].where == ("model.py", 12) and read.nodes[2].where is None
    assert verify(read) == ()


def test_constants_of_a_graph_serve_its_text():
    graph = small()
    assert parse(str(graph), graph.constants, OPS).nodes[2].inputs[1] is graph.nodes[2].inputs[1]


@given(graphs(), graphs(symbolic=True))
def test_text_law(one, two):
    for graph in (one, two):
        text = graph_text(graph, where=True)
        assert graph_text(parse(text, graph.constants), where=True) == text


def attr_round_trip(value):
    with Builder("g") as b:
        graph = b.finish(tagged(b.param(type_of(float32, ()), "x"), tag=value))
    (node,) = parse(str(graph), ops=OPS).nodes
    return node.attrs["tag"]


SCALARS = st.one_of(
    st.integers(-(2**70), 2**70),
    st.booleans(),
    st.none(),
    st.text(),
    st.floats(),
    st.sampled_from(ALL),
    st.sampled_from(
        [Device("cpu"), Device("cuda:1"), type_of(float32, (2, symbol("n"))), symbol("n") // 2 + 1]
    ),
)


@given(st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=6))
def test_attrs_of_every_kind_are_read_back_exactly(value):
    read = attr_round_trip(value)
    assert repr(read) == repr(value)  # tells 1 from 1.0 and True, 0.0 from -0.0, and takes nan as it is
    assert type(read) is type(value)


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_scalar_constants_are_read_back_exactly(dtype):
    values = [0, 1, 2, 100]
    if dtype.is_floating_point:
        values += [0.1, -0.0, 1 / 3, 1e-7, 65504.0, float("inf"), float("-inf"), float("nan")]
    if dtype.category == "bool":
        values = [False, True]
    for value in values:
        scalar = Constant(np.asarray(value, dtype.numpy))
        with Builder("g") as b:
            graph = b.finish([scalar])
        (read,) = parse(str(graph)).results
        assert read.data.tobytes() == scalar.data.tobytes() and read.type == scalar.type


@given(st.integers(0, 2**32 - 1))
def test_float32_constants_keep_their_bits(bits):
    scalar = Constant(np.asarray(bits, np.uint32).view(np.float32))
    (read,) = parse(str(Builder("g").finish([scalar]))).results
    assert read.data.tobytes() == scalar.data.tobytes() or np.isnan(scalar.data)


@pytest.mark.parametrize("dtype", [float16, bfloat16], ids=str)
def test_every_half_keeps_its_bits(dtype):
    halves = np.arange(2**16, dtype=np.uint16).view(dtype.numpy)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        halves = halves[~np.isnan(halves)]
    graph = Builder("g").finish([Constant(np.asarray(h)) for h in halves[::7]])
    read = parse(str(graph), graph.constants)
    for one, two in zip(graph.results, read.results, strict=True):
        assert one.data.tobytes() == two.data.tobytes()


def test_values_of_one_hint_get_distinct_names():
    with Builder("g") as b:
        x, y, z = (b.param(type_of(float32, ()), hint) for hint in ("h", "h", "2 h"))
        text = str(b.finish([x + y, z]))
    assert text.startswith("graph g(%h: f32[], %h.1: f32[], %_2_h: f32[])")
    assert str(parse(text)) == text


def test_nested_graph_is_printed_and_read_back():
    with Builder("body") as inner:
        a = inner.param(type_of(float64, (3,)), "a")
        body = inner.finish(a * a + 1.0)
    with Builder("outer") as b:
        graph = b.finish(fused(b.param(type_of(float64, (3,)), "x"), body=body))
    assert (
        str(graph)
        == """\
graph outer(%x: f64[3]) -> (f64[3]) {
  %0 = fused(%x) {body=graph body(%a: f64[3]) -> (f64[3]) {
    %0 = mul(%a, %a) : f64[3]
    %1 = add(%0, 1.0:f64) : f64[3]
    return %1
  }} : f64[3]
  return %0
}"""
    )
    read = parse(str(graph))
    assert str(read) == str(graph)
    (out,) = interpret(read, np.arange(3.0))
    np.testing.assert_array_equal(out, [1, 2, 5])


def test_types_of_every_kind_are_read_back():
    sizes = (symbol("n") * 2 + 1, (symbol("n") - 1) // 2, 3)
    for kind in (
        type_of(bfloat16, ()),
        type_of(float16, sizes),
        type_of(int64, (0, 5), Device("cuda:0")),
        type_of(float32, sizes, Device("cuda")),
    ):
        text = f"graph g(%x: {kind}) -> ({kind}) {{\n  return %x\n}}"
        assert parse(text).params[0].type == kind
        assert str(parse(text)) == text


def test_spacing_and_comments_mean_nothing():
    loose = (
        "graph  small ( %x:f32[ n , 3 ],%0:i64[n])->(f32[n,3] , i64[n]){ # f\n\n" + PLAIN.split("{\n", 1)[1]
    )
    assert str(parse(loose, TABLE, OPS)) == PLAIN


BROKEN = [
    (("mul(%x", "mull(%x"), "line 3: no op is called 'mull'"),
    (("mul(%x", "fused(%x"), "line 3: fused has a body, a graph"),
    (("%2, @table", "%22, @table"), "line 5: %22 is used and not defined before"),
    (("@table) :", "@chair) :"), "line 5: @chair is used and not declared before"),
    (("%5 = add", "%1 = add"), "line 5: %1 is defined twice"),
    (
        ("return %6, %7", "return %6"),
        "line 1: graph small declares (f32[n,3], i64[n]) and returns (f32[n,3])",
    ),
    (("return %6, %7", "return none, %7"), "line 1: none can't be returned"),
    (("return %6, %7\n}", "return %6, %7"), "line 8: expected '}', found 'the end'"),
    ((" : f32[n,3]\n  %2,", " f32[n,3]\n  %2,"), "line 3: expected ':' and the types of the outputs"),
    (("f32[n,3], f32[n,3], bool[n,3]", "f32[n,3]"), "line 4: 3 values are defined and 1 types are given"),
    (("2:i64", "2.5:i64"), "line 7: 2.5 is no number of dtype i64"),
    (("2:i64", "2:i65"), "line 7: no dtype is called 'i65'"),
    (("(1,(),", "(1,,"), "line 6: expected a value, found ',(\"a\",None))} : f32['"),
    (('"a",None', '"a",-None'), "line 6: - is for numbers and dimensions"),
    (('"a",None', '"a"+1'), "line 6: + - * // are for ints and dimensions"),
    (
        ("@table : f32[3]", "@table : f32[4]"),
        "line 2: constant @table is declared f32[4], its data is f32[3]",
    ),
    (("@table : f32[3]", "@chair : f32[3]"), "line 2: constant @chair has no data: parse(text, constants="),
    (("%x: f32[n,3]", "%x: f32[n//0,3]"), "line 1: a dimension can't be divided by 0"),
    (("%x: f32[n,3]", "%x: f32[n.k,3]"), "line 1: symbol(name): a dimension can't be called 'n.k'"),
    (
        ("%x: f32[n,3]", "%x: f32[2.5,3]"),
        "line 1: a size must be an int or an expression of symbols, not 2.5",
    ),
    (("graph small", "graf small"), "line 1: expected 'graph ', found 'graf small"),
    (("%7\n}", "%7\n} more"), "line 9: expected the end of the text after the graph's '}', found 'more'"),
    (("tag=(1", "tag=1, tag=(1"), "line 6: attr tag is given twice"),
    (("(1,()", "(" * 99 + "(1,()"), "line 6: more than 60 brackets inside of one another"),
]


@pytest.mark.parametrize(("change", "message"), BROKEN, ids=[m[:48] for _, m in BROKEN])
def test_malformed_text_names_the_line(change, message):
    assert change[0] in PLAIN
    with pytest.raises(GraphError) as error:
        parse(PLAIN.replace(*change), TABLE, OPS)
    assert str(error.value).startswith(message)


PIECES = [
    *re.findall(r"\w+|[^\w\s]|\s", SMALL),
    "inf",
    "nan",
    "min",
    "graph",
    "-",
    "*",
    "//",
    "9" * 400,
    '"',
    "\\",
    "é",
]


@given(st.data())
def test_any_change_to_a_text_is_read_or_refused(data):
    tokens = re.findall(r"\w+|[^\w\s]|\s+", SMALL)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(tokens) - 1))
        end = at + data.draw(st.integers(0, 3))
        tokens[at:end] = data.draw(st.lists(st.sampled_from(PIECES), max_size=3))
    refused_or_read("".join(tokens))


@given(st.lists(st.sampled_from(PIECES), max_size=30), st.text(max_size=20))
def test_any_text_is_read_or_refused(pieces, text):
    refused_or_read("".join(pieces))
    refused_or_read(PLAIN[:60] + text)
    refused_or_read("graph g(%x: f32[" + "".join(pieces))


def refused_or_read(text):
    try:
        graph = parse(text, TABLE, OPS)
    except GraphError:
        return
    assert str(parse(str(graph), graph.constants, OPS)) == str(graph)
