"""Many sizes through one function: how often it is compiled, and what all calls take, beside the peers.

    python benchmarks/sizes.py [--threads 2] [--only mlp gpt] [--write]

Inference: batches of many sizes, shuffled, twice; the first pass compiles.  Contenders, each in two passes of
its own: Lamina traced (its recordings counted, under the usual budget) and as one exported file, torch
eagerly and with `torch.compile(dynamic=True)`, jax on batches that are filled up to the next power of two,
onnxruntime with a dynamic axis.  Then, on three sizes, what a call takes that is served by the recording of
all sizes over one that is served by a recording of that size alone; both take turns.  Training: batches of 8
to 64 sequences of 5 to 200, cross entropy, backward, Adam; torch and Lamina take turns, a pass each.  A
sampler: 100 steps whose integer is new each time.  Eagerly: what an op takes on a new shape.  --write puts
the tables into results/sizes.md.
"""

from __future__ import annotations

import argparse
import io
import os
import random
import statistics
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import numpy as np
from contest import RESULTS, where
from models import made
from networks import CASES, Case, resnet_cifar

CASES = CASES | {"resnet18": Case(partial(resnet_cifar, classes=10), (3, 32, 32), 10)}  # of small images
NETWORKS = ("mlp", "lenet", "gpt", "resnet18")
MOST = {"mlp": 201, "lenet": 201, "gpt": 12, "resnet18": 101}  # a batch at most
BATCHES = {"resnet18": 100, "gpt": 60}  # 200 for others
CONTENDERS = ("lamina", "its file", "torch", "compiled", "jax", "onnxruntime")
TURNS = 30
STEPS = 40  # of training
PASSES = 5  # of training that are compared


def passes(run: Callable[[Any], Any], batches: list[Any]) -> tuple[float, float]:
    """Seconds of two passes."""
    found = []
    for _ in range(2):
        start = perf_counter()
        for x in batches:
            run(x)
        found.append(perf_counter() - start)
        sleep(0.1)
    return found[0], found[1]


# ---- inference ---------------------------------------------------------------------------------------------
def contenders(case: Case, threads: int) -> dict[str, tuple[Callable[[], Any], Callable[[np.ndarray], Any]]]:
    """For each what makes its call, which counts as its first pass, and what makes its input."""
    import torch

    import lamina

    model = made(case, lamina).eval()

    def file() -> Any:
        example = lamina.tensor(case.inputs(3))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "m.lam")
            level = lamina.jit.artifact.levels_here()[:1]
            lamina.jit.export(model, path, example, levels=level, dynamic={0: {0: "batch"}})
            return lamina.jit.load(path)

    def compiled() -> Any:
        torch._dynamo.reset()
        return torch.compile(made(case, torch).eval(), dynamic=True)

    def jitted() -> Any:
        import jax
        import jax_library

        peer = made(case, jax_library)
        arrays = peer.train(False).arrays()
        call = jax.jit(lambda x: jax_library.call(peer, arrays, x)[0])

        def run(x: np.ndarray) -> Any:
            most = 1 << (len(x) - 1).bit_length()
            x = np.concatenate([x, np.zeros((most - len(x), *x.shape[1:]), x.dtype)])
            return call(x).block_until_ready()[: len(x)]

        return run

    def session() -> Any:
        import onnxruntime

        bytes_ = io.BytesIO()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            example = torch.tensor(case.inputs(3))
            torch.onnx.export(
                made(case, torch).eval(), (example,), bytes_, dynamo=False, opset_version=18,
                input_names=["x"], dynamic_axes={"x": {0: "batch"}},
            )  # fmt: skip
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        run = onnxruntime.InferenceSession(bytes_.getvalue(), options, providers=["CPUExecutionProvider"])
        return lambda x: run.run(None, {"x": x})

    found: dict[str, Any] = {
        "lamina": (lambda: lamina.jit.trace(model), lamina.tensor),
        "its file": (file, lamina.tensor),
        "torch": (lambda: made(case, torch).eval(), torch.from_numpy),
        "compiled": (compiled, torch.from_numpy),
    }
    if find_spec("jax"):
        found["jax"] = jitted, lambda x: x
    if find_spec("onnxruntime") and find_spec("onnx"):
        found["onnxruntime"] = session, lambda x: x
    return found


def inference(name: str, threads: int) -> str:
    """A line of the table."""
    import torch

    import lamina

    case, rng = CASES[name], random.Random(0)
    count = BATCHES.get(name, 200)
    sizes = list(range(2, MOST[name] + 1))
    sizes = (sizes * (count // len(sizes) + 1))[:count]
    rng.shuffle(sizes)
    arrays = [case.inputs(n) for n in sizes]
    cells, recorded, wanted = [], 0, None
    with lamina.no_grad(), torch.no_grad():
        for each, (make, given) in contenders(case, threads).items():
            batches = [*map(given, arrays)]
            start = perf_counter()
            try:
                run = make()
                making = perf_counter() - start
                first, second = passes(run, batches)
            except Exception as error:
                print(f"{name}: {each} can't compete: {type(error).__name__}: {error}"[:300], file=sys.stderr)
                cells.append("-")
                continue
            out = run(batches[0])
            out = np.asarray(
                out[0] if isinstance(out, list) else out.detach() if hasattr(out, "detach") else out
            )
            wanted = out if wanted is None else wanted
            if not np.abs(out[: len(wanted)] - wanted).max() < 1e-3 * np.abs(wanted).max():
                raise SystemExit(f"{name}: {each} computes something else")
            cells.append(f"{making + first:.2f} / {second:.2f}")
            if each == "lamina":
                recorded = run.counts()["recorded"]
        model = made(case, lamina).eval()
        ratios = [beside(lamina.jit.trace(model, budget=None), model, case, n) for n in sizes[:3]]
    return (
        f"| {name} | {len(set(sizes))} | {recorded} | {' | '.join(cells)} | {statistics.median(ratios):.3f} |"
    )


def beside(traced: Any, model: Any, case: Case, n: int) -> float:
    """What a call of a size takes by the recording of all, over one by a recording of that size."""
    import lamina

    alone, x = lamina.jit.trace(model, budget=None, dynamic=False), lamina.tensor(case.inputs(n))
    for other in (n + 1, n + 2):
        traced(lamina.tensor(case.inputs(other)))
    calls = [lambda: traced(x), lambda: alone(x)]
    for call in calls:
        for _ in range(12):
            call()
    least = [float("inf")] * 2
    for turn in range(TURNS):
        for at in (0, 1) if turn % 2 else (1, 0):
            for _ in range(5):
                start = perf_counter()
                calls[at]()
                least[at] = min(least[at], perf_counter() - start)
    return least[0] / least[1]


# ---- training and sampling ---------------------------------------------------------------------------------
def reader(library: Any, kind: str, words: int = 500, width: int = 64) -> Any:
    """A classifier of sequences: embeddings, an LSTM or two layers of a transformer, the mean, a head."""
    nn = library.nn

    class Reader(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(words, width)
            if kind == "lstm":
                self.body = nn.LSTM(width, width, batch_first=True)
            else:
                layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, batch_first=True)
                self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.head = nn.Linear(width, 10)

        def forward(self, ids: Any) -> Any:
            x = self.body(self.words(ids))
            return self.head((x[0] if kind == "lstm" else x).mean(1))

    return Reader()


def training(kind: str) -> str:
    """A line: seconds of two passes of steps on batches of changing size and length."""
    import torch

    import lamina

    rng = np.random.default_rng(0)
    shapes = [(int(rng.integers(8, 65)), int(rng.integers(5, 201))) for _ in range(STEPS)]
    batches = [(rng.integers(0, 500, s), rng.integers(0, 10, s[0])) for s in shapes]
    runs = []
    for library in (lamina, torch):
        library.manual_seed(0)
        model = reader(library, kind)
        optimizer = library.optim.Adam(model.parameters(), lr=1e-3)

        def step(pair: Any, library: Any = library, model: Any = model, optimizer: Any = optimizer) -> Any:
            ids, labels = pair
            optimizer.zero_grad()
            loss = library.nn.functional.cross_entropy(model(ids), labels)
            loss.backward()
            optimizer.step()
            return loss

        pairs = [(library.tensor(a), library.tensor(b)) for a, b in batches]
        runs.append((lamina.jit.trace(step) if library is lamina else step, pairs))
    first = [one_pass(*run) for run in runs]
    later = [[one_pass(*run) for run in runs] for _ in range(PASSES)]
    counts, calls = runs[0][0].counts(), (1 + PASSES) * STEPS
    ours, theirs = (f"{start:.1f} / {min(each):.2f}" for start, each in zip(first, zip(*later), strict=True))
    least = [min(each) for each in zip(*later)]
    middle = statistics.median(torch / lamina for lamina, torch in later)
    return (
        f"| {kind} | {counts['recorded']} | {counts['served'] / calls:.0%} | {ours} | {theirs} | "
        f"{least[1] / least[0]:.2f} ({middle:.2f}) |"
    )


def one_pass(run: Callable[[Any], Any], batches: list[Any]) -> float:
    """Seconds of a pass, after a rest in which the other's threads fall asleep."""
    sleep(0.1)
    start = perf_counter()
    for batch in batches:
        run(batch)
    return perf_counter() - start


def sampler() -> str:
    """A line: 100 steps of a diffusion model's sampler, t an integer of Python's."""
    import math

    import torch

    import lamina

    def made_of(library: Any) -> Any:
        nn, F = library.nn, library.nn.functional

        class Denoiser(nn.Module):
            def __init__(self, width: int = 32) -> None:
                super().__init__()
                self.time = nn.Linear(width, width)
                self.first = nn.Conv2d(3, width, 3, padding=1)
                self.body = nn.Conv2d(width, width, 3, padding=1)
                self.last = nn.Conv2d(width, 3, 3, padding=1)

            def forward(self, x: Any, t: int) -> Any:
                rates = library.exp(library.arange(16) * (-math.log(10000.0) / 16)) * t
                embedded = self.time(library.cat([rates.sin(), rates.cos()]))
                y = F.silu(self.first(x)) + embedded[None, :, None, None]
                return self.last(F.silu(self.body(y)))

        return Denoiser()

    alphas = np.cumprod([1.0, *(1 - np.linspace(1e-4, 0.02, 100))]).astype(np.float32)
    cells, recorded = [], 0
    for library in (lamina, torch):
        library.manual_seed(0)
        model = made_of(library).eval()

        table = library.tensor(alphas)

        def step(x: Any, t: int, table: Any = table, model: Any = model) -> Any:
            a, before = table[t + 1], table[t]
            noise = model(x, t)
            clean = (x - (1 - a).sqrt() * noise) / a.sqrt()
            return before.sqrt() * clean + (1 - before).sqrt() * noise

        run = lamina.jit.trace(step) if library is lamina else step
        x, times = library.randn(4, 3, 32, 32), []
        with library.no_grad():
            for _ in range(2):
                start, y = perf_counter(), x
                for t in range(99, -1, -1):
                    y = run(y, t)
                times.append(perf_counter() - start)
        cells.append(times)
        recorded = run.counts()["recorded"] if library is lamina else recorded
    ours, theirs = cells
    return f"| {recorded} | {ours[0]:.2f} / {ours[1]:.2f} | {theirs[0]:.2f} / {theirs[1]:.2f} |"


OPS = {
    "v + v": lambda L, v, w: v + v,
    "v * 2.0": lambda L, v, w: v * 2.0,
    "exp": lambda L, v, w: v.exp(),
    "relu": lambda L, v, w: v.relu(),
    "sum": lambda L, v, w: v.sum(),
    "sum(1)": lambda L, v, w: w.sum(1),
    "softmax(1)": lambda L, v, w: w.softmax(1),
    "v > 0": lambda L, v, w: v > 0,
    "view(1, -1)": lambda L, v, w: v.view(1, -1),
    "v[1:]": lambda L, v, w: v[1:],
    "w.T": lambda L, v, w: w.T,
    "cat": lambda L, v, w: L.cat((v, v)),
}


def op_on_new_shapes(name: str) -> str:
    """A line: microseconds of an op on shapes that it has met, and on those it has not, whose kind it has.

    Where a shape comes the second time Lamina makes a plan; that has a column of its own.  Each time other
    tensors are given: one that was looked at has its storage, and is in the cache.
    """
    import torch

    import lamina

    longest, found = 8, []
    for library in (lamina, torch):
        new, again, known = [], [], []
        for _ in range(40):
            sizes = range(longest, longest + 20)
            longest += 20
            for times in (new, again, known):
                pairs = [(library.ones(n), library.ones(n, 5)) for n in sizes]
                start = perf_counter()
                for v, w in pairs:
                    OPS[name](library, v, w)
                times.append((perf_counter() - start) / len(pairs) * 1e6)
        found += [min(known), min(new), min(new) - min(known), min(again) - min(known)]
    return f"| `{name}` | {' | '.join(f'{us:.1f}' for us in found)} |"


# ---- the page ----------------------------------------------------------------------------------------------
def page(threads: int, only: list[str]) -> list[str]:
    import torch

    import lamina

    lamina.set_num_threads(threads)
    torch.set_num_threads(threads)
    lines = ["# Many sizes through one function", "", f"`{where(threads)}`", ""]

    def add(*more: Any) -> None:
        """Strings, and functions that give one, which take their time."""
        for each in more:
            lines.append(each if isinstance(each, str) else each())
            print(lines[-1], flush=True)

    networks = [name for name in NETWORKS if name in only]
    if networks:
        add(
            "Inference, batches of many sizes: seconds of the first pass with all compiling / of the second. "
            "Over own: a call by the recording of all sizes over one by a recording of its own.",
            "",
            f"| | sizes | recordings | {' | '.join(CONTENDERS)} | over own |",
            f"|---|{'--:|' * (len(CONTENDERS) + 3)}",
            *(partial(inference, name, threads) for name in networks),
            "",
        )
    if "training" in only:
        add(
            f"Training, {STEPS} batches of 8 to 64 sequences of 5 to 200: seconds of the first pass / of the "
            f"best of {PASSES} more, in turns; torch's best over Lamina's, in brackets the median of turns.",
            "",
            "| | recordings | served | lamina | torch | torch over lamina |",
            "|---|--:|--:|--:|--:|--:|",
            *(partial(training, kind) for kind in ("transformer", "lstm")),
            "",
        )
    if "sampler" in only:
        add(
            "A diffusion sampler's 100 steps of integers, twice: seconds.",
            "",
            "| recordings | lamina | torch |",
            "|--:|--:|--:|",
            sampler,
            "",
        )
    if "ops" in only:
        add(
            "Eagerly, an op on small arrays of a shape that it has met, of one it has not, what that is "
            "more, and what the second time is: microseconds.",
            "",
            "| | lamina, met | new | more | again | torch, met | new | more | again |",
            "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
            *(partial(op_on_new_shapes, name) for name in OPS),
            "",
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", nargs="*", default=[*NETWORKS, "training", "sampler", "ops"])
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if "OPENBLAS_CORETYPE" in os.environ:  # which slows NumPy's products down
        rest = {k: v for k, v in os.environ.items() if k != "OPENBLAS_CORETYPE"}
        sys.exit(subprocess.call([sys.executable, *sys.argv], env=rest))
    lines = page(options.threads, options.only)
    if options.write:
        (RESULTS / "sizes.md").write_text("\n".join(lines))


if __name__ == "__main__":
    main()
