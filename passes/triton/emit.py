"""Kernel + schedule -> Triton source.

Every parallel axis is either in one of the tiles (fused axes, one tensor dimension) or a plain number taken
from the program id.  A tensor has one dimension for each tile, then one for the block of a local axis; a
dimension that a value does not vary over has size 1, so that broadcasting does the rest.

Outputs that accumulate are filled with the identity by whoever launches, as `form.Store` says.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from ...ir.errors import KernelError
from ...ir.kernel.affine import Affine
from ...ir.kernel.form import COMBINE, Axis, Fold, Kernel, Local, Reduce, Store, identity, names
from ...ir.kernel.scalar import Cast, Const, Coordinate, Expr, Op, Read, Ref, ref
from ...ir.kernel.types import is_floating, kind
from ...ir.kernel.words import VOCABULARY
from ..contraction import Contraction
from .schedule import Schedule, default_schedule, grid_axes

TYPES = {"f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "bool": "int1"}
TYPES |= {
    "i64": "int64",
    "i32": "int32",
    "i16": "int16",
    "i8": "int8",
    "u8": "uint8",
    "u32": "uint32",
    "u64": "uint64",
}

# Words whose spelling takes only float32.
DOUBLE = {
    "div": "({0} / {1})",
    "sqrt": "tl.sqrt({0})",
    "max": "tl.where(({0} > {1}) | ({0} != {0}), {0}, {1})",
    "min": "tl.where(({0} < {1}) | ({0} != {0}), {0}, {1})",
}
ATOMIC = {"add": "tl.atomic_add", "max": "tl.atomic_max", "min": "tl.atomic_min"}


def lower(kernel: Kernel, schedule: Schedule | None = None) -> str:
    """A verified, bound kernel as a Triton module.  Raises KernelError for what the emitter cannot say."""
    if kernel.symbols:
        raise KernelError(
            f"{kernel.name}: Triton source is made for bound kernels",
            f"symbols: {', '.join(kernel.symbols)}",
            f"bind them: kernel.bind({', '.join(f'{name}=...' for name in kernel.symbols)})",
        )
    return Emitter(kernel, schedule or default_schedule(kernel)).module()


@dataclass(frozen=True)
class Place:
    """Which tensor dimension each tile or block is laid along."""

    dims: tuple[str | None, ...]

    def spread(self, name: str, group: str) -> str:
        """A one-dimensional variable as a tensor of this rank."""
        if len(self.dims) == 1:
            return name
        return f"{name}[{', '.join(':' if dim == group else 'None' for dim in self.dims)}]"


class Emitter:
    """Writes one @triton.jit function.  `scopes` are memo tables, one for each open loop."""

    def __init__(self, kernel: Kernel, schedule: Schedule):
        self.kernel, self.schedule = kernel, schedule
        self.lines: list[str] = []
        self.helpers: dict[str, str] = {}
        self.depth = 1
        self.count = 0
        self.scopes: list[dict] = [{}]
        self.blocks = dict(schedule.blocks)
        self.group = {axis: tile.name for tile in schedule.tiles for axis in tile.axes}
        self.group |= {axis: axis for axis in self.blocks}
        extents = {name: int(extent) for name, extent in kernel.extents.items()}
        self.totals = {tile.name: math.prod(extents[a] for a in tile.axes) for tile in schedule.tiles}
        self.totals |= {axis: extents[axis] for axis in self.blocks}
        self.sizes = {tile.name: tile.size for tile in schedule.tiles} | self.blocks
        row = [None] if self.blocks and not schedule.dot else []
        self.main = Place(tuple(tile.name for tile in schedule.tiles) + tuple(row) or (None,))

    # ---- text
    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def fresh(self) -> str:
        self.count += 1
        return f"_{self.count}"

    def let(self, text: str) -> str:
        name = self.fresh()
        self.line(f"{name} = {text}")
        return name

    def helper(self, word: str, dtype: str) -> str:
        """The name of a @triton.jit function of two operands, for tl.reduce."""
        name = f"combine_{word}_{dtype}"
        self.helpers[name] = (
            f"@triton.jit\ndef {name}(a, b):\n    return {self.spelled(word, dtype, 'a', 'b')}\n"
        )
        return name

    def number(self, value: bool | int | float, dtype: str, rank: int) -> str:
        """A typed constant, a tensor of size 1 in every dimension."""
        text = repr(value)
        if is_floating(dtype):
            text = repr(float(value))
            text = f"float('{text}')" if "inf" in text or "nan" in text else text
        return f"tl.full({[1] * rank}, {text}, tl.{TYPES[dtype]})"

    # ---- indices and masks
    def whole(self, index: Affine, place: Place) -> str:
        """An affine index as text; fused axes whose strides agree become their tile's own variable."""
        terms, left = [], dict(index.terms)
        for tile in self.schedule.tiles:
            radix = [
                math.prod(int(self.kernel.extents[a]) for a in tile.axes[k + 1 :])
                for k in range(len(tile.axes))
            ]
            unit = left.get(tile.axes[-1], 0)
            if (
                unit
                and len(tile.axes) > 1
                and all(left.get(a, 0) == unit * r for a, r in zip(tile.axes, radix, strict=True))
            ):
                terms.append((place.spread(tile.name, tile.name), unit))
                left = {a: c for a, c in left.items() if a not in tile.axes}
        for axis, coefficient in left.items():
            name = place.spread(axis, self.group[axis]) if axis in self.group else axis
            terms.append((name, coefficient))
        parts = [name if c == 1 else f"{name} * {c}" for name, c in terms]
        if index.constant or not parts:
            parts.append(str(index.constant))
        return " + ".join(parts)

    def inside(self, axes: Iterable[str], place: Place) -> list[str]:
        """The tests that keep these axes' tiles within their extents, where they do not divide."""
        groups = dict.fromkeys(self.group[a] for a in axes if a in self.group)
        return [
            f"({place.spread(g, g)} < {self.totals[g]})" for g in groups if self.totals[g] % self.sizes[g]
        ]

    # ---- expressions
    def emit(self, expr: Expr, place: Place, wanted: str | None = None) -> str:
        """The value's name; `wanted` types it where it is made of untyped constants alone."""
        dtype = self.kernel.dtype_of(expr) or wanted
        if dtype is None:
            raise KernelError(f"{self.kernel.name}: {expr} has no element type", "write it as f32(...)")
        key = expr, place, dtype
        for scope in self.scopes:
            if key in scope:
                return scope[key]
        name = self.compute(expr, place, dtype)
        self.scopes[-1][key] = name
        return name

    def compute(self, expr: Expr, place: Place, dtype: str) -> str:
        match expr:
            case Const(value):
                return self.let(self.number(value, dtype, len(place.dims)))
            case Read():
                return self.load(expr, place)
            case Coordinate(index):
                zero = self.number(0, "i64", len(place.dims))
                return self.let(f"{zero} + ({self.whole(index, place)})")
            case Ref(name):  # a Local: recomputed, which is free where its block covers its axis
                if name not in self.kernel.locals:
                    raise KernelError(
                        f"{self.kernel.name}: Triton reads the states of a scan in stores over its axis, "
                        "directly after it",
                        f"at: {expr}",
                    )
                return self.emit(self.kernel.locals[name].value, place)
            case Cast(target, arg, as_bits):
                value, source = self.emit(arg, place), self.kernel.dtype_of(arg) or target
                return self.let(_cast(value, source, target, as_bits))
            case Op(name, args):
                return self.operation(name, args, place, dtype)
        raise TypeError(f"not a scalar expression: {expr!r}")

    def operation(self, name: str, args: tuple[Expr, ...], place: Place, dtype: str) -> str:
        word = VOCABULARY[name]
        pairs = list(zip(word.pattern, args, strict=False))
        agreed = next((d for p, a in pairs if p == "t" and (d := self.kernel.dtype_of(a))), dtype)
        if word.spelling("triton", kind(agreed)) is None:
            simpler = word.expansion(agreed, args)
            if simpler is not None:
                return self.emit(simpler, place, agreed)
        operands = [self.emit(a, place, agreed if p == "t" else "bool") for p, a in pairs]
        return self.let(self.spelled(name, agreed, *operands))

    def spelled(self, name: str, dtype: str, *operands: str) -> str:
        letter = kind(dtype)
        spelling = VOCABULARY[name].spelling("triton", "f" if letter == "h" else letter)
        if dtype == "f64":
            spelling = DOUBLE.get(name, spelling)
        if spelling is None:
            raise KernelError(f"{self.kernel.name}: {name} of {dtype} has no Triton spelling")
        return spelling.format(*operands)

    def load(self, access: Read, place: Place) -> str:
        buffer = self.kernel.buffers[access.buffer]
        affine = buffer.offset(access.index)
        offset = self.whole(affine, place)
        free = self.kernel.free_axes(access)
        tests = self.inside(sorted(free), place)
        for part, stride in zip(access.index, buffer.strides, strict=True):
            if isinstance(part, Expr) and stride:
                offset += f" + {self.emit(part, place)}.to(tl.int64) * {stride}"
        for d in self.kernel.unproved(access):
            part = access.index[d]
            index = self.emit(part, place) if isinstance(part, Expr) else f"({self.whole(part, place)})"
            tests += [f"({index} >= 0)", f"({index} < {buffer.shape[d]})"]
        if not tests:
            return self.let(f"tl.load({buffer.name}_ptr + {offset})")
        if not free <= affine.names:  # a mask of more dimensions than the address would not broadcast
            offset += f" + tl.zeros({self.shape(place)}, tl.int32)"
        other = access.other.value if access.other is not None else 0
        other = f"float('{float(other)!r}')" if is_floating(buffer.dtype) else repr(other)
        return self.let(f"tl.load({buffer.name}_ptr + {offset}, mask={' & '.join(tests)}, other={other})")

    # ---- stages
    def stage_place(self, axes: tuple[Axis, ...]) -> Place:
        block = next((axis.name for axis in axes if axis.name in self.blocks), None)
        return Place(tuple(dim or block for dim in self.main.dims))

    def shape(self, place: Place) -> str:
        return f"({', '.join(str(self.sizes[dim]) if dim else '1' for dim in place.dims)},)"

    def bind(self, name: str, value: str, axes: tuple[str, ...] = ()) -> None:
        """Leave a stage's result in the memo, at every place: a dimension of size 1 fits each."""
        dtype = self.kernel.dtypes[name]
        for place in {self.main, *(self.stage_place(stage.axes) for stage in self.kernel.stages)}:
            self.scopes[-1][ref(name, axes), place, dtype] = value

    def stages(self) -> None:
        done: set[int] = set()
        for number, stage in enumerate(self.kernel.stages):
            match stage:
                case Store() if number not in done:
                    self.over(stage.axes, partial(self.store, stage))
                case Reduce():
                    dot = self.schedule.dot
                    value = self.dot(dot) if dot and stage == dot.stage else self.accumulate(stage)
                    self.bind(stage.name, value)
                case Fold():
                    done |= self.fold(number, stage)
                case Local(name, ()):
                    self.bind(name, self.emit(stage.value, self.main))

    def accumulate(self, stage: Reduce) -> str:
        place, dtype = self.stage_place(stage.axes), self.kernel.dtypes[stage.name]
        word = COMBINE[stage.combine]
        start = identity(word, dtype)
        block = next((axis.name for axis in stage.axes if axis.name in self.blocks), None)
        total, loops = self.fresh(), self.needs_loop(stage.axes)
        shape = self.shape(place)
        if loops:
            self.line(f"{total} = tl.broadcast_to({self.number(start, dtype, len(place.dims))}, {shape})")

        def body() -> None:
            value = f"tl.broadcast_to({self.emit(stage.value, place, dtype)}, {shape})"
            tests = self.inside([block] if block else [], place)
            if tests:
                value = (
                    f"tl.where({' & '.join(tests)}, {value}, {self.number(start, dtype, len(place.dims))})"
                )
            value = self.let(value)
            self.line(f"{total} = " + (self.spelled(word, dtype, total, value) if loops else value))

        self.over(stage.axes, body)
        if block is None:
            return total
        dim = place.dims.index(block)
        if dtype == "bool":  # reduced as numbers: 0 and 1
            combine = self.helper("max" if word == "bit_or" else "min", "i32")
            return self.let(f"tl.reduce({total}.to(tl.int32), {dim}, {combine}, keep_dims=True) != 0")
        return self.let(f"tl.reduce({total}, {dim}, {self.helper(word, dtype)}, keep_dims=True)")

    def fold(self, number: int, stage: Fold) -> set[int]:
        """A sequential loop that carries the states; a scan's stores stand inside.

        Gives those stages' numbers.
        """
        shape = self.shape(self.main)
        dtypes = [self.kernel.dtypes[name] for name in stage.names]
        states = [self.fresh() for _ in stage.names]

        def assign(values: list[str]) -> None:
            for state, value in zip(states, values, strict=True):
                self.line(f"{state} = tl.broadcast_to({value}, {shape})")

        assign([self.emit(e, self.main, d) for e, d in zip(stage.init, dtypes, strict=True)])
        inside = self.kernel.scan_stores(number) if stage.scan else []

        def body() -> None:
            self.scopes.append({})
            for name, state in zip(stage.names, states, strict=True):
                self.bind(name, state)
            values = [self.emit(e, self.main, d) for e, d in zip(stage.step, dtypes, strict=True)]
            self.scopes.pop()
            assign(values)
            self.scopes.append({})
            for name, state in zip(stage.names, states, strict=True):
                self.bind(name, state, names(stage.axes))
            for n in inside:
                other = self.kernel.stages[n]
                assert isinstance(other, Store)
                self.store(other)
            self.scopes.pop()

        self.over(stage.axes, body)
        if not stage.scan:
            for name, state in zip(stage.names, states, strict=True):
                self.bind(name, state)
        return set(inside)

    def needs_loop(self, axes: tuple[Axis, ...]) -> list[Axis]:
        return [axis for axis in axes if self.blocks.get(axis.name, 0) < int(axis.extent) or axis.extent == 0]

    def over(self, axes: tuple[Axis, ...], body: Callable[[], None]) -> None:
        """Sequential loops for local axes; a block that covers its axis needs none."""
        loops = self.needs_loop(axes)
        for axis in axes:
            if axis not in loops and (axis.name, "made") not in self.scopes[0]:
                self.line(f"{axis.name} = tl.arange(0, {self.blocks[axis.name]})")
                self.scopes[0][axis.name, "made"] = ""
        for axis in loops:
            block = self.blocks.get(axis.name)
            start = f"{axis.name}_start" if block else axis.name
            self.line(f"for {start} in range(0, {axis.extent}, {block or 1}):")
            self.depth += 1
            if block:
                self.line(f"{axis.name} = {start} + tl.arange(0, {block})")
        if loops:
            self.scopes.append({})
        body()
        if loops:
            self.scopes.pop()
        self.depth -= len(loops)

    def dot(self, roles: Contraction) -> str:
        k = next(axis for axis in roles.k if axis in self.blocks)
        total = self.fresh()
        self.line(f"{total} = tl.zeros({self.shape(self.main)}, tl.float32)")

        def factor(expr: Expr, place: Place) -> str:
            value = f"tl.broadcast_to({self.emit(expr, place, 'f32')}, {self.shape(place)})"
            tests = self.inside([k], place)
            if tests:  # beyond K a factor may be anything: a prologue makes numbers out of masked zeros
                value = f"tl.where({' & '.join(tests)}, {value}, 0.0)"
            return self.let(value)

        def body() -> None:
            left = factor(roles.left, Place(("m_tile", k)))
            right = factor(roles.right, Place((k, "n_tile")))
            self.line(
                f"{total} = tl.dot({left}, {right}, {total}, "
                f"input_precision='{self.schedule.precision}', out_dtype=tl.float32)"
            )

        self.over(roles.stage.axes, body)
        return total

    def store(self, stage: Store) -> None:
        place, buffer = self.stage_place(stage.axes), self.kernel.buffers[stage.buffer]
        shape = self.shape(place)
        value = f"tl.broadcast_to({self.emit(stage.value, place, buffer.dtype)}, {shape})"
        offset = self.whole(buffer.offset(stage.index), place)
        for part, stride in zip(stage.index, buffer.strides, strict=True):
            if isinstance(part, Expr):
                offset += f" + {self.emit(part, place)}.to(tl.int64) * {stride}"
        address = f"{buffer.name}_ptr + ({offset} + tl.zeros({shape}, tl.int32))"
        tests = self.inside(names(self.kernel.parallel + stage.axes), place)
        mask = f", mask={' & '.join(tests)}" if tests else ""
        if stage.combine is None:
            self.line(f"tl.store({address}, {value}{mask})")
        elif stage.combine in ATOMIC:
            self.line(f"{ATOMIC[stage.combine]}({address}, {value}{mask}, sem='relaxed')")
        else:
            raise KernelError(
                f"{self.kernel.name}: on a GPU points run in no order: {stage.combine}= has no atomic there",
                f"at: {stage}",
                f"the atomics are {', '.join(ATOMIC)}",
            )

    # ---- the module
    def module(self) -> str:
        arguments = ", ".join(f"{name}_ptr" for name in self.kernel.buffers)
        wide = any(math.prod(map(int, b.shape)) >= 1 << 31 for b in self.kernel.buffers.values())
        self.line(f"_pid = tl.program_id(0){'.to(tl.int64)' if wide else ''}")
        for name, count, tile in reversed(grid_axes(self.kernel, self.schedule)):
            index = f"_pid % {count}"
            self.line(
                f"{name} = ({index}) * {tile.size} + tl.arange(0, {tile.size})"
                if tile
                else f"{name} = {index}"
            )
            self.line(f"_pid = _pid // {count}")
            radix = 1
            for axis in reversed(tile.axes if tile else ()):
                self.line(f"{axis} = {name} // {radix} % {self.kernel.extents[axis]}")
                radix *= int(self.kernel.extents[axis])
        self.stages()
        return "\n".join(
            [
                "import triton",
                "import triton.language as tl",
                "from triton.language.extra import libdevice",
                "",
                "",
                *(f"{text}\n" for text in self.helpers.values()),
                "@triton.jit",
                f"def {self.kernel.name}({arguments}):",
                *self.lines,
                "",
            ]
        )


def _cast(value: str, source: str, target: str, as_bits: bool) -> str:
    if as_bits:
        return f"{value}.to(tl.{TYPES[target]}, bitcast=True)"
    if target == "bool":
        return f"({value} != 0)"
    if is_floating(source) and kind(target) == "u":  # a negative number wraps, as on the CPU
        return f"{value}.to(tl.int64).to(tl.{TYPES[target]})"
    return f"{value}.to(tl.{TYPES[target]})"
