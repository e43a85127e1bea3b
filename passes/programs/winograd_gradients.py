"""The gradient of 3 x 3 weights by Winograd's algorithm F(3 x 3, 4 x 4), for images with the batch innermost.

    kernel conv_weight_grad(g: f32[64,16,16,32], x: f32[32,16,16,32]) -> (out: f32[64,32,3,3])
    ->
    kernel tiles_of_g(g) -> (u: f32[36,64,512])                     u[a] = (G g Gt)[a], of tiles of 4 x 4
    kernel tiles_of_x(x) -> (v: f32[36,32,512])                     v[a] = (Bt x B)[a], of windows of 6 x 6
    kernel products(u, v) -> (m: f32[36,64,32])                     m[a] = u[a] @ v[a].T
    kernel taps(m) -> (w: f32[9,64,32])                             w = At m A
    kernel conv_weight_grad(w) -> (out: f32[64,32,3,3])             and whatever is computed of it

A weight's gradient is a correlation of 3 x 3 results whose taps are the cotangents: of each tile of 4 x 4 of
these with its window, which takes 36 products where a direct sum takes 144.  All tiles of all images are
summed before a result is taken back, so that is done once for each pair of channels.  The points are those of
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
from ..kernels.product import plain
from ..kernels.winograd import PAIRS, TAPS
from ..schedules.target import Target
from .factor_sums import CALL, price

TILE = 4  # cotangents of a tile, on a side
SIDE = TILE + TAPS - 1
POSITIONS = SIDE * SIDE
# Bytes of u and v, which live for a moment of the way back, and of m, which is there while many results of
# the forward pass still are: with 512 by 512 channels it was the most of a ResNet-18, and gained least.
MOST_TILES, MOST_PRODUCTS = 1 << 27, 1 << 24
Values = Sequence[Expr]
Transform = Callable[[Values], list[Expr]]
Pair = tuple[int, int]


class Gradient(NamedTuple):
    """g[k, y, x, n] * image[c, r + y + origin, s + x + origin, n], summed over y, x, n."""

    g: Read
    image: Read
    outs: str
    channels: str
    taps: tuple[str, str]
    places: tuple[str, str]
    batch: str
    origin: tuple[int, int]


def in_tiles(kernel: Kernel, target: Target) -> list[Kernel] | None:
    """The kernels of `tiled`, where they take less time and not too much memory."""
    found = _sum_of(kernel)
    if found is None:
        return None
    places = [int(kernel.extents[place]) for place in found[1].places]
    if POSITIONS * prod(-(-n // TILE) for n in places) >= TAPS**2 * prod(places):
        return None  # there is as much to multiply
    made = _kernels(kernel, *found)
    u, v, m, *_ = (4 * prod(map(int, part.outputs[0].shape)) for part in made)
    if u + v > MOST_TILES or m > MOST_PRODUCTS:
        return None
    spent = sum(price(part, target) + CALL for part in made)
    return made if spent < price(kernel, target) else None


def tiled(kernel: Kernel) -> list[Kernel] | None:
    """The kernels that one after another give what a weight's gradient gives; None where it is another."""
    found = _sum_of(kernel)
    return None if found is None else _kernels(kernel, *found)


def _sum_of(kernel: Kernel) -> tuple[Reduce, Gradient] | None:
    """The stage that sums a weight's gradient, and what it sums."""
    for stage in kernel.stages:
        match stage:
            case Reduce(_, "sum", (_, _, _), Op("mul", (Read() as one, Read() as other))):
                found = _gradient(kernel, one, other) or _gradient(kernel, other, one)
                return None if found is None else (stage, found)
    return None


def _gradient(kernel: Kernel, g: Read, image: Read) -> Gradient | None:
    extents, buffers = kernel.extents, kernel.buffers
    if not all(isinstance(n, int) for n in extents.values()) or len(g.index) != 4 or len(image.index) != 4:
        return None
    if any(buffers[x.buffer].dtype != "f32" or buffers[x.buffer].layout for x in (g, image)):
        return None
    found = [plain(part) for part in (*g.index, image.index[0], image.index[3])]
    outs, *places, batch, channels, same = found
    if None in found or same != batch or channels not in kernel.parallel_names:
        return None
    taps, origin = [], []
    for place, part in zip(places, image.index[1:3], strict=True):
        terms = dict(part.terms) if isinstance(part, Affine) else {}
        by = terms.pop(place, 0)
        if by != 1 or list(terms.values()) != [1]:
            return None
        (tap,) = terms
        if tap not in kernel.parallel_names or extents[tap] != TAPS:
            return None
        taps.append(tap)
        origin.append(part.constant)
    return Gradient(
        g, image, outs, channels, (taps[0], taps[1]), (places[0], places[1]), batch, (origin[0], origin[1])
    )


def _kernels(kernel: Kernel, stage: Reduce, found: Gradient) -> list[Kernel]:
    extents, buffers = kernel.extents, kernel.buffers
    outs, channels, batch = (int(extents[axis]) for axis in (found.outs, found.channels, found.batch))
    rows, across = tiles = tuple(-(-int(extents[place]) // TILE) for place in found.places)
    summed = rows * across * batch
    name = {letter: fresh(kernel, letter) for letter in "uvmwaijtscyxn"}
    at = {letter: Affine(((name[letter], 1),)) for letter in "aijtcn"}
    tile = Affine.of({name["y"]: across * batch, name["x"]: batch, name["n"]: 1})
    u = Buffer(name["u"], "f32", (POSITIONS, outs, summed))
    v = Buffer(name["v"], "f32", (POSITIONS, channels, summed))
    m = Buffer(name["m"], "f32", (POSITIONS, outs, channels))
    w = Buffer(name["w"], "f32", (TAPS * TAPS, outs, channels))

    def axes(**sizes: int) -> tuple[Axis, ...]:
        return tuple(Axis(name[letter], size) for letter, size in sizes.items())

    def transformed(title: str, image: Buffer, out: Buffer, origin: Pair, transform: Transform) -> Kernel:
        """What makes the values of each tile: out[a, c, tile and image]."""
        side = TILE if transform is _of_cotangents else SIDE
        inside = all(
            low >= 0 and low + TILE * (count - 1) + side <= size
            for low, count, size in zip(origin, tiles, image.shape[1:3], strict=True)
        )
        values = [
            read(
                image.name,
                (
                    at["c"],
                    Affine.of({name["y"]: TILE}, origin[0] + p),
                    Affine.of({name["x"]: TILE}, origin[1] + q),
                    at["n"],
                ),
                None if inside else 0.0,
            )
            for p in range(side)
            for q in range(side)
        ]
        stores = (
            Store(out.name, (Affine((), a), at["c"], tile), value)
            for a, value in enumerate(_both_ways(transform, values, side))
        )
        sizes = axes(c=int(image.shape[0]), y=rows, x=across, n=batch)
        return Kernel(title, (image,), (out,), sizes, tuple(stores))

    product = op("mul", read(u.name, (at["a"], at["i"], at["t"])), read(v.name, (at["a"], at["j"], at["t"])))
    products = (
        Reduce(name["s"], "sum", axes(t=summed), product),
        Store(m.name, (at["a"], at["i"], at["j"]), ref(name["s"])),
    )
    of_m = [read(m.name, (Affine((), a), at["i"], at["j"])) for a in range(POSITIONS)]
    taps = (
        Store(w.name, (Affine((), n), at["i"], at["j"]), value)
        for n, value in enumerate(_both_ways(_results, of_m, SIDE))
    )
    tap = Affine.of({found.taps[0]: TAPS, found.taps[1]: 1})
    total = read(w.name, (tap, *(Affine(((axis, 1),)) for axis in (found.outs, found.channels))))
    given = [b for b in kernel.inputs if b.name not in (found.g.buffer, found.image.buffer)]
    return [
        transformed("tiles_of_g", buffers[found.g.buffer], u, (0, 0), _of_cotangents),
        transformed("tiles_of_x", buffers[found.image.buffer], v, found.origin, _of_window),
        Kernel("products", (u, v), (m,), axes(a=POSITIONS, i=outs, j=channels), products),
        Kernel("taps", (m,), (w,), axes(i=outs, j=channels), tuple(taps)),
        kernel.replace(
            inputs=(*given, w),
            stages=tuple(Local(stage.name, (), total) if s is stage else s for s in kernel.stages),
        ),
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


def _of_cotangents(g: Values) -> list[Expr]:
    """G g: the values at the points, over what Bt left out."""
    a, b = PAIRS[TILE]
    found = [_sum((1 / (a * a * b * b), g[0]))]
    for own, other in ((a, b), (b, a)):
        scale = 1 / (2 * own * own * (own * own - other * other))
        even = _sum((scale, g[0]), (scale * own**2, g[2]))
        odd = _sum((scale * own, g[1]), (scale * own**3, g[3]))
        found += [op("add", even, odd), op("sub", even, odd)]
    return [*found, g[3]]


def _results(m: Values) -> list[Expr]:
    """At m."""
    a, b = PAIRS[TILE]
    (even, odd), (even_b, odd_b) = ((op("add", m[n], m[n + 1]), op("sub", m[n], m[n + 1])) for n in (1, 3))
    return [
        op("add", m[0], op("add", even, even_b)),
        _sum((a, odd), (b, odd_b)),
        op("add", m[5], _sum((a * a, even), (b * b, even_b))),
    ]


def _sum(*terms: tuple[float, Expr]) -> Expr:
    total: Expr | None = None
    for factor, value in terms:
        part = value if abs(factor - 1.0) < 1e-12 else op("mul", value, const(factor, "f32"))
        total = part if total is None else op("add", total, part)
    assert total is not None
    return total
