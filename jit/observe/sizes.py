"""Sizes that are symbols, as the interpreted run meets them: what stands for them, and what is guarded.

A size that keeps changing is a number of the guards (`LiftedInt`), and a symbol to the recorder of ops.
Here the two are kept together: what Python computes of sizes has an expression over slots and a dimension,
and what library code is given in their place are dimensions, while the tensors' own call gets bare numbers.
"""

from __future__ import annotations

import functools
import math
import operator
import re
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import inf
from typing import Any

from ...ir.dims import Condition, Dim, limits, maximum, minimum, symbol, symbols_of
from ...ir.errors import ArgumentError, ShapeError
from ...ir.shapes import dim_of
from ...runtime import Tensor
from ..facts import Refusal
from ..sized import slot_of
from ..symbolic import LEAST, UNKNOWN
from .guard_text import GuardText
from .heap import key_of
from .lifted_numbers import MOST, LiftedNumbers
from .numbers import LIFTED, LiftedInt, LiftedSize, lifted, raw
from .on_values import Answer, on_values
from .parts import Part, Reason
from .shadow import Shadow

_ARITHMETIC: dict[str, Callable] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod,
    "<<": lambda a, b: a * 2**b if type(b) is int and 0 <= b <= MOST_BITS else None,
    ">>": lambda a, b: a // 2**b if type(b) is int and 0 <= b <= MOST_BITS else None,
    "**": lambda a, b: math.prod([a] * b) if type(b) is int and 0 < b <= HIGHEST else None,
}  # fmt: skip
MOST_BITS, HIGHEST = 32, 4  # of a shift; power of a size that is a formula
# Functions that give an int as it is, and those that choose one.
_KEEPING: frozenset[Callable] = frozenset((int, round, math.floor, math.ceil, math.trunc))
_CHOOSING: dict[Callable, Callable] = {max: maximum, min: minimum}
_OWN_SLOT = re.compile(r"S\[(\d+)\]")
_SYMBOL = re.compile(r"\bs(\d+)\b")
_marked: dict[int, tuple[weakref.ref, dict[int, tuple[int, int | None]]]] = {}  # by the id of a tensor
DEEPEST = 8  # containers within one another that sizes are looked for in


def mark_dynamic(x: Tensor, dim: int, min: int = LEAST, max: int | None = None) -> None:
    """Say that a dimension of an argument varies: a traced function takes its size for a symbol at once.

    min, max: between which sizes it does.  Others are recorded by themselves, and so are sizes of 0 and 1.
    Raises ArgumentError, DimError.
    """
    if not isinstance(x, Tensor):
        raise ArgumentError(f"mark_dynamic(x, dim): takes a tensor, not {type(x).__name__}")
    if min < LEAST or max is not None and max < min:
        raise ArgumentError(
            f"mark_dynamic(min, max): sizes of at least {LEAST}, in order, not {min} and {max}"
        )
    mark(x, dim, min, max)


def mark(x: Tensor, dim: int, low: int, high: int | None) -> None:
    """The same, also from one on: where strides and what broadcasts are no concern of callers."""
    at, key = dim_of("mark_dynamic", dim, x.ndim), id(x)
    known = _marked.get(key)
    if known is None or known[0]() is not x:
        known = _marked[key] = weakref.ref(x, lambda _: _marked.pop(key, None)), {}
    known[1][at] = (low, high)


@contextmanager
def without_marks(tensors: Iterable[Tensor]) -> Iterator[None]:
    """Within this, tensors have no marks but those that are made meanwhile; behind it those from before."""
    kept = {id(x): _marked.get(id(x)) for x in tensors}
    try:
        for key in kept:
            _marked.pop(key, None)
        yield
    finally:
        for key, known in kept.items():
            _marked.pop(key, None)
            if known is not None and known[0]() is not None:
                _marked[key] = known


class Sizes:
    """The sizes of a run that are symbols.

    It makes guards of what the recorder of ops takes for granted about them.  every: whether all sizes of
    tensors in slots are symbols; None where none is.
    """

    def __init__(self, guards: GuardText, numbers: LiftedNumbers, shadow: Shadow):
        self.symbolic = symbolic = guards.recorder.symbolic
        this: Any = weakref.ref(self)  # or the parts and the whole would keep one another
        symbolic.need, symbolic.hold = lambda what: this()._need(what), lambda name: this()._hold(name)
        numbers.pinned = lambda expression: this()._guarded(expression)
        symbolic.answer = Answer(weakref.proxy(symbolic))
        self._guards, self._numbers, self._shadow = guards, numbers, shadow
        self.every: bool | None = False
        self._dims = symbolic.numbers
        self._parts: dict[int, Part] = {}  # the stretches that read sizes, by slot
        self._of: dict[str, tuple[str, Any, Any]] = {}  # what numbers are computed of: (operator, a, b)

    @property
    def _static(self) -> bool:
        return self.every is None

    @property
    def about(self) -> bool:
        """Whether any size is a symbol."""
        return self.symbolic.about and self._guards.recorder.reason is None

    # ---- numbers ----
    def marked(self, x: Tensor, dim: int) -> tuple[int, int | None] | None:
        """Between which sizes the user said that a dimension varies; None where that is not so."""
        known = _marked.get(id(x))
        if known is None or known[0]() is not x or dim not in known[1] or self._static:
            return None
        low, high = known[1][dim]
        return (
            (low, high)
            if low <= x._meta.shape[dim] and (high is None or x._meta.shape[dim] <= high)
            else None
        )

    def declare(
        self, expression: str, value: int, reason: Reason, within: tuple[int, int | None] | None = None
    ) -> Dim:  # fmt: skip
        """The symbol for a size that an expression gives.  within: the sizes that it may be."""
        at = self._guards.slot()
        self._guards.part.lines.append(f"v = S[{at}] = {expression}")
        low, high = within or (LEAST, None)
        self._guards.check(f"v < {low}" if high is None else f"not {low} <= v <= {high}", reason)
        self._numbers.name(at, reason.text)
        self._parts[at] = self._numbers.of_sizes[f"S[{at}]"] = self._guards.part
        dim = self._dims[f"S[{at}]"] = self.symbolic.declare(at, value, low, high)
        return dim

    def number(self, dim: int | Dim) -> int:
        """A size as Python is told it."""
        dim = self.symbolic.settled(dim)
        if not isinstance(dim, Dim):
            return dim
        text, value = self.text(dim), self.symbolic.value_of(dim)
        if text in self._dims:
            return lifted(value, text)
        made = self._numbers.computed(value, text)
        self._dims[made.expression] = dim
        return made

    def text(self, dim: int | Dim) -> str:
        """A size as an expression over slots."""
        return _SYMBOL.sub(r"S[\1]", str(dim))

    def is_size(self, x: Any) -> bool:
        """Whether a number is computed of sizes, by what dimensions know."""
        if type(x) is LiftedSize:
            return True
        return type(x) is LiftedInt and (x.expression in self._dims or self._may_be_symbol(x))

    def _may_be_symbol(self, x: LiftedInt) -> bool:
        """Whether a number that was computed of sizes, but is no dimension, can be a symbol of its own."""
        known = x.expression in self._numbers.of_sizes and _OWN_SLOT.fullmatch(x.expression) is not None
        return known and self.about and raw(x) >= LEAST and not self._numbers.is_guarded(x.expression)

    def _dim(self, x: Any) -> Any:
        """The dimension that a number is: one of its own where it was computed of sizes in another way."""
        known = self._dims.get(x.expression)
        if known is not None or type(x) is not LiftedInt or not self._may_be_symbol(x):
            return raw(x) if known is None else known
        return self._own(x, self._numbers.of_sizes[x.expression])

    def _own(self, x: LiftedInt, part: Part) -> Dim:
        """The symbol that a number is by itself.  part: the stretch that has it in a slot."""
        text, at = x.expression, slot_of("s" + x.expression[2:-1])
        words = f"whether {LEAST} <= {self._numbers.in_words(text)} < {MOST}"
        self._parts[at] = part
        self._guards.check(f"not {LEAST} <= {text} < {MOST}", Reason(words, self._guards.place()), part=part)
        dim = self._dims[text] = self.symbolic.declare(at, raw(x))
        return dim

    def computed(self, symbol: str, a: Any, b: Any, made: Any) -> None:
        """Note that a number was computed of two, of which one may be a size."""
        if type(made) is not LiftedInt or symbol not in _ARITHMETIC or made.expression in self._dims:
            return
        self._of.setdefault(made.expression, (symbol, a, b))
        sides = [self._dims.get(x.expression) if type(x) is LiftedInt else x for x in (a, b)]
        if None in sides or not all(type(x) in (int, Dim) for x in sides):
            return
        if symbol in ("//", "%") and self.symbolic.bounds(sides[1])[0] < 1:
            return  # as a dimension can't be divided
        self._note(made, _ARITHMETIC[symbol], *sides)

    def _note(self, made: LiftedInt, function: Callable, *sides: Any) -> None:
        """Note that a number is what a function makes of sizes, if that is a dimension."""
        try:
            with limits(self.symbolic.limits):
                dim = function(*sides)
        except (ShapeError, ArithmeticError):
            return
        if isinstance(dim, Dim):
            self._dims[made.expression] = dim

    def of_function(self, function: Callable, args: Sequence[Any], made: Any) -> None:
        """Note that a number is what a function of numbers gave, some of which may be sizes."""
        if type(made) is not LiftedInt or made.expression in self._dims:
            return
        sides = [self._dims.get(x.expression) if type(x) is LiftedInt else x for x in args]
        if not all(type(x) in (int, Dim) for x in sides):
            return
        if function in _CHOOSING and len(sides) > 1:
            self._note(made, lambda *sides: functools.reduce(_CHOOSING[function], sides), *sides)
        elif function in _KEEPING and len(sides) == 1 or function is sum:
            self._note(made, lambda *sides: sum(sides), *sides)
        elif function is abs and self.symbolic.bounds(sides[0])[0] >= 0:
            self._note(made, lambda side: side, *sides)

    def open(self, number: LiftedInt) -> bool:
        """Have a number that changes be a size, as where a slice ends; whether it is.

        It is an expression over symbols for what it is computed of, or a symbol itself.
        """
        text = number.expression
        if text in self._dims:
            return True
        if self._static or self._guards.recorder.reason is not None or not self._numbers.may_open(text):
            return False
        if text in self._of:
            symbol, a, b = self._of[text]
            for side in (a, b):
                if type(side) is LiftedInt and not self.open(side):
                    self._numbers.alone(side)
            bare = [raw(x) if type(x) is LiftedInt and x.expression not in self._dims else x for x in (a, b)]
            self.computed(symbol, bare[0], bare[1], number)
            if text in self._dims:
                return True
            if not any(type(x) is LiftedInt for x in bare):
                self._numbers.alone(number)
                return False
        if raw(number) < LEAST:
            self._numbers.alone(number)
            return False
        part = next(p for p in self._guards.parts if any(text in line for line in p.lines))
        self.symbolic.numbered.update(symbols_of(self._own(number, part)))
        return True

    def opened(self, x: Any) -> Any:
        """A number as it is where it is a size, or else as it is this once."""
        return self._numbers.plain(x) if type(x) is LiftedInt and x.expression not in self._dims else x

    def open_all(self, *values: Any) -> None:
        """Have all whole numbers that change, among values and in them, be sizes where they can be."""
        for value in values:
            for number in self._lifted(value, DEEPEST):
                if type(number) is LiftedInt:
                    self.open(number)

    def is_apart(self, a: LiftedInt, b: LiftedInt) -> bool:
        """Whether two numbers may well differ by the same at each call, as far as is known."""
        roots = [self._roots(x) for x in (a, b)]
        if all(roots) and roots[0] == roots[1] and len(roots[0]) == 1:
            return self._factor(a) == self._factor(b)
        return not all(roots) or bool(roots[0] & roots[1])

    def _factor(self, x: Any) -> int | None:
        """How much a number grows with the one that it is computed of; None where that is not known."""
        if type(x) is not LiftedInt:
            return 0
        of = self._of.get(x.expression)
        if of is None:
            return 1
        symbol, a, b = of
        one, other = self._factor(a), self._factor(b)
        if one is None or other is None:
            return None
        if symbol in "+-":
            return one + other if symbol == "+" else one - other
        if symbol == "*" and 0 in (one, other):
            return one * raw(b) + other * raw(a)
        return 0 if one == other == 0 else None

    def _roots(self, x: Any) -> set[str]:
        """The numbers that one is computed of, by their expressions."""
        if type(x) is not LiftedInt:
            return set()
        of = self._of.get(x.expression)
        return {x.expression} if of is None else self._roots(of[1]) | self._roots(of[2])

    def decides(self, symbol: str, a: Any, b: Any) -> bool:
        """Whether a comparison of sizes has one answer, whatever they are."""
        sides = [self._dims.get(x.expression) if type(x) is LiftedInt else x for x in (a, b)]
        if not all(type(x) in (int, Dim) for x in sides):
            return False
        difference = self.symbolic.settled(sides[0]) - self.symbolic.settled(sides[1])
        low, high = self.symbolic.bounds(difference)
        if low == high or low > 0 or high < 0:
            return True
        return low >= 0 if symbol in ("<", ">=") else high <= 0 if symbol in ("<=", ">") else False

    # ---- what tensors tell ----
    def shape(self, x: Tensor) -> list[int] | None:
        """The sizes of a tensor as Python is told them, if one is a symbol."""
        shape = self.symbolic.shape(x) if self.about else None
        return None if shape is None else [*map(self.number, shape)]

    def total(self, x: Tensor) -> int | None:
        """The number of elements of such a tensor."""
        shape = self.symbolic.shape(x) if self.about else None
        if shape is None:
            return None
        total: int | Dim = 1
        for n in shape:
            total = total * n
        return self.number(total)

    # ---- calls ----
    def concern(self, *values: Any) -> bool:
        """Whether tensors whose sizes are symbols, or such sizes, are among values or in them."""
        return self.about and any(self._concerns(x, DEEPEST) for x in values)

    def _concerns(self, x: Any, deep: int) -> bool:
        if isinstance(x, Tensor):
            return self.symbolic.concerns(x)
        if type(x) in (LiftedInt, LiftedSize):
            return self.is_size(x)
        if not deep:
            return False
        return any(self._concerns(each, deep - 1) for each in self._inside(x))

    def _inside(self, x: Any) -> list[Any]:
        """What a container holds, lifted numbers as they are."""
        if type(x) is LiftedSize:
            return x.items
        if type(x) in (tuple, list):
            return [self._standing(x, "item", at, value) for at, value in enumerate(x)]
        if type(x) is dict:
            return [self._standing(x, "item", key, value) for key, value in x.items()]
        if type(x) is slice:
            return [self._standing(x, "attr", n, getattr(x, n)) for n in ("start", "stop", "step")]
        return []

    def _standing(self, o: Any, kind: str, key: Any, value: Any) -> Any:
        found = self._shadow.standing(o, kind, key_of(key))
        return value if found is None else found

    def are_sizes(self, *values: Any) -> bool:
        """Whether the lifted numbers among values are all sizes."""
        return all(self.is_size(x) for value in values for x in self._lifted(value, DEEPEST))

    def _lifted(self, x: Any, deep: int) -> list[Any]:
        if type(x) in LIFTED:
            return [x]
        return [found for each in self._inside(x) for found in self._lifted(each, deep - 1)] if deep else []

    def dimension(self, x: Any) -> Any:
        """What library code is given for a value when it is called on symbols."""
        if isinstance(x, Tensor):
            return self.symbolic.shown(x)
        if type(x) in LIFTED and type(x) is not LiftedSize:
            return self._dim(x)
        if type(x) in (tuple, list, LiftedSize):
            items = [*map(self.dimension, self._inside(x))]
            return items if type(x) is list else tuple(items)
        if type(x) is dict:
            return dict(zip(x, map(self.dimension, self._inside(x))))
        return slice(*map(self.dimension, self._inside(x))) if type(x) is slice else x

    def call(
        self,
        function: Callable,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        again: Callable | None = None,
    ) -> Any:
        """Call what runs natively, on tensors; and on symbols, which says what it does for other sizes.

        again: the same as written for values.  Numbers among its results that are sizes are told as such.
        """
        args, kwargs = tuple(args), dict(kwargs)
        bare = tuple(map(raw, args)), {k: raw(v) for k, v in kwargs.items()}
        try:
            given = self.dimension(args), self.dimension(kwargs)
        except Refusal:  # so will the recorder of ops say
            return function(*bare[0], **bare[1])
        made, told = self.symbolic.call(function, *bare, again or function, given)
        if told is UNKNOWN:
            for value in (*args, *kwargs.values()):
                for number in self._lifted(value, DEEPEST):
                    self._numbers.plain(number)
            return made
        return self._told(made, told)

    def assign(self, o: Tensor, k: Any, value: Any) -> None:
        """`o[k] = value` on tensors and on symbols.  A number is an operand, and stays as it is."""
        try:
            given = self.dimension(o), self.dimension(k), self._operand(value)
        except Refusal:  # so will the recorder of ops say
            o[raw(k)] = value
            return
        again = on_values(vars(Tensor)["__setitem__"])
        _, told = self.symbolic.call(operator.setitem, (o, raw(k), value), {}, again, (given, {}))
        if told is UNKNOWN:
            for number in self._lifted(k, DEEPEST):
                self._numbers.plain(number)

    def _operand(self, x: Any) -> Any:
        return self.symbolic.shown(x) if isinstance(x, Tensor) else raw(x)

    def raised(self, error: BaseException) -> None:
        """What isn't Python code raised an error that is handled: it may have done so for what sizes are."""
        self.symbolic.pin_all(f"{type(error).__name__} was raised and handled")

    def cast(self, function: Callable, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call what changes dtypes or copies, and takes nothing of sizes."""
        self.symbolic.catch_up(len(self._guards.recorder.steps))
        made = function(
            *map(self._numbers.plain, args), **{k: self._numbers.plain(v) for k, v in kwargs.items()}
        )
        if isinstance(made, Tensor):
            self.symbolic.before_step()
        return made

    def operator(self, run: Callable, plain: Callable, operands: Sequence[Any]) -> Any:
        """An operator on tensors: numbers are operands, and stay as they are to the recorder of ops."""
        try:
            given = [*map(self._operand, operands)]
        except Refusal:
            return run(*operands)
        made, _ = self.symbolic.call(run, operands, {}, plain, (tuple(given), {}))
        return made

    def _told(self, made: Any, told: Any) -> Any:
        """A result in which sizes are told as sizes."""
        return self.number(told) if isinstance(told, Dim) and type(made) is int else made

    # ---- for a reader ----
    def told(self) -> tuple[str, ...]:
        """What each size that keeps changing is, for a reader: a symbol, another, or a number, and why."""
        symbolic, found = self.symbolic, []
        for name in symbolic.slots:
            size = self._words(symbol(name))
            if name in symbolic.pinned:
                found.append(f"{size} is {symbolic.sizes[name]} alone: {symbolic.pinned[name]}")
            elif name in symbolic.equal:
                found.append(f"{size} is {self._words(symbolic.equal[name])}")
            else:
                low, high = symbolic.limits[name]
                found.append(f"{size} is any size from {low} {'on' if high == inf else f'to {high}'}")
        for condition in dict.fromkeys(map(symbolic.settled_condition, symbolic.builder.conditions)):
            left, right = map(self._words, (condition.left, condition.right))
            if symbols_of(condition.left) | symbols_of(condition.right) and left != right:
                found.append(f"where {left} {condition.relation} {right}")
        return tuple(found)

    def _words(self, dim: int | Dim) -> str:
        return self._numbers.in_words(self.text(dim))

    # ---- afterwards ----
    def let_go(self) -> None:
        """Hold on to nothing from here on, after a refusal."""
        self.symbolic.forget()
        self._dims.clear()

    forget = let_go

    # ---- guards ----
    def _need(self, condition: Condition) -> None:
        left, right = self.text(condition.left), self.text(condition.right)
        words = self._numbers.in_words(f"{left} {condition.relation} {right}")
        slots = [slot_of(name) for name in symbols_of(condition.left) | symbols_of(condition.right)]
        self._guards.check(
            f"not {left} {condition.relation} {right}", f"whether {words}", part=self._latest(slots)
        )

    def _latest(self, slots: Sequence[int]) -> Part | None:
        """The first stretch that has what these slots hold: what ran there took the same for granted."""
        parts = [self._parts[at] for at in slots if at in self._parts]
        every = self._guards.parts
        return max(
            parts, key=lambda part: next(n for n, own in enumerate(every) if own is part), default=None
        )

    def _hold(self, name: str) -> None:
        at, value = self.symbolic.slots[name], self.symbolic.sizes[name]
        text = f"S[{at}]"
        reason = Reason(self._numbers.in_words(text), self._guards.place(), text, str(value))
        self._guards.check(f"{text} != {value}", reason, part=self._latest([at]))

    def _guarded(self, expression: str) -> None:
        """The value of a number is guarded: of a size's symbols nothing is left open."""
        dim = self._dims.get(expression)
        if isinstance(dim, Dim) and str(dim) in self.symbolic.sizes:
            self.symbolic.pin([str(dim)], "its value was asked for")
