"""Sums over windows (convolutions and their gradients) with the batch in the lanes.

    y[i, j, k, n] = sum(c, r, s) x[i + r - 1, j + s - 1 else 0, c, n] * w[r, s, c, k]

With the batch innermost a window moves by whole vectors, so that no load is masked, and the guard of a read
becomes the bounds of a loop: taps beside the image are not computed at all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import product
from math import gcd, prod

from ...ir.errors import KernelError
from ...ir.kernel.affine import Affine
from ...ir.kernel.form import Axis, Kernel, Reduce, names
from ...ir.kernel.scalar import Read, read, ref
from ...ir.kernel.types import NUMPY
from ..blocking import Rewriting, fresh
from ..product import Factor, Product, product_of
from .code import Code, Phase
from .cost import nanoseconds
from .emit import Emitter
from .entry import entry
from .lane_sums import lane_sums
from .schedule import Schedule
from .target import Target
from .writer import ELEMENTS, Point, Value

L1_BYTES = 32 << 10  # of planes that the taps of a weight gradient go over again and again


@dataclass(frozen=True)
class Windows:
    """How a kernel that sums products over windows runs.

    vector: the axis in the lanes, of which there are `lanes`.  unroll: vectors of it at once.  tile: other
    parallel axes that are computed together.
    """

    vector: str
    lanes: int
    unroll: int
    tile: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        shape = " ".join(f"{name}:{n}" for name, n in self.tile)
        return f"windows({self.vector}:{self.unroll}x{self.lanes} {shape})"

    def code(self, kernel: Kernel, target: Target) -> Code:
        """A phase for each class of places that see the same taps: one, but for a strided input gradient."""
        return replace(_code(self, kernel.replace(name="kernel"), target), kernel=kernel)

    def emitter(self, kernel: Kernel, target: Target) -> Bounded:
        schedule = Schedule(self.vector, self.unroll, dict(self.tile))
        return (Planes if self.vector in summation(kernel).k else Bounded)(kernel, schedule, target)


@lru_cache(256)
def _code(how: Windows, kernel: Kernel, target: Target) -> Code:
    texts, phases, declared = [], [], {}
    for piece in pieces(kernel):
        emitter = how.emitter(piece, target.with_lanes(how.lanes))
        symbol, text = entry(emitter)
        texts.append(text)
        declared |= emitter.declared
        cost = nanoseconds(emitter.kernel, emitter.schedule, target)
        phases.append(Phase(symbol, emitter.units, cost))
    return Code(kernel, "\n".join([*declared.values(), *dict.fromkeys(texts), ""]), tuple(phases))


def summation(kernel: Kernel) -> Product:
    """The one sum of products.  Raises KernelError for a kernel that is none."""
    found = product_of(kernel)
    if found is None:
        raise KernelError(f"{kernel.name}: there is no sum of products over windows here")
    return found


# ---- what lies outside


def pieces(kernel: Kernel) -> list[Kernel]:
    """The kernel, or where an index divides, one kernel for each remainder of the places.

    select(((i+1-r) % 2 == 0), y[(i+1-r) // 2], 0) over i    ->    y[i'+1-r'] over i = 2*i'+1, r = 2*r', and
                                                                   y[i'-r'] over i = 2*i', r = 2*r'+1
    """
    factor = next((f for f in summation(kernel).factors if not isinstance(f.value, Read)), None)
    if factor is None:
        return [kernel]
    if not factor.divided:
        raise KernelError(f"{kernel.name}: a factor of a sum over windows is one element", f"{factor.value}")
    steps = (range(step) for _, step in factor.divided.values())
    return [_piece(kernel, factor, remainders) for remainders in product(*steps)]


def _piece(kernel: Kernel, factor: Factor, remainders: tuple[int, ...]) -> Kernel:
    """The kernel at the places that leave these remainders, and the taps that reach them."""
    access, divided = factor.access, factor.divided
    assert access is not None and divided is not None
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
        axes |= {axis.name: (Axis(axis.name, 0),) for axis in summation(kernel).stage.axes}
        index = [Affine()] * len(index)
    rewriting = Rewriting(terms, axes, {})
    kept = [
        rewriting.affine(p) if isinstance(p, Affine) and d not in divided else p for d, p in enumerate(index)
    ]
    rewriting.memo[factor.value] = read(access.buffer, tuple(kept), access.other)
    return rewriting.kernel(kernel)


# ---- code


class Bounded(Emitter):
    """An emitter that turns the guards of a sum's factors into the bounds of its loops."""

    def __init__(self, kernel: Kernel, schedule: Schedule, target: Target):
        super().__init__(kernel, schedule, target)
        self.summation = stage = summation(kernel).stage
        bounds = summation(kernel).bounds()
        if bounds is None:
            raise KernelError(f"{kernel.name}: a guard here is the bound of one loop", f"at: {stage}")
        self.bounds = bounds
        self.limits: dict[str, tuple[str, str]] = {}  # axis -> the part of it that is run
        self.proved: frozenset[Read] = frozenset()

    def accumulate(self, stage: Reduce, points: list[Point]) -> list[Value]:
        if stage is not self.summation:
            return super().accumulate(stage, points)
        start = self.constant(0, self.kernel.dtypes[stage.name], True)
        return self.summed(points, [start] * len(points))

    def summed(self, points: list[Point], totals: list[Value]) -> list[Value]:
        """The totals, and the products at the points: the bounded axes outside, the others inside."""
        stage = self.summation
        factors = stage.value.args  # type: ignore[attr-defined]
        outside = [axis for axis in stage.axes if axis.name in self.bounds or axis.name in self.limits]
        rest = tuple(axis for axis in stage.axes if axis not in outside)
        dtype = self.kernel.dtypes[stage.name]

        def add(at: list[Point], totals: list[Value]) -> list[Value]:
            totals = list(totals)
            for k, point in enumerate(at):
                left, right = (self.splat(self.emit(factor, point, dtype)) for factor in factors)
                totals[k % len(points)] = self.multiplied(left, right, totals[k % len(points)])
            return totals

        def nest(axes: list[Axis], at: list[Point], totals: list[Value]) -> list[Value]:
            if not axes:
                return self.over(rest, at, totals, add)
            axis = axes[0]
            low, high = self.reach(axis, at[0])

            def body(index: str, values: list[Value]) -> list[Value]:
                return nest(axes[1:], [p | {axis.name: (index, 0)} for p in at], values)

            return self.loop(low, high, 1, totals, body, nonempty=False)

        self.proved = frozenset(factor for factor in factors if isinstance(factor, Read))
        totals = nest(outside, points, totals)
        self.proved = frozenset()
        return totals

    def multiplied(self, left: Value, right: Value, total: Value) -> Value:
        if self.target.has_fma:
            return self.named("fma", left, right, total)
        return self.named("add", self.named("mul", left, right), total)

    def guards(self, access: Read, point: Point) -> tuple[str | None, str | None]:
        """None for what the loops keep inside."""
        return (None, None) if access in self.proved else super().guards(access, point)

    def reach(self, axis: Axis, point: Point) -> tuple[str, str]:
        """The first iteration, and the one after the last, for which every bounded index is inside."""
        low, high = self.limits.get(axis.name, ("0", str(axis.extent)))
        for part, size in self.bounds.get(axis.name, ()):
            factor = part.coefficient(axis.name)
            rest = self.whole(part - Affine(((axis.name, factor),)), point)
            if factor > 0:
                first, last = self.minus(factor - 1, rest), self.minus(size - 1 + factor, rest)
            else:
                first, last = self.sum(rest, str(-size - factor)), self.sum(rest, str(-factor))
            low = self.chosen("sgt", low, self.quotient(first, abs(factor)))
            high = self.chosen("slt", high, self.quotient(last, abs(factor)))
        for part, size in self.bounds.get(axis.name, ()):
            self.keeps_inside(part, size, axis.name, point, low, high)
        return low, high

    def minus(self, left: int, right: str) -> str:
        return self.integer(f"sub nsw i64 {left}, {right}")

    def chosen(self, order: str, left: str, right: str) -> str:
        test = self.integer(f"icmp {order} i64 {left}, {right}")
        return self.integer(f"select i1 {test}, i64 {left}, i64 {right}")

    def quotient(self, number: str, factor: int) -> str:
        """The number over the factor, rounded down; 0 for negative ones."""
        number = self.chosen("sgt", number, "0")
        return number if factor == 1 else self.integer(f"udiv i64 {number}, {factor}")


class Planes(Bounded):
    """The batch is summed too (a weight's gradient): a unit is a tile of two channels' axes, with all taps.

    The planes of a tile's channels are gone over once for each tap, so they are taken in strips that stay
    in the nearest cache, and the sums of all taps wait on the stack meanwhile.
    """

    def __init__(self, kernel: Kernel, schedule: Schedule, target: Target):
        super().__init__(kernel, schedule, target)
        self.tiles = [axis for axis in kernel.parallel if axis.name in schedule.tile]
        self.taps = [axis for axis in kernel.parallel if axis.name not in schedule.tile]
        self.rows = next((a for a in self.summation.axes if a.name != self.lane_axis), None)
        self.corners = [
            dict(zip(names(tuple(self.tiles)), corner, strict=True))
            for corner in product(*(range(schedule.tile[axis.name]) for axis in self.tiles))
        ]

    @cached_property
    def units(self) -> int:
        return prod(-(-int(axis.extent) // self.schedule.tile[axis.name]) for axis in self.tiles)

    def strip(self) -> int:
        """Rows of both planes that fit into the cache."""
        assert self.rows is not None
        dtype = self.kernel.dtypes[self.summation.name]
        one = prod(int(a.extent) for a in self.summation.axes if a is not self.rows) * NUMPY[dtype].itemsize
        planes = max(2, sum(self.schedule.tile.values()))  # one of each factor where there are no channels
        return max(1, min(int(self.rows.extent), L1_BYTES // (planes * one)))

    def unit(self, number: str) -> None:
        start: Point = {}
        for axis in reversed(self.tiles):
            size, extent = self.schedule.tile[axis.name], int(axis.extent)
            count = -(-extent // size)
            index = "0" if count == 1 else self.integer(f"urem i64 {number}, {count}")
            number = number if count == 1 else self.integer(f"udiv i64 {number}, {count}")
            base = index if index == "0" else self.integer(f"mul nsw i64 {index}, {size}")
            # the last tile overlaps its neighbour: a sum that is computed twice is the same
            start[axis.name] = (self.chosen("slt", base, str(extent - size)) if extent % size else base, 0)
        points = [
            {name: (base, corner[name]) for name, (base, _) in start.items()} for corner in self.corners
        ]
        dtype = self.kernel.dtypes[self.summation.name]
        wide, zero = self.vector(ELEMENTS[dtype]), self.constant(0, dtype, True)
        align = self.lanes * NUMPY[dtype].itemsize
        sums = self.slot(f"[{prod(int(a.extent) for a in self.taps) * len(points)} x {wide}]", 0)

        def kept(at: Point) -> list[str]:
            """The places of the sums of one tap."""
            place = Affine()
            for axis in self.taps:
                place = place * int(axis.extent) + Affine(((axis.name, 1),))
            low, high = self.reach_of(place, at)
            if low < 0 or high >= prod(int(axis.extent) for axis in self.taps):
                raise KernelError(f"{self.kernel.name}: the sums of taps {low} to {high} have no place")
            first = self.integer(
                f"getelementptr {wide}, ptr {sums}, i64 {self.whole(place * len(points), at)}"
            )
            return [self.integer(f"getelementptr {wide}, ptr {first}, i64 {k}") for k in range(len(points))]

        def clear(at: Point) -> None:
            for place in kept(at):
                self.line(f"store {zero}, ptr {place}, align {align}")

        def add(at: Point) -> None:
            places = kept(at)
            totals = [self.ssa(f"load {wide}, ptr {p}, align {align}", dtype, self.lanes) for p in places]
            totals = self.summed([point | at for point in points], totals)
            for place, total in zip(places, totals, strict=True):
                self.line(f"store {total}, ptr {place}, align {align}")

        def finish(at: Point) -> None:
            here = [point | at for point in points]
            for stage in self.kernel.stages:
                if stage is self.summation:
                    totals = (
                        self.ssa(f"load {wide}, ptr {p}, align {align}", dtype, self.lanes) for p in kept(at)
                    )
                    self.bind(stage.name, here, lane_sums(self, list(totals)))
            self.stages(here)

        def strips(index: str, _: list[Value]) -> list[Value]:
            assert self.rows is not None
            end = self.chosen("slt", self.sum(index, str(self.strip())), str(self.rows.extent))
            self.limits = {self.rows.name: (index, end)}
            self.each(self.taps, {}, add)
            self.limits = {}
            return []

        self.each(self.taps, {}, clear)
        if self.rows is None:
            self.each(self.taps, {}, add)
        else:
            self.loop("0", str(self.rows.extent), self.strip(), [], strips, nonempty=False)
        self.each(self.taps, {}, finish)

    def accumulate(self, stage: Reduce, points: list[Point]) -> list[Value]:
        """Of the sum over windows: what `unit` has summed already."""
        if stage is not self.summation:
            return super().accumulate(stage, points)
        return [self.scopes[-1][self.key(ref(stage.name), point)] for point in points]

    def each(self, axes: list[Axis], point: Point, act: Callable[[Point], None]) -> None:
        """act(point) for every point of the axes, in loops."""
        if not axes:
            act(point)
            return

        def body(index: str, _: list[Value]) -> list[Value]:
            self.each(axes[1:], point | {axes[0].name: (index, 0)}, act)
            return []

        self.loop("0", str(axes[0].extent), 1, [], body, nonempty=False)
