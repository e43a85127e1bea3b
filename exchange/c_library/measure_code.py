"""What follows from sizes, as LLVM text: dimensions and bytes of arrays, and the workspace.

    i32 @lamina_measure(ptr %sizes, ptr %dims, ptr %nbytes)   a code; writes those of inputs, then outputs
    {i64, i64} @lamina_need(ptr %sizes, ptr %nbytes, i32 %level)
        the bytes of a workspace, and those of them that are the program's; -1 where they are beyond 64 bits

A workspace is

    [scratch memory of the program | outputs, each at a multiple of 64]
"""

from __future__ import annotations

from collections.abc import Iterator

from ...ir.dims import Dim
from ...passes.llvm.formulas import Formulas
from .interface import Interface


def measure(interface: Interface) -> Iterator[str]:
    """The function that looks at sizes."""
    said = Formulas()
    yield "define internal i32 @lamina_measure(ptr %sizes, ptr %dims, ptr %nbytes) nounwind {"
    for at, size in enumerate(interface.sizes):
        value = said.known[size.symbol] = said.word("%sizes", at)
        said.require("sge", value, str(size.low))
        said.require("sle", value, str(size.high))
    _leave_unless(said, "SIZE", interface)
    for need in interface.needs:
        said.need(need.condition)
    _leave_unless(said, "CONSTRAINT", interface)
    number = 0
    for at, port in enumerate(interface.ports):
        nbytes = str(port.element)
        for extent in port.shape:
            dim = said.of(extent)
            if isinstance(extent, Dim):
                said.require("sge", dim, "0")
            nbytes = said.exactly("smul", nbytes, dim)
            said.lines.append(f"  store i64 {dim}, ptr {said.pointer('%dims', number)}, align 8")
            number += 1
        said.lines.append(f"  store i64 {nbytes}, ptr {said.pointer('%nbytes', at)}, align 8")
    _leave_unless(said, "SIZE", interface)
    yield from said.lines
    yield "  ret i32 0"
    yield "}"


def _leave_unless(said: Formulas, code: str, interface: Interface) -> None:
    """Return a code where what was required so far does not hold; begin anew behind that."""
    number = said.count = said.count + 1
    said.lines += [
        f"  br i1 {said.fits}, label %so{number}, label %not{number}",
        f"not{number}:",
        f"  ret i32 {interface.code(code)}",
        f"so{number}:",
    ]
    said.fits = "true"


def need(interface: Interface) -> str:
    """The function that adds up a workspace."""
    inputs, ports = len(interface.inputs), len(interface.ports)
    return f"""
define internal {{i64, i64}} @lamina_need(ptr %sizes, ptr %nbytes, i32 %level) nounwind {{
entry:
  %index = sub i32 %level, 1
  %arena.at = getelementptr ptr, ptr @lamina_arenas, i32 %index
  %arena.of = load ptr, ptr %arena.at, align 8
  %arena.bytes = call i64 %arena.of(ptr %sizes)
  %is.said = icmp sge i64 %arena.bytes, 0
  br i1 %is.said, label %outputs, label %beyond
outputs:
  %n = phi i64 [{inputs}, %entry], [%n.next, %sum]
  %bytes = phi i64 [%arena.bytes, %entry], [%aligned, %sum]
  %over = call {{i64, i1}} @llvm.sadd.with.overflow.i64(i64 %bytes, i64 63)
  %over.is = extractvalue {{i64, i1}} %over, 1
  br i1 %over.is, label %beyond, label %align
align:
  %up = extractvalue {{i64, i1}} %over, 0
  %aligned.before = and i64 %up, -64
  %more = icmp ult i64 %n, {ports}
  br i1 %more, label %add, label %done
add:
  %own.at = getelementptr i64, ptr %nbytes, i64 %n
  %own = load i64, ptr %own.at, align 8
  %both = call {{i64, i1}} @llvm.sadd.with.overflow.i64(i64 %aligned.before, i64 %own)
  %both.is = extractvalue {{i64, i1}} %both, 1
  %n.next = add i64 %n, 1
  br i1 %both.is, label %beyond, label %sum
sum:
  %aligned = extractvalue {{i64, i1}} %both, 0
  br label %outputs
done:
  %whole = insertvalue {{i64, i64}} undef, i64 %aligned.before, 0
  %pair = insertvalue {{i64, i64}} %whole, i64 %arena.bytes, 1
  ret {{i64, i64}} %pair
beyond:
  ret {{i64, i64}} {{i64 -1, i64 0}}
}}"""
