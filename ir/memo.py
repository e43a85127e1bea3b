"""Tables of what was worked out before, which forget the oldest."""

from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")

# Entries of a table of kernels or code, which take a few KB each.  A network has tens of kernels that differ,
# and fusing tries hundreds: what is forgotten costs a millisecond when it comes again.
MEMO = 512


def remember(table: dict[K, V], key: K, value: V) -> V:
    """Enter a value, in place of the oldest where the table is full."""
    try:
        while len(table) >= MEMO:
            table.pop(next(iter(table)), None)
    except RuntimeError:
        pass  # another thread entered one: the next that does forgets two
    table[key] = value
    return value
