"""What an eager op costs beside PyTorch's, on tensors so small that the framework is the whole cost.

    python benchmarks/overhead.py [--rounds 30] [--only PART] [--write]

Every figure is measured for Lamina and for torch in turn, many rounds in one process, one thread; the ratio
is that of the minima (the median ratio of the rounds stands beside it).  What comes often enough Lamina
compiles: 18,000 calls of an op are timed, of a step of a network those behind the first 20,000 (of the LSTM
cell's, 3,000), which takes it some seconds.  --write puts the table into benchmarks/results/.
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
from functools import partial
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

# What else is written in a loop over small tensors: x and y are 4 x 4, b is 32 x 32; L is the library, F its
# nn.functional.  Each is measured once, where it says so with gradients.
COMMON = {
    "softmax 32": "b.softmax(1)",
    "log_softmax": "F.log_softmax(x, 1)",
    "log_softmax 32": "F.log_softmax(b, 1)",
    "layer_norm": "F.layer_norm(x, (4,), row, bias)",
    "layer_norm 32": "F.layer_norm(b, (32,))",
    "cross_entropy": "F.cross_entropy(x, labels)",
    "cross_entropy 32": "F.cross_entropy(b, labels32)",
    "mse_loss": "F.mse_loss(x, y)",
    "linear": "F.linear(x, y, row)",
    "gelu": "F.gelu(x)",
    "dropout": "F.dropout(x, 0.5)",
    "cat": "L.cat((x, y))",
    "cat (dim=1)": "L.cat([x, y], dim=1)",
    "stack": "L.stack((x, y))",
    "chunk": "x.chunk(2, 1)",
    "x[i]": "x[1]",
    "x[i, j]": "x[1, 2]",
    "x[:, None]": "x[:, None]",
    "x[mask]": "x[mask]",
    "x[idx]": "x[idx]",
    "gather": "x.gather(1, places)",
    "sum(1)": "x.sum(1)",
    "sum(dim=-1, keepdim=True)": "x.sum(dim=-1, keepdim=True)",
    "mean()": "x.mean()",
    "max()": "x.max()",
    "max(1)": "x.max(1)",
    "argmax(1)": "x.argmax(1)",
    "x.norm()": "x.norm()",
    "where": "L.where(mask, x, y)",
    "clamp": "x.clamp(-1, 1)",
    "clamp(min=0)": "x.clamp(min=0)",
    "x == y": "x == y",
    "x > 0": "x > 0",
    "1 - x": "1 - x",
    "x ** 2": "x ** 2",
    "x / 3": "x / 3",
    "sqrt": "x.sqrt()",
    "reshape": "x.reshape(2, 8)",
    "permute": "x.permute(1, 0)",
    "expand": "row.expand(4, 4)",
    "unsqueeze": "x.unsqueeze(0)",
    "squeeze": "one.squeeze(0)",
    "flatten": "x.flatten()",
    ".T": "x.T",
    "clone": "x.clone()",
    "contiguous": "x.contiguous()",
    "float()": "places.float()",
    "to(dtype)": "x.to(L.float64)",
}
# The same, which have no gradient or are written without one.
PLAIN = {
    "add_": "x.add_(y)",
    "x += 1": "x += 1",
    "mul_": "x.mul_(1.0)",
    "add_(alpha=)": "x.add_(y, alpha=0.001)",
    "addcmul_": "x.addcmul_(y, y, value=0.001)",
    "lerp_": "x.lerp_(y, 0.1)",
    "clamp_": "x.clamp_(-1, 1)",
    "zero_": "x.zero_()",
    "fill_": "x.fill_(1.0)",
    "copy_": "x.copy_(y)",
    "x[i] = row": "x[1] = row",
    "x[i] = 0": "x[1] = 0.0",
    "x[:, j] = row": "x[:, 1] = row",
    "x[mask] = 0": "x[mask] = 0.0",
    "x[idx] = row": "x[idx] = row",
    "item()": "scalar.item()",
    "float(x)": "float(scalar)",
    "bool(x > 0)": "bool(scalar > 0)",
    "x.shape": "x.shape",
    "x.size(0)": "x.size(0)",
    "len(x)": "len(x)",
    "detach": "x.detach()",
    "zeros": "L.zeros(4, 4)",
    "ones((4, 4))": "L.ones((4, 4))",
    "empty": "L.empty(4, 4)",
    "full": "L.full((4, 4), 2.0)",
    "arange": "L.arange(4)",
    "tensor(2.0)": "L.tensor(2.0)",
    "tensor([..])": "L.tensor([1.0, 2.0, 3.0])",
    "zeros_like": "L.zeros_like(x)",
    "randn": "L.randn(4, 4)",
    "no_grad": "with L.no_grad(): pass",
    "Linear(x)": "layer(x)",
    "Sequential(Identity)": "nothing(x)",
}
# Sizes that come once: each call is one on a shape that this op has not seen.
FRESH = {
    "add": "v + v",
    "exp": "v.exp()",
    "sum": "v.sum()",
    "view": "v.view(1, -1)",
    "slice": "v[1:]",
    "v[mask]": "v[v > 0]",
    "cat": "L.cat((v, v))",
    "where": "L.where(v > 0, v, v)",
    "softmax": "v.softmax(0)",
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


def without_gradients(name: str, rounds: int) -> tuple[float, ...]:
    """The same in blocks of both libraries' `no_grad`."""
    with lamina.no_grad(), torch.no_grad():
        return forward(name, False, rounds)


def forward(name: str, grad: bool, rounds: int) -> tuple[float, ...]:
    """An op on two 4 x 4 operands and a row of 4."""
    arrays = np.random.default_rng(0).standard_normal((3, 4, 4)).astype(np.float32)
    ours = [lamina.tensor(v, requires_grad=grad) for v in (*arrays[:2], arrays[2, 0])]
    theirs = [torch.tensor(v, requires_grad=grad) for v in (*arrays[:2], arrays[2, 0])]
    return duel(loop(OPS[name], "x", "y", "row"), tuple(ours), tuple(theirs), STRETCH, rounds * 5)


STRETCH = 200  # calls that are timed at once: few, as another process may take its turn in between


def surroundings(library, grad: bool) -> dict:
    """What the calls of COMMON and PLAIN speak of."""
    generator = np.random.default_rng(0)

    def of(*shape: int):
        return library.tensor(generator.standard_normal(shape).astype(np.float32), requires_grad=grad)

    nn = library.nn
    return {
        "L": library, "F": nn.functional, "x": of(4, 4), "y": of(4, 4), "b": of(32, 32), "row": of(4),
        "bias": of(4), "one": of(1, 4), "scalar": library.tensor(0.5), "labels": library.tensor([0, 1, 2, 3]),
        "labels32": library.arange(32), "mask": library.tensor(generator.random((4, 4)) > 0.5),
        "idx": library.tensor([0, 2, 3]), "places": library.tensor([[0], [2], [3], [1]]),
        "layer": nn.Linear(4, 4), "nothing": nn.Sequential(nn.Identity()),
    }  # fmt: skip


def common(call: str, grad: bool, rounds: int) -> tuple[float, ...]:
    """A call of COMMON or PLAIN, on both sides."""
    scopes = surroundings(lamina, grad), surroundings(torch, grad)
    ours, theirs = (tuple(scope.values()) for scope in scopes)
    return duel(loop(call, *scopes[0]), ours, theirs, STRETCH, rounds * 3)


def fresh(call: str, rounds: int) -> tuple[float, ...]:
    """A call on a vector longer than all before: seconds of one call, the vector's making not counted."""
    scope: dict = {}
    exec(f"def run(L, v): return {call}", scope)
    run, longest = scope["run"], 8
    times: tuple[list, list] = [], []
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            for library, mine in ((lamina, times[0]), (torch, times[1])):
                vectors = [library.tensor(np.ones(longest + k, np.float32)) for k in range(20)]
                start = time.perf_counter()
                for v in vectors:
                    run(library, v)
                mine.append((time.perf_counter() - start) / 20)
            longest += 20
    finally:
        gc.enable()
    ratios = [a / b for a, b in zip(*times, strict=True)]
    return min(times[0]), min(times[1]), min(times[0]) / min(times[1]), statistics.median(ratios)


def update(library, kind: str) -> Callable[[], object]:
    """A step of an optimizer over the six parameters of a 16-32-32-4 network."""
    library.manual_seed(0)
    nn = library.nn
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = getattr(library.optim, kind)(model.parameters(), lr=1e-3)
    model(library.ones(2, 16)).sum().backward()
    optimizer.step()
    return optimizer.step


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


def warm(step: Callable[[object], Callable], count: int) -> tuple[tuple, tuple]:
    """The step of both libraries, made so many times: Lamina has compiled by then what it is going to."""
    steps = step(lamina), step(torch)
    for each in steps:
        for _ in range(count):
            each()
    return tuple((each,) for each in steps)


def row(name: str, figures: tuple[float, ...]) -> str:
    mine, other, ratio, median = figures
    return f"{name:<28}{mine * 1e6:>10.2f}{other * 1e6:>10.2f}{ratio:>9.2f}{median:>9.2f}"


def draw(figures: dict[str, tuple[float, ...]], where: str) -> None:
    """Ratios as bars, in benchmarks/results/overhead.png: the ops, and beside them what else is common."""
    import matplotlib  # only --write needs it

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = [name for name in figures if not name.endswith(", forward")]
    half = -(-len(names) // 2)
    figure, both = pyplot.subplots(1, 2, figsize=(13, 0.2 * half + 1.4), sharex=True)
    for axes, part in zip(both, (names[:half], names[half:]), strict=True):
        part = part[::-1]
        ratios = [figures[name][2] for name in part]
        bars = axes.barh(part, ratios, color=["#1f5fbf" if r <= 1 else "#c0392b" for r in ratios])
        axes.bar_label(bars, [f"{r:.2f}" for r in ratios], padding=3, fontsize=7)
        axes.axvline(1.0, color="black", linewidth=0.8)
        axes.set_xlabel("time over PyTorch's (less is quicker; the line is PyTorch)")
        axes.tick_params(axis="y", labelsize=7)
        axes.margins(y=0.01)
        axes.spines[["top", "right"]].set_visible(False)
    both[0].set_xscale("log")
    ratios = [figures[name][2] for name in names]
    both[0].set_xlim(min(*ratios, 0.2) / 1.2, max(*ratios, 2) * 1.5)
    figure.suptitle("What a small op costs beside PyTorch", x=0.02, ha="left")
    figure.text(0.01, 0.005, where, fontsize=6.5, color="gray")
    figure.tight_layout(rect=(0, 0.02, 1, 0.99))
    figure.savefig(RESULTS / "overhead.png", dpi=110)


LSTM = "LSTM cell x 10 and backward"


def rows(rounds: int) -> dict[str, Callable[[], tuple[float, ...]]]:
    """What is measured, by the name of its row."""
    made: dict[str, Callable[[], tuple[float, ...]]] = {}
    for name in OPS:
        made[f"{name}, forward"] = partial(forward, name, False, rounds)
        if name != "x > y":
            made[f"{name}, forward with grad"] = partial(forward, name, True, rounds)
    for name in FORWARD:
        made[f"{name}, under no_grad"] = partial(without_gradients, name, rounds)
    for name in BACKWARD:
        made[f"{name}, backward per node"] = partial(backward, name, rounds)
    call = loop("step()", "step")
    made["MLP step"] = lambda: duel(call, *warm(mlp_step, 20_000), 5, rounds * 10)
    made[LSTM] = lambda: duel(call, *warm(lstm_step, 3_000), 1, rounds * 10)
    for kind in ("SGD", "Adam", "AdamW"):
        made[f"{kind}.step"] = lambda kind=kind: duel(
            call, (update(lamina, kind),), (update(torch, kind),), 10, rounds * 5
        )
    for name, source in COMMON.items():
        made[name] = partial(common, source, False, rounds)
        made[f"{name}, grad"] = partial(common, source, True, rounds)
    for name, source in PLAIN.items():
        made[name] = partial(common, source, False, rounds)
    for name, source in FRESH.items():
        made[f"{name}, new shape"] = partial(fresh, source, rounds)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--only", help="measure rows whose name holds this alone, and write nothing")
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
    rounds = arguments.rounds
    for name, measured in rows(rounds).items():
        if not arguments.only or arguments.only in name:
            note(name, measured())
    if arguments.only:
        return
    ahead = statistics.median(figures[f"{name}, forward with grad"][2] for name in FORWARD)
    behind = statistics.median(figures[f"{name}, backward per node"][2] for name in BACKWARD)
    once = statistics.median(figures[f"{name}, new shape"][0] for name in FRESH) * 1e6
    rest = [name for name in figures if name in COMMON or name in PLAIN or name.endswith(", grad")]
    slow = [name for name in rest if figures[name][2] > 1]
    summary = [
        "",
        f"forward with grad, median of {len(FORWARD)} ops   {ahead:.2f}   (aim: 0.50)",
        f"backward per node, median of {len(BACKWARD)} ops   {behind:.2f}   (aim: 0.45)",
        f"MLP step                             {figures['MLP step'][2]:.2f}   (aim: 0.40)",
        f"LSTM cell x 10 and backward          {figures[LSTM][2]:.2f}   (aim: 0.60)",
        f"a new shape, median of {len(FRESH)} calls      {once:.0f} us  (aim: 15 us)",
        f"what else is common: {len(rest) - len(slow)} of {len(rest)} rows within PyTorch's time (aim: all)",
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
