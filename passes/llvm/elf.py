"""Makes a shared object of one relocatable object (ELF64; x86-64 or AArch64), without a linker.

    emit_object(text, target, pic=True) -> shared_object(...) -> ctypes.CDLL

The file has three parts, each a page apart: what is read (headers, symbols, relocations, constants), what is
run (code, and a stub for each function of another library), what is written (the dynamic table, the global
offset table, data).  Only what LLVM emits for kernels is understood; anything else is refused.  The object
says itself what kind of machine it is for; what that decides stands in `_Machine`.  Of AArch64, objects were
loaded and run under emulation, by glibc's loader.

Source: System V Application Binary Interface, AMD64 Architecture Processor Supplement, version 1.0; ELF for
the Arm 64-bit Architecture, 2024Q3; Tool Interface Standard, Executable and Linking Format, version 1.2.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field

from ...ir.errors import KernelError

# Kinds of sections and their flags; entries of the dynamic table.
SYMTAB, RELA, NOBITS = 2, 4, 8
WRITE, ALLOC, EXEC = 1, 2, 4
DT_NEEDED, DT_HASH, DT_STRTAB, DT_SYMTAB, DT_RELA, DT_RELASZ, DT_RELAENT = 1, 4, 5, 6, 7, 8, 9
DT_STRSZ, DT_SYMENT, DT_SONAME = 10, 11, 14
LOAD, DYNAMIC, STACK = 1, 2, 0x6474E551


class _Machine(ABC):
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


class _X86(_Machine):
    number, page = 62, 4096
    absolute, symbolic, relative = 1, 6, 8  # 64, GLOB_DAT, RELATIVE
    through_got = frozenset((9, 41, 42))  # GOTPCREL and its two relaxable forms
    calls = frozenset((2, 4))  # PC32, PLT32

    def stub(self, at: int, got: int) -> bytes:
        return b"\xff\x25" + struct.pack("<i", got - (at + 6))  # jmp *got(%rip)

    def fill(self, out: bytearray, kind: int, at: int, to: int) -> None:
        struct.pack_into("<i", out, at, to - at)


class _AArch64(_Machine):
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


_MACHINES = {machine.number: machine for machine in (_X86(), _AArch64())}


@dataclass
class _Section:
    name: str
    kind: int
    flags: int
    size: int
    link: int
    info: int
    align: int
    data: bytes
    at: int = 0  # its address in the shared object

    @property
    def kept(self) -> bool:
        return bool(self.flags & ALLOC) and self.size > 0 and self.name != ".eh_frame"


@dataclass
class _Symbol:
    name: str
    info: int
    hidden: bool
    section: int
    value: int
    size: int

    @property
    def is_global(self) -> bool:
        return self.info >> 4 in (1, 2)


@dataclass
class _Relocation:
    section: int
    offset: int
    symbol: int
    kind: int
    addend: int


@dataclass
class _Object:
    machine: _Machine
    sections: list[_Section]
    symbols: list[_Symbol]
    relocations: list[_Relocation] = field(default_factory=list)


def shared_object(
    data: bytes, exports: Iterable[str], name: str, needed: tuple[str, ...] = ("libm.so.6", "libc.so.6")
) -> bytes:
    """The shared object that defines `exports`.

    data: position-independent code.  needed: the libraries that its other functions come from.  Raises
    KernelError for an object it does not understand, or that lacks an export.
    """
    parsed = _parsed(data)
    wanted = set(exports)
    defined = [i for i, s in enumerate(parsed.symbols) if s.section and s.is_global and s.name in wanted]
    missing = wanted - {parsed.symbols[i].name for i in defined}
    if missing:
        raise KernelError(f"the object does not define {', '.join(sorted(missing))}")
    return _Layout(parsed, defined, name, needed).written()


def _parsed(data: bytes) -> _Object:
    kind, number = struct.unpack_from("<HH", data, 16) if data[:6] == b"\x7fELF\x02\x01" else (0, 0)
    if kind != 1 or number not in _MACHINES:
        raise KernelError("a relocatable ELF64 object for x86-64 or AArch64 is needed")
    (headers,) = struct.unpack_from("<Q", data, 40)
    count, names_at = struct.unpack_from("<HH", data, 60)
    sections, labels = [], []
    for i in range(count):
        label, kind, flags, _, offset, size, link, info, align, _ = struct.unpack_from(
            "<IIQQQQIIQQ", data, headers + 64 * i
        )
        body = b"" if kind == NOBITS else data[offset : offset + size]
        labels.append(label)
        sections.append(_Section("", kind, flags, size, link, info, max(align, 1), body))
    for section, label in zip(sections, labels, strict=True):
        section.name = _text(sections[names_at].data, label)
    table = next(s for s in sections if s.kind == SYMTAB)
    symbols = []
    for at in range(0, table.size, 24):
        label, info, other, section, value, size = struct.unpack_from("<IBBHQQ", table.data, at)
        if section == 0xFFF2 or info & 15 == 6:
            raise KernelError("common and thread-local symbols are not understood")
        text = _text(sections[table.link].data, label)
        symbols.append(_Symbol(text, info, bool(other & 3), section, value, size))
    found = _Object(_MACHINES[number], sections, symbols)
    for section in sections:
        if section.kind == RELA and sections[section.info].kept:
            for at in range(0, section.size, 24):
                offset, info, addend = struct.unpack_from("<QQq", section.data, at)
                found.relocations.append(
                    _Relocation(section.info, offset, info >> 32, info & 0xFFFFFFFF, addend)
                )
    return found


def _text(table: bytes, at: int) -> str:
    return table[at : table.index(b"\0", at)].decode()


def _up(value: int, to: int) -> int:
    return -(-value // to) * to


class _Layout:
    """Gives everything its address, then writes the file."""

    def __init__(self, parsed: _Object, exports: list[int], name: str, needed: tuple[str, ...]):
        self.object, self.needed = parsed, needed
        symbols, self.machine = parsed.symbols, parsed.machine
        page = self.machine.page
        used = dict.fromkeys(r.symbol for r in parsed.relocations if not symbols[r.symbol].section)
        self.imports = list(used)
        through = (
            r.symbol
            for r in parsed.relocations
            if r.kind in self.machine.through_got
            or (r.kind in self.machine.calls and not symbols[r.symbol].section)
        )
        self.got = {symbol: n for n, symbol in enumerate(dict.fromkeys(through))}
        self.dynamic = [*self.imports, *exports]
        self.strings, self.string_at = b"\0", {}
        for text in (*needed, name, *(symbols[i].name for i in self.dynamic)):
            if text not in self.string_at:
                self.string_at[text] = len(self.strings)
                self.strings += text.encode() + b"\0"
        self.name = name
        absolute = sum(r.kind == self.machine.absolute for r in parsed.relocations)
        kept = [s for s in parsed.sections if s.kept]
        # ---- read
        self.symbols_at = _up(64 + 56 * 5, 8)
        self.strings_at = self.symbols_at + 24 * (len(self.dynamic) + 1)
        self.hash_at = _up(self.strings_at + len(self.strings), 8)
        self.rela_at = _up(self.hash_at + 4 * (3 + len(self.dynamic) + 1), 8)
        self.rela_size = 24 * (len(self.got) + absolute)
        at = self.rela_at + self.rela_size
        at = self.read_end = self._place([s for s in kept if not s.flags & (WRITE | EXEC)], at)
        # ---- run
        self.code_at = _up(at, page)
        at = _up(self._place([s for s in kept if s.flags & EXEC], self.code_at), 16)
        self.stub_at = {symbol: at + 16 * n for symbol, n in self.got.items()}
        self.code_end = at + 16 * len(self.got)
        # ---- written
        self.data_at = _up(self.code_end, page)
        self.got_at = self.data_at + 16 * (len(needed) + 10)
        at = self.got_at + 8 * len(self.got)
        at = self.file_end = self._place([s for s in kept if s.flags & WRITE and s.kind != NOBITS], at)
        self.memory_end = self._place([s for s in kept if s.flags & WRITE and s.kind == NOBITS], at)

    @staticmethod
    def _place(sections: list[_Section], at: int) -> int:
        for section in sections:
            section.at = _up(at, section.align)
            at = section.at + section.size
        return at

    def address(self, symbol: int) -> int:
        found = self.object.symbols[symbol]
        return self.object.sections[found.section].at + found.value

    def written(self) -> bytes:
        out = bytearray(self.file_end)
        for section in self.object.sections:
            if section.kept and section.kind != NOBITS:
                out[section.at : section.at + section.size] = section.data
        out[self.strings_at : self.strings_at + len(self.strings)] = self.strings
        self._symbols(out)
        self._relocated(out)
        entries = self._dynamic_table()
        for n, entry in enumerate(entries):
            struct.pack_into("<QQ", out, self.data_at + 16 * n, *entry)
        self._headers(out, 16 * len(entries))
        return bytes(out)

    def _symbols(self, out: bytearray) -> None:
        for n, index in enumerate(self.dynamic, 1):
            symbol = self.object.symbols[index]
            label = self.string_at[symbol.name]
            mine = bool(symbol.section)
            value = self.address(index) if mine else 0
            info = symbol.info if mine else 0x12  # a global function
            fields = label, info, 0, int(mine), value, symbol.size
            struct.pack_into("<IBBHQQ", out, self.symbols_at + 24 * n, *fields)
        count = len(self.dynamic) + 1
        # one bucket, whose chain leads from the last symbol to the first
        chain = [max(k - 1, 0) for k in range(count)]
        struct.pack_into(f"<{3 + count}I", out, self.hash_at, 1, count, count - 1, *chain)

    def _relocated(self, out: bytearray) -> None:
        """Fill in what is known, and leave the rest to the loader."""
        at_load: list[tuple[int, int, int]] = []
        number = {symbol: n for n, symbol in enumerate(self.dynamic, 1)}
        symbols, machine = self.object.symbols, self.machine
        for symbol, slot in self.got.items():
            place = self.got_at + 8 * slot
            stub = self.stub_at[symbol]
            code = machine.stub(stub, place)
            out[stub : stub + len(code)] = code
            if symbols[symbol].section:
                at_load.append((place, machine.relative, self.address(symbol)))
            else:
                at_load.append((place, number[symbol] << 32 | machine.symbolic, 0))
        for r in self.object.relocations:
            place, mine = self.object.sections[r.section].at + r.offset, bool(symbols[r.symbol].section)
            if r.kind == machine.absolute:
                entry = (machine.relative, self.address(r.symbol) + r.addend)
                at_load.append((place, *(entry if mine else (number[r.symbol] << 32 | r.kind, r.addend))))
                continue
            if r.kind in machine.through_got:
                to = self.got_at + 8 * self.got[r.symbol]
            elif r.kind in machine.calls:
                to = self.address(r.symbol) if mine else self.stub_at[r.symbol]
            elif r.kind in machine.direct and mine:
                to = self.address(r.symbol)
            else:
                raise KernelError(f"relocation {r.kind} is not understood", symbols[r.symbol].name)
            machine.fill(out, r.kind, place, to + r.addend)
        for n, fields in enumerate(at_load):
            struct.pack_into("<QQq", out, self.rela_at + 24 * n, *fields)

    def _dynamic_table(self) -> list[tuple[int, int]]:
        return [
            *((DT_NEEDED, self.string_at[library]) for library in self.needed),
            (DT_SONAME, self.string_at[self.name]), (DT_HASH, self.hash_at), (DT_STRTAB, self.strings_at),
            (DT_STRSZ, len(self.strings)), (DT_SYMTAB, self.symbols_at), (DT_SYMENT, 24),
            (DT_RELA, self.rela_at), (DT_RELASZ, self.rela_size), (DT_RELAENT, 24), (0, 0),
        ]  # fmt: skip

    def _headers(self, out: bytearray, dynamic: int) -> None:
        written, reserved = self.file_end - self.data_at, self.memory_end - self.data_at
        code, page = self.code_end - self.code_at, self.machine.page
        segments = (
            (LOAD, 4, 0, 0, 0, self.read_end, self.read_end, page),
            (LOAD, 5, self.code_at, self.code_at, self.code_at, code, code, page),
            (LOAD, 6, self.data_at, self.data_at, self.data_at, written, reserved, page),
            (DYNAMIC, 6, self.data_at, self.data_at, self.data_at, dynamic, dynamic, 8),
            (STACK, 6, 0, 0, 0, 0, 0, 16),  # a stack that can't be run
        )
        for n, segment in enumerate(segments):
            struct.pack_into("<IIQQQQQQ", out, 64 + 56 * n, *segment)
        identity = b"\x7fELF\x02\x01\x01" + bytes(9)
        out[:64] = identity + struct.pack(
            "<HHIQQQIHHHHHH", 3, self.machine.number, 1, 0, 64, 0, 0, 64, 56, len(segments), 64, 0, 0
        )
