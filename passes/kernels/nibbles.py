"""Numbers of four bits as floats: one permutation of a table, for 16 of them.

f32(i8((((i32(q) >> 4) & 15) - 8)))    ->    table[i32(q) >> 4], whose lowest four bits count
"""

from __future__ import annotations

from ...ir.kernel.scalar import Cast, Const, Expr, Op

BITS = 15
WORDS = {"add": lambda x, c: x + c, "sub": lambda x, c: x - c}
LEAST, MOST = -128, 127  # what the narrowest type between holds


def table_of(value: Expr) -> tuple[Expr, tuple[int, ...]] | None:
    """An integer whose lowest four bits say what number a value is, and these sixteen numbers; None where no
    four bits do."""
    steps = []
    while True:
        match value:
            case Cast(dtype, arg, False) if dtype in ("i8", "i16", "i32"):
                value = arg
            case Op(name, (arg, Const(by))) if name in WORDS and isinstance(by, int):
                steps.append((WORDS[name], by))
                value = arg
            case Op("bit_and", (arg, Const(by))) if by == BITS:
                break
            case _:
                return None
    numbers = tuple(range(BITS + 1))
    for word, by in reversed(steps):
        numbers = tuple(word(number, by) for number in numbers)
        if min(numbers) < LEAST or max(numbers) > MOST:  # a cast between may wrap
            return None
    return arg, numbers
