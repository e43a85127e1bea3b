"""A function that does units of two phases in turn: the second's read what the first's left in its memory.

    void @symbol(ptr %args, i64 %lo, i64 %hi)         the arguments of the first, and behind them the second's

Both are told that the array between them begins so far before that memory that the elements of this unit are
in it.
"""

from __future__ import annotations

from ..programs.memory_plan import ALIGNMENT, aligned
from ..programs.program import Passing
from .code import Code

MEMCPY = "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"


def may_be_in_turn(first: Code, second: Code) -> bool:
    """Whether units of two codes may run in turn: each has one phase, and as many units, in any order."""
    if len(first.phases) != 1 or len(second.phases) != 1 or first.scratch or second.scratch:
        return False
    (one,), (other,) = first.phases, second.phases
    return isinstance(one.units, int) and one.units == other.units > 1 and not (one.serial or other.serial)


def in_turn(
    symbol: str, phases: tuple[str, str], arguments: tuple[int, int], slots: tuple[int, int], passing: Passing
) -> str:
    """The text.

    phases: the symbols of the two.  arguments: how many each takes.  slots: of these, which is the array.
    """
    count, before = sum(arguments), aligned(passing.before)
    lines = [
        f"define internal void @{symbol}(ptr %args, i64 %lo, i64 %hi) nounwind {{",
        "entry:",
        f"  %own = alloca [{count} x ptr], align {ALIGNMENT}",
        f"  %room = alloca [{before + passing.nbytes} x i8], align {ALIGNMENT}",
        f"  call void @llvm.memcpy.p0.p0.i64(ptr %own, ptr %args, i64 {8 * count}, i1 false)",
        f"  %begin = getelementptr i8, ptr %room, i64 {before}",
        f"  %others = getelementptr ptr, ptr %own, i64 {arguments[0]}",
        f"  %written.at = getelementptr ptr, ptr %own, i64 {slots[0]}",
        f"  %read.at = getelementptr ptr, ptr %others, i64 {slots[1]}",
        "  %any = icmp ult i64 %lo, %hi",
        "  br i1 %any, label %unit, label %end",
        "unit:",
        "  %n = phi i64 [%lo, %entry], [%after, %unit]",
        "  %after = add i64 %n, 1",
    ]
    beyond = "0"
    for k, (blocks, faster, nbytes) in enumerate(passing.strides):
        lines += [
            f"  %turn{k} = udiv i64 %n, {faster}",
            f"  %block{k} = urem i64 %turn{k}, {blocks}",
            f"  %bytes{k} = mul i64 %block{k}, {nbytes}",
            f"  %beyond{k} = add i64 {beyond}, %bytes{k}",
        ]
        beyond = f"%beyond{k}"
    return "\n".join(
        [
            *lines,
            f"  %back = sub i64 0, {beyond}",
            "  %array = getelementptr i8, ptr %begin, i64 %back",
            "  store ptr %array, ptr %written.at, align 8",
            "  store ptr %array, ptr %read.at, align 8",
            f"  call void @{phases[0]}(ptr %own, i64 %n, i64 %after)",
            f"  call void @{phases[1]}(ptr %others, i64 %n, i64 %after)",
            "  %more = icmp ult i64 %after, %hi",
            "  br i1 %more, label %unit, label %end",
            "end:",
            "  ret void",
            "}",
        ]
    )
