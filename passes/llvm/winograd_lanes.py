"""Winograd convolutions F(4 x 4, 3 x 3) with the batch in the lanes: 4 times fewer multiplications.

An image is cut into tiles of 4 x 4 places, each of which reads a window of 6 x 6:

    y = At [ sum over c of (G w Gt) * (Bt x B) ] A

The transforms run down whole vectors of the batch, so they are the same for every tile and nothing is moved
between lanes.  U = G w Gt is made first, in scratch memory; then a unit of work is one tile of a few vectors:

    U[36, c, k]    V[36, c, lanes * vectors]    M[36, rows, lanes * vectors]

V and M lie on the stack.  The points are {0, +-sqrt(2), +-1/sqrt(2), inf}.  See `winograd.py`, which has
channels in the lanes.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

from ...ir.errors import KernelError
from ...ir.kernel.affine import Affine
from ...ir.kernel.form import Kernel, Reduce
from ...ir.kernel.scalar import Read
from ..schedules.target import Core, Target
from .code import Code, Phase
from .conv_function import NOTHING, PAIRS, Contract, Function
from .conv_winograd import TAPS, Epilogue
from .winograd import weight_transform
from .writer import Value

TILE, SIDE = 4, 6
POSITIONS = SIDE * SIDE
STACK = 5 << 18  # bytes of V and M


@dataclass(frozen=True)
class WinogradLanes:
    """How a 3 x 3 convolution of stride 1, or its input gradient, runs.

    batch, channel, out, places, taps: the kernel's axes.  lanes, vectors: of the batch in a unit of work.
    rows: output channels of a register tile.
    """

    batch: str
    channel: str
    out: str
    places: tuple[str, str]
    taps: tuple[str, str]
    lanes: int
    vectors: int
    rows: int

    def __str__(self) -> str:
        return f"winograd({self.batch}:{self.vectors}x{self.lanes} {self.out}:{self.rows})"

    def code(self, kernel: Kernel, target: Target) -> Code:
        """Two phases.  Raises KernelError for a kernel that it does not stand for."""
        return replace(_code(self, kernel.replace(name="kernel"), target), kernel=kernel)


def winograd_lanes(
    kernel: Kernel, batch: str, channels: tuple[str | None, str | None], target: Target, lanes: int
) -> WinogradLanes | None:
    """How a convolution on images with the batch innermost runs by Winograd; None where it can't, or gains
    too little.

    kernel: with the weight as [3, 3, summed channels, output channels].  channels: of the two images.
    """
    stage = next(stage for stage in kernel.stages if isinstance(stage, Reduce))
    factors = stage.value.args  # type: ignore[attr-defined]
    summed = {axis.name for axis in stage.axes}
    inner = [axis for axis in channels if axis is not None and axis in summed]
    outer = [axis for axis in channels if axis is not None and axis not in summed]
    if kernel.dtypes[stage.name] != "f32" or len(inner) != 1 or len(outer) != 1:
        return None
    if not all(isinstance(f, Read) for f in factors) or any(s.axes for s in kernel.stages if s is not stage):
        return None
    image, weight = sorted(factors, key=lambda f: batch not in kernel.free_axes(f))
    places, taps = _moved(kernel, image, weight, summed)
    extent = {axis: int(n) for axis, n in kernel.extents.items()}
    count, outs = extent[inner[0]], extent[outer[0]]
    if len(places) != 2 or outs % lanes or extent[batch] % lanes:
        return None
    for vectors in (2, 1):
        rows = next(n for n in range(target.with_lanes(lanes).sums // vectors, 0, -1) if outs % n == 0)
        made = WinogradLanes(batch, inner[0], outer[0], places, taps, lanes, vectors, rows)
        fits = 4 * POSITIONS * sum(strides(made, count)) <= STACK
        if extent[batch] % (vectors * lanes) == 0 and fits:
            return made if _gains(made, kernel, image, target.core) else None
    return None


def _moved(
    kernel: Kernel, image: Read, weight: Read, summed: set[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The places along rows and columns, and the taps that move the window from there by single steps; none
    for other windows than 3 x 3."""
    places, taps = [], []
    if len(weight.index) != 4:
        return (), ()
    for part in weight.index[:2]:
        tap = part.terms[0][0] if isinstance(part, Affine) and len(part.terms) == 1 else None
        at = next((p for p in image.index if isinstance(p, Affine) and tap in p.names), None)
        if tap is None or at is None or len(at.names) != 2 or kernel.extents[tap] != TAPS:
            return (), ()
        (place,) = at.names - {tap}
        if at.coefficient(tap) not in (1, -1) or at.coefficient(place) != 1 or place in summed:
            return (), ()
        places.append(place)
        taps.append(tap)
    return tuple(places), tuple(taps)


def _gains(how: WinogradLanes, kernel: Kernel, image: Read, core: Core) -> bool:
    """Whether it takes a sixth off the time of a direct sum, in nanoseconds.

    U is written once and read for every unit, so that many channels of small images gain nothing.
    """
    extent = {axis: int(n) for axis, n in kernel.extents.items()}
    pairs, batch = extent[how.channel] * extent[how.out], extent[how.batch]
    direct, tiles = 2.0 * pairs * batch, 1
    for place, tap in zip(how.places, how.taps, strict=True):
        d = next(d for d, p in enumerate(image.index) if isinstance(p, Affine) and tap in p.names)
        part, size = image.index[d], int(kernel.buffers[image.buffer].shape[d])
        assert isinstance(part, Affine)
        reached = (part.bind({place: i, tap: r}).constant for i in range(extent[place]) for r in range(TAPS))
        direct *= sum(0 <= at < size for at in reached)
        tiles *= -(-extent[place] // TILE)
    blocks, nbytes = batch // (how.vectors * how.lanes), 4 * POSITIONS * pairs
    spent = 2 * POSITIONS * pairs * batch * tiles / core.image_gflops
    spent += tiles * batch / how.lanes * (extent[how.channel] + extent[how.out]) * core.image_transform
    spent += pairs / how.lanes * core.image_weight
    spent += (tiles * blocks + 2) * nbytes / (core.image_near if nbytes <= core.cache else core.image_far)
    return spent < 5 / 6 * direct / core.image_gflops


def strides(how: WinogradLanes, channels: int) -> tuple[int, int]:
    """The floats between positions of V and of M: an odd number of vectors, or all meet in one set of a
    cache."""
    width = how.vectors * how.lanes
    return channels * width + how.lanes, how.rows * width + how.lanes


@lru_cache(256)
def _code(how: WinogradLanes, kernel: Kernel, target: Target) -> Code:
    return _Writing(how, kernel, target.with_lanes(how.lanes)).code()


class _Writing:
    """Writes the functions of one convolution."""

    def __init__(self, how: WinogradLanes, kernel: Kernel, target: Target):
        self.how, self.kernel, self.target = how, kernel, target
        self.stage = next(stage for stage in kernel.stages if isinstance(stage, Reduce))
        factors = self.stage.value.args  # type: ignore[attr-defined]
        self.image = next(f for f in factors if how.batch in kernel.free_axes(f))
        self.weight = next(f for f in factors if f is not self.image)
        self.extent = {axis: int(n) for axis, n in kernel.extents.items()}
        self.channels, self.outs = self.extent[how.channel], self.extent[how.out]
        self.grid = [-(-self.extent[place] // TILE) for place in how.places]
        self.blocks = self.extent[how.batch] // (how.vectors * how.lanes)
        self.v, self.m = strides(how, self.channels)
        self.origin, self.size, self.flip = [], [], []
        x = kernel.buffers[self.image.buffer]
        self.steps = []  # of the image along its rows and columns
        for tap in how.taps:
            d = next(d for d, p in enumerate(self.image.index) if isinstance(p, Affine) and tap in p.names)
            part = self.image.index[d]
            flipped = part.coefficient(tap) < 0
            self.origin.append(part.constant - (TAPS - 1 if flipped else 0))
            self.flip.append(flipped)
            self.size.append(int(x.shape[d]))
            self.steps.append(x.strides[d])
        self.channel_step = x.offset(self.image.index).coefficient(how.channel)
        if x.offset(self.image.index).coefficient(how.batch) != 1:
            raise KernelError(f"{kernel.name}: the batch is innermost where it is in the lanes", f"at: {x}")
        self.declared: dict[str, str] = {}
        self.functions: list[str] = []
        self.contracts: dict[str, Contract] = {}
        self.sizes = [(b.name, prod(map(int, b.shape))) for b in kernel.buffers.values()]
        self.scratch = POSITIONS * self.channels * self.outs  # floats

    def function(self, contract: Contract = NOTHING) -> Function:
        made = Function(self.target, contract)
        made.declared = self.declared
        return made

    def phase(self, units: int) -> tuple[Function, list[str], str]:
        """The function of a phase, the kernel's buffers and the scratch memory in it."""
        f = self.function(Contract({}, {"%lo": (0, units - 1), "%hi": (0, units)}))
        buffers = [f.pointer(k, name, size) for k, (name, size) in enumerate(self.sizes)]
        return f, buffers, f.pointer(len(buffers), "u", self.scratch)

    def add(self, name: str, function: Function, contract: Contract) -> None:
        self.contracts[name] = contract
        self.functions.append(function.text(f"unnamed_{name}", contract.parameters))

    def add_phase(self, name: str, function: Function) -> None:
        self.functions.append(function.text(f"unnamed_{name}", "ptr %args, i64 %lo, i64 %hi", ""))

    def call(self, f: Function, name: str, *arguments: str, contract: Contract | None = None) -> None:
        f.invoke(f"unnamed_{name}", contract or self.contracts[name], *arguments)

    def code(self) -> Code:
        self.weights()
        self.window()
        self.product()
        self.result()
        self.tiles()
        tiles = self.grid[0] * self.grid[1] * self.blocks
        flops = 2 * POSITIONS * tiles * self.channels * self.outs * self.how.vectors * self.how.lanes
        spent = 1.3 * flops * self.target.core.muladd * 16 / self.how.lanes  # with the transforms
        text = "\n".join([*self.declared.values(), *self.functions])
        name = "lanes" + hashlib.blake2b(text.encode(), digest_size=10).hexdigest()
        phases = (
            Phase(f"{name}_weights", self.channels, 0.05 * spent),
            Phase(f"{name}_tiles", tiles, spent),
        )
        return Code(self.kernel, text.replace("@unnamed_", f"@{name}_"), phases, 4 * self.scratch)

    # ---- U
    def weights(self) -> None:
        """U = G w Gt for the summed channels %lo to %hi."""
        f, buffers, scratch = self.phase(self.channels)
        lanes, g, w = self.how.lanes, weight_transform(TILE), self.kernel.buffers[self.weight.buffer]
        source = buffers[list(self.kernel.buffers).index(w.name)]

        def combined(row: list[float], values: list[str]) -> str:
            total = None
            for factor, value in zip(row, values, strict=True):
                if factor:
                    total = f.scaled(factor, value) if total is None else f.axpy(factor, value, total)
            assert total is not None
            return total

        def vector(c: str, k: str) -> None:
            at = f.at(source, f.i("mul", c, w.strides[2]), k)
            taps = [
                [
                    f.load(f.at(at, self.tap(0, r) * w.strides[0] + self.tap(1, s) * w.strides[1]))
                    for s in range(TAPS)
                ]
                for r in range(TAPS)
            ]
            half = [
                [combined(row, [taps[r][s] for r in range(TAPS)]) for s in range(TAPS)] for row in g.tolist()
            ]
            to = f.at(scratch, f.i("mul", c, self.outs), k)
            for a in range(SIDE):
                for b, row in enumerate(g.tolist()):
                    place = (a * SIDE + b) * self.channels * self.outs
                    f.store(combined(row, half[a]), f.at(to, place))

        f.each("%lo", "%hi", lambda c: f.each(0, self.outs, lambda k: vector(c, k), lanes))
        self.add_phase("weights", f)

    def tap(self, dimension: int, number: int) -> int:
        return TAPS - 1 - number if self.flip[dimension] else number

    # ---- V
    def window_of(self, row: int, column: int) -> Contract:
        """What `window` is given for places so many floats apart."""
        lanes, side = self.how.lanes, SIDE - 1
        floats = {"%x": side * (row + column) + lanes, "%v": (POSITIONS - 1) * self.v + lanes}
        return Contract(floats, {"%row": (row, row), "%column": (column, column)})

    def window(self) -> None:
        """V = Bt x B for one vector of one channel; %row and %column: the floats between neighbours of x."""
        lanes = self.how.lanes
        row, column = self.steps  # of places nearer by, as on the edge, it takes less
        contract = self.window_of(max(row, SIDE * lanes), max(column, lanes))
        f = self.function(contract)
        half = f.floats("half", POSITIONS * lanes)

        def down(j: str) -> None:
            at, d = f.at("%x", f.i("mul", j, "%column")), []
            for _ in range(SIDE):
                d.append(f.load(at))
                at = f.at(at, "%row")
            to = f.at(half, f.i("mul", j, lanes))
            for i, value in enumerate(f.input_transform(d, PAIRS[TILE])):
                f.store(value, f.at(to, i * SIDE * lanes))

        def across(i: str) -> None:
            at = f.at(half, f.i("mul", i, SIDE * lanes))
            to = f.at("%v", f.i("mul", i, SIDE * self.v))
            d = [f.load(f.at(at, j * lanes)) for j in range(SIDE)]
            for j, value in enumerate(f.input_transform(d, PAIRS[TILE])):
                f.store(value, f.at(to, j * self.v))

        f.each(0, SIDE, down)
        f.each(0, SIDE, across)
        self.add("window", f, contract)

    def fetch(self, f: Function, x: str, corner: list[str], n: str, edge: str, v: str) -> None:
        """V of all channels of the tile whose window starts at `corner`; outside the image are zeros."""
        lanes, (row, column), (height, width) = self.how.lanes, self.steps, self.size
        y0, x0 = corner

        def vectors(start: str, c: str, act) -> None:
            base, to = f.at(start, f.i("mul", c, self.channel_step)), f.i("mul", c, self.how.vectors * lanes)
            for k in range(self.how.vectors):
                act(f.at(base, k * lanes), f.at(v, to, k * lanes))

        def inner(base: str, to: str) -> None:
            contract = self.window_of(row, column)
            self.call(f, "window", base, to, str(row), str(column), contract=contract)

        def whole() -> None:
            start = f.at(x, f.i("mul", y0, row), f.i("mul", x0, column), n)
            f.each(0, self.channels, lambda c: vectors(start, c, inner))

        def outer(base: str, to: str) -> None:
            def line(i: str, y: str) -> None:
                start = f.at(base, f.i("mul", y, row))

                def point(j: str, place: str) -> None:
                    source = f.at(start, f.i("mul", place, column))
                    f.store(f.load(source), f.at(edge, f.i("mul", f.i("add", f.i("mul", i, SIDE), j), lanes)))

                f.span(x0, width, SIDE, point)

            f.span(y0, height, SIDE, line)
            contract = self.window_of(SIDE * lanes, lanes)
            self.call(f, "window", edge, to, str(SIDE * lanes), str(lanes), contract=contract)

        def border() -> None:
            f.each(0, POSITIONS, lambda k: f.store("zeroinitializer", f.at(edge, f.i("mul", k, lanes))))
            start = f.at(x, n)
            f.each(0, self.channels, lambda c: vectors(start, c, outer))

        f.if_inside([(y0, height - SIDE), (x0, width - SIDE)], whole, border)

    # ---- M
    def product(self) -> None:
        """M = U V at one position, for a tile of output channels, held in registers."""
        lanes, vectors, rows = self.how.lanes, self.how.vectors, self.how.rows
        floats = {
            "%v": self.channels * vectors * lanes,
            "%u": (self.channels - 1) * self.outs + rows,
            "%m": rows * vectors * lanes,
        }
        contract = Contract(floats)
        f = self.function(contract)
        zero = Value("zeroinitializer", "f32", lanes)

        def add(c: str, totals: list[Value]) -> list[Value]:
            at, u = f.at("%v", f.i("mul", c, vectors * lanes)), f.at("%u", f.i("mul", c, self.outs))
            x = [f.load(f.at(at, k * lanes)) for k in range(vectors)]
            made = []
            for r in range(rows):
                w = f.broadcast(f.load_one(f.at(u, r))).text
                for k in range(vectors):
                    made.append(Value(f.fma(w, x[k], totals[r * vectors + k].text), "f32", lanes))
            return made

        totals = f.loop("0", str(self.channels), 1, [zero] * (rows * vectors), add)
        for k, total in enumerate(totals):
            f.store(total.text, f.at("%m", k * lanes))
        self.add("product", f, contract)

    # ---- y
    def result(self) -> None:
        """y = At M A for output channel %k and one vector, and then the stages after the sum."""
        lanes, how = self.how.lanes, self.how
        integers = {"%k": (0, self.outs - 1)}
        integers |= {at: (0, (count - 1) * TILE) for at, count in zip(("%y", "%x"), self.grid, strict=True)}
        contract = Contract(
            {"%m": (POSITIONS - 1) * self.m + lanes},
            integers | {"%n": (0, self.extent[how.batch] - lanes)},
            tuple(f"%{buffer}.ptr" for buffer in self.kernel.buffers),
        )
        f = self.function(contract)
        half, ready = f.floats("half", TILE * SIDE * lanes), f.floats("ready", TILE * lanes)
        y0, x0 = "%y", "%x"

        def column(j: str) -> None:
            at, to = f.at("%m", f.i("mul", j, self.m)), f.at(half, f.i("mul", j, lanes))
            x = [f.load(f.at(at, i * SIDE * self.m)) for i in range(SIDE)]
            for i, value in enumerate(f.output_transform(x, PAIRS[TILE], TILE)):
                f.store(value, f.at(to, i * SIDE * lanes))

        epilogue = Epilogue(self.kernel, how.batch, self.target)
        epilogue.declared, epilogue.lines, epilogue.ranges = self.declared, f.lines, f.ranges

        def row(i: str, y: str) -> None:
            at = f.at(half, f.i("mul", i, SIDE * lanes))
            totals = [f.load(f.at(at, j * lanes)) for j in range(SIDE)]
            for j, value in enumerate(f.output_transform(totals, PAIRS[TILE], TILE)):
                f.store(value, f.at(ready, j * lanes))

            def place(j: str, x: str) -> None:
                total = Value(f.load(f.at(ready, f.i("mul", j, lanes))), "f32", lanes)
                point = {how.out: ("%k", 0), how.batch: ("%n", 0)}
                point |= {how.places[0]: (y, 0), how.places[1]: (x, 0)}
                epilogue.totals, epilogue.count, epilogue.label = [total], f.count, f.label
                epilogue.scopes = [{}]
                epilogue.stages([point])
                f.count, f.label = epilogue.count, epilogue.label

            f.span(x0, self.extent[how.places[1]], TILE, place)

        f.each(0, SIDE, column)
        f.span(y0, self.extent[how.places[0]], TILE, row)
        slots = [f"  {slot} = alloca {kind}, align 64" for (kind, _), slot in epilogue.slots.items()]
        f.lines[:0] = ["  %nowhere = alloca i64, align 8", *slots]
        self.add("result", f, contract)

    # ---- a unit
    def tiles(self) -> None:
        f, buffers, u = self.phase(self.grid[0] * self.grid[1] * self.blocks)
        how, lanes = self.how, self.how.lanes
        width = how.vectors * lanes
        v, m = f.floats("v", POSITIONS * self.v), f.floats("m", POSITIONS * self.m)
        edge = f.floats("edge", POSITIONS * lanes)
        image = buffers[list(self.kernel.buffers).index(self.image.buffer)]

        def unit(q: str) -> None:
            block, tile = f.i("srem", q, self.blocks), f.i("sdiv", q, self.blocks)
            ty, tx = f.i("sdiv", tile, self.grid[1]), f.i("srem", tile, self.grid[1])
            y0, x0 = f.i("mul", ty, TILE), f.i("mul", tx, TILE)
            n = f.i("mul", block, width)
            corner = [f.i("add", at, o) for at, o in zip((y0, x0), self.origin, strict=True)]
            self.fetch(f, image, corner, n, edge, v)

            def chunk(k0: str) -> None:
                def position(k: str) -> None:
                    weights = f.at(u, f.i("mul", k, self.channels * self.outs), k0)
                    at, to = f.at(v, f.i("mul", k, self.v)), f.at(m, f.i("mul", k, self.m))
                    self.call(f, "product", at, weights, to)

                f.each(0, POSITIONS, position)

                def channel(r: str) -> None:
                    for vector in range(how.vectors):
                        at = f.at(m, f.i("mul", r, width), vector * lanes)
                        first = f.i("add", n, vector * lanes)
                        self.call(f, "result", *buffers, at, f.i("add", k0, r), y0, x0, first)

                f.each(0, how.rows, channel)

            f.each(0, self.outs, chunk, how.rows)

        f.each("%lo", "%hi", unit)
        self.add_phase("tiles", f)
