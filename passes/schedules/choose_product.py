"""Which of the ways that fit a product of matrices takes least time, by the figures of a core.

    y[i, j] = sum(k) x[i, k] * w[k, j]

plain: as any sum.  panels: tiles of rows and panels of columns, the right factor where it lies.  packed: the
same, the right factor copied beforehand so that a panel is read in one stream.  dots: vectors along the sum,
where both factors are contiguous in it.  pairs: packed, two neighbours of the sum in one instruction.  What
all but `plain` have in common is left out.

`benchmarks/families.py` measures them all over a grid of sizes, and says what the choice costs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .target import Core, Target

WAYS = ("packed", "panels", "dots", "pairs", "plain")  # of equal time the first
PAGE = 4096  # rows this far apart fall on the same lines of a cache, which holds a dozen of each
MATRIX_SHARE = 0.3  # of a sum's time in vectors of f32, in matrix registers
CROWDED = 1024  # rows a multiple of this apart share lines of the nearest cache
LEAST_SUMS = 8  # of a tile, as additions take four cycles, and two of them are begun in each
CALL = 300.0  # nanoseconds of one more call


@dataclass(frozen=True)
class Size:
    """Products of [rows, depth] and [depth, columns], `batch` of them, each with factors of its own.

    itemsize: bytes of an element.  pitch: bytes between neighbours along the right factor's slower axis;
    None for a factor that is computed.  turned: whether that axis is the columns'.  tile: the rows and
    columns of a tile of panels.  in_strips: whether panels go over the sum in strips, which stay in cache
    where their rows do not share lines.  is_made: whether the left factor is to be laid out for `pairs`.
    is_ragged: whether columns may fill no panels, so that each that is packed is tested.
    """

    batch: int
    rows: int
    columns: int
    depth: int
    itemsize: int
    pitch: int | None
    turned: bool
    tile: tuple[int, int]
    in_strips: bool = False
    is_made: bool = False
    is_ragged: bool = False

    @property
    def right(self) -> int:
        """The bytes of a right factor."""
        return self.depth * self.columns * self.itemsize

    @property
    def left(self) -> int:
        """The bytes of a left factor."""
        return self.rows * self.depth * self.itemsize

    @property
    def multiplied(self) -> int:
        """The multiplications of a product."""
        return self.rows * self.columns * self.depth


def choose_product(size: Size, ways: Iterable[str], share: float, target: Target) -> str:
    """The way of `ways` that takes least.  share: of the packing, that this product must pay for."""

    def key(way: str) -> tuple[float, int]:
        spent = nanoseconds(size, "packed" if way == "pairs" else way, target)
        if way in ("packed", "pairs"):
            spent *= share
        if way == "pairs":  # half of all multiplications are saved, or more of them
            spent += (CALL + size.batch * size.left / target.core.lays) * size.is_made
            saved = 1 - (MATRIX_SHARE if target.matrix else target.core.pairs)
            spent -= 2 * saved * size.batch * size.multiplied * target.core.muladd
        return spent, WAYS.index(way)

    return min(ways, key=key)


def goes_by_rows(height: int, size: Size, target: Target) -> bool:
    """Whether a block of rows meets all panels of columns before the next block does, so that the left factor
    is read once: where it is far, and the right one, which is read for each block, is not as large.

    height: the rows that share a right factor.  7224 rows of 256 with 64 columns reach 59 GF/s in place of
    38, 3000 x 1024 x 1024 73 in place of 61, and 1000 x 1024 x 1024 would lose (54 of 65; EPYC "Zen 3", one
    thread, 2026-11-26).
    """
    left = height * size.depth * size.itemsize
    return left > max(target.core.cache // 2, 2 * size.right)


def of_tiles(height: int, columns: int, tile: tuple[int, int], core: Core) -> float:
    """What the tiles of a product take for a point of its sum, as so many additions of vectors.

    columns: vectors of them; those of the last panel may be fewer.  tile: its rows and vectors; it takes its
    sums, `core.tile` more, and no less than the cycles after which the next can be added to each: 512 x 512
    with 96 columns runs at 178 GF/s by 8 x 3, 170 by 12 x 2 and 151 by 6 x 4, with 160 columns at 145, 158
    and 139, 32 x 784 with 256 at 164, 151 and 154 (medians; an Intel Xeon with AMX, one thread, 2026-11-28).
    """
    rows, vectors = tile
    whole, rest = divmod(columns, vectors)
    of_row = whole * (max(rows * vectors, LEAST_SUMS) + core.tile)
    if rest:
        of_row += max(rows * rest, LEAST_SUMS) + core.tile
    return -(-height // rows) * of_row


def nanoseconds(size: Size, way: str, target: Target) -> float:
    """What a way takes beyond the multiplications, on one thread."""
    core, right = target.core, size.right
    rows, columns = size.tile
    is_far = right > core.cache // 2
    collides = size.pitch is not None and size.pitch % PAGE == 0
    if way == "packed":  # a turned factor is read in as many rows as a panel has columns
        rate = core.packs * min(1.0, 2 * target.lanes / columns) if size.turned else core.packs
        if size.batch * right >= core.packs_near:
            rate = min(rate, core.packs_far)
        if size.turned and collides:
            rate = min(rate, core.packs_turned)
        if size.turned and size.is_ragged:
            rate = min(rate, core.packs_ragged)
        return CALL + size.batch * right / rate
    if way == "panels":
        again = -(-size.rows // rows) - 1  # times that a panel is read once more
        if collides and size.depth > core.cache // PAGE:
            return size.batch * again * right / core.collides
        near = size.in_strips and size.pitch is not None and size.pitch % (PAGE // 2) != 0
        if is_far and not near:
            return size.batch * again * right / min(core.strides, core.again)
        if size.pitch == columns * size.itemsize:
            return 0.0  # it lies as if it were packed
        crowded = size.pitch is not None and size.pitch % CROWDED == 0 and size.pitch > CROWDED
        beyond = size.batch * (right + size.rows * size.columns * size.itemsize) > core.cache
        rate = min(core.again, core.again_far) if beyond else core.again
        return size.batch * again * right / rate * (1 + crowded)
    if way == "dots":
        spent = size.rows * size.columns * core.lane_sum + size.multiplied * core.dots
        spent += size.rows * right / core.dots_far if is_far else 0.0
        spent += right / core.collides if collides and size.rows == 1 else 0.0
        return size.batch * spent
    if size.pitch is None:  # computed anew for each of the default schedule's tiles, of 8 rows
        return size.batch * -(-size.rows // 8) * right / core.packs
    # one sum at a time: the factor is read for each row, and four vectors of every sum are added up
    return size.batch * size.rows * (right / core.near + 4 * core.lane_sum * size.columns)
