"""Special functions that NumPy lacks, vectorised and to float64 accuracy: erf, erfc, erfinv, lgamma, digamma.

Each takes an array (or a number) of any floating type and gives that type back; float32 and the halves are
computed in float64 and rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ..dtypes import converted

# W. J. Cody, "Rational Chebyshev approximation for the error function", Math. Comp. 23 (1969): three ranges.
_NEAR = (
    (
        1.85777706184603153e-1,
        3.16112374387056560,
        1.13864154151050156e2,
        3.77485237685302021e2,
        3.20937758913846947e3,
    ),
    (1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3, 2.84423683343917062e3),
)
_MIDDLE = (
    (
        2.15311535474403846e-8,
        5.64188496988670089e-1,
        8.88314979438837594,
        6.61191906371416295e1,
        2.98635138197400131e2,
        8.81952221241769090e2,
        1.71204761263407058e3,
        2.05107837782607147e3,
        1.23033935479799725e3,
    ),
    (
        1.0,
        1.57449261107098347e1,
        1.17693950891312499e2,
        5.37181101862009858e2,
        1.62138957456669019e3,
        3.29079923573345963e3,
        4.36261909014324716e3,
        3.43936767414372164e3,
        1.23033935480374942e3,
    ),
)
_FAR = (
    (
        1.63153871373020978e-2,
        3.05326634961232344e-1,
        3.60344899949804439e-1,
        1.25781726111229246e-1,
        1.60837851487422766e-2,
        6.58749161529837803e-4,
    ),
    (
        1.0,
        2.56852019228982242,
        1.87295284992346725,
        5.27905102951428412e-1,
        6.05183413124413191e-2,
        2.33520497626869185e-3,
    ),
)


def _widened(x: np.ndarray) -> tuple[np.ndarray, np.dtype]:
    x = np.asarray(x)
    kept = x.dtype if x.dtype.kind == "f" or x.dtype.name == "bfloat16" else np.dtype(np.float64)
    return converted(x, np.dtype(np.float64)), kept


# Up to this many elements a loop over the C library (0.1 us each) is quicker than two dozen calls of NumPy.
_FEW = 256


def _each(function: Callable[[float], float], x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    result = np.empty_like(x)
    result.ravel("K")[:] = [function(v) for v in x.ravel("K").tolist()]
    return result.astype(dtype)


def _polynomial(table: tuple[float, ...], x: np.ndarray) -> np.ndarray:
    """Horner's rule, highest power first.  In place: np.polyval takes twice the memory traffic."""
    y = x * table[0]
    for c in table[1:-1]:
        y += c
        y *= x
    y += table[-1]
    return y


def _ratio(table: tuple[tuple[float, ...], tuple[float, ...]], x: np.ndarray) -> np.ndarray:
    return _polynomial(table[0], x) / _polynomial(table[1], x)


def _erfc_positive(y: np.ndarray) -> np.ndarray:
    """erfc for y >= 0.46875."""
    cut = np.clip(y, 0.46875, 27.5)  # erfc is 0 in float64 beyond 26.6
    inverse = 1 / (cut * cut)
    far = (1 / math.sqrt(math.pi) - inverse * _ratio(_FAR, inverse)) / cut
    value = np.where(cut <= 4, _ratio(_MIDDLE, np.minimum(cut, 4)), far)
    coarse = np.trunc(cut * 16) / 16  # e^-y^2 in two factors: y^2 itself has lost the bits that would matter
    return np.exp(-coarse * coarse) * np.exp(-(cut - coarse) * (cut + coarse)) * value


# erf(x) / x as a ratio of polynomials in x^2, for x^2 <= 3.95^2, from where erf rounds to 1 in float32.
# Fitted by Lawson's reweighted least squares on 4000 Chebyshev nodes.
# Relative error 8.2e-10: 0.014 ulp of float32.
_SINGLE_END = 3.95
_SINGLE = (
    (
        -5.033439303682e-08,
        -1.107220195166e-06,
        0.0002941687280462,
        0.002807911363133,
        0.05038892238367,
        0.1638177490095,
        1.128379168016,
    ),
    (
        -7.252188982585e-07,
        3.748420217215e-05,
        0.0009964145553802,
        0.01316735556248,
        0.1041601385624,
        0.4785130676816,
        1.0,
    ),
)
_CHUNK = 1 << 14  # elements: four arrays of float64, half a megabyte, stay in a core's second level of cache


def _erf_single(x: np.ndarray) -> np.ndarray:
    """erf for float32 or narrower, rounded once."""
    result = np.empty_like(x)
    source, target = x.ravel("K"), result.ravel("K")
    for i in range(0, x.size, _CHUNK):  # widened by parts: all at once it would be twice the operand's bytes
        y = np.clip(source[i : i + _CHUNK].astype(np.float64), -_SINGLE_END, _SINGLE_END)
        target[i : i + _CHUNK] = y * _ratio(_SINGLE, y * y)
    return result


def erf(x: np.ndarray) -> np.ndarray:
    """The error function, odd.  Within 4 ulp of float64, 0.52 of float32.  Source: Cody 1969."""
    x = np.asarray(x)
    if x.size > _FEW and (x.dtype.kind == "f" or x.dtype.name == "bfloat16") and x.dtype != np.float64:
        return _erf_single(x)
    x, kept = _widened(x)
    if x.size <= _FEW:
        return _each(math.erf, x, kept)
    y = np.abs(x)
    near = np.minimum(y, 0.46875)
    with np.errstate(all="ignore"):
        far = np.copysign(0.5 - _erfc_positive(np.where(np.isnan(y), 1, y)) + 0.5, x)
        result = np.where(y <= 0.46875, np.copysign(near, x) * _ratio(_NEAR, near * near), far)
    return np.where(np.isnan(x), x, result).astype(kept)


def erfc(x: np.ndarray) -> np.ndarray:
    """1 - erf(x), within 7 ulp of float64, the right tail included.  Source: Cody 1969."""
    x, kept = _widened(x)
    if x.size <= _FEW:
        return _each(math.erfc, x, kept)
    y = np.abs(x)
    with np.errstate(all="ignore"):
        tail = _erfc_positive(np.where(np.isnan(y), 1, y))
        far = np.where(x < 0, 2 - tail, tail)
        near = np.clip(x, -0.46875, 0.46875)
        result = np.where(y <= 0.46875, 1 - near * _ratio(_NEAR, near * near), far)
    return np.where(np.isnan(x), x, result).astype(kept)


def erfinv(x: np.ndarray) -> np.ndarray:
    """The inverse of erf: +-inf at +-1, NaN beyond.

    Polynomials to start with (M. Giles 2012), in the far tails erfc's asymptotic form; then three Halley
    steps.
    """
    x, kept = _widened(x)
    with np.errstate(all="ignore"):
        w = -np.log((1 - x) * (1 + x))
        centre = _polynomial(
            (
                2.81022636e-08,
                3.43273939e-07,
                -3.5233877e-06,
                -4.39150654e-06,
                0.00021858087,
                -0.00125372503,
                -0.00417768164,
                0.246640727,
                1.50140941,
            ),
            np.minimum(w, 5) - 2.5,
        )
        tail = _polynomial(
            (
                -0.000200214257,
                0.000100950558,
                0.00134934322,
                -0.00367342844,
                0.00573950773,
                -0.0076224613,
                0.00943887047,
                1.00167406,
                2.83297682,
            ),
            np.sqrt(np.maximum(w, 5)) - 3,
        )
        far = w + math.log(2)  # erfc(y) is about e^-y^2 / (y sqrt(pi))
        last = np.sqrt(far - np.log(np.maximum(far, 5) * math.pi) / 2)
        y = np.where(w < 5, centre, np.where(w < 16, tail, last)) * x
        for _ in range(3):
            # erf(y) - x through erfc in the tail, where erf has no bits left
            error = np.where(np.abs(x) < 0.5, erf(y) - x, np.sign(x) * ((1 - np.abs(x)) - erfc(np.abs(y))))
            step = error / (2 / math.sqrt(math.pi) * np.exp(-y * y))
            y = np.where(np.isfinite(step), y - step / (1 + y * step), y)
        y = np.where(np.abs(x) == 1, np.copysign(np.inf, x), y)
        return np.where(np.abs(x) > 1, np.nan, np.where(x == 0, x, y)).astype(kept)


_log_gamma = np.frompyfunc(
    lambda v: math.inf if math.isinf(v) or (v <= 0 and v == int(v)) else math.lgamma(v), 1, 1
)


def lgamma(x: np.ndarray) -> np.ndarray:
    """log |gamma(x)|; inf at 0, at the negative integers and at +-inf."""
    x, kept = _widened(x)
    return np.where(np.isnan(x), x, np.asarray(_log_gamma(np.where(np.isnan(x), 1, x)), np.float64)).astype(
        kept
    )


# B_2k / 2k for the asymptotic series of digamma, Abramowitz and Stegun 6.3.18
_DIGAMMA = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)


def digamma(x: np.ndarray) -> np.ndarray:
    """The derivative of lgamma: -inf at +0, inf at -0, NaN at the negative integers.  Source: A&S 6.3.5-18.

    Below zero by reflection; below 10 by the recurrence; above by the asymptotic series, 1e-17 there.
    """
    x, kept = _widened(x)
    with np.errstate(all="ignore"):
        below = x <= 0
        y = np.where(below, 1 - x, x)
        shift = np.zeros_like(y)
        for _ in range(10):
            small = y < 10
            shift = shift - np.where(small, 1 / y, 0)
            y = np.where(small, y + 1, y)
        inverse = 1 / (y * y)
        value = shift + np.log(y) - 0.5 / y - inverse * _polynomial(_DIGAMMA[::-1], inverse)
        whole = x - np.rint(x)  # exact, where np.remainder(x, 1) would round just below a whole number
        value = np.where(below, value - np.pi / np.tan(np.pi * whole), value)
        value = np.where(below & (whole == 0), np.where(x == 0, np.copysign(np.inf, -x), np.nan), value)
        return np.where(np.isneginf(x), np.nan, np.where(np.isposinf(x), np.inf, value)).astype(kept)
