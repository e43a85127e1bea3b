"""Write the code of a Winograd convolution: its transforms, products and phases.  See choose_winograd.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import blake2b
from math import prod

from ...ir.dims import Dim
from ...ir.errors import KernelError
from ...ir.kernel.affine import Extent
from ...ir.kernel.form import Kernel, Reduce
from ..kernels.winograd import TILES, shape_of, weight_transform
from ..schedules.choose_winograd import STACK, STEPS, apart, in_steps
from ..schedules.steps import Schedule, Vectorise, Winograd
from ..schedules.target import AHEAD, LINE, Target
from .code import Code, Phase
from .conv_function import Contract, Function, combination, input_transform, output_transform
from .emit import Emitter
from .ranges import OPEN, Int, Name
from .writer import HIGH, LOW, Point, Value, Writer

ASKED_FOR = -(1 << 62)  # floats behind a pointer from which nothing may be loaded, wherever it points
UNNAMED = "unnamed"  # the functions while their text is hashed
# What functions are given: strides of the image, and where a result is.
ROW, COLUMN, K, Y, X, N = map(Name, ("%row", "%column", "%k", "%y", "%x", "%n"))


def _most(size: Extent) -> int:
    """A size; for one that may be any, the number that stands for it in proofs."""
    return OPEN if isinstance(size, Dim) else size


def balanced(total: int, most: int) -> list[int]:
    """Numbers as equal as can be, none above `most`, whose sum is `total`."""
    parts = -(-total // most)
    return [total // parts + (k < total % parts) for k in range(parts)]


class Epilogue(Emitter):
    """The stages of a kernel whose sum is there already."""

    def __init__(self, kernel: Kernel, vector: str, target: Target):
        super().__init__(kernel, Schedule(Vectorise(vector)), target)
        self.totals: list[Value] = []

    def reduce(self, stage: Reduce, points: list[Point]) -> list[Value]:
        return self.totals


class WinogradCode:
    """Writes the code of one convolution.

    A product has rows of `how.vectors` sums, to each of which a number times a vector is added.  Of vectors
    of channels: a row is a tile, some of which are a block; the vectors are U's, for a chunk of output
    channels.  Of vectors of images: a row is an output channel, of a chunk; the vectors are V's, of a block
    of tiles beside each other, so that they are whole where a batch fills less.

    Strides, in floats: of V between channels (or blocks of them), tiles, positions of a window; of U between
    channels, positions, chunks; of M between rows, vectors, positions.
    """

    def __init__(self, how: Winograd, kernel: Kernel, target: Target):
        shape, lanes = shape_of(kernel), how.images or target.lanes
        if (
            shape is None
            or shape.block != (0 if how.images else lanes)
            or how.tile not in TILES[shape.window]
        ):
            raise KernelError(
                f"{kernel.name}: Winograd stands for a convolution of 2 to 5 taps a side, stride 1, in "
                f"vectors of {lanes} {'images' if how.images else 'channels'}, and pointwise stages",
                f"outputs of a tile along a side, by taps: {TILES}; kernel: {kernel}",
            )
        self.how, self.kernel, self.shape = how, kernel, shape
        self.target, self.lanes, self.n = target.with_lanes(lanes), lanes, how.tile + shape.window - 1
        self.open = bool(kernel.symbols)  # for any number of images
        if self.open and (
            how.images or how.spread or [*kernel.symbols] != [str(kernel.extents[shape.batch or ""])]
        ):
            raise KernelError(f"{kernel.name}: {how} is for a number of images that is known")
        self.arrays = [(b.name, prod(map(_most, b.shape))) for b in kernel.buffers.values()]
        self.extent = {axis: _most(n) for axis, n in kernel.extents.items()}
        self.channels, self.outs = self.extent[shape.channel], self.extent[shape.out]
        self.batch, width = self.extent[shape.batch] if shape.batch else 1, how.vectors * lanes
        self.row, self.column = (shape.at.coefficient(place) for place in shape.places)
        self.grid = [-(-self.extent[place] // how.tile) for place in shape.places]
        self.groups, self.chunk = (self.batch // width, how.rows) if how.images else (self.batch, how.vectors)
        self.tiles = self.groups * self.grid[0] * self.grid[1]
        self.count: Int = self.tiles  # as the code that is being written has it
        self.block = min(how.block, self.tiles)
        self.blocks = -(-self.tiles // self.block)
        self.chunks = self.outs // self.chunk
        if self.chunks * self.chunk != self.outs:
            raise KernelError(f"{kernel.name}: chunks of {self.chunk} vectors don't divide the channels")
        if how.images and (how.spread or self.groups * width != self.batch):
            raise KernelError(f"{kernel.name}: {how} takes a tile of {width} images at once, of {self.batch}")
        self.whole, self.width = target if how.images else self.target, width  # of a row of sums
        if how.images:
            self.width *= self.block
            self.whole = target if self.width % target.lanes == 0 else self.target
        # inner: the channels in an element of V's and U's dimension of channels; left: those in the last
        if how.images:
            self.inner, self.v_tile, self.u_channel, self.u_chunk = 1, width, self.outs, how.rows
            self.rows, self.m_row, self.m_vector = how.rows, self.width, self.whole.lanes
        else:
            self.inner, self.v_tile, self.u_channel = lanes, lanes, lanes * width
            self.u_chunk = self.n**2 * self.channels * self.u_channel
            self.rows, self.m_row, self.m_vector = self.block, lanes, self.block * lanes
        summed = in_steps(int([*kernel.buffers.values()][shape.weight].shape[1]))
        self.left = self.inner if how.images else summed - (self.channels - 1) * self.inner
        self.v_channel, self.u_position = self.block * self.v_tile, self.channels * self.u_channel
        across = self.whole.lanes
        self.v_position = apart(self.channels * self.v_channel // across, across)
        self.m_position = apart(self.rows * self.width // across, across)
        self.v_size, self.m_size = self.n**2 * self.v_position, self.n**2 * self.m_position
        if 4 * ((0 if how.spread else self.v_size) + self.m_size) > STACK:
            raise KernelError(f"{kernel.name}: {how} takes more than {STACK} bytes of a thread's stack")
        self.scratch = self.blocks * self.v_size if how.spread else 0  # floats that the phases share
        if how.images:
            self.scratch = self.n**2 * self.u_position
        self.zero = Value("zeroinitializer", "f32", lanes, 0.0)
        self.declared: dict[str, str] = {}
        self.functions: list[str] = []
        self.beside: list[str] = []
        self.symbols: dict[str, str] = {}
        self.contracts: dict[str, Contract] = {}

    def code(self) -> Code:
        how = self.how
        self.window()
        parts = {part for whole in (self.rows, self.last) for part in balanced(whole, how.rows)}
        for rows in range(1, min(how.rows, self.rows) + 1) if self.open else sorted(parts):
            self.product(rows)
        self.result()
        vectors = self.blocks * self.channels * self.outs * self.width / self.whole.lanes
        if not how.images:
            vectors = self.tiles * self.channels * self.outs * self.lanes
        spent = 2 * self.n**2 * vectors * self.target.core.muladd * 16
        moved = (0.3 if how.images else 0.1) * spent  # the transforms: of channels 7 to 13 % of the time
        phases = []
        if how.images:
            phases.append(self.weights(0.05 * (spent + moved)))
        if how.spread:
            phases += [self.by_tiles(moved), self.by_chunks(spent)]
        else:
            phases.append(self.by_blocks(spent + moved))
        text = "\n".join([*self.declared.values(), *self.functions])
        name = "winograd" + blake2b(text.encode(), digest_size=10).hexdigest()
        phases = [replace(phase, symbol=phase.symbol.replace(UNNAMED, name)) for phase in phases]
        text = text.replace(f"@{UNNAMED}_", f"@{name}_")
        return Code(self.kernel, text, tuple(phases), 4 * self.scratch, beside=tuple(self.beside))

    @property
    def last(self) -> int:
        """Rows of the last block, which may have fewer of them, where they are tiles."""
        known = self.how.images or self.open
        return self.rows if known else self.tiles - (self.blocks - 1) * self.block

    # ---- functions
    def function(self, contract: Contract, writer: Writer | None = None) -> Function:
        return Function(writer or Writer(self.target), self.target, contract)

    def add(self, name: str, f: Function, entry: bool = False) -> None:
        self.contracts[name], self.symbols[name] = f.contract, f"{UNNAMED}_{name}"
        self.declared |= f.writer.declared
        self.functions.append(f.text(f"{UNNAMED}_{name}", entry))

    def add_beside(self, name: str, f: Function) -> None:
        """Add a function that other convolutions call, too: those that differ in what follows the sum."""
        text = f.text(UNNAMED)
        symbol = f"winograd_{name}_{blake2b(text.encode(), digest_size=10).hexdigest()}"
        text = text.replace(f"define internal void @{UNNAMED}(", f"define weak_odr void @{symbol}(", 1)
        self.beside.append("\n".join([*f.writer.declared.values(), text]))
        kinds = ", ".join(["ptr"] * len(f.contract.floats) + ["i64"] * len(f.contract.integers))
        self.contracts[name], self.symbols[name] = f.contract, symbol
        self.declared[symbol] = f"declare void @{symbol}({kinds})"

    def call(self, f: Function, name: str, pointers: Sequence[str], *integers: Int) -> None:
        f.invoke(self.symbols[name], self.contracts[name], pointers, *integers)

    # ---- V
    def window_of(self, row: int, column: int) -> Contract:
        """What `window` is given for places so many floats apart."""
        floats = {"%x": (self.n - 1) * (row + column) + self.lanes}
        floats["%v"] = (self.n**2 - 1) * self.v_position + self.lanes
        strides = {ROW: (row, row), COLUMN: (column, column)}
        if self.column == self.lanes:  # on an edge too
            del strides[COLUMN]
        return Contract(floats, strides)

    def window(self) -> None:
        """V = Bt x B for one vector of one tile and channel; %row and %column: the strides of x."""
        n, lanes = self.n, self.lanes
        # of places nearer by, as on an edge, it takes less
        f = self.function(self.window_of(max(self.row, n * lanes), max(self.column, lanes)))
        column = COLUMN if COLUMN in f.contract.integers else lanes
        half = f.floats("half", n * n * lanes)

        def down(j: Int) -> None:
            at, d = f.at("%x", f.i("mul", j, column)), []
            for _ in range(n):
                d.append(f.load(at))
                at = f.at(at, ROW)
            to = f.at(half, f.i("mul", j, lanes))
            for i, value in enumerate(input_transform(f, d)):
                f.store(value, f.at(to, i * n * lanes))

        def across(i: Int) -> None:
            at = f.at(half, f.i("mul", i, n * lanes))
            to = f.at("%v", f.i("mul", i, n * self.v_position))
            d = [f.load(f.at(at, j * lanes)) for j in range(n)]
            for j, value in enumerate(input_transform(f, d)):
                f.store(value, f.at(to, j * self.v_position))

        f.each(0, n, down)
        f.each(0, n, across)
        self.add_beside("window", f)

    def transform(self, f: Function, x: str, v: str, row: int, column: int) -> None:
        contract = self.window_of(row, column)
        f.invoke(self.symbols["window"], contract, [x, v], *(low for low, _ in contract.integers.values()))

    def edge(self, f: Function) -> str:
        """A window on the stack, for `fetch`."""
        return f.floats("edge", self.n**2 * self.lanes)

    def fetch(self, f: Function, memory: list[str], edge: str, v: str, tile: Int) -> None:
        """V of all channels of a tile, with zeros for what lies outside the image."""
        n, lanes, s, (height, width) = self.n, self.lanes, self.shape, self.shape.size
        first, *corner = self.place(f, tile)
        y0, x0 = (f.i("add", at, origin) for at, origin in zip(corner, s.origin, strict=True))
        image = f.at(memory[s.image], f.i("mul", first, s.at.coefficient(s.batch or "")))

        def each_vector(start: str, act: Callable[[str, str], None]) -> None:
            def channel(c: Int) -> None:
                base = f.at(start, f.i("mul", c, s.at.coefficient(s.channel)))
                to = f.at(v, f.i("mul", c, self.v_channel))
                for k in range(0, self.v_tile, lanes):
                    act(f.at(base, k), f.at(to, k))

            f.each(0, self.channels, channel)

        def whole() -> None:
            start = f.at(image, f.i("mul", y0, self.row), f.i("mul", x0, self.column))
            each_vector(start, lambda base, to: self.transform(f, base, to, self.row, self.column))

        def outer(base: str, to: str) -> None:
            def line(i: Int, y: Int) -> None:
                start = f.at(base, f.i("mul", y, self.row))

                def point(j: Int, x: Int) -> None:
                    value = f.load(f.at(start, f.i("mul", x, self.column)))
                    f.store(value, f.at(edge, f.i("mul", f.i("add", f.i("mul", i, n), j), lanes)))

                f.span(x0, width, n, point)

            f.span(y0, height, n, line)
            self.transform(f, edge, to, n * lanes, lanes)

        def border() -> None:
            f.each(0, n * n, lambda k: f.store(self.zero, f.at(edge, f.i("mul", k, lanes))))
            each_vector(image, outer)

        f.if_inside([(y0, height - n), (x0, width - n)], whole, border)

    def place(self, f: Function, tile: Int) -> tuple[Int, Int, Int]:
        """The first image of a tile's number, and the row and column of its first output."""
        down, across = self.grid
        if self.how.images:
            first = f.i("mul", f.i("srem", tile, self.groups), self.how.vectors * self.lanes)
            tile = f.i("sdiv", tile, self.groups)
        elif self.batch > 1:
            first, tile = f.i("sdiv", tile, down * across), f.i("srem", tile, down * across)
        else:
            first = 0
        row, column = f.i("sdiv", tile, across), f.i("srem", tile, across)
        return first, f.i("mul", row, self.how.tile), f.i("mul", column, self.how.tile)

    # ---- M
    @property
    def shares(self) -> int:
        """The parts of a block, each of which asks for a share of U at the next position (next_panel.py)."""
        return 1 if self.open else len(balanced(self.rows, self.how.rows))

    def next(self, f: Function, weights: str, part: int) -> list[str]:
        """What of U a part of a block asks for; one alone reads it, and asks for what is close."""
        if self.how.images:
            return []
        share = self.u_position * part // self.shares
        return [f.at(weights, self.u_position + share if self.shares > 1 else AHEAD // 4)]

    def product(self, rows: int) -> None:
        """M = V U at one position, for so many rows of a chunk, held in registers."""
        lanes, width = self.whole.lanes, self.width
        vectors, zero = width // lanes, Value("zeroinitializer", "f32", lanes, 0.0)
        inner, step = self.inner, min(STEPS, self.inner)
        one, many = ("%u", "%v") if self.how.images else ("%v", "%u")
        strides = {"%v": self.v_channel, "%u": self.u_channel}
        floats = {at: (self.channels - 1) * stride for at, stride in strides.items()}
        floats[one] += rows * inner
        floats[many] += inner * width
        floats["%m"] = (rows - 1) * self.m_row + (vectors - 1) * self.m_vector + lanes
        asks = {} if self.how.images else {"%next": ASKED_FOR}  # a weight comes from memory
        f, shares = Function(Writer(self.whole), self.whole, Contract(floats | asks)), self.shares
        lines = max(1, step * width * 4 // LINE)
        every = next(n for n in range(min(lines, shares), 0, -1) if lines % n == 0)

        def some(at: dict[str, str], totals: list[Value]) -> list[Value]:
            totals = list(totals)
            for k in range(step):
                places = range(k * width, (k + 1) * width, lanes)
                values = [f.load(f.at(at[many], place)) for place in places]
                for place in places if asks else ():
                    if place * 4 % (LINE * every) == 0:
                        f.prefetch(f.at(at["%next"], place // shares), level=min(2, shares))
                for r in range(rows):
                    x = f.splat(f.at(at[one], r * inner + k))
                    for w in range(vectors):
                        slot = r * vectors + w
                        totals[slot] = f.fma(x, values[w], totals[slot])
            return totals

        def channel(c: Int, totals: list[Value], count: int = inner) -> list[Value]:
            at = {name: f.at(name, f.i("mul", c, stride)) for name, stride in strides.items()}
            at |= {name: f.at(name, f.i("sdiv", f.i("mul", c, self.u_channel), shares)) for name in asks}
            if step == count:
                return some(at, totals)

            def steps(k: Int, carried: list[Value]) -> list[Value]:
                here = {one: f.at(at[one], k), many: f.at(at[many], f.i("mul", k, width))}
                here |= {name: f.at(at[name], f.i("sdiv", f.i("mul", k, width), shares)) for name in asks}
                return some(here, carried)

            return f.loop(0, count, step, totals, steps, aligned=True)

        totals, whole = [zero] * (rows * vectors), self.channels - (self.left < inner)
        if whole:
            totals = f.loop(0, whole, 1, totals, channel, aligned=step == inner)
        if whole < self.channels:
            totals = channel(whole, totals, self.left)
        for slot, total in enumerate(totals):
            r, w = divmod(slot, vectors)
            f.store(total, f.at("%m", r * self.m_row + w * self.m_vector))
        self.add_beside(f"product{rows}", f)

    # ---- y
    def result(self) -> None:
        """y = At M A for one vector of a tile from image %n and place %y, %x on, of the output channels %k,
        and then the stages after the sum."""
        s, n, tile, lanes = self.shape, self.n, self.how.tile, self.lanes
        integers = {K: (0, self.outs - 1)}
        integers |= {at: (0, (count - 1) * tile) for at, count in zip((Y, X), self.grid, strict=True)}
        integers[N] = 0, self.batch - (lanes if self.how.images else 1)
        floats = {"%m": (n * n - 1) * self.m_position + lanes}
        buffers = tuple(f"%{name}.ptr" for name, _ in self.arrays)
        epilogue = Epilogue(self.kernel, s.lane, self.target)
        f = self.function(Contract(floats, integers, buffers), epilogue)
        half, ready = f.floats("half", tile * n * lanes), f.floats("ready", tile * lanes)

        def column(j: Int) -> None:
            at, to = f.at("%m", f.i("mul", j, self.m_position)), f.at(half, f.i("mul", j, lanes))
            x = [f.load(f.at(at, i * n * self.m_position)) for i in range(n)]
            for i, value in enumerate(output_transform(f, x, tile)):
                f.store(value, f.at(to, i * n * lanes))

        def row(i: Int, y: Int) -> None:
            at = f.at(half, f.i("mul", i, n * lanes))
            totals = [f.load(f.at(at, j * lanes)) for j in range(n)]
            for j, value in enumerate(output_transform(f, totals, tile)):
                f.store(value, f.at(ready, j * lanes))

            def place(j: Int, x: Int) -> None:
                epilogue.totals = [f.load(f.at(ready, f.i("mul", j, lanes)))]
                point: Point = {s.lane: (0, 0), s.out: (K, 0), s.places[0]: (y, 0), s.places[1]: (x, 0)}
                epilogue.stages([point | ({s.batch: (N, 0)} if s.batch else {})])

            f.span(X, self.extent[s.places[1]], tile, place)

        f.each(0, n, column)
        f.span(Y, self.extent[s.places[0]], tile, row)
        self.add("result", f)

    # ---- phases
    def tiles_of(self, f: Function, block: Int) -> Int:
        """How many tiles a block has."""
        if self.tiles % self.block == 0 and not self.open:
            return self.block
        found = f.i("smin", f.i("sub", self.count, f.i("mul", block, self.block)), self.block)
        f.ranges.declare(found, 1, self.block)  # there are no more blocks than are needed
        return found

    def tile(self, f: Function, block: Int, number: Int) -> Int:
        """The number of a tile among all, for that in its block."""
        tile = f.i("add", f.i("mul", block, self.block), number)
        f.ranges.declare(tile, 0, self.tiles - 1)  # the loops over a block end with the last tile
        return tile

    def products(self, f: Function, rows: int, v: str, u: str, m: str) -> None:
        """M of so many rows and a chunk, at every position."""

        def position(k: Int) -> None:
            at, to = f.at(v, f.i("mul", k, self.v_position)), f.at(m, f.i("mul", k, self.m_position))
            weights, first = f.at(u, f.i("mul", k, self.u_position)), 0
            for number, part in enumerate(balanced(rows, self.how.rows)):  # several are of tiles
                offset = first * self.lanes
                given = [f.at(at, offset), weights, f.at(to, offset), *self.next(f, weights, number)]
                self.call(f, f"product{part}", given)
                first += part

        f.each(0, self.n**2, position)

    def open_products(self, f: Function, rows: Int, v: str, u: str, m: str) -> None:
        """`products` of a number of tiles that is known when it runs: in parts that differ by one at most."""
        most = min(self.how.rows, self.block)
        parts = f.i("sdiv", f.i("add", rows, most - 1), most)
        each, extra = f.i("sdiv", rows, parts), f.i("srem", rows, parts)

        def position(k: Int) -> None:
            at, to = f.at(v, f.i("mul", k, self.v_position)), f.at(m, f.i("mul", k, self.m_position))
            weights = f.at(u, f.i("mul", k, self.u_position))

            def part(number: Int) -> None:
                size = f.i("add", each, f.i("smin", f.i("smax", f.i("sub", extra, number), 0), 1))
                first = f.i("add", f.i("mul", number, each), f.i("smin", number, extra))

                def of_size(tiles: int) -> None:
                    with f.ranges.given(first, 0, self.block - tiles):  # a part ends with the block at most
                        offset = f.i("mul", first, self.lanes)
                        given = [f.at(at, offset), weights, f.at(to, offset), *self.next(f, weights, 0)]
                        self.call(f, f"product{tiles}", given)

                def at_most(tiles: int) -> None:
                    if tiles == 1:
                        of_size(1)
                        return
                    is_it = f.name(f"icmp eq i64 {size}, {tiles}")
                    f.either(is_it, lambda: of_size(tiles), lambda: at_most(tiles - 1))

                at_most(most)

            f.each(0, parts, part)

        f.each(0, self.n**2, position)

    def outputs(self, f: Function, memory: list[str], v: str, m: str, block: Int, chunk: Int) -> None:
        """Products and results of one block of tiles and one chunk of channels."""
        how, s = self.how, self.shape
        u = f.at(memory[-1 if how.images else s.weight + 1], f.i("mul", chunk, self.u_chunk))
        if self.open:
            self.open_products(f, self.tiles_of(f, block), v, u, m)
        elif self.last == self.rows:
            self.products(f, self.rows, v, u, m)
        else:
            f.either(
                f.name(f"icmp slt i64 {block}, {self.blocks - 1}"),
                lambda: self.products(f, self.rows, v, u, m),
                lambda: self.products(f, self.last, v, u, m),
            )

        first = f.i("mul", chunk, self.chunk)

        def result(total: str, k: Int, y: Int, x: Int, n: Int) -> None:
            self.call(f, "result", [*memory[: len(self.arrays)], total], f.i("add", first, k), y, x, n)

        def tile(r: Int) -> None:
            at = f.at(m, f.i("mul", r, self.v_tile if how.images else self.m_row))
            n, y, x = self.place(f, self.tile(f, block, r))

            def images(k: Int) -> None:
                def some(w: Int) -> None:
                    by = f.i("mul", w, self.lanes)
                    result(f.at(of_k, by), k, y, x, f.i("add", n, by))

                of_k = f.at(at, f.i("mul", k, self.m_row))
                f.each(0, how.vectors, some)

            def channels(w: Int) -> None:
                result(f.at(at, f.i("mul", w, self.m_vector)), w, y, x, n)

            if how.images:
                f.each(0, self.rows, images)
            else:
                f.each(0, how.vectors, channels)

        f.each(0, self.tiles_of(f, block), tile)

    def phase(self, units: int) -> tuple[Function, list[str]]:
        """A phase to be written, and the kernel's buffers and the scratch memory in it."""
        f = self.function(Contract(integers={LOW: (0, units - 1), HIGH: (0, units)}))
        arrays = [*self.arrays, ("scratch", self.scratch)] if self.scratch else self.arrays
        if self.open:
            images = Name(
                f.name(f"load i64, ptr {f.name(f'getelementptr i64, ptr %args, i64 {len(arrays) + 1}')}")
            )
            f.ranges.declare(images, 1, OPEN)
            self.count = f.i("mul", images, self.grid[0] * self.grid[1])
            f.ranges.declare(self.count, 1, self.tiles)
        return f, [f.pointer(k, array, size) for k, (array, size) in enumerate(arrays)]

    def add_phase(self, name: str, f: Function, unit: Callable[[Int], None], time: float) -> Phase:
        f.each(LOW, HIGH, unit)
        self.add(name, f, entry=True)
        return Phase(f"{UNNAMED}_{name}", f.contract.integers[HIGH][1], time)

    def weights(self, time: float) -> Phase:
        """U = G w Gt for some of the summed channels."""
        f, memory = self.phase(self.channels)
        s, n, taps = self.shape, self.n, range(self.shape.window)
        g = weight_transform(self.how.tile, s.window).tolist()

        def vector(c: Int, k: Int) -> None:
            at = f.at(memory[s.weight], f.i("mul", c, s.weight_at.coefficient(s.channel)), k)
            places = [[self.tap(0, r) + self.tap(1, q) for q in taps] for r in taps]
            values = [[f.load(f.at(at, place)) for place in row] for row in places]
            half = [[combination(f, row, column) for column in zip(*values, strict=True)] for row in g]
            to = f.at(memory[-1], f.i("mul", c, self.u_channel), k)
            for a in range(n):
                for b, row in enumerate(g):
                    f.store(combination(f, row, half[a]), f.at(to, (a * n + b) * self.u_position))

        def unit(c: Int) -> None:
            f.each(0, self.outs, lambda k: vector(c, k), self.lanes)

        return self.add_phase("weights", f, unit, time)

    def tap(self, dimension: int, number: int) -> int:
        """Where a tap is in the weight, by its place in the window."""
        axis = self.shape.taps[dimension]
        backwards = self.shape.at.coefficient(axis) < 0
        return int(self.shape.weight_at.coefficient(axis)) * (
            self.shape.window - 1 - number if backwards else number
        )

    def by_blocks(self, time: float) -> Phase:
        """V of a block of tiles, and then its outputs chunk by chunk."""
        f, memory = self.phase(self.blocks)
        v, m, edge = f.floats("v", self.v_size), f.floats("m", self.m_size), self.edge(f)

        def unit(block: Int) -> None:
            def tile(r: Int) -> None:
                self.fetch(f, memory, edge, f.at(v, f.i("mul", r, self.v_tile)), self.tile(f, block, r))

            f.each(0, self.tiles_of(f, block), tile)
            f.each(0, self.chunks, lambda chunk: self.outputs(f, memory, v, m, block, chunk))

        return self.add_phase("blocks", f, unit, time)

    def by_tiles(self, time: float) -> Phase:
        """V of a tile, of those of all blocks."""
        f, memory = self.phase(self.tiles)
        edge = self.edge(f)

        def unit(tile: Int) -> None:
            block, number = f.i("sdiv", tile, self.block), f.i("srem", tile, self.block)
            to = f.at(memory[-1], f.i("mul", block, self.v_size), f.i("mul", number, self.v_tile))
            self.fetch(f, memory, edge, to, tile)

        return self.add_phase("transform", f, unit, time)

    def by_chunks(self, time: float) -> Phase:
        """The outputs of a chunk, block by block."""
        f, memory = self.phase(self.chunks)
        m = f.floats("m", self.m_size)

        def outputs(block: Int, chunk: Int) -> None:
            v = f.at(memory[-1], f.i("mul", block, self.v_size))
            self.outputs(f, memory, v, m, block, chunk)

        def unit(chunk: Int) -> None:
            f.each(0, self.blocks, lambda block: outputs(block, chunk))

        return self.add_phase("chunks", f, unit, time)
