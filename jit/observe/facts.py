"""The recorder of heap facts: what a run read before it wrote it, and what it wrote.

A fact says what stands at a place of the heap: an attribute, an item, a cell.  The first read of a place that
was there before the run becomes a line of the guards; what the run made or wrote itself is known.  Objects
that the function reaches from its own code are captured, and pinned by identity; what came with the arguments
stands in slots.  Effects are noted in order, with what they were given, so that they can be done again.
"""

from __future__ import annotations

import gc
import re
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from sys import _getframe, getrefcount
from types import GeneratorType
from typing import Any

import numpy as np

from ...nn import Module
from ...nn.members import Members, Tracked, fields
from ...optim.optimizer import Optimizer
from ...runtime import Generator, Tensor
from ...runtime.modes import _Mode
from ...runtime.places import Place, is_internal, users
from ..facts import absent, holds_nan, indefinite, literal, shown
from ..sources import Arg, Held
from .deaths import Reach
from .kinds import ATOMS, ITERATORS, MISSING, PINNED, Builtin, Function, Method, heap_class, lookup, of_lamina
from .numbers import LIFTED, lifted, raw
from .parts import HISTORIES, Part, Reason, Whole, contents, history, layout, place_text
from .spelling import PEEKED, peek, spelled
from .whole import module_now, optimizer_now, state_names, texts

SINGLE = (type(None), bool, type(Ellipsis), type(NotImplemented))
WHOLE = (Module, Optimizer, Generator)  # arguments that are pinned by identity


@dataclass(frozen=True)
class Root:
    """How an object is reached.

    expression: what gives it at a later call; None where it is pinned.  path: what a reader calls it.
    """

    expression: str | None
    thing: Any
    path: str


class Abandoned(BaseException):
    """A run must be made anew, without a recorder: (why)."""


class Unheard:
    """Stands for the recorder of ops where none listens."""

    repeatable = False
    reason: str | None = None
    asked = 0

    def origin(self, x: Tensor, source: Any) -> None:
        """Take note of a tensor that was there before the run."""

    def source_of(self, x: Tensor) -> None:
        """No tensor is known."""

    def forget(self) -> None:
        """Nothing was kept."""


class _Unkept(dict):
    """A table that takes nothing in: after a refusal the run must hold no more than a plain one would."""

    def __setitem__(self, key: Any, value: Any) -> None:
        """Leave it."""

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """The value, which is left."""
        return default


class _Dropped(list):
    """A list that takes nothing in."""

    def append(self, value: Any) -> None:
        """Leave it."""


class _Fresh(Reach):
    """A weak reference to what the run made, which knows its id."""

    __slots__ = ("key",)
    key: int


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
            known = self._numbers[id(x)] = len(self.refs)
            self.refs.append(Reach(x))
            self.paths[known], self.places[known] = path, place
        return known


class Facts:
    """Notes what a run reads and writes.

    recorder: hears the ops meanwhile, and counts the questions that divide the run.  registry: numbers the
    captured tensors.  lift: the slots (`Reason.slot`) that are known to change, and how often they did.
    held: the answers of which the value is guarded after all, which the run adds to.
    """

    def __init__(
        self, recorder: Any = None, registry: Registry | None = None, lift: Any = (),
        held: set[tuple] | None = None,
    ):  # fmt: skip
        self.recorder = recorder if recorder is not None else Unheard()
        self.registry = registry if registry is not None else Registry()
        self.lift = lift if isinstance(lift, dict) else dict.fromkeys(lift, WEIGHTS)
        self.lifts = False  # whether lifted numbers are about
        self.parts: list[Part] = [Part()]
        self.known: dict[int, Root] = {}
        self.fresh: dict[int, Reach | None] = {}  # what the run made; None for what `strong` holds
        self.strong: dict[int, Any] = {}  # those of them to which there are no weak references
        self.generators: list[Reach] = []
        self.suspended: set[int] = set()  # frames of generators whose closing would run code of the user's
        self.abandoned = False  # a run that is made anew ends here: no code of the user's runs any more
        self.facts: dict[tuple, Any] = {}
        self.written: set[tuple] = set()
        self.shadow: dict[int, dict[tuple, Any]] = {}  # lifted numbers, by who holds them and by place
        self.lifting: set[int] = set()  # iterators of C that hand out lifted numbers, in tuples
        self.opened: set[int] = set()  # containers that C code may be going through
        self.effects: list[tuple[Callable, tuple, dict[str, Any]]] = []
        self._lost = self._over = False  # whether it holds no object of the run any more; whether that ended
        self.picked: list[Any] = []  # parts of tensors at places that change, see indices.py
        self.size = 0  # slots given out
        self._slots: dict[int, str] = {}  # what stands in those of lifted numbers, for a reader
        self.tensors: dict[int, int] = {}  # slots of tensors, by id
        self._before: dict[int, Any] = {}
        self._consts: dict[int, str] = {}
        self._weak: set[str] = set()
        self._named: dict[str, Any] = {}
        self._keep: list[Any] = []
        self.constants: set[int] = set()  # containers that stand in code
        self.tables: set[int] = set()  # new sets made of the table of one that this run had changed
        self.dented: set[int] = set()  # new sets from which something was taken
        self._whole: set[int] = set()
        self._cells: dict[int, str] = {}
        self._computed: dict[str, Any] = {}  # lifted numbers, by what they are computed with
        self._plained: set[str] = set()  # expressions of which the value is guarded
        self.answers: dict[str, set[tuple]] = {}  # to questions, of which what a slot holds is computed
        self.held_answers: set[tuple] = set() if held is None else held

    read_deep: Callable[[Any], None]  # take for granted all that a container holds: see contents.py
    in_order: Callable[[Any], None]  # the order of a set is asked: see contents.py

    # ---- refusing ----
    @property
    def refused(self) -> str | None:
        """Why the run can't be replayed; None as long as it can."""
        reason = self.recorder.reason
        if reason is not None and not self._lost:  # the recorder of ops may have said so, unheard
            self._let_go()
        return reason

    def refuse(self, why: str) -> None:
        """Give up: the run goes on natively, and no trace is made of it."""
        if self.recorder.reason is None:
            self.recorder.reason = f"{why} ({place_text(self.place())})"
            self._let_go()

    def abandon(self, why: str) -> None:
        """Give up where not even the true result can be had, or where deaths would come later than plainly.

        Raises Abandoned if the run can be made again from the start, natively: as long as it changed nothing.
        """
        again = self.refused is None and self.is_repeatable()
        self.refuse(why)
        if again:
            self.abandoned = True
            raise Abandoned(why)

    def is_repeatable(self) -> bool:
        """Whether the run has changed nothing so far that was there before it."""
        return not (self.effects or self.written or self._before) and self.recorder.repeatable

    def _let_go(self) -> None:
        """Hold on to nothing from here on: what dies after a refusal dies when it would in a plain run.

        The guards are kept, by which later calls are told from those that this refusal speaks of.
        """
        if self._over:
            return
        self._lost = True
        self.known, self.fresh, self.strong, self.facts = _Unkept(), _Unkept(), _Unkept(), _Unkept()
        self.shadow, self._before, self._consts, self._named = _Unkept(), _Unkept(), _Unkept(), _Unkept()
        self._keep, self.effects, self.generators = _Dropped(), _Dropped(), _Dropped()
        self.suspended.clear()
        self.recorder.forget()

    def place(self) -> Place:
        """The user's place that runs now."""
        return users(_getframe(1))

    # ---- parts ----
    @property
    def part(self) -> Part:
        """The guards of the stretch that runs now."""
        if self._lost:
            return Part()  # of which nothing is made
        while len(self.parts) <= self.recorder.asked:
            self.parts.append(Part())
        return self.parts[-1]

    def check(self, condition: str, why: str | Reason, late: bool = False) -> None:
        """Add a line that fails where `condition` is true; late: asked when the epoch of modules moved."""
        part = self.part
        reason = why if isinstance(why, Reason) else Reason(why, self.place())
        reasons, lines = (part.late, part.later) if late else (part.reasons, part.lines)
        reasons.append(reason)
        lines.append(f"if {condition}: return {len(reasons)}")

    def const(self, o: Any) -> str:
        """The name of an object in the text of guards."""
        if self._lost:
            return "nothing_"
        name = self._consts.get(id(o))
        if name is None:
            name = self._consts[id(o)] = f"k{len(self._consts)}_"
            self._keep.append(o)
            self._named[name] = o
            if _weakly(o):
                self._weak.add(name)
                self._named[name] = Reach(o)
        part = self.part
        part.names[name] = self._named[name]
        if name in self._weak:
            part.weak.add(name)
        return name

    def slot(self) -> int:
        """A new slot."""
        self.size += 1
        return self.size - 1

    # ---- what is known ----
    def pin(self, o: Any, path: str = "") -> Any:
        """Know a captured object by its identity."""
        self.known[id(o)] = Root(None, o, path or self._path(o))
        self._keep.append(o)
        if issubclass(type(o), (Function, partial)) or not issubclass(type(o), PINNED):
            self.part.pins.append(id(o))
        return o

    def is_known(self, o: Any) -> bool:
        """Whether an object was there before the run, and is reached by a fact."""
        return id(o) in self.known

    def new(self, o: Any) -> Any:
        """Mark an object as made in this run."""
        if self.refused:  # nobody asks any more, and it must die in time
            return o
        kind = type(o)
        if kind is GeneratorType:
            self.generators.append(Reach(o))
        elif _dies_visibly(kind):
            if lookup(kind, "__del__") not in (MISSING, _Mode.__del__):  # a mode's tidies up interrupts
                self.refuse(f"{indefinite(kind)} was made, whose __del__ runs when nobody holds it")
        elif kind is not Function and issubclass(kind, PINNED) or kind is tuple and not o:
            return o
        elif kind in (set, frozenset, dict) and any(map(holds_nan, o)):
            self.refuse(NAN)
        return self.made_here(o)

    def made_here(self, o: Any) -> Any:
        """Mark an object as made in this run, even if it is of a kind that is pinned by identity.

        It is held weakly, so that it dies when it would in a plain run; lists, dicts, tuples, cells and the
        like allow no weak references, and are let go of by `prune` where that could be told.
        """
        key = id(o)
        if type(o).__weakrefoffset__:
            reach = self.fresh[key] = _Fresh(o, self._died)
            reach.key = key
        else:
            self.fresh[key], self.strong[key] = None, o
        return o

    def constant(self, o: Any) -> Any:
        """Mark a container that stands in code: a new object that is the same at each call."""
        self.constants.add(id(o))
        return self.new(o)

    def _died(self, reach: _Fresh) -> None:
        if self.fresh.get(reach.key) is reach:  # else another lies there by now
            self._gone(reach.key)

    def _gone(self, key: int) -> None:
        """Know an object no more that the run made: another may come to lie where it lay."""
        self.fresh.pop(key, None)
        self.shadow.pop(key, None)
        for marked in (self.opened, self.lifting, self.constants, self.tables, self.dented):
            marked.discard(key)
        self.strong.pop(key, None)  # last, as it may die of this

    def prune(self) -> None:
        """Let go of what the run made and nobody else holds: a suspended generator in it must be closed now.

        Asked for after each operation that may drop something, while there are such generators.
        """
        strong = self.strong
        if len(strong) > MOST_PRUNED:
            self.refuse("a generator is suspended inside of try or with, and too many objects may hold it")
        while alone := [key for key in strong if getrefcount(strong[key]) <= ALONE]:
            for key in alone:
                self._gone(key)
            strong = self.strong  # a refusal may have come of it

    def settle(self) -> None:
        """Let go of what the run made, as it is over: what nobody holds ends now, and is noted still."""
        if self._lost:
            return
        self._over, self.fresh, self.strong = True, dict.fromkeys(self.fresh), {}
        left = [reach() for reach in self.generators]
        if any(generator is not None and generator.gi_frame is not None for generator in left):
            del left
            gc.collect()  # errors that were caught hold frames in circles, longer than a plain run's do

    def is_fresh(self, o: Any) -> bool:
        """Whether an object was made in this run."""
        return id(o) in self.fresh

    def source(self, o: Any) -> str | None:
        """The expression that gives an object at a later call; None where none is known."""
        root = self.known.get(id(o))
        if root is None:
            if not issubclass(type(o), PINNED):
                return None
            self.pin(o)
            return self.const(o)
        return self.const(o) if root.expression is None else root.expression

    def captured(self, o: Any) -> bool:
        """Whether an object is the same at each call."""
        root = self.known.get(id(o))
        return root is None or root.expression is None

    def path(self, o: Any) -> str:
        """What a reader calls an object."""
        root = self.known.get(id(o))
        return root.path if root is not None else self._path(o)

    def _path(self, o: Any) -> str:
        if issubclass(type(o), (type, Function, Builtin)):
            return o.__qualname__
        return getattr(o, "__name__", "") if type(o).__name__ == "module" else indefinite(type(o))

    def name_cells(self, function: Any) -> None:
        """Know the cells of a function by the names of their variables."""
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            self._cells.setdefault(id(cell), name)

    def name_globals(self, scope: dict[str, Any], path: str = "globals") -> None:
        """Know a dictionary as that of a module's globals."""
        if id(scope) not in self.known:
            self.pin(scope, path)

    def _spelled(self, o: Any, kind: str, key: Any) -> str:
        if kind in ("cell", "empty"):
            return self._cells.get(id(o), "a variable of an enclosing function")
        return spelled(self.path(o), kind, key)

    # ---- facts ----
    def fact(
        self, o: Any, kind: str, key: Any, expression: str, value: Any, lift: bool = False, late: bool = True
    ) -> Any:  # fmt: skip
        """Note the first read of a place; return what it holds.

        expression: reads it, with {o} for the object.  lift: whether the reader can do with a lifted number.
        late: whether the epoch of modules tells of a write, where it belongs to one.
        """
        k = self.key_of(key)
        place = (id(o), kind, k)
        standing = self.standing(o, kind, k)
        if standing is not None:
            return standing if lift else self.plain(standing)
        if (
            (type(o) is tuple and not o)
            or id(o) in self.fresh
            or place in self.written
            or place in self.facts
            or self.refused is not None
        ):
            return value
        source = self.source(o)
        if source is None:
            self.refuse(f"{kind} {shown(key)} was read from a {type(o).__name__} that nothing known leads to")
            return value
        self.facts[place] = value
        self._keep.append(o)
        text = self._spelled(o, kind, key)
        read = expression.format(o=source)
        slot = (text, kind)
        if kind in PEEKED:
            name = self.key_text(key) if kind != "keys" else "0"
            then, now = peek(self.before(o), kind, key), f"peek({source}, {kind!r}, {name})"
            then = absent if kind in ("absent", "none", "empty") else then  # this run may have put it there
            reason = Reason(text, self.place(), now, shown(then), slot)
        else:
            reason = Reason(text, self.place(), read, shown(value), slot)
        if lift and slot in self.lift and _liftable(value):
            made = self.shadow.setdefault(id(o), {})[kind, k] = self._lifted(read, value, reason)
            return made
        late = late and issubclass(type(o), (Module, Members, Tracked)) and self.captured(o)
        late = late and slot not in self.lift
        self.note(read, value, self.captured(o), reason, late)
        return value

    def note(
        self, expression: str, value: Any, captured: bool, why: str | Reason, late: bool = False
    ) -> None:
        """Guard that an expression still gives `value`, and remember how `value` is reached.

        captured: whether who holds it is the same at each call.
        """
        why = why if isinstance(why, Reason) else Reason(why, self.place(), expression, shown(value))
        kind = type(value)
        lines = self.part.later if late else self.part.lines
        if kind in SINGLE:
            self.check(f"{expression} is not {'...' if value is ... else value!r}", why, late)
        elif kind in (int, str, bytes):
            lines.append(f"v = {expression}")
            name = self.const(value)
            self.check(f"v is not {name} and (type(v) is not {kind.__name__} or v != {name})", why, late)
        elif kind is float:
            lines.append(f"v = {expression}")
            if value == value and value not in (0.0, np.inf, -np.inf):
                name = self.const(value)
                self.check(f"v is not {name} and (type(v) is not float or v != {value!r})", why, late)
            else:
                packed = np.float64(value).tobytes()
                self.check(f"type(v) is not float or bits(v) != {packed!r}", why, late)
        elif kind is tuple and not value:
            lines.append(f"v = {expression}")
            self.check("type(v) is not tuple or v", why, late)
        elif kind in ATOMS:
            lines.append(f"v = {expression}")
            name = self.const(value)
            self.check(f"v is not {name} and not exact(v, {name})", why, late)
        elif issubclass(kind, Tensor):
            self._tensor(expression, value, captured, why, late)
        elif id(value) in self.known:
            self.check(f"{expression} is not {self.source(value)}", self._alias(expression, value, why), late)
        elif id(value) in self.fresh and not issubclass(kind, (staticmethod, classmethod)):
            self.refuse(f"{why.text} holds an object made in this run, put there unseen")
        elif self._pinnable(value, why) or captured and why.slot not in self.lift:
            self._pinned(expression, value, why, late)
        else:
            at = self.slot()
            self.known[id(value)] = Root(f"S[{at}]", value, why.text)
            self._keep.append(value)
            self.part.slots.append(at)
            self.part.lines.append(f"v = S[{at}] = {expression}")
            self.check(f"type(v) is not {self.const(kind)}", why)
            if issubclass(kind, (np.ndarray, np.generic)):
                self._array(value, f"S[{at}]", why)

    def _pinnable(self, value: Any, why: Reason) -> bool:
        """Whether an object is known by its identity; functions that keep changing are looked into."""
        if issubclass(type(value), (Function, partial)) and why.slot in self.lift:
            return False
        return issubclass(type(value), (*PINNED, *WHOLE))

    def _alias(self, expression: str, value: Any, why: Reason) -> Reason:
        """The reason of a place that holds what is known as something else too."""
        path = self.path(value)
        if issubclass(type(value), PINNED) or path == why.text:
            return why
        name = self.const(path)
        return replace(why, read=f"alias({expression}, {self.source(value)}, {name})", seen=f"is {path}")

    def _pinned(self, expression: str, value: Any, why: Reason, late: bool) -> None:
        if type(value) is Method:
            (self.part.later if late else self.part.lines).append(f"v = {expression}")
            self.pin(value, why.text)
            owner = value.__self__
            if not issubclass(type(owner), Tensor) and id(owner) not in self.known:
                self.pin(owner, f"the object of {why.text}")
            self.check(
                f"type(v) is not MT or v.__func__ is not {self.const(value.__func__)} "
                f"or v.__self__ is not {self.source(owner) or self.const(owner)}", why, late,
            )  # fmt: skip
            return
        own = issubclass(type(value), type) and value.__qualname__.rpartition("<locals>.")[2]
        self.pin(value, own or why.text)
        name = self.const(value)
        self.check(f"{expression} is not {name}", why, late)
        self.part.places.setdefault(name, why.slot)
        if issubclass(type(value), np.ndarray):
            self._array(value, name, why)

    def _array(self, value: np.ndarray | np.generic, source: str, why: Reason) -> None:
        if value.dtype.hasobject or value.nbytes > LARGEST:
            self.refuse(
                f"{why.text} is a NumPy array of {value.nbytes} bytes, too large to be compared at each "
                "call; make it a tensor"
            )
            return
        self.check(f"contents({source}) != {self.const(contents(value))}", why)

    def _tensor(self, expression: str, x: Tensor, captured: bool, why: Reason, late: bool) -> None:
        if not of_lamina(type(x)):
            self.refuse(f"{why.text} is of a class of the user's own that derives from Tensor")
            return
        if id(x) in self.known:
            self.check(f"{expression} is not {self.source(x)}", self._alias(expression, x, why), late)
        elif captured and self.lift.get(why.slot, 0) < WEIGHTS:
            self.known[id(x)] = Root(None, x, why.text)
            name = self.const(x)
            self.check(f"{expression} is not {name}", why, late)
            self.part.places.setdefault(name, why.slot)
            self.hold(x)
        else:
            at = self.slot()
            self.known[id(x)] = Root(f"S[{at}]", x, why.text)
            self._keep.append(x)
            self.part.lines.append(f"v = S[{at}] = {expression}")
            self._slot_of(x, at, why)

    def _slot_of(self, x: Tensor, at: int, why: Reason) -> None:
        """Guard the tensor in a slot, named `v` so far: class, type, layout, history."""
        self.part.slots.append(at)
        self.tensors[id(x)] = at
        kind, form, past = self.const(type(x)), layout(x), history(x)
        dense = "v._data.flags.c_contiguous is not True" if form is True else f"layout(v) != {form!r}"
        self.check(f"type(v) is not {kind} or v._meta is not {self.const(x._meta)}", why)
        self.check(
            dense,
            Reason(
                f"the strides of {why.text}, in bytes",
                why.place,
                f"S[{at}]._data.strides",
                str(x._data.strides),
            ),
        )
        if past == 0:
            since = "v._edge is not None or v._view is not None and history(v)"
            told = Reason(f"{why.text}.requires_grad", why.place, f"S[{at}].requires_grad", "False")
        else:
            since, read = f"history(v) != {past}", f"HISTORIES[history(S[{at}])]"
            told = Reason(f"the history of {why.text}", why.place, read, shown(HISTORIES[past]))
        self.check(since, told)
        self._origin(x, Arg(at), why)

    def _origin(self, x: Tensor, source: Any, why: Reason) -> None:
        """Tell the recorder of a tensor; where its memory is that of another, this must stay so."""
        twin = self.recorder.origin(x, source)
        if twin is not None:
            one, two, same = self.source(x), self.source(twin), x._storage is twin._storage
            self.check(
                f"{one}._data is not {two}._data or ({one}._storage is {two}._storage) is not {same}",
                Reason(f"whether {why.text} is the memory of {self.path(twin)}", why.place),
            )

    def hold(self, x: Tensor) -> None:
        """Take note of a captured tensor: it is pinned, and its type and history are looked after."""
        number = self.registry.number(x, self.path(x), self.place())
        if number not in self.part.held:
            self.known.setdefault(id(x), Root(None, x, "a tensor"))
            self._keep.append(x)
            self.part.held.append(number)
            self.part.pins.append(id(x))
            self._origin(x, Held(number), Reason(self.path(x), self.place()))

    entry: Place | None = None  # of the function whose arguments are taken

    def argument(self, name: str, value: Any) -> Any:
        """Take the next argument; return what the function is to be given for it."""
        at = self.slot()
        reason = Reason(name, self.entry, f"S[{at}]", shown(value), (name, "argument"))
        if reason.slot in self.lift and _liftable(value):
            self.part.lines.append(f"v = S[{at}]")
            return self._guarded(value, at, reason)
        plain = type(value) in ATOMS or self._pinnable(value, reason)
        if plain or id(value) in self.known:
            self.note(f"S[{at}]", value, True, reason)
            return value
        self.known[id(value)] = Root(f"S[{at}]", value, name)
        self._keep.append(value)
        if issubclass(type(value), Tensor):
            if not of_lamina(type(value)):
                self.refuse(f"{name} is of a class of the user's own that derives from Tensor")
                return value
            self.part.lines.append(f"v = S[{at}]")
            self._slot_of(value, at, reason)
            return value
        self.part.slots.append(at)
        self.check(f"type(S[{at}]) is not {self.const(type(value))}", reason)
        if issubclass(type(value), (np.ndarray, np.generic)):
            self._array(value, f"S[{at}]", reason)
        return value

    # ---- lifted numbers ----
    def _lifted(self, expression: str, value: Any, reason: Reason) -> Any:
        at = self.slot()
        self.part.lines.append(f"v = S[{at}] = {expression}")
        return self._guarded(value, at, reason)

    def _guarded(self, value: Any, at: int, reason: Reason) -> Any:
        """The number in a slot, lifted: of its class, and an int that a float can hold."""
        self._slots[at] = reason.text
        self.lifts = True
        kind = type(value).__name__
        self.check(f"type(v) is not {kind}{f' or not -{MOST} < v < {MOST}' if kind == 'int' else ''}", reason)
        return lifted(value, f"S[{at}]")

    def answer(self, value: Any, asked: int) -> Any:
        """What Python was just told of a tensor: an input of what follows, until something asks its value.

        asked: how many questions there were before; where there is none more, nothing was asked.
        """
        if self.refused or self.recorder.asked == asked:
            return value
        step = self.recorder.steps[-1]
        line = place_text(step.place)
        at, slot = f"the answer to {step.how}() ({line})", (line, "answer")
        if slot in self.held_answers or not _liftable(value):
            return value
        number = self.slot()
        self.recorder.lift_answer(number)
        self.answers[f"S[{number}]"] = {slot}
        self.part.lines.append(f"v = S[{number}]")
        return self._guarded(value, number, Reason(at, step.place, f"S[{number}]", shown(value), slot))

    def standing(self, o: Any, kind: str, key: Any) -> Any:
        """The lifted number that stands at a place, or None.  key: as `key_of` gives it."""
        within = self.shadow.get(id(o))
        return None if within is None else within.get((kind, key))

    def put(self, o: Any, kind: str, key: Any, value: Any) -> Any:
        """Note what the run puts at a place; the bare number, if it is lifted, which the place is to hold.

        Whoever reads the place finds the lifted number; whoever reads it unseen, as C code does that goes
        through a container, has all that stands in it guarded (`unshadow`).
        """
        if type(value) not in LIFTED:
            if id(o) in self.shadow:
                self.shadow[id(o)].pop((kind, self.key_of(key)), None)
            return value
        if id(o) in self.opened or self.refused:
            self.put(o, kind, key, None)
            return self.plain(value)
        self.shadow.setdefault(id(o), {})[kind, self.key_of(key)] = value
        return raw(value)

    def unshadow(self, o: Any) -> None:
        """Guard all lifted numbers that stand in an object, which is read or moved unseen."""
        for value in self.shadow.pop(id(o), {}).values():
            self.plain(value)

    def plain(self, value: Any) -> Any:
        """The bare number; one that was lifted is guarded from here on."""
        if type(value) in LIFTED:
            bare = raw(value)
            self.held_answers |= self.answers.get(value.expression, set())
            if value.expression not in self._plained and not self.refused:
                self._plained.add(value.expression)
                self.note(value.expression, bare, True, self.in_words(value.expression))
            return bare
        return value

    def computed(self, value: Any, expression: str, closed: bool = True) -> Any:
        """A number that Python computed of lifted ones, lifted too; equal expressions share a slot.

        closed: whether numbers of these classes always give one of this class; else that is guarded.
        """
        standing = self._computed.get(expression)
        if standing is None:
            at, words = self.slot(), self.in_words(expression)
            self._slots[at] = f"({words if len(words) <= LONGEST else words[: LONGEST - 3] + '...'})"
            self.part.lines.append(f"v = S[{at}] = {expression}")
            if not closed:
                self.check(f"type(v) is not {type(value).__name__}", f"the class of {self._slots[at]}")
            standing = self._computed[expression] = lifted(value, f"S[{at}]")
            told = set().union(*(self.answers.get(part, ()) for part in _SLOT.findall(expression)))
            if told:
                self.answers[standing.expression] = told
        return standing

    def in_words(self, expression: str) -> str:
        """An expression over slots with what a reader calls their numbers."""
        text = re.sub(r"S\[(\d+)\]", lambda found: self._slots.get(int(found[1]), found[0]), expression)
        named = self._named
        return re.sub(r"\bk\d+_", lambda found: getattr(named.get(found[0]), "__name__", found[0]), text)

    # ---- keys ----
    def key_of(self, k: Any) -> Any:
        """What tells a key from others: itself where it is plain, else its identity."""
        if type(k) in ATOMS:
            return type(k), k
        if type(k) is tuple and all(type(x) in ATOMS for x in k):
            return tuple([(type(x), x) for x in k])
        return id(k)

    def key_text(self, k: Any) -> str:
        """A key in the text of guards."""
        return literal(k) if type(k) in (int, str, bytes, bool, type(None)) else self.const(k)

    # ---- writing ----
    def before(self, o: Any) -> Any:
        """What a container held before this run wrote to it."""
        return self._before.get(id(o), o)

    def is_written(self, o: Any) -> bool:
        """Whether this run has changed a container that was there."""
        return id(o) in self._before

    def writes_to(self, o: Any) -> None:
        """Keep what a container holds, before this run changes it."""
        if id(o) not in self.fresh and id(o) not in self._before and not self.refused:
            self._before[id(o)] = _copied(o)
            self._keep.append(o)

    def effect(self, function: Callable, *args: Any, **kwargs: Any) -> None:
        """Note something that was done, so that a replay does it as well."""
        if not self.refused:
            self.effects.append((function, args, kwargs))

    # ---- taken in whole ----
    def written_names(self) -> dict[int, set[str]]:
        """The attributes and members that this run has written, by the identity of their objects."""
        found: dict[int, set[str]] = {}
        for o, kind, key in self.written:
            if kind == "attr":
                found.setdefault(o, set()).add(key[1])
            elif kind == "member":
                found.setdefault(o, set()).add(key[1][1])
        return found

    def numbers_that_change(self, module: Module, path: str) -> set[str]:
        """Which numbers of a module's own, as a rate of dropout, are lifted or are to be."""
        return {
            name
            for name, value in fields(module).items()
            if type(value) in (int, float)
            and ((f"{path}.{name}", "attr") in self.lift or self.standing(module, "attr", (str, name)))
        }

    def whole_module(self, module: Module) -> None:
        """Take for granted all that a module and those inside it are: Lamina's code is about to read it."""
        written = self.written_names()
        for name, each in module.named_modules():
            if id(each) in self._whole:
                continue
            self._whole.add(id(each))
            path = self.path(module) + (f".{name}" if name else "")
            if not self.is_known(each):
                self.pin(each, path)
            tensors = [
                (k, x) for own in (each._parameters, each._buffers) for k, x in own.items() if x is not None
            ]
            apart = {k for k, _ in tensors if self.lift.get((f"{path}.{k}", "attr"), 0) >= WEIGHTS}
            assigned = written.get(id(each), set())  # what stands there is this run's own
            apart |= assigned
            if any(issubclass(base, Module) and base is not Module and of_lamina(base)
                   for base in type(each).__mro__):  # fmt: skip
                apart |= self.numbers_that_change(each, path)
            else:
                apart |= fields(each).keys() - READ_OF_MODULES  # only code of the user's looks there
            left_out = frozenset(apart)
            now = module_now(each, left_out, self.before)
            self.part.modules.append(Whole(Reach(each), now, path, left_out, texts(now), self.place()))
            for key, x in tensors:
                if key in assigned:
                    continue
                if key in apart or (self.is_known(x) and not self.captured(x)):  # met in a slot
                    read = f"fields({self.const(each)})[{key!r}]"
                    self.note(
                        read, x, True, Reason(f"{path}.{key}", None, read, "", (f"{path}.{key}", "attr"))
                    )
                elif not self.is_known(x):
                    self.known[id(x)] = Root(None, x, f"{path}.{key}")
                    self.part.places.setdefault(self.const(x), (f"{path}.{key}", "attr"))
                    self.hold(x)
            for key, value in tuple(fields(each).items()):
                if type(value) in (list, dict, set) and not issubclass(type(value), (Members, Tracked)):
                    if key not in apart and key != "_non_persistent_buffers_set":
                        if not self.is_known(value):
                            self.pin(value, f"{path}.{key}")
                        elif not self.captured(value):
                            self.note(f"fields({self.const(each)})[{key!r}]", value, True, f"{path}.{key}")
                        self.read_deep(value)

    def whole_optimizer(self, optimizer: Optimizer) -> None:
        """Take for granted an optimizer's groups and states: Lamina's own code is about to read them."""
        if id(optimizer) in self._whole:
            return
        self._whole.add(id(optimizer))
        path = self.path(optimizer)
        if not self.is_known(optimizer):
            self.pin(optimizer, path)
        slot = f"the states of {path}", "optimizer"
        apart = self.lift.get(slot, 0) >= WEIGHTS  # they keep being others: loaded, dropped, made anew
        self.part.optimizers.append((Reach(optimizer), optimizer_now(optimizer, apart), path, apart))
        name = self.const(optimizer)
        for at, group in enumerate(optimizer.param_groups):
            for k, x in enumerate(group["params"]):
                there = f"param_groups[{at}]['params'][{k}]"
                self._held_by(x, f"{path}.{there}", f"{name}.{there}")
        if apart:
            names = self.const(state_names(optimizer))
            self.check(f"state_names({name}) != {names}", Reason(slot[0], self.place()))
        for p, state in optimizer.state.items():
            for key, x in state.items():
                text = f"{path}.state[...][{key!r}]"
                if issubclass(type(x), Tensor) and not apart:
                    self._held_by(x, text, f"{name}.state[{self.const(p)}][{key!r}]")
                    self.part.places.setdefault(self.const(x), slot)
                elif issubclass(type(x), Tensor):
                    self.note(
                        f"{name}.state[{self.const(p)}][{key!r}]",
                        x,
                        True,
                        Reason(text, self.place(), slot=slot),
                    )

    def _held_by(self, x: Tensor, path: str, read: str) -> None:
        if not self.is_known(x):
            self.known[id(x)] = Root(None, x, path)
            self.const(x)
            self.hold(x)
        elif not self.captured(x):  # met in a slot, which must still hold what stands here
            self.note(read, x, True, path)

    # ---- afterwards ----
    def forget(self) -> None:
        """Let go of all objects of the run.  A generator of its that is closed later runs natively."""
        self.refuse("the run is over")
        for known in (self.known, self.fresh, self.facts, self.shadow, self._before, self._named, self._keep,
                      self.effects, self._cells, self.parts):  # fmt: skip
            known.clear()
        self.recorder.forget()

    def close(self) -> None:
        """Add what must be different objects: what later parts find differs from what earlier ones did."""
        if self._lost:
            return
        roots = {r.expression: r for r in self.known.values()}
        slots: list[int] = []
        found: list[int] = []
        for part in self.parts:
            slots += part.slots
            found += part.pins
            kinds = {type(roots[f"S[{at}]"].thing) for at in slots}
            pins = {i for i in found if self._may_be_of(i, kinds)}
            if not slots or not (part.slots or pins & {*part.pins}) or (len(slots) == 1 and not pins):
                continue
            paths = {at: roots[f"S[{at}]"].path for at in slots}
            pinned = {i: self.known[i].path for i in pins if i in self.known}
            part.names["slots_"], part.names["pins_"] = paths, pinned
            told = "meeting(S, slots_, pins_)"
            part.reasons.append(Reason("whether two of its objects are one", self.entry, told, "no"))
            if not pins and len(slots) == 2:
                condition = f"S[{slots[0]}] is S[{slots[1]}]"
            else:
                name = f"p{len(part.names)}_"
                part.names[name] = frozenset(pins)
                condition = f"not distinct(S, {tuple(slots)}, {name})"
            part.lines.append(f"if {condition}: return {len(part.reasons)}")

    def _may_be_of(self, pinned: int, kinds: set[type]) -> bool:
        """Whether a pinned object may ever be of one of the classes of what stands in slots."""
        root = self.known.get(pinned)
        return root is None or heap_class(type(root.thing)) or type(root.thing) in kinds


_HELD = {0: object()}
ALONE = getrefcount(_HELD[0])  # references to what a dictionary alone holds, as `prune` asks for them
MOST_PRUNED = 4096  # objects that `prune` goes through, at 60 ns each
WEIGHTS = 2  # changes of a captured tensor before it is an input, of which nothing is computed ahead
MOST = 1 << 53  # of lifted ints: all below are floats too
NAN = "a NaN was looked for, or put into a hash table: it is found by which object it is, not by its value"
_SLOT = re.compile(r"S\[\d+\]")
LONGEST = 80  # characters of what a reader is told of a computed number
READ_OF_MODULES = frozenset(fields(Module()))  # attributes that Lamina's own code reads of any module
LARGEST = 4096  # bytes of an array that is compared at each call


def _copied(o: Any) -> Any:
    """What a container holds, in another; no Python of a user's class runs for it."""
    if not heap_class(type(o)):
        return o.copy() if hasattr(o, "copy") else o
    if issubclass(type(o), OrderedDict):
        return OrderedDict([(k, dict.__getitem__(o, k)) for k in OrderedDict.__iter__(o)])
    if issubclass(type(o), deque):
        return deque(deque.__iter__(o), o.maxlen)
    base = next((base for base in (dict, list, set) if issubclass(type(o), base)), None)
    return o if base is None else base.copy(o)


def _liftable(value: Any) -> bool:
    return type(value) is float or type(value) is int and -MOST < value < MOST


def _weakly(o: Any) -> bool:
    """Whether guards hold an object weakly: whatever is the user's and can be."""
    if type(o) is Function:
        return not is_internal(o.__code__.co_filename)
    if issubclass(type(o), type):
        return heap_class(o) and o.__module__ not in ("builtins", "lamina")
    if (
        issubclass(type(o), PINNED)
        or type(o) in ATOMS
        or issubclass(type(o), (list, dict, set, frozenset, tuple))
    ):
        return False
    return type(o).__weakrefoffset__ != 0


def _dies_visibly(kind: type) -> bool:
    """Whether the death of its objects may be noticed, by weak references or a `__del__`."""
    return (
        heap_class(kind)
        and kind.__weakrefoffset__ != 0
        and not issubclass(kind, (type, Function, Tensor, BaseException, *ITERATORS))
    )


__all__ = ["MISSING", "Facts", "Registry", "Root", "Unheard", "lookup"]
