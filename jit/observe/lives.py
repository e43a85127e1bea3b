"""What a run takes out of its place dies unnoticed, at a replay too, or it is refused (see deaths.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .deaths import SILENT, noticed
from .fresh import Fresh
from .guard_text import GuardText
from .heap import place_of
from .kinds import ATOMS, MISSING
from .known import Known
from .shadow import Shadow
from .written import Written


class Lives:
    """Looks after what is written over, popped, deleted or cleared.  It has no state of its own."""

    def __init__(
        self, guards: GuardText, known: Known, fresh: Fresh, written: Written, shadow: Shadow,
        abandon: Callable[[str], None],
    ):  # fmt: skip
        self._guards, self._known, self._fresh, self._written = guards, known, fresh, written
        self._shadow, self._abandon = shadow, abandon

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
            self._dies(f"what {text} held is dropped, which {told}")
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
                self._dies(f"something is taken out of {self._known.path(o)}, which {told}")
                return
        for value in values:
            if type(value) not in SILENT and value in self._known:
                read = self._known.source(value)
                text = f"whether anybody notices that {self._known.path(value)} dies"
                self._guards.check(f"noticed({read})", text)

    def _is_plain(self, place: tuple) -> bool:
        """Whether a fact says that a plain value stands at a place."""
        standing = self._known.facts.get(place, MISSING)
        return standing is not MISSING and type(standing) in ATOMS

    def _dies(self, why: str) -> None:
        """Give up before something dies that tells of it; no guard keeps what dies alive either."""
        self._guards.release()
        self._abandon(why)
