"""Times contenders against each other: in turn, in one process, each once untimed before it is timed.

There can be a pause before each: the threads of a rival spin for a while after its last call, and take a core
from whoever comes next.  A MobileNetV2 took 7.9 ms on two threads behind OpenVINO, 6.7 after 0.02 s, and 3.7
with no rival in the process.  Not much longer: on a virtual machine whose processors have slept for 0.1 s two
threads take longer than one for a while, whoever's they are (medians; EPYC "Zen 4", 2026-11-26).
"""

from __future__ import annotations

import gc
import os
import platform
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
PACKAGES = {"torch": "torch", "jax": "jax", "onnxruntime": "onnxruntime", "openvino": "openvino"}


@dataclass(frozen=True)
class Time:
    """Seconds of one call: the least, and the median."""

    least: float
    median: float


def race(
    contenders: Mapping[str, Callable[[], object]], seconds: float = 4.0, pause: float = 0.0
) -> dict[str, Time]:
    """Every contender's time, from rounds in which each runs once untimed and then timed.

    seconds: about how long all rounds together may take; there are 5 to 200, 10 to 50 with pauses.  pause:
    seconds before each of them.  Calls too short for the clock are repeated within a round.
    """
    once = {}
    for name, call in contenders.items():
        call(), call()
        start = time.perf_counter()
        call()
        once[name] = time.perf_counter() - start
    inner = {name: max(1, min(1000, int(0.002 / max(t, 1e-7)))) for name, t in once.items()}
    spent = sum(2 * once[name] * inner[name] for name in contenders)
    least, most = (10, 50) if pause else (5, 200)
    rounds = max(least, min(most, int(seconds / max(spent, 1e-6))))
    found: dict[str, list[float]] = {name: [] for name in contenders}
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            for name, call in contenders.items():
                repeats = range(inner[name])
                time.sleep(pause)
                call()
                start = time.perf_counter()
                for _ in repeats:
                    call()
                found[name].append((time.perf_counter() - start) / len(repeats))
    finally:
        gc.enable()
    return {name: Time(min(times), statistics.median(times)) for name, times in found.items()}


def hold_to(threads: int) -> None:
    """Keep this process to one core where there is to be one thread: jax takes no other word for it."""
    if threads == 1:
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def on_each(program: str, threads: Sequence[int], rest: Sequence[str], into: Path | None) -> None:
    """Run a program with --here for each number of threads, in a process of its own, and print what it says.

    into: a file for all of that.
    """
    texts: list[str] = []
    for count in threads:
        command = [sys.executable, program, "--here", "--threads", str(count), *rest]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                print(line, end="", flush=True)
                texts.append(line)
        if process.returncode:
            sys.exit(process.returncode)
    if into is not None:
        into.write_text("".join(texts).lstrip())


def distance(rounds: int = 2000) -> str:
    """How far the cores are from each other: the time in which one thread wakes another and back.

    Virtual machines put their processors sometimes on one core complex and sometimes on two; all times on
    two threads shift with it, so tables of them say which.  Measured by two Python threads that hand a flag
    over, which is rough: under 15 us counts as near.
    """
    if len(os.sched_getaffinity(0)) < 2:
        return "one core"
    ping, pong = threading.Event(), threading.Event()

    def answer() -> None:
        for _ in range(rounds):
            ping.wait()
            ping.clear()
            pong.set()

    other = threading.Thread(target=answer)
    other.start()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        ping.set()
        pong.wait()
        pong.clear()
        times.append(time.perf_counter() - start)
    other.join()
    least = statistics.median(times) * 1e6
    return f"cores {'near' if least < 15 else 'far'} (a flag there and back: {least:.0f} us)"


def where(threads: int | None = None) -> str:
    """The machine, the versions and the day: the head of every table."""
    parts = [processor(), f"Python {platform.python_version()}"]
    for module, package in {"lamina": "lamina", "numpy": "numpy", "llvmlite": "llvmlite", **PACKAGES}.items():
        try:
            parts.append(f"{module} {version(package)}")
        except PackageNotFoundError:
            continue
    if threads is not None:
        parts.append(f"{threads} thread{'s' * (threads > 1)}")
    return ", ".join([*parts, str(date.today())])


def processor() -> str:
    """The processor's name, as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0]} ({len(names)} cores)" if names else platform.machine()
