"""Fourier transforms beside PyTorch's and NumPy's, by each library that is installed.

python benchmarks/fft.py [--threads N] [--seconds S] [--write]

Calls take turns, and of each the least time and the middle one are told.  With one thread the times are those
that the thread itself has run, which others on the machine lengthen less than the clock's.
"""

from __future__ import annotations

import argparse
import datetime
import platform
import time
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

import lamina
from lamina.ir import transforms

RESULTS = Path(__file__).parent / "results" / "fft.md"
CASES = (
    ("fft", (64,)), ("rfft", (8, 64)), ("fft", (64, 1024)), ("rfft", (64, 1024)), ("irfft", (64, 513)),
    ("fft2", (8, 128, 128)), ("rfft2", (8, 128, 128)), ("rfft2", (32, 256, 256)), ("irfft2", (32, 256, 129)),
    ("fft2", (32, 256, 256)),
)  # fmt: skip


def machine() -> str:
    with open("/proc/cpuinfo") as file:
        name = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), "?")
    return f"{name}, {platform.system()}"


def measured(functions: dict, seconds: float, clock) -> dict[str, tuple[float, float]]:
    """The least and the middle time of each, in microseconds."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    for function in functions.values():
        function()
    end, rounds = time.perf_counter() + seconds, 0
    while rounds < 5 or (time.perf_counter() < end and rounds < 2000):
        for name, function in functions.items():
            start = clock()
            function()
            times[name].append(clock() - start)
        rounds += 1
    return {name: (min(t) * 1e6, sorted(t)[len(t) // 2] * 1e6) for name, t in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1.0, help="for each case")
    parser.add_argument("--write", action="store_true", help=f"add to {RESULTS.name}")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    lamina.set_num_threads(options.threads)
    clock = time.thread_time if options.threads == 1 else time.perf_counter
    libraries = ["numpy", *(name for name in ("ducc0", "mkl_fft") if find_spec(name))]
    lines = [
        f"## {datetime.date.today()}, {options.threads} thread{'s' * (options.threads > 1)}", "",
        f"{machine()}; torch {torch.__version__}, "
        + ", ".join(f"{name} {version(name)}" for name in libraries)
        + f"; times of the {'thread' if clock is time.thread_time else 'clock'}, us: least (middle), "
        "and the least by PyTorch's.", "",
        "| transform | torch | np.fft | " + " | ".join(f"Lamina, {name}" for name in libraries) + " |",
        "|---|" + "--:|" * (2 + len(libraries)),
    ]  # fmt: skip
    rng = np.random.default_rng(0)
    for name, shape in CASES:
        array = rng.standard_normal(shape).astype(np.float32)
        if not name.startswith("r"):
            array = (array + 1j * rng.standard_normal(shape)).astype(np.complex64)
        x, t = lamina.from_numpy(array), torch.from_numpy(array)
        theirs, ours, numpys = (getattr(m.fft, name) for m in (torch, lamina, np))

        def by(library: str, ours=ours, x=x):
            chosen = transforms.library(library)

            def call():
                transforms._chosen = lambda: chosen
                return ours(x)

            return call

        functions = {"torch": lambda: theirs(t), "np.fft": lambda: numpys(array)}  # noqa: B023
        functions |= {library: by(library) for library in libraries}
        found = measured(functions, options.seconds, clock)
        base = found["torch"][0]
        cells = [f"{least:.1f} ({middle:.1f}), {least / base:.2f}" for least, middle in found.values()]
        lines.append(f"| {name} {list(shape)} | " + " | ".join(cells) + " |")
        print(lines[-1], flush=True)
    if options.write:
        known = (
            RESULTS.read_text()
            if RESULTS.exists()
            else "# Fourier transforms\n\n`python benchmarks/fft.py`\n"
        )
        RESULTS.write_text(known.rstrip("\n") + "\n\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
