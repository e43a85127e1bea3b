"""Code for sizes that are symbols: made for each set of sizes, when it is first met."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from ..ir.specialise import sized

# Sets of sizes that are kept: where one code serves all they are some 20 KB each, and a millisecond to make
# (200 sizes of a LeNet in turn took three times as long with 64); else each has code of its own.
MOST, MOST_OWN = 256, 64
AT_ONCE = 8  # sets that have code as soon as they are met; others when they come again


class Sized:
    """What serves a path whose sizes are symbols: one thing for each set of sizes.

    names: of the symbols, in the order of the sizes.  make: makes the thing, of sizes by name.  may: raises
    where nothing is to be made now; told whether the sizes have come for the first time, and many have.
    """

    def __init__(
        self, names: Sequence[str], make: Callable[[dict[str, int]], Any], may: Callable[[bool], None]
    ):
        self.names, self._make, self._may = tuple(names), make, may
        self._made: OrderedDict[tuple[int, ...], Any] = OrderedDict()
        self._met: set[tuple[int, ...]] = set()
        self.last: Any = None  # the latest that was asked for

    def of(self, sizes: tuple[int, ...]) -> Any:
        """The one for these sizes."""
        found = self._made.get(sizes)
        if found is None:
            is_new = sizes not in self._met and len(self._met) >= AT_ONCE
            if len(self._met) >= 16 * MOST:
                self._met.clear()
            self._met.add(sizes)
            self._may(is_new)
            found = self.put(sizes, self._make(dict(zip(self.names, sizes))))
        else:
            with suppress(KeyError):  # another thread may have let it go
                self._made.move_to_end(sizes)
            self.last = found
        return found

    def known(self, sizes: tuple[int, ...]) -> Any:
        """The one for these sizes, if it is made."""
        return self._made.get(sizes)

    def put(self, sizes: tuple[int, ...], made: Any) -> Any:
        self._made[sizes] = self.last = made
        most = MOST if getattr(made, "unfit", "its own") == "" else MOST_OWN
        while len(self._made) > most:
            self._made.popitem(last=False)
        return made

    def __len__(self) -> int:
        return len(self._made)

    def __getattr__(self, name: str) -> Any:
        """What the latest has: kernels, source, statistics."""
        return getattr(self.last, name)


def name_of(slot: int) -> str:
    """The symbol for the size in a slot."""
    return f"s{slot}"


def slot_of(name: str) -> int:
    """The slot of a symbol."""
    return int(name[1:])


def with_sizes(attrs: Sequence[tuple[str, Any]], sizes: Mapping[str, int]) -> dict[str, Any]:
    """Attributes with numbers in place of symbols."""
    return {name: sized(value, sizes) for name, value in attrs}
