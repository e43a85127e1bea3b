"""What the run made itself: its identity is remembered for as long as no other object can have it."""

from __future__ import annotations

import gc
from collections.abc import Collection, Iterator
from contextlib import suppress
from sys import getrefcount
from types import FunctionType, GeneratorType, GetSetDescriptorType, MemberDescriptorType
from typing import Any
from weakref import ref

from ...runtime import Tensor
from ...runtime.modes import _Mode
from ..facts import holds_nan, indefinite
from .deaths import Dropped, Reach, Unkept
from .guard_text import GuardText
from .kinds import BOUND, ITERATORS, MISSING, PINNED, heap_class, lookup
from .shadow import Shadow
from .spelling import dictionary_of

NAN = "a NaN was looked for, or put into a hash table: it is found by which object it is, not by its value"
_HELD = {0: object()}
ALONE = getrefcount(_HELD[0])  # references to what a dictionary alone holds, as `prune` asks for them
MOST_PRUNED = 4096  # objects that `prune` goes through, at 60 ns each


class _Made(Reach):
    """A weak reference to what the run made, which knows its id."""

    __slots__ = ("key",)
    key: int


class Fresh:
    """The objects that this run made.

    An identity stands here for as long as its object lives.  Objects are held weakly, so that they die when
    they would in a plain run, and heard of when they do; lists, dicts, tuples, cells and the like allow no
    weak references, and are let go of by `prune` where their deaths could be told.  What dies is forgotten
    here and in the shadow: not by the callback itself, in which Python swallows an interrupt, but before
    anything is asked by its id.

    strong: those of the objects that are held.  generators, instances: those that the run made, instances of
    classes of Python's own.  suspended: frames of generators whose closing would run code of the user's.
    constants: containers that stand in code.  tables: new sets made of the table of one that this run had
    changed.  dented: new sets from which something was taken.  shown: arrays that show a tensor's memory,
    with it: they may leave, but nobody knows what they hold.
    """

    def __init__(self, guards: GuardText, shadow: Shadow):
        self.objects: dict[int, Reach | None] = {}
        self.strong: dict[int, Any] = {}
        self.generators: list[Reach] = []
        self.instances: list[Reach] = []
        self.suspended: set[int] = set()
        self.constants: set[int] = set()
        self.tables: set[int] = set()
        self.dented: set[int] = set()
        self.shown: dict[int, tuple[Any, Tensor]] = {}
        self._dead: list[_Made] = []
        this: Any = ref(self)  # or the two would keep one another
        shadow.bury = lambda: this()._bury()
        self._guards, self._shadow = guards, shadow

    def __contains__(self, o: Any) -> bool:
        if self._dead:
            self._bury()
        return id(o) in self.objects

    def new(self, o: Any) -> Any:
        """Mark an object as made in this run."""
        if self._guards.recorder.reason is not None:  # nobody asks any more, and it must die in time
            return o
        kind = type(o)
        if kind is GeneratorType:
            self.generators.append(Reach(o))
        elif _dies_visibly(kind):
            if lookup(kind, "__del__") not in (MISSING, _Mode.__del__):  # a mode's tidies up interrupts
                why = f"{indefinite(kind)} was made, whose __del__ runs when nobody holds it"
                self._guards.refuse(why)
        elif id(o) in self.shown:
            return o
        elif kind is not FunctionType and issubclass(kind, PINNED) or kind is tuple and not o:
            return o
        elif kind in (set, frozenset, dict) and any(map(holds_nan, o)):
            self._guards.refuse(NAN)
        return self.made_here(o)

    def made_here(self, o: Any) -> Any:
        """Mark an object as made in this run, even if it is of a kind that is pinned by identity."""
        self._bury()
        key = id(o)
        if type(o).__weakrefoffset__:
            reach = _Made(o, self._dead.append)
            reach.key = key
            self.objects[key] = reach
        else:
            self.objects[key], self.strong[key] = None, o
        return o

    def instance(self, o: Any) -> Any:
        """Mark an instance that the `__new__` of a class of Python's own has just made."""
        if type(o).__weakrefoffset__:
            self.instances.append(Reach(o))
        return self.new(o)

    def constant(self, o: Any) -> Any:
        """Mark a container that stands in code: a new object that is the same at each call."""
        self.constants.add(id(o))
        return self.new(o)

    def _bury(self) -> None:
        """Forget what has died."""
        while self._dead:
            reach = self._dead.pop()
            if self.objects.get(reach.key) is reach:  # else another lies there by now
                self._gone(reach.key)

    def _gone(self, key: int) -> None:
        """Know an object no more that the run made: another may come to lie where it lay."""
        self.objects.pop(key, None)
        self._shadow.gone(key)
        for marked in (self.constants, self.tables, self.dented):
            marked.discard(key)
        self.strong.pop(key, None)  # last, as it may die of this

    def prune(self) -> None:
        """Let go of what the run made and nobody else holds: a suspended generator in it must be closed now.

        Asked for after each operation that may drop something, while there are such generators.
        """
        strong = self.strong
        if len(strong) > MOST_PRUNED:
            self._guards.refuse(
                "a generator is suspended inside of try or with, and too many objects may hold it"
            )
            return
        while alone := [key for key in strong if getrefcount(strong[key]) <= ALONE]:
            for key in alone:
                self._gone(key)
            strong = self.strong  # a refusal may have come of it

    def settle(self) -> None:
        """Let go of what the run made, as it is over: what nobody holds ends now, and is noted still."""
        if self._guards.lost:
            return
        self._guards.over = True
        self.objects, self.strong = dict.fromkeys(self.objects), {}
        left = [reach() for reach in self.generators]
        if any(generator is not None and generator.gi_frame is not None for generator in left):
            del left
            gc.collect()  # errors that were caught hold frames in circles, longer than a plain run's do

    def left_in_circles(self, met: Collection[int]) -> list[Any]:
        """What outlives the run though nobody met it: circles in which, or behind which, there are instances.

        met: the ids of what effects and the result lead to.  Errors and what their frames hold are left out.
        """
        found = [o for reach in self.instances if (o := reach()) is not None and id(o) not in met]
        found = [o for o in found if not issubclass(type(o), BaseException)]
        seen, asked = {*map(id, found), *met}, found
        while asked:
            there = [*_holders(asked)]
            asked = [o for o in there if id(o) in self.objects and id(o) not in seen]
            seen.update(map(id, asked))
            found = found + asked
        count = -1
        while count != len(found):  # what no other of them holds is held by the recorder, and dies with it
            count, held = len(found), {id(o) for each in found for o in _held(each)}
            found = [o for o in found if id(o) in held]
        return found

    def let_go(self) -> None:
        """Hold on to nothing from here on, after a refusal."""
        self.objects, self.strong, self.generators, self.instances = Unkept(), Unkept(), Dropped(), Dropped()
        self.suspended.clear()
        self.shown.clear()

    def forget(self) -> None:
        """Let go of all objects of the run."""
        self.objects.clear()
        self.strong.clear()


def _dies_visibly(kind: type) -> bool:
    """Whether the death of its objects may be noticed, by weak references or a `__del__`."""
    return (
        heap_class(kind)
        and kind.__weakrefoffset__ != 0
        and not issubclass(kind, (type, FunctionType, Tensor, BaseException, *ITERATORS))
    )


def _holders(held: list[Any]) -> Iterator[Any]:
    """What holds some of these objects, by its dictionary of attributes or a method of C code too."""
    for o in gc.get_referrers(*held):
        if type(o) is dict:
            yield from (x for x in gc.get_referrers(o) if heap_class(type(x)) and dictionary_of(x) is o)
        elif issubclass(type(o), BOUND):
            yield from _holders([o])
        if o is not held:
            yield o


def _held(o: Any) -> Iterator[Any]:
    """What an object holds, by its dictionary of attributes or a method of C code too."""
    for held in gc.get_referents(o):
        yield held
        if issubclass(type(held), BOUND) or (type(held) is dict and heap_class(type(o))):
            yield from _held(held)


def unmade(instances: list[Reach]) -> None:
    """Empty what a run made that is made again: a plain run has no such objects, and circles would keep them.

    Their deaths are unseen now; their classes may be given a `__del__` before the collector comes.
    """
    for o in [o for reach in instances if (o := reach()) is not None]:
        for kind in filter(heap_class, type(o).__mro__):
            for name, held in vars(kind).items():
                if type(held) is GetSetDescriptorType and name == "__dict__":
                    held.__get__(o).clear()
                elif type(held) is MemberDescriptorType:
                    with suppress(AttributeError):  # it is empty
                        held.__delete__(o)
