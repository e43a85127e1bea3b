"""3 x 3 convolutions and the gradients of their weights by Winograd's algorithm, as products between what is
made of tiles, for images with the batch innermost.

    kernel conv_weight_grad(g: f32[64,16,16,32], x: f32[32,16,16,32]) -> (out: f32[64,32,3,3])
    ->
    kernel tiles_of_g(g) -> (u: f32[36,64,512])                     u[a] = (G g Gt)[a], of tiles of 4 x 4
    kernel tiles_of_x(x) -> (v: f32[36,32,512])                     v[a] = (Bt x B)[a], of windows of 6 x 6
    kernel products(u, v) -> (m: f32[36,64,32])                     m[a] = u[a] @ v[a].T
    kernel taps(m) -> (w: f32[9,64,32])                             w = At m A
    kernel conv_weight_grad(w) -> (out: f32[64,32,3,3])             and whatever is computed of it

    kernel conv2d(x: f32[32,16,16,32], w: f32[3,3,32,64]) -> (out: f32[64,16,16,32])
    ->
    kernel tiles_of_w(w) -> (u: f32[36,32,64])                      u[a] = (G w Gt)[a]
    kernel tiles_of_x(x) -> (v: f32[36,32,512])
    kernel products(u, v) -> (m: f32[36,64,512])                    m[a] = u[a].T @ v[a]
    kernel places(m) -> (y: f32[64,16,16,32])                       of whole tiles, y = At m A
    kernel conv2d(y) -> (out: f32[64,16,16,32])                     and whatever is computed of it

A weight's gradient is a correlation of 3 x 3 results whose taps are the cotangents: of each tile of 4 x 4 of
these with its window, which takes 36 products where a direct sum takes 144.  All tiles of all images are
summed before a result is taken back, so that is done once for each pair of channels.  Of a convolution the
same 36 products are of its taps; those that the caches hold u for have code of their own, which never
stores v and m (passes/llvm/conv_winograd.py), and here are those of many channels.  The points are those of
passes/kernels/winograd.py.  Source: Lavin and Gray, Fast Algorithms for Convolutional Neural Networks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import NamedTuple

from ...ir.kernel.affine import Affine
from ...ir.kernel.form import Axis, Buffer, Kernel, Local, Reduce, Store
from ...ir.kernel.scalar import Expr, Op, Read, const, op, read, ref
from ..kernels.blocking import fresh
from ..kernels.product import is_zero, plain
from ..kernels.winograd import PAIRS, TAPS
from ..schedules.target import Target
from .factor_sums import CALL, price

TILE = 4  # places of a tile, on a side
SIDE = TILE + TAPS - 1
POSITIONS = SIDE * SIDE
# Bytes of what tiles become, which live for a moment; and of what a weight becomes, or its gradient is made
# of, while many results of the forward pass are there: at most this, or so many times both images.  With 512
# by 512 channels of 4 x 4 places it was the most of a ResNet-18 for images of 32 x 32, and gained least.
MOST_TILES, MOST_WEIGHTS, TIMES = 1 << 27, 1 << 24, 8
Values = Sequence[Expr]
Transform = Callable[[Values], list[Expr]]


class Sum(NamedTuple):
    """sum of one * image[c, y + r + origin, x + s + origin, n].

    Of a weight's gradient over y, x, n, and one[k, y, x, n]; else over r, s, c, and one[r, s, c, k].
    backwards: in which dimensions the window's last tap comes first.
    """

    stage: Reduce
    one: Read
    image: Read
    outs: str
    channels: str
    taps: list[str]
    places: list[str]
    batch: str
    origin: list[int]
    backwards: list[bool]
    is_gradient: bool


def in_tiles(kernel: Kernel, target: Target) -> list[Kernel] | None:
    """The kernels of `tiled`, where they take less time and not too much memory."""
    found = _sum_of(kernel)
    if found is None:
        return None
    outs, channels, batch, *places = (
        int(kernel.extents[axis]) for axis in (found.outs, found.channels, found.batch, *found.places)
    )
    tiles = prod(-(-n // TILE) for n in places)
    if POSITIONS * tiles >= TAPS**2 * prod(places):
        return None  # there is as much to multiply
    weights, images = 4 * POSITIONS * outs * channels, 4 * (outs + channels) * prod(places) * batch
    if 4 * POSITIONS * tiles * batch * (outs + channels) > MOST_TILES:
        return None
    if weights > max(MOST_WEIGHTS, TIMES * images):
        return None
    made = _kernels(kernel, found)
    spent = sum(price(part, target) + CALL for part in made)
    return made if spent < price(kernel, target) else None


def tiled(kernel: Kernel) -> list[Kernel] | None:
    """The kernels that one after another give what the sum gives; None where it is another."""
    found = _sum_of(kernel)
    return None if found is None else _kernels(kernel, found)


def _sum_of(kernel: Kernel) -> Sum | None:
    """The sum, if it is one of these."""
    for stage in kernel.stages:
        match stage:
            case Reduce(_, "sum", (_, _, _), Op("mul", (Read() as one, Read() as other))):
                return _roles(kernel, stage, one, other) or _roles(kernel, stage, other, one)
    return None


def _roles(kernel: Kernel, stage: Reduce, one: Read, image: Read) -> Sum | None:
    extents, buffers = kernel.extents, kernel.buffers
    if not all(isinstance(n, int) for n in extents.values()) or len(one.index) != 4 or len(image.index) != 4:
        return None
    if any(buffers[x.buffer].dtype != "f32" or buffers[x.buffer].layout for x in (one, image)):
        return None
    summed, parts = {axis.name for axis in stage.axes}, image.index[1:3]
    own, channels, batch = [plain(p) for p in one.index], plain(image.index[0]), plain(image.index[3])
    windows = [dict(part.terms) if isinstance(part, Affine) else {} for part in parts]
    inner = [axis for terms in windows for axis in terms if axis in summed]
    outer = [axis for terms in windows for axis in terms if axis not in summed]
    if [len(terms) for terms in windows] != [2, 2] or len(inner) != 2 or None in (*own, channels, batch):
        return None
    is_gradient = own[1:] == [*inner, batch]
    if not (is_gradient or own[:3] == [*inner, channels]):
        return None
    if summed != {*inner, batch if is_gradient else channels}:
        return None
    outs, taps, places = (own[0], outer, inner) if is_gradient else (own[3], inner, outer)
    steps = [terms[place] for terms, place in zip(windows, places, strict=True)]
    by = [terms[tap] for terms, tap in zip(windows, taps, strict=True)]
    if steps != [1, 1] or not {*by} <= ({1} if is_gradient else {1, -1}):
        return None
    if any(extents[tap] != TAPS for tap in taps) or not all(
        x.other is None or is_zero(x.other) for x in (one, image)
    ):
        return None
    backwards = [n < 0 for n in by]
    origin = [part.constant - (TAPS - 1) * last for part, last in zip(parts, backwards, strict=True)]
    return Sum(stage, one, image, outs, channels, taps, places, batch, origin, backwards, is_gradient)


def _kernels(kernel: Kernel, found: Sum) -> list[Kernel]:
    extents, buffers = kernel.extents, kernel.buffers
    outs, channels, batch = (int(extents[axis]) for axis in (found.outs, found.channels, found.batch))
    rows, across = tiles = [-(-int(extents[place]) // TILE) for place in found.places]
    name = {letter: fresh(kernel, letter) for letter in "uvmwaijtscyxn"}
    at = {letter: Affine(((name[letter], 1),)) for letter in "aijtcn"}
    sizes = {
        "a": POSITIONS,
        "i": outs,
        "j": channels,
        "t": rows * across * batch,
        "y": rows,
        "x": across,
        "n": batch,
    }
    tile = Affine.of({name["y"]: across * batch, name["x"]: batch, name["n"]: 1})

    def axes(letters: str) -> tuple[Axis, ...]:
        return tuple(Axis(name[letter], sizes[letter]) for letter in letters)

    def buffer(letter: str, along: str) -> Buffer:
        return Buffer(name[letter], "f32", tuple(sizes[axis] for axis in along))

    def place(p: int, q: int) -> tuple[Affine, Affine, Affine]:
        """One of a tile's, of all images."""
        return Affine.of({name["y"]: TILE}, p), Affine.of({name["x"]: TILE}, q), at["n"]

    def of_images(
        title: str, image: Buffer, out: Buffer, along: str, origin: list[int], transform: Transform
    ):
        """What makes the values of each tile: out[a, channel, tile and image]."""
        side = SIDE if transform is _of_window else TILE
        inside = all(
            low >= 0 and low + TILE * (count - 1) + side <= size
            for low, count, size in zip(origin, tiles, image.shape[1:3], strict=True)
        )
        places = [place(origin[0] + p, origin[1] + q) for p in range(side) for q in range(side)]
        values = [read(image.name, (at[along], *index), None if inside else 0.0) for index in places]
        stores = (
            Store(out.name, (Affine((), a), at[along], tile), value)
            for a, value in enumerate(_both_ways(transform, values, side))
        )
        return Kernel(title, (image,), (out,), axes(along + "yxn"), tuple(stores))

    def products(u: Buffer, v: Buffer, m: Buffer, factors: tuple[str, str], along: str, over: str) -> Kernel:
        """m[a, i, ..] = sum of u * v."""
        one, other = (
            read(b.name, tuple(at[axis] for axis in index)) for b, index in zip((u, v), factors, strict=True)
        )
        stages = (
            Reduce(name["s"], "sum", axes(over), op("mul", one, other)),
            Store(m.name, tuple(at[axis] for axis in along), ref(name["s"])),
        )
        return Kernel("products", (u, v), (m,), axes(along), stages)

    def with_total(given: Buffer, total: Expr) -> Kernel:
        """The kernel with its sum read from a buffer."""
        rest = [b for b in kernel.inputs if b.name not in (found.one.buffer, found.image.buffer)]
        stages = [Local(s.name, (), total) if s is found.stage else s for s in kernel.stages]
        return kernel.replace(inputs=(*rest, given), stages=tuple(stages))

    one, image, v = buffers[found.one.buffer], buffers[found.image.buffer], buffer("v", "ajt")
    windows = of_images("tiles_of_x", image, v, "j", found.origin, _of_window)
    if found.is_gradient:
        u, m, w = (
            buffer("u", "ait"),
            buffer("m", "aij"),
            Buffer(name["w"], "f32", (TAPS * TAPS, outs, channels)),
        )
        of_m = [read(m.name, (Affine((), a), at["i"], at["j"])) for a in range(POSITIONS)]
        taps = (
            Store(w.name, (Affine((), n), at["i"], at["j"]), value)
            for n, value in enumerate(_both_ways(_to_taps, of_m, SIDE))
        )
        tap = Affine.of({found.taps[0]: TAPS, found.taps[1]: 1})
        total = read(w.name, (tap, *(Affine(((axis, 1),)) for axis in (found.outs, found.channels))))
        return [
            of_images("tiles_of_g", one, u, "i", [0, 0], _at_points),
            windows,
            products(u, v, m, ("ait", "ajt"), "aij", "t"),
            Kernel("taps", (m,), (w,), axes("ij"), tuple(taps)),
            with_total(w, total),
        ]
    u, m = buffer("u", "aji"), buffer("m", "ait")
    w = Buffer(name["w"], "f32", (outs, rows * TILE, across * TILE, batch))
    order = [range(TAPS)[:: -1 if last else 1] for last in found.backwards]
    of_w = [
        read(one.name, (Affine((), p), Affine((), q), at["j"], at["i"])) for p in order[0] for q in order[1]
    ]
    weights = (
        Store(u.name, (Affine((), a), at["j"], at["i"]), value)
        for a, value in enumerate(_both_ways(_at_points, of_w, TAPS))
    )
    of_m = [read(m.name, (Affine((), a), at["i"], tile)) for a in range(POSITIONS)]
    values = (
        Store(w.name, (at["i"], *place(*divmod(n, TILE))), value)
        for n, value in enumerate(_both_ways(_to_places, of_m, SIDE))
    )
    total = read(w.name, tuple(Affine(((axis, 1),)) for axis in (found.outs, *found.places, found.batch)))
    return [
        Kernel("tiles_of_w", (one,), (u,), axes("ji"), tuple(weights)),
        windows,
        products(u, v, m, ("aji", "ajt"), "ait", "j"),
        Kernel("places", (m,), (w,), axes("iyxn"), tuple(values)),
        with_total(w, total),
    ]


# ---- the transforms, of lines; points 0, a, -a, b, -b, inf


def _both_ways(transform: Transform, values: Values, side: int) -> list[Expr]:
    """The transform of a square's columns and then of its rows."""
    columns = [transform(values[q::side]) for q in range(side)]
    return [value for row in zip(*columns, strict=True) for value in transform(row)]


def _of_window(d: Values) -> list[Expr]:
    """Bt d: values of the products of (x - p) over all points but one each."""
    a, b = PAIRS[TILE]
    total = a * a + b * b
    found = [_sum((1.0, d[4]), (-total, d[2]), (a * a * b * b, d[0]))]
    for own, other in ((a, b), (b, a)):
        even = _sum((1.0, d[4]), (-other * other, d[2]))
        odd = _sum((own, d[3]), (-own * other * other, d[1]))
        found += [op("add", even, odd), op("sub", even, odd)]
    return [*found, _sum((1.0, d[5]), (-total, d[3]), (a * a * b * b, d[1]))]


def _at_points(g: Values) -> list[Expr]:
    """G g, of three taps or of four cotangents: the values at the points, over what Bt left out."""
    a, b = PAIRS[TILE]
    found = [_sum((1 / (a * a * b * b), g[0]))]
    for own, other in ((a, b), (b, a)):
        scale = 1 / (2 * own * own * (own * own - other * other))
        even, odd = (_sum(*((scale * own**n, g[n]) for n in range(first, len(g), 2))) for first in (0, 1))
        found += [op("add", even, odd), op("sub", even, odd)]
    return [*found, g[-1]]


def _to_taps(m: Values) -> list[Expr]:
    """At m, of three results."""
    return _from_points(m, TAPS)


def _to_places(m: Values) -> list[Expr]:
    """At m, of four results."""
    return _from_points(m, TILE)


def _from_points(m: Values, count: int) -> list[Expr]:
    a, b = PAIRS[TILE]
    pairs = [(op("add", m[n], m[n + 1]), op("sub", m[n], m[n + 1])) for n in (1, 3)]
    found = [
        _sum(*((own**n, pair[n % 2]) for own, pair in zip((a, b), pairs, strict=True))) for n in range(count)
    ]
    return [op("add", m[0], found[0]), *found[1:-1], op("add", m[-1], found[-1])]


def _sum(*terms: tuple[float, Expr]) -> Expr:
    total: Expr | None = None
    for factor, value in terms:
        part = value if abs(factor - 1.0) < 1e-12 else op("mul", value, const(factor, "f32"))
        total = part if total is None else op("add", total, part)
    assert total is not None
    return total
