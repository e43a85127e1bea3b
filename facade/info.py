"""Describe the installation and the machine: what to put into a report of a bug."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ..ir.version import __version__
from ..runtime import get_num_threads

LIBRARIES = ("numpy", "ml_dtypes", "safetensors", "networkx", "llvmlite", "triton", "cuda-bindings", "torch")
# What the code generator asks about, of all that a CPU can do.
FEATURES = (
    "sse4_2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512_bf16", "avx512_fp16",
    "amx_bf16", "asimd", "asimdhp", "bf16", "sve", "sve2",
)  # fmt: skip


def _fields(path: str) -> dict[str, str]:
    """The first value of each `name: value` line of a file under /proc; nothing where there is none."""
    try:
        lines = Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    found: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if colon:
            found.setdefault(name.strip(), value.strip())
    return found


def get_pretty_env_info() -> str:
    """What to put into a report of a bug, as torch.utils.collect_env tells it."""
    return spelled()


# ---- torch.utils.collect_env's, which reports of tests call -----------------------------------------------
def run(command: Any) -> tuple[int, str, str]:
    """Run a command, a text by the shell: its exit status, and what it printed and said of errors."""
    made = subprocess.run(command, shell=isinstance(command, str), capture_output=True, text=True)
    return made.returncode, made.stdout.strip(), made.stderr.strip()


def _answer(run_lambda: Callable, command: str) -> str | None:
    status, printed, _ = run_lambda(command)
    return printed if status == 0 else None


def get_cpu_info(run_lambda: Callable) -> str | None:
    """The CPU in lines of `name: value`; None where lscpu is not there."""
    return _answer(run_lambda, "lscpu")


def get_gpu_info(run_lambda: Callable) -> str | None:
    """The GPUs, a line for each; None where there are none."""
    return _answer(run_lambda, "nvidia-smi -L")


def get_nvidia_driver_version(run_lambda: Callable) -> str | None:
    """The version of the driver of GPUs; None where there is none."""
    found = _answer(run_lambda, "nvidia-smi --query-gpu=driver_version --format=csv,noheader")
    return found.splitlines()[0] if found else None


def get_gcc_version(run_lambda: Callable) -> str | None:
    """The version of gcc; None where it is not there."""
    return _answer(run_lambda, "gcc -dumpfullversion")


def _installed(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return "not installed"


def facts() -> dict[str, str]:
    """What is installed and what the machine is, by name.  Loads none of the libraries it names."""
    cpu, memory = _fields("/proc/cpuinfo"), _fields("/proc/meminfo")
    has = set((cpu.get("flags") or cpu.get("Features") or "").split())
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    found = {"lamina": __version__}
    found["python"] = f"{platform.python_version()} ({platform.python_implementation()})"
    found |= {library: _installed(library) for library in LIBRARIES}
    found |= {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpu": cpu.get("model name") or platform.processor() or "unknown",
        "features": " ".join(name for name in FEATURES if name in has) or "unknown",
        "cores": f"{usable} usable of {os.cpu_count()}; {get_num_threads()} threads for matrix products",
    }
    if {"MemTotal", "MemAvailable"} <= memory.keys():
        total, free = (
            int(memory[name].split()[0]) / 2**20 for name in ("MemTotal", "MemAvailable")
        )  # of KiB
        found["memory"] = f"{total:.1f} GiB, {free:.1f} GiB free"
    found["devices"] = "cpu"
    return found


def spelled() -> str:
    """The facts as aligned lines."""
    found = facts()
    width = max(map(len, found))
    return "\n".join(f"{name.ljust(width)}  {value}" for name, value in found.items())
