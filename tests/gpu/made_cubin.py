"""Cubins without machine code: the ELF file and its tables of parameters, enough for the fake driver."""

from __future__ import annotations

import os
import struct

import made_hsaco
from fake_cuda import HIP
from made_hsaco import pointers

from lamina.passes.triton.binary import Binary
from lamina.runtime.cuda.launch import Layout


def entry(kind: int, value: bytes) -> bytes:
    """One of a table's entries, of the form that says how long its value is."""
    return struct.pack("<BBH", 4, kind, len(value)) + value


def table(parameters: Layout, threads: int = 0) -> bytes:
    """The entries of a kernel with parameters at those offsets, of those sizes: last first, as ptxas does.

    threads: of the block that it must be launched in; without them it says nothing of that.
    """
    made = entry(0x37, struct.pack("<I", 0x80)) + struct.pack("<BBH", 3, 0x1B, 0xFF)
    for ordinal, (offset, size) in reversed([*enumerate(parameters)]):
        made += entry(0x17, struct.pack("<IHHI", 0, ordinal, offset, size << 18 | 0x1F000))
    made += entry(0x10, struct.pack("<III", threads, 1, 1)) if threads else b""
    return made + struct.pack("<BBH", 1, 0x50, 0)


def note(toolkit: str) -> bytes:
    """What an assembler of that version of CUDA says of itself, as ptxas does."""
    text = f"\0ptxas\0Cuda compilation tools, release {toolkit}, V{toolkit}.59\0".encode()
    return struct.pack("<III", 12, len(text), 2000) + b"NVIDIA Corp\0" + text


def needed(needs: dict[str, tuple[int, int, int]]) -> list[tuple[str, int, bytes]]:
    """The sections that say registers, stack and shared memory of each function, as ptxas has them."""
    names, symbols, rows = b"\0", struct.pack("<IBBHQQ", 0, 3, 0, 0, 0, 0), b""
    for number, (name, (registers, stack, _)) in enumerate(needs.items(), 1):
        symbols += struct.pack("<IBBHQQ", len(names), 0x12, 0x10, number, 0, 8)
        names += name.encode() + b"\0"
        rows += entry(0x11, struct.pack("<II", number, stack)) + entry(
            0x12, struct.pack("<II", number, stack)
        )
        rows = entry(0x2F, struct.pack("<II", number, registers)) + rows
    shared = [(f".nv.shared.{name}", 8, bytes(size)) for name, (_, _, size) in needs.items()]
    return [(".nv.info", 0x70000000, rows), (".symtab", 2, symbols), (".strtab", 3, names), *shared]


def cubin(
    tables: dict[str, bytes],
    toolkit: str = "",
    architecture: int = 90,
    needs: dict[str, tuple[int, int, int]] | None = None,
) -> bytes:
    """An ELF file for CUDA with the section `.nv.info.<kernel>` for each table.

    toolkit: the CUDA of its assembler, as "13.4"; without it the file says nothing of that.  needs: of
    functions, as of `needed`.
    """
    sections = [("", 0, b""), *((f".nv.info.{name}", 0x70000000, data) for name, data in tables.items())]
    sections += [(".note.nv.tkinfo", 7, note(toolkit))] if toolkit else []
    sections += needed(needs) if needs else []
    names = b"".join(name.encode() + b"\0" for name, _, _ in sections) + b".shstrtab\0"
    sections.append((".shstrtab", 3, names))
    body, rows, at = b"", b"", 0
    for name, kind, data in sections:
        rows += struct.pack("<IIQQQQIIQQ", at, kind, 0, 0, 64 + len(body), len(data), 0, 0, 1, 0)
        at, body = at + len(name) + 1, body + data * (kind != 8)  # what is 0 at the start is not in the file
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    count = len(sections)
    head = struct.pack(
        "<HHIQQQIHHHHHH", 2, 190, 1, 0, 0, 64 + len(body), architecture, 64, 0, 0, 64, count, count - 1
    )
    return ident + head + body + rows


def binary(name: str = "kernel", arguments: int = 2, **fields: object) -> Binary:
    """One kernel that takes pointers, as the compiler would give it; for AMD's GPU on the fake of those."""
    if os.environ.get("FAKE_CUDA_LIBRARY") == HIP:
        return made_hsaco.binary(name, arguments, **fields)
    number = str(fields.get("target", "sm_90")).removeprefix("sm_").rstrip("a")
    architecture = int(number) if number.isdigit() else 90
    given = {
        "name": name,
        "code": cubin({name: table(pointers(arguments))}, architecture=architecture),
        "text": "",
        "num_warps": 4,
        "num_ctas": 1,
        "shared": 0,
        "global_scratch": (0, 1),
        "profile_scratch": (0, 1),
        "target": "sm_90",
    }
    return Binary(**given | fields)  # type: ignore[arg-type]
