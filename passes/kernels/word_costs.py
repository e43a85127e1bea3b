"""What words cost, in additions: by this is decided what is computed once, and what again."""

from __future__ import annotations

from ...ir.kernel.scalar import Expr, Op, walk
from ...ir.kernel.words import VOCABULARY

# What computing a word costs, in additions.  Where an expression would be computed again in another loop, one
# that costs more than CHEAP is kept in place of that: loading it back costs about as much.
DIVISION, FUNCTION, CHEAP = 4, 10, 6
_DIVISIONS = frozenset(("div", "sqrt", "rsqrt", "fmod", "remainder", "floor_div", "trunc_div"))


def cost(expr: Expr) -> int:
    """What computing an expression once costs, in additions; reads and conversions are free."""
    return sum(_word_cost(e.name) for e in walk(expr) if isinstance(e, Op))


def _word_cost(name: str) -> int:
    if name in _DIVISIONS:
        return DIVISION
    word = VOCABULARY[name]
    return FUNCTION if word.libm or word.llvm is None and name != "sign" else 1
