"""What a run takes out of its place dies unnoticed, at a replay too, or it is refused (see deaths.py)."""

from __future__ import annotations

from typing import Any

from ...runtime import Tensor
from .deaths import noticed
from .fresh import Fresh
from .guard_text import GuardText
from .heap import place_of
from .kinds import ATOMS, MISSING
from .known import Known
from .shadow import Shadow
from .written import Written


class Lives:
    """Looks after what is written over, popped, deleted or cleared.  It has no state of its own."""

    def __init__(self, guards: GuardText, known: Known, fresh: Fresh, written: Written, shadow: Shadow):
        self._guards, self._known, self._fresh, self._written = guards, known, fresh, written
        self._shadow = shadow

    def drops(self, o: Any, kind: str, key: Any, read: str | None, value: Any) -> None:
        """See to it that nobody notices the death of what a place held before it is written.

        read: gives that at a later call, with {o} for the object; None where facts say what stands there.
        """
        if self._guards.recorder.reason is not None or o in self._fresh:
            return
        told, place = noticed(value), place_of(o, kind, key)
        if told is not None:
            text = self._known.spelled(o, kind, key)
            del value
            self._let_go(f"what {text} held is dropped, which {told}")
        elif read is not None and place not in self._written.places and not self._is_plain(place):
            source = self._known.source(o)
            if source is not None:
                text = f"whether anybody notices that what {self._known.spelled(o, kind, key)} held dies"
                self._guards.part.lines.append(f"v = {read.format(o=source)}")
                self._guards.check("type(v) not in SILENT and noticed(v)", text)

    def drops_all(self, o: Any, values: Any) -> None:
        """The same of many that a container holds, which are facts."""
        if self._guards.recorder.reason is not None or o in self._fresh:
            return
        for value in values:
            if (told := noticed(value)) is not None:
                del value, values
                self._let_go(f"something is taken out of {self._known.path(o)}, which {told}")
                return

    def _is_plain(self, place: tuple) -> bool:
        """Whether a fact says that a plain value or a tensor stands at a place."""
        standing = self._known.facts.get(place, MISSING)
        return standing is not MISSING and (type(standing) in ATOMS or issubclass(type(standing), Tensor))

    def _let_go(self, why: str) -> None:
        """Refuse, and hold on to nothing: what dies now must die in time."""
        self._guards.refuse(why)
        self._known.forget()
        self._shadow.forget()
        self._written.forget()
        self._guards.release()
