"""Where in the user's program something happened, cheaply enough to note it on every op that saves or writes.

A place is (code object, instruction offset): two attribute reads.  The line number is worked out only when an
error is printed.  Frames of the package itself are stepped over, so that a place is always the user's own
line.
"""

from __future__ import annotations

import linecache
import os
from collections.abc import Callable
from sys import _getframe
from types import CodeType
from typing import Any

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
# Demos, examples and tests stand in the same tree and yet are users.
_USER_ROOMS = tuple(PACKAGE + room + os.sep for room in ("tests", "examples", "benchmarks", "demo"))
_LIBRARY = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_PACKAGES = os.sep + "site-packages" + os.sep
Place = tuple[CodeType, int]

USERS: set[str] = set()  # source files known to be the user's
_INTERNAL: set[str] = set()  # and to be the package's own machinery
# Functions of the package whose frames stand for one of the user's, as an interpreter's loop does: by their
# code, what tells from a frame which place it is.
STANDS_FOR: dict[CodeType, Callable[[Any], Place]] = {}
# The names of their files: a code's hash goes through all of it, which takes longer than an op.
_FILES_OF_THESE: set[str] = set()


def stand_for(code: CodeType, which: Callable[[Any], Place]) -> None:
    """Say that frames of `code` stand for frames of the user's: `which` tells a frame's place."""
    STANDS_FOR[code] = which
    _FILES_OF_THESE.add(code.co_filename)


def is_internal(filename: str) -> bool:
    """Whether a source file belongs to the package's own machinery."""
    if filename in _INTERNAL:
        return True
    if filename in USERS:
        return False
    path = os.path.normpath(filename)  # a script may be named by a way through the package: lamina/../x.py
    internal = path.startswith(PACKAGE) and not path.startswith(_USER_ROOMS)
    if internal and _PACKAGES in path[len(PACKAGE) - 1 :]:  # a virtual environment in the repository
        internal = False
    (_INTERNAL if internal else USERS).add(filename)
    return internal


def locals_of(frame: Any) -> dict[str, Any]:
    """The variables of a frame, of which none stays alive for having been looked at."""
    held = frame.f_locals
    found = {**held}
    if type(held) is dict:  # before Python 3.13: a copy that the frame keeps, and that may close a circle
        held.clear()
    return found


def here(frame: Any = None) -> Place:
    """The innermost place outside the package, from `frame` (else from the caller of who asks) outwards."""
    if frame is None:
        frame = _getframe(2)
    inner = frame
    try:
        name = frame.f_code.co_filename
        while True:
            while name in _INTERNAL:
                if name in _FILES_OF_THESE and frame.f_code in STANDS_FOR:
                    place = STANDS_FOR[frame.f_code](frame)
                    if not is_internal(place[0].co_filename):
                        return place
                frame = frame.f_back
                name = frame.f_code.co_filename
            if name in USERS or not is_internal(name):
                return frame.f_code, frame.f_lasti
    except AttributeError:  # the package all the way out, as where it runs itself
        return inner.f_code, inner.f_lasti


def users(frame: Any) -> Place:
    """The innermost place from `frame` outwards that is not the standard library's either."""
    first = here(frame)
    if not is_pythons(first[0].co_filename):
        return first
    while frame is not None:
        code = frame.f_code
        stands = STANDS_FOR.get(code) if code.co_filename in _FILES_OF_THESE else None
        place = (frame.f_code, frame.f_lasti) if stands is None else stands(frame)
        name = place[0].co_filename
        if not is_internal(name) and not is_pythons(name):
            return place
        frame = frame.f_back
    return first


def is_pythons(filename: str) -> bool:
    """Whether a source file belongs to the standard library."""
    return filename.startswith(("<frozen ", _LIBRARY)) and _PACKAGES not in filename


def line_of(place: Place) -> tuple[str, int]:
    """The file and the line number of a place."""
    code, offset = place
    for start, end, line in code.co_lines():
        if line is not None and start <= offset < end:
            return code.co_filename, line
    return code.co_filename, code.co_firstlineno


def spell(place: Place | None) -> str:
    """A place as an error shows it: `model.py:41`, with the source line where it can be read."""
    if place is None:
        return "(its line was not noted; detect_anomaly() notes every line)"
    return spelled(*line_of(place))


def spelled(filename: str, line: int) -> str:
    """The same of a file and a line."""
    source = linecache.getline(filename, line).strip()
    shown = f"{os.path.basename(filename)}:{line}"
    return f"{shown}  {source}" if source else shown
