"""Many sizes through one traced function: recordings, codes, and time, beside a trace of each size and torch.

    python benchmarks/sizes.py [--threads 2] [--count 200] [--only mlp gpt] [--write]

`count` batches of many sizes, shuffled, twice: the first pass records and compiles, under the usual budget.
Then, on three of the sizes, what a call takes that is served by the recording of all sizes, over one that is
served by a recording of that size alone; both take turns.  torch runs eagerly.  --write puts the table into
results/sizes.txt.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
from time import perf_counter, sleep
from typing import Any

from contest import RESULTS, where
from models import made
from networks import CASES

NETWORKS = ("mlp", "lenet", "gpt", "resnet18")
MOST = {"mlp": 256, "lenet": 128, "gpt": 12, "resnet18": 12}  # a batch at most
TURNS = 30


def passes(run: Any, batches: list[Any]) -> tuple[float, float]:
    """Seconds of two passes."""
    found = []
    for _ in range(2):
        start = perf_counter()
        for x in batches:
            run(x)
        found.append(perf_counter() - start)
    return found[0], found[1]


def row(name: str, count: int) -> str:
    """A line of the table."""
    import torch

    import lamina

    case, rng = CASES[name], random.Random(0)
    sizes = list(range(2, MOST[name] + 1))
    sizes = (sizes * (count // len(sizes) + 1))[:count]
    rng.shuffle(sizes)
    arrays = [case.inputs(n) for n in sizes]
    model, peer = made(case, lamina).eval(), made(case, torch).eval()
    traced = lamina.jit.trace(model)
    with lamina.no_grad(), torch.no_grad():
        ours = passes(traced, [*map(lamina.tensor, arrays)])
        counts = traced.counts()
        eager = passes(model, [*map(lamina.tensor, arrays)])
        theirs = passes(peer, [*map(torch.from_numpy, arrays)])
        ratios = [
            beside(lamina.jit.trace(model, budget=None), model, case, n)
            for n in (sizes[0], sizes[1], sizes[2])
        ]
    served = counts["served"] / (2 * count)
    return (
        f"{name:<10}{len(set(sizes)):>7}{counts['recorded']:>12}{served:>9.0%}{ours[0]:>10.2f}{ours[1]:>9.2f}"
        f"{eager[0]:>9.2f}{eager[1]:>9.2f}{theirs[0]:>9.2f}{theirs[1]:>9.2f}{statistics.median(ratios):>11.3f}"
    )


def beside(traced: Any, model: Any, case: Any, n: int) -> float:
    """What a call of a size takes by the recording of all, over one by a recording of that size."""
    import lamina

    alone, x = lamina.jit.trace(model, budget=None, dynamic=False), lamina.tensor(case.inputs(n))
    for other in (n + 1, n + 2):
        traced(lamina.tensor(case.inputs(other)))
    calls = [lambda: traced(x), lambda: alone(x)]
    for call in calls:
        for _ in range(12):
            call()
    least = [float("inf")] * 2
    for turn in range(TURNS):
        for at in (0, 1) if turn % 2 else (1, 0):
            for _ in range(5):
                start = perf_counter()
                calls[at]()
                least[at] = min(least[at], perf_counter() - start)
    return least[0] / least[1]


def table(threads: int, count: int, only: list[str]) -> list[str]:
    import lamina

    lamina.set_num_threads(threads)
    import torch

    torch.set_num_threads(threads)
    lines = [
        f"{where(threads)}",
        f"{count} batches, twice: seconds of the first pass and of the second; a call by the recording of "
        "all sizes over one by a recording of its own",
        f"{'':<10}{'sizes':>7}{'recordings':>12}{'served':>9}{'traced':>10}{'again':>9}{'eager':>9}{'again':>9}"
        f"{'torch':>9}{'again':>9}{'over own':>11}",
    ]
    for name in only:
        sleep(0.2)
        lines.append(row(name, count))
        print(lines[-1], flush=True)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--only", nargs="*", default=[*NETWORKS])
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if "OPENBLAS_CORETYPE" in os.environ:  # which slows NumPy's products down
        rest = {k: v for k, v in os.environ.items() if k != "OPENBLAS_CORETYPE"}
        sys.exit(subprocess.call([sys.executable, *sys.argv], env=rest))
    lines = table(options.threads, options.count, options.only)
    print("\n".join(lines))
    if options.write:
        (RESULTS / "sizes.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
