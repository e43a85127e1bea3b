"""Calls in bands: what one makes a thread reads for the next while it is in its caches.

%u: f32[14,64,36,448] = tiles_of_g(%g)          ->    %u: f32[14,1034240] = tiles_of_g(%g)
%v: f32[14,64,36,448] = tiles_of_x(%x)                %v: f32[14,1034240] = tiles_of_x(%x)
%z: f32[14,36,64,64] = products(%u, %v)               %z: f32[14,36,64,64] = products(%u, %v)

An array of many bytes is written to memory and read from there again, which takes as long as what is computed
of it.  Where the calls that make and read it go over its first dimension part by part, and each reads no part
but the one that it is at, these bands are dealt out to threads: one makes a part of %u and of %v, and
multiplies them, before it begins another.  Nobody else reads these, so that such an array is a lane for each
thread that may be at it, with room for one part.  The gradient of a convolution's weight, of 64 channels and
32 images of 56 x 56, takes 14.7 ms in place of 22.2, and 28 in place of 45 on one thread.

A call's units of work are numbered by the axes of its kernel, the slowest first.  So a band is a range of
these numbers, where the slowest axes are divided evenly.  That each band reads and writes its own part of an
array alone is seen by the indices of the kernel that code is made of.

No thread is told what another makes meanwhile: calls that all threads share, band after band, took 13.4 ms,
but 44 in place of 28 (32 channels of 112 x 112) for as long as the host had the two threads on cores whose
caches are far from each other (an EPYC "Zen 4", two threads, 2026-11-29).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import NamedTuple

from ...ir.dims import Dim
from ...ir.kernel.affine import Affine
from ...ir.kernel.form import Axis, Index, Kernel
from ...ir.kernel.types import NUMPY
from ..kernels.collapse import accesses
from ..kernels.index_check import CHECK, trusted
from ..schedules.steps import Schedule
from .program import Array, Bands, Call, Program
from .program import Step as ProgramStep

FAR = 1 << 24  # bytes of an array, from which on it is in no cache when it is read
LEAST, NEAR = 1 << 18, 9 << 19  # of all that a band passes on: the more bands, the more threads share them
FEWEST = 8  # bands, which threads then share evenly enough
# Threads that may be at bands: so many, and up to the bits of a word where their lanes take no more bytes.
LANES, MOST_LANES, LANES_BYTES = 16, 64, 72 << 20
# Bytes before and behind a part: vectors of which some lanes are read in vain may reach there.
SLACK = 4096

Dealt = tuple[Kernel, Schedule]  # a kernel, and the schedule that divides it in units
Divided = Callable[[Call], Dealt | None]


def in_bands(program: Program, divided: Divided) -> Program:
    """The program with calls in bands, where what they pass on would go through memory.

    divided: the kernel that a call's code is made of, and how it is dealt out; None where it runs in several
    phases, or its units in order.
    """
    readers = _readers(program)
    steps, first = list(program.steps), 0
    while first < len(steps):
        found = [
            (group, count) for group in _groups(steps, first, readers) if (count := group.bands(divided))
        ]
        if found:
            group, count = found[-1]
            lanes = group.lanes(count)
            parts = {array: _parts(array, count, lanes) for array in group.passed}
            bands = Bands(count, lanes, frozenset(parts.values()))
            for number, call in enumerate(group.members, first):
                inputs, outputs = (
                    tuple([parts.get(array, array) for array in arrays])
                    for arrays in (call.inputs, call.outputs)
                )
                steps[number] = replace(call, inputs=inputs, outputs=outputs, bands=bands)
        first += len(found[-1][0].members) if found else 1
    return program.replace(steps=tuple(steps))


def _readers(program: Program) -> dict[Array, list[int]]:
    """The numbers of the steps that read each array; one behind the last for those that are results."""
    found: dict[Array, list[int]] = {array: [] for array in program.arrays()}
    for number, step in enumerate(program.steps):
        for array in step.inputs:
            if array is not None:
                found[array].append(number)
    for array in program.results:
        found[array].append(len(program.steps))
    return found


def _parts(array: Array, count: int, lanes: int) -> Array:
    """The array that holds so many of the `count` parts of another."""
    part = array.size // count + 2 * SLACK // NUMPY[array.dtype].itemsize
    return Array(array.name, array.dtype, (lanes, part))


def _groups(steps: Sequence[ProgramStep], first: int, readers: Mapping[Array, list[int]]) -> Iterator[_Group]:
    """The groups of calls that begin with one step, the shortest first."""
    calls: list[Call] = []
    made: set[Array] = set()
    for number, step in enumerate(steps[first:], first):
        if not isinstance(step, Call) or not _may_be(step):
            return
        read = made.intersection(step.inputs)
        if not read and not any(map(_is_far, step.outputs)):
            return
        calls.append(step)
        made.update(step.outputs)
        within = {array for array in made if readers[array] and max(readers[array]) <= number}
        if read and {array for call in calls for array in call.inputs if array in made} <= within:
            yield _Group(tuple(calls), within)


class _Group(NamedTuple):
    """Calls that follow each other, and the arrays that they alone make and read."""

    members: tuple[Call, ...]
    passed: set[Array]

    def bands(self, divided: Divided) -> int:
        """In how many bands, as many as are of some bytes; 0 where none fit."""
        lengths = [array.shape[0] for array in self.passed if array.shape]
        if not lengths or not any(map(_is_far, self.passed)):
            return 0
        length, nbytes = min(lengths), sum(array.nbytes for array in self.passed)
        counts = (
            n
            for n in range(min(length, nbytes // LEAST), FEWEST - 1, -1)
            if length % n == 0 and nbytes // n <= NEAR and self.may_be_in(n, divided)
        )
        return next(counts, 0)

    def lanes(self, count: int) -> int:
        """Of how many bands there is memory at a time."""
        band = sum(array.nbytes for array in self.passed) // count
        return min(count, MOST_LANES, max(LANES, LANES_BYTES // band))

    def may_be_in(self, count: int, divided: Divided) -> bool:
        """Whether each call does its own part of what is passed on in each of so many bands."""
        again = 0
        for call in self.members:
            found = divided(call)
            axes = None if found is None else _band_axes(found, count)
            if found is None or axes is None:
                return False
            kernel, arrays, buffers = found[0], (*call.inputs, *call.outputs), [*found[0].buffers.values()]
            if len(buffers) != len(arrays):
                return False
            passed = {b.name: b for a, b in zip(arrays, buffers, strict=True) if a in self.passed}
            if any(prod(b.shape) % count or b.layout is not None for b in passed.values()):
                return False
            indices = [(passed[name].shape, index) for name, index in accesses(kernel) if name in passed]
            if not _are_in_parts(axes, kernel, indices, count):
                return False
            again += _read_again(kernel, axes, passed, count)
        return again <= sum(array.nbytes for array in self.passed)


def _is_far(array: Array) -> bool:
    return not isinstance(array.nbytes, Dim) and array.nbytes >= FAR


def _may_be(call: Call) -> bool:
    kernel = call.kernel
    if kernel.symbols or kernel.name == CHECK or any(buffer.inplace for buffer in kernel.outputs):
        return False
    return not any(trusted(kernel))  # Python looks at its indices before


def _band_axes(dealt: Dealt, count: int) -> list[tuple[Axis, int]] | None:
    """The slowest axes of a kernel and how many of their points are in one of so many bands: of all but the
    last one.  None where bands would not have whole units, as many each."""
    kernel, how = dealt
    axes: list[tuple[Axis, int]] = []
    for axis in kernel.parallel:
        block = how.block(axis.name)
        if isinstance(axis.extent, Dim) or axis.extent % block:
            return None
        blocks = axis.extent // block
        if blocks % count == 0:
            return [*axes, (axis, axis.extent // count)]
        if count % blocks or block > 1:
            return None
        count //= blocks
        axes.append((axis, 1))
    return None


def _are_in_parts(
    axes: list[tuple[Axis, int]], kernel: Kernel, indices: Iterable[tuple[tuple, Index]], count: int
) -> bool:
    """Whether each access is, in each band, to its own of so many parts of a buffer."""
    within = kernel.extents | {axis.name: points for axis, points in axes}
    for (size, *_), (first, *_) in indices:
        if not isinstance(first, Affine) or isinstance(size, Dim) or size % count:
            return False
        part, apart = size // count, size
        for axis, points in axes:  # from one band to the next it is a part on
            apart //= axis.extent // points
            by = first.coefficient(axis.name)
            if isinstance(by, Dim) or by * points != apart:
                return False
        low, high = first.bounds(within)
        if not (0 <= low and high < part):
            return False
    return True


def _read_again(kernel: Kernel, axes: list[tuple[Axis, int]], names: Collection[str], count: int) -> int:
    """Bytes of buffers that every band reads as a whole, in all bands but the first."""
    along = {axis.name for axis, _ in axes}
    whole = {
        access.buffer
        for _, access in kernel.reads
        if access.buffer not in names and not along & kernel.free_axes(access)
    }
    sizes = [prod(map(int, b.shape)) * NUMPY[b.dtype].itemsize for b in kernel.inputs if b.name in whole]
    return (count - 1) * sum(sizes)
