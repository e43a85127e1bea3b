"""Kernel + schedule -> LLVM text, with explicit vectors.

The function is `void lamina_name(ptr inputs..., ptr outputs..., i64 lo, i64 hi)`: it does the units of work
lo..hi of `schedule.units`.  A unit is one tile of the parallel axes, times one chunk of the vector axis when
that is parallel.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

from ...ir.errors import KernelError
from ...ir.kernel.affine import Affine
from ...ir.kernel.form import COMBINE, Axis, Fold, Kernel, Local, Reduce, Store, identity, names
from ...ir.kernel.scalar import Op, Ref, ref
from ...ir.kernel.types import kind
from .memory import Memory
from .schedule import Schedule, default_schedule, unit_axes, units
from .target import Target
from .writer import ELEMENTS, Point, Value, suffix

Body = Callable[[list[Point], list[Value]], list[Value]]


def lower(kernel: Kernel, target: Target, schedule: Schedule | None = None) -> str:
    """A verified, bound kernel as an LLVM module.  Raises KernelError for what the emitter cannot say."""
    if kernel.symbols:
        raise KernelError(
            f"{kernel.name}: LLVM text is made for bound kernels",
            f"symbols: {', '.join(kernel.symbols)}",
            f"bind them: kernel.bind({', '.join(f'{name}=...' for name in kernel.symbols)})",
        )
    emitter = Emitter(kernel, schedule or default_schedule(kernel, target), target)
    body = emitter.function()
    return "\n".join([*emitter.declared.values(), body, ""])


class Emitter(Memory):
    """Writes the function of one kernel."""

    def __init__(self, kernel: Kernel, schedule: Schedule, target: Target):
        super().__init__(kernel, schedule, target)
        self.scratch: dict[
            tuple, tuple[str, str]
        ] = {}  # (a kept Local, parallel point) -> its array and type

    # ---- stages
    def stages(self, points: list[Point]) -> None:
        done: set[int] = set()
        for number, stage in enumerate(self.kernel.stages):
            if number in done:
                continue
            match stage:
                case Store():
                    self.over(stage.axes, points, [], _effect(partial(self.store, stage)))
                case Reduce():
                    self.bind(stage.name, points, self.accumulate(stage, points))
                case Fold(scan=True):
                    done |= self.scan(number, stage, points)
                case Fold():
                    self.fold(stage, points)
                case Local(name, ()):
                    self.bind(name, points, [self.emit(stage.value, point) for point in points])
                case Local(name) if name in self.schedule.keep:
                    self.over(stage.axes, points, [], _effect(partial(self.keep, stage)))

    def bind(self, name: str, points: list[Point], values: list[Value], axes: tuple[str, ...] = ()) -> None:
        """Leave a stage's results in the memo, as the value of a reference to it at each point."""
        for point, value in zip(points, values, strict=True):
            self.scopes[-1][self.key(ref(name, axes), point)] = value

    def reference(self, expr: Ref, point: Point) -> Value:
        """A Local: loaded if it is kept, else computed again.  Every other result is in the memo already."""
        if expr.name in self.schedule.keep:
            dtype = self.kernel.dtypes[expr.name]
            wide = self.vector(ELEMENTS[dtype])
            return self.ssa(
                f"load {wide}, ptr {self.scratch_address(expr, point)}, align 64", dtype, self.lanes
            )
        local = self.kernel.locals.get(expr.name)
        if local is None:
            raise KernelError(
                f"{self.kernel.name}: LLVM reads a scan's states in stores over its axis, directly after it",
                f"at: {expr}",
            )
        return self.emit(local.value, point)

    def keep(self, stage: Local, points: list[Point]) -> None:
        """Hold a Local over the vector axis in a stack array of whole vectors; later stages load it."""
        place = ref(stage.name, names(stage.axes))
        for point in points:
            value = self.splat(self.emit(stage.value, point))
            self.scopes[-1][self.key(place, point)] = value
            self.line(f"store {value}, ptr {self.scratch_address(place, point)}, align 64")

    def scratch_address(self, place: Ref, point: Point) -> str:
        (vector,) = place.axes
        key = place.name, tuple(point[axis] for axis in sorted(self.kernel.parallel_names))
        element = ELEMENTS[self.kernel.dtypes[place.name]]
        name, _ = self.scratch.setdefault(key, (f"%{place.name}.keep{len(self.scratch)}", element))
        return self.address(element, name, *self.linear(Affine(((vector, 1),)), point))

    # ---- reductions
    def accumulate(self, stage: Reduce, points: list[Point]) -> list[Value]:
        word, dtype = COMBINE[stage.combine], self.kernel.dtypes[stage.name]
        across = self.lane_axis in names(stage.axes)
        wide = across or self.lane_axis in self.kernel.free_axes(stage.value)
        copies = self.schedule.unroll if across else 1
        start = self.constant(identity(word, dtype), dtype, wide)
        fused = (
            isinstance(stage.value, Op) and stage.value.name == "mul" and word == "add" and kind(dtype) == "f"
        )

        def combined(total: Value, point: Point) -> Value:
            if fused and isinstance(stage.value, Op):
                factors = [self.emit(factor, point, dtype) for factor in stage.value.args]
                return self.named("fma", *(self.splat(f) if wide else f for f in factors), total)
            value = self.emit(stage.value, point, dtype)
            return self.named(word, total, self.splat(value) if wide else value)

        def body(at: list[Point], totals: list[Value]) -> list[Value]:
            totals = list(totals)
            for k, point in enumerate(at):
                slot = k % len(totals)  # points come copy-major: see over_vector
                following = combined(totals[slot], point)
                if across and self.mask:
                    mask = Value(self.mask, "bool", self.lanes)
                    following = self.ssa(f"select {mask}, {following}, {totals[slot]}", dtype, self.lanes)
                totals[slot] = following
            return totals

        totals = self.over(stage.axes, points, [start] * (len(points) * copies), body)
        if not across:
            return totals
        return [self.horizontal(word, totals[k :: len(points)]) for k in range(len(points))]

    def horizontal(self, word: str, totals: list[Value]) -> Value:
        """The lanes of several accumulators as one number, always in the same order."""
        while len(totals) > 1:
            pairs = [totals[k : k + 2] for k in range(0, len(totals), 2)]
            totals = [self.named(word, *pair) if len(pair) == 2 else pair[0] for pair in pairs]
        (total,) = totals
        dtype, letter = total.dtype, kind(total.dtype)
        floating = {"add": "fadd", "mul": "fmul", "max": "fmaximum", "min": "fminimum"}
        integer = {"add": "add", "mul": "mul", "bit_or": "or", "bit_and": "and"}
        integer |= {"max": "smax" if letter == "i" else "umax", "min": "smin" if letter == "i" else "umin"}
        name = (floating if letter == "f" else integer)[word]
        arguments = [(total.type, total.text)]
        if name in ("fadd", "fmul"):
            first = self.constant(-0.0 if name == "fadd" else 1.0, dtype)
            arguments.insert(0, (first.type, first.text))
        flags = "reassoc " if letter == "f" else ""  # a tree over the lanes
        call = self.call(
            f"llvm.vector.reduce.{name}.{suffix(dtype, self.lanes)}", ELEMENTS[dtype], arguments, flags
        )
        return self.ssa(call, dtype)

    # ---- folds
    def fold(self, stage: Fold, points: list[Point]) -> None:
        across = self.lane_axis in names(stage.axes)
        if across and stage.merge is None:
            raise KernelError(
                f"{self.kernel.name}: a fold without merge runs in sequence",
                f"at: {stage}",
                "choose another vector axis",
            )
        states = self.folded(stage, points, across, lambda at, states: None)
        if across:
            states = [self.merged(stage, point, state) for point, state in zip(points, states, strict=True)]
        for k, name in enumerate(stage.names):
            self.bind(name, points, [state[k] for state in states])

    def folded(
        self, stage: Fold, points: list[Point], across: bool, seen: Callable[[list[Point], list], None]
    ) -> list[list[Value]]:
        """The last state at every point; `seen` is told each step's states."""
        wide = across or self.lane_axis in self.kernel.parallel_names
        width, dtypes = len(stage.names), [self.kernel.dtypes[name] for name in stage.names]

        def shaped(values: list[Value]) -> list[Value]:
            return [self.splat(value) if wide else value for value in values]

        def body(at: list[Point], carried: list[Value]) -> list[Value]:
            carried = list(carried)
            for k, point in enumerate(at):
                slot = k % len(points) * width
                before = carried[slot : slot + width]
                self.scopes.append({})  # what depends on the state must not be found again at the next step
                for name, value in zip(stage.names, before, strict=True):
                    self.bind(name, [point], [value])
                after = shaped([self.emit(e, point, d) for e, d in zip(stage.step, dtypes, strict=True)])
                if across and self.mask:
                    mask = Value(self.mask, "bool", self.lanes)
                    after = [
                        self.ssa(f"select {mask}, {new}, {old}", new.dtype, self.lanes)
                        for new, old in zip(after, before, strict=True)
                    ]
                self.scopes.pop()
                carried[slot : slot + width] = after
                seen([point], [after])
            return carried

        start = [
            value
            for point in points
            for value in shaped([self.emit(e, point, d) for e, d in zip(stage.init, dtypes, strict=True)])
        ]
        flat = self.over(stage.axes, points, start, body)
        return [flat[k : k + width] for k in range(0, len(flat), width)]

    def merged(self, stage: Fold, point: Point, state: list[Value]) -> list[Value]:
        """The lanes' states as one, lane after lane."""
        total = [self.lane(value, 0) for value in state]
        for number in range(1, self.lanes):
            self.scopes.append({})
            for name, left, right in zip(stage.names, total, state, strict=True):
                self.bind(name, [point], [left])
                self.bind(f"right.{name}", [point], [self.lane(right, number)])
            dtypes = [self.kernel.dtypes[name] for name in stage.names]
            total = [self.emit(e, point, d) for e, d in zip(stage.merge or (), dtypes, strict=True)]
            self.scopes.pop()
        return total

    def scan(self, number: int, stage: Fold, points: list[Point]) -> set[int]:
        """Run a scan, the stores over its axis inside its loop; give those stages' numbers."""
        axes = names(stage.axes)
        if self.lane_axis in axes:
            raise KernelError(
                f"{self.kernel.name}: a scan runs in sequence", f"at: {stage}", "choose another vector axis"
            )
        inside = self.kernel.scan_stores(number)

        def seen(at: list[Point], states: list[list[Value]]) -> None:
            self.scopes.append({})
            for k, name in enumerate(stage.names):
                self.bind(name, at, [state[k] for state in states], axes)
            for n in inside:
                other = self.kernel.stages[n]
                assert isinstance(other, Store)
                self.store(other, at)
            self.scopes.pop()

        self.folded(stage, points, False, seen)
        return set(inside)

    # ---- loops
    def over(
        self, axes: tuple[Axis, ...], points: list[Point], carried: list[Value], body: Body
    ) -> list[Value]:
        """Loops over `axes`, the vector axis innermost; body(points, carried) -> carried."""
        ordered = sorted(axes, key=lambda axis: axis.name == self.lane_axis)
        if not ordered:
            return body(points, carried)
        axis, rest = ordered[0], tuple(ordered[1:])
        extent = int(axis.extent)
        if extent == 0:
            return carried
        if axis.name == self.lane_axis:
            return self.over_vector(axis.name, extent, points, carried, body)
        step = min(self.schedule.step.get(axis.name, 1), extent)
        full = extent // step * step

        def run(index: str, offsets: range, values: list[Value]) -> list[Value]:
            for k in offsets:
                values = self.over(rest, [p | {axis.name: (index, k)} for p in points], values, body)
            return values

        if full == step:
            carried = run("0", range(step), carried)
        else:
            carried = self.loop("0", str(full), step, carried, lambda index, v: run(index, range(step), v))
        return run("0", range(full, extent), carried)

    def over_vector(
        self, name: str, extent: int, points: list[Point], carried: list[Value], body: Body
    ) -> list[Value]:
        """A local vector axis: `unroll` vectors at once, then single ones, the last with a constant mask."""
        block = self.lanes * self.schedule.unroll
        full = extent // block * block

        def once(index: str, values: list[Value]) -> list[Value]:
            return body([p | {name: (index, k)} for k in range(0, block, self.lanes) for p in points], values)

        if full:
            carried = self.loop("0", str(full), block, carried, once)
        for start in range(full, extent, self.lanes):
            left = extent - start
            self.mask = None if left >= self.lanes else self.lanes_below(str(left))
            at = [p | {name: ("0", start)} for p in points]
            carried = body(at, carried)  # of several copies of an accumulator, the first takes the rest
        self.mask = None
        return carried

    # ---- the function
    def function(self) -> str:
        if units(self.kernel, self.schedule):
            self.loop("%lo", "%hi", 1, [], _effect(self.unit), nonempty=False)
        shared = {b.inplace for b in self.kernel.outputs} | {b.name for b in self.kernel.outputs if b.inplace}
        arguments = [f"ptr {'' if name in shared else 'noalias '}%{name}.ptr" for name in self.kernel.buffers]
        arrays = ["  %nowhere = alloca i64, align 8"]
        for name, element in self.scratch.values():
            extent = int(self.kernel.extents[self.lane_axis])
            length = -(-extent // self.lanes) * self.lanes
            arrays.append(f"  {name} = alloca [{length} x {element}], align 64")
        width = 512 if self.target.lanes == 16 else 256
        header = f"define void @{symbol(self.kernel)}({', '.join([*arguments, 'i64 %lo', 'i64 %hi'])})"
        return "\n".join(
            [
                f'{header} nounwind "prefer-vector-width"="{width}" {{',
                "entry:",
                *arrays,
                *self.lines,
                "  ret void",
                "}",
            ]
        )

    def unit(self, number: str) -> None:
        schedule, chunk = self.schedule, None
        point: Point = {}
        for name, count in reversed(unit_axes(self.kernel, schedule)):
            index = "0" if count == 1 else self.integer(f"urem i64 {number}, {count}")
            number = number if count == 1 else self.integer(f"udiv i64 {number}, {count}")
            vector = name == schedule.vector
            size = schedule.chunk if vector else schedule.tile.get(name, 1)
            base = index if size == 1 or index == "0" else self.integer(f"mul nsw i64 {index}, {size}")
            extent = int(self.kernel.extents[name])
            if vector:
                chunk = base
                continue
            if extent % size:
                # the last tile overlaps its neighbour: stores are pure functions of their point
                last = extent - size
                early = self.integer(f"icmp slt i64 {base}, {last}")
                base = self.integer(f"select i1 {early}, i64 {base}, i64 {last}")
            point[name] = (base, 0)
        sizes = [(name, range(schedule.tile.get(name, 1))) for name in point]
        points = [
            {name: (point[name][0], k) for (name, _), k in zip(sizes, corner, strict=True)}
            for corner in product(*(steps for _, steps in sizes))
        ]
        if chunk is None:
            self.stages(points)
        else:
            self.vector_loops(points, chunk)

    def vector_loops(self, points: list[Point], low: str) -> None:
        """A parallel vector axis: full blocks, then masked single vectors up to the end of the chunk."""
        vector, schedule = self.schedule.vector, self.schedule
        assert vector is not None
        extent, block = int(self.kernel.extents[vector]), self.lanes * schedule.unroll
        exact = extent % block == 0 and (schedule.chunk % block == 0 or extent <= schedule.chunk)
        if extent <= schedule.chunk:
            high, full = str(extent), str(extent // block * block)
        else:
            end = self.name(f"add i64 {low}, {schedule.chunk}")
            inside = self.name(f"icmp slt i64 {end}, {extent}")
            high = self.name(f"select i1 {inside}, i64 {end}, i64 {extent}")
            size = self.name(f"sub i64 {high}, {low}")
            full = self.name(f"sub i64 {high}, {self.name(f'urem i64 {size}, {block}')}")

        def once(index: str, width: int) -> list[Value]:
            self.stages([p | {vector: (index, k)} for p in points for k in range(0, width, self.lanes)])
            return []

        def tail(index: str, _: list[Value]) -> list[Value]:
            self.mask = None if self.lanes == 1 else self.lanes_below(self.name(f"sub i64 {high}, {index}"))
            once(index, self.lanes)
            self.mask = None
            return []

        if full != "0":
            self.loop(low, full, block, [], lambda index, _: once(index, block), nonempty=exact)
        if not exact:
            self.loop(full, high, self.lanes, [], tail, nonempty=False)


def _effect(act: Callable[[Any], None]) -> Callable[[Any, list[Value]], list[Value]]:
    """A loop body that only acts and carries nothing along."""

    def body(where: Any, carried: list[Value]) -> list[Value]:
        act(where)
        return carried

    return body


def symbol(kernel: Kernel) -> str:
    """The name of a kernel's function: with a prefix, so that none shadows one of the C library's."""
    return f"lamina_{kernel.name}"
