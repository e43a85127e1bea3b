"""Attention as one kernel: the scores of a tile of queries are met key by key, and none is ever in memory.

A program has a tile of queries of one head and goes along the keys, as many as registers hold at a time.
It carries the largest score of each query so far, the sum of the exponentials under it, and the sum of the
values that these weigh; where a larger score comes, both sums are made smaller.  Tiles that no mask cuts
come first, without a test.

    for a tile of keys:  s = q @ k.mT * scale                p = 2 ** (s - top)
                         top' = max(top, s)                  total = total * 2 ** (top - top') + sum(p)
                                                             out = out * 2 ** (top - top') + p @ v
    out / total

Source: Milakov and Gimelshein, Online normalizer calculation for softmax, 2018; Dao et al., FlashAttention,
2022.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ...ir.ops.attention_blocks import scale_of
from ...ir.types import Type
from ..programs.program import Whole
from ..schedules.gpu import IEEE
from .code import Code
from .generate import named
from .schedule import power_of_two
from .spelling import TYPES
from .target import KIB, Target

_UNNAMED = "attention"


def attention_code(step: Whole, aligned: Sequence[bool], target: Target) -> Code:
    """The code of an attention step.  aligned: as `Code` has it."""
    dtypes = [array.dtype for array in (*step.inputs, *step.outputs) if array is not None]
    made = _Attention(step, target)
    return named(made.text(), _UNNAMED, dtypes, aligned, made.warps, made.stages, made.grid)


class _Attention:
    """rows, columns: of a tile of scores.  warps, stages: as `Code` has them."""

    def __init__(self, step: Whole, target: Target):
        self.step = step
        query, key, value, mask = (*step.types, None)[:4]
        assert query is not None and key is not None and value is not None
        self.lead = tuple(int(n) for n in query.shape[:-2])
        self.heads = math.prod(self.lead)
        (self.queries, self.width), (self.keys, self.out) = map(_last, (query, value))
        self.dtype, self.mask = query.dtype.short, mask
        self.is_causal, self.scale = step.attrs["is_causal"], scale_of(query, step.attrs["scale"])
        halves, widest = self.dtype != "f32", power_of_two(max(self.width, self.out))
        self.precision = step.attrs["precision"]
        self.rows, self.columns, self.warps, self.stages = _tile(halves, widest, self.precision)
        self.rows = min(self.rows, max(16, power_of_two(self.queries)))
        self.columns = min(self.columns, max(16, power_of_two(self.keys)))
        size = 2 if halves else 4
        while self.stages > 1 and self._shared(size) > target.shared:
            self.stages -= 1
        self.tiles = -(-self.queries // self.rows)

    def _shared(self, size: int) -> int:
        widths = power_of_two(self.width) + power_of_two(self.out)
        return size * (self.stages * self.columns * widths + self.rows * power_of_two(self.width)) + 3 * KIB

    @property
    def grid(self) -> int:
        return self.heads * self.tiles if self.out else 0

    # ---- text
    def text(self) -> str:
        names = ["q_ptr", "k_ptr", "v_ptr", *(["mask_ptr"] if self.mask else []), "out_ptr"]
        return "\n".join(
            [
                "import triton",
                "import triton.language as tl",
                "",
                "",
                "@triton.jit",
                f"def {_UNNAMED}({', '.join(names)}):",
                *(f"    {line}" for line in self._lines()),
                "",
            ]
        )

    def _lines(self) -> Iterator[str]:
        e, f = (max(16, power_of_two(n)) for n in (self.width, self.out))
        yield "pid = tl.program_id(0)"
        # under a causal mask the last queries see most keys, and come first
        tile = f"pid % {self.tiles}"
        yield f"tile = {self.tiles - 1} - {tile}" if self.is_causal else f"tile = {tile}"
        yield f"head = (pid // {self.tiles}).to(tl.int64)"
        yield f"rows = tile * {self.rows} + tl.arange(0, {self.rows})"
        yield f"e = tl.arange(0, {e})"
        yield f"f = tl.arange(0, {f})"
        yield f"q_ptr += head * {self.queries * self.width}"
        yield f"k_ptr += head * {self.keys * self.width}"
        yield f"v_ptr += head * {self.keys * self.out}"
        yield f"out_ptr += head * {self.queries * self.out}"
        yield from self._mask_head()
        row, wide = (
            self._within("rows[:, None]", self.queries, self.rows),
            self._within("e[None, :]", self.width, e),
        )
        yield f"q = {_load(f'q_ptr + rows[:, None] * {self.width} + e[None, :]', row + wide)}"
        yield f"top = tl.full(({self.rows},), float('-inf'), tl.float32)"
        yield f"total = tl.zeros(({self.rows},), tl.float32)"
        yield f"out = tl.zeros(({self.rows}, {f}), tl.float32)"
        whole = self.keys // self.columns * self.columns
        if self.is_causal:
            yield f"plain = tl.minimum(tile * {self.rows} // {self.columns} * {self.columns}, {whole})"
            yield f"end = tl.minimum((tile + 1) * {self.rows}, {self.keys})"
        else:
            yield f"plain = {whole}"
            yield f"end = {self.keys}"
        yield from self._loop("0", "plain", False, e, f)
        if self.is_causal or whole < self.keys:
            yield from self._loop("plain", "end", True, e, f)
        yield "total = tl.where(total == 0.0, 1.0, total)"
        yield f"made = (out / total[:, None]).to(tl.{TYPES[self.dtype]})"
        inside = row + self._within("f[None, :]", self.out, f)
        mask = f", mask={' & '.join(inside)}" if inside else ""
        yield f"tl.store(out_ptr + rows[:, None] * {self.out} + f[None, :], made{mask})"

    def _loop(self, begin: str, end: str, cut: bool, e: int, f: int) -> Iterator[str]:
        """The steps along keys; cut: whether a mask or the end of the keys cuts some of the scores."""
        bound = cut and self.keys % self.columns != 0
        column = [f"(columns[None, :] < {self.keys})"] if bound else []
        key = column + self._within("e[:, None]", self.width, e)
        value = [f"(columns[:, None] < {self.keys})"] if bound else []
        value += self._within("f[None, :]", self.out, f)
        yield f"for start in range({begin}, {end}, {self.columns}):"
        yield f"    columns = start + tl.arange(0, {self.columns})"
        yield f"    k = {_load(f'k_ptr + columns[None, :] * {self.width} + e[:, None]', key)}"
        yield f"    s = tl.dot(q, k, input_precision='{self.precision}') * {self.scale * math.log2(math.e)!r}"
        yield from (f"    {line}" for line in self._masked(column))
        seen = [*column, *(["(rows[:, None] >= columns[None, :])"] if cut and self.is_causal else [])]
        if seen:
            yield f"    s = tl.where({' & '.join(seen)}, s, float('-inf'))"
        yield "    new = tl.maximum(top, tl.max(s, 1))"
        # of a query that has seen no key yet; nothing is taken of infinity from itself
        yield "    under = tl.where(new == float('-inf'), 0.0, new)"
        yield "    p = tl.exp2(s - under[:, None])"
        yield "    less = tl.exp2(top - under)"
        yield "    total = total * less + tl.sum(p, 1)"
        yield f"    v = {_load(f'v_ptr + columns[:, None] * {self.out} + f[None, :]', value)}"
        yield f"    p = p.to(tl.{TYPES[self.dtype]})"
        yield f"    out = tl.dot(p, v, out * less[:, None], input_precision='{self.precision}')"
        yield "    top = new"

    def _mask_head(self) -> Iterator[str]:
        """The pointer to what a head has of the mask, where not all heads have the same."""
        if self.mask is None:
            return
        own = (1,) * (len(self.lead) + 2 - self.mask.ndim) + tuple(int(n) for n in self.mask.shape)
        radix, parts = 1, []
        for d in reversed(range(len(self.lead))):
            if own[d] != 1:
                parts.append(f"head // {radix} % {self.lead[d]} * {math.prod(own[d + 1 :])}")
            radix *= self.lead[d]
        if parts:
            yield f"mask_ptr += {' + '.join(parts)}"

    def _masked(self, column: list[str]) -> Iterator[str]:
        if self.mask is None:
            return
        high, wide = ((1, 1) + tuple(int(n) for n in self.mask.shape))[-2:]
        at, tests = [], list(column) if wide != 1 else []
        if high != 1:
            at.append(f"rows[:, None] * {wide}")
            tests += self._within("rows[:, None]", self.queries, self.rows)
        if wide != 1:
            at.append("columns[None, :]")
        shape = f"tl.zeros(({self.rows if high != 1 else 1}, {self.columns if wide != 1 else 1}), tl.int32)"
        found = _load(f"mask_ptr + ({' + '.join([*at, shape])})", tests)
        if self.mask.dtype.short == "bool":
            yield f"s = tl.where({found}, s, float('-inf'))"
        else:
            yield f"s += {found}.to(tl.float32) * {math.log2(math.e)!r}"

    def _within(self, text: str, count: int, size: int) -> list[str]:
        """The test that an index is below its count, if tiles of so many don't divide that."""
        return [f"({text} < {count})"] if count % size else []


def _tile(halves: bool, widest: int, precision: str) -> tuple[int, int, int, int]:
    """Rows, columns, warps and stages: of halves the quickest of 12 on an H200, of f32 of 9."""
    if not halves and widest > 64:
        return (64, 32, 8, 3) if widest <= 128 else (32, 16, 8, 3)
    if not halves:
        return (64, 64, 4, 3) if precision == IEEE else (128, 32, 8, 3)
    if widest <= 64:
        return 64, 64, 4, 3
    return (128, 128, 8, 3) if widest <= 128 else (64, 32, 8, 3)


def _last(t: Type) -> tuple[int, int]:
    rows, columns = t.shape[-2:]
    return int(rows), int(columns)


def _load(at: str, tests: list[str]) -> str:
    return f"tl.load({at}, mask={' & '.join(tests)}, other=0.0)" if tests else f"tl.load({at})"
