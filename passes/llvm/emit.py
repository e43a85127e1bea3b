"""The stages of a kernel at points: LLVM text with explicit vectors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeGuard

from ...ir.errors import KernelError
from ...ir.kernel.form import Fold, Local, Reduce, Stage, Store, names
from ...ir.kernel.scalar import ref, walk
from .reductions import Reductions
from .writer import Point, Value, effect


class Emitter(Reductions):
    """Writes the stages of one kernel, at the points of a tile."""

    # ---- stages
    def stages(self, points: list[Point], numbers: range | None = None) -> None:
        """The stages at some points; numbers: which of them."""
        done: set[int] = set()
        every = range(len(self.kernel.stages)) if numbers is None else numbers
        for number in every:
            if number in done:
                continue
            match stage := self.kernel.stages[number]:
                case Store() if beside := self.beside(number):
                    self.store_beside(beside, points)
                    done |= {*range(number, number + len(beside))}
                case Store():
                    self.over(stage.axes, points, [], effect(partial(self.store, stage)), stage=stage)
                case Reduce():
                    if stage.name not in self.summed:
                        self.bind(stage.name, points, self.reduce(stage, points))
                case Fold(scan=True):
                    done |= self.scan(number, stage, points)
                case Fold():
                    self.fold(stage, points)
                case Local(name, ()):
                    self.bind(name, points, [self.emit(stage.value, point) for point in points])
                case Local(name) if name in self.schedule.kept:
                    following = self.kernel.stages[number + 1] if number + 1 in every else None
                    if following is not None and self.sums_on_the_way(following, stage):
                        self.hoist(stage, frozenset(names(stage.axes)), points)
                        self.kept_by[following.name] = stage
                    else:
                        self.over(stage.axes, points, [], effect(partial(self.keep, stage)), stage=stage)

    def sums_on_the_way(self, following: Stage, kept: Local) -> TypeGuard[Reduce]:
        """Whether the loop of the next stage, a sum or its like, keeps the Local that it reads."""
        if not isinstance(following, Reduce) or following.axes != kept.axes:
            return False
        if following.name in self.summed:
            return False
        return ref(kept.name, names(kept.axes)) in walk(following.value) and self.schedule.scaled is None

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
                with self.scope():  # what depends on the state must not be found again at the next step
                    for name, value in zip(stage.names, before, strict=True):
                        self.bind(name, [point], [value])
                    after = shaped([self.emit(e, point, d) for e, d in zip(stage.step, dtypes, strict=True)])
                    if across and self.mask:
                        pairs = zip(after, before, strict=True)
                        after = [self.select(self.mask, new, old) for new, old in pairs]
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
            order = [(lane + turn) % self.lanes for lane in range(self.lanes)]
            with self.scope():
                for name, value in zip(stage.names, state, strict=True):
                    self.bind(name, [point], [value])
                    self.bind(f"right.{name}", [point], [self.shuffle(value, None, order)])
                merge = zip(stage.merge or (), dtypes, strict=True)
                state = [self.splat(self.emit(e, point, d)) for e, d in merge]
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
            with self.scope():
                for k, name in enumerate(stage.names):
                    self.bind(name, at, [state[k] for state in states], axes)
                    if name in read_later:
                        for point, state in zip(at, states, strict=True):
                            self.hold_state(ref(name, axes), point, state[k])
                for n in inside:
                    other = self.kernel.stages[n]
                    assert isinstance(other, Store)
                    self.store(other, at)

        self.folded(stage, points, False, seen)
        return set(inside)
