"""Code objects without machine code: the ELF file and its note of metadata, enough for the fake driver."""

from __future__ import annotations

import struct
from typing import Any

from lamina.passes.triton.binary import Binary
from lamina.runtime.cuda.launch import Layout

MACHINES = {"gfx90a": 0x3F, "gfx1100": 0x41, "gfx942": 0x4C, "gfx950": 0x4F}


def packed(value: Any) -> bytes:
    """A value in MessagePack, by its shortest forms."""
    if value is None or isinstance(value, bool):
        return {None: b"\xc0", False: b"\xc2", True: b"\xc3"}[value]
    if isinstance(value, int):
        if -32 <= value < 128:
            return struct.pack("b", value) if value < 0 else bytes([value])
        forms = (0xCC, "B"), (0xCD, ">H"), (0xCE, ">I"), (0xCF, ">Q")
        head, form = next(each for each in forms if value < 1 << 8 * struct.calcsize(each[1]))
        return bytes([head]) + struct.pack(form, value)
    if isinstance(value, str):
        text = value.encode()
        return _head(len(text), 0xA0, 32, 0xD9) + text
    if isinstance(value, list):
        return _head(len(value), 0x90, 16, 0xDC) + b"".join(map(packed, value))
    return _head(len(value), 0x80, 16, 0xDE) + b"".join(packed(x) for item in value.items() for x in item)


def _head(count: int, short: int, room: int, long: int) -> bytes:
    if count < room:
        return bytes([short | count])
    if long == 0xD9:
        return bytes([long]) + struct.pack("B", count) if count < 256 else b"\xda" + struct.pack(">H", count)
    return bytes([long]) + struct.pack(">H", count)


def described(name: str, arguments: Layout, **fields: Any) -> dict[str, Any]:
    """What metadata says of a kernel with such arguments, offsets and sizes.  fields: without their dots."""
    given = [
        {".offset": offset, ".size": size, ".value_kind": "by_value" if size < 8 else "global_buffer"}
        for offset, size in arguments
    ]
    found = {
        ".name": name, ".args": given, ".kernarg_segment_size": sum(arguments[-1]) if arguments else 0,
        ".group_segment_fixed_size": 0, ".private_segment_fixed_size": 0, ".sgpr_count": 20,
        ".vgpr_count": 30, ".wavefront_size": 64, ".max_flat_workgroup_size": 256,
    }  # fmt: skip
    return found | {f".{key}": value for key, value in fields.items()}


def hsaco(kernels: Any, target: str = "gfx942", others: bytes = b"") -> bytes:
    """An ELF file for AMD's GPUs with a note that says `kernels`.  others: notes in front of it."""
    content = packed({"amdhsa.kernels": kernels, "amdhsa.target": target, "amdhsa.version": [1, 2]})
    note = others + struct.pack("<III", 7, len(content), 32) + b"AMDGPU\0\0" + content
    note += bytes(-len(content) % 4)
    names = b"\0.note\0.shstrtab\0"
    segment = struct.pack("<IIQQQQQQ", 4, 4, 120, 120, 120, len(note), len(note), 4)
    rows = b""
    for name, kind, at, size in ((0, 0, 0, 0), (1, 7, 120, len(note)), (7, 3, 120 + len(note), len(names))):
        rows += struct.pack("<IIQQQQIIQQ", name, kind, 0, 0, at, size, 0, 0, 1, 0)
    tables_at = 120 + len(note) + len(names)
    head = b"\x7fELF\x02\x01\x01\x40\x03" + bytes(7)
    head += struct.pack(
        "<HHIQQQIHHHHHH", 3, 224, 1, 0, 64, tables_at, 0x500 | MACHINES.get(target, 0x30), 64, 56, 1, 64, 3, 2
    )
    return head + segment + note + names + rows


def pointers(count: int) -> Layout:
    """The parameters of a kernel that takes that many pointers, and the two of scratch memory."""
    return tuple((8 * k, 8) for k in range(count + 2))


def binary(name: str = "kernel", arguments: int = 2, target: str = "gfx942", **fields: Any) -> Binary:
    """One kernel that takes pointers, as the compiler would give it."""
    lanes = 64 if target.startswith("gfx9") else 32
    kernel = described(name, pointers(arguments), wavefront_size=lanes, max_flat_workgroup_size=4 * lanes)
    given = {
        "name": name,
        "code": hsaco([kernel], target),
        "text": "",
        "num_warps": 4,
        "num_ctas": 1,
        "shared": 0,
        "global_scratch": (0, 1),
        "profile_scratch": (0, 1),
        "target": target,
    }
    return Binary(**given | fields)
