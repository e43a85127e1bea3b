"""Philox 4x32-10, the one random generator, as a body in u32 words: equal bits in NumPy, LLVM and Triton.

Source: J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

from __future__ import annotations

from .scalar import Expr, bitcast, cast, const, op

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10


def philox(key: tuple[Expr, Expr], counter: tuple[Expr, Expr, Expr, Expr]) -> tuple[Expr, Expr, Expr, Expr]:
    """The four u32 words of one counter under one key; all six operands are u32."""
    k0, k1 = key
    c0, c1, c2, c3 = counter
    m0, m1 = (const(m, "u32") for m in _MULTIPLIERS)
    for _ in range(ROUNDS):
        c0, c1, c2, c3 = (
            op("mulhi", c2, m1) ^ c1 ^ k0,
            c2 * m1,
            op("mulhi", c0, m0) ^ c3 ^ k1,
            c0 * m0,
        )
        k0, k1 = k0 + const(_WEYL[0], "u32"), k1 + const(_WEYL[1], "u32")
    return c0, c1, c2, c3


def random_bits(k0: Expr, k1: Expr, c0: Expr, c1: Expr, c2: Expr, c3: Expr) -> Expr:
    """The first word of `philox`: the expansion of the word of that name."""
    return philox((k0, k1), (c0, c1, c2, c3))[0]


def random_element(k0: Expr, k1: Expr, offset: Expr, element: Expr) -> Expr:
    """The u32 of one element of a draw: word `element % 4` of counter `offset + element / 4`.

    The keys are u32; `offset` and `element` are u64, so that a counter never wraps; four neighbours share a counter.
    """
    counter = offset + (element >> 2)
    low, high = cast(counter, "u32"), cast(counter >> 32, "u32")
    zero = const(0, "u32")
    words = philox((k0, k1), (low, high, zero, zero))
    lane = cast(element, "u32") & 3
    upper = op("select", op("eq", lane, 2), words[2], words[3])
    return op("select", op("eq", lane, 0), words[0], op("select", op("eq", lane, 1), words[1], upper))


def uniform(bits: Expr) -> Expr:
    """An f32 in [0, 1) from the upper 24 of 32 random bits: every result is a multiple of 2^-24."""
    return cast(bitcast(bits >> 8, "i32"), "f32") * 5.9604644775390625e-08
