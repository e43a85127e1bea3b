"""What an eager op costs beside PyTorch's, on tensors so small that the framework is the whole cost.

    python benchmarks/overhead.py [--rounds 30] [--write]

Every figure is measured for Lamina and for torch in turn, many rounds in one process, one thread; the ratio
is that of the minima (the median ratio of the rounds stands beside it).  --write puts the table into
benchmarks/results/.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path

import numpy as np
import torch
from contest import processor

import lamina

RESULTS = Path(__file__).parent / "results"
FORWARD = ("add", "mul", "relu", "matmul", "sum", "view", "transpose", "slice")
BACKWARD = ("add", "mul", "matmul", "relu")
OPS = {
    "add": "x + y",
    "mul": "x * y",
    "relu": "x.relu()",
    "matmul": "x @ y",
    "sum": "x.sum()",
    "view": "x.view(16)",
    "transpose": "x.transpose(0, 1)",
    "slice": "x[1:3]",
    "x * 2.5": "x * 2.5",
    "sub": "x - y",
    "exp": "x.exp()",
    "add row": "x + row",
    "mean(1)": "x.mean(1)",
    "softmax": "x.softmax(1)",
    "x > y": "x > y",
}


# One call in a loop that costs 15 ns: a lambda around it would weigh on the quicker side more.
LOOP = """
def timed({arguments}, count, clock):
    start = clock()
    for _ in range(count):
        {call}
    return (clock() - start) / count
"""


def loop(call: str, *names: str) -> Callable[..., float]:
    """Times a call, written as source: timed(*values of names, count, clock) -> seconds of one call."""
    scope: dict = {}
    exec(LOOP.format(arguments=", ".join(names), call=call), scope)
    return scope["timed"]


def duel(
    timed: Callable[..., float], ours: tuple, theirs: tuple, count: int, rounds: int
) -> tuple[float, ...]:
    """(Minimum of ours, of theirs, ratio of the minima, median ratio of rounds); in turn, collector off."""
    clock = time.perf_counter
    timed(*ours, 2, clock), timed(*theirs, 2, clock)
    mine, other = [], []
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            mine.append(timed(*ours, count, clock))
            other.append(timed(*theirs, count, clock))
    finally:
        gc.enable()
    ratios = [a / b for a, b in zip(mine, other, strict=True)]
    return min(mine), min(other), min(mine) / min(other), statistics.median(ratios)


def forward(name: str, grad: bool, rounds: int) -> tuple[float, ...]:
    """An op on two 4 x 4 operands and a row of 4."""
    arrays = np.random.default_rng(0).standard_normal((3, 4, 4)).astype(np.float32)
    ours = [lamina.tensor(v, requires_grad=grad) for v in (*arrays[:2], arrays[2, 0])]
    theirs = [torch.tensor(v, requires_grad=grad) for v in (*arrays[:2], arrays[2, 0])]
    return duel(loop(OPS[name], "x", "y", "row"), tuple(ours), tuple(theirs), 1000, rounds)


def chain(library, name: str, length: int = 100) -> Callable[[], float]:
    """Build a chain of `length` ops, both operands differentiated; return backward's seconds per node."""
    scope: dict = {}
    exec(f"def run(x, y): return {OPS[name]}", scope)
    run, a = scope["run"], (np.random.default_rng(0).standard_normal((4, 4)) * 0.5).astype(np.float32)

    def once() -> float:
        x, y = library.tensor(a, requires_grad=True), library.tensor(a, requires_grad=True)
        z = x
        for _ in range(length):
            z = run(z, y)
        z = z.sum()
        start = time.perf_counter()
        z.backward()
        return (time.perf_counter() - start) / length

    return once


def backward(name: str, rounds: int) -> tuple[float, ...]:
    ours, theirs = chain(lamina, name), chain(torch, name)
    ours(), theirs()
    mine, other = [], []
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds * 10):
            mine.append(ours())
            other.append(theirs())
    finally:
        gc.enable()
    ratios = [a / b for a, b in zip(mine, other, strict=True)]
    return min(mine), min(other), min(mine) / min(other), statistics.median(ratios)


def mlp_step(library) -> Callable[[], object]:
    """A training step of a 16-32-32-4 network, batch 8: nn modules, cross entropy, SGD with momentum."""
    library.manual_seed(0)
    nn = library.nn
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = library.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    loss_of = nn.CrossEntropyLoss()
    generator = np.random.default_rng(0)
    x = library.tensor(generator.standard_normal((8, 16)).astype(np.float32))
    y = library.tensor(generator.integers(0, 4, 8))

    def step() -> None:
        optimizer.zero_grad()
        loss_of(model(x), y).backward()
        optimizer.step()

    return step


def lstm_step(library) -> Callable[[], object]:
    """Ten steps of an LSTM cell, 16 -> 16 on a batch of 4, and backward through them."""
    library.manual_seed(0)
    cell = library.nn.LSTMCell(16, 16)
    x = library.tensor(np.random.default_rng(0).standard_normal((10, 4, 16)).astype(np.float32))

    def step() -> None:
        h = c = library.zeros(4, 16)
        for t in range(10):
            h, c = cell(x[t], (h, c))
        h.sum().backward()

    return step


def row(name: str, figures: tuple[float, ...]) -> str:
    mine, other, ratio, median = figures
    return f"{name:<28}{mine * 1e6:>10.2f}{other * 1e6:>10.2f}{ratio:>9.2f}{median:>9.2f}"


def draw(figures: dict[str, tuple[float, ...]], where: str) -> None:
    """Ratios as bars, in benchmarks/results/overhead.png."""
    import matplotlib  # only --write needs it

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = [name for name in figures if not name.endswith(", forward")][::-1]
    ratios = [figures[name][2] for name in names]
    figure, axes = pyplot.subplots(figsize=(8.5, 0.27 * len(names) + 1.4))
    bars = axes.barh(names, ratios, color=["#1f5fbf" if r <= 1 else "#c0392b" for r in ratios])
    axes.bar_label(bars, [f"{r:.2f}" for r in ratios], padding=3, fontsize=8)
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set_xlabel("time over PyTorch's (less is quicker; the line is PyTorch)")
    axes.set_title("What a small op costs beside PyTorch", loc="left")
    axes.set_xlim(0, max(*ratios, 1.2) * 1.08)
    axes.tick_params(axis="y", labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    figure.text(0.01, 0.005, where, fontsize=6.5, color="gray")
    figure.tight_layout(rect=(0, 0.02, 1, 1))
    figure.savefig(RESULTS / "overhead.png", dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--write", action="store_true", help="write benchmarks/results/overhead.*")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    lamina.set_num_threads(1)
    head = f"{'microseconds':<28}{'lamina':>10}{'torch':>10}{'ratio':>9}{'median':>9}"
    where = (
        f"{processor()}, Python {platform.python_version()}, "
        f"NumPy {np.__version__}, torch {torch.__version__}, 1 thread, {date.today()}"
    )
    lines, figures = [where, "", head], {}

    def note(name: str, found: tuple[float, ...]) -> None:
        figures[name] = found
        lines.append(row(name, found))
        print(lines[-1], flush=True)

    print(where, "", head, sep="\n")
    for name in OPS:
        note(f"{name}, forward", forward(name, False, arguments.rounds))
        if name != "x > y":
            note(f"{name}, forward with grad", forward(name, True, arguments.rounds))
    for name in BACKWARD:
        note(f"{name}, backward per node", backward(name, arguments.rounds))
    call = loop("step()", "step")
    note("MLP step", duel(call, (mlp_step(lamina),), (mlp_step(torch),), 50, arguments.rounds))
    cells = (lstm_step(lamina),), (lstm_step(torch),)
    note("LSTM cell x 10 and backward", duel(call, *cells, 20, arguments.rounds))
    ahead = statistics.median(figures[f"{name}, forward with grad"][2] for name in FORWARD)
    behind = statistics.median(figures[f"{name}, backward per node"][2] for name in BACKWARD)
    summary = [
        "",
        f"forward with grad, median of {len(FORWARD)} ops   {ahead:.2f}   (first stage: 0.60)",
        f"backward per node, median of {len(BACKWARD)} ops   {behind:.2f}   (first stage: 0.60)",
        f"MLP step                             {figures['MLP step'][2]:.2f}   (first stage: 0.50)",
    ]
    print(*summary, sep="\n")
    if arguments.write:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "overhead.txt").write_text("\n".join(lines + summary) + "\n")
        draw(figures, where)
        (RESULTS / "overhead.json").write_text(
            json.dumps({"where": where, "figures": figures}, indent=1) + "\n"
        )


if __name__ == "__main__":
    sys.exit(main())
