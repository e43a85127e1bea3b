"""In every test here: a miss changes nothing of what the guards look at.

All lines of a guard run then, whatever they read through; the function itself has not begun.
"""

from __future__ import annotations

import gc
import threading
import types
from collections.abc import Iterator
from operator import length_hint
from typing import Any

import pytest
from observations import own

from lamina import Tensor
from lamina.jit.observe.kinds import ITERATORS
from lamina.jit.observe.parts import Part

MOST = 2_000  # objects looked at
NOT_LOOKED_AT = (type, types.ModuleType, types.FunctionType, types.CodeType, types.FrameType)
changed: list[str] = []
resident: set[threading.Thread] = set()


def look(roots: list[Any]) -> list[tuple]:
    """All that can be reached, as what it is, how long it is, and which objects it holds."""
    found, left, seen = [], list(roots), {0}
    while left and len(found) < MOST:
        o = left.pop()
        if id(o) in seen or isinstance(o, NOT_LOOKED_AT):
            continue
        seen.add(id(o))
        if isinstance(o, Tensor):
            storage = o._storage
            found.append((o, id(o._data), getattr(storage, "version", 0), id(o._edge)))
            continue
        if isinstance(o, types.GeneratorType):
            found.append((o, o.gi_frame and o.gi_frame.f_lasti))
            continue
        if type(o) in ITERATORS:
            found.append((o, length_hint(o, -1)))
            continue
        attributes = own(o)
        holds = gc.get_referents(o) if attributes is None else [*attributes.values(), attributes]
        if isinstance(o, (list, dict, set)):
            holds = [*holds, *gc.get_referents(o)]
        found.append((o, [*map(id, holds)]))
        left += reversed(holds)
    return found


def told(before: list[tuple], after: list[tuple]) -> str | None:
    """The first object that is another, or holds something else; None where there is none."""
    for one, other in zip(before, after):
        if one[0] is not other[0] or one[1:] != other[1:]:
            return f"{type(one[0]).__name__}: {one[1:]} became {other[1:]}"
    return None if len(before) == len(after) else f"{len(before)} objects became {len(after)}"


def watched(failing: Any) -> Any:
    def watching(part: Part, S: list) -> Any:
        if set(threading.enumerate()) - resident - {threading.current_thread()}:
            return failing(part, S)  # what changes meanwhile may be another thread's doing
        given = [S[at] for at in range(len(S))]
        names = [v() if k in part.weak else v for k, v in part.names.items()]
        before = look([*given, *names])
        found = failing(part, S)
        # What the lines put into slots is theirs to write.
        if (what := told(before, look([*given, *names]))) is not None:
            changed.append(what)
        return found

    return watching


@pytest.fixture(autouse=True)
def a_miss_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    changed.clear()
    resident.clear()
    resident.update(threading.enumerate())
    monkeypatch.setattr(Part, "failing", watched(Part.failing))
    yield
    assert not changed, changed[0]
