"""What a code object of AMD's GPUs says of its kernels: what each takes, needs and was compiled for.

A code object (an hsaco) is an ELF file.  A note in it holds a map in MessagePack, whose `amdhsa.kernels` has
a map for each kernel; the flags of its head say for which GPU it is.
Source: LLVM, User Guide for AMDGPU Backend, "Code Object V4 Metadata" and "ELF Header"; MessagePack
specification, "Formats".
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from ...ir.errors import DeviceError
from .image import Image, Kind

_KIND = Kind("a code object", "AMD's GPUs", 224)  # EM_AMDGPU
_PT_NOTE = 4
_METADATA = 32  # the type of the note, NT_AMDGPU_METADATA
# EF_AMDGPU_MACH, the lowest byte of the flags, of the GPUs that kernels are compiled for.
_GPUS = {0x3F: "gfx90a", 0x41: "gfx1100", 0x4C: "gfx942", 0x4F: "gfx950"}
_DEEPEST = 16  # maps within each other; those of kernels and of their arguments are four
_HIDDEN = "hidden_"  # what the driver itself puts behind a launch's arguments


@dataclass(frozen=True)
class Kernel:
    """A kernel of a code object.  Sizes are in bytes.

    target: the GPU that it is for, as "gfx942".  arguments: offset and size of each that a launch gives.
    kernarg: size of all.  group: of memory that a block shares, beside what the launch asks for.  private: of
    memory that each thread has for what no register holds.  sgprs, vgprs, agprs: registers of a wavefront and
    of each of its lanes, ordinary and accumulating ones.  spills: registers that were put into memory.
    lanes: of a wavefront.  threads: that a block has at most.
    """

    target: str
    arguments: tuple[tuple[int, int], ...]
    kernarg: int
    group: int
    private: int
    sgprs: int
    vgprs: int
    agprs: int
    spills: int
    lanes: int
    threads: int


def kernel(code: bytes, name: str) -> Kernel:
    """What is said of the kernel of that name.

    Raises DeviceError for bytes that are no code object, are cut short, are for a GPU that is not known or
    describe a kernel otherwise, and for a kernel that is not in it.
    """
    image = Image(code, _KIND)
    target = _GPUS.get(image.flags & 0xFF)
    if target is None:
        known = ", ".join(_GPUS.values())
        raise DeviceError(
            f"the code object is for a GPU of number {image.flags & 0xFF:#x}", f"known: {known}"
        )
    kernels = _of(_metadata(image), "amdhsa.kernels", list)
    found = next((each for each in kernels if isinstance(each, dict) and each.get(".name") == name), None)
    if found is None:
        raise DeviceError(f"the code object has no kernel {name}")

    def size(key: str, otherwise: int | None = None) -> int:
        return _size(found if otherwise is None else {key: otherwise} | found, key)

    arguments, end, given = [], 0, found.get(".args", [])
    for each in given if isinstance(given, list) else [None]:
        place = _size(each, ".offset"), _size(each, ".size")
        if place[0] < end or sum(place) > size(".kernarg_segment_size"):
            raise _wrong(f"an argument of {place[1]} bytes at {place[0]}, behind {end} bytes of others")
        end = sum(place)
        if not _of(each, ".value_kind", str).startswith(_HIDDEN):
            arguments.append(place)
    spills = size(".sgpr_spill_count", 0) + size(".vgpr_spill_count", 0)
    return Kernel(
        target,
        tuple(arguments),
        size(".kernarg_segment_size"),
        size(".group_segment_fixed_size"),
        size(".private_segment_fixed_size"),
        size(".sgpr_count"),
        size(".vgpr_count"),
        size(".agpr_count", 0),
        spills,
        size(".wavefront_size"),
        size(".max_flat_workgroup_size"),
    )


def _metadata(image: Image) -> Any:
    """What the note of metadata says."""
    for segment in image.segments(_PT_NOTE):
        at = 0
        while at < len(segment):
            name_size, size, type = struct.unpack("<III", image.part(segment, at, 12))
            owner = image.part(segment, at + 12, name_size)
            at += 12 + name_size + -name_size % 4
            content = image.part(segment, at, size)
            at += size + -size % 4
            if (type, owner) == (_METADATA, b"AMDGPU\0"):
                return _Unpacker(image, content).value()
    raise DeviceError("a code object has a note that describes its kernels", "this one has none")


def _of(value: Any, key: str, type: type) -> Any:
    found = value.get(key) if isinstance(value, dict) else None
    if not isinstance(found, type):
        raise _wrong(f"{key} is {found!r:.80}")
    return found


def _size(value: Any, key: str) -> int:
    found = _of(value, key, int)
    if isinstance(found, bool) or not 0 <= found < 1 << 32:
        raise _wrong(f"{key} is {found!r:.80}")
    return found


def _wrong(what: str) -> DeviceError:
    return DeviceError("a code object describes its kernels by maps of names, sizes and lists", what)


_FIXED = {
    0xC4: "B", 0xC5: ">H", 0xC6: ">I", 0xD9: "B", 0xDA: ">H", 0xDB: ">I", 0xDC: ">H", 0xDD: ">I",
    0xDE: ">H", 0xDF: ">I", 0xCA: ">f", 0xCB: ">d", 0xCC: "B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q",
    0xD0: "b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q",
}  # fmt: skip
_NAMES = {0xC0: None, 0xC2: False, 0xC3: True}


class _Unpacker:
    """MessagePack, but for its extensions.  What it reads is not trusted: it raises DeviceError alone."""

    def __init__(self, image: Image, data: bytes):
        self._image, self._data, self._at, self._depth = image, data, 0, 0

    def value(self) -> Any:
        """The next value."""
        (first,) = self._take(1)
        if first < 0x80 or first >= 0xE0:
            return first if first < 0x80 else first - 0x100
        if first in _NAMES:
            return _NAMES[first]
        if first < 0xC0:
            kind, count = (
                ("map", "list", "text", "text")[first - 0x80 >> 4],
                first & (15 if first < 0xA0 else 31),
            )
        elif first in _FIXED:
            form = _FIXED[first]
            (count,) = struct.unpack(form, self._take(struct.calcsize(form)))
            if 0xCA <= first <= 0xD3:
                return count
            kind = (
                "map" if first >= 0xDE else "list" if first >= 0xDC else "text" if first >= 0xD9 else "bytes"
            )
        else:
            raise _wrong(f"a byte {first:#x} begins no value of MessagePack that it has")
        return self._many(kind, count)

    def _many(self, kind: str, count: int) -> Any:
        if kind == "bytes":
            return self._take(count)
        if kind == "text":
            return self._take(count).decode(errors="replace")
        if self._depth == _DEEPEST:
            raise _wrong(f"more than {_DEEPEST} lists and maps within each other")
        self._depth += 1
        found: Any = []
        for _ in range(count):  # each of them takes a byte at least, so this ends where the bytes do
            found.append(self.value() if kind == "list" else (self._key(), self.value()))
        self._depth -= 1
        return found if kind == "list" else dict(found)

    def _key(self) -> Any:
        key = self.value()
        if not isinstance(key, (str, int)):
            raise _wrong(f"{key!r:.80} as a name")
        return key

    def _take(self, count: int) -> bytes:
        taken = self._image.part(self._data, self._at, count)
        self._at += count
        return taken
