"""Write the code of a Winograd convolution: its transforms, products and phases.  See `winograd.py`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import blake2b
from math import prod
from typing import TYPE_CHECKING

from ...ir.errors import KernelError
from ...ir.kernel.affine import Affine
from ...ir.kernel.form import Kernel, Local, Reduce, Store
from ...ir.kernel.scalar import Op, Read
from .code import Code, Phase
from .conv_function import NOTHING, PAIRS, Contract, Function
from .emit import Emitter
from .schedule import Schedule
from .target import Target
from .writer import Point, Value

if TYPE_CHECKING:
    from .winograd import Winograd

TAPS = 3
STACK = 1 << 20  # bytes of stack that a thread may take for V and M
# How many bytes of a weight are asked for before they are wanted: it comes from memory, once.  With 256 x 256
# channels on 14 x 14 that took 0.53 ms in place of 0.71 on a Zen 5 core, and 512 x 512 on 7 x 7 0.83 for 1.0.
AHEAD = 8 << 10
UNNAMED = "unnamed"  # the functions while their text is hashed


class Epilogue(Emitter):
    """The stages after the reduction, at one place of the output."""

    def __init__(self, kernel: Kernel, vector: str, target: Target):
        super().__init__(kernel, Schedule(vector), target)
        self.totals: list[Value] = []

    def accumulate(self, stage: Reduce, points: list[Point]) -> list[Value]:
        return self.totals


@dataclass(frozen=True)
class Shape:
    """A blocked 3 x 3 convolution of stride 1, as its kernel says it: axes, buffers and sizes."""

    batch: str | None
    out: str
    lane: str
    places: tuple[str, str]
    input: int  # positions among the kernel's inputs
    packed: int
    image: tuple[int, int, int, int]  # n, c / lanes, h, w
    padding: tuple[int, int]
    size: tuple[int, int]  # of the output
    chunks: int  # k / lanes


def shape_of(kernel: Kernel, lanes: int) -> Shape:
    """What Winograd's code needs to know of a kernel.  Raises KernelError where it does not fit."""
    shape = _shape(kernel, lanes)
    if shape is None:
        raise KernelError(
            f"{kernel.name}: Winograd stands for a convolution of 3 x 3 taps, stride 1, channels in blocks "
            f"of {lanes}, followed by its packed weight and pointwise stages",
            f"kernel: {kernel}",
        )
    return shape


def _shape(kernel: Kernel, lanes: int) -> Shape | None:
    """x[n, co, i+r-p, j+s-p, ci] * w[16*ko+ki, 16*co+ci, r, s], summed over co, r, s and ci."""
    sums = [stage for stage in kernel.stages if not isinstance(stage, (Local, Store))]
    others = [stage for stage in kernel.stages if isinstance(stage, (Local, Store))]
    if kernel.symbols or len(sums) != 1 or any(stage.axes for stage in others):
        return None
    (stage,) = sums
    factors = stage.value.args if isinstance(stage, Reduce) and isinstance(stage.value, Op) else ()
    if len(factors) != 2 or not all(isinstance(factor, Read) for factor in factors):
        return None
    image, weight = factors
    assert isinstance(image, Read) and isinstance(weight, Read)
    at = [part for part in image.index if isinstance(part, Affine)]
    taken = [part for part in weight.index if isinstance(part, Affine)]
    if len(at) != 5 or len(taken) != 4:
        return None
    (batch, block, y, x, lane), (k, channel, r, s) = at, taken
    taps = {axis.name for axis in stage.axes if axis.extent == TAPS}
    places = [_place(part, tap, taps) for part, tap in ((y, r), (x, s))]
    outer, inner = ([name for name, by in k.terms if by == step] for step in (lanes, 1))
    if None in places or (len(outer), len(inner)) != (1, 1) or channel != block * lanes + lane:
        return None
    names, sizes = [buffer.name for buffer in kernel.inputs], kernel.extents
    input = names.index(image.buffer)
    down, across = (str(place) for place in places)
    n, blocks, height, width, _ = (int(size) for size in kernel.inputs[input].shape)
    return Shape(
        batch=next(iter(batch.names), None),
        out=outer[0],
        lane=inner[0],
        places=(down, across),
        input=input,
        packed=names.index(weight.buffer) + 1,
        image=(n, blocks, height, width),
        padding=(-y.constant, -x.constant),
        size=(int(sizes[down]), int(sizes[across])),
        chunks=int(sizes[outer[0]]),
    )


def _place(part: Affine, tap: Affine, taps: set[str]) -> str | None:
    """The axis i of an index i + r - p, for its tap r."""
    if len(tap.names) != 1 or not tap.names <= taps:
        return None
    rest = part - tap
    (place,) = rest.names if len(rest.names) == 1 else (None,)
    return place if place is not None and rest.coefficient(place) == 1 and tap.constant == 0 else None


def balanced(tiles: int, rows: int) -> list[int]:
    """Numbers as equal as can be, none above `rows`, whose sum is `tiles`."""
    parts = -(-tiles // rows)
    return [tiles // parts + (k < tiles % parts) for k in range(parts)]


class WinogradCode:
    """Writes the code of one convolution."""

    def __init__(self, how: Winograd, kernel: Kernel, target: Target):
        self.how, self.kernel, self.target, self.lanes = how, kernel, target, target.lanes
        self.shape = s = shape_of(kernel, target.lanes)
        if s.chunks % how.vectors:
            raise KernelError(f"{kernel.name}: chunks of {how.vectors} vectors don't divide the channels")
        self.pairs, self.n = PAIRS[how.tile], how.tile + 2
        self.grid = tuple(-(-size // how.tile) for size in s.size)
        self.tiles = s.image[0] * self.grid[0] * self.grid[1]
        self.block = min(how.block, self.tiles)
        self.blocks = -(-self.tiles // self.block)
        # strides in floats; of positions an odd number of vectors, or their stores meet in one set of a cache
        self.v_block, self.v_position = self.block * self.lanes, s.image[1] * self.block * self.lanes
        self.m_position = how.vectors * self.block * self.lanes
        self.v_position += self.lanes * (1 + (self.v_position // self.lanes) % 2)
        self.m_position += self.lanes * (1 + (self.m_position // self.lanes) % 2)
        self.v_size, self.m_size = self.n**2 * self.v_position, self.n**2 * self.m_position
        if 4 * ((0 if how.spread else self.v_size) + self.m_size) > STACK:
            raise KernelError(f"{kernel.name}: {how} takes more than {STACK} bytes of a thread's stack")
        self.declared: dict[str, str] = {}
        self.functions: list[str] = []
        self.contracts: dict[str, Contract] = {}

    def function(self, contract: Contract = NOTHING) -> Function:
        made = Function(self.target, contract)
        made.declared = self.declared
        return made

    def add(self, name: str, function: Function, contract: Contract) -> None:
        self.contracts[name] = contract
        self.functions.append(function.text(f"{UNNAMED}_{name}", contract.parameters))

    def add_phase(self, name: str, function: Function) -> None:
        self.functions.append(function.text(f"{UNNAMED}_{name}", "ptr %args, i64 %lo, i64 %hi", ""))

    def code(self) -> Code:
        self.transform()
        self.fetch()
        sizes = {len_ for tiles in {self.block, self.last} for len_ in balanced(tiles, self.how.rows)}
        for rows in sorted(sizes):
            self.product(rows)
        self.result()
        s, how = self.shape, self.how
        flops = 2 * self.n**2 * self.tiles * s.image[1] * s.chunks * self.lanes**2
        spent = flops * self.target.core.muladd * 16 / self.lanes
        moved = 0.1 * spent  # the transforms: 7 to 13 % of the time
        if how.spread:
            self.phase_transform()
            self.phase_chunks()
            phases = (
                Phase(f"{UNNAMED}_transform", self.tiles, moved),
                Phase(f"{UNNAMED}_chunks", s.chunks // how.vectors, spent),
            )
        else:
            self.phase_blocks()
            phases = (Phase(f"{UNNAMED}_blocks", self.blocks, spent + moved),)
        scratch = 4 * self.blocks * self.v_size if how.spread else 0
        text = "\n".join([*self.declared.values(), *self.functions])
        name = "winograd" + blake2b(text.encode(), digest_size=10).hexdigest()
        phases = tuple(replace(phase, symbol=phase.symbol.replace(UNNAMED, name)) for phase in phases)
        return Code(self.kernel, text.replace(f"@{UNNAMED}_", f"@{name}_"), phases, scratch)

    @property
    def last(self) -> int:
        """Tiles of the last block."""
        return self.tiles - (self.blocks - 1) * self.block

    def call(self, f: Function, name: str, *arguments: str, contract: Contract | None = None) -> None:
        f.invoke(f"{UNNAMED}_{name}", contract or self.contracts[name], *arguments)

    def window(self, row: int) -> Contract:
        """What `transform` is given for a window whose rows are so many floats apart."""
        n, lanes = self.n, self.lanes
        floats = {"%x": (n - 1) * row + n * lanes, "%v": (n * n - 1) * self.v_position + lanes}
        return Contract(floats, {"%row": (row, row)})

    def transform(self) -> None:
        """V = Bt x B for one tile and block of channels: %x has rows %row apart."""
        contract = self.window(max(self.n, self.shape.image[3]) * self.lanes)  # of a shorter row takes less
        f, n, lanes = self.function(contract), self.n, self.lanes
        half = f.floats("half", n * n * lanes)

        def column(j: str) -> None:
            at = f.at("%x", f.i("mul", j, lanes))
            d = []
            for _ in range(n):
                d.append(f.load(at))
                at = f.at(at, "%row")
            to = f.at(half, f.i("mul", j, lanes))
            for i, value in enumerate(f.input_transform(d, self.pairs)):
                f.store(value, f.at(to, i * n * lanes))

        def row(i: str) -> None:
            at = f.at(half, f.i("mul", i, n * lanes))
            to = f.at("%v", f.i("mul", i, n * self.v_position))
            d = [f.load(f.at(at, j * lanes)) for j in range(n)]
            for j, value in enumerate(f.input_transform(d, self.pairs)):
                f.store(value, f.at(to, j * self.v_position))

        f.each(0, n, column)
        f.each(0, n, row)
        self.add("window", f, contract)

    def fetch(self) -> None:
        """All blocks of channels of tile %q to %v, with zeros for what lies outside the image."""
        n, lanes, s = self.n, self.lanes, self.shape
        images, blocks, height, width = s.image
        size = height * width * lanes
        room = (n * n - 1) * self.v_position + (blocks - 1) * self.v_block + lanes
        contract = Contract({"%x": images * blocks * size, "%v": room}, {"%q": (0, self.tiles - 1)})
        f = self.function(contract)
        window = f.floats("edge", n * n * lanes)
        batch, ty, tx = self.place(f, "%q")
        y0 = f.i("sub", f.i("mul", ty, self.how.tile), s.padding[0])
        x0 = f.i("sub", f.i("mul", tx, self.how.tile), s.padding[1])
        image = f.at("%x", f.i("mul", batch, blocks * size))

        def transform(source: str, row: int, c: str) -> None:
            to = f.at("%v", f.i("mul", c, self.v_block))
            self.call(f, "window", source, to, str(row), contract=self.window(row))

        def inner() -> None:
            start = f.at(image, f.i("mul", f.i("add", f.i("mul", y0, width), x0), lanes))
            f.each(0, blocks, lambda c: transform(f.at(start, f.i("mul", c, size)), width * lanes, c))

        def edge() -> None:
            f.each(0, n * n, lambda k: f.store("zeroinitializer", f.at(window, f.i("mul", k, lanes))))

            def channels(c: str) -> None:
                base = f.at(image, f.i("mul", c, size))

                def row(i: str, y: str) -> None:
                    line = f.at(base, f.i("mul", y, width * lanes))

                    def point(j: str, x: str) -> None:
                        to = f.at(window, f.i("mul", f.i("add", f.i("mul", i, n), j), lanes))
                        f.store(f.load(f.at(line, f.i("mul", x, lanes))), to)

                    f.span(x0, width, n, point)

                f.span(y0, height, n, row)
                transform(window, n * lanes, c)

            f.each(0, blocks, channels)

        f.if_inside([(y0, height - n), (x0, width - n)], inner, edge)
        self.add("fetch", f, contract)

    def place(self, f: Function, tile: str) -> tuple[str, str, str]:
        """Batch, row and column of a tile's number."""
        down, across = self.grid
        rest = f.i("srem", tile, down * across) if self.shape.image[0] > 1 else tile
        batch = f.i("sdiv", tile, down * across) if self.shape.image[0] > 1 else "0"
        return batch, f.i("sdiv", rest, across), f.i("srem", rest, across)

    def product(self, rows: int) -> None:
        """M = V U at one position, for `rows` tiles and one chunk of output channels, held in registers."""
        lanes, vectors, blocks = self.lanes, self.how.vectors, self.shape.image[1]
        step = min(4, lanes)
        floats = {"%v": (blocks - 1) * self.v_block + rows * lanes, "%u": blocks * lanes * lanes * vectors}
        contract = Contract(floats | {"%m": ((vectors - 1) * self.block + rows) * lanes})
        f = self.function(contract)
        zero = Value("zeroinitializer", "f32", lanes)

        def some(v: str, u: str, totals: list[Value]) -> list[Value]:
            totals = list(totals)
            for k in range(step):
                weights = [f.load(f.at(u, (k * vectors + w) * lanes)) for w in range(vectors)]
                for w in range(vectors):
                    f.prefetch(f.at(u, (k * vectors + w) * lanes + AHEAD // 4))
                for r in range(rows):
                    x = f.broadcast(f.load_one(f.at(v, r * lanes + k)))
                    for w in range(vectors):
                        slot = r * vectors + w
                        totals[slot] = Value(f.fma(x.text, weights[w], totals[slot].text), "f32", lanes)
            return totals

        def channels(c: str, totals: list[Value]) -> list[Value]:
            v, u = f.at("%v", f.i("mul", c, self.v_block)), f.at("%u", f.i("mul", c, lanes * lanes * vectors))

            def steps(k: str, carried: list[Value]) -> list[Value]:
                return some(f.at(v, k), f.at(u, f.i("mul", k, vectors * lanes)), carried)

            return f.loop("0", str(lanes), step, totals, steps) if lanes > step else some(v, u, totals)

        totals = f.loop("0", str(self.shape.image[1]), 1, [zero] * (rows * vectors), channels)
        for r in range(rows):
            for w in range(vectors):
                f.store(totals[r * vectors + w].text, f.at("%m", w * self.block * lanes + r * lanes))
        self.add(f"product{rows}", f, contract)

    def result(self) -> None:
        """y = At M A for tile %q and the vector %k of output channels, and then the epilogue."""
        s, n, tile, lanes = self.shape, self.n, self.how.tile, self.lanes
        contract = Contract(
            {"%m": (n * n - 1) * self.m_position + lanes},
            {"%q": (0, self.tiles - 1), "%k": (0, s.chunks - 1)},
            tuple(f"%{buffer}.ptr" for buffer in self.kernel.buffers),
        )
        f = self.function(contract)
        half, ready = f.floats("half", tile * n * lanes), f.floats("ready", tile * lanes)
        batch, ty, tx = self.place(f, "%q")
        y0, x0 = f.i("mul", ty, tile), f.i("mul", tx, tile)

        def column(j: str) -> None:
            at, to = f.at("%m", f.i("mul", j, self.m_position)), f.at(half, f.i("mul", j, lanes))
            x = [f.load(f.at(at, i * n * self.m_position)) for i in range(n)]
            for i, value in enumerate(f.output_transform(x, self.pairs, tile)):
                f.store(value, f.at(to, i * n * lanes))

        epilogue = Epilogue(self.kernel, s.lane, self.target)
        epilogue.declared, epilogue.lines, epilogue.ranges = self.declared, f.lines, f.ranges

        def row(i: str, y: str) -> None:
            at = f.at(half, f.i("mul", i, n * lanes))
            totals = [f.load(f.at(at, j * lanes)) for j in range(n)]
            for j, value in enumerate(f.output_transform(totals, self.pairs, tile)):
                f.store(value, f.at(ready, j * lanes))

            def place(j: str, x: str) -> None:
                total = Value(f.load(f.at(ready, f.i("mul", j, lanes))), "f32", lanes)
                point = {s.out: ("%k", 0), s.lane: ("0", 0)}
                point |= {s.places[0]: (y, 0), s.places[1]: (x, 0)}
                point |= {s.batch: (batch, 0)} if s.batch else {}
                epilogue.totals, epilogue.count, epilogue.label = [total], f.count, f.label
                epilogue.scopes = [{}]
                epilogue.stages([point])
                f.count, f.label = epilogue.count, epilogue.label

            f.span(x0, s.size[1], tile, place)

        f.each(0, n, column)
        f.span(y0, s.size[0], tile, row)
        slots = [f"  {slot} = alloca {kind}, align 64" for (kind, _), slot in epilogue.slots.items()]
        f.lines[:0] = ["  %nowhere = alloca i64, align 8", *slots]
        self.add("result", f, contract)

    # ---- phases
    def products(self, f: Function, tiles: int, v: str, u: str, m: str) -> None:
        """M of one block and chunk, at every position."""

        def position(k: str) -> None:
            at = f.at(v, f.i("mul", k, self.v_position)), f.at(m, f.i("mul", k, self.m_position))
            weights = f.at(u, f.i("mul", k, self.shape.image[1] * self.lanes**2 * self.how.vectors))
            first = 0
            for rows in balanced(tiles, self.how.rows):
                places = (f.at(start, first * self.lanes) for start in at)
                self.call(f, f"product{rows}", next(places), weights, next(places))
                first += rows

        f.each(0, self.n**2, position)

    def block_of(self, f: Function, buffers: list[str], block: str, chunk: str, v: str, m: str) -> None:
        """Products and results of one block of tiles and one chunk of channels."""
        s, vectors = self.shape, self.how.vectors
        weights = f.at(buffers[s.packed], f.i(
            "mul", chunk, self.n**2 * s.image[1] * self.lanes**2 * vectors))  # fmt: skip
        first = f.i("mul", block, self.block)
        if self.last == self.block:
            self.products(f, self.block, v, weights, m)
        elif self.blocks == 1:
            self.products(f, self.last, v, weights, m)
        else:
            f.either(
                f.name(f"icmp slt i64 {block}, {self.blocks - 1}"),
                lambda: self.products(f, self.block, v, weights, m),
                lambda: self.products(f, self.last, v, weights, m),
            )

        def tile(q: str) -> None:
            at = f.at(m, f.i("mul", self.within(f, q, first), self.lanes))

            def vector(w: str) -> None:
                total = f.at(at, f.i("mul", w, self.block * self.lanes))
                self.call(f, "result", *buffers, total, q, f.i("add", f.i("mul", chunk, vectors), w))

            f.each(0, vectors, vector)

        f.each(first, f.i("smin", f.i("add", first, self.block), self.tiles), tile)

    def within(self, f: Function, tile: str, first: str) -> str:
        """The number of a tile in the block that begins with `first`."""
        number = f.i("sub", tile, first)
        f.ranges.declare(number, 0, self.block - 1)  # the loops over tiles end with their block
        return number

    def buffers(self, f: Function, units: int) -> list[str]:
        """The kernel's, for a phase of so many units."""
        f.ranges.declare("%lo", 0, units - 1)
        f.ranges.declare("%hi", 0, units)
        sizes = [(b.name, prod(map(int, b.shape))) for b in self.kernel.buffers.values()]
        return [f.pointer(k, name, size) for k, (name, size) in enumerate(sizes)]

    def phase_blocks(self) -> None:
        f = self.function()
        v, m = f.floats("v", self.v_size), f.floats("m", self.m_size)
        buffers = self.buffers(f, self.blocks)

        def unit(block: str) -> None:
            first = f.i("mul", block, self.block)
            end = f.i("smin", f.i("add", first, self.block), self.tiles)

            def tile(q: str) -> None:
                to = f.at(v, f.i("mul", self.within(f, q, first), self.lanes))
                self.call(f, "fetch", buffers[self.shape.input], to, q)

            f.each(first, end, tile)
            f.each(0, self.shape.chunks // self.how.vectors,
                   lambda chunk: self.block_of(f, buffers, block, chunk, v, m))  # fmt: skip

        f.each("%lo", "%hi", unit)
        self.add_phase("blocks", f)

    def phase_transform(self) -> None:
        f = self.function()
        buffers = self.buffers(f, self.tiles)
        v = f.pointer(len(buffers), "v", self.blocks * self.v_size)

        def tile(q: str) -> None:
            to = f.at(v, f.i("mul", f.i("sdiv", q, self.block), self.v_size),
                      f.i("mul", f.i("srem", q, self.block), self.lanes))  # fmt: skip
            self.call(f, "fetch", buffers[self.shape.input], to, q)

        f.each("%lo", "%hi", tile)
        self.add_phase("transform", f)

    def phase_chunks(self) -> None:
        f = self.function()
        m = f.floats("m", self.m_size)
        buffers = self.buffers(f, self.shape.chunks // self.how.vectors)
        v = f.pointer(len(buffers), "v", self.blocks * self.v_size)

        def unit(chunk: str) -> None:
            f.each(0, self.blocks, lambda block: self.block_of(
                f, buffers, block, chunk, f.at(v, f.i("mul", block, self.v_size)), m))  # fmt: skip

        f.each("%lo", "%hi", unit)
        self.add_phase("chunks", f)
