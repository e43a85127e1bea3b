"""How Python enters a native program, as LLVM text: one CPython function that checks arrays and runs main.

    enter(array, ...) -> 0 done, 1 an array is not as expected, 2 the program is running already;
                         2 + n: the check n found an index out of range

Without a main function (a program with ops of the host) it only checks, and leaves the program marked as
running: the runtime then runs its parts, and takes the mark away.  A program of symbols has a function that
looks at the arrays' sizes (read_sizes.py), of which the specification says nothing then.

It reads each array's fields where NumPy's binary interface has them (`PyArrayObject_fields`, unchanged since
NumPy 1.7) and compares them with a specification: 64-bit words in memory that the runtime owns and that the
function's `self`, an int, is the address of.  Nothing in the text is a machine's own: the fields lie alike on
all of 64 bits.  An array that does not fit costs nothing but the answer 1, upon
which the runtime looks closer, converts it or says what is wrong.
"""

from __future__ import annotations

SYMBOL = "lamina_enter"

# The specification: its first words, then a record for each array.  BUSY: where the mark is of a program that
# runs, which several programs may share.  RELEASE: whether other threads of Python may run meanwhile; where
# that depends on sizes, SIZES: the function that looks at them and says so, else null.
BUSY, COUNT, TYPE, MAIN, TABLE, RELEASE, SIZES, FIRST = 0, 1, 2, 3, 4, 5, 6, 7
# A record.  DESCR, NDIM, DIMS (null: any): of the array; FLAGS: NumPy's flags that must be set; SLOT: its
# pointer's place in the table; NBYTES; WRITTEN: whether it is overwritten; CHANGED: it moved, and was not
# tested since.
DESCR, NDIM, DIMS, FLAGS, SLOT, NBYTES, WRITTEN, CHANGED, WORDS = range(9)

C_CONTIGUOUS, ALIGNED, WRITEABLE = 0x1, 0x100, 0x400  # NumPy's flags
# Byte offsets of an array's fields behind the head that every Python object has.
DATA_AT, NDIM_AT, DIMS_AT, DESCR_AT, FLAGS_AT = 0, 8, 16, 40, 48


def text(head: int) -> str:
    """The module.  head: bytes of a Python object's head (16 unless the interpreter has no global lock)."""
    return f"""
declare ptr @PyLong_AsVoidPtr(ptr)
declare ptr @PyLong_FromLong(i64)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)

; Whether one array is as its record says; its pointer goes to the table.
define internal i1 @fits(ptr %array, ptr %record, ptr %table, i64 %type) nounwind {{
entry:
{_field("kind", "i64", "%array", 8)}
  %same.type = icmp eq i64 %kind, %type
  br i1 %same.type, label %fields, label %no
fields:
{_field("descr", "i64", "%array", head + DESCR_AT)}
{_field("ndim32", "i32", "%array", head + NDIM_AT)}
{_field("flags32", "i32", "%array", head + FLAGS_AT)}
{_field("dims", "ptr", "%array", head + DIMS_AT)}
{_field("data", "i64", "%array", head + DATA_AT)}
{_word("want.descr", "i64", "%record", DESCR)}
{_word("want.ndim", "i64", "%record", NDIM)}
{_word("want.dims", "ptr", "%record", DIMS)}
{_word("want.flags", "i64", "%record", FLAGS)}
  %ndim = sext i32 %ndim32 to i64
  %flags = zext i32 %flags32 to i64
  %masked = and i64 %flags, %want.flags
  %same.descr = icmp eq i64 %descr, %want.descr
  %same.ndim = icmp eq i64 %ndim, %want.ndim
  %same.flags = icmp eq i64 %masked, %want.flags
  %some = and i1 %same.descr, %same.ndim
  %all = and i1 %some, %same.flags
  br i1 %all, label %shape, label %no
shape:
  %any.size = icmp eq ptr %want.dims, null
  %compared = select i1 %any.size, i64 0, i64 %ndim
  br label %sizes
sizes:
  %d = phi i64 [0, %shape], [%d.next, %size]
  %d.more = icmp slt i64 %d, %compared
  br i1 %d.more, label %size, label %yes
size:
  %size.at = getelementptr i64, ptr %dims, i64 %d
  %size.is = load i64, ptr %size.at, align 8
  %want.at = getelementptr i64, ptr %want.dims, i64 %d
  %want.is = load i64, ptr %want.at, align 8
  %d.next = add i64 %d, 1
  %same.size = icmp eq i64 %size.is, %want.is
  br i1 %same.size, label %sizes, label %no
yes:
{_word("slot", "i64", "%record", SLOT)}
  %entry.at = getelementptr i64, ptr %table, i64 %slot
  %before = load i64, ptr %entry.at, align 8
  %moved = icmp ne i64 %before, %data
  br i1 %moved, label %note, label %end
note:
  store i64 %data, ptr %entry.at, align 8
  %changed.at = getelementptr i64, ptr %record, i64 {CHANGED}
  store i64 1, ptr %changed.at, align 8
  br label %end
end:
  ret i1 1
no:
  ret i1 0
}}

; Whether an array that moved overlaps another, and one of the two is overwritten.
define internal i1 @overlaps(ptr %records, i64 %count, ptr %table, i64 %k) nounwind {{
entry:
  %own.first = mul i64 %k, {WORDS}
  %own = getelementptr i64, ptr %records, i64 %own.first
{_word("own.slot", "i64", "%own", SLOT)}
{_word("own.size", "i64", "%own", NBYTES)}
{_word("own.written", "i64", "%own", WRITTEN)}
  %own.entry = getelementptr i64, ptr %table, i64 %own.slot
  %low = load i64, ptr %own.entry, align 8
  %high = add i64 %low, %own.size
  br label %loop
loop:
  %n = phi i64 [0, %entry], [%next, %following]
  %more = icmp ult i64 %n, %count
  br i1 %more, label %test, label %none
test:
  %first = mul i64 %n, {WORDS}
  %record = getelementptr i64, ptr %records, i64 %first
{_word("slot", "i64", "%record", SLOT)}
{_word("size", "i64", "%record", NBYTES)}
{_word("written", "i64", "%record", WRITTEN)}
  %entry.at = getelementptr i64, ptr %table, i64 %slot
  %start = load i64, ptr %entry.at, align 8
  %stop = add i64 %start, %size
  %before = icmp ult i64 %start, %high
  %behind = icmp ult i64 %low, %stop
  %other = icmp ne i64 %n, %k
  %either = or i64 %written, %own.written
  %dirty = icmp ne i64 %either, 0
  %meet = and i1 %before, %behind
  %two = and i1 %other, %dirty
  %bad = and i1 %meet, %two
  br i1 %bad, label %some, label %following
following:
  %next = add i64 %n, 1
  br label %loop
some:
  ret i1 1
none:
  ret i1 0
}}

define ptr @{SYMBOL}(ptr %self, ptr %args, i64 %nargs) nounwind {{
entry:
  %spec = call ptr @PyLong_AsVoidPtr(ptr %self)
{_word("busy", "ptr", "%spec", BUSY)}
{_word("count", "i64", "%spec", COUNT)}
{_word("type", "i64", "%spec", TYPE)}
{_word("main", "ptr", "%spec", MAIN)}
{_word("table", "ptr", "%spec", TABLE)}
{_word("release", "i64", "%spec", RELEASE)}
{_word("sizes", "ptr", "%spec", SIZES)}
  %records = getelementptr i64, ptr %spec, i64 {FIRST}
  %right = icmp eq i64 %nargs, %count
  br i1 %right, label %lock, label %unfit
lock:
  %taken = cmpxchg ptr %busy, i64 0, i64 1 acquire monotonic
  %mine = extractvalue {{ i64, i1 }} %taken, 1
  br i1 %mine, label %arrays, label %running
arrays:
  %k = phi i64 [0, %lock], [%k.next, %good]
  %k.more = icmp ult i64 %k, %count
  br i1 %k.more, label %array, label %fitting
array:
  %array.at = getelementptr ptr, ptr %args, i64 %k
  %object = load ptr, ptr %array.at, align 8
  %first = mul i64 %k, {WORDS}
  %record = getelementptr i64, ptr %records, i64 %first
  %fit = call i1 @fits(ptr %object, ptr %record, ptr %table, i64 %type)
  br i1 %fit, label %good, label %unlock
good:
  %k.next = add i64 %k, 1
  br label %arrays
fitting:
  %is.sized = icmp ne ptr %sizes, null
  br i1 %is.sized, label %measure, label %apart
measure:
  %measured = call i64 %sizes(ptr %args, ptr %table)
  %served = icmp sge i64 %measured, 0
  br i1 %served, label %apart, label %unlock
apart:
  %m = phi i64 [0, %fitting], [0, %measure], [%m.next, %apart.next]
  %long = phi i64 [%release, %fitting], [%measured, %measure], [%long, %apart.next]
  %m.more = icmp ult i64 %m, %count
  br i1 %m.more, label %moved, label %go
moved:
  %m.first = mul i64 %m, {WORDS}
  %m.record = getelementptr i64, ptr %records, i64 %m.first
{_word("changed", "i64", "%m.record", CHANGED)}
  %test = icmp ne i64 %changed, 0
  br i1 %test, label %ranges, label %apart.next
ranges:
  %over = call i1 @overlaps(ptr %records, i64 %count, ptr %table, i64 %m)
  br i1 %over, label %unlock, label %apart.next
apart.next:
  %m.next = add i64 %m, 1
  br label %apart
go:
  %whole = icmp ne ptr %main, null
  br i1 %whole, label %run, label %clear
run:
  %free = icmp ne i64 %long, 0
  br i1 %free, label %loose, label %tight
loose:
  %state = call ptr @PyEval_SaveThread()
  %loose.result = call i64 %main(ptr %table)
  call void @PyEval_RestoreThread(ptr %state)
  br label %clear
tight:
  %tight.result = call i64 %main(ptr %table)
  br label %clear
clear:
  ; all were tested against all: only now, since a test that fails must be made again
  %result = phi i64 [0, %go], [%loose.result, %loose], [%tight.result, %tight], [%result, %clearing]
  %c = phi i64 [0, %go], [0, %loose], [0, %tight], [%c.next, %clearing]
  %c.more = icmp ult i64 %c, %count
  br i1 %c.more, label %clearing, label %done
clearing:
  %c.first = mul i64 %c, {WORDS}
  %c.record = getelementptr i64, ptr %records, i64 %c.first
  %c.at = getelementptr i64, ptr %c.record, i64 {CHANGED}
  store i64 0, ptr %c.at, align 8
  %c.next = add i64 %c, 1
  br label %clear
done:
  br i1 %whole, label %leave, label %answer
leave:
  store atomic i64 0, ptr %busy release, align 8
  br label %answer
answer:
  %fine = icmp eq i64 %result, 0
  %number = add i64 %result, 2
  %status = select i1 %fine, i64 0, i64 %number
  %told = call ptr @PyLong_FromLong(i64 %status)
  ret ptr %told
unlock:
  store atomic i64 0, ptr %busy release, align 8
  br label %unfit
unfit:
  %one = call ptr @PyLong_FromLong(i64 1)
  ret ptr %one
running:
  %two = call ptr @PyLong_FromLong(i64 2)
  ret ptr %two
}}
"""


def _field(name: str, kind: str, pointer: str, offset: int) -> str:
    """A load from so many bytes behind a pointer."""
    return (
        f"  %{name}.at = getelementptr i8, ptr {pointer}, i64 {offset}\n"
        f"  %{name} = load {kind}, ptr %{name}.at, align {4 if kind == 'i32' else 8}"
    )


def _word(name: str, kind: str, pointer: str, number: int) -> str:
    return _field(name, kind, pointer, 8 * number)
