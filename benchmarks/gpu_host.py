"""What the host pays for work on an NVIDIA GPU, beside torch: microseconds a call, when nothing waits.

    python benchmarks/gpu_host.py [--write] [--fake]

--write puts the table into benchmarks/results/gpu_host.txt.  --fake: without a GPU, on the tests' driver,
which runs nothing, and without torch: what Python takes around the driver's calls (gpu_host_fake.txt).
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
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
BOTH_WAYS = "a traced x + y of the host's arrays, there and back"
BEGUN = "GPU_HOST_ON_THE_FAKE"


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
    c, d = a.cuda(), b.cuda()
    e = d.clone().requires_grad_()
    there = jit.trace(lambda x, y: x + y)
    for _ in range(12):
        traced(a, b)
        there(c, d)
    return {
        "launch": launch,
        "an array made and dropped": lambda: DeviceArray(here, "f32", (1000,)),
        "x + y of tensors there": lambda: c + d,
        "x * y there, to be differentiated": lambda: c * e,
        "x.sum() there": lambda: c.sum(),
        "x[1:] there": lambda: c[1:],
        "a traced x + y of tensors there": lambda: there(c, d),
        BOTH_WAYS: lambda: traced(a, b),
    }


def theirs() -> tuple[dict[str, Callable[[], object]], Callable[[], object]]:
    import torch

    x, y, z = (torch.zeros(1000, device="cuda") for _ in range(3))
    a, e = torch.ones(1000), y.clone().requires_grad_()
    return {
        "launch": lambda: torch.add(x, y, out=z),
        "an array made and dropped": lambda: torch.empty(1000, device="cuda"),
        "x + y of tensors there": lambda: x + y,
        "x * y there, to be differentiated": lambda: x * e,
        "x.sum() there": lambda: x.sum(),
        "x[1:] there": lambda: x[1:],
        "a traced x + y of tensors there": lambda: x + y,
        BOTH_WAYS: lambda: (a.cuda() + a.cuda()).cpu(),
    }, torch.cuda.synchronize


def on_the_fake() -> None:
    """Begin anew on the tests' driver, where launches do nothing."""
    sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "gpu"))
    import fake_cuda

    if os.environ.get(BEGUN) is None:
        found = fake_cuda.environment() | {BEGUN: "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        os.execve(sys.executable, [sys.executable, *sys.argv], found)
    fake_cuda.Fake().on_launch(lambda launch: 0)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--fake", action="store_true")
    options = parser.parse_args()
    if options.fake:
        on_the_fake()
    here = machine()
    peers, finish = ({}, None) if options.fake else theirs()
    device = "the tests' driver, which runs nothing" if options.fake else here.device.name
    beside = "" if options.fake else f" torch {version('torch')},"
    lines = [
        where(),
        f"{device}, triton {version('triton')},{beside} NumPy {np.__version__}",
        f"  {'us a call, the least and the median':<54}{'lamina':>9}"
        + ("" if options.fake else f"{'torch':>18}"),
    ]
    for name, call in ours().items():
        times = [*microseconds(call, here.stream.synchronize)]
        if peers:
            times += microseconds(peers[name], finish)
        lines.append(f"  {name:<54}" + "".join(f"{time:>9.2f}" for time in times))
    print("\n".join(lines))
    if options.write:
        name = "gpu_host_fake.txt" if options.fake else "gpu_host.txt"
        (RESULTS / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
