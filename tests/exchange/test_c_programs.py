"""Programs in C, C++, Rust and Go with a model's library: they build, run and find what Lamina finds."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest

import lamina
from lamina import jit
from lamina.jit.artifact import levels_here

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "c_library"
MISUSE = Path(__file__).with_name("misuse.c")
RPATH = "-Wl,-rpath,$ORIGIN"
# The symbols that libraries may take from elsewhere.
FOREIGN = {
    "malloc", "free", "memcpy", "memset", "sched_yield", "sched_getcpu", "syscall", "getpid", "sigprocmask",
    "pthread_create", "pthread_join",
}  # fmt: skip
BESIDE = {"open", "lseek", "mmap", "munmap", "close"}
_SPEC = spec_from_file_location("write_digits", EXAMPLES / "write_digits.py")
assert _SPEC is not None and _SPEC.loader is not None
write_digits = module_from_spec(_SPEC)
_SPEC.loader.exec_module(write_digits)
x86 = pytest.mark.skipif("x86-64-v3" not in levels_here(), reason="the machine does not run x86-64-v3")


def needs(*tools: str):
    missing = [tool for tool in tools if shutil.which(tool) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


def said(*command: str | Path, folder: Path, **environment: str) -> str:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, env={**os.environ, **environment}
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def model():
    return write_digits.network().eval()


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    """The library, its header and the examples; two levels that most machines and tools have."""
    made = tmp_path_factory.mktemp("c_library")
    levels = [level for level in ("x86-64-v3", "x86-64-v2") if level in levels_here()]
    write_digits.write(model, made, levels or levels_here())
    for file in EXAMPLES.glob("main.*"):
        shutil.copy(file, made)
    return made


def picture_scores(model) -> str:
    rows = re.findall(r'"([.#]{8})"', (EXAMPLES / "main.c").read_text())
    pixels = np.array([[mark == "#" for mark in row] for row in rows], np.float32)
    with lamina.no_grad():
        scores = model(lamina.tensor(pixels[None, None])).numpy()[0]
    return scores


def agrees(printed: str, wanted: np.ndarray) -> None:
    first, *_ = printed.splitlines()
    found = np.array([float(x) for x in first.split()[: wanted.size]])
    assert np.abs(found - wanted.ravel()).max() < 2e-4  # four places are printed


@needs("gcc")
def test_a_program_in_c(folder, model):
    flags = "-std=c99", "-Wall", "-Wextra", "-Wconversion", "-pedantic", "-Werror"
    said("gcc", *flags, "main.c", "digits.so", RPATH, "-o", "from_c", folder=folder)
    agrees(said("./from_c", folder=folder), picture_scores(model))


@needs("g++")
def test_the_header_is_one_of_cpp(folder, model):
    flags = "-std=c++11", "-Wall", "-Wextra", "-pedantic", "-Werror"
    shutil.copy(folder / "main.c", folder / "main.cpp")
    said("g++", *flags, "main.cpp", "digits.so", RPATH, "-o", "from_cpp", folder=folder)
    agrees(said("./from_cpp", folder=folder), picture_scores(model))


@needs("rustc")
def test_a_program_in_rust(folder, model):
    link = "-L", ".", "-l", "dylib:+verbatim=digits.so", "-C", f"link-arg={RPATH}"
    said("rustc", "main.rs", *link, "-o", "from_rust", folder=folder)
    agrees(said("./from_rust", folder=folder), picture_scores(model))


@needs("go", "gcc")
def test_a_program_in_go(folder, model, tmp_path):
    flags = f"{folder}/digits.so -Wl,-rpath,{folder}"
    said(
        "go", "build", "-o", "from_go", "main.go", folder=folder,
        CGO_LDFLAGS=flags, GOCACHE=str(tmp_path / "go"), GO111MODULE="off", CGO_ENABLED="1",
    )  # fmt: skip
    agrees(said("./from_go", folder=folder), picture_scores(model))


def wanted_of_misuse(model) -> np.ndarray:
    images = (np.arange(5 * 64) % 17 / 16).astype(np.float32).reshape(5, 1, 8, 8)
    with lamina.no_grad():
        return model(lamina.tensor(images)).numpy()


@needs("gcc", "valgrind")
@x86
def test_misuse_under_valgrind(folder, model):
    said("gcc", "-g", "-I.", str(MISUSE), "digits.so", RPATH, "-lpthread", "-o", "misuse", folder=folder)
    command = "valgrind", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=all", "-q"
    printed = said(*command, "./misuse", folder=folder)
    agrees(printed, wanted_of_misuse(model))
    assert printed.split()[-1] == "x86-64-v3"


@needs("gcc", "qemu-x86_64")
@x86
@pytest.mark.parametrize(
    ("cpu", "found"),
    [
        ("Haswell", "x86-64-v3"),
        ("Haswell,-bmi2", "x86-64-v2"),
        ("Nehalem", "x86-64-v2"),
        ("core2duo", "the CPU is none of x86-64-v3, x86-64-v2"),
        ("Nehalem,-popcnt", "the CPU is none of x86-64-v3, x86-64-v2"),
    ],
)
def test_the_level_is_chosen_by_what_a_cpu_has(folder, cpu, found):
    said("gcc", "-I.", str(MISUSE), "digits.so", RPATH, "-lpthread", "-o", "levels", folder=folder)
    assert said("qemu-x86_64", "-cpu", cpu, "./levels", "cpu", folder=folder).strip() == found


@needs("gcc", "qemu-x86_64")
@x86
def test_a_cpu_of_the_least_level_runs(folder, model):
    said("gcc", "-I.", str(MISUSE), "digits.so", RPATH, "-lpthread", "-o", "least", folder=folder)
    printed = said("qemu-x86_64", "-cpu", "Nehalem", "./least", folder=folder)
    agrees(printed, wanted_of_misuse(model))


@needs("aarch64-linux-gnu-gcc", "qemu-aarch64")
def test_a_program_for_aarch64(folder, model, tmp_path):
    write_digits.write(model, tmp_path, ["armv8-a"])
    flags = "-I.", str(MISUSE), "digits.so", RPATH, "-lpthread", "-o", "for_arm"
    said("aarch64-linux-gnu-gcc", *flags, folder=tmp_path)
    printed = said("qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", "./for_arm", folder=tmp_path)
    agrees(printed, wanted_of_misuse(model))
    assert printed.split()[-1] == "armv8-a"


# ---- the file
@needs("readelf")
def test_a_library_needs_the_c_library_alone(folder, model, tmp_path):
    jit.export(
        model, tmp_path / "beside.so", lamina.zeros(1, 1, 8, 8),
        levels=levels_here()[:1], weights=tmp_path / "beside.weights",
    )  # fmt: skip
    for path, foreign in ((folder / "digits.so", FOREIGN), (tmp_path / "beside.so", FOREIGN | BESIDE)):
        dynamic = said("readelf", "-dW", str(path), folder=folder)
        assert re.findall(r"NEEDED.*\[(.*)\]", dynamic) == ["libc.so.6"]
        assert "TEXTREL" not in dynamic
        symbols = said("readelf", "--dyn-syms", "-W", str(path), folder=folder)
        missing = {
            line.split()[-1] for line in symbols.splitlines() if " UND " in line and len(line.split()) > 7
        }
        assert missing <= foreign
        offered = [
            line.split()[-1] for line in symbols.splitlines() if " DEFAULT " in line and " UND " not in line
        ]
        assert offered and all(name.startswith(f"{path.stem}_") for name in offered)
        for line in said("readelf", "-SW", str(path), folder=folder).splitlines():
            flags = re.match(r"\s+\[ ?\d+\] \.\S+\s+\S+\s+\w+\s+\w+\s+\w+\s+\w+\s+([A-Z]+)", line)
            assert flags is None or not {"W", "X"} <= set(flags[1]), line
        segments = said("readelf", "-lW", str(path), folder=folder)
        assert "RWE" not in segments and "GNU_RELRO" in segments and "GNU_STACK" in segments


def test_weights_are_read_only_and_begin_on_a_page(tmp_path):
    """Several processes share them: what is written lies elsewhere."""
    weight = lamina.randn(3000)
    path = tmp_path / "sum.so"
    jit.export(lambda x: x + weight, path, lamina.zeros(3000), levels=levels_here()[:1])
    at = path.read_bytes().index(weight.numpy().tobytes())
    assert at % 4096 == 0
    look = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
for line in open("/proc/self/maps"):
    if line.rstrip().endswith("sum.so"):
        span, mode, start, *_ = line.split()
        low, high = (int(x, 16) for x in span.split("-"))
        print(mode, int(start, 16), int(start, 16) + high - low)
"""
    printed = said(sys.executable, "-c", look, str(path), folder=tmp_path).splitlines()
    parts = [(mode, int(start), int(end)) for mode, start, end in map(str.split, printed)]
    assert {mode for mode, _, _ in parts} <= {"r--p", "r-xp", "rw-p"}
    assert [mode for mode, start, end in parts if start <= at < end][0] == "r--p"
