"""What signal processing starts from: windows, and the frequencies of a transform.

Computed in float64 and rounded once.  A window of `periodic` length n is the symmetric one of n + 1 without
its last number.
"""

from __future__ import annotations

from collections.abc import Callable
from math import pi
from typing import Any

import numpy as np

from ..ir import dtypes
from ..ir.errors import ArgumentError, ArgumentValueError, DTypeError
from .conversion import wanted_device
from .refusal import refusing
from .tensor import Tensor, tensor_of


def made(name: str, values: np.ndarray, dtype: Any, device: Any, layout: Any, requires_grad: bool) -> Tensor:
    """A window's tensor, of a floating dtype.  Raises ArgumentError, DTypeError, DeviceError."""
    place = wanted_device(device)
    if layout not in (None, "strided"):
        raise ArgumentError(f"{name}: layout {layout!r} is not supported")
    found = dtypes.default_dtype() if dtype is None else dtypes.as_dtype(dtype)
    if found is None or not found.is_floating_point:
        raise DTypeError(f"{name}: dtype must be a floating point one, not {dtype}")
    made = tensor_of(values.astype(found.numpy)).to(place)
    return made.requires_grad_() if requires_grad else made


def points(name: str, length: Any, periodic: bool) -> tuple[np.ndarray, int]:
    """0, 1, … up to `length`, and the number of steps of the symmetric window that they belong to."""
    if not hasattr(length, "__index__") or isinstance(length, bool):
        raise ArgumentError(f"{name}: the length must be an int, not {type(length).__name__}")
    length = length.__index__()
    if length < 0:
        raise ArgumentValueError(f"{name}: the length can't be negative: {length}")
    return np.arange(length, dtype=np.float64), length if periodic else length - 1


def _cosines(name: str, length: Any, periodic: bool, factors: tuple[float, ...]) -> np.ndarray:
    """a0 - a1 cos(x) + a2 cos(2x) - … at x = 2 pi k / steps; one point is 1."""
    k, steps = points(name, length, periodic)
    if k.size <= 1:
        return np.ones(k.size)
    terms = (a * (-1) ** i * np.cos(2 * pi * i / steps * k) for i, a in enumerate(factors))
    return np.add.reduce(list(terms))


def hann_window(
    window_length, periodic=True, *, dtype=None, layout=None, device=None, pin_memory=False,
    requires_grad=False,
) -> Tensor:  # fmt: skip
    """The window 0.5 - 0.5 cos(2 pi k / n).  Shapes: [window_length]."""
    values = _cosines("hann_window", window_length, periodic, (0.5, 0.5))
    return made("hann_window", values, dtype, device, layout, requires_grad)


def hamming_window(
    window_length, periodic=True, alpha=0.54, beta=0.46, *, dtype=None, layout=None, device=None,
    pin_memory=False, requires_grad=False,
) -> Tensor:  # fmt: skip
    """The window alpha - beta cos(2 pi k / n).  Shapes: [window_length]."""
    values = _cosines("hamming_window", window_length, periodic, (alpha, beta))
    return made("hamming_window", values, dtype, device, layout, requires_grad)


def blackman_window(
    window_length, periodic=True, *, dtype=None, layout=None, device=None, pin_memory=False,
    requires_grad=False,
) -> Tensor:  # fmt: skip
    """The window 0.42 - 0.5 cos(2 pi k / n) + 0.08 cos(4 pi k / n).  Shapes: [window_length]."""
    values = np.maximum(_cosines("blackman_window", window_length, periodic, (0.42, 0.5, 0.08)), 0.0)
    return made("blackman_window", values, dtype, device, layout, requires_grad)


def bartlett_window(
    window_length, periodic=True, *, dtype=None, layout=None, device=None, pin_memory=False,
    requires_grad=False,
) -> Tensor:  # fmt: skip
    """The window that rises evenly to 1 in the middle, and falls.  Shapes: [window_length]."""
    k, steps = points("bartlett_window", window_length, periodic)
    values = np.ones(k.size) if k.size <= 1 else 1.0 - np.abs(2.0 * k / steps - 1.0)
    return made("bartlett_window", values, dtype, device, layout, requires_grad)


def kaiser_window(
    window_length, periodic=True, beta=12.0, *, dtype=None, layout=None, device=None, pin_memory=False,
    requires_grad=False,
) -> Tensor:  # fmt: skip
    """The window I0(beta sqrt(1 - (2k / n - 1)^2)) / I0(beta).  Shapes: [window_length]."""
    k, steps = points("kaiser_window", window_length, periodic)
    inside = np.ones(k.size) if k.size <= 1 else 1.0 - (2.0 * k / steps - 1.0) ** 2
    values = np.ones(k.size) if k.size <= 1 else np.i0(beta * np.sqrt(np.maximum(inside, 0.0))) / np.i0(beta)
    return made("kaiser_window", values, dtype, device, layout, requires_grad)


def _frequencies(name: str, n: Any, d: Any, counts: Callable[[int], np.ndarray], given: dict) -> Tensor:
    points(name, n, True)
    if not isinstance(d, (int, float)):
        raise ArgumentError(f"{name}: d must be a number, not {type(d).__name__}")
    n = n.__index__()
    if not n or not d:
        raise ArgumentValueError(f"{name}: there are no frequencies of n={n} points at distances of d={d}")
    return made(name, counts(n) / (n * d), **given)


def fft_fftfreq(n, d=1.0, *, dtype=None, layout=None, device=None, requires_grad=False) -> Tensor:
    """The frequencies of a transform of `n` points at distances of `d`: 0, 1, …, -2, -1 over n d.

    Shapes: [n].
    """
    given = {"dtype": dtype, "layout": layout, "device": device, "requires_grad": requires_grad}
    return _frequencies("fftfreq", n, d, lambda n: (np.arange(n) + n // 2) % n - n // 2, given)


def fft_rfftfreq(n, d=1.0, *, dtype=None, layout=None, device=None, requires_grad=False) -> Tensor:
    """The frequencies of a transform of `n` real points at distances of `d`: 0, 1, …, n // 2 over n d.

    Shapes: [n // 2 + 1].
    """
    given = {"dtype": dtype, "layout": layout, "device": device, "requires_grad": requires_grad}
    return _frequencies("rfftfreq", n, d, lambda n: np.arange(n // 2 + 1), given)


FUNCTIONS = {
    f.__name__: refusing(f, takes_out=f in (fft_fftfreq, fft_rfftfreq), home=__package__)
    for f in (
        hann_window, hamming_window, blackman_window, bartlett_window, kaiser_window, fft_fftfreq,
        fft_rfftfreq,
    )
}  # fmt: skip
