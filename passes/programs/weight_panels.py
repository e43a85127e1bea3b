"""Products whose right factor is computed of weights that are kept as bytes (`read_narrow.py`), by panels.

    sum(g:8 r:64) (x[i, 64*g+r] * (f32(q[j, 64*g+r]) * s[j, g]))
        ->  q as [n / width, 8, 64, width], s as [n / width, 8, width]  # pack(q, j) pack(s, j) scale(r)

Bytes become floats in registers, once for all rows of a tile.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ...ir.dims import Dim, hint
from ...ir.kernel.affine import Affine
from ...ir.kernel.form import Axis, Buffer, Kernel
from ...ir.kernel.scalar import Read, coordinate, op
from ...ir.kernel.substitute import Substitution
from ...ir.kernel.types import is_floating
from ..kernels.blocking import fresh
from ..kernels.collapse import collapsed
from ..kernels.product import Product, product_of
from ..kernels.scales import split_scales
from ..schedules.default import usual
from ..schedules.steps import Apart, Pack, Prefetch, Scale, Schedule, Step, Unroll
from ..schedules.target import AHEAD
from .digit_panels import in_digits, in_whole_numbers, panel_width
from .half_panels import in_halves
from .product_calls import by_columns, chains_of, guarded, instead, part_of, reads_of, sure
from .program import Array, Call
from .side_by_side import BYTES

if TYPE_CHECKING:
    from .pack_matmuls import Packing

FAR_BYTES = 2 << 20  # of a packed factor that comes from beyond the nearer caches ...
FEW_ROWS = 64  # ... and is asked for beforehand where not many rows share it
SUMS = 8  # of a tile at least: an addition takes four cycles, and two of them are begun in each


def is_made_of_bytes(packing: Packing, call: Call, flat: Kernel, roles: Product) -> bool:
    """Whether the right factor is computed of weights that are kept as bytes, one for each of them, or
    half of one (read_narrow.py)."""
    reads = reads_of(roles.right)
    frozen = all(array in packing.frozen for array in packing.arrays_of(call, roles.right, flat))
    simple = all(e.other is None and all(isinstance(p, Affine) for p in e.index) for e in reads)
    is_open = any(isinstance(flat.extents[axis], Dim) for axis in flat.free_axes(roles.right))
    return made_of_bytes(flat, roles) and frozen and simple and not is_open


def made_of_bytes(flat: Kernel, roles: Product) -> bool:
    """Whether the right factor is floats that are computed of bytes."""
    of_bytes = any(flat.buffers[e.buffer].dtype in BYTES for e in reads_of(roles.right))
    return of_bytes and is_floating(flat.dtypes[roles.stage.name])


def from_bytes(packing: Packing, call: Call) -> Call:
    """The call by panels, whose columns are made of bytes and scales where they are multiplied: each of
    those lies in panels of its own."""
    flat = collapsed(call.kernel)
    roles = sure(by_columns(flat))
    _, width = packing.tile(flat, roles)
    call = replace(call, kernel=bytes_first(call.kernel, roles.turned))
    whole = in_whole_numbers(packing, call, roles.turned)
    if whole is not None:
        width = panel_width(packing, int(flat.extents[roles.column]))
    flat = collapsed(call.kernel)
    roles = sure(by_columns(flat))
    full = replace(sure(product_of(call.kernel)), turned=roles.turned)
    pairs = zip(reads_of(full.right), reads_of(roles.right), strict=True)
    given, packs, ahead = call, list[Pack](), list[Prefetch]()
    for access, flat_access in dict(pairs).items():
        if roles.column in flat.free_axes(flat_access) and (whole is None or access != whole[0]):
            pack = in_panels(packing, given, flat, roles, flat_access, width)
            call, name = with_panels(call, given.kernel, flat, roles, (access, flat_access), pack)
            packs.append(Pack(name, roles.column))
            rows = usual(flat.extents[roles.row]) if roles.row else 1
            if pack.dtype in BYTES and hint(pack.nbytes) > AHEAD and rows <= FEW_ROWS:
                ahead.append(Prefetch(name, AHEAD))
    if whole is not None:
        return in_digits(packing, call, roles.turned, whole[1], packs)
    if (made := in_halves(packing, call, roles.turned)) is not None:
        return made
    flat = collapsed(call.kernel)
    call = packing.simple_left(call, flat, sure(by_columns(flat)))
    flat = collapsed(call.kernel)
    made = packing.panels(call, flat, pack=False)
    assert made.how is not None
    return replace(
        made, how=Schedule(*made.how.steps, *packs, *ahead, *scaled_axes(flat, sure(by_columns(flat))))
    )


def in_panels(packing: Packing, call: Call, flat: Kernel, roles: Product, access: Read, width: int) -> Array:
    """What a collapsed kernel reads for its columns, in panels: [..., n / width, k..., width]."""
    free, columns = flat.free_axes(access), int(flat.extents[roles.column])
    panel, lane = Axis(fresh(flat, "p"), -(-columns // width)), Axis(fresh(flat, "x"), width)
    outer, summed = beside(flat, roles, access)
    axes = (*outer, panel, *summed, lane)
    reads = partial(guarded, flat, roles.left) if columns % width else None
    column = Affine.of({panel.name: width, lane.name: 1})
    value = Substitution(indices={roles.column: column}, reads=reads).expr(access)
    assert roles.column in free
    buffer = Buffer("packed", flat.buffers[access.buffer].dtype, tuple(axis.extent for axis in axes))
    at = tuple(Affine(((axis.name, 1),)) for axis in axes)
    return packing.shared(part_of(packing.flattened(call, flat, value), "pack", value, buffer, axes, at))


def beside(flat: Kernel, roles: Product, access: Read) -> tuple[list[Axis], list[Axis]]:
    """The axes of a read beside its columns: parallel ones, and those of the sum."""
    free = flat.free_axes(access) - {roles.column}
    outer = [axis for axis in flat.parallel if axis.name in free]
    return outer, [axis for axis in roles.stage.axes if axis.name in free]


def with_panels(
    call: Call,
    given: Kernel,
    flat: Kernel,
    roles: Product,
    accesses: tuple[Read, Read],
    packed: Array,
) -> tuple[Call, str]:
    """The call that reads in panels what it reads for its columns, and the new buffer's name.

    given, flat: its kernel before this, and collapsed; accesses: the read in both.
    """
    chains, width = chains_of(given, flat), packed.shape[-1]
    outer, summed = beside(flat, roles, accesses[1])
    buffer = Buffer(fresh(call.kernel, "packed"), packed.dtype, packed.shape)
    place = coordinate(chains[roles.column])
    index = [*(chains[axis.name] for axis in outer), op("floor_div", place, width)]
    index += [*(chains[axis.name] for axis in summed), op("remainder", place, width)]
    return instead(call, accesses[0], buffer, tuple(index), packed), buffer.name


def bytes_first(kernel: Kernel, turned: bool) -> Kernel:
    """The kernel whose sum goes over its bytes in the order in which they lie, and last over the halves of
    each."""
    found = replace(sure(product_of(kernel)), turned=turned)
    of_bytes = [e for e in reads_of(found.right) if kernel.buffers[e.buffer].dtype in BYTES]
    free = frozenset[str]().union(*map(kernel.free_axes, of_bytes))
    axes = tuple(sorted(found.stage.axes, key=lambda axis: axis.name not in free))
    stages = tuple(replace(s, axes=axes) if s is found.stage else s for s in kernel.stages)
    return kernel.replace(stages=stages)


def scaled_axes(flat: Kernel, roles: Product) -> list[Step]:
    """The axes of a sum of weights that are scaled: from which on a sum is taken first, and whose points are
    of one byte."""
    steps, axes = list[Step](), roles.stage.axes
    bytes_ = [e for e in reads_of(roles.right) if flat.buffers[e.buffer].dtype in BYTES]
    apart = [a for a in axes if not any(a.name in flat.free_axes(e) for e in bytes_)]
    steps += [Unroll(axis.name, int(axis.extent)) for axis in apart]
    steps += [Apart(axis.name, SUMS) for axis in [a for a in axes if a not in apart][-1:]]
    for n in range(len(axes)):  # of all axes first: a scale of a row
        if split_scales(flat, roles.stage, [axis.name for axis in axes[n:]]) is not None:
            steps.append(Scale(axes[n].name))
            break
    return steps
