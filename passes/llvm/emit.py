"""Kernel + schedule -> LLVM text, with explicit vectors.

The function is `void lamina_name(ptr inputs..., ptr outputs..., i64 lo, i64 hi)`: it does the units of work
lo..hi of `schedule.units`.  A unit is one tile of the parallel axes, times one chunk of the vector axis when
that is parallel.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from itertools import product
from math import prod
from typing import Any

from ...ir.errors import KernelError
from ...ir.kernel.form import COMBINE, Axis, Fold, Kernel, Local, Reduce, Stage, Store, identity, names
from ...ir.kernel.scalar import Const, Expr, Op, Ref, ref, walk
from ...ir.kernel.types import kind
from .ranges import OPEN
from .results import Results
from .schedule import Schedule, default_schedule, is_long, unit_axes
from .target import Target
from .writer import ELEMENTS, Point, Value, suffix

Body = Callable[[list[Point], list[Value]], list[Value]]


def lower(kernel: Kernel, target: Target, schedule: Schedule | None = None) -> str:
    """A verified, bound kernel as an LLVM module.  Raises KernelError for what the emitter cannot say."""
    if kernel.symbols:
        raise KernelError(
            f"{kernel.name}: LLVM text is made for bound kernels",
            f"symbols: {', '.join(kernel.symbols)}",
            f"bind them: bind(kernel, {', '.join(f'{name}=...' for name in kernel.symbols)})",
        )
    emitter = Emitter(kernel, schedule or default_schedule(kernel, target), target)
    body = emitter.function()
    return "\n".join([*emitter.declared.values(), body, ""])


class Emitter(Results):
    """Writes the function of one kernel."""

    # ---- stages
    def stages(self, points: list[Point], numbers: range | None = None) -> None:
        """The stages at some points; numbers: which of them."""
        done: set[int] = set()
        for number in range(len(self.kernel.stages)) if numbers is None else numbers:
            if number in done:
                continue
            match stage := self.kernel.stages[number]:
                case Store():
                    self.over(stage.axes, points, [], _effect(partial(self.store, stage)), stage=stage)
                case Reduce():
                    self.bind(stage.name, points, self.accumulate(stage, points))
                case Fold(scan=True):
                    done |= self.scan(number, stage, points)
                case Fold():
                    self.fold(stage, points)
                case Local(name, ()):
                    self.bind(name, points, [self.emit(stage.value, point) for point in points])
                case Local(name) if name in self.schedule.keep:
                    self.over(stage.axes, points, [], _effect(partial(self.keep, stage)), stage=stage)

    # ---- reductions
    def accumulate(self, stage: Reduce, points: list[Point]) -> list[Value]:
        word, dtype = COMBINE[stage.combine], self.kernel.dtypes[stage.name]
        across = self.lane_axis in names(stage.axes)
        wide = across or self.lane_axis in self.kernel.free_axes(stage.value)
        copies = self.copies(stage) if across else 1
        start = self.constant(identity(word, dtype), dtype, wide)
        product = isinstance(stage.value, Op) and stage.value.name == "mul"
        fused = product and word == "add" and kind(dtype) == "f" and self.target.has_fma

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

        totals = self.over(stage.axes, points, [start] * (len(points) * copies), body, copies, stage)
        if not across:
            return totals
        return [self.horizontal(word, totals[k :: len(points)]) for k in range(len(points))]

    def copies(self, stage: Reduce) -> int:
        """How many vectors of a local vector axis are added up at once: one where each is work enough to hide
        an addition's latency, and its code is long.
        """
        return 1 if is_long(self.kernel, stage, self.schedule.keep) else self.schedule.unroll

    def horizontal(self, word: str, totals: list[Value]) -> Value:
        """The lanes of several accumulators as one number, always in the same order."""
        while len(totals) > 1:
            pairs = [totals[k : k + 2] for k in range(0, len(totals), 2)]
            totals = [self.named(word, *pair) if len(pair) == 2 else pair[0] for pair in pairs]
        (total,) = totals
        if kind(total.dtype) != "f" or word not in ("max", "min"):
            return self.reduced(word, total)
        count = self.lanes
        while count > 1:  # halves against halves: LLVM's own reduction would order zeros too
            count //= 2
            order = ", ".join(f"i32 {lane + count}" for lane in range(count))
            halves = [
                self.ssa(
                    f"shufflevector {total}, {total.type} poison, <{count} x i32> <{picks}>",
                    total.dtype,
                    count,
                )
                for picks in (", ".join(f"i32 {lane}" for lane in range(count)), order)
            ]
            total = self.named(word, *halves)
        return self.lane(total, 0)

    def reduced(self, word: str, total: Value) -> Value:
        """LLVM's reduction of a vector's lanes."""
        dtype, letter = total.dtype, kind(total.dtype)
        integer = {"add": "add", "mul": "mul", "bit_or": "or", "bit_and": "and"}
        integer |= {"max": "smax" if letter == "i" else "umax", "min": "smin" if letter == "i" else "umin"}
        name = {"add": "fadd", "mul": "fmul"}[word] if letter == "f" else integer[word]
        arguments = [(total.type, total.text)]
        if name in ("fadd", "fmul"):
            first = self.constant(-0.0 if name == "fadd" else 1.0, dtype)
            arguments.insert(0, (first.type, first.text))
        flags = "reassoc " if letter == "f" else ""  # a tree over the lanes
        called = f"llvm.vector.reduce.{name}.{suffix(dtype, self.lanes)}"
        return self.ssa(self.call(called, ELEMENTS[dtype], arguments, flags), dtype)

    # ---- folds
    def fold(self, stage: Fold, points: list[Point]) -> None:
        across = self.lane_axis in names(stage.axes)
        if across and (stage.merge is None or stage.axes[-1].name != self.lane_axis):
            raise KernelError(
                f"{self.kernel.name}: a fold without merge runs in sequence, "
                "one with it along any axis but its fastest",
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
        flat = self.over(stage.axes, points, start, body, stage=stage)
        return [flat[k : k + width] for k in range(0, len(flat), width)]

    def merged(self, stage: Fold, point: Point, state: list[Value]) -> list[Value]:
        """The lanes' states as one: each vector is merged with itself turned by half its lanes, then less."""
        dtypes = [self.kernel.dtypes[name] for name in stage.names]
        turn = self.lanes // 2
        while turn:
            order = ", ".join(f"i32 {(lane + turn) % self.lanes}" for lane in range(self.lanes))
            self.scopes.append({})
            for name, value in zip(stage.names, state, strict=True):
                text = f"shufflevector {value}, {value.type} poison, <{self.lanes} x i32> <{order}>"
                self.bind(name, [point], [value])
                self.bind(f"right.{name}", [point], [self.ssa(text, value.dtype, self.lanes)])
            merge = zip(stage.merge or (), dtypes, strict=True)
            state = [self.splat(self.emit(e, point, d)) for e, d in merge]
            self.scopes.pop()
            turn //= 2
        return [self.lane(value, 0) for value in state]

    def scan(self, number: int, stage: Fold, points: list[Point]) -> set[int]:
        """Run a scan, the stores over its axis inside its loop; give those stages' numbers."""
        axes = names(stage.axes)
        if self.lane_axis in axes:
            raise KernelError(
                f"{self.kernel.name}: a scan runs in sequence", f"at: {stage}", "choose another vector axis"
            )
        inside = self.kernel.scan_stores(number)
        outside = (s for n, s in enumerate(self.kernel.stages) if n > number and n not in inside)
        read_later = set().union(*map(self.kernel.needs, outside)) & set(stage.names)

        def seen(at: list[Point], states: list[list[Value]]) -> None:
            self.scopes.append({})
            for k, name in enumerate(stage.names):
                self.bind(name, at, [state[k] for state in states], axes)
                if name in read_later:
                    for point, state in zip(at, states, strict=True):
                        self.hold_state(ref(name, axes), point, state[k])
            for n in inside:
                other = self.kernel.stages[n]
                assert isinstance(other, Store)
                self.store(other, at)
            self.scopes.pop()

        self.folded(stage, points, False, seen)
        return set(inside)

    # ---- loops
    def over(
        self,
        axes: tuple[Axis, ...],
        points: list[Point],
        carried: list[Value],
        body: Body,
        copies: int = 1,
        stage: Stage | None = None,
    ) -> list[Value]:
        """Loops over `axes`, the vector axis innermost, `copies` vectors of it at once.

        body(points, carried) -> carried.  What `stage` computes that no loop changes is computed before them.
        """
        if stage is not None and all(int(axis.extent) for axis in axes):
            self.hoist(stage, frozenset(names(axes)), points)
        ordered = sorted(axes, key=lambda axis: axis.name == self.lane_axis)
        if not ordered:
            return body(points, carried)
        axis, rest = ordered[0], tuple(ordered[1:])
        extent = int(axis.extent)
        if extent == 0:
            return carried
        if axis.name == self.lane_axis:
            return self.over_vector(axis.name, extent, points, carried, body, copies)
        step = min(self.schedule.step.get(axis.name, 1), extent)
        full = extent // step * step

        def run(index: str, offsets: range, values: list[Value]) -> list[Value]:
            for k in offsets:
                at = [p | {axis.name: (index, k)} for p in points]
                values = self.over(rest, at, values, body, copies, stage)
            return values

        if full == step:
            carried = run("0", range(step), carried)
        else:
            carried = self.loop("0", str(full), step, carried, lambda index, v: run(index, range(step), v))
        return run("0", range(full, extent), carried)

    def hoist(self, stage: Stage, axes: frozenset[str], points: list[Point]) -> None:
        """Compute what a stage needs and the axes do not change, so that loops over them find it done."""
        waiting, seen = list(stage.step if isinstance(stage, Fold) else stage.exprs), set()
        while waiting:
            expr = waiting.pop()
            if expr in seen or isinstance(expr, Const):
                continue
            seen.add(expr)
            if isinstance(expr, Ref):
                local = self.kernel.locals.get(expr.name)
                if local is not None and local.axes and expr.name not in self.schedule.keep:
                    waiting.append(local.value)
            elif self.varies(stage, expr, axes) or self.kernel.dtype_of(expr) is None:
                waiting.extend(expr.below)
            else:
                for point in points:
                    value = self.emit(expr, point)
                    if self.lane_axis in axes and kind(value.dtype) != "b":
                        self.splat(value)

    def varies(self, stage: Stage, expr: Expr, axes: frozenset[str]) -> bool:
        """Whether an expression depends on the axes, or on the states of a fold."""
        if self.kernel.free_axes(expr) & axes:
            return True
        return any(isinstance(e, Ref) and e.name in stage.defines for e in walk(expr))

    def over_vector(
        self, name: str, extent: int, points: list[Point], carried: list[Value], body: Body, copies: int
    ) -> list[Value]:
        """A local vector axis: `copies` vectors at once, then single ones, the last with a constant mask."""
        block = self.lanes * copies
        full, whole = extent // block * block, extent // self.lanes * self.lanes

        def blocks(width: int) -> Callable[[str, list[Value]], list[Value]]:
            steps = range(0, width, self.lanes)
            return lambda index, values: body([p | {name: (index, k)} for k in steps for p in points], values)

        if full:
            carried = self.counted(0, full, block, carried, blocks(block))
        if full < whole:  # of several copies of an accumulator, the first takes the rest
            carried = self.counted(full, whole, self.lanes, carried, blocks(self.lanes))
        if whole < extent:
            self.mask, self.end = self.lanes_below(str(extent - whole)), extent
            carried = body([p | {name: ("0", whole)} for p in points], carried)
            self.mask = None
        return carried

    def counted(
        self, low: int, high: int, step: int, carried: list[Value], body: Callable[[str, list[Value]], list]
    ) -> list[Value]:
        """A loop, or its body alone where it runs once."""
        if high - low == step:
            return body(str(low), carried)
        return self.loop(str(low), str(high), step, carried, body)

    # ---- the function
    @cached_property
    def units(self) -> int:
        """Units of work; those of an open axis are as many as `OPEN` points give."""
        return prod(
            -(-OPEN // self.unit_size(axis)) if count is None else count
            for axis, count in unit_axes(self.kernel, self.schedule)
        )

    def unit_size(self, axis: str) -> int:
        """Points along a parallel axis that one unit of work has."""
        schedule = self.schedule
        return schedule.chunk if axis == schedule.vector else schedule.tile.get(axis, 1)

    def function(self, name: str | None = None, linkage: str = "") -> str:
        """The whole function, under `name`; written once."""
        if self.units:
            self.ranges.declare("%lo", 0, self.units - 1)
            self.ranges.declare("%hi", 0, self.units)
            for extent in self.kernel.symbols:
                self.ranges.declare(f"%{extent}", OPEN, OPEN)
            self.loop("%lo", "%hi", 1, [], _effect(self.unit), nonempty=False)
        shared = {b.inplace for b in self.kernel.outputs} | {b.name for b in self.kernel.outputs if b.inplace}
        arguments = [f"ptr {'' if name in shared else 'noalias '}%{name}.ptr" for name in self.kernel.buffers]
        arguments += [f"i64 %{name}" for name in self.kernel.symbols]
        arrays = ["  %nowhere = alloca i64, align 8"]
        arrays += [f"  {slot} = alloca {kind}, align 64" for (kind, _), slot in self.slots.items()]
        for array, element, length in self.scratch.values():
            arrays.append(f"  {array} = alloca [{length} x {element}], align 64")
        name = name or symbol(self.kernel)
        header = f"define {linkage}void @{name}({', '.join([*arguments, 'i64 %lo', 'i64 %hi'])})"
        return "\n".join(
            [
                f"{header} {self.attributes} {{",
                "entry:",
                *arrays,
                *self.lines,
                *([f"  {self.call('llvm.x86.sse.sfence', 'void', [])}"] if self.schedule.stream else []),
                "  ret void",
                "}",
            ]
        )

    def unit(self, number: str) -> None:
        schedule, chunk = self.schedule, None
        point: Point = {}
        counts = unit_axes(self.kernel, schedule)
        for name, count in reversed(counts):
            if name == counts[0][0]:
                index = number  # the slowest axis has what is left
            else:
                index = "0" if count == 1 else self.integer(f"urem i64 {number}, {count}")
                number = number if count == 1 else self.integer(f"udiv i64 {number}, {count}")
            vector = name == schedule.vector
            size = self.unit_size(name)
            base = index if size == 1 or index == "0" else self.integer(f"mul nsw i64 {index}, {size}")
            if vector:
                chunk = base
                continue
            extent = self.kernel.extents[name]
            if size > 1 and (isinstance(extent, str) or extent % size):
                # the last tile overlaps its neighbour: stores are pure functions of their point
                is_open = isinstance(extent, str)
                last = self.integer(f"sub i64 %{extent}, {size}") if is_open else str(int(extent) - size)
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
        """A parallel vector axis: full blocks, then single vectors up to the end of the chunk, masked."""
        vector, schedule = self.schedule.vector, self.schedule
        assert vector is not None
        extent, block = self.kernel.extents[vector], self.lanes * schedule.unroll
        for stage in self.kernel.stages:
            self.hoist(stage, frozenset((vector, *names(stage.axes))), points)

        def at(index: str, width: int) -> None:
            self.stages([p | {vector: (index, k)} for p in points for k in range(0, width, self.lanes)])

        if isinstance(extent, int) and extent <= schedule.chunk:
            body = _effect(lambda where: self.stages(where))
            self.over_vector(vector, extent, points, [], body, schedule.unroll)
            return
        bound = str(extent) if isinstance(extent, int) else f"%{extent}"
        end = self.name(f"add i64 {low}, {schedule.chunk}")
        inside = self.name(f"icmp slt i64 {end}, {bound}")
        high = self.name(f"select i1 {inside}, i64 {end}, i64 {bound}")

        def tail(index: str) -> None:
            if self.lanes > 1:
                self.mask = self.lanes_below(self.name(f"sub i64 {high}, {index}"))
                _, self.end = self.ranges.of(high)
            at(index, self.lanes)
            self.mask = None

        size = self.name(f"sub i64 {high}, {low}")
        self.ranges.declare(size, 0, schedule.chunk)
        full = self.name(f"sub i64 {high}, {self.name(f'urem i64 {size}, {block}')}")
        last = (OPEN if isinstance(extent, str) else extent) - block  # whole blocks end where `full` is

        exact = isinstance(extent, int) and extent % block == 0 and schedule.chunk % block == 0
        if schedule.stream:
            middle = self.name(f"select i1 {self.memo('aligned', self.aligned)}, i64 {full}, i64 {low}")
            self.streaming = True
            self.loop(low, middle, block, [], _effect(lambda index: at(index, block)), False, last)
            self.streaming, low, exact = False, middle, False
        self.loop(low, full, block, [], _effect(lambda index: at(index, block)), exact, last)
        if not exact:
            self.loop(full, high, self.lanes, [], _effect(tail), nonempty=False)

    def aligned(self) -> str:
        """Whether every output begins at a multiple of a cache line; an i1."""
        starts = [self.name(f"ptrtoint ptr %{buffer.name}.ptr to i64") for buffer in self.kernel.outputs]
        total = starts[0]
        for start in starts[1:]:
            total = self.name(f"or i64 {total}, {start}")
        return self.name(f"icmp eq i64 {self.name(f'and i64 {total}, 63')}, 0")


def _effect(act: Callable[[Any], None]) -> Callable[[Any, list[Value]], list[Value]]:
    """A loop body that only acts and carries nothing along."""

    def body(where: Any, carried: list[Value]) -> list[Value]:
        act(where)
        return carried

    return body


def symbol(kernel: Kernel) -> str:
    """The name of a kernel's function: with a prefix, so that none shadows one of the C library's."""
    return f"lamina_{kernel.name}"
