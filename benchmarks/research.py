"""Research programs as people write them: PyTorch eager, Lamina eager, and Lamina with jit.trace, unchanged.

    python benchmarks/research.py [--only vae gan] [--calls 30] [--seconds 0.5] [--repeats 2] [--write]

The programs are those of benchmarks/programs/. Each contender of each program runs in a process of its own,
with an empty cache; contenders take turns. "warm" is eager once more, in a process that finds what an earlier
one compiled: until kernels are there, eager's first seconds are NumPy's. Columns: the least time of a step
after the first calls; the traced median over PyTorch's; of the calls of traced functions after the tenth
step, how many ran compiled (a program counts as served from 90 % on); the total of the first calls, recording
and compiling included, and what of the traced one is over 1.1 of the eager one. What traced runs compute is
compared with eager's.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any

from contest import RESULTS, where
from programs import PROGRAMS, control, generative, learning, sequences, vision  # noqa: F401 - enter them

CONTENDERS = ("torch", "eager", "warm", "traced")
SETTLED = 10  # steps after which a program should be served
SERVED = 0.9
NEEDS = {"vit_einops": "einops"}


# ---- in the fresh process ----------------------------------------------------------------------------------
def answer(name: str, contender: str, calls: int, seconds: float) -> dict[str, Any]:
    """What one contender took, and computed."""
    if contender == "torch":
        import torch as library

        library.set_num_threads(int(os.environ["LAMINA_THREADS"]))
    else:
        import lamina as library

        if name in NEEDS:
            library.install_as_torch()  # libraries that look for PyTorch find Lamina
    library.manual_seed(0)
    traced: list[Any] = []

    def trace(function):
        if contender != "traced":
            return function
        traced.append(library.jit.trace(function))
        return traced[-1]

    step = PROGRAMS[name](library, trace)
    values, before = [], {}
    start = perf_counter()
    for i in range(calls):
        if i == SETTLED:
            before = counted(traced)
        values.append(float(step(i)))
    total = perf_counter() - start
    times, i, end = [], calls, perf_counter() + seconds
    while perf_counter() < end or len(times) < 3:
        start = perf_counter()
        step(i)
        times.append(perf_counter() - start)
        i += 1
    after = counted(traced)
    made = {key: after[key] - before[key] for key in after}
    reasons = [t.explain().splitlines() for t in traced]
    return {
        "total": total, "least": min(times), "median": statistics.median(times), "values": values,
        "served": made.get("served", 0) / max(1, sum(made.values())), "explained": reasons,
    }  # fmt: skip


def counted(traced: list[Any]) -> dict[str, int]:
    """Calls of all traced functions by what became of them."""
    every = [t.counts() for t in traced]
    return {key: sum(counts[key] for counts in every) for key in (every[0] if every else ())}


# ---- in the process that asks ------------------------------------------------------------------------------
def asked(name: str, contender: str, arguments: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="lamina-research-") as folder:
        environment = os.environ | {"LAMINA_CACHE_DIR": folder, "LAMINA_THREADS": str(arguments.threads)}
        environment.pop("OPENBLAS_CORETYPE", None)
        into = Path(folder) / "answer.json"
        command = [sys.executable, __file__, "--child", name, contender, str(into)]
        command += ["--calls", str(arguments.calls), "--seconds", str(arguments.seconds)]
        for _ in range(2 if contender == "warm" else 1):
            run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
            if run.returncode:
                return {"error": run.stderr.strip().splitlines()[-1:] or [f"exit {run.returncode}"]}
        return json.loads(into.read_text())


def agree(one: list[float], two: list[float]) -> bool:
    """Whether two runs computed the same, as training lets rounding grow."""
    pairs = zip(one, two, strict=True)
    return all(math.isclose(a, b, rel_tol=0.02, abs_tol=1e-3) or (a != a and b != b) for a, b in pairs)


def row(name: str, found: dict[str, list[dict[str, Any]]]) -> tuple[str, dict[str, Any]]:
    """A line of the table, and what it says as data."""
    errors = {c: runs[0]["error"][0] for c, runs in found.items() if "error" in runs[0]}
    if "eager" in errors or "traced" in errors:
        return f"{name:<24}{errors.get('eager', errors.get('traced'))[:90]}", {"error": errors}
    best = {
        c: {key: min(run[key] for run in runs) for key in ("least", "median", "total")}
        for c, runs in found.items()
        if c not in errors
    }
    served = statistics.median(run["served"] for run in found["traced"])
    same = agree(found["eager"][0]["values"], found["traced"][0]["values"])
    over = best["traced"]["total"] - 1.1 * best["eager"]["total"]
    cells = "".join(f"{best[c]['least'] * 1e3:>9.2f}" if c in best else f"{'-':>9}" for c in CONTENDERS)
    ratio = best["traced"]["median"] / best["torch"]["median"] if "torch" in best else math.nan
    totals = "".join(f"{best[c]['total']:>9.2f}" for c in ("eager", "traced"))
    line = f"{name:<24}{cells}{ratio:>9.2f}{served:>9.0%}{totals}{over:>8.2f}{'' if same else '  differs'}"
    return line, {"best": best, "served": served, "agrees": same, "ratio": ratio, "over": over}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", default=list(PROGRAMS), choices=list(PROGRAMS))
    parser.add_argument("--calls", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=0.5, help="of steps that are timed, after the calls")
    parser.add_argument("--repeats", type=int, default=2, help="fresh processes for each figure")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--alone", action="store_true", help="leave PyTorch out")
    parser.add_argument("--explain", action="store_true", help="print why programs aren't served")
    parser.add_argument("--write", action="store_true", help="write benchmarks/results/research.*")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        name, contender, into = arguments.child
        Path(into).write_text(json.dumps(answer(name, contender, arguments.calls, arguments.seconds)))
        return
    alone = arguments.alone or find_spec("torch") is None
    contenders = [c for c in CONTENDERS if c != "torch" or not alone]
    titles = (*CONTENDERS, "of torch", "served", "s, eager", "traced")
    head = [
        where(arguments.threads),
        f"{'ms':<24}" + "".join(f"{title:>9}" for title in titles) + f"{'over':>8}",
    ]
    print("\n".join(head), flush=True)
    lines, data = [], {}
    for name in arguments.only:
        if name in NEEDS and find_spec(NEEDS[name]) is None:
            lines.append(f"{name:<24}left out: {NEEDS[name]} is not installed")
            print(lines[-1], flush=True)
            continue
        found: dict[str, list[dict[str, Any]]] = {c: [] for c in contenders}
        for _ in range(arguments.repeats):
            for contender in contenders:
                found[contender].append(asked(name, contender, arguments))
        line, data[name] = row(name, found)
        lines.append(line)
        print(line, flush=True)
        if arguments.explain and data[name].get("served", 0) < SERVED and "explained" in found["traced"][0]:
            for text in found["traced"][0]["explained"]:
                print("   " + "\n   ".join(text[:8]))
    told = [d for d in data.values() if "served" in d]
    if told:
        ratios = [d["ratio"] for d in told if d["ratio"] == d["ratio"]]
        last = [
            f"served: {sum(d['served'] >= SERVED for d in told)} of {len(data)}; "
            f"in total over 1.1 x eager + 2 s: {sum(d['over'] > 2 for d in told)}; "
            f"differ: {sum(not d['agrees'] for d in told)}"
            + (f"; median step {statistics.median(ratios):.2f} of PyTorch's" if ratios else "")
        ]
        eager = [
            d["best"]["warm"]["least"] / d["best"]["torch"]["least"] for d in told if "torch" in d["best"]
        ]
        if eager:
            last.append(
                f"eager, warm, of PyTorch's: geometric mean {statistics.geometric_mean(eager):.2f}, "
                f"behind in {sum(ratio > 1 for ratio in eager)} of {len(eager)}"
            )
        print("\n".join(last))
        lines += last
    if arguments.write:
        (RESULTS / "research.txt").write_text("\n".join([*head, *lines]) + "\n")
        (RESULTS / "research.json").write_text(json.dumps(data, indent=1) + "\n")


if __name__ == "__main__":
    main()
