"""Stores in which points meet: by atomics where Triton has them, else one point after the other.

Which axes can't meet follows from the index: points that differ in an axis which by itself is the index of
some dimension write different elements.  The others are serial where no atomic does it: `y[ids[i], j]
set= ..` goes through i in order and has a program for every tile of j.  That is slow where everything can
meet, and gives the same bits at each run.
"""

from __future__ import annotations

from ...ir.kernel.affine import Affine
from ...ir.kernel.form import Kernel, Store, names

_ADDED = ("f32", "f64", "f16", "bf16", "i32", "i64", "u32", "u64")
_COMPARED = ("f32", "f64", "i32", "i64", "u32", "u64")
ATOMIC = {("add", dtype): "tl.atomic_add" for dtype in _ADDED}
ATOMIC |= {(word, dtype): f"tl.atomic_{word}" for word in ("max", "min") for dtype in _COMPARED}


def atomic(kernel: Kernel, store: Store) -> str | None:
    """Triton's function for an accumulating store, or None."""
    return ATOMIC.get((store.combine or "", kernel.buffers[store.buffer].dtype))


def meeting(kernel: Kernel, store: Store) -> tuple[str, ...]:
    """The axes of an accumulating store along which points may meet in one element."""
    own = {
        part.terms[0][0]
        for part, size in zip(store.index, kernel.buffers[store.buffer].strides, strict=True)
        if isinstance(part, Affine) and len(part.terms) == 1 and size
    }
    axes = kernel.parallel + store.axes
    return tuple(axis.name for axis in axes if axis.name not in own and axis.extent != 1)


def ordered(kernel: Kernel) -> list[Store]:
    """The stores whose points have to come one after the other where they meet."""
    return [store for store in kernel.stores if store.combine and atomic(kernel, store) is None]


def serial_axes(kernel: Kernel) -> tuple[str, ...]:
    """The parallel axes that `ordered` stores are serial over."""
    found = {axis for store in ordered(kernel) for axis in meeting(kernel, store)}
    return tuple(axis for axis in names(kernel.parallel) if axis in found)
