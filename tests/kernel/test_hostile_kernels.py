"""Texts of kernels that nobody would write, and expressions taller than Python's stack."""

import numpy as np
import pytest

from lamina.ir.errors import KernelError
from lamina.ir.kernel import interpret, parse, verify

COPY = "kernel k(x: f32[4]) -> (y: f32[4]) {\n  parallel i:4\n  y[i] = x[i]\n}"


def stored(value: str, index: str = "i") -> str:
    return COPY.replace("y[i] = x[i]", f"y[{index}] = {value}")


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "line 1: expected 'kernel', found 'the end'"),
        ("\n\nkernel", "line 3: expected a name, found 'the end'"),
        (COPY.replace("4", "9" * 5000), "line 1: a number has at most 400 digits"),
        (COPY.replace("4", "٤"), "line 1: unreadable text"),
        (stored("(" * 100_000 + "x[i]" + ")" * 100_000), "line 3: more than 60 brackets"),
        (stored("-" * 100_000 + "x[i]"), "line 3: more than 60 brackets"),
        (stored("exp(" * 61 + "x[i]" + ")" * 61), "line 3: more than 60 brackets"),
        (stored("x[" + "(" * 61 + "i" + ")" * 61 + "]"), "line 3: more than 60 brackets"),
        (
            stored("x[" + "*".join(["i", *["9" * 300] * 20]) + "]"),
            "line 3: the numbers of an index are below",
        ),
        (stored("$0"), "line 3: $0 is used and not defined before"),
        (stored("x[i]", "i else 0"), "line 3: a stage defines a name or stores to a buffer"),
        (stored("i[]"), "line 3: a stage is read at its own axes"),
        (stored("1.0\n  s = fold(j:2) {\n  init 0\n  init 0\n  }"), "line 6: a fold has one init"),
        (stored("1.0\n  s[i] = fold(j:2) {\n  init 0\n  step s\n  }"), "line 4: a fold defines names"),
        (stored("1.0\n  s[j] = 2.0"), "line 4: a stage is read at its own axes: s"),
        (stored("1.0\n  s = 2.0 for j:2"), "line 4: a stage defines a name or stores to a buffer"),
        (stored("1.0\n  s = sum(j:2) x[j] for k:2"), "line 4: a reduction has its axes in brackets"),
        (COPY.replace("x: f32[4]", "x: f32[4] strides(-n)"), "line 1: expected a number behind '-'"),
    ],
)
def test_parser_names_the_line(text, message):
    with pytest.raises(KernelError) as caught:
        parse(text)
    assert message in str(caught.value) and len(str(caught.value)) < 10_000


@pytest.mark.parametrize(
    "text, message",
    [
        (COPY.replace("4", "4611686018427387904"), "a buffer has fewer than 2**63 bytes"),
        (
            COPY.replace("x: f32[4]", "x: f32[4] strides(2305843009213693952)"),
            "a buffer has fewer than 2**63 bytes",
        ),
        (COPY.replace("f32[4]", f"f32[{','.join('1' * 65)}]"), "a buffer has at most 64 dimensions"),
        (stored("s\n  s = sum(j:4294967296 k:4294967296) 1.0"), "a stage has fewer than 2**63 points"),
        (
            stored("s\n  s = sum(" + " ".join(f"j{k}:1" for k in range(64)) + ") 1.0"),
            "a stage has at most 64 axes",
        ),
        (stored("x[9223372036854775807*i else 0]"), "leaves an int64"),
        (stored("f32(coord(9223372036854775807*i))"), "leaves an int64"),
        (stored("(0 >> 1)"), "shr does not take f32"),
        (stored("f32((1 >> 1))"), "has no type to be cast from"),
        (stored("f32(" + "+".join(["1"] * 5000) + ")"), "has no type to be cast from"),
        (stored("+".join(["1"] * 5000)), "more than 40 operations on constants without a type"),
    ],
)
def test_verifier_refuses_what_no_machine_counts(text, message):
    with pytest.raises(KernelError) as caught:
        verify(parse(text))
    assert message in str(caught.value) and len(str(caught.value)) < 10_000


def test_a_tall_expression_needs_no_stack():
    kernel = verify(parse(stored(" + ".join(["x[i]"] * 5000))))
    (y,) = interpret(kernel, np.ones(4, np.float32))
    assert y.tolist() == [5000.0] * 4
    text = str(kernel)
    assert "$100 = " in text and str(parse(text)) == text
    assert parse(text).stages[0].value is kernel.stages[0].value


SQUARES = """\
kernel k(x: f32[4]) -> (y: f32[4]) {
  parallel i:4
  s = sum(j:4) (x[j] * x[i])
  y[i] = VALUE
}"""


def test_text_of_shared_values_is_as_long_as_their_graph():
    """x * x, forty times: the tree has 2**40 leaves."""
    kernel = parse(SQUARES.replace("VALUE", "s"))
    value = kernel.stages[1].value
    for _ in range(40):
        value = value * value
    stages = (kernel.stages[0], kernel.stages[1].__class__("y", kernel.stages[1].index, value))
    kernel = verify(kernel.replace(stages=stages))
    text = str(kernel)
    assert len(text) < 20_000 and str(parse(text)) == text
    assert parse(text).stages[1].value is value
    with pytest.raises(KernelError) as caught:
        kernel.dtype_of(value + parse(stored("coord(i)")).stages[0].value)
    assert len(str(caught.value)) < 20_000


FOLD = """\
kernel k(x: f32[3,4]) -> (y: f32[3]) {
  parallel i:3
  s = fold(j:4) {
    init 0.0
    $0 = STEP
    step ($0 + $0)
  }
  $0 = (s * s)
  $1 = ($0 * $0)
  y[i] = ($1 * $0)
}"""


def test_parts_with_lines_of_their_own_belong_to_the_next_line():
    kernel = parse(FOLD.replace("STEP", "(x[i, j] * s)").replace("init 0.0", "init f32(0.0)"))
    assert (
        str(kernel)
        == """\
kernel k(x: f32[3,4]) -> (y: f32[3]) {
  parallel i:3
  s = fold(j:4) {
    init f32(0.0)
    step ((x[i, j] * s) + (x[i, j] * s))
  }
  y[i] = (((s * s) * (s * s)) * (s * s))
}"""
    )
    with pytest.raises(KernelError, match=r"line 8: \$0 is used and not defined"):
        parse(FOLD.replace("STEP", "s").replace("  $0 = (s * s)\n", "").replace("$1 =", "$2 ="))


NOWHERE = """\
kernel k(x: f32[4]) -> (y: f32[0]) {
  parallel i:0
  s = fold(j:3) {
    init x[9]
    step (s + x[7])
  }
  t = sum(j:3) x[8]
  y[i] = ((s + t) * x[6])
}"""


def test_what_runs_nowhere_reads_nothing():
    (y,) = interpret(verify(parse(NOWHERE)), np.ones(4, np.float32))
    assert y.shape == (0,)


def test_a_fold_over_nothing_still_begins():
    text = NOWHERE.replace("i:0", "i:4").replace("f32[0]", "f32[4]").replace("j:3", "j:0")
    text = text.replace("x[6]", "x[i]")
    with pytest.raises(KernelError, match=r"x\[9\] may leave dimension 0"):
        verify(parse(text))
    (y,) = interpret(verify(parse(text.replace("init x[9]", "init x[3]"))), np.ones(4, np.float32))
    assert y.tolist() == [1.0] * 4


def test_whole_numbers_among_floats_may_be_large():
    (y,) = interpret(verify(parse(stored(f"(x[i] + f32({10**30}))"))), np.ones(4, np.float32))
    assert y[0] == np.float32(1e30)
    with pytest.raises(KernelError, match="f32 does not hold the constant"):
        verify(parse(stored(f"(x[i] + {10**390})")))


def test_points_beyond_all_memory_are_an_error_of_the_kernel():
    text = (
        stored("s")
        .replace("  y[i]", "  s = sum(j:1152921504606846976) 1.0\n  y[i]")
        .replace("1.0", "f32(1.0)")
    )
    with pytest.raises(KernelError, match="no memory for all its points"):
        interpret(verify(parse(text)), np.ones(4, np.float32))
    (y,) = interpret(verify(parse(text.replace("i:4", "i:0").replace("[4]", "[0]"))), np.ones(0, np.float32))
    assert y.shape == (0,)
