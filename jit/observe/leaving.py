"""Answers that only leave the run: results of a recording, which divide nothing.

`loss.item()` ends a stretch of a recording, as what Python does with the number may be anything.  Where it
was only returned, stored, added up, printed or formatted, nothing of the run hangs on it: the stretches
before and after are one, and the number is read off a result when the run's effects come.  Lines that compute
of it go there with it.  Nothing may fail by then, as the work is done: answers stay questions where a guard
looks at what was made of them, where an op takes it, or where computing it may raise.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ..recorder import Question
from ..sources import Answer, Lifted
from .guard_text import GuardText

_SLOT = re.compile(r"S\[\d+\]")
_FILLS = re.compile(r"v = (S\[\d+\])(?: = (.*))?", re.DOTALL)
_CLASS = re.compile(r"if type\(v\) is not \w+(?: or not -\d+ < v < \d+)?: return \d+")
_SURE = frozenset((format, str, repr, abs, len))  # which raise for no number, nor for its text
_NODES = (
    ast.Expression, ast.BinOp, ast.UnaryOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod,
    ast.USub, ast.UAdd, ast.Subscript, ast.Constant, ast.Name, ast.Load, ast.Tuple, ast.Call,
)  # fmt: skip


def let_leave(recorder: Any, guards: GuardText) -> list[str]:
    """Make results of the answers that only leave; returns the lines that compute of them, in order.

    Their questions are marked so, and count no more; the parts around them become one.
    """
    questions = [step for step in recorder.steps if isinstance(step, Question)]
    sure = [(at, q) for at, q in enumerate(questions) if q.slot is not None and _is_sure(recorder, q)]
    asked = {f"S[{q.slot}]": at for at, q in sure}
    if not asked or len(guards.parts) <= 1:
        return []
    hangs, looked_at = _followed(guards, asked)
    given = [x.expression for x in recorder.params.values() if isinstance(x, Lifted)]
    looked_at.update(at for text in given for at in _of(text, hangs))
    leaving = {at for at in asked.values() if at not in looked_at}
    if not leaving:
        return []
    gone = {slot for slot, answers in hangs.items() if answers & leaving}
    after = _divided(guards, gone)
    told = [questions[at] for at in sorted(leaving)]  # whose tensors come last among those of an outcome
    after[:0] = [f"S[{q.slot}] = told({q.how!r}, T[{n - len(told)}])" for n, q in enumerate(told)]
    _joined(guards, leaving)
    _counted_anew(recorder, questions, leaving)
    return after


def _is_sure(recorder: Any, question: Question) -> bool:
    """Whether an answer can be read at any time, and is of one class whatever it is."""
    if question.op is not None or question.attrs is not None:
        return False
    dtype = recorder.types[question.inputs[0]].dtype
    return question.how in ("item", "tolist", "float") or (question.how == "int" and not dtype.inexact)


def _of(text: str, hangs: dict[str, set[int]]) -> set[int]:
    """The answers that an expression hangs on."""
    return set().union(*(hangs.get(slot, ()) for slot in _SLOT.findall(text)))


def _followed(guards: GuardText, asked: dict[str, int]) -> tuple[dict[str, set[int]], set[int]]:
    """What each slot hangs on, by answers; and the answers that must be there before the work is done."""
    hangs = {slot: {at} for slot, at in asked.items()}
    looked_at: set[int] = set()
    for part in guards.parts:
        looked_at |= _of("\n".join(part.later), hangs)
        now: set[int] = set()  # what `v` hangs on
        told = False  # whether it is an answer, or an item of one
        for line in part.lines:
            if (fills := _FILLS.fullmatch(line)) is not None:
                slot, text = fills[1], fills[2]
                now = _of(text or slot, hangs)
                told = text is None or _is_item(text, asked)
                if text is not None and now:
                    hangs[slot] = now
                    looked_at |= set() if _cannot_raise(text, guards) else now
            elif line.startswith("v = "):
                now, told = _of(line, hangs), False
                looked_at |= now
            elif not (told and _CLASS.fullmatch(line)):
                looked_at |= _of(line, hangs) | (now if re.search(r"\bv\b", line) else set())
    return hangs, looked_at


def _is_item(text: str, asked: dict[str, int]) -> bool:
    return re.sub(r"(\[\d+\])+$", "", text.removeprefix("S")) == "" and text[: text.index("]") + 1] in asked


def _cannot_raise(text: str, guards: GuardText) -> bool:
    """Whether an expression gives something whatever the numbers in the slots are."""
    for node in ast.walk(ast.parse(text, mode="eval")):
        if isinstance(node, ast.Attribute):  # of a text that stands there
            if not isinstance(node.value, ast.Constant) or node.attr not in ("join", "format"):
                return False
        elif not isinstance(node, _NODES):
            return False
        if isinstance(node, ast.Call) and not isinstance(node.func, ast.Attribute):
            called = getattr(node.func, "id", None)
            if called != "float" and guards.named.get(called) not in _SURE:
                return False
    return True


def _divided(guards: GuardText, gone: set[str]) -> list[str]:
    """Take the lines out that hang on what leaves; those that fill slots are returned."""
    after = []
    for part in guards.parts:
        kept, now = [], False
        for line in part.lines:
            if (fills := _FILLS.fullmatch(line)) is not None:
                now = fills[1] in gone
                if now and fills[2] is not None:
                    after.append(f"{fills[1]} = {fills[2]}")
            elif not _CLASS.fullmatch(line):
                now = False
            if not now:
                kept.append(line)
        part.lines[:] = kept
    return after


def _joined(guards: GuardText, leaving: Iterable[int]) -> None:
    """Have the part behind each of these questions go on the one before it."""
    for at in sorted(leaving, reverse=True):
        if at + 1 < len(guards.parts):
            guards.parts[at].go_on(guards.parts.pop(at + 1))


def _counted_anew(recorder: Any, questions: list[Question], leaving: set[int]) -> None:
    """Mark what leaves, and count the other questions without it."""
    left = {id(questions[at]) for at in leaving}
    recorder.steps[:] = [replace(s, leaves=True) if id(s) in left else s for s in recorder.steps]
    recorder.asked -= len(leaving)
    for value, source in recorder.params.items():
        if isinstance(source, Answer):
            before = sum(at < source.question for at in leaving)
            recorder.params[value] = replace(source, question=source.question - before)
