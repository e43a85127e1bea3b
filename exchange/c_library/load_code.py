"""Weights in a file beside the library, as LLVM text.

    i32 @NAME_load(ptr %path)   maps the file, if its size and hash are those of the weights

The file is mapped, not read: processes share its pages.  Threads may load at once; the first mapping stays,
for the life of the process.
"""

from __future__ import annotations

from .interface import Interface
from .weight_data import HASH, HASH_TEXT

AT = "lamina_weights_at"
_CLOSED, _NO_WAIT = 0o2000000, 0o4000  # O_CLOEXEC, O_NONBLOCK: a pipe would have us wait for its other end


def text(interface: Interface, size: int, digest: int) -> str:
    """The module.  size: bytes of the weights; digest: their hash (`weight_data.py`)."""
    code = interface.code
    return f"""
{HASH_TEXT}
@{AT} = hidden global ptr null
declare i32 @open(ptr, i32, ...)
declare i64 @lseek(i32, i64, i32)
declare ptr @mmap(ptr, i64, i32, i32, i32, i64)
declare i32 @munmap(ptr, i64)
declare i32 @close(i32)

define i32 @{interface.name}_load(ptr %path) nounwind {{
entry:
  %given = icmp ne ptr %path, null
  br i1 %given, label %look, label %null
null:
  ret i32 {code("NULL")}
look:
  %before = load atomic ptr, ptr @{AT} acquire, align 8
  %loaded = icmp ne ptr %before, null
  br i1 %loaded, label %done, label %open
done:
  ret i32 0
open:
  %file = call i32 (ptr, i32, ...) @open(ptr %path, i32 {_CLOSED | _NO_WAIT})
  %is.open = icmp sge i32 %file, 0
  br i1 %is.open, label %measure, label %no.file
no.file:
  ret i32 {code("FILE")}
measure:
  %size = call i64 @lseek(i32 %file, i64 0, i32 2)
  %same.size = icmp eq i64 %size, {size}
  br i1 %same.size, label %map, label %other
other:
  %closed = call i32 @close(i32 %file)
  ret i32 {code("DAMAGED")}
map:
  %at = call ptr @mmap(ptr null, i64 {size}, i32 1, i32 2, i32 %file, i64 0)
  %closed.too = call i32 @close(i32 %file)
  %failed = icmp eq ptr %at, inttoptr (i64 -1 to ptr)
  br i1 %failed, label %no.memory, label %compare
no.memory:
  ret i32 {code("MEMORY")}
compare:
  %hash = call i64 @{HASH}(ptr %at, i64 {size})
  %same.hash = icmp eq i64 %hash, {digest}
  br i1 %same.hash, label %keep, label %damaged
damaged:
  %gone = call i32 @munmap(ptr %at, i64 {size})
  ret i32 {code("DAMAGED")}
keep:
  %put = cmpxchg ptr @{AT}, ptr null, ptr %at acq_rel acquire
  %first = extractvalue {{ ptr, i1 }} %put, 1
  br i1 %first, label %done, label %late
late:
  %extra = call i32 @munmap(ptr %at, i64 {size})
  ret i32 0
}}
"""
