"""What a kind of processor decides of a shared object: relocations, stubs, pages (`elf.py`).

Source: System V Application Binary Interface, AMD64 Architecture Processor Supplement, version 1.0; ELF for
the Arm 64-bit Architecture, 2024Q3.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod

from ...ir.errors import KernelError


class Machine(ABC):
    """What a kind of processor decides.

    number: as ELF names it.  page: the largest that Linux has there.  absolute, symbolic, relative: the
    relocations that are left to the loader: a pointer to a symbol in data, one in the global offset table,
    one to what moves with the file.  through_got, calls, direct: the kinds that ask for a symbol's place in
    that table, for a function of whatever library, and for what the object itself defines.
    """

    number: int
    page: int
    absolute: int
    symbolic: int
    relative: int
    through_got: frozenset[int]
    calls: frozenset[int]
    direct: frozenset[int] = frozenset()

    @abstractmethod
    def stub(self, at: int, got: int) -> bytes:
        """The code at `at`, of 16 bytes at most, that goes on where the pointer at `got` leads."""

    @abstractmethod
    def fill(self, out: bytearray, kind: int, at: int, to: int) -> None:
        """Let what stands at `at` refer to `to`."""


class _X86(Machine):
    number, page = 62, 4096
    absolute, symbolic, relative = 1, 6, 8  # 64, GLOB_DAT, RELATIVE
    through_got = frozenset((9, 41, 42))  # GOTPCREL and its two relaxable forms
    calls = frozenset((2, 4))  # PC32, PLT32

    def stub(self, at: int, got: int) -> bytes:
        return b"\xff\x25" + struct.pack("<i", got - (at + 6))  # jmp *got(%rip)

    def fill(self, out: bytearray, kind: int, at: int, to: int) -> None:
        if not -(1 << 31) <= to - at < 1 << 31:
            raise KernelError("code does not reach what lies more than 2 GiB away")
        struct.pack_into("<i", out, at, to - at)


class _AArch64(Machine):
    number, page = 183, 1 << 16
    absolute, symbolic, relative = 257, 1025, 1027  # ABS64, GLOB_DAT, RELATIVE
    through_got = frozenset((311, 312))  # ADR_GOT_PAGE, LD64_GOT_LO12_NC
    calls = frozenset((282, 283))  # JUMP26, CALL26
    _PAGES = frozenset((275, 311))  # ADR_PREL_PG_HI21, ADR_GOT_PAGE
    # the low 12 bits, in units of so many bytes: ADD_ABS_LO12_NC, LDST8, 16, 32, 64 and 128_ABS_LO12_NC
    _LOW = {277: 1, 278: 1, 284: 2, 285: 4, 286: 8, 299: 16, 312: 8}
    direct = frozenset((275, *_LOW)) - through_got

    def stub(self, at: int, got: int) -> bytes:
        code = bytearray(struct.pack("<3I", 0x90000010, 0xF9400211, 0xD61F0220))
        for kind, where in ((275, 0), (286, 4)):  # adrp x16, got; ldr x17, [x16, got]; br x17
            self._insert(code, where, *self._field(kind, at + where, got))
        return bytes(code)

    def fill(self, out: bytearray, kind: int, at: int, to: int) -> None:
        self._insert(out, at, *self._field(kind, at, to))

    def _field(self, kind: int, at: int, to: int) -> tuple[int, int]:
        """The bits of the instruction at `at` that refer to `to`, and which bits these are."""
        if kind in self._LOW:
            return to % 4096 // self._LOW[kind] << 10, 0xFFF << 10
        if kind in self._PAGES:
            pages = (to >> 12) - (at >> 12)
            return (pages & 3) << 29 | (pages >> 2 & 0x7FFFF) << 5, 3 << 29 | 0x7FFFF << 5
        words = to - at >> 2  # up to 128 MiB
        if not -(1 << 25) <= words < 1 << 25:
            raise KernelError("code of more than 128 MiB does not reach all of its functions")
        return words & 0x3FFFFFF, 0x3FFFFFF

    @staticmethod
    def _insert(out: bytearray, at: int, bits: int, mask: int) -> None:
        (word,) = struct.unpack_from("<I", out, at)
        struct.pack_into("<I", out, at, word & ~mask | bits)


MACHINES = {machine.number: machine for machine in (_X86(), _AArch64())}
