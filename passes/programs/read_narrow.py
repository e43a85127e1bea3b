"""Read weights as the few bits that they are kept in, where they are multiplied.

    %w: f32[256,512] = cast_mul(%q: i8[256,512], %s: f32[256,8])
    %y: f32[1,256] = linear(%x, %w)
        ->
    %y: f32[1,256] = linear(%x, %q, %s)        sum(g:8 r:64) (x[i, 64*g+r] * (f32(q[j, 64*g+r]) * s[j, g]))

What is made of weights alone would be kept as floats, four bytes for each that is one or a half, and a
product of a few rows takes as long as its weights take to be read.  Axes of the sum are split where the
expression that makes the weights has several: groups, or the halves of bytes that hold two numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from ...ir.dims import Dim, hint
from ...ir.kernel.affine import Affine
from ...ir.kernel.form import Kernel, Store
from ...ir.kernel.scalar import Expr, Read, cast, walk
from ...ir.kernel.substitute import Substitution
from ...ir.kernel.types import is_floating
from ...ir.where import joined
from ..kernels.blocking import fresh, split_axis
from ..kernels.product import element, product_of
from .program import Alias, Array, Call, Program, Step, without_unread

SAVED = 0.75  # of the bytes that a factor has; narrower sources are read in its place


def read_narrow(program: Program, frozen: frozenset[int] = frozenset()) -> Program:
    """The program whose products read what their weights are made of.

    frozen: the positions of the params that hold weights.
    """
    kept = {program.params[k] for k in frozen} | set(program.constants)
    sources = _Sources(kept)
    steps: list[Step] = []
    for step in program.steps:
        steps.append(_narrow(step, sources) if isinstance(step, Call) else step)
        sources.add(steps[-1])
    if all(one is other for one, other in zip(steps, program.steps, strict=True)):
        return program
    return program.replace(steps=without_unread(steps, program.results, sources.is_made))


@dataclass
class _Sources:
    """What makes each array of weights alone: a call of one expression, or another shape of an array.

    kept: weights, and what is made of them alone.
    """

    kept: set[Array]

    def __post_init__(self) -> None:
        self.makers: dict[Array, Call] = {}
        self.views: dict[Array, Array] = {}

    def add(self, step: Step) -> None:
        if not all(array is None or array in self.kept for array in step.inputs):
            return
        self.kept.update(step.outputs)
        if isinstance(step, Alias) and not step.offset and step.inputs[0].size == step.outputs[0].size:
            self.views[step.outputs[0]] = step.inputs[0]
        elif isinstance(step, Call) and step.how is None and _axes(step.kernel) is not None:
            self.makers[step.outputs[0]] = step

    def is_made(self, step: Step) -> bool:
        return step.outputs[0] in self.views or step.outputs[0] in self.makers

    def maker(self, array: Array) -> Call | None:
        while array in self.views:
            array = self.views[array]
        return self.makers.get(array)

    def nbytes(self, array: Array) -> int:
        """The bytes of what an array is made of."""
        made = self.maker(array)
        if made is None:
            return int(array.nbytes)
        return sum(self.nbytes(a) for a in {*made.inputs})


def _axes(kernel: Kernel) -> list[tuple[str, int, int]] | None:
    """The axes of a kernel that stores an expression for each element of one array, with how far apart their
    neighbours are and how many they are; None for any other kernel."""
    if len(kernel.outputs) != 1 or kernel.symbols:
        return None
    match kernel.stages:
        case (Store(name, index, _, (), None),):
            buffer = kernel.buffers[name]
        case _:
            return None
    if buffer.inplace or any(isinstance(part, Expr) for part in index):
        return None
    offset = buffer.offset(index)
    size = prod(map(hint, buffer.shape))
    axes = [
        (a.name, int(offset.coefficient(a.name)), int(a.extent)) for a in kernel.parallel if a.extent != 1
    ]
    reach = 1
    for _, apart, count in sorted(axes, key=lambda axis: axis[1]):
        if apart != reach:
            return None
        reach *= count
    reads = [e for e in walk(*kernel.stages[0].exprs) if isinstance(e, Read)]
    return axes if reach == size and all(e.other is None for e in reads) else None


def _narrow(call: Call, sources: _Sources) -> Call:
    """The call on what its factors are made of, where that has fewer bytes."""
    found = product_of(call.kernel)
    if found is None or call.how is not None or not is_floating(call.kernel.dtypes[found.stage.name]):
        return call
    arrays = {b.name: a for a, b in zip(call.inputs, call.kernel.inputs, strict=True)}
    for factor in found.factors:
        access = element(factor.value)
        array = arrays.get(access.buffer) if access is not None else None
        if array is None or sources.maker(array) is None or sources.nbytes(array) > SAVED * int(array.nbytes):
            continue
        reads = [a for _, a in call.kernel.reads if a.buffer == access.buffer]
        if len(set(reads)) == 1 and (made := _inlined(call, access, sources)) is not None:
            return made
    return call


def _inlined(call: Call, access: Read, sources: _Sources) -> Call | None:
    """The call that reads, in place of an array, what it is made of, as far back as that is said in
    expressions; None where its axes are not parts of this kernel's."""
    waiting = [access.buffer]
    while waiting:
        name = waiting.pop()
        array = next(a for a, b in zip(call.inputs, call.kernel.inputs, strict=True) if b.name == name)
        made = sources.maker(array)
        if made is None:
            continue
        found = _one_inlined(call, name, made)
        if found is None:
            return None
        call, names = found
        waiting += names
    return call


def _one_inlined(call: Call, name: str, made: Call) -> tuple[Call, list[str]] | None:
    axes = _axes(made.kernel)
    assert axes is not None
    kernel = _refined(call.kernel, name, axes)
    if kernel is None:
        return None
    access = next(a for _, a in kernel.reads if a.buffer == name)
    offset = kernel.buffers[name].offset(access.index)
    indices: dict[str, Affine] = {a.name: Affine() for a in made.kernel.parallel}
    for axis, by in offset.terms:
        within, apart, _ = next(a for a in axes if a[1] <= by < a[1] * a[2])
        indices[within] += Affine(((axis, int(by) // apart),))
    (store,) = made.kernel.stages
    assert isinstance(store, Store)
    taken = kernel
    buffers = {}
    for buffer in made.kernel.inputs:
        buffers[buffer.name] = replace(buffer, name=fresh(taken, buffer.name))
        taken = taken.replace(inputs=(*taken.inputs, buffers[buffer.name]))
    value = Substitution(indices=indices, buffers=buffers).expr(store.value)
    dtype = made.kernel.outputs[0].dtype
    if made.kernel.dtype_of(store.value) != dtype:
        value = cast(value, dtype)
    kernel = Substitution(exprs={access: value}).kernel(taken)
    kept = [
        (a, b) for a, b in zip((*call.inputs, *made.inputs), kernel.inputs, strict=True) if b.name != name
    ]
    kernel = kernel.replace(inputs=tuple(b for _, b in kept))
    where = joined((made.where, call.where))
    here = replace(call, kernel=kernel, inputs=tuple(a for a, _ in kept), where=where)
    return here, [b.name for b in buffers.values()]


def _refined(kernel: Kernel, name: str, axes: list[tuple[str, int, int]]) -> Kernel | None:
    """The kernel each of whose axes runs within one of these where it reads a buffer."""
    while True:
        access = next(a for _, a in kernel.reads if a.buffer == name)
        if access.other is not None or any(isinstance(part, Expr) for part in access.index):
            return None
        offset = kernel.buffers[name].offset(access.index)
        if offset.constant != 0 or any(isinstance(by, Dim) or by < 1 for _, by in offset.terms):
            return None
        split = None
        for axis, by in offset.terms:
            extent, by = kernel.extents[axis], int(by)
            within = next((a for a in axes if a[1] <= by < a[1] * a[2]), None)
            if isinstance(extent, Dim) or within is None or by % within[1]:
                return None
            size, left = divmod(within[1] * within[2], by)
            if extent > size:
                if left or extent % size:
                    return None
                split = axis, size
        if split is None:
            return kernel
        kernel, _, _ = split_axis(kernel, *split)
