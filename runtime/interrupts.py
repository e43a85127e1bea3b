"""Errors that a signal's handler raised: they stop whatever was about to run, and have nothing to do with it.

Who catches all errors, to go on some other way, lets these through: they are the user's, as a time limit is.
"""

from __future__ import annotations

from types import FrameType, TracebackType
from typing import Any

from .places import is_internal, locals_of


def from_outside(error: BaseException) -> bool:
    """Whether an error has nothing to do with what it stopped: a handler raised it, or memory ran out."""
    return isinstance(error, (KeyboardInterrupt, MemoryError)) or _by_handler(error.__traceback__)


def let_through(error: Exception) -> None:
    """Raise an error again that a signal's handler raised."""
    if _by_handler(error.__traceback__):
        raise error


def _by_handler(entry: TracebackType | None) -> bool:
    """Whether one frame of a traceback is a handler's, which Python gives the frame that it stopped."""
    stopped: FrameType | None = None
    while entry is not None:
        frame = entry.tb_frame
        if stopped is not None and _is_given(frame, stopped):
            return True
        stopped, entry = frame, entry.tb_next
    return False


def _is_given(frame: FrameType, stopped: FrameType) -> bool:
    """Whether a frame's parameters hold the frame before it."""
    code = frame.f_code
    if is_internal(code.co_filename):
        return False
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 0x04)  # *arguments
    names = code.co_varnames[:count]
    held: dict[str, Any] = locals_of(frame) if names else {}  # of a module they are its globals
    given = [held.get(name) for name in names]
    return any(one is stopped or type(one) is tuple and any(x is stopped for x in one) for one in given)
