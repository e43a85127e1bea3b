"""A program as native code: the text of every kernel once, and of the main function that runs them in order.

    i64 @lamina_main_0(ptr %table)

The result is 0, or the number of the check that found an index out of range, from 1 on.  `table` is all that
a call gives: the pool to fork through, the number of threads it may use, and a pointer for every array that
is not in the arena.  A program with ops of the host has several such parts, between which Python runs those
ops on the same memory.  What the runtime must know beside the code is the manifest, which is plain data: a
cached or exported program is its manifest, its constants and its objects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from ...ir.dims import Dim
from ...ir.errors import KernelError
from ..programs.in_bands import in_bands
from ..programs.in_step import in_step
from ..programs.memory_plan import MemoryPlan, verify
from ..programs.plan_memory import plan_memory
from ..programs.program import Array, Call, Program, Repeat
from ..programs.with_checks import with_checks
from ..schedules.steps import Bound, Collapse
from ..schedules.target import Target
from .code import Code
from .generate import code_for_sizes, code_of, divided
from .main_function import CALLS, CALLS_TEXT, Main, time_of
from .native_manifest import NativeManifest

UNROLLED = 600  # lines of text of a scheduled kernel


@dataclass(frozen=True, eq=False)
class Linked:
    """A program ready for LLVM.

    texts: one module each, the distinct codes first, the main function last, before it what it calls.
    calls: of the native parts of one that is linked apart, by symbol.
    """

    manifest: NativeManifest
    plan: MemoryPlan
    texts: tuple[str, ...]
    calls: Mapping[str, Call | Repeat] = field(default_factory=dict)

    @property
    def constants(self) -> tuple[np.ndarray, ...]:
        return tuple(self.plan.program.constants.values())

    def with_manifest(self, manifest: NativeManifest) -> Linked:
        return replace(self, manifest=manifest)


def link(
    program: Program,
    target: Target,
    entry: str = "lamina_main",
    ready: Callable[[str], None] = lambda text: None,
    guard: int = 0,
    apart: bool = False,
    sizes: Mapping[str, int] | None = None,
) -> Linked:
    """The text of a program.

    sizes: what its symbols are.  Numbers that depend on them stand in the table then, and not in the text of
    the main function, which is the same for all sizes unless their kernels have codes of their own.

    entry: the main function's name, which the number of the part follows.  ready: told each text as soon as
    it is known, so that it can be compiled while the next is written.  guard: as of `plan_memory`.  apart:
    make a part of each call, so that Python sees it begin and end.  Raises GraphError, KernelError for a
    program that can't be planned, or whose kernels have no code.
    """
    codes: dict[Call, Code] = {}
    texts: dict[str, None] = {}

    def scratch(call: Call) -> int:
        code = code_of(call, target) if sizes is None else code_for_sizes(call, sizes, target)
        codes[call] = code
        for text in modules(call, code):
            if text not in texts:
                texts[text] = None
                ready(text)
        return code.scratch

    program, checks = with_checks(program if sizes is None else program.at(sizes))
    if not apart and not guard:
        program = in_bands(program, lambda call: divided(call.kernel, call.how, target))
        program = in_step(program, target)
    plan = verify(plan_memory(program, scratch, guard))
    main = Main(plan, codes, checks, entry, apart, guard, sizes)
    linked = _linked(main, [*texts])
    for text in linked.texts[len(texts) :]:
        ready(text)
    return linked


def link_planned(
    plan: MemoryPlan, codes: Mapping[Call, Code], checks: dict[Array, str], entry: str = "lamina_main"
) -> Linked:
    """The text of a program of symbols for all sizes that its codes serve; its manifest is of formulas.

    checks: the names of the kernels behind flags.
    """
    texts = dict.fromkeys(text for call, code in codes.items() for text in modules(call, code))
    return _linked(Main(plan, codes, checks, entry, False, 0, is_open=True), [*texts])


def _linked(main: Main, texts: list[str]) -> Linked:
    parts, text = main.write()
    time = time_of(main.plan, main.codes)
    manifest = NativeManifest.of(
        main.plan,
        parts,
        tuple(main.checks),
        nanoseconds=time if isinstance(time, Dim) else float(time),
        kernels=len(main.plan.calls) - len(main.flags),
        codes=len({code.text for code in main.codes.values()}),
        guard=main.guard,
        fences=main.plan.fences,
        numbers=tuple(main.numbers or ()),
    )
    shared = (CALLS_TEXT,) if CALLS in main.declared else ()
    return Linked(manifest, main.plan, (*texts, *shared, text), main.calls)


def modules(call: Call, code: Code) -> tuple[str, ...]:
    """The texts of all modules that a code needs."""
    return (*code.beside, module_text(call, code))


def module_text(call: Call, code: Code) -> str:
    """The text of a code for LLVM, with the options that it is to be compiled with.

    Its entries are declared mergeable: codes may share one, which equal names say is equal.
    """
    text = code.text
    for symbol in dict.fromkeys(phase.symbol for phase in code.phases):  # phases too may share one
        plain = f"define void @{symbol}("
        if plain not in text:
            raise KernelError(
                f"{code.kernel.name}: the code does not define its phase", f"missing: {plain}..."
            )
        text = text.replace(plain, f"define weak_odr void @{symbol}(", 1)
    return f"; -disable-lsr\n{text}" if _says_addresses(call, code) else text


def _says_addresses(call: Call, code: Code) -> bool:
    """Whether LLVM had better leave addresses as they are written.

    Loop strength reduction takes two thirds of the time for what is unrolled far, and the more so the more is
    (40 of 60 ms for a first convolution's rows, EPYC, 2026-11-25).  Rows and long unrolled loops run as fast
    or faster without it, up to 1.6 times; the sums of windows lose 3 to 18 %, Winograd's functions 2 %.
    """
    how = call.how
    if how is None or how.sums_inputs:
        return False
    if how.has(Bound):
        return bool(how.peeled)
    return not how.has(Collapse) and code.text.count("\n") > UNROLLED
