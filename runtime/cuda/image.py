"""An ELF file of a GPU's machine code: its parts, all of which have to be there.

A driver is given an address without a length, so nothing that a table of the file points to may lie beyond
its end.

Nothing but Python is needed: exported models carry this text (`jit/artifact.py`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from ...ir.errors import DeviceError

_HEADER = struct.Struct("<4sBB10xHHIQQQIHHHHHH")  # up to e_shstrndx
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_NOBITS = 8


class Kind(NamedTuple):
    """name, maker: of such a file and of its machine, in errors.  machine: its number in the head."""

    name: str
    maker: str
    machine: int


class Image:
    """The file.  flags: of the head.

    Raises DeviceError for bytes that are no such file, or are cut short.
    """

    def __init__(self, data: bytes, kind: Kind):
        self._data, self._kind = data, kind
        header = _HEADER.unpack(self.part(data, 0, _HEADER.size))
        magic, width, order, _, machine = header[:5]
        self._segments_at, self._sections_at, self.flags = header[7:10]
        self._segment_size, self._segment_count, section_size, self._section_count, self._strings = header[
            11:
        ]
        right = magic == b"\x7fELF" and (width, order, machine) == (2, 1, kind.machine)
        if not right or section_size != _SECTION.size:
            raise DeviceError(
                f"{kind.name} is a 64-bit ELF file for {kind.maker}", f"these {len(data)} bytes are not"
            )
        self._segments, self._sections = [*self._rows_of_segments()], [*self._rows_of_sections()]
        if self._strings >= self._section_count:
            raise self.cut()

    def _rows_of_segments(self) -> Iterator[tuple[int, int, int]]:
        """The kind of each segment, where it begins, and its size."""
        for k in range(self._segment_count):
            at = self._segments_at + k * self._segment_size
            kind, _, start, _, _, size, _, _ = _SEGMENT.unpack(self.part(self._data, at, _SEGMENT.size))
            yield kind, *self._within(start, size)

    def _rows_of_sections(self) -> Iterator[tuple[int, int, int, int]]:
        """Where the name of each section begins among names, where it begins itself, and its size in the file
        and in memory.
        """
        for k in range(self._section_count):
            row = self.part(self._data, self._sections_at + _SECTION.size * k, _SECTION.size)
            name, kind, _, _, start, size, *_ = _SECTION.unpack(row)
            yield (name, 0, 0, size) if kind == _NOBITS else (name, *self._within(start, size), size)

    def _within(self, start: int, size: int) -> tuple[int, int]:
        if start + size > len(self._data):
            raise self.cut()
        return start, size

    def segments(self, wanted: int) -> Iterator[bytes]:
        """The bytes of each segment of that kind."""
        return (self._data[start : start + size] for kind, start, size in self._segments if kind == wanted)

    def section(self, name: str) -> bytes | None:
        """The bytes of the first section of that name."""
        row = self._row(name)
        return row and self._data[row[1] : row[1] + row[2]]

    def size(self, name: str) -> int:
        """The bytes that the first section of that name has in memory, which the file need not hold."""
        row = self._row(name)
        return row[3] if row else 0

    def _row(self, name: str) -> tuple[int, int, int, int] | None:
        _, start, size, _ = self._sections[self._strings]
        names, wanted = self._data[start : start + size], name.encode() + b"\0"
        return next((row for row in self._sections if names.startswith(wanted, row[0])), None)

    def part(self, data: bytes, start: int, size: int) -> bytes:
        """So many bytes of some of the file's from a place on.  Raises DeviceError where they end before."""
        if start + size > len(data):
            raise self.cut(data)
        return data[start : start + size]

    def cut(self, data: bytes | None = None) -> DeviceError:
        """The error of bytes that end too early."""
        count = len(self._data if data is None else data)
        return DeviceError(
            f"{self._kind.name} holds all that its tables point to", f"these {count} bytes end before"
        )
