"""Convolutions and the gradients of their weights by Winograd's algorithm, as products between what is made
of tiles, for images with the batch innermost: of 3 x 3 taps, and of 4 x 4 at every second place.

    kernel conv_weight_grad(g: f32[64,16,16,32], x: f32[32,16,16,32]) -> (out: f32[64,32,3,3])
    ->
    kernel tiles_of_g(g) -> (u: f32[4,64,36,128])                   (G g Gt)[a], of rows of tiles of 4 x 4
    kernel tiles_of_x(x) -> (v: f32[4,32,36,128])                   (Bt x B)[a], of windows of 6 x 6
    kernel products(u, v) -> (m: f32[36,64,32])                     m[a] = sum of u[y, :, a] @ v[y, :, a].T
    kernel taps(m) -> (w: f32[3,3,64,32])                           w = At m A
    kernel conv_weight_grad(w) -> (out: f32[64,32,3,3])             and whatever is computed of it

    kernel conv2d(x: f32[32,16,16,32], w: f32[3,3,32,64]) -> (out: f32[64,16,16,32])
    ->
    kernel tiles_of_w(w) -> (u: f32[36,2,32,32])                    u[a] = (G w Gt)[a], 32 results beside
    kernel tiles_of_x(x) -> (v: f32[36,16,32,32])                   each other, as of these 32 tiles
    kernel products(u, v) -> (m: f32[36,16,64,32])                  m[a, p] = u[a].T @ v[a, p]
    kernel places(m) -> (y: f32[64,16,16,32])                       of whole tiles, y = At m A
    kernel conv2d(y) -> (out: f32[64,16,16,32])                     and whatever is computed of it

A weight's gradient is a correlation of 3 x 3 results whose taps are the cotangents: of each tile of 4 x 4 of
these with its window, which takes 36 products where a direct sum takes 144.  All tiles of all images are
summed before a result is taken back, so that is done once for each pair of channels.  Of a convolution the
same 36 products are of its taps; those that the caches hold u for have code of their own, which never
stores v and m (passes/llvm/conv_winograd.py), and here are those of many channels.

At every second place, 4 x 4 taps are 2 x 2 of each of the four images that have every second row and column,
which are as many channels more: 100 products in place of 256.  The other way round, in the gradient of such
an image and in what is convolved transposed, these four are as many results more, each with a window and
taps of its own.

Source: Lavin and Gray, Fast Algorithms for Convolutional Neural Networks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from math import isclose, prod
from typing import NamedTuple

import numpy as np
from numpy import poly

from ...ir.kernel.affine import Affine
from ...ir.kernel.form import Axis, Buffer, Kernel, Local, Reduce, Store
from ...ir.kernel.scalar import Expr, Read, const, op, read, ref
from ..kernels.blocking import fresh
from ..kernels.product import Factor, is_zero, plain, products
from ..kernels.winograd import PAIRS, at_points, powers
from ..schedules.target import Target
from .factor_sums import CALL, price
from .in_bands import FAR, NEAR

TILE = 4  # places of a tile, on a side
STEPS = {1: 3, 2: 4}  # the taps of a window that moves by so many places
# Beside infinity, by taps of a phase.  Of two taps those whose sums err least of some tried, and no more than
# those of three taps do.  A point and its opposite share additions.
POINTS = {3: (0.0, *(sign * a for a in PAIRS[TILE + 2] for sign in (1, -1))), 2: (0.0, 0.7, -0.7, 1.75)}
# Bytes of what tiles become, which live for a moment; and of what a weight becomes, or its gradient is made
# of, while many results of the forward pass are there: at most this, as much as one of these, or so many
# times both images.  With 512 by 512 channels of 4 x 4 places it was the most of a ResNet-18 for images of
# 32 x 32, and gained least.
MOST_TILES, MOST_WEIGHTS, TIMES = 1 << 27, 1 << 24, 9
# In bands there is a part of what tiles become at a time, but for who profiles or guards each call; what is
# summed of it, once for each part, is then to be that many times smaller.
MOST_IN_BANDS, SUMMED = 1 << 29, 3
PANEL = 32  # tiles whose values lie together, channel after channel, as products read them
Values = Sequence[Expr]
Transform = Callable[[Values], list[Expr]]
Matrix = Sequence[Sequence[float]]


class Sum(NamedTuple):
    """sum of one * image[c, step * y + r + origin, step * x + s + origin, n].

    Of a weight's gradient over y, x, n, and one[k, y, x, n]; else over r, s, c, and one[r, s, c, k].
    backwards: in which dimensions the window's last tap comes first.

    divided: whether instead the step is of the results: one * image[c, y + r + origin, x + s + origin, n] of
    the places step * y, step * x, and of those beside them where taps are odd, or where windows begin later.
    late: in which dimensions the latter.
    """

    stage: Reduce
    one: Read
    image: Read
    outs: str
    channels: str
    taps: list[str]
    places: list[str]
    batch: str
    step: int
    origin: list[int]
    backwards: list[bool]
    is_gradient: bool
    divided: bool
    late: list[bool]

    @property
    def reach(self) -> int:
        """Taps of a phase: of every step-th row and column."""
        return STEPS[self.step] // self.step

    @property
    def apart(self) -> int:
        """From one result of a phase to the next."""
        return self.step if self.divided else 1

    @property
    def positions(self) -> int:
        return (TILE + self.reach - 1) ** 2


def in_tiles(kernel: Kernel, target: Target, largest: int = 0) -> list[Kernel] | None:
    """The kernels of `tiled`, where they take a sixth off the time, and not too much memory.

    largest: bytes of the largest array that is there anyway.
    """
    found = _sum_of(kernel)
    if found is None:
        return None
    outs, channels, batch, *places = (
        int(kernel.extents[axis]) for axis in (found.outs, found.channels, found.batch, *found.places)
    )
    tiles, phases = prod(-(-n // (TILE * found.apart)) for n in places), found.step**2
    if found.positions * tiles * found.apart**2 >= found.reach**2 * prod(places):
        return None  # there is as much to multiply
    weights = 4 * found.positions * outs * channels * phases
    most = MOST_IN_BANDS if _parts_of_row(found, kernel) else MOST_TILES
    images = 4 * prod(places) * batch * (outs + channels * (phases / found.apart**4))
    if 4 * found.positions * tiles * batch * (outs * found.apart**2 + channels * phases) > most:
        return None
    if weights > max(MOST_WEIGHTS, TIMES * images, largest):
        return None
    made = _kernels(kernel, found)
    spent = sum(price(part, target) + CALL for part in made)
    return made if spent < 5 / 6 * price(kernel, target) else None


def tiled(kernel: Kernel, images_first: bool = False) -> list[Kernel] | None:
    """The kernels that one after another give what the sum gives; None where it is another.

    images_first: tiles are numbered image by image, not place by place; sums whose index divides stay, as
    they have not been measured so.
    """
    found = _sum_of(kernel)
    return None if found is None or found.divided and images_first else _kernels(kernel, found, images_first)


def _sum_of(kernel: Kernel) -> Sum | None:
    """The sum, if it is one of these."""
    for product in products(kernel):
        one, other = product.factors
        if len(product.stage.axes) == 3:
            return _roles(kernel, product.stage, one, other) or _roles(kernel, product.stage, other, one)
    return None


def _roles(kernel: Kernel, stage: Reduce, factor: Factor, windows: Factor) -> Sum | None:
    extents, buffers = kernel.extents, kernel.buffers
    one, image, divided = factor.access, windows.access, windows.divided
    if one is None or image is None or factor.divided != {} or divided is None:
        return None
    if not all(isinstance(n, int) for n in extents.values()) or len(one.index) != 4 or len(image.index) != 4:
        return None
    if any(buffers[x.buffer].dtype != "f32" or buffers[x.buffer].layout for x in (one, image)):
        return None
    if any(sum(access.buffer == x.buffer for _, access in kernel.reads) > 1 for x in (one, image)):
        return None  # an operand is added to the sum, too: no kernel that is made has it as it was
    if divided and {d: by for d, (_, by) in divided.items()} != {1: 2, 2: 2}:
        return None
    summed = {axis.name for axis in stage.axes}
    parts = [divided[d][0] for d in (1, 2)] if divided else image.index[1:3]
    own, channels, batch = [plain(p) for p in one.index], plain(image.index[0]), plain(image.index[3])
    terms = [dict(part.terms) if isinstance(part, Affine) else {} for part in parts]
    inner = [axis for each in terms for axis in each if axis in summed]
    outer = [axis for each in terms for axis in each if axis not in summed]
    if [len(each) for each in terms] != [2, 2] or len(inner) != 2:
        return None
    shape = buffers[image.buffer].shape
    lengths = [*zip(own, buffers[one.buffer].shape, strict=True), (channels, shape[0]), (batch, shape[3])]
    if any(axis is None or extents[axis] != length for axis, length in lengths):
        return None  # a tile would read what lies beside a part
    is_gradient = own[1:] == [*inner, batch]
    if not (is_gradient or own[:3] == [*inner, channels]):
        return None
    if summed != {*inner, batch if is_gradient else channels}:
        return None
    outs, taps, places = (own[0], outer, inner) if is_gradient else (own[3], inner, outer)
    steps = [each[place] for each, place in zip(terms, places, strict=True)]
    by = [each[tap] for each, tap in zip(terms, taps, strict=True)]
    step = steps[0]
    if not isinstance(step, int) or {*steps} != {step}:
        return None
    if divided:
        if is_gradient or step != 1 or by != [-1, -1]:
            return None
        step = 2
    elif step not in STEPS or not {*by} <= ({1} if is_gradient or step > 1 else {1, -1}):
        return None
    if any(extents[tap] != STEPS[step] for tap in taps):
        return None
    if not all(x.other is None or is_zero(x.other) for x in (one, image)):
        return None
    backwards, starts = [n < 0 for n in by], [int(part.constant) for part in parts]
    late = [bool(divided) and start % 2 == 1 for start in starts]
    back = STEPS[step] - 1 if not divided else STEPS[step] // step - 1
    starts = [start // 2 for start in starts] if divided else starts
    origin = [start - back * last for start, last in zip(starts, backwards, strict=True)]
    return Sum(
        stage, one, image, outs, channels, taps, places, batch, step, origin, backwards, is_gradient,
        bool(divided), late,
    )  # fmt: skip


def _kernels(kernel: Kernel, found: Sum, images_first: bool = False) -> list[Kernel]:
    extents, buffers, step = kernel.extents, kernel.buffers, found.step
    outs, channels, batch = (int(extents[axis]) for axis in (found.outs, found.channels, found.batch))
    rows, across = tiles = [-(-int(extents[place]) // (TILE * found.apart)) for place in found.places]
    name = {letter: fresh(kernel, letter) for letter in "uvmwzaefijtbscyxnkpqrhl"}
    at = {letter: Affine(((name[letter], 1),)) for letter in "aefijtbcyxnpqrhl"}
    sizes = {"a": found.positions, "e": step, "f": step, "i": outs, "j": channels}
    sizes |= {"t": rows * across * batch, "b": across * batch, "y": rows, "x": across, "n": batch}
    over = "yxn"  # the axes that tiles are gone over by
    parts = 0 if images_first else _parts_of_row(found, kernel)
    sizes |= {"r": rows * max(1, parts), "b": across * batch // max(1, parts)}
    tile: list[Affine]  # where a tile is among all
    of_tile = "t"
    if images_first:
        tile = [Affine.of({name["y"]: across, name["x"]: 1, name["n"]: rows * across})]
    elif found.is_gradient:
        tile = [at["y"], Affine.of({name["x"]: batch, name["n"]: 1})]
        if parts > 1:
            over, sizes["h"], sizes["x"] = "yhxn", parts, across // parts
            tile[0] = Affine.of({name["y"]: parts, name["h"]: 1})
            at["x"] = Affine.of({name["h"]: sizes["x"], name["x"]: 1})
    elif batch % PANEL == 0:
        over, of_tile, sizes["k"], sizes["n"] = "yxkn", "pq", batch // PANEL, PANEL
        panel = {"y": across * sizes["k"], "x": sizes["k"], "k": 1}
        tile = [Affine.of({name[letter]: by for letter, by in panel.items()}), at["n"]]
        at["n"] = Affine.of({name["k"]: PANEL, name["n"]: 1})
    elif PANEL % batch == 0 and across % (PANEL // batch) == 0:
        over, of_tile, sizes["k"], sizes["x"] = "ykxn", "pq", across * batch // PANEL, PANEL // batch
        tile = [
            Affine.of({name["y"]: sizes["k"], name["k"]: 1}),
            Affine.of({name["x"]: batch, name["n"]: 1}),
        ]
        at["x"] = Affine.of({name["k"]: sizes["x"], name["x"]: 1})
    else:
        tile = [Affine.of({name["y"]: across * batch, name["x"]: batch, name["n"]: 1})]
    sizes |= {"p": rows * across * batch // PANEL, "q": PANEL}
    phases, side, taps = "ef" if step > 1 else "", TILE + found.reach - 1, STEPS[step]
    of_window, of_cotangents, of_taps, to_places, to_taps = _transforms(found.reach)

    # Of results, too, a panel lies together: rows of many are pages apart, and push each other out of the
    # nearest cache (512 by 512 channels with 128 tiles: 12.1 ms in place of 14.1; two threads of an EPYC
    # "Zen 4", 2026-11-29).
    of_outs, of_taps_made = "i", f"{phases}ji"
    if of_tile == "pq" and outs % PANEL == 0:
        of_outs, of_taps_made, sizes["h"], sizes["l"] = "hl", f"{phases}hjl", outs // PANEL, PANEL
        at["i"] = Affine.of({name["h"]: PANEL, name["l"]: 1})

    def axes(letters: str) -> tuple[Axis, ...]:
        letters = letters.replace("i", of_outs)
        return tuple(Axis(name[letter], sizes[letter]) for letter in letters)

    def buffer(letter: str, along: str) -> Buffer:
        return Buffer(name[letter], "f32", tuple(sizes[axis] for axis in along))

    def index(letters: str) -> tuple[Affine, ...]:
        return tuple(at[letter] for letter in letters)

    def place(
        n: int,
        width: int,
        by: int = 1,
        moves: Sequence[bool] = (False, False),
        origin: Sequence[int] = (0, 0),
    ) -> tuple[Affine, ...]:
        """The n-th of a tile's in rows of `width`, of every by-th row and column.

        moves: whether the second phase begins one later, of rows and of columns.
        """
        parts = [
            at[letter] * (by * TILE) + Affine.of({name[phase]: int(moved)}, low + by * p)
            for letter, phase, moved, low, p in zip("yx", "ef", moves, origin, divmod(n, width), strict=True)
        ]
        return (*parts, at["n"])

    def of_w(n: int) -> tuple[Affine, ...]:
        """The n-th tap of a phase, in a weight that has the taps first: from an odd one down where late."""
        return tuple(
            Affine.of(
                {name[phase]: (-1 if late else 1) * (step > 1)},
                step * (found.reach - 1 - p if last else p) + late,
            )
            for phase, p, last, late in zip(
                "ef", divmod(n, found.reach), found.backwards, found.late, strict=True
            )
        )

    def tiles_of(
        image: Buffer,
        out: Buffer,
        letters: str,
        width: int,
        by: int,
        moves: Sequence[bool],
        origin: Sequence[int],
        transform: Transform,
    ) -> Kernel:
        """What makes the values of each tile: out[channel, row, a, tile and image], or out[a, channel, ..]"""
        inside = all(
            low >= 0 and low + by * (TILE * count - TILE + width - 1) + moved < size
            for low, moved, count, size in zip(origin, moves, tiles, image.shape[1:3], strict=True)
        )
        places = [place(n, width, by, moves, origin) for n in range(width * width)]
        channel = at[letters[-1]]
        values = [read(image.name, (channel, *found), None if inside else 0.0) for found in places]
        *phase, channel_at = index(letters)

        def to(a: int) -> tuple[Affine, ...]:
            point = Affine((), a)
            if by_rows:
                return tile[0], *phase, channel_at, point, tile[1]
            return point, *phase, *tile[:-1], channel_at, tile[-1]

        made = _both_ways(transform, values, width)
        stores = tuple(Store(out.name, to(a), value) for a, value in enumerate(made))
        walk = f"{letters[:-1]}{over[:-1]}{letters[-1]}{over[-1]}" if of_tile == "pq" else letters + over
        walk = f"{over[:-2]}{letters}xn" if by_rows else walk
        return Kernel(f"tiles_of_{'g' if letters == 'i' else 'x'}", (image,), (out,), axes(walk), stores)

    def products_of(
        u: Buffer, v: Buffer, m: Buffer, factors: tuple[str, str], along: str, over: str
    ) -> Kernel:
        """m[a, i, ..] = sum of u * v."""
        one, other = (read(b.name, index(letters)) for b, letters in zip((u, v), factors, strict=True))
        stages = (
            Reduce(name["s"], "sum", axes(over), op("mul", one, other)),
            Store(m.name, index(along), ref(name["s"])),
        )
        return Kernel("products", (u, v), (m,), axes(along), stages)

    def with_total(given: Buffer, total: Expr) -> Kernel:
        """The kernel with its sum read from a buffer."""
        rest = [b for b in kernel.inputs if b.name not in (found.one.buffer, found.image.buffer)]
        stages = [Local(s.name, (), total) if s is found.stage else s for s in kernel.stages]
        return kernel.replace(inputs=(*rest, given), stages=tuple(stages))

    # Planes of whole images would lie a multiple of a page apart wherever channels are a power of two, and
    # what 36 stores write in one set of each cache: a U-Net's tiles, of 8 images, took 22 ms in place of 13
    # (EPYC "Zen 5", two threads, 2026-11-28).
    by_rows = found.is_gradient and not images_first
    one, image = buffers[found.one.buffer], buffers[found.image.buffer]
    before, last = of_tile[:-1], of_tile[-1]  # of panels, channels are between
    v = buffer("v", f"r{phases}jab" if by_rows else f"a{phases}{before}j{last}")
    moves, by = (found.late, 1) if found.divided else ([step > 1] * 2, step)
    windows = tiles_of(image, v, f"{phases}j", side, by, moves, found.origin, of_window)
    if found.is_gradient:
        u, m = buffer("u", "riab" if by_rows else "ait"), buffer("m", f"ai{phases}j")
        w = Buffer(name["w"], "f32", (taps, taps, outs, channels))
        of_m = [read(m.name, (Affine((), a), *index(f"i{phases}j"))) for a in range(found.positions)]
        results = [
            Store(w.name, (*of_w(n), at["i"], at["j"]), value)
            for n, value in enumerate(_both_ways(to_taps, of_m, side))
        ]
        total = read(w.name, [*found.taps, found.outs, found.channels])
        factors, sums = ("riab", f"r{phases}jab") if by_rows else ("ait", f"a{phases}jt"), list[Kernel]()
        if parts:
            z = buffer("z", f"rai{phases}j")
            multiplied = products_of(u, v, z, factors, f"rai{phases}j", "b")
            summed = Reduce(name["s"], "sum", axes("r"), read(z.name, index(f"rai{phases}j")))
            stages = summed, Store(m.name, index(f"ai{phases}j"), ref(name["s"]))
            sums = [Kernel("sums", (z,), (m,), axes(f"ai{phases}j"), stages)]
        else:
            multiplied = products_of(u, v, m, factors, f"ai{phases}j", "rb" if by_rows else "t")
        return [
            tiles_of(one, u, "i", TILE, 1, (False, False), (0, 0), of_cotangents),
            windows,
            multiplied,
            *sums,
            Kernel("taps", (m,), (w,), axes(f"{phases}ij"), tuple(results)),
            with_total(w, total),
        ]
    own, summed = (phases, "j") if found.divided else ("", f"{phases}j")  # the phases are of either side
    u, m = buffer("u", f"a{of_taps_made}"), buffer("m", f"a{own}{before}i{last}")
    apart = found.apart * TILE
    w = Buffer(name["w"], "f32", (outs, rows * apart, across * apart, batch))
    given = [read(one.name, (*of_w(n), at["j"], at["i"])) for n in range(found.reach**2)]
    weights = [
        Store(u.name, (Affine((), a), *index(of_taps_made)), value)
        for a, value in enumerate(_both_ways(of_taps, given, found.reach))
    ]
    of_m = [
        read(m.name, (Affine((), a), *index(own), *tile[:-1], at["i"], tile[-1]))
        for a in range(found.positions)
    ]
    values = [
        Store(w.name, (at["i"], *place(n, TILE, found.apart, [found.divided] * 2)), value)
        for n, value in enumerate(_both_ways(to_places, of_m, side))
    ]
    total = read(w.name, [found.outs, *found.places, found.batch])
    factors = f"a{of_taps_made}", f"a{phases}{before}j{last}"
    return [
        Kernel("tiles_of_w", (one,), (u,), axes(of_taps_made), tuple(weights)),
        windows,
        products_of(u, v, m, factors, f"a{own}{before}i{last}", summed),
        Kernel("places", (m,), (w,), axes(f"i{own}{over}"), tuple(values)),
        with_total(w, total),
    ]


def _parts_of_row(found: Sum, kernel: Kernel) -> int:
    """In how many parts a row of tiles is made and multiplied, in bands (in_bands.py); 0 for a sum of all
    tiles at once, where these are near, or few beside what is summed of them."""
    if not found.is_gradient:
        return 0
    outs, channels, batch = (int(kernel.extents[axis]) for axis in (found.outs, found.channels, found.batch))
    rows, across = (-(-int(kernel.extents[place]) // TILE) for place in found.places)
    row = 4 * found.positions * across * batch * (outs + channels * found.step**2)
    summed = 4 * found.positions * outs * channels * found.step**2
    parts = next(n for n in range(1, across + 1) if across % n == 0 and (row // n <= NEAR or n == across))
    is_worth = rows * row >= 2 * FAR and summed * rows * parts * SUMMED <= rows * row
    return parts if is_worth else 0


# ---- the transforms, of lines


@cache
def _transforms(reach: int) -> list[Transform]:
    """Of windows, a tile's cotangents and `reach` taps to the points; from there to places, and to taps."""
    points, count = np.array(POINTS[reach]), TILE + reach - 1
    others = [np.delete(points, k) for k in range(len(points))]
    # the products of (x - p) over all points but one each; what the others are over, where it is that one
    window = np.array([[*poly(rest)[::-1], 0.0] for rest in others] + [poly(points)[::-1]])
    assert window.shape == (count, count)
    ways = [(_to_points, m) for m in (window, at_points(points, TILE), at_points(points, reach))]
    ways += [(_from_points, powers(points, length).T) for length in (TILE, reach)]
    return [partial(way, matrix.tolist()) for way, matrix in ways]


def _both_ways(transform: Transform, values: Values, side: int) -> list[Expr]:
    """The transform of a square's columns and then of its rows."""
    columns = [transform(values[q::side]) for q in range(side)]
    return [value for row in zip(*columns, strict=True) for value in transform(row)]


def _to_points(matrix: Matrix, values: Values) -> list[Expr]:
    """matrix @ values.  The rows of a point and its opposite are the sum and the difference of two parts."""
    found: list[Expr] = []
    k = 0
    while k < len(matrix):
        row, opposite = matrix[k], matrix[min(k + 1, len(matrix) - 1)]
        if k + 1 < len(matrix) and all(
            isclose(abs(a), abs(b), abs_tol=1e-12) for a, b in zip(row, opposite, strict=True)
        ):
            terms = list(zip(row, opposite, values, strict=True))
            even = _sum((a, value) for a, b, value in terms if a * b > 0)
            odd = _sum((a, value) for a, b, value in terms if a * b < 0)
            found += [op("add", even, odd), op("sub", even, odd)]
            k += 2
        else:
            found.append(_sum(zip(row, values, strict=True)))
            k += 1
    return found


def _from_points(matrix: Matrix, values: Values) -> list[Expr]:
    """matrix @ values, from the sums and differences of what is of a point and its opposite."""
    points = matrix[1]
    pairs = [k for k in range(1, len(points) - 2) if points[k] == -points[k + 1]]
    both = {k: (op("add", *values[k : k + 2]), op("sub", *values[k : k + 2])) for k in pairs}
    found = []
    for number, row in enumerate(matrix):
        terms = [
            (row[k], both[k][number % 2] if k in both else values[k])
            for k in range(len(row))
            if k - 1 not in both
        ]
        found.append(_sum(terms))
    return found


def _sum(terms: Iterable[tuple[float, Expr]]) -> Expr:
    total: Expr | None = None
    for factor, value in terms:
        if abs(factor) > 1e-12:
            part = value if abs(factor - 1.0) < 1e-12 else op("mul", value, const(factor, "f32"))
            total = part if total is None else op("add", total, part)
    assert total is not None
    return total
