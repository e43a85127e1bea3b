"""What was there before the run: how each object is reached at a later call, and what facts say of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from ...runtime import Generator, Tensor
from ...runtime.places import Place
from ..facts import indefinite
from .deaths import Reach, Unkept
from .guard_text import GuardText
from .kinds import PINNED, Builtin, Function
from .spelling import spelled


@dataclass(frozen=True)
class Root:
    """How an object is reached.

    expression: what gives it at a later call; None where it is pinned.  path: what a reader calls it.
    """

    expression: str | None
    thing: Any
    path: str


class Registry:
    """The captured tensors of one traced function, by number.  It keeps none of them alive.

    paths: what a reader calls them; places: where they are read.  generators, groups: those that recordings
    draw from and read, see Recorder.
    """

    def __init__(self) -> None:
        self.refs: list[Reach] = []
        self.paths: dict[int, str] = {}
        self.places: dict[int, Place | None] = {}
        self.generators: list[Generator] = []
        self.groups: list[tuple[Any, int]] = []
        self._numbers: dict[int, int] = {}

    def number(self, x: Tensor, path: str, place: Place | None = None) -> int:
        """The number of a tensor, a new one if need be."""
        known = self._numbers.get(id(x))
        if known is None or self.refs[known]() is not x:
            known = len(self.refs)
            self.paths[known], self.places[known] = path, place
            self.refs.append(Reach(x))
            self._numbers[id(x)] = known  # last: an interrupt may end this anywhere
        return known


class Known:
    """The objects that were there before the run and were met in it.

    An object that stands here lives, as its root holds it, and a later call reaches it: it is pinned, or an
    expression gives it.  A place that stands in `facts` is guarded, and held this value before the run.

    roots: by identity.  facts: by place of the heap, as `place_of` has it.  slots: those of tensors, by
    identity.  whole: modules and optimizers that are taken in whole.  settled: objects in which nothing
    changes, nor in what they hold.  leaves: how many of the recorder's have hooks
    that are facts.  registry: numbers the captured tensors.
    """

    def __init__(self, guards: GuardText, registry: Registry):
        self.registry = registry
        self.roots: dict[int, Root] = {}
        self.facts: dict[tuple, Any] = {}
        self.slots: dict[int, int] = {}
        self.whole: set[int] = set()
        self.settled: set[int] = set()
        self.leaves = 0
        self._cells: dict[int, str] = {}  # the names of variables
        self._guards = guards

    def __contains__(self, o: Any) -> bool:
        return id(o) in self.roots

    def add(self, o: Any, expression: str | None, path: str) -> None:
        """Know an object by what gives it."""
        self.roots[id(o)] = Root(expression, o, path)

    def pin(self, o: Any, path: str = "") -> Any:
        """Know a captured object by its identity."""
        self.roots[id(o)] = Root(None, o, path or _path(o))
        if issubclass(type(o), (Function, partial)) or not issubclass(type(o), PINNED):
            self._guards.part.pins.append(id(o))
        return o

    def source(self, o: Any) -> str | None:
        """The expression that gives an object at a later call; None where none is known."""
        root = self.roots.get(id(o))
        if root is None:
            if not issubclass(type(o), PINNED):
                return None
            self.pin(o)
            return self._guards.const(o)
        return self._guards.const(o) if root.expression is None else root.expression

    def captured(self, o: Any) -> bool:
        """Whether an object is the same at each call."""
        root = self.roots.get(id(o))
        return root is None or root.expression is None

    def path(self, o: Any) -> str:
        """What a reader calls an object."""
        root = self.roots.get(id(o))
        return root.path if root is not None else _path(o)

    def name_cells(self, function: Any) -> None:
        """Know the cells of a function by the names of their variables."""
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            self._cells.setdefault(id(cell), name)

    def spelled(self, o: Any, kind: str, key: Any) -> str:
        """What a reader calls a place."""
        if kind in ("cell", "empty"):
            return self._cells.get(id(o), "a variable of an enclosing function")
        return spelled(self.path(o), kind, key)

    def let_go(self) -> None:
        """Hold on to nothing from here on, after a refusal."""
        self.roots, self.facts = Unkept(), Unkept()

    def forget(self) -> None:
        """Let go of all objects of the run."""
        for each in (self.roots, self.facts, self._cells):
            each.clear()


def _path(o: Any) -> str:
    if issubclass(type(o), (type, Function, Builtin)):
        return o.__qualname__
    return getattr(o, "__name__", "") if type(o).__name__ == "module" else indefinite(type(o))
