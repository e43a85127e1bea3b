"""One kernel of a program to native code: the text of its functions, its phases, and what they cost.

A kernel runs as pieces, each a kernel itself over some of the call's arrays: filling what accumulates, then
the kernel; or partial results in scratch memory, then their combination.  Equal pieces give equal text, and
their names are made from that text, so that equal code is linked once.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from ...ir.dims import Dim, Undecided, evaluate, limits, substitute, symbol
from ...ir.errors import KernelError, Unsayable
from ...ir.kernel.affine import Affine, Extent
from ...ir.kernel.form import Buffer, Fold, Kernel, Local
from ...ir.kernel.substitute import bind
from ...ir.kernel.types import NUMPY
from ...ir.memo import MEMO
from ..kernels.arrange_axes import accumulated_apart, in_strips
from ..kernels.collapse import canonical, collapsed, generalised, opened
from ..kernels.filling import filling
from ..kernels.proof import prove
from ..kernels.residues import apart, residues
from ..kernels.split_reductions import split_reductions
from ..programs.program import Call
from ..schedules.cost import nanoseconds
from ..schedules.default import (
    default_schedule,
    most_kept,
    runs_once,
    transposed_axis,
    unit_axes,
    units,
    usual,
)
from ..schedules.steps import Block, Residues, Schedule, Strips, Winograd
from ..schedules.target import Target
from .code import Code, Phase
from .conv_winograd import WinogradCode
from .ranges import OPEN
from .units import Units

MANY = 16  # tiles of an axis that is left open
FEW_UNITS = 16  # below it, long reductions are cut in parts ...
LONG_UNIT = 20_000.0  # ... where a unit takes this many nanoseconds: the parts are more work in all


@dataclass(frozen=True)
class Piece:
    """A kernel on some of a call's arrays.

    slots: for each of its buffers, the place among the phase's arguments and a number of bytes beyond it.
    serial: its units must run in order.
    """

    kernel: Kernel
    schedule: Schedule
    slots: tuple[tuple[int, int], ...]
    serial: bool = False


def code_of(call: Call, target: Target) -> Code:
    """The code of a call.

    Equal kernels have equal code, whatever they are called; where the slowest axis can be left open, so have
    those that differ in its extent, but for the number of units.  Raises KernelError for what cannot be said.
    """
    how, kernel = call.how, prove(call.kernel).replace(name="kernel")
    code = (
        _winograd(kernel, how.winograd, target)
        if how is not None and how.winograd is not None
        else _generic(kernel, how, target)
    )
    return replace(code, kernel=call.kernel)


def open_code(call: Call, target: Target, most: int | None = None) -> Code | None:
    """The code of a call of symbols for all their sizes, but those that its `least` says; None without one.

    most: points of a tile along an axis that is left open, so that fewer serve.
    """
    kernel, how = prove(call.kernel).replace(name="kernel"), call.how
    if how is None or how.winograd is None:
        return _of_symbols(kernel, how, target, most)
    return _winograd_of_symbols(kernel, how.winograd, target)


def code_for_sizes(call: Call, sizes: Mapping[str, int], target: Target) -> Code:
    """The code of a call where its kernel's symbols are these sizes: that for all, if there is one."""
    kernel, how = call.kernel, call.how
    if not kernel.symbols:
        return code_of(call, target)
    found = open_code(call, target)
    if found is not None and all(evaluate(size, sizes) >= least for size, least in found.least):
        phases = [
            replace(
                phase,
                units=evaluate(phase.units, sizes),
                nanoseconds=evaluate(phase.nanoseconds, sizes),
            )
            for phase in found.phases
        ]
        symbols = tuple([evaluate(extent, sizes) for extent in found.symbols])
        return replace(found, kernel=kernel, phases=tuple(phases), symbols=symbols)
    bound = bind(kernel, **{name: sizes[name] for name in kernel.symbols})
    return code_of(replace(call, kernel=bound, how=how and how.fitted(bound)), target)


@lru_cache(MEMO)
def _winograd_of_symbols(kernel: Kernel, step: Winograd, target: Target) -> Code | None:
    """The code of a convolution for any number of images; None where other sizes are symbols, too."""
    found = None if step.images or step.spread else opened(kernel)
    if found is None or len(found[1]) != 1 or runs_once(found[0]):
        return None
    writer, (extent,) = WinogradCode(step, found[0], target), found[1].values()
    code = writer.code()
    (phase,) = code.phases
    tiles = extent * (writer.grid[0] * writer.grid[1])
    assert not isinstance(phase.nanoseconds, Dim)
    time = _time(phase.nanoseconds / OPEN, extent)
    phase = replace(phase, units=_blocks(tiles, writer.block), nanoseconds=time)
    return Code(kernel, code.text, (phase,), 0, (extent,), beside=code.beside)


@lru_cache(MEMO)
def _of_symbols(kernel: Kernel, schedule: Schedule | None, target: Target, most: int | None) -> Code | None:
    """The code of a kernel whose symbols are extents of axes; None where they are more than that."""
    flat = canonical(collapsed(kernel)) if schedule is None else schedule.applied(kernel)
    own = tuple((n, 0) for n in range(len(flat.buffers)))
    every: list[tuple[Kernel | None, Schedule | None, tuple[tuple[int, int], ...], bool]] = [
        (filling(flat, buffer), None, ((slot, 0),), False)
        for slot, buffer in enumerate(flat.outputs, len(flat.inputs))
    ]
    of_remainders = residues(flat) if schedule is not None and schedule.has(Residues) else [flat]
    every += [(piece, schedule, own, _meets(kernel)) for piece in of_remainders]
    texts, parts, declared = list[str](), list[Code](), dict[str, str]()
    at = len(flat.buffers) + 1  # behind the scratch memory, and the other phases' symbols
    for piece, how, slots, serial in every:
        if piece is None:
            continue
        made = _open_piece(piece, how, slots, serial, at, target, most)
        if made is None:
            return None
        needed, part = made
        texts.append(part.text)
        declared |= needed
        parts.append(part)
        at += len(part.symbols)
    return Code(
        kernel,
        "\n".join([*declared.values(), *dict.fromkeys(texts), ""]),
        tuple(phase for part in parts for phase in part.phases),
        0,
        tuple(extent for part in parts for extent in part.symbols),
        tuple(dict.fromkeys(pair for part in parts for pair in part.least)),
    )


def _open_piece(
    kernel: Kernel,
    schedule: Schedule | None,
    slots: tuple[tuple[int, int], ...],
    serial: bool,
    at: int,
    target: Target,
    most: int | None,
) -> tuple[dict[str, str], Code] | None:
    """A piece of a kernel for all sizes of its symbols, and the declarations that it needs.

    at: where %args has the extents of its axes.
    """
    piece, sizes = opened(kernel) or _renamed(kernel)
    whole = {name: _blocks(usual(size), target.lanes) * target.lanes for name, size in sizes.items()}
    numbers = bind(piece, **whole)  # tiles need not fit: they overlap at the end
    own = schedule or default_schedule(numbers, target)
    axes = {axis.name: substitute(axis.extent, sizes) for axis in piece.axes if isinstance(axis.extent, Dim)}
    kept = [s for s in piece.stages if isinstance(s, Local) and s.name in own.kept and s.axes[0].name in axes]
    if runs_once(piece):
        own = own.with_tiles(axes, 1)
    if most is not None:
        own = own.with_tiles(axes, most).without_arrays({s.name for s in kept})
        kept = []
    tiled = [axis for axis in axes if own.tiles.get(axis, 1) > 1]
    if {*own.peeled, *own.packed.values()} & axes.keys() - {own.axis} or _holds(piece, axes):
        return None
    try:
        with limits(dict.fromkeys(piece.symbols, (1, OPEN))):
            entry, text, needed = _function(piece, own, slots, target, at)
    except (Undecided, Unsayable):  # where the code needs a number
        return None
    count: Extent = 1
    for axis, blocks in unit_axes(piece, own):
        count *= _blocks(axes[axis], own.block(axis)) if blocks is None else blocks
    points: Extent = math.prod(axes.values())
    points_of_once = math.prod(int(numbers.extents[axis]) for axis in axes)  # a remainder may be none
    each = nanoseconds(numbers, own, target) / max(points_of_once, 1)
    time = _time(each, points)
    least = [(axes[axis], own.tiles[axis]) for axis in tiled if axis in piece.parallel_names]
    least += [(most_kept(piece.dtypes[s.name], own) - axes[s.axes[0].name], 0) for s in kept]
    phase = Phase(entry, count, time, serial)
    return needed, Code(piece, text, (phase,), 0, tuple(sizes[name] for name in piece.symbols), tuple(least))


def _renamed(kernel: Kernel) -> tuple[Kernel, dict[str, Dim]]:
    """The kernel with names for its symbols that no code has for anything else, and what those are."""
    names = {f"size{n}": symbol(name) for n, name in enumerate(kernel.symbols)}
    return bind(kernel, **{str(size): symbol(name) for name, size in names.items()}), names


def _holds(kernel: Kernel, axes: Collection[str]) -> bool:
    """Whether a scan along one of the axes is read by stages that don't run in its loop: its states are then
    held in an array."""
    for number, stage in enumerate(kernel.stages):
        if isinstance(stage, Fold) and stage.scan and stage.axes[0].name in axes:
            inside = kernel.scan_stores(number)
            outside = [s for n, s in enumerate(kernel.stages) if n > number and n not in inside]
            if any(kernel.needs(s) & set(stage.names) for s in outside):
                return True
    return False


def _blocks(extent: Extent, block: int) -> Extent:
    return (extent + (block - 1)) // block


def _time(each: float, points: Extent) -> Extent:
    """The nanoseconds of so many points, in whole numbers."""
    return points * round(each * 1024) // 1024


@lru_cache(MEMO)
def _winograd(kernel: Kernel, step: Winograd, target: Target) -> Code:
    return WinogradCode(step, kernel, target).code()


@lru_cache(MEMO)
def _generic(kernel: Kernel, schedule: Schedule | None, target: Target) -> Code:
    kernel, made, scratch = _parted(kernel, schedule, target)
    one = _open_for_numbers(kernel, schedule) if [piece.kernel for piece in made] == [kernel] else None
    functions, phases, declared = [], [], {}
    for piece in made:
        _fits(piece, kernel, scratch)
        name, text, needed = _function(
            one or piece.kernel, piece.schedule, piece.slots, target, len(kernel.buffers) + 1
        )
        functions.append(text)
        declared |= needed
        count = units(piece.kernel, piece.schedule)
        phases.append(Phase(name, count, nanoseconds(piece.kernel, piece.schedule, target), piece.serial))
    text = "\n".join([*declared.values(), *dict.fromkeys(functions), ""])
    symbols = (_extent_of(kernel, one),) if one else ()
    return Code(kernel, text, tuple(phases), scratch, symbols)


def _parted(kernel: Kernel, schedule: Schedule | None, target: Target) -> tuple[Kernel, list[Piece], int]:
    """The kernel that code is made of, its pieces, and the bytes of scratch memory that they share."""
    given = kernel
    if schedule is None:
        given = accumulated_apart(kernel) or kernel
        kernel = canonical(_in_strips(collapsed(given), target))
    else:
        kernel = schedule.applied(kernel)
    return kernel, *pieces(kernel, schedule, target, _meets(given))


@lru_cache(MEMO)
def divided(kernel: Kernel, schedule: Schedule | None, target: Target) -> tuple[Kernel, Schedule] | None:
    """The kernel that a call's code is made of, and the schedule that divides it in units.

    None where it runs in several phases, or its units in order.
    """
    if schedule is not None and schedule.winograd is not None:
        return None
    kernel, made, scratch = _parted(prove(kernel).replace(name="kernel"), schedule, target)
    if scratch or len(made) > 1 or made[0].serial or made[0].kernel != kernel:
        return None
    return kernel, made[0].schedule


def _open_for_numbers(kernel: Kernel, schedule: Schedule | None) -> Kernel | None:
    """The kernel with an axis left open, so that one code serves all its extents; None where none can be.

    Of a kernel that is scheduled an axis of many tiles, or of none: a few are better known (8 to 32 rows of a
    product with 1024 x 1024 weights lose a seventh, EPYC "Zen 3", 2026-11-25).
    """
    if schedule is None:
        return generalised(kernel)
    apart = {schedule.axis, *schedule.peeled, *schedule.packed.values()}
    if schedule.has(Strips):  # sums of its blocks wait in an array on the stack
        apart |= {step.axis for step in schedule.of(Block)}
    for axis in kernel.parallel:
        tile, extent = schedule.tiles.get(axis.name, 1), int(axis.extent)
        if axis.name not in apart and extent > (MANY * tile if tile > 1 else 1):
            if (found := generalised(kernel, axis.name)) is not None:
                return found
    return None


def _extent_of(kernel: Kernel, opened: Kernel) -> int:
    """The extent of the axis that was left open."""
    return next(int(kernel.extents[a.name]) for a in opened.parallel if isinstance(a.extent, Dim))


_UNNAMED = "unnamed"  # the function while its text is hashed


@lru_cache(MEMO)
def _function(
    kernel: Kernel, schedule: Schedule, slots: tuple[tuple[int, int], ...], target: Target, symbols_at: int
) -> tuple[str, str, dict[str, str]]:
    """The symbol of a piece's entry, the text of its two functions, and the declarations these need.

    symbols_at: where %args has the kernel's symbols.
    """
    writer = Units(kernel, schedule, target)
    body = writer.function(_UNNAMED, "internal ")
    said = f"{body}\n{slots} {symbols_at if kernel.symbols else ''}"
    name = "k" + hashlib.blake2b(said.encode(), digest_size=10).hexdigest()
    body = body.replace(f"@{_UNNAMED}(", f"@{name}.body(", 1)
    lines = [body, f"define void @{name}(ptr %args, i64 %lo, i64 %hi) {{"]
    for n, (slot, offset) in enumerate(slots):
        lines.append(f"  %s{n} = getelementptr ptr, ptr %args, i64 {slot}")
        lines.append(f"  %{'p' if not offset else 'q'}{n} = load ptr, ptr %s{n}, align 8")
        if offset:
            lines.append(f"  %p{n} = getelementptr i8, ptr %q{n}, i64 {offset}")
    for n, size in enumerate(kernel.symbols):  # after the scratch memory
        lines.append(f"  %s.{size} = getelementptr i64, ptr %args, i64 {symbols_at + n}")
        lines.append(f"  %{size} = load i64, ptr %s.{size}, align 8")
    arguments = [f"ptr %p{n}" for n in range(len(slots))] + [f"i64 %{symbol}" for symbol in kernel.symbols]
    lines.append(f"  call void @{name}.body({', '.join([*arguments, 'i64 %lo', 'i64 %hi'])})")
    return name, "\n".join([*lines, "  ret void", "}"]), writer.declared


def pieces(
    kernel: Kernel, schedule: Schedule | None, target: Target, serial: bool
) -> tuple[list[Piece], int]:
    """The kernel as pieces, in the order in which they run, and the bytes of scratch memory they share.

    serial: units of the kernel itself may meet in one element.
    """
    if schedule is not None and schedule.has(Residues):
        slots = tuple((n, 0) for n in range(len(kernel.buffers)))
        return [Piece(part, schedule, slots) for part in residues(kernel)], 0
    if schedule is None and (remainders := apart(kernel)) != [kernel]:
        slots = tuple((n, 0) for n in range(len(kernel.buffers)))
        return [Piece(part, default_schedule(part, target), slots, serial) for part in remainders], 0
    own = schedule or default_schedule(kernel, target)
    count, parts = units(kernel, own), None
    if schedule is None and 0 < count < FEW_UNITS and nanoseconds(kernel, own, target) > count * LONG_UNIT:
        parts = split_reductions(kernel)
    if parts is not None:
        places, scratch = _places(kernel, parts)
        return [_piece(part, places, target) for part in parts], scratch
    first = [
        Piece(fill, default_schedule(fill, target), ((slot, 0),))
        for slot, buffer in enumerate(kernel.outputs, len(kernel.inputs))
        if (fill := filling(kernel, buffer)) is not None
    ]
    slots = tuple((n, 0) for n in range(len(kernel.buffers)))
    return [*first, Piece(kernel, own, slots, serial)], 0


def _in_strips(kernel: Kernel, target: Target) -> Kernel:
    """The kernel in strips where its default schedule transposes."""
    schedule = default_schedule(kernel, target)
    across = transposed_axis(kernel, schedule, target)
    return kernel if across is None else in_strips(kernel, schedule.axis or "", across)


def _fits(piece: Piece, kernel: Kernel, scratch: int) -> None:
    """Raises KernelError unless a piece's buffers lie in the call's arrays and its scratch memory."""
    sizes = [*map(_nbytes, kernel.buffers.values()), scratch]
    for buffer, (slot, beyond) in zip(piece.kernel.buffers.values(), piece.slots, strict=True):
        if beyond + _nbytes(buffer) > sizes[slot]:
            raise KernelError(
                f"{kernel.name}: {buffer} of a piece does not fit its memory of {sizes[slot]} bytes",
                f"kernel: {kernel}",
            )


def _nbytes(buffer: Buffer) -> int:
    return math.prod(map(int, buffer.shape)) * NUMPY[buffer.dtype].itemsize


def _piece(part: Kernel, places: dict[str, tuple[int, int]], target: Target) -> Piece:
    slots = tuple(places[name] for name in part.buffers)
    fewer = canonical(collapsed(part))
    return Piece(fewer, default_schedule(fewer, target), slots)


def _places(kernel: Kernel, parts: list[Kernel]) -> tuple[dict[str, tuple[int, int]], int]:
    """Where each buffer is, (argument, bytes beyond it), and the size of the scratch memory."""
    places = {name: (n, 0) for n, name in enumerate(kernel.buffers)}
    size = 0
    for part in parts:
        for buffer in part.outputs:
            if buffer.name not in places:
                places[buffer.name] = (len(kernel.buffers), size)
                size += -(-_nbytes(buffer) // 64) * 64
    return places, size


def _meets(kernel: Kernel) -> bool:
    """Whether two units of work may write one element: not where each parallel axis keeps points apart."""
    if kernel.is_order_free:
        return False
    return any(
        not any(isinstance(part, Affine) and part.names == {axis.name} for part in store.index)
        for store in kernel.stores
        for axis in kernel.parallel
    )
