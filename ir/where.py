"""Where a node came from: the user's file and line, as a node's `where` has them, and what is known beside.

It has no meaning to passes, which hand it on; so it says of what they made what it was made of.
"""

from __future__ import annotations

from collections.abc import Iterable


class Where(tuple[str, int]):
    """A file and a line, equal to the plain pair.

    within: the modules that ran the op, the outermost first and each once, as `Net.layers.0.conv`.  origins:
    the numbers of the nodes, in a graph that `numbered` them, that it stands for.
    """

    within: str
    origins: frozenset[int]

    def __new__(cls, file: str, line: int, within: str = "", origins: Iterable[int] = ()) -> Where:
        made = super().__new__(cls, (file, line))
        made.within, made.origins = within, frozenset(origins)
        return made

    def __reduce__(self) -> tuple:
        return Where, (*self, self.within, self.origins)


def joined(places: Iterable[tuple[str, int] | None]) -> Where | tuple[str, int] | None:
    """The last of several places, which stands for what all of them stand for."""
    known = [place for place in places if place]
    if not known or not (numbers := frozenset().union(*map(origins, known))):
        return known[-1] if known else None
    return Where(*known[-1], within(known[-1]), numbers)


def within(where: tuple[str, int] | None) -> str:
    """The modules of a place, "" where they are not known."""
    return where.within if isinstance(where, Where) else ""


def origins(where: tuple[str, int] | None) -> frozenset[int]:
    """The numbers that a place stands for."""
    return where.origins if isinstance(where, Where) else frozenset()
