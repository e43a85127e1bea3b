"""The thread pool that native programs fork through, as LLVM text for Linux.

A program calls, through a pointer that stands in the pool itself,

    void launch(ptr %pool, ptr %entry, ptr %args, i64 %units, i64 %nanoseconds, i64 %most)

which does the units 0..units of a phase (see code.py) on at most `most` threads, the caller's own included,
and returns when all are done.  The units are dealt out in chunks from one atomic word, the ticket:

    [generation: 22 | chunks: 14 | taken from the end: 14 | taken from the beginning: 14]

Adding 1 to one of the last claims a chunk and tells at the same time whether there is one, so a worker that
comes late never sees the state of a launch that is over.  The caller takes from the beginning, the first
worker from the end, further ones from either: so what a thread reads in one launch is mostly what it wrote in
the one before, and lies in its core's own caches.  Nobody overwrites what a launch left (its entry, its
arguments) before all its chunks are done.  Workers look for a new ticket for a while, then sleep on a futex.
A launch while another is running, from another Python thread, runs on its own thread alone.
"""

from __future__ import annotations

from ..schedules.target import Platform

# Byte offsets in a pool, which is zero at first.  What different threads write is on different cache lines.
TICKET = 0
DONE = 64  # i64: chunks of this launch that are done
WAKE, SLEEPERS = 128, 132  # i32: changes with every launch; whether somebody may sleep whom nobody woke
ENTRY, ARGS, UNITS = 192, 200, 208  # of this launch
BUSY, GENERATION = 256, 264  # i32: what the pool is at; i64: the number of launches
FREE, LAUNCHING, HELD = 0, 1, 2  # of BUSY
LAUNCH = 320  # ptr: the function above
LIMIT, ALIVE = 328, 332  # i32: threads that may run, the caller's included; workers that exist
SPIN = 336  # i64: looks at the ticket before a worker sleeps
GRAIN = 344  # i64: nanoseconds of work that are worth a thread
KEEN = 352  # i64: until this tick of the clock, workers without work only give way instead of sleeping
PLACE = 360  # i32: the processor that the last launch came from
SIZE = 384

FIELD = 14  # bits of the ticket that count chunks, or threads that ask in vain for some more
_MASK = (1 << FIELD) - 1
MOST_CHUNKS = 1 << FIELD - 1
# Chunks for each thread where there is work enough: a thread that is held up leaves the rest to the others.
# Chunks of short work are no smaller than two pieces that are worth a thread: an MLP on eight inputs takes
# 13.1 microseconds where they may be one, and 11.8 so (EPYC "Zen 5", 2026-11-28).
CHUNKS_PER_THREAD = 4
GRAINS_PER_CHUNK = 2

# Ticks of the processor's clock, some tenth of a second: as long as OpenBLAS's own threads look for the next
# product, which then begins 15 to 35 us earlier than with a worker that must be woken (Xeon, 2026-11-20).
KEENNESS = 1 << 28
CROWDED = 1 << 17  # ticks, some 50 us: a turn given away for so long was taken by somebody who has work to do

# Looks of one thread for the other while the cost of a fork is measured: some 50 microseconds.
PATIENCE = 2000

PROCESSORS = 1024  # that a mask of them has room for: on machines with more, a worker may run anywhere

PREFIX = "lamina_pool"
_COUNTS = f"""\
  %begun = and i64 %ticket, {_MASK}
  %over = lshr i64 %ticket, {FIELD}
  %ended = and i64 %over, {_MASK}
  %high = lshr i64 %ticket, {2 * FIELD}
  %chunks = and i64 %high, {_MASK}
  %taken = add i64 %begun, %ended"""
_WAIT, _WAKE_UP = 128, 129  # what a futex is asked, private to the process


def text(platform: Platform) -> str:
    """The module: launch, worker, resize and fork_join, each behind the prefix `lamina_pool_`."""
    return f"""
declare i64 @syscall(i64, ...)
declare i32 @sched_yield()
declare i32 @sched_getcpu()
{platform.declared}
declare i64 @llvm.umin.i64(i64, i64)
declare i64 @llvm.umax.i64(i64, i64)

; Claim a chunk of the launch, from its beginning or its end, and do it; false where none is left.
define internal i1 @{PREFIX}_step(ptr %pool, i1 %from.end) nounwind {{
  %claim = select i1 %from.end, i64 {1 << FIELD}, i64 1
  %ticket = atomicrmw add ptr %pool, i64 %claim acquire
{_COUNTS}
  %some = icmp ult i64 %taken, %chunks
  br i1 %some, label %work, label %none
work:
  %below = sub i64 %chunks, %ended
  %last = sub i64 %below, 1
  %number = select i1 %from.end, i64 %last, i64 %begun
{_load("entry", "ptr", ENTRY)}
{_load("args", "ptr", ARGS)}
{_load("units", "i64", UNITS)}
  %following = add i64 %number, 1
  %low = mul i64 %number, %units
  %end = mul i64 %following, %units
  %lo = udiv i64 %low, %chunks
  %hi = udiv i64 %end, %chunks
  call void %entry(ptr %args, i64 %lo, i64 %hi)
  %done = getelementptr i8, ptr %pool, i64 {DONE}
  %before = atomicrmw add ptr %done, i64 1 release
  ret i1 1
none:
  ret i1 0
}}

; What a worker thread runs.  It ends when there are more workers than the limit lets run.
define ptr @{PREFIX}_worker(ptr %pool) nounwind {{
entry:
  %wake = getelementptr i8, ptr %pool, i64 {WAKE}
  %sleepers = getelementptr i8, ptr %pool, i64 {SLEEPERS}
  %limit = getelementptr i8, ptr %pool, i64 {LIMIT}
{_load("spin", "i64", SPIN)}
{_load("others", "i32", ALIVE)}
  %from.end = trunc i32 %others to i1  ; itself included: the first is odd
  br label %look
look:
  %round = phi i64 [0, %entry], [0, %do], [0, %awake], [%next, %idle], [%next, %give]
  %t = load atomic i64, ptr %pool acquire, align 8
  %some = call i1 @{PREFIX}_open(i64 %t)
  br i1 %some, label %do, label %idle
do:
  %did = call i1 @{PREFIX}_step(ptr %pool, i1 %from.end)
  br i1 %did, label %do, label %look
idle:
  {platform.pause}
  %next = add i64 %round, 1
  %more = icmp ult i64 %next, %spin
  br i1 %more, label %look, label %tired
tired:
  call void @{PREFIX}_aside(ptr %pool)
  %keen.at = getelementptr i8, ptr %pool, i64 {KEEN}
  %keen = load atomic i64, ptr %keen.at monotonic, align 8
{platform.clock.format(name="%now")}
  %left.ticks = sub i64 %keen, %now
  %early = icmp ult i64 %left.ticks, {KEENNESS}
  br i1 %early, label %give, label %surplus
give:
  %y = call i32 @sched_yield()
{platform.clock.format(name="%later")}
  %turn = sub i64 %later, %now
  %free = icmp ult i64 %turn, {CROWDED}
  br i1 %free, label %look, label %surplus
surplus:
  ; limit and workers as one word: whoever reads both while it holds `busy` knows who stays
  %both = load atomic i64, ptr %limit seq_cst, align 8
  %l = trunc i64 %both to i32
  %high = lshr i64 %both, 32
  %a = trunc i64 %high to i32
  %over = icmp sge i32 %a, %l
  br i1 %over, label %leave, label %sleep
leave:
  %less = sub i64 %both, {1 << 32}
  %left = cmpxchg ptr %limit, i64 %both, i64 %less acq_rel monotonic
  %gone = extractvalue {{ i64, i1 }} %left, 1
  br i1 %gone, label %end, label %surplus
sleep:
  ; the word is read before the last look at the ticket: a launch after that look changes it, and the futex
  ; then refuses to wait
  %w = load atomic i32, ptr %wake seq_cst, align 4
  store atomic i32 1, ptr %sleepers seq_cst, align 4
  %t2 = load atomic i64, ptr %pool seq_cst, align 8
  %l2 = load atomic i32, ptr %limit seq_cst, align 4
  %late = call i1 @{PREFIX}_open(i64 %t2)
  %changed = icmp ne i32 %l, %l2
  %stay = or i1 %late, %changed
  br i1 %stay, label %awake, label %wait
wait:
  call void @{PREFIX}_apart(ptr %pool, i1 1, i32 %w)
  br label %awake
awake:
  call void @{PREFIX}_aside(ptr %pool)
  br label %look
end:
  ret ptr null
}}

; A worker on the processor that the work comes from goes to another, if there is one.
define internal void @{PREFIX}_aside(ptr %pool) nounwind {{
entry:
  %here = call i32 @sched_getcpu()
  %place.at = getelementptr i8, ptr %pool, i64 {PLACE}
  %there = load atomic i32, ptr %place.at monotonic, align 4
  %same = icmp eq i32 %here, %there
  br i1 %same, label %move, label %end
move:
  call void @{PREFIX}_apart(ptr %pool, i1 0, i32 0)
  br label %end
end:
  ret void
}}

; May not run, for a moment or while it sleeps, where the work comes from.  The scheduler wakes a worker on
; that processor as gladly as on an idle one, and leaves both there for some milliseconds, in which the worker
; waits for its giver, or keeps it from going on: of ten calls of a DS-CNN after a sleep nine took as long as
; on one thread (190 microseconds), and take 110 (EPYC "Zen 5", 2026-11-28).
define internal void @{PREFIX}_apart(ptr %pool, i1 %sleeps, i32 %word) nounwind {{
entry:
  %all = alloca [{PROCESSORS // 64} x i64], align 8
  %others = alloca [{PROCESSORS // 64} x i64], align 8
  %now = alloca [{PROCESSORS // 64} x i64], align 8
  store [{PROCESSORS // 64} x i64] zeroinitializer, ptr %all, align 8
  store [{PROCESSORS // 64} x i64] zeroinitializer, ptr %now, align 8
  %said = call i64 (i64, ...) {_affinity(platform, 1, "%all")}
  %fits = icmp sgt i64 %said, 0
  %place.at = getelementptr i8, ptr %pool, i64 {PLACE}
  %place = load atomic i32, ptr %place.at monotonic, align 4
  %known = icmp ult i32 %place, {PROCESSORS}
  %able = and i1 %fits, %known
  br i1 %able, label %leave, label %stay
leave:
  %mask = load [{PROCESSORS // 64} x i64], ptr %all, align 8
  store [{PROCESSORS // 64} x i64] %mask, ptr %others, align 8
  %number = zext i32 %place to i64
  %at.word = lshr i64 %number, 6
  %bit = and i64 %number, 63
  %one = shl i64 1, %bit
  %but = xor i64 %one, -1
  %at = getelementptr i64, ptr %others, i64 %at.word
  %old = load i64, ptr %at, align 8
  %new = and i64 %old, %but
  store i64 %new, ptr %at, align 8
  ; refused where no processor is left
  %refused = call i64 (i64, ...) {_affinity(platform, 0, "%others")}
  %moved = icmp eq i64 %refused, 0
  br label %stay
stay:
  %away = phi i1 [0, %entry], [%moved, %leave]
  br i1 %sleeps, label %sleep, label %awake
sleep:
  %wake = getelementptr i8, ptr %pool, i64 {WAKE}
  %r = call i64 (i64, ...) {_futex(platform, _WAIT, "%word")}
  br label %awake
awake:
  br i1 %away, label %look, label %end
look:
  ; unless somebody else has said meanwhile where it may run
  %told = call i64 (i64, ...) {_affinity(platform, 1, "%now")}
  %bits = load i{PROCESSORS}, ptr %now, align 8
  %set = load i{PROCESSORS}, ptr %others, align 8
  %ours = icmp eq i{PROCESSORS} %bits, %set
  br i1 %ours, label %return, label %end
return:
  %back = call i64 (i64, ...) {_affinity(platform, 0, "%all")}
  br label %end
end:
  ret void
}}

; Whether a ticket has a chunk that nobody has claimed.
define internal i1 @{PREFIX}_open(i64 %ticket) alwaysinline nounwind {{
{_COUNTS}
  %some = icmp ult i64 %taken, %chunks
  ret i1 %some
}}

; Tell the workers that something changed.  The word changes after a sleeper is claimed: who said before that
; he may sleep has read the old word, and the futex refuses or wakes him; who says it later is claimed next.
define internal void @{PREFIX}_notify(ptr %pool, i32 %word) nounwind {{
entry:
  %wake = getelementptr i8, ptr %pool, i64 {WAKE}
  %sleepers = getelementptr i8, ptr %pool, i64 {SLEEPERS}
  %asleep = load atomic i32, ptr %sleepers seq_cst, align 4
  %any = icmp ne i32 %asleep, 0
  br i1 %any, label %claim, label %change
claim:
  ; a processor that has slept takes a millisecond to come: one launch in that time asks for it, not each
  %taken = atomicrmw xchg ptr %sleepers, i32 0 seq_cst
  br label %change
change:
  %claimed = phi i32 [0, %entry], [%taken, %claim]
  store atomic i32 %word, ptr %wake seq_cst, align 4
  %mine = icmp ne i32 %claimed, 0
  br i1 %mine, label %rouse, label %end
rouse:
  %r = call i64 (i64, ...) {_futex(platform, _WAKE_UP, 1 << 30)}
  br label %end
end:
  ret void
}}

define void @{PREFIX}_launch(
  ptr %pool, ptr %entry, ptr %args, i64 %units, i64 %nanoseconds, i64 %most
) nounwind {{
begin:
{_load("limit32", "i32", LIMIT)}
{_load("grain", "i64", GRAIN)}
  %limit = zext i32 %limit32 to i64
  %worth = udiv i64 %nanoseconds, %grain
  %allowed = call i64 @llvm.umin.i64(i64 %limit, i64 %most)
  %useful = call i64 @llvm.umin.i64(i64 %units, i64 %worth)
  %threads = call i64 @llvm.umin.i64(i64 %allowed, i64 %useful)
  %alone = icmp ult i64 %threads, 2
  br i1 %alone, label %serial, label %try
try:
  %busy = getelementptr i8, ptr %pool, i64 {BUSY}
  %taken = cmpxchg ptr %busy, i32 {FREE}, i32 {LAUNCHING} acquire monotonic
  %mine = extractvalue {{ i32, i1 }} %taken, 1
  br i1 %mine, label %fork, label %serial
serial:
  call void %entry(ptr %args, i64 0, i64 %units)
  ret void
fork:
  ; a program held to fewer threads than there are gets a chunk for each: no other can then join in
  %held = icmp ult i64 %most, %limit
  %each = select i1 %held, i64 1, i64 {CHUNKS_PER_THREAD}
  %many = mul i64 %threads, %each
  %long = udiv i64 %worth, {GRAINS_PER_CHUNK}
  %some = call i64 @llvm.umin.i64(i64 %long, i64 %units)
  %dealt = call i64 @llvm.umin.i64(i64 %many, i64 %some)
  %least = call i64 @llvm.umax.i64(i64 %dealt, i64 %threads)
  %few = call i64 @llvm.umin.i64(i64 %least, i64 {MOST_CHUNKS})
  ; as many for each thread: three chunks take two threads as long as four
  %rounds = udiv i64 %few, %threads
  %chunks = mul i64 %rounds, %threads
  call void @{PREFIX}_begin(ptr %pool, ptr %entry, ptr %args, i64 %units, i64 %chunks)
  br label %share
share:
  %did = call i1 @{PREFIX}_step(ptr %pool, i1 0)
  br i1 %did, label %share, label %join
join:
  call void @{PREFIX}_finish(ptr %pool, i64 %chunks)
  ret void
}}

; Open a launch to the workers.  Its thread holds `busy`.
define internal void @{PREFIX}_begin(
  ptr %pool, ptr %entry, ptr %args, i64 %units, i64 %chunks
) nounwind {{
{_store("%entry", "ptr", ENTRY)}
{_store("%args", "ptr", ARGS)}
{_store("%units", "i64", UNITS)}
  %done = getelementptr i8, ptr %pool, i64 {DONE}
  store atomic i64 0, ptr %done monotonic, align 8
  %counter = getelementptr i8, ptr %pool, i64 {GENERATION}
  %generation = load i64, ptr %counter, align 8
  %following = add i64 %generation, 1
  store i64 %following, ptr %counter, align 8
  %top = shl i64 %following, {3 * FIELD}
  %middle = shl i64 %chunks, {2 * FIELD}
  %ticket = or i64 %top, %middle
  store atomic i64 %ticket, ptr %pool seq_cst, align 8
  %word = trunc i64 %following to i32
  %place.at = getelementptr i8, ptr %pool, i64 {PLACE}
  %place = call i32 @sched_getcpu()
  store atomic i32 %place, ptr %place.at monotonic, align 4
  call void @{PREFIX}_notify(ptr %pool, i32 %word)
  ret void
}}

; Wait until all its chunks are done, and let another begin.
define internal void @{PREFIX}_finish(ptr %pool, i64 %chunks) nounwind {{
entry:
  %done = getelementptr i8, ptr %pool, i64 {DONE}
  br label %join
join:
  %round = phi i64 [0, %entry], [%next, %again]
  %count = load atomic i64, ptr %done acquire, align 8
  %all = icmp eq i64 %count, %chunks
  br i1 %all, label %release, label %idle
idle:
  {platform.pause}
  %next = add i64 %round, 1
  %long = and i64 %next, 1023
  %yield = icmp eq i64 %long, 0
  br i1 %yield, label %give, label %again
give:
  %y = call i32 @sched_yield()  ; the worker may be waiting for this very core
  br label %again
again:
  br label %join
release:
  call void @{PREFIX}_release(ptr %pool)
  ret void
}}

; Let that many threads run; workers beyond it end.  Between launches: none loses workers that it counts on.
define void @{PREFIX}_resize(ptr %pool, i32 %limit) nounwind {{
  call void @{PREFIX}_hold(ptr %pool)
  %place = getelementptr i8, ptr %pool, i64 {LIMIT}
  store atomic i32 %limit, ptr %place seq_cst, align 4
  %wake = getelementptr i8, ptr %pool, i64 {WAKE}
  %word = atomicrmw add ptr %wake, i32 {1 << 30} seq_cst
  %new = add i32 %word, {1 << 30}
  call void @{PREFIX}_notify(ptr %pool, i32 %new)
  call void @{PREFIX}_release(ptr %pool)
  ret void
}}

; Note that so many threads more are to run `worker`: before they do, as it asks how many there are.
define void @{PREFIX}_enlist(ptr %pool, i32 %more) nounwind {{
  %alive = getelementptr i8, ptr %pool, i64 {ALIVE}
  %before = atomicrmw add ptr %alive, i32 %more seq_cst
  ret void
}}

; Wait until no launch runs, and let none begin before the release: those who want to run on their own thread.
define void @{PREFIX}_hold(ptr %pool) nounwind {{
entry:
  %busy = getelementptr i8, ptr %pool, i64 {BUSY}
  br label %try
try:
  %taken = cmpxchg ptr %busy, i32 {FREE}, i32 {HELD} acquire monotonic
  %mine = extractvalue {{ i32, i1 }} %taken, 1
  br i1 %mine, label %end, label %give
give:
  %y = call i32 @sched_yield()
  br label %try
end:
  ret void
}}

define void @{PREFIX}_release(ptr %pool) nounwind {{
  %busy = getelementptr i8, ptr %pool, i64 {BUSY}
  store atomic i32 {FREE}, ptr %busy release, align 4
  ret void
}}

; A chunk that waits for the other one, so that both threads must take part; not for ever.
define internal void @{PREFIX}_meet(ptr %counter, i64 %lo, i64 %hi) nounwind {{
entry:
  %before = atomicrmw add ptr %counter, i64 1 acq_rel
  %own = add i64 %before, 1
  %second = icmp eq i64 %before, 1
  br i1 %second, label %end, label %wait
wait:
  %round = phi i64 [0, %entry], [%next, %wait]
  {platform.pause}
  %next = add i64 %round, 1
  %now = load atomic i64, ptr %counter acquire, align 8
  %alone = icmp eq i64 %now, %own
  %patient = icmp ult i64 %next, {PATIENCE}
  %more = and i1 %alone, %patient
  br i1 %more, label %wait, label %end
end:
  ret void
}}

; Fork over two threads and join, so many times, each thread doing one of two chunks.
define void @{PREFIX}_fork_join(ptr %pool, ptr %counter, i64 %times) nounwind {{
entry:
  br label %again
again:
  %k = phi i64 [0, %entry], [%next, %again]
  store i64 0, ptr %counter, align 8
  call void @{PREFIX}_launch(ptr %pool, ptr @{PREFIX}_meet, ptr %counter, i64 2, i64 {1 << 62}, i64 2)
  %next = add i64 %k, 1
  %more = icmp ult i64 %next, %times
  br i1 %more, label %again, label %end
end:
  ret void
}}
"""


def _futex(platform: Platform, operation: int, value: int | str) -> str:
    return (
        f"@syscall(i64 {platform.futex}, ptr %wake, i32 {operation}, i32 {value}, ptr null, ptr null, i32 0)"
    )


def _affinity(platform: Platform, which: int, mask: str) -> str:
    """Say (0), or ask (1), where this thread may run."""
    return f"@syscall(i64 {platform.affinity[which]}, i64 0, i64 {PROCESSORS // 8}, ptr {mask})"


def _load(name: str, kind: str, offset: int) -> str:
    return (
        f"  %{name}.at = getelementptr i8, ptr %pool, i64 {offset}\n"
        f"  %{name} = load {kind}, ptr %{name}.at, align {4 if kind == 'i32' else 8}"
    )


def _store(value: str, kind: str, offset: int) -> str:
    return (
        f"  {value}.to = getelementptr i8, ptr %pool, i64 {offset}\n"
        f"  store {kind} {value}, ptr {value}.to, align 8"
    )
