"""Ways to damage bytes and values of JSON: what disks do, what broken writers do, what attackers try."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Sequence
from typing import Any

# Where lengths and offsets of other widths and signs end, and what overflows when it is added or multiplied.
EXTREMES = (
    0, 1, 2, 3, 7, 8, 63, 64, 127, 128, 255, 256, 4095, 65535, 65536, (1 << 31) - 1, 1 << 31, (1 << 32) - 1,
    1 << 32, (1 << 53) + 1, (1 << 62), (1 << 63) - 1, 1 << 63, (1 << 64) - 1,
)  # fmt: skip


def span(rng: random.Random, length: int, most: int = 64) -> tuple[int, int]:
    """A stretch of something so long, mostly a short one."""
    start = rng.randrange(length + 1)
    size = rng.randrange(most) if rng.random() < 0.9 else rng.randrange(length + 1)
    return start, min(start + size, length)


def flip(rng: random.Random, data: bytearray) -> None:
    for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
        if data:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def overwrite(rng: random.Random, data: bytearray) -> None:
    start, stop = span(rng, len(data))
    data[start:stop] = rng.choice(
        (bytes(stop - start), b"\xff" * (stop - start), rng.randbytes(stop - start))
    )


def insert(rng: random.Random, data: bytearray) -> None:
    start = rng.randrange(len(data) + 1)
    data[start:start] = rng.randbytes(rng.choice((1, 1, 2, 8, 64)))


def delete(rng: random.Random, data: bytearray) -> None:
    start, stop = span(rng, len(data))
    del data[start:stop]


def duplicate(rng: random.Random, data: bytearray) -> None:
    start, stop = span(rng, len(data))
    data[stop:stop] = data[start:stop]


def move(rng: random.Random, data: bytearray) -> None:
    start, stop = span(rng, len(data))
    piece = data[start:stop]
    del data[start:stop]
    at = rng.randrange(len(data) + 1)
    data[at:at] = piece


def truncate(rng: random.Random, data: bytearray) -> None:
    del data[rng.randrange(len(data) + 1) :]


def number(rng: random.Random, data: bytearray) -> None:
    """Some aligned or unaligned bytes become an extreme number, or one near to what they say."""
    width = rng.choice((2, 4, 8))
    if len(data) >= width:
        at = rng.randrange(len(data) - width + 1)
        old = int.from_bytes(data[at : at + width], "little")
        new = rng.choice((rng.choice(EXTREMES), old + rng.choice((-8, -1, 1, 8)), ~old))
        data[at : at + width] = (new % (1 << 8 * width)).to_bytes(width, "little")


def digits(rng: random.Random, data: bytearray) -> None:
    """A number that stands as text becomes another."""
    places = [i for i, c in enumerate(data) if 48 <= c < 58]
    if places:
        start = stop = rng.choice(places)
        while stop < len(data) and 48 <= data[stop] < 58:
            stop += 1
        extreme = (str(rng.choice(EXTREMES)), "-1", "-0", "1e9", "1.5", "9" * 40, str(rng.randrange(100)))
        data[start:stop] = rng.choice(extreme).encode()


BYTES: tuple[Callable[[random.Random, bytearray], None], ...] = (
    flip, flip, overwrite, insert, delete, duplicate, move, truncate, number, digits,
)  # fmt: skip


def damaged(rng: random.Random, data: bytes, others: Sequence[bytes] = ()) -> bytes:
    """These bytes after one to four kinds of damage, or the beginning of them before the end of others."""
    made = bytearray(data)
    if others and rng.random() < 0.1:
        other = rng.choice(others)
        made[rng.randrange(len(made) + 1) :] = other[rng.randrange(len(other) + 1) :]
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        rng.choice(BYTES)(rng, made)
    return bytes(made)


# ---- values of JSON ----------------------------------------------------------------------------------------
def odd(rng: random.Random) -> Any:
    """A value that few readers expect."""
    return rng.choice((
        None, True, False, -1, -(1 << 63), 10**40, 1e308, 1.5, -0.0, float("nan"), float("inf"),
        "", "x", "0", "a" * 300, "\ud800", "\0", "../x", "/etc/passwd",
        [], {}, [[]], [None], [-1], [1 << 40], [1 << 32, 1 << 32], [0, 1 << 62], {"x": 1}, {"": None},
        rng.choice(EXTREMES), rng.randrange(20), [rng.randrange(20)] * 2,
    ))  # fmt: skip


def places(value: Any) -> list[tuple[Any, Any]]:
    """(container, key) of every value inside of this one."""
    made: list[tuple[Any, Any]] = []
    todo = [value]
    while todo:
        inside = todo.pop()
        if isinstance(inside, (dict, list)):
            made += ((inside, key) for key in (inside if isinstance(inside, dict) else range(len(inside))))
            todo += inside.values() if isinstance(inside, dict) else inside
    return made


def altered(rng: random.Random, value: Any) -> Any:
    """Change a value of JSON in place, at one to three places; return it, or what stands for it."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        where = places(value)
        if not where or rng.random() < 0.01:
            return odd(rng)
        inside, key = rng.choice(where)
        other, name = rng.choice(where)
        elsewhere, way = copy.deepcopy(other[name]), rng.randrange(8)
        if way == 0:
            del inside[key]
        elif way == 1:
            inside[key] = elsewhere
        elif way == 2 and isinstance(inside, dict):
            inside[rng.choice((f"{key}x", key[:-1], "__metadata__", "", "x", key.upper()))] = inside.pop(key)
        elif way == 3 and isinstance(inside, list):
            inside.insert(rng.randrange(len(inside) + 1), inside[key])
        elif way == 4 and isinstance(inside, list):
            rng.shuffle(inside)
        elif way == 5 and isinstance(inside[key], int):
            inside[key] = rng.choice(
                (inside[key] + rng.choice((-8, -1, 1, 8)), inside[key] * 2, rng.choice(EXTREMES))
            )
        elif way == 6 and isinstance(inside[key], str) and inside[key]:
            text = bytearray(inside[key].encode(errors="replace"))
            rng.choice(BYTES)(rng, text)
            inside[key] = text.decode(errors="replace")
        else:
            inside[key] = odd(rng)
    return value
