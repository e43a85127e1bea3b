"""Whether threads of others slow compiled programs, and the other way round: times alone, and in turn.

    python benchmarks/threads.py [--rounds 8] [--threads 2] [--pin] [--write]

Every program and every product is timed in two processes, which take turns: one where OpenBLAS runs its jobs
on Lamina's pool ("shared"), and one with LAMINA_SHARE_THREADS=0, in which it keeps its own threads ("apart").
A third has torch and onnxruntime inside, where they are installed.  A turn begins after a rest, in which all
threads fall asleep.  "Alone" is a call that is made again and again; "after" means that each time one call of
something else came before, which is not timed.  A pause is spent busily, on the thread that calls.  --pin
gives the first thread one core and all others the next, which keeps the scheduler's choices out of it where
the machine has other things to do.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from statistics import median
from typing import Any

import numpy as np
from contest import RESULTS, distance, where

REST = 0.2  # seconds: OpenBLAS's threads look for work for half of it
PAUSE = 0.003  # seconds between two products
PROCESSES = {"shared": {}, "apart": {"LAMINA_SHARE_THREADS": "0"}, "peers": {}}
PROGRAM = "convolutions"  # of programs(): what runs before a product
OWN = 2  # of others(): what is no peer's
Call = Callable[[], Any]
Times = dict[tuple[str, str, str | None], list[float]]


# ---- what is timed, in a process of its own
def programs() -> dict[str, Call]:
    """Traced networks of under a millisecond, some fifteen, and a GPT."""
    from networks import CASES

    import lamina
    from lamina import nn

    def convolutions(batch: int, width: int, depth: int, size: int) -> Call:
        layers = [
            m for _ in range(depth) for m in (nn.Conv2d(width, width, 3, padding=1, bias=False), nn.ReLU())
        ]
        network, x = lamina.jit.trace(nn.Sequential(*layers).eval()), lamina.randn(batch, width, size, size)
        return lambda: network(x)

    case = CASES["gpt"]
    model, tokens = lamina.jit.trace(case.make(lamina).eval()), lamina.tensor(case.inputs(8))
    return {
        "convolutions, small": convolutions(1, 64, 3, 28),
        "convolutions": convolutions(12, 64, 4, 56),
        "gpt, batch 8": lambda: model(tokens),
    }


def products() -> dict[str, Call]:
    """Calls of NumPy: products, and what of LAPACK OpenBLAS keeps for its own threads."""
    random = np.random.default_rng(0)
    large = random.standard_normal((600, 600), np.float32)
    small, vector = np.ascontiguousarray(large[:160, :160]), large[0]
    square = large.astype(np.float64) + 40 * np.eye(600)
    return {
        "600x600 @ 600x600": lambda: large @ large,
        "160x160 @ 160x160": lambda: small @ small,
        "600x600 @ 600": lambda: large @ vector,
        "inv(600x600)": lambda: np.linalg.inv(square),
    }


def others() -> dict[str, Call]:
    """Calls that leave threads awake: an eager product, NumPy's, torch's and onnxruntime's convolutions."""
    import lamina

    large = np.random.default_rng(0).standard_normal((600, 600), np.float32)
    tensor = lamina.tensor(large)
    calls: dict[str, Call] = {
        "eager product": lambda: tensor @ tensor,
        "NumPy product": lambda: large @ large,
    }
    if os.environ.get("PROCESS") == "peers":
        import peers
        import torch

        torch.set_num_threads(lamina.get_num_threads())
        layers = [torch.nn.Conv2d(64, 64, 3, padding=1) for _ in range(2)]
        x = np.random.default_rng(0).standard_normal((4, 64, 56, 56), np.float32)
        calls["torch"] = peers.torch_eager(torch.nn.Sequential(*layers), x)
        if find_spec("onnxruntime") and find_spec("onnx"):
            graph = peers.onnx_bytes(torch.nn.Sequential(*layers), x)
            calls["onnxruntime"] = peers.onnxruntime(graph, x, lamina.get_num_threads())
    return calls


def child(threads: int, pin: bool) -> None:
    """Answer with times: a line that names a call, what runs before it, and how often, comes in for each."""
    import lamina

    lamina.set_num_threads(threads)
    ours = programs()
    with lamina.no_grad():
        for call in ours.values():
            for _ in range(4):
                call()
        theirs, awake = products(), others()
        calls = ours | theirs | awake
        for call in calls.values():
            call(), call()
        if pin:
            for task in map(int, os.listdir("/proc/self/task")):
                os.sched_setaffinity(task, {int(task != os.getpid())})
        names = {"programs": [*ours], "products": [*theirs], "others": [*awake]}
        print(json.dumps([names]), flush=True)
        for line in sys.stdin:
            timed, before, count = json.loads(line)
            print(json.dumps(turn(calls[timed], calls.get(before), before == "pause", count)), flush=True)


def turn(call: Call, before: Call | None, pause: bool, count: int) -> list[float]:
    """Times of one call after another, or after the call before it each time."""
    time.sleep(REST)
    (before or call)()
    call()
    times = []
    for _ in range(count):
        if before is not None:
            before()
        elif pause:
            end = time.perf_counter() + PAUSE
            while time.perf_counter() < end:
                pass
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return times


# ---- the processes in turn
class Process:
    """A child that answers."""

    def __init__(self, name: str, threads: int, pin: bool):
        self.name = name
        environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_CORETYPE"}
        environment |= PROCESSES[name] | {"PROCESS": name}
        command = [sys.executable, __file__, "--child", "--threads", str(threads), *["--pin"] * pin]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        (self.calls,) = self._answer()

    def _answer(self) -> Any:
        while line := self.process.stdout.readline():
            if line.startswith("["):  # torch prints, too
                return json.loads(line)
        raise SystemExit(f"the process {self.name} ended")

    def times(self, *what: Any) -> list[float]:
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def measure(processes: list[Process], rounds: int) -> Times:
    """All times of (process, call, what ran before it)."""
    found: Times = {}
    for _ in range(rounds):
        for process in processes:
            calls, theirs = process.calls, process.calls["others"][OWN:]
            questions = [(p, before) for p in calls["programs"] for before in (None, *calls["others"])]
            if theirs:
                questions += [(peer, before) for peer in theirs for before in (None, PROGRAM)]
            else:
                questions += [(c, before) for c in calls["products"] for before in (None, "pause", PROGRAM)]
            for call, before in questions:
                found.setdefault((process.name, call, before), []).extend(process.times(call, before, 8))
    return found


def table(found: Times, processes: list[Process]) -> list[str]:
    """Lines: least times (medians) in milliseconds, and their ratios."""

    def cell(key: tuple[str, str, str | None], base: tuple[str, str, str | None] | None = None) -> str:
        least, middle = min(found[key]) * 1e3, median(found[key]) * 1e3
        if base is None:
            return f"{least:.3f} ({middle:.3f})".rjust(20)
        return f"{least / min(found[base]) / 1e3:.2f} ({middle / median(found[base]) / 1e3:.2f})".rjust(16)

    lines = []
    for process in processes:
        name, others = process.name, process.calls["others"]
        head = f"programs, {name}".ljust(24) + "alone, ms".rjust(20)
        lines.append(head + "".join(f"after {other}".rjust(max(16, len(other) + 8)) for other in others))
        for program in process.calls["programs"]:
            alone = name, program, None
            cells = [cell((name, program, other), alone).rjust(max(16, len(other) + 8)) for other in others]
            lines.append(f"{program:24}{cell(alone)}" + "".join(cells))
        lines.append("")
    titles = {None: "again and again", "pause": f"{PAUSE * 1e3:.0f} ms between", PROGRAM: "after a program"}
    lines.append("NumPy".ljust(24) + "".join(f"{f'{t}, ms':>20}{'shared':>16}" for t in titles.values()))
    for product in processes[0].calls["products"]:
        pairs = (((kind, product, before) for kind in ("apart", "shared")) for before in titles)
        cells = [cell(apart) + cell(shared, apart) for apart, shared in pairs]
        lines.append(f"{product:24}" + "".join(cells))
    for process in processes:
        if theirs := process.calls["others"][OWN:]:
            lines += ["", "peers".ljust(24) + "alone, ms".rjust(20) + "after a program".rjust(20)]
            for peer in theirs:
                alone = process.name, peer, None
                after = cell((process.name, peer, PROGRAM), alone).rjust(20)
                lines.append(f"{peer:24}{cell(alone)}{after}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pin", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.threads, arguments.pin)
        return
    names = [name for name in PROCESSES if name != "peers" or find_spec("torch")]
    processes = [Process(name, arguments.threads, arguments.pin) for name in names]
    head = f"{where(arguments.threads)}; {distance()}; load {os.getloadavg()[0]:.1f}"
    head += "; pinned" * arguments.pin
    text = "\n".join(
        [
            head,
            "Least times (medians); ratios over the time alone, of NumPy's over that apart.",
            "",
            *table(measure(processes, arguments.rounds), processes),
        ]
    )
    for process in processes:
        process.close()
    print(text)
    if arguments.write:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "threads.txt").write_text(f"{text}\n")


if __name__ == "__main__":
    main()
