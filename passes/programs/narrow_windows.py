"""Leave out the taps of windows that never meet the image, with the weights that they are multiplied with.

    %y: f32[32,512,1,1] = conv2d(%x, %w)       3 x 3 taps over images of one place, padded by one
    ->
    %t: f32[512,512,1,1] = taps(%w)            the middle ones
    %y: f32[32,512,1,1] = conv2d(%x, %t)

What is left is smaller by as much to pack and to read, and often a product of matrices.  So it is at the end
of a network whose images have become small, and of dilated windows.
"""

from __future__ import annotations

from dataclasses import replace

from ...ir.dims import Dim
from ...ir.kernel.affine import Affine
from ...ir.kernel.form import Axis, Buffer, Kernel, Store
from ...ir.kernel.scalar import read
from ...ir.kernel.substitute import Substitution
from ..kernels.product import Product, is_zero, plain, product_of
from .program import Array, Call, Program, Step

Ranges = dict[
    str, tuple[int, int]
]  # of a summed axis: the first point that counts, and the one after the last


def narrow_windows(program: Program) -> Program:
    """The program whose sums over windows run over taps that meet their images."""
    steps: list[Step] = []
    taken: dict[tuple[Array, str], Array] = {}
    for step in program.steps:
        found = _narrowed(step.kernel) if isinstance(step, Call) and step.how is None else None
        if found is not None:
            assert isinstance(step, Call)
            kernel, at, part = found
            weight = step.inputs[at]
            key = weight, str(part)
            if key not in taken:
                taken[key] = Array(weight.name, weight.dtype, part.outputs[0].shape)
                steps.append(Call(part, (weight,), (taken[key],), where=step.where))
            inputs = (*step.inputs[:at], taken[key], *step.inputs[at + 1 :])
            step = replace(step, kernel=kernel, inputs=inputs)
        steps.append(step)
    return program.replace(steps=tuple(steps))


def _narrowed(kernel: Kernel) -> tuple[Kernel, int, Kernel] | None:
    """The kernel over fewer taps, which of its inputs is the weight, and what takes its taps from that."""
    found = product_of(kernel)
    ranges = met(found) if found is not None else {}
    if found is None or not ranges:
        return None
    reads = [f.access for f in found.factors if f.access is not None and f.access.other is None]
    weight = next((r for r in reads if ranges.keys() <= {plain(part) for part in r.index}), None)
    if weight is None or sum(r.buffer == weight.buffer for _, r in kernel.reads) != 1:
        return None
    buffer = kernel.buffers[weight.buffer]
    if buffer not in kernel.inputs or buffer.layout is not None:
        return None
    firsts = [ranges.get(plain(part) or "", (0, 0))[0] for part in weight.index]
    shape = tuple(
        ends[1] - ends[0] if (ends := ranges.get(plain(part) or "")) else size
        for part, size in zip(weight.index, buffer.shape, strict=True)
    )
    change = Substitution(
        indices={axis: Affine(((axis, 1),), first) for axis, (first, _) in ranges.items()},
        axes={axis: (Axis(axis, last - first),) for axis, (first, last) in ranges.items()},
        buffers={buffer.name: replace(buffer, shape=shape)},
        exprs={weight: read(buffer.name, weight.index)},
    )
    return change.kernel(kernel), kernel.inputs.index(buffer), _taps(buffer, shape, firsts)


def _taps(buffer: Buffer, shape: tuple, firsts: list[int]) -> Kernel:
    axes = tuple(Axis(f"i{d}", n) for d, n in enumerate(shape))
    at = tuple(Affine(((axis.name, 1),)) for axis in axes)
    source = tuple(index + Affine((), first) for index, first in zip(at, firsts, strict=True))
    buffers = (replace(buffer, name="x"),), (Buffer("y", buffer.dtype, shape),)
    return Kernel("taps", *buffers, axes, (Store("y", at, read("x", source)),))


def met(product: Product) -> Ranges:
    """The taps that meet an image at any of its places, of axes some of whose do not; none where no tap does,
    or sizes are symbols."""
    kernel, found = product.kernel, Ranges()
    for access in (f.access for f in product.factors if f.access is not None):
        for d in kernel.unproved(access) if is_zero(access.other) else ():
            part, size = access.index[d], kernel.buffers[access.buffer].shape[d]
            taps = [name for name in part.names if name in product.k] if isinstance(part, Affine) else []
            if len(taps) != 1 or isinstance(size, Dim):
                continue
            assert isinstance(part, Affine)
            ends = _reach(kernel, part, taps[0], size)
            if ends is None:
                continue
            before = found.get(taps[0], (0, int(kernel.extents[taps[0]])))
            found[taps[0]] = max(ends[0], before[0]), min(ends[1], before[1])
    if any(first >= last for first, last in found.values()):
        return {}
    return {tap: ends for tap, ends in found.items() if ends != (0, kernel.extents[tap])}


def _reach(kernel: Kernel, part: Affine, tap: str, size: int) -> tuple[int, int] | None:
    """For which taps an index can be inside; None where that is not known in numbers."""
    by, extents = part.coefficient(tap), [kernel.extents[name] for name in part.names]
    numbers = (by, part.constant, *extents, *(c for _, c in part.terms))
    if any(isinstance(n, Dim) for n in numbers) or 0 in extents:
        return None
    by = int(by)
    low, high = map(int, (part - Affine(((tap, by),))).bounds(kernel.extents))
    if by < 0:  # as of the index counted from the other end
        low, high, by = size - 1 - high, size - 1 - low, -by
    return -(high // by), (size - 1 - low) // by + 1
