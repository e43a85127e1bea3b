"""The first minutes on a machine with an NVIDIA GPU: what is there, whether all is right, what it costs.

    python benchmarks/gpu_first.py [--out gpu-first] [--minutes 4] [--only records] [--write]

Each step is a process of its own with a time limit, since one that loses the device loses its process, and
what it says is kept in a file.  Parts of arrays come first: a device is lost by one access that is not
aligned.  Then what checks runs side by side, and what is timed runs alone.  The exit status is 1 if a step
failed; the end of what each such step said is printed.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WHAT = """
import lamina, numpy, triton
from lamina.runtime.cuda.driver import Driver
driver = Driver.open()
device = driver.device()
free, total = device.memory()
print(f"lamina {lamina.__version__}, NumPy {numpy.__version__}, Triton {triton.__version__}")
print(f"CUDA {driver.version[0]}.{driver.version[1]}, {device!r}, {free >> 20} of {total >> 20} MiB free")
"""
TESTS = ("-m", "pytest", "-m", "cuda", "-q", "-p", "no:cacheprovider", "tests/gpu/test_cuda_device.py")
NUMERICS = ("tests/gpu/triton_numerics.py", "--device")
RECORDS = 6  # processes that share the records
END = 1500  # characters of what a step said that failed


@dataclass
class Step:
    """limit: in seconds.  alone: nothing else runs meanwhile."""

    name: str
    limit: float
    arguments: tuple[str, ...]
    alone: bool = False
    program: str = sys.executable


def steps(minutes: float, write: bool) -> list[Step]:
    kept = ("--write",) if write else ()
    found = [
        Step("what is there", 120, ("-c", WHAT), alone=True),
        Step("parts of arrays", 180, (*TESTS, "-x", "-k", "parts"), alone=True),
        Step("driver, probes, programs", 300, (*TESTS, "-k", "not parts")),
        Step("families", 240, (*NUMERICS, "families")),
        Step("graphs", 240, (*NUMERICS, "fuzz", "0", "60")),
        Step("graphs of records", 240, (*NUMERICS, "graphs")),
        Step("attention", 240, (*NUMERICS, "attention")),
        Step("outside", 240, (*NUMERICS, "outside")),
        *(Step(f"records {k}", 240, (*NUMERICS, "records", f"{k}/{RECORDS}")) for k in range(RECORDS)),
        Step("tiles", 60 * minutes, ("benchmarks/gpu_tiles.py", *kept), alone=True),
        Step("tiles of attention", 60 * minutes, ("benchmarks/gpu_attention.py", *kept), alone=True),
        Step(
            "kernels", 60 * minutes + 60, ("benchmarks/gpu.py", "--minutes", str(minutes), *kept), alone=True
        ),
        Step("host", 60, ("benchmarks/gpu_host.py", *kept), alone=True),
    ]
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer:
        told = ("--tool", "memcheck", "--error-exitcode", "1", sys.executable, *NUMERICS, "families")
        found.append(Step("memcheck", 60 * minutes, told, program=sanitizer))
    return found


class Running:
    def __init__(self, step: Step, out: Path):
        self.step, self.begin = step, time.monotonic()
        self.path = out / f"{step.name.replace(', ', '-').replace(' ', '-')}.txt"
        with self.path.open("w") as file:
            self.process = subprocess.Popen(
                [step.program, *step.arguments], cwd=ROOT, stdout=file, stderr=subprocess.STDOUT
            )

    def finish(self) -> bool:
        """Say how it ended; returns whether it went well."""
        spent = time.monotonic() - self.begin
        try:
            status: object = self.process.wait(max(self.step.limit - spent, 0.1))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            status = f"stopped after {self.step.limit:.0f} s"
        spent = time.monotonic() - self.begin
        print(f"{self.step.name}: {'ok' if status == 0 else status} ({spent:.0f} s) {self.path}", flush=True)
        if status:
            print("    " + self.path.read_text()[-END:].replace("\n", "\n    "), flush=True)
        return status == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("gpu-first"), help="the folder for what is said")
    parser.add_argument("--minutes", type=float, default=4.0, help="for each of the tables of times")
    parser.add_argument("--only", action="append", help="steps whose names begin so")
    parser.add_argument("--write", action="store_true", help="put the tables into benchmarks/results")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    good, together = True, []
    for step in steps(options.minutes, options.write):
        if options.only and not step.name.startswith(tuple(options.only)):
            continue
        if step.alone:
            good = all([running.finish() for running in together]) and good
            together = []
            good = Running(step, options.out).finish() and good
        else:
            together.append(Running(step, options.out))
    good = all([running.finish() for running in together]) and good
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
