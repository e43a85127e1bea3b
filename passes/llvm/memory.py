"""Loads and stores in LLVM: contiguous, strided, indirect, guarded, and transposed in registers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import prod

from ...ir.dims import Dim, is_at_least
from ...ir.errors import KernelError, Unsayable
from ...ir.kernel.affine import Affine, as_affine
from ...ir.kernel.form import Buffer, Kernel, Store
from ...ir.kernel.scalar import Expr, Read, cast
from ...ir.kernel.types import NUMPY, kind
from ...ir.locks import cached_property
from ..schedules.default import MOST_STRIDE, can_transpose
from ..schedules.steps import NEIGHBOURS, Schedule, Stream
from ..schedules.target import LINE, Target
from .expressions import Expressions
from .next_panel import NextPanel, next_panel
from .ranges import OPEN, Int, Name, Range
from .writer import ELEMENTS, Point, Value, suffix, type_of


@dataclass(frozen=True)
class CopiedStrip:
    """Rows of a buffer on the stack: `count` elements from `start` on along an axis, for each of the points
    from `first` on that a strip of the summed axis has, `pitch` elements apart."""

    array: str
    pitch: int
    axis: str
    start: Int
    count: int
    summed: str
    first: Int
    size: int


class Memory(Expressions):
    """Addresses are an affine base, a constant that folds into the instruction, and indirect parts.

    No load or store is written that may leave its buffer: each dimension of an index is bounded by the ranges
    of what the generator counts with.  Left to others are dimensions that the kernel guards, whose tests are
    written beside the load or are bounds of its loop, and indices from data (`passes/kernels/proof.py`).
    """

    def __init__(self, kernel: Kernel, schedule: Schedule, target: Target):
        super().__init__(kernel, schedule, target)
        self.held: frozenset[tuple[Read, int]] = frozenset()  # dimensions that open loops keep inside
        self.copied: dict[str, CopiedStrip] = {}  # by buffer: what is read from a copy of it
        self.panels: dict[str, Int] = {}  # axis -> the number of the panel that a unit works on
        self.begins: Point = {}  # axis -> where the tile begins that is worked on, of a unit of several

    # ---- what stays inside
    def stays_inside(
        self, what: object, buffer: Buffer, index: tuple[Affine | Expr, ...], point: Point, guarded: list[int]
    ) -> None:
        """Raises KernelError unless every lane is in the buffer, in all dimensions but the guarded."""
        for d, (part, extent) in enumerate(zip(index, buffer.shape, strict=True)):
            if d in guarded or isinstance(part, Expr):
                continue
            if isinstance(extent, Dim) or any(isinstance(self.kernel.extents[a], Dim) for a in part.names):
                self.stays_on_axes(what, part, point)
                continue
            low, high = self.reach_of(part, point)
            if (low < 0 or high >= extent) and low <= high:
                raise KernelError(
                    f"{self.kernel.name}: the code of {what} may leave dimension {d} of {buffer}",
                    f"its index runs from {low} to {high}",
                    f"schedule: {self.schedule}",
                    f"kernel: {self.kernel}",
                )

    def stays_on_axes(self, what: object, index: Affine, point: Point) -> None:
        """Raises KernelError unless every lane is a point of each axis that an index has.

        Where sizes are symbols it is the kernel that proves that no such point leaves its array.
        """
        for axis in index.names:
            low, high = self.reach_of(as_affine(axis), point)
            extent = self.kernel.extents[axis]
            if (low < 0 or high >= (OPEN if isinstance(extent, Dim) else extent)) and low <= high:
                raise KernelError(
                    f"{self.kernel.name}: the code of {what} may leave the axis {axis}",
                    f"it runs from {low} to {high}",
                    f"schedule: {self.schedule}",
                    f"kernel: {self.kernel}",
                )

    def reach_of(self, index: Affine, point: Point) -> Range:
        """The least and the greatest value of an index at a point, over all lanes that are not masked."""
        spans = [(self.ranges.of(base), offset) for base, offset in (point[axis] for axis, _ in index.terms)]
        key = index, *spans, None if self.mask is None else self.end
        known = self._reaches.get(key)
        if known is not None:
            return known
        low = high = int(index.constant)
        for (axis, by), ((least, most), offset) in zip(index.terms, spans, strict=True):
            if least > most:  # in a loop that never runs nothing is reached
                low, high = 1, 0
                break
            least, most = least + offset, most + offset
            by = int(by)
            if axis == self.lane_axis:
                most += self.lanes - 1
                if self.mask is not None:
                    most = min(most, self.end - 1)
            low, high = low + min(by * least, by * most), high + max(by * least, by * most)
        self._reaches[key] = low, high
        return low, high

    @staticmethod
    def stored(dtype: str) -> str:
        """The element type in memory; a bool is a byte there."""
        return "u8" if dtype == "bool" else dtype

    def offsets(self, buffer: Buffer, index: tuple[Affine | Expr, ...], point: Point):
        """The offset in elements: base, constant, stride along the lanes, and a vector of further offsets."""
        offset = buffer.offset(index)
        base, constant = self.linear(offset, point)
        spread: Value | None = None
        for part, stride in zip(index, buffer.strides, strict=True):
            if not isinstance(part, Expr) or stride == 0:
                continue
            value = self.emit(cast(part, "i64"), point)
            if not value.lanes:
                number = Name(value.text) if value.constant is None else int(value.constant)
                base = self.sum(base, self.times(number, self.size(stride)))
                continue
            scaled = self.binary("mul nsw", value, self.splat(self.value(self.size(stride))))
            spread = scaled if spread is None else self.binary("add", spread, scaled)
        lanes = offset.coefficient(self.lane_axis)
        if isinstance(lanes, Dim):  # so far apart are neighbours
            apart = self.apart(lanes)
            spread = apart if spread is None else self.binary("add", self.splat(spread), apart)
            lanes = 0
        return base, constant, lanes, spread

    def apart(self, stride: int | Dim) -> Value:
        """0, stride, 2 stride, ... one for each lane."""
        if not isinstance(stride, Dim):
            return self.ramp("i64", stride)
        return self.binary("mul nsw", self.ramp("i64", 1), self.splat(self.value(self.size(stride))))

    def keeps_inside(self, part: Affine, size: int, axis: str, point: Point, low: Int, high: Int) -> None:
        """Raises KernelError unless 0 <= part < size wherever a loop over `axis` runs, from `low` to `high`.

        The loop's ends are worked out for each value that the rest of the index can have; for those from
        which no iteration leaves, at once.
        """
        step, last = part.coefficient(axis), int(self.kernel.extents[axis]) - 1
        rest = self.whole(part - Affine(((axis, step),)), point)
        least, most = self.ranges.of(rest)
        inner = max(least, -min(0, step * last)), min(most, size - 1 - max(0, step * last))
        if inner[0] > inner[1]:
            inner = least, least - 1
        for values in (
            *((v, v) for v in range(least, inner[0])),
            inner,
            *((v, v) for v in range(inner[1] + 1, most + 1)),
        ):
            with self.ranges.given(rest, *values):
                taps = self.ranges.of(low)[0], self.ranges.of(high)[1] - 1
            reached = [value + step * tap for value in values for tap in taps]
            if taps[0] <= taps[1] and values[0] <= values[1] and not 0 <= min(reached) <= max(reached) < size:
                raise KernelError(
                    f"{self.kernel.name}: the loop over {axis} may leave {size} elements",
                    f"index: {part} from {min(reached)} to {max(reached)}",
                    f"kernel: {self.kernel}",
                )

    # ---- loads
    def load(self, access: Read, point: Point) -> Value:
        buffer = self.kernel.buffers[access.buffer]
        dtype = self.stored(buffer.dtype)
        if access.buffer in self.schedule.packed:
            return self.load_packed(access, buffer, point)
        if access.buffer in self.copied:
            return self.load_copied(access, buffer, point)
        if self.is_square(access, point):
            return self.load_transposed(access, point)
        base, constant, lanes, spread = self.offsets(buffer, access.index, point)
        self.stays_inside(access, buffer, access.index, point, self.guarded(access, point))
        element, start = ELEMENTS[dtype], f"%{buffer.name}.ptr"
        if access.buffer in self.asked:
            self.ask(access, buffer, self.address(element, start, base, constant), constant, point)
        scalar_guard, lane_guard = self.guards(access, point)
        other = self.constant(0 if access.other is None else access.other.value, dtype)
        if spread is None and lanes == 0 and lane_guard is None:
            address = self.address(element, start, base, constant)
            value = self.load_scalar(dtype, address, scalar_guard, other)
        elif scalar_guard and lane_guard is None and spread is None and lanes == 1:
            address = self.address(element, start, base, constant)
            address = self.address_or(address, scalar_guard, self.splat(other))
            value = self.load_vector(dtype, address, 1, None, self.mask, other)
        else:
            mask = self.both(lane_guard, self.mask)
            if scalar_guard:
                mask = self.both(mask, self.splat(scalar_guard))
            address = self.address(element, start, base, constant)
            value = self.load_vector(dtype, address, lanes, spread, mask, other)
        return self.cast(value, "bool") if buffer.dtype == "bool" else value

    def load_packed(self, access: Read, buffer: Buffer, point: Point) -> Value:
        """A vector of a buffer that lies in panels: whole, since the last one is padded."""
        if isinstance(access.index[-1], Affine):
            return self.load_half(access, buffer, point)
        address = self.address_packed(access, buffer, point, -1)
        return self.read(address, buffer.dtype, self.lanes)

    def load_half(self, access: Read, buffer: Buffer, point: Point) -> Value:
        """One of the halves that lie in pairs in a panel, of each lane: both are loaded together."""
        axis = next((name for name, by in access.index[-1].terms if by == 1), "")
        is_pair = access.index[-1] == Affine(((axis, 1),)) and buffer.shape[-1] == 2
        base, half = point.get(axis, (0, 0))
        if not is_pair or base != 0 or NUMPY[buffer.dtype].itemsize != 2 or buffer.dtype == "f16":
            raise Unsayable(f"{self.kernel.name}: {access} are no pairs of halves", str(self.schedule))
        first = point | {axis: (0, 0)}

        def make() -> Value:
            address = self.address_packed(access, buffer, first, -2)
            return self.read(address, "i32", self.lanes, NUMPY[buffer.dtype].itemsize)

        both = self.memo(("pair", self.key(access, first)), make)
        self.stays_inside(access, buffer, access.index, point, [])
        return self.convert("trunc", self.binary("lshr", both, 16) if half else both, buffer.dtype)

    def load_pair(self, access: Read, point: Point) -> Value:
        """Neighbours along the paired axis (two halves, four bytes) as one i32: for each lane, or for all."""
        buffer, axis = self.kernel.buffers[access.buffer], self.schedule.paired or ""
        is_packed, lanes = access.buffer in self.schedule.packed, 0
        count = NEIGHBOURS.get(buffer.dtype, 0)
        fits = count == self.kernel.extents[axis] and buffer.offset(access.index).coefficient(axis) == 1
        if not fits or any(self.guards(access, point)):
            raise Unsayable(f"{self.kernel.name}: {access} are no pairs along {axis}", str(self.schedule))
        for each in (point, point | {axis: (0, count - 1)}):
            self.stays_inside(access, buffer, access.index, each, self.guarded(access, each))
        if is_packed and buffer.strides[-2] == count:
            address, lanes = self.address_packed(access, buffer, point, -2), self.lanes
        else:
            base, constant, step, spread = self.offsets(buffer, access.index, point)
            if is_packed or step not in (0, count) or spread is not None:
                raise Unsayable(f"{self.kernel.name}: {access} are no pairs of lanes", str(self.schedule))
            lanes = self.lanes if step else 0
            address = self.address(ELEMENTS[buffer.dtype], f"%{buffer.name}.ptr", base, constant)
            self.ask(access, buffer, address, constant, point)
        return self.read(address, "i32", lanes, NUMPY[buffer.dtype].itemsize)

    def address_packed(self, access: Read, buffer: Buffer, point: Point, along: int) -> str:
        """Where a vector of a buffer of panels begins.  along: the dimension that has a panel's columns."""
        axis = self.schedule.packed[access.buffer]
        number, (_, first) = self.panels[axis], point[axis]
        self.stays_inside(access, buffer, access.index, point, [])
        dim = next(d for d, part in enumerate(access.index) if isinstance(part, Expr))
        _, last = self.ranges.of(number)
        panels, width, extent = buffer.shape[dim], int(buffer.shape[along]), self.kernel.extents[axis]
        if isinstance(extent, Dim) and is_at_least(panels, (extent + (width - 1)) // width):
            panels = -(-OPEN // width)
        if last >= int(panels) or first + self.lanes > width or width != self.lanes * self.schedule.vectors:
            raise KernelError(
                f"{self.kernel.name}: the code of {access} may leave {buffer}",
                f"panel {last} of {panels}, columns {first} to {first + self.lanes - 1} of {width}",
                f"schedule: {self.schedule}",
                f"kernel: {self.kernel}",
            )
        base, constant = self.linear(buffer.offset(access.index), point)
        base = self.sum(self.times(number, self.size(buffer.strides[dim])), base)
        constant += first * int(buffer.strides[along])
        address = self.address(ELEMENTS[buffer.dtype], f"%{buffer.name}.ptr", base, constant)
        if constant * NUMPY[buffer.dtype].itemsize % LINE == 0:  # each line of a panel once
            self.ask(access, buffer, address, constant, point)
        return address

    # ---- what is read later
    @cached_property
    def asked(self) -> set[str]:
        """The buffers that are asked for beforehand."""
        return {*self.schedule.ahead, *self.schedule.next_panels}

    def ask(self, access: Read, buffer: Buffer, address: str, constant: int, point: Point) -> None:
        """Ask for what the schedule says is read later, where a line of the buffer is read.

        constant: the part of the address that is known.
        """
        if ahead := self.schedule.ahead.get(access.buffer):
            self.prefetch(self.address("i8", address, 0, ahead))
        if access.buffer in self.next_panels:
            self.ask_for_panel(self.next_panels[access.buffer], access, buffer, address, constant, point)

    @cached_property
    def next_panels(self) -> dict[str, NextPanel]:
        """How the next panel of a buffer is asked for."""
        found = {b: next_panel(self.kernel, self.schedule, b) for b in self.schedule.next_panels}
        return {buffer: panel for buffer, panel in found.items() if panel is not None}

    def ask_for_panel(
        self, panel: NextPanel, access: Read, buffer: Buffer, address: str, constant: int, point: Point
    ) -> None:
        """Ask for a line of the next panel, or not, so that all tiles together ask for all of its lines: a
        tile for those from where it begins among all places."""
        itemsize = NUMPY[buffer.dtype].itemsize
        if constant * itemsize % (panel.every * LINE):
            return
        terms = buffer.offset(access.index).terms
        read, _ = self.linear(Affine(tuple(term for term in terms if term[0] in panel.summed)), point)
        read, known = self.times(read, itemsize), constant * itemsize % panel.nbytes
        begins = {axis: self.begins.get(axis, (point[axis][0], 0)) for axis in panel.place.names}
        base, first = self.linear(panel.place, begins)
        place = self.times(self.sum(base, first), panel.nbytes)
        begun = self.sum(self.integer("udiv", place, panel.of), self.integer("udiv", read, panel.tiles))
        onward = panel.nbytes - known + known // panel.tiles
        self.prefetch(self.address("i8", address, self.minus(begun, read), onward), level=2)

    def load_copied(self, access: Read, buffer: Buffer, point: Point) -> Value:
        """An element of a strip's copy."""
        copy, element = self.copied[access.buffer], ELEMENTS[buffer.dtype]
        (base, offset), (step, ahead) = point[copy.axis], point[copy.summed]
        row, column = self.minus(step, copy.first), self.minus(base, copy.start)
        tile, block = self.schedule.tiles.get(copy.axis, 1), self.schedule.block(copy.axis)
        block = min(block, int(self.kernel.extents[copy.axis]))
        self.ranges.declare(row, 0, copy.size - 1)  # the strip's loop begins with `first`
        self.ranges.declare(column, 0, block - tile)  # tiles overlap where a unit has fewer rows
        low, high = self.ranges.of(column)
        if low + offset < 0 or high + offset >= copy.count or ahead or self.ranges.of(row)[1] >= copy.size:
            raise KernelError(
                f"{self.kernel.name}: the code of {access} may leave its copy",
                f"it takes {low + offset} to {high + offset} of {copy.count} elements",
                f"schedule: {self.schedule}",
            )
        place = self.sum(self.times(row, copy.pitch), column)
        return self.read(self.address(element, copy.array, place, offset), buffer.dtype)

    def load_scalar(self, dtype, address, guard, other) -> Value:
        if guard is None:
            return self.read(address, dtype)
        return self.read(self.address_or(address, guard, other), dtype)

    def address_or(self, address: str, guard: Value, other: Value) -> str:
        """Where to read what is inside of its buffer as a whole, or not at all: then `other`, on the stack.

        A masked load from a page that does not exist would be a fault that the processor finds to be none,
        which takes it some 1,000 cycles; and one of the buffer's own elements may not exist either.
        """
        return self.select(guard, Value(address, "ptr"), self.place_of(other)).text

    def load_vector(self, dtype, address, lanes, spread, mask, other) -> Value:
        if lanes == 1 and spread is None and mask is None:
            return self.read(address, dtype, self.lanes)
        shape, align = suffix(dtype, self.lanes), NUMPY[dtype].itemsize
        apart = spread is None and lanes != 1 and 1 <= abs(lanes) <= MOST_STRIDE
        if apart and (mask is None or self.target.has_masks):
            return self.load_strided(dtype, address, lanes, mask, other)
        if lanes == 1 and spread is None:
            if self.target.loses_masks and align == 8:
                mask = self.unknown(mask, address)
            name, place = f"llvm.masked.load.{shape}.p0", Value(address, "ptr")
        else:
            name = f"llvm.masked.gather.{shape}.v{self.lanes}p0"
            place = self.pointers(ELEMENTS[dtype], address, lanes, spread)
        arguments = [place, self.constant(align, "i32"), self.every(mask), self.splat(other)]
        return self.ssa(self.call(name, type_of(dtype, self.lanes), arguments), dtype, self.lanes)

    def load_strided(self, dtype: str, address: str, stride: int, mask: Value | None, other: Value) -> Value:
        """Elements a few apart: picked out of vectors of all from the first to the last one."""
        count, element = self.lanes, ELEMENTS[dtype]
        lowest = min(0, stride * (count - 1))
        starts = [
            *range(0, abs(stride) * (count - 1) + 1 - count, count),
            abs(stride) * (count - 1) + 1 - count,
        ]
        places = [stride * lane - lowest for lane in range(count)]
        found: Value | None = None
        for number, start in enumerate(starts):
            own = {at - start: lane for lane, at in enumerate(places) if start <= at < start + count}
            at = self.address(element, address, 0, lowest + start)
            some = mask and self.shuffle(
                mask, self.constant(False, "bool", True), [own.get(k, count) for k in range(count)]
            )
            part = self.load_vector(dtype, at, 1, None, some, other)
            picks = {lane: (count if number else 0) + at for at, lane in own.items()}
            found = self.shuffle(
                found or part, part if number else None, [picks.get(k, k) for k in range(count)]
            )
        assert found is not None
        return found

    def every(self, mask: Value | None) -> Value:
        """The argument of an intrinsic for a mask, where None is all lanes."""
        return mask or self.constant(True, "bool", True)

    def unknown(self, mask: Value | None, address: str) -> Value | None:
        """The mask, so that LLVM knows none of its lanes; one that is a constant as a whole stays it.

        A load of two registers, of whose mask LLVM 22 knows one half to be empty and not the other, loses the
        mask of the empty half on AVX2, or ends the process: "Getting value from an unknown LocationSize".
        """
        if mask is None or mask.constant is not None:
            return mask
        never = self.ssa(f"icmp eq ptr {address}, null", "bool")
        return self.binary("xor", mask, self.splat(never))

    def pointers(self, element: str, address: str, lanes: int, spread: Value | None) -> Value:
        """One address for each lane: a stride along them, plus further offsets."""
        offsets = self.ramp("i64", lanes)
        if spread is not None:
            offsets = self.binary("add", spread, offsets) if lanes else spread
        return self.ssa(f"getelementptr {element}, ptr {address}, {offsets}", "ptr", self.lanes)

    def guards(self, access: Read, point: Point) -> tuple[Value | None, Value | None]:
        """The tests the verifier could not settle: one i1 for the whole vector, and one for each lane."""
        scalar: Value | None = None
        lane: Value | None = None
        for d in self.unproved(access):
            if self.is_inside(access, d, point):
                continue
            part, size = access.index[d], self.kernel.buffers[access.buffer].shape[d]
            if isinstance(part, Expr):
                index = self.emit(cast(part, "i64"), point)
            else:
                index = self.value(self.whole(part, point))
                lanes = part.coefficient(self.lane_axis)
                if isinstance(lanes, Dim) or lanes:
                    index = self.binary("add", self.splat(index), self.apart(lanes))
            if index.lanes:
                lane = self.both(lane, self.test("icmp ult", index, self.splat(self.value(self.size(size)))))
            else:
                test = Value(self.once(f"icmp ult {index}, {self.size(size)}"), "bool")
                scalar = test if scalar is None else Value(self.once(f"and {scalar}, {test.text}"), "bool")
        return scalar, lane

    def unproved(self, access: Read) -> list[int]:
        """The dimensions in which the kernel leaves it to a test whether a read is inside."""
        if access not in self._unproved:
            self._unproved[access] = self.kernel.unproved(access) if access.other is not None else []
        return self._unproved[access]

    def guarded(self, access: Read, point: Point) -> list[int]:
        """The dimensions that `guards` tests, and those that open loops were held to keep inside."""
        return [
            d
            for d in self.unproved(access)
            if (access, d) in self.held or not self.is_inside(access, d, point)
        ]

    def is_inside(self, access: Read, d: int, point: Point) -> bool | None:
        """Whether a dimension of an index is inside its array; None where only the code finds out."""
        if (access, d) in self.held:
            return True
        part, size = access.index[d], self.kernel.buffers[access.buffer].shape[d]
        if isinstance(part, Expr) or isinstance(size, Dim):
            return None
        low, high = self.reach_of(part, point)
        if low > high:
            return None
        return (True if 0 <= low and high < size else None) if low < size and high >= 0 else False

    # ---- a square of registers transposed, or its first rows
    def is_square(self, access: Read, point: Point) -> bool:
        across = self.across(access).keys()
        return bool(across) and can_transpose(self.kernel, access, self.lane_axis) and across <= point.keys()

    def across(self, access: Read) -> dict[str, int]:
        """The axes, innermost first, along which elements follow each other, if all points of theirs are at
        hand: a tiled one as long as a vector, or tiled and unrolled ones that are whole."""
        offset, tiles = self.kernel.buffers[access.buffer].offset(access.index), self.schedule.tiles
        sizes, found = {**self.schedule.unrolled, **tiles}, dict[str, int]()
        apart = {*self.schedule.peeled, self.rolled}
        while axis := next(
            (a for a in sizes if a not in apart | {*found} and offset.coefficient(a) == prod(found.values())),
            None,
        ):
            if sizes[axis] != self.kernel.extents[axis]:
                return found or ({axis: self.lanes} if tiles.get(axis) == self.lanes else {})
            found[axis] = sizes[axis]
        return found

    def load_transposed(self, access: Read, point: Point) -> Value:
        """Load a vector along the contiguous axes for each lane, then swap blocks of 8, 4, 2..., as far as
        anything is made of them: of short axes the last vector is not full."""
        across, vector, buffer = self.across(access), self.lane_axis, self.kernel.buffers[access.buffer]

        def at(number: int) -> Point:
            found = dict(point)
            for axis, size in across.items():
                found[axis] = point[axis][0], number % size
                number //= size
            found[axis] = point[axis][0], found[axis][1] + number * size  # beyond the last, if it is
            return found

        place, step = 0, 1
        for axis, size in across.items():
            place, step = place + point[axis][1] * step, step * size
        start = place // self.lanes * self.lanes
        count = min(self.lanes, prod(across.values()) - start)
        full = None if count == self.lanes else self.lanes_below(count)
        for end in (start, start + count - 1):
            self.stays_inside(access, buffer, access.index, at(end), [])
        element, offset = ELEMENTS[buffer.dtype], buffer.offset(access.index)
        rows, zero = [], self.constant(0, buffer.dtype)
        for lane in range(self.lanes):
            corner = at(start) | {vector: (point[vector][0], point[vector][1] + lane)}
            address = self.address(element, f"%{buffer.name}.ptr", *self.linear(offset, corner))
            inside = None if self.mask is None else self.splat(self.lane(self.mask, lane))
            rows.append(self.load_vector(buffer.dtype, address, 1, None, self.both(inside, full), zero))
        block = self.lanes // 2
        while block:
            made, wanted = list(rows), -(-count // block) * block  # as many of what follows does not mix
            for row in range(wanted):
                one, other = rows[row & ~block], rows[row | block]
                picks = [
                    self.lanes * bool(lane & block) + (row & block) + (lane & ~block)
                    for lane in range(self.lanes)
                ]
                made[row] = self.shuffle(one, other, picks)
            rows, block = made, block // 2
        for number, row in enumerate(rows[:count], start):
            self.scopes[-1][self.key(access, at(number))] = row
        return rows[place - start]

    # ---- stores
    def store(self, stage: Store, points: list[Point]) -> None:
        if self.fills_lines(stage, points):
            for point in points:
                self.emit(stage.value, point, self.kernel.buffers[stage.buffer].dtype)
            test = self.memo("aligned", self.aligned)
            self.either(test, partial(self.store_past, stage, points), partial(self.store_all, stage, points))
        else:
            self.store_all(stage, points)

    def fills_lines(self, stage: Store, points: list[Point]) -> bool:
        """Whether these are full vectors of a panel that begin at multiples of their size, if the buffer
        does: its panels begin at multiples of whole vectors."""
        axis = self.lane_axis
        if not self.schedule.has(Stream) or axis not in self.schedule.peeled or self.mask is not None:
            return False
        offset = self.kernel.buffers[stage.buffer].offset(stage.index)
        others = [offset.constant, *(by for name, by in offset.terms if name != axis)]
        others += [point[axis][1] for point in points]
        whole = all(isinstance(n, int) and n % self.lanes == 0 for n in others)
        plain = not (stage.axes or stage.combine) and all(isinstance(part, Affine) for part in stage.index)
        return plain and whole and offset.coefficient(axis) == 1

    def store_past(self, stage: Store, points: list[Point]) -> None:
        """Past the caches."""
        self.streaming = True
        self.store_all(stage, points)
        self.streaming = False

    def aligned(self) -> str:
        """Whether every output begins at a multiple of a cache line; an i1."""
        starts = [self.name(f"ptrtoint ptr %{buffer.name}.ptr to i64") for buffer in self.kernel.outputs]
        total = starts[0]
        for start in starts[1:]:
            total = self.name(f"or i64 {total}, {start}")
        return self.name(f"icmp eq i64 {self.name(f'and i64 {total}, 63')}, 0")

    def store_all(self, stage: Store, points: list[Point]) -> None:
        axis = self.between(stage)
        for point in points:
            if axis is None:
                self.store_one(stage, point)
            elif point[axis][1] == 0:
                self.store_two(stage, [point, point | {axis: (point[axis][0], 1)}])

    def beside(self, number: int) -> list[Store]:
        """The store of that number and those after it that together fill the places of their vectors; none
        where they don't."""
        if self.mask is not None and (not self.target.has_masks or self.mask == self.lanes_below(1)):
            return []
        first = self.kernel.stages[number]
        assert isinstance(first, Store)
        start = self.kernel.buffers[first.buffer].offset(first.index)
        count = start.coefficient(self.lane_axis)
        if isinstance(count, Dim) or not 2 <= count <= MOST_STRIDE or self.lanes < 2 or self.streaming:
            return []
        found = [s for s in self.kernel.stages[number : number + count] if isinstance(s, Store)]
        buffers = [self.kernel.buffers[store.buffer] for store in found]
        places = [buffer.offset(s.index) for buffer, s in zip(buffers, found, strict=True)]
        fits = all(
            not (s.axes or s.combine or any(isinstance(part, Expr) for part in s.index)) for s in found
        )
        fits = fits and {s.buffer for s in found} == {first.buffer} and buffers[0].dtype != "bool"
        return found if fits and places == [start + Affine((), by) for by in range(count)] else []

    def store_beside(self, stages: list[Store], points: list[Point]) -> None:
        """Stores whose vectors are a few elements apart, one beside the other, as whole vectors."""
        buffer = self.kernel.buffers[stages[0].buffer]
        for point in points:
            for stage in stages:
                self.stays_inside(f"the store to {buffer.name}", buffer, stage.index, point, [])
            values = [self.splat(self.emit(stage.value, point, buffer.dtype)) for stage in stages]
            base, constant, _, _ = self.offsets(buffer, stages[0].index, point)
            address = self.address(ELEMENTS[buffer.dtype], f"%{buffer.name}.ptr", base, constant)
            self.store_interleaved(values, buffer.dtype, address)

    def store_interleaved(self, values: list[Value], dtype: str, address: str) -> None:
        """The first lanes of all vectors, then the second ones, and so on."""
        count, lanes, align = len(values), self.lanes, NUMPY[dtype].itemsize
        for start in range(0, count * lanes, lanes):
            vector, lane = zip(*((n % count, n // count) for n in range(start, start + lanes)), strict=True)
            some = values[0]
            for number, value in enumerate(values[1:], 1):
                kept = lane if number == 1 else range(lanes)
                some = self.shuffle(
                    some,
                    value,
                    [lanes + k if v == number else at for v, k, at in zip(vector, lane, kept, strict=True)],
                )
            at = self.address(ELEMENTS[dtype], address, 0, start)
            if self.mask is None:
                self.line(f"store {some}, ptr {at}, align {align}")
                continue
            arguments = [
                some,
                Value(at, "ptr"),
                self.constant(align, "i32"),
                self.shuffle(self.mask, None, lane),
            ]
            self.line(self.call(f"llvm.masked.store.{suffix(dtype, lanes)}.p0", "void", arguments))

    def between(self, stage: Store) -> str | None:
        """The axis of a tile whose two points lie one between two lanes of the other."""
        buffer = self.kernel.buffers[stage.buffer]
        offset = buffer.offset(stage.index)
        affine = all(isinstance(part, Affine) for part in stage.index)
        if self.mask or stage.combine or buffer.dtype == "bool" or not affine:
            return None
        if offset.coefficient(self.lane_axis) != 2 or self.lane_axis not in self.kernel.parallel_names:
            return None
        both = (axis for axis, size in self.schedule.tiles.items() if size == self.kernel.extents[axis] == 2)
        return next((a for a in both if offset.coefficient(a) == 1 and a != self.rolled), None)

    def store_two(self, stage: Store, points: list[Point]) -> None:
        """Two vectors, the lanes of one between those of the other."""
        buffer = self.kernel.buffers[stage.buffer]
        for point in points:
            self.stays_inside(f"the store to {buffer.name}", buffer, stage.index, point, [])
        values = [self.splat(self.emit(stage.value, point, buffer.dtype)) for point in points]
        base, constant, _, _ = self.offsets(buffer, stage.index, points[0])
        address = self.address(ELEMENTS[buffer.dtype], f"%{buffer.name}.ptr", base, constant)
        self.store_interleaved(values, buffer.dtype, address)

    def combined(self, word: str, old: Value, new: Value) -> Value:
        """What an accumulating store writes; in halves, the float32 result rounded once."""
        if kind(old.dtype) != "h":
            return self.named(word, old, new)
        return self.cast(self.named(word, self.cast(old, "f32"), self.cast(new, "f32")), old.dtype)

    def store_one(self, stage: Store, point: Point) -> None:
        buffer = self.kernel.buffers[stage.buffer]
        value = self.emit(stage.value, point, buffer.dtype)
        self.stays_inside(f"the store to {buffer.name}", buffer, stage.index, point, [])
        dtype = self.stored(buffer.dtype)
        element, align = ELEMENTS[dtype], NUMPY[dtype].itemsize
        base, constant, lanes, spread = self.offsets(buffer, stage.index, point)
        address = self.address(element, f"%{buffer.name}.ptr", base, constant)
        if self.mask is not None and self.mask == self.lanes_below(1):
            # one element, and LLVM's masked store of it would be as wide as what it was truncated from
            if spread is not None:
                address = self.address(element, address, self.lane(spread, 0).text, 0)
            lanes, spread = 0, None
        if spread is None and not lanes:
            value = self.cast(self.lane(value, 0), dtype)  # a vector axis of extent 1 has one lane
            if stage.combine not in (None, "set"):
                value = self.combined(stage.combine, self.read(address, dtype), value)
            self.line(f"store {value}, ptr {address}, align {align}")
            return
        value = self.cast(self.splat(value), dtype)
        if stage.combine not in (None, "set"):
            old = self.load_vector(dtype, address, lanes, spread, self.mask, self.constant(0, dtype))
            value = self.combined(stage.combine, old, value)
        if lanes == 1 and spread is None and self.mask is None:
            if self.streaming:
                self.declared["!0"] = "!0 = !{i32 1}"
                self.line(
                    f"store {value}, ptr {address}, align {min(64, self.lanes * align)}, !nontemporal !0"
                )
            else:
                self.line(f"store {value}, ptr {address}, align {align}")
            return
        shape = suffix(dtype, self.lanes)
        if lanes == 1 and spread is None:
            name, place = f"llvm.masked.store.{shape}.p0", Value(address, "ptr")
        else:
            name = f"llvm.masked.scatter.{shape}.v{self.lanes}p0"
            place = self.pointers(element, address, lanes, spread)
        arguments = [value, place, self.constant(align, "i32"), self.every(self.mask)]
        self.line(self.call(name, "void", arguments))
