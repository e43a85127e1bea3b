"""The container of PyTorch's checkpoints: a zip archive whose members are stored as they are, each aligned.

Read here and not by `zipfile`, as each place and size is proven against the file before anything is read, and
as mapped storages need the places.  Every member lies in one folder, which is named as its writer likes.

    FOLDER/data.pkl               the object, as a pickle
    FOLDER/data/0, data/1 ...     the storages
    FOLDER/byteorder              "little" or "big"
    FOLDER/version                "3"
    FOLDER/.format_version ...    what else writers say of themselves

Source: PKWARE's APPNOTE 6.3.10 (4.3 and 4.5.3: zip64); PyTorch's torch/serialization.py and caffe2/serialize.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from struct import Struct, pack
from typing import IO, Any, Protocol

import numpy as np

from .own_form import SavedFileError

ALIGNMENT = 64  # bytes: PyTorch's, so that mapped storages suit any vector
FOLDER = "archive"
WIDE, WIDE_COUNT = 0xFFFFFFFF, 0xFFFF  # say that a number stands in zip64's wider field
LIMIT = WIDE  # bytes, from which on it does
LOCAL = Struct("<4s5H3I2H")
CENTRAL = Struct("<4s6H3I5H2I")
END, END64, LOCATOR = Struct("<4s4H2IH"), Struct("<4sQ2H2I4Q"), Struct("<4sIQI")
KNOWN = re.compile(r"data\.pkl|data/[^/\0]+|byteorder|version|\.[^\0]*")
ENCRYPTED = 1
UTF8 = 0x800
TORCHSCRIPT = ("constants.pkl", "code")


class Source(Protocol):
    """Bytes that are read where they are wanted."""

    size: int

    def take(self, at: int, size: int) -> bytes:
        """These bytes."""

    def fill(self, at: int, into: np.ndarray) -> None:
        """Read them into an array of uint8."""


class InMemory:
    """A file that was read whole."""

    def __init__(self, data: bytes):
        self.data, self.size = data, len(data)

    def take(self, at: int, size: int) -> bytes:
        return self.data[at : at + size]

    def fill(self, at: int, into: np.ndarray) -> None:
        into[:] = np.frombuffer(self.data, np.uint8, len(into), at)


class OnDisk:
    """A file that is open, from a place on.  Raises SavedFileError where it has become shorter."""

    def __init__(self, file: IO[bytes], size: int, begin: int = 0):
        self.file, self.size, self.begin = file, size, begin

    def take(self, at: int, size: int) -> bytes:
        self.file.seek(self.begin + at)
        found = self.file.read(size)
        while found and len(found) < size and (more := self.file.read(size - len(found))):
            found += more
        return self._whole(found, size)

    def fill(self, at: int, into: np.ndarray) -> None:
        reader: Any = self.file
        if not hasattr(reader, "readinto"):
            into[:] = np.frombuffer(self.take(at, len(into)), np.uint8)
            return
        reader.seek(self.begin + at)
        count, view = 0, memoryview(into)
        while count < len(into) and (more := reader.readinto(view[count:])):
            count += more
        self._whole(view[:count], len(into))

    @staticmethod
    def _whole(found: Any, size: int) -> Any:
        if len(found) != size:
            raise SavedFileError("load(): the file became shorter while it was read")
        return found


class Archive:
    """The members of a checkpoint: where each begins, how large it is, its CRC-32.

    Invariant: members lie inside the file, before the directory, and don't overlap; each name is there once.
    Raises SavedFileError.
    """

    def __init__(self, source: Source, name: str):
        self.source, self._name = source, name
        self.members: dict[str, tuple[int, int, int]] = {}
        ends = []
        for full, at, size, crc, header in self._entries():
            _, _, member = full.partition("/")
            if member.partition("/")[0] in TORCHSCRIPT:
                raise SavedFileError(
                    f"load(): {name} is a TorchScript archive, which holds a program",
                    "where it was made: torch.save(module.state_dict(), path), and load that",
                )
            if not KNOWN.fullmatch(member):
                raise SavedFileError(
                    f"load(): {name} is a zip archive with a member {member[:60] or full[:60]!r}, which no "
                    "checkpoint of torch.save has"
                )
            if member in self.members:
                raise SavedFileError(f"load(): {name} has the member {member[:60]!r} twice")
            self.members[member] = (at, size, crc)
            ends.append((header, at + size))
        ends.sort()
        for (_, end), (begin, _) in zip(ends, ends[1:]):
            if begin < end:
                raise self._damaged("two of its members overlap")
        if "data.pkl" not in self.members:
            raise SavedFileError(f"load(): {name} is a zip archive without data.pkl, and no checkpoint")

    def _damaged(self, why: str) -> SavedFileError:
        return SavedFileError(f"load(): {self._name} is a damaged zip archive: {why}")

    def read(self, member: str) -> bytes:
        """A whole member."""
        at, size, crc = self.members[member]
        data = self.source.take(at, size)
        self._compare(member, crc, data)
        return data

    def fill(self, member: str, into: np.ndarray) -> None:
        """Read a member into an array of uint8 that is as large."""
        at, _, crc = self.members[member]
        self.source.fill(at, into)
        self._compare(member, crc, into)

    def _compare(self, member: str, crc: int, data: Any) -> None:
        # 0 is what PyTorch writes where it was told to compute none (set_crc32_options).
        if crc and zlib.crc32(data) != crc:
            raise self._damaged(f"the CRC-32 of {member} is another")

    def _at(self, form: Struct, at: int, mark: bytes) -> tuple:
        """The fields of a structure that must stand at a place."""
        if not 0 <= at <= self.source.size - form.size:
            raise self._damaged("a place leaves the file")
        fields = form.unpack(self.source.take(at, form.size))
        if fields[0] != mark:
            raise self._damaged(f"{mark[:2].decode()} is not where it should be")
        return fields

    def _directory(self) -> tuple[int, int, int]:
        """Where the directory begins and ends, and how many entries it has."""
        tail_at = max(0, self.source.size - END.size - WIDE_COUNT)
        tail = self.source.take(tail_at, self.source.size - tail_at)
        place = tail.rfind(b"PK\5\6", 0, len(tail) - END.size + 4)
        if place < 0:
            raise self._damaged("it has no end; it may be cut short")
        place += tail_at
        _, disk, first, here, count, size, at, comment = self._at(END, place, b"PK\5\6")
        if place + END.size + comment != self.source.size:
            raise self._damaged("something follows its end")
        end = place
        before = place - LOCATOR.size
        if before >= 0 and self.source.take(before, 4) == b"PK\6\7":  # PyTorch always writes it
            _, _, wide, _ = self._at(LOCATOR, before, b"PK\6\7")
            *_, disk, first, here, count, size, at = self._at(END64, wide, b"PK\6\6")
            end = wide
        if disk or first or here != count or at + size != end or count * CENTRAL.size > size:
            raise self._damaged("its directory is not where it says")
        return at, end, count

    def _entries(self) -> Iterator[tuple[str, int, int, int, int]]:
        """(name, place of the data, size, CRC-32, place of the header) of each member."""
        begin, end, count = self._directory()
        directory, at = self.source.take(begin, end - begin), 0
        for _ in range(count):
            if at + CENTRAL.size > len(directory):
                raise self._damaged("its directory is cut short")
            fields = CENTRAL.unpack_from(directory, at)
            mark, _, _, flags, method, _, _, crc, packed, size, names, extras, notes, *_, header = fields
            at += CENTRAL.size
            raw, extra = directory[at : at + names], directory[at + names : at + names + extras]
            at += names + extras + notes
            if mark != b"PK\1\2" or at > len(directory):
                raise self._damaged("its directory is no directory")
            size, packed, header = self._widened(extra, size, packed, header)
            if method or flags & ENCRYPTED or size != packed:
                raise SavedFileError(
                    f"load(): {self._name} holds compressed or encrypted members; those of torch.save are "
                    "stored as they are"
                )
            name = raw.decode("utf-8", "replace")
            *_, early, _, shown, local_names, local_extras = self._at(LOCAL, header, b"PK\3\4")
            # 0 where the writer wrote it before it knew, as PyTorch does.
            if early not in (0, crc) or shown not in (0, WIDE, size):
                raise self._damaged(f"what it says of {name[:60]!r} differs")
            data = header + LOCAL.size + local_names + local_extras
            if data + size > begin or self.source.take(header + LOCAL.size, local_names) != raw:
                raise self._damaged(f"the member {name[:60]!r} is not where the directory says")
            yield name, data, size, crc, header
        if at != len(directory):
            raise self._damaged("its directory is longer than its entries")

    def _widened(self, extra: bytes, size: int, packed: int, header: int) -> list[int]:
        """The numbers of an entry, those that are too large for it from the field of zip64."""
        numbers = [size, packed, header]
        wanted = [i for i, n in enumerate(numbers) if n == WIDE]
        at = 0
        while wanted and at + 4 <= len(extra):
            kind, length = (int.from_bytes(extra[i : i + 2], "little") for i in (at, at + 2))
            field = extra[at + 4 : at + 4 + length]
            if kind == 1 and len(field) >= 8 * len(wanted):
                for place, i in enumerate(wanted):
                    numbers[i] = int.from_bytes(field[8 * place : 8 * place + 8], "little")
                return numbers
            at += 4 + length
        if wanted:
            raise self._damaged("a number of its directory is missing")
        return numbers


def pieces(members: list[tuple[str, Any]]) -> Iterator[Any]:
    """The bytes of an archive of these members, (name, contiguous bytes) each, part by part."""
    directory, at = b"", 0
    for name, data in members:
        raw = f"{FOLDER}/{name}".encode()
        size, crc = len(memoryview(data)), zlib.crc32(data)
        wide, far = size >= LIMIT, at >= LIMIT
        extra = pack("<2H2Q", 1, 16, size, size) if wide else b""
        begin = at + LOCAL.size + len(raw) + len(extra) + 4  # 4: the head of the field that fills up
        padding = -begin % ALIGNMENT
        extra += b"FB" + pack("<H", padding) + b"Z" * padding
        shown = WIDE if wide else size
        version = 45 if wide or far else 20
        yield LOCAL.pack(b"PK\3\4", version, UTF8, 0, 0, 0, crc, shown, shown, len(raw), len(extra))
        yield raw + extra
        yield data
        numbers = pack("<2Q", size, size) * wide + pack("<Q", at) * far
        more = pack("<2H", 1, len(numbers)) + numbers if numbers else b""
        header = WIDE if far else at
        directory += CENTRAL.pack(
            b"PK\1\2", version, version, UTF8, 0, 0, 0, crc, shown, shown, len(raw), len(more), 0, 0, 0, 0,
            header,
        )  # fmt: skip
        directory += raw + more
        at = begin + padding + size
    yield directory
    count = len(members)
    large = count >= WIDE_COUNT or len(directory) >= LIMIT or at >= LIMIT
    if large:
        end = at + len(directory)
        yield END64.pack(b"PK\6\6", END64.size - 12, 45, 45, 0, 0, count, count, len(directory), at)
        yield LOCATOR.pack(b"PK\6\7", 0, end, 1)
    few, short, near = (WIDE_COUNT, WIDE, WIDE) if large else (count, len(directory), at)
    yield END.pack(b"PK\5\6", 0, 0, few, few, short, near, 0)
