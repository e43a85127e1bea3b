"""Philox 4x32-10, the one random generator, in u32 words: equal bits in NumPy, LLVM and Triton.

Source: J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

from __future__ import annotations

import numpy as np

from .scalar import Const, Expr, bitcast, cast, const, op

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10


def random_bits(k0: Expr, k1: Expr, c0: Expr, c1: Expr, c2: Expr, c3: Expr, lane: Expr) -> Expr:
    """Word `lane` of the four that counter c0..c3 gives under key k0, k1 (the last, for any lane beyond it):
    the expansion of that word.

    The DAG shares the rounds of a counter between its words and between the elements that ask for them.
    """
    m0, m1 = (const(m, "u32") for m in MULTIPLIERS)
    for _ in range(ROUNDS):
        high0, high1 = op("mulhi", c0, m0), op("mulhi", c2, m1)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, c2 * m1, high0 ^ c3 ^ k1, c0 * m0
        k0, k1 = k0 + const(WEYL[0], "u32"), k1 + const(WEYL[1], "u32")
    words = (c0, c1, c2, c3)
    if isinstance(lane, Const):
        return words[min(int(lane.value), 3)]
    upper = op("select", op("eq", lane, 2), c2, c3)
    return op("select", op("eq", lane, 0), c0, op("select", op("eq", lane, 1), c1, upper))


def philox_words(
    key: tuple[np.ndarray, np.ndarray], counter: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The same on u32 arrays, all four words."""
    k0, k1, c0, c1, c2, c3 = (np.asarray(a, np.uint32) for a in np.broadcast_arrays(*key, *counter))
    m0, m1 = (np.uint64(m) for m in MULTIPLIERS)
    with np.errstate(over="ignore"):  # keys wrap; NumPy warns where a scalar does
        for _ in range(ROUNDS):
            p0, p1 = c0.astype(np.uint64) * m0, c2.astype(np.uint64) * m1
            high0, high1 = (p0 >> np.uint64(32)).astype(np.uint32), (p1 >> np.uint64(32)).astype(np.uint32)
            c0, c1, c2, c3 = high1 ^ c1 ^ k0, p1.astype(np.uint32), high0 ^ c3 ^ k1, p0.astype(np.uint32)
            k0, k1 = k0 + np.uint32(WEYL[0]), k1 + np.uint32(WEYL[1])
    return c0, c1, c2, c3


def numpy_random_bits(*operands: np.ndarray) -> np.ndarray:
    """`random_bits` on arrays."""
    k0, k1, c0, c1, c2, c3, lane = operands
    words = philox_words((k0, k1), (c0, c1, c2, c3))
    return np.choose(np.minimum(np.broadcast_to(lane, words[0].shape), 3).astype(np.intp), words)


def random_element(k0: Expr, k1: Expr, offset: Expr, element: Expr) -> Expr:
    """The u32 of one element of a draw: word `element % 4` of counter `offset + element / 4`.

    The keys are u32; `offset` and `element` are u64, so that a counter never wraps.
    """
    counter = offset + (element >> 2)
    low, high = cast(counter, "u32"), cast(counter >> 32, "u32")
    zero = const(0, "u32")
    return op("random_bits", k0, k1, low, high, zero, zero, cast(element & 3, "u32"))


def uniform(bits: Expr) -> Expr:
    """An f32 in [0, 1) from the upper 24 of 32 random bits: every result is a multiple of 2^-24."""
    return cast(bitcast(bits >> 8, "i32"), "f32") * 2.0**-24
