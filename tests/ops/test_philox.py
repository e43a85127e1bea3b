"""The random generator's bits, and what random ops promise of them."""

import numpy as np
import pytest

from lamina.ir import dtypes
from lamina.ir.op import REGISTRY
from lamina.ir.ops.random import draws
from lamina.ir.random_bits import philox, philox_rounds, words
from lamina.ir.types import type_of

STATE = type_of(dtypes.int64, (2,))

# Source: kat_vectors of the Random123 distribution, philox4x32 with 10 rounds: key, counter, result.
KNOWN = [
    ((0, 0), (0, 0, 0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 2, (0xFFFFFFFF,) * 4, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0xA4093822, 0x299F31D0),
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize("key, counter, result", KNOWN)
def test_philox_known_answers(key, counter, result):
    out = np.empty((1, 4), np.uint32)
    philox_rounds(key[0] | key[1] << 32, tuple(np.array([c], np.uint64) for c in counter), out)
    assert tuple(out[0].tolist()) == result


def test_philox_counts_through_blocks_and_the_end_of_64_bits():
    whole = philox(7, (1 << 64) - 2, 20_000)
    assert np.array_equal(whole[2:], philox(7, 0, 19_998))
    assert np.array_equal(whole[16_384:16_390], philox(7, 16_382, 6))


@pytest.mark.parametrize("offset", [0, 250, 255, 256, -1, -5])
@pytest.mark.parametrize("count", [0, 1, 4, 23, 2000])
def test_words_of_small_draws_are_those_of_large_ones(offset, count):
    state = np.array([-3, offset], np.int64)
    expected = philox(-3, offset & 0xFFFFFFFFFFFFFFFF, count // 4 + 1).reshape(-1)[:count]
    assert np.array_equal(words(state, count), expected)


RANDOM = {
    "random_uniform": {"size": (4, 9), "dtype": dtypes.float32},
    "random_normal": {"size": (36,), "dtype": dtypes.float64},
    "random_exponential": {"size": (36,), "dtype": dtypes.float32},
    "random_integers": {"low": -5, "high": 5, "size": (36,), "dtype": dtypes.int64},
    "random_permutation": {"n": 36, "dtype": dtypes.int64},
}


@pytest.mark.parametrize("name", RANDOM)
def test_draws_counts_exactly_what_a_draw_reads(name, monkeypatch):
    asked = []

    def counting(state, count):
        asked.append(-(-count // 4))
        return words(state, count)

    monkeypatch.setattr("lamina.ir.ops.random.words", counting)
    REGISTRY[name].reference(np.array([1, 2]), **RANDOM[name])
    assert asked == [draws(REGISTRY[name], STATE, **RANDOM[name])]


def test_two_draws_side_by_side_are_one_long_draw():
    uniform = REGISTRY["random_uniform"].reference
    long = uniform(np.array([5, 100]), size=(40,), dtype=dtypes.float32)
    first = uniform(np.array([5, 100]), size=(20,), dtype=dtypes.float32)
    second = uniform(np.array([5, 105]), size=(20,), dtype=dtypes.float32)
    assert np.array_equal(long, np.concatenate([first, second]))


@pytest.mark.parametrize("dtype", dtypes.FLOATS, ids=str)
def test_uniform_stays_below_one_in_its_own_dtype(dtype):
    drawn = REGISTRY["random_uniform"].reference(np.array([3, 0]), size=(50_000,), dtype=dtype)
    stored = drawn.astype(dtype.numpy).astype(np.float64)
    assert np.array_equal(stored, drawn)  # nothing is rounded, hence nothing up to 1
    assert stored.min() >= 0 and stored.max() < 1


def test_moments_of_the_distributions():
    n = 200_000
    state = np.array([11, 0])
    size = {"size": (n,), "dtype": dtypes.float64}
    # five standard deviations of each sample mean: the chance that a right generator fails is below 1e-5
    for name, mean, deviation in (
        ("random_uniform", 0.5, 12**-0.5), ("random_normal", 0.0, 1.0), ("random_exponential", 1.0, 1.0),
    ):  # fmt: skip
        drawn = REGISTRY[name].reference(state, **size)
        assert abs(drawn.mean() - mean) < 5 * deviation / n**0.5
    normal = REGISTRY["random_normal"].reference(state, **size)
    assert abs((normal**2).mean() - 1) < 5 * (2 / n) ** 0.5
    assert abs((normal**4).mean() - 3) < 5 * (96 / n) ** 0.5
    assert abs((normal[::2] * normal[1::2]).mean()) < 5 * (2 / n) ** 0.5


def test_integers_reach_both_ends_of_the_widest_range():
    ends = {"low": -(1 << 63), "high": (1 << 63) - 1}
    drawn = REGISTRY["random_integers"].reference(
        np.array([1, 0]), **ends, size=(50_000,), dtype=dtypes.int64
    )
    assert drawn.min() < -0.999 * 2**63 and drawn.max() > 0.999 * 2**63
    dice = REGISTRY["random_integers"].reference(
        np.array([1, 0]), low=1, high=7, size=(60_000,), dtype=dtypes.int64
    )
    counts = np.bincount(dice, minlength=7)
    assert counts[0] == 0 and len(counts) == 7
    assert np.abs(counts[1:] - 10_000).max() < 5 * (60_000 * 5 / 36) ** 0.5


def test_multinomial_draws_in_proportion_and_never_a_weight_of_zero():
    multinomial, state = REGISTRY["random_multinomial"].reference, np.array([2, 0])
    weights = np.array([0.0, 1.0, 2.0, 3.0, 0.0])
    n = 60_000
    expected = n * weights / 6
    deviations = (n * weights / 6 * (1 - weights / 6)) ** 0.5
    again = multinomial(weights, state, num_samples=n, replacement=True)
    first = multinomial(np.tile(weights, (n, 1)), state, num_samples=2, replacement=False)
    for drawn in (again, first[:, 0]):
        assert (np.abs(np.bincount(drawn, minlength=5) - expected) <= 5 * deviations).all()
    assert (first[:, 0] != first[:, 1]).all()


@pytest.mark.parametrize("rows, n, count", [(500, 6, 1), (500, 6, 3), (300, 1, 2), (500, 40, 9)])
def test_multinomial_draws_the_same_by_columns_and_by_rows(monkeypatch, rows, n, count):
    multinomial, state = REGISTRY["random_multinomial"].reference, np.array([2, 0])
    weights = np.random.rand(rows, n).astype(np.float32) * (np.random.rand(rows, n) < 0.8)
    weights[:, 0] += 0.01
    drawn = multinomial(weights, state, num_samples=count, replacement=True)
    monkeypatch.setattr("lamina.ir.ops.random.min", lambda *_: 0, raising=False)
    assert np.array_equal(drawn, multinomial(weights, state, num_samples=count, replacement=True))


def test_dropout_keeps_all_or_nothing_at_the_ends():
    dropout, state = REGISTRY["random_dropout"].reference, np.array([2, 0])
    ones = np.ones((7, 11), np.float32)
    assert np.array_equal(dropout(ones, state, p=0.0)[0], ones)
    assert not dropout(ones, state, p=1.0)[0].any()
