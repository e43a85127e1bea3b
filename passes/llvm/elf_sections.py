"""The sections of a shared object that is whole without them: linkers find its symbols through these.

Source: Tool Interface Standard, Executable and Linking Format, version 1.2, "Sections".
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

STRTAB = 3


@dataclass(frozen=True)
class Header:
    """A section.  at: its address, and its place in the file; link, info: what ELF has for its kind."""

    name: str
    kind: int
    flags: int
    at: int
    size: int
    link: int = 0
    info: int = 0
    align: int = 1
    entry: int = 0


def described(headers: Sequence[Header], end: int) -> tuple[bytes, tuple[int, int, int]]:
    """What follows a file of `end` bytes; where headers begin, how many they are, and that of their names."""
    names = b"\0"
    labels = []
    for name in (*(header.name for header in headers), ".shstrtab"):
        labels.append(len(names))
        names += name.encode() + b"\0"
    rows = [bytes(64)]
    for label, h in zip(labels, headers):
        fields = label, h.kind, h.flags, h.at, h.at, h.size, h.link, h.info, h.align, h.entry
        rows.append(struct.pack("<IIQQQQIIQQ", *fields))
    rows.append(struct.pack("<IIQQQQIIQQ", labels[-1], STRTAB, 0, 0, end, len(names), 0, 0, 1, 0))
    padding = bytes(-(end + len(names)) % 8)
    table = end + len(names) + len(padding)
    return names + padding + b"".join(rows), (table, len(rows), len(rows) - 1)
