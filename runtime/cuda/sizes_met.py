"""What meets many sizes gets code for all of them.

A network's layers have a few sizes each, and run best by code that knows them.  A text that grows by a word a
step, images that are all of different sizes, a batch that is sampled anew: there each op, and each traced
function, would be compiled at each step, which takes Triton a tenth of a second to one for each kernel.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...passes.triton.launches import Launches

OF_ONE = 4  # values of one size, all others being equal, from which on code is for all sizes
OF_ALL = 16  # lists of shapes from which on it is
KEPT = 20_000  # entries: beyond, all is met anew

_met: dict[tuple, set] = {}


def has_met_many(launches: Launches) -> bool:
    """Whether a program that there is now, and others of its name and kinds of arrays, are for many sizes."""
    if len(_met) > KEPT:
        _met.clear()
    return any([_has_met_many((launches.name, n), arrays)
                for n, arrays in enumerate((launches.params, launches.results))])  # fmt: skip


def _has_met_many(what: tuple, arrays: Sequence[tuple[str, tuple[int, ...]]]) -> bool:
    shapes = tuple([shape for _, shape in arrays])
    kinds = *what, tuple([(dtype, len(shape)) for dtype, shape in arrays])
    met = _met.setdefault(kinds, set())
    met.add(shapes)
    many = len(met) >= OF_ALL
    for size in {n for shape in shapes for n in shape if n != 1}:
        others = tuple([tuple([None if n == size else n for n in shape]) for shape in shapes])
        values = _met.setdefault((*kinds, others), set())
        values.add(size)
        many |= len(values) >= OF_ONE
    return many
