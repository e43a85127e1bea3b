"""What the run changed of what was there: what that held before, and the effects that do it again."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from .deaths import Dropped, Unkept
from .fresh import Fresh
from .guard_text import GuardText
from .heap import copied, place_of


class Written:
    """The writes of this run to what was there before it.

    What a container held is copied before its first change, so guards can say it; a place that stands in
    `places` holds what the run put there, and none of its reads is a fact.  All that stands here lives.

    places: as `place_of` has them.  appended: how many items, to lists that were changed by nothing else.
    effects: what was done, in order: (function, args, kwargs).  touched: objects that an effect changed in a
    way that only C code or a library knows, and the attributes that tell nothing of it.
    """

    def __init__(self, guards: GuardText, fresh: Fresh):
        self.places: set[tuple] = set()
        self.appended: dict[int, int] = {}
        self.effects: list[tuple[Callable, tuple, dict[str, Any]]] = []
        self.touched: dict[int, frozenset[str]] = {}
        self._before: dict[int, Any] = {}
        self._moved: set[int] = set()  # lists changed by more than items put in place of others
        self._keep: list[Any] = []
        self._guards, self._fresh = guards, fresh

    def before(self, o: Any) -> Any:
        """What a container held before this run wrote to it."""
        return self._before.get(id(o), o)

    def __contains__(self, o: Any) -> bool:
        """Whether this run has changed a container that was there."""
        return id(o) in self._before

    def has(self, o: Any, kind: str, key: Any) -> bool:
        """Whether this run has written a place."""
        return place_of(o, kind, key) in self.places

    def is_moved(self, o: Any) -> bool:
        """Whether this run may have moved items of a list to other places."""
        return id(o) in self._moved

    def names(self) -> dict[int, set[str]]:
        """The attributes and members that this run has written, by the identity of their objects."""
        found: dict[int, set[str]] = {}
        for o, kind, key in self.places:
            if kind == "attr":
                found.setdefault(o, set()).add(key[1])
            elif kind == "member":
                found.setdefault(o, set()).add(key[1][1])
        return found

    def add(self, o: Any, kind: str, key: Any) -> None:
        """Note that this run has written a place."""
        self.places.add(place_of(o, kind, key))
        self._keep.append(o)

    # ---- containers that are about to change ----
    def writes_at(self, o: Any) -> None:
        """Keep what a list holds, before this run puts another item in the place of one."""
        if o not in self._fresh and id(o) not in self._before and self._guards.recorder.reason is None:
            self._before[id(o)] = copied(o)
            self._keep.append(o)

    def writes_to(self, o: Any) -> None:
        """Keep what a container holds, before this run changes it in any way."""
        self.writes_at(o)
        if issubclass(type(o), (list, deque)) and o not in self._fresh:
            self._moved.add(id(o))
            self.appended.pop(id(o), None)

    def appends_to(self, o: Any) -> None:
        """Keep what a list holds, before this run appends an item."""
        count = 0 if not self.is_moved(o) else self.appended.get(id(o))
        self.writes_to(o)
        if count is not None and type(o) is list and o not in self._fresh:
            self.appended[id(o)] = count + 1

    # ---- effects ----
    def effect(self, function: Callable, *args: Any, **kwargs: Any) -> None:
        """Note something that was done, so that a replay does it as well."""
        if self._guards.recorder.reason is None:
            self.effects.append((function, args, kwargs))

    def is_empty(self) -> bool:
        """Whether this run has changed nothing so far that was there before it."""
        return not (self.effects or self.places or self.touched or self._before)

    def let_go(self) -> None:
        """Hold on to nothing from here on, after a refusal."""
        self._before, self._keep, self.effects = Unkept(), Dropped(), Dropped()

    def forget(self) -> None:
        """Let go of all objects of the run."""
        for each in (self._before, self._keep, self.effects):
            each.clear()
