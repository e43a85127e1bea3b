"""The least and the greatest value of an integer expression, over all points of a kernel.

    (i+2*j) // 3 % 4  for i:8 j:5    ->    0 to 3
    min(r[i], 7)  of r: u8           ->    0 to 7

Numbers from data are bounded by their type alone.  Of other numbers it is known where none is above 0.
"""

from __future__ import annotations

from collections.abc import Callable

from ..dims import Dim
from .form import Kernel, Reduce
from .scalar import Cast, Const, Coordinate, Expr, Op, Ref, in_order, walk
from .types import greatest, kind, least

Bounds = tuple[int, int]


def bounds(kernel: Kernel, expr: Expr) -> Bounds:
    """Of an integer or bool expression of a bound kernel.

    What overflows its type may be anything of that type.
    """
    if isinstance(expr, Coordinate):  # as nearly always
        return _within(kernel, expr, {})
    roots = [expr]
    if any(isinstance(part, Ref) for part in walk(expr)):
        roots = [*(local.value for local in kernel.locals.values()), expr]
    known: dict[Expr, Bounds] = {}
    for part in in_order(*roots):  # a Local reads earlier ones alone
        known[part] = _within(kernel, part, known)
    return known[expr]


_ANY = 1 << 64  # beyond every integer type


def _within(kernel: Kernel, expr: Expr, known: dict[Expr, Bounds]) -> Bounds:
    dtype = kernel.dtype_of(expr)
    limits = (int(least(dtype)), int(greatest(dtype))) if dtype and kind(dtype) in "iub" else (-_ANY, _ANY)
    low, high = _bounds(kernel, expr, known) or limits
    return (low, high) if limits[0] <= low and high <= limits[1] else limits


def _bounds(kernel: Kernel, expr: Expr, known: dict[Expr, Bounds]) -> Bounds | None:
    match expr:
        case Const(value) if isinstance(value, (bool, int)):
            return int(value), int(value)
        case Coordinate(index):
            low, high = index.bounds(kernel.extents)
            return None if isinstance(low, Dim) or isinstance(high, Dim) else (low, high)
        case Cast(_, arg, False):
            source = kernel.dtype_of(arg)
            return known[arg] if source is None or kind(source) in "iub" else None
        case Ref(name) if name in kernel.locals:
            return known.get(kernel.locals[name].value)
        case Op("select", (Op("lt", (left, right)), one, _)) if known[left][1] < known[right][0]:
            return known[one]
        case Op("select", (Op("lt", (left, right)), _, other)) if known[left][0] >= known[right][1]:
            return known[other]
        case Op("select", (_, one, other)):
            (a, b), (c, d) = known[one], known[other]
            return min(a, c), max(b, d)
        case Op(name, args) if name in _WORDS:
            return _WORDS[name](*(known[arg] for arg in args))
    return None


def _corners(function: Callable[[int, int], int]) -> Callable[[Bounds, Bounds], Bounds]:
    def over(a: Bounds, b: Bounds) -> Bounds:
        ends = [function(x, y) for x in a for y in b]
        return min(ends), max(ends)

    return over


def _floor_div(a: Bounds, b: Bounds) -> Bounds | None:
    return _corners(int.__floordiv__)(a, b) if b[0] > 0 or b[1] < 0 else None


def _remainder(a: Bounds, b: Bounds) -> Bounds | None:
    """Of the sign of the divisor, as Python's."""
    if b[0] <= 0:
        return None
    return a if 0 <= a[0] and a[1] < b[0] else (0, b[1] - 1)


_WORDS: dict[str, Callable[..., Bounds | None]] = {
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "sub": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "mul": _corners(int.__mul__),
    "neg": lambda a: (-a[1], -a[0]),
    "min": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "max": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "floor_div": _floor_div,
    "remainder": _remainder,
}


def never_above_zero(kernel: Kernel, expr: Expr) -> bool:
    """Whether an expression is at most 0 or NaN by what it is: -|x|, or x less the greatest of its kind."""
    match expr:
        case Ref(name) if name in kernel.locals:
            return never_above_zero(kernel, kernel.locals[name].value)
        case Op("neg", (Op("abs"),)):
            return True
        case Op("sub", (x, Ref(name, ()))):
            found = (stage for stage in kernel.stages if isinstance(stage, Reduce) and stage.name == name)
            return any(stage.combine == "max" and stage.value == x for stage in found)
    return False
