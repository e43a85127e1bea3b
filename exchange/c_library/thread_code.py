"""The threads of a library, as LLVM text around the pool that compiled programs have (`passes/llvm/pool.py`).

    i32 @NAME_set_threads(i32 %n)

There is none beside the caller's until that is called.  One call at a time sets threads; it ends those there
are and begins as many as it is told.  A child that a fork made has none of its parent's, which its calls do
without; to set them there begins anew.
"""

from __future__ import annotations

from ...passes.llvm import pool
from ...passes.schedules.target import Platform
from ...runtime.workers import SPIN, USUAL_GRAIN
from .interface import Interface

MOST = 256
POOL = "lamina_pool_memory"

_FRESH = (
    f"[{pool.LAUNCH} x i8] zeroinitializer, ptr @{pool.PREFIX}_launch, i32 1, i32 0, "
    f"i64 {SPIN}, i64 {USUAL_GRAIN}, [{pool.SIZE - pool.KEEN} x i8] zeroinitializer"
)
_TYPE = f"<{{ [{pool.LAUNCH} x i8], ptr, i32, i32, i64, i64, [{pool.SIZE - pool.KEEN} x i8] }}>"


def text(interface: Interface, platform: Platform) -> str:
    """The module; the pool's own is another."""
    refused, short = interface.code("ARGUMENT"), interface.code("THREADS")
    return f"""
@{POOL} = hidden global {_TYPE} <{{ {_FRESH} }}>, align 64
@lamina_threads_lock = internal global i32 0
@lamina_threads_count = internal global i32 0
@lamina_threads_process = internal global i32 0
@lamina_threads = internal global [{MOST} x i64] zeroinitializer

declare ptr @{pool.PREFIX}_launch(ptr, ptr, ptr, i64, i64, i64)
declare ptr @{pool.PREFIX}_worker(ptr)
declare void @{pool.PREFIX}_resize(ptr, i32)
declare void @{pool.PREFIX}_enlist(ptr, i32)
declare i32 @getpid()
declare i32 @sched_yield()
declare i32 @sigprocmask(i32, ptr, ptr)
declare extern_weak i32 @pthread_create(ptr, ptr, ptr, ptr)
declare extern_weak i32 @pthread_join(i64, ptr)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

define i32 @{interface.name}_set_threads(i32 %n) nounwind {{
entry:
  %signals = alloca [128 x i8], align 16
  %before = alloca [128 x i8], align 16
  %from.one = sub i32 %n, 1
  %fits = icmp ult i32 %from.one, {MOST}
  br i1 %fits, label %lock, label %refused
refused:
  ret i32 {refused}
lock:
  %taken = cmpxchg ptr @lamina_threads_lock, i32 0, i32 1 acquire monotonic
  %mine = extractvalue {{ i32, i1 }} %taken, 1
  br i1 %mine, label %look, label %give
give:
  %y = call i32 @sched_yield()
  br label %lock
look:
  %process = call i32 @getpid()
  %was = load i32, ptr @lamina_threads_process, align 4
  store i32 %process, ptr @lamina_threads_process, align 4
  %some = load i32, ptr @lamina_threads_count, align 4
  %forked = icmp ne i32 %process, %was
  br i1 %forked, label %anew, label %end
anew:
  ; the pool's words up to that of the launch, then how many threads there may be and are
  call void @llvm.memset.p0.i64(ptr @{POOL}, i8 0, i64 {pool.LAUNCH}, i1 false)
  store i64 1, ptr getelementptr (i8, ptr @{POOL}, i64 {pool.LIMIT}), align 8
  br label %begin
end:
  call void @{pool.PREFIX}_resize(ptr @{POOL}, i32 1)
  br label %join
join:
  %k = phi i32 [0, %end], [%k.next, %wait]
  %k.more = icmp ult i32 %k, %some
  br i1 %k.more, label %wait, label %begin
wait:
  %handle.at = getelementptr i64, ptr @lamina_threads, i32 %k
  %handle = load i64, ptr %handle.at, align 8
  %j = call i32 @pthread_join(i64 %handle, ptr null)
  %k.next = add i32 %k, 1
  br label %join
begin:
  store i32 0, ptr @lamina_threads_count, align 4
  %alone = icmp eq i32 %n, 1
  br i1 %alone, label %done, label %can
can:
  %there = icmp ne ptr @pthread_create, null
  br i1 %there, label %open, label %few
open:
  ; the limit first, or those that begin early would leave again; no signal of the program's goes to them
  call void @{pool.PREFIX}_resize(ptr @{POOL}, i32 %n)
  call void @llvm.memset.p0.i64(ptr %signals, i8 -1, i64 128, i1 false)
  %masked = call i32 @sigprocmask(i32 0, ptr %signals, ptr %before)
  br label %each
each:
  %m = phi i32 [0, %open], [%m.next, %made]
  %m.more = icmp ult i32 %m, %from.one
  br i1 %m.more, label %make, label %whole
make:
  call void @{pool.PREFIX}_enlist(ptr @{POOL}, i32 1)
  %place = getelementptr i64, ptr @lamina_threads, i32 %m
  %failed = call i32 @pthread_create(ptr %place, ptr null, ptr @{pool.PREFIX}_worker, ptr @{POOL})
  %m.next = add i32 %m, 1
  %was.made = icmp eq i32 %failed, 0
  br i1 %was.made, label %made, label %short
made:
  br label %each
short:
  call void @{pool.PREFIX}_enlist(ptr @{POOL}, i32 -1)
  br label %restore
whole:
  br label %restore
restore:
  %code = phi i32 [0, %whole], [{short}, %short]
  %unmasked = call i32 @sigprocmask(i32 2, ptr %before, ptr null)
  store i32 %m, ptr @lamina_threads_count, align 4
  %threads = add i32 %m, 1
  call void @{pool.PREFIX}_resize(ptr @{POOL}, i32 %threads)
  br label %done
few:
  br label %done
done:
  %answer = phi i32 [0, %begin], [{short}, %few], [%code, %restore]
  store atomic i32 0, ptr @lamina_threads_lock release, align 4
  ret i32 %answer
}}
"""
