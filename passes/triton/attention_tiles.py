"""How attention's kernels go over scores: the tiles that they have of them, and how those are met.

Chosen by `benchmarks/gpu_attention.py`, which tries these and others on a device.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..schedules.gpu import IEEE
from .schedule import power_of_two
from .target import KIB, Target

FEW_WARPS, SCORES = 4, 256  # warps of a small tile, and the scores that each further one has
SMALLEST = 16  # rows and columns that a product on tensor cores has


@dataclass(frozen=True)
class Tile:
    """rows, columns: of a tile of scores, queries and keys.  warps, stages: as `Code` has them.

    copied: what is met is copied by the unit that a GPU has for tiles, where it has one.
    """

    rows: int
    columns: int
    warps: int
    stages: int
    copied: bool = False


# By the widest of a query and a value: on the way there, to queries, to keys and values.  Of f32 64 wide the
# quickest of 22 on an H200 (2026-11-27); the way back of wider ones was not measured.
SINGLES = {
    64: (Tile(128, 32, 4, 2), Tile(64, 64, 4, 2), Tile(64, 32, 4, 2)),
    128: (Tile(64, 32, 8, 3), Tile(32, 32, 8, 2), Tile(32, 32, 8, 2)),
    256: (Tile(32, 16, 8, 3), Tile(32, 16, 8, 2), Tile(16, 32, 8, 2)),
}
# Of f32 whose factors are rounded.  64 wide the quickest of 46 by tf32x3 on an H200 (2026-11-28); wider
# ones were not measured.
ROUNDED = {
    64: (Tile(128, 64, 4, 1), Tile(128, 64, 8, 3), Tile(64, 128, 8, 1)),
    128: (Tile(64, 32, 8, 3), Tile(64, 32, 8, 2), Tile(32, 64, 8, 2)),
    256: (Tile(32, 16, 8, 3), Tile(32, 16, 8, 2), Tile(16, 32, 8, 2)),
}
# The quickest of 10 to 18 over lengths of 512 to 8192 on an H200, with Triton 3.6, 2026-11-27; 128 wide
# there of 17 at 4096, the day after.
HALVES = {
    64: (Tile(64, 64, 4, 3), Tile(64, 64, 4, 3), Tile(64, 64, 4, 3)),
    128: (Tile(64, 64, 4, 3), Tile(64, 64, 4, 2), Tile(64, 64, 4, 2)),
    256: (Tile(64, 32, 8, 3), Tile(64, 32, 8, 2), Tile(32, 64, 8, 2)),
}
THERE, TO_QUERY, TO_KEY_VALUE = range(3)
# Of halves where so many keys (queries) are met: descriptors of tiles need scratch memory at each launch, on
# which the host spends some 30 us.
LONG = 4096
OF_LONG = {
    (THERE, 64): Tile(64, 128, 4, 2, copied=True),
    (TO_KEY_VALUE, 128): Tile(64, 64, 4, 2, copied=True),
}


def tile_of(kernel: int, dtype: str, widest: int, precision: str, met: int) -> Tile:
    """The tile of one of the three kernels.  widest: elements of a query or a value.  met: keys (queries)."""
    table = HALVES if dtype != "f32" else SINGLES if precision == IEEE else ROUNDED
    width = next(width for width in table if widest <= width)
    tile = table[width][kernel]
    return OF_LONG.get((kernel, width), tile) if dtype != "f32" and met >= LONG else tile


def fitted(
    tile: Tile, queries: int, keys: int, held: int, met: int, score: int, rows_met: bool, target: Target
) -> Tile:
    """The tile, no larger than the scores are, and within the memory that a block has.

    A smaller one has fewer warps: of 64 x 16 by 8 warps, by tf32x3, Triton 3.6 makes code that leaves its
    memory (an H200, 2026-11-27).

    held, met: bytes of what a program keeps for each row (column), and of what it meets for each column
    (row), in each stage; score: of a score on its way to a product; rows_met: that rows are met.
    """
    rows = min(tile.rows, max(SMALLEST, power_of_two(queries)))
    columns = min(tile.columns, max(SMALLEST, power_of_two(keys)))
    if rows * columns < tile.rows * tile.columns:
        warps = min(tile.warps, max(FEW_WARPS, rows * columns // SCORES))
        tile = replace(tile, rows=rows, columns=columns, warps=warps)

    def shared(tile: Tile) -> int:
        first, second = (tile.columns, tile.rows) if rows_met else (tile.rows, tile.columns)
        met_at_once = met * second * target.buffers(tile.stages)
        return held * first + met_at_once + score * tile.rows * tile.columns + 3 * KIB

    while tile.stages > 1 and shared(tile) > target.shared:
        tile = replace(tile, stages=tile.stages - 1)
    while shared(tile) > target.shared and min(tile.rows, tile.columns) > SMALLEST:
        rows, columns = (max(SMALLEST, n // 2) for n in (tile.rows, tile.columns))
        warps = min(tile.warps, max(FEW_WARPS, rows * columns // SCORES))
        tile = replace(tile, rows=rows, columns=columns, warps=warps)
    return replace(tile, warps=target.warps(tile.warps))
