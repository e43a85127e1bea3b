"""A large kernel at some of its points: the interpreter would take minutes and gigabytes for all of them.

    parallel n:64 i:56 j:56  ->  parallel n:3 i:3 j:3, from (0, 0, 0), (61, 53, 53) and places between on

What goes wrong in code goes wrong at the ends of axes (tails, padding) or everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

import numpy as np
from numpy.random import default_rng

from ..ir.kernel.affine import Affine
from ..ir.kernel.form import Axis, Kernel
from ..ir.kernel.scalar import Expr
from ..ir.kernel.substitute import Substitution

LARGE = 1 << 20  # elements that the interpreter would hold at once: some 10 ms for each operation on them
SIDE = 3  # points along an axis
PLACES = 4


def work(kernel: Kernel) -> int:
    """The elements of the largest array that the interpreter makes."""
    inner = max((prod(int(a.extent) for a in stage.axes) for stage in kernel.stages), default=1)
    return inner * prod(int(a.extent) for a in kernel.parallel)


def windows(kernel: Kernel) -> Iterator[tuple[Kernel, list[np.ndarray]]]:
    """The kernel over parts of its points, and for each output which of its elements those write.

    Nothing for one whose stores meet, or go where its values say: its parts are not the whole's.
    """
    if any(store.combine or any(isinstance(p, Expr) for p in store.index) for store in kernel.stores):
        return
    rng = default_rng(0)
    for place in range(PLACES):
        indices = {}
        for axis in kernel.parallel:
            last = max(0, int(axis.extent) - SIDE)
            start = (0, last)[place] if place < 2 else int(rng.integers(0, last + 1))
            indices[axis.name] = Affine(((axis.name, 1),), start)
        axes = {a.name: (Axis(a.name, min(int(a.extent), SIDE)),) for a in kernel.parallel}
        part = Substitution(indices=indices, axes=axes).kernel(kernel)
        yield part, _written(part)


def _written(kernel: Kernel) -> list[np.ndarray]:
    masks = {b.name: np.zeros(tuple(map(int, b.shape)), bool) for b in kernel.outputs}
    for store in kernel.stores:
        axes: Sequence[Axis] = (*kernel.parallel, *store.axes)
        grid = dict(zip((a.name for a in axes), np.indices([int(a.extent) for a in axes]), strict=True))
        index = []
        for part in store.index:
            assert isinstance(part, Affine), "windows has seen to it"
            at = sum((c * grid[name] for name, c in part.terms), np.asarray(part.constant))
            index.append(np.asarray(at))
        masks[store.buffer][tuple(np.broadcast_arrays(*index)) if index else ()] = True
    return [masks[b.name] for b in kernel.outputs]
