"""The kernel that looks at the indices another kernel trusts, so that native code checks them itself.

kernel gather(t: f32[6,4], r: i64[3]) -> (y: f32[3,4]) {
  parallel i:3 j:4
  y[i, j] = t[r[i], j]
}
->
kernel index_check(r: i64[3]) -> (bad: bool[1]) {
  parallel
  bad0 = any(i:3) ((r[i] < i64(0)) | (r[i] >= i64(6)))
  bad[0] = bad0
}
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import inf

from ...ir.dims import Dim, is_at_least, limits
from ...ir.kernel.affine import Affine, Extent, as_affine
from ...ir.kernel.form import Buffer, Kernel, Reduce, Store
from ...ir.kernel.scalar import (
    Cast,
    Const,
    Coordinate,
    Expr,
    Op,
    Read,
    Ref,
    Size,
    cast,
    const,
    coordinate,
    op,
    ref,
    walk,
)
from ...ir.kernel.types import greatest, kind
from ...ir.kernel.verify import verify
from ...ir.memo import MEMO

CHECK = "index_check"  # the name of such a kernel


def trusted(kernel: Kernel) -> Iterator[tuple[Expr, Extent]]:
    """Every index from data that the kernel's code uses untested, and the size that it must be below.

    What follows from the coordinates alone is the kernel builder's business, as affine indices are, where
    sizes are known: `arange(n)` may be an index.  While they are symbols it is trusted unless it is proved.
    """
    places = [(access.buffer, access.index) for _, access in kernel.reads if access.other is None]
    for buffer, index in (*places, *((store.buffer, store.index) for store in kernel.stores)):
        for part, size in zip(index, kernel.buffers[buffer].shape, strict=True):
            if isinstance(part, Expr) and (
                from_data(part) or kernel.symbols and not _stays(kernel, part, size)
            ):
                yield part, size


def from_data(index: Expr) -> bool:
    """Whether an index is computed from elements, which may be anything: it is guarded, or checked before."""
    return any(isinstance(expr, (Read, Ref)) for expr in walk(index))


def _stays(kernel: Kernel, part: Expr, size: Extent) -> bool:
    """Whether an index that follows from coordinates is inside for all sizes of symbols."""
    span = _span(kernel, part)
    symbols = dict.fromkeys(kernel.symbols, (1, inf))
    with limits(symbols):
        return span is not None and is_at_least(span[0], 0) and is_at_least(size - 1, span[1])


def _span(kernel: Kernel, expr: Expr) -> tuple[Extent, Extent] | None:
    """The least and the greatest value of an integer expression; None where it isn't known."""
    match expr:
        case Const(value) if isinstance(value, int):
            return value, value
        case Size(size):
            return size, size
        case Coordinate(index):
            return index.bounds(kernel.extents)
        case Cast(_, arg):
            return _span(kernel, arg)
        case Op(name, args):
            spans = [span for arg in args if (span := _span(kernel, arg)) is not None]
            if len(spans) == len(args) == 2:
                (a, b), (c, d) = spans
                if name == "add":
                    return a + c, b + d
                if name == "sub":
                    return a - d, b - c
                if name == "mul" and type(a) is type(b) is int and a == b >= 0:
                    return a * c, a * d
                if name == "remainder" and c == d and is_at_least(c, 1):
                    return 0, d - 1
                if name == "floor_div" and c == d and is_at_least(c, 1):
                    return a // c, b // c
    return None


@lru_cache(MEMO)
def tested(kernel: Kernel) -> frozenset[tuple[int, Extent, bool]] | None:
    """What a check would look at: inputs by position, what their elements must be below, whether all of them.

    None where an index is more than one element of an input.
    """
    names = [buffer.name for buffer in kernel.inputs]
    found = set()
    for part, size in trusted(kernel):
        if not isinstance(part, Read) or part.other is not None or part.buffer not in names:
            return None
        affine = [index for index in part.index if isinstance(index, Affine)]
        if len(affine) < len(part.index):
            return None
        axes = [index.terms[0][0] for index in affine if index.terms]
        is_whole = (
            [kernel.extents[axis] for axis in axes] == list(kernel.buffers[part.buffer].shape)
            and len(set(axes)) == len(axes)
            and affine == [Affine.of({axis: 1}) for axis in axes]
        )
        found.add((names.index(part.buffer), size, is_whole))
    return frozenset(found)


@lru_cache(MEMO)
def index_check(kernel: Kernel) -> tuple[Kernel, tuple[int, ...]] | None:
    """The check of a bound kernel, and which of its inputs that reads.

    None where an index follows from a stage's result, or from another trusted read: those are checked by
    the interpreter.
    """
    stages: list[Reduce] = []
    wrong: list[Expr] = []
    used: set[str] = set()
    for part, size in dict.fromkeys(trusted(kernel)):
        dtype = kernel.dtype_of(part)
        inner = [expr for expr in walk(part) if isinstance(expr, Read)]
        indirect = any(isinstance(p, Expr) for access in inner for p in access.index)
        if dtype is None or indirect or any(isinstance(expr, Ref) for expr in walk(part)):
            return None
        tests = [op("lt", part, const(0, dtype))] if kind(dtype) == "i" else []
        if isinstance(size, Dim):
            tests.append(op("ge", cast(part, "i64"), coordinate(as_affine(size))))
        elif size <= greatest(dtype):
            tests.append(op("ge", part, const(size, dtype)))
        if not tests:
            continue
        free = kernel.free_axes(part)
        name, test = f"bad{len(wrong)}", op("bit_or", *tests) if len(tests) == 2 else tests[0]
        axes = tuple(axis for axis in kernel.axes if axis.name in free)
        if axes:
            stages.append(Reduce(name, "any", axes, test))
        wrong.append(ref(name) if axes else test)  # one index alone is no reduction
        used.update(access.buffer for access in inner)
    any_wrong: Expr = const(False, "bool")
    for one in wrong:
        any_wrong = one if len(wrong) == 1 or one is wrong[0] else op("bit_or", any_wrong, one)
    positions = tuple(n for n, buffer in enumerate(kernel.inputs) if buffer.name in used)
    made = Kernel(
        CHECK,
        tuple(kernel.inputs[n] for n in positions),
        (Buffer("bad", "bool", (1,)),),
        (),
        (*stages, Store("bad", (Affine((), 0),), any_wrong)),
    )
    return verify(made), positions
