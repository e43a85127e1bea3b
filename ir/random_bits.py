"""Philox 4x32-10 in NumPy, in bulk: the 32-bit words that every random op is a function of.

The key is the seed; counter number i of a draw is offset + i.  Word w of a draw is word w % 4 of its counter
w // 4: eager, compiled, on any device and for any number of threads.

Source: J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from .kernel.philox import MULTIPLIERS, ROUNDS, WEYL

_BLOCK = 16_384  # counters at a time: six arrays of 128 KiB stay in a second-level cache
_MASK = 0xFFFFFFFFFFFFFFFF
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)


def philox(seed: int, offset: int, count: int) -> np.ndarray:
    """The words of `count` counters from `offset` on under the key `seed`: uint32[count, 4]."""
    out = np.empty((count, 4), np.uint32)
    for start in range(0, count, _BLOCK):
        counters = np.arange(min(_BLOCK, count - start), dtype=np.uint64)
        counters += np.uint64((offset + start) & _MASK)
        _of_counters(seed, counters, out[start : start + _BLOCK])
    return out


def _of_counters(seed: int, counters: np.ndarray, out: np.ndarray) -> None:
    zero = np.zeros_like(counters)
    philox_rounds(seed, (counters & _LOW, counters >> _HALF, zero, zero.copy()), out)


def philox_rounds(seed: int, counter: tuple, out: np.ndarray) -> None:
    """Write the words of counters to `out`, uint32[n, 4].

    counter: four uint64 arrays of 32-bit values, which are used up.

    Values stay below 2^32 in 64-bit words, so that a product has room.
    """
    c0, c1, c2, c3 = counter
    p0, p1 = np.empty_like(c0), np.empty_like(c0)
    m0, m1 = map(np.uint64, MULTIPLIERS)
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF
    for _ in range(ROUNDS):
        np.multiply(c0, m0, out=p0)
        np.multiply(c2, m1, out=p1)
        np.right_shift(p1, _HALF, out=c0)
        np.bitwise_xor(c0, c1, out=c0)
        np.bitwise_xor(c0, np.uint64(k0), out=c0)
        np.right_shift(p0, _HALF, out=c2)
        np.bitwise_xor(c2, c3, out=c2)
        np.bitwise_xor(c2, np.uint64(k1), out=c2)
        np.bitwise_and(p1, _LOW, out=c1)
        np.bitwise_and(p0, _LOW, out=c3)
        k0, k1 = (k0 + WEYL[0]) & 0xFFFFFFFF, (k1 + WEYL[1]) & 0xFFFFFFFF
    for word, values in enumerate((c0, c1, c2, c3)):
        out[:, word] = values


_KEPT = 256  # counters that are computed together for small draws: a call takes 120 us whatever it computes


@lru_cache(16)
def _kept(seed: int, number: int) -> np.ndarray:
    """The words of one block of counters, for the small draws that follow each other in it."""
    block = philox(seed, number * _KEPT, _KEPT)
    block.flags.writeable = False
    return block


def words(state: np.ndarray, count: int) -> np.ndarray:
    """The first `count` words of the draw at `state`, int64 [seed, offset]: uint32[count], read-only."""
    seed, offset, counters = int(state[0]), int(state[1]) & _MASK, -(-count // 4)
    block, start = divmod(offset, _KEPT)
    if start + counters <= _KEPT:
        return _kept(seed, block)[start : start + counters].reshape(-1)[:count]
    return philox(seed, offset, counters).reshape(-1)[:count]


def words_at(state: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """The words of single counters of the draw at `state`.  Shapes: int64[n] -> uint32[n, 4]."""
    out = np.empty((len(numbers), 4), np.uint32)
    for start in range(0, len(numbers), _BLOCK):
        counters = numbers[start : start + _BLOCK].astype(np.uint64)
        counters += np.uint64(int(state[1]) & _MASK)
        _of_counters(int(state[0]), counters, out[start : start + _BLOCK])
    return out
