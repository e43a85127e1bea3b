"""The native vector mathematics: its error in units of the last place, at every width.

The bounds are what was measured on these very points, rounded up; `-s` prints the figures.
"""

import numpy as np
import pytest
from native import LEVELS_HERE, each_level, run_code

from lamina.ir.kernel import parse, special, verify

RNG = np.random.default_rng(0)
ENDS = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 3e38, -3e38, 88.72, 88.73, -103.9]
SPREAD = np.exp(RNG.uniform(-87, 88, 20_000))
NOTHING = [-103.98, -104.1, -149.5, -151, -700, -701, -745.2, -746, -1074.5, -1076, -4000, -4001, -1e30]
POINTS = np.concatenate(
    [np.linspace(-105, 90, 20_001), np.linspace(-3, 3, 20_001), SPREAD, -SPREAD, ENDS, NOTHING]
)
WIDE = {"f32": np.float64, "f64": np.longdouble}  # what a result is held against


def sigmoid(x):
    return np.where(x < 0, np.exp(-np.abs(x)), 1) / (1 + np.exp(-np.abs(x)))


# word: function, ulp of f32, ulp of f64 (None: the C library's); exp2 and exp of f64 need the fused
# multiply-add for 0.9, which the baseline has not
WORDS = {
    "exp": (np.exp, 0.9, 1.2),
    "exp2": (np.exp2, 0.9, 1.2),
    "expm1": (np.expm1, 1.4, 2.0),
    "log": (np.log, 0.9, 0.9),
    "log2": (np.log2, 1.6, None),
    "log10": (np.log10, 1.6, None),
    "log1p": (np.log1p, 1.4, 1.5),
    "sin": (np.sin, 1.6, None),
    "cos": (np.cos, 1.6, None),
    "tanh": (np.tanh, 2.7, 2.7),
    "sigmoid": (sigmoid, 2.5, 2.5),
    "erf": (special.erf, 1.0, None),
}
CASES = [(word, dtype) for word, row in WORDS.items() for dtype in WIDE if row[1 + (dtype == "f64")]]


def check(value: str, inputs: list[np.ndarray], want: np.ndarray, ulp: float) -> None:
    """Hold `value`, over inputs x0 and x1, against `want`; what is not finite must be the same."""
    dtype, n = "f32" if inputs[0].dtype == np.float32 else "f64", len(inputs[0])
    arguments = ", ".join(f"x{k}: {dtype}[{n}]" for k in range(len(inputs)))
    text = f"kernel k({arguments}) -> (y: {dtype}[{n}]) {{\n  parallel i:{n}\n  y[i] = {value}\n}}"
    with np.errstate(all="ignore"):
        rounded = want.astype(inputs[0].dtype)
        finite = np.isfinite(rounded)
        for target in LEVELS_HERE:
            (got,) = run_code(verify(parse(text)), inputs, target)
            np.testing.assert_array_equal(got[~finite], rounded[~finite], err_msg=target.name)
            real = ~np.isnan(rounded)
            np.testing.assert_array_equal(np.signbit(got[real]), np.signbit(rounded[real]))
            unit = np.spacing(np.abs(rounded[finite])).astype(want.dtype)
            error = np.abs(got.astype(want.dtype) - want)[finite] / unit
            print(f"{value} of {dtype}, {target.name}: {float(error.max()):.2f} ulp")
            assert error.max() <= ulp, (target.name, [x[finite][error.argmax()] for x in inputs])


@pytest.mark.parametrize("word, dtype", CASES)
def test_error_is_bounded(word, dtype):
    function, *bounds = WORDS[word]
    x = POINTS.astype(np.float32 if dtype == "f32" else np.float64)
    with np.errstate(all="ignore"):
        check(f"{word}(x0[i])", [x], function(x.astype(WIDE[dtype])), bounds[dtype == "f64"])


def test_power_is_rounded_as_c_does_and_has_its_special_cases():
    ends = [0.0, -0.0, 1, -1, 2, -2, np.inf, -np.inf, np.nan, 0.5, -0.5, 3, -3, 1e30, 1e-30, 2.5, 1e-42]
    a, b = (grid.ravel() for grid in np.meshgrid(ends, ends))
    x = np.concatenate([np.exp(RNG.uniform(-20, 20, 20_000)), 1 + RNG.uniform(-1e-3, 1e-3, 20_000), a])
    y = np.concatenate([RNG.uniform(-4, 4, 20_000), RNG.uniform(-80_000, 80_000, 20_000), b])
    x, y = x.astype(np.float32), y.astype(np.float32)
    with np.errstate(all="ignore"):
        want = np.power(x.astype(np.float64), y.astype(np.float64))
    check("pow(x0[i], x1[i])", [x, y], want, 0.51)


def test_inverse_error_function_of_doubles_inverts_it():
    x = np.concatenate([np.linspace(-1, 1, 20_001), [1e-300, 1 - 2.0**-53, 2.0, np.nan]])
    n = x.size
    text = f"kernel k(x: f64[{n}]) -> (y: f64[{n}]) {{\n  parallel i:{n}\n  y[i] = erfinv(x[i])\n}}"
    for target in LEVELS_HERE:
        (got,) = run_code(verify(parse(text)), [x], target)
        np.testing.assert_allclose(got, special.erfinv(x), rtol=16 * 2.0**-52)  # steps rounded otherwise
        assert got[-3] == pytest.approx(5.863584748755168, rel=1e-15)


@each_level
def test_halves_convert_as_numpy_does(target):
    """Every f16 widened; f32 patterns of all magnitudes narrowed, ties and subnormals among them."""
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    text = "kernel k(x: f16[65536]) -> (y: f32[65536]) {\n  parallel i:65536\n  y[i] = f32(x[i])\n}"
    (got,) = run_code(verify(parse(text)), [halves], target)
    np.testing.assert_array_equal(got, halves.astype(np.float32))
    patterns = RNG.integers(0, 1 << 32, 65536, dtype=np.uint32)
    patterns[::3] &= 0xFFFFE000  # what f16 holds exactly, or ties
    patterns[1::3] = (patterns[1::3] & 0x8FFFFFFF) | 0x30000000  # the range of f16's numbers
    x = patterns.view(np.float32)
    text = "kernel k(x: f32[65536]) -> (y: f16[65536]) {\n  parallel i:65536\n  y[i] = f16(x[i])\n}"
    (got,) = run_code(verify(parse(text)), [x], target)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(got, x.astype(np.float16))


def test_whole_powers_wrap_and_negative_ones_are_zero_but_for_units():
    base = np.array([2, 3, -3, 0, 1, -1, -1, 5, 7, -2, 0], np.int64)
    exponent = np.array([62, 41, 41, 0, -5, -5, -4, -1, 100, 63, 5], np.int64)
    want = [(int(b) ** int(e) + 2**63) % 2**64 - 2**63 if e >= 0 else 0 for b, e in zip(base, exponent)]
    want[4:7] = [1, -1, 1]
    text = "kernel k(x: i64[11], y: i64[11]) -> (z: i64[11]) {\n  parallel i:11\n  z[i] = pow(x[i], y[i])\n}"
    for target in LEVELS_HERE:
        (got,) = run_code(verify(parse(text)), [base, exponent], target)
        np.testing.assert_array_equal(got, want)
