"""Resizing of images: each dimension in turn is a weighted sum of a few of its slices."""

from __future__ import annotations

from math import floor
from typing import Any

import numpy as np

from ..errors import ArgumentError, ArgumentValueError, ShapeError
from ..op import composite
from .along import index_select
from .pool_adaptive import adaptive_mean

RANKS = {"linear": (1,), "bilinear": (2,), "trilinear": (3,), "bicubic": (2,)}
MODES = ("nearest", "nearest-exact", "area", *RANKS)


@composite(method=False)
def interpolate(
    input,
    size=None,
    scale_factor=None,
    mode="nearest",
    align_corners=None,
    recompute_scale_factor=None,
    antialias=False,
):
    """Resize the dimensions after the first two, to `size` or by `scale_factor`.

    mode: "nearest" (which floors), "nearest-exact" (which rounds), "linear" / "bilinear" / "trilinear" for 1,
    2 and 3 dimensions, "bicubic", "area" (means).
    align_corners: let the corners' centres meet, not their edges.
    scale_factor: also the distance between samples, unless recompute_scale_factor or `size` is given.
    Shapes: [n, c, sizes...] -> [n, c, *size].  Raises ArgumentError, ArgumentValueError, ShapeError.
    Source of the bicubic kernel: Keys, 1981, with a = -0.75.
    """
    n = input.ndim - 2
    if n not in (1, 2, 3):
        raise ShapeError(f"interpolate(input): input needs 3, 4 or 5 dimensions, not {input.ndim}")
    if mode not in MODES or n not in RANKS.get(mode, (n,)):
        raise ArgumentValueError(
            f"interpolate: mode {mode!r} is not one for {n} dimensions", f"known: {MODES}"
        )
    if antialias:
        raise ArgumentValueError("interpolate(antialias=True) is not supported", "blur with avg_pool2d first")
    if align_corners is not None and mode not in RANKS:
        raise ArgumentValueError(f"interpolate: align_corners has no meaning for mode {mode!r}")
    sizes = tuple(input.shape[2:])
    out, steps = resized(sizes, size, scale_factor, bool(recompute_scale_factor))
    if mode == "area":
        return adaptive_mean(n, input, out)
    x = input
    for d, (length, wanted, step) in enumerate(zip(sizes, out, steps, strict=True), 2):
        if length != wanted or step != 1.0:
            x = resampled(x, d, *samples(length, wanted, step, mode, bool(align_corners)))
    return x


def resized(sizes: tuple, size: Any, scale_factor: Any, recompute: bool) -> tuple[tuple, tuple]:
    """The new sizes, and the distance between samples in each dimension."""
    if (size is None) == (scale_factor is None):
        raise ArgumentError("interpolate(size, scale_factor): give one of them")
    given = size if scale_factor is None else scale_factor
    values = tuple(given) if isinstance(given, (tuple, list)) else (given,) * len(sizes)
    if len(values) != len(sizes):
        raise ArgumentValueError(f"interpolate: {len(sizes)} dimensions are resized, and {len(values)} given")
    out = values if scale_factor is None else tuple(floor(n * f) for n, f in zip(sizes, values, strict=True))
    if not all(isinstance(n, int) and n > 0 for n in (*out, *sizes)):
        raise ShapeError(f"interpolate: sizes must be positive: from {list(sizes)} to {list(out)}")
    if scale_factor is None or recompute:
        return out, tuple(a / b for a, b in zip(sizes, out, strict=True))
    return out, tuple(1 / f for f in values)


def samples(length: int, wanted: int, step: float, mode: str, align: bool) -> tuple[list, list]:
    """The places to read, a list for each slice of the sum, and the weights beside them (None: 1)."""
    at = np.arange(wanted)
    if mode.startswith("nearest"):  # in f32, as PyTorch has it: a product that rounds up to an integer counts
        offset = np.float32(0.5 if mode == "nearest-exact" else 0)
        places = np.floor((at.astype(np.float32) + offset) * np.float32(step)).astype(np.int64)
        return [np.minimum(places, length - 1)], [None]
    if align:
        source = at * ((length - 1) / (wanted - 1) if wanted > 1 else 0.0)
    else:
        source = (at + 0.5) * step - 0.5
    if mode == "bicubic":
        first = np.floor(source)
        t = source - first
        places = [np.clip(first + k, 0, length - 1).astype(np.int64) for k in range(-1, 3)]
        return places, [cubic(t + 1), cubic(t), cubic(1 - t), cubic(2 - t)]
    source = np.clip(source, 0, length - 1)
    first = np.floor(source).astype(np.int64)
    return [first, np.minimum(first + 1, length - 1)], [1 - (source - first), source - first]


def cubic(x: np.ndarray, a: float = -0.75) -> np.ndarray:
    """Keys' cubic convolution kernel at distances between 0 and 2."""
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, far)


def resampled(x: Any, dim: int, places: list, weights: list) -> Any:
    """The sum over slices of dimension `dim`, each read at its places and weighted."""
    dtype = getattr(x.dtype, "numpy", x.dtype)
    total = None
    for place, weight in zip(places, weights, strict=True):
        part = index_select(x, dim, place)
        if weight is not None:
            part = part * weight.astype(dtype).reshape(-1, *(1,) * (x.ndim - 1 - dim))
        total = part if total is None else total + part
    return total
