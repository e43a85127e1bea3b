"""What the sources of attention's kernels share: where a head's arrays are, how parts of them are loaded, and
what masks do to a tile of scores.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from ...ir.errors import KernelError
from ...ir.ops.attention_blocks import scale_of
from ...ir.types import Type
from ..programs.program import Whole
from ..schedules.gpu import IEEE, PRECISIONS
from .code import ALIGNMENT
from .opening import Numbers, Open
from .schedule import power_of_two
from .spelling import TYPES
from .target import KIB, Target

LOG2E = math.log2(math.e)
NEAR = 16 << 20  # bytes of what heads are held against that are met at once: a part of the second cache
FUNCTION = "attention"
# Shared memory that the way back takes of f32 256 wide, whose factors are kept as two parts by Triton 3.9.
OF_WIDE = 161 * KIB


class Attending:
    """A step's sizes, and lines that tell of them.

    lead: the dimensions of heads.  e, f: the widths of queries and of values, filled up.  unit: scores in
    base 2, of which products of queries and keys are taken times that.  size: how numbers are spelled that
    come of lengths and of heads; widths stand as they are.
    """

    def __init__(self, step: Whole, target: Target, opens: Open):
        self.size = Numbers(opens)
        query, key, value, mask = step.types[:4]
        assert query is not None and key is not None and value is not None
        self.step, self.mask = step, mask
        self.lead = tuple(int(n) for n in query.shape[:-2])
        self.heads, self.groups = math.prod(self.lead), int(step.attrs["groups"])
        (self.queries, self.width), (self.keys, self.out) = map(_last, (query, value))
        self.e, self.f = (max(16, power_of_two(n)) for n in (self.width, self.out))
        self.dtype, self.nbytes = query.dtype.short, 4 if query.dtype.short == "f32" else 2
        self.score = 4 if self.dtype == "f32" else 0  # bytes; of halves they go on in registers
        self.is_causal, self.precision = step.attrs["is_causal"], step.attrs["precision"]
        if self.precision not in PRECISIONS:  # it stands in the source
            raise KernelError(f"{step.name}: precision is one of {', '.join(PRECISIONS)}")
        if not target.has_tf32 or max(self.e, self.f) > 128 and target.shared < OF_WIDE:
            self.precision = IEEE
        self.scale = float(scale_of(query, step.attrs["scale"]))
        self.unit = self.scale * LOG2E

    @property
    def adds(self) -> bool:
        """Whether a mask is added."""
        return self.mask is not None and self.mask.dtype.short != "bool"

    def heads_at_once(self, heads: int, nbytes: int) -> int:
        """How many heads, a divisor of all, are gone over together, each held against so many bytes."""
        return max((n for n in range(1, heads + 1) if not heads % n and n * nbytes <= NEAR), default=1)

    # ---- lines
    def place(self, tiles: int, heads: int, together: int, backwards: bool) -> Iterator[str]:
        """Which tile of which head a program has.  together: heads whose first tiles come before others'."""
        yield "pid = tl.program_id(0)"
        if together == 1:
            count = self.size.anyway(tiles)
            yield f"tile = pid % {count}"
            yield f"head = (pid // {count}).to(tl.int64)"
        else:
            several, every = self.size(together), self.size(together * tiles)
            yield f"tile = pid % {every} // {several}"
            yield f"head = (pid // {every} * {several} + pid % {several}).to(tl.int64)"
        if backwards:
            yield f"tile = {self.size.anyway(tiles - 1)} - tile"

    def function(self, lines: Iterable[str]) -> str:
        """The module of a kernel with these lines."""
        names = ["q", "k", "v", *(["mask"] if self.mask is not None else []), *self.others()]
        body = [f"    {line}" for line in lines]
        parameters = [*(f"{name}_ptr" for name in names), *self.size.values]
        return "\n".join(
            [
                "import triton",
                "import triton.language as tl",
                "",
                "",
                "@triton.jit",
                f"def {FUNCTION}({', '.join(parameters)}):",
                *body,
                "",
            ]
        )

    def others(self) -> Sequence[str]:
        """The names of operands behind the mask, and of outputs."""
        raise NotImplementedError

    def of_queries(self, tiles: int, rows: int) -> Iterator[str]:
        """The tile of queries that a program has, and where its head begins in what all kernels read."""
        nbytes = self.keys * (self.width + self.out) * self.nbytes
        together = self.heads_at_once(self.heads, nbytes) if self.is_causal else 1
        # under a causal mask the last queries see most keys, and come first
        yield from self.place(tiles, self.heads, together, self.is_causal)
        yield f"rows = tile * {rows} + tl.arange(0, {rows})"
        yield f"e = tl.arange(0, {self.e})"
        yield f"f = tl.arange(0, {self.f})"
        yield f"q_ptr += head * {self.size(self.queries * self.width)}"
        yield f"k_ptr += {self.of_keys('head')} * {self.size(self.keys * self.width)}"
        yield f"v_ptr += {self.of_keys('head')} * {self.size(self.keys * self.out)}"
        if offset := self.mask_offset("head"):
            yield f"mask_ptr += {offset}"

    def key_range(self, rows: int, columns: int) -> Iterator[str]:
        """How far the keys of a tile of queries go: those that nothing cuts, and all."""
        whole, every = self.size(self.keys // columns * columns), self.size(self.keys)
        if self.is_causal:
            yield f"plain = tl.minimum(tile * {rows} // {columns} * {columns}, {whole})"
            yield f"end = tl.minimum((tile + 1) * {rows}, {every})"
        else:
            yield f"plain = {whole}"
            yield f"end = {every}"

    def is_cut(self, columns: int) -> bool:
        """Whether some tiles of scores are cut by a causal mask or the end of the keys."""
        return self.is_causal or self.size.are_open or self.keys % columns != 0

    def seen(self, start: str, cut: bool, rows: int, columns: int) -> Iterator[str]:
        """Scores of a tile of queries where they see keys."""
        bound = self.within("columns[None, :]", self.keys, columns) if cut else []
        causal = ["(rows[:, None] >= columns[None, :])"] if cut and self.is_causal else []
        if bound or causal or self.mask is not None:
            yield f"columns = {start} + tl.arange(0, {columns})"
        if self.mask is not None:
            tests = [*bound, *self.within("rows[:, None]", self.queries, rows)]
            yield f"s = {self.masked('mask_ptr', 'rows[:, None]', 'columns[None, :]', tests)}"
        if bound or causal:
            yield f"s = tl.where({' & '.join([*bound, *causal])}, s, float('-inf'))"

    def values(self, start: str, cut: bool, columns: int, is_copied: bool) -> Iterator[str]:
        """A tile of values."""
        if is_copied:
            yield f"v = v_tiles.load([{start}, 0])"
            return
        bound = self.within("key[:, None]", self.keys, columns) if cut else []
        bound += filled("f[None, :]", self.out, self.f)
        yield f"key = {start} + tl.arange(0, {columns})"
        yield f"v = {load(f'v_ptr + key[:, None] * {self.out} + f[None, :]', bound)}"

    def can_copy(self, aligned: Sequence[bool], target: Target) -> bool:
        """Whether a unit of the target's own can copy tiles: rows of whole 16 bytes."""
        pieces = [n * self.nbytes % ALIGNMENT == 0 and n > 0 for n in (self.width, self.out)]
        return (
            target.has_tma
            and self.nbytes == 2
            and not self.size.are_open
            and all((*pieces, *aligned, self.queries, self.keys))
        )

    def descriptors(self, columns: int) -> Iterator[str]:
        """Of keys and values, for `can_copy`."""
        for name, width, full in (("k", self.width, self.e), ("v", self.out, self.f)):
            yield f"{name}_tiles = {descriptor(f'{name}_ptr', (self.keys, width), (columns, full))}"

    def dot(self, left: str, right: str, to: str = "") -> str:
        more = f", {to}" if to else ""
        return f"tl.dot({left}, {right}{more}, input_precision='{self.precision}')"

    def queries_of(self, name: str, width: str, is_copied: bool, rows: int) -> str:
        """A tile of what has a row for each query, at a pointer to its head.  width: the index along rows."""
        count, full = (self.width, self.e) if width == "e" else (self.out, self.f)
        if is_copied:
            return (
                f"{descriptor(f'{name}_ptr', (self.queries, count), (rows, full))}.load([tile * {rows}, 0])"
            )
        inside = self.within("rows[:, None]", self.queries, rows)
        inside += filled(f"{width}[None, :]", count, full)
        return load(f"{name}_ptr + rows[:, None] * {count} + {width}[None, :]", inside)

    def narrow(self, text: str) -> str:
        """A tile as factors have it."""
        return f"({text}).to(tl.{TYPES[self.dtype]})"

    def of_keys(self, head: str) -> str:
        """The head of keys and values that a head of queries sees."""
        return head if self.groups == 1 else f"({head} // {self.groups})"

    def within(self, text: str, count: int, size: int) -> list[str]:
        """The test that an index is below its count, if tiles of so many may not divide that."""
        return [f"({text} < {self.size(count)})"] if self.size.are_open else filled(text, count, size)

    def mask_offset(self, head: str) -> str:
        """The first element of the mask that a head of queries has; nothing where all have the same."""
        if self.mask is None:
            return ""
        own = (1,) * (len(self.lead) + 2 - self.mask.ndim) + tuple(int(n) for n in self.mask.shape)
        radix, parts = 1, []
        for d in reversed(range(len(self.lead))):
            if own[d] != 1:
                radix_, lead, step = map(self.size, (radix, self.lead[d], math.prod(own[d + 1 :])))
                parts.append(f"{head} // {radix_} % {lead} * {step}")
            radix *= self.lead[d]
        return " + ".join(parts)

    def masked(self, mask: str, row: str, column: str, tests: list[str]) -> str:
        """Scores after the mask.  mask: its pointer.  row, column: as a tile has them.  tests: of what is
        there of these.
        """
        assert self.mask is not None
        high, wide = ((1, 1) + tuple(int(n) for n in self.mask.shape))[-2:]
        wider = ".to(tl.int64)" if high * wide >= 1 << 31 else ""
        at = [f"{row}{wider} * {self.size(wide)}"] if high != 1 else []
        at += [column] if wide != 1 else []
        at = at or ["tl.zeros((1, 1), tl.int32)"]
        axes = [name for name, count in (("rows", high), ("columns", wide)) if count != 1]
        own = [test for test in tests if any(name in test for name in axes)]
        found = load(f"{mask} + ({' + '.join(at)})", own)
        if not self.adds:
            return f"tl.where({found}, s, float('-inf'))"
        return f"s + {found}.to(tl.float32) * {LOG2E!r}"


def filled(text: str, count: int, size: int) -> list[str]:
    """The test that an index is below its count, if tiles of so many don't divide that."""
    return [f"({text} < {count})"] if count % size else []


def load(at: str, tests: Sequence[str]) -> str:
    return f"tl.load({at}, mask={' & '.join(tests)}, other=0.0)" if tests else f"tl.load({at})"


def store(at: str, value: str, tests: Sequence[str]) -> str:
    return f"tl.store({at}, {value}, mask={' & '.join(tests)})" if tests else f"tl.store({at}, {value})"


def descriptor(at: str, shape: tuple[int, int], block: tuple[int, int]) -> str:
    return (
        f"tl.make_tensor_descriptor({at}, shape=[{shape[0]}, {shape[1]}], strides=[{shape[1]}, 1], "
        f"block_shape=[{block[0]}, {block[1]}])"
    )


def indented(lines: Iterable[str]) -> Iterator[str]:
    return (f"    {line}" for line in lines)


def _last(t: Type) -> tuple[int, int]:
    rows, columns = t.shape[-2:]
    return int(rows), int(columns)
