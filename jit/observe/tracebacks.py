"""Tracebacks of interpreted runs: the user's own frames, each with its file, name and line, and no other.

An error that passes an interpreted frame gets an entry of a forged frame.  Its code object has the name, the
file and the table of positions of the user's, so that `traceback` prints the same lines, with the same marks
below them, as it does after a plain run.  It is the frame of a generator that never started: it knows of no
caller, so that an error that is kept keeps what a plain run's would, and nothing of the machinery.
"""

from __future__ import annotations

import dis
import inspect
import os
from types import CodeType, FrameType, FunctionType, TracebackType
from typing import Any

from .frames import Frame

HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_WORDS = os.path.join(os.path.dirname(os.path.dirname(HERE)), "facts.py")
HANDS_ON: set[CodeType] = set()  # functions of the machinery that make a call as the program does
HIDDEN = {_WORDS}  # further source files whose frames belong to the machinery

_MARK: Any = object()  # the only constant of a forged frame's code
_KEPT = ".variables"


def is_machinery(filename: str) -> bool:
    """Whether a source file's frames are none of the user's."""
    return filename.startswith(HERE) or filename in HIDDEN


def clean(traceback: TracebackType | None) -> TracebackType | None:
    """The traceback without the machinery's own entries, nor what ran natively: that knows who called it."""
    kept: list[TracebackType] = []
    while traceback is not None and not _is_forged(traceback.tb_frame):
        if not is_machinery(traceback.tb_frame.f_code.co_filename):
            kept.append(traceback)
        traceback = traceback.tb_next
    for entry in reversed(kept):  # what follows is clean: it was made for what had been cleaned
        frame = entry.tb_frame
        alone = _frame(frame.f_code, frame.f_globals, dict(frame.f_locals))
        line = -1 if entry.tb_lineno is None else entry.tb_lineno  # what an interrupt cuts off may have none
        traceback = TracebackType(traceback, alone, entry.tb_lasti, line)
    return traceback


def is_own(traceback: TracebackType | None) -> bool:
    """Whether an error was raised by the machinery's own code, not by what it runs, nor by a `raise`."""
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    if traceback is None or _is_forged(traceback.tb_frame):  # an interpreted frame, of a stand-in as well
        return False
    code = traceback.tb_frame.f_code
    return is_machinery(code.co_filename) and code.co_filename != HERE + "clauses.py" and code not in HANDS_ON


def line_at(code: CodeType, offset: int) -> int:
    """The line of an instruction; that of the definition where it has none."""
    for start, end, line in code.co_lines():
        if start <= offset < end and line is not None:
            return line
    return code.co_firstlineno


def entered(traceback: TracebackType | None, frame: Frame, at: int, ends: bool) -> TracebackType:
    """The traceback of an error that passes an interpreted frame at an operation; ends: it ends the frame."""
    offset = frame.program.offsets[at]
    return TracebackType(clean(traceback), forged(frame, ends), offset, line_at(frame.program.code, offset))


def forged(frame: Frame, ends: bool) -> FrameType:
    """A frame that looks like an interpreted one.

    ends: it runs no further, and so has its variables by name.  Else it keeps them as they go on to change:
    what they hold lives as long as in a plain run, where a traceback has the frame itself.
    """
    held = frame.bound() if ends else {_KEPT: frame.variables()}
    return _frame(frame.program.code, frame.globals, held)


def _frame(code: CodeType, scope: dict[str, Any], held: dict[str, Any]) -> FrameType:
    """The frame of a code object made to do no more than give a generator when called with its variables."""
    start = b"".join(bytes([dis.opmap[name], 0]) for name in ("RETURN_GENERATOR", "POP_TOP", "RESUME"))
    nothing = bytes([dis.opmap["NOP"], 0])
    rest = (len(code.co_code) - len(start)) // len(nothing)
    made = code.replace(
        co_code=start + nothing * rest, co_consts=(_MARK,), co_stacksize=2, co_exceptiontable=b"",
        co_flags=inspect.CO_GENERATOR | inspect.CO_OPTIMIZED | inspect.CO_NEWLOCALS,
        co_argcount=len(held), co_posonlyargcount=0, co_kwonlyargcount=0, co_nlocals=len(held),
        co_varnames=tuple(held), co_cellvars=(), co_freevars=(),
    )  # fmt: skip
    return FunctionType(made, scope)(*held.values()).gi_frame


def _is_forged(frame: FrameType) -> bool:
    constants = frame.f_code.co_consts
    return len(constants) == 1 and constants[0] is _MARK
