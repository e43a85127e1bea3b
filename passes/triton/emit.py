"""Kernel + schedule -> Triton source.

Every parallel axis is in one of the tiles (fused axes, one tensor dimension), or a plain number that is taken
from the program id or from a serial loop.  A tensor has one dimension for each tile, then one for the block
of local axes; a dimension that a value does not vary over has size 1, so that broadcasting does the rest.

Outputs that accumulate are filled with the identity by whoever launches, as `form.Store` says.  Indices from
data are masked: one that is out of range reads 0 and stores nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

from ...ir.errors import KernelError
from ...ir.kernel import expansions
from ...ir.kernel.affine import Affine
from ...ir.kernel.form import Axis, Fold, Kernel, Local, Reduce, Stage, Store, names
from ...ir.kernel.scalar import Cast, Const, Coordinate, Expr, Op, Read, Ref, cast, ref
from ...ir.kernel.types import kind
from ...ir.kernel.words import VOCABULARY
from ..schedules.gpu import Along, Lanes, Persistent
from ..schedules.steps import Schedule
from .check import check
from .combine import accumulate, assign_fold, scan_block, scan_start, scan_step
from .defaults import default_schedule, scans_of
from .dot import dot
from .names import endings, entry
from .opening import EXTENT, Numbers, Open
from .programs import is_wide, place_program
from .schedule import Tile, check_bound, dotted, points, serial, tiles, turns
from .spelling import converted, literal, number, power_helper, spelled
from .stores import store

BOUND: Mapping[str, str] = MappingProxyType({})  # no axis is open


def lower(
    kernel: Kernel,
    schedule: Schedule | None = None,
    opened: Mapping[str, str] = BOUND,
    numbers: Numbers | None = None,
) -> str:
    """A verified, bound kernel as a Triton module.

    The entry is named by `names.entry(kernel.name)`; its parameters are the buffers, as pointers, the extents
    of axes that are `opened`, under these names, and then `numbers` (opening.py).  Raises KernelError for
    what the emitter cannot say.
    """
    check_bound(kernel)
    schedule = schedule or default_schedule(kernel)
    check(kernel, schedule)
    return Emitter(kernel, schedule, opened, numbers or Numbers(Open.NOTHING)).module()


@dataclass(frozen=True)
class Dims:
    """The dimensions of a tensor: the tile or block that each is laid along, None for one of size 1."""

    tiles: tuple[str | None, ...]

    def spread(self, name: str, tile: str) -> str:
        """A one-dimensional variable as a tensor of this rank."""
        if len(self.tiles) == 1:
            return name
        return f"{name}[{', '.join(':' if dim == tile else 'None' for dim in self.tiles)}]"


class Emitter:
    """Writes one @triton.jit function.  `scopes` are memo tables, one for each open loop."""

    def __init__(self, kernel: Kernel, schedule: Schedule, opened: Mapping[str, str], size: Numbers):
        self.kernel, self.schedule, self.opened, self.size = kernel, schedule, opened, size
        self.is_open = EXTENT in opened.values()
        self.head: list[str] = []  # lines of the function that come first
        self.lines: list[str] = []
        self.helpers: dict[str, str] = {}
        self.depth = 1
        self.count = 0
        self.scopes: list[dict] = [{}]
        self.pointers = endings(kernel.buffers, "ptr")
        self.at = endings(kernel.extents, "at")
        every, lanes = tiles(schedule), tuple(schedule.of(Lanes))
        self.tiles = endings((tile.dim for tile in every), "tile")
        self.sizes = {tile.dim: tile.size for tile in every}
        self.totals = {tile.dim: points(kernel, tile.axes) for tile in every}
        self.active: dict[str, Tile] = {axis: tile for tile in lanes for axis in tile.axes}
        self.product = dotted(kernel, schedule)
        # a dot's own block is its business
        self.blocks = () if self.product else tuple(schedule.of(Along))
        row = [None] if self.blocks else []
        self.main = Dims((*(tile.dim for tile in lanes), *row) or (None,))
        self.wide = is_wide(kernel, schedule)
        self.starts: dict[str, str] = {}  # the first points of tiles, where descriptors are told of them

    # ---- text
    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def fresh(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def let(self, text: str) -> str:
        name = self.fresh()
        self.line(f"{name} = {text}")
        return name

    def known(self, key: Any, make: Callable[[], str]) -> str:
        """What is in the memo under a key, made now and for the innermost scope if it isn't."""
        for scope in self.scopes:
            if key in scope:
                return scope[key]
        name = make()
        self.scopes[-1][key] = name
        return name

    @contextmanager
    def scope(self):
        """What is computed inside is forgotten behind: it stands in a loop."""
        self.scopes.append({})
        yield
        self.scopes.pop()

    @contextmanager
    def loop(self, counter: str, name: str, extent: str, step: int = 1):
        """A sequential loop; its variable is a Triton integer, as wide as the indices are."""
        self.line(f"for {counter} in range(0, {extent}, {step}):")
        self.depth += 1
        self.line(f"{name} = tl.cast({counter}, tl.int{64 if self.wide else 32})")
        with self.scope():
            yield
        self.depth -= 1

    def function(self, name: str, given: dict[Ref, str], results: tuple[Expr, ...], dtypes: list[str]) -> str:
        """A @triton.jit function of scalars, for tl.reduce.

        given: its parameters, by what they stand for.  Gives the function's name.
        """
        if name not in self.helpers:
            kept = self.lines, self.depth, self.scopes
            dims = Dims(())
            known = {(e, dims, self.kernel.dtypes[e.name]): text for e, text in given.items()}
            self.lines, self.depth, self.scopes = [], 1, [known]
            values = [self.emit(e, dims, dtype) for e, dtype in zip(results, dtypes, strict=True)]
            head = f"@triton.jit\ndef {name}({', '.join(given.values())}):"
            self.helpers[name] = "\n".join([head, *self.lines, f"    return {', '.join(values)}", ""])
            self.lines, self.depth, self.scopes = kept
        return name

    def combining(self, word: str, dtype: str) -> str:
        """The name of a @triton.jit function of two operands that applies a word."""
        name = f"{word}_{dtype}_helper"
        text = self.spelled(word, dtype, "a", "b")
        self.helpers[name] = f"@triton.jit\ndef {name}(a, b):\n    return {text}\n"
        return name

    def number(self, value: bool | int | float, dtype: str, dims: Dims) -> str:
        return number(value, dtype, len(dims.tiles))

    # ---- indices and masks
    def run(self, tile: Tile, first: int, last: int) -> str:
        """The variable that counts through the axes first..last of a tile, those behind them being counted
        through for each of its steps.
        """
        name = self.tiles[tile.dim]
        radix = points(self.kernel, tile.axes[last + 1 :])
        behind, own = tile.axes[last + 1 :], tile.axes[first : last + 1]
        quotient = name if radix == 1 else f"{name} // {self.size(radix, behind)}"
        if first:
            quotient += f" % {self.size(points(self.kernel, own), own)}"
        return name if quotient == name else self.known((tile, first, last), lambda: self.let(quotient))

    def whole(self, index: Affine, dims: Dims) -> str:
        """An affine index as text; fused axes whose strides agree are one variable."""
        extents = self.kernel.extents
        left = {axis: c for axis, c in index.terms if extents[axis] != 1}
        terms = [(self.at[axis], c) for axis, c in left.items() if axis not in self.active]
        for tile in dict.fromkeys(self.active[axis] for axis in left if axis in self.active):
            last = len(tile.axes) - 1
            while last >= 0:
                unit = left.get(tile.axes[last], 0)
                first, reach = last, unit
                while unit and first > 0:  # an axis of one point goes with any other
                    reach *= int(extents[tile.axes[first]])
                    before = tile.axes[first - 1]
                    if left.get(before, reach if extents[before] == 1 else 0) != reach:
                        break
                    first -= 1
                if unit:
                    terms.append((dims.spread(self.run(tile, first, last), tile.dim), unit))
                last = first - 1
        parts = [name if c == 1 else f"{name} * {self.size(c, name)}" for name, c in terms]
        if index.constant or not parts:
            parts.append(self.size(index.constant, "place"))
        return " + ".join(parts)

    def inside(self, axes: Iterable[str], dims: Dims) -> list[str]:
        """The tests that keep these axes' tiles within their extents, where they do not divide."""
        tiles = dict.fromkeys(self.active[a] for a in axes if a in self.active)
        return [
            f"({dims.spread(self.tiles[tile.dim], tile.dim)} < {self.total(tile)})"
            for tile in tiles
            if self.totals[tile.dim] % tile.size
            or self.size.are_open
            or not self.opened.keys().isdisjoint(tile.axes)
        ]

    def total(self, tile: Tile) -> str:
        """How many points a tile's axes have, as text."""
        total, slowest = self.totals[tile.dim], tile.axes[0]
        if slowest not in self.opened:
            return self.size(total, tile.axes)
        behind = total // int(self.kernel.extents[slowest])
        return self.opened[slowest] if behind == 1 else f"{self.opened[slowest]} * {behind}"

    def covers(self, block: Along) -> bool:
        """Whether a block is all of its axes, however long those are that are open."""
        return 0 < self.totals[block.dim] <= block.size and block.axes[0] not in self.opened

    # ---- expressions
    def emit(self, expr: Expr, dims: Dims, wanted: str | None = None) -> str:
        """The value's name; `wanted` types it where it is made of untyped constants alone."""
        dtype = self.kernel.dtype_of(expr) or wanted
        if dtype is None:
            raise KernelError(f"{self.kernel.name}: {expr} has no element type", "write it as f32(...)")
        return self.known((expr, dims, dtype), lambda: self.compute(expr, dims, dtype))

    def compute(self, expr: Expr, dims: Dims, dtype: str) -> str:
        match expr:
            case Const(value):
                return self.let(self.number(value, dtype, dims))
            case Read():
                return self.load(expr, dims)
            case Coordinate(index):
                return self.let(f"{self.number(0, 'i64', dims)} + ({self.whole(index, dims)})")
            case Ref(name):  # a Local: recomputed, which is free where its block covers its axis
                return self.emit(self.kernel.locals[name].value, dims)
            case Cast(target, arg, as_bits):
                value, source = self.emit(arg, dims), self.kernel.dtype_of(arg) or target
                return self.let(converted(value, source, target, as_bits))
            case Op(name, args):
                return self.operation(name, args, dims, dtype)
        raise TypeError(f"not a scalar expression: {expr!r}")

    def operation(self, name: str, args: tuple[Expr, ...], dims: Dims, dtype: str) -> str:
        word = VOCABULARY[name]
        pairs = list(zip(word.pattern, args, strict=False))
        agreed = next((d for p, a in pairs if p == "t" and (d := self.kernel.dtype_of(a))), dtype)
        simpler = None
        if name == "pow":  # a small constant power is a product or a root
            simpler = expansions.power(*(cast(a, agreed) if isinstance(a, Const) else a for a in args))
        elif word.spelling("triton", kind(agreed)) is None:
            simpler = word.expansion(agreed, args)
        if simpler is not None:
            return self.emit(simpler, dims, agreed)
        operands = [self.emit(a, dims, agreed if p == "t" else "bool") for p, a in pairs]
        return self.let(self.spelled(name, agreed, *operands))

    def spelled(self, name: str, dtype: str, *operands: str) -> str:
        text = spelled(name, dtype, *operands)
        if text is None:
            raise KernelError(f"{self.kernel.name}: {name} of {dtype} has no Triton spelling")
        if name == "pow" and kind(dtype) in "iu":
            self.helpers[f"pow_{dtype}_helper"] = power_helper(dtype)
        return text

    def load(self, access: Read, dims: Dims) -> str:
        buffer = self.kernel.buffers[access.buffer]
        offset, tests = self.address(buffer.name, access.index, dims)
        extents = self.kernel.extents  # an axis of one point is no part of an address
        free = {axis for axis in self.kernel.free_axes(access) if extents[axis] != 1}
        tests = self.inside(sorted(free), dims) + tests
        for d in self.kernel.unproved(access):
            part = access.index[d]
            if isinstance(part, Affine):
                index = f"({self.whole(part, dims)})"
                tests += [f"({index} >= 0)", f"({index} < {self.size(int(buffer.shape[d]), buffer.name)})"]
        pointer = self.pointers[buffer.name]
        if not tests:
            return self.let(f"tl.load({pointer} + {offset})")
        if not free <= buffer.offset(access.index).names:  # or the mask had more dimensions than the address
            offset += f" + tl.zeros({self.shape(dims)}, tl.int32)"
        other = access.other.value if access.other is not None else 0
        text = literal(bool(other) if buffer.dtype == "bool" else other, buffer.dtype)
        return self.let(f"tl.load({pointer} + {offset}, mask={' & '.join(tests)}, other={text})")

    def address(self, name: str, index: tuple[Affine | Expr, ...], dims: Dims) -> tuple[str, list[str]]:
        """An element's offset, and the tests that keep the indices from data within the buffer."""
        buffer, tests = self.kernel.buffers[name], []
        offset = self.whole(buffer.offset(index), dims)
        for part, stride, size in zip(index, buffer.strides, buffer.shape, strict=True):
            if isinstance(part, Expr):
                value = self.emit(part, dims, "i64")
                tests += [f"({value} >= 0)", f"({value} < {self.size(int(size), name)})"]
                offset += f" + {value}.to(tl.int64) * {self.size(int(stride), name)}" if stride else ""
        return offset, tests

    # ---- stages
    def block(self, stage: Stage | tuple[Axis, ...]) -> Along | None:
        """The block that a stage's last axes are, if they are one."""
        axes = names(stage if isinstance(stage, tuple) else stage.axes)
        return next((b for b in self.blocks if axes[-len(b.axes) :] == b.axes), None)

    def stage_dims(self, stage: Stage) -> Dims:
        block = self.block(stage)
        along = block.dim if block else None
        return Dims(tuple(dim or along for dim in self.main.tiles))

    def shape(self, dims: Dims) -> str:
        return f"({', '.join(str(self.sizes[dim]) if dim else '1' for dim in dims.tiles)},)"

    def bind(self, name: str, value: str, axes: tuple[str, ...] = ()) -> None:
        """Leave a stage's result in the memo for all dims: one of size 1 fits each."""
        dtype = self.kernel.dtypes[name]
        for dims in {self.main, *map(self.stage_dims, self.kernel.stages)}:
            self.scopes[-1][ref(name, axes), dims, dtype] = value

    def stages(self) -> None:
        stages, n = self.kernel.stages, 0
        while n < len(stages):
            stage = stages[n]
            n += 1
            match stage:
                case Store():
                    together = [stage]  # stores over the same axes share a loop
                    while n < len(stages) and isinstance(stages[n], Store) and stages[n].axes == stage.axes:
                        together.append(stages[n])
                        n += 1
                    self.over(stage, partial(self.store, together), together)
                case Reduce():
                    product = self.product
                    is_product = product is not None and stage == product.stage
                    self.bind(stage.name, dot(self, product) if is_product else accumulate(self, stage))
                case Fold(scan=False):
                    assign_fold(self, stage)
                case Local(name, ()):
                    self.bind(name, self.emit(stage.value, self.main))

    def store(self, together: list[Store]) -> None:
        """The stores of some stages.  What several take is computed first: a load can't begin before a store
        that may be to where it loads from.
        """
        if len(together) > 1 and all(stage.combine is None for stage in together):
            for stage in together:
                self.emit(stage.value, self.stage_dims(stage), self.kernel.buffers[stage.buffer].dtype)
        for stage in together:
            store(self, stage)

    def needs_loop(self, axes: tuple[Axis, ...]) -> bool:
        """Whether values over these axes come in several steps."""
        block = self.block(axes)
        return block is None or not self.covers(block) or len(axes) > len(block.axes)

    def over(self, stage: Stage, body: Callable[[], Any], together: Iterable[Stage] = ()) -> None:
        """The loops of a stage's local axes around `body`; a block that covers its axes needs none.

        The scans that these stages read run along: their states stand in the memo.
        """
        scans = dict.fromkeys(scan for one in (stage, *together) for scan in scans_of(self.kernel, one))
        ordered_scans = [s for s in self.kernel.stages if s in scans]
        block = self.block(stage)
        plain = stage.axes[: -len(block.axes)] if block else stage.axes
        self.nest(plain, block, ordered_scans, body)

    def nest(
        self, plain: tuple[Axis, ...], block: Along | None, scans: list[Fold], body: Callable[[], Any]
    ) -> None:
        if plain:
            axis, *rest = plain
            own = [scan for scan in scans if names(scan.axes) == (axis.name,)]
            states = [scan_start(self, scan) for scan in own]
            name = self.at[axis.name]
            extent = self.opened.get(axis.name) or self.size(int(axis.extent), (axis.name,))
            with self.loop(f"{name}_start", name, extent):
                for scan, state in zip(own, states, strict=True):
                    scan_step(self, scan, state)
                self.nest(tuple(rest), block, scans, body)
        elif block is None:
            body()
        else:
            self.along(block, [scan for scan in scans if names(scan.axes) == block.axes], body)

    def flattened(self, plain: tuple[Axis, ...], block: Along, body: Callable[[], Any]) -> None:
        """One loop over all steps of a block at all points of plain axes, the block's fastest.

        So what the next step needs is loaded ahead, from one point of an axis to the next as well.
        """
        steps = -(-self.totals[block.dim] // block.size)
        count = steps * points(self.kernel, names(plain))
        if not plain or count < 2 or block.axes[0] in self.opened:
            self.nest(plain, block, [], body)
            return
        outside, tile = dict(self.active), self.tiles[block.dim]
        range_ = f"tl.arange(0, {block.size})" + (".to(tl.int64)" if self.wide else "")
        self.active |= dict.fromkeys(block.axes, block)
        with self.loop(f"{tile}_start", f"{tile}_step", self.size(count, tile)):
            self.line(f"{tile} = ({tile}_step % {self.size(steps, tile)}) * {block.size} + {range_}")
            radix = steps
            for axis in reversed(plain):
                extent = int(axis.extent)
                place = f"({tile}_step // {self.size(radix, tile)}) % {self.size(extent, (axis.name,))}"
                self.line(f"{self.at[axis.name]} = {place}")
                radix *= extent
            body()
        self.active = outside

    def along(self, block: Along, scans: list[Fold], body: Callable[[], Any]) -> None:
        """A block, in steps if it doesn't cover its axes."""
        outside, tile, total = dict(self.active), self.tiles[block.dim], self.total(block)
        range_ = f"tl.arange(0, {block.size})" + (".to(tl.int64)" if self.wide else "")
        self.active |= dict.fromkeys(block.axes, block)
        if self.covers(block):
            if not any((block, "made") in scope for scope in self.scopes):
                self.line(f"{tile} = {range_}")
                self.scopes[-1][block, "made"] = tile
            for scan in scans:
                scan_block(self, scan, block)
            body()
        else:
            carried = [scan_start(self, scan) for scan in scans]
            with self.loop(f"{tile}_start", tile, total, block.size):
                self.line(f"{tile} = {tile} + {range_}")
                for scan, (state,) in zip(scans, carried, strict=True):
                    scan_block(self, scan, block, state)
                body()
        self.active = outside

    # ---- the module
    def module(self) -> str:
        first = f"tl.program_id(0){'.to(tl.int64)' if self.wide else ''}"
        for step in self.schedule.of(Persistent):
            count = turns(self.kernel, self.schedule)
            self.line(f"for pid_start in tl.range({first}, {count}, {step.count}, flatten=True):")
            self.depth, first = self.depth + 1, "pid_start"
        self.line(f"pid = {first}")
        place_program(self)
        with self.nested(serial(self.schedule)):
            self.stages()
        given = [self.pointers[name] for name in self.kernel.buffers]
        arguments = ", ".join([*given, *self.opened.values(), *self.size.values])
        return "\n".join(
            [
                "import triton",
                "import triton.language as tl",
                "from triton.language.extra import libdevice",
                "",
                "",
                *(f"{text}\n" for text in self.helpers.values()),
                "@triton.jit",
                f"def {entry(self.kernel.name)}({arguments}):",
                *self.head,
                *self.lines,
                "",
            ]
        )

    @contextmanager
    def nested(self, axes: tuple[str, ...]):
        """Sequential loops over parallel axes, slowest first."""
        if not axes:
            yield
            return
        name = self.at[axes[0]]
        extent = self.size(int(self.kernel.extents[axes[0]]), axes[:1])
        with self.loop(f"{name}_start", name, extent), self.nested(axes[1:]):
            yield
