"""Attention's way back as two kernels: what queries get, and what keys and values get.

Each makes the weights anew, from scores and each query's log-sum-exp, and writes nothing of their size.  The
first goes along keys as the way there does.  The second has a tile of keys and goes along queries, with
scores lying so that keys are rows: then weights are factors as they stand in registers.  No program adds to
what another writes, so results are the same from run to run.

    for a tile of keys:     p = 2 ** (q @ k.mT * scale - lse)      t = p * (g @ v.mT - products)
                            to_q += t @ k
    for a tile of queries:  p = 2 ** (k @ q.mT * scale - lse)      t = p * (v @ g.mT - products)
                            to_v += p @ g                          to_k += t @ q

Where several heads of queries share one of keys, the second goes along the queries of each.
Source: Dao et al., FlashAttention, 2022, algorithm 4; Dao, FlashAttention-2, 2023, section 3.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..programs.program import Whole
from .attention_text import LOG2E, Attending, descriptor, filled, indented, load, store
from .attention_tiles import TO_KEY_VALUE, TO_QUERY, Tile, fitted, tile_of
from .opening import Open
from .target import Target


class ToQuery(Attending):
    def __init__(
        self, step: Whole, aligned: Sequence[bool], target: Target, tile: Tile | None, opens: Open
    ):  # fmt: skip
        super().__init__(step, target, opens)
        both = self.nbytes * (self.e + self.f)
        wanted = tile or tile_of(TO_QUERY, self.dtype, max(self.e, self.f), self.precision, self.keys)
        self.tile = fitted(wanted, self.queries, self.keys, both, both, self.score, False, target)
        self.is_copied = self.tile.copied and self.can_copy(aligned, target)
        self.tiles = -(-self.queries // self.tile.rows)

    @property
    def grid(self) -> int:
        return self.heads * self.tiles

    def others(self) -> Sequence[str]:
        return "g", "lse", "products", "to_q"

    def text(self) -> str:
        return self.function(self._lines())

    def _lines(self) -> Iterator[str]:
        rows, columns = self.tile.rows, self.tile.columns
        yield from self.of_queries(self.tiles, rows)
        yield f"g_ptr += head * {self.size(self.queries * self.out)}"
        yield f"to_q_ptr += head * {self.size(self.queries * self.width)}"
        row = self.within("rows[:, None]", self.queries, rows)
        inside = row + filled("e[None, :]", self.width, self.e)
        yield f"q = {self.queries_of('q', 'e', self.is_copied, rows)}"
        yield f"g = {self.queries_of('g', 'f', self.is_copied, rows)}"
        yield from _of_each(self, f"ptr + head * {self.size(self.queries)}", rows)
        if self.is_copied:
            yield from self.descriptors(columns)
        yield f"to = tl.zeros(({rows}, {self.e}), tl.float32)"
        yield from self.key_range(rows, columns)
        for begin, end, cut in (("0", "plain", False), ("plain", "end", True)):
            if not cut or self.is_cut(columns):
                yield f"for start in range({begin}, {end}, {columns}):"
                yield from indented(self._step(cut))
        made = self.narrow(f"to * {self.scale!r}")
        yield store(f"to_q_ptr + rows[:, None] * {self.width} + e[None, :]", made, inside)

    def _step(self, cut: bool) -> Iterator[str]:
        columns = self.tile.columns
        if self.is_copied:
            yield "k = k_tiles.load([start, 0])"
        else:
            bound = self.within("key[:, None]", self.keys, columns) if cut else []
            bound += filled("e[None, :]", self.width, self.e)
            yield f"key = start + tl.arange(0, {columns})"
            yield f"k = {load(f'k_ptr + key[:, None] * {self.width} + e[None, :]', bound)}"
        yield f"s = {self.dot('q', 'k.T')} * {self.unit!r}"
        yield from self.seen("start", cut, self.tile.rows, columns)
        yield "p = tl.exp2(s - lse[:, None])"
        yield from self.values("start", cut, columns, self.is_copied)
        yield f"t = p * ({self.dot('g', 'v.T')} - products[:, None])"
        yield f"to = {self.dot(self.narrow('t'), 'k', 'to')}"


class ToKeyValue(Attending):
    def __init__(
        self, step: Whole, aligned: Sequence[bool], target: Target, tile: Tile | None, opens: Open
    ):  # fmt: skip
        super().__init__(step, target, opens)
        both = self.nbytes * (self.e + self.f)
        wanted = tile or tile_of(TO_KEY_VALUE, self.dtype, max(self.e, self.f), self.precision, self.queries)
        self.tile = fitted(wanted, self.queries, self.keys, both, both, self.nbytes, True, target)
        # descriptors that are made anew for each head of a group have run nowhere
        self.is_copied = self.tile.copied and self.groups == 1 and self.can_copy(aligned, target)
        self.tiles = -(-self.keys // self.tile.columns)

    @property
    def grid(self) -> int:
        return self.heads // self.groups * self.tiles

    def others(self) -> Sequence[str]:
        return "g", "lse", "products", "to_k", "to_v"

    def text(self) -> str:
        return self.function(self._lines())

    def _lines(self) -> Iterator[str]:
        columns, e, f = self.tile.columns, self.e, self.f
        nbytes = self.queries * (self.width + self.out) * self.nbytes * self.groups
        heads = self.heads // self.groups
        together = self.heads_at_once(heads, nbytes) if self.is_causal else 1
        yield from self.place(self.tiles, heads, together, False)
        yield f"columns = tile * {columns} + tl.arange(0, {columns})"
        yield f"e = tl.arange(0, {e})"
        yield f"f = tl.arange(0, {f})"
        there = self.within("columns[:, None]", self.keys, columns)
        of_k = there + filled("e[None, :]", self.width, e)
        of_v = there + filled("f[None, :]", self.out, f)
        at_k = f"head * {self.size(self.keys * self.width)} + columns[:, None] * {self.width} + e[None, :]"
        at_v = f"head * {self.size(self.keys * self.out)} + columns[:, None] * {self.out} + f[None, :]"
        yield f"k = {load(f'k_ptr + {at_k}', of_k)}"
        yield f"v = {load(f'v_ptr + {at_v}', of_v)}"
        yield f"to_k = tl.zeros(({columns}, {e}), tl.float32)"
        yield f"to_v = tl.zeros(({columns}, {f}), tl.float32)"
        if self.groups > 1:
            yield f"for member in range({self.groups}):"
            yield f"    own = head * {self.groups} + member"
            yield from indented(self._along("own"))
        else:
            yield from self._along("head")
        made_k, made_v = self.narrow(f"to_k * {self.scale!r}"), self.narrow("to_v")
        yield store(f"to_k_ptr + {at_k}", made_k, of_k)
        yield store(f"to_v_ptr + {at_v}", made_v, of_v)

    def _along(self, head: str) -> Iterator[str]:
        """The steps along the queries of a head; under a causal mask from the first on that sees a key."""
        rows, columns = self.tile.rows, self.tile.columns
        yield f"q_at = q_ptr + {head} * {self.size(self.queries * self.width)}"
        yield f"g_at = g_ptr + {head} * {self.size(self.queries * self.out)}"
        yield f"lse_at = lse_ptr + {head} * {self.size(self.queries)}"
        yield f"products_at = products_ptr + {head} * {self.size(self.queries)}"
        if self.mask is not None:
            offset = self.mask_offset(head)
            yield f"mask_at = mask_ptr{f' + {offset}' if offset else ''}"
        if self.is_copied:
            for name, width, full in (("q", self.width, self.e), ("g", self.out, self.f)):
                yield f"{name}_tiles = {descriptor(f'{name}_at', (self.queries, width), (rows, full))}"
        if self.is_causal:
            yield f"begin = tile * {columns} // {rows} * {rows}"
            yield f"plain = (tile * {columns} + {columns + rows - 2}) // {rows} * {rows}"
            end = f"tl.minimum(plain, {self.size(self.queries)})"
            yield f"for start in range(begin, {end}, {rows}):"
            yield from indented(self._step(True))
        begin = "plain" if self.is_causal else "0"
        yield f"for start in range({begin}, {self.size(self.queries)}, {rows}):"
        yield from indented(self._step(False))

    def _step(self, cut: bool) -> Iterator[str]:
        rows, columns = self.tile.rows, self.tile.columns
        bound = self.within("rows[:, None]", self.queries, rows)
        yield f"rows = start + tl.arange(0, {rows})"
        if self.is_copied:
            yield "q = q_tiles.load([start, 0])"
        else:
            inside = bound + filled("e[None, :]", self.width, self.e)
            yield f"q = {load(f'q_at + rows[:, None] * {self.width} + e[None, :]', inside)}"
        yield f"s = {self.dot('k', 'q.T')} * {self.unit!r}"
        if self.mask is not None:
            tests = self.within("rows[None, :]", self.queries, rows)
            tests += self.within("columns[:, None]", self.keys, columns)
            yield f"s = {self.masked('mask_at', 'rows[None, :]', 'columns[:, None]', tests)}"
        if cut:
            yield "s = tl.where(rows[None, :] >= columns[:, None], s, float('-inf'))"
        yield from _of_each(self, "at", rows)
        yield "p = tl.exp2(s - lse[None, :])"
        if self.is_copied:
            yield "g = g_tiles.load([start, 0])"
        else:
            inside = bound + filled("f[None, :]", self.out, self.f)
            yield f"g = {load(f'g_at + rows[:, None] * {self.out} + f[None, :]', inside)}"
        yield f"to_v = {self.dot(self.narrow('p'), 'g', 'to_v')}"
        yield f"t = p * ({self.dot('v', 'g.T')} - products[None, :])"
        yield f"to_k = {self.dot(self.narrow('t'), 'q', 'to_k')}"


def _of_each(step: Attending, at: str, rows: int) -> Iterator[str]:
    """The log-sum-exp of each query of a tile, in base 2, and what its cotangents' products add up to."""
    inside = step.within("rows", step.queries, rows)
    yield f"lse = {load(f'lse_{at} + rows', inside)} * {LOG2E!r}"
    yield "lse = tl.where(lse == float('-inf'), 0.0, lse)"  # of a query that sees no key
    yield f"products = {load(f'products_{at} + rows', inside)}"
