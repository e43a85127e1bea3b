"""From an interpreted frame into a native one, in the middle of a function.

A run that was refused needs no interpreter, in which a loop takes many times as long.  The native frame runs
the function's own bytecode, behind a few instructions that put the variables and the stack where they were
and jump to where the interpreter stands.  Lines, handlers of errors, cells and `super()` stay as they are.

Source: Objects/locations.md and Objects/exception_handling_notes.txt of CPython, for the two tables.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Iterable
from itertools import repeat
from types import FunctionType
from typing import Any

from .decode import exception_table
from .frames import NULL, UNBOUND, Frame
from .numbers import raw

_OTHERS = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
_MOST_UNITS = 8  # of one entry of the table of lines


def resumed(frame: Frame) -> Any:
    """What a frame returns that goes on natively from `frame.at`; of a generator's, the generator.

    The native frame alone holds what the frame held.  NULL where it can't go on so, and nothing has changed:
    it handles an error, something holds its variables, or its names are a dictionary's.
    """
    if frame.handled or frame.again or frame.thrown or frame.names is not None or frame.shown is not None:
        return NULL
    if frame.kept is not None and frame.kept() is not None:
        return NULL
    code = frame.program.code
    before = _Instructions(code.co_consts, len(frame.stack))
    if frame.program.generator:
        before.add("RETURN_GENERATOR")
        before.add("POP_TOP")
    before.add("RESUME")
    bound = [number for number, value in enumerate(frame.locals) if value is not UNBOUND]
    before.take(frame.locals[number] for number in bound)
    for number in bound:
        before.add("STORE_FAST", number)
    for number in {*range(code.co_argcount)}.difference(bound):
        before.add("DELETE_FAST", number)
    at = 0
    for end in [*(place for place, value in enumerate(frame.stack) if value is NULL), len(frame.stack)]:
        before.take(reversed(frame.stack[at:end]))
        if end < len(frame.stack):
            before.add("PUSH_NULL")
        at = end + 1
    before.add("JUMP_FORWARD", _start(code.co_code, frame.program.offsets[frame.at]) // 2)
    made = code.replace(
        co_code=bytes(before.code) + code.co_code,
        co_consts=tuple(before.constants),
        co_stacksize=max(code.co_stacksize, before.deepest),
        co_flags=code.co_flags & ~_OTHERS,
        co_kwonlyargcount=0,
        co_linetable=before.nowhere() + code.co_linetable,
        co_exceptiontable=_moved(exception_table(code), len(before.code)),
    )
    function: Any = FunctionType(made, frame.globals, code.co_name, None, frame.closure)
    if function.__builtins__ is not frame.builtins:
        return NULL
    frame.stack.clear()
    frame.locals[:] = [UNBOUND] * len(frame.locals)
    return function(*[None] * code.co_argcount)


class _Instructions:
    """The instructions before a function's own, and its constants with theirs."""

    def __init__(self, constants: tuple[Any, ...], height: int):
        self.code, self.constants = bytearray(), [*constants]
        self.height = self.deepest = height  # of the stack, at most

    def add(self, name: str, argument: int = 0) -> None:
        """Put an instruction, with its caches."""
        for shift in (24, 16, 8):
            if argument >> shift:
                self.code += bytes([dis.opmap["EXTENDED_ARG"], argument >> shift & 255])
        self.code += bytes([dis.opmap[name], argument & 255])
        if name == "UNPACK_SEQUENCE":
            self.code += bytes(_CACHES)

    def take(self, values: Iterable[Any]) -> None:
        """Push values, the first one uppermost.  What hands them out holds each no longer."""
        left = [*map(raw, values)]
        if left:
            count = len(left)
            left.reverse()
            self.add("LOAD_CONST", len(self.constants))
            self.constants.append(map(list.pop, repeat(left, count)))
            self.add("UNPACK_SEQUENCE", count)
            self.deepest = max(self.deepest, self.height + count + 1)

    def nowhere(self) -> bytes:
        """Their entries in the table of lines, which stand in none."""
        left, entries = len(self.code) // 2, bytearray()
        while left:
            units = min(left, _MOST_UNITS)
            entries.append(0x80 | 15 << 3 | units - 1)
            left -= units
        return bytes(entries)


def _start(code: bytes, offset: int) -> int:
    """Where an instruction starts, with what extends its argument."""
    while offset and code[offset - 2] == dis.opmap["EXTENDED_ARG"]:
        offset -= 2
    return offset


def _moved(entries: Iterable[tuple[int, int, int, int, bool]], by: int) -> bytes:
    """A table of handlers whose code stands so many bytes further back."""
    found = bytearray()
    for start, end, target, height, pushed in entries:
        first = len(found)
        for number in ((start + by) // 2, (end - start) // 2, (target + by) // 2, height << 1 | pushed):
            groups = [number & 63]
            while number := number >> 6:
                groups.append(number & 63 | 64)
            found += bytes(reversed(groups))
        found[first] |= 128
    return bytes(found)


def _caches() -> int:
    """Bytes of cache behind the instruction that unpacks."""
    code = compile("a, b = c", "", "exec")
    at = [instruction for instruction in dis.get_instructions(code) if instruction.opname != "CACHE"]
    place = next(n for n, instruction in enumerate(at) if instruction.opname == "UNPACK_SEQUENCE")
    return at[place + 1].offset - at[place].offset - 2


_CACHES = _caches()
