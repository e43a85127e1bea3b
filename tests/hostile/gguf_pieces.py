"""Takes a GGUF file apart, and writes one whose lengths and counts fit what it holds.

Source: the GGUF specification, github.com/ggml-org/ggml, docs/gguf.md.
"""

from __future__ import annotations

import copy
import random
import struct
from dataclasses import dataclass
from typing import Any

import mutations

NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY, ALIGN = 8, 9, 32


@dataclass
class Pieces:
    """entries: [key, type, value], of a list (type, values).  tensors: [name, sizes, type, where, bytes]."""

    entries: list[list[Any]]
    tensors: list[list[Any]]
    version: int = 3


class _Taken:
    def __init__(self, data: bytes):
        self.data, self.at = data, 4

    def numbers(self, form: str) -> tuple[Any, ...]:
        found = struct.unpack_from(f"<{form}", self.data, self.at)
        self.at += struct.calcsize(f"<{form}")
        return found

    def text(self) -> bytes:
        (length,) = self.numbers("Q")
        self.at += length
        return self.data[self.at - length : self.at]

    def value(self, kind: int) -> Any:
        if kind == STRING:
            return self.text()
        if kind != ARRAY:
            return self.numbers(NUMBERS[kind])[0]
        inner, count = self.numbers("IQ")
        return inner, [self.value(inner) for _ in range(count)]


def taken_apart(data: bytes) -> Pieces:
    """The pieces of a whole file, as the package `gguf` writes it."""
    file = _Taken(data)
    version, tensors, entries = file.numbers("IQQ")
    told = []
    for _ in range(entries):
        key, (kind,) = file.text(), file.numbers("I")
        told.append([key, kind, file.value(kind)])
    found = []
    for _ in range(tensors):
        name, (dims,) = file.text(), file.numbers("I")
        *sizes, kind, at = file.numbers(f"{dims}QIQ")
        found.append([name, sizes, kind, at])
    start = -(-file.at // ALIGN) * ALIGN
    ends = sorted(at for _, _, _, at in found)[1:] + [len(data) - start]
    for each in found:
        end = min(end for end in ends if end > each[3])
        each.append(data[start + each[3] : start + end])
    return Pieces(told, found, version)


def _text(text: Any) -> bytes:
    raw = text if isinstance(text, bytes) else str(text).encode(errors="replace")
    return struct.pack("<Q", len(raw)) + raw


def _value(kind: int, value: Any) -> bytes:
    """A value as its type has it, or as near to it as the type can say."""
    if kind == STRING:
        return _text(value)
    if kind == ARRAY:
        inner, values = value if isinstance(value, tuple) else (value, ())
        inner = inner if isinstance(inner, int) else 7
        return struct.pack("<IQ", inner % (1 << 32), len(values)) + b"".join(_value(inner, v) for v in values)
    form = NUMBERS.get(kind, "Q")
    if form in "fd":
        return struct.pack(f"<{form}", value if isinstance(value, float) else 1.0)
    whole = value if isinstance(value, int) else 7
    size = struct.calcsize(f"<{form}")
    return (int(whole) % (1 << 8 * size)).to_bytes(size, "little")


def written(pieces: Pieces) -> bytes:
    """A file of these pieces: tensors lie where they say, whatever else lies there."""
    head = b"GGUF" + struct.pack("<IQQ", pieces.version, len(pieces.tensors), len(pieces.entries))
    for key, kind, value in pieces.entries:
        head += _text(key) + struct.pack("<I", kind % (1 << 32)) + _value(kind, value)
    for name, sizes, kind, at, _ in pieces.tensors:
        numbers = [int(size) % (1 << 64) for size in sizes]
        head += _text(name) + struct.pack(f"<I{len(sizes)}QI", len(sizes), *numbers, kind % (1 << 32))
        head += struct.pack("<Q", at % (1 << 64))
    head += bytes(-len(head) % ALIGN)
    body = bytearray()
    for _, _, _, at, data in pieces.tensors:
        if 0 <= at < 1 << 22:
            body += bytes(max(at + len(data) - len(body), 0))
            body[at : at + len(data)] = data
    return head + bytes(body)


def altered(rng: random.Random, pieces: Pieces) -> Pieces:
    """The pieces with one to three of them saying something odd."""
    made = copy.deepcopy(pieces)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        entry, tensor = rng.choice(made.entries), rng.choice(made.tensors)
        other = rng.choice(made.tensors)
        way = rng.randrange(16)
        if way < 5:
            entry[1], entry[2] = _odd(rng, entry[1], entry[2])
        elif way == 5:
            entry[0] = rng.choice(
                (rng.choice(made.entries)[0], b"general.alignment", b"\xff", entry[0] + b"x")
            )
        elif way == 6:
            made.entries.remove(entry) if len(made.entries) > 1 else None
        elif way == 7:
            made.entries.insert(rng.randrange(len(made.entries)), copy.deepcopy(entry))
        elif way == 8:
            tensor[3] = rng.choice((other[3], other[3] + 1, 0, ALIGN, rng.choice(mutations.EXTREMES)))
        elif way == 9:
            tensor[2] = rng.choice((other[2], rng.randrange(40), rng.choice(mutations.EXTREMES)))
        elif way == 10 and tensor[1]:
            at = rng.randrange(len(tensor[1]))
            tensor[1][at] = rng.choice((tensor[1][at] + rng.choice((-1, 1)), rng.choice(mutations.EXTREMES)))
        elif way == 11:
            tensor[1] = rng.choice((tensor[1][::-1], [*tensor[1], 1], tensor[1][1:], other[1], [1] * 9))
        elif way == 12:
            tensor[0] = rng.choice(
                (other[0], b"output.weight", b"rope_freqs.weight", b"blk.0.attn_qkv.weight")
            )
        elif way == 13:
            made.tensors.remove(tensor) if len(made.tensors) > 1 else None
        elif way == 14:
            made.tensors.append([rng.choice((tensor[0], b"rope_freqs.weight")), *copy.deepcopy(tensor[1:])])
        else:
            tensor[4] = mutations.damaged(rng, tensor[4])
    return made


def _odd(rng: random.Random, kind: int, value: Any) -> tuple[int, Any]:
    """Another value of an entry: of its type, of another, or a list of lists."""
    if kind == ARRAY and rng.random() < 0.7:
        inner, values = value
        values = [*values]
        for _ in range(rng.choice((1, 1, 3))):
            if values:
                at = rng.randrange(len(values))
                way = rng.randrange(5)
                if way == 0:
                    del values[at]
                elif way == 1:
                    values.insert(at, rng.choice(values))
                elif way == 2:
                    rng.shuffle(values)
                else:
                    values[at] = _other(rng, inner, values[at])
        return kind, (inner, values)
    way = rng.randrange(5)
    if way < 3 and kind != ARRAY:
        return kind, _other(rng, kind, value)
    if way == 3:
        inner = rng.choice((ARRAY, kind if kind != ARRAY else value[0]))
        return ARRAY, (inner, [(4, [1])] * 3 if inner == ARRAY else [])
    return rng.choice((*NUMBERS, STRING, 13, 99)), rng.choice((0, 1, 1 << 31, 1.5, "x", b"\xff", -1))


def _other(rng: random.Random, kind: int, value: Any) -> Any:
    if kind == STRING:
        text = value if isinstance(value, bytes) else b""
        odd = (
            b"",
            b"\xff\xfe",
            b"llama",
            b"gpt2",
            b"qwen2",
            b"{{ messages }}",
            b"<unk>",
            text * 50,
            b"a" * 9000,
        )
        return rng.choice((*odd, mutations.damaged(rng, text)))
    if NUMBERS.get(kind) in ("f", "d"):
        return rng.choice((0.0, -1.0, 1e-38, 1e38, float("nan"), float("inf"), 0.5))
    near = value if isinstance(value, int) else 0
    return rng.choice(
        (rng.choice(mutations.EXTREMES), near + rng.choice((-1, 1)), near * 2, rng.randrange(64))
    )
