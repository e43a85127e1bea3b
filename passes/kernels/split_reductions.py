"""Long reductions at few points, cut in parts that threads can share.

    parallel                              parallel c:6                 parallel
    s = sum(i:100001) x[i]          ->    s = sum(l:16640)       and   s = sum(c:6) t0[c]
    y[] = s                                   x[16640*c+l]             s_last = sum(l:161) x[l+99840]
                                          t0[c] = s                    y[] = (s + s_last)

The parts follow from the shapes alone, so the result does not depend on the number of threads.  Each
reduction becomes two kernels, partial results and their combination; what the stores compute from them comes
after.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from ...ir.kernel.affine import Affine
from ...ir.kernel.form import COMBINE, Axis, Buffer, Fold, Kernel, Local, Reduce, Stage, Store
from ...ir.kernel.scalar import Expr, Ref, op, read, ref, walk
from ...ir.kernel.substitute import Substitution
from .blocking import fresh

PART = 16_384  # elements of a part, about: 2 us of summing, against 0.5 us to wake a thread
PARTS = 64
EVEN = 64  # a length that vectors divide, where what is left over is then small
ROWS = 128  # of the cut axis at least, so that partial results are few beside what they are made from


def split_reductions(kernel: Kernel, parts: int | None = None, even: bool = False) -> list[Kernel] | None:
    """Kernels that run one after another in place of `kernel`; None where there is nothing to gain or cut.

    Buffers of theirs that `kernel` has not, t0, t1, ..., hold what one leaves for another.
    parts: how many each reduction is cut in; by default it follows from the sizes, as whether it is cut.  It
    may be more than the first axis has points: then the next one is cut for each of them.
    even: vectors divide their lengths, where that leaves as many parts or a few less.
    """
    reductions = [stage for stage in kernel.stages if isinstance(stage, (Reduce, Fold))]
    cut = [stage for stage in reductions if parts or _parts(kernel, stage)]
    scans = any(isinstance(stage, Fold) and (stage.scan or stage.merge is None) for stage in reductions)
    if not cut or scans or not kernel.is_order_free or any(b.inplace for b in kernel.outputs):
        return None
    return _Split(kernel, parts, even).kernels()


def _parts(kernel: Kernel, stage: Reduce | Fold) -> int:
    """How many parts the slowest axis of a reduction is cut in; 0 where it isn't."""
    work = math.prod(int(axis.extent) for axis in (*kernel.parallel, *stage.axes))
    parts = min(PARTS, work // PART, int(stage.axes[0].extent) // ROWS if stage.axes else 0)
    return parts if parts > 1 else 0


class _Split:
    """The kernels that one is split in, as they are made."""

    def __init__(self, kernel: Kernel, parts: int | None, even: bool):
        self.kernel, self.parts, self.even = kernel, parts, even
        self.results: dict[str, Expr] = {}  # of the reductions so far: a read of a buffer of their own
        self.buffers = dict(kernel.buffers)
        self.made: list[Kernel] = []
        self.waiting = list(kernel.stores)
        self.part, self.inner = fresh(kernel, "c"), fresh(kernel, "l")  # axes: the parts, and within one
        self.points = tuple(Affine(((axis.name, 1),)) for axis in kernel.parallel)

    def kernels(self) -> list[Kernel]:
        for stage in self.kernel.stages:
            if isinstance(stage, (Reduce, Fold)):
                self.reduction(stage)
        for axes in dict.fromkeys(store.axes for store in self.waiting):
            stores = tuple(replace(s, axes=()) for s in self.waiting if s.axes == axes)
            self.add((*self.kernel.parallel, *axes), tuple(map(self.inlined().stage, stores)))
        return self.made

    def inlined(self, indices: Mapping[str, Affine] | None = None) -> Substitution:
        """Puts what is known by name in place of the names."""
        return Substitution(indices=indices or {}, refs={**self.kernel.locals, **self.results})

    def buffer(self, dtype: str, *shape: int) -> Buffer:
        """A new one for what a kernel leaves for others."""
        number = len(self.buffers) - len(self.kernel.buffers)
        made = Buffer(fresh(self.kernel, f"t{number}"), dtype, shape)
        self.buffers[made.name] = made
        return made

    def add(self, parallel: tuple[Axis, ...], stages: tuple[Stage, ...]) -> None:
        """A kernel of these stages, with the buffers that they use."""
        draft = self.kernel.replace(
            inputs=tuple(self.buffers.values()), outputs=(), parallel=parallel, stages=stages
        )
        reads = {access.buffer for _, access in draft.reads}
        stores = {stage.buffer for stage in stages if isinstance(stage, Store)}
        inputs = tuple(b for b in self.buffers.values() if b.name in reads)
        outputs = tuple(b for b in self.buffers.values() if b.name in stores)
        self.made.append(draft.replace(inputs=inputs, outputs=outputs))

    def reduction(self, stage: Reduce | Fold) -> None:
        """Partial results and their combination; or, where a stage is too short for that, the stage."""
        kernel, parallel = self.kernel, self.kernel.parallel
        parts = self.parts or _parts(kernel, stage)
        if not parts:
            self.finish(stage, [self.inlined().stage(stage)])
            return
        whole, (slow, *rest) = list[Axis](), stage.axes  # of the first ones, each point is a part
        while rest and parts > int(slow.extent) > 0:
            parts = max(1, parts // int(slow.extent))
            whole.append(slow)
            slow, *rest = rest
        length = int(slow.extent) // parts
        if self.even and length >= 2 * EVEN:
            length += -length % EVEN
            parts = int(slow.extent) // length
        length -= length % (EVEN if length >= 8 * EVEN and self.parts is None else 1)
        each, shape = parts, [int(axis.extent) for axis in parallel]
        part = Axis(self.part, each)
        here = self.inlined({slow.name: Affine.of({self.part: length, self.inner: 1})})
        partial = replace(here.stage(stage), axes=(Axis(self.inner, length), *rest))
        # the parts slowest: neighbouring points are then combined as one vector
        number = Affine(((self.part, 1),))
        for axis in reversed(whole):
            number += Affine(((axis.name, parts),))
            parts *= int(axis.extent)
        held = {n: self.buffer(kernel.dtypes[n], parts, *shape) for n in stage.defines}
        stores = tuple(Store(held[n].name, (number, *self.points), ref(n)) for n in stage.defines)
        self.add((*parallel, *whole, part), (partial, *stores))
        at, part = (Affine(((self.part, 1),)), *self.points), Axis(self.part, parts)
        partials: dict[str, Expr] = {n: read(buffer.name, at) for n, buffer in held.items()}
        left = int(slow.extent) - each * length
        last = None
        if left:
            here = self.inlined({slow.name: Affine.of({self.inner: 1}, each * length)})
            last = replace(here.stage(stage), axes=(*whole, Axis(self.inner, left), *rest))
        combine = self.combined if isinstance(stage, Reduce) else self.merged
        self.finish(stage, combine(stage, partials, part, last))

    def combined(
        self, stage: Reduce, partials: dict[str, Expr], part: Axis, last: Reduce | None
    ) -> list[Stage]:
        """A Reduce over the partial results, and what is left over."""
        total = replace(stage, axes=(part,), value=partials[stage.name])
        if last is None:
            return [total]
        rest = replace(last, name=fresh(self.kernel, f"{stage.name}_last"))
        both = op(COMBINE[stage.combine], ref(total.name), ref(rest.name))
        return [total, rest, Local(fresh(self.kernel, f"{stage.name}_whole"), (), both)]

    def merged(self, stage: Fold, partials: dict[str, Expr], part: Axis, last: Fold | None) -> list[Stage]:
        """A Fold over the partial results by the merge; it begins where what is left over ends."""
        right = Substitution(refs={f"right.{name}": value for name, value in partials.items()})
        plain = self.inlined().stage(stage)
        total = replace(plain, axes=(part,), step=tuple(map(right.expr, plain.merge or ())))
        if last is None:
            return [total]
        new = {name: fresh(self.kernel, f"{name}_last") for name in stage.names}
        return [Substitution(stages=new).stage(last), replace(total, init=tuple(map(ref, new.values())))]

    def finish(self, stage: Reduce | Fold, combining: list[Stage]) -> None:
        """The kernel that ends with the results, the stores that need no others, buffers for what does."""
        results = {n: ref(own) for n, own in zip(stage.defines, combining[-1].defines, strict=True)}
        known = self.results.keys() | results.keys()
        ready = Substitution(refs={**self.kernel.locals, **self.results, **results})
        now = [s for s in self.waiting if not s.axes and self.needs(s) <= known]
        self.waiting = [s for s in self.waiting if s not in now]
        stages = [*combining, *map(ready.stage, now)]
        later = (s for s in self.kernel.stages if isinstance(s, (Reduce, Fold)))
        open_ = (s for s in later if s.defines[0] not in known)
        wanted = set().union(*map(self.needs, (*open_, *self.waiting)))
        for name, value in results.items():
            self.results[name] = value
            if name in wanted:
                shape = [int(axis.extent) for axis in self.kernel.parallel]
                held = self.buffer(self.kernel.dtypes[name], *shape)
                stages.append(Store(held.name, self.points, value))
                self.results[name] = read(held.name, self.points)
        self.add(self.kernel.parallel, tuple(stages))

    def needs(self, stage: Stage) -> set[str]:
        """The reductions whose results a stage reads, through Locals too; its own states are none of them."""
        exprs = map(Substitution(refs=self.kernel.locals).expr, stage.exprs)
        found = {expr.name for expr in walk(*exprs) if isinstance(expr, Ref)} - set(stage.defines)
        return found & {n for s in self.kernel.stages if isinstance(s, (Reduce, Fold)) for n in s.defines}
