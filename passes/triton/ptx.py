"""What is mended in PTX before an old assembler reads it.

LLVM adds two numbers of 16 bits at once, and assemblers of CUDA 12 take a constant there for 0 where only one
of the sums is read: of

    mov.b32 %r1, {%rs1, %rs2};      // of which %rs2 is nowhere written
    mov.b32 %r2, 65535;             // -1 and 0
    add.s16x2 %r3, %r1, %r2;
    mov.b32 {%rs3, _}, %r3;

12.8 and 12.9 make `VIADD.16x2 R3, R1, 0x0`, and 13.4 `VIADD.16x2 R3, R1, 0xffff`.  A convolution's row above
its image was read so, beyond the array (Triton 3.6, sm_90, found on a GPU).  The sums are written one by one.
"""

from __future__ import annotations

import re

SOUND = 13  # the first major version of CUDA whose assembler is not known to do that
_PAIR = re.compile(r"^(\s*)add\.[su]16x2\s+(%r\d+), (%r\d+), (%r\d+);", re.MULTILINE)
_RELEASE = re.compile(r"release (\d+)\.")


def is_sound(version: str) -> bool:
    """Whether an assembler may be given pairs, by what it says of its version."""
    found = _RELEASE.search(version)
    return found is not None and int(found[1]) >= SOUND


def without_pairs(ptx: str) -> str:
    """PTX that adds pairs of 16 bits one by one."""
    return _PAIR.sub(_apart, ptx)


def _apart(found: re.Match[str]) -> str:
    indent, result, left, right = found.groups()
    lines = (
        "{",
        ".reg .b16 %pair<6>;",
        f"mov.b32 {{%pair0, %pair1}}, {left};",
        f"mov.b32 {{%pair2, %pair3}}, {right};",
        "add.s16 %pair4, %pair0, %pair2;",
        "add.s16 %pair5, %pair1, %pair3;",
        f"mov.b32 {result}, {{%pair4, %pair5}};",
        "}",
    )
    return "\n".join(indent + line for line in lines)
