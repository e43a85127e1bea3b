"""Which level of CPU a library runs on, as LLVM text.

    i32 @lamina_level()   the number of the library's best level that this CPU has, from 1 on; 0 for none

Asked once: `cpuid` takes a virtual machine some 20 us.  Threads that ask at the same time find the same.
Source: x86-64 psABI 1.0, "Micro-Architecture Levels"; Intel's manual, volume 1, "Detection of AVX".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

# The bits that levels need beyond the one below, by the word of cpuid that has them; xcr0: what the system
# keeps of registers when it changes from one thread to another.
_BITS = {
    "x86-64-v2": {"ecx1": (0, 9, 13, 19, 20, 23), "extended": (0,)},
    "x86-64-v3": {"ecx1": (12, 22, 27, 28, 29), "ebx7": (3, 5, 8), "extended": (5,), "xcr0": (1, 2)},
    "x86-64-v4": {"ebx7": (16, 17, 28, 30, 31), "xcr0": (5, 6, 7)},
}
# What LLVM has no words for: the four words of `cpuid` for a leaf (rdi: where to, esi: the leaf), and XCR0.
FUNCTIONS = {
    "lamina_cpuid": bytes.fromhex("53 89f0 31c9 0fa2 8907 895f04 894f08 89570c 5b c3"),
    "lamina_xgetbv": bytes.fromhex("31c9 0f01d0 c3"),
}
_RANK = {"": 0, **{level: rank for rank, level in enumerate(_BITS, 1)}}


def functions(levels: Sequence[str]) -> dict[str, bytes]:
    """The machine code that the module calls, by symbols."""
    return FUNCTIONS if levels[0] in _RANK else {}


def text(levels: Sequence[str]) -> str:
    """The module.  levels: of the library, the best first."""
    if levels[0] not in _RANK:  # AArch64, of which there is one
        return "define hidden i32 @lamina_level() nounwind {\n  ret i32 1\n}\n"
    lines = list[str]()
    last = "0"
    for rank, words in enumerate(_BITS.values(), 1):
        name = f"%v{rank}"
        every = f"%rank{rank - 1}.is" if rank > 1 else "true"
        for word, bits in words.items():
            mask = sum(1 << bit for bit in bits)
            lines += [
                f"  {name}.{word} = and i32 %{word}, {mask}",
                f"  {name}.{word}.all = icmp eq i32 {name}.{word}, {mask}",
                f"  {name}.{word}.so = and i1 {every}, {name}.{word}.all",
            ]
            every = f"{name}.{word}.so"
        lines.append(f"  %rank{rank}.is = and i1 {every}, true")
        lines.append(f"  %rank{rank} = select i1 %rank{rank}.is, i32 {rank}, i32 {last}")
        last = f"%rank{rank}"
    chosen = "0"
    for number in range(len(levels), 0, -1):  # the first that fits is chosen last
        lines += [
            f"  %fits{number} = icmp uge i32 {last}, {_RANK[levels[number - 1]]}",
            f"  %chosen{number} = select i1 %fits{number}, i32 {number}, i32 {chosen}",
        ]
        chosen = f"%chosen{number}"
    return "\n".join([_HEAD, *lines, *_end(chosen)])


def _end(chosen: str) -> Iterable[str]:
    return (
        f"  store atomic i32 {chosen}, ptr @lamina_level_found monotonic, align 4",
        f"  ret i32 {chosen}",
        "}",
        "",
    )


def _cpuid(name: str, leaf: str, at: int) -> str:
    """Ask for one word of a leaf: eax, ebx, ecx, edx."""
    return (
        f"  call void @lamina_cpuid(ptr %words, i32 {leaf})\n"
        f"  %{name}.at = getelementptr i32, ptr %words, i32 {at}\n"
        f"  %{name} = load i32, ptr %{name}.at, align 4"
    )


_HEAD = f"""
@lamina_level_found = internal global i32 -1
declare hidden void @lamina_cpuid(ptr, i32)
declare hidden i32 @lamina_xgetbv()
define hidden i32 @lamina_level() nounwind {{
entry:
  %words = alloca [4 x i32], align 16
  %found = load atomic i32, ptr @lamina_level_found monotonic, align 4
  %is.known = icmp sge i32 %found, 0
  br i1 %is.known, label %known, label %ask
known:
  ret i32 %found
ask:
{_cpuid("leaves", "0", 0)}
{_cpuid("ecx1", "1", 2)}
  %has.seven = icmp uge i32 %leaves, 7
  %leaf = select i1 %has.seven, i32 7, i32 0
{_cpuid("ebx7.any", "%leaf", 1)}
  %ebx7 = select i1 %has.seven, i32 %ebx7.any, i32 0
{_cpuid("beyond", str(-(1 << 31)), 0)}
  %has.extended = icmp ugt i32 %beyond, {-(1 << 31)}
  %extended.leaf = select i1 %has.extended, i32 {1 - (1 << 31)}, i32 0
{_cpuid("extended.any", "%extended.leaf", 2)}
  %extended = select i1 %has.extended, i32 %extended.any, i32 0
  %saves = and i32 %ecx1, {1 << 27}
  %has.xcr0 = icmp ne i32 %saves, 0
  br i1 %has.xcr0, label %read, label %tell
read:
  %low = call i32 @lamina_xgetbv()
  br label %tell
tell:
  %xcr0 = phi i32 [0, %ask], [%low, %read]"""
