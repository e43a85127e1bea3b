"""The recorder of heap facts: what a run read before it wrote it, and what it wrote.

A fact says what stands at a place of the heap: an attribute, an item, a cell.  The first read of a place that
was there before the run becomes a line of the guards; what the run made or wrote itself is known.  Objects
that the function reaches from its own code are captured, and pinned by identity; what came with the arguments
stands in slots.  Effects are noted in order, with what they were given, so that they can be done again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any
from weakref import ref

import numpy as np

from ...ir.types import type_of
from ...nn import Module
from ...nn.members import Members, Tracked
from ...nn.parameter import is_lazy
from ...optim.optimizer import Optimizer
from ...runtime import Generator, Tensor
from ...runtime.compound import Compound
from ..facts import absent, shown
from ..sources import Arg, Held
from ..symbolic import LEAST
from .contexts import Contexts
from .deaths import Reach
from .fresh import Fresh
from .guard_text import GuardText
from .heap import place_of
from .kinds import ATOMS, MISSING, PINNED, Function, Method, of_lamina
from .known import Known, Registry
from .lifted_numbers import WEIGHTS, LiftedNumbers, liftable
from .lives import Lives
from .locks import Locks
from .parts import HISTORIES, Reason, history, layout
from .policy import SETTLED
from .shadow import Shadow
from .sizes import Sizes
from .spelling import PEEKED, peek
from .written import Written

WHOLE = (Module, Optimizer, Generator)  # arguments that are pinned by identity


MOST_FACTS = 20_000  # of one run; a training step of ResNet-50 has 500


class Abandoned(BaseException):
    """A run must be made anew, without a recorder: (why)."""


class Facts:
    """Notes what a run reads and writes, where its parts meet.

    recorder: hears the ops meanwhile, counts the questions that divide the run, and says why it is refused.
    guards: what they say so far.  known: what was there before.  fresh: what the run made.  written: what it
    changed of what was there.  contexts: variables that it set.  locks: that it took.
    numbers, shadow: its inputs that are numbers, and where they stand.  sizes: those that are symbols.
    busy: what is being gone through, or told of, which may hold itself.
    """

    def __init__(self, recorder: Any, registry: Registry, lift: dict[tuple, int], held: set[tuple]):
        self.recorder = recorder
        self.guards = guards = GuardText(recorder)
        self.known = known = Known(guards, registry)
        self.numbers = numbers = LiftedNumbers(guards, lift, held)
        self.shadow = shadow = Shadow(numbers)
        self.sizes = Sizes(guards, numbers, shadow)
        self.fresh = fresh = Fresh(guards, shadow)
        self.written = written = Written(guards, fresh)
        self.contexts, self.locks = Contexts(), Locks()
        self.busy: set[tuple[str, int]] = set()
        # What rules say most often, each a word of one part: no state, and never assigned again.
        self.refuse, self.place = guards.refuse, guards.place
        self.check, self.const = guards.check, guards.const
        self.is_known, self.pin, self.source = known.__contains__, known.pin, known.source
        self.captured, self.path = known.captured, known.path
        self.is_fresh, self.new = fresh.__contains__, fresh.new
        self.is_written, self.before = written.__contains__, written.before
        self.effect, self.raised = written.effect, self.sizes.raised
        self.plain, self.put, self.standing = numbers.plain, shadow.put, shadow.standing
        self.abandoned = False  # a run that is made anew ends here: no code of the user's runs any more
        self.left_over: list[Reach] = []  # instances that such a run made
        this: Any = ref(self)  # or the parts and the whole would keep one another
        guards.let_go_of_all = lambda: this()._let_go()
        lives = Lives(guards, known, fresh, written, shadow, lambda why: this().abandon(why))
        self.drops, self.drops_all = lives.drops, lives.drops_all

    read_deep: Callable[..., None]  # take for granted all that a container holds: see contents.py
    in_order: Callable[[Any], None]  # the order of a set is asked: see contents.py
    writes_to: Callable[..., None]  # a container is about to change: see contents.py

    # ---- refusing ----
    @property
    def refused(self) -> str | None:
        """Why the run can't be replayed; None as long as it can."""
        reason = self.recorder.reason
        if reason is not None and not self.guards.lost:  # the recorder of ops may have said so, unheard
            self._let_go()
        return reason

    @property
    def repeatable(self) -> bool:
        """Whether the run can be made again from the start: it has changed nothing so far."""
        nothing = self.written.is_empty() and not self.contexts.sets
        return self.refused is None and nothing and self.recorder.repeatable

    def abandon(self, why: str) -> None:
        """Give up where not even the true result can be had, or where deaths would come later than plainly.

        Raises Abandoned if the run can be made again, natively.
        """
        again = self.repeatable
        made = self.fresh.instances
        self.refuse(why)
        if again:
            self.abandoned, self.left_over = True, made
            raise Abandoned(why)

    def _let_go(self) -> None:
        """Hold on to nothing from here on: what dies after a refusal dies when it would in a plain run.

        The guards are kept, by which later calls are told from those that this refusal speaks of.
        """
        if not (self.guards.lost or self.guards.over):
            apart = self.known, self.fresh, self.shadow, self.sizes, self.written, self.locks
            for part in (*apart, self.guards):
                part.let_go()
            self.recorder.forget()

    def name_globals(self, scope: dict[str, Any], path: str = "globals") -> None:
        """Know a dictionary as that of a module's globals."""
        if not self.is_known(scope):
            self.pin(scope, path)

    # ---- facts ----
    def fact(
        self, o: Any, kind: str, key: Any, expression: str, value: Any, lift: bool = False, late: bool = True
    ) -> Any:  # fmt: skip
        """Note the first read of a place; return what it holds.

        expression: reads it, with {o} for the object.  lift: whether the reader can do with a lifted number.
        late: whether the epoch of modules tells of a write, where it belongs to one.
        """
        place = place_of(o, kind, key)
        standing = self.standing(o, kind, place[2])
        if standing is not None:
            return standing if lift else self.plain(standing)
        if (
            (type(o) is tuple and not o)
            or o in self.fresh
            or place in self.written.places
            or place in self.known.facts
            or self.refused is not None
        ):
            return value
        if self._is_settled(o) and (
            kind == "class" or not issubclass(type(value), (Tensor, Module, *PINNED))
        ):
            if kind != "class" and type(value) not in ATOMS and not self.is_known(value):
                self.known.add(value, None, self.known.spelled(o, kind, key))
                self.known.settled.add(id(value))
            return value
        source = self.source(o)
        if source is None:
            self.refuse(f"{kind} {shown(key)} was read from a {type(o).__name__} that nothing known leads to")
            return value
        self.known.facts[place] = value
        if len(self.known.facts) > MOST_FACTS:
            self.refuse(f"more than {MOST_FACTS} things were read, all of which each call would compare")
            return value
        text = self.known.spelled(o, kind, key)
        read = expression.format(o=source)
        slot = (text, kind)
        if kind in PEEKED:
            name = self.guards.key_text(key) if kind != "keys" else "0"
            then, now = peek(self.before(o), kind, key), f"peek({source}, {kind!r}, {name})"
            then = absent if kind in ("absent", "none", "empty") else then  # this run may have put it there
            reason = Reason(text, self.place(), now, shown(then), slot)
        else:
            reason = Reason(text, self.place(), read, shown(value), slot)
        if lift and slot in self.numbers.lift and liftable(value):
            return self.shadow.set(o, kind, place[2], self.numbers.read(read, value, reason))
        late = late and issubclass(type(o), (Module, Members, Tracked)) and self.captured(o)
        late = late and slot not in self.numbers.lift
        self.note(read, value, self.captured(o), reason, late)
        return value

    def _is_settled(self, o: Any) -> bool:
        """Whether nothing changes in an object that is the same at each call."""
        if id(o) in self.known.settled:
            return True
        if type(o) not in SETTLED or not self.is_known(o) or not self.captured(o):
            return False
        self.known.settled.add(id(o))
        return True

    def note(
        self, expression: str, value: Any, captured: bool, why: str | Reason, late: bool = False
    ) -> None:
        """Guard that an expression still gives `value`, and remember how `value` is reached.

        captured: whether who holds it is the same at each call.
        """
        why = why if isinstance(why, Reason) else Reason(why, self.place(), expression, shown(value))
        kind = type(value)
        if late and kind not in ATOMS:  # what a slot holds is another at each call, whatever the epoch says
            late = self.captured(value.__self__ if kind is Method else value)
        if kind in ATOMS:
            self.guards.check_plain(expression, value, why, late)
        elif kind is tuple and not value:
            (self.guards.part.later if late else self.guards.part.lines).append(f"v = {expression}")
            self.check("type(v) is not tuple or v", why, late)
        elif issubclass(kind, Tensor):
            self._tensor(expression, value, captured, why, late)
        elif self.is_known(value):
            self.check(f"{expression} is not {self.source(value)}", self._alias(expression, value, why), late)
        elif self.is_fresh(value) and not issubclass(kind, (staticmethod, classmethod)):
            self.refuse(f"{why.text} holds an object made in this run, put there unseen")
        elif self._pinnable(value, why) or captured and why.slot not in self.numbers.lift:
            self._pinned(expression, value, why, late)
        else:
            at = self.guards.slot()
            self.known.add(value, f"S[{at}]", why.text)
            self.guards.part.slots.append(at)
            self.guards.part.lines.append(f"v = S[{at}] = {expression}")
            self.check(f"type(v) is not {self.const(kind)}", why)
            if issubclass(kind, (np.ndarray, np.generic)):
                self.guards.meet_array(value, f"S[{at}]", why)

    def _pinnable(self, value: Any, why: Reason) -> bool:
        """Whether an object is known by its identity; functions that keep changing are looked into."""
        if issubclass(type(value), (Function, partial)) and why.slot in self.numbers.lift:
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
            (self.guards.part.later if late else self.guards.part.lines).append(f"v = {expression}")
            self.pin(value, why.text)
            owner = value.__self__
            if not issubclass(type(owner), Tensor) and not self.is_known(owner):
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
        self.guards.part.places.setdefault(name, why.slot)
        if issubclass(type(value), np.ndarray):
            self.guards.meet_array(value, name, why)

    def _tensor(self, expression: str, x: Tensor, captured: bool, why: Reason, late: bool) -> None:
        if not of_lamina(type(x)):
            self.refuse(f"{why.text} is of a class of the user's own that derives from Tensor")
            return
        if issubclass(type(x), Compound) and not x.by_parts:
            self.refuse(f"{why.text} is a {x.what} tensor, which compiled code has none of")
            return
        if is_lazy(x):
            self.refuse(f"{why.text} has no shape yet: the first call of its module makes it")
            return
        if x._meta.device.type == "meta":
            self.refuse(f"{why.text} is on the meta device, and has no values")
            return
        if self.is_known(x):
            self.check(f"{expression} is not {self.source(x)}", self._alias(expression, x, why), late)
        elif captured and self.numbers.lift.get(why.slot, 0) < WEIGHTS:
            self.known.add(x, None, why.text)
            name = self.const(x)
            self.check(f"{expression} is not {name}", why, late)
            self.guards.part.places.setdefault(name, why.slot)
            self.hold(x)
        else:
            at = self.guards.slot()
            self.known.add(x, f"S[{at}]", why.text)
            self.guards.part.lines.append(f"v = S[{at}] = {expression}")
            self._slot_of(x, at, why)

    def _slot_of(self, x: Tensor, at: int, why: Reason) -> None:
        """Guard the tensor in a slot, named `v` so far: class, type, layout, history."""
        self.guards.part.slots.append(at)
        if issubclass(type(x), Compound):
            self._compound_in_slot(x, at, why)
            return
        self.known.slots[id(x)] = at
        kind, form, past = self.const(type(x)), layout(x), history(x)
        dense = "v._data.flags.c_contiguous is not True" if form is True else f"layout(v) != {form!r}"
        symbols = self._symbols_of(x, why, form)
        if not symbols:
            self.check(f"type(v) is not {kind} or v._meta is not {self.const(x._meta)}", why)
        else:
            alike = " or ".join([
                f"len(v._meta.shape) != {x.ndim}", f"v._meta.dtype is not {self.const(x._meta.dtype)}",
                f"v._meta.device is not {self.const(x._meta.device)}",
                *(f"v._meta.shape[{d}] != {n}" for d, n in enumerate(x._meta.shape) if d not in symbols),
            ])  # fmt: skip
            self.check(f"type(v) is not {kind} or {alike}", why)
        self.guards.part.tensors.append((f"S[{at}]", x._meta, why.slot))
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
        if symbols:
            shape: list[Any] = [*x._meta.shape]
            for d in symbols:
                size = Reason(f"{why.text}.shape[{d}]", why.place, f"S[{at}]._meta.shape[{d}]", str(shape[d]))
                read = f"S[{at}]._meta.shape[{d}]"
                shape[d] = self.sizes.declare(read, shape[d], size, self.sizes.marked(x, d))
            self.recorder.symbolic.types[Arg(at)] = type_of(x._meta.dtype, tuple(shape), x._meta.device)
        self._origin(x, Arg(at), why)

    def _compound_in_slot(self, x: Compound, at: int, why: Reason) -> None:
        """Guard a tensor made of one: class, type, form; what is stored is a tensor of its own."""
        kind = f"type(v) is not {self.const(type(x))} or v._meta is not {self.const(x._meta)}"
        told = replace(why, read=f"lying(S[{at}])", seen=x.shown())
        self.check(f"{kind} or v.form != {self.const(x.form)}", told)
        self._stored_of(x, f"S[{at}]", False, why)

    def _stored_of(self, x: Compound, read: str, captured: bool, why: Reason) -> None:
        """Take note of what a tensor is made of; `read` gives the tensor."""
        part = f"{read}._stored"
        self.note(part, x._stored, captured, Reason(f"the part of {why.text}", why.place, part, ""))

    def _symbols_of(self, x: Tensor, why: Reason, form: Any) -> list[int]:
        """The dimensions of a tensor in a slot whose sizes are symbols: those that keep changing."""
        if form is not True or why.slot is None or self.refused:
            return []
        every, lift = self.sizes.every, self.numbers.lift
        return [
            d
            for d, n in enumerate(x._meta.shape)
            if n >= LEAST and (every or (*why.slot, d) in lift or self.sizes.marked(x, d) is not None)
        ]

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
        if issubclass(type(x), Compound):
            self._hold_compound(x)
            return
        number = self.known.registry.number(x, self.path(x), self.place())
        if number not in self.guards.part.held:
            if not self.is_known(x):
                self.known.add(x, None, "a tensor")
            self.guards.part.held.append(number)
            self.guards.part.pins.append(id(x))
            self._origin(x, Held(number), Reason(self.path(x), self.place()))

    def _hold_compound(self, x: Compound) -> None:
        """The same of one that is made of a tensor: it is to be made of the same one, in the same way."""
        if not x.by_parts:
            self.refuse(f"{self.path(x)} is a {x.what} tensor, which compiled code has none of")
        elif id(x) not in self.guards.part.pins:
            self.guards.part.pins.append(id(x))
            name, why = self.const(x), Reason(self.path(x), self.place())
            told = replace(why, read=f"lying({name})", seen=x.shown())
            kind = f"{name}._meta is not {self.const(x._meta)}"
            self.check(f"{kind} or {name}.form != {self.const(x.form)}", told)
            self._stored_of(x, name, True, why)

    def argument(self, name: str, value: Any, at: int | None = None) -> Any:
        """Take an argument; return what the function is to be given for it.  at: its slot, if it has one."""
        at = self.guards.slot() if at is None else at
        reason = Reason(name, self.guards.entry, f"S[{at}]", shown(value), (name, "argument"))
        if reason.slot in self.numbers.lift and liftable(value):
            self.guards.part.lines.append(f"v = S[{at}]")
            return self.numbers.in_slot(value, at, reason)
        plain = type(value) in ATOMS or self._pinnable(value, reason)
        if plain or self.is_known(value):
            self.note(f"S[{at}]", value, True, reason)
            return value
        self.known.add(value, f"S[{at}]", name)
        if issubclass(type(value), Tensor):
            if not of_lamina(type(value)):
                self.refuse(f"{name} is of a class of the user's own that derives from Tensor")
                return value
            if not is_lazy(value) and value._meta.device.type == "meta":
                self.refuse(f"{name} is on the meta device, and has no values")
                return value
            if issubclass(type(value), Compound) and not value.by_parts:
                self.refuse(f"{name} is a {value.what} tensor, which compiled code has none of")
                return value
            self.guards.part.lines.append(f"v = S[{at}]")
            self._slot_of(value, at, reason)
            return value
        self.guards.part.slots.append(at)
        self.check(f"type(S[{at}]) is not {self.const(type(value))}", reason)
        if issubclass(type(value), (np.ndarray, np.generic)):
            self.guards.meet_array(value, f"S[{at}]", reason)
        return value

    # ---- writing ----
    def effect_on(self, o: Any, what: str, function: Callable, *args: Any, **kwargs: Any) -> None:
        """Note what was done to an object, as `function(o, *args)`, unless the run made it.

        what: the text of a refusal where nothing leads to the object; its class stands for {}.
        """
        if o not in self.fresh:
            if self.source(o) is None:
                self.refuse(what.replace("{}", type(o).__name__) + " that nothing known leads to")
            self.effect(function, o, *args, **kwargs)

    def wrote(self, o: Any, kind: str, key: Any, value: Any = MISSING) -> None:
        """Note that this run has written a place, and the lifted number it put there."""
        self.put(o, kind, key, value)
        if o not in self.fresh:
            self.written.add(o, kind, key)

    # ---- afterwards ----
    def forget(self) -> None:
        """Let go of all objects of the run.  A generator of its that is closed later runs natively."""
        self.refuse("the run is over")
        for part in (self.known, self.fresh, self.shadow, self.sizes, self.written, self.guards):
            part.forget()
        self.recorder.forget()
