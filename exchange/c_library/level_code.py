"""What runs a model on one level of CPU, as LLVM text beside the program's own.

    i64 @lamina_LEVEL_arena(ptr %sizes)      bytes of scratch memory; -1 for sizes beyond 64 bits
    i64 @lamina_LEVEL_run(ptr %inputs, ptr %outputs, ptr %sizes, ptr %arena, ptr %weights, ptr %pool)
        0, the number of the check that found an index out of range, or -1

Who calls has looked at the arrays, and at the sizes' ranges and conditions (`entry_code.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from ...jit.artifact import ProgramCode
from ...passes.llvm.formulas import DECLARED, Formulas
from ...passes.llvm.link import Linked
from ...passes.llvm.native_manifest import ARENA, FIRST, MOST, POOL
from .interface import Interface, level_prefix

NO_LIMIT = 1 << 30  # of threads: the pool has one


def arena_symbol(level: str) -> str:
    return f"{level_prefix(level)}_arena"


def run_symbol(level: str) -> str:
    return f"{level_prefix(level)}_run"


def entry_prefix(level: str) -> str:
    """What the names of the program's own functions begin with."""
    return f"{level_prefix(level)}_main"


def text(
    level: str, code: ProgramCode, interface: Interface, kept: Sequence[int], constants: Sequence[int]
) -> str:
    """The module.

    kept: where in the weights the params behind the inputs lie, in bytes; constants: where the program's do.
    """
    linked = [each for each, _ in code.variants]
    symbols = dict.fromkeys(symbol for each in linked for symbol in each.manifest.symbols)
    return "\n".join(
        [
            *DECLARED,
            *(f"declare i64 @{symbol}(ptr)" for symbol in symbols),
            f"define hidden i64 @{arena_symbol(level)}(ptr %sizes) nounwind {{",
            *_arena(code, interface),
            "}",
            f"define hidden i64 @{run_symbol(level)}(",
            "  ptr %inputs, ptr %outputs, ptr %sizes, ptr %arena, ptr %weights, ptr %pool",
            ") nounwind {",
            *_run(code, interface, kept, constants),
            "}",
            "",
        ]
    )


def _formulas(code: ProgramCode, interface: Interface) -> Formulas:
    """A beginning that knows the sizes."""
    said = Formulas()
    for at, size in enumerate(interface.sizes):
        said.known[size.symbol] = said.word("%sizes", at)
    said.offsets(code.offsets or {})
    return said


def _arena(code: ProgramCode, interface: Interface) -> list[str]:
    said = _formulas(code, interface)
    nbytes = said.of(code.variants[0][0].manifest.arena)
    said.require("sge", nbytes, "0")
    answer = said.name(f"select i1 {said.fits}, i64 {nbytes}, i64 -1")
    return [*said.lines, f"  ret i64 {answer}"]


def _run(code: ProgramCode, interface: Interface, kept: Sequence[int], constants: Sequence[int]) -> list[str]:
    said = _formulas(code, interface)
    manifest = code.variants[0][0].manifest
    slots = max(each.manifest.slots for each, _ in code.variants)
    said.lines.insert(0, f"  %table = alloca [{slots} x i64], align 64")

    def put(slot: int, value: str) -> None:
        said.lines.append(f"  store {value}, ptr {said.pointer('%table', slot)}, align 8")

    def of_caller(base: str, count: int, first: int) -> None:
        for n in range(count):
            at = said.name(f"getelementptr ptr, ptr {base}, i64 {n}")
            put(first + n, f"ptr {said.name(f'load ptr, ptr {at}, align 8')}")

    def of_weights(places: Sequence[int], first: int) -> None:
        for n, place in enumerate(places):
            put(first + n, f"ptr {said.name(f'getelementptr i8, ptr %weights, i64 {place}')}")

    results = FIRST + len(manifest.params)
    put(POOL, "ptr %pool")
    put(MOST, f"i64 {NO_LIMIT}")
    put(ARENA, "ptr %arena")
    of_caller("%inputs", len(interface.inputs), FIRST)
    of_weights(kept, FIRST + len(interface.inputs))
    of_caller("%outputs", len(interface.outputs), results)
    of_weights(constants, results + len(manifest.results))
    before = said.fits
    known = dict(said.known)
    for number, (linked, least) in enumerate(code.variants):
        said.fits, said.known = "true", dict(known)
        for extent, n in least:
            said.require("sge", said.of(extent), str(n))
        said.lines += [
            f"  br i1 {said.fits}, label %variant{number}, label %beyond{number}",
            f"variant{number}:",
        ]
        said.fits, said.known = before, dict(known)
        _variant(said, linked, number)
        said.lines.append(f"beyond{number}:")
    return [*said.lines, "  ret i64 -1"]


def _variant(said: Formulas, linked: Linked, number: int) -> None:
    """Run one of the programs that serve all sizes together."""
    manifest = linked.manifest
    for n, formula in enumerate(manifest.numbers, manifest.first_number):
        value = said.of(formula)
        said.lines.append(f"  store i64 {value}, ptr {said.pointer('%table', n)}, align 8")
    said.lines += [
        f"  br i1 {said.fits}, label %go{number}, label %unfit{number}",
        f"unfit{number}:",
        "  ret i64 -1",
        f"go{number}:",
    ]
    for n, symbol in enumerate(manifest.symbols):
        status = said.name(f"call i64 @{symbol}(ptr %table)")
        bad = said.name(f"icmp ne i64 {status}, 0")
        label = f"{number}.{n}"
        said.lines += [
            f"  br i1 {bad}, label %bad{label}, label %good{label}",
            f"bad{label}:",
            f"  ret i64 {status}",
            f"good{label}:",
        ]
    said.lines.append("  ret i64 0")
