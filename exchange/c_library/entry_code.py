"""How C enters a library, as LLVM text: what is the same for all levels of CPU.

NAME_run looks at pointers, sizes, alignment and overlaps, lays out the workspace (`measure_code.py`) and runs
the best level's code.  Outputs that do not begin at a multiple of 64, as that code needs, are written to the
workspace first.  Nothing is written but the caller's memory, the stack, and for a call without a workspace
memory of its own; so any number of threads may call at once.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...passes.llvm.formulas import DECLARED
from .account_code import account, constant
from .interface import Interface
from .level_code import arena_symbol, run_symbol
from .load_code import AT
from .measure_code import measure, need
from .thread_code import POOL

WEIGHTS = "lamina_weights"
ON_STACK = 4096  # bytes of a workspace that a call without one takes of its stack


def text(interface: Interface, has_weights: bool) -> str:
    """The module, beside those of `cpu_code.py`, `thread_code.py` and `load_code.py`."""
    parts = [
        *DECLARED, *_declared(interface, has_weights), *_tables(interface), *measure(interface),
        need(interface), _run(interface, has_weights), *account(interface), "",
    ]  # fmt: skip
    return "\n".join(parts)


def exports(interface: Interface) -> list[str]:
    """The symbols that the library offers."""
    names = [
        "run", "workspace", "input", "output", "size", "input_shape", "output_shape", "error", "level",
        "set_threads", *(["load"] if interface.beside else []),
    ]  # fmt: skip
    return [f"{interface.name}_{name}" for name in names]


def _declared(interface: Interface, has_weights: bool) -> Iterator[str]:
    yield f"@{POOL} = external hidden global i8"
    if has_weights:
        yield (
            f"@{AT} = external hidden global ptr"
            if interface.beside
            else f"@{WEIGHTS} = external hidden constant i8"
        )
    for level in interface.levels:
        yield f"declare hidden i64 @{arena_symbol(level)}(ptr)"
        yield f"declare hidden i64 @{run_symbol(level)}(ptr, ptr, ptr, ptr, ptr, ptr)"
    yield "declare i32 @lamina_level()"
    yield "declare ptr @malloc(i64)"
    yield "declare void @free(ptr)"
    yield "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"


def _tables(interface: Interface) -> Iterator[str]:
    yield constant("lamina_elements", "i64", [port.element for port in interface.ports])
    yield constant("lamina_arenas", "ptr", [f"@{arena_symbol(level)}" for level in interface.levels])
    yield constant("lamina_runs", "ptr", [f"@{run_symbol(level)}" for level in interface.levels])


def _run(interface: Interface, has_weights: bool) -> str:
    code, count, ports = interface.code, len(interface.inputs), len(interface.ports)
    dims = sum(len(port.shape) for port in interface.ports)
    if not has_weights:
        weights = "  %weights = getelementptr i8, ptr null, i64 0"
    elif interface.beside:
        weights = f"  %weights = load atomic ptr, ptr @{AT} acquire, align 8"
    else:
        weights = f"  %weights = getelementptr i8, ptr @{WEIGHTS}, i64 0"
    is_loaded = "icmp ne ptr %weights, null" if interface.beside and has_weights else "icmp eq i32 0, 0"
    wanted = (
        ["%inputs"] * bool(count)
        + ["%outputs"] * bool(interface.outputs)
        + ["%sizes"] * bool(interface.sizes)
    )
    tests = "\n".join(
        f"  %there{n} = icmp ne ptr {pointer}, null\n  %all{n + 1} = and i1 %all{n}, %there{n}"
        for n, pointer in enumerate(wanted)
    )
    return f"""
define i32 @{interface.name}_run(
  ptr %inputs, ptr %outputs, ptr %sizes, ptr %workspace, i64 %bytes
) nounwind {{
entry:
  %dims = alloca [{max(dims, 1)} x i64], align 8
  %nbytes = alloca [{ports + 1} x i64], align 8
  %given = alloca [{ports + 1} x ptr], align 8
  %written = alloca [{max(ports - count, 1)} x ptr], align 8
  %small = alloca [{ON_STACK + 64} x i8], align 64
  %level = call i32 @lamina_level()
  %runs = icmp ne i32 %level, 0
  br i1 %runs, label %weigh, label %no.cpu
no.cpu:
  ret i32 {code("CPU")}
weigh:
{weights}
  %loaded = {is_loaded}
  br i1 %loaded, label %tables, label %no.weights
no.weights:
  ret i32 {code("WEIGHTS")}
tables:
  %all0 = icmp eq i32 0, 0
{tests}
  br i1 %all{len(wanted)}, label %measure, label %null
null:
  ret i32 {code("NULL")}
measure:
  %measured = call i32 @lamina_measure(ptr %sizes, ptr %dims, ptr %nbytes)
  %sized = icmp eq i32 %measured, 0
  br i1 %sized, label %count, label %no.sizes
no.sizes:
  ret i32 %measured
count:
  %need.both = call {{i64, i64}} @lamina_need(ptr %sizes, ptr %nbytes, i32 %level)
  %need = extractvalue {{i64, i64}} %need.both, 0
  %arena.bytes = extractvalue {{i64, i64}} %need.both, 1
  %countable = icmp sge i64 %need, 0
  br i1 %countable, label %copy, label %too.large
too.large:
  ret i32 {code("SIZE")}
copy:
  call void @llvm.memcpy.p0.p0.i64(ptr %given, ptr %inputs, i64 {8 * count}, i1 false)
  %given.outputs = getelementptr ptr, ptr %given, i64 {count}
  call void @llvm.memcpy.p0.p0.i64(ptr %given.outputs, ptr %outputs, i64 {8 * (ports - count)}, i1 false)
  %last = getelementptr ptr, ptr %given, i64 {ports}
  store ptr %workspace, ptr %last, align 8
  %last.bytes = getelementptr i64, ptr %nbytes, i64 {ports}
  %is.own = icmp eq ptr %workspace, null
  %counted = select i1 %is.own, i64 0, i64 %need
  store i64 %counted, ptr %last.bytes, align 8
  br label %port
port:
  %p = phi i64 [0, %copy], [%p.next, %aligned]
  %p.more = icmp ult i64 %p, {ports}
  br i1 %p.more, label %test, label %room
test:
  %pointer.at = getelementptr ptr, ptr %given, i64 %p
  %pointer = load ptr, ptr %pointer.at, align 8
  %is.there = icmp ne ptr %pointer, null
  br i1 %is.there, label %address, label %null
address:
  %element.at = getelementptr i64, ptr @lamina_elements, i64 %p
  %element = load i64, ptr %element.at, align 8
  %mask = sub i64 %element, 1
  %number = ptrtoint ptr %pointer to i64
  %low = and i64 %number, %mask
  %p.next = add i64 %p, 1
  %even = icmp eq i64 %low, 0
  br i1 %even, label %aligned, label %misaligned
aligned:
  br label %port
misaligned:
  ret i32 {code("MISALIGNED")}
room:
  %room.number = ptrtoint ptr %workspace to i64
  %room.low = and i64 %room.number, 63
  %room.even = icmp eq i64 %room.low, 0
  br i1 %room.even, label %room.size, label %misaligned
room.size:
  %enough = icmp uge i64 %bytes, %need
  %suits = or i1 %is.own, %enough
  br i1 %suits, label %first, label %narrow
narrow:
  ret i32 {code("WORKSPACE")}
first:
  %o = phi i64 [{count}, %room.size], [%o.next, %o.done]
  %o.more = icmp ule i64 %o, {ports}
  br i1 %o.more, label %second, label %memory
second:
  %o.at = getelementptr ptr, ptr %given, i64 %o
  %o.start = load i64, ptr %o.at, align 8
  %o.bytes.at = getelementptr i64, ptr %nbytes, i64 %o
  %o.bytes = load i64, ptr %o.bytes.at, align 8
  %o.end = add i64 %o.start, %o.bytes
  br label %with
with:
  %q = phi i64 [0, %second], [%q.next, %apart]
  %q.more = icmp ult i64 %q, %o
  br i1 %q.more, label %both, label %o.done
both:
  %q.at = getelementptr ptr, ptr %given, i64 %q
  %q.start = load i64, ptr %q.at, align 8
  %q.bytes.at = getelementptr i64, ptr %nbytes, i64 %q
  %q.bytes = load i64, ptr %q.bytes.at, align 8
  %q.end = add i64 %q.start, %q.bytes
  %q.next = add i64 %q, 1
  %before.end = icmp ult i64 %q.start, %o.end
  %before.start = icmp ult i64 %o.start, %q.end
  %o.some = icmp ne i64 %o.bytes, 0
  %q.some = icmp ne i64 %q.bytes, 0
  %meet = and i1 %before.end, %before.start
  %some = and i1 %o.some, %q.some
  %over = and i1 %meet, %some
  br i1 %over, label %overlap, label %apart
apart:
  br label %with
overlap:
  ret i32 {code("OVERLAP")}
o.done:
  %o.next = add i64 %o, 1
  br label %first
memory:
  br i1 %is.own, label %own, label %lay
own:
  %is.small = icmp ule i64 %need, {ON_STACK}
  br i1 %is.small, label %lay, label %allocate
allocate:
  %asked = add i64 %need, 64
  %block = call ptr @malloc(i64 %asked)
  %got = icmp ne ptr %block, null
  br i1 %got, label %lay, label %no.memory
no.memory:
  ret i32 {code("MEMORY")}
lay:
  %base = phi ptr [%workspace, %memory], [%small, %own], [%block, %allocate]
  %held = phi ptr [null, %memory], [null, %own], [%block, %allocate]
  %base.number = ptrtoint ptr %base to i64
  %base.up = add i64 %base.number, 63
  %base.aligned = and i64 %base.up, -64
  %arena = inttoptr i64 %base.aligned to ptr
  %beyond.arena = add i64 %base.aligned, %arena.bytes
  br label %stage
stage:
  %s = phi i64 [0, %lay], [%s.next, %staged]
  %free = phi i64 [%beyond.arena, %lay], [%free.next, %staged]
  %s.more = icmp ult i64 %s, {ports - count}
  br i1 %s.more, label %output, label %go
output:
  %s.at = getelementptr ptr, ptr %given.outputs, i64 %s
  %s.number = load i64, ptr %s.at, align 8
  %s.low = and i64 %s.number, 63
  %s.even = icmp eq i64 %s.low, 0
  %place.up = add i64 %free, 63
  %place = and i64 %place.up, -64
  %s.bytes.at = getelementptr i64, ptr %nbytes, i64 {count}
  %s.bytes.own = getelementptr i64, ptr %s.bytes.at, i64 %s
  %s.bytes = load i64, ptr %s.bytes.own, align 8
  %free.behind = add i64 %place, %s.bytes
  %target = select i1 %s.even, i64 %s.number, i64 %place
  %free.next = select i1 %s.even, i64 %free, i64 %free.behind
  %written.at = getelementptr i64, ptr %written, i64 %s
  store i64 %target, ptr %written.at, align 8
  br label %staged
staged:
  %s.next = add i64 %s, 1
  br label %stage
go:
  %index = sub i32 %level, 1
  %run.at = getelementptr ptr, ptr @lamina_runs, i32 %index
  %run = load ptr, ptr %run.at, align 8
  %status = call i64 %run(ptr %given, ptr %written, ptr %sizes, ptr %arena, ptr %weights, ptr @{POOL})
  %fine = icmp eq i64 %status, 0
  br label %back
back:
  %b = phi i64 [0, %go], [%b.next, %backed]
  %b.some = icmp ult i64 %b, {ports - count}
  %b.more = and i1 %b.some, %fine
  br i1 %b.more, label %compare, label %release
compare:
  %b.written.at = getelementptr ptr, ptr %written, i64 %b
  %b.written = load ptr, ptr %b.written.at, align 8
  %b.wanted.at = getelementptr ptr, ptr %given.outputs, i64 %b
  %b.wanted = load ptr, ptr %b.wanted.at, align 8
  %b.same = icmp eq ptr %b.written, %b.wanted
  br i1 %b.same, label %backed, label %move
move:
  %b.bytes.first = getelementptr i64, ptr %nbytes, i64 {count}
  %b.bytes.at = getelementptr i64, ptr %b.bytes.first, i64 %b
  %b.bytes = load i64, ptr %b.bytes.at, align 8
  call void @llvm.memcpy.p0.p0.i64(ptr %b.wanted, ptr %b.written, i64 %b.bytes, i1 false)
  br label %backed
backed:
  %b.next = add i64 %b, 1
  br label %back
release:
  %was.held = icmp ne ptr %held, null
  br i1 %was.held, label %give, label %tell
give:
  call void @free(ptr %held)
  br label %tell
tell:
  %is.size = icmp slt i64 %status, 0
  %kind = select i1 %is.size, i32 {code("SIZE")}, i32 {code("INDEX")}
  %answer = select i1 %fine, i32 0, i32 %kind
  ret i32 %answer
}}"""
