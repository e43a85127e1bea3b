"""Segments of memory, cut into pieces and merged again, and the free pieces by their size.

An interrupt (Ctrl-C) may come between any two steps.  So a piece leaves its pool before it is changed and
enters when it is done: what an interrupt can do is to lose a piece, never to hand one out twice.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any


class Piece:
    """A run of bytes of a segment.

    before, after: its neighbours in the segment.  free: it stands in its pool.  waits: the events that have
    to pass before it can go there.
    """

    __slots__ = ("address", "size", "pool", "before", "after", "free", "waits")

    def __init__(self, address: int, size: int, pool: Pool | None):
        self.address, self.size, self.pool = address, size, pool
        self.before: Piece | None = None
        self.after: Piece | None = None
        self.free = False
        self.waits = 0

    def is_whole(self) -> bool:
        """Whether it is all of its segment."""
        return self.before is None and self.after is None

    def absorb(self, other: Piece) -> None:
        """Take in the neighbour after this one."""
        self.size += other.size
        self.after = other.after
        if self.after is not None:
            self.after.before = self


class Pool:
    """The free pieces that one kind of request is served from.

    stream: whose work uses them, one after the other.  least_rest: what is left of a piece becomes a piece of
    its own from so many bytes on.  segments: how many the device gave for it.

    Sizes are few and pieces many, so the best fit is looked for among the sizes: its time does not grow with
    the number of pieces.
    """

    def __init__(self, stream: Any, least_rest: int):
        self.stream, self.least_rest, self.segments = stream, least_rest, 0
        self._sizes: list[int] = []  # those of the free pieces, ascending
        self._of_size: dict[int, dict[Piece, None]] = {}

    def take(self, size: int) -> Piece | None:
        """The least free piece of `size` bytes or more, or None.  Of equal ones it is the last freed."""
        k = bisect_left(self._sizes, size)
        while k < len(self._sizes):
            pieces = self._of_size.get(self._sizes[k])
            if pieces:
                piece = next(reversed(pieces))
                self._remove(piece)
                return piece
            del self._sizes[k]  # an interrupt left it behind
        return None

    def cut(self, piece: Piece, size: int) -> None:
        """Keep the first `size` bytes of a piece that was taken; the rest is free, if it is worth keeping."""
        if piece.size - size < self.least_rest:
            return
        rest = Piece(piece.address + size, piece.size - size, self)
        rest.before, rest.after = piece, piece.after
        if rest.after is not None:
            rest.after.before = rest
        piece.after, piece.size = rest, size
        self._add(rest)

    def give_back(self, piece: Piece) -> None:
        """Merge it with free neighbours and keep it for later requests."""
        after, before = piece.after, piece.before
        if after is not None and after.free:
            self._remove(after)
            piece.absorb(after)
        if before is not None and before.free:
            self._remove(before)
            before.absorb(piece)
            piece = before
        self._add(piece)

    def take_whole(self, piece: Piece) -> None:
        """Have a free piece that is a whole segment, to release it."""
        self._remove(piece)
        self.segments -= 1

    def free(self) -> list[Piece]:
        """The free pieces, those of a size together."""
        return [piece for pieces in self._of_size.values() for piece in pieces]

    def _add(self, piece: Piece) -> None:
        k = bisect_left(self._sizes, piece.size)
        if k == len(self._sizes) or self._sizes[k] != piece.size:
            self._sizes.insert(k, piece.size)
        self._of_size.setdefault(piece.size, {})[piece] = None
        piece.free = True

    def _remove(self, piece: Piece) -> None:
        piece.free = False
        pieces = self._of_size[piece.size]
        del pieces[piece]
        if not pieces:
            del self._of_size[piece.size]
            k = bisect_left(self._sizes, piece.size)
            if k < len(self._sizes) and self._sizes[k] == piece.size:
                del self._sizes[k]
