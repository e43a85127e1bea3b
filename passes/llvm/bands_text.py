"""A function that does calls band by band, on each thread those of its own.

    void @symbol(ptr %args, i64 %lo, i64 %hi)     the bands from %lo to %hi, of each the units of all calls

Of an array that is passed on a thread has one part at a time, in a lane of its own: a call is told that the
array begins so far before the lane that the part of the band is there.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..programs.in_bands import SLACK
from ..programs.memory_plan import ALIGNMENT


@dataclass(frozen=True)
class Member:
    """A call in bands.

    phase: its function.  arguments: how many it takes.  parts: of those that are passed on, by slot, the
    bytes of a band.  units: of a band.
    """

    phase: str
    arguments: int
    parts: tuple[tuple[int, int], ...]
    units: int


def bands_text(symbol: str, members: list[Member], lanes: int) -> str:
    """The text.  `%args` points to a word that tells which lanes are taken, 0 at first, and then to the
    arguments of each call, in which arrays that are passed on begin where the first lane does."""
    count = sum(one.arguments for one in members)
    lines = [
        f"define internal void @{symbol}(ptr %args, i64 %lo, i64 %hi) nounwind {{",
        "entry:",
        f"  %own = alloca [{count} x ptr], align {ALIGNMENT}",
        "  %given = getelementptr ptr, ptr %args, i64 1",
        f"  call void @llvm.memcpy.p0.p0.i64(ptr %own, ptr %given, i64 {8 * count}, i1 false)",
        f"  %lane = call i64 @lamina_take_lane(ptr %args, i64 {lanes})",
    ]
    first, starts, calls = 0, list[str](), list[str]()
    for k, one in enumerate(members):
        lines.append(f"  %own{k} = getelementptr ptr, ptr %own, i64 {first}")
        for slot, nbytes in one.parts:
            name = f"{k}.{slot}"
            lines += [
                f"  %at{name} = getelementptr ptr, ptr %own{k}, i64 {slot}",
                f"  %lanes{name} = load ptr, ptr %at{name}, align 8",
                f"  %beyond{name} = mul i64 %lane, {nbytes + 2 * SLACK}",
                f"  %before{name} = getelementptr i8, ptr %lanes{name}, i64 %beyond{name}",
                f"  %part{name} = getelementptr i8, ptr %before{name}, i64 {SLACK}",
            ]
            starts += [
                f"  %bytes{name} = mul i64 %n, {-nbytes}",
                f"  %array{name} = getelementptr i8, ptr %part{name}, i64 %bytes{name}",
                f"  store ptr %array{name}, ptr %at{name}, align 8",
            ]
        calls += [
            f"  %low{k} = mul i64 %n, {one.units}",
            f"  %high{k} = mul i64 %after, {one.units}",
            f"  call void @{one.phase}(ptr %own{k}, i64 %low{k}, i64 %high{k})",
        ]
        first += one.arguments
    return "\n".join(
        [
            *lines,
            "  %any = icmp ult i64 %lo, %hi",
            "  br i1 %any, label %band, label %end",
            "band:",
            "  %n = phi i64 [%lo, %entry], [%after, %band]",
            "  %after = add i64 %n, 1",
            *starts,
            *calls,
            "  %more = icmp ult i64 %after, %hi",
            "  br i1 %more, label %band, label %end",
            "end:",
            "  call void @lamina_give_lane(ptr %args, i64 %lane)",
            "  ret void",
            "}",
        ]
    )
