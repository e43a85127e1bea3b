"""What is known of the integers of a function in the making: the least and the greatest each can be.

    %v1 = urem i64 %u, 6            0 to 5
    %v2 = mul nsw i64 %v1, 16       0 to 80

Every address that a generator emits is proven to stay inside of its array by these before the text is used
(`memory.py` dimension by dimension, `conv_function.py` for code that counts floats).  An instruction's range
follows from its text; what follows from more than one integer (a loop that ends where the image does) the
generator declares, where it writes the loop, with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Range = tuple[int, int]

ANY = 1 << 62
EVERYTHING: Range = (-ANY, ANY)
# What stands for the extent of an axis that is left open: a prime, which no tile divides.  Ranges are linear
# in it where it occurs at all, so that one large number speaks for all; small ones are kept out by the
# schedule, whose tiles fit the axis.
OPEN = (1 << 40) - 87

_BINARY = re.compile(r"(add|sub|mul|udiv|sdiv|urem|srem)(?: nsw| nuw)* i64 (\S+), (\S+)$")
_SELECT = re.compile(r"select i1 (\S+), i64 (\S+), i64 (\S+)$")
_COMPARED = re.compile(r"icmp (slt|sgt) i64 (\S+), (\S+)$")
_CALLED = re.compile(r"call i64 @llvm\.(smin|smax)\.i64\(i64 (\S+), i64 (\S+)\)$")


class Ranges:
    """The ranges of one function's integers, worked out where they are asked for."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self._declared: dict[str, Range] = {}
        self._known: dict[str, Range] = {}

    def declare(self, name: str, low: int, high: int) -> None:
        """Say what the generator knows of an integer, beyond what its instruction says."""
        if name.startswith("%"):
            self._declared[name] = (low, high)
            self._known.pop(name, None)

    @contextmanager
    def given(self, name: str, low: int, high: int) -> Iterator[None]:
        """Inside of a branch: what its condition says of an integer, and all that is computed from it."""
        declared, known = self._declared, self._known
        self._declared, self._known = dict(declared), {}
        self.declare(name, low, high)
        try:
            yield
        finally:
            self._declared, self._known = declared, known

    def of(self, text: str) -> Range:
        """The range of an SSA name or of a number."""
        if not text.startswith("%"):
            return int(text), int(text)
        found = self._known.get(text)
        if found is None:
            found = self._known[text] = self._declared.get(text) or self._computed(self.texts.get(text, ""))
        return found

    def _computed(self, text: str) -> Range:
        if match := _BINARY.match(text):
            word, left, right = match.groups()
            return _WORDS[word](self.of(left), self.of(right))
        if match := _SELECT.match(text):
            test, left, right = match.groups()
            return self._chosen(self.texts.get(test, ""), left, right)
        if match := _CALLED.match(text):
            word, left, right = match.groups()
            return _WORDS[word](self.of(left), self.of(right))
        return (0, 1) if text.startswith("zext i1") else EVERYTHING

    def _chosen(self, test: str, left: str, right: str) -> Range:
        """Of two integers the one that a test chooses, which mostly is the lesser or the greater."""
        a, b = self.of(left), self.of(right)
        match = _COMPARED.match(test)
        if match and {match[2], match[3]} == {left, right}:
            least = (match[1] == "slt") == (match[2] == left)
            return _WORDS["smin" if least else "smax"](a, b)
        return min(a[0], b[0]), max(a[1], b[1])


def _product(a: Range, b: Range) -> Range:
    ends = [x * y for x in a for y in b]
    return min(ends), max(ends)


def _quotient(a: Range, b: Range) -> Range:
    return (a[0] // b[1], a[1] // b[0]) if a[0] >= 0 and b[0] > 0 else EVERYTHING


def _remainder(a: Range, b: Range) -> Range:
    return (0, min(a[1], b[1] - 1)) if a[0] >= 0 and b[0] > 0 else EVERYTHING


_WORDS: dict[str, Callable[[Range, Range], Range]] = {
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
