"""How a program of symbols learns its sizes, as LLVM text: a function that reads them of a call's arrays.

    i64 @lamina_sizes(ptr %arrays, ptr %table) -> -1 the code does not serve these arrays, else whether the
                                                  program takes long, 1 or 0

%arrays: NumPy arrays, of which is known what kind they are and how many dims they have (enter.py).  Each
symbol is read where an array has it for a dim; every other dim is compared with its formula, so that no array
is shorter than the proof of the code presumes.  The numbers that the main function reads of the table are
evaluated into it; behind them stand the bytes of the arena, which must be enough.  A formula that goes beyond
64 bits, or divides by what is no size, serves nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...ir.dims import Condition, Dim
from ...ir.errors import Unsayable
from ...ir.kernel.affine import Extent
from .enter import DIMS_AT
from .formulas import DECLARED, Formulas
from .native_manifest import NativeManifest

SYMBOL = "lamina_sizes"


def text(
    manifest: NativeManifest,
    offsets: Mapping[str, Sequence[Extent]],
    sizes: Mapping[str, tuple[int, int]],
    least: Sequence[tuple[Extent, int]],
    needs: Sequence[Condition],
    head: int,
    long: int,
) -> str:
    """The module.

    manifest, offsets: of the program, in formulas.  sizes: its symbols, and between what they lie.  least:
    extents and what they must at least be; needs: what else must hold.  head: bytes of a Python object's
    head.  long: nanoseconds from which a program takes long.  Raises Unsayable where no array has a symbol
    for a dim.
    """
    shapes = [shape for _, shape in (*manifest.params, *manifest.results)]
    said = Formulas()
    found = [_dims(said, at, len(shape), head) for at, shape in enumerate(shapes)]
    for shape, values in zip(shapes, found, strict=True):
        for dim, value in zip(shape, values, strict=True):
            if str(dim) in sizes:
                said.known.setdefault(str(dim), value)
    if missing := sizes.keys() - said.known.keys():
        raise Unsayable(f"{manifest.name}: no array is {', '.join(sorted(missing))} long")
    for name, (low, high) in sizes.items():
        said.require("sge", said.known[name], str(low))
        said.require("sle", said.known[name], str(high))
    for shape, values in zip(shapes, found, strict=True):
        for dim, value in zip(shape, values, strict=True):
            if said.of(dim) != value:
                said.require("eq", said.of(dim), value)
    for extent, number in least:
        said.require("sge", said.of(extent), str(number))
    for need in needs:
        said.need(need)
    said.offsets(offsets)
    said.require("sle", said.of(manifest.arena), said.word("%table", manifest.slots))
    for n, number in enumerate(manifest.numbers, manifest.first_number):
        said.lines.append(f"  store i64 {said.of(number)}, ptr {said.pointer('%table', n)}, align 8")
    takes = said.of(
        manifest.nanoseconds if isinstance(manifest.nanoseconds, Dim) else round(manifest.nanoseconds)
    )
    is_long = said.name(f"zext i1 {said.name(f'icmp sge i64 {takes}, {long}')} to i64")
    answer = said.name(f"select i1 {said.fits}, i64 {is_long}, i64 -1")
    return "\n".join(
        [
            *DECLARED,
            f"define i64 @{SYMBOL}(ptr %arrays, ptr %table) nounwind {{",
            *said.lines,
            f"  ret i64 {answer}",
            "}",
            "",
        ]
    )


def _dims(said: Formulas, at: int, count: int, head: int) -> list[str]:
    """The sizes of an array."""
    array = said.name(f"load ptr, ptr {said.name(f'getelementptr ptr, ptr %arrays, i64 {at}')}, align 8")
    field = said.name(f"getelementptr i8, ptr {array}, i64 {head + DIMS_AT}")
    dims = said.name(f"load ptr, ptr {field}, align 8")
    return [said.word(dims, d) for d in range(count)]
