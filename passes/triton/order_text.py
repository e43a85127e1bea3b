"""Kernels that put elements in order, and find and count them: sources with sizes as parameters.

No kernel form says them, so their text is written here, once for each kind of element: new sizes are no new
code.  Elements are compared as whole numbers, their keys: -0 has that of 0, NaN the greatest.

    -1.0 -> 0xbf800000 -> 0xc07fffff      -0.0 -> 0      1.0 -> 0x3f800000      NaN -> 0x7fffffff

A row that fits into a tile is sorted by a bitonic network, each key with its place in the low bits, so that
equal ones keep their order; keys of 64 bits by their lower halves first.  Longer rows are sorted tile by
tile, and then merged: an element finds its place among those of the other run by bisection.
Source: Batcher, Sorting networks and their applications, 1968.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache

from .code import Code

# By an element type: what its bits are loaded as, and the bits of infinity where it is a floating one.
KINDS: dict[str, tuple[str, int]] = {
    "bool": ("i8", 0), "i8": ("i8", 0), "u8": ("u8", 0), "i16": ("i16", 0), "i32": ("i32", 0),
    "i64": ("i64", 0), "f16": ("i16", 0x7C00), "bf16": ("i16", 0x7F80), "f32": ("i32", 0x7F800000),
    "f64": ("i64", 0x7FF << 52),
}  # fmt: skip
SHORT, LONG = 1024, 4096  # lanes of a tile, by which row it is for
LANES = 1024  # of a program that has no tile
PER_WARP = 256  # lanes: eight of each thread


def _bits(dtype: str) -> int:
    return int(KINDS[dtype][0][1:])


def key_of(dtype: str) -> str:
    """The type of the keys of elements: i32 where they have up to 32 bits."""
    return "i64" if _bits(dtype) == 64 else "i32"


def _key(dtype: str, name: str, flip: str = "") -> list[str]:
    """Lines that make `{name}_key` of `{name}`.  flip: a number that turns the order over, 0 or -1."""
    kind, (_, infinity) = key_of(dtype), KINDS[dtype]
    lines, key = [f"{name}_key = {name}.to(tl.int{kind[1:]})"], f"{name}_key"
    if infinity:
        most = (1 << _bits(dtype) - 1) - 1
        lines += [
            f"{name}_size = {key} & {most}",
            f"{key} = {key} ^ (({key} >> {int(kind[1:]) - 1}) & {most})",
            f"{key} = tl.where({name}_size == 0, 0, {key})",
            f"{key} = tl.where({name}_size > {infinity}, {most}, {key})",
        ]
    return [*lines, f"{key} = {key} ^ {flip}"] if flip else lines


def _is_nan(dtype: str, name: str) -> str:
    """Whether an element whose key was made is NaN."""
    infinity = KINDS[dtype][1]
    return f"({name}_size > {infinity})" if infinity else "False"


def _code(what: str, parameters: Sequence[tuple[str, str]], lines: Sequence[str], warps: int = 4) -> Code:
    """The code of a function with those lines.  what: it does.  parameters: names and types."""
    names, types = [name for name, _ in parameters], tuple(kind for _, kind in parameters)
    body = "\n".join(f"    {line}" for line in lines)
    text = f"{', '.join(f'{name}: {kind}' for name, kind in parameters)}\n{body}\n{warps}"
    name = f"{what}_{hashlib.blake2b(text.encode(), digest_size=10).hexdigest()}"
    head = f"import triton\nimport triton.language as tl\n\n\n@triton.jit\ndef {name}({', '.join(names)}):"
    aligned = tuple(kind[0] == "*" for kind in types)
    return Code(name, f"{head}\n{body}\n", types, aligned, warps, 1, 1)


# ---- tiles
def _network(p: str) -> list[str]:
    """Lines that sort stretches of 2 ** log lanes of a tensor."""
    return [
        "for stage in range(1, log + 1):",
        "    for step in range(0, stage):",
        "        distance = 1 << (stage - 1 - step)",
        f"        other = tl.gather({p}, at ^ distance, 0)",
        "        rises = (((at >> stage) & 1) == 0) | (stage == log)",
        "        low_one = (at & distance) == 0",
        f"        {p} = tl.where(rises == low_one, tl.minimum({p}, other), tl.maximum({p}, other))",
    ]


# What a tile's order is written as: values and places of the window [low, low + count) of ranks; keys and
# places of all, for `merge`; or places of the first `count`, -1 where there are fewer, for another tile.
ORDERED, KEYS, PLACES = "ordered", "keys", "places"


@cache
def tile(dtype: str, lanes: int, result: str, chosen: bool = False) -> Code:
    """Sort rows, or each stretch of 2 ** log elements of them.

    Rows lie along a dimension: rows of n elements, `inner` apart.  chosen: not all elements take part, but m
    of each row, whose places are given.  flip: -1 for the greatest first, else 0.
    """
    bits, key, kind = _bits(dtype), key_of(dtype), KINDS[dtype][0]
    outs = {
        ORDERED: [("values", f"*{kind}"), ("places", "*i64")],
        KEYS: [("keys", f"*{key}"), ("places", "*i32")],
        PLACES: [("places", "*i32")],
    }[result]
    parameters = [
        ("x", f"*{kind}"), *([("given", "*i32")] if chosen else []), *outs, ("rows", "i64"), ("n", "i32"),
        ("m", "i32"), ("inner", "i64"), ("flip", "i32"), ("log", "i32"), ("low", "i32"), ("count", "i32"),
    ]  # fmt: skip
    shift, packed = (16, "int32") if bits <= 16 else (32, "int64")
    last = (1 << shift) - 1  # in the low bits of lanes that have no element, which come last
    absent = (1 << (31 if shift == 16 else 63)) - 1
    place = "tl.load(given + row * m + {}, mask={}, other=-1)" if chosen else "{}"

    def loaded(name: str, where: str) -> list[str]:
        there = f"there_{name}"
        return [
            f"place_{name} = {place.format(where, f'there & ({where} < m)')}",
            f"{there} = there & ({where} < m) & (place_{name} >= 0)",
            f"{name} = tl.load(x + base + place_{name} * inner, mask={there}, other=0)",
            *_key(dtype, name, f"flip.to(tl.int{key[1:]})"),
        ]

    lines = [
        f"at = tl.arange(0, {lanes})",
        f"stretch = (tl.program_id(0).to(tl.int64) * {lanes} + at) >> log",
        "size = 1 << log",
        "parts = (m + size - 1) // size",
        "row = stretch // parts",
        "start = (stretch % parts).to(tl.int32) * size",
        "rank = at & (size - 1)",
        "there = row < rows",
        "base = (row // inner) * (n * inner) + row % inner",
        *loaded("v", "(start + rank)"),
    ]
    if bits == 64:
        lines += [
            "half = ((v_key & 0xFFFFFFFF) - 0x80000000) << 32",
            f"p = tl.where(there_v, half | rank, {absent})",
            *_network("p"),
            f"own = (p & {last}).to(tl.int32)",
            f"own = tl.where(p == {absent}, m, own)",  # beyond all, with any start
            *loaded("h", "(start + own)"),
            "half = (h_key >> 32) << 32",
            f"p = tl.where(there_h, half | (rank << 16) | own, {absent})",
            *_network("p"),
            f"own = (p & {(1 << 16) - 1}).to(tl.int32)",
        ]
    else:
        lines += [
            f"p = tl.where(there_v, (v_key.to(tl.{packed}) << {shift}) | rank, {absent})",
            *_network("p"),
            f"own = (p & {last}).to(tl.int32)",
        ]
    lines += [f"own = tl.where(p == {absent}, m, own)", *loaded("w", "(start + own)")]
    if result == ORDERED:
        lines += [
            "wanted = there_w & (rank >= low) & (rank < low + count)",
            "to = (row // inner) * (count * inner) + row % inner + (rank - low) * inner",
            "tl.store(values + to, w, mask=wanted)",
            "tl.store(places + to, place_w.to(tl.int64), mask=wanted)",
        ]
    elif result == KEYS:
        lines += [
            "to = row * m + start + rank",
            "tl.store(keys + to, w_key, mask=there_w)",
            "tl.store(places + to, place_w, mask=there_w)",
        ]
    else:
        lines += [
            "found = tl.where(there_w, place_w, -1)",
            "tl.store(places + stretch * count + rank, found, mask=there & (rank < count))",
        ]
    return _code("sort_tiles", parameters, lines, lanes // PER_WARP)


# ---- long rows
@cache
def merge(dtype: str) -> Code:
    """Merge runs of `run` sorted elements of rows two by two: keys, each with its place in the row."""
    key = key_of(dtype)
    parameters = [
        ("keys", f"*{key}"), ("places", "*i32"), ("keys_out", f"*{key}"), ("places_out", "*i32"),
        ("n", "i32"), ("run", "i32"), ("steps", "i32"),
    ]  # fmt: skip
    lines = [
        f"blocks = (n + {LANES - 1}) // {LANES}",
        "number = tl.program_id(0)",
        "base = (number // blocks).to(tl.int64) * n",
        f"j = (number % blocks) * {LANES} + tl.arange(0, {LANES})",
        "there = j < n",
        "key = tl.load(keys + base + j, mask=there, other=0)",
        "place = tl.load(places + base + j, mask=there, other=0)",
        "own = j // run",
        "is_first = own % 2 == 0",
        # in 64 bits: the end of a run may lie beyond what 32 count
        "begin = tl.where(is_first, own + 1, own - 1).to(tl.int64) * run",
        "begin = tl.minimum(begin, n)",
        "end = tl.minimum(begin + run, n)",
        "left, right = begin, end",
        "for _ in range(0, steps):",
        "    inside = left < right",
        "    middle = (left + right) // 2",
        "    met = tl.load(keys + base + middle, mask=there & inside, other=0)",
        # of equal ones those of the first run come first
        "    is_before = tl.where(is_first, met < key, met <= key)",
        "    left = tl.where(inside & is_before, middle + 1, left)",
        "    right = tl.where(inside & (is_before == 0), middle, right)",
        "pair = (own // 2 * 2).to(tl.int64) * run",
        "to = base + pair + (j - own.to(tl.int64) * run) + (left - begin)",
        "tl.store(keys_out + to, key, mask=there)",
        "tl.store(places_out + to, place, mask=there)",
    ]
    return _code("merge", parameters, lines)


@cache
def picked(dtype: str) -> Code:
    """Values and places of the window [low, low + count) of rows whose places in order are known."""
    kind = KINDS[dtype][0]
    parameters = [
        ("x", f"*{kind}"), ("order", "*i32"), ("values", f"*{kind}"), ("places", "*i64"), ("total", "i64"),
        ("n", "i32"), ("inner", "i64"), ("low", "i32"), ("count", "i32"),
    ]  # fmt: skip
    lines = [
        *_at("total"),
        "row = at // count",
        "rank = at % count",
        "place = tl.load(order + row * n + low + rank, mask=there, other=0)",
        "base = (row // inner) * (n * inner) + row % inner",
        "found = tl.load(x + base + place * inner, mask=there, other=0)",
        "to = (row // inner) * (count * inner) + row % inner + rank * inner",
        "tl.store(values + to, found, mask=there)",
        "tl.store(places + to, place.to(tl.int64), mask=there)",
    ]
    return _code("pick", parameters, lines)


def _at(count: str) -> list[str]:
    """Lines for the numbers of a program's lanes, of so many in all."""
    return [
        f"at = tl.program_id(0).to(tl.int64) * {LANES} + tl.arange(0, {LANES})",
        f"there = at < {count}",
    ]


@cache
def middle(dtype: str) -> Code:
    """The lower median of each sorted row, and where it stood.

    skips: 1 where NaN is left out, which comes last; else the first NaN is chosen where there is one.
    """
    kind = KINDS[dtype][0]
    parameters = [
        ("x", f"*{kind}"), ("order", "*i64"), ("values", f"*{kind}"), ("places", "*i64"), ("rows", "i64"),
        ("n", "i32"), ("inner", "i64"), ("steps", "i32"), ("skips", "i32"),
    ]  # fmt: skip
    lines = [
        *_at("rows"),
        "base = (at // inner) * (n * inner) + at % inner",
        "left = at * 0",
        "right = left + n",
        "for _ in range(0, steps):",
        "    inside = left < right",
        "    met = (left + right) // 2",
        "    u = tl.load(x + base + met * inner, mask=there & inside, other=0)",
        *(f"    {line}" for line in _key(dtype, "u")),
        f"    is_known = {_is_nan(dtype, 'u')} == 0",
        "    left = tl.where(inside & is_known, met + 1, left)",
        "    right = tl.where(inside & (is_known == 0), met, right)",
        "rank = tl.where(left < n, left, (n - 1) // 2)",
        "rank = tl.where(skips != 0, tl.maximum(left - 1, 0) // 2, rank)",
        "tl.store(values + at, tl.load(x + base + rank * inner, mask=there, other=0), mask=there)",
        "tl.store(places + at, tl.load(order + base + rank * inner, mask=there, other=0), mask=there)",
    ]
    return _code("middle", parameters, lines)


# ---- what is counted: elements that are not zero, or that begin a run of equal ones
TRUE, RUNS = "true", "runs"


def _flags(dtype: str, what: str) -> list[str]:
    """Lines that make `flag`, an i32, of the elements of a program."""
    lines = [*_at("n"), "v = tl.load(x + at, mask=there, other=0)"]
    if what == TRUE:
        size = (1 << _bits(dtype) - 1) - 1  # without its sign a zero has no bits
        return [*lines, f"flag = (there & ({f'(v & {size})' if KINDS[dtype][1] else 'v'} != 0)).to(tl.int32)"]
    return [
        *lines,
        "u = tl.load(x + at - 1, mask=there & (at > 0), other=0)",
        *_key(dtype, "v"),
        *_key(dtype, "u"),
        f"flag = (there & ((at == 0) | (v_key != u_key) | {_is_nan(dtype, 'v')})).to(tl.int32)",
    ]


@cache
def counted(dtype: str, what: str) -> Code:
    """How many of each program's elements are."""
    parameters = [("x", f"*{KINDS[dtype][0]}"), ("counts", "*i32"), ("n", "i64")]
    lines = [*_flags(dtype, what), "tl.store(counts + tl.program_id(0), tl.sum(flag, 0))"]
    return _code("count", parameters, lines)


@cache
def offsets() -> Code:
    """How many there are before each program's, and behind them how many in all; by one program."""
    parameters = [("counts", "*i32"), ("before", "*i64"), ("n", "i64")]
    lines = [
        f"at = tl.arange(0, {LANES})",
        "carry = n * 0",
        f"for start in range(0, n, {LANES}):",
        "    there = start + at < n",
        "    count = tl.load(counts + start + at, mask=there, other=0).to(tl.int64)",
        "    tl.store(before + start + at, tl.cumsum(count, 0) - count + carry, mask=there)",
        "    carry += tl.sum(count, 0)",
        "tl.store(before + n, carry)",
    ]
    return _code("offsets", parameters, lines)


@cache
def places(dtype: str, rank: int) -> Code:
    """The places of the elements that are not zero: a row of `rank` numbers each."""
    sizes = [(f"n{d}", "i64") for d in range(1, rank)]
    parameters = [("x", f"*{KINDS[dtype][0]}"), ("before", "*i64"), ("out", "*i64"), ("n", "i64"), *sizes]
    lines = [
        *_flags(dtype, TRUE),
        f"to = (tl.load(before + tl.program_id(0)) + tl.cumsum(flag, 0) - 1) * {rank}",
        "rest = at",
    ]
    for d in range(rank - 1, 0, -1):
        lines += [f"tl.store(out + to + {d}, rest % n{d}, mask=flag != 0)", f"rest = rest // n{d}"]
    return _code("places", parameters, [*lines, "tl.store(out + to, rest, mask=flag != 0)"])


@cache
def runs(dtype: str, ordered: bool) -> Code:
    """Where runs of equal elements begin, and for each element which run it is in.

    ordered: elements were sorted, and `order` says where each stood before.
    """
    parameters = [
        ("x", f"*{KINDS[dtype][0]}"), *([("order", "*i64")] if ordered else []), ("before", "*i64"),
        ("starts", "*i64"), ("inverse", "*i64"), ("n", "i64"),
    ]  # fmt: skip
    lines = [
        *_flags(dtype, RUNS),
        "run = tl.load(before + tl.program_id(0)) + tl.cumsum(flag, 0) - 1",
        "tl.store(starts + run, at, mask=flag != 0)",
        f"stood = {'tl.load(order + at, mask=there, other=0)' if ordered else 'at'}",
        "tl.store(inverse + stood, run, mask=there)",
    ]
    return _code("runs", parameters, lines)


@cache
def of_runs(dtype: str) -> Code:
    """The first element of each run, and how long it is."""
    kind = KINDS[dtype][0]
    parameters = [
        ("x", f"*{kind}"), ("starts", "*i64"), ("values", f"*{kind}"), ("lengths", "*i64"),
        ("count", "i64"), ("n", "i64"),
    ]  # fmt: skip
    lines = [
        *_at("count"),
        "start = tl.load(starts + at, mask=there, other=0)",
        "end = tl.load(starts + at + 1, mask=at + 1 < count, other=0)",
        "end = tl.where(at + 1 < count, end, n)",
        "tl.store(values + at, tl.load(x + start, mask=there, other=0), mask=there)",
        "tl.store(lengths + at, end - start, mask=there)",
    ]
    return _code("of_runs", parameters, lines)


# ---- bisection
@cache
def searched(dtype: str, result: str) -> Code:
    """Where values would have to stand in sorted rows of n, of which there is one for `each` values.

    is_right: 1 where they stand behind what is equal to them, else 0.
    """
    kind = KINDS[dtype][0]
    parameters = [
        ("x", f"*{kind}"), ("given", f"*{kind}"), ("out", f"*{result}"), ("total", "i64"), ("n", "i64"),
        ("each", "i64"), ("steps", "i32"), ("is_right", "i32"),
    ]  # fmt: skip
    lines = [
        *_at("total"),
        "v = tl.load(given + at, mask=there, other=0)",
        *_key(dtype, "v"),
        "base = at // each * n",
        "left = at * 0",
        "right = left + n",
        "for _ in range(0, steps):",
        "    inside = left < right",
        "    middle = (left + right) // 2",
        "    u = tl.load(x + base + middle, mask=there & inside, other=0)",
        *(f"    {line}" for line in _key(dtype, "u")),
        "    is_before = (u_key < v_key) | ((u_key == v_key) & (is_right != 0))",
        "    left = tl.where(inside & is_before, middle + 1, left)",
        "    right = tl.where(inside & (is_before == 0), middle, right)",
        f"tl.store(out + at, left.to(tl.int{result[1:]}), mask=there)",
    ]
    return _code("search", parameters, lines)
