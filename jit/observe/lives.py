"""What a run takes out of its place dies unnoticed, at a replay too, or it is refused (see deaths.py)."""

from __future__ import annotations

from typing import Any

from .deaths import SILENT, noticed
from .facts import Facts
from .kinds import ATOMS, MISSING
from .parts import Part


class Lives(Facts):
    """Looks after what is written over, popped, deleted or cleared."""

    def drops(self, o: Any, kind: str, key: Any, read: str | None, value: Any) -> None:
        """See to it that nobody notices the death of what a place held before it is written.

        read: gives that at a later call, with {o} for the object; None where facts say what stands there.
        """
        if self.refused or id(o) in self.fresh:
            return
        told, place = noticed(value), (id(o), kind, self.key_of(key))
        if told is not None:
            text = self._spelled(o, kind, key)
            del value
            self._dies(f"what {text} held is dropped, which {told}")
        elif read is not None and place not in self.written and not self._is_plain(place):
            source = self.source(o)
            if source is not None:
                text = f"whether anybody notices that what {self._spelled(o, kind, key)} held dies"
                self.part.lines.append(f"v = {read.format(o=source)}")
                self.check("type(v) not in SILENT and noticed(v)", text)

    def drops_all(self, o: Any, values: Any) -> None:
        """The same of many that a container holds, which are facts."""
        if self.refused or id(o) in self.fresh:
            return
        for value in values:
            if (told := noticed(value)) is not None:
                del value, values
                self._dies(f"something is taken out of {self.path(o)}, which {told}")
                return
        for value in values:
            if type(value) not in SILENT and id(value) in self.known:
                read = self.source(value)
                self.check(f"noticed({read})", f"whether anybody notices that {self.path(value)} dies")

    def _is_plain(self, place: tuple) -> bool:
        """Whether a fact says that a plain value stands at a place."""
        standing = self.facts.get(place, self.shadow.get(place[0], {}).get(place[1:], MISSING))
        return standing is not MISSING and type(standing) in ATOMS

    def _dies(self, why: str) -> None:
        """Give up before something dies that tells of it; no guard keeps what dies alive either."""
        for part in self.parts:  # guards hold containers, and what those hold
            if any(k not in part.weak and noticed(v) is not None for k, v in part.names.items()):
                self.parts[:] = [Part() for _ in self.parts]
                break
        self.abandon(why)
