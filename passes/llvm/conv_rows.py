"""Convolutions of padded images by rows of the output, without a padded copy.

    y[k, i, j] = sum(c, r, s) x[c, i + r - 1, j + s - 1 else 0] * w[r, c, s, k]

Of a window that leaves the image above or below, the loop over r takes the rows inside.  To the left and
right it is known when the code is written: the first and the last tile of a row have code of their own, in
which taps outside are left out, and between them no window leaves the image.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from itertools import groupby

from ...ir.errors import KernelError
from ...ir.kernel.affine import Affine
from ...ir.kernel.form import Kernel, Reduce
from ...ir.kernel.scalar import Read
from ..product import product_of
from .code import Code, Phase
from .conv_winograd import AHEAD
from .cost import nanoseconds
from .emit import Emitter
from .schedule import Schedule, unit_axes, units
from .target import Target
from .writer import Point, Value

MOST_PEELED = 4  # tiles at one end of a row that have code of their own; more are a loop, and test each tap


@dataclass(frozen=True)
class Rows:
    """How such a convolution runs.

    image:  the buffer that windows leave.
    lane:   the axis of output channels in the vectors.
    across: the axis along a row of the output, `tile` places of which are computed together.
    beside: further axes, and how much of each is computed together with them.
    step:   iterations of a summed axis per loop step.
    """

    image: str
    lane: str
    across: str
    tile: int
    beside: tuple[tuple[str, int], ...]
    step: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        beside = "".join(f" {name}:{size}" for name, size in self.beside)
        steps = "".join(f" {name}:{size}" for name, size in self.step)
        return f"rows({self.across}:{self.tile}{beside}) step{steps}"

    def code(self, kernel: Kernel, target: Target) -> Code:
        """Raises KernelError for a kernel that is no sum of products over windows of `image`."""
        emitter = _Framed(self, kernel, target)
        body = emitter.function("unnamed", "internal ")
        name = "r" + blake2b(body.encode(), digest_size=10).hexdigest()
        lines = [*emitter.declared.values(), body.replace("@unnamed(", f"@{name}.body(", 1)]
        lines.append(f"define void @{name}(ptr %args, i64 %lo, i64 %hi) {{")
        for n in range(len(kernel.buffers)):
            lines.append(f"  %s{n} = getelementptr ptr, ptr %args, i64 {n}")
            lines.append(f"  %p{n} = load ptr, ptr %s{n}, align 8")
        arguments = [f"ptr %p{n}" for n in range(len(kernel.buffers))]
        lines.append(f"  call void @{name}.body({', '.join([*arguments, 'i64 %lo', 'i64 %hi'])})")
        text = "\n".join([*lines, "  ret void", "}", ""])
        cost = nanoseconds(kernel, emitter.schedule, target)
        return Code(kernel, text, (Phase(name, units(kernel, emitter.schedule), cost),))


class _Framed(Emitter):
    """`starts` is the least and the greatest first place of the tile at hand."""

    def __init__(self, how: Rows, kernel: Kernel, target: Target):
        extent = int(kernel.extents[how.across])
        tile = {**dict(how.beside), how.across: extent}
        super().__init__(kernel, Schedule(how.lane, 1, tile, dict(how.step)), target)
        if int(kernel.extents[how.lane]) != self.lanes or not 1 <= how.tile <= extent:
            raise KernelError(f"{kernel.name}: {how} does not fit", f"kernel: {kernel}")
        self.how, self.extent = how, extent
        self.starts = (0, 0)
        self.weight = next((a.buffer for _, a in kernel.reads if how.lane in kernel.free_axes(a)), None)
        self.images = [access for _, access in kernel.reads if access.buffer == how.image]

    def unit(self, number: str) -> None:
        how, point = self.how, {self.how.lane: ("0", 0)}
        for name, count in reversed(unit_axes(self.kernel, self.schedule)):
            index = "0" if count == 1 else self.integer(f"urem i64 {number}, {count}")
            number = number if count == 1 else self.integer(f"udiv i64 {number}, {count}")
            if name in (how.lane, how.across):
                continue
            size = self.schedule.tile.get(name, 1)
            if size > 1 and int(self.kernel.extents[name]) % size:
                raise KernelError(f"{self.kernel.name}: {how} does not divide {name}")
            point[name] = (self.times(index, size) if index != "0" else "0", 0)
        points = [point]
        for name, size in how.beside:
            points = [p | {name: (p[name][0], k)} for k in range(size) for p in points]

        def tile(base: str, offset: int, starts: tuple[int, int]) -> None:
            self.starts = starts
            self.scopes.append({})
            self.stages([p | {how.across: (base, offset + k)} for k in range(how.tile) for p in points])
            self.scopes.pop()

        def each(base: str, _: list[Value], starts: tuple[int, int]) -> list[Value]:
            tile(base, 0, starts)
            return []

        for inner, run in groupby(range(0, self.extent - how.tile + 1, how.tile), self.is_inner):
            first, *others = list(run)
            last = others[-1] if others else first
            if others and (inner or len(others) >= MOST_PEELED):
                body = partial(each, starts=(first, last))
                self.loop(str(first), str(last + how.tile), how.tile, [], body)
            else:
                for at in (first, *others):
                    tile("0", at, (0, 0))
        if (
            self.extent % how.tile
        ):  # the last one overlaps its neighbour: stores are pure functions of their point
            tile("0", self.extent - how.tile, (0, 0))

    def is_inner(self, at: int) -> bool:
        """Whether no window of the tile that begins at this place leaves the image to its left or right."""
        ends = {self.how.across: (at, at + self.how.tile - 1)}
        for access in self.images:
            for d in self.unproved(access):
                part = access.index[d]
                if isinstance(part, Affine) and self.how.across in part.names:
                    spans = [
                        sorted(by * end for end in ends.get(name, (0, int(self.kernel.extents[name]) - 1)))
                        for name, by in part.terms
                    ]
                    low, high = (part.constant + sum(span[k] for span in spans) for k in (0, 1))
                    if low < 0 or high >= int(self.kernel.buffers[access.buffer].shape[d]):
                        return False
        return True

    # ---- the sum
    def accumulate(self, stage: Reduce, points: list[Point]) -> list[Value]:
        kernel, dtype = self.kernel, self.kernel.dtypes[stage.name]
        product, image = product_of(kernel), self.how.image
        factors = [factor.value for factor in product.factors] if product else []
        access = next((f for f in factors if isinstance(f, Read) and f.buffer == image), None)
        bounded = product and product.bounds(self.how.across)
        if access is None or bounded is None:
            raise KernelError(f"{kernel.name}: a convolution sums products with {image}", f"at: {stage}")
        rest = tuple(axis for axis in stage.axes if axis.name not in bounded)

        def fma(at: list[Point], totals: list[Value]) -> list[Value]:
            totals = list(totals)
            for k, point in enumerate(at):
                slot = k % len(totals)
                if self.inside(access, point) is not False:
                    operands = (self.splat(self.emit(f, point, dtype)) for f in factors)
                    totals[slot] = self.named("fma", *operands, totals[slot])
            return totals

        def nest(axes: list[str], at: list[Point], totals: list[Value]) -> list[Value]:
            if not axes:
                return self.over(rest, at, totals, fma)
            ((part, size),) = bounded[axes[0]]
            low, high = self.reach(axes[0], part, size, at[0])
            self.keeps_inside(part, size, axes[0], at[0], low, high)

            def body(index: str, values: list[Value]) -> list[Value]:
                return nest(axes[1:], [p | {axes[0]: (index, 0)} for p in at], values)

            return self.loop(low, high, 1, totals, body, nonempty=False)

        start = self.constant(0, dtype, True)
        return nest(list(bounded), points, [start] * len(points))

    def reach(self, axis: str, part: Affine, size: int, point: Point) -> tuple[str, str]:
        """The taps for which 0 <= part < size."""
        step, taps = part.coefficient(axis), int(self.kernel.extents[axis])
        start = self.whole(part - Affine(((axis, step),)), point)
        ends = (step - 1, size - 1 + step)  # rounded up: the first tap inside, and the first one beyond
        low, high = (self.ratio(self.integer(f"sub nsw i64 {end}, {start}"), step) for end in ends)
        return low, self.choose("slt", high, str(taps))

    def ratio(self, number: str, step: int) -> str:
        number = self.choose("sgt", number, "0")
        return number if step == 1 else self.integer(f"udiv i64 {number}, {step}")

    def choose(self, order: str, left: str, right: str) -> str:
        test = self.integer(f"icmp {order} i64 {left}, {right}")
        return self.integer(f"select i1 {test}, i64 {left}, i64 {right}")

    # ---- loads
    def load(self, access: Read, point: Point) -> Value:
        """A vector of the weight is asked for some time before: it comes from memory, and each once."""
        if access.buffer == self.weight:
            base, constant, _, _ = self.offsets(self.kernel.buffers[access.buffer], access.index, point)
            place = self.address("float", f"%{access.buffer}.ptr", base, constant + AHEAD // 4)
            hints = [("i32", "0"), ("i32", "3"), ("i32", "1")]  # to be read, into the nearest cache, data
            self.line(self.call("llvm.prefetch.p0", "void", [("ptr", place), *hints]))
        return super().load(access, point)

    def across(self, access: Read) -> str | None:
        """Not along a row of several tiles: a square that begins with the second one ends beyond the row."""
        found = super().across(access)
        return None if found == self.how.across and self.how.tile < self.extent else found

    def guards(self, access: Read, point: Point) -> tuple[str | None, str | None]:
        if not self.unproved(access) or (access.buffer == self.how.image and self.inside(access, point)):
            return None, None
        return super().guards(access, point)

    def guarded(self, access: Read, point: Point) -> list[int]:
        """Where no guard is written, the dimension along the row is proven like those without one."""
        guarded = self.unproved(access)
        if access.buffer != self.how.image or not self.inside(access, point):
            return guarded
        return [d for d in guarded if self.how.across not in access.index[d].names]

    def inside(self, access: Read, point: Point) -> bool | None:
        """Whether the row's index is in the image, if that is known; the others are, in their loops."""
        verdict: bool | None = True
        for d in self.unproved(access):
            part = access.index[d]
            if not isinstance(part, Affine) or self.how.across not in part.names:
                continue
            low, high = self.interval(part, point)
            size = int(self.kernel.buffers[access.buffer].shape[d])
            if high < 0 or low >= size:
                return False
            if low < 0 or high >= size:
                verdict = None
        return verdict

    def interval(self, part: Affine, point: Point) -> tuple[int, int]:
        low = high = part.constant
        for axis, by in part.terms:
            base, offset = point[axis]
            least, most = (0, int(self.kernel.extents[axis]) - 1)
            if base == "0":
                least = most = offset
            elif axis == self.how.across:
                least, most = self.starts[0] + offset, self.starts[1] + offset
            low, high = low + min(by * least, by * most), high + max(by * least, by * most)
        return low, high
