"""What of a collective is native code: the begin of one over its own operand, and looks at what is under way.

Where ranks share a core each has to begin, and to look, before the next can; of an `all_reduce` of 1 KB
between four ranks on two cores most was Python's, which between kernels takes ten times what it does in a
loop.  What is called is MPI's own function, of the library that mpi4py has loaded; without it, and where it
isn't known how arguments are handed over, Python does the same.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from ..passes.llvm.binding import Library, emit_object, host_target
from .board import COUNT_AT, FINGERPRINT_AT, GROUP_AT, LENGTH_AT, TEXT_AT
from .waiting import BETWEEN

# How often one call gives way at most, so that signals are seen and time is kept; and the first of a wait.
TURNS, FIRST_TURNS = 4, 32
DIFFER = -1  # what `begin` gives where a rank noted something else

# A plan's words
OWN, GROUP, FINGERPRINT, LENGTH, TEXT = range(5)
ALL_REDUCE, IN_PLACE, ELEMENTS, KIND, OP, COMM, TEST = range(5, 12)
DATA_AT, NEAR, OTHERS = range(12, 15)


def _word(name: str, at: int, kind: str = "i64") -> str:
    return f"""  %{name}_at = getelementptr i64, ptr %plan, i64 {at}
  %{name} = load {kind}, ptr %{name}_at
"""


# A handle of MPI's is an int or a pointer, and a count an int: each goes where a word does, whose lower half
# an int is.
_TEXT = f"""
declare i32 @sched_yield()
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define i64 @lamina_look(ptr %test, ptr %request, i64 %most) {{
begin:
  %there = alloca i32
  %status = alloca [256 x i8], align 16
  store i32 0, ptr %there
  br label %turn
turn:
  %turns = phi i64 [%most, %begin], [%turns_left, %yield]
  br label %look
look:
  %looks = phi i32 [{BETWEEN}, %turn], [%looks_left, %again]
  %code = call i32 %test(ptr %request, ptr %there, ptr %status)
  %is_error = icmp ne i32 %code, 0
  br i1 %is_error, label %error, label %sound
sound:
  %flag = load i32, ptr %there
  %is_there = icmp ne i32 %flag, 0
  br i1 %is_there, label %arrived, label %again
again:
  %looks_left = sub i32 %looks, 1
  %no_more = icmp eq i32 %looks_left, 0
  br i1 %no_more, label %yield, label %look
yield:
  %ignored = call i32 @sched_yield()
  %turns_left = sub i64 %turns, 1
  %is_over = icmp eq i64 %turns_left, 0
  br i1 %is_over, label %not_yet, label %turn
arrived:
  ret i64 1
not_yet:
  ret i64 0
error:
  %wide = zext i32 %code to i64
  %told = add i64 %wide, 2
  ret i64 %told
}}

define i64 @lamina_begin(ptr %plan, i64 %count, ptr %array, ptr %request, i64 %most) {{
begin:
{_word("own", OWN, "ptr")}{_word("group", GROUP)}{_word("fingerprint", FINGERPRINT)}
{_word("length", LENGTH)}{_word("text", TEXT, "ptr")}{_word("near", NEAR)}
  %valid = getelementptr i8, ptr %own, i64 {COUNT_AT}
  store i64 0, ptr %valid
  fence release
  %own_group = getelementptr i8, ptr %own, i64 {GROUP_AT}
  store i64 %group, ptr %own_group
  %own_fingerprint = getelementptr i8, ptr %own, i64 {FINGERPRINT_AT}
  store i64 %fingerprint, ptr %own_fingerprint
  %own_length = getelementptr i8, ptr %own, i64 {LENGTH_AT}
  store i64 %length, ptr %own_length
  %own_text = getelementptr i8, ptr %own, i64 {TEXT_AT}
  call void @llvm.memcpy.p0.p0.i64(ptr %own_text, ptr %text, i64 %length, i1 false)
  store atomic i64 %count, ptr %valid release, align 8
  %others = getelementptr i64, ptr %plan, i64 {OTHERS}
  br label %next
next:
  %n = phi i64 [0, %begin], [%n_more, %same]
  %is_last = icmp eq i64 %n, %near
  br i1 %is_last, label %go, label %compare
compare:
  %note_at = getelementptr i64, ptr %others, i64 %n
  %note = load ptr, ptr %note_at
  %noted_at = getelementptr i8, ptr %note, i64 {COUNT_AT}
  %noted = load atomic i64, ptr %noted_at acquire, align 8
  %its_group_at = getelementptr i8, ptr %note, i64 {GROUP_AT}
  %its_group = load i64, ptr %its_group_at
  %its_fingerprint_at = getelementptr i8, ptr %note, i64 {FINGERPRINT_AT}
  %its_fingerprint = load i64, ptr %its_fingerprint_at
  %is_at_it = icmp eq i64 %noted, %count
  %is_of_it = icmp eq i64 %its_group, %group
  %is_other = icmp ne i64 %its_fingerprint, %fingerprint
  %both = and i1 %is_at_it, %is_of_it
  %differs = and i1 %both, %is_other
  br i1 %differs, label %differ, label %same
same:
  %n_more = add i64 %n, 1
  br label %next
differ:
  ret i64 {DIFFER}
go:
{_word("all_reduce", ALL_REDUCE, "ptr")}{_word("in_place", IN_PLACE, "ptr")}{_word("elements", ELEMENTS)}
{_word("kind", KIND)}{_word("op", OP)}{_word("comm", COMM)}{_word("data_at", DATA_AT)}
  %its_data = getelementptr i8, ptr %array, i64 %data_at
  %data = load ptr, ptr %its_data
  %code = call i32 %all_reduce(
    ptr %in_place, ptr %data, i64 %elements, i64 %kind, i64 %op, i64 %comm, ptr %request)
  %is_error = icmp ne i32 %code, 0
  br i1 %is_error, label %error, label %sound
error:
  %wide = zext i32 %code to i64
  %told = add i64 %wide, 2
  ret i64 %told
sound:
  %is_waited_for = icmp ne i64 %most, 0
  br i1 %is_waited_for, label %look, label %begun
look:
{_word("test", TEST, "ptr")}  %found = call i64 @lamina_look(ptr %test, ptr %request, i64 %most)
  ret i64 %found
begun:
  ret i64 0
}}
"""


class Native(NamedTuple):
    """The functions of one MPI.

    look: asks for the request at an address: 0 where it isn't done, 1 where it is, above that 2 and MPI's
    error.  begin: of a plan's address, the count, an array's address as an object and a request's, begins to
    combine the array in place, and looks whether that is done for so many turns: the same, or DIFFER.
    all_reduce, test: where MPI's functions are.
    """

    look: Callable[[int], int]
    begin: Callable[[int, int, int, int, int], int]
    all_reduce: int
    test: int


@cache
def compiled() -> tuple[Callable[..., int], Callable[..., int], object]:
    """`lamina_look`, `lamina_begin`, and the code that they are of."""
    target = host_target()
    code = Library([emit_object(_TEXT, target)], target)
    word, address = ctypes.c_int64, ctypes.c_void_p
    look = ctypes.CFUNCTYPE(word, address, address, word)(code.address("lamina_look"))
    begin = ctypes.CFUNCTYPE(word, address, word, address, address, word)(code.address("lamina_begin"))
    return look, begin, code


@cache
def native(library: str) -> Native | None:
    """The functions for the MPI that a library of this process calls, by its path; None where unknown."""
    if platform.machine() not in ("x86_64", "aarch64") or platform.system() != "Linux":
        return None
    try:
        mpi = ctypes.CDLL(library)
        test, all_reduce = [ctypes.cast(f, ctypes.c_void_p).value for f in (mpi.MPI_Test, mpi.MPI_Iallreduce)]
    except (OSError, AttributeError):
        return None
    look, begin, code = compiled()
    at = ctypes.c_void_p(test)

    def one(request: int, kept: object = (code, mpi)) -> int:
        return look(at, request, TURNS)

    return Native(one, begin, all_reduce, test)


def plan_of(words: list[int], text: bytes) -> tuple[int, object]:
    """A plan's address and what it lives in: its words but LENGTH and TEXT, which are of the text."""
    letters = ctypes.create_string_buffer(text, max(1, len(text)))
    words[LENGTH], words[TEXT] = len(text), ctypes.addressof(letters)
    memory = (ctypes.c_uint64 * len(words))(*[w % (1 << 64) for w in words])
    return ctypes.addressof(memory), (memory, letters)
