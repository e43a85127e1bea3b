"""Take out of a sum what does not vary over it, and sum once what every point would sum again.

    parallel i:256 j:512                          parallel j:512
    t = sum(k:384) (c[i] * w[k, j])        ->     t = sum(k:384) w[k, j]
    y[i, j] = t                                   s[j] = t
                                              and
                                                  parallel i:256 j:512
                                                  y[i, j] = (c[i] * s[j])

Such sums come of gradients whose cotangent is a number, or one for each channel: fusion puts that into the
product that it is a factor of, which then is none that any family of code would take.  A factor may be 0
where a condition fails (a window that leaves the image); the condition is then a factor of its own:

    sum(k, r) select(0 <= i+r-1 < 16, c[n, k], 0) * w[k, j, r]
        ->  s[n, j, r] = sum(k) c[n, k] * w[k, j, r]    and    sum(r) select(0 <= i+r-1 < 16, s[n, j, r], 0)

What is infinite may then become NaN, and the other way round, as in every sum in another order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from ...ir.kernel.affine import Affine
from ...ir.kernel.form import Axis, Buffer, Kernel, Local, Reduce, Store
from ...ir.kernel.scalar import Const, Expr, Op, Read, Ref, cast, const, op, read, ref, walk
from ...ir.kernel.substitute import Substitution
from ...ir.kernel.types import bits, is_floating
from ..kernels.blocking import fresh, squeezed
from ..kernels.collapse import collapsed
from ..kernels.product import conditions_of, is_zero, product_of
from ..schedules.cost import nanoseconds, traffic
from ..schedules.default import default_schedule
from ..schedules.target import Target
from .program import Call, Program, Step
from .split_calls import in_turn

CALL = 2000.0  # nanoseconds that one more call must save: it is code to compile


def factor_sums(program: Program, target: Target) -> Program:
    """The program with sums of products as several calls, where those take less time."""
    steps: list[Step] = []
    for step in program.steps:
        steps.extend(_apart(step, target) if isinstance(step, Call) and step.how is None else (step,))
    return program.replace(steps=tuple(steps))


def _apart(call: Call, target: Target) -> Iterator[Step]:
    kernels = factored(call.kernel)
    if len(kernels) > 1 or kernels[0] is not call.kernel:
        spent = sum(price(kernel, target) + CALL for kernel in kernels)
        if spent < price(call.kernel, target) + CALL:
            return in_turn(call, kernels)
    return iter((call,))


def price(kernel: Kernel, target: Target) -> float:
    """Roughly the nanoseconds that a kernel takes on one thread, by the family of code that will have it."""
    if _is_taken(kernel):
        found = product_of(kernel)
        flops = 2 * math.prod(int(axis.extent) for axis in kernel.axes) / (found.passed if found else 1)
        moved = sum(traffic(kernel)) / target.core.near
        return max(flops * target.core.muladd * 16 / target.lanes, moved)
    return nanoseconds(kernel, default_schedule(kernel, target), target)


def _is_taken(kernel: Kernel) -> bool:
    """Whether a kernel is a convolution, the gradient of one, or a product of matrices."""
    found, narrow, flat = (product_of(k) for k in (kernel, squeezed(kernel), collapsed(kernel)))
    return bool(
        (found and found.windowed)
        or (narrow and narrow.convolution)
        or (flat and flat.is_matmul and flat.by_columns)
    )


@dataclass(frozen=True, eq=False)
class _Factor:
    """value, or where `is_condition` 1 where that holds and else 0; None for what is to be read."""

    value: Expr | None
    free: frozenset[str]
    is_condition: bool = False


@dataclass(frozen=True)
class _Step:
    """The product of `own`, summed over `axes`, is the factor `total`."""

    own: tuple[_Factor, ...]
    axes: frozenset[str]
    total: _Factor


def factored(kernel: Kernel) -> list[Kernel]:
    """The kernels that run one after another in place of one that sums products; itself where it is as good.

    Buffers of theirs that `kernel` has not hold what one leaves for another.
    """
    narrow = squeezed(kernel)
    loops = [stage for stage in narrow.stages if not isinstance(stage, (Local, Store))]
    if kernel.symbols or len(loops) != 1 or 0 in kernel.extents.values():
        return [kernel]
    (stage,) = loops
    if not isinstance(stage, Reduce) or stage.combine != "sum" or all(a.extent == 1 for a in stage.axes):
        return [kernel]
    dtype = narrow.dtypes[stage.name]
    parts = [e for e in walk(stage.value) if isinstance(e, (Ref, Read))]
    trusted = any(isinstance(e, Ref) or (e.other is None and e.below) for e in parts)
    if trusted or not is_floating(dtype) or bits(dtype) < 32:
        return [kernel]
    return _Factoring(narrow, stage).kernels() or [kernel]


class _Factoring:
    """The factors of a sum that are left to multiply, and the axes to sum them over."""

    def __init__(self, kernel: Kernel, stage: Reduce):
        self.kernel, self.stage, self.dtype = kernel, stage, kernel.dtypes[stage.name]
        self.summed = {axis.name for axis in stage.axes}
        self.factors = list(self.factors_of(stage.value))
        self.order = (*kernel.parallel, *stage.axes)
        self.extents = {axis.name: int(axis.extent) for axis in self.order}
        self.made: list[Kernel] = []
        self.buffers: list[Buffer] = []
        self.read: dict[_Factor, Expr] = {}  # the totals that are made

    def factors_of(self, value: Expr) -> Iterator[_Factor]:
        free = self.kernel.free_axes(value)
        if isinstance(value, Op) and value.name == "mul":
            for part in value.args:
                yield from self.factors_of(part)
        elif isinstance(value, Op) and value.name == "select" and is_zero(value.args[2]):
            conditions, inner = conditions_of(value)
            within = self.summed & frozenset[str]().union(*map(self.kernel.free_axes, conditions))
            if within <= self.kernel.free_axes(inner):
                yield _Factor(value, free)
            else:
                for condition in conditions:
                    yield _Factor(condition, self.kernel.free_axes(condition), is_condition=True)
                yield from self.factors_of(inner)
        else:
            untyped = isinstance(value, Const) and value.dtype is None
            yield _Factor(cast(value, self.dtype) if untyped else value, free)

    def kernels(self) -> list[Kernel]:
        """None where the sum is as good as it is."""
        idle = self.summed.difference(*(factor.free for factor in self.factors))
        outer = [factor for factor in self.factors if not factor.free & self.summed]
        self.factors = [factor for factor in self.factors if factor not in outer]
        self.summed -= idle
        for step in self.plan(tuple(self.factors), frozenset(self.summed))[1]:
            self.sum_apart(step)
        if not (outer or idle or self.made):
            return []
        count = math.prod(self.extents[axis] for axis in idle)
        if count > 1:
            outer.append(_Factor(const(float(count), self.dtype), frozenset()))
        return [*self.made, self.last(outer)]

    def plan(self, factors: tuple[_Factor, ...], summed: frozenset[str]) -> tuple[int, list[_Step]]:
        """What to sum apart, in turn, so that there are least points in all, and how many these are.

        Some factors over the axes that no other varies over; or all, where they don't vary over every point.
        """
        least, steps = self.points({*self.kernel.parallel_names, *summed}), list[_Step]()
        for own in dict.fromkeys(tuple(f for f in factors if a in f.free) for a in sorted(summed)):
            others = [factor for factor in factors if factor not in own]
            axes = summed.difference(*(factor.free for factor in others))
            free = frozenset[str]().union(*(factor.free for factor in own))
            again = others or self.points(self.kernel.parallel_names - free) > 1
            if not again or self.points(axes) == 1:
                continue
            total = _Factor(None, free - axes)
            points, more = self.plan((*others, total), summed - axes)
            points += self.points(free | axes)
            if points < least:
                least, steps = points, [_Step(own, axes, total), *more]
        return least, steps

    def points(self, axes: Iterable[str]) -> int:
        return math.prod(self.extents[axis] for axis in axes)

    def sum_apart(self, step: _Step) -> None:
        """Put what some factors sum up to in their place, read from an array of its own."""
        parallel = tuple(axis for axis in self.order if axis.name in step.total.free)
        number = len(self.buffers)
        shape = tuple(int(axis.extent) for axis in parallel)
        buffer = Buffer(fresh(self.kernel, f"s{number}"), self.dtype, shape)
        at = tuple(Affine(((axis.name, 1),)) for axis in parallel)
        summed = tuple(axis for axis in self.order if axis.name in step.axes)
        sum_ = Reduce(self.stage.name, "sum", summed, self.multiplied(step.own))
        stages = (sum_, Store(buffer.name, at, ref(sum_.name)))
        self.made.append(self.reading(Kernel("sum", (), (buffer,), parallel, stages)))
        self.buffers.append(buffer)
        self.read[step.total] = read(buffer.name, at)
        self.summed -= step.axes
        self.factors = [*(factor for factor in self.factors if factor not in step.own), step.total]

    def last(self, outer: list[_Factor]) -> Kernel:
        """The sum over what is left, if anything, and what the kernel computes from it."""
        axes: tuple[Axis, ...] = tuple(axis for axis in self.order if axis.name in self.summed)
        total: Expr | None = self.multiplied(self.factors) if self.factors else None
        before: tuple[Reduce, ...] = ()
        if axes:
            before = (replace(self.stage, axes=axes, value=total),)
            total = ref(self.stage.name)
        whole = Substitution(refs={self.stage.name: self.multiplied(outer, total)})
        at = self.kernel.stages.index(self.stage)
        later = tuple(map(whole.stage, self.kernel.stages[at + 1 :]))
        stages = (*self.kernel.stages[:at], *before, *later)
        return self.reading(self.kernel.replace(stages=stages))

    def multiplied(self, factors: Iterable[_Factor], value: Expr | None = None) -> Expr:
        """The product of factors, and of a value."""
        numbers = [self.read[f] if f.value is None else f.value for f in factors if not f.is_condition]
        conditions = [f.value for f in factors if f.is_condition]
        for number in numbers:
            if not (isinstance(number, Const) and number.value == 1):
                value = number if value is None else op("mul", number, value)
        if value is None:
            value = const(1.0, self.dtype)
        if conditions:
            every = conditions[0]
            for condition in conditions[1:]:
                every = op("bit_and", every, condition)
            value = op("select", every, value, const(0.0, self.dtype))
        return value

    def reading(self, kernel: Kernel) -> Kernel:
        """The kernel with those inputs that it reads, or is in place of."""
        used = {access.buffer for _, access in kernel.reads} | {output.inplace for output in kernel.outputs}
        inputs = (*self.kernel.inputs, *self.buffers)
        return kernel.replace(inputs=tuple(buffer for buffer in inputs if buffer.name in used))
