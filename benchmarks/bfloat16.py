"""Networks whose products are multiplied in bfloat16: how much quicker, and how far off.

    python benchmarks/bfloat16.py [--threads 1 2] [--only gpt resnet50] [--seconds 4] [--write]

`trace(precision="bfloat16")` against Lamina's float32, and PyTorch's float32 and bfloat16 autocast, as it is
and in channels-last, in turns in one process for each number of threads.  off: the norm of the difference
from what float64 gives over its norm; of training how far the losses of ten steps are from float32's at most.
same: how many of the largest outputs are in the place where float64 has them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from contest import RESULTS, hold_to, on_each, race, where
from models import array, made
from networks import CASES, Case

import lamina

ROWS = [
    ("gpt", 1), ("gpt", 8), ("resnet50", 1), ("resnet50", 8), ("resnet18", 1), ("mobilenet_v2", 1),
    ("lstm", 1), ("lstm", 8), ("mlp", 8), ("gpt", 0), ("resnet18", 0), ("lstm", 0), ("mlp", 0),
]  # fmt: skip
COLUMNS = ("float32", "bfloat16", "torch", "torch bf16")
TITLE = f"{'ms, the least':<24}" + "".join(f"{name:>12}" for name in COLUMNS)
TITLE += f"{'gain':>8}{'medians':>9}{'of torch':>10}{'off':>10}{'torch off':>11}{'same':>7}"


def torch_call(case: Case, x: np.ndarray, low: bool, last: bool) -> Callable[[], Any]:
    import torch

    model, given = made(case, torch).eval(), torch.tensor(x)
    if last:
        model, given = (t.to(memory_format=torch.channels_last) for t in (model, given))

    def run():
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=low):
            return model(given)

    return run


def inference(case: Case, batch: int) -> tuple[dict[str, Callable], dict[str, float]]:
    x = case.inputs(batch)
    model = made(case, lamina).eval()
    given = lamina.tensor(x)
    with lamina.no_grad():
        exact = model.double()(given if case.tokens else given.double()).numpy()
    model.float()
    calls: dict[str, Callable] = {}

    def ours(f: Callable) -> Any:
        with lamina.no_grad():
            return f(given)

    for precision in COLUMNS[:2]:
        calls[precision] = partial(ours, lamina.jit.trace(lambda x: model(x), precision=precision))
    for name, low in zip(COLUMNS[2:], (False, True), strict=True):
        calls[name] = torch_call(case, x, low, last=False)
        if x.ndim == 4:
            calls[f"{name} last"] = torch_call(case, x, low, last=True)

    def off(name: str) -> float:
        out = calls[name]()
        found = array(out.float() if name.startswith("torch") else out)
        return float(np.linalg.norm(found - exact) / np.linalg.norm(exact))

    same = (array(calls["bfloat16"]()).argmax(-1) == exact.argmax(-1)).mean()
    return calls, {"off": off("bfloat16"), "torch off": off("torch bf16"), "same": float(same)}


def training(case: Case) -> tuple[dict[str, Callable], dict[str, float]]:
    """Steps of cross entropy, backward, Adam."""
    import torch

    x, y = case.inputs(case.training, training=True), case.labels(case.training)

    def step_of(library: Any, low: bool) -> Callable:
        model = made(case, library).train()
        optimizer = library.optim.Adam(model.parameters(), lr=1e-4)
        given, labels = library.tensor(x), library.tensor(y).reshape(-1)

        def step():
            optimizer.zero_grad()
            with library.autocast("cpu", library.bfloat16, enabled=low):
                out = model(given)
            out = out.float()
            loss = library.nn.functional.cross_entropy(out.reshape(-1, out.shape[-1]), labels)
            loss.backward()
            optimizer.step()
            return loss

        return step

    calls = {name: lamina.jit.trace(step_of(lamina, low=False), precision=name) for name in COLUMNS[:2]} | {
        name: step_of(torch, low) for name, low in zip(COLUMNS[2:], (False, True), strict=True)
    }
    losses = {name: np.array([float(array(call())) for _ in range(10)]) for name, call in calls.items()}

    def off(name: str) -> float:
        return float(abs(losses[name] - losses["float32"]).max() / abs(losses["float32"]).max())

    return calls, {"off": off("bfloat16"), "torch off": off("torch bf16")}


def measure(threads: int, only: list[str], seconds: float) -> None:
    import torch

    hold_to(threads)
    torch.set_num_threads(threads)
    lamina.set_num_threads(threads)
    print(f"\n{where(threads)}\n\n{TITLE}", flush=True)
    for name, batch in ROWS:
        if name not in only:
            continue
        calls, found = inference(CASES[name], batch) if batch else training(CASES[name])
        times = race(calls, seconds)
        least = {n: min(t.least for k, t in times.items() if k in (n, f"{n} last")) for n in COLUMNS}
        gain, medians = (
            getattr(times["float32"], what) / getattr(times["bfloat16"], what) for what in ("least", "median")
        )
        label = f"{name} {f'batch {batch}' if batch else 'training'}"
        cells = "".join(f"{1e3 * least[n]:>12.3f}" for n in COLUMNS)
        best = min(least["torch"], least["torch bf16"]) / least["bfloat16"]
        same = f"{found['same']:>7.3f}" if batch else f"{'-':>7}"
        print(
            f"{label:<24}{cells}{gain:>8.2f}{medians:>9.2f}{best:>10.2f}{found['off']:>10.1e}"
            f"{found['torch off']:>11.1e}{same}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--only", nargs="+", default=sorted({name for name, _ in ROWS}))
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--write", action="store_true", help="also into benchmarks/results/bfloat16.txt")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        measure(options.threads[0], options.only, options.seconds)
        return
    from lamina.passes.llvm.binding import host_target

    if not (host_target().pairs or host_target().matrix):
        print("this CPU multiplies no pairs of bfloat16: both precisions run the same code")
    rest = ["--only", *options.only, "--seconds", str(options.seconds)]
    on_each(__file__, options.threads, rest, RESULTS / "bfloat16.txt" if options.write else None)


if __name__ == "__main__":
    main()
