"""Activations: one scalar body each, from which the lowering and often the gradient follow.

No branch that is not taken may overflow: a gradient of the gradient would meet 0 * inf.  So a branch is given
the input where it is taken and a harmless number elsewhere.
"""

from __future__ import annotations

from functools import partial
from math import pi, sqrt
from typing import Any

import numpy as np

from ..dual import derived
from ..elementwise import elementwise
from ..errors import ArgumentValueError, ShapeError
from ..op import composite
from ..sample import Operand, Sample, unary_samples
from ..shapes import dim_of
from .cast import dtype_of, rounded_once
from .compare import where
from .complex import conj, is_complex_valued, real, sgn
from .extremes import maximum, minimum
from .math import erf, exp, expm1, log1p, sigmoid, tanh
from .powers import square
from .view import narrow, reshape


def _samples(*kinks: float, **attrs: Any) -> Any:
    """Samples away from the kinks, the last few with arguments that are not the defaults."""

    def made() -> list[Sample]:
        wide = list(unary_samples(low=-4.0, high=4.0, away_from=kinks)())
        if not attrs:
            return wide
        moved = tuple(abs(v) for v in attrs.values() if isinstance(v, float))
        operand = Operand((17,), -4.0, 4.0, away_from=(*kinks, *moved, *(-v for v in moved)))
        return [*wide, Sample((operand,), attrs)]

    return made


# --- rectifiers ---------------------------------------------------------------------------------------------


def _quick_relu(types, attrs):
    zero = np.zeros((), types[0].dtype.numpy)  # an array: a bare 0 costs NumPy more than the op
    return partial(np.maximum, zero) if types[0].ndim else None


def _quick_grad_relu(types, attrs):
    zero = np.zeros((), types[0].dtype.numpy)

    def masked(g, saved):
        h = g.copy()
        np.putmask(h, np.less_equal(saved[0], zero), zero)  # two thirds of np.where's time
        return h

    return (masked,) if types[0].ndim else None


relu = elementwise(
    "relu",
    lambda input: maximum(0, input),
    reference=lambda input: np.maximum(0, input),
    dtypes="number",
    samples=_samples(0.0),
    grad=lambda g, out: where(out <= 0, 0.0, g),
    quick=_quick_relu,
    quick_grad=_quick_grad_relu,
    doc="Compute max(input, 0).  NaN stays NaN; the gradient at 0 is 0.",
)


def bind_leaky_relu(input, negative_slope=0.01):
    """Keep what is above 0 and multiply the rest by `negative_slope`."""
    return (input,), {"negative_slope": negative_slope}


leaky_relu = elementwise(
    "leaky_relu",
    lambda input, *, negative_slope: where(input > 0.0, input, input * negative_slope),
    bind=bind_leaky_relu,
    reference=lambda input, *, negative_slope: (
        np.maximum(input, input * negative_slope)  # half the time of np.where
        if 0 < negative_slope <= 1
        else np.where(input > 0, input, input * negative_slope)
    ),
    attrs=("negative_slope",),
    dtypes="float",
    method=False,
    samples=_samples(0.0, negative_slope=-0.5),
    grad=lambda g, input, negative_slope: where(input > 0.0, g, g * negative_slope),
)

_prelu = elementwise(
    "_prelu",
    lambda input, weight: where(input > 0.0, input, input * weight),
    operands=("input", "weight"),
    dtypes="float",
    method=False,
    inplace=False,
    grad=(
        lambda g, input, weight: where(input > 0.0, g, g * weight),
        lambda g, input: where(input > 0.0, 0.0, g * input),
    ),
    samples=lambda: [
        Sample((Operand(s, away_from=(0.0,)), Operand(t)))
        for s, t in [(s, s) for s in ((), (0,), (1,), (17,), (33,))] + [((2, 3, 4), (1, 3, 1)), ((5,), ())]
    ],
    doc="Keep what is above 0 and multiply the rest by `weight`, which broadcasts.",
)


@composite()
def prelu(input, weight):
    """Keep what is above 0 and multiply the rest by `weight`.

    The weight is one number, or one for each channel (dimension 1).
    Shapes: [n, c, ...], [c] -> [n, c, ...].  Raises ShapeError.
    """
    channels = input.shape[1] if input.ndim > 1 else 1
    if weight.ndim > 1 or (weight.ndim == 1 and weight.shape[0] not in (1, channels)):
        raise ShapeError(
            f"prelu(input, weight): weight holds one number or one for each of the {channels} channels",
            f"weight's shape: {list(weight.shape)}",
        )
    if weight.ndim and input.ndim != 1:
        weight = reshape(weight, (1, weight.shape[0], *(1,) * (input.ndim - 2)) if input.ndim else ())
    return _prelu(input, weight)


def _as_of(input: Any, number: Any) -> Any:
    """A number without its fraction beside integers, and within what these reach."""
    dtype = dtype_of(input)
    if dtype.category != "int":
        return number
    reach = np.iinfo(dtype.numpy)
    return int(min(max(number, int(reach.min)), int(reach.max)))


def bind_threshold(input, threshold, value):
    """Keep what is above `threshold` and put `value` elsewhere.  NaN stays NaN.

    Of integers, both numbers are cut to such.
    """
    return (input,), {"threshold": _as_of(input, threshold), "value": _as_of(input, value)}


threshold = elementwise(
    "threshold",
    lambda input, *, threshold, value: where(input <= threshold, value, input),
    bind=bind_threshold,
    attrs=("threshold", "value"),
    dtypes="number",
    method=False,
    samples=lambda: [
        Sample((Operand(s, away_from=(1.0,)), 1, 3)) for s in ((), (0,), (1,), (17,), (33,), (3, 17))
    ],
    grad=lambda g, input, threshold: where(input <= threshold, 0.0, g),
)

# --- exponential below zero ---------------------------------------------------------------------------------


def _elu(input: Any, alpha: float, rate: float, scale: float) -> Any:
    """scale * input above 0, scale * alpha * (e^(rate * input) - 1) elsewhere."""
    above = input > 0.0
    below = expm1(where(above, 0.0, input) * rate) * (alpha * scale)
    return where(above, input * scale if scale != 1.0 else input, below)


def _elu_grad(g: Any, input: Any, alpha: float, rate: float, scale: float) -> Any:
    above = input > 0.0
    below = exp(where(above, 0.0, input) * rate) * (alpha * rate * scale)
    return where(above, g * scale if scale != 1.0 else g, g * below)


def bind_elu(input, alpha=1.0):
    """Keep what is above 0; elsewhere alpha * (exp(input) - 1).

    Source: Clevert, Unterthiner, Hochreiter 2015.
    """
    return (input,), {"alpha": alpha}


elu = elementwise(
    "elu",
    lambda input, *, alpha: _elu(input, alpha, 1.0, 1.0),
    bind=bind_elu,
    attrs=("alpha",),
    dtypes="float",
    method=False,
    samples=_samples(0.0, alpha=0.5),
    grad=lambda g, input, alpha: _elu_grad(g, input, alpha, 1.0, 1.0),
)


def bind_celu(input, alpha=1.0):
    """Keep what is above 0; elsewhere alpha * (exp(input / alpha) - 1).  Source: Barron 2017."""
    if alpha == 0:
        raise ArgumentValueError("celu: alpha must not be 0")
    return (input,), {"alpha": alpha}


celu = elementwise(
    "celu",
    lambda input, *, alpha: _elu(input, alpha, 1.0 / alpha, 1.0),
    bind=bind_celu,
    attrs=("alpha",),
    dtypes="float",
    method=False,
    samples=_samples(0.0, alpha=0.5),
    grad=lambda g, input, alpha: _elu_grad(g, input, alpha, 1.0 / alpha, 1.0),
)

# Klambauer, Unterthiner, Mayr, Hochreiter 2017, "Self-Normalizing Neural Networks", equation 14
SELU_ALPHA, SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946

selu = elementwise(
    "selu",
    lambda input: _elu(input, SELU_ALPHA, 1.0, SELU_SCALE),
    dtypes="float",
    method=False,
    samples=_samples(0.0),
    grad=lambda g, input: _elu_grad(g, input, SELU_ALPHA, 1.0, SELU_SCALE),
    doc="Scaled elu that keeps mean 0 and variance 1.  Source: Klambauer et al. 2017, equation 14.",
)


# --- smooth -------------------------------------------------------------------------------------------------


def bind_gelu(input, approximate="none"):
    """Multiply by the normal distribution's cumulative function: input * (1 + erf(input / sqrt(2))) / 2.

    approximate="tanh": by (1 + tanh(sqrt(2 / pi) * (input + 0.044715 * input^3))) / 2.
    Source: Hendrycks, Gimpel 2016.
    """
    if approximate not in ("none", "tanh"):
        raise ArgumentValueError(f"gelu: approximate must be 'none' or 'tanh', not {approximate!r}")
    return (input,), {"approximate": approximate}


_CUBIC, _ROOT = 0.044715, sqrt(2 / pi)


def _gelu_body(input: Any, *, approximate: str) -> Any:
    if approximate == "tanh":
        # (1 + tanh(u)) / 2 as sigmoid(2u), which keeps its digits in the left tail
        return input * sigmoid((input + input * input * input * _CUBIC) * (2 * _ROOT))
    return input * 0.5 * (erf(input * sqrt(0.5)) + 1.0)


def _gelu_grad(g: Any, input: Any, approximate: str) -> Any:
    if approximate == "tanh":
        square = input * input
        s = sigmoid((input + square * input * _CUBIC) * (2 * _ROOT))
        return g * (s + s * (1.0 - s) * input * ((square * (3 * _CUBIC) + 1.0) * (2 * _ROOT)))
    density = exp(input * input * -0.5) * (1 / sqrt(2 * pi))
    return g * ((erf(input * sqrt(0.5)) + 1.0) * 0.5 + input * density)


gelu = elementwise(
    "gelu",
    _gelu_body,
    bind=bind_gelu,
    attrs=("approximate",),
    dtypes="float",
    method=False,
    # Further to the left 1 + erf has few digits, in PyTorch's float32 too
    samples=lambda: [*unary_samples(low=-2.5, high=4.0)(), *_samples(approximate="tanh")()[-1:]],
    grad=lambda g, input, approximate: rounded_once(_gelu_grad, g, input, approximate=approximate),
)


def _silu_grad(g: Any, input: Any) -> Any:
    s = sigmoid(input)
    return g * (s * (input * (1.0 - s) + 1.0))


silu = elementwise(
    "silu",
    lambda input: input * sigmoid(input),
    reference=lambda input: input / (np.exp(-input) + 1),
    dtypes="float",
    method=False,
    samples=_samples(),
    grad=lambda g, input: rounded_once(_silu_grad, g, input),
    doc="Compute input * sigmoid(input), also called swish.",
    complex="analytic",
)


def bind_softplus(input, beta=1.0, threshold=20.0):
    """Compute log(1 + exp(beta * input)) / beta, and the input itself where beta * input > threshold."""
    return (input,), {"beta": beta, "threshold": threshold}


def _softplus_body(input: Any, *, beta: float, threshold: float) -> Any:
    scaled = input if beta == 1 else input * beta
    smooth = maximum(scaled, 0.0) + log1p(exp(-abs(scaled)))
    return where(scaled > threshold, input, smooth if beta == 1 else smooth / beta)


def _softplus(input: np.ndarray, *, beta: float, threshold: float) -> np.ndarray:
    scaled = input if beta == 1 else input * beta
    smooth = np.logaddexp(scaled, 0)
    return np.where(scaled > threshold, input, smooth if beta == 1 else smooth / beta)


def _softplus_grad(g: Any, input: Any, beta: float, threshold: float) -> Any:
    scaled = input * beta
    return where(scaled > threshold, g, g * sigmoid(scaled))


softplus = elementwise(
    "softplus",
    _softplus_body,
    bind=bind_softplus,
    reference=_softplus,
    attrs=("beta", "threshold"),
    dtypes="float",
    method=False,
    samples=_samples(beta=2.0, threshold=3.0),
    grad=_softplus_grad,
)


def _mish_grad(g: Any, input: Any) -> Any:
    t = tanh(softplus(input))
    return g * (t + input * sigmoid(input) * (1.0 - t * t))


mish = elementwise(
    "mish",
    lambda input: input * tanh(_softplus_body(input, beta=1, threshold=20.0)),
    dtypes="float",
    method=False,
    samples=_samples(),
    grad=lambda g, input: rounded_once(_mish_grad, g, input),
    doc="Compute input * tanh(softplus(input)).  Source: Misra 2019.",
)

logsigmoid = elementwise(
    "logsigmoid",
    lambda input: minimum(input, 0.0) - log1p(exp(-abs(input))),
    dtypes="float",
    method=False,
    samples=_samples(),
    grad=lambda g, input: g * sigmoid(-input),
    doc="Compute log(sigmoid(input)) without overflow in between.",
)


def _softsign_body(input: Any) -> Any:
    return input / (abs(input) + 1.0)


_softsign_slope = derived(_softsign_body, 0)


def _softsign_grad(g: Any, input: Any) -> Any:
    """Of complex numbers: g / (1 + |z|), less what goes along z through |z|."""
    if not is_complex_valued(input):
        return _softsign_slope(g, (input,), {})
    share = 1.0 / (abs(input) + 1.0)
    return (g - sgn(input) * (real(conj(g) * input) * share)) * share


softsign = elementwise(
    "softsign",
    _softsign_body,
    result="float",
    complex="stated",
    method=False,
    grad=_softsign_grad,
    samples=_samples(0.0),
    doc="Compute input / (1 + |input|).",
)

tanhshrink = elementwise(
    "tanhshrink",
    lambda input: input - tanh(input),
    result="float",
    method=False,
    samples=unary_samples(
        low=1.0, high=4.0
    ),  # near 0 the difference cancels, and float32 has few digits left
    grad=lambda g, input: g * square(tanh(input)),
    doc="Compute input - tanh(input).",
    complex="analytic",
)

# --- piecewise linear ---------------------------------------------------------------------------------------


def bind_hardtanh(input, min_val=-1.0, max_val=1.0):
    """Limit to the range from `min_val` to `max_val`.  NaN stays NaN; the gradient is 0 at the limits.

    Of integers, both numbers are cut to such.  Raises ArgumentValueError for an empty range.
    """
    if min_val > max_val:
        raise ArgumentValueError(f"hardtanh: min_val must not exceed max_val ({min_val} > {max_val})")
    return (input,), {"min_val": _as_of(input, min_val), "max_val": _as_of(input, max_val)}


hardtanh = elementwise(
    "hardtanh",
    lambda input, *, min_val, max_val: minimum(max_val, maximum(min_val, input)),
    bind=bind_hardtanh,
    reference=lambda input, *, min_val, max_val: np.minimum(max_val, np.maximum(min_val, input)),
    attrs=("min_val", "max_val"),
    dtypes="number",
    method=False,
    samples=_samples(-1.0, 1.0, min_val=-2.0, max_val=0.5),
    grad=lambda g, input, min_val, max_val: where((input > min_val) & (input < max_val), g, 0.0),
)


def _six(value: Any) -> Any:
    return minimum(6, maximum(0, value))


relu6 = elementwise(
    "relu6",
    _six,
    reference=lambda input: np.minimum(6, np.maximum(0, input)),
    dtypes="number",
    method=False,
    samples=_samples(0.0, 6.0),
    grad=lambda g, input: where((input > 0) & (input < 6), g, 0.0),
    doc="Limit to the range from 0 to 6.  The gradient is 0 at the limits.",
)

hardsigmoid = elementwise(
    "hardsigmoid",
    lambda input: _six(input + 3.0) / 6.0,
    dtypes="float",
    method=False,
    samples=_samples(-3.0, 3.0),
    grad=lambda g, input: where((input > -3.0) & (input < 3.0), g / 6.0, 0.0),
    doc="Compute (input + 3) / 6, limited to the range from 0 to 1.",
)


def _hardswish_grad(g: Any, input: Any) -> Any:
    return where(input >= 3.0, g, where(input <= -3.0, 0.0, g * (input / 3.0 + 0.5)))


hardswish = elementwise(
    "hardswish",
    lambda input: input * _six(input + 3.0) / 6.0,
    dtypes="float",
    method=False,
    samples=_samples(-3.0, 3.0),
    grad=lambda g, input: rounded_once(_hardswish_grad, g, input),
    doc="Compute input * hardsigmoid(input).  Source: Howard et al. 2019.",
)


def bind_hardshrink(input, lambd=0.5):
    """Put 0 where |input| <= lambd.  NaN stays NaN."""
    return (input,), {"lambd": lambd}


def _shrunk_grad(g: Any, input: Any, lambd: float) -> Any:
    return where((input < -lambd) | (input > lambd), g, 0.0)


hardshrink = elementwise(
    "hardshrink",
    lambda input, *, lambd: where((input >= -lambd) & (input <= lambd), 0.0, input),
    bind=bind_hardshrink,
    attrs=("lambd",),
    dtypes="float",
    samples=_samples(-0.5, 0.5, lambd=1.5),
    grad=_shrunk_grad,
)


def bind_softshrink(input, lambd=0.5):
    """Move towards 0 by `lambd`, and put 0 where |input| <= lambd.

    Raises ArgumentValueError for a negative lambd.
    """
    if lambd < 0:
        raise ArgumentValueError(f"softshrink: lambd must not be negative: {lambd}")
    return (input,), {"lambd": lambd}


softshrink = elementwise(
    "softshrink",
    lambda input, *, lambd: where(
        input > lambd, input - lambd, where(input < -lambd, input + lambd, input * 0.0)
    ),
    bind=bind_softshrink,
    attrs=("lambd",),
    dtypes="float",
    method=False,
    samples=_samples(-0.5, 0.5, lambd=1.5),
    grad=_shrunk_grad,
)


@composite(method=False)
def glu(input, dim=-1):
    """Gate the first half along `dim` by the sigmoid of the second.  Shapes: [..., 2k, ...] -> [..., k, ...].

    Raises ShapeError for an odd size.  Source: Dauphin et al. 2016.
    """
    if input.ndim == 0:
        raise ShapeError("glu: needs at least one dimension")
    dim = dim_of("glu", dim, input.ndim)
    half, odd = divmod(input.shape[dim], 2)
    if odd:
        raise ShapeError(f"glu: size {input.shape[dim]} of dimension {dim} can't be halved")
    return narrow(input, dim, 0, half) * sigmoid(narrow(input, dim, half, half))
