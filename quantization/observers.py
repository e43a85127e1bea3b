"""Where numbers lie: what of a range is worth 256 steps, from what a value was at each call.

| observer | range |
|---|---|
| minmax | from the least to the greatest that was seen |
| moving | the same of each call, averaged with those before it: what training goes on with |
| percentile | what leaves out a share of the numbers on both sides |
| mse | what gives the least squared error, rounding within and clipping outside of it |
| entropy | what keeps the distribution: the least divergence of 255 steps from the histogram |

The last three look at a histogram, which widens by doubling its bins' width, so that data is gone over once.

Source: Migacz, 8-bit inference with TensorRT, 2017 (entropy).
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from ..ir.errors import ArgumentError

BINS = 2048
STEPS = 255


class Observer(ABC):
    """Gathers what a value was; `range` is then the least and the greatest number that bytes stand for."""

    @abstractmethod
    def see(self, x: np.ndarray) -> None:
        """Take in the numbers of one call, of which there are some."""

    @abstractmethod
    def range(self) -> tuple[float, float]: ...


class MinMax(Observer):
    def __init__(self):
        self.low, self.high = np.inf, -np.inf

    def see(self, x: np.ndarray) -> None:
        self.low, self.high = min(self.low, float(x.min())), max(self.high, float(x.max()))

    def range(self) -> tuple[float, float]:
        return self.low, self.high


class Moving(Observer):
    def __init__(self, momentum: float = 0.1):
        self.momentum = momentum
        self.limits: np.ndarray | None = None

    def see(self, x: np.ndarray) -> None:
        now = np.array([x.min(), x.max()], np.float64)
        self.limits = now if self.limits is None else self.limits + self.momentum * (now - self.limits)

    def range(self) -> tuple[float, float]:
        low, high = (0.0, 0.0) if self.limits is None else self.limits
        return float(low), float(high)


class Histogram(Observer):
    """Counts numbers in `BINS` bins of one width, of which 0 is an edge; the counts begin at `start` bins."""

    def __init__(self):
        self.counts, self.width, self.start = np.zeros(BINS, np.int64), 0.0, 0

    def see(self, x: np.ndarray) -> None:
        low, high = min(float(x.min()), 0.0), max(float(x.max()), 0.0)
        if low == high:
            self.counts[-self.start] += x.size
            return
        self._widen(low, high)
        at = np.floor(x.reshape(-1).astype(np.float64) / self.width).astype(np.int64) - self.start
        self.counts += np.bincount(np.clip(at, 0, BINS - 1), minlength=BINS)

    def _widen(self, low: float, high: float) -> None:
        if not self.width:
            zeros = self.counts[-self.start]
            self.width = (high - low) / (BINS - 2)
            self.start = int(np.floor(low / self.width))
            self.counts[:] = 0
            self.counts[-self.start] = zeros
        while not (self.start * self.width <= low and high < (self.start + BINS) * self.width):
            first = min(self.start, int(np.floor(low / self.width)))
            if high < (first + BINS) * self.width and not self.counts[BINS - (self.start - first) :].any():
                self.counts = np.roll(self.counts, self.start - first)
                self.start = first
                continue
            edges = np.arange(self.start, self.start + BINS) // 2  # pairs of bins, 0 stays an edge
            self.start //= 2
            self.counts = np.bincount(edges - self.start, self.counts, BINS).astype(np.int64)
            self.width *= 2

    @property
    def edges(self) -> np.ndarray:
        return np.arange(self.start, self.start + BINS + 1) * self.width

    def seen(self) -> tuple[float, float]:
        """The edges of the bins that hold numbers, and 0."""
        filled = np.flatnonzero(self.counts)
        if not len(filled) or not self.width:
            return 0.0, 0.0
        return min(self.edges[filled[0]], 0.0), max(self.edges[filled[-1] + 1], 0.0)

    def best(self, loss) -> tuple[float, float]:
        """Of shares of what was seen, both ends by the same, the one with the least loss."""
        low, high = self.seen()
        shares = np.linspace(1.0, 0.25, 76) if high > low else [1.0]
        losses = [loss(low * share, high * share) for share in shares]
        share = shares[int(np.argmin(losses))]
        return float(low * share), float(high * share)


class Percentile(Histogram):
    """share: of the numbers that may lie outside, on each side."""

    def __init__(self, share: float = 1e-4):
        super().__init__()
        self.share = share

    def range(self) -> tuple[float, float]:
        low, high = self.seen()
        shares = self.counts / max(self.counts.sum(), 1)
        below = np.cumsum(shares)
        inside = np.flatnonzero((below >= self.share) & (below - shares <= 1 - self.share))
        if not len(inside):
            return low, high
        first, last = self.edges[inside[0]], self.edges[inside[-1] + 1]
        return float(max(low, min(first, 0.0))), float(min(high, max(last, 0.0)))


class Mse(Histogram):
    def range(self) -> tuple[float, float]:
        middle = self.edges[:-1] + self.width / 2

        def loss(low: float, high: float) -> float:
            step = (high - low) / STEPS
            clipped = np.clip(middle, low, high)
            error = (middle - clipped) ** 2 + np.where(middle == clipped, step**2 / 12, 0.0)
            return float((error * self.counts).sum())

        return self.best(loss)


class Entropy(Histogram):
    def range(self) -> tuple[float, float]:
        middle, total = self.edges[:-1] + self.width / 2, max(self.counts.sum(), 1)
        zero = -self.start if 0 <= -self.start < BINS else 0
        counts = self.counts.astype(np.float64)
        counts[zero] = np.median(counts[counts > 0]) if counts.any() else 0.0  # rectified values are mostly 0

        def loss(low: float, high: float) -> float:
            step = (high - low) / STEPS
            if step <= 0:
                return 0.0
            inside = (middle >= low) & (middle <= high)
            p = np.where(inside, counts, 0.0)
            first, last = np.flatnonzero(inside)[[0, -1]]
            p[first] += counts[:first].sum()  # what is clipped
            p[last] += counts[last + 1 :].sum()
            at = np.clip(np.round((middle - low) / step), 0, STEPS).astype(int)
            filled = inside & (counts > 0)
            sums = np.bincount(at, np.where(inside, counts, 0.0), STEPS + 1)
            share = np.bincount(at, filled, STEPS + 1)
            q = np.where(filled, sums[at] / np.maximum(share[at], 1), 0.0)
            p, q = p / max(p.sum(), 1e-30), q / max(q.sum(), 1e-30)
            both = (p > 0) & (q > 0)
            missing = p[(p > 0) & (q <= 0)].sum()
            return float((p[both] * np.log(p[both] / q[both])).sum() + missing * np.log(total))

        return self.best(loss)


OBSERVERS: dict[str, type[Observer]] = {
    "minmax": MinMax,
    "moving": Moving,
    "percentile": Percentile,
    "mse": Mse,
    "entropy": Entropy,
}


def observer(name: str) -> type[Observer]:
    """Raises ArgumentError for a name that none has."""
    if name not in OBSERVERS:
        raise ArgumentError(f"quantize(observer): one of {', '.join(OBSERVERS)}, not {name!r}")
    return OBSERVERS[name]
