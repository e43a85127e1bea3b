"""Shared objects made without a linker: they load, call other libraries, and refuse what they can't hold."""

import ctypes
import subprocess
import sys

import pytest

from lamina.ir.errors import KernelError
from lamina.passes.llvm.binding import emit_position_independent
from lamina.passes.llvm.elf import shared_object, undefined
from lamina.passes.llvm.elf_machines import MACHINES
from lamina.passes.schedules.target import BASELINE

TEXTS = (
    """
@table = internal constant [4 x double] [double 1.0, double 2.0, double 4.0, double 8.0]
@count = internal global i64 40
@names = internal constant [2 x ptr] [ptr @table, ptr @count]
declare double @cos(double)
define double @powers(i64 %i) {
  %p = getelementptr double, ptr @table, i64 %i
  %v = load double, ptr %p
  %c = call double @cos(double 0.0)
  %s = fadd double %v, %c
  ret double %s
}
define i64 @counted() {
  %at = getelementptr ptr, ptr @names, i64 1
  %where = load ptr, ptr %at
  %n = load i64, ptr %where
  %m = add i64 %n, 1
  store i64 %m, ptr %where
  ret i64 %m
}
""",
    """
declare i64 @counted()
define i64 @twice() {
  %a = call i64 @counted()
  %b = call i64 @counted()
  %s = add i64 %a, %b
  ret i64 %s
}
""",
)


@pytest.fixture(scope="module")
def data() -> bytes:
    return emit_position_independent(TEXTS, BASELINE)


def test_a_shared_object_loads_and_runs(data, tmp_path):
    path = tmp_path / "made.so"
    path.write_bytes(shared_object(data, ["powers", "twice"], "made.so"))
    library = ctypes.CDLL(str(path))
    library.powers.restype, library.powers.argtypes = ctypes.c_double, [ctypes.c_int64]
    assert [library.powers(i) for i in range(4)] == [2.0, 3.0, 5.0, 9.0]  # constants, and cos(0) of libm
    library.twice.restype = ctypes.c_int64
    assert library.twice() == 41 + 42  # written data, through a pointer that is relocated at load
    with pytest.raises(AttributeError):
        library.counted  # not exported  # noqa: B018


def test_what_is_missing_is_named(data):
    with pytest.raises(KernelError, match="absent"):
        shared_object(data, ["powers", "absent"], "made.so")


def test_only_objects_are_taken(data, tmp_path):
    with pytest.raises(KernelError, match="relocatable"):
        shared_object(b"\x7fELF\x02\x01" + bytes(60), [], "made.so")
    with pytest.raises(KernelError, match="relocatable"):
        shared_object(shared_object(data, ["powers"], "made.so"), ["powers"], "again.so")


def test_objects_are_joined_by_the_symbols_that_they_lack(tmp_path):
    """What several define is each one's own; constants and machine code come from outside."""
    level = """
define void @kernel(ptr %to) {{
  store i64 {number}, ptr %to
  ret void
}}
define hidden i64 @level{number}() {{
  %place = alloca i64
  call void @kernel(ptr %place)
  %value = load i64, ptr %place
  ret i64 %value
}}
"""
    base = """
declare hidden i64 @level1()
declare hidden i64 @level2()
declare hidden i64 @seven()
declare extern_weak i64 @nobody_defines_this()
@constants = external hidden constant i8
@table = internal constant [2 x ptr] [ptr @level1, ptr @level2]
@count = internal global i64 0
define i64 @both(i64 %which) {
  %at = getelementptr ptr, ptr @table, i64 %which
  %function = load ptr, ptr %at
  %value = call i64 %function()
  %seven = call i64 @seven()
  %before = load i64, ptr @count
  %after = add i64 %before, %value
  store i64 %after, ptr @count
  %sum = mul i64 %after, %seven
  ret i64 %sum
}
define ptr @where() {
  ret ptr @constants
}
define i1 @there() {
  %is = icmp ne ptr @nobody_defines_this, null
  ret i1 %is
}
"""
    objects = [
        emit_position_independent([text], BASELINE)
        for text in (base, level.format(number=1), level.format(number=2))
    ]
    names = ["both", "where", "there"]
    with pytest.raises(KernelError, match="does not define nothing_of_theirs"):
        shared_object(objects, ["nothing_of_theirs"], "joined.so")
    made = shared_object(
        objects, names, "joined.so", ("libc.so.6",),
        {"constants": b"kept on a page of its own"}, {"seven": bytes.fromhex("b807000000 c3")},
    )  # fmt: skip
    path = tmp_path / "joined.so"
    path.write_bytes(made)
    library = ctypes.CDLL(str(path))
    library.both.restype, library.both.argtypes = ctypes.c_int64, [ctypes.c_int64]
    assert [library.both(0), library.both(1)] == [7 * 1, 7 * (1 + 2)]
    library.where.restype = ctypes.c_void_p
    assert library.where() % 4096 == 0
    assert ctypes.string_at(library.where(), 4) == b"kept"
    library.there.restype = ctypes.c_bool
    assert library.there() is False
    assert undefined(objects[1]) == set()
    assert undefined(objects[0]) == {"level1", "level2", "seven", "constants", "nobody_defines_this"}


def test_what_the_loader_filled_in_is_read_only(data, tmp_path):
    """Pointers in constants and the table of offsets are no place to write to; data is."""
    path = tmp_path / "filled.so"
    path.write_bytes(shared_object(data, ["twice"], "filled.so"))
    program = f"""
import ctypes, re
library = ctypes.CDLL({str(path)!r})
library.twice()
for line in open("/proc/self/maps"):
    if "filled.so" in line:
        print(line.split()[1])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["r--p", "r-xp", "r--p", "rw-p"]


def test_code_that_is_too_far_from_its_constants_is_refused():
    machine = MACHINES[62]
    with pytest.raises(KernelError, match="more than 2 GiB away"):
        machine.fill(bytearray(8), 2, 0, 1 << 31)
