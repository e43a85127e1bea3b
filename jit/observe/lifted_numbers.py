"""The lifted numbers of a run: what each is to a reader, what was computed of them, and which are guarded."""

from __future__ import annotations

import re
from typing import Any

from ..facts import shown
from .guard_text import GuardText
from .numbers import LIFTED, lifted, raw
from .parts import Reason, place_text

WEIGHTS = 2  # changes of a captured tensor before it is an input, of which nothing is computed ahead
MOST = 1 << 53  # of lifted ints: all below are floats too
LONGEST = 80  # characters of what a reader is told of a computed number
_SLOT = re.compile(r"S\[\d+\]")


def liftable(value: Any) -> bool:
    """Whether a plain value can be an input of a recording."""
    return type(value) is float or type(value) is int and -MOST < value < MOST


class LiftedNumbers:
    """The numbers that are inputs of a recording, and what Python computes of them.

    Each stands in a slot of its own, whose name is its whole expression: nothing nests, and what is computed
    in one way has one slot.  Whoever was told the bare value of one is behind a guard of it (`plain`).

    lift: the slots (`Reason.slot`) that are known to change, and how often they did.  about: whether there
    are lifted numbers.  picked: parts of tensors at places that change, see indices.py.  held: the answers
    of which the value is guarded after all, which the run adds to.
    """

    def __init__(self, guards: GuardText, lift: dict[tuple, int], held: set[tuple]):
        self.lift, self.held = lift, held
        self.about = False
        self.picked: list[Any] = []
        self._words: dict[int, str] = {}  # what stands in the slots, for a reader
        self._computed: dict[str, Any] = {}  # by what they are computed with
        self._guarded: set[str] = set()  # expressions of which the value is guarded
        self._answers: dict[str, set[tuple]] = {}  # to questions, of which what a slot holds is computed
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

    def in_slot(self, value: Any, at: int, reason: Reason) -> Any:
        """The number in a slot, named `v` so far, lifted: of its class, and an int that a float can hold."""
        self._words[at] = reason.text
        self.about = True
        kind = type(value).__name__
        limit = f" or not -{MOST} < v < {MOST}" if kind == "int" else ""
        self._guards.check(f"type(v) is not {kind}{limit}", reason)
        return lifted(value, f"S[{at}]")

    def answer(self, value: Any, asked: int) -> Any:
        """What Python was just told of a tensor: an input of what follows, until something asks its value.

        asked: how many questions there were before; where there is none more, nothing was asked.
        """
        recorder = self._guards.recorder
        if self.refused or recorder.asked == asked:
            return value
        step = recorder.steps[-1]
        line = place_text(step.place)
        at, slot = f"the answer to {step.how}() ({line})", (line, "answer")
        if slot in self.held or not liftable(value):
            return value
        number = self._guards.slot()
        recorder.lift_answer(number)
        self._answers[f"S[{number}]"] = {slot}
        self._guards.part.lines.append(f"v = S[{number}]")
        return self.in_slot(value, number, Reason(at, step.place, f"S[{number}]", shown(value), slot))

    def plain(self, value: Any) -> Any:
        """The bare number; one that was lifted is guarded from here on."""
        if type(value) in LIFTED:
            bare, expression = raw(value), value.expression
            self.held |= self._answers.get(expression, set())
            if expression not in self._guarded and not self.refused:
                self._guarded.add(expression)
                words, place = self.in_words(expression), self._guards.place()
                self._guards.check_plain(expression, bare, Reason(words, place, expression, shown(bare)))
            return bare
        return value

    def computed(self, value: Any, expression: str, closed: bool = True) -> Any:
        """A number that Python computed of lifted ones, lifted too; equal expressions share a slot.

        closed: whether numbers of these classes always give one of this class; else that is guarded.
        """
        standing = self._computed.get(expression)
        if standing is None:
            at, words = self._guards.slot(), self.in_words(expression)
            self._words[at] = f"({words if len(words) <= LONGEST else words[: LONGEST - 3] + '...'})"
            self._guards.part.lines.append(f"v = S[{at}] = {expression}")
            if not closed:
                kind = type(value).__name__
                self._guards.check(f"type(v) is not {kind}", f"the class of {self._words[at]}")
            standing = self._computed[expression] = lifted(value, f"S[{at}]")
            told = set().union(*(self._answers.get(part, ()) for part in _SLOT.findall(expression)))
            if told:
                self._answers[standing.expression] = told
        return standing

    def in_words(self, expression: str) -> str:
        """An expression over slots with what a reader calls their numbers."""
        text = re.sub(r"S\[(\d+)\]", lambda found: self._words.get(int(found[1]), found[0]), expression)
        named = self._guards.named
        return re.sub(r"\bk\d+_", lambda found: getattr(named.get(found[0]), "__name__", found[0]), text)
