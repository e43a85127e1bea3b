"""What the passes that say how products run share: their kernels by columns, and calls on parts of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...ir.dims import hint
from ...ir.kernel.affine import Affine
from ...ir.kernel.form import Axis, Buffer, Kernel, Reduce, Store
from ...ir.kernel.scalar import Cast, Expr, Read, cast, read, walk
from ...ir.kernel.substitute import Substitution
from ...ir.kernel.types import is_floating
from ..graphs.pieces import wanted
from ..kernels.blocking import zero_of
from ..kernels.product import Product, product_of
from ..schedules.default import runs_once
from ..schedules.steps import NEIGHBOURS
from .program import Array, Call
from .side_by_side import narrow_dtype


def by_columns(kernel: Kernel) -> Product | None:
    """The product that a collapsed kernel is, with the columns of its result in the right factor alone."""
    found = product_of(kernel)
    if found is None or runs_once(kernel) or any(s.axes for s in kernel.stages if s is not found.stage):
        return None
    if 0 in kernel.extents.values():
        return None
    roles = found.by_columns
    if roles is None or is_floating(kernel.dtypes[found.stage.name]):
        return roles
    return roles if all(narrow_dtype(kernel, f) in NEIGHBOURS for f in (roles.left, roles.right)) else None


def reads_of(expr: Expr) -> list[Read]:
    return [e for e in walk(expr) if isinstance(e, Read)]


def guarded(kernel: Kernel, old: Expr, access: Read) -> Read:
    """A read that is 0 where its index leaves the buffer, unless it stands in the old expression too."""
    if access.other is not None or access in set(walk(old)):
        return access
    return read(access.buffer, access.index, zero_of(kernel.buffers[access.buffer].dtype))


def is_narrow(kernel: Kernel, factor: Expr) -> bool:
    """Whether a factor is a bfloat16, widened."""
    return narrow_dtype(kernel, factor) == "bf16"


def lies_along(kernel: Kernel, roles: Product, dtype: str = "bf16") -> bool:
    """Whether the left factor lies along the sum in a dtype."""
    along, _ = strides_of(kernel, roles.left, roles.k[-1], ())
    return narrow_dtype(kernel, roles.left) == dtype and along == 1


def narrowed(kernel: Kernel, factor: Expr, dtype: str) -> Expr:
    """A factor in a dtype."""
    if kernel.dtype_of(factor) == dtype:
        return factor
    inner = factor.arg if isinstance(factor, Cast) and narrow_dtype(kernel, factor) in NEIGHBOURS else factor
    return inner if kernel.dtype_of(inner) == dtype else cast(inner, dtype)


def sure(roles: Product | None) -> Product:
    assert roles is not None  # the same product as before
    return roles


def in_full(kernel: Kernel) -> Kernel:
    """The kernel whose sums say in full what they add up: a factor that is computed by another kernel takes
    no stage of this one with it.

        t = sqrt(s[j])
        y = sum(k) (x[i, k] * (w[k, j] / t))    ->    y = sum(k) (x[i, k] * (w[k, j] / sqrt(s[j])))
    """
    if not kernel.locals:
        return kernel
    inline = Substitution(refs=kernel.locals)
    stages = tuple(inline.stage(stage) if isinstance(stage, Reduce) else stage for stage in kernel.stages)
    return wanted(kernel.replace(stages=stages), frozenset(range(len(kernel.outputs))))


def strides_of(kernel: Kernel, factor: Expr, axis: str, inner: tuple[str, ...]) -> tuple[int, int]:
    """The stride of a factor that is one element along an axis, and the least one along `inner`.

    (0, 0) for a factor that is computed from several elements, or not always there.
    """
    while isinstance(factor, Cast):
        factor = factor.arg
    if (
        not isinstance(factor, Read)
        or kernel.unproved(factor)
        or any(isinstance(p, Expr) for p in factor.index)
    ):
        return 0, 0
    offset = kernel.buffers[factor.buffer].offset(factor.index)
    return hint(offset.coefficient(axis)), min((hint(offset.coefficient(name)) for name in inner), default=0)


def part_of(
    call: Call, name: str, value: Expr, buffer: Buffer, axes: tuple[Axis, ...], at: tuple[Affine, ...]
) -> Call:
    """The call that stores an expression of a call's inputs for every point of the axes."""
    read_here = {e.buffer for e in walk(value) if isinstance(e, Read)}
    pairs = [(a, b) for a, b in zip(call.inputs, call.kernel.inputs, strict=True) if b.name in read_here]
    kernel = Kernel(name, tuple(b for _, b in pairs), (buffer,), axes, (Store(buffer.name, at, value),))
    made = Array(name, buffer.dtype, buffer.shape)
    return Call(kernel, tuple(a for a, _ in pairs), (made,))


def cast_call(name: str, array: Array, dtype: str) -> Call:
    """y[i] = dtype(x[i])"""
    axes = tuple(Axis(f"i{d}", n) for d, n in enumerate(array.shape))
    at = tuple(Affine(((axis.name, 1),)) for axis in axes)
    buffers = (Buffer("x", array.dtype, array.shape),), (Buffer("y", dtype, array.shape),)
    kernel = Kernel(name, *buffers, axes, (Store("y", at, cast(read("x", at), dtype)),))
    return Call(kernel, (array,), (Array(array.name, dtype, array.shape),))


def instead(
    call: Call,
    factor: Expr,
    buffer: Buffer,
    index: tuple[Affine | Expr, ...],
    array: Array,
    other: int | None = None,
) -> Call:
    """The call with a factor read from an array of its own, and without the inputs that it needs no more.

    other: what stands outside.
    """
    dtype, found = call.kernel.dtype_of(factor), read(buffer.name, index, other)
    return rewritten(call, {factor: found if buffer.dtype == dtype else cast(found, dtype)}, {buffer: array})


def rewritten(call: Call, exprs: Mapping[Expr, Expr], given: Mapping[Buffer, Array]) -> Call:
    """The call with other expressions, which read some inputs more, and without those that nothing reads."""
    kernel = call.kernel.replace(inputs=(*call.kernel.inputs, *given))
    kernel = Substitution(exprs=dict(exprs)).kernel(kernel)
    used = {access.buffer for _, access in kernel.reads}
    arrays = (*call.inputs, *given.values())
    kept = [(a, b) for a, b in zip(arrays, kernel.inputs, strict=True) if b.name in used]
    kernel = kernel.replace(inputs=tuple(b for _, b in kept))
    return replace(call, kernel=kernel, inputs=tuple(a for a, _ in kept))


def chains_of(kernel: Kernel, flat: Kernel) -> dict[str, Affine]:
    """What each axis of the collapsed kernel is in the axes of the kernel itself.

    Collapsing makes neighbours one axis, under the name of the slowest.
    """
    chains: dict[str, Affine] = {}
    for group in (kernel.parallel, *(stage.axes for stage in kernel.stages)):
        current = ""
        for axis in group:
            if axis.name in flat.extents:
                current = axis.name
                chains[current] = Affine(((current, 1),))
            elif axis.extent != 1:
                chains[current] = chains[current] * axis.extent + Affine(((axis.name, 1),))
    return chains
