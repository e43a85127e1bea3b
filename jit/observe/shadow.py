"""Where lifted numbers stand: in the shadow of the places whose bare numbers the heap holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .deaths import Dropped, Unkept
from .heap import key_of
from .lifted_numbers import LiftedNumbers
from .numbers import LIFTED, raw


class Shadow:
    """The lifted numbers that places hold.

    The heap holds bare numbers alone.  A lifted one stands here under its place until that is written again,
    or until its holder is read unseen, as by C code that goes through it: then its value is guarded (`bare`).
    Nothing is put here for what is `opened`.

    handing: iterators of C that hand out lifted numbers, in tuples.  opened: containers that C code may be
    going through.  entered: those that have been, since their keys last changed.  spoilt: iterators whose
    container's keys have changed under them.
    """

    def __init__(self, numbers: LiftedNumbers):
        self.handing: set[int] = set()
        self.opened: set[int] = set()
        self.entered: set[int] = set()
        self.spoilt: set[int] = set()
        self._held: dict[int, dict[tuple, Any]] = {}  # by who holds them, and by place in it
        self._keep: list[Any] = []
        self._numbers = numbers
        self.bury: Callable[[], None] = _nothing  # forgets what has died

    def __contains__(self, o: Any) -> bool:
        return id(o) in self._held

    def standing(self, o: Any, kind: str, key: Any) -> Any:
        """The lifted number that stands at a place, or None.  key: as `key_of` gives it."""
        if id(o) not in self._held:
            return None
        self.bury()  # or it may be another's that lay there
        return self._held.get(id(o), {}).get((kind, key))

    def set(self, o: Any, kind: str, key: Any, value: Any) -> Any:
        """Let a lifted number stand at a place.  key: as above."""
        self._held.setdefault(id(o), {})[kind, key] = value
        return value

    def count(self, o: Any) -> int:
        """How many lifted numbers an object holds."""
        return len(self._held.get(id(o), ()))

    def put(self, o: Any, kind: str, key: Any, value: Any) -> Any:
        """Note what the run puts at a place; the bare number, if it is lifted, which the place is to hold."""
        if type(value) not in LIFTED:
            if id(o) in self._held:
                self._held[id(o)].pop((kind, key_of(key)), None)
            return value
        if id(o) in self.opened or self._numbers.refused:
            self.put(o, kind, key, None)
            return self._numbers.plain(value)
        self.set(o, kind, key_of(key), value)
        return raw(value)

    def move(self, o: Any, places: list[int | None]) -> None:
        """What stands in a list moves.  places: where each item of it stood before, None for a new one."""
        held = self._held.pop(id(o), {})
        for at, before in enumerate(places):
            if before is not None and (value := held.get(("item", key_of(before)))) is not None:
                self.set(o, "item", key_of(at), value)

    def bare(self, o: Any) -> None:
        """Guard all lifted numbers that stand in an object, which is read or moved unseen."""
        for value in self._held.pop(id(o), {}).values():
            self._numbers.plain(value)

    def open(self, o: Any) -> None:
        """Let nothing stand in a container from here on, which lives: C code may be going through it."""
        self.opened.add(id(o))
        self.entered.add(id(o))
        self._keep.append(o)

    def enter(self, o: Any) -> None:
        """Note that C code goes through the keys of a container."""
        self.entered.add(id(o))
        self._keep.append(o)

    def gone(self, key: int) -> None:
        """Forget an object by its identity."""
        self._held.pop(key, None)
        self.opened.discard(key)
        self.entered.discard(key)
        self.spoilt.discard(key)
        self.handing.discard(key)

    def let_go(self) -> None:
        """Hold on to nothing from here on, after a refusal."""
        self._held, self._keep = Unkept(), Dropped()

    def forget(self) -> None:
        """Let go of all objects of the run."""
        self._held.clear()
        self._keep.clear()


def _nothing() -> None:
    """There is nothing to forget."""
