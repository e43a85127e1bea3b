"""Functions of mathematical physics and statistics, by SciPy: PyTorch keeps them under `torch.special`.

SciPy is the extra `scipy`, loaded at the first call.  Gradients are written with ops, so they need no more.
"""

from __future__ import annotations

from math import exp as number_exp
from math import inf, pi, sqrt
from math import lgamma as number_lgamma
from math import log as number_log
from typing import Any

from .. import lowering
from ..elementwise import elementwise
from ..errors import ArgumentValueError
from ..lazy import load
from ..op import Op, composite
from ..sample import binary_samples, unary_samples
from .arithmetic import sign
from .compare import eq, gt, isnan, le, logical_and, where
from .create import new_ones
from .gamma import digamma, lgamma, trigamma
from .math import erf, erfc, exp, log, log1p
from .math import sin as sine
from .powers import reciprocal
from .reduce import sum
from .scan import cumsum
from .view import unsqueeze

_SCIPY = lowering.extern("SciPy is a library of the host")
_POSITIVE = {"low": 0.3, "high": 3.0}


def _by_scipy(name: str, scipy_name: str, doc: str, *, output: int | None = None, **record: Any) -> Op:
    """Enter a function of SciPy's.  output: which of several results is meant."""

    def reference(*operands: Any) -> Any:
        found = getattr(load("scipy.special", "scipy"), scipy_name)(*operands)
        return found if output is None else found[output]

    operands = record.setdefault("operands", ("input",))
    samples = unary_samples(**_POSITIVE) if len(operands) == 1 else binary_samples(_POSITIVE)
    return elementwise(
        name,
        reference,
        reference=reference,
        result="float",
        lower=_SCIPY,
        **({"grad": None, "samples": samples, "inplace": False, "method": False} | record),
        doc=f"{doc}  Integers give the default float.",
    )


# ---- modified Bessel functions
def _over(out: Any, input: Any) -> Any:
    """out / input of an odd function with slope 1/2 at 0."""
    at_zero = eq(input, 0.0)
    return where(at_zero, 0.5, out / where(at_zero, 1.0, input))


def _grad_i1e(g: Any, input: Any, out: Any) -> Any:
    return g * (special_i0e(input) - out * sign(input) - _over(out, input))


i0 = _by_scipy(
    "i0", "i0", "Compute the modified Bessel function of the first kind, of order 0.",
    grad=lambda g, input: g * special_i1(input), inplace=True, method=True,
)  # fmt: skip
special_i0e = _by_scipy(
    "special_i0e", "i0e", "Compute i0(input) * exp(-|input|).",
    grad=lambda g, input, out: g * (special_i1e(input) - sign(input) * out),
)  # fmt: skip
special_i1 = _by_scipy(
    "special_i1", "i1", "Compute the modified Bessel function of the first kind, of order 1.",
    grad=lambda g, input, out: g * (i0(input) - _over(out, input)),
)  # fmt: skip
special_i1e = _by_scipy(
    "special_i1e", "i1e", "Compute i1(input) * exp(-|input|).", grad=_grad_i1e
)  # fmt: skip

# ---- the normal distribution
special_ndtri = _by_scipy(
    "special_ndtri", "ndtri", "Give the argument at which ndtr is the input, from -inf at 0 to inf at 1.",
    grad=lambda g, out: g * (sqrt(2 * pi) * exp(out * out * 0.5)), samples=unary_samples(low=0.1, high=0.9),
)  # fmt: skip
special_log_ndtr = _by_scipy(
    "special_log_ndtr", "log_ndtr", "Take the logarithm of ndtr, exact where that is close to 0 and to 1.",
    grad=lambda g, input, out: g * (exp(input * input * -0.5 - out) / sqrt(2 * pi)),
)  # fmt: skip
special_erfcx = _by_scipy(
    "special_erfcx", "erfcx", "Compute exp(input**2) * erfc(input).",
    grad=lambda g, input, out: g * (input * out * 2.0 - 2.0 / sqrt(pi)),
)  # fmt: skip


@composite(method=False)
def special_ndtr(input):
    """Give the area under the normal distribution's density up to the input."""
    scaled = input * sqrt(0.5)
    return where(le(scaled, -1.0), erfc(-scaled) * 0.5, (erf(scaled) + 1.0) * 0.5)


# ---- zeta, incomplete gamma
special_zeta = _by_scipy(
    "special_zeta", "zeta", "Compute Hurwitz' zeta function: the sum of (k + other)**-input over k >= 0.",
    operands=("input", "other"),
    grad=(None, lambda g, input, other: g * (-input * special_zeta(input + 1.0, other))),
    samples=binary_samples({"low": 1.5, "high": 4.0}, {"low": 0.5, "high": 3.0}),
)  # fmt: skip


def _gamma_density(g: Any, input: Any, other: Any) -> Any:
    return g * exp(log(other) * (input - 1.0) - other - lgamma(input))


igamma = _by_scipy(
    "igamma", "gammainc", "Compute the regularised lower incomplete gamma function of order `input`.",
    operands=("input", "other"), grad=(None, _gamma_density), inplace=True, method=True,
)  # fmt: skip
igammac = _by_scipy(
    "igammac", "gammaincc", "Compute the regularised upper incomplete gamma function of order `input`.",
    operands=("input", "other"), grad=(None, lambda g, input, other: -_gamma_density(g, input, other)),
    inplace=True, method=True,
)  # fmt: skip


@composite(method=False)
def polygamma(n, input):
    """Compute the n-th derivative of digamma.  Raises ArgumentValueError for a negative n."""
    if not isinstance(n, int) or n < 0:
        raise ArgumentValueError(f"polygamma(n, input): n must be an int, not negative, not {n!r}")
    if n < 2:
        return trigamma(input) if n else digamma(input)
    factorial = number_exp(number_lgamma(n + 1)) if n < 171 else inf
    return special_zeta(float(n + 1), input) * (factorial if n % 2 else -factorial)


@composite(inplace=True)
def mvlgamma(input, p):
    """Take the logarithm of the multivariate gamma function of dimension p: log pi * p(p-1)/4 + the sum of
    lgamma(input - k/2) for k < p.  Raises ArgumentValueError for p < 1.
    """
    if not isinstance(p, int) or p < 1:
        raise ArgumentValueError(f"mvlgamma(input, p): p must be an int from 1 on, not {p!r}")
    halves = (cumsum(new_ones(input, p), 0) - 1) * 0.5  # all at once: p may be large
    return sum(lgamma(unsqueeze(input, -1) - halves), -1) + p * (p - 1) / 4 * number_log(pi)


# ---- entropy
special_entr = elementwise(
    "special_entr",
    lambda input: where(gt(input, 0.0), -input * log(where(gt(input, 0.0), input, 1.0)),
                        where(eq(input, 0.0), 0.0, where(isnan(input), input, -inf))),
    result="float",
    grad=lambda g, input: g * (-log(input) - 1.0),
    samples=unary_samples(low=0.2, high=3.0),
    inplace=False,
    method=False,
    doc="Compute -input * log(input): 0 at 0, -inf below.",
)  # fmt: skip


special_xlog1py = elementwise(
    "special_xlog1py",
    lambda input, other: where(logical_and(eq(input, 0), eq(other, other)), 0.0, input * log1p(other)),
    operands=("input", "other"),
    result="float",
    samples=binary_samples({"low": 0.2, "high": 2.0}),
    grad=(
        lambda g, input, other: where(logical_and(eq(input, 0), le(other, -1)), 0.0, g * log1p(other)),
        lambda g, input, other: g * (input / (other + 1.0)),
    ),
    inplace=False,
    method=False,
    doc="Compute input * log1p(other), which is 0 where the input is 0 (unless other is NaN).",
)


# ---- Bessel functions and their kin, without gradients, as in PyTorch
for _name, _scipy_name, _doc in (
    ("airy_ai", "airy", "Airy function Ai"),
    ("bessel_j0", "j0", "Bessel function of the first kind, of order 0"),
    ("bessel_j1", "j1", "Bessel function of the first kind, of order 1"),
    ("bessel_y0", "y0", "Bessel function of the second kind, of order 0"),
    ("bessel_y1", "y1", "Bessel function of the second kind, of order 1"),
    ("modified_bessel_i0", "i0", "modified Bessel function of the first kind, of order 0"),
    ("modified_bessel_i1", "i1", "modified Bessel function of the first kind, of order 1"),
    ("modified_bessel_k0", "k0", "modified Bessel function of the second kind, of order 0"),
    ("modified_bessel_k1", "k1", "modified Bessel function of the second kind, of order 1"),
    ("scaled_modified_bessel_k0", "k0e", "modified Bessel function of the second kind, times exp(input)"),
    ("scaled_modified_bessel_k1", "k1e", "modified Bessel function K1, times exp(input)"),
):
    _by_scipy(
        f"special_{_name}", _scipy_name, f"Compute the {_doc}.", output=0 if _name == "airy_ai" else None
    )


@composite(method=False)
def special_spherical_bessel_j0(input):
    """Compute sin(input) / input, 1 at 0 and 0 at infinity.  It has a gradient, other than PyTorch's."""
    small, infinite = eq(input, 0), eq(abs(input), inf)
    found = sine(where(infinite, 0, input)) * reciprocal(where(small, 1, input))
    return where(small, 1.0, found)
