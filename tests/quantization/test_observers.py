"""Ranges from what was seen."""

import numpy as np
import pytest

from lamina.quantization.observers import BINS, OBSERVERS, Entropy, MinMax, Moving, Mse, Percentile

KINDS = [MinMax, Moving, Percentile, Mse, Entropy]


def error(x: np.ndarray, low: float, high: float) -> float:
    """The mean square of what 8 bits of this range lose."""
    scale = (high - low) / 255
    zero = np.rint(-low / scale)
    q = np.clip(np.rint(x / scale) + zero, 0, 255)
    return float((((q - zero) * scale - x) ** 2).mean())


def test_every_observer_has_a_name():
    assert [*OBSERVERS.values()] == KINDS


@pytest.mark.parametrize("kind", KINDS)
def test_a_normal_distribution(kind):
    rng = np.random.default_rng(0)
    seen = kind()
    x = rng.normal(size=(8, 4096)).astype(np.float32)
    for part in x:
        seen.see(part)
    low, high = seen.range()
    assert x.min() - 0.02 <= low < -2 and 2 < high <= x.max() + 0.02


@pytest.mark.parametrize("kind", [Percentile, Entropy])  # of squares three are much
def test_few_that_are_far_off_do_not_widen_the_range(kind):
    rng = np.random.default_rng(0)
    x = np.abs(rng.normal(size=100_000)).astype(np.float32)
    x[:3] = 100.0
    seen = kind()
    seen.see(x)
    low, high = seen.range()
    assert low == 0.0 and high < 40.0
    assert error(x[3:], low, high) < error(x[3:], 0.0, 100.0) / 4


def test_mse_is_the_best_of_shrunken_ranges():
    rng = np.random.default_rng(0)
    x = rng.standard_t(4, size=50_000).astype(np.float32)
    seen = Mse()
    seen.see(x)
    low, high = seen.range()
    shares = np.linspace(0.25, 1.0, 16)
    best = min(error(x, x.min() * share, x.max() * share) for share in shares)
    assert error(x, low, high) < 1.05 * best  # bins stand for their middle


def test_histograms_widen_without_losing_count():
    rng = np.random.default_rng(0)
    seen, parts = Mse(), [rng.normal(size=1000) * scale - shift for scale, shift in
                                ((0.1, 0), (0, 0), (1, 0), (1, 30), (50, 0), (3, -400))]  # fmt: skip
    for part in parts:
        seen.see(part.astype(np.float32))
    x = np.concatenate(parts).astype(np.float32)
    assert seen.counts.sum() == len(x) and len(seen.counts) == BINS
    low, high = seen.seen()
    assert low <= x.min() < low + 2 * seen.width and high - 2 * seen.width < x.max() <= high
    wanted, _ = np.histogram(x, seen.edges)
    # what is widened keeps its counts in bins of twice the width, so that sums up to an edge are the same
    assert np.abs(np.cumsum(wanted) - np.cumsum(seen.counts)).max() <= 0.002 * len(x)


def test_one_number_and_none_but_zeros():
    for kind in KINDS:
        seen = kind()
        seen.see(np.zeros(5, np.float32))
        assert seen.range() == (0.0, 0.0)
        seen.see(np.full(5, 3.0, np.float32))
        low, high = seen.range()
        assert low < 0.31 and 0.0 < high <= 3.01


def test_moving_averages():
    seen = Moving(0.5)
    for low, high in ((-1.0, 1.0), (-3.0, 2.0)):
        seen.see(np.array([low, high]))
    assert seen.range() == (-2.0, 1.5)
