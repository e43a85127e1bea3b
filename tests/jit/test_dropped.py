"""What traced functions leave behind once nobody holds them: nothing, but for tables that don't grow."""

import subprocess
import sys

import pytest

COMMON = """
import ctypes, functools, gc, os, sys
os.environ.update(LAMINA_CACHE_DIR="", LAMINA_NATIVE="1")
import lamina
from lamina.ir import memo
from lamina.jit import backend
from lamina.passes.programs import build_program
from lamina.passes import cache
from lamina.passes.graphs import compose, pieces

x, count = lamina.ones(8), 0

def trace_and_drop(n):
    global count
    for _ in range(n):
        count += 1
        c = count + 0.5
        f = lamina.jit.trace(lambda x: x * c + c)
        for _ in range(3):
            f(x)
        assert "2 compiled calls" in f.explain(detail=True)
    gc.collect()
"""

TABLES = """
def clear():
    memos = compose._kernels, compose._drafts, pieces._pieces, build_program._reading, backend._kept
    for table in (*memos, x._meta.scalars):
        table.clear()
    for function in gc.get_objects():
        if type(function) is functools._lru_cache_wrapper and function.cache_parameters()["maxsize"]:
            function.cache_clear()  # of those that hold any number nothing may grow
    cache.default()._memory.clear()
    gc.collect()

def left():
    clear()
    with open("/proc/self/maps") as maps:
        return len(gc.get_objects()), sum(1 for _ in maps)

trace_and_drop(10)
grown = []
for _ in range(3):  # what is left behind is so each time; memory that a thread takes for itself, once
    before = left()
    trace_and_drop(20)
    grown.append([b - a for a, b in zip(before, left())])
print(*map(min, zip(*grown)))
"""

SIZES = """
class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "top")]

library = ctypes.CDLL(None)
library.mallinfo2.restype = Info

def size():
    "Bytes of blocks in use, of Python's objects, and of what the system counts."
    info = library.mallinfo2()
    with open("/proc/self/statm") as file:
        resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return info.uordblks + info.hblkhd, resident

trace_and_drop(3 * memo.MEMO)  # the tables are full, and what they forgot is used again
before = size()
trace_and_drop(1000)
print([b - a < 1 << 20 for a, b in zip(before, size())], size(), before)
"""


def child(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", COMMON + code], capture_output=True, text=True, timeout=600)
    assert not done.returncode, done.stderr
    return done.stdout


@pytest.mark.sampled(3)
def test_a_dropped_function_leaves_no_object_and_no_code():
    objects, mapped = map(int, child(TABLES).split())
    assert objects < 20 and mapped <= 1  # less than one for each function: a dictionary that grew, an arena


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_thousand_dropped_functions_take_no_memory():
    assert child(SIZES).startswith("[True, True]")


def test_tables_forget_the_oldest():
    code = """
for n in range(2000):
    memo.remember(table := globals().setdefault("table", {}), n, str(n))
print(len(table), min(table), memo.remember(table, 7, "x"))
"""
    assert child(code).split() == ["512", "1488", "x"]
