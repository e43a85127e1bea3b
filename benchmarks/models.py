"""Whole networks, traced, against the peers: inference at batch 1 and 8, and training steps.

    python benchmarks/models.py [--threads 1 2] [--only resnet18 gpt] [--seconds 4] [--write]

Contenders take turns in one process for each number of threads, on two 0.02 s after the last; the ratio is
the best peer's least time over Lamina's (more than 1: Lamina is ahead), and the same of the medians stands
beside it.  Every contender's output is compared with torch's first.  "Limit": the time that all products and
convolutions take by their definition at the peak of the threads, or input and weights to be read, whichever
is more, over Lamina's least time; algorithms that multiply less go past 1.  --write puts the tables into
benchmarks/results/.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import numpy as np
from contest import RESULTS, Time, distance, hold_to, race, where
from networks import CASES, Case, weigh

COLUMNS = ("lamina", "torch", "channels last", "compiled", "jax", "onnxruntime", "openvino")
COLORS = ("#1f5fbf", "#c0392b", "#e59866", "#8e44ad", "#7f8c8d", "#27ae60", "#b7950b")  # one for each column
LABEL = 26


def made(case: Case, library: Any) -> Any:
    model = case.make(library)
    if hasattr(library, "no_grad"):
        with library.no_grad():
            weigh(model)
    else:
        weigh(model)
    return model


def inference(case: Case, batch: int, threads: int) -> dict[str, Any]:
    """Every contender's call, compared with torch's output first."""
    import peers
    import torch

    import lamina

    x = case.inputs(batch)
    model = lamina.jit.trace(made(case, lamina).eval())
    given = lamina.tensor(x)

    def ours():
        with lamina.no_grad():
            return model(given)

    ours()
    contenders = {
        "lamina": ours,
        "torch": peers.torch_eager(made(case, torch), x),
        "compiled": peers.torch_compiled(made(case, torch), x),
    }
    if x.ndim == 4:
        contenders["channels last"] = peers.torch_eager(made(case, torch), x, channels_last=True)
    if find_spec("jax"):
        import jax_library

        contenders["jax"] = peers.jax_jit(made(case, jax_library), x)
    graph = peers.onnx_bytes(made(case, torch), x) if find_spec("onnx") else None
    if graph and find_spec("onnxruntime"):
        contenders["onnxruntime"] = peers.onnxruntime(graph, x, threads)
    if graph and find_spec("openvino"):
        contenders["openvino"] = peers.openvino(graph, x, threads)
    wanted = array(contenders["torch"]())
    for name, call in contenders.items():
        error = np.abs(array(call()) - wanted).max() / np.abs(wanted).max()
        if not error < 1e-3:  # of the largest output: a check that all compute the same, not of accuracy
            raise SystemExit(f"{name} computes something else: it differs from torch by {error:.1e}")
    return contenders


def step_of(case: Case) -> Callable[[Any, Any], Any]:
    """A training step of inputs and labels, as it is written for Lamina."""
    import lamina

    model = made(case, lamina).train()
    optimizer = lamina.optim.Adam(model.parameters(), lr=1e-4)

    def step(given, labels):
        optimizer.zero_grad()
        out = model(given)
        loss = lamina.nn.functional.cross_entropy(out.reshape(-1, out.shape[-1]), labels.reshape(-1))
        loss.backward()
        optimizer.step()
        return loss

    return step


def training(case: Case, threads: int) -> dict[str, Any]:
    """Training steps: cross entropy, backward, Adam."""
    import peers
    import torch

    import lamina

    x, y = case.inputs(case.training, training=True), case.labels(case.training)
    step = lamina.jit.trace(step_of(case))
    given, labels = lamina.tensor(x), lamina.tensor(y)
    contenders = {
        "lamina": lambda: step(given, labels),
        "torch": peers.torch_step(made(case, torch), x, y),
        "compiled": peers.torch_step(made(case, torch), x, y, compiled=True),
    }
    if find_spec("jax"):
        import jax_library

        contenders["jax"] = peers.jax_step(made(case, jax_library), x, y)
    contenders["lamina"]()
    losses = {name: float(array(call())) for name, call in contenders.items()}
    wanted = losses["torch"]  # every contender has made two steps by now
    for name, loss in losses.items():
        if not abs(loss - wanted) < 2e-2 * abs(wanted):
            raise SystemExit(f"{name} trains something else: its loss is {loss}, torch's {wanted}")
    return contenders


def work(case: Case, job: str) -> tuple[int, int]:
    """Operations of all products and convolutions of a job, and the bytes of its input and weights."""
    import lamina
    from lamina.utils.flop_counter import FlopCounterMode

    training = job == "train"
    batch = case.training if training else int(job)
    x = lamina.tensor(case.inputs(batch, training=training))
    model = made(case, lamina).train(training)
    with FlopCounterMode(display=False) as counter:
        out = model(x)
        if training:
            out.sum().backward()
    arrays = (x, *model.parameters(), *model.buffers())
    return counter.get_total_flops(), sum(each.numel() * each.element_size() for each in arrays)


def array(out: Any) -> np.ndarray:
    """A contender's output as an array, whatever its library."""
    if isinstance(out, list):  # onnxruntime
        out = out[0]
    if hasattr(out, "to_tuple"):  # OpenVINO
        out = out[0]
    if hasattr(out, "detach"):
        out = out.detach()
    return np.asarray(out.numpy() if hasattr(out, "numpy") else out)


def measure(threads: int, only: list[str], seconds: float, jobs: list[str]) -> dict[str, Any]:
    """In a process of its own: all rows on this number of threads."""
    import torch

    import lamina
    from lamina.profiler.limits import measured

    hold_to(threads)
    torch.set_num_threads(threads)
    lamina.set_num_threads(threads)
    near = distance() if threads > 1 else "one thread"
    head = f"{where(threads)}; {near}"
    print(f"\n{head}\n\n{title()}", flush=True)
    rows: dict[str, dict[str, Time]] = {}
    limits, at_best = measured(threads), {}
    for name in only:
        for job in jobs:
            if job == "train" and not CASES[name].training:
                continue
            if job == "train":
                label, contenders = f"{name} training", training(CASES[name], threads)
            else:
                label, contenders = f"{name} batch {job}", inference(CASES[name], int(job), threads)
            rows[label] = race(contenders, seconds, pause=0.02 if threads > 1 else 0.0)
            at_best[label] = limits.seconds(*work(CASES[name], job))
            print(row(label, rows[label], at_best[label]), flush=True)
            del contenders  # before the next ones: of VGG-11 they hold 10 GB
            gc.collect()
            torch.compiler.reset()
    return {
        "head": f"{head}; {limits.flops / 1e9:.0f} GF/s, {limits.bandwidths[-1] / 1e9:.1f} GB/s at most",
        "limits": at_best,
        "rows": {k: {n: (t.least, t.median) for n, t in v.items()} for k, v in rows.items()},
    }


def title() -> str:
    return (
        f"{'ms: least (median)':<{LABEL}}"
        + "".join(f"{name:>18}" for name in COLUMNS)
        + f"{'ahead':>8}{'medians':>9}{'limit':>7}"
    )


def row(label: str, times: dict[str, Time], at_best: float) -> str:
    """A line of the table.  at_best: the least seconds that the row's work takes on this machine."""

    def cell(name: str) -> str:
        t = times.get(name)
        return f"{f'{t.least * 1e3:.3f} ({t.median * 1e3:.3f})' if t else '-':>18}"

    ours, rivals = times["lamina"], [t for name, t in times.items() if name != "lamina"]
    ahead = min(t.least for t in rivals) / ours.least
    medians = min(t.median for t in rivals) / ours.median
    share = at_best / ours.least
    return f"{label:<{LABEL}}" + "".join(map(cell, COLUMNS)) + f"{ahead:>8.2f}{medians:>9.2f}{share:>7.2f}"


def means(table: dict[str, Any]) -> str:
    """The geometric means of the ratios to the best peer, by job."""
    found: dict[str, list[float]] = {}
    for label, times in table["rows"].items():
        ours, rivals = times["lamina"][0], [t[0] for name, t in times.items() if name != "lamina"]
        found.setdefault(label.split(" ", 1)[1], []).append(min(rivals) / ours)
    return "ahead, in the mean: " + ", ".join(
        f"{job} {geometric_mean(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        for job, ratios in found.items()
    )


def draw(tables: list[dict[str, Any]], path: Path) -> None:
    """Each peer's time over Lamina's as a dot, one panel for each number of threads."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    count = max(len(t["rows"]) for t in tables)
    figure, panels = pyplot.subplots(
        1, len(tables), figsize=(7 * len(tables), 0.3 * count + 1.8), squeeze=False
    )
    for axes, table in zip(panels[0], tables, strict=True):
        names = list(table["rows"])[::-1]
        for peer, color in zip(COLUMNS[1:], COLORS[1:], strict=True):
            found = [(at, table["rows"][name]) for at, name in enumerate(names)]
            dots = [(times[peer][0] / times["lamina"][0], at) for at, times in found if peer in times]
            if dots:
                axes.scatter(*zip(*dots, strict=True), color=color, label=peer, s=22, zorder=3)
        for at, name in enumerate(names):
            times = {who: t[0] for who, t in table["rows"][name].items()}
            best = min(time for who, time in times.items() if who != "lamina") / times["lamina"]
            color = COLORS[0] if best >= 1 else COLORS[1]
            axes.text(0.72, at, f"{best:.2f}", fontsize=8, ha="right", va="center", color=color)
        axes.axvline(1.0, color="black", linewidth=0.8)
        ticks = (1, 2, 4, 8, 16)
        axes.set(
            xscale="log", xlim=(0.75, 25), ylim=(-0.7, len(names) - 0.3), xticks=ticks, xticklabels=ticks
        )
        axes.set_yticks(range(len(names)), names, fontsize=8)
        axes.tick_params(axis="y", pad=30)
        axes.minorticks_off()
        axes.grid(axis="y", linewidth=0.3)
        axes.set_xlabel("a peer's time over Lamina's (the number: the best one's)")
        axes.spines[["top", "right"]].set_visible(False)
        threads = next(part for part in table["head"].split(", ") if part.endswith(("thread", "threads")))
        axes.set_title(f"{threads}; {means(table)}".replace(", batch 8", ",\nbatch 8"), fontsize=7)
    handles = {label: dot for axes in panels[0] for dot, label in zip(*axes.get_legend_handles_labels())}
    figure.legend(
        handles.values(), handles, fontsize=8, loc="lower center", ncols=len(handles), frameon=False
    )
    figure.tight_layout(rect=(0, 0.025, 1, 1))
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--only", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument(
        "--jobs", nargs="+", default=["1", "8", "train"], help="batches of inference, or train"
    )
    parser.add_argument("--seconds", type=float, default=4.0, help="for the rounds of one row (4)")
    parser.add_argument("--write", action="store_true", help="write benchmarks/results/models.*")
    parser.add_argument("--into", type=Path, help=argparse.SUPPRESS)  # the child process answers here
    arguments = parser.parse_args()
    if arguments.into:
        (threads,) = arguments.threads
        found = measure(threads, arguments.only, arguments.seconds, arguments.jobs)
        arguments.into.write_text(json.dumps(found))
        return
    tables = []
    flags = ["--only", *arguments.only, "--jobs", *arguments.jobs, "--seconds", str(arguments.seconds)]
    for threads in arguments.threads:
        tables.append(answered(__file__, threads, flags))
        print(means(tables[-1]), flush=True)
    if arguments.write:
        RESULTS.mkdir(exist_ok=True)
        lines = []
        for table in tables:
            times = {k: {n: Time(*t) for n, t in v.items()} for k, v in table["rows"].items()}
            lines += [table["head"], "", title()]
            lines += [*(row(k, v, table["limits"][k]) for k, v in times.items()), means(table), ""]
        (RESULTS / "models.txt").write_text("\n".join(lines))
        (RESULTS / "models.json").write_text(json.dumps(tables, indent=1) + "\n")
        draw(tables, RESULTS / "models.png")


def answered(program: str, threads: int, flags: list[str]) -> Any:
    """What a program writes --into a file, in a process of its own that is held to a number of threads."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        command = [sys.executable, program, "--threads", str(threads), *flags, "--into", str(answer)]
        subprocess.run(command, check=True, env=os.environ | environment(threads))
        return json.loads(answer.read_text())


def environment(threads: int) -> dict[str, str]:
    """What holds the peers to a number of threads from the start."""
    one = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    return {
        "OMP_NUM_THREADS": str(threads),
        "OPENBLAS_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "JAX_PLATFORMS": "cpu",
        **({"XLA_FLAGS": one} if threads == 1 else {}),
    }


if __name__ == "__main__":
    main()
