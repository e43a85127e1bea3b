"""Draws one data-parallel training step of a rank: its kernels, and the collectives that are on their way.

    python benchmarks/overlap.py [--ranks 2] [--layers 6] [--width 1024] [--out overlap.png]

The step is traced: forward, backward and SGD with momentum of a perceptron, gradients in buckets of 4 MB.  A
collective's bar goes from where the program begins it to where its results were seen to be there; the lowest
row is what the program itself spends in beginning them and waiting.  Collectives are looked at while kernels
run, as where a core is idle or ranks are on several machines: without one they go on where they are waited
for, which is quicker on two ranks of two cores.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Any

from contest import RESULTS, where


def recorded(layers: int, width: int) -> tuple[list[Any], list[tuple[int, int, int]]]:
    """The events of a step on this rank, and of each collective when it began and came, and its bytes."""
    import lamina
    import lamina.distributed as dist
    from lamina import nn, optim
    from lamina.profiler import profile

    dist.init_process_group()
    lamina.set_num_threads(1)
    flights: list[tuple[int, int, int]] = []
    world = dist.groups.need_world()
    world.log, world.looks_ahead = flights, True
    lamina.manual_seed(0)
    hidden = [layer for _ in range(layers) for layer in (nn.Linear(width, width), nn.ReLU())]
    net = nn.Sequential(*hidden, nn.Linear(width, 10))
    model = nn.parallel.DistributedDataParallel(net, bucket_cap_mb=4)
    optimizer = optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)

    @lamina.jit.trace
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    x = lamina.randn(128, width)
    for _ in range(6):
        step(x)
    for _ in range(2):  # the first has the program linked kernel by kernel
        dist.barrier()
        flights.clear()
        with profile() as profiled:
            step(x)
    events = [e for e in profiled.events() if not e.cpu_children and e.end > e.start]
    return (events if dist.get_rank() == 0 else []), flights


def draw(events: list[Any], flights: list[tuple[int, int, int]], ranks: int, path: Path) -> float:
    """Write the picture; the share of the collectives' time in which kernels ran."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    zero = min(e.start for e in events)
    spans = [((e.start - zero) / 1e6, (e.end - e.start) / 1e6, e.name) for e in events]
    kernels = [s for s in spans if s[2] != "wait" and not s[2].startswith("begin.")]
    in_calls = [s for s in spans if s[2] == "wait" or s[2].startswith("begin.")]
    # The profile's clock stands still while the profile itself needs time.
    began = next(e for e in events if e.name.startswith("begin."))
    ahead = min(a for a, _, _ in flights) - began.end
    under = [((a - ahead - zero) / 1e6, (b - a) / 1e6, n) for a, b, n in flights if n]
    figure, axes = pyplot.subplots(figsize=(11, 2.6 + 0.16 * len(under)))
    last = max((b + n for b, n, _ in (*under, *spans)), default=0)
    for begin, length, _ in kernels:
        axes.barh(0, length, left=begin, color="#3b6fb6", edgecolor="white", linewidth=0.3)
    for begin, length, _ in in_calls:
        axes.barh(-1, length, left=begin, color="#b03a2e")
    for n, (begin, length, nbytes) in enumerate(sorted(under)):
        axes.barh(n + 1, length, left=begin, color="#4f9d69", height=0.7)
        axes.text(begin + length, n + 1, f" {nbytes / 1e6:.2g} MB", va="center", fontsize=7)
    axes.set_yticks([-1, 0, (len(under) + 1) / 2], ["in MPI", "kernels", "collectives\non their way"])
    axes.set_xlabel("milliseconds")
    axes.set_title(
        f"A training step of rank 0 of {ranks}: collectives go while backward computes", fontsize=10
    )
    axes.set_xlim(0, last * 1.06)
    axes.set_ylim(-1.6, len(under) + 0.8)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    grid = 2000
    end = max(b + n for b, n, _ in spans)
    points = [end * i / grid for i in range(grid)]
    busy = [any(b <= t < b + n for b, n, _ in under) for t in points]
    both = [c and any(b <= t < b + n for b, n, _ in kernels) for t, c in zip(points, busy)]
    return sum(both) / max(1, sum(busy))


def main() -> None:
    about = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    about.add_argument("--ranks", type=int, default=2)
    about.add_argument("--layers", type=int, default=6)
    about.add_argument("--width", type=int, default=1024)
    about.add_argument("--out", type=Path, default=Path(RESULTS) / "overlap.png")
    about.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    options = about.parse_args()
    if not options.rank:
        words = ["mpiexec", "-n", str(options.ranks), sys.executable, __file__, *sys.argv[1:], "--rank"]
        sys.exit(subprocess.run(words, check=False).returncode)
    events, flights = recorded(options.layers, options.width)
    if events:
        share = draw(events, flights, options.ranks, options.out)
        print(f"{where()}\n{share:.2f} of the time in which collectives were on their way kernels ran")
        print(f"drawn: {options.out}")


if __name__ == "__main__":
    main()
