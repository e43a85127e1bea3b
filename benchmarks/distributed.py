"""Collectives and data-parallel steps between processes of a machine: Lamina, mpi4py itself, PyTorch on gloo.

    python benchmarks/distributed.py [--ranks 2 4] [--rounds 30] [--only all_reduce gpt] [--write]

Every contender runs in the same ranks, in any order, one thread each, after 20 ms of rest and a call that is
not timed; a time is the slowest rank's, of which the least and the median stand here.  Collectives: of the
same memory, sum of float32.  Steps: forward, loss, backward with gradients averaged over all ranks, and SGD
with momentum, of Lamina's DistributedDataParallel (traced and eager) and PyTorch's.  "alone" is Lamina's
traced step without any collective, which all ranks run at the same time, "reduce" one all_reduce of as many
numbers as there are gradients, again and again of the same memory, and "apart" the two in turn, timed as one:
what a step does, computed and then sent, with the numbers as far from the caches as a step leaves them.  A
step is held against that (medians in brackets).  behind: Lamina's least time over that of mpi4py, or of
PyTorch.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from contest import RESULTS, where

SIZES = {"1 KB": 256, "64 KB": 1 << 14, "1 MB": 1 << 18, "64 MB": 1 << 24}
MODELS = ("mlp", "convnet", "gpt")


def times(contenders: dict[str, Callable[[], object]], rounds: int, barrier: Any) -> dict[str, list[float]]:
    """Seconds of each call of each contender, by rounds that all ranks go through together."""
    found: dict[str, list[float]] = {name: [] for name in contenders}
    for call in contenders.values():
        call(), call(), call()
    order, any_order = list(contenders.items()), random.Random(0)  # the same on all ranks
    for _ in range(rounds):
        any_order.shuffle(order)
        for name, call in order:
            barrier()
            time.sleep(0.02)  # gloo's threads of the contender before are at rest
            call()
            barrier()
            start = time.perf_counter()
            call()
            found[name].append(time.perf_counter() - start)
    return found


def model(library: Any, name: str) -> tuple[Any, Any]:
    """A network and a function that makes a batch for it."""
    nn = library.nn
    library.manual_seed(0)
    if name == "mlp":
        layers = [nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)]
        return nn.Sequential(*layers), lambda: library.randn(64, 512)
    if name == "convnet":
        layers = [nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, stride=2, padding=1),
                  nn.ReLU(), nn.Conv2d(64, 128, 3, stride=2, padding=1), nn.ReLU(),
                  nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10)]  # fmt: skip
        return nn.Sequential(*layers), lambda: library.randn(16, 3, 32, 32)
    block = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True, norm_first=True)
    blocks = nn.TransformerEncoder(block, 4, enable_nested_tensor=False)
    return nn.Sequential(blocks, nn.Linear(256, 10)), lambda: library.randn(4, 64, 256)


def step_of(library: Any, net: Any, wrapped: Any, batch: Any) -> Callable[[], Any]:
    optimizer = library.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)

    def step() -> Any:
        optimizer.zero_grad()
        loss = (wrapped(batch) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    return step


def rank(rounds: int, only: list[str], port: int) -> None:
    """What each rank does; the first prints."""
    import numpy as np
    import torch
    import torch.distributed as gloo
    from mpi4py import MPI

    import lamina
    import lamina.distributed as dist

    torch.set_num_threads(1)
    lamina.set_num_threads(1)
    dist.init_process_group("mpi")
    number, count = dist.get_rank(), dist.get_world_size()
    gloo.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=number, world_size=count)
    world = MPI.COMM_WORLD

    def told(title: str, found: dict[str, list[float]], peer: str, unit: float) -> None:
        slowest = {name: np.array(values) for name, values in found.items()}
        for values in slowest.values():
            world.Allreduce(MPI.IN_PLACE, values, MPI.MAX)
        if number == 0:
            least = {name: values.min() for name, values in slowest.items()}
            each = ", ".join(
                f"{name} {least[name] * unit:.2f} ({statistics.median(values) * unit:.2f})"
                for name, values in slowest.items()
            )
            more = ""
            if "apart" in found:
                ratios = [of(slowest["lamina"]) / of(slowest["apart"]) for of in (np.min, np.median)]
                more = ", {:.2f} ({:.2f}) of apart".format(*ratios)
            behind = least["lamina"] / least[peer]
            print(f"{count} ranks  {title}: {each}; behind {behind:.2f}{more}", flush=True)

    for name, size in SIZES.items():
        if only and "all_reduce" not in only:
            break
        x = np.ones(size, np.float32)
        ours, theirs = lamina.from_numpy(x), torch.from_numpy(x)  # of one memory
        contenders = {
            "lamina": lambda x=ours: dist.all_reduce(x),
            "mpi4py": lambda x=x: world.Allreduce(MPI.IN_PLACE, x),
            "gloo": lambda x=theirs: gloo.all_reduce(x),
        }
        enough = min(200, max(rounds, int(2e6 / size)))
        unit, spelled = (1e6, "us") if size < 1 << 20 else (1e3, "ms")
        told(
            f"all_reduce of {name}, {spelled}",
            times(contenders, enough, world.Barrier),
            "mpi4py",
            unit,
        )
    for name in MODELS:
        if only and name not in only:
            continue
        steps: dict[str, Callable[[], Any]] = {}
        net, batch = model(lamina, name)
        wrapped = lamina.nn.parallel.DistributedDataParallel(net)
        steps["lamina"] = lamina.jit.trace(step_of(lamina, net, wrapped, batch()))
        net, _ = model(lamina, name)
        wrapped = lamina.nn.parallel.DistributedDataParallel(net)
        steps["eager"] = step_of(lamina, net, wrapped, batch())
        net, _ = model(lamina, name)
        steps["alone"] = lamina.jit.trace(step_of(lamina, net, net, batch()))
        flat = lamina.zeros(sum(p.numel() for p in net.parameters()))
        steps["reduce"] = lambda flat=flat: dist.all_reduce(flat)
        steps["apart"] = lambda alone=steps["alone"], flat=flat: (alone(), dist.all_reduce(flat))
        peer, given = model(torch, name)
        peer.load_state_dict({k: torch.from_numpy(v.numpy().copy()) for k, v in net.state_dict().items()})
        steps["torch"] = step_of(torch, peer, torch.nn.parallel.DistributedDataParallel(peer), given())
        told(f"{name} step, ms", times(steps, rounds, world.Barrier), "torch", 1e3)
    gloo.destroy_process_group()


def main() -> None:
    about = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    about.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    about.add_argument("--rounds", type=int, default=30)
    about.add_argument("--only", nargs="*", default=[], choices=("all_reduce", *MODELS))
    about.add_argument("--write", action="store_true")
    about.add_argument("--rank", type=int, default=0, help=argparse.SUPPRESS)
    options = about.parse_args()
    if options.rank:
        return rank(options.rounds, options.only, options.rank)
    lines = [f"# {where()}"]
    for n, count in enumerate(options.ranks):
        words = ["mpiexec", "-n", str(count), sys.executable, __file__, "--rank", str(29600 + n)]
        words += ["--rounds", str(options.rounds)] + (["--only", *options.only] if options.only else [])
        done = subprocess.run(
            words, stdout=subprocess.PIPE, text=True, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"}
        )
        print(done.stdout, end="", flush=True)
        lines += [line for line in done.stdout.splitlines() if "ranks  " in line]
    if options.write:
        path = Path(RESULTS) / "distributed.txt"
        path.write_text((__doc__ or "").strip() + "\n\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
