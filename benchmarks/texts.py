"""The LLVM text of every kernel of the benchmarks' networks, for each CPU level: for a change that must not
change it, or to see what it changes.

    python benchmarks/texts.py OUT [--only resnet18 gpt] [--levels avx512 baseline]
    python benchmarks/texts.py OUT --against BEFORE

Every kernel is a file of OUT: how it runs, its phases, and the text.  Names made from a text's hash are left
out, so that two folders differ where code does.  With --against, the kernels whose code differs from that in
the folder BEFORE are listed, those of one network that are alike once.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ["LAMINA_CACHE_DIR"] = ""  # nothing is found compiled

from before import timed

import lamina
from lamina.jit import targets
from lamina.passes.llvm.generate import code_of
from lamina.passes.pipeline import to_program
from lamina.passes.schedules.target import LEVELS

NETWORKS = ("digits", "mlp", "lenet", "lstm", "gpt", "mobilenet_v2", "resnet18", "layers")
JOBS = ("1", "8", "train")
HASHED = re.compile(r"\b[a-z]+[0-9a-f]{20}(?=_|\b)")  # winograd5f3c..., winograd5f3c..._result


def recorded(name: str, job: str) -> list[tuple]:
    """The optimised graphs of a traced call: what `to_program` was given."""
    graphs: list[tuple] = []

    def watched(graph: Any, into: Any, target: Any, options: Any) -> Any:
        graphs.append((graph, into, options))
        return to_program(graph, into, target, options)

    targets.to_program = watched  # type: ignore[assignment]
    try:
        call = layers(job) if name == "layers" else timed(name, job)
        for _ in range(4):
            call()
    finally:
        targets.to_program = to_program
    return graphs


def layers(job: str) -> Callable[[], Any]:
    """Layers that the networks have none of, on a batch, or a step of gradients through all of them."""
    nn = lamina.nn
    lamina.manual_seed(0)
    made: list[tuple[Any, tuple[int, ...]]] = [
        (nn.Conv1d(16, 32, 5, padding=2), (16, 40)),
        (nn.Conv3d(4, 16, 3, padding=1), (4, 6, 10, 10)),
        (nn.Conv2d(32, 32, 3, stride=2, padding=1, groups=32), (32, 15, 15)),
        (nn.Conv2d(24, 32, 5, dilation=2, padding=4), (24, 17, 17)),
        (nn.ConvTranspose2d(16, 32, 4, stride=2, padding=1), (16, 9, 9)),
        (nn.Conv2d(48, 48, 3, padding=1), (48, 13, 13)),
        (nn.Conv2d(3, 20, 7, stride=3), (3, 29, 29)),
        (nn.Conv2d(8, 8, 3, padding=1, dtype=lamina.float64), (8, 12, 12)),
        (nn.AvgPool2d(3, stride=2, padding=1), (32, 15, 15)),
        (nn.MultiheadAttention(32, 4, batch_first=True), (11, 32)),
        (nn.GRU(13, 21, batch_first=True), (7, 13)),
        (nn.Softmax(-1), (5, 33)),
    ]
    batch = 32 if job == "train" else int(job)
    inputs = [
        lamina.randn(batch, *shape, dtype=lamina.float64 if "float64" in str(layer.state_dict()) else None)
        for layer, shape in made
    ]

    def outputs() -> list[Any]:
        found = []
        for (layer, _), x in zip(made, inputs, strict=True):
            y = layer(x, x, x) if isinstance(layer, nn.MultiheadAttention) else layer(x)
            found.append(y[0] if isinstance(y, tuple) else y)
        return found

    @lamina.jit.trace
    def infer() -> list[Any]:
        with lamina.no_grad():
            return outputs()

    @lamina.jit.trace
    def train() -> Any:
        for layer, _ in made:
            layer.zero_grad()
        loss = sum((y * y).mean().float() for y in outputs())
        loss.backward()
        return loss

    return train if job == "train" else infer


def texts(graphs: list[tuple], level: Any) -> Iterator[tuple[str, str]]:
    """The name and the text of every kernel."""
    for graph, into, options in graphs:
        for call in to_program(graph, into, level, options).calls:
            code = code_of(call, level)
            phases = [(p.units, round(p.nanoseconds, 3), p.serial) for p in code.phases]
            yield call.name, f"{call.kernel}\n{call.how}\n{phases} {code.scratch}\n{plain(code.text)}"


def plain(text: str) -> str:
    """The text with its hashed names in the order of their appearance."""
    names: dict[str, str] = {}
    return HASHED.sub(lambda found: names.setdefault(found[0], f"name{len(names)}"), text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", nargs="*", default=NETWORKS)
    parser.add_argument("--levels", nargs="*", default=[level.name for level in LEVELS])
    parser.add_argument("--against", type=Path)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.only:
        for job in JOBS:
            graphs = recorded(name, job)
            for level in LEVELS:
                if level.name in options.levels:
                    seen: Counter = Counter()
                    for kernel, text in texts(graphs, level):
                        seen[kernel] += 1
                        file = f"{name}.{job}.{level.name}.{kernel}.{seen[kernel]}.ll"
                        (options.out / file).write_text(text)
            print(f"{name} {job}: {len(list(options.out.glob(f'{name}.{job}.*')))} texts", file=sys.stderr)
    if options.against:
        compare(options.against, options.out)


def compare(before: Path, after: Path) -> None:
    old, new = ({file.name: file.read_text() for file in folder.glob("*.ll")} for folder in (before, after))
    kinds: dict[str, list[str]] = {}
    for name in sorted(old.keys() & new.keys()):
        if old[name] != new[name]:
            alike = hashlib.sha1((old[name] + new[name]).encode()).hexdigest()
            kinds.setdefault(alike, []).append(name)
    for names in kinds.values():
        print(f"differs ({len(names)}): {names[0]}")
    for title, gone in (("only before", old.keys() - new.keys()), ("only after", new.keys() - old.keys())):
        print(f"{title}: {len(gone)} {sorted(gone)[:5]}")
    same = sum(old[name] == new[name] for name in old.keys() & new.keys())
    print(f"{same} alike, {sum(map(len, kinds.values()))} differ")


if __name__ == "__main__":
    main()
