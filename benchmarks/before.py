"""Two checkouts of Lamina against each other: the traced networks and small calls of both, in turn; or the
single kernels of kernel_cases.py.

    python benchmarks/before.py OTHER [--threads 1 2] [--only resnet18 gpt] [--rounds 12] [--write]
    python benchmarks/before.py OTHER --kernels [gemm conv] [--threads 1]

OTHER is a folder with another checkout.  Each has a process of its own, which holds one thing to time at a
time and times it when it is told to; they take turns, the first of each turn too, and half of the turns are
of processes that were started in the other order.  The ratio is OTHER's time over this one's (less than 1:
this one is slower), of the least and of the medians.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from time import perf_counter
from typing import Any

HERE = Path(__file__).resolve().parent
NETWORKS = ("mlp", "lenet", "lstm", "gpt", "mobilenet_v2", "resnet18")
JOBS = ("1", "8", "train")
STARTS = 6  # processes of each checkout
SECONDS = 0.15  # of calls, for each turn


# ---- in the process of one checkout ------------------------------------------------------------------------
def timed(name: str, job: str) -> Any:
    """The call to time: a traced network's, on a batch; its training step; or that of a small function."""
    import models
    from networks import CASES

    import lamina

    if name == "small":
        x, traced = lamina.ones(4), lamina.jit.trace(lambda x, y: x * y + x)
        return lambda: traced(x, x)
    if name == "kernel":
        return kernel(int(job))
    case = CASES[name]
    if job == "train":
        model = models.made(case, lamina).train()
        optimizer = lamina.optim.Adam(model.parameters(), lr=1e-4)
        x = lamina.tensor(case.inputs(case.training, training=True))
        return training_step(model, optimizer, x, lamina.tensor(case.labels(case.training)))
    traced, x = lamina.jit.trace(models.made(case, lamina).eval()), lamina.tensor(case.inputs(int(job)))

    def infer():
        with lamina.no_grad():
            return traced(x)

    return infer


def training_step(model: Any, optimizer: Any, x: Any, y: Any, clipped: float | None = None) -> Any:
    """A traced step on one batch; clipped: the most that the gradients' norm may be."""
    import lamina

    @lamina.jit.trace
    def step():
        optimizer.zero_grad()
        out = model(x)
        loss = lamina.nn.functional.cross_entropy(out.reshape(-1, out.shape[-1]), y.reshape(-1))
        loss.backward()
        if clipped is not None:
            lamina.nn.utils.clip_grad_norm_(model.parameters(), clipped)
        optimizer.step()
        return loss

    return step


def every_kernel(sections: Iterable[str]) -> list[Any]:
    from kernel_cases import SECTIONS

    return [case for name in SECTIONS if name in sections for case in SECTIONS[name]()]


def kernel(number: int) -> Any:
    """A traced function of one kernel, in the names that users have."""
    import numpy as np
    from kernel_cases import SECTIONS

    import lamina

    functional = lamina.nn.functional

    class Library:
        linear, gelu = staticmethod(functional.linear), staticmethod(functional.gelu)

        def __getattr__(self, name: str) -> Any:
            return getattr(lamina, name)

        def conv(self, x, w, padding):
            return functional.conv2d(x, w, padding=padding)

        def conv_gradients(self, g, x, w, padding):
            with lamina.enable_grad():
                x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
                return lamina.autograd.grad(functional.conv2d(x, w, padding=padding), (x, w), g)

    case, rng = every_kernel(SECTIONS)[number], np.random.default_rng(0)
    arrays = [lamina.tensor(rng.standard_normal(shape, dtype=np.float32)) for shape in case.shapes]
    free = [n for n in range(len(arrays)) if n not in case.weights]  # weights are captured, as a module's

    def function(*given):
        operands = dict(enumerate(arrays)) | dict(zip(free, given, strict=True))
        return case.function(Library(), *operands.values())

    traced, given = lamina.jit.trace(function), [arrays[n] for n in free]

    def run():
        with lamina.no_grad():
            return traced(*given)

    run()
    assert traced.counts()["eager"] == 0, traced.explain()
    return run


def serve(threads: int) -> None:
    """Time what each line of the input names, until there are no more."""
    if threads == 1:  # both on one core: each would stay on its own, and one may be shared with a neighbour
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    import lamina

    lamina.set_num_threads(threads)
    known: dict[str, Any] = {}
    for line in sys.stdin:
        wanted = line.strip()
        if wanted not in known:
            known.clear()
            known[wanted] = call = timed(*wanted.split())
            for _ in range(12):  # recorded, compiled, and served by the quickest way there is
                call()
        call, times, end = known[wanted], [], perf_counter() + SECONDS
        call()
        while perf_counter() < end or not times:
            start = perf_counter()
            call()
            times.append(perf_counter() - start)
        print(json.dumps([min(times), statistics.median(times)]), flush=True)


# ---- in the process that asks ------------------------------------------------------------------------------
def started(checkout: Path, folder: Path, threads: int) -> subprocess.Popen:
    place = folder / checkout.name
    place.mkdir()
    (place / "lamina").symlink_to(checkout)
    environment = os.environ | {"PYTHONPATH": str(place), "LAMINA_CACHE_DIR": ""}
    command = [sys.executable, __file__, "--serve", str(threads)]
    return subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder
    )


def asked(process: subprocess.Popen, wanted: str) -> tuple[float, float]:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(wanted + "\n")
    process.stdin.flush()
    least, median = json.loads(process.stdout.readline())
    return least, median


def compared(other: Path, threads: int, rows: list[str], rounds: int) -> list[str]:
    """A line for each row.  Each checkout starts first half of the times.

    STARTS processes of each: how memory and stack lie in one is worth 8 % to some rows (mlp's training step).
    """
    times: dict[str, list[list[tuple[float, float]]]] = {row: [[], []] for row in rows}
    for first in (0, 1) * (STARTS // 2):
        with tempfile.TemporaryDirectory(prefix="lamina-before-") as temporary:
            folder = Path(temporary)
            (folder / "other").mkdir()
            places = (other, folder / "other"), (HERE.parent, folder)
            both = {n: started(*places[n], threads) for n in (first, 1 - first)}
            for row in rows:
                for turn in range(max(1, rounds // STARTS)):
                    for n in (0, 1) if turn % 2 else (1, 0):
                        times[row][n].append(asked(both[n], row))
            for process in both.values():
                assert process.stdin is not None
                process.stdin.close()
                process.wait()
    lines = []
    for row, found in times.items():
        least = [min(one for one, _ in own) for own in found]
        median = [statistics.median(one for _, one in own) for own in found]
        lines.append(
            f"{named(row):<34}{threads:>8}{least[0] * 1e3:>11.4f}{least[1] * 1e3:>11.4f}"
            f"{least[0] / least[1]:>9.3f}{median[0] / median[1]:>9.3f}"
        )
        print(lines[-1], flush=True)
    return lines


def named(row: str) -> str:
    """A row for people."""
    from kernel_cases import SECTIONS

    kind, number = row.split(" ", 1)
    return every_kernel(SECTIONS)[int(number)].name if kind == "kernel" else row


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("other", type=Path, nargs="?")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--only", nargs="+", default=list(NETWORKS))
    parser.add_argument("--kernels", nargs="*", help="single kernels, of these sections or of all")
    parser.add_argument("--rounds", type=int, default=12, help="turns of each (12)")
    parser.add_argument("--write", action="store_true", help="write benchmarks/results/before.txt")
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve is not None:
        serve(arguments.serve)
        return
    from contest import RESULTS, where

    def commit(checkout: Path) -> str:
        command = ["git", "-C", str(checkout), "rev-parse", "--short", "HEAD"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    other = arguments.other.resolve()
    rows = ["small call", *(f"{name} {job}" for name in arguments.only for job in JOBS)]
    if arguments.kernels is not None:
        from kernel_cases import SECTIONS

        wanted = arguments.kernels or SECTIONS
        names = [case.name for case in every_kernel(wanted)]
        rows = [f"kernel {n}" for n, case in enumerate(every_kernel(SECTIONS)) if case.name in names]
    head = [
        f"{where(max(arguments.threads))}; {commit(other)} over {commit(HERE.parent)}",
        f"{'ms':<34}{'threads':>8}{'before':>11}{'now':>11}{'least':>9}{'median':>9}",
    ]
    print("\n".join(head), flush=True)
    lines = [line for n in arguments.threads for line in compared(other, n, rows, arguments.rounds)]
    if arguments.write:
        file = "before.txt" if arguments.kernels is None else "before_kernels.txt"
        (RESULTS / file).write_text("\n".join([*head, *lines]) + "\n")


if __name__ == "__main__":
    main()
