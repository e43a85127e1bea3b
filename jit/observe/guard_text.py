"""The text of guards while a run is recorded: its lines, and the names and slots that they speak of."""

from __future__ import annotations

import sys
from collections.abc import Callable
from sys import _getframe
from types import FunctionType
from typing import Any

import numpy as np

from ...ir.dtypes import home_of
from ...runtime.places import Place, is_internal, users
from ..facts import literal
from .deaths import Dropped, Reach, Unkept, noticed
from .kinds import ATOMS, PINNED, heap_class
from .parts import Part, Reason, contents, place_text

SINGLE = (type(None), bool, type(Ellipsis), type(NotImplemented))
LARGEST = 4096  # bytes of an array that is compared at each call


class GuardText:
    """What the guards of a run say so far: a `Part` for each stretch between two questions.

    A name stands for one object in all stretches, and that object lives as long as its name: no other comes
    to lie where it lay.  A stretch has all names that its lines say.  Each slot is given out once.

    recorder: counts the questions, and hears of refusals.  entry: where the function begins whose arguments
    are taken.  size: how many slots were given out.  named: what names stand for; weak: those of objects that
    are held weakly.  lost: whether no object of the run is held any more, as it was refused; over: whether it
    ended.  let_go_of_all: what a refusal calls.  clocks: slots of what clocks told, of which nothing may be
    asked, and why.
    """

    def __init__(self, recorder: Any):
        self.recorder = recorder
        self.entry: Place | None = None
        self.parts: list[Part] = [Part()]
        self.size = 0
        self.named: dict[str, Any] = {}
        self.weak: set[str] = set()
        self.lost = self.over = False
        self.let_go_of_all: Callable[[], None] = lambda: None
        self.clocks: dict[str, Reason] = {}
        self._names: dict[int, str] = {}
        self._keep: list[Any] = []
        self._unread: dict[int, tuple[Any, str, Reason]] = {}

    @property
    def part(self) -> Part:
        """The guards of the stretch that runs now."""
        if self.lost:
            return Part()  # of which nothing is made
        while len(self.parts) <= self.recorder.asked:
            self.parts.append(Part())
        return self.parts[-1]

    def place(self) -> Place:
        """The user's place that runs now."""
        return users(_getframe(1))

    def refuse(self, why: str) -> None:
        """Give up: the run goes on natively, and no trace is made of it."""
        if self.recorder.reason is None:
            self.recorder.reason = f"{why} ({place_text(self.place())})"
            self.let_go_of_all()

    # ---- lines ----
    def check(
        self, condition: str, why: str | Reason, late: bool = False, part: Part | None = None
    ) -> None:  # fmt: skip
        """Add a line that fails where `condition` is true; late: asked when the epoch of modules moved.

        part: the stretch that asks it, if not the one that runs now.
        """
        for slot in self.clocks:
            if slot in condition:
                self.refuse(self.clocks[slot].text)
        part = self.part if part is None or self.lost else part
        reason = why if isinstance(why, Reason) else Reason(why, self.place())
        self.recorder.symbolic.asked.append((condition, reason))
        reasons, lines = (part.late, part.later) if late else (part.reasons, part.lines)
        reasons.append(reason)
        lines.append(f"if {condition}: return {len(reasons)}")

    def check_plain(self, expression: str, value: Any, why: Reason, late: bool = False) -> None:
        """Add a line that fails where an expression does not give a plain value, to the bit."""
        kind = type(value)
        if kind in SINGLE:
            self.check(f"{expression} is not {'...' if value is ... else repr(value)}", why, late)
            return
        (self.part.later if late else self.part.lines).append(f"v = {expression}")
        if kind is float and (value != value or value in (0.0, np.inf, -np.inf)):
            self.check(f"type(v) is not float or bits(v) != {np.float64(value).tobytes()!r}", why, late)
            return
        name = self.const(value)
        if kind in (int, str, bytes):
            told = f"(type(v) is not {kind.__name__} or v != {name})"
        else:
            told = f"(type(v) is not float or v != {value!r})" if kind is float else f"not exact(v, {name})"
        self.check(f"v is not {name} and {told}", why, late)

    def meet_array(self, value: np.ndarray | np.generic, source: str, why: Reason) -> None:
        """An array is there, whose contents become a fact where they are read; those of a scalar at once."""
        if issubclass(type(value), np.ndarray):
            self._unread[id(value)] = value, source, why
        else:
            self._check_array(value, source, why)

    def read_array(self, value: np.ndarray) -> None:
        """Take the contents of an array that was met for granted."""
        if (met := self._unread.pop(id(value), None)) is not None:
            self._check_array(*met)

    def _check_array(self, value: np.ndarray | np.generic, source: str, why: Reason) -> None:
        """Add a line that fails where an array holds anything else; refuse a large one."""
        if self.recorder.may_have_written(value):
            self.refuse(f"{why.text} is a NumPy array that shares memory with a tensor which was written")
            return
        if value.dtype.hasobject or value.nbytes > LARGEST:
            self.refuse(
                f"{why.text} is a NumPy array of {value.nbytes} bytes, too large to be compared at each "
                "call; make it a tensor"
            )
            return
        self.check(f"contents({source}) != {self.const(contents(value))}", why)

    # ---- names and slots ----
    def const(self, o: Any) -> str:
        """The name of an object in the text of guards."""
        if self.lost:
            return "nothing_"
        name = self._names.get(id(o))
        if name is None:
            name = self._names[id(o)] = f"k{len(self._names)}_"
            self._keep.append(o)
            self.named[name] = o
            if _weakly(o):
                self.weak.add(name)
                self.named[name] = Reach(o)
        self.name_in(self.part, name)
        return name

    def name_in(self, part: Part, name: str) -> None:
        """Have a part know a name."""
        if self.lost:
            return
        part.names[name] = self.named[name]
        if name in self.weak:
            part.weak.add(name)

    def key_text(self, k: Any) -> str:
        """A key in the text of guards."""
        return literal(k) if type(k) in (int, str, bytes, bool, type(None)) else self.const(k)

    def slot(self) -> int:
        """A new slot."""
        self.size += 1
        return self.size - 1

    # ---- afterwards ----
    def close(self, roots: dict[int, Any]) -> None:
        """Add what must be different objects: what later parts find differs from what earlier ones did.

        roots: how objects are reached, by identity.
        """
        if self.lost:
            return
        by_source = {r.expression: r for r in roots.values()}
        slots: list[int] = []
        found: list[int] = []
        for part in self.parts:
            slots += part.slots
            found += part.pins
            kinds = {type(by_source[f"S[{at}]"].thing) for at in slots}
            pins = {i for i in found if _may_be_of(roots.get(i), kinds)}
            if not slots or not (part.slots or pins & {*part.pins}) or (len(slots) == 1 and not pins):
                continue
            paths = {at: by_source[f"S[{at}]"].path for at in slots}
            pinned = {i: roots[i].path for i in pins if i in roots}
            part.names["slots_"], part.names["pins_"] = paths, pinned
            told = "meeting(S, slots_, pins_)"
            part.reasons.append(Reason("whether two of its objects are one", self.entry, told, "no"))
            name = f"p{len(part.names)}_"
            if not pins and len(slots) == 2:
                condition = f"S[{slots[0]}] is S[{slots[1]}]"
            elif len(slots) == 1:
                part.names[name] = frozenset(pins)
                condition = f"id(S[{slots[0]}]) in {name}"
            else:
                part.names[name] = frozenset(pins)
                condition = f"not distinct(S, {tuple(slots)}, {name})"
            part.lines.append(f"if {condition}: return {len(part.reasons)}")

    def release(self) -> None:
        """Drop guards by which something lives on whose death tells: they hold containers."""
        for part in self.parts:
            if any(k not in part.weak and noticed(v) is not None for k, v in part.names.items()):
                self.parts[:] = [Part() for _ in self.parts]
                return

    def let_go(self) -> None:
        """Hold on to nothing from here on but the guards so far, by which later calls are told from these."""
        self.lost = True
        self._names, self.named, self._keep = Unkept(), Unkept(), Dropped()
        self._unread.clear()

    def forget(self) -> None:
        """Let go of all objects of the run."""
        for each in (self.parts, self.named, self._keep, self._unread):
            each.clear()


def _may_be_of(root: Any, kinds: set[type]) -> bool:
    """Whether a pinned object may ever be of one of the classes of what stands in slots."""
    return root is None or heap_class(type(root.thing)) or type(root.thing) in kinds


def _stays(kind: type) -> bool:
    """Whether a class is one of Lamina's own, which its module holds for as long as the process lives."""
    home = sys.modules.get(home_of(kind))
    file = getattr(home, "__file__", None)
    return file is not None and is_internal(file) and vars(home).get(kind.__qualname__) is kind


def _weakly(o: Any) -> bool:
    """Whether guards hold an object weakly: whatever is the user's and can be."""
    if type(o) is FunctionType:
        return not is_internal(o.__code__.co_filename)
    if issubclass(type(o), type):
        return heap_class(o) and o.__module__ != "builtins" and not _stays(o)
    if (
        issubclass(type(o), PINNED)
        or type(o) in ATOMS
        or issubclass(type(o), (list, dict, set, frozenset, tuple))
    ):
        return False
    return type(o).__weakrefoffset__ != 0
