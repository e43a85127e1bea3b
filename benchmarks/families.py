"""Products of matrices by every way that they may run, over a grid of sizes: which is the quickest, and what
the way that is chosen costs beside it.

    python benchmarks/families.py [--kinds nn nt tn] [--write]

A kind says how the factors lie: `n` as they are multiplied, `t` turned; a number before it is a batch of
such products.  One thread, least time of turns in which all ways of one product take part.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import sys
from collections.abc import Iterator
from statistics import geometric_mean
from time import perf_counter

os.environ.pop("OPENBLAS_CORETYPE", None)

import numpy as np
from contest import RESULTS, where

import lamina
from lamina.ir.kernel import parse
from lamina.passes.llvm.binding import host_target
from lamina.passes.programs.pack_matmuls import Options, pack_matmuls
from lamina.passes.programs.program import Array, Call, Program
from lamina.passes.schedules.choose_product import WAYS
from lamina.runtime.native import Executable

SIZES = {"m": (1, 2, 4, 8, 16, 32, 64, 256), "n": (16, 64, 256, 1024), "k": (16, 64, 256, 1024)}
MOST = 1 << 27  # multiplications
KINDS = ("nn", "nt", "tn", "8nn", "8nt")
TURNS, SECONDS = 9, 0.02


def product(kind: str, m: int, n: int, k: int) -> Program:
    """One product as a program of one call."""
    batch, left, right = kind[:-2], kind[-2], kind[-1]
    i, k_, j = ("i", m), ("k", k), ("j", n)
    outer = [("b", int(batch))] if batch else []
    x = [*outer, *((i, k_) if left == "n" else (k_, i))]
    w = [*outer, *((k_, j) if right == "n" else (j, k_))]
    y = [*outer, i, j]

    def shape(axes: list) -> str:
        return ",".join(str(size) for _, size in axes)

    def names(axes: list) -> str:
        return ", ".join(name for name, _ in axes)

    kernel = parse(
        f"kernel product(x: f32[{shape(x)}], w: f32[{shape(w)}]) -> (y: f32[{shape(y)}]) {{\n"
        f"  parallel {' '.join(f'{name}:{size}' for name, size in y)}\n"
        f"  t = sum(k:{k}) (x[{names(x)}] * w[{names(w)}])\n"
        f"  y[{names(y)}] = t\n}}"
    )
    params, results = (
        tuple(Array(b.name, b.dtype, b.shape) for b in buffers) for buffers in (kernel.inputs, kernel.outputs)
    )
    return Program("product", params, (Call(kernel, params, results),), results)


def measured(kind: str, m: int, n: int, k: int) -> tuple[str, dict[str, float]]:
    """The way that is chosen, and the least seconds of each."""
    before, target = product(kind, m, n, k), host_target()
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(p.shape, dtype=np.float32) for p in before.params]
    texts: dict[str, str] = {}
    runs = {}
    for way in reversed(WAYS):  # one that does not fit is the plain one
        made = pack_matmuls(before, target, Options(only=way))
        if str(made) not in texts.values():
            texts[way], runs[way] = str(made), Executable(made, target)
    chosen = str(pack_matmuls(before, target))
    least = dict.fromkeys(runs, math.inf)
    for turn in range(TURNS + 1):
        for way, run in runs.items():
            end, count = perf_counter() + SECONDS / TURNS, 0
            while count < 2 or perf_counter() < end:
                begin = perf_counter()
                run(*arrays)
                if turn:
                    least[way] = min(least[way], perf_counter() - begin)
                count += 1
    return next(way for way, text in texts.items() if text == chosen), least


def sizes() -> Iterator[tuple[int, int, int]]:
    for m, n, k in itertools.product(*SIZES.values()):
        if m * n * k <= MOST:
            yield m, n, k


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kinds", nargs="+", default=KINDS)
    parser.add_argument("--write", action="store_true", help="to results/families.txt")
    asked = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    lamina.set_num_threads(1)
    head = f"{'kind':<6}{'m':>6}{'n':>6}{'k':>6}" + "".join(f"{way:>11}" for way in WAYS)
    lines = [f"# {where(1)}; {host_target().name}, microseconds", f"{head}  chosen     beside"]
    print(*lines, sep="\n", flush=True)
    lost: dict[str, list[float]] = {}
    for kind in asked.kinds:
        for m, n, k in sizes():
            chosen, found = measured(kind, m, n, k)
            lost.setdefault(kind, []).append(found[chosen] / min(found.values()))
            times = "".join(f"{found[w] * 1e6:>11.1f}" if w in found else f"{'-':>11}" for w in WAYS)
            lines.append(f"{kind:<6}{m:>6}{n:>6}{k:>6}{times}  {chosen:<8}{lost[kind][-1]:>9.2f}")
            print(lines[-1], flush=True)
    for kind, ratios in lost.items():
        lines.append(
            f"# {kind}: the chosen way takes {geometric_mean(ratios):.3f} of the quickest's time, at most "
            f"{max(ratios):.2f}; over 1.2 in {sum(r > 1.2 for r in ratios)} of {len(ratios)}"
        )
        print(lines[-1])
    if asked.write:
        (RESULTS / "families.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
