"""What is freed goes back to the system where it is asked to, and is kept otherwise."""

import functools
import gc
import mmap
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import lamina
from lamina.runtime import memory

MIB = 1 << 20
SIZE = 48 * MIB  # bytes of an array: what comes and goes meanwhile is far smaller, as are the heap's gaps

pytestmark = pytest.mark.skipif(not memory.keep_freed_blocks(), reason="the C library has no such settings")


def alone(test):
    """The test in a process of its own: what others loaded and freed is resident memory, too."""

    @functools.wraps(test)
    def run():
        code = f"import {test.__module__} as own; own.{test.__name__}.__wrapped__()"
        command, here = [sys.executable, "-c", code], Path(__file__).parent
        ran = subprocess.run(command, cwd=here, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr

    return run


def resident():
    """MiB of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / MIB


def array():
    return np.full(SIZE, 1, np.uint8)


def held_after(make):
    """MiB that are resident after arrays were made, between others that stay, and freed."""
    gc.collect()
    memory.give_back()
    before = resident()
    arrays, others = [], []
    for _ in range(4):
        arrays.append(make())
        others.append(np.full(100_000, 1, np.uint8))  # no gap is at the end
    arrays.clear()
    return resident() - before


@alone
def test_freed_blocks_are_kept_and_given_back_when_asked():
    kept = held_after(array)
    memory.give_back()
    assert kept > 90
    assert held_after(array) > 90
    with memory.giving_back():
        with memory.giving_back():
            pass
        assert held_after(array) < 10  # still open
    assert held_after(array) > 90


def advised(at):
    """Whether Linux was asked for huge pages of what has this address."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first = line.split()[0]
        if "-" in first:
            low, high = (int(end, 16) for end in first.split("-"))
            inside = low <= at < high
        elif inside and first == "VmFlags:":
            return "hg" in line.split()
    raise AssertionError(f"{at:x} is nowhere")


@pytest.mark.skipif(not hasattr(mmap, "MADV_HUGEPAGE"), reason="this system has no huge pages to ask for")
@alone
def test_arrays_lie_in_huge_pages():
    memory.give_back()
    arrays = [
        memory.empty((200_000,), np.dtype(np.float32)) for _ in range(400)
    ]  # the heap grows, several times
    told = [advised(memory.address(array)) for array in arrays[:: len(arrays) // 20]]
    assert all(told[-10:]), told  # what was there before Lamina was may be without


@alone
def test_a_large_arena_makes_kept_blocks_go_back():
    assert held_after(array) > 90
    before = resident()
    arena = memory.arena(32 * MIB)
    assert resident() - before < -80
    assert arena.nbytes == 32 * MIB


@alone
def test_memory_of_a_recorded_run_goes_back():
    def step(x):
        y = x
        for _ in range(6):
            y = (y * 1.5).tanh()
        return y.sum()

    lamina.jit.trace(step)(lamina.ones(8))  # what is loaded for it stays
    x = lamina.ones(1 << 22)
    x.sum()
    memory.give_back()
    before = resident()
    lamina.jit.trace(step)(x)
    assert resident() - before < 40  # three arrays of 16 MiB that are kept are 48
