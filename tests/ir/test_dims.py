"""Dimensions: canonical forms, intervals, and what is decided, assumed or refused."""

import pickle
from math import inf

import hypothesis.strategies as st
import pytest
from hypothesis import given

from lamina.ir.dims import (
    at_least,
    bounds,
    conditions,
    evaluate,
    is_at_least,
    limits,
    maximum,
    minimum,
    same,
    substitute,
    symbol,
    symbols_of,
)
from lamina.ir.errors import ArgumentValueError, ShapeError
from lamina.ir.kernel.affine import Affine

n, m = symbol("n"), symbol("m")


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (n, "n"),
        (1 + n * 2, "2*n+1"),
        (m * n - n * n, "m*n-n*n"),
        (3 - n, "-n+3"),
        (n // 2, "n//2"),
        ((n + 1) // 2 + n, "((n+1)//2)+n"),
        ((2 * n) // 3, "(2*n)//3"),
        ((n - 1) // 2, "((n+1)//2)-1"),
        ((n - 1) // 2 + 1, "(n+1)//2"),
        ((2 * n + 1) // 2, "n"),
        ((6 * n + 4) // 4, "(n//2)+n+1"),
        (n // 2 // 3, "n//6"),
        (n % 4, "-4*(n//4)+n"),
        (n * m // n, "m"),
        ((n * m + 3) // n, "(3//n)+m"),
        ((n + m) * (n - m) // (n + m), "-m+n"),
        (minimum(n, 3), "min(3,n)"),
        (maximum(n, n + 1), "n+1"),
    ],
)
def test_dim_is_printed_in_canonical_form(made, text):
    assert str(made) == text


@pytest.mark.parametrize(
    ("made", "number"), [(n - n, 0), (n + 3 - n, 3), ((n - n) // 4, 0), (2 * n // n, 2), (minimum(n, -1), -1)]
)
def test_dim_without_symbols_is_an_int(made, number):
    assert type(made) is int and made == number


K = symbol("k")  # what is divided by
LIMITS = {"n": (0, inf), "m": (0, inf), "k": (1, inf)}
LEAVES = st.one_of(st.sampled_from(["n", "m"]), st.integers(0, 6))
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["+", "-", "*", "min", "max"]), inner, inner),
        st.tuples(
            st.sampled_from(["//", "%"]), inner, st.one_of(st.integers(1, 5), st.sampled_from(["k", "3k"]))
        ),
        st.tuples(st.just("*"), st.sampled_from(["k", "3k"]), inner),
    ),
    max_leaves=8,
)
MEANING = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "min": minimum,
    "max": maximum,
}


def built(tree, leaves):
    if isinstance(tree, tuple):
        return MEANING[tree[0]](built(tree[1], leaves), built(tree[2], leaves))
    return leaves.get(tree, tree)


@given(TREES, st.integers(0, 40), st.integers(0, 40), st.integers(1, 9))
def test_dim_evaluates_to_what_integers_give(tree, a, b, c):
    with limits(LIMITS):
        made = built(tree, {"n": n, "m": m, "k": K, "3k": 3 * K})
        expected = built(tree, {"n": a, "m": b, "k": c, "3k": 3 * c})
        assert evaluate(made, {n: a, m: b, K: c}) == expected
        low, high = bounds(made)
        assert low <= expected <= high
        assert substitute(substitute(substitute(made, {"n": a}), {"m": b}), {"k": c}) == expected


@given(TREES, TREES, st.integers(0, 40), st.integers(0, 40), st.integers(1, 9))
def test_same_is_never_wrong(left, right, a, b, c):
    sizes = {n: a, m: b, K: c}
    with limits(LIMITS):
        x, y = (built(t, {"n": n, "m": m, "k": K, "3k": 3 * K}) for t in (left, right))
        with conditions() as found:
            answer = same(x, y)
        if all(c.holds(sizes) for c in found):
            assert answer == (evaluate(x, sizes) == evaluate(y, sizes))
        with conditions() as found:
            answer = at_least(x, y)
        if all(c.holds(sizes) for c in found):
            assert answer == (evaluate(x, sizes) >= evaluate(y, sizes))


def test_same_decides_what_holds_for_every_size():
    assert same(2 * n, n + n)
    assert not same(n, n + 1)
    assert not same(2 * n + 1, 4 * m)  # odd, even
    assert not same(n, -1)
    assert at_least(n - n // 2, 0)
    assert n + 1 > 0 and n >= 0 and not n < 0 and n <= 2 * n
    assert bool(n + 1)


def test_same_collects_a_condition_once():
    with conditions() as found:
        assert same(n, 3) and same(n, 3) and at_least(n, m)
    assert list(map(str, found)) == ["n == 3", "n >= m"]
    assert found[0].holds({"n": 3}) and not found[0].holds({"n": 4})


def test_open_question_outside_of_conditions_is_an_error():
    with pytest.raises(ShapeError, match="whether n == 3 can't be decided while n may be any size"):
        same(n, 3)
    with pytest.raises(ShapeError, match=r"whether n >= 4 can't be decided"):
        assert n > 3
    with pytest.raises(ShapeError, match=r"whether n == 0 can't be decided"):
        bool(n)


def test_conditions_of_blocks_do_not_mix():
    with conditions() as outer:
        same(n, 1)
        with conditions() as inner:
            same(n, 2)
        same(n, 3)
    assert list(map(str, outer)) == ["n == 1", "n == 3"]
    assert list(map(str, inner)) == ["n == 2"]


@pytest.mark.parametrize("name", ["", "2n", "a b", "min", "f32", "float32", "nan", "True", "é"])
def test_symbol_refuses_a_name_that_text_could_not_hold(name):
    with pytest.raises(ArgumentValueError):
        symbol(name)


def test_division_by_what_is_not_positive_is_refused():
    for divisor in (0, -2, n - n - 1):
        with pytest.raises(ShapeError, match="not positive"):
            n // divisor


def test_evaluate_names_the_missing_symbols():
    with pytest.raises(ShapeError, match="has no value without one for m"):
        evaluate(n * m, {"n": 3})


def test_dim_is_a_value():
    assert n + 1 == symbol("n") + 1 and hash(n + 1) == hash(symbol("n") + 1)
    assert pickle.loads(pickle.dumps((n + 1) // 2)) == (n + 1) // 2
    assert symbols_of(minimum(n, m // 2)) == {"n", "m"}
    with pytest.raises(TypeError):
        n + 1.5


def test_what_terms_have_in_common_is_taken_out():
    m, n = symbol("m"), symbol("n")
    with limits({"m": (1, inf), "n": (2, inf)}):
        assert bounds(8 * m * n - 8 * n) == (0, inf)
        assert bounds(n * n - n) == (2, inf)
        assert is_at_least(m * n * 4, n * 4)
        assert not is_at_least(m * n, 2 * n)


def test_a_multiple_of_a_quotient_is_near_what_is_divided():
    count, n = symbol("count"), symbol("n")
    with limits({"count": (1, inf), "n": (1, inf)}):
        rows = (n + count - 1) // count
        assert bounds(count * rows - n)[0] == 0
        assert bounds(n - n // count * count)[0] == 0
        assert is_at_least(6 * n, 6 * count * (n // (2 * count)))
        assert not is_at_least(count * rows, n + 1)
        assert is_at_least(n, rows) and not is_at_least(n, rows + 1)
        blocks = (n + 63) // 64
        assert is_at_least(blocks * ((n + blocks - 1) // blocks), n)


def test_coefficients_are_positive_by_the_points_that_axes_have():
    """(n + 15) // 20 - 2 may be negative; where it is the points of an axis there is one at least."""
    n, rows = symbol("n"), symbol("rows")
    many = (n + 15) // 20 - 2
    extents = {"i": rows, "r": many, "x": 64}
    for part, last in (
        (Affine.of({"i": 64 * many, "r": 64, "x": 1}), 64 * many * rows - 1),
        (Affine.of({"i": 3 * many, "x": 1}), 3 * many * (rows - 1) + 63),
        (Affine.of({"x": many * rows, "i": many}), many * rows * 63 + many * (rows - 1)),
    ):
        low, high = part.bounds(extents)
        assert (low, str(high)) == (0, str(last))
    # no such multiple: what it may be below zero is below all else
    for coefficient in (64 * many - 1, -64 * many, many + rows):
        low, _ = Affine.of({"i": coefficient}).bounds(extents)
        assert str(low) == str(coefficient * (rows - 1))
