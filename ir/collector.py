"""Python's collector of cyclic garbage, put off while much is made of which nearly all is kept.

Passes make some 100,000 objects for a training step, and each time that their number has grown by a quarter
Python goes through all objects of the process, to find nothing: up to a quarter of what compiling takes.
What is garbage meanwhile is freed as soon as compiling has ended.
"""

from __future__ import annotations

import gc
import os
import weakref
from functools import partial


class _Held:
    __slots__ = ("__weakref__",)


# A call of C functions alone: no signal's handler can raise in the middle, and it takes whatever it is given.
_enable = partial(next, iter(gc.enable, gc))
_reference: weakref.ref[_Held] | None = None


def put_off() -> object:
    """Have no garbage collected, in any thread, for as long as what this returns is held.

    However the caller ends, its frame drops that, and the collector is on again; with two callers, when the
    first ends.  Where it was off before, it stays as it is.
    """
    global _reference
    if not gc.isenabled():
        return None
    held = _Held()
    _reference = weakref.ref(held, _enable)
    gc.disable()
    return held


def _in_child() -> None:
    """The thread that holds it may not be there after a fork."""
    if _reference is not None and _reference() is not None:
        gc.enable()


os.register_at_fork(after_in_child=_in_child)
