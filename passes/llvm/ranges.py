"""The integers of a function in the making, and what is known of them: the least and the greatest of each.

    %v1 = urem i64 %u, 6            0 to 5
    %v2 = mul nsw i64 %v1, 16       0 to 80

Every address that a generator emits is proven to stay inside of its array by these before the text is used
(`memory.py` dimension by dimension, `conv_function.py` for code that counts floats).  An integer's range
follows from what it was computed from; what follows from more than that (a loop that ends where the image
does) the generator declares, where it writes the loop, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NewType

Name = NewType("Name", str)  # the SSA name of an i64
Int = Name | int  # an integer of the code: computed by it, or a constant
Range = tuple[int, int]
Rule = Callable[[Range, Range], Range]

ANY = 1 << 62
EVERYTHING: Range = (-ANY, ANY)
# What stands for the extent of an axis that is left open: a prime, which no tile divides.  Ranges are linear
# in it where it occurs at all, so that one large number speaks for all; small ones are kept out by the
# schedule, whose tiles fit the axis.
OPEN = (1 << 40) - 87


class Ranges:
    """The ranges of one function's integers, worked out where they are asked for."""

    def __init__(self) -> None:
        self.computed: dict[Name, tuple[Rule, Int, Int]] = {}  # how, from its operands
        self._declared: dict[Name, Range] = {}
        self._known: dict[Name, Range] = {}

    def declare(self, integer: Int, low: int, high: int) -> None:
        """Say what the generator knows of an integer, beyond what it was computed from."""
        if not isinstance(integer, int):
            self._declared[integer] = (low, high)
            self._known.pop(integer, None)

    @contextmanager
    def given(self, integer: Int, low: int, high: int) -> Iterator[None]:
        """Inside of a branch: what its condition says of an integer, and all that is computed from it."""
        declared, known = self._declared, self._known
        self._declared, self._known = dict(declared), {}
        self.declare(integer, low, high)
        try:
            yield
        finally:
            self._declared, self._known = declared, known

    def of(self, integer: Int) -> Range:
        if isinstance(integer, int):
            return integer, integer
        known = self._known.get(integer) or self._declared.get(integer)
        if known is None:
            known = EVERYTHING
            if integer in self.computed:
                rule, left, right = self.computed[integer]
                known = rule(self.of(left), self.of(right))
            self._known[integer] = known
        return known


def _product(a: Range, b: Range) -> Range:
    ends = [x * y for x in a for y in b]
    return min(ends), max(ends)


def _quotient(a: Range, b: Range) -> Range:
    return (a[0] // b[1], a[1] // b[0]) if a[0] >= 0 and b[0] > 0 else EVERYTHING


def _remainder(a: Range, b: Range) -> Range:
    if a[0] < 0 or b[0] <= 0:
        return EVERYTHING
    if b[0] == b[1] and a[0] // b[0] == a[1] // b[0]:
        return a[0] % b[0], a[1] % b[0]
    return 0, min(a[1], b[1] - 1)


def either(a: Range, b: Range) -> Range:
    """Of one of two integers, it is not known which."""
    return min(a[0], b[0]), max(a[1], b[1])


# Of integers, by LLVM's words: those of constants are their values.
RULES: dict[str, Rule] = {
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "sub": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "mul": _product,
    "udiv": _quotient,
    "sdiv": _quotient,
    "urem": _remainder,
    "srem": _remainder,
    "smin": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "smax": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
}
RULES |= {"slt": RULES["smin"], "sgt": RULES["smax"]}  # the left one where it is so, else the right one
RULES |= {f"{word} nsw": RULES[word] for word in ("add", "sub", "mul")}
