"""Sums over windows whose index divides, as one kernel for each remainder: a strided input gradient.

select(((i+1-r) % 2 == 0), y[(i+1-r) // 2], 0) over i    ->    y[i'+1-r'] over i = 2*i'+1, r = 2*r', and
                                                               y[i'-r'] over i = 2*i', r = 2*r'+1
"""

from __future__ import annotations

from itertools import product
from math import gcd

from ...ir.errors import Unsayable
from ...ir.kernel.affine import Affine
from ...ir.kernel.form import Axis, Kernel
from ...ir.kernel.scalar import Read, read
from ...ir.kernel.substitute import Substitution
from .blocking import fresh
from .product import Factor, Product, products


def summation(kernel: Kernel) -> Product:
    """The one sum of products.  Raises Unsayable for a kernel that has none."""
    found = products(kernel)
    if not found:
        raise Unsayable(f"{kernel.name}: there is no sum of products over windows here")
    return found[0]


def residues(kernel: Kernel) -> list[Kernel]:
    """The kernel, or where an index divides, one kernel for each remainder of the places.

    Raises Unsayable for a factor that is more than one element.
    """
    factor = next((f for f in summation(kernel).factors if not isinstance(f.value, Read)), None)
    if factor is None:
        return [kernel]
    if not factor.divided:
        raise Unsayable(f"{kernel.name}: a factor of a sum over windows is one element", f"{factor.value}")
    places = kernel.parallel_names  # of an image of one place there is none, as if it were place 0
    steps = (range(step if part.names & places else 1) for part, step in factor.divided.values())
    return [_of_remainders(kernel, factor, remainders) for remainders in product(*steps)]


def divides(kernel: Kernel) -> list[Affine]:
    """The indices that divide in factors of products, where those are 0 wherever a remainder is left."""
    factors = (factor for product in products(kernel) for factor in product.factors)
    return [part for factor in factors for part, _ in (factor.divided or {}).values()]


def apart(kernel: Kernel) -> list[Kernel]:
    """The kernel, or those of `residues` if there is one sum of products, whose index divides: no tap is
    tested then, and lanes side by side read elements side by side.

    A transposed convolution of 32 channels to 3, 28 x 28, 3 x 3 taps at stride 2 takes 52 us in place of 660,
    the gradient of depthwise 3 x 3 windows at stride 2 to 32 images of 25 x 5 0.7 ms in place of 16 (an Intel
    Xeon with AVX-512, one thread, 2026-12-01).
    """
    if len(products(kernel)) != 1 or not divides(kernel):
        return [kernel]
    try:
        return residues(kernel)
    except Unsayable:
        return [kernel]


def _of_remainders(kernel: Kernel, factor: Factor, remainders: tuple[int, ...]) -> Kernel:
    """The kernel at the places that leave these remainders, and the taps that reach them."""
    access, divided = factor.access, factor.divided
    assert access is not None and divided is not None
    parallel, extents = kernel.parallel_names, kernel.extents
    terms: dict[str, Affine] = {}
    axes: dict[str, tuple[Axis, ...]] = {}
    index, reached = list(access.index), True
    for (d, (part, step)), remainder in zip(divided.items(), remainders, strict=True):
        place = next(iter(part.names & parallel), None)
        tap = next(iter(part.names - parallel), None)
        by = -part.coefficient(tap) if tap else step
        first = next((r for r in range(step) if (remainder + part.constant - by * r) % step == 0), None)
        outer, stride = Affine(), step // gcd(by, step)
        if place is not None:
            axis = Axis(fresh(kernel, f"{place}h"), -(-(int(extents[place]) - remainder) // step))
            outer = Affine(((axis.name, 1),))
            terms[place], axes[place] = outer * step + Affine((), remainder), (axis,)
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
        terms = {name: at for name, at in terms.items() if name in parallel}
        axes |= {axis.name: (Axis(axis.name, 0),) for axis in summation(kernel).stage.axes}
        index = [Affine()] * len(index)
    moved = Substitution(indices=terms)
    kept = [p if d in divided else moved.subscript(p) for d, p in enumerate(index)]
    element = read(access.buffer, kept, access.other)
    return Substitution(indices=terms, axes=axes, exprs={factor.value: element}).kernel(kernel)
