"""Words of float64 in simpler words: series with exact coefficients, and reductions that lose no bits.

The errors were measured against 80-bit arithmetic, with a fused multiply-add; without it exp and exp2 reach
1.2 ulp.
"""

from __future__ import annotations

from math import factorial

from .expansions import ERFINV_CENTRE, ERFINV_TAIL, between, polynomial
from .scalar import Expr, bitcast, cast, const, op

_LN2_HIGH, _LN2_LOW = 0.6931471803691238, 1.9082149292705877e-10  # the first has 32 bits: n times it is exact
_LOG2E = 1.4426950408889634
_WHOLE = 1.5 * 2.0**52  # added to a whole number, it leaves that number in the low bits of the sum
_NOTHING = -4000.0  # its exponent is below those of subnormal numbers, which are slow (expansions.py)
_EXP = tuple(1 / factorial(k) for k in range(14, 1, -1))  # |r| <= ln(2)/2: the next term is below 2^-60


def _power_of_two(n: Expr) -> Expr:
    """2^n for whole n from -1022 to 1023."""
    return bitcast((bitcast(n + _WHOLE, "i64") + 1023) << 52, "f64")


def scale2(p: Expr, n: Expr) -> Expr:
    """p * 2^n by two factors of half the exponent: neither overflows where the product does not.  Both are 0
    where n is less than any double's."""
    n = op("max", n, -2046.0)
    half = op("floor", n * 0.5)
    return p * _power_of_two(half) * _power_of_two(n - half)


def _reduced(x: Expr) -> tuple[Expr, Expr]:
    """n and r with x = n ln 2 + r, |r| <= ln(2)/2."""
    n = op("round", x * _LOG2E)
    return n, op("fma", n, -_LN2_LOW, op("fma", n, -_LN2_HIGH, x))


def exp(x: Expr) -> Expr:
    """2^n * e^r, e^r by its series.  0.9 ulp."""
    n, r = _reduced(between(_NOTHING, x, 710.0))
    return scale2(polynomial(r, (*_EXP, 1.0, 1.0)), n)


exp_below = exp  # which the C library has no function for


def exp2(x: Expr) -> Expr:
    """2^n * e^(r ln 2).  0.9 ulp."""
    x = between(_NOTHING, x, 1025.0)
    n = op("round", x)
    r = x - n
    return scale2(polynomial(r * 0.6931471805599453, (*_EXP, 1.0, 1.0)), n)


def expm1(x: Expr) -> Expr:
    """2^n (e^r - 1) + (2^n - 1): no cancellation near 0, and -0 stays -0.  1.8 ulp."""
    n, r = _reduced(between(-40.0, x, 710.0))
    p = op("fma", polynomial(r, _EXP), r * r, r)
    whole = scale2(cast(const(1.0), "f64"), n - 1.0)
    grown = op("fma", p, whole, whole - 0.5) * 2.0
    kept = op("select", op("eq", n, 0.0), op("copysign", p, x), grown)
    return op("select", x > 709.782712893384, x * float("inf"), kept)


def _split(x: Expr) -> tuple[Expr, Expr]:
    """The exponent e and f with x = 2^e (1 + f), 1 + f in [sqrt(1/2), sqrt(2)); subnormals are scaled up."""
    tiny = x < 2.2250738585072014e-308
    bits = bitcast(op("select", tiny, x * 2.0**54, x), "i64")
    shifted = bits - 0x3FE6A09E667F3BCD  # sqrt(1/2)
    e = shifted >> 52
    f = bitcast(bits - (e << 52), "f64") - 1.0
    whole = bitcast(e + 0x4338000000000000, "f64") - _WHOLE
    return whole + op("select", tiny, -54.0, 0.0), f


def _rest(f: Expr) -> Expr:
    """log(1 + f) - f, by the series of atanh at s = f / (2 + f): log(1 + f) = 2 s + 2/3 s^3 + ..."""
    s = f / (f + 2.0)
    z = s * s
    series = polynomial(z, [2 / (2 * k + 1) for k in range(11, 0, -1)]) * z
    half = f * f * 0.5
    return s * (half + series) - half


def _at_the_ends(x: Expr, inside: Expr) -> Expr:
    """The logarithm of 0, of negative numbers, of infinity and NaN."""
    r = op("select", x < float("inf"), inside, x)
    r = op("select", op("eq", x, 0.0), -float("inf"), r)
    return op("select", x < 0.0, float("nan"), r)


def log(x: Expr) -> Expr:
    """e ln 2 + log(1 + f), the small parts added first.  0.8 ulp."""
    e, f = _split(x)
    return _at_the_ends(x, op("fma", e, _LN2_HIGH, f + op("fma", e, _LN2_LOW, _rest(f))))


def log1p(x: Expr) -> Expr:
    """log(1 + x) plus the part of x that 1 + x lost, over 1 + x (Kahan's correction).  1.5 ulp."""
    u = x + 1.0
    lost = op("select", op("abs", x) < 1.0, x - (u - 1.0), 1.0 - (u - x))
    corrected = log(u) + op("select", (u > 0.0) & (u < float("inf")), lost / u, 0.0)
    return op("select", op("abs", x) < 2.0**-54, x, corrected)


def tanh(x: Expr) -> Expr:
    """t / (t + 2) with t = e^(2|x|) - 1.  2.5 ulp.  Beyond 20 the result is 1 in float64."""
    a = op("min", op("abs", x), 20.0)
    t = expm1(a + a)
    return op("copysign", t / (t + 2.0), x)


def erfinv(x: Expr) -> Expr:
    """Giles' polynomials as a start, in the far tails erfc's asymptotic form inverted; then two steps of
    Halley on erf(y) - x, through erfc where erf has no bits left.
    """
    w = op("neg", op("log", (1.0 - x) * (x + 1.0)))
    centre = polynomial(op("min", w, 5.0) - 2.5, ERFINV_CENTRE)
    tail = polynomial(op("sqrt", op("max", w, 5.0)) - 3.0, ERFINV_TAIL)
    far = w + 0.6931471805599453
    last = op("sqrt", far - op("log", op("max", far, 5.0) * 3.141592653589793) * 0.5)
    y = op("select", w < 5.0, centre, op("select", w < 16.0, tail, last)) * x
    size = op("abs", x)
    for _ in range(2):
        far = (1.0 - size) - op("erfc", op("abs", y))
        error = op("select", size < 0.5, op("erf", y) - x, op("select", x < 0.0, op("neg", far), far))
        step = error / (op("exp", op("neg", y * y)) * 1.1283791670955126)
        y = op("select", op("abs", step) < 1.0, y - step / op("fma", y, step, 1.0), y)
    return op("select", op("eq", size, 1.0), x * float("inf"), op("select", op("eq", x, 0.0), x, y))
