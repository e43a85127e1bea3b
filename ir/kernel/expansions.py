"""Words written in simpler words, for float32: polynomials whose error can be measured in NumPy.

Source of the coefficients: minimax polynomials after N. Juffa (exp, log, erf); the errors were measured
against float64 over the float32 range.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from .scalar import Const, Expr, Scalar, bitcast, cast, const, op


def polynomial(x: Expr, coefficients: Sequence[float]) -> Expr:
    """Horner's rule with fused multiply-adds, highest power first."""
    total: Expr = const(coefficients[0])
    for coefficient in coefficients[1:]:
        total = op("fma", total, x, coefficient)
    return total


def between(low: float, x: Expr, high: float) -> Expr:
    """Clamp; a NaN passes through."""
    return op("max", op("min", x, high), low)


_EXP = (1.37805939e-3, 8.37312452e-3, 4.16695364e-2, 1.66664720e-1, 4.99999851e-1)


def _reduced(x: Expr) -> tuple[Expr, Expr]:
    """n and r with x = n ln 2 + r, |r| <= ln(2)/2; ln 2 is taken in two parts, so that r has all its bits."""
    n = op("round", x * 1.44269504)
    return n, _rest(x, n)


def _rest(x: Expr, n: Expr) -> Expr:
    return op("fma", n, -1.42860677e-6, op("fma", n, -6.93145752e-1, x))


# Where a power is 0 its exponent is far below those of subnormal numbers: an instruction that rounds one to 0
# is a trap on Intel (60 ns for a vector, as for subnormal results), and masks of attention are all of that.
_NOTHING = -700.0


def exp(x: Expr) -> Expr:
    """2^n * p(r), x = n ln 2 + r.  0.86 ulp.  The clamp keeps n small."""
    n, r = _reduced(between(_NOTHING, x, 89.0))
    return op("scale2", polynomial(r, (*_EXP, 1.0, 1.0)), n)


# Floats from 2^23 on are whole numbers: added to one in the middle, x is rounded to one that lies in the last
# bits.  These are shifted into the place of an exponent, so many more than which that of a power is.
_WHOLE, _BIAS = 1.5 * 2.0**23, 127


def exp_by_bits(x: Expr) -> Expr:
    """As `exp`, n from the bits that it was rounded in, 2^n as two factors, of which neither is subnormal.

    Both are 0 where it is clamped: between that and e^-104 the product is rounded to 0, which few arguments
    are.  2^20 of them take 0.36 ns each in place of 0.44 (EPYC "Zen 4" by AVX2, one thread, 2026-11-30).
    """
    x = between(-176.0, x, 89.0)
    rounded = op("fma", x, 1.44269504, _WHOLE + 2 * _BIAS)
    r = _rest(x, rounded - (_WHOLE + 2 * _BIAS))
    both = bitcast(rounded, "i32")
    half = both >> 1
    return polynomial(r, (*_EXP, 1.0, 1.0)) * _exponent(half) * _exponent(both - half)


def exp_below(x: Expr) -> Expr:
    """As `exp` where x <= 0: nothing overflows."""
    n, r = _reduced(op("max", x, _NOTHING))
    return op("scale2", polynomial(r, (*_EXP, 1.0, 1.0)), n)


_DOWN = 64  # powers of two that the polynomial below is smaller by


def exp_below_by_bits(x: Expr) -> Expr:
    """As `exp_by_bits` where x <= 0: the polynomial is smaller by 2^64 and the power greater, so that none
    above 2^-190 is subnormal; it is one factor, and where x is clamped 0.
    """
    magic = _WHOLE + _BIAS + _DOWN
    x = op("max", x, -132.4)
    rounded = op("fma", x, 1.44269504, magic)
    r = _rest(x, rounded - magic)
    small = polynomial(r, [math.ldexp(c, -_DOWN) for c in (*_EXP, 1.0, 1.0)])
    return small * _exponent(bitcast(rounded, "i32"))


def _exp_between(x: Expr) -> Expr:
    """As `exp` for -87 < x < 88, whose power is one factor."""
    rounded = op("fma", x, 1.44269504, _WHOLE + _BIAS)
    r = _rest(x, rounded - (_WHOLE + _BIAS))
    return polynomial(r, (*_EXP, 1.0, 1.0)) * _exponent(bitcast(rounded, "i32"))


def _exponent(n: Expr) -> Expr:
    """2^(n - _BIAS), n being the last bits."""
    return bitcast(n << 23, "f32")


def exp2(x: Expr) -> Expr:
    """2^n * e^(r ln 2), x = n + r."""
    x = between(_NOTHING, x, 129.0)
    n = op("round", x)
    return op("scale2", polynomial((x - n) * 0.693147181, (*_EXP, 1.0, 1.0)), n)


def expm1(x: Expr) -> Expr:
    """2^n (p(r) - 1) + (2^n - 1): no cancellation near 0, and -0 stays -0."""
    clamped = between(-17.5, x, 88.8)
    n, r = _reduced(clamped)
    p = op("fma", polynomial(r, _EXP), r * r, r)
    # 2^127 at most: 2^128 overflows, though 2^128 (p + 1) - 1 need not
    whole = op("scale2", const(1.0), n - 1.0)
    grown = op("fma", p, whole, whole - 0.5) * 2.0
    return op(
        "select", op("eq", n, 0.0), op("copysign", p, x), op("select", x > 88.72284, x * float("inf"), grown)
    )


def _split(x: Expr) -> tuple[Expr, Expr, Expr]:
    """e, f and r with x = 2^e (1 + f), 1 + f in [2/3, 4/3), and log(1 + f) = f + f^2 r."""
    tiny = x < 1.17549435e-38
    scaled = op("select", tiny, x * 8388608.0, x)
    bits = bitcast(scaled, "i32")
    e = (bits - 0x3F2AAAAB) >> 23
    f = bitcast(bits - (e << 23), "f32") - 1.0
    exponent = cast(e, "f32") + op("select", tiny, -23.0, 0.0)
    s = f * f
    r = op("fma", const(-0.130310059), f, 0.140869141)
    r = op("fma", r, s, op("fma", const(-0.121483140), f, 0.139814854))
    for coefficient in (-0.166846126, 0.200120345, -0.249996200, 0.333331972, -0.5):
        r = op("fma", r, f, coefficient)
    return exponent, f, r


def _at_the_ends(x: Expr, r: Expr) -> Expr:
    """The logarithm of 0, of negative numbers, of infinity and NaN; r elsewhere."""
    r = op("select", x < float("inf"), r, x)  # inf and NaN are their own logarithms
    r = op("select", op("eq", x, 0.0), -float("inf"), r)
    return op("select", x < 0.0, float("nan"), r)


def log(x: Expr) -> Expr:
    """e ln 2 + q(m - 1), x = 2^e m, m in [2/3, 4/3).  0.84 ulp; subnormals are scaled up first."""
    e, f, r = _split(x)
    return _at_the_ends(x, op("fma", e, 0.693147182, op("fma", r, f * f, f)))


def log2(x: Expr) -> Expr:
    """e + log(m) / ln 2, the factor in two parts, so that powers of two are exact.  1.6 ulp."""
    e, f, r = _split(x)
    small = op("fma", f, 1.92596299e-8, r * (f * f) * 1.44269504)
    return _at_the_ends(x, e + op("fma", f, 1.44269502, small))


def log10(x: Expr) -> Expr:
    """e log10 2 + log(m) / ln 10, each factor in two parts.  1.6 ulp."""
    e, f, r = _split(x)
    small = op("fma", e, 4.60503907e-6, r * (f * f) * 0.434294482)
    small = op("fma", f, 0.434294482, small)
    return _at_the_ends(x, op("fma", e, 0.301025391, small))


def log1p(x: Expr) -> Expr:
    """log(1 + x) plus the part of x that 1 + x lost, over 1 + x (Kahan's correction)."""
    u = x + 1.0
    lost = op("select", op("abs", x) < 1.0, x - (u - 1.0), 1.0 - (u - x))
    corrected = op("log", u) + op("select", (u > 0.0) & (u < float("inf")), lost / u, 0.0)
    return op("select", op("abs", x) < 1e-07, x, corrected)


_ERF_TAIL = (-1.06777877e-1, -6.34846687e-1, -1.28717512e-1)
_ERF_NEAR = (-5.96761703e-4, 4.99119423e-3, -2.67681349e-2, 1.12819925e-1, -3.76125336e-1, 1.28379166e-1)


def erf(x: Expr) -> Expr:
    """Two polynomials, split at |x| = 0.93.  0.99 ulp.

    The tail ends where 1 - e^tail is 1: a power that is subnormal is a trap on Intel (60 ns for a vector).
    """
    t, s = op("abs", x), x * x
    tail = op(
        "fma",
        op("fma", const(-1.72853470e-5), t, 3.83197126e-4),
        s,
        op("fma", const(-3.88396438e-3), t, 2.42546219e-2),
    )
    for coefficient in _ERF_TAIL:
        tail = op("fma", tail, t, coefficient)
    tail = op("max", op("fma", tail, t, op("neg", t)), -20.0)
    far = op("copysign", 1.0 - _exp_between(tail), x)
    return op("select", t > 0.927734375, far, op("fma", polynomial(s, _ERF_NEAR), x, x))


ERFINV_CENTRE = (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087)
ERFINV_CENTRE += (-0.00125372503, -0.00417768164, 0.246640727, 1.50140941)
ERFINV_TAIL = (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773)
ERFINV_TAIL += (-0.0076224613, 0.00943887047, 1.00167406, 2.83297682)


def erfinv(x: Expr) -> Expr:
    """Two polynomials in w = -log(1 - x^2).  Source: M. Giles, "Approximating the erfinv function", 2012."""
    w = op("neg", op("log", (1.0 - x) * (x + 1.0)))
    centre = polynomial(w - 2.5, ERFINV_CENTRE)
    tail = polynomial(op("sqrt", w) - 3.0, ERFINV_TAIL)
    inside = op("select", w < 5.0, centre, tail) * x
    return op("select", op("eq", op("abs", x), 1.0), x * float("inf"), inside)


def sigmoid(x: Expr) -> Expr:
    """1 / (1 + e^-x) for x >= 0, e^x / (1 + e^x) below, so that small results keep their bits.  2.5 ulp."""
    e = op("exp", op("neg", op("abs", x)))
    return op("select", x < 0.0, e, 1.0) / (e + 1.0)


def tanh(x: Expr) -> Expr:
    """h / (h + 1) with 2 h = e^(2|x|) - 1, as in `expm1`, of whose ends there are none here.  2.9 ulp.
    Beyond 10 the result is 1 in float32.
    """
    a = op("min", op("abs", x), 10.0)
    n = op("round", a * (2 * 1.44269504))
    return _tanh(x, a, n, op("scale2", const(1.0), n))


def tanh_by_bits(x: Expr) -> Expr:
    """As `tanh`, n from the bits that it was rounded in (see `exp_by_bits`)."""
    a = op("min", op("abs", x), 10.0)
    rounded = op("fma", a, 2 * 1.44269504, _WHOLE + _BIAS)
    return _tanh(x, a, rounded - (_WHOLE + _BIAS), _exponent(bitcast(rounded, "i32")))


def _tanh(x: Expr, a: Expr, n: Expr, whole: Expr) -> Expr:
    r = op("fma", n, -1.42860677e-6 / 2, op("fma", n, -6.93145752e-1 / 2, a))  # half of the rest
    scaled = [c * 2.0 ** (len(_EXP) - k) for k, c in enumerate(_EXP)]
    p = op("fma", polynomial(r, scaled), r * r, r)
    h = op("fma", p, whole, op("fma", whole, 0.5, -0.5))
    return op("copysign", h / (h + 1.0), x)


# Fitted by Lawson's reweighted least squares on Chebyshev nodes of |r| <= pi/4: 0.06 ulp, 0.002 ulp.
_SIN = (-0.000195172989, 0.00833217815, -0.166666549)
_COS = (2.44331569e-05, -0.00138873163, 0.0416666457)
TURNS = 2.0**20  # |x| from which n pi/2 is no longer exact in `_quadrant`


def _quadrant(x: Expr) -> tuple[Expr, Expr]:
    """n mod 4 and r with x = n pi/2 + r, |r| <= pi/4; in float64, with pi/2 in parts of 33 bits."""
    wide = cast(x, "f64")
    n = op("round", wide * 0.6366197723675814)
    r = op("fma", n, -1.5707963267341256, wide)
    r = op("fma", n, -6.077100506303966e-11, r)
    r = op("fma", n, -2.0222662487959506e-21, r)
    return cast(bitcast(n + 1.5 * 2.0**52, "i64"), "i32") & 3, cast(r, "f32")


def _wave(x: Expr, quadrant: Expr, r: Expr) -> Expr:
    """The sine of r plus so many quarters of a turn."""
    s = r * r
    sine = op("fma", polynomial(s, _SIN), s * r, r)
    cosine = op("fma", polynomial(s, _COS), s * s, op("fma", s, -0.5, 1.0))
    swapped = op("ne", quadrant & 1, 0)
    value = op("select", swapped, cosine, sine)
    return op("select", quadrant > 1, op("neg", value), value)


def sin(x: Expr) -> Expr:
    """Polynomials on a quarter of a turn, for |x| < TURNS.  1.6 ulp, most of it r's own rounding."""
    quadrant, r = _quadrant(x)
    return op("select", op("eq", x, 0.0), x, _wave(x, quadrant, r))  # -0 stays -0


def cos(x: Expr) -> Expr:
    """As `sin`, a quarter of a turn on."""
    quadrant, r = _quadrant(x)
    return _wave(x, (quadrant + 1) & 3, r)


def scale2(p: Expr, n: Expr) -> Expr:
    """p * 2^n by two factors of half the exponent: neither overflows where the product does not.  Both are 0
    where n is less than any float's."""
    whole = op("max", cast(n, "i32"), -254)
    half = whole >> 1
    return p * _power_of_two(half) * _power_of_two(whole - half)


def _power_of_two(n: Expr) -> Expr:
    return bitcast((n + 127) << 23, "f32")


def sign(x: Expr) -> Expr:
    """-1, 0 or 1; 0 for NaN."""
    return op("select", x > 0, 1, op("select", x < 0, -1, 0))


_ROOTS = {0.5: lambda x: op("sqrt", x), -0.5: lambda x: 1.0 / op("sqrt", x), -1.0: lambda x: 1.0 / x}


def power(x: Expr, y: Expr) -> Expr | None:
    """x^y as products where y is a small whole constant: 2 roundings at most for floats up to x^4."""
    if isinstance(y, Const) and isinstance(y.value, float) and y.value in _ROOTS:
        return _ROOTS[y.value](x)
    if not isinstance(y, Const) or y.value not in range(1, 5 if isinstance(y.value, float) else 64):
        return None
    result: Expr | None = None
    exponent = int(y.value)
    while exponent:
        if exponent & 1:
            result = x if result is None else result * x
        exponent >>= 1
        x = x * x
    return result


# Fitted as _SIN, on |r| <= 1/2: a relative error of 4.7e-11
_EXP2 = (1.51961564e-05, 0.000154667563, 0.00133339351, 0.00961803813, 0.0555041037, 0.240226511)
_EXP2 += (0.6931471807, 1.0)


def power_single(x: Expr, y: Expr) -> Expr:
    """x^y of float32: as products, else 2^(y log2 |x|) in float64.  0.51 ulp; C's special cases."""
    products = power(x, y)
    if products is not None:
        return products
    size, wide = op("abs", x), cast(y, "f64")
    bits = bitcast(cast(size, "f64"), "i64")
    e = (bits - 0x3FE6A09E667F3BCD) >> 52  # m from sqrt(1/2)
    m = bitcast(bits - (e << 52), "f64")
    s = (m - 1.0) / (m + 1.0)
    z = s * s
    series = polynomial(z, [2 / (2 * k + 1) for k in range(7, -1, -1)])
    exponent = bitcast(e + 0x4338000000000000, "f64") - 1.5 * 2.0**52
    log2 = op("fma", s * series, 1.4426950408889634, exponent)
    log2 = op("select", size < float("inf"), log2, cast(size, "f64"))
    log2 = op("select", op("eq", size, 0.0), -float("inf"), log2)
    t = between(-300.0, wide * log2, 300.0)
    n = op("round", t)
    grown = bitcast((bitcast(n + 1.5 * 2.0**52, "i64") + 1023) << 52, "f64")
    value = cast(polynomial(t - n, _EXP2) * grown, "f32")
    # of negative x: the sign of an odd power; NaN for a power that is not whole
    half = y * 0.5
    whole, odd = op("eq", op("floor", y), y), op("ne", op("floor", half), half)
    negative = bitcast(x, "i32") < 0
    value = op("select", negative & whole & odd, op("neg", value), value)
    invalid = (x < 0.0) & op("bit_not", whole) & (size < float("inf"))
    value = op("select", invalid, float("nan"), value)
    endless = op("eq", size, 1.0) & op("eq", op("abs", y), float("inf"))
    return op("select", op("eq", x, 1.0) | op("eq", y, 0.0) | endless, 1.0, value)


def remainder(x: Expr, y: Scalar) -> Expr:
    """The remainder that has the sign of y, as Python's %: fmod, moved by y where the signs differ."""
    r = op("fmod", x, y)
    wrong = op("ne", r, 0) & op("ne", r < 0, op("lt", y, 0))
    return op("select", wrong, r + y, r)


def floor_div_floating(x: Expr, y: Scalar) -> Expr:
    """Python's // on floats: (x - remainder) / y, put on a whole number; a zero takes the sign of x / y."""
    r = op("fmod", x, y)
    q = (x - r) / y
    wrong = op("ne", r, 0) & op("ne", r < 0, op("lt", y, 0))
    q = op("select", wrong, q - 1.0, q)
    whole = op("floor", q)
    whole = op("select", (q - whole) > 0.5, whole + 1.0, whole)
    whole = op("select", op("eq", q, 0), op("copysign", op("mul", q, 0), x / y), whole)
    return op("select", op("eq", y, 0), x / y, whole)


def floor_div(x: Expr, y: Scalar) -> Expr:
    """The quotient that goes with the Python remainder, as signed integers; 0 where y is 0."""
    q = op("trunc_div", x, y)
    r = x - q * y
    wrong = op("ne", r, 0) & op("ne", r < 0, op("lt", y, 0)) & op("ne", y, 0)
    return op("select", wrong, q - 1, q)
