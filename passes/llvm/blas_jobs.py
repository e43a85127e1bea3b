"""OpenBLAS's jobs on the pool of native programs, as LLVM text to stand behind the pool's own.

OpenBLAS lets others run its jobs (openblas_set_threads_callback_function, since 0.3.28): for a product on
several threads it calls

    void run(i32 %sync, ptr %job, i32 %count, i64 %size, ptr %jobs, i32 %data)

which calls `job(slot, jobs + i * size, data)` for each i below `count`.  The jobs of one call wait for each
other, so each needs a thread of its own at the same time: the caller does the first, as in OpenBLAS, and the
pool's workers one each.  A call that can't have them (the pool is launching, has fewer workers, or is that of
another process) goes to OpenBLAS's own threads, through the functions that OpenBLAS itself calls.

A slot is the scratch memory that a job uses.  OpenBLAS's threads use as many as there are of them, from 0 on;
the pool uses the last ones, so that the two never meet.
"""

from __future__ import annotations

from ..schedules.target import Platform
from .pool import ALIVE, BUSY, FREE, HELD, KEEN, KEENNESS, LAUNCHING, LIMIT
from .pool import PREFIX as POOL

# Byte offsets in what `run` works with, which never moves.
THE_POOL = 0  # ptr
ASYNC, WAIT = 8, 16  # ptr: OpenBLAS's functions for its own threads
THREADS = 24  # ptr to i32: OpenBLAS's number of threads of its own, the caller's included
SLOTS, PROCESS = 32, 36  # i32: how many there are; whose pool it is
SERVED = 40  # i64: calls that the pool ran
INIT = 48  # ptr: OpenBLAS's function that makes its threads anew
SIZE = 56

PREFIX = "lamina_blas"


def text(platform: Platform) -> str:
    """What follows the pool's text in one module: `serve`, which is told where its memory is, `run`, and what
    a fork calls: `hold` before it, which returns 1, and `release` after it.
    """
    return f"""
@{PREFIX}_world = internal global ptr null
declare i32 @getpid()

define void @{PREFIX}_serve(ptr %world) nounwind {{
  store ptr %world, ptr @{PREFIX}_world, align 8
  ret void
}}

; For the length of a fork no product begins.  OpenBLAS ends its threads and gives its scratch memory back, as
; if none of it were in use, and makes both anew in the next product, where two threads must not be at it at
; once: so they are made anew here, by the process that had them.
define i32 @{PREFIX}_hold() nounwind {{
  %world = load ptr, ptr @{PREFIX}_world, align 8
  %pool = load ptr, ptr %world, align 8
  call void @{POOL}_hold(ptr %pool)
  ret i32 1
}}

define void @{PREFIX}_release() nounwind {{
entry:
  %world = load ptr, ptr @{PREFIX}_world, align 8
  %pool = load ptr, ptr %world, align 8
  %own.at = getelementptr i8, ptr %world, i64 {PROCESS}
  %own = load i32, ptr %own.at, align 4
  %pid = call i32 @getpid()
  %same = icmp eq i32 %own, %pid
  br i1 %same, label %anew, label %end
anew:
  %init.at = getelementptr i8, ptr %world, i64 {INIT}
  %init = load ptr, ptr %init.at, align 8
  %made = call i32 %init()
  br label %end
end:
  call void @{POOL}_release(ptr %pool)
  ret void
}}

; What a worker does: one job, the one behind its chunk's number.
define internal void @{PREFIX}_job(ptr %call, i64 %lo, i64 %hi) nounwind {{
  %number = add i64 %lo, 1
  call void @{PREFIX}_one(ptr %call, i64 %number)
  ret void
}}

define internal void @{PREFIX}_one(ptr %call, i64 %number) nounwind {{
  %job = load ptr, ptr %call, align 8
  %size.at = getelementptr i8, ptr %call, i64 8
  %size = load i64, ptr %size.at, align 8
  %jobs.at = getelementptr i8, ptr %call, i64 16
  %jobs = load ptr, ptr %jobs.at, align 8
  %data.at = getelementptr i8, ptr %call, i64 24
  %data = load i32, ptr %data.at, align 4
  %last.at = getelementptr i8, ptr %call, i64 28
  %last = load i32, ptr %last.at, align 4
  %offset = mul i64 %number, %size
  %at = getelementptr i8, ptr %jobs, i64 %offset
  %short = trunc i64 %number to i32
  %slot = sub i32 %last, %short
  call void %job(i32 %slot, ptr %at, i32 %data)
  ret void
}}

define void @{PREFIX}_run(i32 %sync, ptr %job, i32 %count, i64 %size, ptr %jobs, i32 %data) nounwind {{
entry:
  %world = load ptr, ptr @{PREFIX}_world, align 8
  %pool = load ptr, ptr %world, align 8
{_load("slots", "i32", SLOTS)}
  %call = alloca [32 x i8], align 8
  store ptr %job, ptr %call, align 8
  %size.at = getelementptr i8, ptr %call, i64 8
  store i64 %size, ptr %size.at, align 8
  %jobs.at = getelementptr i8, ptr %call, i64 16
  store ptr %jobs, ptr %jobs.at, align 8
  %data.at = getelementptr i8, ptr %call, i64 24
  store i32 %data, ptr %data.at, align 4
  %last = sub i32 %slots, 1
  %last.at = getelementptr i8, ptr %call, i64 28
  store i32 %last, ptr %last.at, align 4
  %others = sub i32 %count, 1
  %units = sext i32 %others to i64
  %several = icmp sgt i32 %others, 0
  br i1 %several, label %room, label %alone
alone:
  call void @{PREFIX}_one(ptr %call, i64 0)
  ret void
room:
{_load("threads.at.all", "ptr", THREADS)}
  %threads = load atomic i32, ptr %threads.at.all monotonic, align 4
  %used = add i32 %threads, %count
  %apart = icmp sle i32 %used, %slots
  br i1 %apart, label %home, label %elsewhere
home:
{_load("process", "i32", PROCESS)}
  %pid = call i32 @getpid()
  %ours = icmp eq i32 %pid, %process
  br i1 %ours, label %near, label %elsewhere
near:
  %busy = getelementptr i8, ptr %pool, i64 {BUSY}
  br label %try
try:
  %taken = cmpxchg ptr %busy, i32 {FREE}, i32 {LAUNCHING} acquire monotonic
  %mine = extractvalue {{ i32, i1 }} %taken, 1
  br i1 %mine, label %look, label %refused
refused:
  ; while a fork is being made, OpenBLAS's own threads end, whatever they are at: no job may go there now
  %why = extractvalue {{ i32, i1 }} %taken, 0
  %held = icmp eq i32 %why, {HELD}
  br i1 %held, label %give, label %elsewhere
give:
  %y = call i32 @sched_yield()
  br label %try
look:
  ; no worker leaves while there are fewer than the limit, and that stays as it is while we hold `busy`
  %both.at = getelementptr i8, ptr %pool, i64 {LIMIT}
  %both = load atomic i64, ptr %both.at seq_cst, align 8
  %limit = trunc i64 %both to i32
  %high = lshr i64 %both, {8 * (ALIVE - LIMIT)}
  %alive = trunc i64 %high to i32
  %workers = icmp sge i32 %alive, %others
  %stay = icmp sge i32 %limit, %count
  %enough = and i1 %workers, %stay
  br i1 %enough, label %share, label %back
back:
  call void @{POOL}_release(ptr %pool)
  br label %elsewhere
share:
  %served.at = getelementptr i8, ptr %world, i64 {SERVED}
  %served = atomicrmw add ptr %served.at, i64 1 monotonic
  call void @{POOL}_begin(ptr %pool, ptr @{PREFIX}_job, ptr %call, i64 %units, i64 %units)
  call void @{PREFIX}_one(ptr %call, i64 0)
{platform.clock.format(name="%now")}
  %keen = add i64 %now, {KEENNESS - 1}
  %keen.at = getelementptr i8, ptr %pool, i64 {KEEN}
  store atomic i64 %keen, ptr %keen.at monotonic, align 8
  call void @{POOL}_finish(ptr %pool, i64 %units)
  ret void
elsewhere:
{_load("async", "ptr", ASYNC)}
{_load("wait", "ptr", WAIT)}
  %second = getelementptr i8, ptr %jobs, i64 %size
  %begun = call i32 %async(i64 1, ptr %second)
  call void @{PREFIX}_one(ptr %call, i64 0)
  %ended = call i32 %wait(i64 %units, ptr %second)
  ret void
}}
"""


def _load(name: str, kind: str, offset: int) -> str:
    return (
        f"  %{name}.at = getelementptr i8, ptr %world, i64 {offset}\n"
        f"  %{name} = load {kind}, ptr %{name}.at, align {4 if kind == 'i32' else 8}"
    )
