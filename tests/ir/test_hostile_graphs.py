"""Texts of graphs that nobody would write: each meets an error that names the line, in bounded work."""

import numpy as np
import pytest

import lamina.ir.ops  # noqa: F401 - enters the operator set
from lamina.ir import Builder, interpret, parse, symbol, type_of, verify
from lamina.ir.dims import bounds, minimum
from lamina.ir.dtypes import float32
from lamina.ir.errors import ArgumentError, GraphError, LaminaError, ShapeError
from lamina.ir.op import REGISTRY

ONE = """\
graph g(%x: f32[2,3]) -> (f32[2,3]) {
  %0 = neg(%x) : f32[2,3]
  return %0
}"""


def applied(call: str, type: str = "f32[2,3]") -> str:
    return (
        ONE.replace("neg(%x)", call)
        .replace(": f32[2,3]\n", f": {type}\n")
        .replace("-> (f32[2,3])", f"-> ({type})")
    )


@pytest.mark.parametrize(
    "size, message",
    [
        ("9223372036854775808", "the sizes are too large"),
        ("4294967296,4294967296", "the sizes are too large"),
        ("0,4294967296,4294967296", "the sizes are too large"),  # NumPy counts so, too
        ("-1", "be negative"),
        (",".join("1" * 65), "at most 64 dimensions"),
        ("9" * 400, "expected ',' or ']'|expected a value|at most"),
        ("*".join(["9" * 290] * 20), "at most 300 digits"),
        ("n*9223372036854775807*3", "below 2\\*\\*63"),
        ("*".join(f"(a{k}+b{k})" for k in range(40)), "at most 64 terms"),
        ("*".join(["n"] * 4000), "at most 4000 characters"),
        ("٣", "expected a value"),
    ],
)
def test_sizes_that_no_array_has_are_refused(size, message):
    with pytest.raises(GraphError, match=message) as caught:
        parse(ONE.replace("2,3", size))
    assert caught.value.rule.startswith("line 1: ")


@pytest.mark.parametrize(
    "call, type",
    [
        ('sum(%x) {dim=("a",), keepdim=False, dtype=None}', "f32[2]"),
        ("sum(%x) {dim=(7,), keepdim=False, dtype=None}", "f32[]"),
        ("permute(%x) {dims=5}", "f32[2,3]"),
        ("cast(%x) {dtype=graph e() -> () {\n  return\n}}", "f32[2,3]"),
        ("expand(%x) {size=(4294967296,4294967296,2,3)}", "f32[2,3]"),
    ],
)
def test_attrs_that_no_call_has_are_refused(call, type):
    """By `verify`, or by the interpreter where the rule of the op does not look at them."""
    with pytest.raises(GraphError):
        graph = parse(applied(call, type))
        verify(graph)
        interpret(graph, np.ones((2, 3), np.float32))


def test_a_size_is_never_a_float_or_a_bool():
    """2.0 == 2, so that an interned type with the one would be handed out for the other ever after."""
    with pytest.raises(ArgumentError, match="a size is an int"):
        type_of(float32, (1234567.0, 3))
    made = type_of(float32, (True, np.int64(7654321)))
    assert str(made) == "f32[1,7654321]" and made is type_of(float32, (1, 7654321))
    with pytest.raises(ArgumentError, match="is a dtype"):
        type_of("float32", (3, 1234567))


@pytest.mark.parametrize("sizes", [(2**40, 2**40), (0, 2**40, 2**40), (-1,), (1,) * 65], ids=len)
def test_types_that_no_array_has_are_not_made(sizes):
    with pytest.raises(ShapeError, match="the sizes are too large|can't be negative|at most 64 dimensions"):
        type_of(float32, sizes)


def test_a_reference_without_memory_is_an_error_of_the_graph():
    zeros = REGISTRY["zeros"]
    with Builder("g") as b:
        graph = b.finish(b.emit(zeros, *zeros.bind(2**50)).outputs[0])
    verify(graph)
    with pytest.raises(GraphError, match="the reference of zeros can't run"):
        interpret(graph)


def test_bounds_of_many_extrema_are_found_in_bounded_work():
    """Each min or max in a sum was looked into on its own: twice the work for each further one."""
    dims = [symbol(f"n{k}") for k in range(25)]
    total = sum((minimum(a, b) for a, b in zip(dims, dims[1:], strict=False)), -dims[0])
    low, high = bounds(total)
    assert low <= 0 <= high


@pytest.mark.parametrize("depth", [61, 100_000])
@pytest.mark.parametrize(
    "opening, closing", [("(", ")"), ("-", ""), ("min(n,", ")"), ("graph g() -> () {", "}")]
)
def test_deep_nesting_is_refused_before_the_stack_ends(opening, closing, depth):
    text = applied(f"tagged(%x) {{tag={opening * depth}1{closing * depth}}}")
    with pytest.raises(LaminaError):
        parse(text.replace("tagged", "clone"))


def test_an_error_about_a_long_text_can_be_read():
    with pytest.raises(GraphError) as caught:
        parse(ONE.replace("%0 = neg", f"%{'a' * 100_000} = gen"))
    assert len(str(caught.value)) < 10_000
