"""The text form: the law, what a hand may write, and every message of the parser."""

import copy
import pickle

import hypothesis.strategies as st
import pytest
from hypothesis import given
from probes import INPLACE, PROBES

from lamina.ir.errors import KernelError
from lamina.ir.kernel import VOCABULARY, Affine, Expr, cast, const, coordinate, parse, read, ref, words

SYMBOLIC = """\
kernel flip[n, s](x: f32[4,n] strides(s,1)) -> (y: f32[4,n]) {
  parallel i:4 j:n
  y[i, j] = x[i, -j+n-1]
}"""


@pytest.mark.parametrize("name", PROBES)
def test_probe_text_is_canonical(name):
    assert str(parse(PROBES[name].text)) == PROBES[name].text


@pytest.mark.parametrize("text", [INPLACE, SYMBOLIC])
def test_headers_round_trip(text):
    assert str(parse(text)) == text


def stored(value: str) -> str:
    return f"kernel k(x: f32[8], q: i64[8]) -> (y: f32[8]) {{\n  parallel i:8\n  y[i] = {value}\n}}"


numbers = st.one_of(
    st.integers(-9, 9), st.floats(allow_nan=True), st.booleans(), st.sampled_from([-0.0, 1e-300, 0.1])
)
leaves = st.one_of(
    numbers.map(const),
    st.sampled_from([1, 0.5, -2.25]).map(lambda v: const(v, "f32")),
    st.builds(
        lambda c, k, o: read("x", (Affine.of({"i": c}, k),), o),
        st.integers(-2, 2),
        st.integers(-3, 3),
        numbers,
    ),
    st.just(coordinate("i")),
    st.just(ref("stage")),
    st.just(ref("array", ("i", "j"))),
)


def _grown(inner):
    unary = [w for w in VOCABULARY.values() if w.arity == 1]
    binary = [w for w in VOCABULARY.values() if w.arity == 2]
    return st.one_of(
        st.builds(lambda w, a: w(a), st.sampled_from(unary), inner),
        st.builds(lambda w, a, b: w(a, b), st.sampled_from(binary), inner, inner),
        st.builds(lambda c, a, b: words.select(c, a, b), inner, inner, inner),
        st.builds(lambda a: cast(a, "f64"), inner),
        st.builds(lambda a: read("x", (a,)) if isinstance(a, Expr) else a, inner.filter(_indirect)),
    )


def _indirect(expr):
    """An index that is a constant or a coordinate is written as an affine one."""
    return expr not in (coordinate("i"),) and not str(expr).lstrip("-").isdigit() and "coord" not in str(expr)


@given(st.recursive(leaves, _grown, max_leaves=12))
def test_expressions_round_trip(expr):
    text = stored(str(expr)).replace("parallel i:8", "parallel i:8 j:2")
    assert str(parse(text)) == text


def test_equal_expressions_are_identical_and_stay_so():
    x = read("x", ("i",))
    assert words.exp(x) * 2 is words.exp(x) * 2
    assert (
        const(0.0) is not const(-0.0)
        and const(0) is not const(False)
        and const(float("nan")) is const(float("nan"))
    )
    assert pickle.loads(pickle.dumps(words.exp(x))) is words.exp(x)
    assert copy.deepcopy(words.exp(x)) is words.exp(x)


def test_operators_write_words():
    x, q = read("x", ("i",)), read("q", ("i",))
    assert (
        str((x + 1.0) * -x / 2.0 - abs(x) ** 2.0)
        == "((((x[i] + 1.0) * neg(x[i])) / 2.0) - pow(abs(x[i]), 2.0))"
    )
    assert str((1 << 3 if False else q << 3) & ~q | q ^ 1) == "(((q[i] << 3) & bit_not(q[i])) | (q[i] ^ 1))"
    assert str(q // 2 % 3) == "remainder(floor_div(q[i], 2), 3)"
    assert str((x < 1.0) & (x >= 0.0)) == "((x[i] < 1.0) & (x[i] >= 0.0))"


def test_hand_written_precedence_is_pythons():
    kernel = parse(stored("x[i] + 2.0*x[i] - -x[i] / 3.0 < 1.0"))
    assert str(kernel.stages[0].value) == "(((x[i] + (2.0 * x[i])) - (neg(x[i]) / 3.0)) < 1.0)"


def test_mixed_index_becomes_an_expression():
    text = stored("x[q[i]*2 + i - 1]")
    assert str(parse(text).stages[0].value) == "x[(((q[i] * 2) + coord(i)) - 1)]"


@pytest.mark.parametrize(
    "text, message",
    [
        (stored("x[i] $ 2"), "unreadable text at '$ 2'"),
        (stored("x[i] +"), "expected a value, found 'the end'"),
        (stored("x[i]").replace("x: f32[8]", "x: f32[n]"), "declares the symbols that its sizes are made of"),
        (stored("x[i]").replace("x: f32[8]", "x: f32[None]"), "a dimension can't be called 'None'"),
        (SYMBOLIC.replace("[n, s]", "[n]"), "declares the symbols that its sizes are made of"),
        (stored("x[i] x[i]"), "expected the end, found 'x'"),
        (stored("(x[i]"), "expected ')', found 'the end'"),
        (stored("frobnicate(x[i])"), "there is no word 'frobnicate'"),
        (stored("exp(x[i], 1.0)"), "exp takes 1 operands, got 2"),
        (stored("i * 2.0"), "a coordinate is no value by itself: write coord(i)"),
        (stored("coord(q[i])"), "coord takes an affine index of axes"),
        (stored("x[i else x]"), "the value after else is a constant"),
        (stored("e[2*i]"), "a stage is read at its own axes: e"),
        (stored("x[i]").replace("f32[8]", "f33[8]", 1), "there is no element type 'f33'"),
        (
            stored("x[i]").replace("f32[8]", "f32[8] strides(1,2)", 1),
            "a buffer has one stride for each dimension",
        ),
        (stored("x[i]").replace("parallel", "serial"), "expected 'parallel', found 'serial'"),
        (stored("x[i]").replace("x: ", "8: ", 1), "expected a name, found '8'"),
        (stored("x[i]").rstrip("}"), "a kernel ends with a line of its own: }"),
        (stored("x[i]").replace("y[i] =", "1 ="), "a stage defines a name or stores to a buffer"),
        (stored("1.0\n  s = fold(j:2) {\n  init 0"), "a fold ends with a line of its own: }"),
        (stored("1.0\n  s = sum(j:2) {\n  init 0\n  }"), "only a fold or a scan has a body in braces"),
        (stored("1.0\n  s = fold(j:2) {\n  start 0\n  }"), "the lines of a fold are init, step and merge"),
        (stored("1.0\n  s = fold(j:2) {\n  init 0\n  }"), "a fold has an init and a step"),
    ],
)
def test_parser_refuses(text, message):
    with pytest.raises(KernelError) as caught:
        parse(text)
    assert message in str(caught.value)


def test_an_expression_has_no_truth_value():
    with pytest.raises(KernelError, match="no truth value"):
        bool(read("x", ("i",)) < 1.0)
