"""The windows that PyTorch keeps under `torch.signal.windows`: symmetric, or periodic with `sym=False`.

Computed in float64 and rounded once.  A window of one point is 1.  Shapes: [M].
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import pi
from typing import Any

import numpy as np

from ..ir.errors import ArgumentError, ArgumentValueError
from ..runtime import Tensor, signal
from ..runtime.refusal import refusing_names


def _window(
    name: str, M: int, sym: bool, shape: Callable[[np.ndarray, int], Any], one: float = 1.0,
    dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """shape: from the points 0, 1, … and the steps between the ends of the symmetric window, to values.

    one: the window of one point.
    """
    k, steps = signal.points(name, M, not sym)
    values = np.full(k.size, one) if k.size <= 1 else np.asarray(shape(k, steps))
    return signal.made(name, values, dtype, device, layout, requires_grad)


def _positive(name: str, **numbers: Any) -> None:
    for word, number in numbers.items():
        if not isinstance(number, (int, float)) or not number > 0:
            raise ArgumentValueError(f"{name}: {word} must be a positive number, not {number!r}")


def general_cosine(M: int, *, a: Iterable[float], sym: bool = True, **options: Any) -> Tensor:
    """The window a[0] - a[1] cos(x) + a[2] cos(2 x) - … at x = 2 pi k / (M - 1)."""
    factors = [*a] if isinstance(a, Iterable) else []
    if not factors:
        raise ArgumentError("general_cosine: a must be some numbers")

    def shape(k: np.ndarray, steps: int) -> Any:
        return sum((-1) ** i * factor * np.cos(2 * pi * i / steps * k) for i, factor in enumerate(factors))

    return _window("general_cosine", M, sym, shape, **options)


def general_hamming(M: int, *, alpha: float = 0.54, sym: bool = True, **options: Any) -> Tensor:
    """The window alpha - (1 - alpha) cos(2 pi k / (M - 1))."""
    return general_cosine(M, a=(alpha, 1.0 - alpha), sym=sym, **options)


def hamming(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """The window 0.54 - 0.46 cos(2 pi k / (M - 1))."""
    return general_hamming(M, sym=sym, **options)


def hann(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """The window 0.5 - 0.5 cos(2 pi k / (M - 1))."""
    return general_hamming(M, alpha=0.5, sym=sym, **options)


def blackman(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """The window 0.42 - 0.5 cos(x) + 0.08 cos(2 x)."""
    return general_cosine(M, a=(0.42, 0.5, 0.08), sym=sym, **options)


def nuttall(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """Nuttall's window of four cosines with the least side lobes (Nuttall 1981, table II)."""
    return general_cosine(M, a=(0.3635819, 0.4891775, 0.1365995, 0.0106411), sym=sym, **options)


def bartlett(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """The window that rises evenly to 1 in the middle, and falls."""
    return _window("bartlett", M, sym, lambda k, steps: 1.0 - np.abs(2.0 * k / steps - 1.0), **options)


def cosine(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """The window sin(pi (k + 1/2) / M)."""
    return _window("cosine", M, sym, lambda k, steps: np.sin(pi * (k + 0.5) / (steps + 1)), **options)


def exponential(
    M: int, *, center: float | None = None, tau: float = 1.0, sym: bool = True, **options: Any
) -> Tensor:
    """The window exp(-|k - center| / tau), around the middle unless a periodic one says `center`."""
    _positive("exponential", tau=tau)
    if sym and center is not None:
        raise ArgumentValueError("exponential: a symmetric window has its center in the middle")

    def shape(k: np.ndarray, steps: int) -> Any:
        return np.exp(-np.abs(k - (steps / 2 if center is None else center)) / tau)

    one = 1.0 if center is None else np.exp(-abs(center) / tau)
    return _window("exponential", M, sym, shape, one, **options)


def gaussian(M: int, *, std: float = 1.0, sym: bool = True, **options: Any) -> Tensor:
    """The window exp(-x^2 / (2 std^2)) around the middle."""
    _positive("gaussian", std=std)
    return _window(
        "gaussian", M, sym, lambda k, steps: np.exp(-(((k - steps / 2) / std) ** 2) / 2), **options
    )


def kaiser(M: int, *, beta: float = 12.0, sym: bool = True, **options: Any) -> Tensor:
    """The window I0(beta sqrt(1 - (2k / (M - 1) - 1)^2)) / I0(beta)."""
    if not isinstance(beta, (int, float)) or beta < 0:
        raise ArgumentValueError(f"kaiser: beta can't be negative: {beta!r}")

    def shape(k: np.ndarray, steps: int) -> Any:
        inside = np.maximum(1.0 - (2.0 * k / steps - 1.0) ** 2, 0.0)
        return np.i0(beta * np.sqrt(inside)) / np.i0(beta)

    return _window("kaiser", M, sym, shape, **options)


__all__ = [
    "bartlett", "blackman", "cosine", "exponential", "gaussian", "general_cosine", "general_hamming",
    "hamming", "hann", "kaiser", "nuttall",
]  # fmt: skip

refusing_names(globals(), __name__)
