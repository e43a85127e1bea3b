"""Where a stage finds what earlier stages made: in registers, computed again, or in arrays on the stack."""

from __future__ import annotations

from ...ir.dims import Dim
from ...ir.errors import KernelError
from ...ir.kernel.affine import Affine
from ...ir.kernel.form import Kernel, Local, names
from ...ir.kernel.scalar import Ref, ref
from ..schedules.default import most_kept
from ..schedules.steps import Schedule
from ..schedules.target import Target
from .memory import Memory
from .ranges import Int
from .writer import ELEMENTS, Point, Value

HELD = 1 << 15  # elements on the stack for the states of a scan that are read after it


class Results(Memory):
    """The results of stages, by parallel point."""

    def __init__(self, kernel: Kernel, schedule: Schedule, target: Target):
        super().__init__(kernel, schedule, target)
        # (a kept Local or scan state, parallel point) -> its array, element type and length
        self.scratch: dict[tuple, tuple[str, str, int]] = {}

    def bind(self, name: str, points: list[Point], values: list[Value], axes: tuple[str, ...] = ()) -> None:
        """Leave a stage's results in the memo, as the value of a reference to it at each point."""
        for point, value in zip(points, values, strict=True):
            self.scopes[-1][self.key(ref(name, axes), point)] = value

    def reference(self, expr: Ref, point: Point) -> Value:
        """A Local: loaded if it is kept, else computed again; a scan's state that was held.

        Every other result is in the memo already.
        """
        if expr.name in self.schedule.kept:
            address = self.scratch_address(expr, point)
            return self.read(address, self.kernel.dtypes[expr.name], self.lanes, 64)
        local = self.kernel.locals.get(expr.name)
        if local is not None:
            return self.emit(local.value, point)
        if not expr.axes:
            raise KernelError(f"{self.kernel.name}: {expr} is read where it is not computed yet")
        return self.held_state(expr, point)

    def keep(self, stage: Local, points: list[Point]) -> None:
        """Hold a Local over the vector axis in a stack array of whole vectors; later stages load it."""
        place = ref(stage.name, names(stage.axes))
        for point in points:
            value = self.splat(self.emit(stage.value, point))
            self.scopes[-1][self.key(place, point)] = value
            self.line(f"store {value}, ptr {self.scratch_address(place, point)}, align 64")

    def scratch_address(self, place: Ref, point: Point) -> str:
        (vector,) = place.axes
        dtype, extent = self.kernel.dtypes[place.name], self.kernel.extents[vector]
        element = ELEMENTS[dtype]
        if isinstance(extent, Dim):  # the code serves what the array holds, in whole vectors
            self.stays_on_axes(place, Affine(((vector, 1),)), point)
            length = most_kept(dtype, self.schedule)
        else:
            length = -(-extent // self.lanes) * self.lanes
            self.fits(place, point[vector], 1, self.lanes, length)
        name = self.array(place.name, point, element, length)
        return self.address(element, name, *self.linear(Affine(((vector, 1),)), point))

    def array(self, name: str, point: Point, element: str, length: int) -> str:
        """The stack array of a stage's results at a parallel point."""
        key = name, tuple(point[axis] for axis in sorted(self.kernel.parallel_names))
        return self.scratch.setdefault(key, (f"%{name}.keep{len(self.scratch)}", element, length))[0]

    def hold_state(self, place: Ref, point: Point, value: Value) -> None:
        """Store a scan's state where stages that do not run in the scan's loop find it."""
        value = self.cast(value, self.stored(value.dtype))
        self.line(f"store {value}, ptr {self.state_address(place, point, value.lanes)}, align 8")

    def held_state(self, place: Ref, point: Point) -> Value:
        dtype = self.kernel.dtypes[place.name]
        lanes = self.lanes if self.lane_axis in self.kernel.parallel_names else 0
        address = self.state_address(place, point, lanes)
        return self.cast(self.read(address, self.stored(dtype), lanes, 8), dtype)

    def state_address(self, place: Ref, point: Point, lanes: int) -> str:
        (axis,) = place.axes
        element, width = ELEMENTS[self.stored(self.kernel.dtypes[place.name])], lanes or 1
        length = int(self.kernel.extents[axis]) * width
        if length > HELD:
            raise KernelError(
                f"{self.kernel.name}: a scan over more than {HELD // width} steps is read in stores over its "
                "axis alone",
                f"at: {place}",
                "store its states, and read them in another kernel",
            )
        self.fits(place, point[axis], width, width, length)
        name = self.array(place.name, point, element, length)
        return self.address(element, name, *self.linear(Affine(((axis, width),)), point))

    def fits(self, place: Ref, at: tuple[Int, int], by: int, width: int, length: int) -> None:
        """Raises KernelError unless `width` elements from by * at on, masked or not, lie in a stack array."""
        low, high = (by * (end + at[1]) for end in self.ranges.of(at[0]))
        if low <= high and (low < 0 or high + width > length):
            raise KernelError(
                f"{self.kernel.name}: the code of {place} may leave its {length} elements on the stack",
                f"it takes {low} to {high + width - 1}",
            )
