"""Makes a shared object of relocatable objects (ELF64; x86-64 or AArch64), without a linker.

    emit_object(text, target, pic=True) -> shared_object(...) -> ctypes.CDLL

The file has three parts, each a page apart: what is read (headers, symbols, relocations, constants), what is
run (code, and a stub for each function of another library), what is written (the dynamic table, the global
offset table, pointers in constants, which the loader fills in and then has only read; data).  Sections are
described behind them, for linkers that programs in C are made with.  Only what LLVM emits
for kernels is understood; anything else is refused.  The objects say themselves what kind of machine they are
for; what that decides stands in `elf_machines.py`.  Of AArch64, objects were loaded and run under emulation,
by glibc's loader.

Source: System V Application Binary Interface, AMD64 Architecture Processor Supplement, version 1.0; ELF for
the Arm 64-bit Architecture, 2024Q3; Tool Interface Standard, Executable and Linking Format, version 1.2.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ...ir.errors import KernelError
from .elf_machines import MACHINES, Machine


@dataclass(frozen=True)
class Header:
    """A section.  at: its address, and its place in the file; link, info: what ELF has for its kind."""

    name: str
    kind: int
    flags: int
    at: int
    size: int
    link: int = 0
    info: int = 0
    align: int = 1
    entry: int = 0


def described(headers: Sequence[Header], end: int) -> tuple[bytes, tuple[int, int, int]]:
    """What follows a file of `end` bytes; where headers begin, how many they are, and that of their names."""
    names = b"\0"
    labels = []
    for name in (*(header.name for header in headers), ".shstrtab"):
        labels.append(len(names))
        names += name.encode() + b"\0"
    rows = [bytes(64)]
    for label, h in zip(labels, headers):
        fields = label, h.kind, h.flags, h.at, h.at, h.size, h.link, h.info, h.align, h.entry
        rows.append(struct.pack("<IIQQQQIIQQ", *fields))
    rows.append(struct.pack("<IIQQQQIIQQ", labels[-1], STRTAB, 0, 0, end, len(names), 0, 0, 1, 0))
    padding = bytes(-(end + len(names)) % 8)
    table = end + len(names) + len(padding)
    return names + padding + b"".join(rows), (table, len(rows), len(rows) - 1)


# Kinds of sections and their flags; entries of the dynamic table.
PROGBITS, SYMTAB, STRTAB, RELA, HASH, DYNAMIC_TABLE, NOBITS, DYNSYM = 1, 2, 3, 4, 5, 6, 8, 11
WRITE, ALLOC, EXEC = 1, 2, 4
DT_NEEDED, DT_HASH, DT_STRTAB, DT_SYMTAB, DT_RELA, DT_RELASZ, DT_RELAENT = 1, 4, 5, 6, 7, 8, 9
DT_STRSZ, DT_SYMENT, DT_SONAME = 10, 11, 14
LOAD, DYNAMIC, STACK, RELRO = 1, 2, 0x6474E551, 0x6474E552
SEGMENTS = 6
TEXT = 6  # the section of code, among those that are described
ABSOLUTE, COMMON = 0xFFF1, 0xFFF2  # in place of a symbol's section
WEAK = 2  # of a symbol that may be missing


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

    @property
    def is_filled_once(self) -> bool:
        """Whether it is written by the loader alone."""
        return self.name.startswith(".data.rel.ro")


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
    machine: Machine
    sections: list[_Section]
    symbols: list[_Symbol]
    relocations: list[_Relocation] = field(default_factory=list)


def shared_object(
    data: bytes | Sequence[bytes],
    exports: Iterable[str],
    name: str,
    needed: tuple[str, ...] = ("libm.so.6", "libc.so.6"),
    blobs: Mapping[str, bytes] = {},
    functions: Mapping[str, bytes] = {},
) -> bytes:
    """The shared object that defines `exports`.

    data: position-independent code, as one object or several, which see each other's global symbols where
    they lack them.  needed: the libraries that its other functions come from.  blobs: constants by symbols,
    each of which begins on a page; functions: machine code.  Raises KernelError for an object it does not
    understand, that lacks an export, or that does not reach all of it.
    """
    objects = [_parsed(each) for each in ([data] if isinstance(data, bytes) else data)]
    parsed = _joined(objects, blobs, functions)
    wanted = set(exports)
    defined = [i for i, s in enumerate(parsed.symbols) if s.section and s.is_global and s.name in wanted]
    missing = wanted - {parsed.symbols[i].name for i in defined}
    if missing:
        raise KernelError(f"the object does not define {', '.join(sorted(missing))}")
    return _Layout(parsed, defined, name, needed).written()


def undefined(data: bytes) -> set[str]:
    """The symbols that an object takes from elsewhere."""
    parsed = _parsed(data)
    used = {r.symbol for r in parsed.relocations if not parsed.symbols[r.symbol].section}
    return {parsed.symbols[at].name for at in used}


def _joined(objects: list[_Object], blobs: Mapping[str, bytes], functions: Mapping[str, bytes]) -> _Object:
    """The objects as one.  A global symbol that several define is each one's own."""
    machine = objects[0].machine
    whole = _Object(machine, [_Section("", 0, 0, 0, 0, 0, 1, b"")], [])
    for name, body in {**blobs, **functions}.items():
        section, flags, align = (".text", EXEC, 16) if name in functions else (".rodata", 0, machine.page)
        whole.symbols.append(_Symbol(name, 1 << 4, True, len(whole.sections), 0, len(body)))
        whole.sections.append(_Section(section, PROGBITS, ALLOC | flags, len(body), 0, 0, align, body))
    for each in objects:
        if each.machine is not machine:
            raise KernelError("the objects of one shared object are for one kind of processor")
        sections, symbols = len(whole.sections), len(whole.symbols)
        whole.sections += each.sections
        for symbol in each.symbols:
            symbol.section += sections if 0 < symbol.section < ABSOLUTE else 0
            whole.symbols.append(symbol)
        for r in each.relocations:
            r.section, r.symbol = r.section + sections, r.symbol + symbols
            whole.relocations.append(r)
    known: dict[str, int] = {}
    for at, symbol in enumerate(whole.symbols):
        if symbol.section and symbol.is_global:
            known.setdefault(symbol.name, at)
    first: dict[str, int] = {}  # what several objects lack is one symbol
    for r in whole.relocations:
        symbol = whole.symbols[r.symbol]
        if not symbol.section:
            r.symbol = known.get(symbol.name, first.setdefault(symbol.name, r.symbol))
    return whole


def _parsed(data: bytes) -> _Object:
    kind, number = struct.unpack_from("<HH", data, 16) if data[:6] == b"\x7fELF\x02\x01" else (0, 0)
    if kind != 1 or number not in MACHINES:
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
        if section == COMMON or info & 15 == 6:
            raise KernelError("common and thread-local symbols are not understood")
        text = _text(sections[table.link].data, label)
        symbols.append(_Symbol(text, info, bool(other & 3), section, value, size))
    found = _Object(MACHINES[number], sections, symbols)
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
        self.symbols_at = _up(64 + 56 * SEGMENTS, 8)
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
        written = [s for s in kept if s.flags & WRITE]
        at = self.filled_end = self._place([s for s in written if s.is_filled_once], at)
        written = [s for s in written if not s.is_filled_once]
        if written:  # what the loader protects is whole pages
            at = self.filled_end = _up(at, page)
        self.own_at = at
        at = self.file_end = self._place([s for s in written if s.kind != NOBITS], at)
        self.memory_end = self._place([s for s in written if s.kind == NOBITS], at)

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
        behind, headers = described(self._sections(16 * len(entries)), self.file_end)
        self._headers(out, 16 * len(entries), headers)
        return bytes(out) + behind

    def _symbols(self, out: bytearray) -> None:
        for n, index in enumerate(self.dynamic, 1):
            symbol = self.object.symbols[index]
            label = self.string_at[symbol.name]
            mine = bool(symbol.section)
            value = self.address(index) if mine else 0
            info = symbol.info if mine else (WEAK if symbol.info >> 4 == WEAK else 1) << 4 | 2  # a function
            fields = label, info, 0, TEXT if mine else 0, value, symbol.size
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

    def _sections(self, dynamic: int) -> list[Header]:
        """What linkers and tools are told of, in the order of addresses; TEXT is the number of code."""
        alloc, count = ALLOC, len(self.dynamic) + 1
        read, data = self.rela_at + self.rela_size, self.data_at + dynamic
        return [
            Header(".dynsym", DYNSYM, alloc, self.symbols_at, 24 * count, 2, 1, 8, 24),
            Header(".dynstr", STRTAB, alloc, self.strings_at, len(self.strings)),
            Header(".hash", HASH, alloc, self.hash_at, 4 * (3 + count), 1, 0, 8, 4),
            Header(".rela.dyn", RELA, alloc, self.rela_at, self.rela_size, 1, 0, 8, 24),
            Header(".rodata", PROGBITS, alloc, read, self.read_end - read),
            Header(".text", PROGBITS, alloc | EXEC, self.code_at, self.code_end - self.code_at, align=16),
            Header(".dynamic", DYNAMIC_TABLE, alloc | WRITE, self.data_at, dynamic, 2, 0, 8, 16),
            Header(".data.rel.ro", PROGBITS, alloc | WRITE, data, self.filled_end - data, align=8),
            Header(".data", PROGBITS, alloc | WRITE, self.own_at, self.file_end - self.own_at, align=8),
            Header(".bss", NOBITS, alloc | WRITE, self.file_end, self.memory_end - self.file_end, align=8),
        ]

    def _headers(self, out: bytearray, dynamic: int, sections: tuple[int, int, int]) -> None:
        written, reserved = self.file_end - self.data_at, self.memory_end - self.data_at
        code, page = self.code_end - self.code_at, self.machine.page
        segments = (
            (LOAD, 4, 0, 0, 0, self.read_end, self.read_end, page),
            (LOAD, 5, self.code_at, self.code_at, self.code_at, code, code, page),
            (LOAD, 6, self.data_at, self.data_at, self.data_at, written, reserved, page),
            (DYNAMIC, 6, self.data_at, self.data_at, self.data_at, dynamic, dynamic, 8),
            (STACK, 6, 0, 0, 0, 0, 0, 16),  # a stack that can't be run
            (RELRO, 4, self.data_at, self.data_at, self.data_at, *[self.filled_end - self.data_at] * 2, 1),
        )
        for n, segment in enumerate(segments):
            struct.pack_into("<IIQQQQQQ", out, 64 + 56 * n, *segment)
        identity = b"\x7fELF\x02\x01\x01" + bytes(9)
        at, count, names = sections
        out[:64] = identity + struct.pack(
            "<HHIQQQIHHHHHH", 3, self.machine.number, 1, 0, 64, at, 0, 64, 56, SEGMENTS, 64, count, names
        )
