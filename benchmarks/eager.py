"""Whole networks as they are written, undecorated, against PyTorch eager: inference and training steps.

    python benchmarks/eager.py [--threads 1 2] [--only resnet18 gpt] [--jobs 1 8 train] [--write]

Lamina's ops begin on NumPy and change over to native code once their calls have earned it.  Each network is
called until nothing has changed over for some seconds, and "settled" says how long that took, with nothing
compiled before; "first" is the median of the calls of its first second.  From then on it takes turns with
PyTorch in one process (contest.py); the ratio is Lamina's least time over PyTorch's, in the quicker of its
two memory formats where images are inferred, and that of the medians stands beside it.  Less than 1: Lamina
is ahead.
--write puts the tables into benchmarks/results/eager.txt.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from statistics import geometric_mean
from typing import Any

os.environ.pop("OPENBLAS_CORETYPE", None)
if "--here" in sys.argv:
    for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[_variable] = sys.argv[sys.argv.index("--threads") + 1]
    _cache = tempfile.TemporaryDirectory()  # nothing is compiled yet
    os.environ["LAMINA_CACHE_DIR"] = _cache.name

import numpy as np
from contest import RESULTS, distance, hold_to, on_each, race, where
from models import array, made, step_of
from networks import CASES, Case

QUIET, MOST = 4.0, 40.0  # seconds without a change, and in all, until a network counts as settled


def settled(call: Callable[[], Any]) -> tuple[float, float]:
    """Call until no op changes over any more: the median time of early calls, and the seconds until then."""
    from lamina.runtime import kernels

    call()
    begun = last = time.perf_counter()
    seen, early = kernels.changes, list[float]()
    while (now := time.perf_counter()) - last < QUIET and now - begun < MOST:
        call()
        took = time.perf_counter() - now
        if now - begun < 1.0 or not early:
            early.append(took)
        if kernels.changes != seen:
            seen, last = kernels.changes, time.perf_counter()
    return statistics.median(early), last - begun


def inference(case: Case, batch: int) -> dict[str, Callable[[], Any]]:
    import torch

    import lamina

    x = case.inputs(batch)
    ours, theirs = made(case, lamina).eval(), made(case, torch).eval()
    given, tensor = lamina.tensor(x), torch.tensor(x)

    def of(library: Any, model: Any, x: Any) -> Callable[[], Any]:
        def call():
            with library.no_grad():
                return model(x)

        return call

    calls = {"lamina": of(lamina, ours, given), "torch": of(torch, theirs, tensor)}
    if x.ndim == 4:
        last = made(case, torch).eval().to(memory_format=torch.channels_last)
        calls["channels last"] = of(torch, last, tensor.to(memory_format=torch.channels_last))
    wanted = array(calls["torch"]())
    np.testing.assert_allclose(array(calls["lamina"]()), wanted, rtol=1e-3, atol=1e-3 * np.abs(wanted).max())
    return calls


def training(case: Case) -> dict[str, Callable[[], Any]]:
    import peers
    import torch

    import lamina

    x, y = case.inputs(case.training, training=True), case.labels(case.training)
    step, given, labels = step_of(case), lamina.tensor(x), lamina.tensor(y)
    calls = {"lamina": lambda: step(given, labels), "torch": peers.torch_step(made(case, torch), x, y)}
    calls["lamina"]()  # PyTorch's has made a step by now
    losses = {name: float(array(call())) for name, call in calls.items()}
    np.testing.assert_allclose(losses["lamina"], losses["torch"], rtol=2e-2)
    return calls


def measure(threads: int, only: list[str], jobs: list[str], seconds: float) -> None:
    import torch

    import lamina

    hold_to(threads)
    torch.set_num_threads(threads)
    lamina.set_num_threads(threads)
    print(f"\n{where(threads)}; {distance() if threads > 1 else 'one thread'}\n")
    heads = f"{'lamina':>18}{'torch':>18}{'ratio':>8}{'medians':>9}{'first':>10}{'settled':>9}"
    print(f"{'ms: least (median)':<24}{heads}")
    ratios: dict[str, list[float]] = {}
    for name in only:
        for job in jobs:
            if job == "train" and not CASES[name].training:
                continue
            calls = training(CASES[name]) if job == "train" else inference(CASES[name], int(job))
            early, needed = settled(calls["lamina"])
            times = race(calls, seconds, pause=0.02 if threads > 1 else 0.0)
            ours, others = times["lamina"], [t for contender, t in times.items() if contender != "lamina"]
            best = min(others, key=lambda t: t.least)
            ratio, median = ours.least / best.least, ours.median / min(t.median for t in others)
            label = f"{name} training" if job == "train" else f"{name} batch {job}"
            cells = (f"{t.least * 1e3:.3f} ({t.median * 1e3:.3f})" for t in (ours, best))
            print(
                f"{label:<24}" + "".join(f"{cell:>18}" for cell in cells)
                + f"{ratio:>8.2f}{median:>9.2f}{early * 1e3:>10.3f}{needed:>7.1f} s",
                flush=True,
            )  # fmt: skip
            ratios.setdefault("training" if job == "train" else f"batch {job}", []).append(ratio)
    for kind, found in ratios.items():
        print(f"{kind}: {geometric_mean(found):.2f} in the mean ({min(found):.2f} to {max(found):.2f})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--only", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--jobs", nargs="+", default=["1", "8", "train"])
    parser.add_argument("--seconds", type=float, default=3.0, help="for one row's rounds")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        measure(options.threads[0], options.only, options.jobs, options.seconds)
        return
    rest = ["--only", *options.only, "--jobs", *options.jobs, "--seconds", str(options.seconds)]
    on_each(__file__, options.threads, rest, RESULTS / "eager.txt" if options.write else None)


if __name__ == "__main__":
    main()
