"""The lifted numbers of a run: what each is to a reader, what was computed of them, and which are guarded."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ...ir.dtypes import int64
from ..facts import Refusal, shown
from ..sources import Lifted
from .guard_text import GuardText
from .numbers import LIFTED, LiftedInt, LiftedSize, lifted, raw
from .parts import Part, Reason, place_text

WEIGHTS = 2  # changes of a captured tensor before it is an input, of which nothing is computed ahead
MOST = 1 << 53  # of lifted ints: all below are floats too
LONGEST = 80  # characters of what a reader is told of a computed number
_SLOT = re.compile(r"S\[\d+\]")


def liftable(value: Any) -> bool:
    """Whether a plain value can be an input of a recording."""
    return type(value) is float or type(value) is int and -MOST < value < MOST


def _leaves(value: Any) -> Iterator[Any]:
    """The values in lists of lists."""
    if type(value) is not list:
        yield value
    else:
        for each in value:
            yield from _leaves(each)


def _nothing(expression: str) -> None:
    pass


class Clocks:
    """What clocks told a run, and what was computed of that: nothing that the run does may hang on it.

    told: the slots, and why they can be no more than handed out.  after: the lines that fill those of clocks
    that are asked after the work, before the run's effects.
    """

    def __init__(self, guards: GuardText):
        self.told: dict[str, Reason] = guards.clocks
        self.after: list[str] = []
        self._late: dict[str, int] = {}  # the slots that `after` fills, and after how many steps

    def is_late(self, slots: Iterable[str]) -> bool:
        """Whether one of some slots is filled after the work."""
        return bool(self._late) and not self._late.keys().isdisjoint(slots)

    def fill(self, slot: str, text: str, steps: int) -> None:
        """Have an expression fill a slot after the work, of which there were so many steps."""
        self.after.append(f"{slot} = {text}")
        self._late[slot] = steps

    def hang(self, slot: str, others: Iterable[str]) -> None:
        """Note that a slot is computed of others."""
        why = next((self.told[other] for other in others if other in self.told), None)
        if why is not None:
            self.told[slot] = why

    def settle(self, recorder: Any, parts: Iterable[Part]) -> None:
        """Look whether the late ones were asked after all work, and no work hangs on any.  Raises Refusal."""
        given = [x.expression for x in recorder.params.values() if isinstance(x, Lifted)]
        for slot, why in self.told.items():
            if any(slot in text for text in given):
                raise Refusal(_with_place(why))
        lines = [line for part in parts for line in (*part.lines, *part.later)]
        for slot, steps in self._late.items():
            if any(map(recorder.is_work, recorder.steps[steps:])):
                raise Refusal(f"it is the middle of the work where {_with_place(self.told[slot])}")
            if any(slot in line for line in lines):
                raise Refusal(_with_place(self.told[slot]))


def _with_place(why: Reason) -> str:
    assert why.place is not None
    return f"{why.text} ({place_text(why.place)})"


_FEW = 4  # sums that lead from one tensor to another whose number is asked for
_NEAR = 1 << 40  # what is added to such a number at most


def _sum(recorder: Any, x: Any) -> tuple[int, int] | None:
    """The value, and the number, whose sum an integer is; None where a write may come between."""
    if recorder.reason is not None or x._meta.shape or x._meta.dtype is not int64:
        return None
    value, more = recorder.known(x._data), 0
    if value is None:
        return None
    for _ in range(_FEW):
        if recorder.root(value)[0] in recorder.written:
            return None
        event = recorder.made_by(value)
        if event is None or event.op.name not in ("add", "sub") or event.attrs:
            break
        one, other = event.inputs
        if event.op.name == "add" and one in recorder.constants:
            one, other = other, one
        constant = recorder.constants.get(other)
        if constant is None or constant.shape or constant.dtype.kind != "i" or abs(int(constant)) > _NEAR:
            break
        more += int(constant) if event.op.name == "add" else -int(constant)
        value = one
    return value, more


class LiftedNumbers:
    """The numbers that are inputs of a recording, and what Python computes of them.

    Each stands in a slot of its own, whose name is its whole expression: nothing nests, and what is computed
    in one way has one slot.  Whoever was told the bare value of one is behind a guard of it (`plain`).

    lift: the slots (`Reason.slot`) that are known to change, and how often they did. about: whether there
    are lifted numbers. of_sizes: expressions of sizes alone, by the stretches that compute them. picked:
    parts of tensors at places that change, see indices.py. held: the answers of which the value is
    guarded after all, which the run adds to. clocks: what clocks told.
    """

    def __init__(self, guards: GuardText, lift: dict[tuple, int], held: set[tuple]):
        self.lift, self.held = lift, held
        self.about = False
        self.of_sizes: dict[str, Part] = {}
        self.picked: list[Any] = []
        self.clocks = Clocks(guards)
        self.pinned: Callable[[str], None] = _nothing  # told each expression whose value is guarded
        self._words: dict[int, str] = {}  # what stands in the slots, for a reader
        self._computed: dict[str, Any] = {}  # by what they are computed with
        self._guarded: set[str] = set()  # expressions of which the value is guarded
        self._answers: dict[str, set[tuple]] = {}  # to questions, of which what a slot holds is computed
        self._never: dict[str, str] = {}  # answers that are never the same, and what is computed of them
        self._small: set[str] = set()  # expressions that are guarded as cases of their own
        self._told: dict[int, tuple[Any, int]] = {}  # answers, by the values that they are, and a number more
        self._guards = guards

    @property
    def refused(self) -> bool:
        """Whether the run goes on without a recording."""
        return self._guards.recorder.reason is not None

    def read(self, expression: str, value: Any, reason: Reason) -> Any:
        """The lifted number that stands where an expression reads it."""
        at = self._guards.slot()
        self._guards.part.lines.append(f"v = S[{at}] = {expression}")
        return self.in_slot(value, at, reason)

    def name(self, at: int, words: str) -> None:
        """Say what a reader calls the number in a slot."""
        self._words[at], self.about = words, True

    def in_slot(self, value: Any, at: int, reason: Reason) -> Any:
        """The number in a slot, named `v` so far, lifted: of its class, and an int that a float can hold."""
        self._words[at] = reason.text
        self.about = True
        kind = type(value).__name__
        limit = f" or not -{MOST} < v < {MOST}" if kind == "int" else ""
        self._guards.check(f"type(v) is not {kind}{limit}", reason)
        return lifted(value, f"S[{at}]")

    def answer(self, value: Any, asked: int, why: str | None = None) -> Any:
        """What Python was just told of a tensor: an input of what follows, until something asks its value.

        value: a number, or lists of them.  asked: how many questions there were before; where there is none
        more, nothing was asked.  why: what a refusal says where something does ask the value, of an answer
        that is never the same.
        """
        recorder = self._guards.recorder
        if self.refused or recorder.asked == asked:
            return value
        step = recorder.steps[-1]
        line = place_text(step.place)
        words = f"the answer to {step.how}()" if step.attrs is None else f"what {step.how}() drew"
        about, slot = f"{words} ({line})", (line, "answer")
        if slot in self.held or not all(map(liftable, _leaves(value))):
            return value
        number = self._guards.slot()
        recorder.lift_answer(number)

        def told(value: Any, at: int, text: str) -> Any:
            self._answers[f"S[{at}]"] = {slot}
            if why is not None:
                self._never[f"S[{at}]"] = why
            self._guards.part.lines.append(f"v = {text}")
            return self.in_slot(value, at, Reason(about, step.place, f"S[{at}]", shown(value), slot))

        def each(values: list, text: str) -> list:
            made = []
            for i, v in enumerate(values):
                if type(v) is list:
                    made.append(each(v, f"{text}[{i}]"))
                else:
                    at = self._guards.slot()
                    made.append(told(v, at, f"S[{at}] = {text}[{i}]"))
            return made

        text = f"S[{number}]"
        return each(value, text) if type(value) is list else told(value, number, text)

    def keep(self, recorder: Any, x: Any, number: Any) -> None:
        """Note which number a tensor of one integer holds, as was just answered."""
        if type(number) is LiftedInt and (of := _sum(recorder, x)) is not None:
            self._told[of[0]] = number, of[1]

    def known(self, recorder: Any, x: Any) -> tuple[Any, int] | None:
        """An answer that was given, and what is to be added to it for the number that x holds."""
        of = _sum(recorder, x) if self._told else None
        if of is None or of[0] not in self._told:
            return None
        number, more = self._told[of[0]]
        return number, of[1] - more

    def clock(self, name: str, value: Any, text: str) -> Any:
        """What a clock tells, which may leave the run: read before its work, or after it.

        name: how a refusal begins.  text: the expression that asks the clock.
        """
        if self.refused:
            return value
        recorder, at = self._guards.recorder, self._guards.slot()
        slot = f"S[{at}]"
        if recorder.asked or any(map(recorder.is_work, recorder.steps)):
            self.clocks.fill(slot, text, len(recorder.steps))
        else:
            self._guards.part.lines.append(f"{slot} = {text}")
        self._words[at], self.about = name, True
        self.clocks.told[slot] = Reason(name, self._guards.place())
        return lifted(value, slot)

    def may_read(self, number: Any) -> bool:
        """Whether what stands at a place that a number tells can be read by the guards."""
        return number.expression not in self.clocks.told and number.expression not in self._never

    def may_open(self, expression: str) -> bool:
        """Whether what a number is may be left open: nobody was told its value, and it will come again."""
        known = expression in self.clocks.told or expression in self._never or expression in self._guarded
        return not known

    def alone(self, number: Any) -> int:
        """The bare number of one that is guarded this once: what others would be is left open."""
        self._small.add(number.expression)
        return self.plain(number)

    def plain(self, value: Any) -> Any:
        """The bare number; one that was lifted is guarded from here on."""
        if type(value) is LiftedSize:
            for n in value.items:
                self.plain(n)
            return value.bare
        if type(value) in LIFTED:
            bare, expression = raw(value), value.expression
            if expression in self.clocks.told:
                self._guards.refuse(self.clocks.told[expression].text)
                return bare
            if expression in self._never:
                self._guards.refuse(self._never[expression])
                return bare
            if expression not in self._small:
                self.held |= self._answers.get(expression, set())
            if expression not in self._guarded and not self.refused:
                self._guarded.add(expression)
                words, place = self.in_words(expression), self._guards.place()
                self._guards.check_plain(expression, bare, Reason(words, place, expression, shown(bare)))
                self.pinned(expression)
            return bare
        return value

    def is_guarded(self, expression: str) -> bool:
        """Whether the value of a lifted number is guarded."""
        return expression in self._guarded

    def computed(self, value: Any, expression: str, closed: bool = True) -> Any:
        """A number that Python computed of lifted ones, lifted too; equal expressions share a slot.

        closed: whether numbers of these classes always give one of this class; else that is guarded.
        """
        standing = self._computed.get(expression)
        if standing is None:
            at, words = self._guards.slot(), self.in_words(expression)
            self._words[at] = f"({words if len(words) <= LONGEST else words[: LONGEST - 3] + '...'})"
            slots = _SLOT.findall(expression)
            self.clocks.hang(f"S[{at}]", slots)
            late = self.clocks.is_late(slots)
            if late:
                self.clocks.fill(f"S[{at}]", expression, len(self._guards.recorder.steps))
            else:
                self._guards.part.lines.append(f"v = S[{at}] = {expression}")
            if late and not closed:  # of a class that can't be guarded any more
                self._guards.refuse(self.clocks.told[f"S[{at}]"].text)
            elif not closed:
                kind = type(value).__name__
                self._guards.check(f"type(v) is not {kind}", f"the class of {self._words[at]}")
            standing = self._computed[expression] = lifted(value, f"S[{at}]")
            if slots and not late and all(slot in self.of_sizes for slot in slots):
                self.of_sizes[f"S[{at}]"] = self._guards.part
            told = set().union(*(self._answers.get(slot, ()) for slot in slots))
            if told:
                self._answers[standing.expression] = told
            if why := next((self._never[slot] for slot in slots if slot in self._never), None):
                self._never[standing.expression] = why
        return standing

    def in_words(self, expression: str) -> str:
        """An expression over slots with what a reader calls their numbers."""
        text = re.sub(r"S\[(\d+)\]", lambda found: self._words.get(int(found[1]), found[0]), expression)
        named = self._guards.named
        return re.sub(r"\bk\d+_", lambda found: getattr(named.get(found[0]), "__name__", found[0]), text)
