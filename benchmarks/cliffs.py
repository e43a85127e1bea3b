"""Small programs whose kernels are near the edge of a family: traced against eager, to find where tracing is
slower.

    python benchmarks/cliffs.py [--only conv softmax] [--seconds 0.4] [--threads 1] [--all]

Each runs forward, and with gradients of its inputs from a sum (a constant cotangent), from a mean over what
is behind the second dimension and a square (one number for each channel), and from a sum of squares.  Both
ways take turns; the ratio is the traced time over the eager one, of the least and of the medians.  Printed
are those where both are above 1.05, worst first, or all of them; the exit status is the number printed
without --all.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Callable
from time import perf_counter, thread_time
from typing import Any

os.environ["LAMINA_CACHE_DIR"] = ""

import lamina

nn, F = lamina.nn, lamina.nn.functional
SLOWER = 1.05


def randn(*shape: int) -> Any:
    return lamina.randn(*shape, requires_grad=True)


def weight_norm(v: Any) -> Any:
    return v / (v * v).sum((1, 2, 3), keepdim=True).sqrt()


def spectral(w: Any, u: Any) -> Any:
    v = w.T @ u
    return w / (u @ (w @ (v / (v * v).sum().sqrt())))


def attention(q: Any, k: Any, v: Any) -> Any:
    return (q @ k.transpose(-2, -1) * 0.125).softmax(-1) @ v


# Each: what is computed, and of which sizes.
PROGRAMS: dict[str, tuple[Callable, tuple[tuple[int, ...], ...]]] = {
    "conv3x3": (lambda x, w: F.conv2d(x, w, padding=1), ((32, 64, 16, 16), (64, 64, 3, 3))),
    "conv3x3 one image": (lambda x, w: F.conv2d(x, w, padding=1), ((1, 64, 28, 28), (64, 64, 3, 3))),
    "conv3x3 stride": (lambda x, w: F.conv2d(x, w, stride=2, padding=1), ((32, 32, 17, 17), (64, 32, 3, 3))),
    "conv1x1": (F.conv2d, ((32, 64, 14, 14), (128, 64, 1, 1))),
    "conv depthwise": (lambda x, w: F.conv2d(x, w, padding=1, groups=64), ((16, 64, 28, 28), (64, 1, 3, 3))),
    "conv groups": (lambda x, w: F.conv2d(x, w, padding=1, groups=4), ((16, 64, 14, 14), (64, 16, 3, 3))),
    "conv1d": (lambda x, w: F.conv1d(x, w, padding=2), ((16, 32, 256), (64, 32, 5))),
    "conv3d": (lambda x, w: F.conv3d(x, w, padding=1), ((4, 16, 8, 12, 12), (32, 16, 3, 3, 3))),
    "conv transpose": (
        lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1), ((16, 32, 9, 9), (32, 32, 4, 4))
    ),
    "conv of relu": (lambda x, w: F.conv2d(x.relu(), w, padding=1), ((16, 64, 14, 14), (64, 64, 3, 3))),
    "conv of gelu": (lambda x, w: F.conv2d(F.gelu(x), w, padding=1), ((16, 64, 14, 14), (64, 64, 3, 3))),
    "conv of scaled": (
        lambda x, s, w: F.conv2d(x * s, w, padding=1), ((16, 64, 14, 14), (64, 1, 1), (64, 64, 3, 3))
    ),
    "conv of expanded": (
        lambda x, w: F.conv2d(x.expand(16, 64, 14, 14), w, padding=1), ((16, 64, 1, 1), (64, 64, 3, 3))
    ),
    "conv with weight norm": (
        lambda x, v: F.conv2d(x, weight_norm(v), padding=1), ((16, 64, 14, 14), (64, 64, 3, 3))
    ),
    "conv with masked weight": (
        lambda x, w, m: F.conv2d(x, w * m, padding=1), ((16, 64, 14, 14), (64, 64, 3, 3), (64, 64, 3, 3))
    ),
    "conv then mask": (
        lambda x, w, m: F.conv2d(x, w, padding=1) * (m > 0), ((16, 64, 14, 14), (64, 64, 3, 3), (14, 14))
    ),
    "conv then pool": (
        lambda x, w: F.avg_pool2d(F.conv2d(x, w, padding=1), 2), ((16, 64, 14, 14), (64, 64, 3, 3))
    ),
    "conv twice": (
        lambda x, v, w: F.conv2d(F.conv2d(x, v, padding=1).relu(), w, padding=1),
        ((16, 32, 14, 14), (32, 32, 3, 3), (32, 32, 3, 3)),
    ),
    "linear": (lambda x, w, b: F.linear(x, w, b), ((256, 512), (384, 512), (384,))),
    "linear of gelu": (lambda x, w: F.linear(F.gelu(x), w), ((256, 512), (384, 512))),
    "linear of softmax": (lambda x, w: F.linear(x.softmax(-1), w), ((256, 512), (384, 512))),
    "linear of layer norm": (
        lambda x, g, w: F.linear(F.layer_norm(x, (512,)) * g, w), ((256, 512), (512,), (384, 512))
    ),
    "linear of expanded": (lambda x, w: F.linear(x.expand(256, 512), w), ((1, 512), (384, 512))),
    "linear of a column": (lambda x, w: F.linear(x.expand(256, 512), w), ((256, 1), (384, 512))),
    "linear with weight norm": (
        lambda x, v: F.linear(x, v / (v * v).sum(1, keepdim=True).sqrt()), ((256, 512), (384, 512))
    ),
    "linear with spectral norm": (
        lambda x, w, u: F.linear(x, spectral(w, u)), ((256, 512), (384, 512), (384,))
    ),
    "linear with tanh weight": (lambda x, w: F.linear(x, w.tanh()), ((256, 512), (384, 512))),
    "linear with outer weight": (
        lambda x, a, b: F.linear(x, a[:, None] * b), ((256, 512), (384,), (512,))
    ),
    "low rank": (lambda x, a, b: x @ (a @ b), ((256, 512), (512, 16), (16, 384))),
    "softmax @ v": (lambda x, v: x.softmax(-1) @ v, ((8, 128, 128), (8, 128, 64))),
    "attention": (attention, ((8, 128, 64), (8, 128, 64), (8, 128, 64))),
    "gelu @ w": (lambda x, w: F.gelu(x) @ w, ((256, 512), (512, 384))),
    "matmul of masked": (
        lambda x, w, m: x.masked_fill(m > 0, 0.0) @ w, ((256, 512), (512, 384), (256, 512))
    ),
    "matmul of triangle": (lambda x, w: x.tril() @ w, ((384, 384), (384, 384))),
    "matmul of sum": (lambda x, y, w: (x + y) @ w, ((256, 512), (512,), (512, 384))),
    "gram": (lambda x: x @ x.T, ((256, 384),)),
    "matvec": (lambda x, v: x @ v, ((1024, 1024), (1024,))),
    "vecmat of exp": (lambda x, v: v @ x.exp(), ((1024, 512), (1024,))),
    "einsum of three": (
        lambda a, b, c: lamina.einsum("bi,ij,bj->b", a, b, c), ((256, 128), (128, 128), (256, 128))
    ),
    "bilinear": (
        lambda a, w, b: lamina.einsum("bi,kij,bj->bk", a, w, b), ((64, 48), (32, 48, 48), (64, 48))
    ),
    "sum of outer": (lambda a, b: (a[:, :, None] * b[:, None, :]).sum(0), ((256, 96), (256, 128))),
    "products added": (lambda a, b: (a[:, None, :] * b[None]).sum(-1), ((128, 256), (96, 256))),
    "products of squares": (
        lambda a, b: (a[:, None, :] * b[None] * b[None]).sum(-1), ((128, 256), (96, 256))
    ),
    "distances": (lambda a, b: ((a[:, None, :] - b[None]) ** 2).sum(-1), ((128, 64), (128, 64))),
    "gaussian": (lambda a, b: (-((a[:, None, :] - b[None]) ** 2).sum(-1)).exp() @ b, ((128, 64), (128, 64))),
    "cumulative product": (lambda x: x.sigmoid().cumprod(1), ((256, 256),)),
    "cumulative sum @ w": (lambda x, w: x.cumsum(0) @ w, ((256, 256), (256, 256))),
    "average pool": (lambda x: F.avg_pool2d(x, 3, stride=2, padding=1), ((16, 64, 29, 29),)),
    "max pool": (lambda x: F.max_pool2d(x, 3, stride=2, padding=1), ((16, 64, 29, 29),)),
    "pool of gelu": (lambda x: F.avg_pool2d(F.gelu(x), 3, stride=1, padding=1), ((16, 64, 28, 28),)),
    "max pool of gelu": (lambda x: F.max_pool2d(F.gelu(x), 3, stride=1, padding=1), ((16, 64, 28, 28),)),
    "norm of conv": (
        lambda x, w: F.batch_norm(F.conv2d(x, w, padding=1), None, None, training=True).relu(),
        ((16, 32, 14, 14), (32, 32, 3, 3)),
    ),
    "squeeze and excite": (
        lambda x, a, b: x * (x.mean((2, 3)) @ a).relu().matmul(b).sigmoid()[:, :, None, None],
        ((16, 64, 14, 14), (64, 16), (16, 64)),
    ),
    "mean of linear": (lambda x, w: (x @ w).mean(1), ((16, 128, 256), (256, 256))),
    "mask times sum": (lambda x, m: (x * (m > 0)).sum(-1), ((512, 1024), (1024,))),
    "interpolate": (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), ((8, 32, 16, 16),)),
}  # fmt: skip


def by_channel(y: Any) -> Any:
    """A square of the mean over places."""
    means = y.mean(tuple(range(2, y.ndim))) if y.ndim > 2 else y.mean(-1) if y.ndim == 2 else y
    return (means * means).sum()


LOSSES = {
    "sum": lambda y: y.sum(),
    "channels": by_channel,
    "squares": lambda y: (y * y).sum(),
}


def ways(name: str) -> dict[str, tuple[Callable, list]]:
    """What is timed of a program: itself, and its gradients from several losses."""
    compute, shapes = PROGRAMS[name]
    lamina.manual_seed(0)
    inputs = [randn(*shape) for shape in shapes]

    def forward(*inputs: Any) -> Any:
        with lamina.no_grad():
            return compute(*inputs)

    def gradients(loss: Callable) -> Callable:
        def step(*inputs: Any) -> Any:
            return lamina.autograd.grad(loss(compute(*inputs)), inputs, allow_unused=True)

        return step

    found = {"forward": (forward, inputs)}
    return found | {f"grad of {kind}": (gradients(loss), inputs) for kind, loss in LOSSES.items()}


def compare(call: Callable, inputs: list, seconds: float, clock: Callable) -> tuple[float, ...]:
    """The least and the median time of eager calls, and of traced ones, in turns."""
    both = call, lamina.jit.trace(call)
    for one in both:
        for _ in range(12):  # recorded, compiled, and served by the quickest way there is
            one(*inputs)
    times: tuple[list[float], list[float]] = [], []
    end = perf_counter() + seconds
    while perf_counter() < end or len(times[1]) < 5:
        for one, own in zip(both, times, strict=True):
            one(*inputs)  # its own arrays are in the caches
            start = clock()
            one(*inputs)
            own.append(clock() - start)
    return tuple(statistic(own) for own in times for statistic in (min, statistics.median))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=())
    parser.add_argument("--ways", nargs="*", default=())
    parser.add_argument("--seconds", type=float, default=0.4)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--all", action="store_true")
    options = parser.parse_args()
    lamina.set_num_threads(options.threads)
    # of one thread what it ran itself: what neighbours run meanwhile counts for nothing
    clock = thread_time if options.threads == 1 else perf_counter
    found = []
    for name in PROGRAMS:
        if options.only and not any(part in name for part in options.only):
            continue
        for way, (call, inputs) in ways(name).items():
            if options.ways and not any(part in way for part in options.ways):
                continue
            eager, middle, traced, other = compare(call, inputs, options.seconds, clock)
            found.append((traced / eager, other / middle, eager, traced, f"{name}, {way}"))
    worst = sorted(found, reverse=True)
    slower = [row for row in worst if min(row[:2]) > SLOWER]
    for least, middle, eager, traced, title in worst if options.all else slower:
        print(f"{least:6.2f} {middle:6.2f}  {eager * 1e3:8.3f} -> {traced * 1e3:8.3f} ms  {title}")
    print(f"{len(slower)} of {len(found)} are slower traced than eager")
    sys.exit(0 if options.all else len(slower))


if __name__ == "__main__":
    main()
