"""What meets many sizes gets code for all of them.

A network's layers have a few sizes each, and run best by code that knows them.  A text that grows by a word a
step, images that are all of different sizes, a batch that is sampled anew: there each op, and each traced
function, would be compiled at each step, which takes Triton a tenth of a second to one for each kernel.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...passes.triton.launches import Launches

# From how many on code is for all sizes.
OF_ONE = 4  # values of one size, all others being equal
OF_SHAPE = 8  # shapes of one array, and of those that have the same, all others being equal
OF_ALL = 16  # lists of shapes
OF_PRODUCTS = 256  # the same of products: networks that stay as they are have a hundred layers and more
KEPT = 20_000  # entries: beyond, all is met anew

_met: dict[tuple, set] = {}


def has_met_many(launches: Launches) -> bool:
    """Whether a program that there is now, and others of its name and kinds of arrays, are for many sizes."""
    if len(_met) > KEPT:
        _met.clear()
    name, given, made = launches.name, launches.params, launches.results
    # of the same operands an op may make arrays of sizes that it is told
    multiplies = any("tl.dot(" in code.source for code in launches.codes)
    most = OF_PRODUCTS if multiplies else OF_ALL
    return any([_has_met_many((name,), given, most), _has_met_many((name, given), made, most)])


def _has_met_many(what: tuple, arrays: Sequence[tuple[str, tuple[int, ...]]], most: int) -> bool:
    shapes = tuple([shape for _, shape in arrays])
    kinds = *what, tuple([(dtype, len(shape)) for dtype, shape in arrays])
    many = _counted(kinds, shapes) >= most
    for size in {n for shape in shapes for n in shape if n != 1}:
        others = tuple([tuple([None if n == size else n for n in shape]) for shape in shapes])
        many |= _counted((*kinds, others), size) >= OF_ONE
    for shape in {*shapes}:
        others = tuple([None if each == shape else each for each in shapes])
        many |= _counted((*kinds, others), shape) >= OF_SHAPE
    return many


def _counted(key: tuple, found: int | tuple[int, ...]) -> int:
    """How many have been met where all else is equal, with that one."""
    met = _met.setdefault(key, set())
    met.add(found)
    return len(met)
