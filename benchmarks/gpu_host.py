"""What the host pays for work on an NVIDIA GPU, beside torch: microseconds a call, when nothing waits.

    python benchmarks/gpu_host.py [--write]

--write puts the table into benchmarks/results/gpu_host.txt.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from time import perf_counter

import numpy as np
from contest import RESULTS, where

import lamina
from lamina import jit
from lamina.ir.kernel import parse, verify
from lamina.passes.triton.generate import generate
from lamina.passes.triton.target import Target
from lamina.runtime.cuda.arrays import DeviceArray
from lamina.runtime.cuda.machine import machine
from lamina.runtime.triton_compiler import compiled

ADD = (
    "kernel add(x: f32[1000], y: f32[1000]) -> (z: f32[1000]) {\n  parallel i:1000\n  z[i] = (x[i] + y[i])\n}"
)
CALLS, ROUNDS = 200, 20


def microseconds(call: Callable[[], object], finish: Callable[[], object]) -> tuple[float, float]:
    """The least and the median of ROUNDS spans of CALLS calls; the device is waited for in between."""
    found = []
    for _ in range(ROUNDS + 1):
        begin = perf_counter()
        for _ in range(CALLS):
            call()
        found.append((perf_counter() - begin) / CALLS * 1e6)
        finish()
    return min(found[1:]), statistics.median(found[1:])


def ours() -> dict[str, Callable[[], object]]:
    here = machine()
    code = generate(verify(parse(ADD)))
    (function,) = here.functions([code], compiled([code], Target.named(here.target)))
    x, y, z = (DeviceArray(here, "f32", (1000,)) for _ in range(3))
    launch = partial(here.stream.launch, function, code.grid, x.address, y.address, z.address)
    traced = jit.trace(lambda x, y: x + y, target="cuda")
    a, b = lamina.ones(1000), lamina.ones(1000)
    for _ in range(3):
        traced(a, b)
    return {
        "launch": launch,
        "an array made and dropped": lambda: DeviceArray(here, "f32", (1000,)),
        "a traced x + y of the host's arrays, there and back": lambda: traced(a, b),
    }


def theirs() -> tuple[dict[str, Callable[[], object]], Callable[[], object]]:
    import torch

    x, y, z = (torch.zeros(1000, device="cuda") for _ in range(3))
    a = torch.ones(1000)
    return {
        "launch": lambda: torch.add(x, y, out=z),
        "an array made and dropped": lambda: torch.empty(1000, device="cuda"),
        "a traced x + y of the host's arrays, there and back": lambda: (a.cuda() + a.cuda()).cpu(),
    }, torch.cuda.synchronize


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    here, (peers, finish) = machine(), theirs()
    lines = [
        where(),
        f"{here.device.name}, triton {version('triton')}, torch {version('torch')}, NumPy {np.__version__}",
        f"  {'us a call, the least and the median':<54}{'lamina':>9}{'':>9}{'torch':>9}",
    ]
    for name, call in ours().items():
        mine = microseconds(call, here.stream.synchronize)
        peer = microseconds(peers[name], finish)
        lines.append(f"  {name:<54}{mine[0]:>9.2f}{mine[1]:>9.2f}{peer[0]:>9.2f}{peer[1]:>9.2f}")
    print("\n".join(lines))
    if options.write:
        (RESULTS / "gpu_host.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
