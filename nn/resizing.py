"""Where the pixels of resized images come from, as arrays that are made of sizes.

NumPy alone is needed, and no Python newer than NumPy's: exported models carry this text (`jit/artifact.py`).
A tap is, for each place of the output along one dimension, an index into the input and its weight.
"""

import math
from typing import Any

import numpy as np


def nearest(size: int, out: int, scale: float, exact: bool) -> np.ndarray:
    """The input's index for each place; in float32, as PyTorch computes it, for the same choice at ties."""
    if out == size:
        return np.arange(size)
    step = np.float32(1.0 / scale if scale else size / out)
    places = np.arange(out).astype(np.float32) + np.float32(0.5 if exact else 0.0)
    return np.minimum(np.floor(places * step).astype(np.int64), size - 1)


def _step(size: int, out: int, scale: float, align_corners: bool) -> float:
    """How far apart in the input two neighbours of the output lie."""
    if align_corners:
        return (size - 1) / (out - 1) if out > 1 else 0.0
    return 1.0 / scale if scale else size / out


def _sources(size: int, out: int, scale: float, align_corners: bool, cubic: bool) -> np.ndarray:
    """Where each place of the output lies in the input, in float64."""
    step = _step(size, out, scale, align_corners)
    if align_corners:
        return np.arange(out) * step
    found = (np.arange(out) + 0.5) * step - 0.5
    return found if cubic else np.maximum(found, 0.0)


def _linear_taps(at: np.ndarray, size: int) -> list:
    below = np.minimum(np.floor(at).astype(np.int64), size - 1)
    share = np.minimum(at - below, 1.0)
    return [(below, 1.0 - share), (np.minimum(below + 1, size - 1), share)]


def cubic_weights(share: Any) -> list:
    """Weights of the four neighbours, a = -0.75.  Source: Keys 1981, eq. 4."""
    a = -0.75

    def near(d: Any) -> Any:
        return ((a + 2) * d - (a + 3)) * d * d + 1

    def far(d: Any) -> Any:
        return ((d - 5) * d + 8) * d * a - 4 * a

    return [far(share + 1), near(share), near(1 - share), far(2 - share)]


def _cubic_taps(at: np.ndarray, size: int) -> list:
    below = np.floor(at).astype(np.int64)
    weights = cubic_weights(at - below)
    return [(np.clip(below + k - 1, 0, size - 1), w) for k, w in enumerate(weights)]


def smoothing(size: int, out: int, scale: float, align_corners: bool, cubic: bool) -> np.ndarray:
    """The weights [out, size] of a resize that averages as many elements as become one.

    A tent, or Keys' cubic with a = -0.5, as wide as the step from one place to the next; cut off at the ends.
    """
    step = _step(size, out, scale, align_corners)
    reach = (2.0 if cubic else 1.0) * max(step, 1.0)
    centres = step * (np.arange(out) + 0.5)
    first = np.maximum((centres - reach + 0.5).astype(np.int64), 0)[:, None]
    last = np.minimum((centres + reach + 0.5).astype(np.int64), size)[:, None]
    places = np.arange(size)[None]
    away = np.abs((places - centres[:, None] + 0.5) / max(step, 1.0))
    if cubic:
        near, far = (1.5 * away - 2.5) * away * away + 1, ((-0.5 * away + 2.5) * away - 4) * away + 2
        weights = np.where(away < 1, near, np.where(away < 2, far, 0.0))
    else:
        weights = np.maximum(1.0 - away, 0.0)
    weights = np.where((places >= first) & (places < last), weights, 0.0)
    return weights / weights.sum(1, keepdims=True)


def taps(size: int, out: int, scale: float, align_corners: bool, cubic: bool) -> list:
    at = _sources(size, out, scale, align_corners, cubic)
    return _cubic_taps(at, size) if cubic else _linear_taps(at, size)


def grid(align_corners: bool, *sizes: int) -> np.ndarray:
    """The places of pixels, x first, and a one.  Shapes: [1, pixels, dimensions + 1]."""

    def line(k: int) -> np.ndarray:
        if align_corners:
            return np.linspace(-1.0, 1.0, k) if k > 1 else np.zeros(1)
        return (np.arange(k) * 2.0 + 1.0) / k - 1.0

    axes = np.meshgrid(*map(line, sizes), indexing="ij")[::-1]
    return np.stack([*axes, np.ones(sizes)], -1).reshape(1, -1, len(sizes) + 1)


# By name: what makes an array of sizes and other plain values, what shape that has, and of which kind it is.
TABLES = {
    "nearest": (nearest, lambda size, out, *how: (out,), "i64"),
    "smoothing": (smoothing, lambda size, out, *how: (out, size), "f64"),
    "tap": (lambda which, *how: taps(*how)[which][0], lambda which, size, out, *how: (out,), "i64"),
    "weight": (lambda which, *how: taps(*how)[which][1], lambda which, size, out, *how: (out,), "f64"),
    "grid": (grid, lambda align_corners, *sizes: (1, math.prod(sizes), len(sizes) + 1), "f64"),
}
