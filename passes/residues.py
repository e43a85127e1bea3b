"""Sums over windows whose index divides, as one kernel for each remainder: a strided input gradient.

select(((i+1-r) % 2 == 0), y[(i+1-r) // 2], 0) over i    ->    y[i'+1-r'] over i = 2*i'+1, r = 2*r', and
                                                               y[i'-r'] over i = 2*i', r = 2*r'+1
"""

from __future__ import annotations

from itertools import product
from math import gcd

from ..ir.errors import Unsayable
from ..ir.kernel.affine import Affine
from ..ir.kernel.form import Axis, Kernel, Reduce
from ..ir.kernel.scalar import Const, Coordinate, Expr, Op, Read, coordinate, op, read
from ..ir.kernel.substitute import Substitution
from .blocking import fresh


def summation(kernel: Kernel) -> Reduce:
    """The one sum of products.  Raises Unsayable for a kernel that has none."""
    for stage in kernel.stages:
        if isinstance(stage, Reduce) and isinstance(stage.value, Op) and stage.value.name == "mul":
            return stage
    raise Unsayable(f"{kernel.name}: there is no sum of products over windows here")


def residues(kernel: Kernel) -> list[Kernel]:
    """The kernel, or where an index divides, one kernel for each remainder of the places.

    select(((i+1-r) % 2 == 0), y[(i+1-r) // 2], 0) over i    ->    y[i'+1-r'] over i = 2*i'+1, r = 2*r', and
                                                                   y[i'-r'] over i = 2*i', r = 2*r'+1
    """
    stage = summation(kernel)
    factor = next((f for f in stage.value.args if not isinstance(f, Read)), None)  # type: ignore[attr-defined]
    if factor is None:
        return [kernel]
    access, divided = divisions(kernel, factor)
    return [
        _piece(kernel, factor, access, divided, remainders)
        for remainders in product(*(range(step) for _, step in divided.values()))
    ]


def divisions(kernel: Kernel, factor: Expr) -> tuple[Read, dict[int, tuple[Affine, int]]]:
    """The read in a factor, and the dimensions in which it divides: the index and the divisor.

    Raises Unsayable unless the factor is 0 wherever a division leaves a remainder, and nowhere else.
    """
    conditions, inner = [], factor
    while isinstance(inner, Op) and inner.name == "select" and _is_zero(inner.args[2]):
        conditions.append(inner.args[0])
        inner = inner.args[1]
    divided: dict[int, tuple[Affine, int]] = {}
    if isinstance(inner, Read) and inner.other is not None and inner.other.value == 0:
        for d, part in enumerate(inner.index):
            match part:
                case Op("floor_div", (Coordinate(index), Const(step))):
                    divided[d] = index, int(step)
        exact = {op("eq", op("remainder", coordinate(index), step), 0) for index, step in divided.values()}
        affine = all(d in divided or isinstance(part, Affine) for d, part in enumerate(inner.index))
        if divided and affine and exact == set(conditions):
            return inner, divided
    raise Unsayable(f"{kernel.name}: a factor of a sum over windows is one element", f"factor: {factor}")


def _piece(
    kernel: Kernel, factor: Expr, access: Read, divided: dict[int, tuple[Affine, int]], remainders: tuple
) -> Kernel:
    """The kernel at the places that leave these remainders, and the taps that reach them."""
    parallel, extents = kernel.parallel_names, kernel.extents
    terms: dict[str, Affine] = {}
    axes: dict[str, tuple[Axis, ...]] = {}
    index, reached = list(access.index), True
    for (d, (part, step)), remainder in zip(divided.items(), remainders, strict=True):
        (place,) = part.names & parallel
        tap = next(iter(part.names - parallel), None)
        by = -part.coefficient(tap) if tap else step
        first = next((r for r in range(step) if (remainder + part.constant - by * r) % step == 0), None)
        outer, stride = Affine(((fresh(kernel, f"{place}h"), 1),)), step // gcd(by, step)
        terms[place] = outer * step + Affine((), remainder)
        axes[place] = (Axis(fresh(kernel, f"{place}h"), -(-(int(extents[place]) - remainder) // step)),)
        if first is None or (tap is None and first > 0):
            reached = False
            continue
        index[d] = outer + Affine((), (remainder + part.constant - by * first) // step)
        if tap:
            inner = Affine(((fresh(kernel, f"{tap}h"), 1),))
            terms[tap] = inner * stride + Affine((), first)
            axes[tap] = (Axis(fresh(kernel, f"{tap}h"), max(0, -(-(int(extents[tap]) - first) // stride))),)
            index[d] = index[d] - inner * (by * stride // step)  # type: ignore[operator]
    if not reached:  # a sum of nothing
        axes |= {axis.name: (Axis(axis.name, 0),) for axis in summation(kernel).axes}
        index = [Affine()] * len(index)
    moved = Substitution(indices=terms)
    kept = [p if d in divided else moved.subscript(p) for d, p in enumerate(index)]
    element = read(access.buffer, kept, access.other)
    return Substitution(indices=terms, axes=axes, exprs={factor: element}).kernel(kernel)


def _is_zero(expr: Expr) -> bool:
    return isinstance(expr, Const) and expr.value == 0
