"""What a cubin says of its kernels: where each parameter of one lies, and whose assembler made it.

A cubin is an ELF file.  Its section `.nv.info.<kernel>` is a row of entries: a byte of form, a byte of kind,
two bytes of value, which for one form are the length of a longer value that follows.  The kind below
describes one parameter; ptxas writes one for each.  From the eighth version of the format on a note says, in
words, whose assembler made it.
"""

from __future__ import annotations

import re
import struct

from ...ir.errors import DeviceError

_HEADER = struct.Struct("<4sBB10xHHIQQQIHHHHHH")  # up to e_shstrndx
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_PARAMETER = struct.Struct("<IHHI")  # index, ordinal, offset, flags with the size in the upper 14 bits
_EM_CUDA = 190
_NOBITS = 8
_SIZED = 4  # the form whose value has a length of its own
_KPARAM_INFO = 0x17
_ASSEMBLER = ".note.nv.tkinfo"
_RELEASE = re.compile(rb"release (\d+)\.(\d+)")


def parameters(cubin: bytes, kernel: str) -> tuple[tuple[int, int], ...]:
    """Offset and size, in bytes, of each of the kernel's parameters, in order.

    Raises DeviceError for bytes that are no cubin or are cut short, and for a kernel that is not in it.
    """
    table = _section(cubin, f".nv.info.{kernel}")
    if table is None:
        raise DeviceError(f"the cubin has no kernel {kernel}")
    found: dict[int, tuple[int, int]] = {}
    place = 0
    while place < len(table):
        form, kind, length = struct.unpack("<BBH", _part(table, place, 4))
        place += 4
        if form != _SIZED:
            continue
        value = _part(table, place, length)
        place += length
        if kind == _KPARAM_INFO:
            _, ordinal, offset, flags = _PARAMETER.unpack(_part(value, 0, _PARAMETER.size))
            found[ordinal] = (offset, flags >> 18)
    if sorted(found) != [*range(len(found))]:
        raise DeviceError(
            f"a cubin describes every parameter of {kernel}",
            f"described: {', '.join(map(str, sorted(found)))}",
        )
    return tuple(found[k] for k in range(len(found)))


def toolkit(cubin: bytes) -> tuple[int, int] | None:
    """The version of CUDA whose assembler made it, as (13, 4); None before there was a note of that.

    Raises DeviceError for bytes that are no cubin or are cut short.
    """
    release = _RELEASE.search(_section(cubin, _ASSEMBLER) or b"")
    return release and (int(release[1]), int(release[2]))


def _section(cubin: bytes, wanted: str) -> bytes | None:
    header = _HEADER.unpack(_part(cubin, 0, _HEADER.size))
    magic, width, order, _, machine = header[:5]
    segments_at, sections_at = header[7:9]
    segment_size, segment_count, section_size, section_count, strings = header[11:]
    if magic != b"\x7fELF" or (width, order, machine) != (2, 1, _EM_CUDA) or section_size != _SECTION.size:
        raise DeviceError("a cubin is a 64-bit ELF file for CUDA", f"these {len(cubin)} bytes are not")
    # all that any table points to has to be there: the driver is not told where the file ends
    for k in range(segment_count):
        _, _, start, _, _, size, _, _ = _SEGMENT.unpack(_part(cubin, segments_at + k * segment_size, 56))
        _part(cubin, start, size)
    sections = []
    for k in range(section_count):
        name, kind, _, _, start, size, *_ = _SECTION.unpack(_part(cubin, sections_at + 64 * k, 64))
        sections.append((name, b"" if kind == _NOBITS else _part(cubin, start, size)))
    if strings >= section_count:
        raise _cut(cubin)
    names = sections[strings][1]
    for name, data in sections:
        if names[name:].startswith(wanted.encode() + b"\0"):
            return data
    return None


def _part(data: bytes, start: int, size: int) -> bytes:
    if start + size > len(data):
        raise _cut(data)
    return data[start : start + size]


def _cut(data: bytes) -> DeviceError:
    return DeviceError("a cubin holds all that its tables point to", f"these {len(data)} bytes end before")
