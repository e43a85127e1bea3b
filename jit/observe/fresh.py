"""What the run made itself: its identity is remembered for as long as no other object can have it."""

from __future__ import annotations

import gc
from sys import getrefcount
from types import FunctionType, GeneratorType
from typing import Any

from ...runtime import Tensor
from ...runtime.modes import _Mode
from ..facts import holds_nan, indefinite
from .deaths import Reach
from .guard_text import GuardText
from .kinds import ITERATORS, MISSING, PINNED, heap_class, lookup
from .shadow import Shadow

NAN = "a NaN was looked for, or put into a hash table: it is found by which object it is, not by its value"
_HELD = {0: object()}
ALONE = getrefcount(_HELD[0])  # references to what a dictionary alone holds, as `prune` asks for them


class Fresh:
    """The objects that this run made.

    An identity stands here for as long as its object lives: the object is held, or, where somebody would
    notice that, it is heard of when it dies (`_noticed`).  What dies is forgotten here and in the shadow.

    generators: those that the run made.  constants: containers that stand in code.  tables: new sets made of
    the table of one that this run had changed.  dented: new sets from which something was taken.
    shown: arrays that show a tensor's memory, with it: they may leave, but nobody knows what they hold.
    """

    def __init__(self, guards: GuardText, shadow: Shadow):
        self.objects: dict[int, Any] = {}
        self.holders: set[int] = set()  # those that may hold generators, or frames
        self.generators: list[Reach] = []
        self.constants: set[int] = set()
        self.tables: set[int] = set()
        self.dented: set[int] = set()
        self.shown: dict[int, tuple[Any, Tensor]] = {}
        self._guards, self._shadow = guards, shadow

    def __contains__(self, o: Any) -> bool:
        return id(o) in self.objects

    def new(self, o: Any) -> Any:
        """Mark an object as made in this run."""
        if self._guards.recorder.reason is not None:  # nobody asks any more, and it must die in time
            return o
        if type(o) is GeneratorType:  # one that nobody holds any more must be closed at once
            self.generators.append(self._noticed(o))
        elif _dies_visibly(type(o)):
            self._noticed(o)
            if lookup(type(o), "__del__") not in (MISSING, _Mode.__del__):  # a mode's tidies up interrupts
                why = f"{indefinite(type(o))} was made, whose __del__ runs when nobody holds it"
                self._guards.refuse(why)
        elif id(o) in self.shown:
            return o
        elif (type(o) is FunctionType or not issubclass(type(o), PINNED)) and (type(o) is not tuple or o):
            if type(o) in (set, frozenset, dict) and any(map(holds_nan, o)):
                self._guards.refuse(NAN)
            self.objects[id(o)] = o
            if issubclass(type(o), (BaseException, *ITERATORS)):
                self.holders.add(id(o))
        return o

    def made_here(self, o: Any) -> Any:
        """Mark an object as made in this run, though it is of a kind that is pinned by identity."""
        self.objects[id(o)] = o
        return o

    def constant(self, o: Any) -> Any:
        """Mark a container that stands in code: a new object that is the same at each call."""
        self.constants.add(id(o))
        return self.new(o)

    def _noticed(self, o: Any) -> Reach:
        """Mark an object as made in this run for as long as somebody else holds it."""
        key = id(o)
        self.objects[key] = weak = Reach(o, lambda _: self._gone(key))
        return weak

    def _gone(self, key: int) -> None:
        """Know an object no more that the run made: another may come to lie where it lay."""
        self.objects.pop(key, None)
        self._shadow.gone(key)

    def prune(self) -> None:
        """Let go of errors and iterators that nobody else holds: what they hold must be closed in time."""
        for key in [*self.holders]:
            if key not in self.objects or getrefcount(self.objects[key]) <= ALONE:
                self.holders.discard(key)
                self._gone(key)

    def settle(self) -> None:
        """Let go of what the run made, as it is over: what nobody holds ends now, and is noted still."""
        self.objects, self.holders = dict.fromkeys(self.objects), set()
        left = [reach() for reach in self.generators]
        if any(generator is not None and generator.gi_frame is not None for generator in left):
            del left
            gc.collect()  # errors that were caught hold frames in circles, longer than a plain run's do

    def forget(self) -> None:
        """Let go of all objects of the run."""
        self.objects.clear()


def _dies_visibly(kind: type) -> bool:
    """Whether the death of its objects may be noticed, by weak references or a `__del__`."""
    return (
        heap_class(kind)
        and kind.__weakrefoffset__ != 0
        and not issubclass(kind, (type, FunctionType, Tensor, BaseException, *ITERATORS))
    )
