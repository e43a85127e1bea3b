"""What `lamina.planning` predicts of data-parallel training on this machine, beside what runs of it take.

    python benchmarks/plan_runs.py [--ranks 1 2 4 8] [--write]

The same networks are recorded on the meta device and trained: forward, loss, backward and AdamW on one
batch, traced, in float32, its parts on 1 to 8 processes that share the machine's cores, a thread each.  Its
peaks are measured first (`planning.calibrate`).  Times are least ones of the slowest rank.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from contest import RESULTS, where

import lamina
from lamina import nn, optim

BATCH = 16
NAMES = ("gpt", "mlp")


def network(name: str) -> tuple[nn.Module, tuple[int, ...]]:
    """A network and the shape of its batch."""
    if name == "mlp":
        hidden = [layer for _ in range(6) for layer in (nn.Linear(1024, 1024), nn.ReLU())]
        return nn.Sequential(*hidden), (BATCH * 8, 1024)
    layers = [
        nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True, norm_first=True)
        for _ in range(4)
    ]
    return nn.Sequential(*layers), (BATCH, 128, 256)


def loss(model: Any, x: Any) -> Any:
    return (model(x) ** 2).mean()


def predicted(name: str, ranks: int) -> float:
    """Seconds of a step."""
    from lamina.planning import plan

    with lamina.device("meta"):
        net, shape = network(name)
        x = lamina.empty(shape)
    layout = f"dp={ranks},micro_batch={shape[0] // ranks},overlap=0"
    made = plan(net, example=x, loss=loss, mesh=ranks, device="cpu", batch=shape[0], layout=layout)
    return made.prediction.step


def run(name: str) -> None:
    """What each rank does; the first prints seconds of a step."""
    import lamina.distributed as dist

    lamina.set_num_threads(1)
    dist.init_process_group()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    lamina.manual_seed(0)
    net, shape = network(name)
    model = nn.parallel.DistributedDataParallel(net)
    optimizer = optim.AdamW(net.parameters(), lr=1e-3)

    @lamina.jit.trace
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        found = loss(model, x)
        found.backward()
        optimizer.step()
        return found

    x = lamina.randn(shape[0] // ranks, *shape[1:])
    times = []
    for _ in range(30):
        dist.barrier()
        begun = time.perf_counter()
        step(x)
        took = lamina.tensor([time.perf_counter() - begun], dtype=lamina.float64)
        dist.all_reduce(took, op=dist.ReduceOp.MAX)
        times.append(took.item())
    if rank == 0:
        print("seconds", min(times[5:]), flush=True)


def main() -> None:
    about = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    about.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4, 8])
    about.add_argument("--write", action="store_true")
    about.add_argument("--run", help=argparse.SUPPRESS)
    options = about.parse_args()
    if options.run:
        return run(options.run)
    lines = [f"# {where()}", "", "network  ranks  predicted, ms  measured, ms  predicted / measured"]
    print(lines[0])
    for name in NAMES:
        for ranks in options.ranks:
            words = ["mpiexec", "-n", str(ranks), sys.executable, __file__, "--run", name]
            done = subprocess.run(
                words,
                stdout=subprocess.PIPE,
                text=True,
                check=True,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
            )
            measured = float(done.stdout.split("seconds ")[1].split()[0])
            guess = predicted(name, ranks)
            line = f"{name:7s} {ranks:6d} {guess * 1e3:14.1f} {measured * 1e3:13.1f} {guess / measured:21.2f}"
            print(line, flush=True)
            lines.append(line)
    if options.write:
        text = (__doc__ or "").strip() + "\n\n" + "\n".join(lines) + "\n"
        (Path(RESULTS) / "plan_runs.txt").write_text(text)


if __name__ == "__main__":
    main()
