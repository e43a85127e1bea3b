"""The vocabulary: expansions within their stated errors, special functions, Philox's known answers."""

import math
import warnings

import numpy as np
import pytest

from lamina.ir.errors import KernelError
from lamina.ir.kernel import NUMPY, VOCABULARY, Word, interpret, parse, philox, special, verify
from lamina.ir.kernel.expansions import TURNS
from lamina.ir.kernel.types import kind

SPECIAL = [
    0.0,
    -0.0,
    math.inf,
    -math.inf,
    math.nan,
    1e-40,
    -1e-40,
    1e-30,
    -1e-30,
    88.72,
    88.73,
    -87.5,
    -103.9,
    3e38,
]
REAL = np.concatenate([np.linspace(-105, 90, 20001), np.linspace(-3, 3, 20001), SPECIAL]).astype(np.float32)


def applied(word: Word, dtype: str, *arrays: np.ndarray, **options) -> np.ndarray:
    """The word over whole arrays, through text, verifier and interpreter."""
    (n,) = arrays[0].shape
    types = ["bool" if letter == "b" else dtype for letter in word.pattern[: word.arity]]
    inputs = ", ".join(f"x{k}: {t}[{n}]" for k, t in enumerate(types))
    args = ", ".join(f"x{k}[i]" for k in range(word.arity))
    result = "bool" if word.pattern.endswith(":b") else dtype
    infix = {"add": "+", "sub": "-", "mul": "*", "div": "/"}.get(word.name)
    value = f"(x0[i] {infix} x1[i])" if infix else f"{word.name}({args})"
    text = f"kernel k({inputs}) -> (y: {result}[{n}]) {{\n  parallel i:{n}\n  y[i] = {value}\n}}"
    return interpret(verify(parse(text)), *arrays, **options)[0]


# The largest error in ulp of the float32 result, measured here and stated with each expansion; where the
# result is not finite it must be the same one.
@pytest.mark.parametrize(
    "name, ulp",
    [("exp", 0.9), ("exp_below", 0.9), ("exp2", 0.9), ("expm1", 1.5), ("log", 0.9), ("log1p", 1.5)]
    + [("erf", 1.0), ("log2", 1.6), ("log10", 1.6), ("sin", 1.6), ("cos", 1.6)]
    + [("sigmoid", 2.5), ("tanh", 2.7), ("sign", 0.0), ("rsqrt", 1.5)],
)
@pytest.mark.parametrize("expanded", [True, "by bits"])
def test_expansion_stays_within_its_error(name, ulp, expanded):
    # beyond that the C library takes over
    real = REAL[~(np.abs(REAL) >= TURNS)] if name in ("sin", "cos") else REAL
    if name == "exp_below":
        real = np.concatenate([REAL[~(REAL > 0)], np.linspace(-140, -80, 20001, dtype=np.float32)])
    with np.errstate(all="ignore"):
        want = applied(VOCABULARY[name], "f32", real, exact=True)
        rounded = want.astype(np.float32)
        got = applied(VOCABULARY[name], "f32", real, expanded=expanded)
        finite = np.isfinite(rounded)
        error = np.abs(got - want)[finite] / np.spacing(np.abs(rounded))[finite]
    assert error.max() <= ulp, (real[finite][error.argmax()], error.max())
    np.testing.assert_array_equal(got[~finite], rounded[~finite])
    signs = ~np.isnan(rounded)
    np.testing.assert_array_equal(np.signbit(got[signs]), np.signbit(rounded[signs]))


def test_erfinv_expansion():
    x = np.linspace(-1, 1, 4001).astype(np.float32)
    want = applied(VOCABULARY["erfinv"], "f32", x, exact=True)
    got = applied(VOCABULARY["erfinv"], "f32", x, expanded=True)
    inside = np.isfinite(want)
    np.testing.assert_array_equal(got[~inside], want[~inside])
    # Giles states a relative error of 7e-7 near the ends, where log's argument has lost bits
    np.testing.assert_allclose(got[inside], want[inside], rtol=1e-6)


INTEGER_WORDS = ["floor_div", "remainder", "trunc_div", "fmod", "max", "min", "add", "sub", "mul"]


@pytest.mark.parametrize("name", INTEGER_WORDS)
@pytest.mark.parametrize("dtype", ["i8", "i32", "i64", "u8"])
def test_integer_words_expand_to_the_same_numbers(name, dtype):
    low = 0 if kind(dtype) == "u" else -7
    a, b = (g.ravel().astype(NUMPY[dtype]) for g in np.mgrid[low:8, low:8])
    a, b = a[b != 0], b[b != 0]
    word = VOCABULARY[name]
    np.testing.assert_array_equal(applied(word, dtype, a, b), applied(word, dtype, a, b, expanded=True))


@pytest.mark.parametrize("name", ["floor_div", "remainder"])
@pytest.mark.parametrize("dtype", ["i8", "i32", "i64"])
def test_integers_divided_by_zero_give_what_numpy_gives(name, dtype):
    a, b = np.array([-5, 0, 5], NUMPY[dtype]), np.zeros(3, NUMPY[dtype])
    for options in ({}, {"expanded": True}):
        np.testing.assert_array_equal(applied(VOCABULARY[name], dtype, a, b, **options), [0, 0, 0])


@pytest.mark.parametrize(
    "name, python", [("floor_div", lambda a, b: a // b), ("remainder", lambda a, b: a % b)]
)
@pytest.mark.parametrize("dtype", ["f32", "f64", "i32"])
def test_division_rounds_as_pythons(name, python, dtype):
    a, b = (g.ravel() for g in np.mgrid[-7:8, -7:8])
    a, b = a[b != 0], b[b != 0]
    if kind(dtype) == "f":
        a, b = a * 0.75, b * 0.5  # exact in both types
    want = [python(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    a, b = a.astype(NUMPY[dtype]), b.astype(NUMPY[dtype])
    for options in ({}, {"expanded": True}):
        got = applied(VOCABULARY[name], dtype, a, b, **options)
        np.testing.assert_array_equal(got, want)


def test_floor_div_follows_the_remainder_where_the_quotient_rounds():
    a, b = np.array([1.0, -1.0]), np.array([0.1, 0.1])
    for options in ({}, {"expanded": True}):  # 1.0 / 0.1 rounds to 10, yet 10 * 0.1 exceeds 1
        np.testing.assert_array_equal(applied(VOCABULARY["floor_div"], "f64", a, b, **options), [9.0, -10.0])


def test_max_and_min_let_nan_through():
    a, b = np.array([1, np.nan, 2, np.nan]), np.array([np.nan, 1, 3, np.nan])
    np.testing.assert_array_equal(applied(VOCABULARY["max"], "f64", a, b), [np.nan, np.nan, 3, np.nan])
    np.testing.assert_array_equal(applied(VOCABULARY["min"], "f64", a, b), [np.nan, np.nan, 2, np.nan])


def test_round_takes_halves_to_even():
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5], np.float32)
    np.testing.assert_array_equal(applied(VOCABULARY["round"], "f32", x), [0, 2, 2, -0.0, -2])


def test_shift_right_is_arithmetic_for_signed_and_logical_for_unsigned():
    word, one = VOCABULARY["shr"], 1
    assert applied(word, "i32", np.array([-8], np.int32), np.array([one], np.int32)) == -4
    assert applied(word, "u32", np.array([2**32 - 8], np.uint32), np.array([one], np.uint32)) == 2**31 - 4


def test_words_count_their_operands():
    with pytest.raises(KernelError, match="select takes 3 operands, got 2"):
        VOCABULARY["select"](True, 1)


# ---- special functions
def grid() -> np.ndarray:
    return np.concatenate(
        [np.linspace(-7, 7, 7001), [0.0, -0.0, math.inf, -math.inf, math.nan, 1e-300, 27.0, 30.0]]
    )


def ulps(got: np.ndarray, want: np.ndarray) -> float:
    """The largest error in ulp, over the normal results; the others must be equal, NaN and signs included."""
    usual = np.isfinite(want) & (np.abs(want) > 1e-300)
    np.testing.assert_array_equal(got[~usual], want[~usual])
    np.testing.assert_array_equal(np.signbit(got), np.signbit(want))
    return float((np.abs(got - want)[usual] / np.spacing(np.abs(want))[usual]).max())


def test_erf_and_erfc_against_the_c_library():
    assert ulps(special.erf(grid()), np.vectorize(math.erf)(grid())) <= 4
    assert ulps(special.erfc(grid()), np.vectorize(math.erfc)(grid())) <= 7


def test_erfinv_inverts_erf():
    x = np.concatenate([np.linspace(-1, 1, 4001), [1 - 1e-12, 1e-300, -0.0, 2.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        y = special.erfinv(x)
    assert np.isnan(y[-1]) and np.isinf(y[0]) and np.isinf(y[4000]) and np.signbit(y[-2])
    inside = np.abs(x) < 1
    # one ulp of x and what that is worth in erf, plus erf's own 4
    np.testing.assert_allclose(np.vectorize(math.erf)(y[inside]), x[inside], rtol=1e-15, atol=0)


def test_lgamma_and_digamma():
    x = np.array([0.5, 1.0, 2.5, 10.0, 171.0, -0.5, -2.5, 0.0, -3.0, math.inf])
    np.testing.assert_array_equal(special.lgamma(x)[:7], [math.lgamma(v) for v in x[:7]])
    assert np.isposinf(special.lgamma(x)[7:]).all()
    euler = 0.5772156649015329
    want = [-euler - 2 * math.log(2), -euler, 1.5 - euler, math.nan, -math.inf]  # A&S 6.3.2, 6.3.3, 6.3.5
    np.testing.assert_allclose(special.digamma(np.array([0.5, 1.0, 3.0, -1.0, 0.0])), want, rtol=1e-14)
    y = np.array([0.01, 0.3, 4.2, 33.0, -0.7])
    np.testing.assert_allclose(special.digamma(y + 1) - special.digamma(y), 1 / y, rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_special_functions_keep_the_type(dtype):
    for function in (special.erf, special.erfc, special.erfinv, special.lgamma, special.digamma):
        assert function(np.full((2, 0, 3), 0.5, dtype)).shape == (2, 0, 3)
        assert function(np.array(0.5, dtype)).dtype == dtype


# ---- Philox: the known answers of the Random123 distribution (kat_vectors, philox4x32 10)
ONES = 0xFFFFFFFF
KNOWN = [
    ((0, 0), (0, 0, 0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((ONES, ONES), (ONES,) * 4, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0xA4093822, 0x299F31D0),
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize("key, counter, words", KNOWN)
def test_philox_known_answers(key, counter, words):
    found = philox.philox_words(tuple(map(np.uint32, key)), tuple(map(np.uint32, counter)))
    assert tuple(map(int, found)) == words
    operands = [np.full(4, v, np.uint32) for v in (*key, *counter)] + [np.arange(4, dtype=np.uint32)]
    for options in ({}, {"expanded": True}):
        np.testing.assert_array_equal(applied(VOCABULARY["random_bits"], "u32", *operands, **options), words)


# A vector with a subnormal lane takes 60 ns on Intel.  These have one: powers by two factors (on AVX-512 they
# are one instruction), and sigmoid, which needs what is small on one side of 0 and does not look on which.
SUBNORMAL_ON_THE_WAY = {(name, "f32") for name in ("exp", "exp_below", "exp2", "sigmoid")} | {
    ("sigmoid", "f64")
}


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("name", [n for n, word in VOCABULARY.items() if word.expand and word.arity == 1])
def test_nothing_is_subnormal_on_the_way_to_what_is_not(name, dtype):
    if dtype not in VOCABULARY[name].expands:
        return
    tiny, kind = np.finfo(NUMPY[dtype]).tiny, NUMPY[dtype]
    sizes = np.concatenate([np.geomspace(1e-9, 1e4, 3001), np.linspace(0.01, 800, 4001)]).astype(kind)
    x = -sizes if name == "exp_below" else np.concatenate([sizes, -sizes])
    n = x.size
    text = f"kernel k(x: {dtype}[{n}]) -> (y: {dtype}[{n}]) {{\n  parallel i:{n}\n  y[i] = {name}(x[i])\n}}"
    met = np.zeros(n, bool)

    def is_subnormal(values: np.ndarray) -> np.ndarray:
        return (np.abs(values) > 0) & (np.abs(values) < tiny)

    def watched(values: np.ndarray, declared: str, size: np.ndarray) -> np.ndarray:
        if declared == dtype and values.shape == x.shape:
            met[...] |= is_subnormal(values)
        return values

    (y,) = interpret(verify(parse(text)), x, expanded=True, rounding=watched)
    assert (met & ~is_subnormal(y)).any() == ((name, dtype) in SUBNORMAL_ON_THE_WAY)
