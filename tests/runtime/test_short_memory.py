"""Little memory, few threads, no processes: code is compiled elsewhere or not at all, and nothing ends."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import lamina
from lamina import jit
from lamina.passes import cache as disk
from lamina.passes.llvm import binding, headroom
from lamina.passes.llvm.headroom import ShortError
from lamina.runtime import compiler as module
from lamina.runtime.compiler import Compiler

TEXTS = [
    f"define float @f{n}(float %x) {{\n  %y = fmul float %x, {n}.5\n  ret float %y\n}}\n" for n in range(3)
]


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch):
    monkeypatch.setattr(disk, "_default", disk.Cache(None))


@pytest.fixture
def little_left(monkeypatch):
    monkeypatch.setattr(headroom, "is_there", lambda nbytes: nbytes <= headroom.TO_BEGIN)


@pytest.fixture
def none_left(monkeypatch):
    monkeypatch.setattr(headroom, "is_there", lambda nbytes: False)


def objects(helpers: int = 0):
    with Compiler(binding.host_target(), disk.Cache(None), helpers) as compiler:
        for text in TEXTS:
            compiler.add(text)
        return compiler.objects(), len(compiler._helpers) + (compiler._other is not None)


def refuse(error):
    def refused(*args, **kwargs):
        raise error

    return refused


def test_without_memory_another_process_compiles(request):
    wanted, begun = objects()
    assert begun == 0
    request.getfixturevalue("little_left")
    assert objects() == (wanted, 1)


def test_without_memory_nothing_is_begun(none_left):
    with pytest.raises(ShortError, match="too little memory to write machine code"):
        objects()
    f = jit.trace(lambda x: (x * 2.75).relu() + 1)
    for _ in range(3):
        assert np.array_equal(f(x := lamina.linspace(-1, 1, 7)).numpy(), f.__wrapped__(x).numpy())
    assert "there is too little memory to record it" in f.explain(detail=True)


def test_what_was_not_begun_is_once_there_is_memory(monkeypatch):
    f, x = jit.trace(lambda x: (x * 2.25).relu() + 1), lamina.ones(7)
    with monkeypatch.context() as short:
        short.setattr(headroom, "is_there", lambda nbytes: False)
        f(x)
    f(x), f(x)
    assert "1 compiled call" in f.explain(detail=True)


def test_without_memory_and_processes_it_is_an_error(little_left, monkeypatch):
    monkeypatch.setattr(module.subprocess, "Popen", refuse(BlockingIOError(11, "no more")))
    with pytest.raises(ShortError, match="too little memory to compile machine code"):
        objects()


def test_a_process_that_ends_is_an_error(little_left, monkeypatch):
    monkeypatch.setattr(module.helper, "__file__", os.devnull)
    with pytest.raises(ShortError, match="too little memory"):
        objects()


def test_linking_without_memory_is_an_error(none_left):
    with pytest.raises(ShortError, match="too little memory to link machine code"):
        binding.Library([], binding.host_target())


def test_a_function_that_can_not_be_compiled_for_want_of_memory_runs_eagerly(little_left):
    f = jit.trace(lambda x: (x * 3.25).relu() + 1)
    x = lamina.linspace(-1, 1, 7)
    for _ in range(3):
        assert np.array_equal(f(x).numpy(), f.__wrapped__(x).numpy())
    assert "too little memory to link machine code" in f.explain(detail=True)


def test_without_threads_it_is_compiled(monkeypatch):
    wanted, _ = objects()
    monkeypatch.setattr(module, "WORTH_A_HELPER", 0)
    monkeypatch.setattr(threading.Thread, "start", refuse(RuntimeError("can't start new thread")))
    assert objects(helpers=2) == (wanted, 2)


def test_without_threads_the_background_is_here(monkeypatch):
    f = jit.trace(lambda x: (x * 4.25).relu() + 1, compile="background")
    monkeypatch.setattr(threading.Thread, "start", refuse(RuntimeError("can't start new thread")))
    for _ in range(3):
        assert np.array_equal(f(x := lamina.ones(3)).numpy(), f.__wrapped__(x).numpy())
    assert "2 compiled calls" in f.explain(detail=True)


def test_what_limits_memory_is_seen():
    code = """
import resource
from lamina.passes.llvm import headroom
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
print(headroom.is_there(64 << 20), headroom.is_there(1 << 60))
for limit in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
    resource.setrlimit(limit, (used + (32 << 20), -1))
    print(headroom.is_there(8 << 20), headroom.is_there(1 << 30))
    resource.setrlimit(limit, (-1, -1))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["True", "False"] * 3, done.stderr


def test_a_control_groups_limit_is_seen(tmp_path, monkeypatch):
    real = open
    files = {
        "memory.max": "1000",
        "memory.current": "900",
        "memory.stat": "inactive_file 20\nactive_file 3\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)

    def opened(path, *args, **kwargs):
        return real(str(path).replace("/sys/fs/cgroup", str(tmp_path)), *args, **kwargs)

    monkeypatch.setattr(headroom, "open", opened, raising=False)
    assert headroom._of_group() == 123
    (tmp_path / "memory.max").write_text("max\n")
    assert headroom._of_group() == float("inf")


CHILD = """
import resource, sys, warnings
warnings.simplefilter("ignore")
import lamina
from lamina import nn
lamina.ones(64, 64) @ lamina.ones(64, 64)
warm = lamina.jit.trace(lambda x: x * 3)
[warm(lamina.ones(3)) for _ in range(3)]
model = nn.Sequential(nn.Conv2d(4, 5, 3, padding=1), nn.BatchNorm2d(5), nn.GELU()).eval()
f, x = lamina.jit.trace(model), lamina.randn(1, 4, 16, 16)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + int(sys.argv[1]) * 1024, -1))
found = []
with lamina.no_grad():
    for _ in range(3):
        try:
            found.append(f(x))
        except (lamina.LaminaError, MemoryError) as error:
            print(type(error).__name__)
    resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
    assert all(lamina.allclose(y, model(x), atol=1e-4) for y in (*found, f(x)))
print("done")
"""
SLOW = [pytest.param(n, marks=pytest.mark.slow) for n in (64, 300, 2000, 4000, 9000, 20_000, 60_000)]


@pytest.mark.parametrize("kilobytes", [0, 1000, *SLOW])
def test_a_process_at_its_limit_goes_on(kilobytes):
    environment = os.environ | {"LAMINA_NATIVE": "1", "LAMINA_CACHE_DIR": ""}
    command = [sys.executable, "-X", "faulthandler", "-c", CHILD, str(kilobytes)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, env=environment)
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["done"]), done.stderr
