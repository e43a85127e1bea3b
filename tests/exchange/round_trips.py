"""The networks of the benchmarks as ONNX models: how far results are off in ONNX Runtime, and read back.

    python tests/exchange/round_trips.py [NAME ...]

Each is written for batches that change, and run in batches of 1 and 3; differences are relative to the
largest number.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import test_onnx_out as written

import lamina
from lamina.exchange.onnx.writing import write


def differences(name: str, path: Path) -> tuple[float, float, int]:
    """By how much ONNX Runtime and Lamina's own reader are off, and how many nodes the model has."""
    case = written.networks.CASES[name]
    model: Any = case.make(lamina)
    written.networks.weigh(model)
    model.eval()
    write(model, path, lamina.tensor(case.inputs(2)), dynamic={0: {0: "batch"}})
    again = lamina.onnx.load(str(path))
    worst = [0.0, 0.0]
    for batch in (1, 3):
        x = lamina.tensor(case.inputs(batch))
        with lamina.no_grad():
            wanted = model(x)
            found = written.ran(path, x)[0], again(x).numpy()
        worst = [max(before, written.off(each, wanted)) for before, each in zip(worst, found, strict=True)]
    return worst[0], worst[1], sum(written.operators(path).values())


def rows(names: list[str]) -> Iterator[str]:
    yield "| network | nodes | ONNX Runtime off by | read back, off by | seconds |"
    yield "|---|---:|---:|---:|---:|"
    for name in names:
        start = perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            theirs, ours, nodes = differences(name, Path(folder, "model.onnx"))
        yield f"| {name} | {nodes} | {theirs:.1e} | {ours:.1e} | {perf_counter() - start:.1f} |"


if __name__ == "__main__":
    for row in rows(sys.argv[1:] or [*written.networks.CASES]):
        print(row, flush=True)
