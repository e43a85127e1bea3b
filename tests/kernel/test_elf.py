"""Shared objects made without a linker: they load, call other libraries, and refuse what they can't hold."""

import ctypes

import pytest

from lamina.ir.errors import KernelError
from lamina.passes.llvm.binding import emit_position_independent
from lamina.passes.llvm.elf import shared_object
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
