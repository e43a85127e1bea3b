"""Two checkouts of Lamina against each other: the traced networks and small calls of both, in turn; or the
single kernels of kernel_cases.py.

    python benchmarks/before.py OTHER [--threads 1 2] [--only resnet18 gpt] [--starts 14] [--write]
    python benchmarks/before.py OTHER --kernels [gemm conv] [--threads 1]

OTHER is a folder with another checkout.  Each has a process of its own, which holds one thing to time at a
time and times it when it is told to; they take turns, the first of each turn too.  Then both start again, in
the other order: how memory lies in one process is worth 10 % to some rows, whichever version it runs.  The
ratio is OTHER's time over this one's (less than 1: this one is slower): of the least of all, and the median
of what each pair of processes says by its least times.  A row is "behind" where this one was slower in so
many of the pairs that equal versions would be once in a hundred times (a sign test), and by 1 % or more.
"""

from __future__ import annotations

import argparse
import math
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
SECONDS = 0.1  # of calls, for each turn
CHANCE, SLOWER = 0.01, 0.99  # of equal versions, and the ratio: what "behind" is


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
        print(min(times), flush=True)


# ---- in the process that asks ------------------------------------------------------------------------------
def started(checkout: Path, place: Path, threads: int) -> subprocess.Popen:
    """A process of that checkout, which is `lamina` in a folder of its own and has its cache there."""
    if not place.exists():
        place.mkdir()
        (place / "lamina").symlink_to(checkout)
    environment = os.environ | {"PYTHONPATH": str(place), "LAMINA_CACHE_DIR": str(place / "cache")}
    command = [sys.executable, __file__, "--serve", str(threads)]
    return subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=place
    )


def asked(process: subprocess.Popen, wanted: str) -> float:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(wanted + "\n")
    process.stdin.flush()
    return float(process.stdout.readline())


Times = dict[str, list[list[float]]]  # of each row: for the other one and this one, the least of each process


def taken(other: Path, threads: int, rows: list[str], starts: int) -> Times:
    """The least time of every row in each of the processes, which start in pairs."""
    times: Times = {row: [[], []] for row in rows}
    with tempfile.TemporaryDirectory(prefix="lamina-before-") as folder:
        places = (other, Path(folder, "other")), (HERE.parent, Path(folder, "this"))
        for start in range(starts):
            order = (0, 1) if start % 2 else (1, 0)
            pair = {n: started(*places[n], threads) for n in order}
            for row in rows:
                turns = [(n, asked(pair[n], row)) for n in (*order, *reversed(order))]
                for n in order:
                    times[row][n].append(min(time for who, time in turns if who == n))
            for process in pair.values():
                assert process.stdin is not None
                process.stdin.close()
                process.wait()
            print(f"pair {start + 1} of {starts}, {threads} threads", file=sys.stderr, flush=True)
    return times


def chance(slower: int, pairs: int) -> float:
    """That of two equal versions one is the slower in so many of the pairs, or in more."""
    return sum(math.comb(pairs, n) for n in range(slower, pairs + 1)) / 2**pairs


def judged(times: Times, threads: int) -> tuple[list[str], list[str]]:
    """A line for each row, and the rows where this version is behind."""
    lines, behind = [], []
    for row, (before, now) in times.items():
        ratio = statistics.median(b / n for b, n in zip(before, now, strict=True))
        slower = sum(b < n for b, n in zip(before, now, strict=True))
        if chance(slower, len(now)) <= CHANCE and ratio <= SLOWER:
            behind.append(row)
        lines.append(
            f"{named(row):<34}{threads:>8}{min(before) * 1e3:>11.4f}{min(now) * 1e3:>11.4f}"
            f"{min(before) / min(now):>9.3f}{ratio:>9.3f}{slower:>7} of {len(now)}"
            f"{'  behind' * (row in behind)}".rstrip()
        )
        print(lines[-1], flush=True)
    return lines, behind


def compared(other: Path, threads: int, rows: list[str], starts: int) -> list[str]:
    """The lines of all rows; of those that were behind once more, by twice as many processes.

    Of a hundred rows of equal versions one looks to be behind; hardly one does so twice.
    """
    lines, behind = judged(taken(other, threads, rows, starts), threads)
    if behind:
        lines.append(f"once more, {2 * starts} pairs of processes for those behind:")
        print(lines[-1], flush=True)
        lines += judged(taken(other, threads, behind, 2 * starts), threads)[0]
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
    parser.add_argument("--starts", type=int, default=14, help="processes of each checkout (14)")
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
        f"{'ms':<34}{'threads':>8}{'before':>11}{'now':>11}{'least':>9}{'pairs':>9}  slower in",
    ]
    print("\n".join(head), flush=True)
    lines = [line for n in arguments.threads for line in compared(other, n, rows, arguments.starts)]
    if arguments.write:
        file = "before.txt" if arguments.kernels is None else "before_kernels.txt"
        (RESULTS / file).write_text("\n".join([*head, *lines]) + "\n")


if __name__ == "__main__":
    main()
