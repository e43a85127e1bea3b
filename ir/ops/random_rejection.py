"""Draws that depend on a tensor's values and on a search: gamma, Poisson, binomial, von Mises.

How long a search takes depends on luck; how many counters a draw takes must not.  So each element owns ROUNDS
stretches of counters, and the search of an element ends in its own: what is drawn for element i follows from
the state, i and its parameters alone, whatever the others are.  A round is accepted with a
probability of at least 0.65, so that a search outlasts ROUNDS once in 1e18; the last candidate is then taken.

All of it is computed in float64, of uniform numbers of 53 bits.
"""

from __future__ import annotations

from collections.abc import Callable
from math import pi, prod
from typing import Any

import numpy as np

from .. import lowering
from ..errors import ArgumentValueError, ShapeError
from ..kernel import special
from ..op import Op, Traits
from ..random_bits import words_at
from ..sample import Operand, Sample
from ..shapes import broadcast_shapes, common_device, result_dtype
from ..types import Type, type_of
from .pathwise import _dirichlet_grad, _standard_gamma_grad
from .random import _STATE, _floating, _random
from .reduce import sum

ROUNDS = 40
_COUNTERS = 2  # to a round: eight words, four uniform numbers


class Stream:
    """The uniform numbers in (0, 1) of a draw's elements."""

    def __init__(self, state: np.ndarray, count: int):
        self.state, self.count = state, count

    def round(self, number: int, places: np.ndarray) -> np.ndarray:
        """Four numbers for each of the elements `places`.  Shapes: int64[n] -> float64[4, n]."""
        first = (places + number * self.count) * _COUNTERS
        w = words_at(self.state, (first[:, None] + np.arange(_COUNTERS)).reshape(-1))
        w = w.reshape(len(places), 4, 2).astype(np.float64)
        return (np.floor(w[:, :, 0] / 32) * 67108864.0 + np.floor(w[:, :, 1] / 64)).T * 2.0**-53 + 2.0**-54

    def search(self, candidates: Callable, *params: np.ndarray) -> np.ndarray:
        """Draw for each element until one is accepted.

        candidates: (uniform numbers [4, n], parameters [n]...) -> values [n], accepted [n].
        """
        out = np.full(self.count, np.nan)
        pending = np.flatnonzero(~np.isnan(np.sum(params, axis=0)))
        for number in range(ROUNDS):
            if not len(pending):
                break
            out[pending], accepted = candidates(self.round(number, pending), *(p[pending] for p in params))
            pending = pending[~accepted]
        return out


def _counted(*operands: Type) -> int:
    """The words of a draw: four to a counter."""
    shape: Any = broadcast_shapes("random", *(t.shape for t in operands))
    return 4 * _COUNTERS * ROUNDS * prod(shape)


def _rejection(name: str, operands: tuple[str, ...], sampler: Callable, **record: Any) -> Op:
    """Enter a draw of elementwise parameters, `operands`; sampler: (stream, flat parameters...) -> flat."""
    spoken = name.removeprefix("random_")

    def infer(*types: Type) -> Type:
        *params, state = types
        for t in params:
            _floating(spoken, t)
        shape = broadcast_shapes(spoken, *(t.shape for t in params))
        return type_of(result_dtype(*params), shape, common_device(spoken, *params))

    def reference(*arrays: np.ndarray) -> np.ndarray:
        *params, state = arrays
        dtype = np.result_type(*params)
        wide = np.broadcast_arrays(*(p.astype(np.float64) for p in params))
        drawn = sampler(Stream(state, wide[0].size), *(p.reshape(-1) for p in wide))
        return drawn.reshape(wide[0].shape).astype(dtype)

    return _random(
        name,
        takes=lambda *types: _counted(*types[:-1]),
        operands=(*operands, "state"),
        attrs=(),
        infer=infer,
        reference=reference,
        lower=lowering.extern("searches until a draw is accepted"),
        dtypes="float",
        **({"traits": Traits(random=True)} | record),
    )


def _samples(*domains: tuple[float, float], **more: Any) -> Callable[[], list[Sample]]:
    return lambda: [
        Sample((*(Operand(shape, *d) for d in domains), _STATE), **more)
        for shape in ((), (0,), (1,), (17,), (33,), (3, 17))
    ]


# ---- gamma
def _normal(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return np.sqrt(-2.0 * np.log(first)) * np.cos(2 * pi * second)


def _log_gamma(stream: Stream, a: np.ndarray) -> np.ndarray:
    """The logarithms of draws, which small a send below every float.

    G. Marsaglia, W. W. Tsang, "A simple method for generating gamma variables", 2000; a < 1 by a + 1.
    """
    lifted = np.where(a < 1, a + 1, a)

    def candidates(u: np.ndarray, a: np.ndarray) -> tuple:
        d = a - 1 / 3
        x = _normal(u[0], u[1])
        v = (1 + x / np.sqrt(9 * d)) ** 3
        with np.errstate(all="ignore"):
            accepted = (v > 0) & (np.log(u[2]) < 0.5 * x * x + d - d * v + d * np.log(v))
            found = np.log(d * v)
        return found, accepted

    drawn = stream.search(candidates, lifted)
    low = np.flatnonzero(a < 1)
    if len(low):
        with np.errstate(all="ignore"):
            drawn[low] += np.log(stream.round(ROUNDS - 1, low)[3]) / a[low]
    return np.where(a > 0, drawn, np.where(a == 0, -np.inf, np.nan))


random_gamma = _rejection(
    "random_gamma",
    ("input",),
    lambda stream, a: np.exp(_log_gamma(stream, a)),
    grad=(lambda g, input, out: g * _standard_gamma_grad(input, out), None),
    samples=_samples((0.3, 4.0), differentiable=False),
    doc="""Draw from the gamma distribution of concentration `input` and rate 1.

    The gradient is that of a draw at a fixed quantile (see ir/ops/pathwise.py).
    """,
)


def _dirichlet(input: np.ndarray, state: np.ndarray) -> np.ndarray:
    logs = _log_gamma(Stream(state, input.size), input.astype(np.float64).reshape(-1)).reshape(input.shape)
    with np.errstate(all="ignore"):
        parts = np.exp(logs - logs.max(-1, keepdims=True, initial=-np.inf))
        drawn = (parts / parts.sum(-1, keepdims=True)).astype(input.dtype)
    # Off the ends, where there is no density: the logarithms of what small concentrations give are finite.
    one = input.dtype.type(1)
    return np.clip(drawn, np.finfo(input.dtype).smallest_normal, np.nextafter(one, one - one))


def _infer_dirichlet(input: Type, state: Type) -> Type:
    if not input.ndim:
        raise ShapeError("_sample_dirichlet(input): a dimension of concentrations is needed, not a number")
    return _floating("_sample_dirichlet", input)


def _dirichlet_rule(g: Any, input: Any, out: Any) -> Any:
    moved = _dirichlet_grad(out, input, sum(input, dim=-1, keepdim=True))
    return moved * (g - sum(out * g, dim=-1, keepdim=True))


random_dirichlet = _random(
    "random_dirichlet",
    takes=lambda input, state: _counted(input),
    operands=("input", "state"),
    attrs=(),
    infer=_infer_dirichlet,
    reference=_dirichlet,
    grad=(_dirichlet_rule, None),
    lower=lowering.extern("searches until a draw is accepted"),
    traits=Traits(random=True),
    dtypes="float",
    samples=lambda: [
        Sample((Operand(shape, 0.3, 4.0), _STATE), differentiable=False)
        for shape in ((0,), (1,), (17,), (33,), (3, 17))
    ],
    inapplicable={"0-d": "needs a dimension of concentrations"},
    doc="""Draw from Dirichlet distributions, whose concentrations stand along the last dimension.

    The gradient follows from the draw's components as Betas (see ir/ops/pathwise.py).
    """,
)


# ---- counts
_FEW = 10.0  # expected; above, a count is sought by rejection


def _walk(u: np.ndarray, first: np.ndarray, ratio: Callable, last: np.ndarray) -> np.ndarray:
    """The least k whose cumulative probability reaches u; ratio(k): probability of k + 1 over that of k."""
    k, p, total = np.zeros_like(u), first.copy(), first.copy()
    for step in range(1000):
        going = (total < u) & (k < last)
        if not going.any():
            break
        p *= ratio(step)
        total += p
        k += going
    return k


def _poisson(stream: Stream, rate: np.ndarray) -> np.ndarray:
    """By the cumulative sum where few are expected; else W. Hörmann, "The transformed rejection method for
    generating Poisson random variables", 1993 (PTRS)."""
    if (rate < 0).any():
        raise ArgumentValueError("poisson: rates must be at least 0")
    out = np.full(rate.shape, np.nan)
    few = np.flatnonzero(rate < _FEW)
    if len(few):
        r = rate[few]
        out[few] = _walk(stream.round(0, few)[3], np.exp(-r), lambda k: r / (k + 1), np.full(r.shape, np.inf))

    def candidates(u: np.ndarray, rate: np.ndarray) -> tuple:
        b = 0.931 + 2.53 * np.sqrt(rate)
        a = -0.059 + 0.02483 * b
        centred = u[0] - 0.5
        us = 0.5 - np.abs(centred)
        k = np.floor((2 * a / us + b) * centred + rate + 0.43)
        with np.errstate(all="ignore"):
            left = np.log(u[1] * (1.1239 + 1.1328 / (b - 3.4)) / (a / (us * us) + b))
            slow = left <= k * np.log(rate) - rate - special.lgamma(k + 1)
        quick = (us >= 0.07) & (u[1] <= 0.9277 - 3.6224 / (b - 2))
        wrong = (k < 0) | ((us < 0.013) & (u[1] > us))
        return k, quick | (~wrong & slow)

    many = stream.search(candidates, np.where(rate < _FEW, np.nan, rate))
    return np.where(rate < _FEW, out, many)


random_poisson = _rejection(
    "random_poisson",
    ("input",),
    _poisson,
    grad=(lambda g: g * 0.0, None),
    traits=Traits(random=True, refuses=True),
    samples=_samples((0.0, 30.0), differentiable=False),
    doc="Draw counts from Poisson distributions of the rates `input`.  Raises ArgumentValueError below 0.",
)


def _binomial(stream: Stream, count: np.ndarray, prob: np.ndarray) -> np.ndarray:
    """By the cumulative sum where few are expected; else W. Hörmann, "The generation of binomial random
    variates", 1993 (BTRS)."""
    if ((prob < 0) | (prob > 1)).any() or (count < 0).any():
        raise ArgumentValueError("binomial: counts must be at least 0, probabilities lie in [0, 1]")
    count = np.floor(count)
    flipped = prob > 0.5
    p = np.where(flipped, 1 - prob, prob)
    is_few = count * p < _FEW
    out = np.full(p.shape, np.nan)
    few = np.flatnonzero(is_few)
    if len(few):
        n, q = count[few], p[few]
        odds = q / (1 - q)
        out[few] = _walk(
            stream.round(0, few)[3],
            np.exp(n * np.log1p(-q)),
            lambda k: odds * np.maximum(n - k, 0) / (k + 1),
            n,
        )

    def candidates(u: np.ndarray, n: np.ndarray, p: np.ndarray) -> tuple:
        spread = np.sqrt(n * p * (1 - p))
        b = 1.15 + 2.53 * spread
        a = -0.0873 + 0.0248 * b + 0.01 * p
        alpha = (2.83 + 5.1 / b) * spread
        mode = np.floor((n + 1) * p)
        centred = u[0] - 0.5
        us = 0.5 - np.abs(centred)
        k = np.floor((2 * a / us + b) * centred + n * p + 0.5)
        inside = (k >= 0) & (k <= n)
        at = np.where(inside, k, mode)
        bound = special.lgamma(mode + 1) + special.lgamma(n - mode + 1) + (at - mode) * np.log(p / (1 - p))
        slow = np.log(u[1] * alpha / (a / (us * us) + b)) <= bound - special.lgamma(at + 1) - special.lgamma(
            n - at + 1
        )
        return k, inside & (((us >= 0.07) & (u[1] <= 0.92 - 4.2 / b)) | slow)

    many = stream.search(candidates, np.where(is_few, np.nan, count), p)
    found = np.where(is_few, out, many)
    return np.where(flipped, count - found, found)


random_binomial = _rejection(
    "random_binomial",
    ("count", "prob"),
    _binomial,
    grad=(lambda g: g * 0.0, lambda g: g * 0.0, None),
    traits=Traits(random=True, refuses=True),
    samples=_samples((1.0, 40.0), (0.0, 1.0), differentiable=False),
    doc="""Draw how many of `count` trials succeed, each with the probability `prob`.

    Raises ArgumentValueError for counts below 0 and probabilities outside of [0, 1].
    """,
)


# ---- von Mises
def _von_mises(stream: Stream, concentration: np.ndarray) -> np.ndarray:
    """D. J. Best, N. I. Fisher, "Efficient simulation of the von Mises distribution", 1979."""
    k = np.maximum(concentration, 1e-8)  # below, a uniform angle, to 1e-8
    tau = 1 + np.sqrt(1 + 4 * k * k)
    rho = (tau - np.sqrt(2 * tau)) / (2 * k)
    # of the angle's cosine; by its series where rho has lost its digits
    r = np.where(k < 1e-4, 1 / k + k, (1 + rho * rho) / (2 * np.where(rho == 0, 1, rho)))

    def candidates(u: np.ndarray, k: np.ndarray, r: np.ndarray) -> tuple:
        z = np.cos(pi * u[0])
        f = (1 + r * z) / (r + z)
        c = k * (r - f)
        with np.errstate(all="ignore"):
            accepted = (c * (2 - c) > u[1]) | (np.log(c / u[1]) + 1 - c >= 0)
        return np.where(u[2] < 0.5, -1, 1) * np.arccos(np.clip(f, -1, 1)), accepted

    return stream.search(candidates, np.where(concentration > 0, k, np.nan), r)


random_von_mises = _rejection(
    "random_von_mises",
    ("concentration",),
    _von_mises,
    samples=_samples((0.2, 5.0), differentiable=False),
    doc="Draw angles in [-pi, pi] from von Mises distributions about 0.",
)
