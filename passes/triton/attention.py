"""Attention as one kernel: the scores of a tile of queries are met key by key, and none is ever in memory.

A program has a tile of queries of one head and goes along the keys, as many as registers hold at a time.
It carries the largest score of each query so far, the sum of the exponentials under it, and the sum of the
values that these weigh; where a larger score comes, both sums are made smaller.  Tiles that no mask cuts
come first, without a test.

    for a tile of keys:  s = q @ k.mT * scale                p = 2 ** (s - top)
                         top' = max(top, s)                  total = total * 2 ** (top - top') + sum(p)
                                                             out = out * 2 ** (top - top') + p @ v
    out / total

The way back is in `attention_back.py`.
Source: Milakov and Gimelshein, Online normalizer calculation for softmax, 2018; Dao et al., FlashAttention,
2022.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ..programs.program import Whole
from .attention_back import ToKeyValue, ToQuery
from .attention_text import FUNCTION, Attending, filled, indented, load, store
from .attention_tiles import THERE, Tile, fitted, tile_of
from .code import Code
from .generate import named
from .opening import Open
from .programs import NARROW
from .target import Target


def attention_code(
    step: Whole, aligned: Sequence[bool], target: Target, tile: Tile | None = None,
    opens: Open = Open.NOTHING,
) -> Code:  # fmt: skip
    """The code of an attention step.  aligned: as `Code` has it.  tile: in place of the default.  opens: of
    SIZES numbers are parameters.
    """
    dtypes = [array.dtype for array in (*step.inputs, *step.outputs) if array is not None]
    made = WRITERS[step.op.name](step, aligned, target, tile, opens)
    launched = made.tile.warps, made.tile.stages, made.grid
    text, values = made.text(), made.size.values.values()
    numbers = [(value, "i32" if value < NARROW else "i64") for value in values]
    return named(text, FUNCTION, dtypes, aligned, *launched, numbers=numbers)


class There(Attending):
    """The way there, with each query's log-sum-exp where the step has a second output.

    plain: whether scores are told apart as the products that they are, times `unit` only in exponents: of a
    positive scale, and where nothing is added to them.
    """

    def __init__(
        self, step: Whole, aligned: Sequence[bool], target: Target, tile: Tile | None, opens: Open
    ):  # fmt: skip
        super().__init__(step, target, opens)
        widest = max(self.e, self.f)
        wanted = tile or tile_of(THERE, self.dtype, widest, self.precision, self.keys)
        held, met = self.nbytes * self.e, self.nbytes * (self.e + self.f)
        self.tile = fitted(wanted, self.queries, self.keys, held, met, self.score, False, target)
        self.is_copied = self.tile.copied and self.can_copy(aligned, target)
        self.plain = self.scale > 0 and not self.adds
        self.tiles = -(-self.queries // self.tile.rows)
        self.keeps = len(step.outputs) > 1

    @property
    def grid(self) -> int:
        return self.heads * self.tiles if self.out else 0

    def others(self) -> Sequence[str]:
        return ("out", "lse") if self.keeps else ("out",)

    def text(self) -> str:
        return self.function(self._lines())

    def _lines(self) -> Iterator[str]:
        rows, f = self.tile.rows, self.f
        yield from self.of_queries(self.tiles, rows)
        yield f"out_ptr += head * {self.size(self.queries * self.out)}"
        row = self.within("rows[:, None]", self.queries, rows)
        yield f"q = {self.queries_of('q', 'e', self.is_copied, rows)}"
        if self.is_copied:
            yield from self.descriptors(self.tile.columns)
        yield f"top = tl.full(({rows},), float('-inf'), tl.float32)"
        yield f"total = tl.zeros(({rows},), tl.float32)"
        yield f"out = tl.zeros(({rows}, {f}), tl.float32)"
        yield from self.key_range(rows, self.tile.columns)
        yield from self._loop("0", "plain", False)
        if self.is_cut(self.tile.columns):
            yield from self._loop("plain", "end", True)
        yield "total = tl.where(total == 0.0, 1.0, total)"
        inside = row + filled("f[None, :]", self.out, f)
        made = self.narrow("out / total[:, None]")
        yield store(f"out_ptr + rows[:, None] * {self.out} + f[None, :]", made, inside)
        if self.keeps:
            factor = self.scale if self.plain else math.log(2)
            lse = f"top * {factor!r} + tl.log(total)"
            yield store(
                f"lse_ptr + head * {self.size(self.queries)} + rows",
                lse,
                self.within("rows", self.queries, rows),
            )

    def _loop(self, begin: str, end: str, cut: bool) -> Iterator[str]:
        """The steps along keys; cut: whether a mask or the end of the keys cuts some of the scores."""
        columns = self.tile.columns
        yield f"for start in range({begin}, {end}, {columns}):"
        if self.is_copied:
            yield "    k = k_tiles.load([start, 0]).T"
        else:
            bound = self.within("key[None, :]", self.keys, columns) if cut else []
            bound += filled("e[:, None]", self.width, self.e)
            yield f"    key = start + tl.arange(0, {columns})"
            yield f"    k = {load(f'k_ptr + key[None, :] * {self.width} + e[:, None]', bound)}"
        yield f"    s = {self.dot('q', 'k')}{'' if self.plain else f' * {self.unit!r}'}"
        yield from indented(self.seen("start", cut, self.tile.rows, columns))
        yield "    new = tl.maximum(top, tl.max(s, 1))"
        # of a query that has seen no key yet; nothing is taken of infinity from itself
        yield "    under = tl.where(new == float('-inf'), 0.0, new)"
        if self.plain:
            yield f"    p = tl.exp2(s * {self.unit!r} - (under * {self.unit!r})[:, None])"
            yield f"    less = tl.exp2((top - under) * {self.unit!r})"
        else:
            yield "    p = tl.exp2(s - under[:, None])"
            yield "    less = tl.exp2(top - under)"
        yield "    total = total * less + tl.sum(p, 1)"
        yield from indented(self.values("start", cut, columns, self.is_copied))
        yield f"    out = {self.dot(self.narrow('p'), 'v', 'out * less[:, None]')}"
        yield "    top = new"


WRITERS: dict[str, type[There] | type[ToQuery] | type[ToKeyValue]] = {
    "whole_attention": There,
    "attention_with_lse": There,
    "attention_to_query": ToQuery,
    "attention_to_key_value": ToKeyValue,
}
