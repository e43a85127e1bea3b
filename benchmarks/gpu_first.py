"""The first minutes on a machine with an NVIDIA GPU: what is there, whether all is right, what it costs.

    python benchmarks/gpu_first.py [--out gpu-first] [--minutes 8]

Steps run one after the other, each in a process of its own with a time limit, since one that loses the device
loses its process; what each says is kept in a file.  Parts of arrays come first: a device is lost by one
access that is not aligned.  The exit status is 1 if a step failed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
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
TESTS = ("-m", "pytest", "-m", "cuda", "--require-passed", "-q", "-x", "-p", "no:cacheprovider")


def steps(minutes: float) -> dict[str, tuple[float, list[str]]]:
    """By name, each step's limit in seconds and what Python is called with."""
    return {
        "what is there": (120, ["-c", WHAT]),
        "parts of arrays": (180, [*TESTS, "tests/gpu/test_cuda_device.py", "-k", "parts"]),
        "the driver and every probe": (300, [*TESTS, "tests/gpu/test_cuda_device.py"]),
        "kernels of every family": (60 * minutes + 300, ["benchmarks/gpu.py", "--minutes", str(minutes)]),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("gpu-first"), help="the folder for what is said")
    parser.add_argument("--minutes", type=float, default=8.0, help="for the kernels' times")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    failed = 0
    for number, (name, (limit, arguments)) in enumerate(steps(options.minutes).items(), 1):
        path, begin = options.out / f"{number}-{name.replace(' ', '-')}.txt", time.monotonic()
        with path.open("w") as file:
            try:
                status = subprocess.run(
                    [sys.executable, *arguments],
                    cwd=ROOT,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    timeout=limit,
                ).returncode
            except subprocess.TimeoutExpired:
                status = f"stopped after {limit:.0f} s"
        failed += status != 0
        print(
            f"{name}: {'ok' if status == 0 else status} ({time.monotonic() - begin:.0f} s) {path}", flush=True
        )
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
