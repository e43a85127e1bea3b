"""What 64 clients get out of `python -m lamina serve`, with rows put together and without.

    python benchmarks/serving.py [--clients 64] [--seconds 5] [--write]

The network is three layers wide enough that one row costs what reading its weights costs.  Clients keep one
connection each, send one row as safetensors, and send the next when the answer is there; they run in a
process of their own, on the same CPUs.  Turns with and without batching alternate; told are the best
throughput of each, with its latencies, and how many rows ran together.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "serving"))
from contest import RESULTS, where
from server_process import Process
from wire import Wire, post

import lamina
from lamina import nn
from lamina.serving.wire_arrays import to_safetensors

WIDTH, HIDDEN, CLASSES = 784, 2048, 10
WARM = 1.0  # seconds before counting


async def client(port: int, request: bytes, until: list[float], latencies: list[float]) -> None:
    """Ask again and again; notes how long each answer took that came between the two times."""
    wire = Wire(port)
    while (begun := perf_counter()) < until[1]:
        status, _ = await wire.ask(request)
        assert status == 200, status
        if begun > until[0]:
            latencies.append(perf_counter() - begun)
    wire.close()


async def load(port: int, clients: int, seconds: float) -> list[float]:
    """The latencies of all answers of so many seconds."""
    rng = np.random.default_rng(0)
    start = perf_counter() + WARM
    until, latencies = [start, start + seconds], []
    asked = [
        post("/v1/models/net", to_safetensors({"input": rng.standard_normal((1, WIDTH)).astype(np.float32)}),
             "application/octet-stream")
        for _ in range(clients)
    ]  # fmt: skip
    await asyncio.gather(*(client(port, each, until, latencies) for each in asked))
    return latencies


def rows_of(server: Process) -> float:
    """The mean of rows of all runs so far."""
    text = server.client()("GET", "/metrics")[2].decode()
    total, count = (
        sum(map(float, re.findall(rf"lamina_batch_rows_{what}{{.*}} (\S+)", text)))
        for what in ("sum", "count")
    )
    return total / count


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    lamina.manual_seed(0)
    network = nn.Sequential(
        nn.Linear(WIDTH, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES)
    ).eval()
    lines = ["| batch | requests/s | median ms | p99 ms | rows of a run |", "|---|---|---|---|---|"]
    rates = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.lam"
        lamina.jit.export(network, path, lamina.randn(4, WIDTH), dynamic={0: {0: "batch"}})
        best: dict[int, tuple] = {}
        for _ in range(options.turns):
            for batch in (1, 32):
                with Process(path, "--batch", batch) as server:
                    latencies = asyncio.run(load(server.port, options.clients, options.seconds))
                    rate = len(latencies) / options.seconds
                    p50, p99 = np.percentile(latencies, [50, 99]) * 1e3
                    best[batch] = max(best.get(batch, (0.0,)), (rate, p50, p99, rows_of(server)))
    for batch, (rate, p50, p99, rows) in best.items():
        rates[batch] = rate
        lines.append(f"| {batch} | {rate:,.0f} | {p50:.1f} | {p99:.1f} | {rows:.1f} |")
    size = sum(p.nbytes for p in network.parameters())
    shape = f"{WIDTH}-{HIDDEN}-{HIDDEN}-{CLASSES} ({size / 1e6:.0f} MB)"
    how = f"best of {options.turns} turns of {options.seconds:g} s"
    told = f"{options.clients} clients, one row each, {shape}, one worker; {how}. {where()}"
    ratio = f"With batching {rates[32] / rates[1]:.1f} times the requests."
    text = "\n".join([told, "", *lines, "", ratio])
    print(text)
    if options.write:
        (RESULTS / "serving.md").write_text(f"# Serving\n\n`python benchmarks/serving.py --write`. {text}\n")


if __name__ == "__main__":
    main()
