"""The NumPy interpreter: what a kernel means, one array dimension for each axis of a stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import numpy as np

from ..dtypes import converted
from ..errors import KernelError
from .affine import Affine
from .form import COMBINE, Axis, Fold, Kernel, Reduce, Stage, Store, identity, names
from .scalar import Cast, Const, Coordinate, Expr, Op, Read, Ref, in_order, walk
from .substitute import bind
from .types import NUMPY, is_floating
from .words import VOCABULARY

Grid = Mapping[str, np.ndarray]
MOST = 1 << 57  # points of an axis: NumPy raises another error than MemoryError where int64s are more bytes
# (a value, its declared type, the size of what was rounded on the way to it) -> what it becomes
Rounding = Callable[[np.ndarray, str, np.ndarray], np.ndarray]
# Words whose result is one of their operands, or that but for the sign: nothing is rounded.
UNROUNDED = frozenset(("select", "max", "min", "neg", "abs", "floor", "ceil", "trunc", "copysign"))


def interpret(
    kernel: Kernel,
    *arrays: np.ndarray,
    exact: bool = False,
    expanded: bool | Literal["by bits"] = False,
    merged: bool = False,
    rounding: Rounding | None = None,
    **symbols: int,
) -> list[np.ndarray]:
    """Run a verified kernel on its inputs and give its outputs, new arrays.

    exact:    floating values are float64 throughout, outputs too: the yardstick for backends.
    expanded: words with an expansion run it, so that its error is seen without a backend; "by bits" those of
              targets on which `scale2` is no instruction.
    merged:   folds that have a merge are folded in two halves and merged, so that merge is tested too.
    rounding: sees each floating value that native code would round, and says what it becomes: what an exact
              run needs to tell how far rounding can reach.
    symbols:  the kernel's symbols by name.

    Raises KernelError where an array does not fit its buffer, a trusted index is out of range, or memory is
    short: every stage is an array of all its points.
    """
    kernel = bind(kernel, **symbols)
    check_arrays(kernel, arrays, kernel.inputs)
    try:
        run = _Run(kernel, arrays, exact, expanded, merged, rounding)
        with np.errstate(all="ignore"):
            for stage in kernel.stages:
                run.stage(stage)
    except MemoryError as error:  # _Run.grid raises it, too
        raise KernelError(f"{kernel.name}: there is no memory for all its points at once") from error
    return [run.results[buffer.name] for buffer in kernel.outputs]


def check_arrays(kernel: Kernel, arrays: tuple[np.ndarray, ...], buffers: tuple) -> None:
    """Raise KernelError unless there is one array for each buffer, of its type and shape."""
    if len(arrays) != len(buffers):
        raise KernelError(f"{kernel.name} takes {len(buffers)} arrays, got {len(arrays)}")
    for array, buffer in zip(arrays, buffers, strict=True):
        if array.dtype != NUMPY[buffer.dtype] or array.shape != buffer.shape:
            raise KernelError(
                f"{kernel.name}: an array has the type and shape of its buffer",
                f"buffer: {buffer}",
                f"array: {array.dtype}[{','.join(map(str, array.shape))}]",
            )


def check_indices(kernel: Kernel, *arrays: np.ndarray) -> None:
    """Raise KernelError where an indirect index that native code would trust is out of range.

    The cost is that of interpreting the index expressions, and the stages they refer to.
    """
    run = _Run(kernel, arrays, False, False, False)
    with np.errstate(all="ignore"):
        for stage in kernel.stages:
            if isinstance(stage, Store):
                run.check_stage(stage)
            elif _is_indirect(kernel):
                run.stage(stage)


def _is_indirect(kernel: Kernel) -> bool:
    indices = [access.index for _, access in kernel.reads] + [store.index for store in kernel.stores]
    return any(isinstance(part, Expr) for index in indices for part in index)


class _Run:
    """One interpretation: what the stages so far have left."""

    def __init__(
        self,
        kernel: Kernel,
        arrays: tuple[np.ndarray, ...],
        exact: bool,
        expanded: bool | Literal["by bits"],
        merged: bool,
        rounding: Rounding | None = None,
    ):
        self.kernel, self.exact, self.expanded, self.merged = kernel, exact, expanded, merged
        self.rounding = rounding
        self.inputs = {b.name: self.widened(a) for b, a in zip(kernel.inputs, arrays, strict=False)}
        self.values: dict[
            str, np.ndarray
        ] = {}  # one dimension for each parallel axis, then for each local one
        self.results = {buffer.name: self.blank(buffer) for buffer in kernel.outputs}

    def widened(self, array: np.ndarray) -> np.ndarray:
        return array.astype(np.float64) if self.exact and array.dtype in _FLOATING else array

    def numpy(self, dtype: str) -> np.dtype:
        return np.dtype(np.float64) if self.exact and is_floating(dtype) else NUMPY[dtype]

    def blank(self, buffer) -> np.ndarray:
        """What the buffer holds before: its input's values in place, an identity, or NaN to betray a hole."""
        if buffer.inplace:
            return self.inputs[buffer.inplace].copy()
        combine = next((s.combine for s in self.kernel.stores if s.buffer == buffer.name and s.combine), None)
        if combine:
            start = 0 if combine == "set" else identity(combine, buffer.dtype)
        else:
            start = np.nan if is_floating(buffer.dtype) else 0
        return np.full(buffer.shape, start, self.numpy(buffer.dtype))

    # ---- stages
    def grid(self, axes: tuple[Axis, ...]) -> dict[str, np.ndarray]:
        """Each axis as an array along its own dimension."""
        if any(int(axis.extent) > MOST for axis in axes):
            raise MemoryError
        rank = len(axes)
        return {
            a.name: np.arange(a.extent).reshape([-1 if d == k else 1 for d in range(rank)])
            for k, a in enumerate(axes)
        }

    def stage(self, stage: Stage) -> None:
        axes = self.kernel.parallel + stage.axes
        shape = tuple(axis.extent for axis in axes)
        if isinstance(stage, Fold):
            self.fold(stage)
            return
        if 0 in shape:  # what does not vary is not computed either: its reads may be out of bounds
            if not isinstance(stage, Store):
                value = np.empty(shape, self.numpy(self.kernel.dtypes[stage.name]))
                self.values[stage.name] = self.reduced(stage, value) if isinstance(stage, Reduce) else value
            return
        evaluator = _Evaluator(self, self.grid(axes), {})
        if isinstance(stage, Store):
            dtype = self.kernel.buffers[stage.buffer].dtype
            value = np.broadcast_to(evaluator.value(stage.value, dtype), shape)
            self.store(stage, evaluator, value, shape)
            return
        value = np.broadcast_to(evaluator.value(stage.value), shape)
        if isinstance(stage, Reduce):
            value = self.reduced(stage, value)
        self.values[stage.name] = np.asarray(value)

    def reduced(self, stage: Reduce, value: np.ndarray) -> np.ndarray:
        dtype, word = self.kernel.dtypes[stage.name], COMBINE[stage.combine]
        over = tuple(range(len(self.kernel.parallel), value.ndim))
        extra = {"dtype": self.numpy(dtype)} if word in ("add", "mul") else {}
        found = VOCABULARY[word].numpy.reduce(value, axis=over, initial=identity(word, dtype), **extra)
        if self.rounding is None or not extra or not is_floating(dtype):
            return found
        # n roundings of what is as large as a random walk of the terms; a product's are as large as itself
        terms = np.prod([value.shape[d] for d in over])
        size = np.sqrt((value * value).sum(axis=over)) if word == "add" else np.abs(found)
        return self.rounding(np.asarray(found), dtype, np.asarray(size * _roundings(terms)))

    def store(self, stage: Store, evaluator: _Evaluator, value: np.ndarray, shape: tuple[int, ...]) -> None:
        target = self.results[stage.buffer]
        parts = [evaluator.part(part) for part in stage.index]
        evaluator.check_range(stage, stage.index, parts, target.shape)
        index = tuple(np.broadcast_to(part, shape) for part in parts)
        value = value.astype(target.dtype)
        if not index:  # a 0-d buffer, which a point of axes of size 1 may reach
            target, index = target.reshape(1), (np.zeros(shape, np.intp),)
        if stage.combine in (None, "set"):
            target[index] = value
        else:
            VOCABULARY[stage.combine].numpy.at(target, index, value)
            if self.rounding is not None and is_floating(self.kernel.buffers[stage.buffer].dtype):
                sizes, terms = np.zeros(target.shape), np.zeros(target.shape)
                np.add.at(sizes, index, value * value)
                np.add.at(terms, index, 1)
                dtype = self.kernel.buffers[stage.buffer].dtype
                np.copyto(target, self.rounding(target, dtype, np.sqrt(sizes) * _roundings(terms)))

    def check_stage(self, stage: Store) -> None:
        """The index checks of a store without the store."""
        evaluator = _Evaluator(self, self.grid(self.kernel.parallel + stage.axes), {})
        for expr in walk(*stage.exprs):
            if isinstance(expr, Read) and any(isinstance(part, Expr) for part in expr.index):
                evaluator.value(expr)
        parts = [evaluator.part(part) for part in stage.index]
        evaluator.check_range(stage, stage.index, parts, self.kernel.buffers[stage.buffer].shape)

    def fold(self, stage: Fold) -> None:
        if any(axis.extent == 0 for axis in self.kernel.parallel):
            shape = tuple(axis.extent for axis in self.kernel.parallel + (stage.axes if stage.scan else ()))
            for name in stage.names:
                self.values[name] = np.empty(shape, self.numpy(self.kernel.dtypes[name]))
            return
        points = list(np.ndindex(*(axis.extent for axis in stage.axes)))
        grid = self.grid(self.kernel.parallel)
        shape = tuple(axis.extent for axis in self.kernel.parallel)
        half = len(points) // 2 if self.merged and stage.merge is not None else len(points)
        steps: list[dict[str, np.ndarray]] = []
        state = self.folded(stage, points[:half], grid, shape, steps)
        if half < len(points):
            other = self.folded(stage, points[half:], grid, shape, steps)
            both = state | {f"right.{name}": value for name, value in other.items()}
            state = self.states(stage, stage.merge or (), _Evaluator(self, grid, both), shape)
        for name in stage.names:
            if stage.scan:
                dtype = self.numpy(self.kernel.dtypes[name])
                kept = [step[name] for step in steps]
                self.values[name] = np.stack(kept, axis=-1) if kept else np.empty((*shape, 0), dtype)
            else:
                self.values[name] = state[name]

    def folded(self, stage: Fold, points: list, grid: Grid, shape: tuple[int, ...], steps: list) -> dict:
        state = self.states(stage, stage.init, _Evaluator(self, grid, {}), shape)
        for point in points:
            at = dict(grid) | {a.name: np.asarray(k) for a, k in zip(stage.axes, point, strict=True)}
            state = self.states(stage, stage.step, _Evaluator(self, at, state), shape)
            steps.append(state)
        return state

    def states(
        self, stage: Fold, exprs: tuple[Expr, ...], evaluator: _Evaluator, shape: tuple[int, ...]
    ) -> dict:
        return {
            name: np.broadcast_to(evaluator.value(expr, self.kernel.dtypes[name]), shape)
            for name, expr in zip(stage.names, exprs, strict=True)
        }


class _Evaluator:
    """Expressions over one grid; `states` are values of a fold's own names."""

    def __init__(self, run: _Run, grid: Grid, states: Mapping[str, np.ndarray]):
        self.run, self.kernel, self.grid, self.states = run, run.kernel, grid, states
        self.memo: dict[tuple[Expr, str | None], np.ndarray] = {}

    def value(self, expr: Expr, wanted: str | None = None) -> np.ndarray:
        """The value of `expr`; `wanted` types it where it is made of untyped constants alone."""
        for part in in_order(expr):
            if self.kernel.dtype_of(part) is not None:
                self.known(part)
        return self.known(expr, wanted)

    def known(self, expr: Expr, wanted: str | None = None) -> np.ndarray:
        """The same where the operands' values are known, but for untyped ones."""
        dtype = self.kernel.dtype_of(expr) or wanted
        key = expr, dtype
        if key not in self.memo:
            found = self.compute(expr, dtype)
            rounds = isinstance(expr, Cast) or (isinstance(expr, Op) and expr.name not in UNROUNDED)
            if self.run.rounding and rounds and dtype is not None and is_floating(dtype):
                found = self.run.rounding(found, dtype, np.abs(found))
            self.memo[key] = found
        return self.memo[key]

    def part(self, part: Affine | Expr) -> np.ndarray:
        if isinstance(part, Expr):
            return self.value(part).astype(np.int64)
        total = np.asarray(part.constant, np.int64)
        for name, coefficient in part.terms:
            total = total + self.grid[name] * coefficient
        return total

    def compute(self, expr: Expr, dtype: str | None) -> np.ndarray:
        match expr:
            case Const(value):
                return constant(value, self.run.numpy(dtype or "f32"))
            case Ref(name, axes):
                if name in self.states:
                    return self.states[name]
                kept = self.run.values[name]
                return np.asarray(kept[tuple(self.grid[a] for a in names(self.kernel.parallel) + axes)])
            case Coordinate(index):
                return self.part(index)
            case Cast(target, arg, True):
                return self.bitcast(arg, target)
            case Cast(target, arg):
                return converted(self.known(arg), self.run.numpy(target))
            case Read():
                return self.load(expr)
            case Op(name, args):
                return self.operation(name, args, dtype)
        raise TypeError(f"not a scalar expression: {expr!r}")

    def bitcast(self, arg: Expr, target: str) -> np.ndarray:
        """Bits are those of the declared types: an exact run rounds here, and widens again."""
        source = NUMPY[self.kernel.dtype_of(arg) or target]
        return self.run.widened(np.ascontiguousarray(self.known(arg).astype(source)).view(NUMPY[target]))

    def operation(self, name: str, args: tuple[Expr, ...], dtype: str | None) -> np.ndarray:
        word = VOCABULARY[name]
        agreed = next(
            (
                d
                for p, a in zip(word.pattern, args, strict=False)
                if p == "t" and (d := self.kernel.dtype_of(a))
            ),
            dtype,
        )
        if self.run.expanded:
            simpler = word.expansion(agreed or "", args, scales=self.run.expanded != "by bits")
            if simpler is not None:
                return self.value(simpler, agreed)
        values = [
            self.known(a, agreed if p == "t" else "bool") for p, a in zip(word.pattern, args, strict=False)
        ]
        return np.asarray(word.numpy(*values))

    def load(self, access: Read) -> np.ndarray:
        array = self.run.inputs[access.buffer]
        parts = [self.part(part) for part in access.index]
        if access.other is None:
            self.check_range(access, access.index, parts, array.shape)
            if any(part.size == 0 for part in parts):
                return np.empty(np.broadcast_shapes(*(part.shape for part in parts)), array.dtype)
            return np.asarray(array[tuple(parts)])
        inside = np.asarray(True)
        for part, size in zip(parts, array.shape, strict=True):
            inside = inside & (part >= 0) & (part < size)
        other = constant(access.other.value, array.dtype)
        if array.size == 0:
            return np.broadcast_to(other, inside.shape)
        nearest = tuple(np.clip(part, 0, size - 1) for part, size in zip(parts, array.shape, strict=True))
        return np.where(inside, array[nearest], other)

    def check_range(
        self, place: object, index: tuple, parts: list[np.ndarray], shape: tuple[int, ...]
    ) -> None:
        for d, (part, values) in enumerate(zip(index, parts, strict=True)):
            if isinstance(part, Expr) and values.size and (values.min() < 0 or values.max() >= shape[d]):
                bad = values.min() if values.min() < 0 else values.max()
                raise KernelError(
                    f"{self.kernel.name}: index {bad} is out of range for dimension {d} of size {shape[d]}",
                    f"at: {place}",
                    "the caller checks indices before a kernel runs, or the read says 'else value'",
                )


def constant(value: bool | int | float, dtype: np.dtype) -> np.ndarray:
    """A number of a kernel's text as an array: a whole one among floats may be larger than an int64."""
    return np.asarray(value if dtype.kind in "iub" else float(value), dtype)


def _roundings(terms: np.ndarray) -> np.ndarray:
    """How many times what the terms scatter by a sum of them may be rounded by, one after the other.

    Terms t of one sign: partial sums up to n t are rounded, sqrt(n) times what t sqrt(n) scatters by; of very
    many the roundings' own walk shows.
    """
    return np.sqrt(terms) * np.maximum(1.0, np.sqrt(terms) / 64)


_FLOATING = frozenset(dtype for name, dtype in NUMPY.items() if is_floating(name))
