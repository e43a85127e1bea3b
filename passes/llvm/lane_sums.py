"""The sums of several vectors' lanes at once."""

from __future__ import annotations

from .expressions import Expressions
from .writer import Value


def lane_sums(writer: Expressions, totals: list[Value], width: int = 1) -> list[Value]:
    """The sum of each vector's lanes, as numbers or as vectors of so many of them.

    Two vectors become one, which holds sums of pairs of both, until its lanes are the vectors' sums: for 16
    vectors a third of the instructions of one sum after the other.
    """
    sums: list[Value] = []
    for first in range(0, len(totals), writer.lanes):
        group = totals[first : first + writer.lanes]
        count, run = len(group), writer.lanes  # run: the neighbouring lanes that are parts of one sum
        while run > 1:
            pairs = zip(group[::2], group[1::2] + group[-1:], strict=False)
            group = [_halved(writer, x, y, run) for x, y in pairs]
            run //= 2
        for number in range(0, count, width):
            if width == 1:
                sums.append(writer.lane(group[0], number))
            elif width == writer.lanes:
                sums.append(group[0])
            else:
                sums.append(writer.shuffle(group[0], None, range(number, number + width)))
    return sums


def _halved(writer: Expressions, x: Value, y: Value, run: int) -> Value:
    """Add up the halves of each run of lanes: those of x, then those of y."""
    lower = [k for first in range(0, 2 * writer.lanes, run) for k in range(first, first + run // 2)]
    upper = [k + run // 2 for k in lower]
    return writer.named("add", writer.shuffle(x, y, lower), writer.shuffle(x, y, upper))
