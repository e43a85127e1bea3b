"""Attention beside PyTorch's: scaled_dot_product_attention, forward and with its gradients.

    python benchmarks/attention.py [--lengths 256 512 1024 2048 4096] [--threads 1 2] [--seconds 3] [--write]

One batch of 8 heads of 64, float32, as many keys as queries; without a mask, with the causal one, and with
one of floats that is added.  Contenders take turns, after a pause each, in one process for each number of
threads: Lamina traced, Lamina eager, and torch.  With one thread times are those that the thread itself has
run, which others on the machine lengthen less than the clock's.  --write puts the tables into
results/attention.md.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from contest import RESULTS, where

HEADS, WIDTH = 8, 64
LENGTHS = 256, 512, 1024, 2048, 4096
MASKS = "none", "causal", "floats"
CONTENDERS = "traced", "eager", "torch"
LONGEST_EAGER = 1024  # which takes long
PAUSE = 0.1  # seconds


def calls(library: Any, length: int, mask: str, trace: Callable | None) -> dict[str, Callable[[], Any]]:
    """What is timed, on arrays that are the same for every library."""
    rng = np.random.default_rng(0)

    def draw(*shape: int) -> Any:
        return library.tensor(rng.standard_normal(shape, dtype=np.float32))

    q, k, v, g = (draw(1, HEADS, length, WIDTH) for _ in range(4))
    floats = draw(length, length) if mask == "floats" else None
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]

    def forward(q: Any, k: Any, v: Any, floats: Any) -> Any:
        attention = library.nn.functional.scaled_dot_product_attention
        return attention(q, k, v, attn_mask=floats, is_causal=mask == "causal")

    def both(q: Any, k: Any, v: Any, floats: Any, g: Any) -> Any:
        return library.autograd.grad(forward(q, k, v, floats), (q, k, v), g)

    first, second = (trace(forward), trace(both)) if trace else (forward, both)
    return {
        "forward": lambda: first(q, k, v, floats),
        "forward, backward": lambda: second(*leaves, floats, g),
    }


def race(contenders: dict[str, Callable[[], Any]], seconds: float, clock: Callable[[], float]) -> dict:
    """The least and the median time of each, in milliseconds; a round takes each in turn.

    Before its turn others' threads get the time to fall asleep; a turn is as many calls as there is time for
    in a tenth of a second.
    """
    for call in (*contenders.values(), *contenders.values()):
        call()
    found: dict[str, list[float]] = {name: [] for name in contenders}
    end, rounds = time.perf_counter() + seconds, 0
    gc.disable()
    while rounds < 3 or time.perf_counter() < end:
        for name, call in contenders.items():
            time.sleep(PAUSE)
            turn = time.perf_counter() + PAUSE
            while True:
                start = clock()
                call()
                found[name].append(1e3 * (clock() - start))
                if time.perf_counter() > turn:
                    break
        rounds += 1
    gc.enable()
    return {name: (min(times), statistics.median(times)) for name, times in found.items()}


def rows(lengths: list[int], threads: int, seconds: float) -> list[str]:
    import torch

    import lamina

    lamina.set_num_threads(threads)
    torch.set_num_threads(threads)
    clock = time.thread_time if threads == 1 else time.perf_counter
    trace, lines = lambda f: lamina.jit.trace(f, budget=None), []
    for length in lengths:
        for mask in MASKS:
            given = {"traced": (lamina, trace), "eager": (lamina, None), "torch": (torch, None)}
            found = {n: calls(library, length, mask, how) for n, (library, how) in given.items()}
            for what in found["torch"]:
                names = [n for n in CONTENDERS if n != "eager" or length <= LONGEST_EAGER]
                times = race({n: found[n][what] for n in names}, seconds, clock)
                cells = [f"{times[n][0]:.2f} ({times[n][1]:.2f})" if n in times else "" for n in CONTENDERS]
                ahead = "{:.2f} ({:.2f})".format(*(times["torch"][n] / times["traced"][n] for n in (0, 1)))
                lines.append(f"| {length} | {mask} | {what} | {' | '.join(cells)} | {ahead} |")
                print(lines[-1], file=sys.stderr, flush=True)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lengths", type=int, nargs="*", default=[*LENGTHS])
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--seconds", type=float, default=3.0, help="for each line")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)  # in a process of its own
    options = parser.parse_args()
    if options.alone:
        print("\n".join(rows(options.lengths, options.threads[0], options.seconds)))
        return
    lines = [
        "# Attention",
        "",
        "`python benchmarks/attention.py`",
        "",
        f"{where()}; load {os.getloadavg()[0]:.1f} as it began.",
        "",
        f"One batch of {HEADS} heads of {WIDTH}, float32, milliseconds: least (median).  Ahead: "
        "PyTorch's time by that of Lamina, traced.",
    ]
    rest = {k: v for k, v in os.environ.items() if k != "OPENBLAS_CORETYPE"}  # which slows NumPy's products
    with tempfile.TemporaryDirectory() as cache:
        for threads in options.threads:
            numbers = ["--threads", threads, "--seconds", options.seconds, "--lengths", *options.lengths]
            command = [sys.executable, __file__, "--alone", *map(str, numbers)]
            environment = rest | {"LAMINA_CACHE_DIR": f"{cache}/{threads}"}
            told = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
            clock = "1 thread, times of the thread" if threads == 1 else f"{threads} threads, by the clock"
            columns = "| length | mask | | traced | eager | torch | ahead |"
            lines += ["", f"## {clock}", "", columns, "|--:|---|---|--:|--:|--:|--:|", told.stdout.rstrip()]
    print("\n".join(lines))
    if options.write:
        (RESULTS / "attention.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
