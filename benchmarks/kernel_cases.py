"""Single kernels: products, pointwise chains, reductions, convolutions and gradients, for any library."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Case:
    """function(library, *arrays) in terms that all libraries share; `work` in flops, or bytes if `moves`.

    weights: the positions of the arrays that stay as they are between calls.
    """

    name: str
    function: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    work: float
    weights: tuple[int, ...] = ()
    moves: bool = False


def gemm() -> Iterator[Case]:
    for n in (256, 512, 1024, 2048):
        yield Case(f"matmul {n}", lambda lib, a, b: lib.matmul(a, b), ((n, n), (n, n)), 2 * n**3)
    for m, n, k in ((1000, 1000, 1000), (197, 768, 3072)):
        name = f"gelu(linear) {m} x {n} x {k}"
        shapes = ((m, k), (n, k), (n,))
        yield Case(name, lambda lib, *a: lib.gelu(lib.linear(*a)), shapes, 2 * m * n * k, (1, 2))


def skinny() -> Iterator[Case]:
    for n, k in ((4096, 4096), (1024, 1024), (256, 784)):
        for m in (1, 2, 4, 8, 16, 32):
            shapes = ((m, k), (n, k), (n,))
            yield Case(
                f"linear {m} x {n} x {k}", lambda lib, *a: lib.linear(*a), shapes, 2 * m * n * k, (1, 2)
            )


def pointwise() -> Iterator[Case]:
    for n in (1 << 10, 1 << 16, 1 << 20, 1 << 24):
        size = f"{n >> 10} K" if n < 1 << 20 else f"{n >> 20} M"
        row = ((n,),)
        yield Case(f"gelu(x * x + x) {size}", lambda lib, x: lib.gelu(x * x + x), row, 8 * n, moves=True)
        yield Case(f"exp {size}", lambda lib, x: lib.exp(x), row, 8 * n, moves=True)
        yield Case(
            f"relu(x * y + x) {size}", lambda lib, x, y: lib.relu(x * y + x), row * 2, 12 * n, moves=True
        )


def reductions() -> Iterator[Case]:
    for shape in ((1024, 1024), (16384, 128)):
        n, label = shape[0] * shape[1], " x ".join(map(str, shape))
        yield Case(f"sum {label}", lambda lib, x: lib.sum(x), (shape,), 4 * n, moves=True)
        yield Case(f"sum rows {label}", lambda lib, x: lib.sum(x, 1), (shape,), 4 * n, moves=True)
        yield Case(f"sum columns {label}", lambda lib, x: lib.sum(x, 0), (shape,), 4 * n, moves=True)
        yield Case(f"softmax {label}", lambda lib, x: lib.softmax(x, 1), (shape,), 8 * n, moves=True)


CONVOLUTIONS = (
    (1, 64, 56, 64, 3), (1, 128, 28, 128, 3), (1, 256, 14, 256, 3), (1, 512, 7, 512, 3), (1, 256, 56, 64, 1),
    (8, 64, 56, 64, 3), (32, 1, 8, 16, 3), (32, 16, 8, 32, 3), (32, 32, 4, 64, 3),
)  # fmt: skip
TRAINED = (
    (32, 1, 8, 16), (32, 16, 8, 32), (32, 32, 4, 64), (32, 64, 32, 64), (32, 128, 16, 128), (32, 256, 8, 256),
    (32, 512, 4, 512),
)  # fmt: skip


def conv() -> Iterator[Case]:
    for n, c, h, k, r in CONVOLUTIONS:
        flops, pad = 2 * n * h * h * c * k * r * r, r // 2
        shapes = ((n, c, h, h), (k, c, r, r))
        name = f"conv {n} x {c} x {h}^2 -> {k}, {r} x {r}"
        yield Case(name, lambda lib, x, w, pad=pad: lib.relu(lib.conv(x, w, pad)), shapes, flops, (1,))


def gradients() -> Iterator[Case]:
    for n, c, h, k in TRAINED:
        shapes = ((n, k, h, h), (n, c, h, h), (k, c, 3, 3))
        yield Case(
            f"conv gradients {n} x {c} x {h}^2 -> {k}",
            lambda lib, g, x, w: lib.conv_gradients(g, x, w, 1),
            shapes,
            2 * 2 * n * h * h * c * k * 9,
        )


SECTIONS = {f.__name__: f for f in (gemm, skinny, pointwise, reductions, conv, gradients)}
