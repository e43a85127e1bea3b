"""The epoch of all modules: one number that changes whenever an attribute of any module does.

Whoever has looked at modules (a tracer, for its guards) remembers `epoch.value`; as long as it is the same,
every attribute of every module is what it was, and one comparison says so.  It advances after the write, and
never takes a value twice, also where threads race: `next` of a counter is atomic, and a late store of an
older number still differs from what was remembered.

It sees `module.x = y`, `del module.x`, writes to `module._parameters` and its kin, hooks coming and going,
and (by being careful) each use of `vars(module)`.  It does not see `object.__setattr__(module, ...)`, nor
what changes inside an attribute, such as an item of a plain list.

While somebody keeps a module's dictionary (`self.config = vars(self)`), no write to that is seen: the number
is then one that equals nothing, itself included.
"""

from collections.abc import Callable
from itertools import count
from math import nan

value: float = 0
_numbers = count(1)


_handed: dict[int, Callable[[], bool]] = {}  # by module: whether its dictionary, handed out, is still kept


def advance() -> None:
    """Say that an attribute of some module has changed."""
    global value
    value = nan if _handed and _kept() else next(_numbers)


def hand_out(module: int, is_kept: Callable[[], bool]) -> None:
    """Say that a module's dictionary is handed out; is_kept: tells whether somebody may still write to it."""
    global value
    _handed[module] = is_kept
    value = nan


def settle() -> None:
    """Go back to numbers where nobody keeps a module's dictionary any more."""
    if _handed:
        advance()


def _kept() -> bool:
    for module, is_kept in [*_handed.items()]:
        if not is_kept():
            _handed.pop(module, None)
    return bool(_handed)
