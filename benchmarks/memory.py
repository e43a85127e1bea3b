"""What training holds of memory: the peak of a process over what importing took, beside PyTorch eager's.

    python benchmarks/memory.py [--only resnet18 gpt] [--threads 2] [--steps 10] [--write]

Each figure is that of a process of its own, which trains for ten steps of cross entropy, backward, Adam: its
peak of resident memory (VmHWM of /proc/self/status) less what was resident when the libraries were imported.
Lamina's code is compiled in the process, from an empty cache.  In brackets what is resident after the last
step.  --write puts the table into benchmarks/results/memory.txt.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from contest import RESULTS, where
from models import environment, made
from networks import Case, gpt, mobilenet_v2, resnet50, resnet_cifar

CASES = {
    "resnet18": Case(partial(resnet_cifar, classes=10), (3, 32, 32), 10),
    "gpt": Case(gpt, (128,), 256, tokens=256),
    "mobilenet_v2": Case(mobilenet_v2, (3, 224, 224), 1000, training=8),
    "resnet50": Case(resnet50, (3, 32, 32), 1000),
}
CONTENDERS = {"traced": "lamina", "eager": "lamina", "torch": "torch"}  # and the library of each


def resident(what: str) -> float:
    """MiB of this process: VmRSS now, VmHWM at its peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (kib,) = [line.split()[1] for line in lines if line.startswith(f"{what}:")]
    return int(kib) / 1024


def step_of(library: Any, case: Case, is_traced: bool) -> Callable[[], Any]:
    """A training step of a library."""
    model = made(case, library).train()
    optimizer = library.optim.Adam(model.parameters(), lr=1e-4)
    x = library.tensor(case.inputs(case.training, training=True))
    labels = library.tensor(case.labels(case.training))

    def step(x: Any, labels: Any) -> Any:
        optimizer.zero_grad()
        out = model(x)
        loss = library.nn.functional.cross_entropy(out.reshape(-1, out.shape[-1]), labels.reshape(-1))
        loss.backward()
        optimizer.step()
        return loss

    return partial(library.jit.trace(step) if is_traced else step, x, labels)


def measure(name: str, contender: str, threads: int, steps: int) -> dict[str, Any]:
    """In a process of its own: MiB over what importing took, at the peak and at the end; the first loss."""
    library = import_module(CONTENDERS[contender])
    library.set_num_threads(threads)
    before = resident("VmRSS")
    step = step_of(library, CASES[name], contender == "traced")
    losses = [step().item() for _ in range(steps)]
    return {"peak": resident("VmHWM") - before, "end": resident("VmRSS") - before, "loss": losses[0]}


def measured(name: str, contender: str, threads: int, steps: int) -> dict[str, Any]:
    """The same from outside."""
    with tempfile.TemporaryDirectory() as folder:
        flags = ["--only", name, "--contender", contender, "--threads", str(threads), "--steps", str(steps)]
        surroundings = os.environ | environment(threads) | {"LAMINA_CACHE_DIR": folder}
        command = [sys.executable, __file__, *flags]
        found = subprocess.run(command, check=True, env=surroundings, stdout=subprocess.PIPE, text=True)
        return json.loads(found.stdout.splitlines()[-1])


def row(name: str, found: dict[str, dict[str, Any]]) -> str:
    cells = [f"{one['peak']:.0f} ({one['end']:.0f})".rjust(16) for one in found.values()]
    ratio = found["traced"]["peak"] / found["torch"]["peak"]
    label = f"{name}, batch {CASES[name].training}"
    return f"{label:<26}" + "".join(cells) + f"{ratio:>10.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--write", action="store_true", help="write benchmarks/results/memory.txt")
    parser.add_argument("--contender", choices=list(CONTENDERS), help=argparse.SUPPRESS)  # in the process
    arguments = parser.parse_args()
    if arguments.contender:
        (name,) = arguments.only
        print(json.dumps(measure(name, arguments.contender, arguments.threads, arguments.steps)))
        return
    lines = [where(arguments.threads), ""]
    lines.append(f"{'MiB: peak (end)':<26}" + "".join(f"{n:>16}" for n in CONTENDERS) + f"{'ratio':>10}")
    print("\n".join(lines), flush=True)
    for name in arguments.only:
        found = {each: measured(name, each, arguments.threads, arguments.steps) for each in CONTENDERS}
        losses = [one["loss"] for one in found.values()]
        if max(losses) - min(losses) > 1e-3 * abs(losses[-1]):  # further ones part as rounding does
            raise SystemExit(f"{name}: the losses differ: {losses}")
        lines.append(row(name, found))
        print(lines[-1], flush=True)
    if arguments.write:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "memory.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
