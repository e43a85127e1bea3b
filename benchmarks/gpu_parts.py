"""Where the time of a case of gpu.py goes, launch by launch, on an NVIDIA GPU.

    python benchmarks/gpu_parts.py --only training --case "ResNet-18 of 32^2, a step on 128 tf32" [--most 30]

Each launch is timed between events of its own, which adds some microseconds to each; the sum stands beside
the time of the whole.
"""

from __future__ import annotations

import argparse
import sys

import gpu
import numpy as np
from contest import where

from lamina.runtime.cuda.executable import Executable
from lamina.runtime.cuda.machine import Machine, machine

ROUNDS = 10


def parts(case: gpu.Case, device: Machine, most: int) -> None:
    """Say the launches of a case that take most."""
    arrays = [o.array(k) for k, o in enumerate(case.operands)]
    program, given = gpu.program_of(
        case, gpu.graph_of(case, case.operands), arrays, lambda p, a: Executable(p, device)(*a)
    )
    resident = gpu.Resident(device, program, given)
    whole = gpu.turns({"lamina": gpu.Ours(resident, device)}, 0.2)["lamina"].least
    times = np.array([_each(resident, device) for _ in range(ROUNDS)]).min(0)
    print(f"{case.name}: {whole * 1e6:.0f} us, {len(times)} launches, one by one {times.sum() * 1e6:.0f} us")
    for at in np.argsort(-times)[:most]:
        print(f"  {at:>4}{times[at] * 1e6:>9.1f} us  {resident.labels[at]}")


def _each(resident: gpu.Resident, device: Machine) -> list[float]:
    """Seconds of each launch."""
    marks = [device.stream.record(timing=True)]
    for step in resident.steps:
        step()
        marks.append(device.stream.record(timing=True))
    return [end.since(start) / 1e3 for start, end in zip(marks, marks[1:])]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=gpu.SECTIONS, default="training")
    parser.add_argument("--case", default="", help="those whose names have this in them")
    parser.add_argument("--most", type=int, default=30, help="how many launches are said")
    options = parser.parse_args()
    device = machine()
    print(where())
    for case in gpu.SECTIONS[options.only]():
        if options.case in case.name:
            parts(case, device, options.most)
            device.allocator.empty_cache()
    return 0


if __name__ == "__main__":
    sys.exit(main())
