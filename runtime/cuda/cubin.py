"""What a cubin says of its kernels: where each parameter of one lies, what it needs, whose assembler made it.

A cubin is an ELF file.  Its section `.nv.info.<kernel>` is a row of entries: a byte of form, a byte of kind,
two bytes of value, which for one form are the length of a longer value that follows.  One kind below
describes one parameter, ptxas writes one for each; another the block that the kernel must be launched in.
`.nv.info` is such a row too: of registers and stacks, each with the number of its function's symbol.
From the eighth version of the format on a note says, in words, whose assembler made it.

Nothing but Python is needed: exported models carry this text (`jit/artifact.py`).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

from ...ir.errors import DeviceError
from .image import Image, Kind

_PARAMETER = struct.Struct("<IHHI")  # index, ordinal, offset, flags with the size in the upper 14 bits
_KIND = Kind("a cubin", "CUDA", 190)  # EM_CUDA
_SIZED = 4  # the form whose value has a length of its own
_KPARAM_INFO = 0x17
_REQNTID = 0x10  # the threads of a block along x, y and z
_REGCOUNT, _MIN_STACK_SIZE = 0x2F, 0x12  # of a function: its symbol, and how much
_SYMBOL = struct.Struct("<IBBHQQ")  # where its name begins, type and binding, …
_FUNCTION = 2
_VERSION, _NEWER = 8, 8  # where the format's version stands; from which on the architecture is elsewhere
_ASSEMBLER = ".note.nv.tkinfo"
_RELEASE = re.compile(rb"release (\d+)\.(\d+)")


def parameters(cubin: bytes, kernel: str) -> tuple[tuple[int, int], ...]:
    """Offset and size, in bytes, of each of the kernel's parameters, in order.

    Raises DeviceError for bytes that are no cubin or are cut short, and for a kernel that is not in it.
    """
    image = Image(cubin, _KIND)
    found: dict[int, tuple[int, int]] = {}
    for kind, value in _entries(image, kernel):
        if kind == _KPARAM_INFO:
            _, ordinal, offset, flags = _PARAMETER.unpack(image.part(value, 0, _PARAMETER.size))
            found[ordinal] = (offset, flags >> 18)
    if sorted(found) != [*range(len(found))]:
        raise DeviceError(
            f"a cubin describes every parameter of {kernel}",
            f"described: {', '.join(map(str, sorted(found)))}",
        )
    return tuple(found[k] for k in range(len(found)))


def block(cubin: bytes, kernel: str) -> tuple[int, int, int] | None:
    """The threads of a block that the kernel must be launched in; None where it says nothing of that.

    Raises DeviceError as `parameters` does.
    """
    image = Image(cubin, _KIND)
    for kind, value in _entries(image, kernel):
        if kind == _REQNTID:
            return struct.unpack("<III", image.part(value, 0, 12))
    return None


class Needs(NamedTuple):
    """What a kernel takes of a GPU.

    registers: of each thread.  stack: bytes of each thread, for what no register holds; its functions' are in
    it.  shared: bytes of a block beside what a launch asks for; from sm_90 on the driver's own are in it.
    """

    registers: int
    stack: int
    shared: int


def needs(cubin: bytes, kernel: str) -> Needs:
    """What a kernel takes.  Raises DeviceError as `parameters` does, and where it says nothing of that."""
    image = Image(cubin, _KIND)
    _entries(image, kernel)  # is it there?
    own = _symbol(image, kernel)
    found: dict[int, int] = {}
    for kind, value in _rows(image, image.section(".nv.info") or b""):
        if kind in (_REGCOUNT, _MIN_STACK_SIZE):
            symbol, count = struct.unpack("<II", image.part(value, 0, 8))
            if symbol == own:
                found[kind] = count
    if len(found) < 2:
        raise DeviceError(
            f"a cubin says how many registers and bytes of stack {kernel} needs", "this one not"
        )
    return Needs(found[_REGCOUNT], found[_MIN_STACK_SIZE], image.size(f".nv.shared.{kernel}"))


def _symbol(image: Image, function: str) -> int | None:
    """The number of a function's symbol."""
    symbols, names = (image.section(name) or b"" for name in (".symtab", ".strtab"))
    for number in range(len(symbols) // _SYMBOL.size):
        at, kind, *_ = _SYMBOL.unpack_from(symbols, number * _SYMBOL.size)
        if kind & 15 == _FUNCTION and names.startswith(function.encode() + b"\0", at):
            return number
    return None


def architecture(cubin: bytes) -> int:
    """What it is compiled for: 90 for sm_90.  Raises DeviceError for bytes that are no cubin."""
    flags = Image(cubin, _KIND).flags
    return flags >> 8 & 0xFF if cubin[_VERSION] >= _NEWER else flags & 0xFF


def _entries(image: Image, kernel: str) -> Iterator[tuple[int, bytes]]:
    """Kind and value of what the table of a kernel says in the form that has lengths."""
    table = image.section(f".nv.info.{kernel}")
    if table is None:
        raise DeviceError(f"the cubin has no kernel {kernel}")
    return _rows(image, table)


def _rows(image: Image, table: bytes) -> Iterator[tuple[int, bytes]]:
    place = 0
    while place < len(table):
        form, kind, length = struct.unpack("<BBH", image.part(table, place, 4))
        place += 4
        if form == _SIZED:
            yield kind, image.part(table, place, length)
            place += length


def toolkit(cubin: bytes) -> tuple[int, int] | None:
    """The version of CUDA whose assembler made it, as (13, 4); None before there was a note of that.

    Raises DeviceError for bytes that are no cubin or are cut short.
    """
    release = _RELEASE.search(Image(cubin, _KIND).section(_ASSEMBLER) or b"")
    return release and (int(release[1]), int(release[2]))
