"""Tracebacks of interpreted runs: the user's own frames, each with its file, name and line, and no other.

An error that passes an interpreted frame gets an entry of a forged frame.  Its code object has the name, the
file and the table of positions of the user's and only raises, so that `traceback` prints the same lines, with
the same marks below them, as it does after a plain run.
"""

from __future__ import annotations

import dis
import os
from types import CodeType, FrameType, FunctionType, TracebackType
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
HIDDEN: set[str] = set()  # further source files whose frames belong to the machinery

# Raises TypeError, for None is no exception.  Whatever else is being handled then stays as it is.
_RAISE = bytes([dis.opmap["RESUME"], 0, dis.opmap["LOAD_CONST"], 0, dis.opmap["RAISE_VARARGS"], 1])
_NOTHING = bytes([dis.opmap["NOP"], 0])


def is_machinery(filename: str) -> bool:
    """Whether a source file's frames are none of the user's."""
    return filename.startswith(HERE) or filename in HIDDEN


def clean(traceback: TracebackType | None, until: TracebackType | None = None) -> TracebackType | None:
    """The traceback without the machinery's own entries.  until: the entry from which on it is clean."""
    kept: list[TracebackType] = []
    while traceback is not None:
        if traceback is until:
            kept.append(traceback)
            break
        if not is_machinery(traceback.tb_frame.f_code.co_filename):
            kept.append(traceback)
        traceback = traceback.tb_next
    for number, entry in enumerate(kept):
        after = kept[number + 1] if number + 1 < len(kept) else None
        if entry is not until and entry.tb_next is not after:
            entry.tb_next = after
    return kept[0] if kept else None


def line_at(code: CodeType, offset: int) -> int:
    """The line of an instruction; that of the definition where it has none."""
    for start, end, line in code.co_lines():
        if start <= offset < end and line is not None:
            return line
    return code.co_firstlineno


class Tracebacks:
    """Makes the entries of one run, and remembers its frames."""

    def __init__(self) -> None:
        self._frames: dict[CodeType, tuple[CodeType, FrameType]] = {}
        self._last: TracebackType | None = None

    def forget(self) -> None:
        """Let go of the frames: those that were forged know who called them, and so this."""
        self._frames.clear()
        self._last = None

    def entered(
        self, traceback: TracebackType | None, code: CodeType, scope: dict[str, Any], offset: int
    ) -> TracebackType:
        """The traceback of an error that passes an interpreted frame at an instruction."""
        below = clean(traceback, self._last)
        del traceback  # forged frames know this one: what it names lives as long as the error
        self._last = TracebackType(below, self.forge(code, scope), offset, line_at(code, offset))
        return self._last

    def forge(self, code: CodeType, scope: dict[str, Any]) -> FrameType:
        """A frame that looks like one of a code object run over globals."""
        known = self._frames.get(code)
        if known is not None and known[0] is code and known[1].f_globals is scope:
            return known[1]
        # In no variable: the forged frame knows this one as its caller, and neither would ever be freed.
        self._frames[code] = code, _raised(code, scope)
        return self._frames[code][1]


def _raised(code: CodeType, scope: dict[str, Any]) -> FrameType:
    """The frame of a code object whose instructions were replaced by a failing one."""
    count = len(code.co_code) - len(_RAISE)
    raiser = code.replace(
        co_code=_RAISE + _NOTHING * (count // 2), co_consts=(None,), co_stacksize=2, co_exceptiontable=b"",
        co_flags=0, co_argcount=0, co_posonlyargcount=0, co_kwonlyargcount=0, co_nlocals=0, co_varnames=(),
        co_cellvars=(), co_freevars=(),
    )  # fmt: skip
    try:
        FunctionType(raiser, scope)()
    except TypeError as error:
        assert error.__traceback__ is not None and error.__traceback__.tb_next is not None
        return error.__traceback__.tb_next.tb_frame
    raise AssertionError("a forged frame did not raise")
