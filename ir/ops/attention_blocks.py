"""Attention as ops for programs: one head after the other, parts of queries, and blocks of these in turn.

Of many scores there are few at a time, so that memory grows with the length, and what a block works on stays
in the second cache of a core.  A block's rows of scores are whole, so nothing is rescaled.  Under a causal
mask queries are cut into parts, each of which is held against the keys up to its last query.

    for each head                                     a recurrence, whose elements are q, k and v of the head
        for each part of its queries                  written out: keys and values are as many as it sees
            for each block of the part                a recurrence; keys and values are the same for all
                given = exp(q @ k.mT * scale - top)
                out = given @ v / sum(given)          dividing rows of values, which are fewer

Heads so small that one would not fill a processor are gone over together.
Source: Rabe and Staats, Self-attention does not need O(n^2) memory, 2021.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf, prod, sqrt
from typing import Any

from ..dims import Dim, has_hint, hint, likely
from ..dtypes import bool_, int32, int64
from ..graph import Value
from ..recur import recur
from ..shapes import is_one
from .cast import cast
from .compare import ge, ne, where
from .create import new_ones, zeros_like
from .extremum import amax
from .join import cat, constant_pad
from .math import exp
from .matmul import matmul
from .rearrange import tril
from .reduce import sum
from .scan import cumsum
from .view import permute, reshape

# Scores from which on there are blocks, and how many there are at once then, about.  One head of 64 after
# the other is quickest by a quarter of a megabyte of float32; of 8 together blocks that small are mostly
# calls (EPYC, 2026-11-26).
LARGE, PIECE = 1 << 17, 1 << 16
LARGE_TOGETHER, PIECE_TOGETHER = 1 << 20, 1 << 18  # in eager, and for targets without loops
LEAST, MOST, STEP = 32, 64, 16  # queries of a block
LEAST_TOGETHER, MOST_TOGETHER = 16, 128
PARTS, SHORT = 8, 64  # under a causal mask: parts at most, and queries of each at least
ENOUGH = 1 << 15  # scores: heads that have fewer are gone over together


def scale_of(query: Any, scale: float | None) -> float:
    return 1 / sqrt(query.shape[-1]) if scale is None else scale


def is_bool(mask: Any) -> bool:
    return mask.dtype in (bool_, bool_.numpy)


# ---- what a block computes


def exponentials(query: Any, key: Any, mask: Any, seen: Any) -> tuple[Any, Any]:
    """What scaled queries give to keys, [..., l, s], and the sums, [..., l, 1], by which it is to be divided.

    seen: where a causal mask lets queries see keys, or None.  A query that sees no key gives 0 to all,
    and its sum is said to be 1, so that nobody divides 0 by 0.
    """
    scores = matmul(query, key.mT)
    if seen is not None:
        scores = where(seen, scores, -inf)
    elif mask is not None:
        scores = where(mask, scores, -inf) if is_bool(mask) else scores + mask
    top = amax(scores, dim=-1, keepdim=True)
    if mask is not None:
        top = where(ne(top, -inf), top, 0.0)
    given = exp(scores - top)
    totals = sum(given, -1, True)
    return given, totals if mask is None else where(ne(totals, 0.0), totals, 1.0)


def mean(query: Any, key: Any, value: Any, mask: Any, seen: Any) -> Any:
    """What scaled queries take of the values."""
    given, totals = exponentials(query, key, mask, seen)
    return matmul(given, value) / totals


def mean_backward(
    g: Any, query: Any, key: Any, value: Any, mask: Any, seen: Any, scale: float
) -> tuple[Any, Any, Any]:
    """What scaled queries give back to queries, keys and values.

    Weights are not divided here either, but the cotangent: w = given / totals is only met in products.
    """
    given, totals = exponentials(query, key, mask, seen)
    share = g / totals
    to_given = matmul(share, value.mT)
    to_scores = given * (to_given - sum(given * to_given, -1, True) / totals)
    return matmul(to_scores, key) * scale, matmul(to_scores.mT, query), matmul(given.mT, share)


# ---- heads


def by_heads(function: Callable[..., tuple], operands: Sequence[Any]) -> tuple:
    """What a function of [..., n, e] makes of each element of the leading dimensions, one after the other.

    operands: queries first and then keys; others may have 1 in place of a leading dimension, or lack some.
    """
    query, key = operands[:2]
    if query.ndim == 2:
        return function(*operands)
    if (merged := _merged(operands)) is not None:
        return tuple([reshape(x, (*query.shape[:-2], *x.shape[1:])) for x in by_heads(function, merged)])
    count = query.shape[0]
    if is_one(count):
        inside = [x if x is None or x.ndim < query.ndim else reshape(x, x.shape[1:]) for x in operands]
        return tuple([reshape(x, (1, *x.shape)) for x in by_heads(function, inside)])
    scores = hint(prod(query.shape[1:-1])) * hint(key.shape[-2])
    if scores >= ENOUGH:
        return _in_turn(partial(by_heads, function), operands)
    together = _together(count, scores)
    if together == count:
        return function(*operands)
    split = [
        reshape(x, (count // together, together, *x.shape[1:])) if _is_apart(x, query) else x
        for x in operands
    ]
    found = _in_turn(lambda inside: function(*inside), split)
    return tuple([reshape(x, (count, *x.shape[2:])) for x in found])


def _merged(operands: Sequence[Any]) -> list[Any] | None:
    """Operands of which all heads stand in one dimension: a loop with more runs goes to more threads.

    None where they do, where a head is too small for a run of its own, or where an operand has not all of
    the leading dimensions.
    """
    query, key = operands[:2]
    lead, found = query.shape[:-2], []
    if len(lead) == 1 or hint(query.shape[-2]) * hint(key.shape[-2]) < ENOUGH:
        return None
    for x in operands:
        if x is not None and x.ndim > 2:
            if x.ndim < query.ndim or not all(map(same_size, x.shape, lead)):
                return None
            x = reshape(x, (prod(lead), *x.shape[-2:]))
        found.append(x)
    return found


def _together(count: int | Dim, scores: int) -> int | Dim:
    """How many heads of so many scores are gone over together: a divisor of their number."""
    if isinstance(count, Dim):
        return count
    return max([n for n in range(1, count + 1) if not count % n and n * scores <= PIECE], default=1)


def _is_apart(x: Any, query: Any) -> bool:
    """Whether an operand has an element for each of the first dimension of queries."""
    return x is not None and x.ndim == query.ndim and not is_one(x.shape[0])


def _in_turn(function: Callable[[Sequence[Any]], tuple], operands: Sequence[Any]) -> tuple:
    """What a function makes of operands without the first dimension that queries have."""
    query = operands[0]
    each = [n for n, x in enumerate(operands) if _is_apart(x, query)]
    rest = [n for n in range(len(operands)) if n not in each]
    fixed = [operands[n] for n in rest]
    fixed = [x if x is None or x.ndim < query.ndim else reshape(x, x.shape[1:]) for x in fixed]

    def attention_head(elements: tuple, states: tuple, fixed: tuple) -> tuple:
        at = dict(zip([*each, *rest], [*elements, *fixed], strict=True))
        return (), function([at[n] for n in range(len(operands))])

    return recur(attention_head, tuple([operands[n] for n in each]), (), tuple(fixed), ())


# ---- parts and blocks


@dataclass(frozen=True)
class Part:
    """Queries that follow one another, in blocks, and how many keys they see.

    first, rows: where they begin, and how many they are.  count, size: of blocks; the last is filled up with
    zeros.
    """

    first: int | Dim
    rows: int | Dim
    seen: int | Dim
    count: int | Dim
    size: int | Dim

    def run(self, step: Callable, named: dict[str, Any], fixed: tuple, mask: Any, places: Any, states: tuple):
        """What `step` makes of the part: states, and then rows, as (states, rows).

        step: (elements by name, states, keys and values, (mask, seen)) -> (states, elements).  named: what
        has a row for each query.  places: 0, 1, ... for queries and for keys, or None where all are seen.
        """
        fixed = tuple([x[..., : self.seen, :] for x in fixed])
        sequences = {name: self.apart(x) for name, x in named.items()}
        if places is not None:
            sequences["place"] = self.apart(reshape(places[0], (*places[0].shape, 1)))
            fixed = (*fixed, places[1][: self.seen])
        elif mask is not None and mask.ndim > 1 and not is_one(mask.shape[-2]):
            sequences["mask"] = self.apart(mask, True if is_bool(mask) else 0)
        elif mask is not None:
            fixed = (*fixed, mask)

        def attention_block(elements: tuple, states: tuple, fixed: tuple) -> tuple:
            at = dict(zip(sequences, elements, strict=True))
            more = fixed[2] if len(fixed) > 2 else None
            if "place" in at:
                masks = None, ge(at["place"], more)
            else:
                masks = at.get("mask", more), None
            return step(at, states, fixed[:2], masks)

        if self.is_whole:
            states, made = attention_block(tuple(sequences.values()), states, fixed)
            return states, [self.joined(x) for x in made]
        kept = (False,) * len(states)
        found = recur(attention_block, tuple(sequences.values()), states, fixed, kept)
        return found[: len(kept)], [self.joined(x) for x in found[len(kept) :]]

    @property
    def is_whole(self) -> bool:
        """Whether all of it is one block."""
        return not isinstance(self.count, Dim) and self.count == 1

    @property
    def more(self) -> int | Dim:
        """Rows that fill the last block up."""
        return self.count * self.size - self.rows

    def apart(self, x: Any, value: Any = 0) -> Any:
        """[..., l, e] -> [blocks, ..., size, e]"""
        lead = x.ndim - 2
        x = filled(x[..., self.first : self.first + self.rows, :], self.more, value)
        if self.is_whole:
            return x
        x = reshape(x, (*x.shape[:lead], self.count, self.size, x.shape[-1]))
        return permute(x, (lead, *range(lead), lead + 1, lead + 2))

    def joined(self, x: Any) -> Any:
        """[blocks, ..., size, e] -> [..., rows, e]"""
        if not self.is_whole:
            lead = x.ndim - 3
            x = permute(x, (*range(1, lead + 1), 0, lead + 1, lead + 2))
            x = reshape(x, (*x.shape[:lead], self.count * self.size, x.shape[-1]))
        return filled(x, -self.more)


def filled(x: Any, more: int | Dim, value: Any = 0) -> Any:
    """x [..., n, e] with further rows, or with fewer."""
    if not isinstance(more, Dim) and not more:
        return x
    return constant_pad(x, ((0, 0),) * (x.ndim - 2) + ((0, more), (0, 0)), value)


@dataclass(frozen=True)
class Cut:
    """The parts that queries are cut into.  more: rows by which queries and keys are filled up before."""

    parts: tuple[Part, ...]
    more: int | Dim = 0


def cut(query: Any, key: Any, is_causal: bool, loops: bool) -> Cut:
    """How the queries of these heads are cut.  loops: whether programs have any; else there is one part."""
    queries, keys = query.shape[-2], key.shape[-2]
    heads = hint(prod(query.shape[:-2]))
    if isinstance(queries, Dim) or isinstance(keys, Dim):
        parts = _parts(hint(queries), is_causal and loops and same_size(queries, keys))
        return _open(queries, keys, parts, block_of(heads * hint(keys), loops))
    parts = _parts(queries, is_causal and loops)
    return Cut(tuple(_static(queries, keys, parts, lambda seen: block_of(heads * seen, loops))))


def same_size(a: int | Dim, b: int | Dim) -> bool:
    """Whether two sizes are the same for whatever symbols are, which nobody is asked."""
    return a == b if isinstance(a, int) and isinstance(b, int) else str(a) == str(b)


def _parts(queries: int, is_cut: bool) -> int:
    return max(1, min(PARTS, queries // SHORT)) if is_cut else 1


def block_of(scores_of_one: int, loops: bool) -> int:
    """How many queries a block has at most, of so many scores each of all heads."""
    apart, together = (PIECE, LEAST, MOST), (PIECE_TOGETHER, LEAST_TOGETHER, MOST_TOGETHER)
    piece, least, most = apart if loops else together
    return min(most, max(least, piece // max(1, scores_of_one) // STEP * STEP))


def _static(queries: int, keys: int, parts: int, most: Callable[[int], int]) -> Iterator[Part]:
    """Parts of equal length, but for the last one, in as many blocks of equal length as they need.

    most: how many queries a block has at most, that see so many keys.
    """
    each = -(-queries // parts)
    for first in range(0, queries, each):
        rows = min(each, queries - first)
        seen = keys if parts == 1 else min(keys, first + rows)
        count = -(-rows // most(seen))
        yield Part(first, rows, seen, count, -(-rows // count))


def _open(queries: Any, keys: Any, parts: int, most: int) -> Cut:
    """Parts of as many blocks each, for any number of queries; blocks as large as that many need."""
    count = (queries + (parts * most - 1)) // (parts * most)
    size = (queries + (parts * count - 1)) // (parts * count)
    if parts == 1:
        return Cut((Part(0, queries, keys, count, size),))
    rows = count * size
    found = [Part(n * rows, rows, (n + 1) * rows, count, size) for n in range(parts)]
    return Cut(tuple(found), rows * parts - queries)


def _places(query: Any, key: Any, more: int | Dim) -> tuple[Any, Any]:
    """0, 1, ... for queries and for keys."""
    return tuple([_counted(x, x.shape[-2] + more) for x in (query, key)])


def _counted(like: Any, count: Any) -> Any:
    return cast(cumsum(new_ones(like, count, dtype=int64), 0) - 1, dtype=int32)


# ---- the lowerings


def is_large(query: Any, key: Any, loops: bool) -> bool:
    """Whether a graph's values have blocks: by the sizes that a program is made by."""
    if not isinstance(query, Value) or not all(has_hint(n) for n in (*query.shape, *key.shape)):
        return False
    most, least = (LARGE, LEAST) if loops else (LARGE_TOGETHER, LEAST_TOGETHER)
    return likely(prod(query.shape[:-1]) * key.shape[-2], most + 1) and hint(query.shape[-2]) > least


def all_seen(query: Any, key: Any, is_causal: bool) -> Any:
    """Where a causal mask lets queries see keys, [l, s]; None where there is no such mask."""
    return tril(new_ones(query, query.shape[-2], key.shape[-2], dtype=bool_)) if is_causal else None


def attention_lowered(query, key, value, mask, *, is_causal, scale, loops=True):
    """As ops: all at once, or in blocks; heads one after the other where programs have loops."""
    factor = scale_of(query, scale)
    if not is_large(query, key, loops):
        return mean(query * factor, key, value, mask, all_seen(query, key, is_causal))

    def step(at: dict, states: tuple, fixed: tuple, masks: tuple) -> tuple:
        return (), (mean(at["query"] * factor, *fixed, *masks),)

    def of_heads(query: Any, key: Any, value: Any, mask: Any) -> tuple:
        found = cut(query, key, is_causal, loops)
        places = _places(query, key, found.more) if is_causal else None
        query, key, value = (filled(x, found.more) for x in (query, key, value))
        rows = [
            part.run(step, {"query": query}, (key, value), mask, places, ())[1][0] for part in found.parts
        ]
        return (filled(_stacked(rows), -found.more),)

    operands = query, key, value, mask
    return (by_heads(of_heads, operands) if loops else of_heads(*operands))[0]


def _stacked(rows: list) -> Any:
    return rows[0] if len(rows) == 1 else cat(rows, dim=-2)


def attention_backward_lowered(g, query, key, value, mask, *, is_causal, scale, loops=True):
    factor = scale_of(query, scale)
    if not is_large(query, key, loops):
        return mean_backward(g, query * factor, key, value, mask, all_seen(query, key, is_causal), factor)

    def step(at: dict, states: tuple, fixed: tuple, masks: tuple) -> tuple:
        (key, value), (own, seen) = fixed, masks
        to_query, *found = mean_backward(at["g"], at["query"] * factor, key, value, own, seen, factor)
        return tuple([x + state for state, x in zip(states, found)]) if states else (*found,), (to_query,)

    def of_heads(query: Any, key: Any, value: Any, mask: Any, g: Any) -> tuple:
        found, keys = cut(query, key, is_causal, loops), key.shape[-2]
        places = _places(query, key, found.more) if is_causal else None
        query, key, value, g = (filled(x, found.more) for x in (query, key, value, g))
        rows, states, done, seen = [], (), [], None
        for part in reversed(found.parts):  # the last sees most keys; others add to a beginning of those
            if seen is not None and seen != part.seen:
                done.append([x[..., part.seen :, :] for x in states])
                states = tuple([x[..., : part.seen, :] for x in states])
            if not states and not part.is_whole:
                states = tuple([zeros_like(x[..., : part.seen, :]) for x in (key, value)])
            seen = part.seen
            states, (to_query,) = part.run(step, {"query": query, "g": g}, (key, value), mask, places, states)
            rows.append(to_query)
        sums = [_stacked([*each][::-1]) for each in zip(*done, states)] if done else [*states]
        more = keys - sums[0].shape[-2]
        to_key, to_value = (filled(x, more) for x in sums)
        return filled(_stacked(rows[::-1]), -found.more), to_key, to_value

    operands = query, key, value, mask, g
    return by_heads(of_heads, operands) if loops else of_heads(*operands)
