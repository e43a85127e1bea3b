"""Winograd's transforms as numbers, and the convolutions that they are for.

    y = At [ (G w) * (Bt d) ]        m outputs, r taps, a window of n = m + r - 1 inputs

The points are {0, 1, -1, inf} for n = 4 and {0, +-sqrt(2), +-1/sqrt(2), inf} for n = 6: the latter's error is
half that of the usual {0, +-1, +-2, inf}, and the transforms cost the same.  What n inputs become is the
same for any m and r.  Windows of 8 err by 3e-6 where those of 6 err by 8e-7 and direct sums by 4e-7 (64
channels, the best of some points tried, 2026-11-28), so there are none.
Source: Lavin and Gray, Fast Algorithms for Convolutional Neural Networks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.polynomial.polynomial import polymul

from ...ir.dims import Dim
from ...ir.kernel.affine import Affine, as_affine
from ...ir.kernel.form import Kernel, Local, Reduce, Store
from ...ir.kernel.scalar import Op, Read

# By inputs of a window: the points a > 0 of the pairs +-a.
PAIRS = {4: (1.0,), 6: (2**0.5, 0.5**0.5)}
# By taps along a side: outputs of a tile along it.
TILES = {2: (5, 3), 3: (4, 2), 4: (3,), 5: (2,)}


# ---- numbers
def weight_transform(tile: int, taps: int) -> np.ndarray:
    """G: [tile + taps - 1, taps] in float64, a row for each of 0, a, -a, b, -b, ..., inf."""
    return at_points([0.0, *(sign * a for a in PAIRS[tile + taps - 1] for sign in (1, -1))], taps)


def powers(points: Sequence[float], count: int) -> np.ndarray:
    """[points + 1, count]: each point to the powers below `count`, and infinity, which has the last alone."""
    return np.vstack([np.asarray(points)[:, None] ** range(count), np.eye(count)[-1]])


def at_points(points: Sequence[float], count: int) -> np.ndarray:
    """`powers`, each point's over the product of its distances from the others."""
    scales = [np.prod([p - other for other in points if other != p]) for p in points]
    return powers(points, count) / np.array([*scales, 1.0])[:, None]


def weight_products(tile: int, taps: int) -> np.ndarray:
    """G[a, r] * G[b, s], [n * n, taps * taps] in float64: what takes the taps of a weight to U."""
    g = weight_transform(tile, taps)
    return np.einsum("ar,bs->abrs", g, g).reshape(len(g) ** 2, taps**2)


def pair_polynomials(pairs: tuple[float, ...]) -> tuple[list[list[float]], list[float]]:
    """Coefficients in x * x, lowest first: for each pair the product of (x * x - b * b) over the others, and
    the product over all."""

    def product(roots: list[float]) -> list[float]:
        total = np.array([1.0])
        for b in roots:
            total = polymul(total, [-b * b, 1.0])
        return [float(c) for c in total]

    return [product([b for b in pairs if b != a]) for a in pairs], product(list(pairs))


# ---- kernels
@dataclass(frozen=True)
class Shape:
    """A convolution of square windows and stride 1, as its kernel says it: axes, buffers and sizes.

    window: taps along a side.
    block: channels of a vector, which are a block of the image; 0 where vectors are of images.
    lane: the axis of a result's vectors.  channel, out: the axes of channels, or of their blocks.
    image, weight: the buffers' numbers.  at, weight_at: the floats from their starts to what is read.
    origin: where the first window begins.  size: of the image.
    """

    window: int
    block: int
    lane: str
    batch: str | None
    channel: str
    out: str
    places: tuple[str, ...]
    taps: tuple[str, ...]
    image: int
    weight: int
    at: Affine
    weight_at: Affine
    origin: tuple[int, ...]
    size: tuple[int, ...]


def shape_of(kernel: Kernel) -> Shape | None:
    """What Winograd's code needs to know of a kernel; None where it can't stand for that.

    Vectors of channels:  x[n, co, i+r-p, j+s-p, ci] * w[16*ko+ki, 16*co+ci, r, s]
    Vectors of images:    x[c, i+r-p, j+s-p, n] * w[r, s, c, k], where a window may run backwards
    """
    sums = [stage for stage in kernel.stages if not isinstance(stage, (Local, Store))]
    if len(sums) != 1 or any(s.axes for s in kernel.stages if s is not sums[0]):
        return None
    match sums[0]:
        case Reduce(_, "sum", axes, Op("mul", (Read() as one, Read() as other))):
            summed = frozenset(axis.name for axis in axes)
            return _shape(kernel, summed, one, other) or _shape(kernel, summed, other, one)
    return None


def _shape(kernel: Kernel, summed: frozenset[str], image: Read, weight: Read) -> Shape | None:
    buffers, extent = kernel.buffers, kernel.extents
    if {buffers[access.buffer].dtype for access in (image, weight)} != {"f32"}:
        return None
    at, weight_at = (buffers[access.buffer].offset(access.index) for access in (image, weight))
    places, taps, origin, size, rest = [], [], [], [], []
    for part, length in zip(image.index, buffers[image.buffer].shape, strict=True):
        if not isinstance(part, Affine) or len(part.terms) != 2:
            rest.append(part)
            continue
        (place, step), (tap, by) = sorted(part.terms, key=lambda term: term[0] in summed)
        if place in summed or tap not in summed or step != 1 or by not in (1, -1):
            return None
        places.append(place)
        taps.append(tap)
        origin.append(part.constant + min(0, by * (extent[tap] - 1)))
        if isinstance(length, Dim):
            return None
        size.append(length)
    outs = next((p for p in weight.index if isinstance(p, Affine) and p.names - summed), Affine())
    batch = sorted(kernel.parallel_names - outs.names - set(places))
    inner = sorted(summed - set(taps), key=at.coefficient)  # the axes of channels, of the least stride first
    outer = sorted(outs.names, key=weight_at.coefficient)
    window = extent[taps[0]] if taps else 0
    if window not in TILES or any(extent[tap] != window for tap in taps):
        return None
    if len(places) != 2 or len(batch) > 1 or len(inner) != len(outer) or len(outer) not in (1, 2):
        return None
    n, block = as_affine(batch[0]) if batch else Affine(), 0 if len(outer) == 1 else extent[outer[0]]
    (c, *ci), (k, *ki), (r, s) = ([as_affine(a) for a in axes] for axes in (inner[::-1], outer[::-1], taps))
    if block:
        fits = {*rest} == {n, c, *ci} and weight.index == (k * block + ki[0], c * block + ci[0], r, s)
        fits = fits and extent[inner[0]] == block and at.coefficient(inner[0]) == 1
        fits = fits and all(at.coefficient(tap) > 0 for tap in taps)
    else:
        fits = {*rest} == {n, c} and {*weight.index} == {r, s, c, k} and len(batch) == 1
        fits = fits and at.coefficient(batch[0]) == weight_at.coefficient(outer[0]) == 1
    if not fits:
        return None
    return Shape(
        window, block, outer[0] if block else batch[0], batch[0] if batch else None, inner[-1], outer[-1],
        tuple(places), tuple(taps), list(buffers).index(image.buffer), list(buffers).index(weight.buffer),
        at, weight_at, tuple(origin), tuple(size),
    )  # fmt: skip
